//! The server that people deploy: sockets, threads and clocks around the core.
//!
//! A library so that its binary is not the only one to reach it: [`run`] is the whole program, and [`config`] and
//! [`words`] are open to fuzzing, because operators write what the first reads and monitoring reads what the
//! others write. Everything else is nobody's business.
//!
//! Owns the outside world and nothing else: it takes no protocol decision. One thread holds sockets and core, so that
//! a request changes hands without changing threads; three threads beside it write the log and the snapshots, and read.
//!
//! ```text
//! listener -> conn (one task per socket) <-> driver (in the core) <-> hub (steps the core)
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

mod args;
mod clock;
pub mod config;
mod conn;
mod descriptors;
mod disk;
mod hub;
mod listener;
mod log_tool;
mod logging;
mod monitor;
mod names;
mod peers;
mod quiet;
mod random;
mod report;
mod serve;
mod shared;
pub mod words;

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

/// Does what the arguments ask for, the program's name left out; the exit statuses are those of the help.
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

/// How serving has ended.
enum End {
    /// With this exit status.
    Status(u8),
    /// To be begun anew.
    Anew,
}

/// Serves as the file says.
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

/// Replaces this process by one with the same arguments, so that nothing of what it held is left.
fn begin_anew() -> ExitCode {
    let failed = match std::env::current_exe() {
        Ok(program) => Command::new(program).args(std::env::args_os().skip(1)).exec(),
        Err(error) => error,
    };
    fail(FAILED, &format!("cannot begin anew, start it again: {failed}"))
}

/// Writes what the user asked for; that it cannot be written is a failure.
fn print(text: &str) -> ExitCode {
    let mut stdout = std::io::stdout();
    match stdout.write_all(text.as_bytes()).and_then(|()| stdout.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(FAILED, &format!("cannot write to standard output: {error}")),
    }
}

/// Says what is wrong before there is a log.
fn fail(status: u8, what: &str) -> ExitCode {
    let _nobody_reads = writeln!(std::io::stderr(), "zabkeeper: {what}");
    ExitCode::from(status)
}
