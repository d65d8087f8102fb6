//! Acknowledged writes survive any end of the process.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use bytes::BytesMut;
use tempfile::tempdir;

use crate::harness::{Server, command, configure, eventually, free_port, refused};
use crate::raw::{Raw, create, get, set, sync};

/// Number of requests that each writer pipelines.
const PIPELINE: usize = 64;

static ACKNOWLEDGED: AtomicUsize = AtomicUsize::new(0);

/// Clients that write until their connection ends.
pub(crate) struct Writers(Vec<JoinHandle<Vec<String>>>);

impl Writers {
    /// Paths of all nodes whose creation was acknowledged; each node's data is its path.
    pub(crate) fn join(self) -> Vec<String> {
        self.0
            .into_iter()
            .flat_map(|writer| writer.join().expect("saw only what it should"))
            .collect()
    }
}

/// Starts pipelining clients, and calls `then` after their first 2,000 acknowledged writes.
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

/// Checks that the server has all these nodes with their data.
pub(crate) fn check_all_there(server: &Server, paths: &[String]) {
    assert!(!paths.is_empty());
    let (mut raw, _) = Raw::open(server.port, 10_000);
    // A follower may not have applied the newest writes yet.
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

/// The newest log segment below this directory.
fn newest_segment(folder: &Path) -> PathBuf {
    let mut folders = vec![folder.to_owned()];
    let mut segments = Vec::new();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("reads") {
            let path = entry.expect("reads").path();
            if path.is_dir() {
                folders.push(path);
            } else if path
                .file_name()
                .is_some_and(|name| name.to_string_lossy().starts_with("log."))
            {
                segments.push(path);
            }
        }
    }
    segments.into_iter().max().expect("there is a log")
}

/// Changes the newest log segment below this directory; `change` also gets the offset of its last
/// batch.
pub(crate) fn change_last_batch(folder: &Path, change: impl FnOnce(&mut Vec<u8>, usize)) {
    let segment = newest_segment(folder);
    let mut bytes = std::fs::read(&segment).expect("reads");
    let batch = bytes.windows(4).rposition(|magic| magic == b"zkba").expect("there is a batch");
    change(&mut bytes, batch);
    std::fs::write(&segment, bytes).expect("writes");
}

/// The last acknowledged write is damaged while the server is down. However the process had ended,
/// the next start refuses to run instead of losing the write.
#[test]
fn damaged_last_write_is_detected_after_any_end_of_the_process() {
    let flip = |bytes: &mut Vec<u8>, batch: usize| bytes[batch + 60] ^= 1;
    let cut = |bytes: &mut Vec<u8>, batch: usize| bytes.truncate(batch + 60);
    let stop = |server: Server| assert_eq!(server.terminate().0.code(), Some(0));
    let quiet = |server: Server| {
        thread::sleep(std::time::Duration::from_millis(2_500));
        server.kill();
    };
    type End<'a> = &'a dyn Fn(Server);
    type Change<'a> = &'a dyn Fn(&mut Vec<u8>, usize);
    let cases: [(End<'_>, Change<'_>); 5] =
        [(&stop, &flip), (&stop, &cut), (&quiet, &flip), (&quiet, &cut), (&Server::kill, &flip)];
    // Only Linux has a boot id, which the last case needs.
    let known = if cfg!(target_os = "linux") { 5 } else { 4 };
    for (end, change) in &cases[..known] {
        let dir = tempdir().expect("creates");
        let server = Server::start(dir.path(), "preAllocSize=64");
        let (mut client, _) = Raw::open(server.port, 10_000);
        assert_eq!(client.call(create("/kept", &[7; 100], 0)).0, 0);
        end(server);
        change_last_batch(dir.path(), change);
        let (code, text) = refused(&configure(free_port(), dir.path(), "preAllocSize=64"));
        assert_eq!(code, Some(3), "{text}");
        assert!(text.contains("log.") && text.contains(" is damaged: "), "{text}");
        assert!(text.contains("restore ") && text.contains(" from a copy, which loses"), "{text}");
    }
}

/// A limit on file sizes (`ulimit -f`) simulates a full disk.
#[test]
fn full_disk_stops_server_and_loses_no_acknowledged_write() {
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
