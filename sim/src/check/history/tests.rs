//! Histories of two clients on two servers: each scenario runs once as it should be, and once with
//! the fault that its promise forbids.

use bytes::{Bytes, BytesMut};
use zabkeeper_core::store::Entry;
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::{
    Acl, ConnectRequest, ConnectResponse, EventType, Password, ReconfigRequest, Reply, ReplyBody,
    Request, RequestFrame, WatchEvent,
};
use zabkeeper_core::{AuthOptions, ConnId, ErrorCode, Instant, ServerId, SessionId, WallMs, Zxid};

use super::{History, Record, Recorded};
use crate::check::ensemble::{PARTICIPANT, line};
use crate::check::model::{Asker, Model, Rules};
use crate::check::observe::ClientId;

const TIMEOUT_MS: i32 = 4_000;
/// The connections of the two clients.
const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);

/// Writes a recording and the log beside it.
struct Script {
    model: Model,
    log: Vec<Entry>,
    recorded: Vec<Recorded>,
    xids: i32,
}

impl Script {
    /// Both clients have their sessions, and `/k` has version 0.
    fn new() -> Script {
        Script::with(Rules::default())
    }

    fn with(rules: Rules) -> Script {
        let model = Model::new(rules);
        let mut script = Script { model, log: Vec::new(), recorded: Vec::new(), xids: 0 };
        script.opens(A);
        script.opens(B);
        script.writes(A, create("/k", "first value"));
        script
    }

    fn record(&mut self, conn: ConnId, what: Record) {
        let at = Instant(self.recorded.len() as u64 + 1);
        self.recorded.push(Recorded { at, conn, what });
    }

    fn opens(&mut self, conn: ConnId) {
        self.greets(conn);
        let session = self.begins(conn);
        self.welcomes(conn, session);
    }

    fn greets(&mut self, conn: ConnId) {
        self.greets_as(conn, server(conn), SessionId(0), [0; 16]);
    }

    fn greets_as(&mut self, conn: ConnId, server: ServerId, session: SessionId, secret: Password) {
        let client = ClientId(u32::try_from(conn.0 % 10).unwrap());
        self.record(conn, Record::Opened { client, server });
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: TIMEOUT_MS,
            session,
            password: Bytes::copy_from_slice(&secret),
            read_only: None,
        };
        self.record(conn, Record::Sent(frame(|out| request.encode(out))));
    }

    /// The client of this connection closes it and asks for its session at the other server.
    fn moves(&mut self, from: ConnId, to: ConnId, server: ServerId) {
        self.record(from, Record::Closed);
        self.greets_as(to, server, session(from), password(session(from)));
    }

    /// The server counts its connections from 70 on, which no client knows.
    fn begins(&mut self, conn: ConnId) -> SessionId {
        let op = TxnOp::CreateSession { timeout_ms: TIMEOUT_MS.cast_unsigned() };
        self.commits(conn, session(conn), 0, op);
        session(conn)
    }

    fn welcomes(&mut self, conn: ConnId, session: SessionId) {
        let password = password(session);
        let response =
            ConnectResponse { timeout_ms: TIMEOUT_MS, session, password, read_only: None };
        self.record(conn, Record::Received(frame(|out| response.encode(out))));
    }

    fn refuses(&mut self, conn: ConnId) {
        let response = ConnectResponse::refused(None);
        self.record(conn, Record::Received(frame(|out| response.encode(out))));
    }

    fn expires(&mut self, session: SessionId) {
        let zxid = Zxid(self.tip().0 + 1);
        let op = TxnOp::CloseSession;
        let txn = Txn { zxid, session, time: WallMs(9), origin: None, op };
        self.log.push(txn.encode());
        self.model.apply(txn).expect("it was alive");
    }

    fn commits(&mut self, conn: ConnId, session: SessionId, request: u64, op: TxnOp) -> Zxid {
        let zxid = Zxid(self.model.tip().0.max(1 << 32) + 1);
        let origin = Some(Origin { server: server(conn), conn: ConnId(70 + conn.0), request });
        let txn = Txn { zxid, session, time: WallMs(7), origin, op };
        self.log.push(txn.encode());
        self.model.apply(txn).expect("a right transaction");
        zxid
    }

    fn sends(&mut self, conn: ConnId, request: &Request) -> i32 {
        self.xids += 1;
        let xid = self.xids;
        let request = RequestFrame { xid, request: request.clone() };
        self.record(conn, Record::Sent(frame(|out| request.encode(out))));
        xid
    }

    /// The servers commit the right outcome of a write.
    fn executes(&mut self, conn: ConnId, request: &Request) -> Zxid {
        let session = session(conn);
        let ids = self.model.rules().opened("10.0.0.1", None);
        let op = self.model.decide(Asker { session, ids: &ids }, request).expect("a write");
        let count = self.log.len() as u64;
        self.commits(conn, session, count, op)
    }

    fn answers(
        &mut self,
        conn: ConnId,
        xid: i32,
        zxid: Zxid,
        result: Result<ReplyBody, ErrorCode>,
    ) {
        let reply = Reply { xid, zxid: zxid.0.cast_signed(), result };
        self.record(conn, Record::Received(frame(|out| reply.encode(out))));
    }

    fn right(&self, zxid: Zxid, request: &Request) -> Result<ReplyBody, ErrorCode> {
        self.model.logged(zxid).expect("committed").answer(request)
    }

    /// A write with its answer.
    fn writes(&mut self, conn: ConnId, request: Request) -> Zxid {
        let xid = self.sends(conn, &request);
        let zxid = self.executes(conn, &request);
        let right = self.right(zxid, &request);
        self.answers(conn, xid, zxid, right);
        zxid
    }

    /// A read or sync that shows the state at this zxid.
    fn reads_at(&mut self, conn: ConnId, request: Request, zxid: Zxid) {
        let xid = self.sends(conn, &request);
        let session = session(conn);
        let right = self.model.read(Asker { session, ids: &[] }, &request, zxid);
        self.answers(conn, xid, zxid, right.expect("a read"));
    }

    fn tip(&self) -> Zxid {
        self.model.tip()
    }
}

/// The server of a connection: a client's second connection is to server 3.
fn server(conn: ConnId) -> ServerId {
    if conn.0 > 10 { ServerId(3) } else { ServerId(conn.0) }
}

/// The session of a client, which all its connections share.
fn session(conn: ConnId) -> SessionId {
    SessionId(0x100 + i64::try_from(conn.0 % 10).unwrap())
}

fn password(session: SessionId) -> Password {
    [session.0.to_le_bytes()[0] + 1; 16]
}

fn frame(encode: impl Fn(&mut BytesMut)) -> Bytes {
    let mut out = BytesMut::new();
    encode(&mut out);
    out.freeze().slice(4..)
}

fn create(path: &str, data: &str) -> Request {
    let data = Some(Bytes::copy_from_slice(data.as_bytes()));
    Request::Create { path: path.into(), data, acl: Acl::open(), flags: 0, with_stat: false }
}

fn set(data: &str) -> Request {
    let data = Some(Bytes::copy_from_slice(data.as_bytes()));
    Request::SetData { path: "/k".into(), data, version: -1 }
}

fn get() -> Request {
    Request::GetData { path: "/k".into(), watch: false }
}

fn sync() -> Request {
    Request::Sync { path: "/k".into() }
}

#[track_caller]
fn verdict(script: Script) -> Result<Vec<(&'static str, u64)>, &'static str> {
    let rules = script.model.rules().clone();
    let history = History::new(script.recorded, &script.log).expect("transactions");
    history.check(rules).map_err(|violation| {
        assert!(!violation.evidence.is_empty(), "a violation must be explained");
        violation.id
    })
}

/// Runs a scenario without its fault, which must pass, and with it.
#[track_caller]
fn check_pair(id: &str, scenario: impl Fn(&mut Script, bool)) {
    let [mut right, mut wrong] = [Script::new(), Script::new()];
    scenario(&mut right, false);
    let checks = verdict(right).expect("a false alarm");
    let count = checks.iter().find(|(other, _)| *other == id).map(|(_, count)| *count);
    assert!(count > Some(0), "{id} was not checked");
    scenario(&mut wrong, true);
    assert_eq!(verdict(wrong).err(), Some(id));
}

/// A write that is sent after its transaction was shown breaks C1; the log has no request for it
/// then, which is C8.
#[test]
fn write_comes_after_what_clients_had_read_when_it_was_sent() {
    check_pair("C8", |script, wrong| {
        let early = set("executed early");
        let sent = script.recorded.len();
        let xid = script.sends(A, &early);
        let zxid = script.executes(A, &early);
        script.writes(B, set("executed later"));
        if wrong {
            script.recorded[sent..].rotate_left(1);
        }
        let right = script.right(zxid, &early);
        script.answers(A, xid, zxid, right);
    });
}

#[test]
fn answers_come_in_the_order_of_requests() {
    check_pair("C2", |script, wrong| {
        let [first, second] = [script.sends(A, &get()), script.sends(A, &sync())];
        let tip = script.tip();
        let data = script.model.read(Asker { session: session(A), ids: &[] }, &get(), tip).unwrap();
        if wrong {
            script.answers(A, second, tip, Ok(ReplyBody::Path("/k".into())));
        }
        script.answers(A, first, tip, data);
        if !wrong {
            script.answers(A, second, tip, Ok(ReplyBody::Path("/k".into())));
        }
    });
}

#[test]
fn state_of_a_session_does_not_go_back() {
    check_pair("C3", |script, wrong| {
        let old = script.tip();
        let new = script.writes(A, set("second value"));
        script.reads_at(B, get(), new);
        script.reads_at(B, get(), if wrong { old } else { new });
    });
}

#[test]
fn read_shows_the_state_at_its_zxid() {
    check_pair("C3", |script, wrong| {
        let old = script.tip();
        let new = script.writes(A, set("second value"));
        let shown = if wrong { old } else { new };
        let stale = script.model.read(Asker { session: session(B), ids: &[] }, &get(), shown);
        let xid = script.sends(B, &get());
        script.answers(B, xid, new, stale.unwrap());
    });
}

#[test]
fn session_reads_its_own_write() {
    check_pair("C4", |script, wrong| {
        let old = script.tip();
        let new = script.writes(A, set("second value"));
        script.reads_at(A, get(), if wrong { old } else { new });
    });
}

#[test]
fn sync_shows_what_was_acknowledged_before_it() {
    check_pair("C5", |script, wrong| {
        let old = script.tip();
        let new = script.writes(A, set("second value"));
        script.reads_at(B, sync(), if wrong { old } else { new });
    });
}

#[test]
fn acknowledged_write_is_in_the_log() {
    check_pair("C7", |script, wrong| {
        script.writes(A, set("second value"));
        if wrong {
            script.log.pop();
        }
    });
}

#[test]
fn acknowledged_write_has_its_place_in_a_log_that_went_on() {
    check_pair("C7", |script, wrong| {
        let log = script.log.len();
        script.writes(A, set("second value"));
        if wrong {
            // Another epoch has begun without the write.
            script.log.truncate(log);
            let zxid = Zxid((2 << 32) + 1);
            let op = TxnOp::CloseSession;
            let txn = Txn { zxid, session: session(B), time: WallMs(9), origin: None, op };
            script.log.push(txn.encode());
        }
    });
}

#[test]
fn write_is_executed_once() {
    check_pair("C8", |script, wrong| {
        script.writes(A, set("second value"));
        if wrong {
            script.executes(A, &set("second value"));
        }
    });
}

#[test]
fn failed_write_leaves_no_effect() {
    check_pair("C8", |script, wrong| {
        let xid = script.sends(A, &set("second value"));
        let zxid = script.executes(A, &set("second value"));
        let right = script.right(zxid, &set("second value"));
        script.answers(A, xid, zxid, if wrong { Err(ErrorCode::BadVersion) } else { right });
    });
}

#[test]
fn one_of_two_creates_succeeds() {
    check_pair("C9", |script, wrong| {
        script.writes(A, create("/new", "of the one"));
        let other = create("/new", "of the other");
        let xid = script.sends(B, &other);
        let zxid = script.executes(B, &other);
        let right = script.right(zxid, &other);
        assert_eq!(right, Err(ErrorCode::NodeExists));
        let success = Ok(ReplyBody::Path("/new".into()));
        script.answers(B, xid, zxid, if wrong { success } else { right });
    });
}

#[test]
fn versions_rise_by_one() {
    check_pair("C9", |script, wrong| {
        script.writes(A, set("second value"));
        script.writes(A, set("third value"));
        if wrong {
            let last = Txn::decode(script.log.last().unwrap()).unwrap();
            let TxnOp::SetData { path, data, version } = last.op else { panic!("a set") };
            assert_eq!(version, 2);
            let op = TxnOp::SetData { path, data, version: 1 };
            *script.log.last_mut().unwrap() = Txn { op, ..last }.encode();
        }
    });
}

#[test]
fn value_in_the_log_comes_from_its_request() {
    check_pair("C11", |script, wrong| {
        script.writes(A, set("second value"));
        script.reads_at(A, get(), script.tip());
        if wrong {
            let last = Txn::decode(script.log.last().unwrap()).unwrap();
            let TxnOp::SetData { path, version, .. } = last.op else { panic!("a set") };
            let op = TxnOp::SetData { path, data: Some(Bytes::from_static(b"none")), version };
            *script.log.last_mut().unwrap() = Txn { op, ..last }.encode();
        }
    });
}

#[test]
fn event_of_a_change_comes_before_the_change_is_read() {
    check_pair("W3", |script, wrong| {
        let watched = Request::GetData { path: "/k".into(), watch: true };
        script.reads_at(B, watched, script.tip());
        let zxid = script.writes(A, set("second value"));
        if !wrong {
            let event = EventType::NodeDataChanged;
            let event = WatchEvent { zxid: Some(zxid), event, path: "/k".into() };
            script.record(B, Record::Received(frame(|out| event.encode(out))));
        }
        script.reads_at(B, get(), zxid);
    });
}

/// A client's second connection, which has the first one's session.
const A_AGAIN: ConnId = ConnId(11);

#[test]
fn moved_session_goes_on_and_its_old_connection_does_not() {
    check_pair("S5", |script, wrong| {
        let unanswered = set("the last on its connection");
        script.sends(A, &unanswered);
        script.moves(A, A_AGAIN, ServerId(3));
        if !wrong {
            script.executes(A, &unanswered);
        }
        let to = TxnOp::MoveSession { server: ServerId(3) };
        script.commits(A_AGAIN, session(A), 0, to);
        script.welcomes(A_AGAIN, session(A));
        script.sends(A_AGAIN, &set("unanswered, too"));
        if wrong {
            script.executes(A, &unanswered);
        }
        script.executes(A_AGAIN, &set("unanswered, too"));
    });
}

#[test]
fn session_is_refused_only_after_its_end() {
    check_pair("S2", |script, wrong| {
        // What ends the session is in no frame that a client has read.
        script.writes(B, set("before the end"));
        if !wrong {
            script.expires(session(A));
        }
        script.moves(A, A_AGAIN, ServerId(3));
        script.refuses(A_AGAIN);
    });
}

/// The connection of a third client.
const LATER: ConnId = ConnId(23);

#[test]
fn session_without_a_response_belongs_to_an_unanswered_connection() {
    let mut script = Script::new();
    // This one asks for a session that its client has.
    script.moves(A, A_AGAIN, ServerId(3));
    script.record(A_AGAIN, Record::Closed);
    script.greets(LATER);
    script.record(LATER, Record::Closed);
    script.begins(LATER);
    script.writes(B, set("second value"));
    assert!(verdict(script).is_ok());
    // A session that nobody asked for.
    let mut script = Script::new();
    script.begins(LATER);
    assert_eq!(verdict(script).err(), Some("C8"));
}

#[test]
fn reconfiguration_may_be_refused_for_lack_of_a_quorum() {
    let lines: String = (1..=3).map(|id| line(ServerId(id), PARTICIPANT)).collect();
    let auth = AuthOptions { skip_acl: true, ..AuthOptions::default() };
    let rules = Rules { first_config: Some(lines.clone()), auth, ..Rules::default() };
    let leaves = ReconfigRequest {
        joining: None,
        leaving: Some("3".into()),
        new_members: None,
        version: -1,
    };
    let leaves = Request::Reconfigure(leaves);
    for code in [ErrorCode::NewConfigNoQuorum, ErrorCode::BadVersion] {
        let mut script = Script::with(rules.clone());
        let config = lines.clone() + "version=100000000";
        let first = TxnOp::Reconfig { config };
        let zxid = Zxid(script.tip().0 + 1);
        let nobody = SessionId(0);
        let first = Txn { zxid, session: nobody, time: WallMs(8), origin: None, op: first };
        script.log.push(first.encode());
        script.model.apply(first).expect("the first configuration");
        let xid = script.sends(A, &leaves);
        let zxid = script.commits(A, session(A), 50, TxnOp::Error { code });
        script.answers(A, xid, zxid, Err(code));
        let right = code == ErrorCode::NewConfigNoQuorum;
        assert_eq!(verdict(script).err(), (!right).then_some("C9"));
    }
}
