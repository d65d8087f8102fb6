//! Many runs: in order for whoever reads, at once for the processors.
//!
//! Owns threads, progress and the stop conditions. Worlds share nothing, so results do not depend on the number of
//! threads; they are told in the order of seeds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use serde_json::Value;
use signal_hook::consts::SIGINT;
use signal_hook::flag;

use crate::cli::Flags;
use crate::determinism;
use crate::judge::Class;
use crate::options::Pinned;
use crate::output::say;
use crate::plan::Plan;
use crate::report::{self, Totals};
use crate::run::{Report, wall_clock};
use crate::trace::Story;

/// One seed in so many is run twice.
const CHECK_ONE_IN: u64 = 64;
/// A batch ends after so many failures, where nobody says.
const MAX_FAILURES: u64 = 10;
/// Exit code of who is interrupted, as shells have it.
pub(crate) const INTERRUPTED: u8 = 130;
/// Progress is shown this often.
const PROGRESS: Duration = Duration::from_secs(2);

/// What came of a batch.
#[derive(Debug)]
pub struct Batch {
    /// Sums.
    pub totals: Totals,
    /// First and last seed.
    pub seeds: (u64, u64),
    /// What failed, with the command to see it again.
    pub failures: Vec<String>,
    /// Kinds of failures.
    pub classes: Vec<Class>,
    /// For programs.
    pub json: Vec<Value>,
    /// Did somebody not want to wait?
    pub interrupted: bool,
    /// Was there less time than was needed?
    pub timed_out: bool,
}

/// Runs all that the flags ask for. Progress goes to standard error.
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
                    if twice { determinism::check(&job) } else { job.run(Story::Off, false) };
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

/// Whether somebody has pressed Ctrl-C: runs that are under way come to their end, and the batch says what it has found.
/// The second time ends the program.
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
            // The whole of it ends the output, with the way to repeat it.
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
