//! The server as a program: exit statuses, signals, the log, and what else a process has once.
//!
//! Owns everything that concerns the whole process. Must not be needed by a server: one that runs
//! inside another program leaves all this alone.

use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedSender, unbounded_channel};
use zabkeeper_core::Member;

use crate::args::{self, Invocation, ServerAction};
use crate::cli;
use crate::config::Settings;
use crate::descriptors;
use crate::host::{Failure, Host, Stop, StopRequests};
use crate::log_limit::LineLimits;
use crate::log_tool;
use crate::logging::{self, Logging};
use crate::scripts::{self, CommandFailure};
use crate::serve;

const FAILED: u8 = 1;
const BAD_INVOCATION: u8 = 2;
const BAD_DATA: u8 = 3;

/// Runs the program with these arguments, without the program's name. The help text lists the exit
/// statuses.
pub fn run(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    match args::parse(args) {
        Ok(Invocation::Help) => print(args::HELP),
        Ok(Invocation::Version) => print(concat!("zabkeeper ", env!("CARGO_PKG_VERSION"), "\n")),
        Err(what) => fail(BAD_INVOCATION, &what),
        Ok(Invocation::Cli(args)) => cli::run(args),
        Ok(Invocation::Log(command)) => match log_tool::run(&command, &mut io::stdout().lock()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(Failure::Data(what)) => fail(BAD_DATA, &what),
            Err(Failure::Differs(what) | Failure::Panicked(what) | Failure::Other(what)) => {
                fail(FAILED, &what)
            }
        },
        Ok(Invocation::Serve(file)) => run_to_the_end(file),
        Ok(Invocation::Server(command)) if command.action == ServerAction::StartForeground => {
            if command.detached {
                scripts::detach();
            }
            run_to_the_end(Some(scripts::config_file(command.config.as_deref())))
        }
        Ok(Invocation::Server(command)) => {
            end_of(scripts::control(&command, &mut io::stdout().lock()))
        }
        Ok(Invocation::Initialize(command)) => {
            end_of(scripts::initialize(&command, &mut io::stdout().lock()))
        }
        Ok(Invocation::Cleanup(command)) => {
            end_of(scripts::cleanup(&command, &mut io::stdout().lock()))
        }
        Ok(Invocation::Check(command)) => {
            end_of(scripts::check(&command, &mut io::stdout().lock()))
        }
        Ok(Invocation::Container) => match scripts::prepare() {
            Ok(file) => run_to_the_end(Some(file)),
            Err((status, what)) => fail(status, &what),
        },
    }
}

/// The exit status of a command; its failure is written to standard error.
fn end_of(ended: Result<(), CommandFailure>) -> ExitCode {
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, what)) if what.is_empty() => ExitCode::from(status),
        Err((status, what)) => fail(status, &what),
    }
}

/// Logs and serves until the server ends.
fn run_to_the_end(file: Option<PathBuf>) -> ExitCode {
    let logging = match Logging::start() {
        Ok(logging) => logging,
        Err(error) => return fail(FAILED, &format!("cannot start a thread: {error}")),
    };
    let end = serve(file, &logging);
    logging.finish();
    match end {
        End::Status(status) => ExitCode::from(status),
        End::Anew => begin_anew(),
    }
}

/// How [`serve`] ended.
enum End {
    /// The process exits with this status.
    Status(u8),
    /// The process restarts itself.
    Anew,
}

/// Runs the server with the settings of `file`, or with the defaults for trying it out.
fn serve(file: Option<PathBuf>, logging: &Logging) -> End {
    let settings = match file {
        None => Ok((Settings::for_a_try(), Vec::new())),
        Some(path) => Settings::from_file(&path),
    };
    let (settings, warnings) = match settings {
        Ok(settings) => settings,
        Err(error) => {
            logging.write_line(&format!("zabkeeper: {error}"));
            return End::Status(BAD_INVOCATION);
        }
    };
    if settings.ensemble.is_some() {
        logging.name_server(settings.core.id());
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    descriptors::raise_limit();
    match run_server(settings, Process { limits: logging.limits() }) {
        Ok(()) => End::Status(0),
        Err(failure) => {
            tracing::error!("{failure}");
            match failure {
                Failure::Data(_) => End::Status(BAD_DATA),
                Failure::Differs(_) => End::Anew,
                Failure::Panicked(_) | Failure::Other(_) => End::Status(FAILED),
            }
        }
    }
}

/// Serves until a signal arrives.
fn run_server(settings: Settings, process: Process) -> Result<(), Failure> {
    serve::runtime()?.block_on(async {
        survive_signals().map_err(cannot_wait)?;
        serve::serve(settings, process).await
    })
}

/// The process that runs one server.
struct Process {
    limits: LineLimits,
}

impl Host for Process {
    /// Signals end the process until now, so that a start that takes long can be interrupted.
    fn opened(&mut self) -> Result<StopRequests, Failure> {
        self.limits.begin();
        let signals = signals().map_err(cannot_wait)?;
        let (sender, requests) = unbounded_channel();
        tokio::task::spawn_local(stop_on(signals, sender));
        Ok(requests)
    }

    fn serving(&self, everywhere: &str, near: &str) {
        let (host, port) = near.rsplit_once(':').unwrap_or((near, ""));
        let host = Member::without_brackets(host);
        logging::print_line(format!(
            "Zabkeeper listens on {everywhere}: try `echo srvr | nc {host} {port}` \
             or `zkCli.sh -server {near}`",
        ));
    }
}

fn cannot_wait(error: io::Error) -> Failure {
    Failure::Other(format!("cannot wait for signals: {error}"))
}

/// Takes signals that would end the process by default. A terminal that is closed sends SIGHUP, and
/// so do scripts that rotate logs. SIGXFSZ comes where a file may not grow: the write then fails
/// with an error, also in the log thread.
fn survive_signals() -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    // tokio keeps the handler for the rest of the process.
    drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    tokio::task::spawn_local(async move {
        while hangup.recv().await.is_some() {
            tracing::info!("SIGHUP: nothing is read anew yet; SIGTERM stops the server");
        }
    });
    Ok(())
}

fn signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

/// Requests a stop at each of these signals.
async fn stop_on(signals: [Signal; 2], requests: UnboundedSender<Stop>) {
    let [mut terminate, mut interrupt] = signals;
    next_of(&mut terminate, &mut interrupt).await;
    let _ended = requests.send(Stop::Gracefully);
    next_of(&mut terminate, &mut interrupt).await;
    tracing::warn!("a second signal: stopping at once");
    let _ended = requests.send(Stop::AtOnce);
}

/// Waits for one of two signals.
async fn next_of(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

/// Replaces this process by a new one with the same arguments (`execve`), so that no state remains.
fn begin_anew() -> ExitCode {
    let failed = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    fail(FAILED, &format!("cannot begin anew, start it again: {failed}"))
}

/// Prints the output that the user asked for. A failed write is a failure of the program.
fn print(text: &str) -> ExitCode {
    let mut stdout = io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot write to standard output: {error}")),
    }
}

/// Writes an error to standard error, because the log may not run, and returns the exit status.
fn fail(status: u8, what: &str) -> ExitCode {
    let _nobody_reads = writeln!(io::stderr(), "zabkeeper: {what}");
    ExitCode::from(status)
}
