//! Notifications of the election: one-way connections, kept, dialled by whoever speaks.
//!
//! Owns both ends of them. Must not know what is voted on. Loss is allowed: only the newest word of a server counts, so
//! an older one that has not left yet is replaced, never queued.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep_until, timeout};
use zabkeeper_core::Input;
use zabkeeper_core::driver::Unfinished;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::peer::frame::{BadFrame, Bounds, Reader};
use zabkeeper_core::peer::greeting::Channel;

use super::admission::TokenBucket;
use super::dial::connect;
use super::{Greeted, Peer, Peers};

/// Connections on which one other server, or whoever takes its name, may speak. An honest one has one at a time, or two
/// where the first is broken and this end does not know.
const LISTENERS: usize = 4;

/// Notifications of one connection that are handed over at once, and the time after which there may be one more; only
/// the newest counts, and an election has a few.
const BURST: u32 = 50;
const REFILL: Duration = Duration::from_millis(10);

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
        let Greeted { mut stream, mut established, .. } = dialled_when_needed(&peers, &peer).await;
        loop {
            tokio::select! {
                // First, so that nothing is written to a connection that is known to be gone.
                biased;
                () = ended(&mut stream) => break,
                () = peer.newest.arrived.notified() => {}
            }
            let Some(notification) = peer.newest.waiting.take() else { continue };
            bytes.clear();
            established.writer.encode(&notification, &mut bytes);
            let written = timeout(peers.connect_timeout(), stream.write_all(&bytes)).await;
            if !matches!(written, Ok(Ok(()))) {
                peer.newest.put_back(notification);
                break;
            }
        }
    }
}

/// A connection to the peer's election port, once there is something to say.
async fn dialled_when_needed(peers: &Peers, peer: &Peer) -> Greeted {
    loop {
        while peer.newest.waiting.get().is_none() {
            peer.newest.arrived.notified().await;
        }
        peer.ballot_backoff.wait().await;
        match connect(peers, peer, Channel::Election).await {
            Ok(greeted) => {
                peer.ballot_backoff.reset();
                // What waits is to be seen by whoever sends.
                peer.newest.arrived.notify_one();
                return greeted;
            }
            Err(failure) => {
                failure.log(peer, &peer.ballot_backoff, &peer.member.election_address());
            }
        }
    }
}

/// Returns when the other end has closed, or says something, which it must not.
async fn ended(stream: &mut TcpStream) {
    let _any = stream.read(&mut [0; 1]).await;
}

/// The connections on which one other server, or whoever takes its name, speaks.
#[derive(Default)]
pub(super) struct Listeners(RefCell<Vec<Listener>>);

struct Listener {
    task: AbortHandle,
    /// Has a notification come?
    spoken: Rc<Cell<bool>>,
}

impl Listeners {
    /// One more. Where it has proved who it is, all others are broken or not that server's; else the one goes that has never
    /// said anything, or the oldest, if there are too many.
    pub(super) fn enter(&self, task: AbortHandle, spoken: Rc<Cell<bool>>, proven: bool) {
        let mut listeners = self.0.borrow_mut();
        listeners.retain(|listener| !listener.task.is_finished());
        if proven {
            listeners.drain(..).for_each(|listener| listener.task.abort());
        } else if listeners.len() >= LISTENERS {
            let silent = listeners.iter().position(|listener| !listener.spoken.get());
            listeners.remove(silent.unwrap_or(0)).task.abort();
        }
        listeners.push(Listener { task, spoken });
    }

    /// Is there any?
    pub(super) fn any(&self) -> bool {
        self.0.borrow().iter().any(|listener| !listener.task.is_finished())
    }
}

/// Reads the notifications of a peer from a connection that it has dialled.
pub(super) async fn listen(
    peers: Rc<Peers>,
    peer: Rc<Peer>,
    greeted: Greeted,
    address: SocketAddr,
    spoken: Rc<Cell<bool>>,
) {
    let Greeted { stream, established, mut buffer } = greeted;
    let mut reader = established.reader;
    reader.set_bounds(Bounds::NOTIFICATION);
    let (mut socket, _unused) = stream.into_split();
    let mut pace = TokenBucket::new(BURST, REFILL, Instant::now());
    let mut unfinished = Unfinished::new(peers.shared.settings.core.sync_limit());
    loop {
        match newest(&mut reader, &mut buffer) {
            Ok(Some(notification)) => {
                spoken.set(true);
                peers.shared.push(Input::Election(peer.member.id, notification));
                if let Err(next) = pace.take(Instant::now()) {
                    sleep_until(next).await;
                }
            }
            Ok(None) => {}
            Err(bad) => {
                tracing::warn!("closed the connection from {address}: {bad}");
                return;
            }
        }
        unfinished.note(buffer.len(), peers.shared.clock.mono());
        peers.shared.room().await;
        let read = tokio::select! {
            biased;
            read = peers.shared.read(&mut socket, &mut buffer) => read,
            () = peers.shared.clock.reaches(unfinished.due()) => {
                tracing::warn!("closed the connection from {address}: a message that does not end");
                return;
            }
        };
        if matches!(read, Ok(0) | Err(_)) {
            return;
        }
    }
}

/// The last whole notification in the buffer; the older ones count no more.
fn newest(reader: &mut Reader, buffer: &mut BytesMut) -> Result<Option<Notification>, BadFrame> {
    let mut newest = None;
    while let Some(notification) = reader.decode(buffer)? {
        newest = Some(notification);
    }
    Ok(newest)
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::peer::{ServerState, Vote, frame};
    use zabkeeper_core::{Epoch, HistoryInfo, HistoryStatus, ServerId, Zxid};

    use super::*;

    fn notification(round: u64) -> Notification {
        let vote = Vote { epoch: Epoch(1), zxid: Zxid(2), candidate: ServerId(3) };
        Notification {
            server_state: ServerState::Looking,
            round,
            vote,
            history: HistoryInfo::new(HistoryStatus::Complete, Epoch(1)),
            ensemble: 0,
        }
    }

    #[test]
    fn only_the_newest_of_what_has_come_counts_and_a_cut_one_waits() {
        let mut bytes = Vec::new();
        (1..=3).for_each(|round| frame::encode(&notification(round), &mut bytes));
        let last = bytes.len() - 1;
        let mut reader = Reader::default();
        let mut buffer = BytesMut::from(&bytes[..last]);
        assert_eq!(newest(&mut reader, &mut buffer), Ok(Some(notification(2))));
        assert_eq!(newest(&mut reader, &mut buffer), Ok(None));
        buffer.extend_from_slice(&bytes[last..]);
        assert_eq!(newest(&mut reader, &mut buffer), Ok(Some(notification(3))));
    }

    #[test]
    fn a_frame_that_no_notification_can_have_is_not_waited_for() {
        let mut reader = Reader::default();
        reader.set_bounds(Bounds::NOTIFICATION);
        let mut buffer = BytesMut::from(&100_000u32.to_le_bytes()[..]);
        assert_eq!(newest(&mut reader, &mut buffer), Err(BadFrame::Length(100_000, 1024)));
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
