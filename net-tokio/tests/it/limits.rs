//! Limits on clients: each limit is enforced, named in the log, and does not affect other clients.

use std::io::{Read, Write};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tempfile::tempdir;
use zabkeeper_core::wire::{Acl, AddWatchMode, Perms, Request, RequestFrame, Secret, XID_PING};

use crate::four_letter::ask;
use crate::harness::{Server, eventually};
use crate::raw::{Raw, create, exists, get, set};

/// Sends `writes` requests in one piece, without waiting; returns their xids.
fn pipeline(raw: &mut Raw, writes: usize, request: impl Fn(usize) -> Request) -> Vec<i32> {
    let mut bytes = BytesMut::new();
    let xids = (0..writes).map(|number| raw.encode(request(number), &mut bytes)).collect();
    raw.socket.write_all(&bytes).expect("writes");
    xids
}

fn take_answers(raw: &mut Raw, xids: &[i32]) {
    for xid in xids {
        assert_eq!(raw.reply().map(|(xid, err, _)| (xid, err)), Some((*xid, 0)), "in order");
    }
}

/// WIRE-17.
#[test]
fn connection_without_handshake_is_closed_after_configured_timeout() {
    let dir = tempdir().expect("creates");
    let server =
        Server::start(dir.path(), "nio.sessionlessCnxnTimeout=300\n4lw.commands.whitelist=*");
    let mut silent = Raw::connect(server.port);
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert!(silent.is_closed());
    server.await_line(&[&silent.address(), &"within 300 ms (nio.sessionlessCnxnTimeout)"]);
    assert!(ask(&server, "mntr").contains("\nzk_sessionless_connections_expired\t1\n"));
    assert_eq!(client.call(exists("/")).0, 0, "those with a session may be silent for longer");
}

/// WIRE-17: On an otherwise idle server, the new connection must rearm the event loop's timer.
#[test]
fn connection_without_handshake_is_closed_by_idle_server() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "nio.sessionlessCnxnTimeout=300");
    for _ in 0..2 {
        let mut silent = Raw::connect(server.port);
        assert!(silent.is_closed());
        server.await_line(&[&silent.address(), &"within 300 ms (nio.sessionlessCnxnTimeout)"]);
    }
}

/// WIRE-18.
#[test]
fn silent_client_is_closed_when_its_session_expires() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=100");
    let (mut silent, granted) = Raw::open(server.port, 300);
    assert_eq!(granted.timeout_ms, 300);
    let began = Instant::now();
    assert!(silent.is_closed());
    assert!(began.elapsed() >= Duration::from_millis(250), "not before its time");
}

/// A client with a session timeout of 1.5 s, an ephemeral node, and 8 MB of unread events.
fn flooded(server: &Server, ephemeral: &str) -> (Raw, usize) {
    let path = format!("/{}", "e".repeat(100_000));
    let (mut writer, _) = Raw::open(server.port, 2_000);
    let mut client = Raw::connect_narrow(server.port);
    let granted = client.shake_hands(1_500).expect("lets in");
    assert_eq!(granted.timeout_ms, 1_500);
    assert_eq!(client.call(create(ephemeral, b"", 1)).0, 0);
    let mode = AddWatchMode::Persistent;
    assert_eq!(client.call(Request::AddWatch { path: path.clone(), mode }).0, 0);
    assert_eq!(writer.call(create(&path, b"", 0)).0, 0);
    let mut sets = 0;
    while sets < 80 {
        let xids = pipeline(&mut writer, 8, |_| set(&path, b""));
        take_answers(&mut writer, &xids);
        sets += xids.len();
    }
    (client, sets * path.len())
}

/// Sends a ping without waiting for its reply.
fn send_ping(client: &mut Raw) {
    let mut bytes = BytesMut::new();
    RequestFrame { xid: XID_PING, request: Request::Ping }.encode(&mut bytes);
    client.socket.write_all(&bytes).expect("writes");
}

/// SESS-05.
#[test]
fn slow_reader_that_pings_keeps_its_session() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=100");
    let (mut client, bytes) = flooded(&server, "/slow");
    let began = Instant::now();
    let (mut taken, mut chunk) = (0, [0; 16 << 10]);
    while taken < bytes {
        send_ping(&mut client);
        let read = client.socket.read(&mut chunk).expect("the connection stands");
        assert!(read > 0, "closed after {taken} of {bytes} bytes and {:?}", began.elapsed());
        taken += read;
        // At most 1 MB/s: reading the output beyond the limit alone takes twice the session
        // timeout.
        std::thread::sleep(Duration::from_micros(read as u64));
    }
    assert!(began.elapsed() > Duration::from_secs(3), "it was slow");
    let (mut other, _) = Raw::open(server.port, 2_000);
    assert_eq!(other.call(exists("/slow")).0, 0);
}

/// SESS-05.
#[test]
fn client_that_reads_nothing_loses_its_session_despite_pings() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=100");
    let (mut client, _) = flooded(&server, "/deaf");
    let (mut other, _) = Raw::open(server.port, 2_000);
    eventually("the end of a session", || {
        // The server may have closed the connection already.
        let mut bytes = BytesMut::new();
        RequestFrame { xid: XID_PING, request: Request::Ping }.encode(&mut bytes);
        let _sent = client.socket.write_all(&bytes);
        other.call(exists("/deaf")).0 == -101
    });
}

/// ACL-15: the current data of `/key` decides which keys are accepted.
#[test]
fn key_scheme_accepts_keys_by_the_data_of_its_node() {
    let dir = tempdir().expect("creates");
    let class = "org.apache.zookeeper.server.auth.KeyAuthenticationProvider";
    let server = Server::start(dir.path(), &format!("authProvider.1={class}"));
    let show = |number: &'static str| {
        let (mut client, _) = Raw::open(server.port, 10_000);
        let (scheme, auth) = ("key".to_owned(), Secret(Some(number.into())));
        let (err, _) = client.call(Request::Auth { scheme, auth });
        (err, err != 0 && client.is_closed())
    };
    let (mut admin, _) = Raw::open(server.port, 10_000);
    assert_eq!(show("15"), (0, false), "as long as there is no node");
    assert_eq!(admin.call(create("/key", b"7", 0)).0, 0);
    assert_eq!((show("15"), show("14")), ((-115, true), (0, false)));
    assert_eq!(admin.call(set("/key", b"5")).0, 0);
    assert_eq!((show("15"), show("14")), ((0, false), (-115, true)));
}

/// ACL-17.
#[test]
fn too_many_identities_close_the_connection() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut other, _) = Raw::open(server.port, 30_000);
    for (count, bytes, logged) in
        [(1_000, 6, "more than 1000 identities"), (20, 100_000, "more than 1048576 bytes")]
    {
        let (mut client, _) = Raw::open(server.port, 30_000);
        let show = |n| {
            let auth = format!("{n:06}{}:secret", "u".repeat(bytes - 6));
            Request::Auth { scheme: "digest".into(), auth: Secret(Some(auth.into())) }
        };
        pipeline(&mut client, count, show);
        let codes: Vec<i32> =
            std::iter::from_fn(|| client.reply().map(|(_, err, _)| err)).collect();
        let (last, others) = codes.split_last().expect("answers");
        assert_eq!(*last, -115);
        assert!(others.iter().all(|err| *err == 0) && others.len() >= 10, "{codes:?}");
        server.await_line(&[&client.address(), &logged]);
        assert_eq!(other.call(exists("/")).0, 0);
    }
}

/// WIRE-03, THR-08.
#[test]
fn too_long_frame_is_logged_with_the_limit() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "zookeeper.jute.maxbuffer=2000");
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/fits", &[7; 1900], 0)).0, 0);
    client.send(create("/long", &[7; 2000], 0));
    assert!(client.is_closed());
    server.await_line(&[&client.address(), &"0..=2000 (jute.maxbuffer)", &"raise it"]);
}

/// WIRE-19.
#[test]
fn keep_alive_is_set_only_if_configured() {
    for (settings, timer) in [("", "00"), ("clientTcpKeepAlive=true", "02")] {
        let dir = tempdir().expect("creates");
        let server = Server::start(dir.path(), settings);
        let (client, _) = Raw::open(server.port, 10_000);
        let local = format!("0100007F:{:04X}", server.port);
        let remote = format!("0100007F:{:04X}", client.address().port());
        // Linux shows the pending timer of a socket: 02 is that of keep-alive.
        let has_timer = || {
            let table = std::fs::read_to_string("/proc/net/tcp").expect("is there on Linux");
            let line = table.lines().find(|line| line.contains(&format!("{local} {remote}")));
            let fields: Vec<&str> = line.expect("is connected").split_whitespace().collect();
            fields[5].starts_with(timer)
        };
        // The handshake's acknowledgement has a timer, too, for some milliseconds.
        eventually(&format!("timer {timer} with {settings:?}"), has_timer);
    }
}

/// THR-01.
#[test]
fn clients_with_waiting_requests_are_not_read_above_outstanding_limit() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "globalOutstandingLimit=3");
    let (mut busy, _) = Raw::open(server.port, 30_000);
    let (mut other, _) = Raw::open(server.port, 30_000);
    let xids = pipeline(&mut busy, 500, |number| create(&format!("/n{number}"), b"x", 0));
    assert_eq!(other.call(create("/other", b"x", 0)).0, 0, "who waits for nothing is read");
    take_answers(&mut busy, &xids);
    server.await_line(&[&"requests are under way", &"3 of globalOutstandingLimit; raise it"]);
}

/// THR-06.
#[test]
fn outstanding_requests_are_limited_and_all_clients_served() {
    let dir = tempdir().expect("creates");
    let server = Server::start(
        dir.path(),
        "zookeeper.request_throttle_max_requests=2\n4lw.commands.whitelist=*",
    );
    let mut clients: Vec<Raw> = (0..8).map(|_| Raw::open(server.port, 30_000).0).collect();
    let xids: Vec<Vec<i32>> = (0..clients.len())
        .map(|client| {
            pipeline(&mut clients[client], 50, |n| create(&format!("/c{client}-{n}"), b"x", 0))
        })
        .collect();
    let srvr = ask(&server, "srvr");
    let outstanding = srvr.lines().find_map(|line| line.strip_prefix("Outstanding: "));
    let outstanding: u32 = outstanding.expect("is there").parse().expect("is a number");
    assert!(outstanding <= 2, "{srvr}");
    for (client, xids) in clients.iter_mut().zip(&xids) {
        take_answers(client, xids);
    }
    server.await_line(&[&"all that request_throttle_max_requests=2 allows; raise it"]);
    drop(clients.pop());
    assert_eq!(clients[0].call(exists("/c7-49")).0, 0);
}

/// THR-06.
#[test]
fn idle_clients_do_not_block_the_request_throttle() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "request_throttle_max_requests=1");
    let mut clients: Vec<Raw> = (0..4).map(|_| Raw::open(server.port, 30_000).0).collect();
    for round in 0..20 {
        let asked: Vec<Vec<i32>> = (0..clients.len())
            .map(|client| {
                let path = |n| format!("/r{round}-c{client}-{n}");
                pipeline(&mut clients[client], 20, |n| create(&path(n), b"x", 0))
            })
            .collect();
        // These clients take turns between the others, for a handshake and then without requests.
        let idle: Vec<Raw> = (0..4).map(|_| Raw::open(server.port, 30_000).0).collect();
        for (client, xids) in clients.iter_mut().zip(&asked) {
            take_answers(client, xids);
        }
        drop(idle);
    }
}

/// THR-06.
#[test]
fn client_with_stale_request_is_disconnected() {
    let dir = tempdir().expect("creates");
    let settings = "minSessionTimeout=60\nrequest_throttle_max_requests=1\n\
                    zookeeper.request_stale_latency_check=true";
    let server = Server::start(dir.path(), settings);
    // No client is silent: only its last requests wait longer than the timeout.
    let mut clients: Vec<Raw> = (0..8).map(|_| Raw::open(server.port, 60).0).collect();
    let asked: Vec<Vec<i32>> = (0..clients.len())
        .map(|client| {
            let path = |n| format!("/c{client}-{n}");
            pipeline(&mut clients[client], 1_000, |n| create(&path(n), b"x", 0))
        })
        .collect();
    let (mut done, mut cut) = (Vec::new(), 0);
    for (client, (raw, xids)) in clients.iter_mut().zip(&asked).enumerate() {
        for (n, xid) in xids.iter().enumerate() {
            let Some((answered, err, _)) = raw.reply() else {
                cut += 1;
                break;
            };
            assert_eq!((answered, err), (*xid, 0), "in order, and done");
            done.push(format!("/c{client}-{n}"));
        }
    }
    assert!(cut > 0, "8,000 writes one by one take longer than 60 ms");
    server.await_line(&[&"timeout of 60 ms (request_stale_latency_check); raise request_throttle"]);
    let mut other = Raw::open(server.port, 30_000).0;
    for path in done.iter().step_by(97) {
        assert_eq!(other.call(exists(path)).0, 0, "{path}: what was answered is there");
    }
}

/// THR-07.
#[test]
fn request_that_waited_too_long_is_refused_in_order() {
    let dir = tempdir().expect("creates");
    let settings = "request_throttle_max_requests=1\nzookeeper.throttled_op_wait_time=2";
    let server = Server::start(dir.path(), settings);
    let mut clients: Vec<Raw> = (0..8).map(|_| Raw::open(server.port, 30_000).0).collect();
    let asked: Vec<Vec<i32>> = (0..clients.len())
        .map(|client| {
            let raw = &mut clients[client];
            let path = |n| format!("/c{client}-{n}");
            let xids = pipeline(raw, 100, |n| create(&path(n), b"x", 0));
            pipeline(raw, 1, |_| Request::Ping);
            xids
        })
        .collect();
    let mut refused = Vec::new();
    for (client, (raw, xids)) in clients.iter_mut().zip(&asked).enumerate() {
        for (n, xid) in xids.iter().enumerate() {
            let (answered, err, _) = raw.reply().expect("answered");
            assert_eq!(answered, *xid, "in order");
            assert!(matches!(err, 0 | -127), "{err}");
            refused.extend((err != 0).then(|| format!("/c{client}-{n}")));
        }
        let ping = raw.reply().map(|(xid, err, _)| (xid, err));
        assert_eq!(ping, Some((XID_PING, 0)), "never a ping");
    }
    assert!(!refused.is_empty(), "800 writes one by one take longer than 2 ms");
    server.await_line(&[&"refused a request (-127", &"throttled_op_wait_time=2; raise it"]);
    let alone = &mut clients[0];
    for path in refused {
        assert_eq!(alone.call(exists(&path)).0, -101, "{path}: what is refused is not done");
    }
}

/// THR-04.
#[test]
fn large_requests_share_a_byte_limit() {
    let dir = tempdir().expect("creates");
    let server = Server::start(
        dir.path(),
        "largeRequestThreshold=1000\nlargeRequestMaxBytes=5000\n4lw.commands.whitelist=*",
    );
    let (mut client, _) = Raw::open(server.port, 30_000);
    assert_eq!(client.call(create("/n", b"", 0)).0, 0);
    for _ in 0..10 {
        assert_eq!(client.call(set("/n", &[7; 4000])).0, 0, "one after the other");
    }
    let (mut many, _) = Raw::open(server.port, 30_000);
    let small = pipeline(&mut many, 30, |_| set("/n", &[7; 900]));
    take_answers(&mut many, &small);

    pipeline(&mut many, 3, |_| set("/n", &[7; 2000]));
    server.await_line(&[&many.address(), &"is large (largeRequestThreshold)", &"=5000"]);
    while many.reply().is_some() {}

    let (mut larger, _) = Raw::open(server.port, 30_000);
    larger.send(set("/n", &[7; 6000]));
    assert!(larger.is_closed());
    assert!(ask(&server, "mntr").contains("\nzk_large_requests_rejected\t2\n"));
    let mut all_over = || client.call(set("/n", &[7; 4000])).0 == 0;
    assert!(all_over(), "what the closed connections had under way does not count");
    assert_eq!(client.call(get("/n")).0, 0);
}

/// THR-05.
#[test]
fn connection_throttle_refuses_only_handshakes() {
    let dir = tempdir().expect("creates");
    let server = Server::start(
        dir.path(),
        "connection_throttle_tokens=2\nconnection_throttle_fill_time=3600000",
    );
    let (mut first, _) = Raw::open(server.port, 10_000);
    let (_second, _) = Raw::open(server.port, 10_000);
    let mut third = Raw::connect(server.port);
    assert!(third.shake_hands(10_000).is_none());
    server.await_line(&[&third.address(), &"connection_throttle_tokens", &"raise them"]);
    assert_eq!(first.call(exists("/")).0, 0);
    assert!(ask(&server, "srvr").contains("\nConnections: 3\n"), "words need no token");
}

/// THR-05.
#[test]
fn connection_throttle_refills_its_tokens() {
    let dir = tempdir().expect("creates");
    let server =
        Server::start(dir.path(), "connection_throttle_tokens=1\nconnection_throttle_fill_time=50");
    let (_first, _) = Raw::open(server.port, 10_000);
    eventually("a token", || {
        std::thread::sleep(Duration::from_millis(20));
        Raw::connect(server.port).shake_hands(10_000).is_some()
    });
}

/// OP-22: A frame of 80 kB whose reply would have five gigabytes.
#[test]
fn multi_read_with_too_large_reply_is_refused() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 30_000);
    assert_eq!(client.call(create("/large", &vec![7; 1_000_000], 0)).0, 0);
    let reads = |count| Request::MultiRead((0..count).map(|_| get("/large")).collect());
    assert_eq!(client.call(reads(5_000)).0, -5);
    server.await_line(&[&"refused a request (-5", &"67108864", &"raise jute.maxbuffer"]);
    let (err, body) = client.call(reads(10));
    assert!(err == 0 && body.len() > 10_000_000);
}

/// ACL-11: Sixteen identities of 60 kB each, and a multi of 200 ACLs that expand to all of them:
/// 200 MB in one transaction.
#[test]
fn multi_with_too_large_acls_is_refused() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 30_000);
    for number in 0..16 {
        let auth = format!("{number}{}:secret", "u".repeat(60_000)).into_bytes();
        let auth = Request::Auth { scheme: "digest".to_owned(), auth: Secret(Some(auth.into())) };
        client.send(auth);
        assert_eq!(client.reply().map(|(_, err, _)| err), Some(0));
    }
    let own = Acl { perms: Perms(31), scheme: "auth".into(), id: String::new() };
    let create = |path| Request::Create {
        path,
        data: None,
        acl: vec![own.clone()],
        flags: 0,
        with_stat: false,
    };
    let creates = |count| Request::Multi((0..count).map(|n| create(format!("/n{n}"))).collect());
    assert_eq!(client.call(creates(200)).0, -5);
    server.await_line(&[&"refused a request (-5", &"67108864"]);
    assert_eq!(client.call(creates(3)).0, 0);
}
