//! Sockets of a server process, with the kernel's buffers in both directions.
//!
//! Owns the bytes that the driver does not want yet, and the sockets for whose output the network
//! has no room. Must not interpret bytes: the driver does, as in the shipped process.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use zabkeeper_core::driver::{
    ClientNote, ClientUse, ConnCloseReason, Interest, PeerLine, PeerNote, SocketId,
};
use zabkeeper_core::peer::greeting::Channel;

use super::*;
use crate::check::observe::Wait;
use crate::record::sometimes::Sometimes;

/// One socket.
#[derive(Debug)]
pub(super) struct Socket {
    /// Which end of the connection it is.
    pub(super) end: End,
    /// The port that the connection was made to.
    port: Port,
    /// Bytes that have arrived and are unread.
    pub(super) received: BytesMut,
    /// The other end has closed, or the connection is broken.
    is_over: bool,
    /// When it was accepted, by the machine's clock.
    accepted: Instant,
    /// Since when it is not read although the network has room for its output.
    unread_since: Option<Instant>,
    /// When the other end last took the rest of output that had waited for it.
    drained: Instant,
    /// Since when it is to close once its queued output has left.
    shuts_since: Option<Instant>,
}

/// How long a closing connection waits for the other end to take its output, by the machine's
/// clock.
const LINGER: Duration = Duration::from_secs(2);

/// Time between two reports of the longest wait.
const LOOK: Duration = Duration::from_millis(100);

/// Port of every client; nothing depends on it.
const CLIENT_PORT: u16 = 4_000;

impl Process {
    /// A client or another server has connected.
    pub(super) fn accepted(
        &mut self,
        now: Now,
        id: SocketId,
        (from, port): (Party, Port),
        shared: &Shared,
    ) {
        match (id, from, port) {
            (SocketId::Client(conn), Party::Client(client), Port::Clients) => {
                let address: IpAddr = client.address().parse().expect("clients have addresses");
                let subject = client.subject().filter(|_| shared.options.server.auth.x509);
                let more = subject.map(|id| Id { scheme: "x509".into(), id: id.to_owned() });
                let peer = SocketAddr::new(address, CLIENT_PORT);
                let more = more.into_iter().collect();
                let accepted = self.driver.clients.accept(conn, peer, more, now);
                accepted.expect("no bound on connections is set");
                self.operators.traffic.accepted(conn, peer, now.wall);
            }
            (SocketId::Server(link), from, Port::Servers(channel)) => {
                self.accept_peer(now.mono, link, from, channel);
            }
            (SocketId::Client(_) | SocketId::Server(_), ..) => {
                unreachable!("{from} connects to {port:?}")
            }
        }
        self.enter(now, id, End::Acceptor, port);
    }

    /// Adds a socket.
    pub(super) fn enter(&mut self, now: Now, id: SocketId, end: End, port: Port) {
        let new = Socket {
            end,
            port,
            received: BytesMut::new(),
            is_over: false,
            accepted: now.mono,
            unread_since: None,
            drained: Instant(0),
            shuts_since: None,
        };
        self.sockets.insert(id, new);
    }

    pub(super) fn received(&mut self, now: Now, id: SocketId, bytes: &Bytes, shared: &mut Shared) {
        if let Some(state) = self.sockets.get_mut(&id) {
            state.received.extend_from_slice(bytes);
            self.attend(now, id, shared);
        }
    }

    /// Notes the end of the stream; bytes before it are read first.
    pub(super) fn gone(&mut self, now: Now, id: SocketId, shared: &mut Shared) {
        if let Some(state) = self.sockets.get_mut(&id) {
            state.is_over = true;
            self.attend(now, id, shared);
        }
    }

    /// Reads or closes a socket according to the driver's interest.
    pub(super) fn attend(&mut self, now: Now, id: SocketId, shared: &mut Shared) {
        self.held.remove(&id);
        loop {
            let Some(state) = self.sockets.get_mut(&id) else { return };
            match self.driver.interest(id) {
                Interest::Read if !state.received.is_empty() => {
                    state.unread_since = None;
                    let bytes = state.received.split();
                    self.check_read(id, shared);
                    self.note_read(now, id, &bytes, shared);
                    self.driver.receive(id, &bytes, now.mono);
                    self.note_whole(id);
                    self.take_notes(now, shared);
                }
                Interest::Read if state.is_over => self.driver.receive_end(id, now.mono),
                Interest::Read => return,
                Interest::Wait => {
                    if !state.received.is_empty() || state.is_over {
                        let takes = room_of(id, state.end, shared) > 0;
                        let since = state.unread_since.unwrap_or(shared.now);
                        state.unread_since = takes.then_some(since);
                        self.held.insert(id);
                    }
                    return;
                }
                Interest::Shutdown => {
                    let since = *state.shuts_since.get_or_insert(now.mono);
                    self.flush_socket(now, id, shared);
                    let is_left = self.driver.output(id).is_empty();
                    if is_left || now.mono.since(since) >= LINGER {
                        return self.close_socket(now, id, shared);
                    }
                    self.held.insert(id);
                    return;
                }
                Interest::Close => return self.close_socket(now, id, shared),
            }
        }
    }

    fn close_socket(&mut self, now: Now, id: SocketId, shared: &mut Shared) {
        self.blocked.remove(&id);
        let Some(state) = self.sockets.remove(&id) else { return };
        let conn = conn_of(id);
        if let SocketId::Client(conn) = id
            && let Some(answer) = self.operators.closed(conn)
            && self.driver.output(id).is_empty()
        {
            shared.observe(Observation::Answered { conn, answer: &answer });
        }
        let why = self.driver.forget(id, now.mono);
        match why {
            Some(ConnCloseReason::Events { .. }) => shared.saw(Sometimes::EventsUntaken),
            Some(ConnCloseReason::Sessionless(_)) => shared.saw(Sometimes::HandshakeLate),
            _ => {}
        }
        if let Some(why) = why.filter(|why| why.fault().is_some()) {
            shared.note(Kind::Conn, (conn.0, 0), b"closed", || {
                format!("s{} closes {conn}: {why}", self.id)
            });
        }
        shared.net.close(shared.now, conn, state.end);
        shared.schedule_arrivals();
    }

    /// Passes the notes of the driver to trace, counters and checks.
    pub(super) fn take_notes(&mut self, now: Now, shared: &mut Shared) {
        if !self.driver.has_notes() {
            return;
        }
        for note in self.driver.peers.take_notes() {
            self.can_read(&note, shared);
            let (number, what) = match &note {
                PeerNote::Rejected { why, .. } => (0, format!("lets nobody in: {why}")),
                PeerNote::Down { link, server, why } => {
                    (link.0, format!("ends {link} with s{server}: {why}"))
                }
                PeerNote::Up { .. } | PeerNote::DialFailed { .. } => continue,
            };
            shared.note(Kind::Conn, (number, 0), b"link ended", || format!("s{} {what}", self.id));
        }
        for note in self.driver.clients.take_notes() {
            match note {
                ClientNote::Handshake(conn, handshake, admitted) => {
                    let found = self.gate.admit(handshake, admitted, now.mono);
                    let found = found.map_err(|what| format!("s{}: {what}", self.id));
                    if !self.gate.is_open() {
                        shared.check(Check::RATE, found);
                    }
                    if !admitted {
                        shared.recorder.counters.counts.turned_away += 1;
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
                ClientNote::Overloaded { .. } => shared.saw(Sometimes::RequestsWait),
                ClientNote::OpWaitedTooLong { .. } => {}
            }
        }
    }

    /// Reports now and then which client has waited longest; an oracle judges whether it should
    /// have. While a client does not take its output, and at the moment when it has taken the last
    /// of it, no request of it need be answered: seed 0x1732c of the swarm has a client that takes
    /// a byte every 16 ms, and seed 0xf583b79742ee at f583b79 one that then takes all at once.
    pub(super) fn observe_longest_wait(&mut self, clock: &Clock, shared: &mut Shared) {
        if shared.now < self.waits_observed.after(LOOK) {
            return;
        }
        self.waits_observed = shared.now;
        let clients = self.sockets.iter().filter_map(|(id, state)| Some((client_of(*id)?, state)));
        let waiting = clients.flat_map(|(conn, state)| {
            let conn = &conn;
            let turn = state.unread_since.map(|since| (since, *conn, Wait::Turn(since)));
            let takes_output = !self.blocked.contains(&SocketId::Client(*conn));
            let arrived = self.driver.clients.waiting_since(*conn).filter(|_| takes_output);
            let answer = arrived.map(|at| clock.when(at).max(state.drained));
            let answer = answer.map(|at| (at, *conn, Wait::Answer(at)));
            turn.into_iter().chain(answer)
        });
        if let Some((_, conn, wait)) = waiting.min_by_key(|(since, ..)| *since) {
            shared.observe(Observation::Waits { server: self.id, conn, wait });
        }
    }

    /// Number of connections whose output does not leave. A server that hangs takes none, and its
    /// links are closed only after a while, again and again.
    pub(super) fn blocked_outputs(&self, outside: &BTreeMap<ServerId, Fate>) -> usize {
        let lines = self.driver.peers.lines();
        let takes = |id: &&SocketId| {
            let line = lines.iter().find(|line| SocketId::Server(line.link) == **id);
            let peer = line.and_then(|line| line.peer);
            peer.is_none_or(|peer| !outside.contains_key(&peer))
        };
        self.blocked.iter().filter(takes).count()
    }

    /// Connections of clients that the driver has not closed and the core does not close in this
    /// turn.
    pub(super) fn open_conns(&self) -> Vec<ConnId> {
        let closes = |conn: &ConnId| {
            let mut commands = self.out.clients.iter().filter(|(other, _)| other == conn);
            commands.any(|(_, command)| matches!(command, ClientCommand::Close))
        };
        let stays = |conn: &ConnId| {
            matches!(self.driver.clients.interest(*conn), Interest::Read | Interest::Wait)
        };
        let clients = self.sockets.keys().filter_map(|id| client_of(*id));
        clients.filter(|conn| stays(conn) && !closes(conn)).collect()
    }

    /// Hands the core's outputs to the driver, and the driver's output to the network.
    pub(super) fn send(&mut self, now: Now, out: &mut Outbox, shared: &mut Shared) {
        if let Some(timeline) = &mut shared.recorder.timeline {
            let known = |conn: &ConnId| self.sockets.contains_key(&SocketId::Client(*conn));
            for (conn, command) in out.clients.iter().filter(|(conn, _)| known(conn)) {
                timeline.answered(shared.now, self.id, *conn, command);
            }
        }
        self.note_peer_commands(&out.peers, shared);
        self.note_commands(now, out);
        self.driver.deliver(now, &self.server, out);
        let status = self.server.status();
        self.note_answers(now, &status, shared);
        while let Some(id) = self.driver.next_to_flush() {
            self.flush_socket(now, id, shared);
        }
        while let Some(dial) =
            self.driver.peers.next_dial(now.mono, || LinkId(shared.net.allocate().0))
        {
            self.dial(dial, shared);
        }
        while let Some(id) = self.driver.next_changed() {
            self.attend(now, id, shared);
        }
        self.take_notes(now, shared);
        shared.schedule_arrivals();
        self.check_clients(now, shared);
        self.check_heartbeats(shared);
        self.check_links(shared);
        self.check_reports(now, &status, shared);
    }

    /// E6: no established connection with a server is read while too many inputs wait.
    fn check_read(&self, id: SocketId, shared: &mut Shared) {
        let waiting = self.driver.peers.waiting();
        let reads = |line: &PeerLine| SocketId::Server(line.link) == id && line.established;
        let is_over =
            waiting >= shared.options.peers.inputs && self.driver.peers.lines().iter().any(reads);
        let evidence = || format!("s{}: {id:?} is read while {waiting} inputs wait", self.id);
        shared.check(Check::CLIENTS, if is_over { Err(evidence()) } else { Ok(()) });
    }

    /// E6: once the core has received all inputs, each link that it knows has a socket.
    fn check_links(&self, shared: &mut Shared) {
        if self.driver.peers.waiting() > 0 {
            return;
        }
        let is_open = |link: &&LinkId| self.sockets.contains_key(&SocketId::Server(**link));
        let ended = self.known.links.iter().find(|link| !is_open(link));
        let evidence =
            ended.map(|link| format!("s{} does not know that {link} has ended", self.id));
        shared.check(Check::CLIENTS, evidence.map_or(Ok(()), Err));
    }

    /// E6, at the end of a turn, when all queued output has been offered to the sockets.
    fn check_clients(&self, now: Now, shared: &mut Shared) {
        let limits = &shared.options.server.clients;
        let sessionless_timeout = Duration::from_millis(limits.sessionless_ms);
        let output_max = limits.output_bytes + 2 * self.record_bytes;
        let (mut all, mut broken) = (0, None);
        for (id, state) in &self.sockets {
            let Some(conn) = &client_of(*id) else { continue };
            let Some(used) = self.driver.clients.takes_up(*conn) else { continue };
            let ClientUse { unanswered, output_bytes, event_bytes } = used;
            all += u64::from(unanswered);
            let is_late = !self.known.clients.contains(conn)
                && now.mono.since(state.accepted) > sessionless_timeout
                && self.driver.clients.interest(*conn) == Interest::Read
                && self.driver.clients.waiting_since(*conn).is_none();
            let keeps = unanswered <= self.requests_max
                && (output_bytes <= output_max || self.operators.has_asked(*conn))
                && event_bytes <= limits.event_bytes
                && !is_late;
            if !keeps {
                broken.get_or_insert_with(|| {
                    format!("s{}: {conn} has {used:?}, late={is_late}", self.id)
                });
            }
        }
        let counted = self.driver.clients.unanswered();
        let bound = limits.throttle_max_requests;
        if all != counted || bound > 0 && counted > bound {
            let evidence =
                || format!("s{}: {all} answers are owed, {counted} are counted", self.id);
            broken.get_or_insert_with(evidence);
        }
        shared.check(Check::CLIENTS, broken.map_or(Ok(()), Err));
    }

    /// E6: a client that takes output while it is not read counts as heard.
    fn check_heartbeats(&mut self, shared: &mut Shared) {
        let clients = &self.driver.clients;
        let is_read = |conn| clients.interest(conn) != Interest::Wait;
        let missing = self.heartbeats.end_turn(is_read);
        let evidence =
            missing.map(|conn| format!("s{}: {conn} takes output and is not heard", self.id));
        shared.check(Check::CLIENTS, evidence.map_or(Ok(()), Err));
    }

    /// Sends queued output, as far as there is room.
    pub(super) fn flush_socket(&mut self, now: Now, id: SocketId, shared: &mut Shared) {
        let was_blocked = self.blocked.remove(&id);
        let Some(state) = self.sockets.get(&id) else { return };
        let (end, notifies) = (state.end, state.notifies());
        loop {
            let bytes = self.driver.output(id);
            if bytes.is_empty() {
                if was_blocked && let Some(state) = self.sockets.get_mut(&id) {
                    state.drained = shared.now;
                }
                return;
            }
            let room = room_of(id, end, shared);
            let bytes = Bytes::copy_from_slice(&bytes[..room.min(bytes.len())]);
            if bytes.is_empty() {
                if let SocketId::Client(_) = id {
                    shared.saw(Sometimes::OutputBlocked);
                }
                self.driver.block(id);
                self.blocked.insert(id);
                return;
            }
            self.note_taken(id, now.mono, shared);
            self.driver.sent(id, bytes.len(), now.mono);
            self.operators.left(conn_of(id), bytes.len());
            self.put(conn_of(id), end, bytes, shared);
            if notifies {
                notifications::disturb(conn_of(id), shared);
            }
        }
    }

    /// E6: notes that a client takes output, if that is to count as a heartbeat. Where the requests
    /// of all clients have a bound, a connection may wait for its turn without being paused.
    fn note_taken(&mut self, id: SocketId, now: Instant, shared: &Shared) {
        let Some(conn) = client_of(id).filter(|conn| self.heartbeats.is_due(*conn, now)) else {
            return;
        };
        let clients = &self.driver.clients;
        let is_paused = clients.interest(conn) == Interest::Wait
            && clients.session(conn).is_some()
            && shared.options.server.clients.throttle_max_requests == 0;
        if is_paused {
            self.heartbeats.took(conn);
        }
    }

    fn put(&self, conn: ConnId, end: End, bytes: Bytes, shared: &mut Shared) {
        shared.recorder.counters.counts.bytes += bytes.len() as u64;
        shared.note(Kind::Send, (self.id.0, conn.0), &bytes, || {
            format!("s{} -> {conn} {}B", self.id, bytes.len())
        });
        shared.net.send(shared.now, conn, end, bytes);
    }
}

impl Socket {
    /// Does this server send notifications on it?
    fn notifies(&self) -> bool {
        self.port == Port::Servers(Channel::Election) && self.end == End::Dialler
    }
}

/// Bytes for which the network has room.
fn room_of(id: SocketId, end: End, shared: &Shared) -> usize {
    let bound = match id {
        SocketId::Client(_) => shared.options.server.outbound_bytes,
        SocketId::Server(_) => shared.options.peers.window,
    };
    let (conn, other) = (conn_of(id), end.other());
    let bound = bound.min(shared.net.slow_room(shared.now, conn, other).unwrap_or(bound));
    bound.saturating_sub(shared.net.under_way(conn, other))
}

/// The socket of a connection: clients and servers connect to different ports.
pub(super) fn socket_id(conn: ConnId, other: Party) -> SocketId {
    match other {
        Party::Client(_) => SocketId::Client(conn),
        Party::Server(_) | Party::BadPeer => SocketId::Server(LinkId(conn.0)),
    }
}

/// The connection's number in the network.
pub(super) fn conn_of(id: SocketId) -> ConnId {
    match id {
        SocketId::Client(conn) => conn,
        SocketId::Server(link) => ConnId(link.0),
    }
}

fn client_of(id: SocketId) -> Option<ConnId> {
    match id {
        SocketId::Client(conn) => Some(conn),
        SocketId::Server(_) => None,
    }
}
