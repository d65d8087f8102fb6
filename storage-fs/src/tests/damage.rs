//! Bytes that change after they were durable: `open` distinguishes them from torn writes and never
//! loses acknowledged data silently.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState, Entry, Recovered};
use zabkeeper_core::{Epoch, WriteId, Zxid};

use super::mem::{MemDir, Unsynced};
use super::world::{STORE_ID, reopen};
use crate::segment::{BatchBuffer, FIRST_BATCH, SegmentHeader};
use crate::vfs::{Vfs, VfsFile};
use crate::{Opened, Options, StoreError, open};

/// A store with three segments, two snapshots and a state file; each batch spans several sectors.
pub(super) struct Sample {
    pub(super) dir: MemDir,
    found: Recovered,
    pub(super) segments: [&'static str; 3],
    pub(super) snapshots: [&'static str; 2],
}

pub(super) fn zxid(counter: u64) -> Zxid {
    Zxid((1 << 32) + counter)
}

pub(super) fn append(counter: u64, length: usize) -> DiskCommand {
    let bytes = Bytes::from(vec![counter.to_le_bytes()[0]; length]);
    DiskCommand::Append { id: WriteId(counter), entry: Entry { zxid: zxid(counter), bytes } }
}

pub(super) fn snapshot(store: &mut Opened<MemDir>, counter: u64) {
    for index in 0..2 {
        let (zxid, bytes) = (zxid(counter), Bytes::from(vec![counter.to_le_bytes()[0]; 900]));
        let chunk = DiskCommand::SnapshotChunk { zxid, index, bytes, last: index == 1 };
        store.snapshots.run(&chunk).expect("nothing is in the way");
    }
}

pub(super) fn sample() -> Sample {
    let sample = sample_and(|_| {});
    assert_eq!(sample.found.entries.len(), 27 - 9);
    sample
}

/// The sample store, on which `more` runs before it is closed for the first time.
fn sample_and(more: impl FnOnce(&mut Opened<MemDir>)) -> Sample {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    for batch in 0..9 {
        let appends: Vec<_> = (1..=3).map(|i| append(batch * 3 + i, 200)).collect();
        store.log.run(&appends).expect("nothing is in the way");
        if batch == 1 || batch == 3 {
            snapshot(&mut store, batch * 3);
        }
        if batch == 4 {
            let state = DurableState { accepted_epoch: Epoch(1), ..DurableState::default() };
            let save = DiskCommand::SaveState { id: WriteId(0), state };
            store.log.run(&[save]).expect("nothing is in the way");
        }
    }
    more(&mut store);
    drop(store);
    let found = reopen(&dir.copy()).expect("it is sound").recovered;
    let segments = ["log.0000000100000001", "log.000000010000000a", "log.0000000100000013"];
    let snapshots = ["snapshot.0000000100000003", "snapshot.0000000100000009"];
    Sample { dir, found, segments, snapshots }
}

/// The sample store with another snapshot at this counter, and without its second segment.
pub(super) fn sample_with_gap(counter: u64) -> Sample {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, counter);
    drop(store);
    sample.dir.lose(sample.segments[1]);
    sample
}

impl Sample {
    /// The result of `open` on a copy of the store in which `change` has modified the file `name`.
    fn after(
        &self,
        name: &str,
        change: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Recovered, StoreError> {
        let dir = self.dir.copy();
        dir.rot(name, change);
        let before = dir.contents();
        let result = reopen(&dir);
        if result.is_err() {
            assert_eq!(dir.contents(), before, "a damaged store stays as it was found");
        }
        result.map(|store| store.recovered)
    }
}

fn is_damage(result: &Result<Recovered, StoreError>) -> bool {
    matches!(result, Err(StoreError::Damaged { .. }))
}

/// Offset of the last batch in the bytes of a segment.
pub(super) fn last_batch(bytes: &[u8]) -> usize {
    (4096..bytes.len() - 4).rev().find(|at| bytes[*at..].starts_with(b"zkba")).expect("a batch")
}

/// Flips a bit in the payload of the last batch of this segment.
fn rot_last_batch(dir: &MemDir, name: &str) {
    let start = last_batch(&dir.bytes(name));
    dir.rot(name, |bytes| bytes[start + 100] ^= 1);
}

#[test]
fn flipped_bit_before_last_batch_is_damage() {
    let sample = sample();
    // The oldest segment is needed only if the newest snapshot is unusable.
    for name in &sample.segments[1..] {
        let bytes = sample.dir.bytes(name);
        let end = if *name == sample.segments[2] { last_batch(&bytes) } else { bytes.len() };
        for (at, byte) in bytes.iter().enumerate().take(end) {
            let result = sample.after(name, |bytes| bytes[at] ^= 1 << (at % 8));
            // Changes of padding, of preallocated zeros and of end marks after readable batches
            // have no effect.
            let is_kept = result.as_ref().is_ok_and(|found| *found == sample.found);
            let padding = [0, 0xff].contains(byte) && is_kept;
            assert!(padding || is_damage(&result), "byte {at} of {name}: {result:?}");
        }
    }
}

#[test]
fn zeroed_sector_before_last_batch_is_damage() {
    let sample = sample();
    for name in &sample.segments[1..] {
        let bytes = sample.dir.bytes(name);
        let end = if *name == sample.segments[2] { last_batch(&bytes) } else { bytes.len() };
        for at in (0..end).step_by(512) {
            let sector = at..(at + 512).min(end);
            if bytes[sector.clone()].iter().any(|byte| *byte != 0) {
                let result = sample.after(name, |bytes| bytes[sector].fill(0));
                assert!(is_damage(&result), "byte {at} of {name}: {result:?}");
            }
        }
    }
}

#[test]
fn torn_last_batch_is_removed_and_noted() {
    let sample = sample();
    sample.dir.reboot();
    sample.dir.forget_note();
    let name = sample.segments[2];
    let bytes = sample.dir.bytes(name);
    let start = last_batch(&bytes);
    let mut entries = sample.found.entries.clone();
    entries.truncate(entries.len() - 3);
    for at in start..start + 48 + 3 * 212 {
        let dir = sample.dir.copy();
        dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
        let store = reopen(&dir).expect("a torn batch is no damage");
        assert_eq!(store.recovered.entries, entries, "byte {at}");
        assert_eq!(store.notes.len(), 1);
        assert!(
            store.notes[0].to_string().starts_with("cut a torn batch of 688 bytes at byte"),
            "{:?}",
            store.notes
        );
        drop(store);
        assert_eq!(dir.bytes(name).len(), start, "what was cut is gone");
        assert_eq!(reopen(&dir).expect("it was mended").notes, Vec::<crate::Note>::new());
    }
}

#[test]
fn torn_batch_below_recorded_end_is_damage() {
    let sample = sample();
    let dir = sample.dir.copy();
    let mut store = reopen(&dir).expect("it is sound");
    let save = DiskCommand::SaveState { id: WriteId(1), state: DurableState::default() };
    store.log.run(&[save]).expect("nothing is in the way");
    drop(store);
    rot_last_batch(&dir, sample.segments[2]);
    let result = reopen(&dir).map(|store| store.recovered);
    assert!(is_damage(&result), "{result:?}");
}

/// A server votes with the history that it has recovered, so a later start must not recover less.
/// (Seed 0x20000002e of the swarm: the last batch was damaged after a start that had read it.)
#[test]
fn batch_torn_after_open_has_read_it_is_damage() {
    let sample = sample();
    drop(reopen(&sample.dir).expect("it is sound"));
    rot_last_batch(&sample.dir, sample.segments[2]);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(is_damage(&result), "{result:?}");
}

#[test]
fn log_that_ends_before_snapshot_it_had_reached_is_damage() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    snapshot(&mut store, 24);
    let state = DurableState { snapshot: zxid(24), ..DurableState::default() };
    let save = DiskCommand::SaveState { id: WriteId(0), state };
    store.log.run(&[save, append(28, 8)]).expect("nothing is in the way");
    drop(store);
    assert_eq!(sample.dir.contents().keys().filter(|name| name.starts_with("log.")).count(), 4);
    // Without the note, nothing records that transaction 28 was durable. But without the segment
    // of transactions 19 to 27 the log ends before the recorded end, although the snapshot at 24
    // could replace it.
    sample.dir.lose("log.000000010000001c");
    let result = reopen(&sample.dir.copy()).map(|store| store.recovered);
    assert!(is_damage(&result), "{result:?}");
    sample.dir.forget_note();
    assert_eq!(reopen(&sample.dir.copy()).map(|_| ()), Ok(()));
    sample.dir.lose(sample.segments[2]);
    let result = reopen(&sample.dir).map(|store| store.recovered);
    assert!(is_damage(&result), "{result:?}");
}

#[test]
fn torn_last_batch_that_snapshot_covers_is_accepted() {
    // The snapshot holds every transaction that was recorded as durable.
    for (log_end, torn, is_lost) in [(24, false, false), (27, false, false), (27, true, false)] {
        let sample = sample_and(|store| {
            snapshot(store, 27);
            if log_end == 27 {
                let state = DurableState { snapshot: zxid(27), ..DurableState::default() };
                let save = DiskCommand::SaveState { id: WriteId(0), state };
                store.log.run(&[save]).expect("nothing is in the way");
            }
        });
        if torn || log_end == 24 {
            rot_last_batch(&sample.dir, sample.segments[2]);
        }
        let result = reopen(&sample.dir).map(|store| store.recovered);
        assert_eq!(is_damage(&result), is_lost, "{log_end} {torn}: {result:?}");
        if let Ok(found) = result {
            assert_eq!((found.history.end(), found.snapshots.last()), (zxid(27), Some(&zxid(27))));
        }
    }
}

#[test]
fn missing_segment_is_damage() {
    let sample = sample();
    for name in &sample.segments[..2] {
        let dir = sample.dir.copy();
        dir.lose(name);
        dir.rot(sample.snapshots[1], |bytes| bytes[0] ^= 1);
        assert!(is_damage(&reopen(&dir).map(|store| store.recovered)), "{name}");
    }
    let dir = sample.dir.copy();
    sample.segments.iter().for_each(|name| dir.lose(name));
    assert!(is_damage(&reopen(&dir).map(|store| store.recovered)));
}

#[test]
fn log_without_state_file_is_damage() {
    let sample = sample();
    let dir = sample.dir.copy();
    dir.lose("state");
    assert!(is_damage(&reopen(&dir).map(|store| store.recovered)));
}

#[test]
fn one_damaged_slot_loses_no_state_and_two_are_damage() {
    let sample = sample();
    for at in 0..2 * 4096 {
        let result = sample.after("state", |bytes| bytes[at] ^= 1 << (at % 8));
        assert_eq!(result.as_ref(), Ok(&sample.found), "byte {at}");
    }
    let result = sample.after("state", |bytes| {
        bytes[100] ^= 1;
        bytes[5000] ^= 1;
    });
    assert!(is_damage(&result), "{result:?}");
}

#[test]
fn damaged_snapshot_is_renamed_and_older_one_used() {
    let sample = sample();
    let name = sample.snapshots[1];
    let bytes = sample.dir.bytes(name);
    for at in 0..bytes.len() {
        let dir = sample.dir.copy();
        dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
        let store = reopen(&dir).expect("the older snapshot and the log hold everything");
        assert_eq!(store.recovered.snapshots, [zxid(3)], "byte {at}");
        assert_eq!(store.recovered.entries.len(), 27 - 3);
        assert_eq!(store.notes.len(), 1);
        assert_eq!(dir.bytes(&format!("{name}.damaged")).len(), bytes.len());
    }
    // Truncated at any length, or with bytes after the footer.
    for length in (0..bytes.len() + 600).step_by(100) {
        let result = sample.after(name, |bytes| bytes.resize(length, 0));
        assert_eq!(result.expect("the older one will do").snapshots, [zxid(3)], "{length} bytes");
    }
}

/// The log is then all that holds the transactions after the older snapshot, so that a leader may
/// have this server truncate it.
#[test]
fn log_may_be_truncated_below_a_snapshot_that_was_set_aside() {
    let sample = sample_and(|store| {
        let state = DurableState { snapshot: zxid(9), ..DurableState::default() };
        let save = DiskCommand::SaveState { id: WriteId(0), state };
        store.log.run(&[save]).expect("nothing is in the way");
    });
    sample.dir.rot(sample.snapshots[1], |bytes| bytes[4096] ^= 1);
    let mut store = reopen(&sample.dir).expect("the older snapshot and the log hold everything");
    assert_eq!(store.recovered.state.snapshot, zxid(3));
    let truncate = DiskCommand::Truncate { id: WriteId(1), to: zxid(5) };
    store.log.run(&[truncate]).expect("nothing is in the way");
    drop(store);
    let found = reopen(&sample.dir).expect("it is sound").recovered;
    assert_eq!((found.snapshots, found.entries.len()), (vec![zxid(3)], 2));
}

#[test]
fn damaged_snapshot_is_damage_if_log_begins_after_older_one() {
    let sample = sample();
    let dir = sample.dir.copy();
    let mut store = reopen(&dir).expect("it is sound");
    snapshot(&mut store, 10);
    store.snapshots.run(&DiskCommand::Purge { oldest: zxid(10) }).expect("nothing is in the way");
    drop(store);
    dir.rot("snapshot.000000010000000a", |bytes| bytes[4096] ^= 1);
    assert!(is_damage(&reopen(&dir).map(|store| store.recovered)));
}

#[test]
fn purge_removes_nothing_if_its_snapshot_is_missing() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    sample.dir.lose(sample.snapshots[1]);
    let result = store.snapshots.run(&DiskCommand::Purge { oldest: zxid(9) });
    assert!(matches!(result, Ok(None)), "{result:?}");
    // Older snapshots and segments may be needed, because the snapshot at `oldest` is missing.
    assert!(sample.dir.contents().contains_key(sample.segments[0]));
    assert!(sample.dir.contents().contains_key(sample.snapshots[0]));
}

#[test]
fn purge_keeps_newest_segment_and_those_that_reach_snapshot() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    for counter in [8, 10, 27] {
        snapshot(&mut store, counter);
    }
    // The segment that ends at the snapshot stays, too.
    let [all, two, one] = [0, 1, 2].map(|from| &sample.segments[from..]);
    let expected = [(8, all), (9, all), (10, two), (27, one)];
    for (oldest, left) in expected {
        let purge = DiskCommand::Purge { oldest: zxid(oldest) };
        store.snapshots.run(&purge).expect("nothing is in the way");
        let contents = sample.dir.contents();
        let segments: Vec<_> = contents.keys().filter(|name| name.starts_with("log.")).collect();
        assert_eq!(segments, left, "oldest {oldest}");
    }
}

#[test]
fn purge_concurrent_with_truncation_is_no_damage_after_power_failure() {
    for cut in 0..6 {
        for seed in 0..300 {
            let dir = sample().dir;
            dir.reseed(seed);
            let mut store = reopen(&dir).expect("it is sound");
            snapshot(&mut store, 27);
            let state = DurableState { snapshot: zxid(27), ..DurableState::default() };
            let save = DiskCommand::SaveState { id: WriteId(1), state };
            store.log.run(&[save, append(28, 8)]).expect("nothing is in the way");
            store.snapshots.run(&DiskCommand::Purge { oldest: zxid(27) }).expect("as always");
            // The removals of the purge are not durable when the truncation removes the end.
            dir.cut_after(cut);
            let _ = store.log.run(&[DiskCommand::Truncate { id: WriteId(1), to: zxid(27) }]);
            drop(store);
            dir.power_cycle(Unsynced::Random);
            let found = reopen(&dir).map(|store| store.recovered.history.end());
            assert!(found.as_ref().is_ok_and(|end| *end >= zxid(27)), "{cut} {seed}: {found:?}");
        }
    }
}

#[test]
fn files_of_another_store_are_refused() {
    let sample = sample();
    let other = MemDir::new();
    let options = Options { store_id: STORE_ID + 1, ..Options::new(0) };
    drop(open(other.clone(), other.clone(), options).expect("a new store"));
    let foreign = other.bytes("state");
    let result = sample.after("state", |bytes| *bytes = foreign);
    let name = sample.snapshots[1].to_owned();
    let expected = StoreError::ForeignStore { file: name, found: STORE_ID, expected: STORE_ID + 1 };
    assert_eq!(result, Err(expected));
}

#[test]
fn files_of_a_later_version_are_refused() {
    let sample = sample();
    for (name, at, known) in
        [("state", 4096, 3), (sample.segments[2], 0, 3), (sample.snapshots[1], 0, 2)]
    {
        let found: u32 = known + 1;
        let result = sample.after(name, |bytes| {
            let block = &mut bytes[at..at + 4096];
            block[8..12].copy_from_slice(&found.to_le_bytes());
            let crc = crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[16..]);
            block[12..16].copy_from_slice(&crc.to_le_bytes());
        });
        let expected = StoreError::UnknownVersion { file: name.to_owned(), found, known };
        assert_eq!(result, Err(expected));
    }
}

#[test]
fn batch_inside_client_data_is_no_proof_of_damage() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    store.log.run(&[append(1, 8)]).expect("nothing is in the way");
    store.log.run(&[append(2, 8)]).expect("nothing is in the way");
    let batch = dir.bytes("log.0000000100000001")[4096 + 72..4096 + 144].to_vec();
    assert!(batch.starts_with(b"zkba"));
    let bytes = Bytes::from([vec![0; 4], batch].concat());
    let entry = Entry { zxid: zxid(3), bytes };
    store.log.run(&[DiskCommand::Append { id: WriteId(3), entry }]).expect("nothing is in the way");
    drop(store);
    dir.rot("log.0000000100000001", |bytes| bytes[4096 + 144] ^= 1);
    dir.reboot();
    dir.forget_note();
    let store = reopen(&dir).expect("a torn batch is no damage");
    assert_eq!(store.recovered.entries.len(), 2);
}

#[test]
#[should_panic(expected = "appended after")]
fn append_with_zxid_gap_panics() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    let _ = store.log.run(&[append(1, 8), append(3, 8)]);
}

/// ZAB-13: a gap in zxids is damage, not a panic.
#[test]
fn zxid_gap_within_or_between_batches_is_damage() {
    let z = |epoch: u64, counter: u64| Zxid((epoch << 32) + counter);
    for (first, second, fits) in [
        (z(1, 1), z(1, 2), true),
        (z(1, 1), z(2, 1), true),
        (z(1, 1), z(1, 3), false),
        (z(1, 1), z(2, 2), false),
        (z(2, 1), z(1, 2), false),
        (z(2, 2), z(2, 3), false),
    ] {
        for batches in [&[&[first, second][..]][..], &[&[first][..], &[second][..]]] {
            let dir = MemDir::new();
            drop(reopen(&dir).expect("a new store"));
            let header = SegmentHeader::new(STORE_ID, first, Zxid::ZERO);
            let name = format!("log.{:016x}", first.0);
            let mut file = dir.create(&name).expect("nothing is in the way");
            file.write_at(0, &header.encode()).expect("nothing is in the way");
            let mut at = FIRST_BATCH;
            for zxids in batches {
                let mut batch = BatchBuffer::default();
                zxids.iter().for_each(|zxid| {
                    batch.push(&Entry { zxid: *zxid, bytes: Bytes::from_static(b"forged") });
                });
                let bytes = batch.seal(&header, at, at);
                file.write_at(at, bytes).expect("nothing is in the way");
                at += bytes.len() as u64;
            }
            let result = reopen(&dir).map(|store| store.recovered);
            assert_eq!(result.is_ok(), fits, "{first} {second}: {result:?}");
            assert!(fits || is_damage(&result), "{first} {second}: {result:?}");
        }
    }
}
