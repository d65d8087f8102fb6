//! One seed, one run.

use sim::options::{Pinned, Profile};
use sim::run::Job;
use sim::{determinism, trace::Story};

use crate::{assert_passed, job, run};

fn hash_of(job: &Job) -> u128 {
    let report = run(job);
    assert_passed(&report);
    report.outcome.hash
}

/// A run of the swarm, as long as it is drawn.
fn swarm(seed: u64) -> Job {
    Job { seed, profile: Profile::Swarm, pinned: Pinned::default() }
}

/// The hashes that runs have on every machine and in every build. A change of the server, its store, the client or the
/// simulator that alters what happens alters them; a change that should alter nothing and does is a finding.
#[test]
fn runs_have_the_hashes_of_the_table() {
    let row = |seed| format!("{seed} {:032x}", hash_of(&job(seed, Profile::Default, "", 10)));
    let mut table: Vec<String> = (1..=64).map(row).collect();
    // The last one has more events than the phase with faults may have.
    let row = |seed| format!("swarm {seed:#x} {:032x}", hash_of(&swarm(seed)));
    table.extend((1..=8).chain([0x7d]).map(row));
    insta::assert_snapshot!(table.join("\n"));
}

#[test]
fn conditions_that_must_not_matter_do_not() {
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
fn a_story_that_is_kept_is_the_story_of_the_same_run() {
    let job = job(3, Profile::Default, "", 5);
    let kept = job.run(Story::Keep(100, 102), true);
    assert_eq!(kept.outcome.trace.kept().len(), 3);
    assert_eq!(kept.outcome.hash, run(&job).outcome.hash);
}
