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
use crate::record::output::say;
use crate::record::trace::TraceSink;
use crate::run::cli::Flags;
use crate::run::determinism;
use crate::run::job::{Report, wall_clock};
use crate::run::plan::Plan;
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
    let interrupted = listen();
    let begun = wall_clock();
    let mut shown = begun;
    let (stop, taken, spent) = (AtomicBool::new(false), AtomicU64::new(0), AtomicU64::new(0));
    let timed_out = AtomicBool::new(false);
    while let Some(round) = plan.round() {
        let next = AtomicU64::new(0);
        let work = |sender: mpsc::Sender<(u64, Report)>| {
            loop {
                let index = next.fetch_add(1, Ordering::Relaxed);
                let over = |limit: Duration| begun.elapsed() > limit;
                let late = flags.wall.is_some_and(over);
                let budget = flags.cpu.map(|limit| limit.as_nanos());
                let dear = budget.is_some_and(|ns| u128::from(spent.load(Ordering::Relaxed)) >= ns);
                let Some(job) = round.job(index, flags, pinned) else {
                    return;
                };
                if flags.timeout_wall.is_some_and(over) {
                    timed_out.store(true, Ordering::Relaxed);
                    stop.store(true, Ordering::Relaxed);
                }
                let unwanted = interrupted.load(Ordering::Relaxed);
                if stop.load(Ordering::Relaxed) || late || dear || unwanted {
                    stop.store(true, Ordering::Relaxed);
                    return;
                }
                let number = taken.load(Ordering::Relaxed) + index;
                let twice = flags.check_determinism || number.is_multiple_of(CHECK_ONE_IN);
                let mut report =
                    if twice { determinism::check(&job) } else { job.run(TraceSink::Off, false) };
                report.outcome.trace.forget();
                spent.fetch_add(report.cpu_ns, Ordering::Relaxed);
                if sender.send((index, report)).is_err() {
                    return;
                }
            }
        };
        thread::scope(|scope| {
            let (sender, receiver) = mpsc::channel();
            for _ in 0..flags.jobs.unwrap_or(1) {
                let sender = sender.clone();
                scope.spawn(|| work(sender));
            }
            drop(sender);
            let mut early: BTreeMap<u64, Report> = BTreeMap::new();
            let mut told = 0;
            for (index, report) in receiver {
                early.insert(index, report);
                while let Some(report) = early.remove(&told) {
                    told += 1;
                    plan.learn(&report);
                    batch.take(&report, flags);
                    let failed = batch.failures.len() as u64;
                    let enough = if flags.fail_fast {
                        1
                    } else {
                        flags.max_failures.unwrap_or(MAX_FAILURES)
                    };
                    if failed >= enough {
                        stop.store(true, Ordering::Relaxed);
                    }
                }
                if shown.elapsed() > PROGRESS {
                    shown = wall_clock();
                    batch.show_progress();
                }
            }
        });
        if stop.load(Ordering::Relaxed) {
            break;
        }
        taken.fetch_add(round.length(), Ordering::Relaxed);
    }
    batch.interrupted = interrupted.load(Ordering::Relaxed);
    batch.timed_out = timed_out.load(Ordering::Relaxed);
    batch
}

/// Returns the flag that SIGINT sets: running jobs finish, and the batch prints its summary. A
/// second SIGINT ends the program at once.
fn listen() -> Arc<AtomicBool> {
    let pressed = Arc::new(AtomicBool::new(false));
    let at_once = flag::register_conditional_shutdown(SIGINT, INTERRUPTED.into(), pressed.clone());
    if let Err(error) = at_once.and_then(|_| flag::register(SIGINT, pressed.clone())) {
        say(&format!("Ctrl-C ends the batch without a summary: {error}\n"));
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
            say(&format!("seed {:#x}: {why}\n", report.job.seed));
        }
        if let Some(failure) = &report.outcome.failure {
            // The full report comes at the end of the output; this line announces it.
            let seen = failure.evidence.first().map_or("", String::as_str);
            say(&format!("seed {:#x}: {}: {seen}\n", report.job.seed, failure.id));
            let text = report::failure(&failure.to_string(), report, flags);
            self.failures.push(text);
            self.classes.push(failure.class);
        }
    }

    fn show_progress(&self) {
        say(&format!(
            "{} runs, {} failed, {:.2} virtual hours\n",
            self.totals.runs,
            self.failures.len(),
            report::hours(self.totals.virtual_ns)
        ));
    }
}
