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
mod disk;
mod hub;
mod listener;
mod peers;
mod quiet;
mod reader;
mod report;
mod serve;
mod shared;
pub mod traffic;
pub mod words;

use std::ffi::OsString;
use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use args::Invocation;
use config::Settings;
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
        Ok(Invocation::Serve(file)) => {
            start_logging();
            abort_on_panic();
            let settings = match file {
                None => Ok((Settings::for_a_try(), Vec::new())),
                Some(path) => Settings::from_file(&path),
            };
            match settings {
                Err(error) => fail(BAD_INVOCATION, &error.to_string()),
                Ok((settings, warnings)) => serve(settings, &warnings),
            }
        }
    }
}

fn serve(settings: Settings, warnings: &[String]) -> ExitCode {
    for warning in warnings {
        tracing::warn!("{warning}");
    }
    match serve::run(settings) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            ExitCode::from(match failure {
                Failure::Data(_) => BAD_DATA,
                Failure::Other(_) => FAILED,
            })
        }
    }
}

fn start_logging() {
    let filter =
        EnvFilter::builder().with_default_directive(tracing::Level::INFO.into()).from_env_lossy();
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr)
        .init();
}

/// A thread that panics has broken an invariant, and the others must not go on as if it were there.
fn abort_on_panic() {
    let report = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        report(info);
        tracing::error!("{info}");
        std::process::abort();
    }));
}

#[expect(clippy::print_stdout, reason = "what the user asked for")]
fn print(text: &str) -> ExitCode {
    print!("{text}");
    ExitCode::SUCCESS
}

#[expect(clippy::print_stderr, reason = "to the user, before or instead of a log")]
fn fail(status: u8, what: &str) -> ExitCode {
    eprintln!("zabkeeper: {what}");
    ExitCode::from(status)
}
