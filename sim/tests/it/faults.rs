//! Every fault of the catalog is injected, and the world recovers.

use sim::faults::buggify::Choice;
use sim::faults::catalog::Fault;
use sim::record::counters::Counters;
use sim::world::options::Profile;
use zabkeeper_core::io::Mark;

use crate::{assert_passed, job, run};

/// Modes of a power failure need a power failure to have an effect.
fn selection(fault: Fault) -> String {
    let name = fault.name();
    let more = if [Fault::DiskTorn, Fault::DiskNames, Fault::DiskGarbage].contains(&fault) {
        ",+disk.torn,+disk.stall,+node.power,+node.crash-in-recovery"
    } else if fault == Fault::NodeCrashInRecovery {
        ",+node.kill"
    } else if fault == Fault::NetVotes {
        // Votes are only exchanged without a leader.
        ",+node.kill-leader"
    } else {
        ""
    };
    format!("only={name}{more}")
}

#[test]
fn every_fault_is_injected() {
    for fault in Fault::ALL {
        let mut injected = 0;
        for seed in 1..=40 {
            let report = run(&job(seed, Profile::Default, &selection(fault), 60));
            assert_passed(&report);
            injected += report.outcome.counters.faults[fault as usize];
            if injected > 0 {
                break;
            }
        }
        assert!(injected > 0, "{fault} was never injected in 40 runs");
    }
}

#[test]
fn calm_world_has_no_losses() {
    for seed in 1..=3 {
        let report = run(&job(seed, Profile::Calm, "", 20));
        assert_passed(&report);
        let counters = &report.outcome.counters;
        let servers = u64::from(report.options.servers);
        assert_eq!((counters.counts.boots, counters.faults.iter().sum::<u64>()), (servers, 0));
        assert_eq!((servers, counters.counts.leaderships), (5, 1), "who leads goes on leading");
        assert!(counters.calls_ended() > 500, "{}", counters.calls_ended());
        assert!(counters.calls.iter().all(|[_, _, unknown, _]| *unknown == 0));
    }
}

#[test]
fn server_with_failed_disk_stops_and_restarts_after_power_failure() {
    for name in ["disk.write-error", "disk.full", "disk.fsync-error"] {
        let stopped = (1..=10).any(|seed| {
            let report = run(&job(seed, Profile::Default, &format!("only={name}"), 120));
            assert_passed(&report);
            let checks = &report.outcome.checks;
            checks.iter().any(|(id, count)| *id == "L9" && *count > 0)
        });
        assert!(stopped, "{name} never stopped a server");
    }
}

#[test]
fn sessions_expire_and_move_between_servers() {
    let mut expired = 0;
    for seed in 1..=5 {
        let report = run(&job(seed, Profile::Session, "", 60));
        assert_passed(&report);
        expired += report.outcome.counters.counts.sessions_expired;
    }
    assert!(expired > 0);
}

#[test]
fn byzantine_peer_is_refused_in_every_role_and_the_run_passes() {
    let wanted =
        [Mark::LearnerRefused, Mark::LeaderRefused, Mark::PromiseRefused, Mark::LeaderOutrun];
    let mut missing = wanted.to_vec();
    for seed in 1..=60 {
        // Servers that look for a leader dial one, and so may reach a byzantine peer.
        let report = run(&job(seed, Profile::Default, "only=net.byzantine,+node.kill-leader", 60));
        assert_passed(&report);
        missing.retain(|mark| !report.outcome.counters.has_hit(*mark));
        if missing.is_empty() {
            break;
        }
    }
    assert!(missing.is_empty(), "never hit in 60 runs: {missing:?}");
}

#[test]
fn throttled_clients_are_refused_and_connect_later() {
    let mut turned_away = 0;
    for seed in 1..=60 {
        let report = run(&job(seed, Profile::Session, "", 60));
        assert_passed(&report);
        turned_away += report.outcome.counters.counts.turned_away;
        if turned_away > 0 {
            break;
        }
    }
    assert!(turned_away > 0, "no client was ever turned away in 60 runs");
}

#[test]
fn notifications_travel_on_connections_in_about_half_of_the_runs() {
    let with = (1..=20).filter(|seed| {
        let faults = "only=net.votes,+net.reset,+node.kill-leader";
        let report = run(&job(*seed, Profile::Default, faults, 20));
        assert_passed(&report);
        let drawn = report.options.peers.election_conns;
        assert_eq!(report.outcome.counters.counts.election_conns > 0, drawn, "{seed}");
        drawn
    });
    assert!((5..=15).contains(&with.count()));
}

/// O1.
#[test]
fn operators_get_answers() {
    let report = run(&job(1, Profile::Default, "only=client.operator", 60));
    assert_passed(&report);
    let asked = report.outcome.checks.iter().find(|(id, _)| *id == "O1");
    assert!(asked.is_some_and(|(_, count)| *count > 0), "{asked:?}");
}

#[test]
fn pausing_disk_workers_increase_the_backlog() {
    let sum = |sites: &str, count: fn(&Counters) -> u64| -> u64 {
        let choice = Choice::parse(&format!("only={sites}")).expect("valid");
        let one = |seed| {
            let mut job = job(seed, Profile::Calm, "", 20);
            job.pinned.buggify = choice.clone();
            let report = run(&job);
            assert_passed(&report);
            count(&report.outcome.counters)
        };
        (1..=5).map(one).sum()
    };
    let set_aside = |counters: &Counters| counters.marks[Mark::SnapshotSetAside as usize];
    let aside = ["snapshot.slices,snapshot.often", "snapshot"].map(|sites| sum(sites, set_aside));
    assert!(aside[1] > 4 * aside[0], "changed while a snapshot is written: {aside:?}");
    let batches = |counters: &Counters| counters.counts.batches;
    let batches = ["snapshot.slow", "log.slow"].map(|sites| sum(sites, batches));
    assert!(batches[1] * 6 < batches[0] * 5, "more waits for each batch: {batches:?}");
}
