//! One client connection as the hub sees it: what is queued for it, what it still owes answers for.
//!
//! Owns the output that is queued, the request window and the connection's counters. Must not read the socket: `reader` does.
//!
//! Invariants: output leaves in the order in which it was queued; after [`Conn::close`] nothing more is queued.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

use socket2::SockRef;
use tokio::net::tcp::OwnedWriteHalf;
use tokio::sync::Notify;
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::{ConnId, Input, Instant, Now, SessionId, WallMs};

use crate::output::Output;
use crate::shared::Shared;
use crate::traffic::{ConnStats, Load, Served, Traffic};
use crate::words::ClientLine;

/// Queued output above which a connection is not read: its client does not take the answers it asked for. Room for a
/// few of the largest answers that a default `jute.maxbuffer` allows. Such a client keeps its session while it takes some.
const OUTPUT_BYTES: usize = 4 << 20;

/// Bytes of events that wait for a client, above which its connection is closed: others decide how many there are. A client
/// that comes back hears by setWatches of what it has missed.
const EVENT_BYTES: u64 = 10 << 20;

/// Requests handed over before the hub gets its turn, where answers are small: a pipelining client fills few turns.
const BURST: u32 = 128;

/// Time between two words to the core that a client which is not read takes its output: far below any session's timeout.
const HEARD_PAUSE: Duration = Duration::from_millis(250);

pub(crate) struct Conn {
    pub(crate) id: ConnId,
    pub(crate) peer: SocketAddr,
    /// When it was accepted.
    since: WallMs,
    socket: OwnedWriteHalf,
    /// Bytes of output that may wait for the client to take them.
    output_max: usize,
    state: RefCell<State>,
    changed: Notify,
}

struct State {
    phase: Phase,
    output: Output,
    /// Bytes of the largest message queued since the last flush.
    largest: usize,
    /// Bytes to reckon with for an answer, judged by the latest ones.
    expected: usize,
    /// Why no output leaves any more, until the reader has seen it.
    fault: Option<Fault>,
    /// On which of the hub's lists of those to flush is the connection?
    due: Due,
    /// Does a task wait for the socket to take more output?
    writing: bool,
    /// Has output left since the core was told so last?
    moved: bool,
    /// When that was.
    told: Instant,
    /// Does the reader wait for leave to read?
    paused: bool,
    /// Would it be read if it were alone?
    crowded_out: bool,
    /// Does it stand in the line for `request_throttle_max_requests`?
    in_line: bool,
    unanswered: u32,
    /// When requests were read, oldest first.
    arrivals: VecDeque<Arrival>,
    /// The handshake that is not answered yet.
    handshake: Option<Arrival>,
    served: Option<Served>,
    /// When something came last.
    heard: Instant,
    stats: ConnStats,
}

/// Requests that were read at the same time.
#[derive(Clone, Copy)]
struct Arrival {
    at: Instant,
    requests: u32,
    /// Bytes, if it is one large request (THR-04).
    large: u32,
}

/// How urgently queued output has to leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Due {
    /// Nothing is queued that the hub has not sent.
    No,
    /// Events, for which nobody waits.
    Told,
    /// An answer.
    Answered,
}

/// Why no output leaves any more.
pub(crate) enum Fault {
    /// The network failed.
    Broken(io::Error),
    /// The client does not take the events that it watches for.
    Events { bytes: u64 },
    /// It does not take the answers that it has asked for.
    Answers { bytes: usize },
}

/// How far the connection has come.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Neither handshake nor four-letter word yet.
    Greeting,
    /// A four-letter word has been read, nothing else will be.
    Word,
    /// The core knows it.
    Open,
    /// The core has been told that it is closed; output on its way may still leave.
    Closed,
}

impl Conn {
    /// `record_bytes` may be those of one answer.
    pub(crate) fn new(
        id: ConnId,
        peer: SocketAddr,
        socket: OwnedWriteHalf,
        record_bytes: usize,
        now: Now,
    ) -> Conn {
        let output_max = OUTPUT_BYTES + 2 * record_bytes;
        let state = State {
            phase: Phase::Greeting,
            output: Output::default(),
            largest: 0,
            // Cautious until answers have been seen.
            expected: OUTPUT_BYTES / 4,
            fault: None,
            due: Due::No,
            writing: false,
            moved: false,
            told: now.mono,
            paused: false,
            crowded_out: false,
            in_line: false,
            unanswered: 0,
            arrivals: VecDeque::new(),
            handshake: None,
            served: None,
            heard: now.mono,
            stats: ConnStats::default(),
        };
        let (state, changed) = (RefCell::new(state), Notify::new());
        Conn { id, peer, since: now.wall, socket, output_max, state, changed }
    }

    /// The handshake has been read; for a new session?
    pub(crate) fn open(&self, new: bool, now: Instant) {
        let mut state = self.state.borrow_mut();
        state.phase = Phase::Open;
        state.heard = now;
        state.handshake = Some(Arrival { at: now, requests: u32::from(new), large: 0 });
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

    /// How many requests may be read now; zero pauses the reader until [`Conn::changed`]. Fewer are under way where answers
    /// are large, so that they cannot pile up far beyond the bound on output: those behind a write, or behind the handshake,
    /// are answered together.
    pub(crate) fn window(&self, shared: &Shared) -> u32 {
        let mut state = self.state.borrow_mut();
        let limit = shared.settings.core.limits.requests_per_conn;
        let full = state.output.len() > OUTPUT_BYTES || !shared.is_reading();
        let fit = u32::try_from(OUTPUT_BYTES / state.expected.max(1)).unwrap_or(limit);
        let most = if full { 0 } else { limit.min(fit.max(1)) };
        let own = most.saturating_sub(state.unanswered).min(BURST);
        let room = if own == 0 { 0 } else { own.min(shared.share(state.unanswered)) };
        if own > 0 && room == 0 && !state.paused {
            shared.note_crowd();
        }
        if own > 0 && room == 0 && state.unanswered == 0 {
            // No answer of its own will come to wake it.
            if !std::mem::replace(&mut state.in_line, true) {
                shared.stand_in_line(self.id);
            }
        }
        state.paused = room == 0;
        state.crowded_out = own > 0 && room == 0;
        room
    }

    /// Was it found that only what others have under way keeps it from being read?
    pub(crate) fn is_crowded_out(&self) -> bool {
        self.state.borrow().crowded_out
    }

    /// It has come to the head of the line.
    pub(crate) fn leave_line(&self) {
        self.state.borrow_mut().in_line = false;
        self.look_again();
    }

    /// Returns when something has happened that a reader may wait for; sometimes for nothing.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Why no output leaves any more; says so once.
    pub(crate) fn take_fault(&self) -> Option<Fault> {
        self.state.borrow_mut().fault.take()
    }

    /// Does no output leave any more?
    pub(crate) fn has_fault(&self) -> bool {
        self.state.borrow().fault.is_some()
    }

    /// Lets a paused reader look at its window again.
    pub(crate) fn look_again(&self) {
        if self.state.borrow().paused {
            self.changed.notify_one();
        }
    }

    /// Is the handshake still to be answered?
    pub(crate) fn is_new(&self) -> bool {
        let state = self.state.borrow();
        state.phase == Phase::Open && state.served.is_none()
    }

    /// A handshake or a four-letter word has been read.
    pub(crate) fn greeted(&self, is_word: bool) {
        let mut state = self.state.borrow_mut();
        state.stats.received += 1;
        if is_word {
            state.phase = Phase::Word;
        }
    }

    /// Requests have been read, the last of which is this operation.
    pub(crate) fn asked(&self, at: Instant, requests: u32, op: i32, load: &mut Load) {
        self.state.borrow_mut().arrived(Arrival { at, requests, large: 0 }, op, load);
    }

    /// A large request of so many bytes has been read (THR-04).
    pub(crate) fn asked_large(&self, at: Instant, bytes: u32, op: i32, load: &mut Load) {
        self.state.borrow_mut().arrived(Arrival { at, requests: 1, large: bytes }, op, load);
    }

    /// What it had under way will not be answered any more.
    pub(crate) fn forget_load(&self, load: &mut Load) {
        let mut state = self.state.borrow_mut();
        load.requests -= u64::from(std::mem::take(&mut state.unanswered));
        load.large_bytes -=
            state.arrivals.drain(..).map(|arrival| u64::from(arrival.large)).sum::<u64>();
    }

    /// Begins its statistics anew, as `crst` asks.
    pub(crate) fn reset_stats(&self) {
        self.state.borrow_mut().stats = ConnStats::default();
    }

    /// Its session, once it has one.
    pub(crate) fn session(&self) -> Option<SessionId> {
        self.state.borrow().served.map(|served| served.session)
    }

    /// Queues what the core has to say; for `Close` and `Complaint`, nothing. How the connection is due from now on, if it was less so.
    pub(crate) fn queue(
        &self,
        command: &ClientCommand,
        now: Instant,
        traffic: &mut Traffic,
    ) -> Option<Due> {
        let mut state = self.state.borrow_mut();
        if state.fault.is_some() {
            return None;
        }
        let bytes = match command {
            ClientCommand::Connected(response) => {
                let bytes = state.output.add(|out| response.encode(out));
                state.served = Served::of(response);
                self.changed.notify_one();
                if let (Some(arrival), Some(_)) = (state.handshake.take(), state.served) {
                    let new = arrival.requests > 0;
                    state.stats.connected(new, arrival.at, now);
                    if new {
                        traffic.latency.add(now.since(arrival.at));
                    }
                }
                bytes
            }
            ClientCommand::Event(event) => state.output.add_event(|out| event.encode(out)),
            ClientCommand::Reply(reply) => {
                let bytes = state.output.add(|out| reply.encode(out));
                let arrival = state.answered(&mut traffic.load);
                if let Some(arrival) = arrival {
                    traffic.latency.add(now.since(arrival));
                }
                state.stats.replied(reply, arrival, now);
                bytes
            }
            ClientCommand::Close | ClientCommand::Complaint(_) => return None,
        };
        state.largest = state.largest.max(bytes);
        state.stats.sent += 1;
        traffic.sent += 1;
        let due = match command {
            ClientCommand::Event(_) => Due::Told,
            ClientCommand::Connected(_)
            | ClientCommand::Reply(_)
            | ClientCommand::Complaint(_)
            | ClientCommand::Close => Due::Answered,
        };
        let sooner = due > state.due;
        state.due = state.due.max(due);
        if self.holds_too_much(&state).is_some() {
            drop(state);
            // Perhaps nobody has offered it to the client yet.
            self.try_write();
            let mut state = self.state.borrow_mut();
            if let Some(fault) = self.holds_too_much(&state) {
                state.output.clear();
                state.fault.get_or_insert(fault);
                self.changed.notify_one();
                return None;
            }
        }
        sooner.then_some(due)
    }

    /// Is more queued than may wait for a client?
    fn holds_too_much(&self, state: &State) -> Option<Fault> {
        let (bytes, event_bytes) = (state.output.len(), state.output.event_bytes());
        if event_bytes > EVENT_BYTES {
            return Some(Fault::Events { bytes: event_bytes });
        }
        (bytes > self.output_max).then_some(Fault::Answers { bytes })
    }

    /// Queues the answer to a four-letter word.
    pub(crate) fn queue_text(&self, text: &str) {
        self.state.borrow_mut().output.add(|out| out.extend_from_slice(text.as_bytes()));
    }

    /// Sends what the socket takes at once and leaves the rest to a task, so that a slow client holds up nobody.
    pub(crate) fn flush(self: &Rc<Self>, shared: &Rc<Shared>) {
        {
            let mut state = self.state.borrow_mut();
            if std::mem::replace(&mut state.due, Due::No) == Due::No {
                // It was on the other list, too.
                return;
            }
            state.expected = std::mem::take(&mut state.largest).max(state.expected / 2);
        }
        if self.write(shared) {
            self.go_on(shared);
            return;
        }
        if self.state.borrow().output.len() > OUTPUT_BYTES {
            shared.park(self.id);
        }
        if !std::mem::replace(&mut self.state.borrow_mut().writing, true) {
            let (conn, shared) = (Rc::clone(self), Rc::clone(shared));
            tokio::task::spawn_local(async move { conn.write_rest(&shared).await });
        }
    }

    /// Sends all that is queued, however long the client takes, unless the connection is abandoned.
    pub(crate) async fn write_rest(&self, shared: &Shared) {
        while !self.write(shared) {
            if self.socket.writable().await.is_err() {
                break;
            }
        }
        self.state.borrow_mut().writing = false;
        self.go_on(shared);
    }

    /// The output has left: more may be asked and answered.
    fn go_on(&self, shared: &Shared) {
        shared.resume(self.id);
        self.look_again();
    }

    /// Drops what is queued and lets nothing more leave: whoever waits for the client to take output waits no longer.
    pub(crate) fn abandon(&self) {
        self.state.borrow_mut().output.clear();
        // It may be broken already.
        let _best_effort = SockRef::from(self.socket.as_ref()).shutdown(Shutdown::Both);
    }

    /// Sends what the socket takes. Is nothing left to send?
    fn write(&self, shared: &Shared) -> bool {
        let all = self.try_write();
        let mut state = self.state.borrow_mut();
        // Its pings wait behind what it has asked for (SESS-05): an honest client on a slow line must not lose its session.
        if state.moved && state.paused && state.phase == Phase::Open {
            let now = shared.clock.mono();
            if now.since(state.told) >= HEARD_PAUSE {
                (state.moved, state.told) = (false, now);
                drop(state);
                shared.push(Input::Client(self.id, ClientEvent::Heard));
            }
        }
        all
    }

    fn try_write(&self) -> bool {
        let mut state = self.state.borrow_mut();
        while !state.output.is_empty() {
            match self.socket.try_write(state.output.next()) {
                Ok(some) => {
                    state.output.leave(some);
                    state.moved = true;
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return false,
                Err(error) => {
                    state.output.clear();
                    state.fault.get_or_insert(Fault::Broken(error));
                }
            }
        }
        true
    }

    pub(crate) fn line(&self) -> ClientLine {
        let state = self.state.borrow();
        ClientLine {
            peer: self.peer,
            since: self.since,
            reading: matches!(state.phase, Phase::Greeting | Phase::Open) && !state.paused,
            writing: state.writing,
            unanswered: state.unanswered,
            served: state.served,
            heard: state.heard,
            stats: state.stats,
        }
    }
}

impl State {
    fn arrived(&mut self, arrival: Arrival, op: i32, load: &mut Load) {
        self.stats.received += u64::from(arrival.requests);
        self.stats.asked(op);
        self.heard = arrival.at;
        self.unanswered += arrival.requests;
        load.requests += u64::from(arrival.requests);
        load.large_bytes += u64::from(arrival.large);
        self.arrivals.push_back(arrival);
    }

    /// One request less to answer; when it arrived. Replies need not come in the order of requests (a refused auth overtakes
    /// a write), so for a single one this is off; the sum is not.
    fn answered(&mut self, load: &mut Load) -> Option<Instant> {
        let arrival = self.arrivals.front_mut()?;
        self.unanswered -= 1;
        load.requests -= 1;
        let at = arrival.at;
        arrival.requests -= 1;
        if arrival.requests == 0 {
            load.large_bytes -= u64::from(arrival.large);
            self.arrivals.pop_front();
        }
        Some(at)
    }
}
