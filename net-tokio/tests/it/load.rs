//! Clients with expensive requests next to clients with cheap ones, and the use of memory.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::BytesMut;
use tempfile::tempdir;
use zabkeeper_core::Zxid;
use zabkeeper_core::wire::{AddWatchMode, Request, SetWatches};

use crate::four_letter::ask;
use crate::harness::{Server, eventually};
use crate::members::Ensemble;
use crate::raw::{Raw, create, get, set};

/// Number of nodes below `/n`.
const NODES: usize = 100_000;
const EPHEMERALS: usize = 5_000;
const IN_A_MULTI: usize = 1_000;

/// Maximum latency of another client's request. A loaded machine needs some hundreds of
/// milliseconds; if a turn handled all received requests of a client, it would be 9 s.
const SLOWEST: Duration = Duration::from_secs(2);

fn fill(raw: &mut Raw, parent: &str, count: usize, flags: i32) {
    assert_eq!(raw.call(create(parent, b"", 0)).0, 0);
    for begin in (0..count).step_by(IN_A_MULTI) {
        let end = count.min(begin + IN_A_MULTI);
        let creates = (begin..end).map(|n| create(&format!("{parent}/{n:07}"), b"", flags));
        assert_eq!(raw.call(Request::Multi(creates.collect())).0, 0);
    }
}

fn watch(raw: &mut Raw, paths: usize) {
    for begin in (0..paths).step_by(IN_A_MULTI) {
        let data = (begin..begin + IN_A_MULTI).map(|n| format!("/n/{n:07}")).collect();
        let watches = SetWatches {
            relative_zxid: Some(Zxid(i64::MAX as u64)),
            data,
            ..SetWatches::default()
        };
        assert_eq!(raw.call(Request::SetWatches(watches)).0, 0);
    }
}

/// Pipelines `row` requests at a time until `stop` is set; the thread returns the number of
/// replies.
fn keep_asking(
    mut raw: Raw,
    stop: &Arc<AtomicBool>,
    row: usize,
    request: Request,
) -> JoinHandle<usize> {
    let stop = Arc::clone(stop);
    thread::spawn(move || {
        let mut answered = 0;
        while !stop.load(Ordering::Relaxed) {
            let mut bytes = BytesMut::new();
            for _ in 0..row {
                raw.encode(request.clone(), &mut bytes);
            }
            raw.socket.write_all(&bytes).expect("writes");
            for _ in 0..row {
                assert_eq!(raw.reply().map(|(_, err, _)| err), Some(0));
                answered += 1;
            }
        }
        answered
    })
}

#[test]
fn expensive_requests_do_not_delay_other_clients() {
    let ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let port = ensemble.server(leader).port;
    let (mut owner, _) = Raw::open(port, 40_000);
    fill(&mut owner, "/n", NODES, 0);
    fill(&mut owner, "/e", EPHEMERALS, 1);
    watch(&mut owner, 20_000);

    let stop = Arc::new(AtomicBool::new(false));
    let mut dear = Vec::new();
    let counts = Request::GetAllChildrenNumber { path: "/".into() };
    let children = Request::GetChildren { path: "/n".into(), watch: false, with_stat: false };
    let own = Request::GetEphemerals { prefix: "/".into() };
    dear.push(keep_asking(owner, &stop, 20, own));
    let connect = || Raw::open(port, 40_000).0;
    dear.extend((0..20).map(|_| keep_asking(connect(), &stop, 130, counts.clone())));
    dear.extend((0..2).map(|_| keep_asking(connect(), &stop, 10, children.clone())));
    let several = Request::MultiRead(vec![children; 4]);
    dear.push(keep_asking(connect(), &stop, 4, several));

    let (mut reader, _) = Raw::open(port, 40_000);
    let (mut writer, _) = Raw::open(port, 40_000);
    let (mut slowest, mut reads) = (Duration::ZERO, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        if reads % 10 == 0 {
            assert!(ask(ensemble.server(leader), "wchp").len() > 20_000);
        }
        for request in [get("/"), set("/e", b"x")] {
            let asked = Instant::now();
            let client = if reads % 2 == 0 { &mut reader } else { &mut writer };
            assert_eq!(client.call(request).0, 0);
            slowest = slowest.max(asked.elapsed());
            reads += 1;
        }
    }
    stop.store(true, Ordering::Relaxed);
    let answered: Vec<usize> =
        dear.into_iter().map(|one| one.join().expect("was answered")).collect();
    assert!(answered.iter().all(|count| *count > 0), "all have their turn: {answered:?}");
    assert!(slowest < SLOWEST, "{slowest:?} for one of {reads}\n{}", ensemble.logs());
    assert_eq!(ensemble.leader(), leader, "{}", ensemble.logs());
    let log = ensemble.server(leader).log();
    assert_eq!(log.matches("looks for a leader").count(), 1, "{log}");
}

/// Resident memory of the process, in MiB; `None` except on Linux.
fn memory(server: &Server) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{}/status", server.pid())).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib >> 10)
}

#[test]
fn long_answers_are_sent_in_parts_and_memory_is_returned() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "4lw.commands.whitelist=*");
    let (mut client, granted) = Raw::open(server.port, 40_000);
    fill(&mut client, "/n", NODES, 0);
    fill(&mut client, "/e", EPHEMERALS, 1);
    watch(&mut client, NODES);
    let before = memory(&server);

    // For a client that does not read, the server buffers only a part of the answer.
    let deaf: Vec<TcpStream> = (0..40)
        .map(|number| {
            let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("connects");
            socket.write_all(if number % 2 == 0 { b"wchp" } else { b"wchc" }).expect("writes");
            socket
        })
        .collect();
    let session = granted.session.to_string();
    let texts = ["wchp", "wchc", "dump"].map(|word| read_all(&server, word));
    let [by_path, by_session, dump] = &texts;
    let expected: String = (0..NODES).map(|n| format!("/n/{n:07}\n\t{session}\n")).collect();
    assert!(*by_path == expected + "\n", "each path with its watcher, once");
    assert_eq!(by_session.lines().next(), Some(&*session));
    assert_eq!(by_session.lines().count(), 1 + NODES + 1, "a session, its paths, an empty line");
    let ephemerals = dump.split_once("Sessions with Ephemerals (1):\n").expect("is there").1;
    let (paths, rest) = ephemerals.split_once("Connections dump:\n").expect("is there");
    assert!(paths.starts_with(&format!("{session}:\n\t/e/0000000\n\t/e/0000001\n")), "{paths}");
    assert_eq!(paths.lines().count(), 1 + EPHEMERALS);
    assert!(rest.contains("sessionId: 0x"), "{rest}");
    let summary = format!("1 connections watching {NODES} paths\nTotal watches:{NODES}\n");
    assert_eq!(ask(&server, "wchs"), summary);
    let with_deaf = memory(&server);

    // Large replies, each of which takes megabytes for a moment.
    drop(deaf);
    let children = Request::GetChildren { path: "/n".into(), watch: false, with_stat: false };
    for _ in 0..4 {
        assert_eq!(client.call(Request::MultiRead(vec![children.clone(); 8])).0, 0);
    }
    let (Some(before), Some(with_deaf)) = (before, with_deaf) else { return };
    assert!(with_deaf < before + 60, "{before} MiB, {with_deaf} with 40 who do not read");
    eventually("memory that goes back", || {
        memory(&server).is_some_and(|after| after < before + 40)
    });
}

fn read_all(server: &Server, word: &str) -> String {
    let mut socket = TcpStream::connect(("127.0.0.1", server.port)).expect("connects");
    socket.write_all(word.as_bytes()).expect("writes");
    let mut text = String::new();
    socket.read_to_string(&mut text).expect("is text");
    text
}

#[test]
fn unread_events_of_a_client_are_bounded() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let path = format!("/{}", "e".repeat(500_000));
    let (mut writer, _) = Raw::open(server.port, 20_000);
    let (mut other, _) = Raw::open(server.port, 20_000);
    let mode = AddWatchMode::PersistentRecursive;
    let mut deaf: Vec<_> = (0..10)
        .map(|_| {
            let mut client = Raw::connect_narrow(server.port);
            let granted = client.shake_hands(20_000).expect("lets in");
            assert_eq!(client.call(Request::AddWatch { path: path.clone(), mode }).0, 0);
            (client, granted)
        })
        .collect();
    assert_eq!(other.call(Request::AddWatch { path: path.clone(), mode }).0, 0);
    assert_eq!(writer.call(create(&path, b"", 0)).0, 0);
    for _ in 0..60 {
        assert_eq!(writer.call(set(&path, b"")).0, 0);
        // This client reads its events, so its connection is not closed.
        other.ping();
    }
    server.await_line(&[&"closed the connection from", &"bytes of events wait for its client"]);
    let (client, granted) = deaf.pop().expect("there are ten");
    drop(client);
    let (mut back, again) = Raw::resume(server.port, &granted);
    assert_eq!(again.session, granted.session, "its session lives on");
    let watches = SetWatches { data: vec![path.clone()], ..SetWatches::default() };
    assert_eq!(back.call(Request::SetWatches(watches)).0, 0);
    if let Some(peak) = server.peak_memory() {
        assert!(peak < 300 << 20, "{} MiB; all of it would be 360", peak >> 20);
    }
}

#[test]
fn incomplete_frame_times_out() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "tickTime=500");
    // If the session expires at the same moment, the log names that reason; then try again.
    for _ in 0..10 {
        let (mut client, granted) = Raw::open(server.port, 1_000);
        assert_eq!(granted.timeout_ms, 1_000);
        client.socket.write_all(&[0, 0, 100, 0]).expect("writes");
        let began = Instant::now();
        while client.socket.write_all(&[7]).is_ok() {
            assert!(began.elapsed() < Duration::from_secs(10), "{}", server.log());
            thread::sleep(Duration::from_millis(50));
        }
        assert!(began.elapsed() > Duration::from_millis(900), "not before its time");
        if server.log().contains("a frame has not ended within 1000 ms") {
            return;
        }
    }
    panic!("{}", server.log());
}
