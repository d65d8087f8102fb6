//! Whatever was acknowledged survives the end of the process, however it ends.

use std::io::Write;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use bytes::BytesMut;
use tempfile::tempdir;

use crate::harness::{Server, command, configure, eventually, free_port};
use crate::raw::{Raw, create, get, set, sync};

/// Requests that each writer keeps under way.
const PIPELINE: usize = 64;

static ACKNOWLEDGED: AtomicUsize = AtomicUsize::new(0);

/// Clients that write until their connection ends.
pub(crate) struct Writers(Vec<JoinHandle<Vec<String>>>);

impl Writers {
    /// Paths of all nodes whose creation was acknowledged; the path is the data, too.
    pub(crate) fn join(self) -> Vec<String> {
        self.0
            .into_iter()
            .flat_map(|writer| writer.join().expect("saw only what it should"))
            .collect()
    }
}

/// Starts so many pipelining clients, and calls `then` once all are at work.
pub(crate) fn write_until_the_end(server: &Server, clients: usize, then: impl FnOnce()) -> Writers {
    let before = ACKNOWLEDGED.load(Ordering::Relaxed);
    let port = server.port;
    let writers = (0..clients).map(|id| thread::spawn(move || write(port, id))).collect();
    eventually("writers at work", || ACKNOWLEDGED.load(Ordering::Relaxed) >= before + 2_000);
    then();
    Writers(writers)
}

fn write(port: u16, id: usize) -> Vec<String> {
    let (mut raw, response) = Raw::open(port, 10_000);
    let directory = format!("/w{id}-{:x}", response.session.0);
    assert_eq!(raw.call(create(&directory, b"", 0)).0, 0);
    let mut acknowledged = Vec::new();
    for round in 0.. {
        let paths: Vec<String> =
            (0..PIPELINE).map(|i| format!("{directory}/{round}-{i}")).collect();
        let mut bytes = BytesMut::new();
        for path in &paths {
            raw.encode(create(path, path.as_bytes(), 0), &mut bytes);
        }
        if raw.socket.write_all(&bytes).is_err() {
            return acknowledged;
        }
        for path in paths {
            let Some((_, err, _)) = raw.reply() else {
                return acknowledged;
            };
            assert_eq!(err, 0, "{path}");
            acknowledged.push(path);
            ACKNOWLEDGED.fetch_add(1, Ordering::Relaxed);
        }
    }
    acknowledged
}

/// Reads every one of these nodes back.
pub(crate) fn check_all_there(server: &Server, paths: &[String]) {
    assert!(!paths.is_empty());
    let (mut raw, _) = Raw::open(server.port, 10_000);
    // A follower may not have heard of the newest ones yet.
    assert_eq!(raw.call(sync()).0, 0);
    for chunk in paths.chunks(500) {
        let mut bytes = BytesMut::new();
        for path in chunk {
            raw.encode(get(path), &mut bytes);
        }
        raw.socket.write_all(&bytes).expect("writes");
        for path in chunk {
            let (_, err, body) = raw.reply().expect("is answered");
            assert_eq!(err, 0, "{path} was acknowledged and is lost");
            assert_eq!(&body[4..4 + path.len()], path.as_bytes());
        }
    }
}

#[test]
fn every_acknowledged_write_survives_kill_9_under_load() {
    let dir = tempdir().expect("creates");
    let settings = "snapCount=3000\npreAllocSize=256";
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let server = Server::start(dir.path(), settings);
        let writers = write_until_the_end(&server, 8, || {});
        server.kill();
        acknowledged.extend(writers.join());
        let server = Server::start(dir.path(), settings);
        check_all_there(&server, &acknowledged);
    }
}

/// A limit on the size of files stands in for a disk that is full.
#[test]
fn a_full_disk_stops_the_server_with_a_clear_error_and_loses_nothing() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let file = configure(port, dir.path(), "preAllocSize=64");
    let program = command(&file).get_program().to_owned();
    let mut limited = Command::new("bash");
    limited
        .args(["-c", "trap '' XFSZ; ulimit -f 256; exec \"$0\" \"$1\""])
        .arg(program)
        .arg(&file)
        .env_remove("RUST_LOG");
    let mut server = Server::run(limited, port);
    let (mut client, _) = Raw::open(port, 10_000);
    let paths: Vec<String> = (0..100).map(|i| format!("/kept{i}")).collect();
    for path in &paths {
        assert_eq!(client.call(create(path, path.as_bytes(), 0)).0, 0);
    }
    client.send(set("/kept0", &vec![0; 600_000]));
    assert_eq!(client.reply(), None, "it cannot be acknowledged");
    let (status, log) = server.wait();
    assert_eq!(status.code(), Some(1), "{log}");
    assert!(log.contains("ERROR") && log.contains("the disk failed: "), "{log}");

    let server = Server::start(dir.path(), "");
    check_all_there(&server, &paths);
}
