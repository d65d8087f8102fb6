//! Shrinking keeps what a failure needs, and nothing else.

use super::*;
use crate::engine::selection::Selection;
use crate::faults::catalog::Fault;
use crate::run::job::Job;
use crate::world::options::{Pinned, Profile};

/// A run of the default profile with many steps unrelated to the failure.
fn failing(seed: u64, trips: Fault) -> (Job, Schedule) {
    let pinned = Pinned {
        duration: Some(Duration::from_secs(30)),
        servers: Some(5),
        clients: Some(8),
        faults: Selection::parse("+node,+net,+client,+disk.stall").expect("valid"),
        ..Pinned::default()
    };
    let job = Job { seed, profile: Profile::Default, pinned };
    let (report, mut schedule) = job.record(TraceSink::Off);
    assert_eq!(report.outcome.failure, None);
    schedule.trips = Some(trips);
    (job, schedule)
}

#[test]
fn shrinking_keeps_only_the_necessary_steps() {
    for (seed, trips) in [(1, Fault::NodePause), (2, Fault::ClientFreeze)] {
        let (_, schedule) = failing(seed, trips);
        let shrunk = shrink(&schedule, None, Budget::Runs(400), 1).expect("it fails");
        let acts: Vec<Act> = shrunk.schedule.steps.iter().map(|step| step.act).collect();
        assert_eq!(acts, [Act::Inject(trips)], "{}", shrunk.schedule);
        assert!(shrunk.before.0 + shrunk.before.1 > 20, "{:?}", shrunk.before);
        let servers = shrunk.schedule.options.servers;
        assert!(servers == 1, "{servers}");
        assert_eq!(shrunk.report.outcome.failure.expect("it fails").id, "TRIP");
        let text = shrunk.schedule.to_string();
        let again: Schedule = text.parse().expect("it was written");
        let hash = job::replay(&again, TraceSink::Off, false).outcome.hash;
        assert_eq!(hash, shrunk.report.outcome.hash, "{text}");
    }
}

#[test]
fn shrinking_with_a_run_budget_is_independent_of_threads() {
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
fn shrinking_switches_to_a_shorter_failing_run() {
    let (job, schedule) = failing(1, Fault::NodeKill);
    let shrunk = |of| shrink(&schedule, of, Budget::Runs(12), 1).expect("it fails");
    let (alone, among_others) = (shrunk(None), shrunk(Some(&job)));
    assert_eq!(alone.other, None);
    assert!(alone.schedule.steps.len() > 20, "{}", alone.schedule);
    assert!(among_others.other.is_some_and(|seed| seed > 1));
    assert_eq!(among_others.schedule.steps.len(), 1, "{}", among_others.schedule);
    // The schedule fails without the run that it came from.
    let again = job::replay(&among_others.schedule, TraceSink::Off, false).outcome;
    assert_eq!(again.failure.expect("it fails").id, "TRIP");
    assert_eq!(again.hash, among_others.report.outcome.hash);
}

#[test]
fn passing_schedule_is_not_shrunk() {
    let (_, mut schedule) = failing(4, Fault::NodeKill);
    schedule.trips = None;
    let why = shrink(&schedule, None, Budget::Runs(10), 1).expect_err("it passes");
    assert!(why.contains("nothing to shrink"), "{why}");
}

#[test]
fn panics_at_different_locations_are_different_failures() {
    let failed = |class, line: &str| {
        let (id, sentence, evidence) = ("X1", "it holds", vec![line.to_owned()]);
        way(&Failure { class, id, sentence, evidence, at: Instant(1), event: 1 })
    };
    let panic = |line| failed(Class::Panic, line);
    assert_eq!(panic("s1: a broke at a.rs:1:1"), panic("s2: b broke at a.rs:1:1"));
    assert_ne!(panic("s1: a broke at a.rs:1:1"), panic("s1: a broke at b.rs:1:1"));
    assert_eq!(failed(Class::Safety, "seen at 1s"), failed(Class::Safety, "seen at 2s"));
}
