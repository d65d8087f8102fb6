//! One connection of a client: received bytes, queued output, and unanswered requests.
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

/// Requests that one connection hands to the core in a turn, so that a pipelining client cannot
/// fill a turn.
const BURST: u32 = 128;

/// Least time between two heartbeats to the core for a client that takes output while it is not
/// read: far below any session's timeout.
const HEARTBEAT_INTERVAL: Duration = Duration::from_millis(250);

#[derive(Debug)]
pub(super) struct Conn {
    pub(super) id: ConnId,
    pub(super) peer: SocketAddr,
    /// When the connection was accepted.
    pub(super) since: WallMs,
    /// Identities of the client that the host derives from its socket.
    pub(super) ids: Vec<Id>,
    pub(super) phase: Phase,
    pub(super) frames: ClientFrames,
    /// Received bytes that are no complete frame yet, or may not be read now.
    pub(super) buffer: BytesMut,
    pub(super) output: Output,
    /// Bytes of output that may be queued for the client.
    pub(super) output_max: usize,
    /// Bytes of the largest message queued since the last flush.
    largest: usize,
    /// Estimated bytes of an answer, from the latest ones.
    expected: usize,
    pub(super) due: Due,
    /// It is in the list of connections with events to be sent.
    in_notified: bool,
    /// The socket did not take all of the offered output.
    pub(super) blocked: bool,
    /// When the core last received a heartbeat because the client takes output.
    heartbeat_at: Instant,
    /// Requests are not read for now.
    pub(super) paused: bool,
    /// Only requests of other connections keep this one from being read, and an option limits how
    /// long they may (THR-06, THR-07).
    pub(super) wait_timed: bool,
    /// It waits for `request_throttle_max_requests`.
    pub(super) in_throttle_queue: bool,
    /// Since when how many bytes of `buffer` have been waiting for other connections (THR-06,
    /// THR-07).
    pub(super) waiting_bytes: Option<(Instant, usize)>,
    /// It has sent a four-letter command. Its output has no bound: `four_letter` queues the next
    /// part of an answer only when the client has taken the part before.
    pub(super) sent_command: bool,
    /// Deadline for the client to take the last queued part of a four-letter command's answer, if
    /// further parts follow.
    pub(super) part_due: Option<Instant>,
    /// Deadline for a complete handshake or four-letter command.
    pub(super) first_frame_due: Instant,
    /// Timeout that the session may have been granted.
    pub(super) session_timeout: Duration,
    /// The frame that is being read.
    pub(super) unfinished: Unfinished,
    /// The deadline under which the set of timers holds it.
    pub(super) timer: Option<Instant>,
    /// It is in the queue of connections whose bytes are read in the next turn.
    pub(super) is_ready: bool,
    pub(super) unanswered: u32,
    /// When requests were read, oldest first.
    arrivals: VecDeque<Arrival>,
    /// The handshake that is not answered yet.
    pub(super) handshake: Option<Arrival>,
    pub(super) served: Option<Served>,
    /// When the last input arrived.
    pub(super) heard: Instant,
    pub(super) stats: ConnStats,
    /// Why it ends. While the phase is not `Closed`, it ends as soon as the handshake is answered.
    pub(super) close: Option<ConnCloseReason>,
}

/// Phases of a connection.
#[derive(Debug, PartialEq)]
pub(super) enum Phase {
    /// Neither a handshake nor a four-letter command has been read.
    AwaitingFirstFrame,
    /// The command `stmk` has been read, its mask has not.
    TraceMask,
    /// A four-letter command has been read; nothing else will be.
    Command,
    /// A handshake has been read that may not be handed to the core yet.
    Handshake(ConnectRequest),
    /// The core has received `Opened` for it.
    Open,
    /// The core has not received `Opened` for it, or has received `Closed`. `graceful`: may queued
    /// output still leave?
    Closed { graceful: bool },
}

/// Requests of one kind that were read at the same time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) at: Instant,
    pub(super) requests: u32,
    /// Bytes, if it is one large request (THR-04).
    pub(super) large: u32,
    /// Do they become transactions?
    pub(super) writes: bool,
}

/// How urgently queued output has to leave.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Due {
    /// All queued output has been offered to the socket.
    No,
    /// Events, for which no client waits.
    Notified,
    /// An answer.
    Answered,
}

/// Resources that one connection occupies.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientUse {
    /// Requests read and not answered.
    pub unanswered: u32,
    /// Bytes queued and not sent.
    pub output_bytes: usize,
    /// Bytes of events among them.
    pub event_bytes: u64,
}

/// What `cons`, `stat` and `dump` print about a connection.
#[derive(Clone, Debug)]
pub struct ClientLine {
    /// Address of the client.
    pub peer: SocketAddr,
    /// When the connection was accepted.
    pub since: WallMs,
    /// Does the server wait for input from it?
    pub reading: bool,
    /// Does the server wait for its socket to take output?
    pub writing: bool,
    /// Requests not answered yet.
    pub unanswered: u32,
    /// The session of the connection, if it has one.
    pub served: Option<Served>,
    /// When the last input arrived.
    pub heard: Instant,
    /// Its counters.
    pub stats: ConnStats,
}

/// Bytes of a message without the length of its frame, as ZooKeeper counts them.
fn in_frame(bytes: usize) -> u64 {
    bytes.saturating_sub(4) as u64
}

impl Conn {
    /// `record_bytes` is the limit on the size of one answer.
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
            phase: Phase::AwaitingFirstFrame,
            frames: ClientFrames::new(limits.max_frame),
            buffer: BytesMut::new(),
            output: Output::default(),
            output_max: limits.output_bytes + 2 * record_bytes,
            largest: 0,
            // Cautious until answers have been seen.
            expected: limits.output_bytes / 4,
            due: Due::No,
            in_notified: false,
            blocked: false,
            heartbeat_at: now.mono,
            paused: false,
            wait_timed: false,
            in_throttle_queue: false,
            waiting_bytes: None,
            sent_command: false,
            part_due: None,
            first_frame_due: now.mono.after(limits.sessionless_timeout),
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

    /// Resources that it occupies.
    pub(super) fn takes_up(&self) -> ClientUse {
        ClientUse {
            unanswered: self.unanswered,
            output_bytes: self.output.len(),
            event_bytes: self.output.event_bytes(),
        }
    }

    /// What `cons` prints about it.
    pub(super) fn line(&self) -> ClientLine {
        ClientLine {
            peer: self.peer,
            since: self.since,
            reading: matches!(self.phase, Phase::AwaitingFirstFrame | Phase::Open) && !self.paused,
            writing: self.blocked,
            unanswered: self.unanswered,
            served: self.served,
            heard: self.heard,
            stats: self.stats,
        }
    }

    /// Schedules the reading of its bytes for the next turn.
    pub(super) fn make_ready(&mut self, ready: &mut VecDeque<ConnId>) {
        if !std::mem::replace(&mut self.is_ready, true) {
            ready.push_back(self.id);
        }
    }

    /// Notes that the buffered bytes wait for other connections from now on, unless they do so
    /// already.
    pub(super) fn begin_wait(&mut self, now: Instant) {
        self.waiting_bytes.get_or_insert((now, self.buffer.len()));
    }

    /// How many requests it may hand to the core, apart from the bounds on all connections. Fewer
    /// may be outstanding where answers are large, so that output cannot exceed its bound by far:
    /// the answers to requests behind a write, or behind the handshake, arrive together.
    pub(super) fn own_window(&self, output_bytes: usize, requests_max: u32) -> u32 {
        if self.output.len() > output_bytes {
            return 0;
        }
        let fit = u32::try_from(output_bytes / self.expected.max(1)).unwrap_or(requests_max);
        let most = requests_max.min(fit.max(1));
        most.saturating_sub(self.unanswered).min(BURST)
    }

    /// When the oldest unanswered handshake or request was read.
    pub(super) fn waiting_since(&self) -> Option<Instant> {
        let oldest = self.handshake.or(self.arrivals.front().copied());
        oldest.map(|arrival| arrival.at)
    }

    /// Its current deadline for bytes, if it has one.
    pub(super) fn due(&self) -> Option<Instant> {
        match self.phase {
            Phase::AwaitingFirstFrame | Phase::TraceMask => Some(self.first_frame_due),
            Phase::Open => self.unfinished.due(),
            Phase::Command => self.part_due,
            Phase::Handshake(_) | Phase::Closed { .. } => None,
        }
    }

    /// Counts requests that have been read, if there are any; `op` is the operation of the last
    /// one.
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

    /// Removes one request from the counts; returns its arrival. Replies need not come in the
    /// order of requests (a refused auth overtakes a write), so the time of a single one can be
    /// wrong; the sum is right.
    fn answered(&mut self, load: &mut Load) -> Option<Arrival> {
        let arrival = self.arrivals.front_mut()?;
        self.unanswered -= 1;
        load.requests -= 1;
        let answered = *arrival;
        arrival.requests -= 1;
        if arrival.requests == 0 {
            load.large_bytes -= u64::from(arrival.large);
            self.arrivals.pop_front();
        }
        Some(answered)
    }

    /// Removes the connection's requests from the load: they will not be answered any more.
    pub(super) fn forget_load(&mut self, load: &mut Load) {
        load.requests -= u64::from(std::mem::take(&mut self.unanswered));
        load.large_bytes -=
            self.arrivals.drain(..).map(|arrival| u64::from(arrival.large)).sum::<u64>();
    }

    /// Queues output of the core. `Close` and `Complaint` queue nothing. Returns the new urgency if
    /// it has risen and the connection is not in the list of that urgency.
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
                        metrics.answered(true, arrival.at, now);
                    }
                }
                (bytes, Due::Answered)
            }
            // Events without a zxid are the result of setWatches: they have no bound, so that a
            // client that has missed many events can receive them.
            ClientCommand::Event(event) if event.zxid.is_none() => {
                let bytes = self.output.add(|out| event.encode(out));
                metrics.traffic.watch_bytes += in_frame(bytes);
                (bytes, Due::Notified)
            }
            ClientCommand::Event(event) => {
                let bytes = self.output.add_event(|out| event.encode(out));
                metrics.traffic.watch_bytes += in_frame(bytes);
                (bytes, Due::Notified)
            }
            ClientCommand::Reply(reply) => {
                let bytes = self.output.add(|out| reply.encode(out));
                let arrival = self.answered(&mut metrics.load);
                if let Some(arrival) = arrival {
                    metrics.answered(arrival.writes, arrival.at, now);
                }
                metrics.traffic.count_reply(reply, in_frame(bytes));
                self.stats.replied(reply, arrival.map(|arrival| arrival.at), now);
                (bytes, Due::Answered)
            }
            ClientCommand::Close | ClientCommand::Complaint(_) => return None,
        };
        if !matches!(command, ClientCommand::Connected(_)) {
            // Without the length of the frame.
            metrics.responses.add(bytes.saturating_sub(4));
        }
        self.largest = self.largest.max(bytes);
        self.stats.sent += 1;
        metrics.sent += 1;
        let sooner = due > self.due;
        self.due = self.due.max(due);
        if !sooner || due == Due::Notified && std::mem::replace(&mut self.in_notified, true) {
            return None;
        }
        Some(due)
    }

    /// Queues text of a four-letter command's answer. Returns whether the urgency has risen.
    pub(super) fn queue_text(&mut self, text: &str) -> bool {
        self.output.add(|out| out.extend_from_slice(text.as_bytes()));
        let due = if text.is_empty() { Due::No } else { Due::Answered };
        let sooner = due > self.due;
        self.due = self.due.max(due);
        sooner
    }

    /// Notes that the queued output is offered to the socket now, because the connection was next
    /// in the list of this urgency. Returns whether there was output that had not been offered.
    pub(super) fn begin_flush(&mut self, list: Due) -> bool {
        if list == Due::Notified {
            self.in_notified = false;
        }
        if std::mem::replace(&mut self.due, Due::No) == Due::No {
            // It was in the other list, too.
            return false;
        }
        self.expected = std::mem::take(&mut self.largest).max(self.expected / 2);
        true
    }

    /// Why the connection has to be closed, if more output is queued than its bounds allow.
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

    /// The client has taken output. Returns whether the core is to receive a heartbeat: the
    /// client's pings wait behind its other requests, and a client on a slow line must keep its
    /// session (SESS-05).
    pub(super) fn took_output(&mut self, bytes: usize, now: Instant) -> bool {
        self.output.leave(bytes);
        let is_heartbeat = self.paused
            && self.phase == Phase::Open
            && now.since(self.heartbeat_at) >= HEARTBEAT_INTERVAL;
        if is_heartbeat {
            self.heartbeat_at = now;
        }
        is_heartbeat
    }
}
