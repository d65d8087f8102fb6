//! Sockets of clients, as a server process has them: what the kernel holds in both directions.
//!
//! Owns the bytes that the driver does not want yet, and those that the network has no room for. Must not look into them:
//! the driver does, as in the process that people deploy.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zabkeeper_core::driver::{ClientNote, ClientUse, ConnCloseReason, Interest};

use super::*;
use crate::observe::Wait;
use crate::sometimes::Sometimes;

/// One socket.
#[derive(Debug)]
pub(super) struct Conn {
    /// What has arrived and is not read.
    pub(super) received: BytesMut,
    /// The other end has closed, or the connection is broken.
    is_over: bool,
    /// When it was accepted, by the driver's clock.
    accepted: Instant,
    /// Since when it is not read although its client takes what it is sent.
    unread_since: Option<Instant>,
    /// It ends once what is queued has left: since when.
    shuts_since: Option<Instant>,
}

/// How long a connection that ends waits for its client to take what is left, by the driver's clock.
const LINGER: Duration = Duration::from_secs(2);

/// Time between two looks at who waits.
const LOOK: Duration = Duration::from_millis(100);

/// Port of every client: nobody looks at it.
const CLIENT_PORT: u16 = 4_000;

impl Process {
    pub(super) fn accepted(&mut self, now: Now, conn: ConnId, client: ClientId, shared: &Shared) {
        let address: IpAddr = client.address().parse().expect("clients have addresses");
        let subject = client.subject().filter(|_| shared.options.server.auth.x509);
        let more = subject.map(|id| Id { scheme: "x509".into(), id: id.to_owned() });
        let peer = SocketAddr::new(address, CLIENT_PORT);
        let accepted = self.driver.clients.accept(conn, peer, more.into_iter().collect(), now);
        accepted.expect("no bound on connections is set");
        let new = Conn {
            received: BytesMut::new(),
            is_over: false,
            accepted: now.mono,
            unread_since: None,
            shuts_since: None,
        };
        self.conns.insert(conn, new);
    }

    pub(super) fn received(&mut self, now: Now, conn: ConnId, bytes: &Bytes, shared: &mut Shared) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.received.extend_from_slice(bytes);
            self.attend(now, conn, shared);
        }
    }

    /// Nothing more comes; what has come before is read first.
    pub(super) fn gone(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.is_over = true;
            self.attend(now, conn, shared);
        }
    }

    /// Does with a socket what the driver wants to be done.
    pub(super) fn attend(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        self.held.remove(&conn);
        loop {
            let Some(state) = self.conns.get_mut(&conn) else { return };
            match self.driver.clients.interest(conn) {
                Interest::Read if !state.received.is_empty() => {
                    state.unread_since = None;
                    let bytes = state.received.split();
                    self.driver.clients.receive(conn, &bytes, now.mono);
                    self.take_notes(now, shared);
                    while let Some((conn, word, _)) = self.driver.clients.next_word() {
                        let text = self.answer_operator(word, shared);
                        self.driver.clients.queue_text(conn, &text);
                        self.driver.clients.end_word(conn);
                    }
                }
                Interest::Read if state.is_over => self.driver.clients.receive_end(conn),
                Interest::Read => return,
                Interest::Wait => {
                    if !state.received.is_empty() || state.is_over {
                        let bound = shared.options.server.outbound_bytes;
                        let takes = shared.net.under_way(conn, End::Dialler) < bound;
                        let since = state.unread_since.unwrap_or(shared.now);
                        state.unread_since = takes.then_some(since);
                        self.held.insert(conn);
                    }
                    return;
                }
                Interest::Shutdown => {
                    let since = *state.shuts_since.get_or_insert(now.mono);
                    self.flush_conn(now, conn, shared);
                    let is_left = self.driver.clients.output(conn).is_empty();
                    if is_left || now.mono.since(since) >= LINGER {
                        return self.close_conn(conn, shared);
                    }
                    self.held.insert(conn);
                    return;
                }
                Interest::Close => return self.close_conn(conn, shared),
            }
        }
    }

    fn close_conn(&mut self, conn: ConnId, shared: &mut Shared) {
        self.conns.remove(&conn);
        self.blocked.remove(&conn);
        let why = self.driver.clients.forget(conn);
        match why {
            Some(ConnCloseReason::Events { .. }) => shared.tally.saw(Sometimes::EventsUntaken),
            Some(ConnCloseReason::Sessionless(_)) => shared.tally.saw(Sometimes::HandshakeLate),
            _ => {}
        }
        if let Some(why) = why.filter(|why| why.fault().is_some()) {
            shared.note(Kind::Conn, (conn.0, 0), b"closed", || {
                format!("s{} closes {conn}: {why}", self.id)
            });
        }
        shared.net.close(shared.now, conn, End::Acceptor);
        shared.schedule_arrivals();
    }

    /// What the driver tells beside its work.
    pub(super) fn take_notes(&mut self, now: Now, shared: &mut Shared) {
        for note in self.driver.clients.take_notes() {
            match note {
                ClientNote::Handshake(conn, handshake, admitted) => {
                    let found = self.gate.judge(handshake, admitted, now.mono);
                    let found = found.map_err(|what| format!("s{}: {what}", self.id));
                    if !self.gate.is_open() {
                        shared.hold(Check::RATE, found);
                    }
                    if !admitted {
                        shared.tally.counts.turned_away += 1;
                        shared.note(Kind::Conn, (conn.0, 0), b"too soon", || {
                            format!("s{} lets nobody connect by {conn} now", self.id)
                        });
                    }
                }
                ClientNote::Complaint(_, what) => {
                    shared.note(Kind::Conn, (self.id.0, 0), b"complaint", || {
                        format!("s{} closes a connection: {what}", self.id)
                    });
                }
                ClientNote::Overloaded { .. } => shared.tally.saw(Sometimes::RequestsWait),
                ClientNote::OpWaitedTooLong { .. } => {}
            }
        }
    }

    /// Tells now and then which of its clients has waited longest: whether it should have waited is not for this server to say.
    pub(super) fn tell_who_waits(&mut self, clock: &Clock, shared: &mut Shared) {
        if shared.now < self.waits_told.after(LOOK) {
            return;
        }
        self.waits_told = shared.now;
        let waiting = self.conns.iter().flat_map(|(conn, state)| {
            let turn = state.unread_since.map(|since| (since, *conn, Wait::Turn(since)));
            let answer = self.driver.clients.waiting_since(*conn).map(|at| clock.when(at));
            let answer = answer.map(|at| (at, *conn, Wait::Answer(at)));
            turn.into_iter().chain(answer)
        });
        if let Some((_, conn, wait)) = waiting.min_by_key(|(since, ..)| *since) {
            shared.observe(Observation::Waits { server: self.id, conn, wait });
        }
    }

    /// Those that the server has, and has not said that it closes.
    pub(super) fn open_conns(&self) -> Vec<ConnId> {
        let closes = |conn: &ConnId| {
            let mut said = self.out.clients.iter().filter(|(other, _)| other == conn);
            said.any(|(_, command)| matches!(command, ClientCommand::Close))
        };
        let stays = |conn: &ConnId| {
            matches!(self.driver.clients.interest(*conn), Interest::Read | Interest::Wait)
        };
        self.conns.keys().copied().filter(|conn| stays(conn) && !closes(conn)).collect()
    }

    /// Hands what the server has to say to the driver, and what that has for the sockets to the network.
    pub(super) fn send_clients(
        &mut self,
        now: Now,
        clients: &mut Vec<(ConnId, ClientCommand)>,
        shared: &mut Shared,
    ) {
        if let Some(chronicle) = &mut shared.chronicle {
            for (conn, command) in clients.iter().filter(|(conn, _)| self.conns.contains_key(conn))
            {
                chronicle.answered(shared.now, self.id, *conn, command);
            }
        }
        self.driver.deliver(now, &self.server, clients);
        while let Some(conn) = self.driver.clients.next_to_flush() {
            self.flush_conn(now, conn, shared);
        }
        while let Some(conn) = self.driver.clients.next_changed() {
            self.attend(now, conn, shared);
        }
        self.take_notes(now, shared);
        shared.schedule_arrivals();
        self.check_clients(now, shared);
    }

    /// E6: at the end of a turn, when all that is queued has been offered to the sockets.
    fn check_clients(&self, now: Now, shared: &mut Shared) {
        let limits = shared.options.server.client_limits();
        let output_max = limits.output_bytes + 2 * self.record_bytes;
        let (mut all, mut broken) = (0, None);
        for (conn, state) in &self.conns {
            let Some(used) = self.driver.clients.takes_up(*conn) else { continue };
            let ClientUse { unanswered, output_bytes, event_bytes } = used;
            all += u64::from(unanswered);
            let is_late = now.mono.since(state.accepted) > limits.sessionless_timeout
                && self.driver.clients.interest(*conn) == Interest::Read
                && !self.known.contains(conn)
                && self.driver.clients.waiting_since(*conn).is_none();
            let keeps = unanswered <= self.requests_max
                && output_bytes <= output_max
                && event_bytes <= limits.event_bytes
                && !is_late;
            if !keeps {
                broken.get_or_insert_with(|| {
                    format!("s{}: {conn} has {used:?}, late={is_late}", self.id)
                });
            }
        }
        let counted = self.driver.clients.unanswered();
        let bound = limits.throttle_max_requests.unwrap_or(u64::MAX);
        if all != counted || counted > bound {
            let told = || format!("s{}: {all} answers are owed, {counted} are counted", self.id);
            broken.get_or_insert_with(told);
        }
        shared.hold(Check::CLIENTS, broken.map_or(Ok(()), Err));
    }

    /// Sends what is queued, as far as there is room.
    pub(super) fn flush_conn(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        self.blocked.remove(&conn);
        loop {
            let bytes = self.driver.clients.output(conn);
            if bytes.is_empty() {
                return;
            }
            let bound = shared.options.server.outbound_bytes;
            let room = bound.saturating_sub(shared.net.under_way(conn, End::Dialler));
            let bytes = Bytes::copy_from_slice(&bytes[..room.min(bytes.len())]);
            if bytes.is_empty() {
                shared.tally.saw(Sometimes::OutputBlocked);
                self.driver.clients.block(conn);
                self.blocked.insert(conn);
                return;
            }
            self.driver.clients.sent(conn, bytes.len(), now.mono);
            self.put(conn, End::Acceptor, bytes, shared);
        }
    }

    pub(super) fn put(&self, conn: ConnId, end: End, bytes: Bytes, shared: &mut Shared) {
        if bytes.is_empty() {
            return;
        }
        shared.tally.counts.bytes += bytes.len() as u64;
        shared.note(Kind::Send, (self.id.0, conn.0), &bytes, || {
            format!("s{} -> {conn} {}B", self.id, bytes.len())
        });
        shared.net.send(shared.now, conn, end, bytes);
    }
}
