//! A seed has exactly one run.

use sim::record::trace::TraceSink;
use sim::run::determinism;
use sim::run::job::Job;
use sim::world::options::{Pinned, Profile};

use crate::{assert_passed, job, run};

fn hash_of(job: &Job) -> u128 {
    let report = run(job);
    assert_passed(&report);
    report.outcome.hash
}

/// A run of the swarm with its drawn length.
fn swarm(seed: u64) -> Job {
    Job { seed, profile: Profile::Swarm, pinned: Pinned::default() }
}

/// The hashes of runs on every machine and in every build. They change with every change of
/// behaviour in the server, its store, the client or the simulator; a change of hashes without an
/// intended change of behaviour is a bug.
#[test]
fn runs_have_the_hashes_of_the_table() {
    let row = |seed| format!("{seed} {:032x}", hash_of(&job(seed, Profile::Default, "", 10)));
    let mut table: Vec<String> = (1..=64).map(row).collect();
    // The last one exceeds the maximum number of events of the phase of faults.
    let row = |seed| format!("swarm {seed:#x} {:032x}", hash_of(&swarm(seed)));
    table.extend((1..=8).chain([0x7d]).map(row));
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn run_is_independent_of_thread_heap_and_map_keys() {
    for seed in 20..24 {
        assert_passed(&determinism::check(&job(seed, Profile::Swarm, "", 10)));
    }
}

#[test]
fn different_seeds_are_different_runs() {
    let hash = |seed| run(&job(seed, Profile::Calm, "", 2)).outcome.hash;
    assert_ne!(hash(1), hash(2));
}

#[test]
fn keeping_trace_lines_does_not_change_the_run() {
    let job = job(3, Profile::Default, "", 5);
    let kept = job.run(TraceSink::Keep(100, 102), true);
    assert_eq!(kept.outcome.trace.kept().len(), 3);
    assert_eq!(kept.outcome.hash, run(&job).outcome.hash);
}
