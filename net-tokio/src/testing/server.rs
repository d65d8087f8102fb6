//! One server inside a test: a thread with a runtime of its own.
//!
//! Owns the thread, its start and its end. Must not know the other servers.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use super::Error;
use super::ports::Ports;
use crate::config::Settings;
use crate::host::{Failure, Host, Stop, StopRequests};
use crate::serve;

/// Time for a server to stop gracefully. It needs that much only if its disk does not answer, or
/// while it starts.
const GRACE: Duration = Duration::from_secs(10);

/// Time for threads that look up names or read directories, when the server has ended.
const LOOKUP: Duration = Duration::from_secs(1);

/// Time for a server of this process to answer a four-letter command.
const ANSWER: Duration = Duration::from_secs(2);

/// A server, which may run.
#[derive(Debug)]
pub(super) struct Server {
    id: u64,
    zoo_cfg: PathBuf,
    ports: Ports,
    running: Option<Running>,
}

#[derive(Debug)]
struct Running {
    stop: UnboundedSender<Stop>,
    /// A message, or dropping it, ends the thread at once.
    kill: UnboundedSender<()>,
    thread: JoinHandle<Result<(), Failure>>,
}

/// How far a server that starts has come.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Milestone {
    /// Its data is recovered, and it accepts connections.
    Opened,
    /// It serves clients.
    Serving,
}

/// A server that starts. The channel is closed when it ends.
pub(super) struct Starting {
    milestones: Receiver<Milestone>,
    began: Instant,
}

impl Server {
    /// A server that does not run, with the settings in the file `zoo_cfg`.
    pub(super) fn new(id: u64, zoo_cfg: PathBuf, ports: Ports) -> Server {
        Server { id, zoo_cfg, ports, running: None }
    }

    /// The port for clients.
    pub(super) fn client_port(&self) -> u16 {
        self.ports.client()
    }

    /// Does the server run? One that has ended by itself does not.
    pub(super) fn is_running(&self) -> bool {
        self.running.as_ref().is_some_and(|running| !running.thread.is_finished())
    }

    /// Starts the server; `None` if it runs.
    ///
    /// # Errors
    /// A setting is invalid, the system has no thread, or the server has ended by itself since it
    /// was started.
    pub(super) fn start(&mut self) -> Result<Option<Starting>, Error> {
        if self.is_running() {
            return Ok(None);
        }
        if let Some(running) = self.running.take() {
            self.join(running)?;
        }
        let (settings, warnings) = Settings::from_file_alone(&self.zoo_cfg)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        let (sender, milestones) = mpsc::channel();
        let (stop, requests) = unbounded_channel();
        let (kill, killed) = unbounded_channel();
        let host = TestHost { milestones: sender, requests: Some(requests) };
        let id = self.id;
        let run = move || {
            let _of_all_lines = tracing::info_span!("zabkeeper", myid = id).entered();
            for warning in warnings {
                tracing::warn!("{warning}");
            }
            let ended = run(settings, host, killed);
            if let Err(failure) = &ended {
                tracing::error!("{failure}");
            }
            ended
        };
        let thread = thread::Builder::new().name(format!("zabkeeper {id}")).spawn(run);
        let thread = thread.map_err(|error| {
            Error::System(format!("cannot start a thread for server {id}: {error}"))
        })?;
        self.running = Some(Running { stop, kill, thread });
        Ok(Some(Starting { milestones, began: Instant::now() }))
    }

    /// Waits until the server has come that far.
    ///
    /// # Errors
    /// It has ended, or has not come that far within `time` since it was started.
    pub(super) fn wait(
        &mut self,
        starting: &Starting,
        wanted: Milestone,
        time: Duration,
    ) -> Result<(), Error> {
        loop {
            let left = time.saturating_sub(starting.began.elapsed());
            match starting.milestones.recv_timeout(left) {
                Ok(milestone) if milestone >= wanted => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => {
                    return Err(Error::TimedOut { id: self.id, waited: time });
                }
                Err(RecvTimeoutError::Disconnected) => {
                    self.running.take().map_or(Ok(()), |running| self.join(running))?;
                    let what = "it was stopped while it started".to_owned();
                    return Err(Error::Server { id: self.id, what });
                }
            }
        }
    }

    /// Requests the server to stop as after SIGTERM, without waiting.
    pub(super) fn stop(&self) {
        if let Some(running) = &self.running {
            // It may have ended by itself.
            let _ended = running.stop.send(Stop::Gracefully);
        }
    }

    /// Ends the server as SIGKILL does, without waiting.
    pub(super) fn kill(&self) {
        if let Some(running) = &self.running {
            // It may have ended by itself.
            let _ended = running.kill.send(());
        }
    }

    /// Waits until the server has ended, if it runs; kills it after [`GRACE`].
    ///
    /// # Errors
    /// It has ended by itself.
    pub(super) fn wait_for_end(&mut self) -> Result<(), Error> {
        let Some(running) = self.running.take() else { return Ok(()) };
        let latest = Instant::now() + GRACE;
        while !running.thread.is_finished() && Instant::now() < latest {
            thread::sleep(Duration::from_millis(1));
        }
        // A server that waits for a port or a name reads no requests to stop yet.
        let _ended = running.kill.send(());
        self.join(running)
    }

    fn join(&self, running: Running) -> Result<(), Error> {
        let ended = running.thread.join();
        let ended = ended.unwrap_or_else(|payload| Err(Failure::panicked(&*payload)));
        ended.map_err(|failure| Error::Server { id: self.id, what: failure.to_string() })
    }

    /// Does the server lead an ensemble, or serve on its own?
    pub(super) fn leads(&self) -> bool {
        let mode = |answer: String| {
            let mode = answer.lines().find_map(|line| line.strip_prefix("Mode: "));
            mode.is_some_and(|mode| ["leader", "standalone"].contains(&mode))
        };
        self.is_running() && self.ask(b"srvr").is_ok_and(mode)
    }

    fn ask(&self, command: &[u8; 4]) -> io::Result<String> {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, self.client_port()));
        let mut stream = TcpStream::connect_timeout(&address, ANSWER)?;
        stream.set_read_timeout(Some(ANSWER))?;
        stream.write_all(command)?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
        // The thread has logged a failure.
        let _failure = self.wait_for_end();
    }
}

/// Runs a server until it is stopped or killed. The end of the runtime closes all sockets of a
/// killed server, whatever it was doing: also while it waits for a port or a name.
fn run(
    settings: Settings,
    host: impl Host + 'static,
    mut killed: UnboundedReceiver<()>,
) -> Result<(), Failure> {
    let runtime = serve::runtime()?;
    let ended = runtime.block_on(async {
        tokio::select! {
            ended = serve::serve(settings, host) => ended,
            _ = killed.recv() => Ok(()),
        }
    });
    // A thread that looks a name up can take long.
    runtime.shutdown_timeout(LOOKUP);
    ended
}

/// The test around a server.
struct TestHost {
    milestones: mpsc::Sender<Milestone>,
    requests: Option<StopRequests>,
}

impl Host for TestHost {
    fn opened(&mut self) -> Result<StopRequests, Failure> {
        let _nobody_waits = self.milestones.send(Milestone::Opened);
        Ok(self.requests.take().expect("a server opens once"))
    }

    fn serving(&self, _everywhere: &str, _near: &str) {
        let _nobody_waits = self.milestones.send(Milestone::Serving);
    }
}

#[cfg(test)]
mod tests {
    use super::super::files::Folder;
    use super::*;

    /// A host that panics at a milestone.
    struct Panics {
        at: Milestone,
        requests: Option<StopRequests>,
    }

    impl Host for Panics {
        fn opened(&mut self) -> Result<StopRequests, Failure> {
            assert_ne!(self.at, Milestone::Opened, "an invariant is broken");
            Ok(self.requests.take().unwrap())
        }

        fn serving(&self, _everywhere: &str, _near: &str) {
            panic!("an invariant of the event loop is broken");
        }
    }

    #[test]
    fn panic_in_a_server_is_its_failure() {
        let folder = Folder::create().unwrap();
        let mut settings = Settings::for_a_try();
        (settings.port, settings.segment_bytes) = (0, 1 << 20);
        (settings.data_dir, settings.log_dir) = (folder.data(1), folder.data(1));
        for (at, expected) in
            [(Milestone::Opened, "invariant is"), (Milestone::Serving, "invariant of the event")]
        {
            let (stop, requests) = unbounded_channel();
            let (kill, killed) = unbounded_channel();
            let settings = settings.clone();
            let host = Panics { at, requests: Some(requests) };
            // The second server also shows that the first one has unlocked the data.
            let thread = thread::spawn(move || run(settings, host, killed));
            let server = Server::new(1, folder.zoo_cfg(1), Ports::reserve().unwrap());
            let failed = server.join(Running { stop, kill, thread }).unwrap_err();
            let Error::Server { id: 1, what } = &failed else { panic!("{failed}") };
            assert!(what.starts_with("the server panicked: "), "{what}");
            assert!(what.contains(expected), "{what}");
        }
    }
}
