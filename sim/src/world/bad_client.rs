//! Bad clients: client connections that violate the protocol, by silence, truncation, garbage or
//! wrong passwords.
//!
//! Owns what they send. They must not disturb other clients: the oracles check that meanwhile.

use bytes::{BufMut, Bytes, BytesMut};
use zabkeeper_core::wire::{
    Acl, ConnectRequest, ConnectResponse, FourLetterCommand, OpCode, Request, RequestFrame, Secret,
    XID_AUTH,
};
use zabkeeper_core::{ConnId, ServerId, SessionId, Zxid};

use super::World;
use crate::check::checker::Check;
use crate::check::observe::Observation;
use crate::clients::client::{Client, whole_frame};
use crate::clients::workload::ENSEMBLE;
use crate::faults::catalog::Fault;
use crate::network::stream::{Delivery, End, Party};
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::record::trace::Kind;
use crate::world::shared::Event;

const MS: u64 = 1_000_000;

/// One such connection.
#[derive(Debug)]
pub(super) struct BadClient {
    visit: Visit,
    sent: bool,
    read: BytesMut,
}

/// What a bad client is about to do.
#[derive(Debug)]
struct Visit {
    server: ServerId,
    bytes: Bytes,
    /// The session that it asks for.
    session: Option<SessionId>,
    /// It presents a wrong password, so the only legal answer is a refusal.
    wrong_password: bool,
    /// It is an operator's connection, which reads text instead of frames.
    reads_text: bool,
    /// Delay before it sends, ns.
    wait: u64,
    /// Time until it disconnects after sending, ns.
    stay: u64,
}

/// What a bad client sends.
#[derive(Clone, Copy, Debug)]
enum Nonsense {
    Silence,
    HalfFrame,
    Oversized,
    Negative,
    Noise,
    Word,
    CutHandshake,
    HalfRequest,
    ShortHeader,
    UnknownOperation,
    CutRequest,
    FromTheFuture,
    BadMode,
    BadKind,
    Inner,
    NoPath,
    Mixed,
    Token,
    NoToken,
    HalfAuth,
    ManyNames,
    Reconfig,
    AfterClose,
    Cut,
    BrokenText,
    NoList,
    Parts,
    HalfMulti,
}

const NONSENSE: [Nonsense; 28] = [
    Nonsense::Silence,
    Nonsense::HalfFrame,
    Nonsense::Oversized,
    Nonsense::Negative,
    Nonsense::Noise,
    Nonsense::Word,
    Nonsense::CutHandshake,
    Nonsense::HalfRequest,
    Nonsense::ShortHeader,
    Nonsense::UnknownOperation,
    Nonsense::CutRequest,
    Nonsense::FromTheFuture,
    Nonsense::BadMode,
    Nonsense::BadKind,
    Nonsense::Inner,
    Nonsense::NoPath,
    Nonsense::Mixed,
    Nonsense::Token,
    Nonsense::NoToken,
    Nonsense::HalfAuth,
    Nonsense::ManyNames,
    Nonsense::Reconfig,
    Nonsense::AfterClose,
    Nonsense::Cut,
    Nonsense::BrokenText,
    Nonsense::NoList,
    Nonsense::Parts,
    Nonsense::HalfMulti,
];

/// The commands whose answers contain most, or cost most.
const FAVOURED: [FourLetterCommand; 9] = [
    FourLetterCommand::Cons,
    FourLetterCommand::Dump,
    FourLetterCommand::Mntr,
    FourLetterCommand::Srst,
    FourLetterCommand::Srvr,
    FourLetterCommand::Stat,
    FourLetterCommand::Wchc,
    FourLetterCommand::Wchp,
    FourLetterCommand::Wchs,
];

impl World {
    /// A bad client connects and will send garbage.
    pub(super) fn send_garbage(&mut self, server: ServerId) -> bool {
        let rng = &mut self.fault_rng[Fault::ClientGarbage as usize];
        let kind = *rng.pick(&NONSENSE);
        let mut noise = [0; 40];
        rng.fill(&mut noise);
        self.send_bad_client(server, nonsense(kind, &noise))
    }

    /// An operator sends some four-letter commands, each on its own connection.
    pub(super) fn send_operator(&mut self, server: ServerId) -> bool {
        let rng = &mut self.fault_rng[Fault::ClientOperator as usize];
        let all: Vec<FourLetterCommand> = FourLetterCommand::all().collect();
        let commands: Vec<FourLetterCommand> = (0..=rng.below(4))
            .map(|_| if rng.chance(1, 2) { *rng.pick(&FAVOURED) } else { *rng.pick(&all) })
            .collect();
        commands.into_iter().fold(false, |any, command| self.send_command(server, command) | any)
    }

    fn send_command(&mut self, server: ServerId, command: FourLetterCommand) -> bool {
        let mut bytes = BytesMut::new();
        if command == FourLetterCommand::TelnetClose {
            bytes.put_slice(b"\xff\xf4\xff\xfd");
        } else {
            bytes.put_slice(command.name().as_bytes());
        }
        if command == FourLetterCommand::Stmk {
            bytes.put_i64(0);
        }
        self.shared.describe(|| format!("{} of s{server}", command.name()));
        let visit = self.visit(server, None, bytes.freeze());
        self.begin_visit(Visit { reads_text: true, ..visit })
    }

    /// A bad client asks for a live session with a wrong password.
    pub(super) fn try_wrong_password(&mut self, server: ServerId) -> bool {
        let rng = &mut self.fault_rng[Fault::ClientWrongPassword as usize];
        let known: Vec<_> = self.clients.values().filter_map(|client| client.identity()).collect();
        if known.is_empty() {
            return false;
        }
        let (session, mut password) = *rng.pick(&known);
        let place = rng.index(password.len());
        password[place] ^= 1 << rng.below(8);
        let password = Bytes::copy_from_slice(&password[..15 + rng.upto(1)]);
        let bytes = handshake((session, password), Zxid::ZERO, false);
        let visit = self.visit(server, Some(session), bytes);
        self.begin_visit(Visit { wrong_password: true, ..visit })
    }

    /// A second connection takes over a live session with its correct password, and creates a node
    /// in its name. The session's client does not know, and reconnects. The variants: at the
    /// client's own server, at two servers at once, at a server whose role is to lead (possibly a
    /// deposed one), or disconnecting with requests in flight and connecting again.
    pub(super) fn take_over(&mut self, server: ServerId) -> bool {
        // Of several leaders the one with the oldest epoch. A deposed leader that has not yet
        // noticed is the most interesting target, and short-lived; it does not know the newest
        // session.
        let leaders = self.leaders_by_epoch();
        let (leader, stale) = (leaders.first().copied(), leaders.len() > 1);
        let rng = &mut self.fault_rng[Fault::ClientDuplicate as usize];
        let known = |client: &Client| Some((client.memory()?, client.conns().next()));
        let known: Vec<_> = self.clients.values().filter_map(known).collect();
        // A session id holds the creating server's id in the top byte, and below it a counter that
        // starts from the time. Without the top byte the highest id is about the newest session.
        let Some(newest) = known.iter().max_by_key(|((session, ..), _)| session.0 << 8).copied()
        else {
            return false;
        };
        let ((session, password, seen), conn) =
            if rng.chance(if stale { 2 } else { 1 }, 3) { newest } else { *rng.pick(&known) };
        // In half of the cases the connection knows only id and password, not the last zxid.
        let seen = if rng.chance(1, 2) { Zxid::ZERO } else { seen };
        let home = match conn.and_then(|conn| self.shared.net.parties(conn)) {
            Some([_, Party::Server(home)]) => home,
            Some(_) | None => server,
        };
        let way = if stale && rng.chance(2, 3) { 2 } else { rng.below(6) };
        let mut bytes = BytesMut::from(
            &handshake((session, Bytes::copy_from_slice(&password)), seen, false)[..],
        );
        let path = format!("/twin-{}", rng.below(4));
        let flags = if rng.chance(1, 2) { 1 } else { 0 };
        let again = rng.below(20) * MS;
        let create =
            Request::Create { path, data: None, acl: Acl::open(), flags, with_stat: false };
        for (xid, request) in (1..).zip([Request::WhoAmI, create, Request::WhoAmI]) {
            RequestFrame { xid, request }.encode(&mut bytes);
        }
        let bytes = bytes.freeze();
        let mut at = |server| self.visit(server, Some(session), bytes.clone());
        let visits = match way {
            0 => vec![at(home)],
            1 => vec![at(home), at(server)],
            2 => vec![at(leader.unwrap_or(server))],
            3 => vec![Visit { stay: 0, ..at(home) }, Visit { wait: again, ..at(home) }],
            _ => vec![at(server)],
        };
        visits.into_iter().fold(false, |any, visit| self.begin_visit(visit) | any)
    }

    fn visit(&mut self, server: ServerId, session: Option<SessionId>, bytes: Bytes) -> Visit {
        let stay = self.injection_rng().range(10, 5_000) * MS;
        Visit { server, bytes, session, wrong_password: false, reads_text: false, wait: 0, stay }
    }

    fn send_bad_client(&mut self, server: ServerId, bytes: Bytes) -> bool {
        let visit = self.visit(server, None, bytes);
        self.begin_visit(visit)
    }

    /// Returns whether the connection was accepted.
    fn begin_visit(&mut self, visit: Visit) -> bool {
        let (server, wait, session) = (visit.server, visit.wait, visit.session);
        let client = self.next_client();
        let (Some(conn), after) = self.dial(client, server) else {
            return false;
        };
        self.bad_clients.insert(conn, BadClient { visit, sent: false, read: BytesMut::new() });
        let wants = || session.map(|id| format!(" for session {id}")).unwrap_or_default();
        self.shared
            .describe(|| format!("bad client {} connects to s{server}{}", client.0, wants()));
        let connected = ClientRunEvent::BadClientConnected { conn, server, session };
        self.shared.record(&RunEvent::Client(client, connected));
        self.shared.after(after + wait, Event::BadClient { conn, server });
        true
    }

    /// The bad client sends its bytes; in its second turn it disconnects.
    pub(super) fn bad_client_turn(&mut self, conn: ConnId, server: ServerId) {
        let shared = &mut self.shared;
        let Some(bad_client) = self.bad_clients.get_mut(&conn) else {
            return;
        };
        if bad_client.sent {
            self.bad_clients.remove(&conn);
            shared.net.close(shared.now, conn, End::Dialler);
            shared.observe(Observation::ConnClosed { conn });
            return shared.schedule_arrivals();
        }
        bad_client.sent = true;
        let (bytes, stay) = (bad_client.visit.bytes.clone(), bad_client.visit.stay);
        let mut frames = BytesMut::from(&bytes[..]);
        while let Some(frame) = whole_frame(&mut frames) {
            shared.observe(Observation::ToServer { conn, frame });
        }
        shared.note(Kind::Send, (server.0, conn.0), &bytes, || {
            format!("bad client -> {conn} {}B {bytes:?}", bytes.len())
        });
        shared.net.send(shared.now, conn, End::Dialler, bytes);
        shared.schedule_arrivals();
        shared.after(stay, Event::BadClient { conn, server });
    }

    /// A delivery arrives at a bad client.
    pub(super) fn bad_client_receives(&mut self, conn: ConnId, delivery: Delivery) {
        let shared = &mut self.shared;
        let Some(bad_client) = self.bad_clients.get_mut(&conn) else {
            return;
        };
        match delivery {
            Delivery::Nothing | Delivery::Later(_) => {}
            Delivery::Bytes(bytes) => {
                shared.note(Kind::Receive, (0, conn.0), &bytes, || {
                    format!("bad client <- {conn} {}B {bytes:?}", bytes.len())
                });
                bad_client.read.extend_from_slice(&bytes);
                while !bad_client.visit.reads_text
                    && let Some(frame) = whole_frame(&mut bad_client.read)
                {
                    if bad_client.visit.wrong_password {
                        let answer = ConnectResponse::decode(frame.clone());
                        let refused = answer.is_ok_and(|answer| answer.timeout_ms == 0);
                        let evidence = format!("{conn} was let in with a wrong password");
                        let found = if refused { Ok(()) } else { Err(evidence) };
                        shared.check(Check::PASSWORD, found);
                    }
                    shared.observe(Observation::ToClient { conn, frame });
                }
            }
            Delivery::Closed | Delivery::Reset => {
                if bad_client.visit.reads_text && delivery == Delivery::Closed {
                    let text = bad_client.read.split().freeze();
                    shared.observe(Observation::AnswerRead { conn, text });
                }
                self.bad_clients.remove(&conn);
                shared.net.close(shared.now, conn, End::Dialler);
                shared.observe(Observation::ConnClosed { conn });
                shared.schedule_arrivals();
            }
        }
    }

    /// Number of bad clients that are connected.
    pub(super) fn bad_clients(&self) -> usize {
        self.bad_clients.len()
    }
}

fn handshake(
    (session, password): (SessionId, Bytes),
    last_zxid_seen: Zxid,
    read_only: bool,
) -> Bytes {
    let request = ConnectRequest {
        last_zxid_seen,
        timeout_ms: 3_000,
        session,
        password,
        read_only: Some(read_only),
    };
    let mut bytes = BytesMut::new();
    request.encode(&mut bytes);
    bytes.freeze()
}

fn nonsense(kind: Nonsense, noise: &[u8; 40]) -> Bytes {
    let mut bytes = BytesMut::new();
    let nobody = (SessionId(0), Bytes::from_static(&[0; 16]));
    // Half of them accept a read-only server.
    let hello_after = |seen| handshake(nobody.clone(), seen, noise[39] & 1 == 1);
    let hello = || hello_after(Zxid::ZERO);
    match kind {
        Nonsense::Silence => {}
        Nonsense::HalfFrame => {
            bytes.put_i32(44);
            bytes.put_slice(&noise[..10]);
        }
        Nonsense::Oversized => bytes.put_i32(0x10_0000),
        Nonsense::Negative => bytes.put_i32(-5),
        Nonsense::Noise => bytes.put_slice(noise),
        Nonsense::Word => bytes.put_slice(b"ruok"),
        Nonsense::CutHandshake => {
            bytes.put_i32(20);
            bytes.put_slice(&noise[..20]);
        }
        Nonsense::HalfRequest => {
            bytes.put_slice(&hello());
            bytes.put_i32(100);
            bytes.put_slice(&noise[..9]);
        }
        Nonsense::ShortHeader => {
            bytes.put_slice(&hello());
            bytes.put_i32(5);
            bytes.put_slice(&noise[..5]);
        }
        Nonsense::UnknownOperation => {
            bytes.put_slice(&hello());
            bytes.put_i32(8);
            bytes.put_i32(1);
            bytes.put_i32(777);
        }
        Nonsense::CutRequest => {
            // setData whose path is longer than the frame.
            bytes.put_slice(&hello());
            bytes.put_i32(14);
            bytes.put_i32(1);
            bytes.put_i32(5);
            bytes.put_i32(400);
            bytes.put_slice(b"/x");
        }
        // addWatch with mode 7 (edge 115), followed by a valid request.
        Nonsense::BadMode => request(&mut bytes, &hello(), 106, &[0, 0, 0, 1, b'/', 0, 0, 0, 7]),
        // removeWatches of kind 9 (edge 118).
        Nonsense::BadKind => request(&mut bytes, &hello(), 18, &[0, 0, 0, 1, b'/', 0, 0, 0, 9]),
        // deleteContainer or createSession sent by a client (edges 57 and 58).
        Nonsense::Inner => {
            let op = if noise[0] & 1 == 0 { 20 } else { -10 };
            request(&mut bytes, &hello(), op, &[0, 0, 0, 2, b'/', b'c']);
        }
        // exists, getData, setData, sync and setACL of a null path.
        Nonsense::NoPath => {
            let op = [3, 4, 5, 9, 7, 3, 3, 3][usize::from(noise[0]) % 8];
            let body = [0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
            request(&mut bytes, &hello(), op, &body);
        }
        // getData in a multi (edge 92).
        Nonsense::Mixed => {
            let body =
                [&4_i32.to_be_bytes()[..], &[0], &[0xff; 4], &[0, 0, 0, 1, b'/', 0]].concat();
            request(&mut bytes, &hello(), 14, &body);
        }
        // A SASL token without SASL configured (OP-102), and a null token.
        Nonsense::Token => request(&mut bytes, &hello(), 102, &[0, 0, 0, 1, b't']),
        Nonsense::NoToken => request(&mut bytes, &hello(), 102, &[0xff; 4]),
        // An auth packet that is truncated, of a scheme that the client cannot prove, or naming an
        // ensemble (ACL-14).
        Nonsense::HalfAuth if noise[0] & 1 == 0 => {
            request(&mut bytes, &hello(), 100, &[0, 0, 0, 0, 0, 0, 0, 9, b'd']);
        }
        Nonsense::HalfAuth => {
            let packets =
                [("x509", ""), ("ensemble", ENSEMBLE), ("ensemble", ""), ("ensemble", "elsewhere")];
            let (scheme, auth) = packets[usize::from(noise[1]) % packets.len()];
            let (scheme, auth) = (scheme.to_owned(), Secret::from(auth));
            bytes.put_slice(&hello());
            for (xid, request) in [(XID_AUTH, Request::Auth { scheme, auth }), (1, Request::WhoAmI)]
            {
                RequestFrame { xid, request }.encode(&mut bytes);
            }
        }
        // More auth data than one connection may hold: several such packets are too many.
        Nonsense::ManyNames => {
            bytes.put_slice(&hello());
            for user in 0..5_u8 {
                let name = [&[b'a' + user; 300_000][..], b":x"].concat();
                let auth = Secret(Some(Bytes::from(name)));
                let request = Request::Auth { scheme: "digest".to_owned(), auth };
                RequestFrame { xid: XID_AUTH, request }.encode(&mut bytes);
            }
        }
        Nonsense::Reconfig => {
            let body = [&[0xff; 12][..], &(-1_i64).to_be_bytes()].concat();
            request(&mut bytes, &hello(), 16, &body);
        }
        // A request after closeSession.
        Nonsense::AfterClose => request(&mut bytes, &hello(), -11, &[]),
        // A truncated body for a random operation.
        Nonsense::Cut => {
            let known: Vec<i32> =
                (-11..200).filter(|op| OpCode::from_wire(*op).is_some()).collect();
            let op = known[usize::from(noise[0]) % known.len()];
            let body = [0, 0, 0, 2, b'/', b'n', 0, 0, 0, 1, b'x', 0, 0, 0, 0];
            request(&mut bytes, &hello(), op, &body[..usize::from(noise[1]) % body.len()]);
        }
        // exists of a path that is not UTF-8: a surrogate, and an invalid byte.
        Nonsense::BrokenText => {
            let path = [0, 0, 0, 6, b'/', 0xed, 0xa0, 0x80, 0xff, b'x', 0];
            request(&mut bytes, &hello(), 3, &path);
        }
        // create without an ACL, alone and in a multi; a multi with an operation of a null path.
        Nonsense::NoList => {
            let create = [&[0, 0, 0, 2, b'/', b'l'][..], &[0xff; 8], &[0; 4]].concat();
            match noise[0] % 3 {
                0 => request(&mut bytes, &hello(), 1, &create),
                1 => request(&mut bytes, &hello(), 14, &multi(1, &create)),
                _ => request(&mut bytes, &hello(), 14, &multi(2, &[0xff; 8])),
            }
        }
        // A write in a multiRead, and operations that a multi cannot contain (MULTI-06).
        Nonsense::Parts => {
            let delete = [0, 0, 0, 2, b'/', b'p', 0xff, 0xff, 0xff, 0xff];
            let (op, part) =
                *[(22, 2), (14, 16), (14, 777)].get(usize::from(noise[0]) % 3).expect("three");
            request(&mut bytes, &hello(), op, &multi(part, &delete));
        }
        // A multi whose last operation has a null path, followed by its first operation as a
        // separate request.
        Nonsense::HalfMulti => {
            let path = format!("/half-{}", noise[0]);
            let create =
                Request::Create { path, data: None, acl: Acl::open(), flags: 1, with_stat: false };
            let mut whole = BytesMut::new();
            let request = Request::Multi(vec![create.clone()]);
            RequestFrame { xid: 1, request }.encode(&mut whole);
            let operation = &whole[12..whole.len() - MULTI_END];
            let body = [operation, &multi(2, &[0xff; 8])].concat();
            bytes.put_slice(&hello());
            frame(&mut bytes, 14, &body);
            for (xid, request) in [(2, create), (3, Request::WhoAmI)] {
                RequestFrame { xid, request }.encode(&mut bytes);
            }
        }
        // A last zxid that no server has reached (HS-05).
        Nonsense::FromTheFuture => bytes.put_slice(&hello_after(Zxid(u64::MAX >> 1))),
    }
    bytes.freeze()
}

/// Bytes of the header that ends a multi.
const MULTI_END: usize = 9;

/// The body of a multi with one operation.
fn multi(op: i32, body: &[u8]) -> Vec<u8> {
    let none: [u8; MULTI_END] = [0xff, 0xff, 0xff, 0xff, 1, 0xff, 0xff, 0xff, 0xff];
    [&op.to_be_bytes()[..], &[0], &[0xff; 4], body, &none].concat()
}

/// A handshake, a request of this operation, and one that is answered if the connection lasts.
fn request(bytes: &mut BytesMut, hello: &[u8], op: i32, body: &[u8]) {
    bytes.put_slice(hello);
    frame(bytes, op, body);
    RequestFrame { xid: 2, request: Request::WhoAmI }.encode(bytes);
}

/// The first request of a connection.
fn frame(bytes: &mut BytesMut, op: i32, body: &[u8]) {
    bytes.put_i32(8 + i32::try_from(body.len()).expect("short"));
    bytes.put_i32(1);
    bytes.put_i32(op);
    bytes.put_slice(body);
}
