//! Where a command's output goes: standard output, standard error, and the line of the shell.
//!
//! Owns the writers, so that tests need no process, and the order of outputs and watch events.
//! Must not format anything but progress.

use std::io::{self, BufWriter, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use zabkeeper_client::{State, WatchEvent};

use super::format;

/// A count on the terminal is written this often at most.
const PROGRESS_INTERVAL: Duration = Duration::from_millis(100);

/// Prints a text above the line that the user edits.
pub(crate) type AboveLine = Box<dyn FnMut(String) + Send>;

/// See the module. Commands and watches share it.
pub(crate) struct Output {
    sinks: Mutex<Sinks>,
    err_is_terminal: bool,
}

struct Sinks {
    out: Box<dyn Write + Send>,
    err: Box<dyn Write + Send>,
    above_line: Option<AboveLine>,
    print_watches: bool,
    /// The event printed last: several watches of a client have one event.
    last_event: Option<WatchEvent>,
    last_removal: Option<String>,
}

impl Output {
    /// Standard output and standard error.
    pub(crate) fn standard() -> Output {
        let err_is_terminal = io::stderr().is_terminal();
        Output::new(Box::new(BufWriter::new(io::stdout())), Box::new(io::stderr()), err_is_terminal)
    }

    pub(crate) fn new(
        out: Box<dyn Write + Send>,
        err: Box<dyn Write + Send>,
        err_is_terminal: bool,
    ) -> Output {
        let sinks = Sinks {
            out,
            err,
            above_line: None,
            print_watches: true,
            last_event: None,
            last_removal: None,
        };
        Output { sinks: Mutex::new(sinks), err_is_terminal }
    }

    /// Writes a line to standard output.
    pub(crate) fn line(&self, text: impl AsRef<[u8]>) -> io::Result<()> {
        let mut sinks = self.sinks();
        sinks.out.write_all(text.as_ref())?;
        sinks.out.write_all(b"\n")
    }

    /// Writes bytes to standard output.
    pub(crate) fn raw(&self, text: impl AsRef<[u8]>) -> io::Result<()> {
        self.sinks().out.write_all(text.as_ref())
    }

    /// Writes a line to standard error, behind all that standard output was given before.
    pub(crate) fn err(&self, text: &str) {
        let mut sinks = self.sinks();
        let _nobody_reads = sinks.out.flush();
        let _nobody_reads = writeln!(sinks.err, "{text}");
    }

    /// Hands everything to the system.
    pub(crate) fn flush(&self) -> io::Result<()> {
        self.sinks().out.flush()
    }

    /// Prints a watch event as zkCli does, once for all watches that have it.
    pub(crate) fn event(&self, event: &WatchEvent) {
        let mut sinks = self.sinks();
        if event.zxid.is_some() && sinks.last_event.as_ref() == Some(event) {
            return;
        }
        sinks.last_event = Some(event.clone());
        sinks.last_removal = None;
        sinks.watcher(&format::event(event));
    }

    /// Prints that watches were removed, once for all of a kind and a path.
    pub(crate) fn removal(&self, text: &str) {
        let mut sinks = self.sinks();
        if sinks.last_removal.as_deref() != Some(text) {
            sinks.last_removal = Some(text.to_owned());
            sinks.watcher(text);
        }
    }

    /// Prints a change of the session's state as zkCli does.
    pub(crate) fn state(&self, state: State) {
        self.sinks().watcher(&format::state_event(state));
    }

    /// Whether watch events are printed.
    pub(crate) fn prints_watches(&self) -> bool {
        self.sinks().print_watches
    }

    pub(crate) fn set_print_watches(&self, on: bool) {
        self.sinks().print_watches = on;
    }

    /// From now on watch events are printed above the line that the user edits.
    pub(crate) fn set_above_line(&self, above_line: Option<AboveLine>) {
        self.sinks().above_line = above_line;
    }

    /// A count of what long work has done, on a terminal only.
    pub(crate) fn progress(&self, what: &'static str) -> Progress<'_> {
        Progress { output: self, what, count: 0, next: None }
    }

    fn sinks(&self) -> MutexGuard<'_, Sinks> {
        // A writer that has panicked leaves at worst a part of a line.
        self.sinks.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Sinks {
    fn watcher(&mut self, text: &str) {
        if !self.print_watches {
            return;
        }
        let text = format!("\nWATCHER::\n\n{text}\n");
        if let Some(above_line) = &mut self.above_line {
            let _nobody_reads = self.out.flush();
            above_line(text);
        } else {
            let _nobody_reads = self.out.write_all(text.as_bytes()).and_then(|()| self.out.flush());
        }
    }
}

/// See [`Output::progress`]. Dropping it removes the count from the terminal.
pub(crate) struct Progress<'o> {
    output: &'o Output,
    what: &'static str,
    count: usize,
    /// When the count may be written again; `None` until the first.
    next: Option<Instant>,
}

impl Progress<'_> {
    /// So many more are done.
    pub(crate) fn add(&mut self, more: usize) {
        self.count += more;
        let now = Instant::now();
        if self.output.err_is_terminal && self.next.is_none_or(|next| now >= next) {
            // Short work shows nothing.
            if self.next.is_some() {
                let mut sinks = self.output.sinks();
                let _nobody_reads = write!(sinks.err, "\r{}: {}", self.what, self.count);
                let _nobody_reads = sinks.err.flush();
            }
            self.next = Some(now + PROGRESS_INTERVAL);
        }
    }
}

impl Drop for Progress<'_> {
    fn drop(&mut self) {
        if self.output.err_is_terminal && self.next.is_some() {
            let _nobody_reads = write!(self.output.sinks().err, "\r\u{1b}[K");
        }
    }
}
