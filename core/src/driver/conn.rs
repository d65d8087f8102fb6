//! One connection of a client: what has come on it, what is to leave, what it still owes answers
//! for.
//!
//! Owns the state of the connection and its counters. Must not look at other connections: `clients`
//! does.

use core::net::SocketAddr;
use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;

use super::close::ConnCloseReason;
use super::limits::ClientLimits;
use super::metrics::{ConnStats, Load, Metrics, Served};
use super::output::Output;
use super::unfinished::Unfinished;
use crate::ids::{ConnId, Instant, WallMs};
use crate::io::{ClientCommand, Now};
use crate::wire::{ClientFrames, ConnectRequest, Id};

/// Requests that one connection hands over in a turn: a pipelining client fills few turns.
const BURST: u32 = 128;

/// Time between two events to the core that say that a client which is not read takes its output:
/// far below any session's timeout.
const HEARD_PAUSE: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    /// When it was accepted.
    pub(super) since: WallMs,
    /// Who the client is by what the host knows of its socket.
    pub(super) ids: Vec<Id>,
    pub(super) phase: Phase,
    pub(super) frames: ClientFrames,
    /// Bytes that have come and are no whole frame yet, or may not be read now.
    pub(super) buffer: BytesMut,
    pub(super) output: Output,
    /// Bytes of output that may wait for the client to take them.
    pub(super) output_max: usize,
    /// Bytes of the largest message queued since the last flush.
    largest: usize,
    /// Bytes to reckon with for an answer, judged by the latest ones.
    expected: usize,
    pub(super) due: Due,
    /// The socket has not taken all that it was offered.
    pub(super) blocked: bool,
    /// When the core was told last that the client takes output.
    told: Instant,
    /// Requests are not read for now.
    pub(super) paused: bool,
    /// It is not read only because of what others have under way, and how long that lasts matters
    /// (THR-06, THR-07).
    pub(super) wait_timed: bool,
    /// It waits for `request_throttle_max_requests`.
    pub(super) in_throttle_queue: bool,
    /// Since when so many bytes of `buffer` have been waiting for others (THR-06, THR-07).
    pub(super) waiting_bytes: Option<(Instant, usize)>,
    /// It has sent a four-letter command. Its output has no bound: one answer, whose parts follow
    /// each other only as the client takes them.
    pub(super) sent_command: bool,
    /// When the client must have taken the last part of a four-letter command's answer, if more
    /// follows.
    pub(super) part_due: Option<Instant>,
    /// When a handshake or a four-letter command has to be there.
    pub(super) greeting_due: Instant,
    /// What the session may have been granted.
    pub(super) session_timeout: Duration,
    /// The frame that is being read.
    pub(super) unfinished: Unfinished,
    /// For when it is in the set of timers.
    pub(super) timer: Option<Instant>,
    /// It is on the list of those whose bytes are looked at in the next turn.
    pub(super) is_ready: bool,
    pub(super) unanswered: u32,
    /// When requests were read, oldest first.
    arrivals: VecDeque<Arrival>,
    /// The handshake that is not answered yet.
    pub(super) handshake: Option<Arrival>,
    pub(super) served: Option<Served>,
    /// When something came last.
    pub(super) heard: Instant,
    pub(super) stats: ConnStats,
    /// Why it ends. Beside a phase that is not `Closed`: as soon as the handshake is answered.
    pub(super) close: Option<ConnCloseReason>,
}

/// How far the connection has come.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// Neither handshake nor four-letter command yet.
    Greeting,
    /// The command `stmk` has been read, its mask has not.
    TraceMask,
    /// A four-letter command has been read, nothing else will be.
    Command,
    /// A handshake has been read that may not be handed over yet.
    Handshake(ConnectRequest),
    /// The core knows it.
    Open,
    /// The core knows nothing of it, or has been told that it is closed. May output on its way
    /// still leave?
    Closed { graceful: bool },
}

/// Requests that were read at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) requests: u32,
    /// Bytes, if it is one large request (THR-04).
    pub(super) large: u32,
}

/// How urgently queued output has to leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// Nothing is queued that has not been offered to the socket.
    No,
    /// Events, for which nobody waits.
    Notified,
    /// An answer.
    Answered,
}

impl Conn {
    /// `record_bytes` may be those of one answer.
    pub(super) fn new(
        id: ConnId,
        peer: SocketAddr,
        ids: Vec<Id>,
        limits: &ClientLimits,
        record_bytes: usize,
        now: Now,
    ) -> Conn {
        Conn {
            id,
            peer,
            since: now.wall,
            ids,
            phase: Phase::Greeting,
            frames: ClientFrames::new(limits.max_frame),
            buffer: BytesMut::new(),
            output: Output::default(),
            output_max: limits.output_bytes + 2 * record_bytes,
            largest: 0,
            // Cautious until answers have been seen.
            expected: limits.output_bytes / 4,
            due: Due::No,
            blocked: false,
            told: now.mono,
            paused: false,
            wait_timed: false,
            in_throttle_queue: false,
            waiting_bytes: None,
            sent_command: false,
            part_due: None,
            greeting_due: now.mono.after(limits.sessionless_timeout),
            session_timeout: Duration::ZERO,
            unfinished: Unfinished::new(Duration::ZERO),
            timer: None,
            is_ready: false,
            unanswered: 0,
            arrivals: VecDeque::new(),
            handshake: None,
            served: None,
            heard: now.mono,
            stats: ConnStats::default(),
            close: None,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        matches!(self.phase, Phase::Closed { .. })
    }

    /// Is the handshake still to be answered?
    pub(super) fn awaits_handshake(&self) -> bool {
        self.phase == Phase::Open && self.served.is_none()
    }

    /// Its bytes are looked at in the next turn.
    pub(super) fn make_ready(&mut self, ready: &mut VecDeque<ConnId>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push_back(self.id);
        }
    }

    /// What has come waits for others from now on, unless it does so already.
    pub(super) fn begin_wait(&mut self, now: Instant) {
        self.waiting_bytes.get_or_insert((now, self.buffer.len()));
    }

    /// How many requests it may hand over, were it alone. Fewer are under way where answers are
    /// large, so that they cannot pile up far beyond the bound on output: those behind a write, or
    /// behind the handshake, are answered together.
    pub(super) fn own_window(&self, output_bytes: usize, requests_max: u32) -> u32 {
        if self.output.len() > output_bytes {
            return 0;
        }
        let fit = u32::try_from(output_bytes / self.expected.max(1)).unwrap_or(requests_max);
        let most = requests_max.min(fit.max(1));
        most.saturating_sub(self.unanswered).min(BURST)
    }

    /// Since when its client waits for an answer.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let oldest = self.handshake.or(self.arrivals.front().copied());
        oldest.map(|arrival| arrival.at)
    }

    /// When it ends for want of bytes, as far as is known now.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::Greeting | Phase::TraceMask => Some(self.greeting_due),
            Phase::Open => self.unfinished.due(),
            Phase::Command => self.part_due,
            Phase::Handshake(_) | Phase::Closed { .. } => None,
        }
    }

    /// Requests have been read, if there are any; the last of them is this operation.
    pub(super) fn arrived(&mut self, arrival: Arrival, op: i32, load: &mut Load) {
        if arrival.requests == 0 {
            return;
        }
        self.stats.received += u64::from(arrival.requests);
        self.stats.asked(op);
        self.heard = arrival.at;
        self.unanswered += arrival.requests;
        load.requests += u64::from(arrival.requests);
        load.large_bytes += u64::from(arrival.large);
        self.arrivals.push_back(arrival);
    }

    /// One request less to answer; when it arrived. Replies need not come in the order of requests
    /// (a refused auth overtakes a write), so for a single one this is off; the sum is not.
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

    /// What it had under way will not be answered any more.
    pub(super) fn forget_load(&mut self, load: &mut Load) {
        load.requests -= u64::from(std::mem::take(&mut self.unanswered));
        load.large_bytes -=
            self.arrivals.drain(..).map(|arrival| u64::from(arrival.large)).sum::<u64>();
    }

    /// Queues what the core has to say. `Close` and `Complaint` queue nothing. How the connection
    /// is due from now on, if it was less so.
    pub(super) fn queue(
        &mut self,
        command: &ClientCommand,
        now: Instant,
        metrics: &mut Metrics,
    ) -> Option<Due> {
        let (bytes, due) = match command {
            ClientCommand::Connected(response) => {
                let bytes = self.output.add(|out| response.encode(out));
                self.served = Served::of(response);
                if let (Some(arrival), Some(_)) = (self.handshake.take(), self.served) {
                    let new = arrival.requests > 0;
                    self.stats.connected(new, arrival.at, now);
                    if new {
                        metrics.latency.add(now.since(arrival.at));
                    }
                }
                (bytes, Due::Answered)
            }
            // What setWatches finds is asked for: a client that has missed much must be able to
            // hear of it.
            ClientCommand::Event(event) if event.zxid.is_none() => {
                (self.output.add(|out| event.encode(out)), Due::Notified)
            }
            ClientCommand::Event(event) => {
                (self.output.add_event(|out| event.encode(out)), Due::Notified)
            }
            ClientCommand::Reply(reply) => {
                let bytes = self.output.add(|out| reply.encode(out));
                let arrival = self.answered(&mut metrics.load);
                if let Some(arrival) = arrival {
                    metrics.latency.add(now.since(arrival));
                }
                self.stats.replied(reply, arrival, now);
                (bytes, Due::Answered)
            }
            ClientCommand::Close | ClientCommand::Complaint(_) => return None,
        };
        self.largest = self.largest.max(bytes);
        self.stats.sent += 1;
        metrics.sent += 1;
        let sooner = due > self.due;
        self.due = self.due.max(due);
        sooner.then_some(due)
    }

    /// Queues text of a four-letter command's answer. Is that due sooner than what was queued?
    pub(super) fn queue_text(&mut self, text: &str) -> bool {
        self.output.add(|out| out.extend_from_slice(text.as_bytes()));
        let due = if text.is_empty() { Due::No } else { Due::Answered };
        let sooner = due > self.due;
        self.due = self.due.max(due);
        sooner
    }

    /// What is queued is offered to the socket now. Was there anything that had not been?
    pub(super) fn begin_flush(&mut self) -> bool {
        if std::mem::replace(&mut self.due, Due::No) == Due::No {
            // It was on the other list, too.
            return false;
        }
        self.expected = std::mem::take(&mut self.largest).max(self.expected / 2);
        true
    }

    /// Why it has to be closed, where more is queued than may wait for a client.
    pub(super) fn holds_too_much(&self, event_max: u64) -> Option<ConnCloseReason> {
        if self.sent_command {
            return None;
        }
        let (bytes, event_bytes) = (self.output.len(), self.output.event_bytes());
        if event_bytes > event_max {
            return Some(ConnCloseReason::Events { bytes: event_bytes });
        }
        (bytes > self.output_max).then_some(ConnCloseReason::Answers { bytes })
    }

    /// The client has taken output. Is the core to be told? Its pings wait behind what it has asked
    /// for (SESS-05): an honest client on a slow line must not lose its session.
    pub(super) fn took_output(&mut self, bytes: usize, now: Instant) -> bool {
        self.output.leave(bytes);
        let tells = self.paused && self.phase == Phase::Open && now.since(self.told) >= HEARD_PAUSE;
        if tells {
            self.told = now;
        }
        tells
    }
}
