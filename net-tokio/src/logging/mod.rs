//! The log of the process: lines to standard error, which may be lost but never block the server.
//!
//! Owns the subscriber and the report of a panic. Must not decide what is logged.
//!
//! ```text
//! tracing::warn! -> filter (RUST_LOG) -> limit of its kind -> text
//!     -> queue -> thread "log output" -> standard error
//! ```
//!
//! Invariant: a thread that logs never waits for the output. Standard output and error may be a
//! full disk, or a pipe whose reader has exited or does not read; neither the server's work nor its
//! exit status depends on that.

mod non_blocking;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::{FormatTime, SystemTime};
use tracing_subscriber::layer::SubscriberExt;

use zabkeeper_core::ServerId;
use zabkeeper_core::driver::{Report, ReportLevel};

use crate::log_limit::LineLimits;
use crate::monitor;
use non_blocking::NonBlocking;

/// Time for writing the last lines at the end of the process.
const FLUSH: Duration = Duration::from_secs(1);

/// Time for the report of a panic, even if it blocks.
const REPORT: Duration = Duration::from_secs(3);

/// The environment variable with the filter.
const FILTER: &str = "RUST_LOG";

/// The log of this process.
pub(crate) struct Logging {
    stderr: NonBlocking,
    limits: LineLimits,
    server: Arc<OnceLock<ServerId>>,
}

/// The start of each line: the time, and in an ensemble the server id, in ZooKeeper's form.
struct Stamp(Arc<OnceLock<ServerId>>);

impl Logging {
    /// Installs the subscriber, which writes events to standard error, and a panic hook that aborts
    /// the process.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(crate) fn start() -> io::Result<Logging> {
        let stderr = NonBlocking::start(io::stderr())?;
        let (limits, server) = (LineLimits::default(), Arc::default());
        monitor::start(limits.clone())?;
        let (filter, wrong) = filter();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(io::stderr().is_terminal())
            .with_writer(stderr.clone())
            .with_timer(Stamp(Arc::clone(&server)))
            // The layer would write internal errors to standard error and block on it.
            .log_internal_errors(false);
        let subscriber =
            tracing_subscriber::registry().with(filter).with(limits.clone()).with(lines);
        tracing::subscriber::set_global_default(subscriber).expect("a process logs once");
        abort_on_panic(stderr.clone());
        if let Some(wrong) = wrong {
            tracing::warn!("{FILTER}: {wrong}; logs as if it were info");
        }
        Ok(Logging { stderr, limits, server })
    }

    /// Adds the server id to all later lines.
    pub(crate) fn name_server(&self, id: ServerId) {
        self.server.get_or_init(|| id);
    }

    /// The bounds on the number of lines, which have to begin before clients can cause lines.
    pub(crate) fn limits(&self) -> LineLimits {
        self.limits.clone()
    }

    /// Writes a line without time and level, for errors in the configuration.
    pub(crate) fn write_line(&self, line: &str) {
        self.stderr.push(format!("{line}\n").as_bytes());
    }

    /// Waits until the last lines are written, at most [`FLUSH`], because the output may be
    /// blocked.
    pub(crate) fn finish(self) {
        self.limits.say_what_was_suppressed(None);
        self.stderr.flush(FLUSH);
    }
}

impl FormatTime for Stamp {
    fn format_time(&self, line: &mut Writer<'_>) -> std::fmt::Result {
        SystemTime.format_time(line)?;
        match self.0.get() {
            Some(id) => write!(line, " [myid:{id}]"),
            None => Ok(()),
        }
    }
}

/// Writes a line to standard output, apart from the log.
pub(crate) fn print_line(line: String) {
    // On a thread of its own, because standard output may block.
    let write = move || {
        let _nobody_reads = io::stdout().write_all(format!("{line}\n").as_bytes());
    };
    let _best_effort = thread::Builder::new().name("announcement".to_owned()).spawn(write);
}

/// Writes a line that the driver has made. The kind and the server bound how many there are.
pub(crate) fn log(report: &Report) {
    let Report { level, kind, server, text } = report;
    let (kind, server) = (*kind, server.map(|id| id.0));
    match level {
        ReportLevel::Debug => tracing::debug!(kind, server, "{text}"),
        ReportLevel::Info => tracing::info!(kind, server, "{text}"),
        ReportLevel::Warn => tracing::warn!(kind, server, "{text}"),
    }
}

/// The filter, and the error if the environment variable is invalid; the filter is `info` then.
fn filter() -> (EnvFilter, Option<String>) {
    let of = |text: &str| {
        EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse(text)
    };
    let text = std::env::var_os(FILTER).unwrap_or_default();
    let parsed = match text.to_str() {
        Some(text) => of(text).map_err(|error| format!("{text:?}: {error}")),
        None => Err(format!("{text:?}: not UTF-8")),
    };
    match parsed {
        Ok(filter) => (filter, None),
        Err(wrong) => (of("").expect("the default is valid"), Some(wrong)),
    }
}

/// Aborts the process when any thread panics: an invariant is broken, so the other threads must
/// stop, too.
fn abort_on_panic(stderr: NonBlocking) {
    std::panic::set_hook(Box::new(move |info| {
        // The report may deadlock, for example on a lock that the panicking thread holds.
        let _best_effort = thread::Builder::new().name("abort".to_owned()).spawn(|| {
            thread::sleep(REPORT);
            std::process::abort();
        });
        report(info);
        stderr.flush(FLUSH);
        std::process::abort();
    }));
}

fn report(info: &PanicHookInfo<'_>) {
    let current = thread::current();
    let thread = current.name().unwrap_or("without a name");
    let backtrace = Backtrace::capture();
    if backtrace.status() == BacktraceStatus::Captured {
        tracing::error!("thread {thread} {info}\n{backtrace}");
    } else {
        tracing::error!("thread {thread} {info}");
    }
}

#[cfg(test)]
mod tests;
