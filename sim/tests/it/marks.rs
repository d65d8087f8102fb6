//! Faults are injected at marks, and runs with such rules are deterministic and replay.

use std::time::Duration;

use sim::faults::catalog::Fault;
use sim::faults::targets::Rule;
use sim::record::trace::TraceSink;
use sim::replay::schedule::Schedule;
use sim::replay::shrink;
use sim::run::job::{self, Job, Report};
use sim::run::{determinism, report};
use sim::world::options::Profile;
use zabkeeper_core::Instant;

use crate::{assert_passed, job};

/// A run without other faults.
fn with_rules(seed: u64, rules: &[&str]) -> Job {
    let mut job = job(seed, Profile::Calm, "", 20);
    let rules = rules.iter().map(|text| Rule::parse(text).expect("valid"));
    job.pinned.rules = Some(rules.collect());
    job
}

fn injected(report: &Report, fault: Fault) -> u64 {
    report.outcome.counters.faults[fault as usize]
}

#[test]
fn rule_injects_once_at_its_mark() {
    for text in ["BroadcastBegun#1=node.power", "WriteForwarded#40@following=node.kill"] {
        let report = with_rules(1, &[text]).run(TraceSink::Off, false);
        assert_passed(&report);
        let rule = Rule::parse(text).expect("valid");
        assert_eq!(injected(&report, rule.fault), 1, "{text}");
        let boots = report.outcome.counters.counts.boots;
        assert_eq!(boots, u64::from(report.options.servers) + 1, "{text}");
        assert_eq!(report.outcome.rules.len(), 1);
    }
    let never = with_rules(1, &["CommitBatch#4000000=node.kill", "UpgradeLost@leading=node.power"]);
    let report = never.run(TraceSink::Off, false);
    assert_passed(&report);
    assert_eq!(report.outcome.counters.faults.iter().sum::<u64>(), 0);
    assert_eq!(report.outcome.rules, []);
    assert_eq!(report.outcome.hash, with_rules(1, &[]).run(TraceSink::Off, false).outcome.hash);
}

#[test]
fn every_allowed_fault_is_injected_at_a_mark() {
    for fault in Rule::faults() {
        let report =
            with_rules(2, &[&format!("CommitBatch#20={fault}")]).run(TraceSink::Off, false);
        assert_passed(&report);
        assert_eq!(injected(&report, fault), 1, "{fault}");
        // Oracles expect nothing of the server before the recorded end of a fault (L8, swarm
        // 0x1e0004001dde).
        let ends =
            report.outcome.injections.list().iter().all(|injection| injection.until.is_some());
        assert!(ends || !matches!(fault, Fault::DiskSlow | Fault::DiskStall), "{fault}");
    }
}

#[test]
fn runs_with_rules_are_deterministic_and_replay() {
    let rules = ["LearnerJoined#2=net.split", "WriteForwarded#30=node.power"];
    // With these seeds the rule's mark is hit; with some others the servers hardly agree on
    // anything.
    for seed in [2, 3, 5, 7] {
        let mut job = with_rules(seed, &rules);
        job.profile = Profile::Default;
        assert_passed(&determinism::check(&job));
        let (report, schedule) = job.record(TraceSink::Off);
        assert_passed(&report);
        assert_eq!(report.outcome.hash, job.run(TraceSink::Off, false).outcome.hash);
        let read: Schedule = schedule.to_string().parse().expect("it was written");
        assert!(!read.options.rules.is_empty(), "{schedule}");
        let replayed = job::replay(&read, TraceSink::Off, false);
        assert_eq!(replayed.outcome.hash, report.outcome.hash, "{seed}");
    }
}

#[test]
fn shrinking_keeps_the_necessary_rule_and_lowers_its_hit() {
    let rules = ["CommitBatch#60=node.pause", "WatchFired#3=disk.slow", "SessionNew#2=net.stall"];
    let (report, mut schedule) = with_rules(5, &rules).record(TraceSink::Off);
    assert_passed(&report);
    schedule.trips = Some(Fault::NodePause);
    let shrunk = shrink::shrink(&schedule, None, shrink::Budget::Runs(500), 1).expect("it fails");
    let left: Vec<String> = shrunk.schedule.options.rules.iter().map(Rule::to_string).collect();
    assert_eq!(left, ["CommitBatch#1=node.pause"], "{}", shrunk.schedule);
    let again: Schedule = shrunk.schedule.to_string().parse().expect("it was written");
    let hash = job::replay(&again, TraceSink::Off, false).outcome.hash;
    assert_eq!(hash, shrunk.report.outcome.hash);
}

fn forked(seed: u64, fork: &str) -> Job {
    let mut job = job(seed, Profile::Swarm, "", 15);
    job.pinned.forks = sim::engine::fork::parse_path(fork).expect("valid");
    job
}

/// The first event at which two runs differ.
fn parting(one: &Job, other: &Job) -> usize {
    let marks = |job: &Job| job.run(TraceSink::Off, true).outcome.trace.marks().to_vec();
    let (one, other) = (marks(one), marks(other));
    one.iter().zip(&other).position(|(a, b)| a != b).unwrap_or(one.len().min(other.len()))
}

#[test]
fn forks_are_equal_before_their_place_and_differ_afterwards() {
    for place in ["CommitBatch#20", "6.500s"] {
        let [one, other] = [1, 2].map(|number| forked(3, &format!("{place}/{number}")));
        let whole = forked(3, "CommitBatch#4000000/1");
        let (apart, left) = (parting(&one, &other), parting(&one, &whole));
        assert!(left > 200 && apart == left, "{place}: {left} {apart}");
        assert_eq!(report::verdict(&one.run(TraceSink::Off, false)), "passed");
        assert_eq!(report::verdict(&whole.run(TraceSink::Off, false)), "drifted");
        let same = forked(3, &format!("{place}/1"));
        assert_eq!(parting(&one, &same) as u64, one.run(TraceSink::Off, false).outcome.events);
    }
}

#[test]
fn half_of_the_forks_are_healed_soon() {
    let ended = |number: u64| {
        let mut job = forked(3, &format!("SessionNew#2/{number}"));
        job.pinned.duration = Some(Duration::from_secs(300));
        let report = job.run(TraceSink::Off, false);
        assert_passed(&report);
        report.outcome.ended
    };
    let soon = (1..=16).filter(|number| ended(*number) < Instant(200_000_000_000)).count();
    assert!((4..=12).contains(&soon), "{soon}");
}

#[test]
fn forks_are_deterministic_and_replay() {
    for (seed, fork) in [(1, "CommitBatch#30/9"), (2, "4s/2,SessionNew#1/5"), (5, "2.250s/1")] {
        let job = forked(seed, fork);
        assert_passed(&determinism::check(&job));
        let (report, schedule) = job.record(TraceSink::Off);
        assert_passed(&report);
        let read: Schedule = schedule.to_string().parse().expect("it was written");
        let replayed = job::replay(&read, TraceSink::Off, false);
        assert_eq!(replayed.outcome.hash, report.outcome.hash, "{seed} {fork}");
    }
}
