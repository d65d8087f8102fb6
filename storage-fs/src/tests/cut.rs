//! Truncations of the log, and `open` with older segments that are damaged or missing.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState, Entry, Recovered};
use zabkeeper_core::{WriteId, Zxid};

use super::damage::{append, last_batch, sample, sample_with_gap, snapshot, zxid};
use super::mem::{MemDir, Unsynced};
use super::world::reopen;
use crate::{Opened, StoreError};

fn truncate(store: &mut Opened<MemDir>, to: Zxid) {
    store.log.run(&[DiskCommand::Truncate { id: WriteId(1), to }]).expect("nothing is in the way");
}

fn save(store: &mut Opened<MemDir>, snapshot: Zxid) {
    let state = DurableState { snapshot, ..DurableState::default() };
    let save = DiskCommand::SaveState { id: WriteId(1), state };
    store.log.run(&[save]).expect("nothing is in the way");
}

fn recovered(dir: &MemDir) -> Recovered {
    dir.power_cycle(Unsynced::Lost);
    let store = reopen(dir).expect("it is sound");
    assert_eq!(store.notes, Vec::<crate::Note>::new());
    store.recovered
}

/// A transaction with the zxid of [`append`] for this counter, but other content.
fn other(counter: u64) -> Entry {
    Entry { zxid: zxid(counter), bytes: Bytes::from(vec![0xee; 200]) }
}

/// ZAB-13.
#[test]
fn truncation_at_any_zxid_is_durable_and_log_continues() {
    let sample = sample();
    for counter in 9..=27 {
        let dir = sample.dir.copy();
        let mut store = reopen(&dir).expect("it is sound");
        // The state file records the end of the whole log.
        save(&mut store, zxid(9));
        truncate(&mut store, zxid(counter));
        assert_eq!(recovered(&dir.copy()).history.end(), zxid(counter));
        for next in [counter + 1, counter + 2] {
            let command = DiskCommand::Append { id: WriteId(2), entry: other(next) };
            store.log.run(&[command]).expect("nothing is in the way");
        }
        drop(store);
        let entries = recovered(&dir).entries;
        let zxids: Vec<_> = entries.iter().map(|entry| entry.zxid).collect();
        assert_eq!(zxids, (10..=counter + 2).map(zxid).collect::<Vec<_>>());
        assert_eq!(entries[entries.len() - 2..], [other(counter + 1), other(counter + 2)]);
    }
}

#[test]
fn truncation_after_the_end_changes_nothing() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let before = sample.dir.operations();
    truncate(&mut store, zxid(27));
    truncate(&mut store, Zxid(7 << 32));
    assert_eq!(sample.dir.operations(), before);
    let next = [append(28, 8)];
    store.log.run(&next).expect("the end is where it was");
}

#[test]
fn several_truncations_in_one_batch_keep_appends_between_them() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    store.log.run(&[append(1, 8), append(2, 8), append(3, 8)]).expect("nothing is in the way");
    let second_epoch = Entry { zxid: Zxid((2 << 32) + 1), bytes: Bytes::from_static(b"second") };
    let batch = [
        DiskCommand::Truncate { id: WriteId(4), to: zxid(2) },
        DiskCommand::Append { id: WriteId(5), entry: other(3) },
        DiskCommand::Truncate { id: WriteId(6), to: zxid(2) },
        DiskCommand::Append { id: WriteId(7), entry: second_epoch.clone() },
        // No transaction has this zxid.
        DiskCommand::Truncate { id: WriteId(8), to: zxid(9) },
        DiskCommand::Append { id: WriteId(9), entry: second_epoch.clone() },
    ];
    assert_eq!(store.log.run(&batch), Ok(WriteId(9)));
    drop(store);
    let entries = recovered(&dir).entries;
    assert_eq!(entries.len(), 3);
    assert_eq!(entries[2], second_epoch);
}

#[test]
fn truncation_of_damaged_log_fails_and_changes_nothing() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let name = sample.segments[2];
    let start = last_batch(&sample.dir.bytes(name));
    sample.dir.rot(name, |bytes| bytes[start + 100] ^= 1);
    let before = sample.dir.contents();
    let result = store.log.run(&[DiskCommand::Truncate { id: WriteId(1), to: zxid(26) }]);
    assert!(matches!(result, Err(StoreError::Damaged { .. })), "{result:?}");
    assert_eq!(sample.dir.contents(), before);
}

#[test]
#[should_panic(expected = "before the snapshot at")]
fn truncation_to_a_zxid_below_the_snapshot_panics() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    save(&mut store, zxid(9));
    truncate(&mut store, zxid(8));
}

#[test]
fn damaged_segment_before_newest_snapshot_is_noted_and_ends_history() {
    let sample = sample();
    let whole = reopen(&sample.dir.copy()).expect("it is sound").recovered;
    assert_eq!((whole.history.start(), whole.history.end()), (Zxid::ZERO, zxid(27)));
    let dir = sample.dir.copy();
    dir.rot(sample.segments[0], |bytes| bytes[4096 + 60] ^= 1);
    let store = reopen(&dir).expect("it is not needed");
    assert_eq!(store.recovered.history.start(), zxid(9));
    assert_eq!(store.recovered.entries, whole.entries);
    assert!(store.notes[0].to_string().contains("not needed"), "{:?}", store.notes);
}

#[test]
fn segment_before_gap_is_not_part_of_history() {
    let sample = sample_with_gap(27);
    let found = recovered(&sample.dir);
    assert_eq!((found.history.start(), found.history.end()), (zxid(18), zxid(27)));
}

/// A store whose newest snapshot covers its log, and whose newest segment holds no readable batch;
/// `change` damages or removes the segment before that.
fn begun_behind(change: impl FnOnce(&MemDir, &str)) -> MemDir {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, 27);
    save(&mut store, zxid(27));
    store.log.run(&[append(28, 200)]).expect("nothing is in the way");
    drop(store);
    sample.dir.power_cycle(Unsynced::Lost);
    sample.dir.rot("log.000000010000001c", |bytes| bytes[4096..].fill(0));
    change(&sample.dir, sample.segments[2]);
    sample.dir
}

#[test]
fn log_with_gap_is_replaced_by_leaders_snapshot() {
    let sample = sample_with_gap(40);
    let found = reopen(&sample.dir).expect("nothing that is needed is missing").recovered;
    assert_eq!((found.history.start(), found.history.end()), (zxid(40), zxid(40)));
    assert_eq!(reopen(&sample.dir).expect("it was mended").recovered, found);
    assert!(!sample.dir.contents().keys().any(|name| name.starts_with("log.")));
}

/// Recovery removes the empty newest segment, so the segment before it becomes the newest. Damage
/// in that one must not matter at the next start, either. (Seed 0x1e0001002181 of the swarm.)
#[test]
fn damaged_segment_before_snapshot_is_accepted_again_at_next_start() {
    for gone in [false, true] {
        let dir = begun_behind(|dir, before| {
            if gone { dir.lose(before) } else { dir.rot(before, |bytes| bytes[36] ^= 1) }
        });
        let opened = dir.copy();
        let operations = opened.operations();
        let found = reopen(&opened).expect("nothing that is needed is damaged").recovered;
        assert_eq!((found.history.start(), found.history.end()), (zxid(27), zxid(27)));
        let operations = opened.operations() - operations;
        for cut in 0..=operations {
            for unsynced in (0..16).map(Unsynced::pick) {
                let dir = dir.copy();
                dir.cut_after(cut);
                let _cut_off = reopen(&dir);
                dir.power_cycle(unsynced);
                let again = reopen(&dir).expect("nothing that is needed is damaged").recovered;
                assert_eq!(again, found, "gone {gone}, {cut} of {operations} operations");
            }
        }
        let mut store = reopen(&opened).expect("it was mended");
        assert_eq!(store.notes, Vec::<crate::Note>::new());
        store.log.run(&[append(28, 200)]).expect("it goes on");
        drop(store);
        assert_eq!(recovered(&opened).entries.len(), 1);
    }
}
