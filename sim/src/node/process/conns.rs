//! Connections of clients, as a server process has them.
//!
//! Owns frames read and written, and what is not read for now. Must not judge what is said.

use std::time::Duration;

use zabkeeper_core::throttle::Handshake;
use zabkeeper_core::wire::Word;

use crate::observe::Wait;

use super::*;

/// One connection of a client.
#[derive(Debug)]
pub(super) struct Conn {
    client: ClientId,
    frames: ClientFrames,
    pub(super) buffer: BytesMut,
    unanswered: u64,
    /// When what is not answered was handed to the server, the handshake first.
    waits: VecDeque<Instant>,
    /// Since when it is not read although its client takes what it is sent.
    unread_since: Option<Instant>,
    /// Bytes that were on their way to the client at the last look, and what was sent since.
    backlog: usize,
    /// When the server was told last that the client takes some of them.
    told: Instant,
}

/// Time between two words to the server that a client which is not read takes its output.
const HEARD_PAUSE: Duration = Duration::from_millis(250);

/// Time between two looks at who waits.
const LOOK: Duration = Duration::from_millis(100);

/// One thing read from a connection.
enum Read {
    Event(ClientEvent),
    Word(Word),
    /// A handshake too many.
    TooSoon,
}

impl Process {
    pub(super) fn accepted(&mut self, conn: ConnId, client: ClientId, shared: &Shared) {
        let frames = ClientFrames::new(shared.options.server.frame_bytes);
        let buffer = BytesMut::new();
        let new = Conn {
            client,
            frames,
            buffer,
            unanswered: 0,
            waits: VecDeque::new(),
            unread_since: None,
            backlog: 0,
            told: Instant(0),
        };
        self.conns.insert(conn, new);
    }

    pub(super) fn received(&mut self, now: Now, conn: ConnId, bytes: &Bytes, shared: &mut Shared) {
        if let Some(state) = self.conns.get_mut(&conn) {
            state.buffer.extend_from_slice(bytes);
            self.read(now, conn, shared);
        }
    }

    /// The connection is no more: the server is told, if it knew of it.
    pub(super) fn gone(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        let Some(state) = self.conns.remove(&conn) else {
            return;
        };
        self.held.remove(&conn);
        self.unanswered -= state.unanswered;
        shared.net.close(shared.now, conn, End::Acceptor);
        shared.schedule_arrivals();
        if state.frames.is_open() {
            self.step(now, Input::Client(conn, ClientEvent::Closed), shared);
        }
    }

    /// More clients want to connect than may: this one is closed before the server knows of it (THR-05).
    fn turn_away(&mut self, conn: ConnId, shared: &mut Shared) {
        shared.tally.counts.turned_away += 1;
        shared.note(Kind::Conn, (conn.0, 0), b"too soon", || {
            format!("s{} lets nobody connect by {conn} now", self.id)
        });
        self.conns.remove(&conn);
        self.held.remove(&conn);
        shared.net.close(shared.now, conn, End::Acceptor);
        shared.schedule_arrivals();
    }

    /// Should requests of this connection be read?
    pub(super) fn may_read(&self, conn: ConnId, shared: &Shared) -> bool {
        self.server.pressure() == Pressure::Accept
            && self.conns.get(&conn).is_some_and(|state| state.unanswered < self.requests_max)
            && shared.net.under_way(conn, End::Dialler) < shared.options.server.outbound_bytes
    }

    /// Reads what a connection has brought, as far as it may.
    pub(super) fn read(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        while let Some(state) = self.conns.get(&conn) {
            if state.buffer.is_empty() {
                return;
            }
            if !self.may_read(conn, shared) {
                self.held.insert(conn);
                let bound = shared.options.server.outbound_bytes;
                let takes = shared.net.under_way(conn, End::Dialler) < bound;
                if let Some(state) = self.conns.get_mut(&conn) {
                    let since = state.unread_since.unwrap_or(shared.now);
                    state.unread_since = takes.then_some(since);
                }
                return self.note_taken(now, conn, shared);
            }
            match self.read_one(conn, now, shared) {
                Ok(Some(Read::Event(event))) => {
                    shared.tally.counts.frames += 1;
                    if let Some(state) = self.conns.get_mut(&conn) {
                        state.unread_since = None;
                        state.waits.push_back(shared.now);
                    }
                    self.step(now, Input::Client(conn, event), shared);
                }
                Ok(Some(Read::Word(word))) => {
                    self.answer_operator(conn, word, shared);
                    return self.gone(now, conn, shared);
                }
                Ok(Some(Read::TooSoon)) => return self.turn_away(conn, shared),
                Ok(None) => return,
                Err(malformed) => {
                    shared.note(Kind::Conn, (conn.0, 0), b"malformed", || {
                        format!("s{} closes {conn}: {malformed}", self.id)
                    });
                    return self.gone(now, conn, shared);
                }
            }
        }
    }

    /// A client that is not read is heard while it takes its output.
    fn note_taken(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        let under_way = shared.net.under_way(conn, End::Dialler);
        let Some(state) = self.conns.get_mut(&conn) else {
            return;
        };
        let taken = under_way < std::mem::replace(&mut state.backlog, under_way);
        if taken && state.frames.is_open() && now.mono.since(state.told) >= HEARD_PAUSE {
            state.told = now.mono;
            self.step(now, Input::Client(conn, ClientEvent::Heard), shared);
        }
    }

    fn read_one(
        &mut self,
        conn: ConnId,
        now: Now,
        shared: &mut Shared,
    ) -> Result<Option<Read>, Malformed> {
        let state = self.conns.get_mut(&conn).expect("looked up by the caller");
        if state.frames.is_open() {
            let Some(request) = state.frames.next(&mut state.buffer)? else {
                return Ok(None);
            };
            state.unanswered += 1;
            self.unanswered += 1;
            return Ok(Some(Read::Event(ClientEvent::Request(request))));
        }
        Ok(match state.frames.first(&mut state.buffer)? {
            None => None,
            Some(FirstFrame::Word(word)) => Some(Read::Word(word)),
            Some(FirstFrame::Connect(request)) => {
                let new = request.session == SessionId(0);
                let handshake = match (new, self.begins_local) {
                    (true, false) => Handshake::Global,
                    (true, true) => Handshake::Local,
                    (false, _) => Handshake::Renew,
                };
                let admitted = self.throttle.admit(handshake, now.mono);
                let found = self.gate.judge(handshake, admitted, now.mono);
                let found = found.map_err(|what| format!("s{}: {what}", self.id));
                if !self.gate.is_open() {
                    shared.hold(Check::RATE, found);
                }
                if !admitted {
                    return Ok(Some(Read::TooSoon));
                }
                let mut ids = vec![Id { scheme: "ip".into(), id: state.client.address() }];
                if shared.options.server.auth.x509 {
                    let subject = state.client.subject();
                    ids.extend(subject.map(|id| Id { scheme: "x509".into(), id: id.to_owned() }));
                }
                Some(Read::Event(ClientEvent::Opened(request, ids)))
            }
        })
    }

    pub(super) fn count_replies(&mut self, from: usize) {
        for (conn, command) in &self.out.clients[from..] {
            let Some(state) = self.conns.get_mut(conn) else {
                continue;
            };
            if matches!(command, ClientCommand::Reply(_) | ClientCommand::Connected(_)) {
                state.waits.pop_front();
            }
            if matches!(command, ClientCommand::Reply(_)) {
                state.unanswered = state.unanswered.saturating_sub(1);
                self.unanswered = self.unanswered.saturating_sub(1);
            }
        }
    }

    /// Tells now and then which of its clients has waited longest: whether it should have waited is not for this server to say.
    pub(super) fn tell_who_waits(&mut self, shared: &mut Shared) {
        if shared.now < self.waits_told.after(LOOK) {
            return;
        }
        self.waits_told = shared.now;
        let waiting = self.conns.iter().flat_map(|(conn, state)| {
            let turn = state.unread_since.map(|since| (since, *conn, Wait::Turn(since)));
            let answer = state.waits.front().map(|at| (*at, *conn, Wait::Answer(*at)));
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
        self.conns.keys().copied().filter(|conn| !closes(conn)).collect()
    }

    /// All frames of one connection leave together.
    pub(super) fn send_clients(
        &mut self,
        clients: &mut Vec<(ConnId, ClientCommand)>,
        shared: &mut Shared,
    ) {
        if clients.is_empty() {
            return;
        }
        let mut outbound: BTreeMap<ConnId, BytesMut> = BTreeMap::new();
        for (conn, command) in clients.drain(..) {
            let Some(state) = self.conns.get(&conn) else {
                continue;
            };
            if let Some(chronicle) = &mut shared.chronicle {
                chronicle.answered(shared.now, self.id, conn, &command);
            }
            let bytes = outbound.entry(conn).or_default();
            match command {
                ClientCommand::Connected(response) => response.encode(bytes),
                ClientCommand::Reply(reply) => reply.encode(bytes),
                ClientCommand::Event(event) => event.encode(bytes),
                ClientCommand::Complaint(what) => {
                    shared.note(Kind::Conn, (conn.0, 0), b"complaint", || {
                        format!("s{} closes {conn}: {what}", self.id)
                    });
                }
                ClientCommand::Close => {
                    let bytes = std::mem::take(bytes).freeze();
                    self.put(conn, End::Acceptor, bytes, shared);
                    shared.net.close(shared.now, conn, End::Acceptor);
                    self.unanswered -= state.unanswered;
                    self.held.remove(&conn);
                    self.conns.remove(&conn);
                    self.inbox.push_back(Delivered::Closed(conn));
                }
            }
        }
        for (conn, bytes) in outbound {
            if let Some(state) = self.conns.get_mut(&conn) {
                state.backlog += bytes.len();
            }
            self.put(conn, End::Acceptor, bytes.freeze(), shared);
        }
        shared.schedule_arrivals();
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
