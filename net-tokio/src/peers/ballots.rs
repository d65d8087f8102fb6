//! Notifications of the election: one-way connections, kept, dialled by whoever speaks.
//!
//! Owns both ends of them. Must not know what is voted on. Loss is allowed: only the newest word of a server counts, so
//! an older one that has not left yet is replaced, never queued.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::time::timeout;
use zabkeeper_core::Input;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::peer::frame::{self, BadFrame, Channel};

use super::dial::connect;
use super::{Peer, Peers};

/// A notification has some 40 bytes: whoever announces more has something else in mind.
const FRAME_MAX: usize = 1024;

/// The newest notification for a peer, until it is sent.
#[derive(Default)]
pub(super) struct Newest {
    waiting: Cell<Option<Notification>>,
    arrived: Notify,
}

impl Newest {
    pub(super) fn set(&self, notification: Notification) {
        self.waiting.set(Some(notification));
        self.arrived.notify_one();
    }

    /// Puts back what could not be sent, unless there is something newer.
    fn put_back(&self, notification: Notification) {
        if self.waiting.get().is_none() {
            self.set(notification);
        }
    }
}

/// Sends a peer its notifications, for ever.
pub(super) async fn tell(peers: Rc<Peers>, peer: Rc<Peer>) {
    let mut bytes = Vec::new();
    loop {
        let mut stream = dialled_when_needed(&peers, &peer).await;
        loop {
            tokio::select! {
                // First, so that nothing is written to a connection that is known to be gone.
                biased;
                () = ended(&mut stream) => break,
                () = peer.newest.arrived.notified() => {}
            }
            let Some(notification) = peer.newest.waiting.take() else { continue };
            bytes.clear();
            frame::encode(&notification, &mut bytes);
            let written = timeout(peers.connect_timeout(), stream.write_all(&bytes)).await;
            if !matches!(written, Ok(Ok(()))) {
                peer.newest.put_back(notification);
                break;
            }
        }
    }
}

/// A connection to the peer's election port, once there is something to say.
async fn dialled_when_needed(peers: &Peers, peer: &Peer) -> TcpStream {
    loop {
        while peer.newest.waiting.get().is_none() {
            peer.newest.arrived.notified().await;
        }
        peer.ballot_backoff.wait().await;
        match connect(peers, peer, Channel::Election).await {
            Ok(stream) => {
                peer.ballot_backoff.reset();
                // What waits is to be seen by whoever sends.
                peer.newest.arrived.notify_one();
                return stream;
            }
            Err(error) => {
                let (to, address) = (peer.member.id, peer.member.election_address());
                if peer.ballot_backoff.fail() {
                    tracing::info!(
                        server = to.0,
                        "cannot tell server {to} at {address} about the election: {error}"
                    );
                }
            }
        }
    }
}

/// Returns when the other end has closed, or says something, which it must not.
async fn ended(stream: &mut TcpStream) {
    let _any = stream.read(&mut [0; 1]).await;
}

/// Reads the notifications of a peer from a connection that it has dialled.
pub(super) async fn listen(
    peers: Rc<Peers>,
    peer: Rc<Peer>,
    stream: TcpStream,
    address: SocketAddr,
) {
    let (mut socket, _unused) = stream.into_split();
    let mut buffer = BytesMut::new();
    loop {
        match peers.shared.read(&mut socket, &mut buffer).await {
            Ok(0) | Err(_) => return,
            Ok(_) => {}
        }
        match newest(&mut buffer) {
            Ok(Some(notification)) => {
                peers.shared.push(Input::Election(peer.member.id, notification));
            }
            Ok(None) => {}
            Err(bad) => {
                tracing::warn!("closed the connection from {address}: {bad}");
                return;
            }
        }
        peers.shared.room().await;
    }
}

/// The last whole notification in the buffer; the older ones count no more.
fn newest(buffer: &mut BytesMut) -> Result<Option<Notification>, BadFrame> {
    let mut newest = None;
    while let Some(notification) = frame::decode(buffer)? {
        newest = Some(notification);
    }
    // What is left is the beginning of a frame.
    if buffer.len() > FRAME_MAX { Err(BadFrame::Content) } else { Ok(newest) }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::peer::{Stance, Voice, Vote};
    use zabkeeper_core::{Epoch, ServerId, Zxid};

    use super::*;

    fn notification(round: u64) -> Notification {
        let vote = Vote { epoch: Epoch(1), zxid: Zxid(2), candidate: ServerId(3) };
        Notification { stance: Stance::Looking, round, vote, voice: Voice::Full, newcomers: 0 }
    }

    #[test]
    fn only_the_newest_of_what_has_come_counts_and_a_cut_one_waits() {
        let mut bytes = Vec::new();
        (1..=3).for_each(|round| frame::encode(&notification(round), &mut bytes));
        let last = bytes.len() - 1;
        let mut buffer = BytesMut::from(&bytes[..last]);
        assert_eq!(newest(&mut buffer), Ok(Some(notification(2))));
        assert_eq!(newest(&mut buffer), Ok(None));
        buffer.extend_from_slice(&bytes[last..]);
        assert_eq!(newest(&mut buffer), Ok(Some(notification(3))));
    }

    #[test]
    fn a_frame_that_no_notification_can_have_is_not_waited_for() {
        let mut buffer = BytesMut::from(&100_000u32.to_le_bytes()[..]);
        buffer.resize(FRAME_MAX, 0);
        assert_eq!(newest(&mut buffer), Ok(None));
        buffer.resize(FRAME_MAX + 1, 0);
        assert_eq!(newest(&mut buffer), Err(BadFrame::Content));
    }

    #[test]
    fn what_could_not_be_sent_gives_way_to_what_is_newer() {
        let slot = Newest::default();
        slot.put_back(notification(1));
        assert_eq!(slot.waiting.get(), Some(notification(1)));
        slot.set(notification(2));
        slot.put_back(notification(1));
        assert_eq!(slot.waiting.get(), Some(notification(2)));
    }
}
