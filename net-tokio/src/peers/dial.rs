//! Opens connections to other servers.
//!
//! Owns one attempt: names, addresses, the socket. Must not decide whether there is a next one: the
//! driver does.

use std::io;
use std::rc::Rc;

use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zabkeeper_core::driver::{PeerDial, SocketId};
use zabkeeper_core::peer::greeting::Channel;

use super::tune;
use crate::config::{Ensemble, Member};
use crate::conn::serve_connection;
use crate::random;
use crate::shared::Shared;

/// Carries out one order of the driver: one attempt, and the life of the connection that comes of
/// it.
pub(crate) async fn dial(shared: Rc<Shared>, PeerDial { link, to, channel }: PeerDial) {
    let ensemble = shared.settings.ensemble.as_ref();
    let stream = match ensemble.and_then(|ensemble| Some((ensemble, ensemble.member(to)?))) {
        Some((ensemble, member)) => connect(ensemble, member, channel).await,
        None => Err(io::Error::other("it is not among the servers of this ensemble")),
    };
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

/// Connects to one of the server's addresses, resolved now.
///
/// # Errors
/// Of the name, or of the last address.
pub(super) async fn connect(
    ensemble: &Ensemble,
    member: &Member,
    channel: Channel,
) -> io::Result<TcpStream> {
    let port = match channel {
        Channel::Election => member.election_port,
        Channel::Quorum => member.quorum_port,
    };
    let time = ensemble.connect_timeout;
    let late = |_| io::Error::from(io::ErrorKind::TimedOut);
    // Each time anew: a server that was moved has another address under its name.
    let addresses = timeout(time, lookup_host((member.host.as_str(), port))).await;
    let mut last = io::Error::other("the name has no address");
    for address in addresses.map_err(late)?? {
        let attempt = timeout(time, TcpStream::connect(address)).await;
        match attempt.map_err(late).flatten() {
            // Nobody listens, and the kernel gave this socket the very port that it was to reach.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(error) => last = error,
        }
    }
    Err(last)
}
