//! One seed, one run.

use sim::options::Profile;
use sim::{determinism, trace::Story};

use crate::{assert_passed, job, run};

fn hash_of(seed: u64) -> u128 {
    let report = run(&job(seed, Profile::Default, "", 10));
    assert_passed(&report);
    report.outcome.hash
}

/// The hashes that runs have on every machine and in every build. A change of the server, its store, the client or the
/// simulator that alters what happens alters them; a change that should alter nothing and does is a finding.
#[test]
fn runs_have_the_hashes_of_the_table() {
    let row = |seed| format!("{seed} {:032x}", hash_of(seed));
    let table: Vec<String> = (1..=64).map(row).collect();
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
