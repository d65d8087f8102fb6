//! The listening socket for clients.
//!
//! Owns binding and accepting. Must not read from connections, nor decide how many there may be:
//! the driver does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use zabkeeper_core::ConnId;
use zabkeeper_core::driver::SocketId;

use crate::config::Settings;
use crate::conn::serve_connection;
use crate::descriptors::Reserve;
use crate::names;
use crate::shared::Shared;

/// Default listen backlog: connections that the kernel completes before the server accepts them.
/// With ZooKeeper's 50, clients wait for a second when a hundred connect at once. The kernel's
/// `somaxconn` is an upper bound.
pub(crate) const BACKLOG: u32 = 1024;

/// Pause after a failed accept or bind. The usual cause of a failed accept is a lack of file
/// descriptors: the connection stays in the kernel's queue, and an immediate retry would only spin.
const RETRY: Duration = Duration::from_millis(100);

/// How long binding retries while the address is in use: a service manager may start a server while
/// the previous process is still exiting.
const BUSY: Duration = Duration::from_secs(1);

/// Binds the client address without listening; retries for a second while the address is in use.
/// The caller listens after recovery: so a busy port is reported before the data is read, and no
/// client waits in the backlog during recovery.
///
/// # Errors
/// The address is not one of this machine, or is in use for longer than a second; or the host name
/// does not resolve. The last applies to a standalone server only, as in ZooKeeper; a member of an
/// ensemble waits until the name resolves.
pub(crate) async fn bind(settings: &Settings) -> io::Result<TcpSocket> {
    let mut waited = Duration::ZERO;
    loop {
        match bind_once(settings).await {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && waited < BUSY => {
                tokio::time::sleep(RETRY).await;
                waited += RETRY;
            }
            bound => return bound,
        }
    }
}

async fn bind_once(settings: &Settings) -> io::Result<TcpSocket> {
    let Some(host) = &settings.host else {
        let everywhere = |ip: IpAddr| bind_to(SocketAddr::new(ip, settings.port));
        return match everywhere(Ipv6Addr::UNSPECIFIED.into()) {
            // The machine has no IPv6.
            Err(error) if !matches!(error.kind(), io::ErrorKind::AddrInUse) => {
                everywhere(Ipv4Addr::UNSPECIFIED.into())
            }
            bound => bound,
        };
    };
    let addresses = if settings.ensemble.is_some() {
        names::addresses(host, settings.port).await
    } else {
        lookup_host((host.as_str(), settings.port)).await?.collect()
    };
    let first = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
    bind_to(*first)
}

/// A socket bound to this address, not listening yet.
///
/// # Errors
/// The address is not one of this machine, or is in use.
pub(crate) fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier process in TIME_WAIT must not block the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Unsent output, in bytes, above which the kernel reports the socket as not writable.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// Starts listening.
///
/// # Errors
/// Another process has started listening on the address since `bind`.
pub(crate) fn listen(socket: TcpSocket, settings: &Settings) -> io::Result<TcpListener> {
    socket.listen(settings.backlog.unwrap_or(BACKLOG))
}

fn tune(stream: &TcpStream, keep_alive: bool) {
    // Replies are written whole, so Nagle's algorithm would only delay them.
    let _best_effort = stream.set_nodelay(true);
    // Draining output counts as a heartbeat, so the kernel must report it before it has buffered
    // megabytes.
    #[cfg(target_os = "linux")]
    let _best_effort = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    if keep_alive {
        let _best_effort = SockRef::from(stream).set_keepalive(true);
    }
}

/// Accepts connections for ever and starts a task for each.
pub(crate) async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    loop {
        Reserve::Clients.await_room(&listener).await;
        match listener.accept().await {
            // The free descriptors were used up since `await_room`: the connection is closed, and
            // the next one waits.
            Ok((stream, _)) if Reserve::Clients.holds(&stream) => {}
            Ok((stream, peer)) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let (id, now) = (ConnId(shared.next_id()), shared.clock.now());
                let accepted = shared.driver().clients.accept(id, peer, Vec::new(), now);
                match accepted {
                    Ok(()) => {
                        tracing::debug!(conn = %id, %peer, "connection accepted");
                        tune(&stream, shared.settings.keep_alive);
                        let id = SocketId::Client(id);
                        let task = serve_connection(Rc::clone(&shared), stream, id);
                        tokio::task::spawn_local(task);
                        // The new connection adds a deadline to the driver's timer.
                        shared.wake().notify_one();
                    }
                    Err(bound) => tracing::warn!("closed the connection from {peer}: {bound}"),
                }
            }
            Err(error) => {
                tracing::warn!("cannot accept a connection: {error}");
                tokio::time::sleep(RETRY).await;
            }
        }
    }
}
