//! Random servers and networks: every call ends exactly once.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use zabkeeper_client::{CallId, Config, Effect, Failure, Input, LinkId, Outbox, Session, State};
use zabkeeper_core::wire::{
    ClientFrames, ConnectResponse, EventType, FirstFrame, MAX_FRAME_DEFAULT, MultiResult, Reply,
    ReplyBody, ReplyKind, Request, RequestFrame, Stat, WatchEvent, XID_PING,
};
use zabkeeper_core::{ErrorCode, Instant, SessionId, Zxid};

#[test]
fn every_call_ends_once_and_in_order() {
    let mut seen = Seen::default();
    for seed in 0..400 {
        seen.add(&World::run(seed));
    }
    // The runs must reach each of these outcomes.
    assert!(seen.done > 10_000 && seen.lost > 1_000 && seen.expired > 10, "{seen:?}");
    assert!(seen.events > 100 && seen.closed > 100, "{seen:?}");
}

#[test]
fn equal_seeds_give_equal_effects() {
    assert_eq!(World::run(7), World::run(7));
    assert_ne!(World::run(7).trace, World::run(8).trace);
}

#[derive(Default, Debug, PartialEq, Eq)]
struct Seen {
    trace: String,
    done: u32,
    lost: u32,
    expired: u32,
    closed: u32,
    events: u32,
}

impl Seen {
    fn add(&mut self, other: &Seen) {
        self.done += other.done;
        self.lost += other.lost;
        self.expired += other.expired;
        self.closed += other.closed;
        self.events += other.events;
    }
}

struct World {
    dice: u64,
    session: Session,
    now: Instant,
    server: Option<Server>,
    /// Outstanding calls.
    open: BTreeMap<u64, Request>,
    next_call: u64,
    /// The last call to end of those that reached the server; they end in the order submitted.
    last_ended: u64,
    zxid: i64,
    seen: Seen,
}

/// The server's end of a link.
struct Server {
    link: LinkId,
    stands: bool,
    frames: ClientFrames,
    inbound: BytesMut,
    last_xid: i32,
    /// Bytes in transit to the session.
    outbound: VecDeque<u8>,
}

impl World {
    fn run(seed: u64) -> Seen {
        let mut config = Config::new("a,b,c/app".parse().expect("valid"), 3_000);
        config.reconnect_delay_max = Duration::from_millis(50);
        config.round_pause = Duration::from_millis(200);
        config.calls_max = 40;
        let mut world = World {
            dice: seed,
            session: Session::new(config, seed),
            now: Instant(0),
            server: None,
            open: BTreeMap::new(),
            next_call: 0,
            last_ended: 0,
            zxid: 1,
            seen: Seen::default(),
        };
        for _ in 0..600 {
            world.turn();
        }
        world.step(Input::Close);
        // A closed session ends after its deadlines, with or without a server.
        while let Some(due) = world.session.next_deadline() {
            world.now = world.now.max(due);
            world.step(Input::Timeout);
        }
        assert_eq!(world.open, BTreeMap::new(), "seed {seed}: calls without an end");
        world.seen
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.dice = self.dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(0xd1ce);
        (self.dice >> 33) % bound
    }

    fn turn(&mut self) {
        match self.below(20) {
            0..8 => self.submit(),
            8..12 => self.deliver(),
            12..14 => {
                let ms = self.below(300);
                self.now = self.now.after(Duration::from_millis(ms));
                if self.session.next_deadline().is_some_and(|due| due <= self.now) {
                    self.step(Input::Timeout);
                }
            }
            14 => self.step(Input::Timeout),
            15..17 => self.dial_outcome(),
            17 => self.event(),
            18 => self.stale(),
            _ => self.mishap(),
        }
    }

    fn submit(&mut self) {
        let path = format!("/n{}", self.below(5));
        let request = match self.below(6) {
            0 => Request::GetData { path, watch: true },
            1 => Request::Exists { path, watch: true },
            2 => Request::GetChildren { path, watch: true, with_stat: true },
            3 => Request::Ping,
            4 => Request::Delete { path: "relative".into(), version: -1 },
            _ => Request::SetData { path, data: None, version: -1 },
        };
        self.next_call += 1;
        self.open.insert(self.next_call, request.clone());
        self.step(Input::Submit(CallId(self.next_call), request));
    }

    fn dial_outcome(&mut self) {
        let well = self.below(4) > 0;
        let Some(server) = self.server.as_mut().filter(|server| !server.stands) else {
            return;
        };
        let link = server.link;
        if well {
            server.stands = true;
            self.step(Input::Dialled { link });
        } else {
            self.server = None;
            self.step(Input::DialFailed { link });
        }
    }

    /// Delivers some of the bytes in transit.
    fn deliver(&mut self) {
        let most = self.below(200) + 1;
        let Some(server) = self.server.as_mut().filter(|server| server.stands) else {
            return;
        };
        let count = usize::try_from(most).expect("small").min(server.outbound.len());
        let bytes: Vec<u8> = server.outbound.drain(..count).collect();
        let link = server.link;
        if !bytes.is_empty() {
            self.step(Input::Received { link, bytes: Bytes::from(bytes) });
        }
    }

    fn event(&mut self) {
        let path = format!("/app/n{}", self.below(5));
        let mut bytes = BytesMut::new();
        WatchEvent { zxid: None, event: EventType::NodeDeleted, path }.encode(&mut bytes);
        if let Some(server) = self.server.as_mut().filter(|server| server.last_xid > 0) {
            server.outbound.extend(bytes);
        }
    }

    /// An input of a link that the session has left, or that never existed.
    fn stale(&mut self) {
        let current = self.server.as_ref().map_or(0, |server| server.link.0);
        let link = LinkId(if self.below(2) == 0 { current + 1 } else { current.saturating_sub(1) });
        let before = self.seen.trace.len();
        let input = match self.below(4) {
            0 => Input::Dialled { link },
            1 => Input::DialFailed { link },
            2 => Input::Disconnected { link },
            _ => Input::Received { link, bytes: Bytes::from_static(b"\xff\xff\xff\xff") },
        };
        self.step(input);
        assert_eq!(self.seen.trace.len(), before, "nothing follows from a link that is not ours");
    }

    fn mishap(&mut self) {
        let kind = self.below(4);
        let Some(server) = self.server.as_mut().filter(|server| server.stands) else {
            return;
        };
        match kind {
            0 => server.outbound.extend([0xff; 4]),
            1 => Self::answer(server, &Reply { xid: 9_999, zxid: 1, result: Ok(ReplyBody::Empty) }),
            _ => {
                let link = server.link;
                self.server = None;
                self.step(Input::Disconnected { link });
            }
        }
    }

    fn step(&mut self, input: Input) {
        let mut out = Outbox::default();
        self.session.step(self.now, input, &mut out);
        self.seen.trace += &out.to_string();
        for effect in out.effects {
            match effect {
                Effect::Dial { link, server: _ } => {
                    assert!(self.server.is_none(), "one link at a time");
                    self.server = Some(Server {
                        link,
                        stands: false,
                        frames: ClientFrames::new(MAX_FRAME_DEFAULT),
                        inbound: BytesMut::new(),
                        last_xid: 0,
                        outbound: VecDeque::new(),
                    });
                }
                Effect::Send { link, bytes } => self.serve(link, &bytes),
                Effect::HangUp { link } => {
                    let server = self.server.take().expect("a link to hang up");
                    assert_eq!(server.link, link);
                }
                Effect::Completed(CallId(call), result) => {
                    self.ended(call, result.map(|done| done.body))
                }
                Effect::Event(event) => {
                    assert!(event.path.starts_with("/n"), "{}", event.path);
                    self.seen.events += 1;
                }
                Effect::PresumedExpired => assert!(self.session.is_presumed_expired()),
                Effect::State(state) => match state {
                    State::Expired => self.seen.expired += 1,
                    State::Closed => self.seen.closed += 1,
                    State::Connecting
                    | State::Connected
                    | State::ConnectedReadOnly
                    | State::AuthFailed => {}
                },
            }
        }
        let server = self.server.as_ref().map(|server| server.stands);
        assert!(self.session.state() != State::Connected || server == Some(true));
    }

    fn ended(&mut self, call: u64, result: Result<ReplyBody, Failure>) {
        let request = self.open.remove(&call).expect("a call ends once");
        match result {
            Ok(body) => {
                self.seen.done += 1;
                assert_eq!(body, body_for(request.reply_kind()), "another call's answer");
            }
            Err(Failure::ConnectionLoss) => self.seen.lost += 1,
            Err(Failure::Code(_)) => {}
            Err(_) => return,
        }
        assert!(self.last_ended < call, "{call} after {}", self.last_ended);
        self.last_ended = call;
    }

    /// The server reads and answers at once; some sessions have expired, some nodes do not exist.
    fn serve(&mut self, link: LinkId, bytes: &[u8]) {
        let (expired, unlucky) = (self.below(30) == 0, self.below(3) == 0);
        let server = self.server.as_mut().expect("a link to send on");
        assert!(server.link == link && server.stands);
        server.inbound.extend_from_slice(bytes);
        if !server.frames.is_open() {
            let first = server.frames.first(&mut server.inbound).expect("well formed");
            let Some(FirstFrame::Connect(_)) = first else { panic!("{first:?}") };
            let mut response = ConnectResponse::refused(Some(false));
            if !expired {
                (response.session, response.timeout_ms) = (SessionId(5), 3_000);
            }
            let mut bytes = BytesMut::new();
            response.encode(&mut bytes);
            server.outbound.extend(bytes);
        }
        while let Some(frame) = server.frames.next(&mut server.inbound).expect("well formed") {
            let RequestFrame { xid, request } = frame;
            if xid > 0 {
                assert!(xid > server.last_xid, "numbers rise");
                server.last_xid = xid;
                self.zxid += 1;
            }
            let refused = unlucky && matches!(request, Request::SetData { .. });
            let body = body_for(request.reply_kind());
            let result = if refused { Err(ErrorCode::BadVersion) } else { Ok(body) };
            let zxid = if xid == XID_PING { 0 } else { self.zxid };
            Self::answer(server, &Reply { xid, zxid, result });
        }
        assert!(self.session.last_zxid() <= Zxid::from_wire(self.zxid));
    }

    fn answer(server: &mut Server, reply: &Reply) {
        let mut bytes = BytesMut::new();
        reply.encode(&mut bytes);
        server.outbound.extend(bytes);
    }
}

fn body_for(kind: ReplyKind) -> ReplyBody {
    let stat = Stat::default();
    match kind {
        ReplyKind::Empty => ReplyBody::Empty,
        ReplyKind::Path => ReplyBody::Path(String::new()),
        ReplyKind::PathStat => ReplyBody::PathStat(String::new(), stat),
        ReplyKind::Stat => ReplyBody::Stat(stat),
        ReplyKind::Acl => ReplyBody::Acl(vec![], stat),
        ReplyKind::Number => ReplyBody::Number(0),
        ReplyKind::Token => ReplyBody::Token(None),
        ReplyKind::NullPath => ReplyBody::NullPath,
        ReplyKind::Identities => ReplyBody::Identities(vec![]),
        ReplyKind::Data => ReplyBody::Data(None, stat),
        ReplyKind::Children => ReplyBody::Children(vec![]),
        ReplyKind::ChildrenStat => ReplyBody::ChildrenStat(vec!["c".into()], stat),
        ReplyKind::Multi => {
            ReplyBody::Multi(vec![MultiResult::Changed(stat), MultiResult::Deleted])
        }
    }
}
