//! The log of the process: lines to standard error, which may be lost and never hold anybody up.
//!
//! Owns the subscriber and how a panic is reported. Must not decide what is worth a line.
//!
//! ```text
//! tracing::warn! -> filter (RUST_LOG) -> limit of its kind -> text -> queue -> thread "log output" -> standard error
//! ```
//!
//! Invariant: a thread that logs waits for no output. Standard output and error may be a full disk, a pipe whose reader
//! has died, or one that nobody reads; neither what the server does nor its exit status depends on that.

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

use crate::monitor;
use crate::quiet::LineLimits;
use non_blocking::NonBlocking;

/// Time for the last lines to leave at the end of the process.
const FLUSH: Duration = Duration::from_secs(1);

/// Time for all of a panic's report, whatever gets in its way.
const REPORT: Duration = Duration::from_secs(3);

/// The environment variable that says what is logged.
const FILTER: &str = "RUST_LOG";

/// The log of this process.
pub(crate) struct Logging {
    stderr: NonBlocking,
    limits: LineLimits,
    server: Arc<OnceLock<ServerId>>,
}

/// The beginning of each line: the time, and in an ensemble the server's number, as ZooKeeper writes it.
struct Stamp(Arc<OnceLock<ServerId>>);

impl Logging {
    /// Sends all events to standard error from now on, and lets a panic end the process.
    ///
    /// # Errors
    /// The operating system refuses a thread.
    pub(crate) fn start() -> io::Result<Logging> {
        let stderr = NonBlocking::start(io::stderr())?;
        let (limits, server) = (LineLimits::default(), Arc::default());
        monitor::start(limits.clone())?;
        let (filter, wrong) = filter();
        let lines = tracing_subscriber::fmt::layer()
            .with_ansi(io::stderr().is_terminal())
            .with_writer(stderr.clone())
            .with_timer(Stamp(Arc::clone(&server)))
            // It would write them to standard error, and wait for that.
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

    /// From now on lines say which server of an ensemble they come from.
    pub(crate) fn name_server(&self, id: ServerId) {
        self.server.get_or_init(|| id);
    }

    /// From now on others can cause lines, and how many is bounded.
    pub(crate) fn limit_lines(&self) {
        self.limits.begin();
    }

    /// Writes a line that has no level, as programs do that refuse to start.
    pub(crate) fn write_line(&self, line: &str) {
        self.stderr.push(format!("{line}\n").as_bytes());
    }

    /// Waits for the last lines to leave; not for long, because nobody may read them.
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

/// Writes a line to standard output that is for people, not for the log.
pub(crate) fn announce(line: String) {
    // A thread of its own: whoever does not read standard output may still read the log.
    let write = move || {
        let _nobody_reads = io::stdout().write_all(format!("{line}\n").as_bytes());
    };
    let _best_effort = thread::Builder::new().name("announcement".to_owned()).spawn(write);
}

/// What is logged, and what is wrong with the environment variable that should say so.
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

/// A thread that panics has broken an invariant, and the others must not go on as if it were there.
fn abort_on_panic(stderr: NonBlocking) {
    std::panic::set_hook(Box::new(move |info| {
        // The report may meet what it waits for in vain, such as a lock that this very thread holds.
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
