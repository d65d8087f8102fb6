//! What the tasks of the serving thread share: who is connected, what has arrived, what has been counted.
//!
//! Owns the way from connections to the hub and back. Must not step the core: only the hub does.
//!
//! All of it lives on one thread, and no borrow is held across an await, so the cells never collide.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, ready};
use std::time::Duration;

use bytes::BytesMut;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use zabkeeper_core::io::ClientEvent;
use zabkeeper_core::throttle::{ConnectThrottle, Handshake};
use zabkeeper_core::{ConnId, Input, Instant, Server};

use crate::clock::Clock;
use crate::config::Settings;
use crate::conn::Conn;
use crate::inbox::Inbox;
use crate::random;
use crate::traffic::Traffic;
use crate::words::ClientLine;

/// Bytes taken from a socket at once: enough that a pipelining client costs one system call per turn, few enough that
/// no client keeps the thread for long.
const READ_BYTES: usize = 64 << 10;

/// Inputs of other servers that wait for the hub, above which none is read: clients have their windows, servers have this.
const INBOX: usize = 8192;

/// One for the whole process.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) clock: Clock,
    pub(crate) traffic: RefCell<Traffic>,
    /// Sockets are read into this; what arrived is copied to its connection, so that idle ones hold no buffer.
    scratch: RefCell<Box<[u8]>>,
    conns: RefCell<BTreeMap<ConnId, Rc<Conn>>>,
    next_conn: Cell<u64>,
    inbox: RefCell<Inbox>,
    room: Notify,
    questions: RefCell<VecDeque<Question>>,
    /// Decides who may shake hands now.
    throttle: RefCell<ConnectThrottle>,
    /// Connections that wait until fewer requests are under way, in the order in which they came.
    line: RefCell<VecDeque<ConnId>>,
    /// What `stmk` has set.
    pub(crate) trace_mask: Cell<i64>,
    /// Since when this server serves as the leader of others; none where it does not.
    pub(crate) leading_since: Cell<Option<Instant>>,
    wake: Arc<Notify>,
    reading: Cell<bool>,
    stopping: Cell<Option<Instant>>,
}

/// What somebody wants to know of the core.
pub(crate) type Question = Box<dyn FnOnce(&Server)>;

/// ZooKeeper's trace mask where nobody has set one. It has no effect here but to be read again.
const TRACE_MASK: i64 = 306;

impl Shared {
    pub(crate) fn new(settings: Settings) -> Shared {
        let clock = Clock::start();
        let throttle =
            ConnectThrottle::new(settings.limits.throttle.clone(), random::number(), clock.mono());
        Shared {
            settings,
            clock,
            traffic: RefCell::default(),
            scratch: RefCell::new(vec![0; READ_BYTES].into_boxed_slice()),
            conns: RefCell::default(),
            // Random above, room to count below: ids of an earlier run of the process do not come again.
            next_conn: Cell::new(random::number() & 0x7fff_ffff_0000_0000),
            inbox: RefCell::default(),
            room: Notify::new(),
            questions: RefCell::default(),
            throttle: RefCell::new(throttle),
            line: RefCell::default(),
            trace_mask: Cell::new(TRACE_MASK),
            leading_since: Cell::new(None),
            wake: Arc::default(),
            reading: Cell::new(true),
            stopping: Cell::new(None),
        }
    }

    /// Notified whenever the hub has something to do; also by the threads of the disk.
    pub(crate) fn wake(&self) -> &Arc<Notify> {
        &self.wake
    }

    /// Registers a connection that has been accepted.
    pub(crate) fn enter(&self, peer: SocketAddr, socket: OwnedWriteHalf) -> Rc<Conn> {
        let id = ConnId(self.next_conn.get());
        self.next_conn.set(id.0 + 1);
        let record_bytes = self.settings.core.limits.record_bytes;
        let conn = Rc::new(Conn::new(id, peer, socket, record_bytes, self.clock.now()));
        self.conns.borrow_mut().insert(id, Rc::clone(&conn));
        conn
    }

    /// Forgets a connection; its socket is closed once its task ends. Output that the client would not take goes with
    /// it, or clients that never read would keep sockets beyond all bounds on connections.
    pub(crate) fn leave(&self, conn: &Conn) {
        self.close(conn);
        conn.abandon();
        conn.forget_load(&mut self.traffic.borrow_mut().load);
        self.let_in();
        self.conns.borrow_mut().remove(&conn.id);
    }

    /// Ends what the core knows of a connection, and tells it so, once.
    pub(crate) fn close(&self, conn: &Conn) {
        if conn.close() {
            self.push(Input::Client(conn.id, ClientEvent::Closed));
        }
    }

    pub(crate) fn conn(&self, id: ConnId) -> Option<Rc<Conn>> {
        self.conns.borrow().get(&id).cloned()
    }

    /// All connections, in the order in which they were accepted.
    pub(crate) fn conns(&self) -> Vec<Rc<Conn>> {
        self.conns.borrow().values().cloned().collect()
    }

    /// Requests that clients wait for.
    pub(crate) fn unanswered(&self) -> u64 {
        self.traffic.borrow().load.requests
    }

    /// How many requests a connection that waits for `unanswered` answers may add to what is under way.
    ///
    /// Above `globalOutstandingLimit` only connections that wait for nothing are read, one request at a time (THR-01);
    /// at `request_throttle_max_requests` none is (THR-06).
    pub(crate) fn share(&self, unanswered: u32) -> u32 {
        let limits = &self.settings.limits;
        let under_way = self.traffic.borrow().load.requests;
        let fair = match (limits.outstanding + 1).saturating_sub(under_way) {
            0 => u64::from(unanswered == 0),
            left => left,
        };
        let left = limits.requests.map_or(u64::MAX, |bound| bound.saturating_sub(under_way));
        u32::try_from(fair.min(left)).unwrap_or(u32::MAX)
    }

    /// Is there a line for `request_throttle_max_requests` now, in which it matters how long a request stands (THR-06,
    /// THR-07)?
    pub(crate) fn is_line_timed(&self) -> bool {
        let limits = &self.settings.limits;
        let timed = limits.patience.is_some() || limits.drop_stale;
        timed && limits.requests.is_some_and(|bound| self.unanswered() >= bound)
    }

    /// Lets a connection wait until fewer requests are under way.
    pub(crate) fn stand_in_line(&self, conn: ConnId) {
        self.line.borrow_mut().push_back(conn);
    }

    /// Wakes as many of those that wait as there is room for.
    pub(crate) fn let_in(&self) {
        let Some(bound) = self.settings.limits.requests else {
            return;
        };
        let mut room = bound.saturating_sub(self.traffic.borrow().load.requests);
        while room > 0 {
            let Some(id) = self.line.borrow_mut().pop_front() else {
                return;
            };
            if let Some(conn) = self.conn(id).filter(|conn| !conn.is_closed()) {
                conn.leave_line();
                room -= 1;
            }
        }
    }

    /// May this client shake hands now (THR-05)?
    pub(crate) fn admits(&self, handshake: Handshake) -> bool {
        self.throttle.borrow_mut().admit(handshake, self.clock.mono())
    }

    /// How probable it is that a handshake is refused by chance, in millionths.
    pub(crate) fn drop_probability(&self) -> u32 {
        self.throttle.borrow().drop_probability()
    }

    pub(crate) fn client_lines(&self) -> Vec<ClientLine> {
        self.conns().iter().map(|conn| conn.line()).collect()
    }

    /// Hands an input to the hub.
    pub(crate) fn push(&self, input: Input) {
        self.inbox.borrow_mut().push(input);
        self.wake.notify_one();
    }

    /// The next input of another server.
    pub(crate) fn next_of_servers(&self) -> Option<Input> {
        let mut inbox = self.inbox.borrow_mut();
        if inbox.servers() == INBOX {
            self.room.notify_waiters();
        }
        inbox.next_of_servers()
    }

    /// The next input of a client; the one before has cost so much.
    pub(crate) fn next_of_clients(&self, cost: u64) -> Option<Input> {
        self.inbox.borrow_mut().next_of_clients(cost)
    }

    /// The hub turns to other things; the last input of a client has cost so much.
    pub(crate) fn end_turn(&self, cost: u64) {
        self.inbox.borrow_mut().end_turn(cost);
    }

    /// Is there an input that the hub may take?
    pub(crate) fn has_inputs(&self) -> bool {
        !self.inbox.borrow().is_empty()
    }

    /// Clients of which something has come that waits for its turn.
    pub(crate) fn unheard(&self) -> Vec<ConnId> {
        self.inbox.borrow_mut().unheard()
    }

    /// The client does not take its output: what it has asked for waits.
    pub(crate) fn park(&self, conn: ConnId) {
        self.inbox.borrow_mut().park(conn);
    }

    /// It has taken its output.
    pub(crate) fn resume(&self, conn: ConnId) {
        if self.inbox.borrow_mut().resume(conn) {
            self.wake.notify_one();
        }
    }

    /// Returns when the hub keeps up with what is pushed.
    pub(crate) async fn room(&self) {
        while self.inbox.borrow().servers() >= INBOX {
            self.room.notified().await;
        }
    }

    /// Adds what has arrived on a socket to a buffer, waiting until something has; how many bytes, none at the end.
    /// An empty buffer's memory goes with the frames that were cut from it.
    ///
    /// # Errors
    /// Of the socket.
    pub(crate) async fn read(
        &self,
        socket: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
    ) -> io::Result<usize> {
        let add = |new: &[u8]| {
            if buffer.is_empty() {
                *buffer = BytesMut::from(new);
            } else {
                buffer.extend_from_slice(new);
            }
        };
        self.read_to(socket, add).await
    }

    /// The same with a buffer that keeps its memory: for a few busy connections whose frames are copied when decoded.
    ///
    /// # Errors
    /// Of the socket.
    pub(crate) async fn read_on(
        &self,
        socket: &mut OwnedReadHalf,
        buffer: &mut BytesMut,
    ) -> io::Result<usize> {
        self.read_to(socket, |new| buffer.extend_from_slice(new)).await
    }

    async fn read_to(
        &self,
        socket: &mut OwnedReadHalf,
        mut add: impl FnMut(&[u8]),
    ) -> io::Result<usize> {
        let read = poll_fn(|cx| {
            let mut scratch = self.scratch.borrow_mut();
            let mut space = ReadBuf::new(&mut scratch);
            ready!(Pin::new(&mut *socket).poll_read(cx, &mut space))?;
            add(space.filled());
            Poll::Ready(io::Result::Ok(space.filled().len()))
        });
        read.await
    }

    /// Most bytes that [`Shared::read`] brings: if it did, there may be more.
    pub(crate) fn read_bytes(&self) -> usize {
        READ_BYTES
    }

    /// Asks the core something, through the hub; no answer where the hub has ended.
    pub(crate) async fn ask<T: 'static>(
        &self,
        question: impl FnOnce(&Server) -> T + 'static,
    ) -> Option<T> {
        let (sender, receiver) = oneshot::channel();
        // Whoever asked may have gone.
        let ask = |server: &Server| drop(sender.send(question(server)));
        self.questions.borrow_mut().push_back(Box::new(ask));
        self.wake.notify_one();
        receiver.await.ok()
    }

    /// The next question.
    pub(crate) fn take_question(&self) -> Option<Question> {
        self.questions.borrow_mut().pop_front()
    }

    /// Is there one?
    pub(crate) fn has_questions(&self) -> bool {
        !self.questions.borrow().is_empty()
    }

    /// May client sockets be read?
    pub(crate) fn is_reading(&self) -> bool {
        self.reading.get()
    }

    /// Reads client sockets, or leaves them alone.
    pub(crate) fn set_reading(&self, reading: bool) {
        let reading = reading && self.stopping.get().is_none();
        if reading && !self.reading.get() {
            for conn in self.conns.borrow().values() {
                conn.look_again();
            }
        }
        self.reading.set(reading);
    }

    /// Begins the end: no socket is read any more, and the hub stops when all writes are done, at `latest` though.
    pub(crate) fn stop(&self, latest: Instant) {
        self.stopping.set(Some(latest));
        self.set_reading(false);
        self.wake.notify_one();
    }

    /// When the hub must have stopped, if it is to stop.
    pub(crate) fn stopping(&self) -> Option<Instant> {
        self.stopping.get()
    }

    /// Logs that requests have to wait because of a bound on all of them.
    pub(crate) fn note_crowd(&self) {
        let (limits, under_way) = (&self.settings.limits, self.unanswered());
        match limits.requests.filter(|bound| under_way >= *bound) {
            Some(bound) => tracing::info!(
                "clients have to wait: {under_way} requests are under way, all that \
                 request_throttle_max_requests={bound} allows; raise it, or 0 for no bound"
            ),
            None => tracing::info!(
                "clients with unanswered requests have to wait: {under_way} requests are under way, above this \
                 server's {} of globalOutstandingLimit; raise it",
                limits.outstanding
            ),
        }
    }

    /// Logs that a request has waited too long.
    pub(crate) fn note_refusal(&self, waited: Duration, patience: Duration) {
        tracing::warn!(
            "refused a request (-127) that had waited {} ms for its turn, more than \
             throttled_op_wait_time={}; raise it or request_throttle_max_requests, or set it to 0",
            waited.as_millis(),
            patience.as_millis()
        );
    }

    /// Says which limit has refused a request whose answer or transaction would have been too large.
    pub(crate) fn note_too_large(&self) {
        tracing::warn!(
            "refused a request (-5): what it asks for would be larger than {} bytes, which one answer or \
             transaction may have (at least 64 MiB, and half as much again as jute.maxbuffer); ask for less \
             at once, or raise jute.maxbuffer",
            self.settings.core.limits.record_bytes
        );
    }
}
