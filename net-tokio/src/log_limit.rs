//! A rate limit on log lines: a client that sends invalid data must not fill the operator's disk.
//!
//! Owns the time windows and the counts. Must not write lines, except those with the number of
//! suppressed lines.
//!
//! A kind of line is a place in the code, so that every line has a bound. If one place logs several
//! messages, the fields `kind` and `server` distinguish them: their values come from small sets,
//! never from the peer. Each kind may log [`LINES`] lines in a window; the others are suppressed,
//! and one line at the end of the window counts them. After a window with suppressed lines the next
//! one is twice as long, up to [`LONGEST`].
//!
//! Not limited: errors, which end the process; the levels below info, which the operator has to
//! enable; and all lines before the server accepts connections.

use std::collections::BTreeMap;
use std::fmt::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tracing::field::{Field, Visit};
use tracing::{Event, Level, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Maximum lines of a kind in each window.
const LINES: u32 = 10;

const FIRST: Duration = Duration::from_secs(10);
const LONGEST: Duration = Duration::from_secs(300);

/// Maximum characters of the example of a suppressed line.
const EXAMPLE: usize = 200;

/// The limits of all kinds of lines. Clones share them.
#[derive(Clone, Default)]
pub(crate) struct LineLimits(Arc<Shared>);

#[derive(Default)]
struct Shared {
    on: AtomicBool,
    windows: Mutex<BTreeMap<Kind, Window>>,
}

/// A place in the code, and the values of the fields `kind` and `server`.
type Kind = (&'static str, String);

/// The current window of a kind.
struct Window {
    began: Instant,
    length: Duration,
    lines: u32,
    suppressed: u64,
    /// The first suppressed line.
    example: String,
}

/// Whether a line is logged.
#[derive(PartialEq, Eq, Debug)]
enum Admission {
    Admitted,
    Suppressed,
    /// Suppressed, and the first one in its window.
    FirstSuppressed,
}

/// The suppressed lines of one kind in a closed window.
#[derive(PartialEq, Eq, Debug)]
struct Suppressed {
    lines: u64,
    seconds: u64,
    example: String,
}

impl LineLimits {
    /// Starts limiting.
    pub(crate) fn begin(&self) {
        self.0.on.store(true, Ordering::Relaxed);
    }

    /// Closes the windows that end by `now`, or all if it is `None`, and logs their suppressed
    /// lines.
    pub(crate) fn say_what_was_suppressed(&self, now: Option<Instant>) {
        for Suppressed { lines, seconds, example } in self.close_windows(now) {
            tracing::warn!("suppressed {lines} more lines within {seconds} s, like: {example}");
        }
    }

    fn windows(&self) -> MutexGuard<'_, BTreeMap<Kind, Window>> {
        // The lock is poisoned after a panic, but the panic still has to be logged.
        self.0.windows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn admit(&self, kind: &Kind, now: Instant) -> Admission {
        let mut windows = self.windows();
        let Some(window) = windows.get_mut(kind) else {
            let (lines, suppressed, example) = (1, 0, String::new());
            let window = Window { began: now, length: FIRST, lines, suppressed, example };
            windows.insert(kind.clone(), window);
            return Admission::Admitted;
        };
        if window.lines < LINES {
            window.lines += 1;
            return Admission::Admitted;
        }
        window.suppressed += 1;
        if window.suppressed == 1 { Admission::FirstSuppressed } else { Admission::Suppressed }
    }

    fn keep_example(&self, kind: &Kind, text: String) {
        if let Some(window) = self.windows().get_mut(kind) {
            window.example = text;
        }
    }

    fn close_windows(&self, now: Option<Instant>) -> Vec<Suppressed> {
        let mut over = Vec::new();
        self.windows().retain(|_, window| {
            let end = window.began + window.length;
            let now = now.unwrap_or(end);
            if now < end {
                return true;
            }
            if window.suppressed == 0 {
                return false;
            }
            over.push(Suppressed {
                lines: std::mem::take(&mut window.suppressed),
                seconds: window.length.as_secs(),
                example: std::mem::take(&mut window.example),
            });
            (window.began, window.lines) = (now, 0);
            window.length = (window.length * 2).min(LONGEST);
            true
        });
        over
    }
}

impl<S: Subscriber> Layer<S> for LineLimits {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        let bounded = matches!(*metadata.level(), Level::WARN | Level::INFO);
        if !bounded || !self.0.on.load(Ordering::Relaxed) || metadata.target() == module_path!() {
            return true;
        }
        let kind = (metadata.name(), text_of(event, &["kind", "server"]));
        match self.admit(&kind, Instant::now()) {
            Admission::Admitted => true,
            Admission::Suppressed => false,
            Admission::FirstSuppressed => {
                self.keep_example(
                    &kind,
                    text_of(event, &["message"]).chars().take(EXAMPLE).collect(),
                );
                false
            }
        }
    }
}

/// The values of these fields of the event, concatenated; empty if it has none of them.
fn text_of(event: &Event<'_>, fields: &'static [&'static str]) -> String {
    let mut wanted = Wanted { fields, text: String::new() };
    event.record(&mut wanted);
    wanted.text
}

struct Wanted {
    fields: &'static [&'static str],
    text: String,
}

impl Visit for Wanted {
    fn record_str(&mut self, field: &Field, value: &str) {
        if self.fields.contains(&field.name()) {
            self.text.push_str(value);
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if self.fields.contains(&field.name()) {
            write!(self.text, "{value:?}").expect("a string takes everything");
        }
    }
}

#[cfg(test)]
mod tests {
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    fn kind(name: &str) -> Kind {
        ("event here", name.to_owned())
    }

    /// How many of `lines` lines are admitted.
    fn admitted(limits: &LineLimits, name: &str, lines: u32, now: Instant) -> usize {
        let admit = |_: &u32| limits.admit(&kind(name), now) == Admission::Admitted;
        (0..lines).filter(admit).count()
    }

    fn counts(closed: &[Suppressed]) -> Vec<(u64, u64)> {
        closed.iter().map(|closed| (closed.lines, closed.seconds)).collect()
    }

    #[test]
    fn each_kind_has_ten_lines_per_window_and_rest_is_counted() {
        let limits = LineLimits::default();
        let start = Instant::now();
        let after = |seconds| start + Duration::from_secs(seconds);
        assert_eq!(admitted(&limits, "a", 25, start), 10);
        assert_eq!(admitted(&limits, "b", 10, after(1)), 10);
        assert_eq!(counts(&limits.close_windows(Some(after(9)))), []);
        assert_eq!(counts(&limits.close_windows(Some(after(11)))), [(15, 10)]);
        assert_eq!(limits.windows().len(), 1, "b has been quiet");
        assert_eq!(admitted(&limits, "a", 3, after(12)), 3);
        assert_eq!(counts(&limits.close_windows(Some(after(30)))), []);
        assert_eq!(counts(&limits.close_windows(Some(after(31)))), []);
        assert_eq!(limits.windows().len(), 0, "nothing was suppressed");
    }

    #[test]
    fn windows_double_up_to_five_minutes() {
        let limits = LineLimits::default();
        let start = Instant::now();
        let (mut lines, mut seconds) = (0, Vec::new());
        for second in 0..3600 {
            let now = start + Duration::from_secs(second);
            lines += admitted(&limits, "a", 100, now);
            let closed = limits.close_windows(Some(now));
            lines += closed.len();
            seconds.extend(counts(&closed).iter().map(|(_, seconds)| *seconds));
        }
        assert_eq!(seconds[..7], [10, 20, 40, 80, 160, 300, 300]);
        assert!(lines < 180, "{lines} lines an hour");
    }

    /// Collects the lines that pass the limits.
    #[derive(Clone, Default)]
    struct Lines(Arc<Mutex<Vec<String>>>);

    impl<S: Subscriber> Layer<S> for Lines {
        fn on_event(&self, event: &Event<'_>, _context: Context<'_, S>) {
            self.0.lock().unwrap().push(text_of(event, &["message"]));
        }
    }

    #[test]
    fn places_and_kinds_have_own_limits_but_errors_and_early_lines_none() {
        let (limits, lines) = (LineLimits::default(), Lines::default());
        let subscriber = tracing_subscriber::registry().with(limits.clone()).with(lines.clone());
        let log = || {
            for i in 0..100 {
                tracing::error!(target: "elsewhere", "error {i}");
                tracing::warn!(target: "elsewhere", "place {i}");
                let kind = if i % 2 == 0 { "even" } else { "odd" };
                tracing::info!(target: "elsewhere", kind, "kinds {i}");
                tracing::debug!(target: "elsewhere", "debug {i}");
            }
        };
        let count = |word: &str| {
            lines.0.lock().unwrap().iter().filter(|line| line.starts_with(word)).count()
        };
        tracing::subscriber::with_default(subscriber, || {
            log();
            assert_eq!(["error", "place", "kinds", "debug"].map(count), [100; 4]);
            limits.begin();
            log();
            assert_eq!(["error", "place", "kinds", "debug"].map(count), [200, 110, 120, 200]);
            limits.say_what_was_suppressed(None);
            assert_eq!(count("suppressed 90 more lines within 10 s, like: place 10"), 1);
            assert_eq!(count("suppressed 40 more lines within 10 s, like: kinds 2"), 2);
        });
    }
}
