//! One client connection as the hub sees it: what is queued for it, what it still owes answers for.
//!
//! Owns the output buffer, the request window and the connection's counters. Must not read the socket: `reader` does.
//!
//! Invariants: output leaves in the order in which it was queued; after [`Conn::close`] nothing more is queued.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;

use bytes::{Buf, BytesMut};
use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use zabkeeper_core::io::ClientCommand;
use zabkeeper_core::{ConnId, Instant};

use crate::shared::Shared;
use crate::traffic::Traffic;
use crate::words::ClientLine;

/// Queued output above which a connection is not read: its client does not take the answers it asked for. Room for a
/// few of the largest answers that a default `jute.maxbuffer` allows.
const OUTPUT_BYTES: usize = 4 << 20;

/// Requests handed over before the hub gets its turn, where answers are small: a pipelining client fills few turns.
const BURST: u32 = 128;

/// Capacity that an empty output buffer may keep, so that thousands of idle connections cost little.
const IDLE_BYTES: usize = 64 << 10;

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: SocketAddr,
    socket: OwnedWriteHalf,
    state: RefCell<State>,
    changed: Notify,
}

struct State {
    phase: Phase,
    output: BytesMut,
    /// Bytes of the largest message queued since the last flush.
    largest: usize,
    /// Bytes to reckon with for an answer, judged by the latest ones.
    expected: usize,
    /// Why no output leaves any more, until the reader has seen it.
    fault: Option<io::Error>,
    /// Is the connection on the hub's list of those to flush?
    due: bool,
    /// Does a task wait for the socket to take more output?
    writing: bool,
    /// Does the reader wait for leave to read?
    paused: bool,
    unanswered: u32,
    /// When requests were read, oldest first: one entry and a count per read.
    arrivals: VecDeque<(Instant, u32)>,
    received: u64,
    sent: u64,
}

/// How far the connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Neither handshake nor four-letter word yet.
    Greeting,
    /// The core knows it.
    Open,
    /// The core has been told that it is closed; output on its way may still leave.
    Closed,
}

impl Conn {
    pub(crate) fn new(id: ConnId, peer: SocketAddr, socket: OwnedWriteHalf) -> Conn {
        let state = State {
            phase: Phase::Greeting,
            output: BytesMut::new(),
            largest: 0,
            // Cautious until answers have been seen.
            expected: OUTPUT_BYTES / 8,
            fault: None,
            due: false,
            writing: false,
            paused: false,
            unanswered: 0,
            arrivals: VecDeque::new(),
            received: 0,
            sent: 0,
        };
        Conn { id, peer, socket, state: RefCell::new(state), changed: Notify::new() }
    }

    /// The handshake has been read.
    pub(crate) fn open(&self) {
        self.state.borrow_mut().phase = Phase::Open;
    }

    /// The core is to hear no more of it. Was it open?
    pub(crate) fn close(&self) -> bool {
        let before = std::mem::replace(&mut self.state.borrow_mut().phase, Phase::Closed);
        self.changed.notify_one();
        before == Phase::Open
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.state.borrow().phase == Phase::Closed
    }

    /// How many requests may be read now; zero pauses the reader until [`Conn::changed`]. Fewer at once where answers
    /// are large, so that they cannot pile up far beyond the bound on output before the reader sees it.
    pub(crate) fn window(&self, shared: &Shared) -> u32 {
        let mut state = self.state.borrow_mut();
        let limit = shared.settings.core.limits.requests_per_conn;
        let full = state.output.len() > OUTPUT_BYTES || !shared.is_reading();
        let burst = u32::try_from(OUTPUT_BYTES / state.expected.max(1)).unwrap_or(BURST);
        let burst = burst.clamp(1, BURST);
        let room = if full { 0 } else { limit.saturating_sub(state.unanswered).min(burst) };
        state.paused = room == 0;
        room
    }

    /// Returns when something has happened that a reader may wait for; sometimes for nothing.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Why no output leaves any more; says so once.
    pub(crate) fn take_fault(&self) -> Option<io::Error> {
        self.state.borrow_mut().fault.take()
    }

    /// Lets a paused reader look at its window again.
    pub(crate) fn look_again(&self) {
        if self.state.borrow().paused {
            self.changed.notify_one();
        }
    }

    /// A handshake or a four-letter word has been read.
    pub(crate) fn greeted(&self) {
        self.state.borrow_mut().received += 1;
    }

    /// Requests have been read.
    pub(crate) fn asked(&self, at: Instant, requests: u32) {
        let mut state = self.state.borrow_mut();
        state.received += u64::from(requests);
        state.unanswered += requests;
        state.arrivals.push_back((at, requests));
    }

    /// Queues what the core has to say; for `Close`, nothing. Is the connection now due, and was not before?
    pub(crate) fn queue(
        &self,
        command: &ClientCommand,
        now: Instant,
        traffic: &mut Traffic,
    ) -> bool {
        let mut state = self.state.borrow_mut();
        let before = state.output.len();
        match command {
            ClientCommand::Connected(response) => response.encode(&mut state.output),
            ClientCommand::Event(event) => event.encode(&mut state.output),
            ClientCommand::Reply(reply) => {
                reply.encode(&mut state.output);
                if let Some(arrival) = state.answered() {
                    traffic.latency.add(now.since(arrival));
                }
            }
            ClientCommand::Close => return false,
        }
        state.largest = state.largest.max(state.output.len() - before);
        state.sent += 1;
        traffic.sent += 1;
        !std::mem::replace(&mut state.due, true)
    }

    /// Queues the answer to a four-letter word.
    pub(crate) fn queue_text(&self, text: &str) {
        self.state.borrow_mut().output.extend_from_slice(text.as_bytes());
    }

    /// Sends what the socket takes at once and leaves the rest to a task, so that a slow client holds up nobody.
    pub(crate) fn flush(self: &Rc<Self>) {
        {
            let mut state = self.state.borrow_mut();
            state.due = false;
            state.expected = std::mem::take(&mut state.largest).max(state.expected / 2);
        }
        if self.write() {
            self.look_again();
        } else if !std::mem::replace(&mut self.state.borrow_mut().writing, true) {
            let conn = Rc::clone(self);
            tokio::task::spawn_local(async move { conn.write_rest().await });
        }
    }

    /// Sends all that is queued, however long the client takes, unless the connection is abandoned.
    pub(crate) async fn write_rest(&self) {
        while !self.write() {
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        self.state.borrow_mut().writing = false;
        self.look_again();
    }

    /// Drops what is queued and lets nothing more leave: whoever waits for the client to take output waits no longer.
    pub(crate) fn abandon(&self) {
        self.state.borrow_mut().output = BytesMut::new();
        // It may be broken already.
        let _best_effort = SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Both);
    }

    /// Sends what the socket takes. Is nothing left to send?
    fn write(&self) -> bool {
        let mut state = self.state.borrow_mut();
        while !state.output.is_empty() {
            match self.socket.try_write(&state.output) {
                Ok(all) if all == state.output.len() => state.output.clear(),
                Ok(some) => state.output.advance(some),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    state.output.clear();
                    state.fault = Some(error);
                }
            }
        }
        if state.output.capacity() > IDLE_BYTES {
            state.output = BytesMut::new();
        }
        true
    }

    pub(crate) fn unanswered(&self) -> u32 {
        self.state.borrow().unanswered
    }

    pub(crate) fn line(&self) -> ClientLine {
        let state = self.state.borrow();
        ClientLine {
            peer: self.peer,
            open: state.phase == Phase::Open,
            unanswered: state.unanswered,
            received: state.received,
            sent: state.sent,
        }
    }
}

impl State {
    /// One request less to answer; when it arrived. Replies need not come in the order of requests (a refused auth overtakes
    /// a write), so for a single one this is off; the sum is not.
    fn answered(&mut self) -> Option<Instant> {
        self.unanswered = self.unanswered.saturating_sub(1);
        let (at, left) = self.arrivals.front_mut()?;
        let at = *at;
        *left -= 1;
        if *left == 0 {
            self.arrivals.pop_front();
        }
        Some(at)
    }
}
