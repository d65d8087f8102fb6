//! A driver around a standalone server, with an ideal disk, and sockets that take as many bytes as
//! a test allows.

use core::net::SocketAddr;
use std::collections::BTreeMap;
use std::time::Duration;

use bytes::{Bytes, BytesMut};

use super::*;
use crate::ids::{LinkId, ServerId, SessionId, WallMs, Zxid};
use crate::io::{Outbox, PeerEvent};
use crate::membership::Voters;
use crate::rng::Rng;
use crate::store::{DiskCommand, Recovered};
use crate::throttle::ThrottleOptions;
use crate::wire::{Acl, AddWatchMode, ConnectRequest, Request, RequestFrame, SetWatches};

/// Bytes of an answer to `exists` for a missing node, and of one to a handshake.
const MISSING: usize = 20;
const CONNECTED: usize = 40;
const TICK: Duration = Duration::from_secs(2);

pub(super) struct Host {
    pub(super) server: Server,
    pub(super) driver: Driver,
    out: Outbox,
    pub(super) now: Now,
    /// How many bytes each socket still takes; without an entry, it takes all.
    takes: BTreeMap<ConnId, usize>,
    sent: BTreeMap<ConnId, usize>,
    notes: Vec<ClientNote>,
    last_conn: ConnId,
    /// Inputs of the last turn.
    inputs: Vec<Input>,
}

impl Host {
    pub(super) fn new(limits: ClientLimits, turn: TurnLimits) -> Host {
        let mut host = Host::starting(limits, turn);
        host.turns(20);
        assert!(host.server.status().serving);
        host
    }

    /// A server that has not taken a turn yet, and serves nobody.
    pub(super) fn starting(limits: ClientLimits, turn: TurnLimits) -> Host {
        let id = ServerId(1);
        let config = Config::new(id, Voters::new([id]), TICK).expect("2 s is a tick");
        let server =
            Server::recover(config.clone(), 7, Recovered::default()).expect("nothing is there");
        let driver =
            Driver::new(Arc::new(config), limits, PeerOptions::new(1 << 20), turn, 7, Instant(0));
        Host {
            server,
            driver,
            out: Outbox::default(),
            now: Now::default(),
            takes: BTreeMap::new(),
            sent: BTreeMap::new(),
            notes: Vec::new(),
            last_conn: ConnId(0),
            inputs: Vec::new(),
        }
    }

    pub(super) fn turn(&mut self) {
        let Host { server, driver, out, now, .. } = self;
        self.inputs.clear();
        driver.begin_turn(*now);
        out.cost = 0;
        while let Some(input) = driver.next_input(*now, server, out.cost) {
            self.inputs.push(input.clone());
            out.cost = 0;
            server.step(*now, input, out);
        }
        for command in out.disk.drain(..) {
            if let DiskCommand::Append { id, .. } | DiskCommand::SaveState { id, .. } = command {
                driver.push(Input::Disk(DiskEvent::Done(id)));
            }
        }
        driver.deliver(*now, server, out);
        while let Some(conn) = self.driver.clients.next_to_flush() {
            self.flush(conn);
        }
        self.notes.extend(self.driver.clients.take_notes());
    }

    pub(super) fn turns(&mut self, count: usize) {
        for _ in 0..count {
            self.now.mono = self.now.mono.after(Duration::from_millis(1));
            self.now.wall = WallMs(self.now.wall.0 + 1);
            self.turn();
        }
    }

    pub(super) fn pass(&mut self, time: Duration) {
        self.now.mono = self.now.mono.after(time);
        self.turns(1);
    }

    pub(super) fn flush(&mut self, conn: ConnId) {
        let clients = &mut self.driver.clients;
        loop {
            let length = clients.output(conn).len();
            let room = self.takes.get(&conn).copied().unwrap_or(usize::MAX);
            let some = length.min(room);
            if length == 0 {
                return;
            }
            if some == 0 {
                clients.block(conn);
                return;
            }
            clients.sent(conn, some, self.now.mono);
            *self.sent.entry(conn).or_default() += some;
            if let Some(takes) = self.takes.get_mut(&conn) {
                *takes -= some;
            }
        }
    }

    /// Lets the client take this many bytes, or all output from now on.
    pub(super) fn take(&mut self, conn: ConnId, bytes: Option<usize>) {
        match bytes {
            Some(bytes) => *self.takes.entry(conn).or_default() += bytes,
            None => drop(self.takes.remove(&conn)),
        }
        self.flush(conn);
    }

    pub(super) fn accept(&mut self, address: u8) -> ConnId {
        let peer = SocketAddr::from(([10, 0, 0, address], 4000));
        self.last_conn.0 += 1;
        let accepted = self.driver.clients.accept(self.last_conn, peer, Vec::new(), self.now);
        accepted.expect("there is room");
        self.last_conn
    }

    /// Gives bytes to the driver if the connection is to be read.
    pub(super) fn receive(&mut self, conn: ConnId, bytes: &[u8]) {
        if self.interest(conn) != Interest::Read {
            return;
        }
        self.driver.clients.receive(conn, bytes, self.now.mono);
    }

    pub(super) fn connect(&mut self, address: u8) -> ConnId {
        let conn = self.accept(address);
        self.receive(conn, &handshake());
        self.turns(3);
        assert_eq!(self.sent.get(&conn), Some(&CONNECTED), "it has a session");
        conn
    }

    pub(super) fn interest(&self, conn: ConnId) -> Interest {
        self.driver.clients.interest(conn)
    }

    pub(super) fn ended(&mut self, conn: ConnId) -> ConnCloseReason {
        assert!(matches!(self.interest(conn), Interest::Close | Interest::Shutdown));
        self.driver.clients.forget(conn).expect("it was known")
    }
}

/// The request for a new session.
pub(super) fn connect_request() -> ConnectRequest {
    ConnectRequest {
        last_zxid_seen: Zxid::ZERO,
        timeout_ms: 10_000,
        session: SessionId(0),
        password: Bytes::new(),
        read_only: None,
    }
}

fn handshake() -> BytesMut {
    let mut bytes = BytesMut::new();
    connect_request().encode(&mut bytes);
    bytes
}

pub(super) fn frames(requests: impl IntoIterator<Item = Request>) -> BytesMut {
    let mut bytes = BytesMut::new();
    for (request, xid) in requests.into_iter().zip(1..) {
        RequestFrame { xid, request }.encode(&mut bytes);
    }
    bytes
}

pub(super) fn exists(count: usize) -> BytesMut {
    frames(std::iter::repeat_n(Request::Exists { path: "/no".into(), watch: false }, count))
}

pub(super) fn create(path: &str) -> Request {
    Request::Create {
        path: path.into(),
        data: Some(Bytes::from_static(b"x")),
        acl: Acl::open(),
        flags: 0,
        with_stat: false,
    }
}

#[test]
fn requests_before_an_oversized_frame_are_counted() {
    let limits = ClientLimits { max_frame: 1_000, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let conn = host.connect(1);
    let before = host.driver.clients.metrics().received;
    let mut bytes = frames(["/a", "/b"].map(create));
    bytes.extend_from_slice(&2_000_u32.to_be_bytes());
    host.receive(conn, &bytes);
    host.turns(3);
    assert_eq!(host.driver.clients.metrics().received, before + 2);
    assert_eq!(host.interest(conn), Interest::Close);
}

#[test]
fn event_that_leaves_with_an_answer_leaves_no_work_behind() {
    const CLIENTS: usize = 600;
    let limits = ClientLimits { connections_per_ip: None, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let writer = host.connect(1);
    let watchers: Vec<ConnId> = (0..CLIENTS).map(|_| host.connect(2)).collect();
    let exists = |path: &str, watch| Request::Exists { path: path.to_owned(), watch };
    for conn in &watchers {
        host.receive(*conn, &frames([exists("/node", true)]));
    }
    host.turns(10);
    host.receive(writer, &frames([create("/node")]));
    host.turn();
    // The next turn applies the creation, and then answers these.
    for conn in &watchers {
        host.receive(*conn, &frames([exists("/other", false)]));
    }
    host.turn();
    assert!(!host.driver.has_work(), "all output was offered with the answers");
}

#[test]
fn pipelined_requests_are_answered_over_several_turns() {
    let mut host = Host::new(ClientLimits::default(), TurnLimits::default());
    let conn = host.connect(1);
    host.receive(conn, &exists(1_000));
    assert_eq!(host.interest(conn), Interest::Wait, "what has come is taken before more comes");
    host.turns(1);
    let first = host.sent[&conn] - CONNECTED;
    assert!(first > 0 && first < 1_000 * MISSING, "{first}");
    host.turns(20);
    assert_eq!(host.sent[&conn], CONNECTED + 1_000 * MISSING);
    assert_eq!((host.interest(conn), host.driver.clients.unanswered()), (Interest::Read, 0));
}

/// SESS-05. A client that takes no output is not read, and its session expires.
#[test]
fn client_that_takes_output_slowly_keeps_its_session() {
    let limits = ClientLimits { output_bytes: 10_000, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let conn = host.connect(1);
    host.take(conn, Some(0));
    for _ in 0..20 {
        host.receive(conn, &exists(500));
        host.turns(5);
    }
    assert_eq!(host.interest(conn), Interest::Wait);
    let queued = host.driver.clients.unanswered();
    assert!(queued < 1_000, "{queued} requests are under way");
    // It takes a little now and then, for longer than the timeout of its session.
    for _ in 0..40 {
        host.take(conn, Some(2));
        host.pass(Duration::from_millis(500));
    }
    assert_eq!(host.server.status().sessions, 1, "its session lives");
    assert_eq!(host.interest(conn), Interest::Wait);
    for _ in 0..60 {
        host.pass(Duration::from_millis(500));
    }
    host.turns(3);
    assert_eq!(host.server.status().sessions, 0, "it takes nothing any more");
}

#[test]
fn untaken_events_close_the_connection_above_a_bound() {
    let limits = ClientLimits { event_bytes: 2_000, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let (watcher, writer) = (host.connect(1), host.connect(2));
    let watch = Request::AddWatch { path: "/".into(), mode: AddWatchMode::PersistentRecursive };
    host.receive(watcher, &frames([watch]));
    host.turns(1);
    host.take(watcher, Some(0));
    for number in 0..200 {
        host.receive(writer, &frames([create(&format!("/node-{number}"))]));
        host.turns(2);
    }
    let ended = host.ended(watcher);
    assert!(matches!(ended, ConnCloseReason::Events { bytes } if bytes < 2_200), "{ended}");
    assert_eq!(host.interest(writer), Interest::Read);
}

/// A client that was disconnected for untaken events receives the missed ones by setWatches. If
/// these counted as well, it would be disconnected again and again.
#[test]
fn events_found_by_set_watches_are_not_bounded() {
    let limits = ClientLimits { event_bytes: 100, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let (watcher, writer) = (host.connect(1), host.connect(2));
    let paths: Vec<String> = (0..20).map(|number| format!("/node-{number}")).collect();
    host.receive(writer, &frames(paths.iter().map(|path| create(path))));
    host.turns(10);
    host.take(watcher, Some(0));
    let missed = SetWatches { exist: paths, ..SetWatches::default() };
    host.receive(watcher, &frames([Request::SetWatches(missed)]));
    host.turns(3);
    assert!(host.driver.clients.output(watcher).len() > 500, "20 events wait");
    assert_ne!(host.interest(watcher), Interest::Close);
}

/// WIRE-17.
#[test]
fn silent_and_unfinished_connections_are_closed() {
    let mut host = Host::new(ClientLimits::default(), TurnLimits::default());
    let (silent, half, slow) = (host.accept(1), host.accept(2), host.connect(3));
    host.receive(half, &handshake()[..10]);
    host.pass(Duration::from_secs(9));
    assert_eq!([silent, half, slow].map(|conn| host.interest(conn)), [Interest::Read; 3]);
    host.receive(slow, &exists(1)[..5]);
    host.pass(Duration::from_secs(1));
    for conn in [silent, half] {
        assert_eq!(host.ended(conn), ConnCloseReason::Sessionless(Duration::from_secs(10)));
    }
    assert_eq!(host.driver.clients.metrics().sessionless, 2);
    // More bytes of the frame arrive, but not all.
    host.pass(Duration::from_secs(5));
    host.receive(slow, &exists(1)[5..9]);
    host.pass(Duration::from_secs(4));
    assert_eq!(host.ended(slow), ConnCloseReason::Unfinished(Duration::from_secs(10)));
}

#[test]
fn invalid_frame_after_a_handshake_ends_the_connection_after_the_answer() {
    let mut host = Host::new(ClientLimits::default(), TurnLimits::default());
    let conn = host.accept(1);
    let mut bytes = handshake();
    bytes.extend_from_slice(&[0xff; 4]);
    host.receive(conn, &bytes);
    assert_eq!(host.interest(conn), Interest::Wait);
    host.turns(4);
    assert_eq!((host.sent[&conn], host.interest(conn)), (CONNECTED, Interest::Shutdown));
    assert!(matches!(host.ended(conn), ConnCloseReason::Malformed(_)));
}

/// THR-06.
#[test]
fn bound_on_all_requests_serves_clients_in_turn() {
    let bound = Some(2);
    let limits = ClientLimits { throttle_max_requests: bound, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let conns: Vec<ConnId> = (1..=6).map(|address| host.connect(address)).collect();
    for conn in &conns {
        let requests = frames((0..3).map(|number| create(&format!("/{conn}-{number}"))));
        host.receive(*conn, &requests);
    }
    for _ in 0..60 {
        host.turns(1);
        assert!(host.driver.clients.unanswered() <= 2);
    }
    assert!(host.notes.iter().any(|note| matches!(note, ClientNote::Overloaded { .. })));
    assert_eq!(host.server.status().nodes, 5 + 18, "all are served");
}

/// THR-07.
#[test]
fn request_that_has_waited_too_long_is_refused() {
    let limits = ClientLimits {
        throttle_max_requests: Some(1),
        op_wait_max: Some(Duration::from_millis(100)),
        ..ClientLimits::default()
    };
    let mut host = Host::new(limits, TurnLimits::default());
    let (first, second) = (host.connect(1), host.connect(2));
    host.receive(first, &frames([create("/a")]));
    host.receive(second, &exists(1));
    assert_eq!(host.interest(second), Interest::Wait);
    host.pass(Duration::from_millis(200));
    host.turns(5);
    let waited = |note: &ClientNote| matches!(note, ClientNote::OpWaitedTooLong { .. });
    assert_eq!(host.notes.iter().filter(|note| waited(note)).count(), 1);
    assert_eq!(host.sent[&second], CONNECTED + MISSING, "it is answered");
}

/// THR-06.
/// A new request does not take the room that has become free for those that wait.
#[test]
fn new_requests_queue_behind_waiting_connections() {
    let limits = ClientLimits { throttle_max_requests: Some(1), ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let conns: Vec<ConnId> = (1..=12).map(|address| host.connect(address)).collect();
    let (first, newcomers) = conns.split_at(3);
    for conn in first {
        host.receive(*conn, &exists(1));
    }
    for conn in newcomers {
        host.turns(1);
        host.receive(*conn, &exists(1));
    }
    assert!(first.iter().all(|conn| host.sent[conn] > CONNECTED), "{:?}", host.sent);
}

/// The `Closed` event of a connection is not blocked by untaken output.
#[test]
fn closed_connection_with_untaken_output_is_forgotten() {
    let limits = ClientLimits { output_bytes: 1_000, ..ClientLimits::default() };
    let mut host = Host::new(limits, TurnLimits::default());
    let conn = host.connect(1);
    host.take(conn, Some(0));
    let data = Request::SetData { path: "/a".into(), data: Some(vec![0; 900].into()), version: -1 };
    let get = || Request::GetData { path: "/a".into(), watch: false };
    host.receive(conn, &frames([create("/a"), data, get(), get(), get(), Request::CloseSession]));
    host.turns(10);
    assert_eq!(host.interest(conn), Interest::Shutdown);
    assert_eq!(host.ended(conn), ConnCloseReason::ByServer);
    host.turns(2);
    assert!(host.driver.clients.is_empty());
}

/// THR-05.
#[test]
fn throttle_refuses_a_handshake_before_it_reaches_the_core() {
    let throttle = ThrottleOptions {
        tokens: 1,
        fill_time: Duration::from_secs(3600),
        ..ThrottleOptions::default()
    };
    let mut host =
        Host::new(ClientLimits { throttle, ..ClientLimits::default() }, TurnLimits::default());
    host.connect(1);
    let late = host.accept(2);
    host.receive(late, &handshake());
    assert_eq!(host.ended(late), ConnCloseReason::Throttled);
    host.turns(1);
    let admitted = host.notes.iter().filter_map(|note| match note {
        ClientNote::Handshake(_, _, admitted) => Some(*admitted),
        ClientNote::Overloaded { .. }
        | ClientNote::OpWaitedTooLong { .. }
        | ClientNote::Complaint(..) => None,
    });
    assert_eq!(admitted.collect::<Vec<bool>>(), [true, false]);
    assert_eq!(host.driver.clients.metrics().rejected, 1);
    assert!(
        host.inputs.iter().all(|input| !matches!(input, Input::Client(conn, _) if *conn == late))
    );
}

#[test]
fn busy_clients_delay_neither_servers_nor_deadlines() {
    let turn = TurnLimits { inputs: 10, ..TurnLimits::default() };
    let mut host = Host::new(ClientLimits::default(), turn);
    let (busy, modest) = (host.connect(1), host.connect(2));
    // The driver has seen that their answers are small, and the busy client has its turn first.
    for conn in [busy, modest] {
        host.receive(conn, &exists(100));
        host.turns(30);
    }
    host.now.mono = host.now.mono.after(Duration::from_secs(30));
    host.receive(busy, &exists(100));
    host.receive(modest, &exists(1));
    host.driver.push(Input::Peer(LinkId(1), PeerEvent::Down));
    host.turns(1);
    // First the input of the other server, then as many requests as fit. The request of the other
    // client still waits when its session would expire: its heartbeat renews the session.
    assert!(matches!(host.inputs[0], Input::Peer(..)) && host.inputs.len() < 15);
    let heartbeat = Input::Client(modest, ClientEvent::Heartbeat);
    assert!(host.inputs.contains(&heartbeat), "{:?}", host.inputs);
    assert_eq!(host.inputs.last(), Some(&Input::Timeout));
    assert_eq!(host.server.status().sessions, 2);
}

/// Clients that connect, ask, read and disconnect at random. Returns the connections that are left.
fn random_clients(host: &mut Host, seed: u64, mut below: impl FnMut(u64) -> u64) -> Vec<ConnId> {
    let mut conns: Vec<ConnId> = Vec::new();
    for step in 0..400 {
        let any = |below: &mut dyn FnMut(u64) -> u64, conns: &[ConnId]| {
            conns.get(usize::try_from(below(8)).expect("small")).copied()
        };
        match below(8) {
            0 if conns.len() < 8 => {
                let conn = host.accept(u8::try_from(seed).expect("small"));
                host.receive(conn, &handshake());
                conns.push(conn);
            }
            1 | 2 => {
                if let Some(conn) = any(&mut below, &conns) {
                    host.receive(conn, &exists(usize::try_from(below(200)).expect("small")));
                }
            }
            3 => {
                if let Some(conn) = any(&mut below, &conns) {
                    host.receive(conn, &frames([create(&format!("/{step}"))]));
                }
            }
            4 => {
                if let Some(conn) = any(&mut below, &conns) {
                    let some =
                        (below(2) == 0).then(|| usize::try_from(below(3_000)).expect("small"));
                    host.take(conn, some);
                }
            }
            5 if below(4) == 0 => {
                if let Some(conn) = any(&mut below, &conns) {
                    host.driver.clients.receive_end(conn);
                }
            }
            _ => host.turns(1),
        }
        conns.retain(|conn| match host.interest(*conn) {
            Interest::Close | Interest::Shutdown => {
                host.driver.clients.forget(*conn);
                false
            }
            Interest::Read | Interest::Wait => true,
        });
        if let Some(bound) = host.driver.clients.common.limits.throttle_max_requests {
            assert!(host.driver.clients.unanswered() <= bound);
        }
    }
    conns
}

#[test]
fn ended_connections_leave_no_state() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let below = |bound: u64| rng.next() % bound;
        let limits = ClientLimits {
            throttle_max_requests: (seed % 3 == 0).then_some(5),
            outstanding: if seed % 2 == 0 { 3 } else { 1000 },
            output_bytes: 2_000,
            event_bytes: 2_000,
            connections_per_ip: None,
            ..ClientLimits::default()
        };
        let mut host = Host::new(limits, TurnLimits { inputs: 20, ..TurnLimits::default() });
        let conns = random_clients(&mut host, seed, below);
        // Those that take everything are answered, and all of them then end.
        for conn in conns.clone() {
            host.take(conn, None);
        }
        let mut turns = 0;
        while host.driver.has_work() || host.driver.clients.unanswered() > 0 {
            host.turns(1);
            turns += 1;
            assert!(turns < 5_000, "seed {seed}");
        }
        assert_eq!(host.driver.clients.unanswered(), 0, "seed {seed}");
        for conn in conns {
            assert_eq!(host.interest(conn), Interest::Read, "seed {seed}, {conn}");
            host.driver.clients.receive_end(conn);
            host.driver.clients.forget(conn);
        }
        host.turns(3);
        assert!(!host.driver.has_work(), "seed {seed}");
        assert!(host.driver.clients.is_empty(), "seed {seed}");
    }
}
