//! The server that people deploy: sockets, threads and clocks around the core.
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
mod config;
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
mod traffic;
mod words;

use std::io::IsTerminal;
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;

use args::Invocation;
use config::Settings;
use serve::Failure;

const FAILED: u8 = 1;
const BAD_INVOCATION: u8 = 2;
const BAD_DATA: u8 = 3;

fn main() -> ExitCode {
    match args::parse(std::env::args_os().skip(1)) {
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
