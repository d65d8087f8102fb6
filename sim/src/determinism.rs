//! The check that a seed means one run: run it again under conditions that must not matter, and compare.
//!
//! Owns the comparison and the search for the first difference. What differs between the two runs: the thread, the
//! layout of the heap, the keys of hash maps, and whether text is formatted.

use std::thread;

use zabkeeper_core::Instant;

use crate::judge::{Class, Failure};
use crate::run::{Job, Report};
use crate::trace::Story;

/// Of the maps in the second run.
const MAP_SALT: u64 = 0x5a17_5a17_5a17_5a17;
/// Lines of context before the first difference.
const CONTEXT: u64 = 3;

/// Runs `job` twice; the report is the first run's, with a failure of its own where they differ.
pub fn check(job: &Job) -> Report {
    let mut first = job.run(Story::Off, false);
    let second = elsewhere(job, Story::Discard, false);
    let same =
        first.outcome.hash == second.outcome.hash && first.outcome.events == second.outcome.events;
    if !same {
        first.outcome.failure = Some(explain(job));
    }
    first
}

/// Runs `job` in a thread of its own, among allocations that move all others, and with other keys for maps.
fn elsewhere(job: &Job, story: Story, compare: bool) -> Report {
    let padded = || {
        let padding: Vec<Vec<u8>> = (1..200).map(|n| Vec::with_capacity(n * 37)).collect();
        let report = job.run_salted(story, compare, MAP_SALT);
        drop(padding);
        report
    };
    thread::scope(|scope| scope.spawn(padded).join().expect("panics are caught inside"))
}

/// Runs both again, with all that is needed to find the first event that differs.
fn explain(job: &Job) -> Failure {
    let (first, second) = (job.run(Story::Off, true), elsewhere(job, Story::Discard, true));
    let (ours, theirs) = (first.outcome.trace.marks(), second.outcome.trace.marks());
    let differs = ours.iter().zip(theirs).position(|(a, b)| a != b);
    let number = differs.unwrap_or(ours.len().min(theirs.len())) as u64 + 1;
    let window = Story::Keep(number.saturating_sub(CONTEXT), number);
    let mut evidence = vec![format!("the runs differ from event {number} on")];
    for (name, report) in
        [("first", job.run(window, true)), ("second", elsewhere(job, window, true))]
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
