//! Snapshot tests of a session's effects, one test for each case.

use bytes::Bytes;
use zabkeeper_core::wire::{
    Acl, AddWatchMode, EventType, ReplyBody, Request, Secret, Stat, WatcherType, XID_AUTH,
    XID_PING, XID_SET_WATCHES,
};
use zabkeeper_core::{ErrorCode, SessionId};

use crate::script::{Do, check, config};

fn create(path: &str) -> Request {
    let data = Some(Bytes::from_static(b"x"));
    Request::Create { path: path.into(), data, acl: Acl::open(), flags: 0, with_stat: false }
}

fn get(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: true }
}

fn exists(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: true }
}

fn children(path: &str) -> Request {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

fn data() -> Result<ReplyBody, ErrorCode> {
    Ok(ReplyBody::Data(None, Stat::default()))
}

fn stat() -> Result<ReplyBody, ErrorCode> {
    Ok(ReplyBody::Stat(Stat::default()))
}

fn path(path: &str) -> Result<ReplyBody, ErrorCode> {
    Ok(ReplyBody::Path(path.into()))
}

fn empty() -> Result<ReplyBody, ErrorCode> {
    Ok(ReplyBody::Empty)
}

/// Steps that connect to the first server at time zero, with a timeout of 6 s.
fn connected() -> Vec<Do> {
    vec![Do::Wait(0), Do::Dialled, Do::Accept(6_000)]
}

/// Runs the steps of `connected` and then `steps`.
fn after_connecting(servers: &str, steps: Vec<Do>) -> String {
    let mut all = connected();
    all.extend(steps);
    check(config(servers, 6_000), all)
}

/// HS-01.
#[test]
fn first_handshake_and_one_call() {
    insta::assert_snapshot!(check(
        config("a", 10_000),
        vec![
            Do::Submit(1, create("/early")),
            Do::Wait(0),
            Do::Dialled,
            Do::Submit(2, create("/a")),
            Do::Accept(6_000),
            Do::Reply(1, 5, path("/early")),
            Do::Reply(2, 6, Err(ErrorCode::NodeExists)),
        ]
    ));
}

/// WIRE-12.
#[test]
fn calls_are_pipelined_and_replies_may_be_fragmented() {
    let mut replies = bytes::BytesMut::new();
    for (xid, result) in [(1, path("/a")), (2, data()), (3, Err(ErrorCode::BadVersion))] {
        zabkeeper_core::wire::Reply { xid, zxid: 7, result }.encode(&mut replies);
    }
    let (left, right) = replies.split_at(30);
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![
            Do::Submit(1, create("/a")),
            Do::Submit(2, Request::GetData { path: "/a".into(), watch: false }),
            Do::Submit(3, Request::Delete { path: "/a".into(), version: 4 }),
            Do::Raw(left.to_vec()),
            Do::Raw(right.to_vec()),
        ]
    ));
}

/// CLIENT-09.
#[test]
fn connection_loss_fails_sent_and_queued_calls_and_session_continues() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, create("/a")),
            Do::Submit(2, create("/b")),
            Do::Reply(1, 9, path("/a")),
            Do::Drop,
            Do::Submit(3, create("/c")),
            Do::Wait(0),
            Do::DialFailed,
            Do::Submit(4, create("/d")),
            Do::Wait(2_000),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Reply(3, 10, path("/d")),
        ]
    ));
}

/// WATCH-25.
#[test]
fn watches_are_set_again_before_queued_calls() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, get("/data")),
            Do::Submit(2, get("/missing")),
            Do::Submit(3, exists("/there")),
            Do::Submit(4, exists("/not-there")),
            Do::Submit(5, children("/parent")),
            Do::Reply(1, 20, data()),
            Do::Reply(2, 20, Err(ErrorCode::NoNode)),
            Do::Reply(3, 20, stat()),
            Do::Reply(4, 21, Err(ErrorCode::NoNode)),
            Do::Reply(5, 21, Ok(ReplyBody::Children(vec!["c".into()]))),
            Do::Event(EventType::NodeDataChanged, "/there"),
            Do::Drop,
            Do::Submit(6, create("/x")),
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Event(EventType::NodeDeleted, "/data"),
            Do::Reply(XID_SET_WATCHES, 30, empty()),
            Do::Reply(6, 31, path("/x")),
        ]
    ));
}

/// WATCH-23.
#[test]
fn persistent_watches_survive_events_and_reconnects() {
    let add = |path: &str, mode| Request::AddWatch { path: path.into(), mode };
    let zero = || Ok(ReplyBody::Number(0));
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, add("/p", AddWatchMode::Persistent)),
            Do::Submit(2, add("/r", AddWatchMode::PersistentRecursive)),
            Do::Submit(3, get("/p")),
            Do::Reply(1, 20, zero()),
            Do::Reply(2, 20, zero()),
            Do::Reply(3, 20, data()),
            Do::Event(EventType::NodeDataChanged, "/p"),
            Do::Event(EventType::NodeDataChanged, "/p"),
            Do::Event(EventType::NodeChildrenChanged, "/p"),
            Do::Event(EventType::NodeCreated, "/r/a/b"),
            Do::Event(EventType::NodeChildrenChanged, "/r/a"),
            Do::Event(EventType::NodeCreated, "/rx"),
            Do::Drop,
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Reply(XID_SET_WATCHES, 30, empty()),
            Do::Event(EventType::NodeDeleted, "/p"),
            Do::Submit(
                4,
                Request::Watches { path: "/p".into(), kind: WatcherType::Persistent, remove: true }
            ),
            Do::Reply(4, 31, empty()),
            Do::Event(EventType::NodeCreated, "/p"),
            Do::Drop,
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
        ]
    ));
}

/// WATCH-25.
#[test]
fn many_watches_are_set_again_in_several_requests() {
    let long = |i| format!("/{i}{}", "n".repeat(998));
    let mut steps = Vec::new();
    for i in 100..300 {
        steps.push(Do::Submit(i, get(&long(i))));
        steps.push(Do::Reply(i32::try_from(i).expect("small") - 99, 1, data()));
    }
    steps.extend([Do::Drop, Do::Wait(1_000), Do::Dialled, Do::Accept(6_000)]);
    let trace = after_connecting("a", steps);
    let sent: Vec<&str> = trace.lines().filter(|line| line.contains("setWatches")).collect();
    insta::assert_snapshot!(sent.join("\n"), @r"
    send l2 #-8 setWatches since=0x1 data=131 exist=0 child=0 paths
    send l2 #-8 setWatches since=0x1 data=69 exist=0 child=0 paths
    ");
}

/// WATCH-25.
#[test]
fn watches_are_set_only_after_the_last_set_watches_reply() {
    let mut config = config("a", 6_000);
    config.watches_bytes = 1;
    let set_again = |zxid| Do::Reply(XID_SET_WATCHES, zxid, empty());
    let again = || [Do::Drop, Do::Wait(6_000), Do::Dialled, Do::Accept(6_000)];
    let mut steps = connected();
    steps.extend([Do::Submit(1, get("/a")), Do::Submit(2, children("/a"))]);
    steps.extend([Do::Reply(1, 5, data()), Do::Reply(2, 5, Ok(ReplyBody::Children(vec![])))]);
    // The server is at zxid 9 when it answers the first setWatches; the second stays unanswered.
    steps.extend(again());
    steps.push(set_again(9));
    steps.extend(again());
    steps.extend([set_again(9), set_again(9)]);
    steps.extend(again());
    insta::assert_snapshot!(check(config, steps));
}

/// WATCH-08 to WATCH-10.
#[test]
fn event_removes_the_watches_it_fires() {
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![
            Do::Submit(1, get("/n")),
            Do::Submit(2, children("/n")),
            Do::Reply(1, 1, data()),
            Do::Reply(2, 1, Ok(ReplyBody::Children(vec![]))),
            Do::Event(EventType::NodeChildrenChanged, "/n"),
            Do::Event(EventType::NodeChildrenChanged, "/n"),
            Do::Event(EventType::NodeDeleted, "/n"),
            Do::Event(EventType::NodeDeleted, "/n"),
            Do::Submit(3, exists("/n")),
            Do::Reply(3, 4, Err(ErrorCode::NoNode)),
            Do::Event(EventType::NodeCreated, "/n"),
            Do::Submit(4, get("/n")),
            Do::Reply(4, 5, data()),
            Do::Submit(
                5,
                Request::Watches { path: "/n".into(), kind: WatcherType::Any, remove: true }
            ),
            Do::Reply(5, 5, empty()),
            Do::Event(EventType::NodeDataChanged, "/n"),
        ]
    ));
}

/// CLIENT-10.
#[test]
fn refused_handshake_reports_expiry_and_ends_the_session() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, create("/a")),
            Do::Drop,
            Do::Submit(2, create("/b")),
            Do::Wait(0),
            Do::Dialled,
            Do::Refuse,
            Do::Submit(3, create("/c")),
            Do::Close,
            Do::Wait(60_000),
        ]
    ));
}

/// SESS-12.
#[test]
fn close_session_is_sent_after_earlier_calls() {
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![
            Do::Submit(1, create("/a")),
            Do::Close,
            Do::Submit(2, create("/b")),
            Do::Close,
            Do::Reply(1, 2, path("/a")),
            Do::Reply(2, 3, empty()),
            Do::Drop,
            Do::Wait(60_000),
        ]
    ));
}

/// SESS-12.
#[test]
fn connection_loss_while_closing_ends_the_session() {
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![Do::Submit(1, create("/a")), Do::Close, Do::Drop, Do::Wait(60_000)]
    ));
}

#[test]
fn close_without_connection_ends_session_at_once() {
    insta::assert_snapshot!(check(
        config("a", 6_000),
        vec![Do::Wait(0), Do::Submit(1, create("/a")), Do::Close, Do::Wait(60_000)]
    ));
}

/// CLIENT-13.
#[test]
fn reply_out_of_order_drops_connection() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, create("/a")),
            Do::Submit(2, create("/b")),
            Do::Reply(2, 9, path("/b")),
            Do::Wait(0),
        ]
    ));
}

/// CLIENT-13.
#[test]
fn reply_without_request_drops_connection() {
    insta::assert_snapshot!(after_connecting("a,b", vec![Do::Reply(1, 9, empty()), Do::Wait(0)]));
}

#[test]
fn malformed_bytes_drop_connection() {
    let mut short_stat = bytes::BytesMut::new();
    let path_for_stat = path("/looks-like-no-stat");
    zabkeeper_core::wire::Reply { xid: 1, zxid: 1, result: path_for_stat }.encode(&mut short_stat);
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, exists("/a")),
            Do::Submit(2, create("/b")),
            Do::Raw(short_stat.to_vec()),
            Do::Wait(0),
            Do::Dialled,
            Do::Raw(vec![0xff; 8]),
            Do::Wait(1_000),
            Do::RawOn(1, vec![0xff; 8]),
        ]
    ));
}

/// CLIENT-02.
#[test]
fn chroot_is_invisible_to_caller() {
    let below = |path: &str| format!("/app{path}");
    insta::assert_snapshot!(after_connecting(
        "a,b/app",
        vec![
            Do::Submit(1, create("/a")),
            Do::Reply(1, 1, path(&below("/a"))),
            Do::Submit(2, get("/")),
            Do::Reply(2, 1, data()),
            Do::Submit(3, children("/a")),
            Do::Reply(3, 1, Ok(ReplyBody::Children(vec!["app".into()]))),
            Do::Submit(4, create("relative")),
            Do::Drop,
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Event(EventType::NodeDataChanged, "/app"),
            Do::Event(EventType::NodeChildrenChanged, "/app/a"),
        ]
    ));
}

/// CLIENT-05.
#[test]
fn session_pings_after_a_third_of_the_timeout() {
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![
            Do::Wait(2_500),
            Do::Reply(XID_PING, 50, empty()),
            Do::Submit(1, create("/a")),
            Do::Wait(1_000),
            Do::Reply(1, 51, path("/a")),
            Do::Wait(3_500),
        ]
    ));
}

/// CLIENT-05.
#[test]
fn session_with_long_timeout_pings_every_10_s() {
    insta::assert_snapshot!(check(
        config("a", 60_000),
        vec![Do::Wait(0), Do::Dialled, Do::Accept(60_000), Do::Wait(15_000)]
    ));
}

/// CLIENT-05.
#[test]
fn server_silent_for_two_thirds_of_the_timeout_is_left() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![Do::Submit(1, create("/a")), Do::Wait(4_000)]
    ));
}

/// CLIENT-04, CLIENT-05.
#[test]
fn servers_are_tried_in_turn_with_a_pause_after_each_round() {
    insta::assert_snapshot!(check(
        config("a,b,c", 6_000),
        vec![
            Do::Wait(0),
            Do::Wait(2_000), // No answer to the dial: a third of the timeout.
            Do::Dialled,
            Do::Wait(2_000), // No answer to the handshake.
            Do::DialFailed,
            Do::Wait(1_000),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Drop,
            Do::Wait(0),
            Do::DialFailed,
            Do::Wait(0),
            Do::DialFailed,
            Do::Wait(1_000),
        ]
    ));
}

/// CLIENT-04.
#[test]
fn reconnect_waits_a_random_time() {
    let mut delayed = config("a,b,c", 6_000);
    delayed.reconnect_delay_max = std::time::Duration::from_millis(400);
    let mut steps = connected();
    steps.extend([Do::Drop, Do::Wait(399), Do::DialFailed, Do::Wait(400)]);
    let trace = check(delayed, steps);
    let dials: Vec<&str> = trace.lines().filter(|line| line.contains("timeout")).collect();
    insta::assert_snapshot!(dials.join("\n"), @r"
      0 timeout
    282 timeout
    620 timeout
    ");
}

/// CLIENT-17.
#[test]
fn resumed_session_must_keep_its_id() {
    let mut resumed = config("a,b", 6_000);
    resumed.resume = Some((SessionId(0x77), [7; 16]));
    insta::assert_snapshot!(check(resumed, vec![Do::Wait(0), Do::Dialled, Do::Accept(6_000)]));
}

/// HS-13.
#[test]
fn auth_is_sent_first_after_reconnect_and_its_reply_may_come_early() {
    insta::assert_snapshot!(after_connecting(
        "a,b",
        vec![
            Do::Submit(1, get("/a")),
            Do::Submit(2, Request::Auth { scheme: "digest".into(), auth: Secret::from("a:b") }),
            Do::Reply(XID_AUTH, 0, empty()),
            Do::Reply(1, 4, data()),
            Do::Drop,
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Submit(3, create("/b")),
            Do::Reply(XID_AUTH, 0, Err(ErrorCode::AuthFailed)),
            Do::Submit(4, create("/c")),
        ]
    ));
}

#[test]
fn session_refuses_invalid_calls() {
    let mut small = config("a", 6_000);
    small.request_bytes_max = 100;
    small.calls_max = 2;
    let large =
        Request::SetData { path: "/a".into(), data: Some(Bytes::from(vec![0; 101])), version: -1 };
    insta::assert_snapshot!(check(
        small,
        vec![
            Do::Submit(1, large.clone()),
            Do::Submit(2, exists("/a")),
            Do::Submit(3, exists("/a")),
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Submit(4, large),
            Do::Submit(5, Request::Ping),
            Do::Submit(6, Request::CloseSession),
            Do::Submit(7, exists("/b")),
            Do::Submit(8, exists("/b")),
        ]
    ));
}

/// RO-04: the answer may come in parts. Only the read-only server knows its session.
#[test]
fn session_leaves_a_read_only_server_for_a_read_write_one() {
    insta::assert_snapshot!(on_a_read_only_server(
        6_000,
        vec![
            Do::Submit(1, get("/a")),
            Do::Wait(100),
            Do::DialFailed,
            Do::Wait(200),
            Do::Dialled,
            Do::Raw(b"ro".to_vec()),
            Do::Wait(400),
            Do::Dialled,
            Do::Raw(b"r".to_vec()),
            Do::Raw(b"w".to_vec()),
            Do::Wait(0),
            Do::Dialled,
            Do::Accept(6_000),
            Do::Wait(1_000),
        ]
    ));
}

/// RO-04.
#[test]
fn servers_are_asked_ever_more_rarely_until_the_session_is_closed() {
    insta::assert_snapshot!(on_a_read_only_server(
        900_000,
        vec![Do::Wait(240_000), Do::Dialled, Do::Close, Do::Wait(60_000)]
    ));
}

/// RO-04: a session that a read-write server has accepted keeps its id.
#[test]
fn known_session_is_resumed_at_the_read_write_server() {
    let steps = vec![
        Do::Accept(6_000),
        Do::Drop,
        Do::Wait(0),
        Do::Dialled,
        Do::AcceptReadOnly(6_000),
        Do::Wait(100),
        Do::Dialled,
        Do::Raw(b"rw".to_vec()),
        Do::Wait(0),
        Do::Dialled,
    ];
    insta::assert_snapshot!(accepting_read_only("a,b", 6_000, steps));
}

/// Runs steps after a read-only server of three has accepted the session.
fn on_a_read_only_server(timeout_ms: i32, steps: Vec<Do>) -> String {
    let accepted = std::iter::once(Do::AcceptReadOnly(timeout_ms)).chain(steps);
    accepting_read_only("a,b,c", timeout_ms, accepted.collect())
}

/// Runs steps after a connection at time zero to one of these servers.
fn accepting_read_only(servers: &str, timeout_ms: i32, steps: Vec<Do>) -> String {
    let mut config = config(servers, timeout_ms);
    config.read_only = true;
    let dialled = [Do::Wait(0), Do::Dialled].into_iter().chain(steps);
    check(config, dialled.collect())
}

/// CLIENT-10. The servers keep the session for the timeout from the last message that they have
/// got: what is sent at 1,500 ms is answered, and what is sent later is not.
#[test]
fn session_is_presumed_expired_when_no_server_has_answered_for_its_timeout() {
    insta::assert_snapshot!(after_connecting(
        "a",
        vec![
            Do::Wait(1_500),
            Do::Submit(1, get("/a")),
            Do::Wait(1_000),
            Do::Submit(2, get("/b")),
            Do::Reply(1, 5, data()),
            Do::Event(EventType::NodeDataChanged, "/a"),
            // Nothing more comes; connecting again fails.
            Do::Wait(4_500),
            Do::DialFailed,
            Do::Wait(2_000),
            // The session has lived on.
            Do::Dialled,
            Do::Accept(6_000),
            Do::Wait(1_000),
        ]
    ));
}

/// CLIENT-10, RO-04. A read-only server keeps no session of the ensemble alive.
#[test]
fn session_on_a_read_only_server_is_presumed_expired() {
    let mut steps = vec![Do::Accept(6_000), Do::Drop];
    steps.extend([Do::Wait(1_000), Do::Dialled, Do::AcceptReadOnly(6_000)]);
    let pings = [(); 3].map(|()| [Do::Wait(2_000), Do::Reply(XID_PING, 0, empty())]);
    steps.extend(pings.into_iter().flatten());
    insta::assert_snapshot!(accepting_read_only("a", 6_000, steps));
}
