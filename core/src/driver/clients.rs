//! Connections of clients: bytes in, inputs for the core out; what the core answers in, bytes out.
//!
//! Owns what stands between sockets and the core, and the bounds on it. Must not decide what an
//! answer is, nor see a socket.
//!
//! Invariants: requests reach the core in the order of their bytes, and output leaves in the order
//! in which it was queued; a fault ends its connection and disturbs no other.

use core::net::SocketAddr;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use super::admission::{self, TooManyConnections};
use super::close::ConnCloseReason;
use super::conn::{Conn, Due, Phase};
use super::intake::Common;
use super::limits::ClientLimits;
use super::metrics::{ConnStats, Metrics, Served};
use super::note::ClientNote;
use crate::config::Config;
use crate::ids::{ConnId, Instant, SessionId, WallMs};
use crate::io::{ClientCommand, ClientEvent, Now};
use crate::wire::{FourLetterCommand, Id};

/// Connections whose events are offered to their sockets in a turn: a change that ten thousand
/// clients hear of is to hold up nobody else's request for longer than some milliseconds.
const NOTIFIED_PER_TURN: usize = 256;

/// All connections of clients.
#[derive(Debug)]
pub struct Clients {
    conns: BTreeMap<ConnId, Conn>,
    pub(super) common: Common,
    /// Take output although they are not read: the core is to be told.
    heard: VecDeque<ConnId>,
    /// The earliest moment at which each may end for want of bytes; some are out of date.
    timers: BTreeSet<(Instant, ConnId)>,
    /// Have an answer to be sent.
    answered: VecDeque<ConnId>,
    /// Have events to be sent, oldest first.
    notified: VecDeque<ConnId>,
    /// How many of them may still be sent in this turn.
    notified_left: usize,
}

/// What the host does with the socket of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Interest {
    /// Read from it, and give what has come to [`Clients::receive`].
    Read,
    /// Leave what comes in the socket.
    Wait,
    /// Let the last output leave, say that nothing follows, and wait a little for the client to do
    /// the same; then [`Clients::forget`].
    Shutdown,
    /// Close it at once; then [`Clients::forget`].
    Close,
}

/// What one connection takes up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClientUse {
    /// Requests read and not answered.
    pub unanswered: u32,
    /// Bytes queued and not sent.
    pub output_bytes: usize,
    /// Those of events among them.
    pub event_bytes: u64,
}

/// What `cons`, `stat` and `dump` tell of a connection.
#[derive(Clone, Debug)]
pub struct ClientLine {
    /// The other end.
    pub peer: SocketAddr,
    /// When it was accepted.
    pub since: WallMs,
    /// Does the server wait for input from it?
    pub reading: bool,
    /// Does the server wait for it to take output?
    pub writing: bool,
    /// Requests not answered yet.
    pub unanswered: u32,
    /// Its session, if it has one.
    pub served: Option<Served>,
    /// When something came last.
    pub heard: Instant,
    /// What it has done.
    pub stats: ConnStats,
}

impl Clients {
    /// Nobody is connected. `seed` feeds the random drops of the throttle.
    pub(super) fn new(
        config: Arc<Config>,
        limits: ClientLimits,
        seed: u64,
        now: Instant,
    ) -> Clients {
        Clients {
            conns: BTreeMap::new(),
            common: Common::new(config, limits, seed, now),
            heard: VecDeque::new(),
            timers: BTreeSet::new(),
            answered: VecDeque::new(),
            notified: VecDeque::new(),
            notified_left: 0,
        }
    }

    /// A client has connected from this address. `id` is not that of another connection, ever;
    /// `more` is what its socket shows of it beside its address.
    ///
    /// # Errors
    /// There are too many connections: this one is to be closed at once.
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

    /// Bytes have come. Requests among them go to the core in the next turn.
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
            // Room that has become free is for those who were there before.
            if admission::is_wait_timed(limits, &metrics.load) {
                conn.begin_wait(now);
            }
            return conn.make_ready(ready);
        }
        self.look(id, now);
    }

    /// The client has closed its side.
    pub fn receive_end(&mut self, id: ConnId) {
        let cut = self.conns.get(&id).is_some_and(|conn| !conn.buffer.is_empty());
        let why = if cut { ConnCloseReason::WithinFrame } else { ConnCloseReason::ByClient };
        self.close(id, why);
    }

    /// The network has failed.
    pub fn fail(&mut self, id: ConnId, why: String) {
        self.close(id, ConnCloseReason::Broken(why));
    }

    /// What the host has to do with the socket.
    pub fn interest(&self, id: ConnId) -> Interest {
        let Some(conn) = self.conns.get(&id) else { return Interest::Close };
        match conn.phase {
            Phase::Closed { graceful: true } => Interest::Shutdown,
            Phase::Closed { graceful: false } => Interest::Close,
            Phase::Greeting | Phase::TraceMask => Interest::Read,
            Phase::Command | Phase::Handshake(_) => Interest::Wait,
            // It ends as soon as the handshake is answered.
            Phase::Open if conn.close.is_some() => Interest::Wait,
            // What has come is taken before more comes, also before its end.
            Phase::Open if conn.is_ready => Interest::Wait,
            Phase::Open if !conn.paused => Interest::Read,
            // How long what has come has waited counts from when it is read.
            Phase::Open if conn.wait_timed && conn.buffer.is_empty() => Interest::Read,
            Phase::Open => Interest::Wait,
        }
    }

    /// A connection for which [`Clients::interest`] may say something else than before; some are
    /// named twice, or are gone.
    pub fn next_changed(&mut self) -> Option<ConnId> {
        self.common.changed.pop()
    }

    /// Its socket is closed. Why, if the connection was known.
    pub fn forget(&mut self, id: ConnId) -> Option<ConnCloseReason> {
        // The host may have ended it of itself.
        self.close(id, ConnCloseReason::ByServer);
        let conn = self.conns.remove(&id)?;
        if let Some(timer) = conn.timer {
            self.timers.remove(&(timer, id));
        }
        self.common.admission.release(conn.peer.ip());
        conn.close
    }

    /// A connection that has output to be offered to its socket; none where that is all for this
    /// turn.
    pub fn next_to_flush(&mut self) -> Option<ConnId> {
        loop {
            let id = match self.answered.pop_front() {
                Some(id) => id,
                None if self.notified_left == 0 => return None,
                None => {
                    self.notified_left -= 1;
                    self.notified.pop_front()?
                }
            };
            if self.conns.get_mut(&id).is_some_and(Conn::begin_flush) {
                return Some(id);
            }
        }
    }

    /// What is to leave next, of what is queued; empty where that is nothing.
    pub fn output(&self, id: ConnId) -> &[u8] {
        self.conns.get(&id).map_or(&[], |conn| conn.output.next())
    }

    /// The socket has taken so many bytes of [`Clients::output`].
    pub fn sent(&mut self, id: ConnId, bytes: usize, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        if conn.took_output(bytes, now) {
            self.heard.push_back(id);
        }
        if conn.output.is_empty() {
            // More may be asked and answered.
            conn.blocked = false;
            if conn.part_due.take().is_some() && conn.phase == Phase::Command {
                self.common.resumed.push_back(id);
            }
            self.common.queue.resume(id);
            self.look_again(id);
        }
    }

    /// The socket takes no more for now. Is that so since this call, so that the host has to begin
    /// to wait for it?
    pub fn block(&mut self, id: ConnId) -> bool {
        let Some(conn) = self.conns.get_mut(&id) else { return false };
        if let Some(why) = conn.holds_too_much(self.common.limits.event_bytes) {
            self.close(id, why);
            return false;
        }
        // The end of a connection waits for nobody.
        if conn.output.len() > self.common.limits.output_bytes && conn.phase == Phase::Open {
            self.common.queue.park(id);
        }
        !std::mem::replace(&mut conn.blocked, true)
    }

    /// A four-letter command that has been read, with the mask that came with it.
    pub(super) fn next_command(&mut self) -> Option<(ConnId, FourLetterCommand, Option<i64>)> {
        self.common.commands.pop_front()
    }

    /// A connection whose client has taken a part of an answer, or that has ended within one.
    pub(super) fn next_resumed(&mut self) -> Option<ConnId> {
        self.common.resumed.pop_front()
    }

    /// Has a command been read from it, and not been answered to the end?
    pub(super) fn awaits_answer(&self, id: ConnId) -> bool {
        self.conns.get(&id).is_some_and(|conn| conn.phase == Phase::Command)
    }

    /// Queues a part of the answer to a four-letter command. If the client has not taken it by
    /// `due`, nothing follows.
    pub(super) fn queue_part(&mut self, id: ConnId, text: &str, due: Instant) {
        self.queue_text(id, text);
        if let Some(conn) = self.conns.get_mut(&id) {
            conn.part_due = Some(due);
            self.plan(id);
        }
    }

    /// Queues the end of the answer to a four-letter command: the connection ends when it has left.
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
            self.answered.push_back(id);
        }
    }

    /// What is worth telling since the last call.
    pub fn take_notes(&mut self) -> Vec<ClientNote> {
        std::mem::take(&mut self.common.notes)
    }

    /// What has been counted.
    pub fn metrics(&self) -> &Metrics {
        &self.common.metrics
    }

    /// The same, to count something that only the host sees, or to begin anew.
    pub fn metrics_mut(&mut self) -> &mut Metrics {
        &mut self.common.metrics
    }

    /// Begins the statistics of all connections anew, as `crst` asks.
    pub fn reset_conn_stats(&mut self) {
        self.conns.values_mut().for_each(|conn| conn.stats = ConnStats::default());
    }

    /// The bounds on clients.
    pub fn limits(&self) -> &ClientLimits {
        &self.common.limits
    }

    /// How probable it is that a handshake is refused by chance, in millionths.
    pub fn drop_probability(&self) -> u32 {
        self.common.throttle.drop_probability()
    }

    /// Requests that clients wait for.
    pub fn unanswered(&self) -> u64 {
        self.common.metrics.load.requests
    }

    /// The other end of a connection, as long as it is known.
    pub fn peer(&self, id: ConnId) -> Option<SocketAddr> {
        self.conns.get(&id).map(|conn| conn.peer)
    }

    /// What a connection takes up, as long as it is known.
    pub fn takes_up(&self, id: ConnId) -> Option<ClientUse> {
        self.conns.get(&id).map(|conn| ClientUse {
            unanswered: conn.unanswered,
            output_bytes: conn.output.len(),
            event_bytes: conn.output.event_bytes(),
        })
    }

    /// Since when a client waits for an answer, if it does: the oldest handshake or request that
    /// was read.
    pub fn waiting_since(&self, id: ConnId) -> Option<Instant> {
        self.conns.get(&id).and_then(Conn::waiting_since)
    }

    /// The session of a connection, once it has one.
    pub fn session(&self, id: ConnId) -> Option<SessionId> {
        self.conns.get(&id).and_then(|conn| conn.served).map(|served| served.session)
    }

    /// What `cons` tells of them.
    pub fn lines(&self) -> Vec<ClientLine> {
        let line = |conn: &Conn| ClientLine {
            peer: conn.peer,
            since: conn.since,
            reading: matches!(conn.phase, Phase::Greeting | Phase::Open) && !conn.paused,
            writing: conn.blocked,
            unanswered: conn.unanswered,
            served: conn.served,
            heard: conn.heard,
            stats: conn.stats,
        };
        self.conns.values().map(line).collect()
    }

    /// A client that is to be heard although it is not read.
    pub(super) fn next_heard(&mut self) -> Option<ConnId> {
        loop {
            let id = self.heard.pop_front()?;
            if self.conns.get(&id).is_some_and(|conn| conn.phase == Phase::Open) {
                return Some(id);
            }
        }
    }

    /// When a connection may end for want of bytes.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.timers.first().map(|(at, _)| *at)
    }

    /// Is there something to be done in the next turn, whatever comes?
    pub(super) fn has_work(&self) -> bool {
        !self.common.ready.is_empty()
            || !self.common.queue.is_empty()
            || !self.common.commands.is_empty()
            || !self.common.resumed.is_empty()
            || !self.heard.is_empty()
            || !self.notified.is_empty()
    }

    /// Ends connections whose time is over, and reads what may be read.
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
                Phase::Greeting | Phase::TraceMask | Phase::Handshake(_) | Phase::Closed { .. } => {
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
                self.look(id, now);
                self.common.changed.push(id);
            }
        }
    }

    /// Queues what the core has to say, and knows from now on whether clients may be read.
    pub(super) fn deliver(
        &mut self,
        commands: &mut Vec<(ConnId, ClientCommand)>,
        reads: bool,
        now: Instant,
    ) {
        self.notified_left = NOTIFIED_PER_TURN;
        let mut too_much = Vec::new();
        let mut commands = commands.drain(..).peekable();
        // Answers to one connection tend to come together.
        while let Some(&(id, _)) = commands.peek() {
            let mut conn = self.conns.get_mut(&id);
            let mut shuts = false;
            while let Some((_, command)) = commands.next_if(|(next, _)| *next == id) {
                let Some(conn) = conn.as_deref_mut().filter(|conn| !conn.is_closed()) else {
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
                        match conn.queue(&command, now, &mut self.common.metrics) {
                            Some(Due::Answered) => self.answered.push_back(id),
                            Some(Due::Notified) => self.notified.push_back(id),
                            Some(Due::No) | None => {}
                        }
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
                // Nobody has offered it to the client yet: that comes before the judgement.
                conn.due = Due::Answered;
                self.answered.push_back(id);
            }
        }
        if reads && !self.common.reads {
            let paused = self.conns.values_mut().filter(|conn| conn.paused);
            paused.for_each(|conn| conn.make_ready(&mut self.common.ready));
        }
        self.common.reads = reads;
        self.admit_next();
    }

    /// Is nothing remembered of any connection?
    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        let load = &self.common.metrics.load;
        self.conns.is_empty()
            && self.common.queue.knows_nobody()
            && self.timers.is_empty()
            && [load.requests, load.large_bytes] == [0; 2]
    }

    /// A paused connection looks at its window again in the next turn.
    fn look_again(&mut self, id: ConnId) {
        if let Some(conn) = self.conns.get_mut(&id).filter(|conn| conn.paused) {
            conn.make_ready(&mut self.common.ready);
        }
    }

    /// Reads what has come, as far as that may be.
    fn look(&mut self, id: ConnId, now: Instant) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        match conn.read(&mut self.common, now) {
            Ok(()) => self.plan(id),
            Err(why) => self.refuse(id, why),
        }
        // It may have been admitted for nothing: then another one is.
        self.admit_next();
    }

    /// Connections that wait for `request_throttle_max_requests` look again, as many as there is
    /// room for.
    fn admit_next(&mut self) {
        let Some(bound) = self.common.limits.throttle_max_requests else { return };
        let mut room = bound.saturating_sub(self.common.metrics.load.requests);
        while room > 0 {
            let Some(id) = self.common.admission.throttle_queue.pop_front() else { return };
            if let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_closed()) {
                conn.in_throttle_queue = false;
                self.look_again(id);
                room -= 1;
            }
        }
    }

    /// What has come is at fault. If it came right behind the handshake, that is answered first, as
    /// ZooKeeper does, which reads nothing else before.
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

    /// Ends a connection at once, whatever is queued for it.
    fn close(&mut self, id: ConnId, why: ConnCloseReason) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        conn.output.clear();
        conn.blocked = false;
        if conn.is_closed() {
            conn.phase = Phase::Closed { graceful: false };
            return self.common.changed.push(id);
        }
        conn.close.get_or_insert(why);
        self.end(id, false);
    }

    /// Ends a connection once what is queued for it has left.
    fn shut_down(&mut self, id: ConnId) {
        let Some(conn) = self.conns.get_mut(&id).filter(|conn| !conn.is_closed()) else { return };
        conn.close.get_or_insert(ConnCloseReason::ByServer);
        self.end(id, true);
    }

    /// The core is told, once, if it knew of it.
    fn end(&mut self, id: ConnId, graceful: bool) {
        let Some(conn) = self.conns.get_mut(&id) else { return };
        let before = std::mem::replace(&mut conn.phase, Phase::Closed { graceful });
        conn.forget_load(&mut self.common.metrics.load);
        conn.buffer = bytes::BytesMut::new();
        match before {
            Phase::Open => self.common.queue.push(id, ClientEvent::Closed),
            Phase::Command if !graceful => self.common.resumed.push_back(id),
            Phase::Greeting
            | Phase::TraceMask
            | Phase::Command
            | Phase::Handshake(_)
            | Phase::Closed { .. } => {}
        }
        self.common.changed.push(id);
        self.admit_next();
    }

    /// Sees to it that the connection ends in time if no bytes come.
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
