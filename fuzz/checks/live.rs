//! A host around the driver and the core, with simulated clients, an ideal disk and two clocks.
//!
//! Owns the clients' ends of the sockets. Must not decode what clients send: the driver does. It
//! takes turns as the process does, and checks what hosts and clients rely on: every reply decodes
//! as its request expects, replies come in the order of the requests, the driver sends the core's
//! messages and nothing else, no command follows the close of a connection, and a server without
//! outstanding work is idle.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use zabkeeper_core::driver::four_letter::{
    DiskUse, Environment, FourLetterOptions, HostFacts, HostQuery, Whitelist,
};
use zabkeeper_core::driver::{ConnCloseReason, Driver, Interest, PeerOptions, SocketId};
use zabkeeper_core::io::{ClientCommand, ClientEvent, Outbox};
use zabkeeper_core::store::{DiskCommand, DurableState, Lane, Recovered};
use zabkeeper_core::wire::{ConnectRequest, ConnectResponse, Request, RequestFrame};
use zabkeeper_core::{ConnId, Input, Instant, Now, Server, SessionId, Status, WallMs, Zxid};

use super::disk::Disk;
use super::owed::{Conn, client_end};
use super::settings::Settings;

/// Wall clock time at the start.
const BEGIN: WallMs = WallMs(1_795_274_515_500);

/// More rounds than any input needs until all its requests are answered.
const ROUNDS: usize = 10_000;

/// Port of every client; nothing depends on it.
const CLIENT_PORT: u16 = 4_000;

/// An observer of everything that happens.
pub(crate) trait Judge {
    /// The address of a connection's client, as the judge knows it.
    fn address(&self, conn: ConnId) -> IpAddr {
        let [.., a, b, c] = conn.0.to_be_bytes();
        Ipv4Addr::new(10, a, b, c).into()
    }

    fn see(&mut self, _at: Instant, _what: Seen<'_>) {}
}

/// The observer that ignores everything.
impl Judge for () {}

/// An observation.
pub(crate) enum Seen<'a> {
    /// A client has connected.
    Opened(ConnId),
    /// The client has written a complete frame, here without its length.
    ToServer(ConnId, Bytes),
    /// The client has received a frame, here without its length.
    ToClient(ConnId, Bytes),
    /// The connection is closed.
    Closed(ConnId),
    /// The server has started.
    Started,
    /// The server has recovered this state and this last transaction.
    Recovered(&'a DurableState, Zxid),
    /// The server has stopped.
    Stopped,
    /// The server is about to process this input of its disk.
    Input(&'a Input),
    /// The output of a step, and the server's status after it.
    Output(&'a Outbox, &'a Status),
    /// A transaction was applied; the digest is given for the last one of a step.
    Applied(Zxid, Option<u64>),
}

/// The client's end of a connection.
struct Client {
    /// Bytes that the client has written and the driver has not read.
    unread: BytesMut,
    /// Has the core received its handshake? If not, the driver may answer a four-letter command.
    opened: bool,
    /// Has the client received the answer to its handshake?
    greeted: bool,
    /// The core's messages that the client has not received.
    expected: VecDeque<Bytes>,
    /// What the client has received of the next one.
    received: BytesMut,
    /// Bytes that its socket still takes.
    room: usize,
}

/// A running server, as described in the module.
pub(crate) struct Live<J> {
    settings: Settings,
    server: Server,
    driver: Driver,
    /// The commands of the turn.
    out: Outbox,
    now: Instant,
    disk: Disk,
    conns: BTreeMap<ConnId, Conn>,
    clients: BTreeMap<ConnId, Client>,
    /// Logged transactions that are not applied yet.
    unapplied: VecDeque<Zxid>,
    next_conn: u64,
    lives: u64,
    /// Sessions that clients know, in order.
    pub(crate) sessions: Vec<ConnectResponse>,
    /// Number of replies.
    pub(crate) answers: usize,
    /// Number of events.
    pub(crate) events: usize,
    /// How often a client's socket took no output.
    pub(crate) blocked: usize,
    /// Number of answers to four-letter commands.
    pub(crate) texts: usize,
    pub(crate) judge: J,
}

impl<J: Judge> Live<J> {
    /// A standalone server on an empty disk, which serves already.
    pub(crate) fn new(settings: Settings, judge: J) -> Live<J> {
        let server = Server::recover(settings.config.clone(), 0, Recovered::default());
        let mut live = Live {
            server: server.expect("an empty disk makes sense"),
            driver: driver(&settings, Instant(0)),
            settings,
            out: Outbox::default(),
            now: Instant(0),
            disk: Disk::default(),
            conns: BTreeMap::new(),
            clients: BTreeMap::new(),
            unapplied: VecDeque::new(),
            next_conn: 0,
            lives: 0,
            sessions: Vec::new(),
            answers: 0,
            events: 0,
            blocked: 0,
            texts: 0,
            judge,
        };
        live.begin(&Recovered::default());
        live.settle();
        live
    }

    /// Opens a connection without a handshake, unless there are too many.
    pub(crate) fn open(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let peer = SocketAddr::new(self.judge.address(conn), CLIENT_PORT);
        if self.driver.clients.accept(conn, peer, Vec::new(), self.clocks()).is_ok() {
            self.clients.insert(conn, Client::new());
            self.judge.see(self.now, Seen::Opened(conn));
        }
        conn
    }

    pub(crate) fn is_open(&self, conn: ConnId) -> bool {
        self.clients.contains_key(&conn)
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The last transaction applied.
    pub(crate) fn applied(&self) -> Zxid {
        self.server.status().applied
    }

    /// The client writes the handshake: for a new session, or to resume one.
    pub(crate) fn greet(&mut self, conn: ConnId, timeout_ms: i32, resume: Option<ConnectResponse>) {
        let (session, password) = match resume {
            None => (SessionId(0), [0; 16]),
            Some(before) => (before.session, before.password),
        };
        let mut out = BytesMut::new();
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms,
            session,
            password: Bytes::copy_from_slice(&password),
            read_only: Some(false),
        };
        request.encode(&mut out);
        self.frame(conn, out.freeze().slice(4..));
    }

    pub(crate) fn ask(&mut self, conn: ConnId, xid: i32, request: Request) {
        let mut out = BytesMut::new();
        RequestFrame { xid, request }.encode(&mut out);
        self.frame(conn, out.freeze().slice(4..));
    }

    /// The client writes a complete frame.
    pub(crate) fn frame(&mut self, conn: ConnId, frame: Bytes) {
        let mut bytes = BytesMut::new();
        bytes.put_i32(i32::try_from(frame.len()).expect("inputs are short"));
        bytes.extend_from_slice(&frame);
        if self.is_open(conn) {
            self.judge.see(self.now, Seen::ToServer(conn, frame));
        }
        self.write(conn, &bytes);
    }

    /// The client writes any bytes.
    pub(crate) fn write(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.unread.extend_from_slice(bytes);
            self.attend(conn);
        }
    }

    /// The client takes this many bytes more, and then none until the next call.
    pub(crate) fn take_output(&mut self, conn: ConnId, room: usize) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.room = room;
            self.flush(conn);
        }
    }

    /// The client or the network closes the connection.
    pub(crate) fn drop_conn(&mut self, conn: ConnId) {
        if self.clients.remove(&conn).is_none() {
            return;
        }
        self.judge.see(self.now, Seen::Closed(conn));
        let socket = SocketId::Client(conn);
        match self.driver.interest(socket) {
            Interest::Read => self.driver.receive_end(socket, self.now),
            Interest::Wait | Interest::Shutdown | Interest::Close => {
                self.driver.fail(socket, "reset".to_owned(), self.now);
            }
        }
        self.driver.forget(socket, self.now);
    }

    /// Completes up to `count` commands of the log lane, with one completion.
    pub(crate) fn finish_log(&mut self, count: usize) {
        if let Some(done) = self.disk.finish_log(count) {
            self.driver.push(Input::Disk(done));
        }
    }

    /// Completes the first command of the other lanes.
    pub(crate) fn finish_other(&mut self) {
        if let Some(done) = self.disk.finish_other() {
            self.driver.push(Input::Disk(done));
        }
    }

    /// Time passes, with a turn at each deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        let mut spins = 0;
        self.turn();
        while let Some(deadline) = self.driver.next_deadline(&self.server)
            && deadline <= end
        {
            spins = if deadline > self.now { 0 } else { spins + 1 };
            assert!(spins < 100, "the deadline {deadline} comes again and again");
            self.now = self.now.max(deadline);
            self.turn();
        }
        self.now = end;
    }

    /// Time passes without a turn, as if the process were suspended.
    pub(crate) fn stall(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// The power fails: outstanding disk commands are lost. The server restarts.
    pub(crate) fn restart(&mut self) {
        self.judge.see(self.now, Seen::Stopped);
        for conn in std::mem::take(&mut self.clients).into_keys() {
            self.judge.see(self.now, Seen::Closed(conn));
        }
        self.conns.clear();
        self.driver = driver(&self.settings, self.now);
        let recovered = self.disk.recovered();
        self.lives += 1;
        let server = Server::recover(self.settings.config.clone(), self.lives, recovered.clone());
        self.server = server.unwrap_or_else(|corrupt| panic!("its own disk: {corrupt}"));
        self.begin(&recovered);
        self.settle();
    }

    /// Completes all outstanding work; clients take all their output.
    ///
    /// # Panics
    /// If a request stays unanswered, or a connection unread.
    pub(crate) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            for conn in Vec::from_iter(self.clients.keys().copied()) {
                self.take_output(conn, usize::MAX);
            }
            self.finish_log(usize::MAX);
            self.finish_other();
            self.turn();
            if self.is_settled() {
                return;
            }
        }
        let status = self.server.status();
        let waiting = Vec::from_iter(self.conns.iter().filter(|(_, conn)| !conn.is_served()));
        let unread = self.clients.keys().filter(|conn| !self.is_read(**conn));
        let unread = Vec::from_iter(unread);
        panic!("never served: {waiting:?}, not read: {unread:?}, {status:?}");
    }

    /// Has all work been done that does not wait for time to pass?
    fn is_settled(&self) -> bool {
        let idle = self.disk.log.is_empty() && self.disk.others.is_empty();
        let due = self.server.next_deadline().is_some_and(|(deadline, _)| deadline <= self.now);
        let mut conns = self.conns.values();
        idle && !due
            && !self.driver.has_work()
            && conns.all(Conn::is_served)
            && self.clients.keys().all(|conn| self.is_read(*conn))
    }

    /// Would the driver read further bytes of this client?
    fn is_read(&self, conn: ConnId) -> bool {
        self.driver.interest(SocketId::Client(conn)) == Interest::Read
    }

    /// Completes all outstanding work, and checks that the server is idle then.
    ///
    /// # Panics
    /// If it is not idle.
    pub(crate) fn settle_and_check_idle(&mut self) {
        self.settle();
        let (answers, events, applied) = (self.answers, self.events, self.applied());
        // The driver has no reason for an early timeout, which is harmless.
        self.step(Input::Timeout);
        self.turn();
        let after = (self.answers, self.events, self.applied());
        assert_eq!((answers, events, applied), after, "a served server is quiet");
        assert!(self.disk.log.is_empty() && self.disk.others.is_empty(), "and its disk idle");
        assert_eq!(self.driver.clients.unanswered(), 0, "and its driver owes no answer");
    }

    /// The state of the server: the last applied zxid, the digest and the live sessions.
    pub(crate) fn holds(&self) -> (Zxid, u64, Vec<SessionId>) {
        let sessions = self.server.sessions().into_iter().map(|info| info.id).collect();
        (self.applied(), self.server.digest(), sessions)
    }

    fn begin(&mut self, recovered: &Recovered) {
        self.judge.see(self.now, Seen::Started);
        let snapshot = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        let last = recovered.entries.last().map_or(snapshot, |entry| entry.zxid);
        self.judge.see(self.now, Seen::Recovered(&recovered.state, last));
        self.unapplied = recovered.entries.iter().map(|entry| entry.zxid).collect();
    }

    fn clocks(&self) -> Now {
        let ms = i64::try_from(self.now.0 / 1_000_000).expect("far in the future");
        Now { mono: self.now, wall: WallMs(BEGIN.0 + ms) }
    }

    /// Takes turns until no work is left that could be done now.
    pub(crate) fn turn(&mut self) {
        for _ in 0..ROUNDS {
            self.take_turn();
            if !self.driver.has_work() {
                return;
            }
        }
        panic!("turns without an end: {:?}", self.server.status());
    }

    fn take_turn(&mut self) {
        let now = self.clocks();
        self.driver.begin_turn(now);
        let mut cost = 0;
        while let Some(mut input) = self.driver.next_input(now, &self.server, cost) {
            if let Input::Client(conn, event) = &mut input {
                self.note_event(*conn, event);
            }
            cost = self.step(input);
        }
        self.driver.observe(&self.out);
        self.out.notices.clear();
        for command in self.out.disk.drain(..) {
            match command.lane() {
                Lane::Log => self.disk.log.push_back(command),
                Lane::Snapshot | Lane::Reader => self.disk.others.push_back(command),
            }
        }
        self.driver.deliver(now, &self.server, &mut self.out);
        while let Some(socket) = self.driver.next_to_flush() {
            self.flush(client_of(socket));
        }
        while let Some(socket) = self.driver.next_changed() {
            self.attend(client_of(socket));
        }
        while let Some((conn, query)) = self.driver.four_letter.next_query() {
            let facts = match query {
                HostQuery::DiskUse => HostFacts::DiskUse(DiskUse::default()),
                HostQuery::Descriptors => HostFacts::Descriptors(None),
                HostQuery::Environment => HostFacts::Environment(Environment::default()),
            };
            self.driver.four_letter.supply(conn, facts);
        }
        self.driver.report_notes();
        while self.driver.reports.next_line(self.clocks()).is_some() {}
    }

    /// The driver gives this event to the core.
    fn note_event(&mut self, id: ConnId, event: &mut ClientEvent) {
        match event {
            ClientEvent::Opened(..) => {
                let before = self.conns.insert(id, Conn::default());
                assert!(before.is_none(), "{id} opens twice");
                if let Some(client) = self.clients.get_mut(&id) {
                    client.opened = true;
                }
            }
            ClientEvent::Request(_) | ClientEvent::Heartbeat => {
                let window = self.settings.config.limits.requests_per_conn as usize;
                let Some(conn) = self.conns.get_mut(&id) else {
                    panic!("{id} is not open, and sends {event:?}");
                };
                conn.receive(event, window);
            }
            ClientEvent::Closed => assert!(self.conns.remove(&id).is_some(), "{id} is not open"),
        }
    }

    /// Steps the core; returns the cost.
    fn step(&mut self, input: Input) -> u64 {
        if let Input::Disk(_) = input {
            self.judge.see(self.now, Seen::Input(&input));
        }
        let mut out = Outbox::default();
        self.server.step(self.clocks(), input, &mut out);
        let status = self.server.status();
        assert!(status.halted.is_none(), "the disk is ideal");
        self.judge.see(self.now, Seen::Output(&out, &status));
        for command in &out.disk {
            assert!(is_of_standalone(command), "a server on its own orders {command}");
            if let DiskCommand::Append { entry, .. } = command {
                self.unapplied.push_back(entry.zxid);
            }
        }
        self.apply(status.applied);
        assert!(out.peers.is_empty() && out.election.is_empty(), "there is nobody else");
        for (id, command) in &out.clients {
            let Some(conn) = self.conns.get_mut(id) else {
                panic!("{id} is gone, and is told: {command}");
            };
            self.answers += usize::from(matches!(command, ClientCommand::Reply(_)));
            self.events += usize::from(matches!(command, ClientCommand::Event(_)));
            let message = conn.check(*id, command);
            if let Some(client) = self.clients.get_mut(id) {
                client.expected.extend(message);
            }
        }
        self.out.disk.append(&mut out.disk);
        self.out.clients.append(&mut out.clients);
        self.out.notices.append(&mut out.notices);
        out.cost
    }

    fn apply(&mut self, applied: Zxid) {
        while let Some(zxid) = self.unapplied.pop_front_if(|zxid| *zxid <= applied) {
            let digest = (zxid == applied).then(|| self.server.digest());
            self.judge.see(self.now, Seen::Applied(zxid, digest));
        }
    }

    /// Offers the queued output to a client's socket.
    fn flush(&mut self, conn: ConnId) {
        let socket = SocketId::Client(conn);
        while let length @ 1.. = self.driver.output(socket).len()
            && let Some(client) = self.clients.get_mut(&conn)
        {
            let length = length.min(client.room);
            if length == 0 {
                self.blocked += usize::from(self.driver.block(socket));
                break;
            }
            client.room -= length;
            client.received.extend_from_slice(&self.driver.output(socket)[..length]);
            self.driver.sent(socket, length, self.now);
            self.receive(conn);
        }
        self.attend(conn);
    }

    /// The client takes whole messages from the received bytes, which are the core's.
    fn receive(&mut self, conn: ConnId) {
        let Some(client) = self.clients.get_mut(&conn) else { return };
        while let Some(message) =
            client.expected.pop_front_if(|message| client.received.starts_with(message))
        {
            client.received.advance(message.len());
            if !std::mem::replace(&mut client.greeted, true) {
                let read = client_end().first(&mut BytesMut::from(&message[..]));
                let response = read.expect("checked when it was sent").expect("whole");
                self.sessions.extend(Some(response).filter(|one| one.session != SessionId(0)));
            }
            self.judge.see(self.now, Seen::ToClient(conn, message.slice(4..)));
        }
        let next = client.expected.front().map_or(&[][..], |message| message);
        let begins = next.starts_with(&client.received);
        assert!(begins || !client.opened, "{conn}: {:?}, not {next:?}", client.received);
    }

    /// Does with a client's socket what the driver wants.
    fn attend(&mut self, conn: ConnId) {
        let socket = SocketId::Client(conn);
        while let Some(client) = self.clients.get_mut(&conn) {
            match self.driver.interest(socket) {
                Interest::Read if !client.unread.is_empty() => {
                    self.driver.receive(socket, &client.unread.split(), self.now);
                }
                Interest::Read | Interest::Wait => return,
                Interest::Shutdown if !self.driver.output(socket).is_empty() => return,
                ended @ (Interest::Shutdown | Interest::Close) => {
                    let why = self.driver.forget(socket, self.now);
                    if ended == Interest::Shutdown && client.opened {
                        let all = client.expected.is_empty();
                        let by_server = why == Some(ConnCloseReason::ByServer);
                        assert!(all || !by_server, "{conn} ends without its messages");
                        assert!(client.received.is_empty(), "{conn} ends within a message");
                    } else if ended == Interest::Shutdown {
                        self.texts += usize::from(!client.received.is_empty());
                    }
                    self.clients.remove(&conn);
                    self.judge.see(self.now, Seen::Closed(conn));
                }
            }
        }
    }
}

impl Client {
    fn new() -> Client {
        Client {
            unread: BytesMut::new(),
            opened: false,
            greeted: false,
            expected: VecDeque::new(),
            received: BytesMut::new(),
            room: usize::MAX,
        }
    }
}

/// A driver without connections that answers all four-letter commands.
fn driver(settings: &Settings, now: Instant) -> Driver {
    let Settings { config, clients, turn } = settings.clone();
    let peers = PeerOptions::new(clients.max_frame);
    let options = FourLetterOptions { whitelist: Whitelist::All, ..FourLetterOptions::default() };
    Driver::new(Arc::new(config), clients, peers, turn, 0, now).with_four_letter(options)
}

fn client_of(socket: SocketId) -> ConnId {
    match socket {
        SocketId::Client(conn) => conn,
        SocketId::Server(link) => panic!("{link} leads to nobody"),
    }
}

/// May a server without others order this?
fn is_of_standalone(command: &DiskCommand) -> bool {
    match command {
        DiskCommand::Append { .. }
        | DiskCommand::SaveState { .. }
        | DiskCommand::SnapshotChunk { .. }
        | DiskCommand::Purge { .. } => true,
        DiskCommand::DropSnapshot { .. }
        | DiskCommand::Truncate { .. }
        | DiskCommand::Rebase { .. }
        | DiskCommand::ReadLog { .. }
        | DiskCommand::ReadSnapshot { .. } => false,
    }
}
