//! Few file descriptors: new connections wait, and files can still be opened.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rustix::process::{Pid, Resource, Rlimit, prlimit};
use tempfile::tempdir;

use crate::four_letter::ask;
use crate::harness::{Server, command, configure, eventually, free_port};
use crate::raw::{Raw, create, exists, set};

/// Starts a server in a shell that has run the `ulimit` command `limit`.
fn start_below(limit: &str, dir: &Path, settings: &str) -> Server {
    let port = free_port();
    let real = command(&configure(port, dir, settings));
    let mut shell = Command::new("sh");
    let script = format!("{limit}; exec \"$0\" \"$1\"");
    shell.args(["-c", &script]).arg(real.get_program()).args(real.get_args());
    shell.env_remove("RUST_LOG").env_remove("SERVER_JVMFLAGS");
    Server::run(shell, port)
}

/// Number of files in the data directory whose names begin with `kind`.
fn files(dir: &Path, kind: &str) -> usize {
    let names = fs::read_dir(dir.join("data/zabkeeper")).expect("is there");
    let names = names.map(|entry| entry.expect("is a file").file_name());
    names.filter(|name| name.to_str().is_some_and(|name| name.starts_with(kind))).count()
}

#[test]
fn soft_limit_is_raised_to_hard_limit() {
    let dir = tempdir().expect("creates");
    let limit = "ulimit -Sn 200; ulimit -Hn 900";
    let server = start_below(limit, dir.path(), "4lw.commands.whitelist=*");
    let mntr = ask(&server, "mntr");
    assert!(mntr.contains("zk_max_file_descriptor_count\t900\n"), "{mntr}");
}

#[test]
fn connections_wait_and_leave_descriptors_to_the_log() {
    let dir = tempdir().expect("creates");
    let settings = "maxClientCnxns=0\nsnapCount=300\npreAllocSize=64";
    let server = start_below("ulimit -n 150", dir.path(), settings);
    let (mut client, _) = Raw::open(server.port, 30_000);
    assert_eq!(client.call(create("/a", b"", 0)).0, 0);

    let crowd: Vec<Raw> = (0..400).map(|_| Raw::connect(server.port)).collect();
    let line = "clients that connect have to wait: but for a reserve of 37, all 150 descriptors \
        are in use";
    server.await_line(&[&"WARN", &line]);
    let before = (files(dir.path(), "log."), files(dir.path(), "snapshot."));
    for _ in 0..1000 {
        assert_eq!(client.call(set("/a", &[7; 1000])).0, 0, "{}", server.log());
    }
    eventually("new segments and snapshots", || {
        assert_eq!(client.call(exists("/a")).0, 0);
        files(dir.path(), "log.") > before.0 && files(dir.path(), "snapshot.") > before.1
    });
    let mut late = Raw::connect(server.port);
    late.give_up_after(Duration::from_millis(500));
    assert_eq!(late.shake_hands(10_000), None, "there is no room");
    assert!(server.log().lines().count() < 40, "{}", server.log());

    drop((crowd, late));
    let (mut next, _) = Raw::open(server.port, 10_000);
    assert_eq!(next.call(exists("/a")).0, 0);
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// Lowers the process's limit on open files to its lowest free descriptor, or restores 300.
fn set_crowded(server: &Server, crowded: bool) {
    let process = i32::try_from(server.pid()).ok().and_then(Pid::from_raw).expect("is one");
    let lowest_free = || {
        let is_open = |number: &u64| {
            Path::new(&format!("/proc/{}/fd/{number}", server.pid())).symlink_metadata().is_ok()
        };
        (0..).find(|number| !is_open(number)).expect("there are not so many")
    };
    let current = Some(if crowded { lowest_free() } else { 300 });
    prlimit(Some(process), Resource::Nofile, Rlimit { current, maximum: Some(300) })
        .expect("is our child");
}

/// Starts a server whose snapshots fail for lack of descriptors.
fn start_without_descriptors(dir: &Path) -> (Server, Raw) {
    let server = start_below("ulimit -n 300", dir, "snapCount=300\nautopurge.snapRetainCount=3");
    let (mut client, _) = Raw::open(server.port, 30_000);
    assert_eq!(client.call(create("/a", b"", 0)).0, 0);
    set_crowded(&server, true);
    for _ in 0..1000 {
        assert_eq!(client.call(set("/a", b"7")).0, 0, "{}", server.log());
    }
    server.await_line(&[&"WARN", &"is given up for now", &"too many open files"]);
    assert_eq!(files(dir, "snapshot."), 0);
    (server, client)
}

#[test]
fn snapshot_without_descriptor_is_retried_later() {
    let dir = tempdir().expect("creates");
    let (server, mut client) = start_without_descriptors(dir.path());
    assert_eq!(client.call(set("/a", b"8")).0, 0, "goes on serving");
    set_crowded(&server, false);
    // After a pause, the next request triggers another snapshot.
    eventually("the snapshot", || {
        assert_eq!(client.call(set("/a", b"8")).0, 0);
        files(dir.path(), "snapshot.") > 0
    });
    assert_eq!(client.call(set("/a", b"9")).0, 0);
}

#[test]
fn server_without_descriptors_can_be_stopped() {
    let dir = tempdir().expect("creates");
    let (server, _client) = start_without_descriptors(dir.path());
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}
