//! Connections of clients: turns received bytes into inputs of the core, and output of the core
//! into bytes.
//!
//! Owns the buffers between sockets and the core, and the bounds on them. Must not decide the
//! content of an answer, nor access a socket.
//!
//! Invariants: requests reach the core in the order of their bytes, and output leaves in the order
//! in which it was queued; an error ends its own connection only.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::admission::{self, TooManyConnections};
use super::close::ConnCloseReason;
use super::conn::{ClientLine, ClientUse, Conn, Due, Phase};
use super::flush::FlushQueue;
use super::intake::Common;
use super::limits::ClientLimits;
use super::metrics::{ConnStats, Metrics};
use super::note::ClientNote;
use crate::config::Config;
use crate::ids::{ConnId, Instant, SessionId};
use crate::io::{ClientCommand, ClientEvent, Now};
use crate::wire::{FourLetterCommand, Id};

/// All connections of clients.
#[derive(Debug)]
pub struct Clients {
    conns: BTreeMap<ConnId, Conn>,
    pub(super) common: Common,
    /// Connections that take output while they are not read; the core is to receive a heartbeat for
    /// each.
    heartbeats: VecDeque<ConnId>,
    /// The earliest deadline for bytes of each connection; some entries are out of date.
    timers: BTreeSet<(Instant, ConnId)>,
    /// Connections with output that has not been offered to their sockets.
    flushes: FlushQueue,
}

/// What the host has to do with the socket of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Read from it, and give the bytes to [`Clients::receive`].
    Read,
    /// Leave received bytes in the socket.
    Wait,
    /// Send the rest of the output, shut down the sending side, and wait a little for the client to
    /// close; then [`Clients::forget`].
    Shutdown,
    /// Close it at once; then [`Clients::forget`].
    Close,
}

impl Clients {
    /// No connections. `seed` feeds the random drops of the throttle.
    pub(super) fn new(
        config: Arc<Config>,
        limits: ClientLimits,
        seed: u64,
        now: Instant,
    ) -> Clients {
        Clients {
            conns: BTreeMap::new(),
            common: Common::new(config, limits, seed, now),
            heartbeats: VecDeque::new(),
            timers: BTreeSet::new(),
            flushes: FlushQueue::default(),
        }
    }

    /// Accepts the connection of a client from this address. `id` must never have been used before;
    /// `more` holds further identities of the client that its socket shows.
    ///
    /// # Errors
    /// There are too many connections: the host closes this one at once.
    pub fn accept(
        &mut self,
        id: ConnId,
        peer: SocketAddr,
        more: Vec<Id>,
        now: Now,
    ) -> Result<(), TooManyConnections> {
        // ACL-10: a socket for both families names IPv4 clients in IPv6 notation.
        let address = peer.ip().to_canonical();
        let accepted = self.common.admission.accept(address, &self.common.limits);
        self.common.metrics.rejected += u64::from(accepted.is_err());
        accepted?;
        let mut ids = vec![Id { scheme: "ip".into(), id: address.to_string() }];
        ids.extend(more);
        let peer = SocketAddr::new(address, peer.port());
        let record_bytes = self.common.config.limits.record_bytes;
        let conn = Conn::new(id, peer, ids, &self.common.limits, record_bytes, now);
        self.conns.insert(id, conn);
        self.plan(id);
        Ok(())
    }

    /// Takes bytes that have arrived. The core receives the requests among them in the next turn.
    pub fn receive(&mut self, id: ConnId, bytes: &[u8], now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if matches!(conn.phase, Phase::Command | Phase::Closed { .. }) {
            return;
        }
        self.common.metrics.bytes_received += bytes.len() as u64;
        conn.buffer.extend_from_slice(bytes);
        let Common { limits, ready, admission, metrics, .. } = &mut self.common;
        let others_wait = !ready.is_empty() || !admission.throttle_queue.is_empty();
        if limits.throttle_max_requests.is_some() && others_wait && conn.phase == Phase::Open {
            // Connections that waited already come first for the room that has become free.
            if admission::is_wait_timed(limits, &metrics.load) {
                conn.begin_wait(now);
            }
            return conn.make_ready(ready);
        }
        self.parse(id, now);
    }

    /// The client has closed its side.
    pub fn receive_end(&mut self, id: ConnId) {
        let cut = self.conns.get(&id).is_some_and(|conn| !conn.buffer.is_empty());
        let why = if cut { ConnCloseReason::WithinFrame } else { ConnCloseReason::ByClient };
        self.close(id, why);
    }

    /// The connection has failed; `why` is the operating system's error text.
    pub fn fail(&mut self, id: ConnId, why: String) {
        self.close(id, ConnCloseReason::Broken(why));
    }

    /// What the host has to do with the socket.
    pub fn interest(&self, id: ConnId) -> Interest {
        let Some(conn) = self.conns.get(&id) else { return Interest::Close };
        match conn.phase {
            Phase::Closed { graceful: true } => Interest::Shutdown,
            Phase::Closed { graceful: false } => Interest::Close,
            Phase::AwaitingFirstFrame | Phase::TraceMask => Interest::Read,
            Phase::Command | Phase::Handshake(_) => Interest::Wait,
            // The connection ends as soon as the handshake is answered.
            Phase::Open if conn.close.is_some() => Interest::Wait,
            // Buffered requests are taken before more is read, also before the end of the stream.
            Phase::Open if conn.is_ready => Interest::Wait,
            Phase::Open if !conn.paused => Interest::Read,
            // A request's waiting time counts from when it is read, so the socket is read although
            // the connection is paused.
            Phase::Open if conn.wait_timed && conn.buffer.is_empty() => Interest::Read,
            Phase::Open => Interest::Wait,
        }
    }

    /// A connection whose [`Clients::interest`] may have changed. It may be returned twice, or be
    /// forgotten already.
    pub fn next_changed(&mut self) -> Option<ConnId> {
        self.common.changed.pop()
    }

    /// The socket is closed. Returns why the connection has ended, if it was known.
    pub fn forget(&mut self, id: ConnId) -> Option<ConnCloseReason> {
        // Applies if the host has closed the socket of its own accord.
        self.close(id, ConnCloseReason::ByServer);
        let conn = self.conns.remove(&id)?;
        if let Some(timer) = conn.timer {
            self.timers.remove(&(timer, id));
        }
        self.common.admission.release(conn.peer.ip());
        conn.close
    }

    /// The next connection with output to be offered to its socket; `None` when there is none left
    /// in this turn.
    pub fn next_to_flush(&mut self) -> Option<ConnId> {
        loop {
            let (id, list) = self.flushes.next()?;
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if conn.begin_flush(list) {
                if list == Due::Notified {
                    self.flushes.count_notified();
                }
                return Some(id);
            }
        }
    }

    /// The first part of the queued output; empty if none is queued.
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id).map_or(&[], |conn| conn.output.next())
    }

    /// The socket has taken `bytes` bytes of [`Clients::output`].
    pub fn sent(&mut self, id: ConnId, bytes: usize, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.took_output(bytes, now) {
            self.heartbeats.push_back(id);
        }
        if conn.output.is_empty() {
            // The connection may be read again, and its requests answered.
            conn.blocked = false;
            if conn.part_due.take().is_some() && conn.phase == Phase::Command {
                self.common.resumed.push_back(id);
            }
            self.common.queue.resume(id);
            self.parse_again(id);
        }
    }

    /// The socket takes no more output for now. Returns whether it took output until this call; the
    /// host then begins to wait for the socket.
    pub fn block(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        if let Some(why) = conn.holds_too_much(self.common.limits.event_bytes) {
            self.close(id, why);
            return false;
        }
        // A `Closed` event must not be blocked by untaken output, so only open connections are.
        if conn.output.len() > self.common.limits.output_bytes && conn.phase == Phase::Open {
            self.common.queue.block(id);
        }
        !std::mem::replace(&mut conn.blocked, true)
    }

    /// The next four-letter command that was read, with the mask of `stmk`.
    pub(super) fn next_command(&mut self) -> Option<(ConnId, FourLetterCommand, Option<i64>)> {
        self.common.commands.pop_front()
    }

    /// A connection whose client has taken a part of an answer, or that has ended during one.
    pub(super) fn next_resumed(&mut self) -> Option<ConnId> {
        self.common.resumed.pop_front()
    }

    /// Has a four-letter command been read from the connection whose answer is incomplete?
    pub(super) fn awaits_answer(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.phase == Phase::Command)
    }

    /// Queues a part of the answer to a four-letter command. If the client has not taken it by
    /// `due`, the answer ends.
    pub(super) fn queue_part(&mut self, id: ConnId, text: &str, due: Instant) {
        self.queue_text(id, text);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.part_due = Some(due);
            self.plan(id);
        }
    }

    /// Queues the end of the answer to a four-letter command, and ends the connection once it has
    /// left.
    pub(super) fn end_answer(&mut self, id: ConnId, text: &str) {
        if self.awaits_answer(id) {
            self.queue_text(id, text);
            self.common.metrics.sent += 1;
            self.shut_down(id);
        }
    }

    fn queue_text(&mut self, id: ConnId, text: &str) {
        if let Some(conn) = self.conns.get_mut(&id)
            && conn.queue_text(text)
        {
            self.flushes.push(id, Due::Answered);
        }
    }

    /// The facts to be reported since the last call.
    pub fn take_notes(&mut self) -> Vec<ClientNote> {
        std::mem::take(&mut self.common.notes)
    }

    pub(super) fn has_notes(&self) -> bool {
        !self.common.notes.is_empty()
    }

    /// The counters of clients.
    pub fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// The counters, for the host to count its own observations, or to reset them.
    pub fn metrics_mut(&mut self) -> &mut Metrics {
        &mut self.common.metrics
    }

    /// Resets the statistics of all connections, for `crst`.
    pub fn reset_conn_stats(&mut self) {
        self.conns.values_mut().for_each(|conn| conn.stats = ConnStats::default());
    }

    /// The bounds on clients.
    pub fn limits(&self) -> &ClientLimits {
        &self.common.limits
    }

    /// Probability that the throttle refuses a handshake at random, in millionths.
    pub fn drop_probability(&self) -> u32 {
        self.common.throttle.drop_probability()
    }

    /// Unanswered requests of all connections.
    pub fn unanswered(&self) -> u64 {
        self.common.metrics.load.requests
    }

    /// Address of a connection's client, while the connection is known.
    pub fn peer(&self, id: ConnId) -> Option<SocketAddr> {
        self.conns.get(&id).map(|conn| conn.peer)
    }

    /// Resources that a connection occupies, while the connection is known.
    pub fn takes_up(&self, id: ConnId) -> Option<ClientUse> {
        self.conns.get(&id).map(Conn::takes_up)
    }

    /// When the oldest unanswered handshake or request of a connection was read, if there is one.
    pub fn waiting_since(&self, id: ConnId) -> Option<Instant> {
        self.conns.get(&id).and_then(Conn::waiting_since)
    }

    /// The session of a connection, once it has one.
    pub fn session(&self, id: ConnId) -> Option<SessionId> {
        self.conns.get(&id).and_then(|conn| conn.served).map(|served| served.session)
    }

    /// What `cons` prints about each connection.
    pub fn lines(&self) -> Vec<ClientLine> {
        self.conns.values().map(Conn::line).collect()
    }

    /// What `cons` prints about a connection, while it is known.
    pub fn line(&self, id: ConnId) -> Option<ClientLine> {
        self.conns.get(&id).map(Conn::line)
    }

    /// The same for the connections that were accepted after `last`, by id.
    pub fn lines_behind(&self, last: Option<ConnId>) -> impl Iterator<Item = (ConnId, ClientLine)> {
        let behind = last.map_or(Bound::Unbounded, Bound::Excluded);
        self.conns.range((behind, Bound::Unbounded)).map(|(id, conn)| (*id, conn.line()))
    }

    /// Number of open connections.
    pub fn count(&self) -> usize {
        self.conns.len()
    }

    /// Bytes of events that are queued for clients.
    pub(super) fn event_bytes(&self) -> u64 {
        self.conns.values().map(|conn| conn.output.event_bytes()).sum()
    }

    /// The next connection that is not read and whose client has taken output: the core is to
    /// receive a heartbeat for it.
    pub(super) fn next_heartbeat(&mut self) -> Option<ConnId> {
        loop {
            let id = self.heartbeats.pop_front()?;
            if self.conns.get(&id).is_some_and(|conn| conn.phase == Phase::Open) {
                return Some(id);
            }
        }
    }

    /// The earliest deadline for bytes of a connection.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Is there work for the next turn, even if nothing arrives?
    pub(super) fn has_work(&self) -> bool {
        !self.common.ready.is_empty()
            || !self.common.queue.is_empty()
            || !self.common.commands.is_empty()
            || !self.common.resumed.is_empty()
            || !self.heartbeats.is_empty()
            || self.flushes.has_work()
    }

    /// Ends connections that have missed their deadline, and reads requests as far as the bounds
    /// allow.
    pub(super) fn begin_turn(&mut self, now: Instant) {
        while let Some((at, id)) = self.timers.first().copied()
            && at <= now
        {
            self.timers.pop_first();
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            conn.timer = None;
            if conn.due().is_none_or(|due| due > now) {
                self.plan(id);
                continue;
            }
            let why = match conn.phase {
                Phase::Command => {
                    // What is queued may still leave.
                    self.end_answer(id, "");
                    self.common.resumed.push_back(id);
                    continue;
                }
                Phase::Open => ConnCloseReason::Unfinished(conn.session_timeout),
                Phase::AwaitingFirstFrame
                | Phase::TraceMask
                | Phase::Handshake(_)
                | Phase::Closed { .. } => {
                    self.common.metrics.sessionless += 1;
                    ConnCloseReason::Sessionless(self.common.limits.sessionless_timeout)
                }
            };
            self.close(id, why);
        }
        for _ in 0..self.common.ready.len() {
            let Some(id) = self.common.ready.pop_front() else { break };
            if let Some(conn) = self.conns.get_mut(&id) {
                conn.is_ready = false;
                self.parse(id, now);
                self.common.changed.push(id);
            }
        }
    }

    /// Queues the core's output. `reads`: may clients be read from now on?
    pub(super) fn deliver(
        &mut self,
        commands: &mut Vec<(ConnId, ClientCommand)>,
        reads: bool,
        now: Instant,
    ) {
        self.flushes.begin_turn();
        let mut too_much = Vec::new();
        let mut commands = commands.drain(..).peekable();
        // Answers to one connection tend to follow each other.
        while let Some(&(id, _)) = commands.peek() {
            let mut conn = self.conns.get_mut(&id);
            let mut shuts = false;
            while let Some((_, command)) = commands.next_if(|(next, _)| *next == id) {
                let Some(conn) = conn.as_deref_mut().filter(|conn| !conn.is_closed()) else {
                    let is_reply = matches!(command, ClientCommand::Reply(_));
                    self.common.metrics.traffic.stale_replies += u64::from(is_reply);
                    continue;
                };
                match command {
                    _ if shuts => {}
                    ClientCommand::Close => shuts = true,
                    ClientCommand::Complaint(what) => {
                        self.common.notes.push(ClientNote::Complaint(conn.peer, what.to_string()));
                    }
                    ClientCommand::Connected(_)
                    | ClientCommand::Reply(_)
                    | ClientCommand::Event(_) => {
                        let due = conn.queue(&command, now, &mut self.common.metrics);
                        self.flushes.push(id, due.unwrap_or(Due::No));
                    }
                }
            }
            let Some(conn) = conn else { continue };
            if shuts || (conn.close.is_some() && conn.served.is_some()) {
                self.shut_down(id);
            } else if let Some(why) = conn.holds_too_much(self.common.limits.event_bytes) {
                too_much.push((id, why));
            }
        }
        drop(commands);
        for (id, why) in too_much {
            let Some(conn) = self.conns.get_mut(&id) else { continue };
            if conn.blocked {
                self.close(id, why);
            } else if conn.due == Due::Notified {
                // The output has not been offered to the socket yet; that comes before the
                // connection is judged.
                conn.due = Due::Answered;
                self.flushes.push(id, Due::Answered);
            }
        }
        if reads && !self.common.reads {
            let paused = self.conns.values_mut().filter(|conn| conn.paused);
            paused.for_each(|conn| conn.make_ready(&mut self.common.ready));
        }
        self.common.reads = reads;
        self.admit_next();
    }

    /// Is no state of any connection left?
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let load = &self.common.metrics.load;
        self.conns.is_empty()
            && self.common.queue.knows_nobody()
            && self.timers.is_empty()
            && [load.requests, load.large_bytes] == [0; 2]
    }

    /// Makes a paused connection compute its window again in the next turn.
    fn parse_again(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.paused) {
            conn.make_ready(&mut self.common.ready);
        }
    }

    /// Reads the buffered requests, as far as the bounds allow.
    fn parse(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.read(&mut self.common, now) {
            Ok(()) => self.plan(id),
            Err(why) => self.refuse(id, why),
        }
        // It may have left the throttle queue without using its place; the next one takes it.
        self.admit_next();
    }

    /// Makes connections that wait for `request_throttle_max_requests` ready again, as many as
    /// there is room for.
    fn admit_next(&mut self) {
        let Some(bound) = self.common.limits.throttle_max_requests else { return };
        let mut room = bound.saturating_sub(self.common.metrics.load.requests);
        while room > 0 {
            let Some(id) = self.common.admission.throttle_queue.pop_front() else { return };
            if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_closed()) {
                conn.in_throttle_queue = false;
                self.parse_again(id);
                room -= 1;
            }
        }
    }

    /// Ends a connection that has sent invalid bytes. If they follow the handshake directly, the
    /// handshake is answered first: ZooKeeper reads nothing before it has answered.
    fn refuse(&mut self, id: ConnId, why: ConnCloseReason) {
        match self.conns.get_mut(&id) {
            Some(conn) if conn.awaits_handshake() => {
                conn.unfinished.ended();
                conn.close = Some(why);
                self.common.changed.push(id);
            }
            _ => self.close(id, why),
        }
    }

    /// Ends a connection at once, and drops its queued output.
    fn close(&mut self, id: ConnId, why: ConnCloseReason) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.output.clear();
        conn.blocked = false;
        if conn.is_closed() {
            conn.phase = Phase::Closed { graceful: false };
            return self.common.changed.push(id);
        }
        let dropped = conn.phase == Phase::Open && why.is_drop();
        self.common.metrics.traffic.dropped += u64::from(dropped);
        conn.close.get_or_insert(why);
        self.end(id, false);
    }

    /// Ends a connection once its queued output has left.
    fn shut_down(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_closed()) else { return };
        conn.close.get_or_insert(ConnCloseReason::ByServer);
        self.end(id, true);
    }

    /// Marks a connection as closed. The core receives `Closed` once, if it has received `Opened`.
    fn end(&mut self, id: ConnId, graceful: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let before = std::mem::replace(&mut conn.phase, Phase::Closed { graceful });
        conn.forget_load(&mut self.common.metrics.load);
        conn.buffer = bytes::BytesMut::new();
        match before {
            Phase::Open => self.common.queue.push(id, ClientEvent::Closed),
            Phase::Command if !graceful => self.common.resumed.push_back(id),
            Phase::AwaitingFirstFrame
            | Phase::TraceMask
            | Phase::Command
            | Phase::Handshake(_)
            | Phase::Closed { .. } => {}
        }
        self.common.changed.push(id);
        self.admit_next();
    }

    /// Sets the timer that ends the connection if no bytes arrive in time.
    fn plan(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let Some(due) = conn.due() else { return };
        if conn.timer.is_none_or(|timer| due < timer) {
            if let Some(timer) = conn.timer.replace(due) {
                self.timers.remove(&(timer, id));
            }
            self.timers.insert((due, id));
        }
    }
}
