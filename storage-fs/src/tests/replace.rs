//! A leader's snapshot takes the place of the log, which may be cut off at any operation.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState, Recovered};
use zabkeeper_core::{Epoch, History, WriteId, Zxid};

use super::damage::{Sample, append, sample, snapshot, zxid};
use super::mem::{MemDir, Unsynced};
use super::world::reopen;
use crate::{Opened, StoreError};

/// Ahead of the log of the sample, which ends at 27.
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

/// How far the server has got with a snapshot that a leader sends.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Reached {
    Begun,
    /// The core was told that it has its name, durably.
    Named,
    /// The core was told that the state file names it, the log is gone, and one transaction is behind it.
    Taken,
    Purged,
}

/// Takes the snapshot over in the order of the core, and goes on with the log. Says how far it came.
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

/// The sample, with a state file that vouches for its log: other than before, for the largest possible promise.
fn vouched() -> Sample {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    store.log.run(&[save(zxid(9))]).expect("nothing is in the way");
    sample
}

fn segments(dir: &MemDir) -> Vec<String> {
    dir.contents().into_keys().filter(|name| name.starts_with("log.")).collect()
}

/// Is this what was there before, or the leader's snapshot? What is between is neither.
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

#[test]
fn zab_10_a_leaders_snapshot_is_taken_over_or_not_wherever_the_power_fails() {
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
            // The power fails in recovery, too, wherever it is.
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

/// The power fails, or the process is killed.
fn end(dir: &MemDir, salt: u64) {
    match salt % 4 {
        0 => dir.kill(),
        1 => dir.power_cycle(Unsynced::Lost),
        2 => dir.power_cycle(Unsynced::Kept),
        _ => dir.power_cycle(Unsynced::Random),
    }
}

#[test]
fn what_a_rebase_leaves_of_the_log_counts_for_nothing_whatever_it_is() {
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
        assert_eq!(store.recovered.history, History::after(zxid(SENT)), "{left:#b}");
        assert_eq!(store.recovered.entries, []);
        assert_eq!(store.notes.len(), usize::from(left > 0), "{:?}", store.notes);
        drop(store);
        dir.power_cycle(Unsynced::Lost);
        assert_eq!(segments(&dir), Vec::<String>::new());
        assert_eq!(reopen(&dir).expect("it was mended").notes, Vec::<crate::Note>::new());
    }
}

#[test]
fn a_log_that_a_snapshot_takes_the_place_of_at_start_is_removed_and_told() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    // The state file never learns of it.
    snapshot(&mut store, SENT);
    drop(store);
    sample.dir.power_cycle(Unsynced::Lost);
    let mut store = reopen(&sample.dir).expect("it is sound");
    assert_eq!(store.recovered.state, state(zxid(SENT), false));
    assert_eq!(store.recovered.history, History::after(zxid(SENT)));
    assert_eq!(store.recovered.snapshots, [zxid(3), zxid(9), zxid(SENT)]);
    assert!(
        store.notes[0].to_string().starts_with("the log ended at 0x10000001b"),
        "{:?}",
        store.notes
    );
    store.log.run(&[append(SENT + 1, 8)]).expect("it goes on after the snapshot");
    drop(store);
    // Older ones cannot stand in for it any more.
    sample.dir.rot(SENT_NAME, |bytes| bytes[4096] ^= 1);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
}

#[test]
fn no_log_is_removed_for_a_snapshot_before_its_loss_would_be_noticed() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    // The state file vouches for nothing.
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
fn a_snapshot_that_rots_before_it_has_taken_the_place_of_the_log_is_not_missed() {
    let sample = vouched();
    let old = reopen(&sample.dir.copy()).expect("it is sound").recovered;
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, SENT);
    sample.dir.rot(SENT_NAME, |bytes| bytes[4096] ^= 1);
    drop(store);
    assert_eq!(reopen(&sample.dir.copy()).map(|store| store.recovered), Ok(old));
    // But it is where the state file names it.
    let mut store = reopen(&sample.dir).expect("it is sound");
    store.log.run(&[save(zxid(SENT))]).expect("nothing is in the way");
    drop(store);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
}

#[test]
fn a_snapshot_that_only_a_leader_knows_is_passed_by_the_log() {
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
fn damaged_is_a_word_for_others_and_removes_nothing() {
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
fn a_rebase_on_a_snapshot_that_the_state_file_does_not_name_is_a_bug_of_the_caller() {
    let sample = vouched();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let _ = store.log.run(&[rebase(zxid(SENT))]);
}

#[test]
#[should_panic(expected = "though the log is at 0x10000001b")]
fn a_rebase_on_what_the_log_has_reached_is_a_bug_of_the_caller() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let _ = store.log.run(&[save(zxid(27)), rebase(zxid(27))]);
}
