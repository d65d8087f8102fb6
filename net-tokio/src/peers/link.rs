//! A link between learner and leader, as the driver sees it: one socket, messages both ways.
//!
//! Owns the socket and the output that it has not taken yet. Must not know what messages mean.
//!
//! Invariants: messages leave in the order in which they were queued and are handed over in that of their bytes; after
//! [`Link::close`] nothing more is queued or handed over.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::io;
use std::net::Shutdown;
use std::rc::Rc;
use std::time::Duration;

use bytes::BytesMut;
use socket2::SockRef;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::time::{Instant, timeout};
use zabkeeper_core::LinkId;
use zabkeeper_core::driver::Unfinished;
use zabkeeper_core::io::PeerEvent;
use zabkeeper_core::peer::PeerMessage;
use zabkeeper_core::peer::frame::{BadFrame, Bounds, Reader, Writer};

use super::{Peer, Peers};

/// Output that a peer has not taken, above which it is given up: it is alive, as the core hears from it, and hopelessly
/// behind. A new link brings what it lacks from the disk.
const OUTPUT_BYTES: usize = 256 << 20;

/// Longest message of a learner, unless requests of clients may be longer: the sessions that some hundred thousand clients
/// have touched since the last ping.
const LEARNER_BYTES: usize = 8 << 20;

/// Capacity that an empty buffer may keep.
const IDLE_BYTES: usize = 1 << 20;

/// Time for the last output to leave and for the other end to close its side, once this one is closed.
const LINGER: Duration = Duration::from_secs(1);

pub(super) struct Link {
    pub(super) id: LinkId,
    pub(super) peer: Rc<Peer>,
    /// Was it this server that dialled?
    pub(super) dialled: bool,
    socket: OwnedWriteHalf,
    output: RefCell<Output>,
    writer: RefCell<Writer>,
    /// Does the core know of it?
    open: Cell<bool>,
    /// Has anything come from the other end?
    heard: Cell<bool>,
    /// When the last message came, or when the link began.
    heard_at: Cell<Instant>,
    /// Has the core ever said something here? Then it has taken the link.
    taken: Cell<bool>,
    /// Why it is of no use any more, until the reader has seen it.
    fault: RefCell<Option<End>>,
    changed: Notify,
}

#[derive(Default)]
struct Output {
    bytes: Vec<u8>,
    /// How many of them have left.
    sent: usize,
    /// Is the link on the list of those to flush?
    due: bool,
    /// Does a task wait for the socket to take more?
    writing: bool,
}

/// Why a link has ended.
pub(super) enum End {
    ByPeer,
    /// The other end went away in the middle of a message.
    WithinFrame,
    ByThisServer,
    Malformed(BadFrame),
    /// A message has begun, and has not ended in time.
    Unfinished(Duration),
    Broken(io::Error),
    /// It does not take what it is sent.
    Overfull,
}

impl Link {
    pub(super) fn new(
        id: LinkId,
        peer: Rc<Peer>,
        dialled: bool,
        socket: OwnedWriteHalf,
        writer: Writer,
    ) -> Link {
        Link {
            id,
            peer,
            dialled,
            socket,
            output: RefCell::default(),
            writer: RefCell::new(writer),
            open: Cell::new(true),
            heard: Cell::new(false),
            heard_at: Cell::new(Instant::now()),
            taken: Cell::new(false),
            fault: RefCell::default(),
            changed: Notify::new(),
        }
    }

    /// Queues a message. Is the link now due, and was not before?
    pub(super) fn queue(&self, message: &PeerMessage) -> bool {
        let mut output = self.output.borrow_mut();
        let waiting = output.bytes.len() - output.sent;
        if waiting > OUTPUT_BYTES {
            self.fail(End::Overfull);
            return false;
        }
        self.taken.set(true);
        self.writer.borrow_mut().encode_message(message, &mut output.bytes);
        !std::mem::replace(&mut output.due, true)
    }

    /// Sends what the socket takes at once and leaves the rest to a task, so that a slow peer holds up nobody.
    pub(super) fn flush(self: &Rc<Self>, peers: &Rc<Peers>) {
        self.output.borrow_mut().due = false;
        if !self.write(peers) && !std::mem::replace(&mut self.output.borrow_mut().writing, true) {
            let (link, peers) = (Rc::clone(self), Rc::clone(peers));
            tokio::task::spawn_local(async move { link.write_rest(&peers).await });
        }
    }

    async fn write_rest(&self, peers: &Peers) {
        while !self.write(peers) {
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        self.output.borrow_mut().writing = false;
    }

    /// Sends what the socket takes. Is nothing left to send?
    fn write(&self, peers: &Peers) -> bool {
        let mut output = self.output.borrow_mut();
        if output.sent == output.bytes.len() {
            return true;
        }
        while output.sent < output.bytes.len() {
            match self.socket.try_write(&output.bytes[output.sent..]) {
                Ok(some) => output.sent += some,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    output.forget_sent();
                    return false;
                }
                Err(error) => {
                    output.clear();
                    self.fail(End::Broken(error));
                    return true;
                }
            }
        }
        output.clear();
        if self.open.get() {
            peers.tell(self.id, PeerEvent::Drained);
        }
        true
    }

    /// Lets the reader end the link.
    fn fail(&self, end: End) {
        *self.fault.borrow_mut() = Some(end);
        self.changed.notify_one();
    }

    /// The core is to hear no more of it.
    pub(super) fn close(self: &Rc<Self>, peers: &Peers) {
        self.open.set(false);
        self.write(peers);
        self.changed.notify_one();
    }

    /// Has the other end closed it without a word?
    pub(super) fn was_refused(&self, end: &End) -> bool {
        !matches!(end, End::ByThisServer) && !self.heard.get()
    }

    /// When the other end was heard of last.
    pub(super) fn heard_at(&self) -> Instant {
        self.heard_at.get()
    }

    /// Reads messages, of which the first bytes may have come, and hands them over until the link ends; why it did.
    pub(super) async fn attend(
        &self,
        peers: &Rc<Peers>,
        mut socket: OwnedReadHalf,
        reader: Reader,
        buffer: BytesMut,
    ) -> End {
        let end = self.read(peers, &mut socket, reader, buffer).await;
        if let End::ByThisServer = end {
            let farewell = self.hang_up(peers, &mut socket);
            let _in_time = timeout(LINGER, farewell).await;
        }
        self.output.borrow_mut().clear();
        // Whoever waits for the other end to take output waits no longer; it may be broken already.
        let _best_effort = SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Both);
        end
    }

    async fn read(
        &self,
        peers: &Rc<Peers>,
        socket: &mut OwnedReadHalf,
        mut reader: Reader,
        mut buffer: BytesMut,
    ) -> End {
        let shared = &peers.shared;
        let limit = shared.settings.core.sync_limit();
        let mut unfinished = Unfinished::new(limit);
        if self.dialled {
            reader.set_bounds(Bounds::LEADER);
        }
        // What came with the greeting.
        let mut fresh = buffer.len();
        loop {
            if fresh > 0 {
                if let Err(bad) = self.hand_over(peers, &mut reader, &mut buffer, &mut unfinished) {
                    return End::Malformed(bad);
                }
                if fresh == shared.read_bytes() {
                    // There may be more, but first the hub's turn.
                    tokio::task::yield_now().await;
                }
                fresh = 0;
            }
            shared.room().await;
            if !self.open.get() {
                return End::ByThisServer;
            }
            if let Some(fault) = self.fault.take() {
                return fault;
            }
            let read = tokio::select! {
                biased;
                () = self.changed.notified() => continue,
                read = shared.read_on(socket, &mut buffer) => read,
                () = shared.clock.reaches(unfinished.due()) => return End::Unfinished(limit),
            };
            match read {
                Ok(0) if buffer.is_empty() => return End::ByPeer,
                Ok(0) => return End::WithinFrame,
                Ok(bytes) => fresh = bytes,
                Err(error) => return End::Broken(error),
            }
        }
    }

    /// Gives all whole messages to the hub.
    fn hand_over(
        &self,
        peers: &Peers,
        reader: &mut Reader,
        buffer: &mut BytesMut,
        unfinished: &mut Unfinished,
    ) -> Result<(), BadFrame> {
        if !self.dialled && self.taken.get() {
            let requests = 2 * peers.shared.settings.limits.max_frame as usize;
            reader.set_bounds(Bounds::learner(requests.max(LEARNER_BYTES)));
        }
        let before = buffer.len();
        while let Some(message) = reader.decode_message(self.dialled, buffer)? {
            if !self.heard.replace(true) {
                self.peer.heard();
            }
            unfinished.ended();
            peers.tell(self.id, PeerEvent::Message(message));
        }
        let now = Instant::now();
        if buffer.len() < before {
            self.heard_at.set(now);
        }
        if buffer.is_empty() && before > IDLE_BYTES {
            *buffer = BytesMut::new();
        }
        unfinished.note(buffer.len(), peers.shared.clock.mono());
        Ok(())
    }

    /// Lets the last output leave, says that nothing follows, and waits for the other end to do the same: a socket
    /// closed with unread input would make the kernel throw away output that is still on its way.
    async fn hang_up(&self, peers: &Peers, socket: &mut OwnedReadHalf) -> io::Result<()> {
        self.write_rest(peers).await;
        SockRef::from(socket.as_ref()).shutdown(Shutdown::Write)?;
        let mut unheard = BytesMut::new();
        while peers.shared.read(socket, &mut unheard).await? > 0 {
            unheard.clear();
        }
        Ok(())
    }
}

impl Output {
    fn clear(&mut self) {
        self.sent = 0;
        if self.bytes.capacity() > IDLE_BYTES {
            self.bytes = Vec::new();
        } else {
            self.bytes.clear();
        }
    }

    /// Makes room once most of the buffer has left, so that it does not grow with each turn and each byte is moved
    /// about once.
    fn forget_sent(&mut self) {
        if self.sent > self.bytes.len() / 2 {
            self.bytes.drain(..self.sent);
            self.sent = 0;
        }
    }
}

impl fmt::Display for End {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            End::ByPeer => write!(f, "the other end closed it"),
            End::WithinFrame => write!(f, "the other end went away in the middle of a message"),
            End::ByThisServer => write!(f, "this server closed it"),
            End::Malformed(bad) => write!(f, "{bad}"),
            End::Unfinished(limit) => {
                write!(f, "a message from it does not end within {} ms", limit.as_millis())
            }
            End::Broken(error) => write!(f, "{error}"),
            End::Overfull => {
                write!(f, "the other end has not taken {} MiB", OUTPUT_BYTES >> 20)
            }
        }
    }
}
