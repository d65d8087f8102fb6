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
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use zabkeeper_core::Member;

use crate::args::{self, Invocation, ServerAction};
use crate::cli;
use crate::config::{LogSettings, Settings};
use crate::descriptors;
use crate::explain;
use crate::host::{Changes, Failure, Host, Stop, StopRequests};
use crate::log_limit::LineLimits;
use crate::log_tool;
use crate::logging::{self, LogControl, Logging};
use crate::notify::Notifier;
use crate::reload::Reloader;
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
        Ok(Invocation::Explain(command)) => match explain::explain(&command) {
            Ok(text) => print(&text),
            Err(what) => fail(FAILED, &what),
        },
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
    // The file of the environment has all lines, also those about `zoo.cfg`.
    if let Err(what) = apply_log(LogSettings::default(), &logging.control()) {
        return fail(BAD_INVOCATION, &what);
    }
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
    if let Err(what) = apply_log(settings.log.clone(), &logging.control()) {
        logging.write_line(&format!("zabkeeper: {what}"));
        return End::Status(BAD_INVOCATION);
    }
    if settings.ensemble.is_some() {
        logging.name_server(settings.core.id());
    }
    for warning in &warnings {
        tracing::warn!("{warning}");
    }
    descriptors::raise_limit();
    let reloader = Reloader::new(&settings, warnings, logging.control());
    let process = Process::new(logging.limits());
    match run_server(settings, process, reloader) {
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
fn run_server(settings: Settings, mut process: Process, reloader: Reloader) -> Result<(), Failure> {
    serve::runtime()?.block_on(async {
        let (sender, changes) = unbounded_channel();
        process.changes = Some(changes);
        survive_signals(reloader, process.notifier.clone(), sender).map_err(cannot_wait)?;
        serve::serve(settings, process).await
    })
}

/// Logs as these settings and the environment say.
fn apply_log(settings: LogSettings, control: &LogControl) -> Result<(), String> {
    let log = settings.with_environment(&variable).map_err(|what| what.to_string())?;
    control.apply(&log)
}

/// An environment variable.
pub(crate) fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The process that runs one server.
struct Process {
    limits: LineLimits,
    notifier: Notifier,
    changes: Option<UnboundedReceiver<Changes>>,
}

impl Process {
    fn new(limits: LineLimits) -> Process {
        Process { limits, notifier: Notifier::from_environment(), changes: None }
    }
}

impl Host for Process {
    /// Signals end the process until now, so that a start that takes long can be interrupted.
    fn opened(&mut self) -> Result<StopRequests, Failure> {
        self.limits.begin();
        let signals = signals().map_err(cannot_wait)?;
        let (sender, requests) = unbounded_channel();
        self.notifier.opened();
        tokio::task::spawn_local(stop_on(signals, sender, self.notifier.clone()));
        Ok(requests)
    }

    fn changes(&mut self) -> Option<UnboundedReceiver<Changes>> {
        self.changes.take()
    }

    fn serving(&self, everywhere: &str, near: &str) {
        self.notifier.ready(everywhere);
        tokio::task::spawn_local(self.notifier.clone().keep_alive());
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

/// Takes signals that would end the process by default. SIGHUP asks for new settings, or comes from
/// a terminal that is closed, or from a script that rotates logs. SIGXFSZ comes where a file may
/// not grow: the write then fails with an error, also in the log thread.
fn survive_signals(
    mut reloader: Reloader,
    notifier: Notifier,
    changes: UnboundedSender<Changes>,
) -> io::Result<()> {
    let mut hangup = signal(SignalKind::hangup())?;
    // tokio keeps the handler for the rest of the process.
    drop(signal(SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw()))?);
    tokio::task::spawn_local(async move {
        while hangup.recv().await.is_some() {
            notifier.reloading();
            // Another thread, because the disk may be slow.
            let reload = tokio::task::spawn_blocking(move || {
                let changes = reloader.reload();
                (reloader, changes)
            });
            let (again, changed) = reload.await.expect("reading does not panic");
            reloader = again;
            if let Some(changed) = changed {
                let _ended = changes.send(changed);
            }
            notifier.reloaded();
        }
    });
    Ok(())
}

fn signals() -> io::Result<[Signal; 2]> {
    Ok([signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?])
}

/// Requests a stop at each of these signals.
async fn stop_on(signals: [Signal; 2], requests: UnboundedSender<Stop>, notifier: Notifier) {
    let [mut terminate, mut interrupt] = signals;
    next_of(&mut terminate, &mut interrupt).await;
    notifier.stopping();
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
