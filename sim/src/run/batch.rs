//! Runs many jobs on several threads and reports them in job order.
//!
//! Owns threads, progress output and the stop conditions. Worlds share nothing, so results do not
//! depend on the number of threads.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::check::checker::Class;
use crate::record::output::print_error;
use crate::record::trace::TraceSink;
use crate::run::cli::Flags;
use crate::run::determinism;
use crate::run::job::{Report, wall_clock};
use crate::run::plan::{Plan, Round};
use crate::run::report::{self, Totals};
use crate::world::options::Pinned;

/// One job in this many runs twice, as a determinism check.
const CHECK_ONE_IN: u64 = 64;
/// Default of `--max-failures`: a batch ends after this many failures.
const MAX_FAILURES: u64 = 10;
/// Exit code after SIGINT, following the shell's convention (128 + 2).
pub(crate) const INTERRUPTED: u8 = 130;
/// Interval between progress lines.
const PROGRESS: Duration = Duration::from_secs(2);

/// The result of a batch.
#[derive(Debug)]
pub struct Batch {
    /// Sums over all runs.
    pub totals: Totals,
    /// First seed, and the seed after the last one that ran.
    pub seeds: (u64, u64),
    /// Failures as text, each with the command that reproduces it.
    pub failures: Vec<String>,
    /// The class of each failure.
    pub classes: Vec<Class>,
    /// One JSON record per run, with `--json`.
    pub json: Vec<Value>,
    /// SIGINT ended the batch.
    pub interrupted: bool,
    /// `--timeout-wall` expired before all jobs had run.
    pub timed_out: bool,
}

/// What the threads of a batch share.
struct Limits<'a> {
    flags: &'a Flags,
    pinned: &'a Pinned,
    begun: std::time::Instant,
    interrupted: Arc<AtomicBool>,
    timed_out: AtomicBool,
    /// No further job begins.
    stop: AtomicBool,
    /// Jobs of earlier rounds.
    taken: AtomicU64,
    /// CPU time so far, ns.
    spent: AtomicU64,
}

impl Limits<'_> {
    /// Whether a limit has been reached, so that no further job begins.
    fn are_reached(&self) -> bool {
        let over = |limit: Duration| self.begun.elapsed() > limit;
        let late = self.flags.wall.is_some_and(over);
        let budget = self.flags.cpu.map(|limit| limit.as_nanos());
        let spent = u128::from(self.spent.load(Ordering::Relaxed));
        if self.flags.timeout_wall.is_some_and(over) {
            self.timed_out.store(true, Ordering::Relaxed);
            self.stop.store(true, Ordering::Relaxed);
        }
        let interrupted = self.interrupted.load(Ordering::Relaxed);
        if late || budget.is_some_and(|ns| spent >= ns) || interrupted {
            self.stop.store(true, Ordering::Relaxed);
        }
        self.stop.load(Ordering::Relaxed)
    }

    /// Runs jobs of this round until none is left, or a limit has been reached.
    fn work(&self, round: &Round, next: &AtomicU64, sender: &mpsc::Sender<(u64, Report)>) {
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(job) = round.job(index, self.flags, self.pinned) else {
                return;
            };
            if self.are_reached() {
                return;
            }
            let number = self.taken.load(Ordering::Relaxed) + index;
            let twice = self.flags.check_determinism || number.is_multiple_of(CHECK_ONE_IN);
            let mut report =
                if twice { determinism::check(&job) } else { job.run(TraceSink::Off, false) };
            report.outcome.trace.forget();
            self.spent.fetch_add(report.cpu_ns, Ordering::Relaxed);
            if sender.send((index, report)).is_err() {
                return;
            }
        }
    }
}

/// Runs all jobs that the flags describe. Progress goes to standard error.
pub fn run(flags: &Flags, pinned: &Pinned) -> Batch {
    let mut plan = Plan::new(flags, pinned);
    let mut batch = Batch {
        totals: Totals::default(),
        seeds: (plan.next, plan.next),
        failures: Vec::new(),
        classes: Vec::new(),
        json: Vec::new(),
        interrupted: false,
        timed_out: false,
    };
    let limits = Limits {
        flags,
        pinned,
        interrupted: listen(),
        begun: wall_clock(),
        timed_out: AtomicBool::new(false),
        stop: AtomicBool::new(false),
        taken: AtomicU64::new(0),
        spent: AtomicU64::new(0),
    };
    let mut shown = limits.begun;
    let enough = if flags.fail_fast { 1 } else { flags.max_failures.unwrap_or(MAX_FAILURES) };
    while let Some(round) = plan.round() {
        let next = AtomicU64::new(0);
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..flags.jobs.unwrap_or(1) {
                let (sender, limits, round, next) = (sender.clone(), &limits, &round, &next);
                scope.spawn(move || limits.work(round, next, &sender));
            }
            drop(sender);
            let mut early: BTreeMap<u64, Report> = BTreeMap::new();
            let mut taken = 0;
            for (index, report) in receiver {
                early.insert(index, report);
                while let Some(report) = early.remove(&taken) {
                    taken += 1;
                    plan.learn(&report);
                    batch.take(&report, flags);
                    if batch.failures.len() as u64 >= enough {
                        limits.stop.store(true, Ordering::Relaxed);
                    }
                }
                if shown.elapsed() > PROGRESS {
                    shown = wall_clock();
                    batch.show_progress();
                }
            }
        });
        if limits.stop.load(Ordering::Relaxed) {
            break;
        }
        limits.taken.fetch_add(round.length(), Ordering::Relaxed);
    }
    batch.interrupted = limits.interrupted.load(Ordering::Relaxed);
    batch.timed_out = limits.timed_out.load(Ordering::Relaxed);
    batch
}

/// Returns the flag that SIGINT sets: running jobs finish, and the batch prints its summary. A
/// second SIGINT ends the program at once.
fn listen() -> Arc<AtomicBool> {
    let pressed = Arc::new(AtomicBool::new(false));
    let at_once = flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), pressed.clone());
    if let Err(error) = at_once.and_then(|_| flag::register(SIGINT, pressed.clone())) {
        print_error(&format!("Ctrl-C ends the batch without a summary: {error}\n"));
    }
    pressed
}

impl Batch {
    fn take(&mut self, report: &Report, flags: &Flags) {
        self.totals.add(report);
        self.seeds.1 += u64::from(report.job.pinned.forks.is_empty());
        if flags.json.is_some() {
            self.json.push(report::json(report, flags));
        }
        for why in report::drifted(report) {
            print_error(&format!("seed {:#x}: {why}\n", report.job.seed));
        }
        if let Some(failure) = &report.outcome.failure {
            // The full report comes at the end of the output, unless the batch is killed.
            let seen = failure.evidence.first().map_or("", String::as_str);
            let (seed, repro) = (report.job.seed, flags.repro(&report.job));
            print_error(&format!("seed {seed:#x}: {}: {seen}\n{repro}\n", failure.id));
            let text = report::failure(&failure.to_string(), report, flags);
            self.failures.push(text);
            self.classes.push(failure.class);
        }
    }

    fn show_progress(&self) {
        print_error(&format!(
            "{} runs, {} failed, {:.2} virtual hours\n",
            self.totals.runs,
            self.failures.len(),
            report::hours(self.totals.virtual_ns)
        ));
    }
}
