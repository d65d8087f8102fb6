//! Starts the server binary on a free loopback port, collects its log, and kills it at the end of
//! the test; and what several tests wait for and repeat.

use std::fmt::Display;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use zabkeeper_client::Client;

/// Timeout for everything that is expected to happen; long, because machines may be loaded.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// A server process. Dropping it kills it.
pub(crate) struct Server {
    child: Child,
    pub(crate) port: u16,
    log: Log,
    /// The thread that fills `log`.
    reader: Option<JoinHandle<()>>,
    /// Kept open, so that the server can write its line.
    stdout: BufReader<ChildStdout>,
}

/// The process's standard error so far.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<String>>);

impl Server {
    /// Starts a server with its data in `dir` and these additional lines in its configuration.
    pub(crate) fn start(dir: &Path, settings: &str) -> Server {
        Server::start_on(free_port(), dir, settings)
    }

    pub(crate) fn start_on(port: u16, dir: &Path, settings: &str) -> Server {
        let command = command(&configure(port, dir, settings));
        Server::run(command, port)
    }

    /// Runs a command that becomes a server on `port`, and waits until it serves clients.
    pub(crate) fn run(command: Command, port: u16) -> Server {
        let mut server = Server::spawn(command, port);
        let line = server.first_line();
        assert!(line.contains(&port.to_string()), "no server: {line:?}\n{}", server.log());
        server
    }

    /// As [`Server::run`], without waiting.
    pub(crate) fn spawn(mut command: Command, port: u16) -> Server {
        let mut child = started(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
        let log = Log::default();
        let reader = Some(log.follow(child.stderr.take().expect("is piped")));
        let stdout = BufReader::new(child.stdout.take().expect("is piped"));
        Server { child, port, log, reader, stdout }
    }

    /// The first line of standard output, which the server writes when it serves clients.
    pub(crate) fn first_line(&mut self) -> String {
        let mut line = String::new();
        self.stdout.read_line(&mut line).expect("reads");
        line
    }

    /// The address for clients.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The process id.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The log so far.
    pub(crate) fn log(&self) -> String {
        self.log.0.lock().expect("nobody panics with it").clone()
    }

    /// The peak resident memory of the process, in bytes; `None` except on Linux.
    pub(crate) fn peak_memory(&self) -> Option<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
        let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
        Some(kib << 10)
    }

    /// Waits until the log has a line with all of `words`.
    pub(crate) fn await_line(&self, words: &[&dyn Display]) {
        let words: Vec<String> = words.iter().map(ToString::to_string).collect();
        let has_all = |line: &str| words.iter().all(|word| line.contains(word));
        eventually(&format!("a log line with {words:?}"), || self.log().lines().any(has_all));
    }

    /// Sends SIGKILL and waits for the end.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("is there");
        self.child.wait().expect("ends");
    }

    /// Sends SIGTERM; returns the exit status and the log.
    pub(crate) fn terminate(mut self) -> (ExitStatus, String) {
        self.signal("TERM");
        self.wait()
    }

    /// Sends a signal by its name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.id().to_string();
        let sent = started(Command::new("kill").args(["-s", name, &pid])).wait().expect("ends");
        assert!(sent.success(), "SIG{name}");
    }

    /// Waits for the process to end without a signal; returns the exit status and the log.
    pub(crate) fn wait(&mut self) -> (ExitStatus, String) {
        let started = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("can be asked") {
                // The end of the log may not have been read yet.
                if let Some(reader) = self.reader.take() {
                    reader.join().expect("reads to the end");
                }
                return (status, self.log());
            }
            assert!(started.elapsed() < PATIENCE, "still runs:\n{}", self.log());
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The process may have ended already.
        let _gone = self.child.kill();
        let _gone = self.child.wait();
    }
}

impl Log {
    fn follow(&self, pipe: impl Read + Send + 'static) -> JoinHandle<()> {
        let log = self.clone();
        thread::spawn(move || {
            for line in BufReader::new(pipe).lines().map_while(Result::ok) {
                *log.0.lock().expect("nobody panics with it") += &(line + "\n");
            }
        })
    }
}

/// Writes `zoo.cfg` into `dir` and returns its path.
pub(crate) fn configure(port: u16, dir: &Path, settings: &str) -> String {
    let file = dir.join("zoo.cfg");
    let data = dir.join("data");
    // The default port is one for all servers, and open to other machines.
    let admin = if settings.contains("admin.") { "" } else { "admin.enableServer=false\n" };
    let text = format!(
        "clientPort={port}\nclientPortAddress=127.0.0.1\ndataDir={}\ntickTime=2000\n{settings}\n{admin}",
        data.display()
    );
    std::fs::write(&file, text).expect("writes");
    file.to_str().expect("is text").to_owned()
}

/// The command that runs the server binary with one argument.
pub(crate) fn command(argument: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_zabkeeper"));
    command
        .arg(argument)
        .env_remove("RUST_LOG")
        .env_remove("SERVER_JVMFLAGS")
        .env_remove("JVMFLAGS");
    command
}

/// Exit status and both outputs of a server that refuses to start.
pub(crate) fn refused(argument: &str) -> (Option<i32>, String) {
    let mut command = command(argument);
    let child = started(command.stdout(Stdio::piped()).stderr(Stdio::piped()));
    let output = child.wait_with_output().expect("ends");
    let text = [output.stdout, output.stderr].concat();
    (output.status.code(), String::from_utf8(text).expect("is text"))
}

/// A lock during which no process is started. Between fork and exec a child holds copies of all
/// sockets, so a socket closed by the test stays open in the child for a while: its port is not
/// free, and the other end of a connection does not see the close.
pub(crate) fn nobody_forks() -> MutexGuard<'static, ()> {
    static FORKING: Mutex<()> = Mutex::new(());
    // The lock may be poisoned by a failed test; it protects no data.
    FORKING.lock().unwrap_or_else(PoisonError::into_inner)
}

pub(crate) fn started(command: &mut Command) -> Child {
    let _alone = nobody_forks();
    command.spawn().expect("starts")
}

/// A port that was free a moment ago, below the ephemeral ports of the kernel: so no connection
/// takes it before a restarted server binds it again.
pub(crate) fn free_port() -> u16 {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let offset = u16::try_from(std::process::id() * 37 % 20_000).expect("is small");
    let _alone = nobody_forks();
    loop {
        let port = 10_000 + (offset + NEXT.fetch_add(1, Ordering::Relaxed)) % 20_000;
        if TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return port;
        }
    }
}

/// Waits until `holds`; panics after [`PATIENCE`].
pub(crate) fn eventually(what: &str, holds: impl FnMut() -> bool) {
    assert!(comes_true(holds), "waited in vain for {what}");
}

/// Does `holds` become true within [`PATIENCE`]?
pub(crate) fn comes_true(mut holds: impl FnMut() -> bool) -> bool {
    let started = Instant::now();
    while !holds() {
        if started.elapsed() >= PATIENCE {
            return false;
        }
        thread::sleep(Duration::from_millis(10));
    }
    true
}

/// Runs an asynchronous test, for as long as a test may take.
pub(crate) fn block_on(test: impl Future<Output = ()>) {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("starts");
    runtime.block_on(async {
        tokio::time::timeout(PATIENCE, test).await.expect("takes no more than its time");
    });
}

/// Reads until an attempt succeeds: an answer may be lost with a server that stops.
pub(crate) async fn get(client: &Client, path: &str) -> String {
    loop {
        match client.get(path).await {
            Ok((data, _)) => return String::from_utf8(data.to_vec()).expect("is text"),
            Err(error) => assert!(error.is_recoverable(), "{error}"),
        }
        client.connected().await.expect("the session lives");
    }
}

/// Writes until an attempt succeeds.
pub(crate) async fn set(client: &Client, path: &str, data: &'static str) {
    while let Err(error) = client.set(path, data, None).await {
        assert!(error.is_recoverable(), "{error}");
        client.connected().await.expect("the session lives");
    }
}
