//! Dialling another server: names, addresses, the greeting.
//!
//! Owns one attempt at a time. Must not decide whether there is a next one.

use std::io;
use std::rc::Rc;

use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zabkeeper_core::LinkId;
use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::peer::frame::{Channel, Greeting};

use super::{Peer, Peers};

/// Carries out one order to dial: after its pause, one attempt, and the life of the link that comes of it.
pub(super) async fn link(peers: Rc<Peers>, peer: Rc<Peer>, id: LinkId) {
    peer.link_backoff.wait().await;
    match connect(&peers, &peer, Channel::Quorum).await {
        Ok(stream) => peers.enter(id, &peer, stream, true).await,
        Err(error) => {
            let to = peer.member.id;
            let address = peer.member.quorum_address();
            // The first failure is news; that it goes on is not.
            if peer.link_backoff.fail() {
                tracing::info!(server = to.0, "cannot reach server {to} at {address}: {error}");
            } else {
                tracing::debug!("still cannot reach server {to} at {address}: {error}");
            }
            peers.tell(id, PeerEvent::Unreachable { peer: to });
        }
    }
}

/// Connects to one of the peer's addresses, resolved now, and greets.
///
/// # Errors
/// Of the name, or of the last address.
pub(super) async fn connect(peers: &Peers, peer: &Peer, channel: Channel) -> io::Result<TcpStream> {
    let member = &peer.member;
    let port = match channel {
        Channel::Election => member.election_port,
        Channel::Quorum => member.quorum_port,
    };
    let time = peers.connect_timeout();
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
            Ok(mut stream) => {
                peers.tune(&stream);
                let from = peers.shared.settings.core.id();
                let greeting = Greeting { channel, from, to: member.id };
                // A new socket has room for it.
                stream.write_all(&greeting.encode()).await?;
                return Ok(stream);
            }
            Err(error) => last = error,
        }
    }
    Err(last)
}
