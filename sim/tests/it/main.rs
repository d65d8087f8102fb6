//! Tests of whole worlds: every fault is injected, a seed has one run, and sabotaged worlds fail.

mod corpus;
mod determinism;
mod faults;
mod html;
mod marks;
mod program;
mod scenarios;
mod scene;
mod schedule;
mod workload;

use std::time::Duration;

use sim::engine::selection::Selection;
use sim::record::trace::TraceSink;
use sim::run::job::{Job, Report};
use sim::world::options::{Pinned, Profile};

/// A job of `seconds` virtual seconds with this selection of faults.
fn job(seed: u64, profile: Profile, faults: &str, seconds: u64) -> Job {
    let faults = Selection::parse(faults).expect("a valid selection");
    let duration = Some(Duration::from_secs(seconds));
    Job { seed, profile, pinned: Pinned { duration, faults, ..Pinned::default() } }
}

fn run(job: &Job) -> Report {
    job.run(TraceSink::Off, false)
}

/// Panics with the details of the failure unless the run passed.
fn assert_passed(report: &Report) {
    let seed = report.job.seed;
    assert!(report.outcome.failure.is_none(), "seed {seed}: {:?}", report.outcome.failure);
    assert!(!report.outcome.inconclusive, "seed {seed} is inconclusive");
}
