//! Shrinking finds what a failure needs, and only that.

use super::*;
use crate::faults::Fault;
use crate::options::{Pinned, Profile};
use crate::run::Job;
use crate::selection::Selection;

/// Runs of the default profile, in which a great deal happens that has nothing to do with the failure.
fn failing(seed: u64, trips: Fault) -> (Job, Schedule) {
    let pinned = Pinned {
        duration: Some(Duration::from_secs(30)),
        servers: Some(5),
        clients: Some(8),
        faults: Selection::parse("+node,+net,+client,+disk.stall").expect("valid"),
        ..Pinned::default()
    };
    let job = Job { seed, profile: Profile::Default, pinned };
    let (report, mut schedule) = job.record(Story::Off);
    assert_eq!(report.outcome.failure, None);
    schedule.trips = Some(trips);
    (job, schedule)
}

#[test]
fn what_a_failure_needs_is_left_and_nothing_else() {
    for (seed, trips) in [(1, Fault::NodePause), (2, Fault::ClientFreeze)] {
        let (_, schedule) = failing(seed, trips);
        let shrunk = shrink(&schedule, None, Budget::Runs(400), 1).expect("it fails");
        let acts: Vec<Act> = shrunk.schedule.steps.iter().map(|step| step.act).collect();
        assert_eq!(acts, [Act::Strike(trips)], "{}", shrunk.schedule);
        assert!(shrunk.before.0 + shrunk.before.1 > 20, "{:?}", shrunk.before);
        let servers = shrunk.schedule.options.servers;
        assert!(servers == 1, "{servers}");
        assert_eq!(shrunk.report.outcome.failure.expect("it fails").id, "TRIP");
        let text = shrunk.schedule.to_string();
        let again: Schedule = text.parse().expect("it was written");
        let hash = run::replay(&again, Story::Off, false).outcome.hash;
        assert_eq!(hash, shrunk.report.outcome.hash, "{text}");
    }
}

#[test]
fn a_budget_of_runs_gives_the_same_with_any_number_of_threads() {
    let (job, schedule) = failing(3, Fault::NodeSlow);
    let text = |of, jobs| {
        let shrunk = shrink(&schedule, of, Budget::Runs(120), jobs).expect("it fails");
        assert!(shrunk.tried <= 121, "{}", shrunk.tried);
        (shrunk.schedule.to_string(), shrunk.tried, shrunk.other)
    };
    for of in [None, Some(&job)] {
        assert_eq!(text(of, 1), text(of, 3));
    }
}

#[test]
fn what_stays_long_is_left_for_another_run_that_fails() {
    let (job, schedule) = failing(1, Fault::NodeKill);
    let shrunk = |of| shrink(&schedule, of, Budget::Runs(12), 1).expect("it fails");
    let (alone, among_others) = (shrunk(None), shrunk(Some(&job)));
    assert_eq!(alone.other, None);
    assert!(alone.schedule.steps.len() > 20, "{}", alone.schedule);
    assert!(among_others.other.is_some_and(|seed| seed > 1));
    assert_eq!(among_others.schedule.steps.len(), 1, "{}", among_others.schedule);
    // It stands for itself.
    let again = run::replay(&among_others.schedule, Story::Off, false).outcome;
    assert_eq!(again.failure.expect("it fails").id, "TRIP");
    assert_eq!(again.hash, among_others.report.outcome.hash);
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let (_, mut schedule) = failing(4, Fault::NodeKill);
    schedule.trips = None;
    let why = shrink(&schedule, None, Budget::Runs(10), 1).expect_err("it passes");
    assert!(why.contains("nothing to shrink"), "{why}");
}

#[test]
fn another_panic_is_another_failure() {
    let failed = |class, line: &str| {
        let (id, sentence, evidence) = ("X1", "it holds", vec![line.to_owned()]);
        way(&Failure { class, id, sentence, evidence, at: Instant(1), event: 1 })
    };
    let panic = |line| failed(Class::Panic, line);
    assert_eq!(panic("s1: a broke at a.rs:1:1"), panic("s2: b broke at a.rs:1:1"));
    assert_ne!(panic("s1: a broke at a.rs:1:1"), panic("s1: a broke at b.rs:1:1"));
    assert_eq!(failed(Class::Safety, "seen at 1s"), failed(Class::Safety, "seen at 2s"));
}
