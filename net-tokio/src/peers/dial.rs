//! Opens connections to other servers.
//!
//! Owns one attempt: names, addresses, the socket. Must not decide about the next attempt: the
//! driver does.

use std::io;
use std::rc::Rc;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zabkeeper_core::Member;
use zabkeeper_core::driver::{PeerDial, SocketId};
use zabkeeper_core::peer::greeting::Channel;

use super::tune;
use crate::config::Ensemble;
use crate::conn::serve_connection;
use crate::random;
use crate::shared::Shared;

/// Makes one attempt for the driver to reach the server that has one of these lines, and serves the
/// connection if the attempt succeeds.
pub(crate) async fn dial(shared: Rc<Shared>, dial: PeerDial, lines: Vec<Member>) {
    let PeerDial { link, channel, for_observers, .. } = dial;
    let mut stream = Err(io::Error::other("it is not among the servers of this ensemble"));
    if let Some(ensemble) = &shared.settings.ensemble {
        for line in lines {
            let port = match (channel, ensemble.observer_port) {
                (Channel::Election, _) => line.election_port,
                (Channel::Quorum, Some(port)) if for_observers => port,
                (Channel::Quorum, _) => line.quorum_port,
            };
            stream = connect(ensemble, &line, port).await;
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

/// Resolves the server's name, and connects to one of its addresses.
///
/// # Errors
/// The name does not resolve, or connecting to the last address has failed.
pub(super) async fn connect(
    ensemble: &Ensemble,
    member: &Member,
    port: u16,
) -> io::Result<TcpStream> {
    let time = ensemble.connect_timeout;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    // The name is resolved for each attempt, because the server may have moved to another address.
    let addresses = timeout(time, lookup_host((member.host.as_str(), port))).await;
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
