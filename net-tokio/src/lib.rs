//! The Zabkeeper server: sockets, threads and clocks around the core.
//!
//! A library, so that fuzz targets and tests can use it: [`run`] is the whole program; [`config`],
//! the parser of the operator's file, and [`admin`], the settings that answers to operators show,
//! are public for fuzzing. Everything else is private.
//!
//! Owns all input and output of the server process. Must not take protocol decisions. One thread
//! holds the sockets and the core, so that a request never changes threads; three other threads
//! write the log, write snapshots, and read both for learners.
//!
//! ```text
//! listener -> conn (one task per socket) <-> driver (in the core) <-> event_loop (steps the core)
//!                                                                     |  ^
//!                                                            commands v  | completions
//!                                                                disk (three threads)
//!
//! other servers <-> peers (links, notifications) <-> driver
//! ```

#![expect(
    clippy::disallowed_methods,
    reason = "clocks, threads, files and randomness enter here, so that they do not enter the core"
)]

pub mod admin;
mod args;
mod clock;
pub mod config;
mod config_files;
mod configs;
mod conn;
mod descriptors;
mod disk;
mod driver;
mod event_loop;
mod listener;
mod listening;
mod log_limit;
mod log_tool;
mod logging;
mod monitor;
mod names;
mod oracle;
mod peers;
mod random;
mod serve;
mod shared;
mod socket;

use std::ffi::OsString;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use args::Invocation;
use config::Settings;
use logging::Logging;
use serve::Failure;

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
        Ok(Invocation::Log(command)) => {
            match log_tool::run(&command, &mut std::io::stdout().lock()) {
                Ok(()) => ExitCode::SUCCESS,
                Err(Failure::Data(what)) => fail(BAD_DATA, &what),
                Err(Failure::Differs(what) | Failure::Other(what)) => fail(FAILED, &what),
            }
        }
        Ok(Invocation::Serve(file)) => match Logging::start() {
            Ok(logging) => {
                let end = serve(file, &logging);
                logging.finish();
                match end {
                    End::Status(status) => ExitCode::from(status),
                    End::Anew => begin_anew(),
                }
            }
            Err(error) => fail(FAILED, &format!("cannot start a thread: {error}")),
        },
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
    match serve::run(settings, logging) {
        Ok(()) => End::Status(0),
        Err(failure) => {
            tracing::error!("{failure}");
            match failure {
                Failure::Data(_) => End::Status(BAD_DATA),
                Failure::Differs(_) => End::Anew,
                Failure::Other(_) => End::Status(FAILED),
            }
        }
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
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot write to standard output: {error}")),
    }
}

/// Writes an error to standard error, because the log may not run, and returns the exit status.
fn fail(status: u8, what: &str) -> ExitCode {
    let _nobody_reads = writeln!(std::io::stderr(), "zabkeeper: {what}");
    ExitCode::from(status)
}
