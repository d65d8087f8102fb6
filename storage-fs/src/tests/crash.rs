//! Power failures, kills and I/O errors at every operation.

use super::mem::{MemDir, Rng, Unsynced};
use super::world::Model;
use crate::StoreError;

const STEPS: u32 = 40;
const POLICIES: [Unsynced; 3] = [Unsynced::Lost, Unsynced::Kept, Unsynced::Random];

const SEEDS: u64 = 8;
const LIVES_SEEDS: u64 = 800;

/// The number of modifying operations in a run of this seed without faults.
fn operations(seed: u64) -> u64 {
    let dir = MemDir::new();
    Model::new(seed).work(&dir, STEPS).expect("nothing is in the way");
    dir.operations()
}

#[test]
fn power_failure_at_any_operation_loses_no_acknowledged_write() {
    for seed in 0..SEEDS {
        for cut in 0..operations(seed) {
            for unsynced in POLICIES {
                let dir = MemDir::new();
                let mut model = Model::new(seed);
                dir.reseed(seed * 1_000_003 + cut);
                dir.cut_after(cut);
                model.work(&dir, STEPS).expect_err("the power fails");
                dir.power_cycle(unsynced);
                recover(&dir, &mut model, cut);
            }
        }
    }
}

/// Recovers, with and without an interruption during recovery, then works on and recovers again.
fn recover(dir: &MemDir, model: &mut Model, salt: u64) {
    let found = model.reopen(&dir.copy()).expect("recovery").recovered;

    let interrupted = dir.copy();
    interrupted.cut_after(salt % 11);
    match model.reopen(&interrupted) {
        Ok(_) => interrupted.kill(),
        Err(_) => interrupted.power_cycle(Unsynced::pick(salt / 11)),
    }
    let again = model.reopen(&interrupted).expect("recovery after an interrupted one").recovered;
    if dir.is_synced() {
        assert_eq!(again, found);
    }
    model.clone().check(&again);

    let store = model.reopen(dir).expect("recovery");
    assert_eq!(store.recovered, found);
    model.check(&store.recovered);
    drop(store);
    dir.power_cycle(Unsynced::Lost);
    let store = model.reopen(dir).expect("recovery of what was recovered");
    assert_eq!(store.recovered, found);
    assert_eq!(store.notes, Vec::<crate::Note>::new(), "all is mended");
    assert!(!dir.contents().keys().any(|name| name.ends_with(".tmp")), "leftovers are removed");
    drop(store);

    model.work(dir, 6).expect("nothing is in the way");
    dir.power_cycle(Unsynced::Lost);
    model.check(&model.reopen(dir).expect("recovery").recovered);
}

#[test]
fn state_recovered_after_kill_survives_power_failure() {
    for seed in 0..SEEDS {
        for cut in 0..operations(seed) {
            let dir = MemDir::new();
            let mut model = Model::new(seed);
            dir.cut_after(cut);
            model.work(&dir, STEPS).expect_err("the process is killed");
            dir.kill();
            recover(&dir, &mut model, cut);
        }
    }
}

#[test]
fn failed_operation_stops_lane_and_loses_no_acknowledged_write() {
    for seed in 0..SEEDS {
        for failing in 0..operations(seed) {
            let dir = MemDir::new();
            let mut model = Model::new(seed);
            dir.fail_after(failing);
            let error = model.work(&dir, STEPS).expect_err("an operation fails");
            assert!(matches!(error, StoreError::Io { .. }), "{error}");
            dir.kill();
            recover(&dir, &mut model, failing);
        }
    }
}

#[test]
fn repeated_faults_lose_no_acknowledged_write() {
    for seed in 0..LIVES_SEEDS {
        let dir = MemDir::new();
        let mut rng = Rng(seed);
        let mut model = Model::new(seed);
        dir.reseed(seed);
        for _ in 0..12 {
            let end = rng.below(60);
            match rng.below(3) {
                0 => dir.fail_after(end),
                _ => dir.cut_after(end),
            }
            if let Err(error) = model.work(&dir, 12) {
                assert!(matches!(error, StoreError::Io { .. }), "{error}");
            }
            match rng.below(4) {
                0 => dir.kill(),
                policy => dir.power_cycle(Unsynced::pick(policy)),
            }
        }
        model.check(&model.reopen(&dir).expect("recovery").recovered);
    }
}

#[test]
fn failed_lane_returns_the_same_error_for_ever() {
    let dir = MemDir::new();
    let mut model = Model::new(0);
    let mut store = model.reopen(&dir).expect("a new store");
    model.append(&mut store).expect("nothing is in the way");
    dir.fail_after(1);
    let error = model.append(&mut store).expect_err("the sync fails");
    let before = dir.operations();
    assert_eq!(model.append(&mut store), Err(error));
    assert_eq!(dir.operations(), before, "a failed sync is not tried again");
}

#[test]
fn full_disk_is_reported_and_loses_no_acknowledged_write() {
    let mut refused = 0;
    for room in (4_000..60_000).step_by(500) {
        let dir = MemDir::new();
        let mut model = Model::new(room);
        dir.set_room(Some(room));
        let error = model.work(&dir, 10_000).expect_err("the disk fills up");
        assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
        refused += model.refused;
        dir.set_room(None);
        dir.power_cycle(Unsynced::Lost);
        recover(&dir, &mut model, room);
    }
    assert!(refused > 20, "{refused} snapshots had no room");
}
