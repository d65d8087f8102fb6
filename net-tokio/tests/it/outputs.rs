//! Standard output and error that are full, closed or never read: neither the service nor the exit
//! status depends on them.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::four_letter::try_ask;
use crate::harness::{PATIENCE, command, configure, eventually, free_port, started};
use crate::raw::{Raw, create, exists};

/// Default capacity of a pipe on Linux, in bytes.
const PIPE_BYTES: usize = 64 << 10;

/// Minimum bytes that the debug log writes per connection, at its begin and its end.
const BYTES_PER_CONNECTION: usize = 150;

/// A server whose outputs the test does not read through the harness. Dropping it kills it.
struct Muted {
    child: Child,
    port: u16,
}

impl Muted {
    /// Starts a server that logs each connection, and waits until it serves.
    fn start(dir: &Path, stdout: Stdio, stderr: Stdio) -> Muted {
        let port = free_port();
        let mut command = command(&configure(port, dir, "maxClientCnxns=0"));
        command.env("RUST_LOG", "debug").stdout(stdout).stderr(stderr);
        Muted::run(command, port)
    }

    fn run(mut command: Command, port: u16) -> Muted {
        let server = Muted { child: started(&mut command), port };
        eventually("a server that serves", || try_ask(port, "srvr").is_some());
        server
    }

    /// Makes the server log more than `bytes` bytes, and checks that it keeps serving.
    fn cause_lines(&self, bytes: usize) {
        let (mut bystander, _) = Raw::open(self.port, 30_000);
        for _ in 0..bytes / BYTES_PER_CONNECTION {
            let _unread = Raw::connect(self.port);
        }
        assert_eq!(bystander.call(create("/served", b"", 0)).0, 0);
        assert_eq!(bystander.call(exists("/served")).0, 0);
    }

    fn terminate(mut self) -> ExitStatus {
        let pid = self.child.id().to_string();
        assert!(started(Command::new("kill").arg(&pid)).wait().expect("ends").success());
        wait(&mut self.child)
    }
}

impl Drop for Muted {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

fn wait(child: &mut Child) -> ExitStatus {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().expect("can be asked") {
            return status;
        }
        assert!(began.elapsed() < PATIENCE, "it waits for its output");
        thread::sleep(Duration::from_millis(10));
    }
}

/// Checks that a server with these outputs serves, and stops with status 0.
fn check_serves(stdout: impl Into<Stdio>, stderr: impl Into<Stdio>) {
    let dir = tempdir().expect("creates");
    let server = Muted::start(dir.path(), stdout.into(), stderr.into());
    server.cause_lines(2 * PIPE_BYTES);
    let status = server.terminate();
    assert_eq!(status.code(), Some(0), "{status}");
}

/// `/dev/full`, on which every write fails with `ENOSPC`; Linux only.
fn full() -> File {
    OpenOptions::new().write(true).open("/dev/full").expect("Linux has it")
}

/// A pipe whose read end is closed.
fn broken() -> io::PipeWriter {
    io::pipe().expect("has descriptors").1
}

#[test]
#[cfg(target_os = "linux")]
fn full_disk_for_both_outputs_does_not_stop_the_server() {
    check_serves(full(), full());
}

#[test]
fn broken_pipes_do_not_stop_the_server() {
    check_serves(broken(), broken());
}

#[test]
fn unread_pipes_do_not_stop_the_server() {
    let (out, err) = (io::pipe().expect("has descriptors"), io::pipe().expect("has descriptors"));
    check_serves(out.1, err.1);
    let mut unread = Vec::new();
    let mut reader = err.0;
    reader.read_to_end(&mut unread).expect("reads");
    assert!(unread.len() >= PIPE_BYTES / 2, "the pipe was not full: {} bytes", unread.len());
}

#[test]
fn full_standard_output_does_not_block_the_log() {
    let dir = tempdir().expect("creates");
    let (_unread, mut full) = io::pipe().expect("has descriptors");
    let mut filler = full.try_clone().expect("has descriptors");
    thread::spawn(move || io::copy(&mut io::repeat(b'x'), &mut filler));
    // The pipe is full when `filler` blocks; then the server's line blocks, too.
    thread::sleep(Duration::from_millis(200));
    io::Write::flush(&mut full).expect("does nothing");
    let log = dir.path().join("log");
    let stderr = File::create(&log).expect("creates");
    let server = Muted::start(dir.path(), full.into(), stderr.into());
    server.cause_lines(0);
    assert_eq!(server.terminate().code(), Some(0));
    let log = std::fs::read_to_string(log).expect("reads");
    assert!(log.contains("serving") && log.ends_with(": stopped\n"), "{log}");
}

#[test]
fn closed_outputs_do_not_stop_the_server() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let real = command(&configure(port, dir.path(), "maxClientCnxns=0"));
    let mut shell = Command::new("sh");
    shell.args(["-c", "exec \"$0\" \"$1\" >&- 2>&-"]).arg(real.get_program());
    shell.args(real.get_args()).env("RUST_LOG", "debug");
    let server = Muted::run(shell, port);
    server.cause_lines(PIPE_BYTES);
    assert_eq!(server.terminate().code(), Some(0));
}

/// Exit status of a server that refuses to start.
fn status(argument: &str, output: impl Fn() -> Stdio) -> Option<i32> {
    let mut command = command(argument);
    // An invalid filter causes another line.
    command.env("RUST_LOG", "no=such=level");
    wait(&mut started(command.stdout(output()).stderr(output()))).code()
}

#[test]
fn exit_status_does_not_depend_on_outputs() {
    let dir = tempdir().expect("creates");
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = taken.local_addr().expect("is bound").port();
    let port_in_use = configure(port, dir.path(), "unknown=1");
    for output in [|| broken().into(), Stdio::null] {
        assert_eq!(status(&port_in_use, output), Some(1));
        assert_eq!(status("/nowhere/zoo.cfg", output), Some(2));
        assert_eq!(status("--prot", output), Some(2));
    }
    assert_eq!(status("--help", || broken().into()), Some(1), "help that nobody gets");
    assert_eq!(status("--help", Stdio::null), Some(0));

    let foreign = tempdir().expect("creates");
    std::fs::create_dir_all(foreign.path().join("data/version-2")).expect("creates");
    std::fs::write(foreign.path().join("data/version-2/snapshot.0"), "").expect("writes");
    let unusable = configure(free_port(), foreign.path(), "");
    assert_eq!(status(&unusable, || broken().into()), Some(3));
    #[cfg(target_os = "linux")]
    for (argument, expected) in [(&port_in_use, 1), (&"/nowhere".to_owned(), 2), (&unusable, 3)] {
        assert_eq!(status(argument, || full().into()), Some(expected), "{argument}");
    }
}

/// A limit on file sizes (`ulimit -f`) simulates a full disk; truncating the file makes room again.
#[test]
fn lines_lost_to_full_disk_are_counted_in_the_log() {
    const LIMIT: usize = 256 << 10;
    let dir = tempdir().expect("creates");
    let port = free_port();
    let log = dir.path().join("log");
    let real = command(&configure(port, dir.path(), "maxClientCnxns=0\npreAllocSize=64"));
    let mut limited = Command::new("bash");
    limited.args(["-c", "ulimit -f 256; exec \"$0\" \"$1\""]).arg(real.get_program());
    let append = OpenOptions::new().create(true).append(true).open(&log).expect("creates");
    limited.args(real.get_args()).env("RUST_LOG", "debug").stderr(append).stdout(Stdio::null());
    let server = Muted::run(limited, port);
    server.cause_lines(2 * LIMIT);
    let text = || std::fs::read_to_string(&log).expect("reads");
    eventually("the end of the disk", || text().len() == LIMIT);
    OpenOptions::new().write(true).open(&log).expect("opens").set_len(0).expect("cuts");
    eventually("the count", || {
        let _line = Raw::connect(port);
        text().contains(" lines of this log: File too large (os error 27)")
    });
    assert_eq!(server.terminate().code(), Some(0));
    let text = text();
    assert!(text.contains("WARN") && text.ends_with(": stopped\n"), "{text}");
}
