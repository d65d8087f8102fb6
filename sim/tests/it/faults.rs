//! Every fault of the catalogue can strike, and the world survives it.

use sim::faults::Fault;
use sim::options::Profile;

use crate::{assert_passed, job, run};

/// Properties of a power failure need one.
fn selection(fault: Fault) -> String {
    let name = fault.name();
    let more = if [Fault::DiskTorn, Fault::DiskNames, Fault::DiskGarbage].contains(&fault) {
        ",+disk.torn,+disk.stall,+node.power,+node.crash-in-recovery"
    } else if fault == Fault::NodeCrashInRecovery {
        ",+node.kill"
    } else if fault == Fault::NetVotes {
        // Nobody votes while somebody leads.
        ",+node.kill-leader"
    } else {
        ""
    };
    format!("only={name}{more}")
}

#[test]
fn every_fault_strikes() {
    for fault in Fault::ALL {
        let mut struck = 0;
        for seed in 1..=40 {
            let report = run(&job(seed, Profile::Default, &selection(fault), 60));
            assert_passed(&report);
            struck += report.outcome.tally.faults[fault as usize];
            if struck > 0 {
                break;
            }
        }
        assert!(struck > 0, "{fault} never struck in 40 runs");
    }
}

#[test]
fn calm_worlds_lose_nothing() {
    for seed in 1..=3 {
        let report = run(&job(seed, Profile::Calm, "", 20));
        assert_passed(&report);
        let tally = &report.outcome.tally;
        let servers = u64::from(report.options.servers);
        assert_eq!((tally.counts.boots, tally.faults.iter().sum::<u64>()), (servers, 0));
        assert_eq!((servers, tally.counts.reigns), (5, 1), "who leads goes on leading");
        assert!(tally.calls_ended() > 500, "{}", tally.calls_ended());
        assert!(tally.calls.iter().all(|[_, _, unknown, _]| *unknown == 0));
    }
}

#[test]
fn a_server_whose_disk_fails_stops_and_comes_back_after_a_power_failure() {
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
fn sessions_expire_and_are_taken_over() {
    let mut expired = 0;
    for seed in 1..=5 {
        let report = run(&job(seed, Profile::Session, "", 60));
        assert_passed(&report);
        expired += report.outcome.tally.counts.sessions_expired;
    }
    assert!(expired > 0);
}
