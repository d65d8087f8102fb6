//! Faulty clients: the server closes their connection, logs why, and keeps serving other clients.

use std::io::Write;
use std::net::Shutdown;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tempfile::tempdir;
use zabkeeper_core::wire::Request;

use crate::harness::{PATIENCE, Server};
use crate::raw::{Raw, create, exists, get};

/// Checks that the connection that `misbehave` returns is closed, that the log line about it
/// contains `logged`, and that another session still works.
fn check(misbehave: impl FnOnce(&Server) -> Raw, logged: &str) {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut bystander, _) = Raw::open(server.port, 30_000);
    assert_eq!(bystander.call(create("/a", b"1", 0)).0, 0);

    let mut culprit = misbehave(&server);
    assert!(culprit.is_closed());
    server.await_line(&[&"WARN", &culprit.address(), &logged]);

    assert_eq!(bystander.call(exists("/a")).0, 0);
    assert_eq!(bystander.call(create("/b", b"2", 0)).0, 0);
}

fn send(mut raw: Raw, bytes: &[u8]) -> Raw {
    raw.socket.write_all(bytes).expect("writes");
    raw
}

#[test]
fn invalid_handshake_length_closes_the_connection() {
    check(
        |server| send(Raw::connect(server.port), b"get out of here"),
        "frame length 1734702112 is not within 0..=1048575",
    );
}

#[test]
fn http_request_is_recognized_in_the_log() {
    check(
        |server| send(Raw::connect(server.port), b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n"),
        "it speaks HTTP, and this port ZooKeeper's protocol",
    );
}

/// HS-02.
#[test]
fn handshake_is_answered_before_a_following_bad_frame() {
    for (bytes, logged) in [
        (&[0; 4][..], "frame ends inside request header"),
        (&[0xff, 0, 0, 0], "frame length -16777216"),
    ] {
        let misbehave = |server: &Server| {
            let (raw, response) = Raw::open_and(server.port, bytes);
            let response = response.expect("is answered");
            assert_eq!((response.timeout_ms, response.session.0 != 0), (10_000, true));
            raw
        };
        check(misbehave, logged);
    }
}

#[test]
fn truncated_handshake_closes_the_connection() {
    check(
        |server| send(Raw::connect(server.port), &[0, 0, 0, 2, 1, 2]),
        "frame ends inside protocolVersion",
    );
}

#[test]
fn edge_155_frame_length_above_the_limit_closes_the_connection() {
    check(
        |server| send(Raw::open(server.port, 10_000).0, &1_048_576_i32.to_be_bytes()),
        "frame length 1048576 is not within 0..=1048575",
    );
}

#[test]
fn edge_156_negative_frame_length_closes_the_connection() {
    check(
        |server| send(Raw::open(server.port, 10_000).0, &[0xff; 8]),
        "frame length -1 is not within",
    );
}

#[test]
fn request_shorter_than_its_header_closes_the_connection() {
    check(
        |server| send(Raw::open(server.port, 10_000).0, &[0, 0, 0, 3, 1, 2, 3]),
        "frame ends inside request header",
    );
}

#[test]
fn end_of_stream_within_a_frame_is_logged() {
    check(
        |server| {
            let raw = send(Raw::open(server.port, 10_000).0, &[0, 0, 0, 9, 1, 2]);
            raw.socket.shutdown(Shutdown::Write).expect("is open");
            raw
        },
        "in the middle of a frame",
    );
}

/// WIRE-17.
#[test]
fn connection_without_handshake_is_closed_after_ten_seconds() {
    let started = Instant::now();
    check(
        |server| Raw::connect(server.port),
        "no handshake within 10000 ms (nio.sessionlessCnxnTimeout)",
    );
    assert!(started.elapsed() >= Duration::from_secs(10));
}

#[test]
fn edge_160_connection_above_max_client_cnxns_is_closed_at_once() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "maxClientCnxns=2");
    let (mut first, _) = Raw::open(server.port, 10_000);
    let (second, _) = Raw::open(server.port, 10_000);
    let mut third = Raw::connect(server.port);
    assert!(third.is_closed());
    server.await_line(&[&third.address(), &"maxClientCnxns"]);
    assert_eq!(first.call(exists("/")).0, 0);

    drop(second);
    crate::harness::eventually("room for one more", || {
        let mut next = Raw::connect(server.port);
        next.socket.write_all(b"srvr").is_ok() && !next.is_closed()
    });
}

#[test]
fn repeated_faults_are_suppressed_in_the_log_without_hiding_others() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "maxClientCnxns=0");
    for _ in 0..200 {
        assert!(send(Raw::connect(server.port), &[0xff; 4]).is_closed());
    }
    let other = send(Raw::open(server.port, 10_000).0, &[0, 0, 0, 9, 1, 2]);
    other.socket.shutdown(Shutdown::Write).expect("is open");
    server.await_line(&[&other.address(), &"in the middle of a frame"]);
    let suppressed = "suppressed 190 more lines within 10 s, like: closed the connection from ";
    server.await_line(&[&"WARN", &suppressed, &"frame length -1 is not within"]);
    assert!(server.log().lines().count() < 20, "{}", server.log());
}

#[test]
fn client_that_does_not_read_gets_all_replies_later() {
    const REQUESTS: usize = 400;
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut greedy, _) = Raw::open(server.port, 30_000);
    let large = vec![7; 500_000];
    assert_eq!(greedy.call(create("/large", &large, 0)).0, 0);

    // 200 MB of replies, more than the server may buffer.
    let mut bytes = BytesMut::new();
    let xids: Vec<i32> = (0..REQUESTS).map(|_| greedy.encode(get("/large"), &mut bytes)).collect();
    greedy.socket.write_all(&bytes).expect("writes");

    let (mut other, _) = Raw::open(server.port, 30_000);
    let started = Instant::now();
    for i in 0..100 {
        assert_eq!(other.call(create(&format!("/small{i}"), b"x", 0)).0, 0);
    }
    assert!(started.elapsed() < PATIENCE);

    for xid in xids {
        let (got, err, body) = greedy.reply().expect("is answered");
        assert_eq!((got, err), (xid, 0));
        assert_eq!(body.len(), 4 + large.len() + 68);
    }
}

/// A client that requests a large node a thousand times and reads no reply.
fn greedy(port: u16, timeout_ms: i32, large: &str) -> Raw {
    let (mut raw, _) = Raw::open(port, timeout_ms);
    let mut bytes = BytesMut::new();
    for _ in 0..1000 {
        raw.encode(get(large), &mut bytes);
    }
    raw.socket.write_all(&bytes).expect("writes");
    raw
}

#[test]
fn client_that_never_reads_is_closed_with_its_session() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=100\n4lw.commands.whitelist=*");
    let (mut bystander, _) = Raw::open(server.port, 2_000);
    assert_eq!(bystander.call(create("/large", &[7; 900_000], 0)).0, 0);
    let Some(before) = figure(&server, "zk_open_file_descriptor_count") else {
        return; // `mntr` has this value on Linux only
    };
    let greedy: Vec<Raw> = (0..5).map(|_| greedy(server.port, 200, "/large")).collect();
    crate::harness::eventually("the sockets to be closed", || {
        assert_eq!(bystander.call(exists("/")).0, 0);
        figure(&server, "zk_open_file_descriptor_count") == Some(before)
    });
    drop(greedy);
}

#[test]
fn disconnected_client_gets_no_more_replies() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "4lw.commands.whitelist=*");
    let (mut bystander, _) = Raw::open(server.port, 10_000);
    assert_eq!(bystander.call(create("/large", &[7; 900_000], 0)).0, 0);
    let greedy = greedy(server.port, 10_000, "/large");
    crate::harness::eventually("first answers", || figure(&server, "zk_packets_sent") > Some(8));
    drop(greedy);
    crate::harness::eventually("the end of the connection", || {
        figure(&server, "zk_num_alive_connections") == Some(2)
    });
    assert!(figure(&server, "zk_packets_sent") < Some(500), "answers for nobody");
}

/// A value of `mntr`; `None` if it is missing.
fn figure(server: &Server, name: &str) -> Option<u64> {
    let text = crate::four_letter::ask(server, "mntr");
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    Some(line.trim().parse().expect("a number"))
}

#[test]
fn large_unread_replies_use_bounded_memory() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut bystander, _) = Raw::open(server.port, 10_000);
    assert_eq!(bystander.call(create("/large", &[7; 900_000], 0)).0, 0);
    let greedy: Vec<Raw> = (0..10).map(|_| greedy(server.port, 10_000, "/large")).collect();
    for i in 0..200 {
        assert_eq!(bystander.call(create(&format!("/small{i}"), b"x", 0)).0, 0);
    }
    // The bound allows about forty replies per client, not the thousand requested.
    if let Some(peak) = server.peak_memory() {
        assert!(peak < 400 << 20, "{} MiB", peak >> 20);
    }
    drop(greedy);
}

#[test]
fn five_thousand_pipelined_requests_are_answered_in_order() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut raw, _) = Raw::open(server.port, 30_000);
    let mut bytes = BytesMut::new();
    let xids: Vec<i32> = (0..5_000)
        .map(|i| {
            let path = format!("/n{i}");
            let request = if i % 2 == 0 { create(&path, b"x", 0) } else { exists("/n0") };
            raw.encode(request, &mut bytes)
        })
        .collect();
    let mut writer = raw.socket.try_clone().expect("is a socket");
    let sender = std::thread::spawn(move || writer.write_all(&bytes).expect("writes"));
    for xid in xids {
        assert_eq!(raw.reply().map(|(got, err, _)| (got, err)), Some((xid, 0)));
    }
    sender.join().unwrap();
}

/// WIRE-14.
#[test]
fn unknown_operation_is_answered_then_closed() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut raw, _) = Raw::open(server.port, 10_000);
    assert_eq!(raw.call(Request::Unknown { op: 77 }).0, -6);
    assert!(raw.is_closed());
}

/// A client could delete any childless node with deleteContainer, and create sessions with
/// createSession.
#[test]
fn edges_57_58_internal_operations_are_refused_from_clients() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut bystander, _) = Raw::open(server.port, 30_000);
    assert_eq!(bystander.call(create("/a", b"1", 0)).0, 0);
    let delete_container: &[u8] = b"\0\0\0\x07\0\0\0\x14\0\0\0\x02/a";
    let create_session: &[u8] = b"\0\0\0\x07\xff\xff\xff\xf6\0\0\x75\x30";
    for request in [delete_container, create_session] {
        let (mut culprit, _) = Raw::open(server.port, 30_000);
        let length = u32::try_from(request.len()).expect("is short").to_be_bytes();
        culprit.socket.write_all(&[&length, request].concat()).expect("writes");
        assert_eq!(culprit.reply().map(|(xid, err, _)| (xid, err)), Some((7, -6)));
        assert!(culprit.is_closed());
    }
    assert_eq!(bystander.call(exists("/a")).0, 0);
}
