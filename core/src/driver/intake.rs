//! Reading of connections: from received bytes to inputs of the core, as far as the bounds allow.
//!
//! Owns the state that connections share: the bounds on all of them, the queue of inputs, the
//! counters. Must not write output, nor end a connection: `clients` does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use bytes::BytesMut;

use super::admission::{self, Admission};
use super::close::ConnCloseReason;
use super::conn::{Arrival, Conn, Phase};
use super::limits::{ClientLimits, LargeRequests};
use super::metrics::Metrics;
use super::note::ClientNote;
use super::queue::FairQueue;
use super::unfinished::Unfinished;
use crate::config::Config;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::ClientEvent;
use crate::throttle::{ConnectThrottle, Handshake};
use crate::wire::{ConnectRequest, FirstFrame, FourLetterCommand, Request, RequestFrame};

/// State that all connections share.
#[derive(Debug)]
pub(super) struct Common {
    pub(super) limits: ClientLimits,
    pub(super) config: Arc<Config>,
    pub(super) admission: Admission,
    pub(super) throttle: ConnectThrottle,
    /// Inputs for the core.
    pub(super) queue: FairQueue,
    /// Connections with bytes to be read, or that may be read again.
    pub(super) ready: VecDeque<ConnId>,
    /// Connections whose [`super::Interest`] may have changed.
    pub(super) changed: Vec<ConnId>,
    /// Four-letter commands that have been read, with the mask of `stmk`.
    pub(super) commands: VecDeque<(ConnId, FourLetterCommand, Option<i64>)>,
    /// Connections whose client has taken a part of an answer, or that have ended during one.
    pub(super) resumed: VecDeque<ConnId>,
    /// Does the command `stmk` come with the mask that it sets? If `stmk` is refused, no mask is
    /// read.
    pub(super) reads_trace_mask: bool,
    pub(super) notes: Vec<ClientNote>,
    /// May requests be read?
    pub(super) reads: bool,
    pub(super) metrics: Metrics,
}

impl Common {
    pub(super) fn new(
        config: Arc<Config>,
        limits: ClientLimits,
        seed: u64,
        now: Instant,
    ) -> Common {
        Common {
            config,
            admission: Admission::default(),
            throttle: ConnectThrottle::new(limits.throttle.clone(), seed, now),
            limits,
            queue: FairQueue::default(),
            ready: VecDeque::new(),
            changed: Vec::new(),
            commands: VecDeque::new(),
            resumed: VecDeque::new(),
            reads_trace_mask: false,
            notes: Vec::new(),
            reads: true,
            metrics: Metrics::default(),
        }
    }
}

impl Conn {
    /// Reads the buffered bytes, as far as the bounds allow.
    ///
    /// # Errors
    /// Why the connection has to end.
    pub(super) fn read(
        &mut self,
        common: &mut Common,
        now: Instant,
    ) -> Result<(), ConnCloseReason> {
        if self.close.is_some() {
            return Ok(());
        }
        if self.phase == Phase::AwaitingFirstFrame {
            self.read_first_frame(common)?;
        }
        if self.phase == Phase::TraceMask {
            self.read_trace_mask(common);
        }
        if let Phase::Handshake(request) = &self.phase {
            let request = request.clone();
            // The core turns a handshake into a write, so the window applies.
            if self.window(common) == 0 {
                return Ok(());
            }
            self.read_handshake(request, common, now)?;
        }
        if self.phase == Phase::Open {
            self.read_requests(common, now)?;
        }
        Ok(())
    }

    /// Reads the first message, if enough bytes have arrived to identify it.
    fn read_first_frame(&mut self, common: &mut Common) -> Result<(), ConnCloseReason> {
        let first = self.frames.first(&mut self.buffer).map_err(ConnCloseReason::Malformed)?;
        let Some(first) = first else {
            return self.check_length(common).map(drop);
        };
        common.metrics.received += 1;
        self.stats.received += 1;
        self.phase = match first {
            FirstFrame::Connect(request) => Phase::Handshake(request),
            FirstFrame::Command(FourLetterCommand::Stmk) if common.reads_trace_mask => {
                Phase::TraceMask
            }
            FirstFrame::Command(command) => {
                self.sent_command = true;
                common.commands.push_back((self.id, command, None));
                Phase::Command
            }
        };
        Ok(())
    }

    /// Reads the mask that follows `stmk` (FLW-08).
    fn read_trace_mask(&mut self, common: &mut Common) {
        if let Some(bytes) = self.buffer.first_chunk::<8>() {
            let mask = i64::from_be_bytes(*bytes);
            common.commands.push_back((self.id, FourLetterCommand::Stmk, Some(mask)));
            self.sent_command = true;
            self.phase = Phase::Command;
        }
    }

    /// Hands the handshake to the core, unless the throttle refuses it.
    fn read_handshake(
        &mut self,
        request: ConnectRequest,
        common: &mut Common,
        now: Instant,
    ) -> Result<(), ConnCloseReason> {
        let new = request.session == SessionId(0);
        let handshake = match (new, common.config.sessions.local) {
            (true, false) => Handshake::Global,
            (true, true) => Handshake::Local,
            (false, _) => Handshake::Renew,
        };
        let admitted = common.throttle.admit(handshake, now);
        common.metrics.traffic.token_deficit.add(common.throttle.deficit(), now);
        common.notes.push(ClientNote::Handshake(self.id, handshake, admitted));
        if !admitted {
            common.metrics.rejected += 1;
            return Err(ConnCloseReason::Throttled);
        }
        common.metrics.handshakes += 1;
        common.metrics.traffic.revalidations += u64::from(!new);
        let granted_ms = common.config.negotiate(request.timeout_ms);
        self.session_timeout = Duration::from_millis(granted_ms.into());
        self.unfinished = Unfinished::new(self.session_timeout);
        self.heard = now;
        self.handshake = Some(Arrival { at: now, requests: u32::from(new), large: 0, writes: new });
        self.phase = Phase::Open;
        let ids = std::mem::take(&mut self.ids);
        common.queue.push(self.id, ClientEvent::Opened(request, ids));
        Ok(())
    }

    /// Hands complete requests to the core, as many as the window has room for.
    fn read_requests(&mut self, common: &mut Common, now: Instant) -> Result<(), ConnCloseReason> {
        let window = self.window(common);
        if window == 0 {
            // While nothing is read, no frame can be completed.
            self.unfinished.ended();
            if self.wait_timed && !self.buffer.is_empty() {
                self.begin_wait(now);
            }
            return Ok(());
        }
        // Small requests of one kind that were read together, and the operation of the last.
        let mut small = Arrival { at: now, requests: 0, large: 0, writes: false };
        let mut last = 0;
        let (mut taken, mut read) = (0, Ok(()));
        while taken < window {
            let (request, large) = match self.read_request(common, now) {
                Ok(Some(request)) => request,
                Ok(None) => break,
                Err(why) => {
                    // The requests before it were handed over, and count.
                    read = Err(why);
                    break;
                }
            };
            taken += 1;
            let (op, writes) = (request.request.op(), request.request.is_write());
            common.queue.push(self.id, ClientEvent::Request(request));
            let load = &mut common.metrics.load;
            match large {
                None => {
                    if small.writes != writes {
                        self.arrived(small, last, load);
                        (small.requests, small.writes) = (0, writes);
                    }
                    (small.requests, last) = (small.requests + 1, op);
                }
                Some(large) => {
                    self.arrived(small, last, load);
                    small.requests = 0;
                    self.arrived(Arrival { at: now, requests: 1, large, writes }, op, load);
                }
            }
        }
        self.arrived(small, last, &mut common.metrics.load);
        common.metrics.received += u64::from(taken);
        read?;
        if taken > 0 {
            self.unfinished.ended();
        }
        if taken == window {
            // More may be buffered, but the core has its turn first.
            self.make_ready(&mut common.ready);
            return Ok(());
        }
        if self.buffer.is_empty() {
            // Idle connections hold no buffer.
            self.buffer = BytesMut::new();
        }
        self.unfinished.note(self.buffer.len(), now);
        Ok(())
    }

    /// Reads a request if a whole one has arrived: with its bytes if it is large.
    fn read_request(
        &mut self,
        common: &mut Common,
        now: Instant,
    ) -> Result<Option<(RequestFrame, Option<u32>)>, ConnCloseReason> {
        let large = self.check_length(common)?;
        let before = self.buffer.len();
        let request = self.frames.next(&mut self.buffer).map_err(ConnCloseReason::Malformed)?;
        let Some(request) = request else { return Ok(None) };
        let length = before - self.buffer.len();
        let request = self.after_wait(request, length, common, now)?;
        Ok(Some((request, large)))
    }

    /// How many requests may be read now; zero pauses the connection until something has changed.
    fn window(&mut self, common: &mut Common) -> u32 {
        let requests_max = common.config.limits.requests_per_conn;
        let output_bytes = common.limits.output_bytes;
        let own = if common.reads { self.own_window(output_bytes, requests_max) } else { 0 };
        let room = own.min(admission::share(&common.limits, &common.metrics.load, self.unanswered));
        let blocked_by_others = own > 0 && room == 0;
        if blocked_by_others && !self.paused {
            let under_way = common.metrics.load.requests;
            common.notes.push(ClientNote::Overloaded { under_way });
            common.metrics.traffic.throttle_waits += 1;
        }
        if blocked_by_others
            && self.unanswered == 0
            && !std::mem::replace(&mut self.in_throttle_queue, true)
        {
            // No answer of its own will make it ready again.
            common.admission.throttle_queue.push_back(self.id);
        }
        if std::mem::replace(&mut self.paused, room == 0) && room > 0 {
            common.changed.push(self.id);
        }
        let load = &common.metrics.load;
        self.wait_timed = blocked_by_others && admission::is_wait_timed(&common.limits, load);
        room
    }

    /// Judges the next frame by its length, before all of it has arrived: the number of its bytes
    /// if it is large (THR-04).
    fn check_length(&self, common: &mut Common) -> Result<Option<u32>, ConnCloseReason> {
        let Common { limits, metrics, .. } = common;
        let Some(LargeRequests { above, bytes: bound }) = limits.large else {
            return Ok(None);
        };
        let length = self.buffer.first_chunk().map(|head| i32::from_be_bytes(*head));
        // The frame decoder refuses invalid lengths.
        let length = length.and_then(|length| u32::try_from(length).ok());
        let Some(length) = length.filter(|length| *length > above && *length <= limits.max_frame)
        else {
            return Ok(None);
        };
        let under_way = metrics.load.large_bytes;
        if under_way + u64::from(length) > bound {
            metrics.large_rejected += 1;
            return Err(ConnCloseReason::TooLarge { length, under_way, bound });
        }
        Ok(Some(length))
    }

    /// The request that the next `length` bytes of the buffer were; refused if it has waited too
    /// long.
    fn after_wait(
        &mut self,
        frame: RequestFrame,
        length: usize,
        common: &mut Common,
        now: Instant,
    ) -> Result<RequestFrame, ConnCloseReason> {
        let Some((since, bytes)) = self.waiting_bytes else {
            return Ok(frame);
        };
        let left = bytes.checked_sub(length).filter(|left| *left > 0);
        self.waiting_bytes = left.map(|left| (since, left));
        // ZooKeeper answers these outside of its queue, or they must not be lost.
        if matches!(
            frame.request,
            Request::CloseSession
                | Request::Auth { .. }
                | Request::Sasl { .. }
                | Request::Unknown { .. }
        ) {
            return Ok(frame);
        }
        let (waited, timeout) = (now.since(since), self.session_timeout);
        let traffic = &mut common.metrics.traffic;
        traffic.throttle_time.add_time(waited, now);
        if common.limits.drop_stale && waited > timeout {
            traffic.stale_requests += 1;
            return Err(ConnCloseReason::Stale { waited, timeout });
        }
        match common.limits.op_wait_max {
            Some(op_wait_max)
                if waited > op_wait_max && !matches!(frame.request, Request::Ping) =>
            {
                traffic.throttled_ops += 1;
                common.notes.push(ClientNote::OpWaitedTooLong { waited, op_wait_max });
                let request = Request::Throttled { op: frame.request.op() };
                Ok(RequestFrame { xid: frame.xid, request })
            }
            _ => Ok(frame),
        }
    }
}
