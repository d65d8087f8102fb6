//! The server that people deploy: sockets, threads and clocks around the core.
//!
//! A library so that its binary is not the only one to reach it: [`run`] is the whole program, and [`config`], [`words`]
//! and [`traffic`] are open to fuzzing, because operators write what the first reads and monitoring reads what the
//! others write. Everything else is nobody's business.
//!
//! Owns the outside world and nothing else: it takes no protocol decision. One thread holds sockets and core, so that
//! a request changes hands without changing threads; three threads beside it write the log and the snapshots, and read.
//!
//! ```text
//! listener -> reader (one task per connection) -> shared.inbox -> hub -> conn (output) -> socket
//!                                                                 |  ^
//!                                                        commands v  | completions
//!                                                            disk (three threads)
//!
//! other servers <-> peers (links, notifications) <-> hub
//! ```

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
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
mod reader;
mod report;
mod serve;
mod shared;
pub mod traffic;
pub mod words;

use std::ffi::OsString;
use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

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
                Err(Failure::Other(what)) => fail(FAILED, &what),
            }
        }
        Ok(Invocation::Serve(file)) => match Logging::start() {
            Ok(logging) => {
                let status = serve(file, &logging);
                logging.finish();
                ExitCode::from(status)
            }
            Err(error) => fail(FAILED, &format!("cannot start a thread: {error}")),
        },
    }
}

/// Serves as the file says; the exit status.
fn serve(file: Option<PathBuf>, logging: &Logging) -> u8 {
    let settings = match file {
        None => Ok((Settings::for_a_try(), Vec::new())),
        Some(path) => Settings::from_file(&path),
    };
    let (settings, warnings) = match settings {
        Ok(settings) => settings,
        Err(error) => {
            logging.write_line(&format!("zabkeeper: {error}"));
            return BAD_INVOCATION;
        }
    };
    if settings.ensemble.is_some() {
        logging.name_server(settings.core.id());
    }
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match serve::run(settings, logging) {
        Ok(()) => 0,
        Err(failure) => {
            tracing::error!("{failure}");
            match failure {
                Failure::Data(_) => BAD_DATA,
                Failure::Other(_) => FAILED,
            }
        }
    }
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
