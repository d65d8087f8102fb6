//! The log of the process: lines to standard error or a file, which may be lost but never block the
//! server.
//!
//! Owns the subscriber and the report of a panic. Must not decide what is logged.
//!
//! ```text
//! tracing::warn! -> filter (RUST_LOG) -> limit of its kind -> text or JSON (line)
//!     -> queue (non_blocking) -> thread "log output" -> standard error or file (output)
//! ```
//!
//! Invariant: a thread that logs never waits for the output. Standard output and error may be a
//! full disk, or a pipe whose reader has exited or does not read; neither the server's work nor its
//! exit status depends on that.

mod line;
mod non_blocking;
mod output;

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{self, IsTerminal, Write};
use std::panic::PanicHookInfo;
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::Duration;

use tracing::level_filters::LevelFilter;
use tracing_subscriber::filter::ParseError;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::reload::{self, Handle};
use tracing_subscriber::{EnvFilter, Registry};

use zabkeeper_core::ServerId;
use zabkeeper_core::driver::{Report, ReportLevel};

use crate::config::{LogFormat, LogSettings};
use crate::log_limit::LineLimits;
use crate::monitor;
use line::{LineForm, Lines};
use non_blocking::NonBlocking;
use output::OutputSwitch;

/// Time for writing the last lines at the end of the process.
const FLUSH: Duration = Duration::from_secs(1);

/// Time for the report of a panic, even if it blocks.
const REPORT: Duration = Duration::from_secs(3);

/// The environment variable with the filter.
const FILTER: &str = "RUST_LOG";

/// The log of this process.
pub(crate) struct Logging {
    lines: NonBlocking,
    limits: LineLimits,
    server: Arc<OnceLock<ServerId>>,
    control: LogControl,
}

/// Changes the log while the process runs.
#[derive(Clone)]
pub(crate) struct LogControl {
    filter: Handle<EnvFilter, Registry>,
    /// The environment decides what is logged.
    is_filter_fixed: bool,
    output: OutputSwitch,
    form: LineForm,
}

impl Logging {
    /// Installs the subscriber, which writes events to standard error, and a panic hook that aborts
    /// the process.
    ///
    /// # Errors
    /// The operating system cannot create a thread.
    pub(crate) fn start() -> io::Result<Logging> {
        let (output, form) = (OutputSwitch::default(), LineForm::default());
        let lines = NonBlocking::start(output.output())?;
        let (limits, server) = (LineLimits::default(), Arc::default());
        monitor::start(limits.clone())?;
        let (filter, wrong) = filter_of_environment();
        let is_filter_fixed = std::env::var_os(FILTER).is_some();
        let (filter, handle) = reload::Layer::new(filter);
        form.set(false, io::stderr().is_terminal());
        let formatted = tracing_subscriber::fmt::layer()
            .with_writer(lines.clone())
            .event_format(Lines::new(form.clone(), Arc::clone(&server)))
            // The layer would write internal errors to standard error and block on it.
            .log_internal_errors(false);
        let subscriber =
            tracing_subscriber::registry().with(filter).with(limits.clone()).with(formatted);
        tracing::subscriber::set_global_default(subscriber).expect("a process logs once");
        abort_on_panic(lines.clone());
        if let Some(wrong) = wrong {
            tracing::warn!("{FILTER}: {wrong}; logs as if it were info");
        }
        let control = LogControl { filter: handle, is_filter_fixed, output, form };
        Ok(Logging { lines, limits, server, control })
    }

    /// The end of the log that changes it.
    pub(crate) fn control(&self) -> LogControl {
        self.control.clone()
    }

    /// Adds the server id to all later lines.
    pub(crate) fn name_server(&self, id: ServerId) {
        self.server.get_or_init(|| id);
    }

    /// The bounds on the number of lines, which have to begin before clients can cause lines.
    pub(crate) fn limits(&self) -> LineLimits {
        self.limits.clone()
    }

    /// Writes a line without time and level to standard error, for errors in the configuration,
    /// which end the process. Waits for it, at most [`FLUSH`].
    pub(crate) fn write_line(&self, line: &str) {
        // The log may be a file, which nobody reads who types a command.
        if let Ok(stderr) = NonBlocking::start(io::stderr()) {
            self.lines.flush(FLUSH);
            stderr.push(format!("{line}\n").as_bytes());
            stderr.flush(FLUSH);
        }
    }

    /// Waits until the last lines are written, at most [`FLUSH`], because the output may be
    /// blocked.
    pub(crate) fn finish(self) {
        self.limits.say_what_was_suppressed(None);
        self.lines.flush(FLUSH);
    }
}

impl LogControl {
    /// Logs as these settings say. A file is opened anew in any case, because another program may
    /// have renamed it.
    ///
    /// # Errors
    /// The file cannot be opened; the output stays.
    pub(crate) fn apply(&self, log: &LogSettings) -> Result<(), String> {
        match &log.file {
            None => self.output.to_stderr(),
            Some(path) => {
                let opened = self.output.to_file(path, log.max_bytes, log.backups);
                opened.map_err(|error| format!("cannot log to {}: {error}", path.display()))?;
            }
        }
        let coloured = log.file.is_none() && io::stderr().is_terminal();
        self.form.set(log.format == LogFormat::Json, coloured);
        if self.is_filter_fixed {
            if log.level.is_some() {
                tracing::warn!("zabkeeper.log.level has no effect: {FILTER} says what is logged");
            }
        } else if let Ok(filter) = filter_of(log.level.as_deref().unwrap_or_default()) {
            // It fails only if there is no subscriber any more.
            let _for_ever = self.filter.reload(filter);
        }
        Ok(())
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

/// The filter of a text, by default `info`.
fn filter_of(text: &str) -> Result<EnvFilter, ParseError> {
    EnvFilter::builder().with_default_directive(LevelFilter::INFO.into()).parse(text)
}

/// The filter, and the error if the environment variable is invalid; the filter is `info` then.
fn filter_of_environment() -> (EnvFilter, Option<String>) {
    let text = std::env::var_os(FILTER).unwrap_or_default();
    let parsed = match text.to_str() {
        Some(text) => filter_of(text).map_err(|error| format!("{text:?}: {error}")),
        None => Err(format!("{text:?}: not UTF-8")),
    };
    match parsed {
        Ok(filter) => (filter, None),
        Err(wrong) => (filter_of("").expect("the default is valid"), Some(wrong)),
    }
}

/// Aborts the process when any thread panics: an invariant is broken, so the other threads must
/// stop, too.
fn abort_on_panic(lines: NonBlocking) {
    std::panic::set_hook(Box::new(move |info| {
        // The report may deadlock, for example on a lock that the panicking thread holds.
        let _best_effort = thread::Builder::new().name("abort".to_owned()).spawn(|| {
            thread::sleep(REPORT);
            std::process::abort();
        });
        report(info);
        lines.flush(FLUSH);
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
