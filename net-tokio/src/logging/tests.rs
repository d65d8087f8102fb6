//! Tests of the panic hook in a child process, which runs this test binary again.

use std::ffi::OsStr;
use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use super::*;

/// The environment variable that tells the child process to panic.
const TO_PANIC: &str = "ZABKEEPER_TEST_TO_PANIC";

const AFTER_MANY_LINES: &str = "after many lines";
const HOLDING_THE_QUEUE: &str = "holding the queue";

/// Logs more than a pipe buffer holds, and panics.
fn log_and_panic(how: &OsStr) -> ! {
    let logging = Logging::start().expect("has threads");
    if how == HOLDING_THE_QUEUE {
        let _queue = logging.lines.held();
        panic!("nobody else can report anything now");
    }
    (0..4000).for_each(|i| tracing::info!("line {i} of some that fill the pipe"));
    let thread = thread::Builder::new().name("culprit".to_owned());
    let culprit = thread.spawn(|| panic!("an invariant is broken")).expect("starts");
    culprit.join().expect("the hook ends the process");
    unreachable!("a process that has panicked goes on");
}

fn process_that_panics(how: &str, stderr: Stdio) -> Child {
    let program = std::env::current_exe().expect("is a file");
    let mut command = Command::new(program);
    command.args([
        "--exact",
        "--nocapture",
        "logging::tests::a_panic_aborts_whatever_the_output_is",
    ]);
    command.env(TO_PANIC, how).env_remove("RUST_LOG").env_remove("RUST_BACKTRACE");
    command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
    command.spawn().expect("starts")
}

/// Waits a bounded time for the child to die of SIGABRT.
fn await_abort(mut child: Child) {
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("can be asked") {
            break status;
        }
        if started.elapsed() > REPORT + Duration::from_secs(20) {
            child.kill().expect("is there");
            panic!("the report of a panic waits for its output");
        }
        thread::sleep(Duration::from_millis(10));
    };
    assert_eq!(status.signal(), Some(6), "{status}");
}

#[test]
fn a_panic_aborts_whatever_the_output_is() {
    if let Some(how) = std::env::var_os(TO_PANIC) {
        log_and_panic(&how);
    }
    let read = process_that_panics(AFTER_MANY_LINES, Stdio::piped());
    let output = read.wait_with_output().expect("ends");
    assert_eq!(output.status.signal(), Some(6));
    let text = String::from_utf8_lossy(&output.stderr);
    let report = text.lines().find(|line| line.contains("ERROR")).expect("is reported");
    assert!(
        report.contains("thread culprit panicked at ") && report.contains("tests.rs"),
        "{report}"
    );
    assert!(text.ends_with("an invariant is broken\n"), "{text}");

    if let Ok(full) = OpenOptions::new().write(true).open("/dev/full") {
        await_abort(process_that_panics(AFTER_MANY_LINES, full.into()));
    }
    await_abort(process_that_panics(AFTER_MANY_LINES, closed_pipe()));
    // The read end of the pipe stays open, but is never read.
    let mut unread = process_that_panics(AFTER_MANY_LINES, Stdio::piped());
    let _pipe = unread.stderr.take();
    await_abort(unread);
    await_abort(process_that_panics(HOLDING_THE_QUEUE, Stdio::null()));
}

/// A pipe whose read end is closed.
fn closed_pipe() -> Stdio {
    let (reader, writer) = io::pipe().expect("has descriptors");
    drop(reader);
    writer.into()
}
