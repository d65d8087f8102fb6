//! The listening socket.
//!
//! Owns binding and accepting. Must not read from connections, nor decide how many there may be: the driver does.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use zabkeeper_core::driver::SocketId;

use crate::config::Settings;
use crate::conn::serve_connection;
use crate::descriptors::Reserve;
use crate::names;
use crate::shared::Shared;

/// Connections that the kernel completes before we accept them, where nothing else is configured. ZooKeeper's 50 makes
/// clients wait for a second when a hundred come at once; the kernel's own bound (`somaxconn`) still holds.
pub(crate) const BACKLOG: u32 = 1024;

/// Pause after a failed accept. The usual cause is that the machine is out of file descriptors: the connection stays in
/// the kernel's queue, and an immediate retry would only spin.
const RETRY: Duration = Duration::from_millis(100);

/// How long an address that is in use is tried again: a service manager may start a server while the one before it still
/// ends.
const BUSY: Duration = Duration::from_secs(1);

/// Reserves the address; waits a little where another process still has it. Connections are let in only by [`accept`], so
/// that the port is known to be free before data is recovered, and nobody waits in its queue meanwhile.
///
/// # Errors
/// An address that is not this machine's, or is in use for longer than a second. One that does not resolve: a server on its
/// own refuses it, as ZooKeeper does; one of an ensemble waits until its name is known.
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
            // A machine without IPv6.
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

/// A socket on this address, with nobody let in yet.
///
/// # Errors
/// An address that is not this machine's, or is in use.
pub(crate) fn bind_to(address: SocketAddr) -> io::Result<TcpSocket> {
    let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
    // Connections of an earlier run that are still winding down must not keep the port.
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    Ok(socket)
}

/// Output that the kernel keeps before it says that it has no room.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// Begins to listen.
///
/// # Errors
/// Another process listens on the address since.
pub(crate) fn listen(socket: TcpSocket, settings: &Settings) -> io::Result<TcpListener> {
    socket.listen(settings.backlog.unwrap_or(BACKLOG))
}

fn tune(stream: &TcpStream, keep_alive: bool) {
    // Replies are written whole, so waiting to fill packets would only delay them.
    let _best_effort = stream.set_nodelay(true);
    // That output leaves shows that a client lives: the kernel must not take megabytes first, and say so then.
    #[cfg(target_os = "linux")]
    let _best_effort = SockRef::from(stream).set_tcp_notsent_lowat(UNSENT_BYTES);
    if keep_alive {
        let _best_effort = SockRef::from(stream).set_keepalive(true);
    }
}

/// Accepts connections for ever, each with a task of its own.
pub(crate) async fn accept(listener: TcpListener, shared: Rc<Shared>) {
    loop {
        Reserve::Clients.await_room(&listener).await;
        match listener.accept().await {
            // Others have taken the room since; the next ones wait.
            Ok((stream, _)) if Reserve::Clients.holds(&stream) => {}
            Ok((stream, peer)) => {
                let peer = SocketAddr::new(peer.ip().to_canonical(), peer.port());
                let (id, now) = (shared.next_conn(), shared.clock.now());
                let accepted = shared.driver().clients.accept(id, peer, Vec::new(), now);
                match accepted {
                    Ok(()) => {
                        tracing::debug!(conn = %id, %peer, "connection accepted");
                        tune(&stream, shared.settings.keep_alive);
                        let id = SocketId::Client(id);
                        let task = serve_connection(Rc::clone(&shared), stream, id);
                        tokio::task::spawn_local(task);
                        // How long it may be silent is a deadline more.
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
