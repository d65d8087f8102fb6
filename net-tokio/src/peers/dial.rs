//! Opens connections to other servers.
//!
//! Owns one attempt: names, addresses, the socket. Must not decide about the next attempt: the
//! driver does.

use std::io;
use std::rc::Rc;
use std::time::Duration;

use tokio::net::{TcpStream, lookup_host};
use tokio::task::JoinSet;
use tokio::time::timeout;
use zabkeeper_core::driver::{PeerDial, SocketId};
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::{Member, ServerAddress};

use super::tune;
use crate::config::Ensemble;
use crate::conn::serve_connection;
use crate::random;
use crate::shared::Shared;

/// How long an attempt goes on alone before the next address is tried beside it (RFC 8305).
const HEAD_START: Duration = Duration::from_millis(250);

/// Makes one attempt for the driver to reach the server that has one of these lines, and serves the
/// connection if the attempt succeeds.
pub(crate) async fn dial(shared: Rc<Shared>, dial: PeerDial, lines: Vec<Member>) {
    let PeerDial { link, channel, for_observers, first, .. } = dial;
    let mut stream = Err(io::Error::other("it is not among the servers of this ensemble"));
    if let Some(ensemble) = &shared.settings.ensemble {
        let observers = ensemble.observer_port.filter(|_| for_observers);
        let port = |address: &ServerAddress| match channel {
            Channel::Election => address.election_port,
            Channel::Quorum => observers.unwrap_or(address.quorum_port),
        };
        for line in lines {
            stream = connect(ensemble, &line, port, first).await;
            if stream.is_ok() {
                break;
            }
        }
    }
    let now = shared.clock.mono();
    match stream {
        Ok(stream) => {
            tune(&stream, &shared.settings);
            shared.driver().peers.connected(link, random::bytes(), now);
            shared.wake().notify_one();
            serve_connection(shared, stream, SocketId::Server(link)).await;
        }
        Err(error) => {
            shared.driver().peers.unreachable(link, error.to_string(), now);
            shared.wake().notify_one();
        }
    }
}

/// Connects to one of the addresses of a server, of which the one with the number `first` is tried
/// first. The next one is tried beside it when it has failed, or has not answered for
/// [`HEAD_START`]; the first connection that opens is taken.
///
/// # Errors
/// The last attempt has failed.
pub(super) async fn connect(
    ensemble: &Ensemble,
    member: &Member,
    port: impl Fn(&ServerAddress) -> u16,
    first: u32,
) -> io::Result<TcpStream> {
    let count = member.addresses.len();
    let first = first as usize % count;
    let (time, mut attempts) = (ensemble.connect_timeout, JoinSet::new());
    let mut addresses = member.addresses.iter().cycle().skip(first).take(count);
    let mut last = io::Error::other("it has no address");
    loop {
        let next = addresses.next();
        let next = next.map(|address| connect_to(address.host.clone(), port(address), time));
        let wait = if next.is_some() { HEAD_START } else { Duration::MAX };
        if let Some(next) = next {
            attempts.spawn_local(next);
        }
        match timeout(wait, attempts.join_next()).await {
            Ok(Some(Ok(Ok(stream)))) => return Ok(stream),
            Ok(Some(Ok(Err(error)))) => last = error,
            Ok(Some(Err(error))) => last = io::Error::other(error),
            Ok(None) => return Err(last),
            Err(_) => {}
        }
    }
}

/// Resolves a name, and connects to one of its addresses.
///
/// # Errors
/// The name does not resolve, or connecting to the last address has failed.
async fn connect_to(host: String, port: u16, time: Duration) -> io::Result<TcpStream> {
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    // The name is resolved for each attempt, because the server may have moved to another address.
    let addresses = timeout(time, lookup_host((host.as_str(), port))).await;
    let mut last = io::Error::other("the name has no address");
    for address in addresses.map_err(late)?? {
        let attempt = timeout(time, TcpStream::connect(address)).await;
        match attempt.map_err(late).flatten() {
            // TCP self-connection: nothing listens, and the kernel chose the target port as the
            // local port.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
