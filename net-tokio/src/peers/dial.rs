//! Dialling another server: names, addresses, the greeting and its answer.
//!
//! Owns one attempt at a time. Must not decide whether there is a next one.

use std::fmt;
use std::io;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, lookup_host};
use tokio::time::timeout;
use zabkeeper_core::LinkId;
use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::peer::greeting::{Channel, Dialling, Refusal};

use super::{Greeted, Peer, Peers};
use crate::peers::backoff::Backoff;

/// Bytes of a greeting or an answer that are read at once.
pub(super) const READ_BYTES: usize = 512;

/// Why an attempt has failed.
pub(super) enum Failure {
    /// Nobody is there, or whoever is there does not answer.
    Unreachable(io::Error),
    /// One of both refuses the other.
    Refused(Refusal),
}

/// Carries out one order to dial: after its pause, one attempt, and the life of the link that comes of it.
pub(super) async fn link(peers: Rc<Peers>, peer: Rc<Peer>, id: LinkId) {
    peer.link_backoff.wait().await;
    match connect(&peers, &peer, Channel::Quorum).await {
        Ok(greeted) => peers.enter(id, &peer, greeted, true).await,
        Err(failure) => {
            let address = peer.member.quorum_address();
            failure.log(&peer, &peer.link_backoff, &address);
            peers.tell(id, PeerEvent::Unreachable { peer: peer.member.id });
        }
    }
}

impl Failure {
    /// The first failure to reach a server is news; that it goes on is not. A refusal is for the operator to end.
    pub(super) fn log(&self, peer: &Peer, backoff: &Backoff, address: &str) {
        let to = peer.member.id;
        let first = backoff.fail();
        peer.trouble.replace(Some(format!("{address}: {self}")));
        match self {
            Failure::Unreachable(error) if first => {
                tracing::info!(server = to.0, "cannot reach server {to} at {address}: {error}");
            }
            Failure::Unreachable(error) => {
                tracing::debug!("still cannot reach server {to} at {address}: {error}");
            }
            Failure::Refused(Refusal::Busy(_)) => {
                tracing::debug!("server {to} at {address} is busy: {self}");
            }
            Failure::Refused(refusal) => {
                let kind = refusal.kind();
                tracing::warn!(
                    kind,
                    server = to.0,
                    "no connection to server {to} at {address}: {refusal}"
                );
            }
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Failure::Unreachable(error) => write!(f, "{error}"),
            Failure::Refused(refusal) => write!(f, "{refusal}"),
        }
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Failure {
        Failure::Unreachable(error)
    }
}

/// Connects to one of the peer's addresses, resolved now, and greets.
///
/// # Errors
/// Of the name, or of the last address, or of the greeting.
pub(super) async fn connect(
    peers: &Peers,
    peer: &Peer,
    channel: Channel,
) -> Result<Greeted, Failure> {
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
            Ok(stream) => {
                peers.tune(&stream);
                let greeted = timeout(peers.answer_timeout(), greet(peers, peer, channel, stream));
                return greeted.await.unwrap_or_else(|_| {
                    let what = "it does not answer the greeting";
                    Err(io::Error::new(io::ErrorKind::TimedOut, what).into())
                });
            }
            Err(error) => last = error,
        }
    }
    Err(last.into())
}

/// Greets, and reads the answer.
async fn greet(
    peers: &Peers,
    peer: &Peer,
    channel: Channel,
    mut stream: TcpStream,
) -> Result<Greeted, Failure> {
    let local = peers.local();
    let (dialling, greeting) = Dialling::begin(local, channel, peer.member.id, Peers::nonce());
    stream.write_all(&greeting).await?;
    let mut buffer = BytesMut::new();
    let mut part = [0; READ_BYTES];
    loop {
        let read = stream.read(&mut part).await?;
        if read == 0 {
            let what = "it closed the connection instead of answering the greeting";
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, what).into());
        }
        buffer.extend_from_slice(&part[..read]);
        if let Some((established, proof)) =
            dialling.establish(&mut buffer).map_err(Failure::Refused)?
        {
            stream.write_all(&proof).await?;
            peer.trouble.replace(None);
            return Ok(Greeted { stream, established, buffer });
        }
    }
}
