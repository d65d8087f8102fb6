//! The determinism check: runs a seed twice under different conditions, and compares.
//!
//! Owns the comparison and the search for the first difference. The two runs differ in the thread,
//! the heap layout, the keys of hash maps, whether oracles check, and for one seed in sixteen,
//! because that is expensive, whether text is formatted.

use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use zabkeeper_core::Instant;

use crate::check::checker::{Class, Failure};
use crate::engine::seed::Seeds;
use crate::record::trace::TraceSink;
use crate::run::job::{Job, Report, Surroundings};

/// Salt of the maps in the second run.
const MAP_SALT: u64 = 0x5a17_5a17_5a17_5a17;
/// One seed in this many formats the text of its second run.
const TEXT_ONE_IN: u64 = 16;
/// Lines of context before the first difference.
const CONTEXT: u64 = 3;

/// Runs `job` twice. The report is that of the first run, with a failure if the runs differ.
pub fn check(job: &Job) -> Report {
    let mut first = job.run(TraceSink::Off, false);
    // Drawn from the seed, because the seeds that a batch checks are evenly spaced.
    let text = Seeds::new(job.seed).stream("determinism", 0).chance(1, TEXT_ONE_IN);
    let second = Elsewhere {
        // A run ends at a violation, which only oracles detect.
        unchecked: first.outcome.failure.is_none(),
        sink: if text { TraceSink::Discard } else { TraceSink::Off },
    };
    let other = second.run(job, second.sink, false);
    let same =
        first.outcome.hash == other.outcome.hash && first.outcome.events == other.outcome.events;
    if !same {
        first.outcome.failure = Some(explain(job, second));
    }
    first
}

/// The conditions of the second run.
#[derive(Clone, Copy)]
struct Elsewhere {
    unchecked: bool,
    sink: TraceSink,
}

impl Elsewhere {
    /// Runs `job` in another thread, with additional heap allocations and other keys for maps.
    fn run(self, job: &Job, sink: TraceSink, compare: bool) -> Report {
        let around = Surroundings { map_salt: MAP_SALT, unchecked: self.unchecked };
        let job = job.clone();
        let padded = move || {
            let padding: Vec<Vec<u8>> = (1..200).map(|n| Vec::with_capacity(n * 37)).collect();
            let report = job.run_in(around, sink, compare);
            drop(padding);
            report
        };
        OTHER_THREAD.with(|thread| thread.run(Box::new(padded)))
    }
}

thread_local! {
    static OTHER_THREAD: OtherThread = OtherThread::start();
}

type Run = Box<dyn FnOnce() -> Report + Send>;

/// One helper per checking thread, reused for all runs: a new thread would request its memory from
/// the system again, which costs a tenth of a run.
struct OtherThread {
    runs: Sender<Run>,
    reports: Receiver<Report>,
}

impl OtherThread {
    #[expect(clippy::disallowed_methods, reason = "each of the two worlds has one thread")]
    fn start() -> Self {
        let (runs, wanted) = channel::<Run>();
        let (done, reports) = channel();
        // Ends with the checking thread, which owns the other ends of the channels.
        thread::spawn(move || wanted.into_iter().all(|run| done.send(run()).is_ok()));
        OtherThread { runs, reports }
    }

    fn run(&self, run: Run) -> Report {
        self.runs.send(run).expect("the other thread waits for runs");
        self.reports.recv().expect("panics are caught inside")
    }
}

/// Repeats both runs, recording what is needed to find the first different event.
fn explain(job: &Job, second: Elsewhere) -> Failure {
    let (first, other) = (job.run(TraceSink::Off, true), second.run(job, second.sink, true));
    let (ours, theirs) = (first.outcome.trace.marks(), other.outcome.trace.marks());
    let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let number = differs.unwrap_or(ours.len().min(theirs.len())) as u64 + 1;
    let window = TraceSink::Keep(number.saturating_sub(CONTEXT), number);
    let mut evidence = vec![format!("the runs differ from event {number} on")];
    for (name, report) in
        [("first", job.run(window, true)), ("second", second.run(job, window, true))]
    {
        evidence.push(format!("{name} run, hash {:032x}:", report.outcome.hash));
        evidence.extend(report.outcome.trace.kept().iter().map(|line| format!("  {line}")));
    }
    Failure {
        class: Class::Determinism,
        id: "E5",
        sentence: "one seed, one run",
        evidence,
        at: Instant(0),
        event: number,
    }
}
