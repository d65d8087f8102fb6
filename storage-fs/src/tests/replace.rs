//! A leader's snapshot replaces the log, with a power failure or kill at any operation.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState, Recovered};
use zabkeeper_core::{Epoch, EpochIndex, WriteId, Zxid};

use super::damage::{Sample, append, sample, snapshot, zxid};
use super::mem::{MemDir, Unsynced};
use super::world::reopen;
use crate::{Opened, StoreError};

/// Counter of the leader's snapshot; the log of the sample store ends at 27.
const SENT: u64 = 40;
const SENT_NAME: &str = "snapshot.0000000100000028";

fn state(snapshot: Zxid, damaged: bool) -> DurableState {
    DurableState {
        accepted_epoch: Epoch(4),
        current_epoch: Epoch(3),
        snapshot,
        damaged,
        ..DurableState::default()
    }
}

fn save(snapshot: Zxid) -> DiskCommand {
    DiskCommand::SaveState { id: WriteId(1), state: state(snapshot, false) }
}

fn rebase(snapshot: Zxid) -> DiskCommand {
    DiskCommand::Rebase { id: WriteId(2), snapshot }
}

/// The progress of installing a leader's snapshot.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reached {
    Begun,
    /// Reported: the snapshot is durable under its final name.
    Named,
    /// Reported: the state file names the snapshot, the old log is removed, and one transaction is
    /// appended.
    Taken,
    Purged,
}

/// Installs the snapshot in the core's order of commands, and appends a transaction. `reached` is
/// the progress, also after an error.
fn take_over(store: &mut Opened<MemDir>, reached: &mut Reached) -> Result<(), StoreError> {
    for index in 0..2 {
        let chunk = DiskCommand::SnapshotChunk {
            zxid: zxid(SENT),
            index,
            bytes: Bytes::from(vec![0x28; 900]),
            last: index == 1,
        };
        store.snapshots.run(&chunk)?;
    }
    *reached = Reached::Named;
    store.log.run(&[save(zxid(SENT)), rebase(zxid(SENT)), append(SENT + 1, 8)])?;
    *reached = Reached::Taken;
    store.snapshots.run(&DiskCommand::Purge { oldest: zxid(SENT) })?;
    *reached = Reached::Purged;
    Ok(())
}

/// The sample store with a state file that records the end of its log.
fn vouched() -> Sample {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    store.log.run(&[save(zxid(9))]).expect("nothing is in the way");
    sample
}

fn segments(dir: &MemDir) -> Vec<String> {
    dir.contents().into_keys().filter(|name| name.starts_with("log.")).collect()
}

/// Checks that the recovered state is either the old one or the leader's snapshot.
fn check(found: &Recovered, reached: Reached, old: &Recovered) {
    if found.snapshot == old.snapshot {
        assert!(reached == Reached::Begun, "it has its name");
        assert_eq!((&found.history, &found.entries), (&old.history, &old.entries));
        return;
    }
    assert_eq!(found.snapshots.last(), Some(&zxid(SENT)));
    assert_eq!(found.state, state(zxid(SENT), false));
    assert_eq!(found.history.start(), zxid(SENT));
    let more = u64::from(found.history.end() > zxid(SENT));
    assert!(more == 1 || reached < Reached::Taken, "an acknowledged transaction is gone");
    assert_eq!((found.history.end(), found.entries.len() as u64), (zxid(SENT + more), more));
}

/// ZAB-10.
#[test]
fn leaders_snapshot_replaces_log_atomically_under_power_failures() {
    let sample = vouched();
    let old = reopen(&sample.dir.copy()).expect("it is sound").recovered;
    let whole = sample.dir.copy();
    let mut store = reopen(&whole).expect("it is sound");
    let before = whole.operations();
    take_over(&mut store, &mut Reached::Begun).expect("nothing is in the way");
    let operations = whole.operations() - before;
    drop(store);

    let mut seen = [0; 2];
    for cut in 0..=operations {
        for salt in 0..60 {
            let dir = sample.dir.copy();
            dir.reseed(cut * 1_000 + salt);
            let mut store = reopen(&dir).expect("it is sound");
            dir.cut_after(cut);
            let mut reached = Reached::Begun;
            let result = take_over(&mut store, &mut reached);
            assert_eq!(result.is_ok(), cut == operations);
            drop(store);
            end(&dir, salt);
            // The power also fails at each operation of recovery.
            for cut_again in 0.. {
                let again = dir.copy();
                again.reseed(cut_again * 7 + salt);
                again.cut_after(cut_again);
                let done = reopen(&again).map(|store| store.recovered);
                end(&again, salt / 4);
                let found = reopen(&again).expect("recovery after an interrupted one").recovered;
                check(&found, reached, &old);
                if let Ok(done) = done {
                    assert_eq!(done, found, "what recovery has reported stays");
                    break;
                }
            }
            let store = reopen(&dir).expect("recovery");
            check(&store.recovered, reached, &old);
            let is_taken = store.recovered.snapshot != old.snapshot;
            seen[usize::from(is_taken)] += 1;
            let left = segments(&dir);
            assert!(!is_taken || left.len() <= 1, "{left:?}");
        }
    }
    assert!(seen[0] > 100 && seen[1] > 100, "{seen:?}");
}

/// Fails the power or kills the process, depending on `salt`.
fn end(dir: &MemDir, salt: u64) {
    match salt % 4 {
        0 => dir.kill(),
        1 => dir.power_cycle(Unsynced::Lost),
        2 => dir.power_cycle(Unsynced::Kept),
        _ => dir.power_cycle(Unsynced::Random),
    }
}

#[test]
fn segments_left_by_interrupted_rebase_are_removed() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, SENT);
    store.log.run(&[save(zxid(SENT))]).expect("nothing is in the way");
    drop(store);
    for left in 0..8 {
        let dir = sample.dir.copy();
        let lost = sample.segments.iter().enumerate().filter(|(at, _)| left & (1 << at) == 0);
        lost.for_each(|(_, name)| dir.lose(name));
        let store = reopen(&dir).expect("it counts for nothing");
        assert_eq!(store.recovered.history, EpochIndex::after(zxid(SENT)), "{left:#b}");
        assert_eq!(store.recovered.entries, []);
        assert_eq!(store.notes.len(), usize::from(left > 0), "{:?}", store.notes);
        drop(store);
        dir.power_cycle(Unsynced::Lost);
        assert_eq!(segments(&dir), Vec::<String>::new());
        assert_eq!(reopen(&dir).expect("it was mended").notes, Vec::<crate::Note>::new());
    }
}

#[test]
fn log_before_leaders_snapshot_is_removed_at_start_and_noted() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    // No save of the state file names the snapshot.
    snapshot(&mut store, SENT);
    drop(store);
    sample.dir.power_cycle(Unsynced::Lost);
    let mut store = reopen(&sample.dir).expect("it is sound");
    assert_eq!(store.recovered.state, state(zxid(SENT), false));
    assert_eq!(store.recovered.history, EpochIndex::after(zxid(SENT)));
    assert_eq!(store.recovered.snapshots, [zxid(3), zxid(9), zxid(SENT)]);
    assert!(
        store.notes[0].to_string().starts_with("the log ended at 0x10000001b"),
        "{:?}",
        store.notes
    );
    store.log.run(&[append(SENT + 1, 8)]).expect("it goes on after the snapshot");
    drop(store);
    // Older snapshots cannot replace it any more.
    sample.dir.rot(SENT_NAME, |bytes| bytes[4096] ^= 1);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
}

#[test]
fn state_file_names_snapshot_before_log_is_removed() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    // The state file's slots name no transaction of the log as durable.
    store.log.run(&[append(1, 8), append(2, 8)]).expect("nothing is in the way");
    snapshot(&mut store, SENT);
    drop(store);
    for cut in 0.. {
        for salt in 0..20 {
            let again = dir.copy();
            again.kill();
            again.reseed(salt);
            again.cut_after(cut);
            let is_done = reopen(&again).is_ok();
            end(&again, salt);
            again.rot(SENT_NAME, |bytes| bytes[4096] ^= 1);
            match reopen(&again) {
                Ok(store) => assert_eq!(store.recovered.history.end(), zxid(2), "cut {cut}"),
                Err(error) => assert!(matches!(error, StoreError::Damaged { .. }), "{error}"),
            }
            if is_done {
                return;
            }
        }
    }
}

#[test]
fn damaged_leaders_snapshot_is_ignored_until_state_names_it() {
    let sample = vouched();
    let old = reopen(&sample.dir.copy()).expect("it is sound").recovered;
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, SENT);
    sample.dir.rot(SENT_NAME, |bytes| bytes[4096] ^= 1);
    drop(store);
    assert_eq!(reopen(&sample.dir.copy()).map(|store| store.recovered), Ok(old));
    // The same damage is an error once the state file names the snapshot.
    let mut store = reopen(&sample.dir).expect("it is sound");
    store.log.run(&[save(zxid(SENT))]).expect("nothing is in the way");
    drop(store);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
}

#[test]
fn log_may_grow_past_uninstalled_leaders_snapshot() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, 29);
    store.log.run(&[append(28, 8), append(29, 8), append(30, 8)]).expect("the log goes on");
    drop(store);
    let found = reopen(&sample.dir).expect("it is sound").recovered;
    assert_eq!((found.history.start(), found.history.end()), (Zxid::ZERO, zxid(30)));
    assert_eq!((found.snapshots.last(), found.entries.len()), (Some(&zxid(29)), 1));
    assert_eq!(found.state, state(zxid(9), false), "it is not needed");
}

#[test]
fn damaged_flag_is_kept_and_removes_nothing() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let state = state(zxid(9), true);
    let save = DiskCommand::SaveState { id: WriteId(1), state: state.clone() };
    store.log.run(&[save]).expect("nothing is in the way");
    drop(store);
    let before = reopen(&sample.dir.copy()).expect("it is sound").recovered;
    sample.dir.power_cycle(Unsynced::Lost);
    let store = reopen(&sample.dir).expect("it is sound");
    assert_eq!((&store.recovered, &store.recovered.state), (&before, &state));
    assert_eq!((store.recovered.entries.len(), store.notes.len()), (18, 0));
    assert_eq!(store.recovered.snapshots, [zxid(3), zxid(9)]);
}

#[test]
#[should_panic(expected = "the state file names 0x100000009")]
fn rebase_on_snapshot_not_named_by_state_panics() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let _ = store.log.run(&[rebase(zxid(SENT))]);
}

#[test]
#[should_panic(expected = "though the log is at 0x10000001b")]
fn rebase_on_snapshot_that_log_has_reached_panics() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let _ = store.log.run(&[save(zxid(27)), rebase(zxid(27))]);
}
