//! Unusual histories that a correct server may produce: no oracle may report them.

use bytes::Bytes;
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::EventType::NodeDataChanged;
use zabkeeper_core::wire::{
    Acl, OpCode, Perms, Reply, ReplyBody, Request, RequestFrame, Secret, SetWatches, WatcherType,
    XID_AUTH,
};
use zabkeeper_core::{ErrorCode, SessionId, WallMs, Zxid};

use super::history::{History, create, create_with, delete, get, set, watch_data, watch_exists};
use crate::check::observe::Observation;

#[test]
fn write_may_execute_after_its_connection_closed() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create("/a"));
    h.asks(a, create("/b"));
    h.closes(a);
    h.does(a);
    h.does(a);
    h.passes();
}

#[test]
fn write_on_a_broken_connection_may_never_execute() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create("/a"));
    let a = h.reconnects(a);
    h.writes(a, create("/b"));
    h.passes();
}

/// CON-10
#[test]
fn client_may_retry_a_write_with_unknown_outcome() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create_with("/a", "first attempt", 0));
    h.does(a);
    let a = h.reconnects(a);
    h.asks(a, create_with("/a", "second attempt", 0));
    h.does(a);
    assert_eq!(h.answers(a).result, Err(ErrorCode::NodeExists));
    h.passes();
}

#[test]
fn session_may_expire_while_requests_are_under_way() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create("/a"));
    h.asks(a, get("/a"));
    h.waits(4_200);
    let (zxid, session) = (h.next_zxid(), h.session(a));
    let op = TxnOp::CloseSession;
    h.commits(Txn { zxid, session, time: WallMs(0), origin: None, op });
    h.closes(a);
    let a = h.greets(0, session, Zxid::ZERO);
    h.refuses(a);
    h.passes();
}

#[test]
fn event_on_a_broken_connection_may_never_be_read() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_data("/"));
    let relative_zxid = Some(h.tip());
    h.writes(b, set("/", "v1"));
    let a = h.reconnects(a);
    let data = vec!["/".to_owned()];
    h.asks(a, Request::SetWatches(SetWatches { relative_zxid, data, ..SetWatches::default() }));
    h.notifies_without_zxid(a, NodeDataChanged, "/");
    // The connection breaks between the event and the setWatches reply: the watch is used up.
    let a = h.reconnects(a);
    h.reads(a, get("/"));
    h.passes();
}

/// WATCH-30
#[test]
fn exists_watch_may_miss_a_deleted_node() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_exists("/a"));
    let relative_zxid = Some(h.tip());
    h.closes(a);
    h.writes(b, create("/a"));
    h.writes(b, delete("/a"));
    let a = h.reconnects(a);
    let exist = vec!["/a".to_owned()];
    h.reads(a, Request::SetWatches(SetWatches { relative_zxid, exist, ..SetWatches::default() }));
    h.passes();
}

/// WATCH-17
#[test]
fn exists_watch_is_used_up_by_an_unreadable_node() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_exists("/a"));
    let acl = vec![Acl { perms: Perms::WRITE, scheme: "world".into(), id: "anyone".into() }];
    let path = "/a".to_owned();
    h.writes(b, Request::Create { path, data: None, acl, flags: 0, with_stat: false });
    assert_eq!(h.reads(a, get("/a")).result, Err(ErrorCode::NoAuth));
    h.passes();
}

#[test]
fn reply_may_be_read_after_later_writes() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    let before = h.writes(a, create("/a"));
    h.asks(b, get("/a"));
    h.writes(a, set("/a", "v1"));
    h.writes(a, delete("/a"));
    h.answers_at(b, before, |_| {});
    h.passes();
}

#[test]
fn reply_may_name_the_zxid_at_which_an_epoch_begins() {
    let mut h = History::new();
    let a = h.client(0);
    h.restarts(h.tip());
    let a = h.reconnects(a);
    h.asks(a, get("/"));
    h.answers_as(a, |reply| reply.zxid = Zxid(0x2_0000_0000).wire());
    h.writes(a, set("/", "v1"));
    h.passes();
}

/// WIRE-14
#[test]
fn unknown_operation_is_refused_without_a_zxid() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, Request::Unknown { op: 55 });
    h.answers_as(a, |reply| {
        reply.zxid = -1;
        reply.result = Err(ErrorCode::Unimplemented);
    });
    h.closes(a);
    h.passes();
}

/// Edges 59 and 91
#[test]
fn undecodable_request_takes_a_zxid_only_as_a_multi() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create("/a"));
    h.asks(a, Request::Undecodable { op: OpCode::Create });
    h.does(a);
    h.answers(a);
    assert_eq!(h.answers(a).result, Err(ErrorCode::Marshalling));
    h.asks(a, create("/b"));
    h.asks(a, Request::Undecodable { op: OpCode::Multi });
    h.does(a);
    h.does(a);
    h.answers(a);
    assert_eq!(h.answers(a).result, Err(ErrorCode::Marshalling));
    h.passes();
}

/// Edge 171
#[test]
fn auth_may_be_refused_before_earlier_replies() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, get("/"));
    let mut out = bytes::BytesMut::new();
    RequestFrame {
        xid: XID_AUTH,
        request: Request::Auth { scheme: "foo".into(), auth: Secret::from("") },
    }
    .encode(&mut out);
    h.sees(Observation::ToServer { conn: a, frame: out.freeze().slice(4..) });
    h.replies(a, &Reply { xid: XID_AUTH, zxid: 0, result: Err(ErrorCode::AuthFailed) });
    h.closes(a);
    h.passes();
}

#[test]
fn connection_with_another_protocol_is_not_checked() {
    let mut h = History::new();
    let conn = h.greets(0, SessionId(0), Zxid::ZERO);
    h.closes(conn);
    let (client, server) = (crate::check::observe::ClientId(9), super::history::SERVER);
    let conn = zabkeeper_core::ConnId(99);
    h.sees(Observation::ConnOpened { client, conn, server });
    h.sees(Observation::ToServer { conn, frame: Bytes::from_static(b"GET / HTTP/1.1") });
    h.sees(Observation::ToClient { conn, frame: Bytes::from_static(b"what?") });
    h.passes();
}

/// Seed 0xc1000175 of the swarm with one server.
#[test]
fn write_sent_with_the_handshake_may_execute_after_the_close() {
    let mut h = History::new();
    let a = h.client_unanswered(0);
    h.asks(a, create("/a"));
    h.closes(a);
    let session = SessionId(0x100);
    let txn = h.session_txn(a, session);
    h.commits(txn);
    h.does_as(a, |txn| txn.session = session);
    h.passes();
}

#[test]
fn server_reads_nothing_after_an_invalid_frame() {
    let mut h = History::new();
    let a = h.client(0);
    h.asks(a, create("/a"));
    h.sees(Observation::ToServer { conn: a, frame: Bytes::from_static(&[1, 2]) });
    h.sees(Observation::ToServer { conn: a, frame: Bytes::from_static(&[0; 64]) });
    h.does(a);
    h.answers(a);
    h.closes(a);
    h.passes();
}

/// WATCH-26
#[test]
fn check_watches_answers_by_kind() {
    let mut h = History::new();
    let a = h.client(0);
    let ask = |kind| Request::Watches { path: "/".into(), kind, remove: false };
    h.reads(a, watch_data("/"));
    for (kind, result) in [
        (WatcherType::Data, Ok(ReplyBody::Empty)),
        (WatcherType::Any, Ok(ReplyBody::Empty)),
        (WatcherType::Children, Err(ErrorCode::NoWatcher)),
    ] {
        h.asks(a, ask(kind));
        h.answers_as(a, |reply| reply.result = result.clone());
    }
    h.passes();
}

/// The response that is read last need not be the later handshake's: the leader may have accepted
/// the two in either order.
#[test]
fn two_clients_may_attach_to_a_session_concurrently() {
    let mut h = History::new();
    let a = h.client(0);
    let (session, seen) = (h.session(a), h.tip());
    h.closes(a);
    let (one, other) = (h.greets(0, session, seen), h.greets(7, session, seen));
    h.asks(other, create("/a"));
    h.welcomes(other, session);
    h.welcomes(one, session);
    h.does(other);
    h.passes();
}
