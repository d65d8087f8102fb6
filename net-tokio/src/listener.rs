//! The listening socket for clients.
//!
//! Owns where it listens, and accepting. Must not read from connections, nor decide how many there
//! may be: the driver does.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::{TcpListener, TcpSocket, TcpStream, lookup_host};
use zabkeeper_core::driver::SocketId;
use zabkeeper_core::{ConnId, Member};

use crate::config::Settings;
use crate::configs::Configs;
use crate::conn::serve_connection;
use crate::descriptors::Reserve;
use crate::listening::{Listening, Pauses, bind_to, everywhere};
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
    let Some(host) = &settings.host else { return bind_to(everywhere(settings.port)) };
    let addresses = if settings.ensemble.is_some() {
        names::addresses(host, settings.port).await
    } else {
        lookup_host((host.as_str(), settings.port)).await?.collect()
    };
    let first = addresses.first().ok_or_else(|| io::Error::other("the name has no address"))?;
    bind_to(*first)
}

/// Unsent output, in bytes, above which the kernel reports the socket as not writable.
#[cfg(target_os = "linux")]
const UNSENT_BYTES: u32 = 128 << 10;

/// Listens on the bound socket, and later where the configuration in force says (RECONF-12): the
/// task that the caller has to run. Connections that are open stay.
///
/// # Errors
/// Another process has started listening on the address since `bind`.
pub(crate) fn listen(
    socket: TcpSocket,
    shared: &Rc<Shared>,
    configs: Configs,
) -> io::Result<impl Future<Output = ()> + use<>> {
    let backlog = shared.settings.backlog.unwrap_or(BACKLOG);
    let accepting = Rc::clone(shared);
    let mut listening = Listening::new(backlog, move |(), listener| {
        accepting.spawn(accept(listener, Rc::clone(&accepting)))
    });
    listening.add((), socket)?;
    Ok(follow(listening, Rc::clone(shared), configs))
}

async fn follow(mut listening: Listening<()>, shared: Rc<Shared>, mut configs: Configs) {
    let own = shared.settings.core.id();
    let mut config = configs.next().await;
    loop {
        // As in ZooKeeper, a line without a client address changes nothing.
        let client = config.server(own).and_then(|own| own.client.clone());
        let moved = async {
            if let Some((host, port)) = client {
                listen_at(&mut listening, host.as_deref(), port, &shared).await;
            }
            std::future::pending().await
        };
        tokio::select! {
            () = moved => {}
            newer = configs.next() => config = newer,
        }
    }
}

/// Listens at this address only; retries until it does.
async fn listen_at(
    listening: &mut Listening<()>,
    host: Option<&str>,
    port: u16,
    shared: &Rc<Shared>,
) {
    let host = host.filter(|host| !Member::is_everywhere(host));
    let name = Member::address(host.unwrap_or("*"), &port);
    let mut pauses = Pauses::new();
    loop {
        let address = match host {
            None => Some(everywhere(port)),
            Some(host) => names::addresses(host, port).await.first().copied(),
        };
        let address = address.ok_or_else(|| io::Error::other("the name has no address"));
        let moved = match address {
            Ok(address) => listening.move_to(&[((), address)]).await,
            Err(error) => Err(error),
        };
        let error = match moved {
            Ok(false) => return,
            Ok(true) => {
                shared.set_client_address(host, port);
                return tracing::info!("listens on {name} for clients: a reconfiguration says so");
            }
            Err(error) => error,
        };
        let pause = pauses.next();
        tracing::warn!(
            "cannot listen on {name} for clients, as a reconfiguration says: {error}; clients \
             still reach {}; trying again in {} s",
            shared.client_address("*"),
            pause.as_secs()
        );
        tokio::time::sleep(pause).await;
    }
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
async fn accept(listener: TcpListener, shared: Rc<Shared>) {
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
                        shared.spawn(task);
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
