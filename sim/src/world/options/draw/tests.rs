//! Tests of the distributions: how often a setting is drawn, and what it excludes.

use std::collections::BTreeSet;

use zabkeeper_core::Limits;

use super::SYNCS_PER_WRITE;
use super::servers::bound_snapshots;
use crate::engine::seed::Seeds;
use crate::engine::selection::Selection;
use crate::faults::catalog::{Fault, FaultPlan};
use crate::faults::heal::LeftOut;
use crate::world::options::{Options, Pinned, Profile};

fn drawn(seed: u64, profile: Profile) -> Options {
    Options::draw(Seeds::new(seed), profile, &Pinned::default())
}

#[test]
fn one_default_seed_in_eight_has_no_fault_and_one_has_a_single_fault() {
    let counts: Vec<usize> =
        (0..800).map(|seed| drawn(seed, Profile::Default).faults.on().count()).collect();
    let of = |n| counts.iter().filter(|&&count| count == n).count();
    assert!((70..130).contains(&of(0)), "{}", of(0));
    assert!((70..130).contains(&of(1)), "{}", of(1));
}

#[test]
fn calm_profile_has_no_faults_and_pins_hold() {
    assert_eq!(drawn(1, Profile::Calm).faults, FaultPlan::none());
    let pinned = Pinned { clients: Some(3), servers: Some(4), ..Pinned::default() };
    let pins = Options::draw(Seeds::new(1), Profile::Swarm, &pinned);
    assert_eq!((pins.clients, pins.servers), (3, 4));
}

#[test]
fn default_ensemble_has_five_servers_and_swarm_one_to_seven() {
    assert_eq!(drawn(3, Profile::Default).servers, 5);
    let sizes: BTreeSet<u32> = (0..100).map(|seed| drawn(seed, Profile::Swarm).servers).collect();
    assert!(sizes.into_iter().eq(1..=7));
}

#[test]
fn disk_carries_twice_the_load_without_group_commit() {
    let mut small = 0;
    for Options { server, workload, disk, clients, servers, .. } in
        (0..800).map(|seed| drawn(seed, Profile::Swarm))
    {
        if server.batch_commands < usize::MAX {
            small += 1;
            let writes = 1_000_000_000 / (SYNCS_PER_WRITE * disk.sync_mean);
            let asked = workload.writes_per_second(clients, servers);
            assert!(writes >= 2 * asked, "{workload:?} {disk:?}");
        }
    }
    assert!(small > 200, "small batches are drawn: {small}");
    assert_eq!(drawn(0x2111_bb02, Profile::Swarm).server.batch_commands, usize::MAX);
}

#[test]
fn swarm_bounds_the_volume_of_snapshots() {
    let (mut small, mut frequent, mut both) = (0, 0, 0);
    for Options { server, workload, .. } in (0..800).map(|seed| drawn(seed, Profile::Swarm)) {
        let Limits { snapshot_txns, snapshot_slice_bytes, .. } = server.limits;
        let mut bounded = server.limits.clone();
        bound_snapshots(&mut bounded, workload.calls_per_second);
        assert_eq!(bounded, server.limits);
        small += u32::from(snapshot_slice_bytes <= 400);
        frequent += u32::from(snapshot_txns <= 8);
        both += u32::from(snapshot_slice_bytes <= 400 && snapshot_txns <= 8);
    }
    assert!(small > 200 && frequent > 100 && both > 20, "{small} {frequent} {both}");
    let once_too_much = drawn(0x79a_1060, Profile::Swarm).server.limits;
    assert!(once_too_much.snapshot_txns > 100, "{once_too_much:?}");
    assert!(once_too_much.snapshot_slice_bytes > 1_000, "{once_too_much:?}");
}

#[test]
fn fault_free_swarm_seeds_have_no_fault_like_settings() {
    let (mut quiet, mut single) = (0, 0);
    for options in (0..800).map(|seed| drawn(seed, Profile::Swarm)) {
        let faults: Vec<Fault> = options.faults.on().collect();
        match faults[..] {
            [] => {
                quiet += 1;
                assert!(!options.workload.hops && options.peers.words_late_ms == 0);
                assert_eq!(options.left_out, LeftOut::default());
                assert_eq!(options.rules, []);
            }
            [fault] => {
                single += 1;
                assert!(options.rules.iter().all(|rule| rule.fault == fault));
            }
            _ => {}
        }
    }
    assert!((70..130).contains(&quiet) && (70..130).contains(&single), "{quiet} {single}");
}

#[test]
fn pinned_option_does_not_shift_other_draws() {
    let pinned =
        Pinned { faults: Selection::parse("only=node.kill").expect("valid"), ..Pinned::default() };
    for seed in 0..20 {
        let other = Options::draw(Seeds::new(seed), Profile::Default, &pinned);
        let base = drawn(seed, Profile::Default);
        assert_eq!((other.server, other.workload), (base.server, base.workload));
    }
}
