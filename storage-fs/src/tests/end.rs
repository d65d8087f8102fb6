//! The end of the log after each kind of stop: `open` recovers every acknowledged transaction or
//! reports damage.

use zabkeeper_core::store::{DiskCommand, Recovered};
use zabkeeper_core::{WriteId, Zxid};

use super::damage::{append, last_batch, sample, snapshot, zxid};
use super::mem::{MemDir, Rng, Unsynced};
use super::world::{Model, reopen};
use crate::{Note, Opened, StoreError};

/// The newest segment of [`closed`].
const NEWEST: &str = "log.000000010000001c";

/// The sample store with another segment of two batches; the last batch was acknowledged and is the
/// last write.
fn closed(record_end: bool) -> MemDir {
    closed_and(|store| {
        if record_end {
            store.log.record_end().expect("nothing is in the way");
        }
    })
}

/// The same store, on which `last` runs before it is closed.
fn closed_and(last: impl FnOnce(&mut Opened<MemDir>)) -> MemDir {
    let dir = sample().dir;
    let mut store = reopen(&dir).expect("it is sound");
    store.log.run(&[append(28, 300)]).expect("nothing is in the way");
    store.log.run(&[append(29, 600), append(30, 300)]).expect("nothing is in the way");
    last(&mut store);
    dir
}

/// The end of the log that `open` recovers after `change` has modified the newest segment.
fn end_after(dir: &MemDir, change: impl FnOnce(&mut Vec<u8>)) -> Result<Zxid, StoreError> {
    let dir = dir.copy();
    dir.rot(NEWEST, change);
    reopen(&dir).map(|store| store.recovered.history.end())
}

fn is_damage(result: &Result<Zxid, StoreError>) -> bool {
    matches!(result, Err(StoreError::Damaged { .. }))
}

#[test]
fn flipped_bit_in_last_batch_is_damage_only_within_same_boot() {
    let dir = closed(false);
    dir.forget_note();
    let bytes = dir.bytes(NEWEST);
    let batch = last_batch(&bytes);
    let end = batch + 48 + 12 + 600 + 12 + 300;
    for at in batch..end {
        for bit in 0..8 {
            let flip = |bytes: &mut Vec<u8>| bytes[at] ^= 1 << bit;
            let found = end_after(&dir, flip);
            assert!(is_damage(&found), "byte {at}: {found:?}");
        }
        let rebooted = dir.copy();
        rebooted.reboot();
        let found = end_after(&rebooted, |bytes| bytes[at] ^= 1);
        assert_eq!(found, Ok(zxid(28)), "byte {at}: as a power failure may have left it");
    }
    let error = end_after(&dir, |bytes| bytes[batch + 60] ^= 1).expect_err("it is damaged");
    let said = error.to_string();
    let expected = format!(
        "{NEWEST} in the log directory is damaged: the batch at byte {batch}, behind transaction \
         {}, is not readable, though it was written to its end",
        zxid(28)
    );
    assert!(said.starts_with(&expected), "{said}");
}

/// The state file's note names the last acknowledged transaction even after a kill under load.
#[test]
fn log_shorter_than_note_is_damage_after_kill() {
    let dir = closed(false);
    dir.kill();
    let bytes = dir.bytes(NEWEST);
    let batch = last_batch(&bytes);
    for at in batch..batch + 48 + 12 + 600 + 12 + 300 {
        let found = end_after(&dir, |bytes| bytes.truncate(at));
        assert!(is_damage(&found), "cut at byte {at}: {found:?}");
        let found = end_after(&dir, |bytes| bytes[at..].fill(0));
        let whole = bytes[at..].iter().all(|byte| *byte == 0);
        assert_eq!(is_damage(&found), !whole, "zeros from byte {at} on: {found:?}");
    }
    let lost = dir.copy();
    lost.lose(NEWEST);
    let found = reopen(&lost).map(|store| store.recovered.history.end());
    assert!(is_damage(&found), "the segment is gone: {found:?}");
    // A damaged or missing note alone does no harm.
    for change in [|byte: u8| byte ^ 1, |_| 0] {
        let dir = dir.copy();
        dir.rot("state", |bytes| bytes[8192..].iter_mut().for_each(|byte| *byte = change(*byte)));
        let found = reopen(&dir).map(|store| store.recovered.history.end());
        assert_eq!(found, Ok(zxid(30)));
    }
}

/// A kill during a write leaves a prefix of the batch, over zeros or at the end of the file.
#[test]
fn write_interrupted_by_kill_is_no_damage() {
    let dir = closed(false);
    dir.forget_note();
    let bytes = dir.bytes(NEWEST);
    let batch = last_batch(&bytes);
    let end = batch + 48 + 12 + 600 + 12 + 300 + 4;
    assert_eq!(bytes[end - 1], 0xff, "the batch ends here");
    for at in batch..end - 1 {
        let found = end_after(&dir, |bytes| bytes[at..].fill(0));
        // If the cut-off bytes before the end mark are all zero, the batch is still readable.
        let whole = bytes[at..end - 1].iter().all(|byte| *byte == 0);
        let expected = zxid(if whole { 30 } else { 28 });
        assert_eq!(found, Ok(expected), "zeros from byte {at} on");
        let found = end_after(&dir, |bytes| bytes.truncate(at));
        let whole = at >= end - 4;
        assert_eq!(found, Ok(zxid(if whole { 30 } else { 28 })), "cut at byte {at}");
    }
}

#[test]
fn log_shorter_than_recorded_end_is_damage_in_any_boot() {
    for reboot in [false, true] {
        let dir = closed(true);
        if reboot {
            dir.power_cycle(Unsynced::Lost);
        }
        let bytes = dir.bytes(NEWEST);
        let batch = last_batch(&bytes);
        let end = batch + 48 + 12 + 600 + 12 + 300;
        for at in batch..end {
            let found = end_after(&dir, |bytes| bytes[at] ^= 1 << (at % 8));
            assert!(is_damage(&found), "byte {at}: {found:?}");
            let found = end_after(&dir, |bytes| bytes.truncate(at));
            assert!(is_damage(&found), "cut at byte {at}: {found:?}");
        }
        // Preallocated bytes after the last batch do not matter.
        for at in end..bytes.len() {
            let found = end_after(&dir, |bytes| bytes[at] ^= 1 << (at % 8));
            assert_eq!(found, Ok(zxid(30)), "byte {at}");
        }
        dir.lose(NEWEST);
        let found = reopen(&dir).map(|store| store.recovered.history.end());
        assert!(is_damage(&found), "the segment is gone: {found:?}");
        let said = found.expect_err("it is damage").to_string();
        let ends = format!("ends with transaction {}, though {} was durable", zxid(27), zxid(30));
        assert!(said.contains(&ends), "{said}");
    }
}

#[test]
fn log_end_is_recorded_once_and_truncation_resets_it() {
    let dir = closed(true);
    let mut store = reopen(&dir).expect("it is sound");
    let operations = dir.operations();
    store.log.record_end().expect("nothing is in the way");
    assert_eq!(dir.operations(), operations, "the open has recorded it");
    store.log.run(&[append(31, 8)]).expect("nothing is in the way");
    store.log.record_end().expect("nothing is in the way");
    let operations = dir.operations();
    store.log.record_end().expect("nothing is in the way");
    assert_eq!(dir.operations(), operations, "it stands there");
    let cut = DiskCommand::Truncate { id: WriteId(1), to: zxid(29) };
    store.log.run(&[cut]).expect("nothing is in the way");
    drop(store);
    dir.power_cycle(Unsynced::Lost);
    let store = reopen(&dir).expect("what was cut is not missed");
    assert_eq!((store.recovered.history.end(), store.notes), (zxid(29), Vec::<Note>::new()));
}

#[test]
fn failed_lane_does_not_record_log_end() {
    let dir = closed(false);
    let mut store = reopen(&dir).expect("it is sound");
    dir.fail_after(1);
    let error = store.log.run(&[append(31, 8)]).expect_err("an operation fails");
    let operations = dir.operations();
    assert_eq!(store.log.record_end(), Err(error));
    assert_eq!(dir.operations(), operations);
}

/// A batch is not needed if its header is readable and the newest snapshot holds all its
/// transactions.
#[test]
fn unreadable_last_batch_that_snapshot_covers_is_accepted() {
    for (counter, at, is_lost) in [(30, 60, false), (30, 10, true), (29, 60, true)] {
        let dir = closed_and(|store| snapshot(store, counter));
        let batch = last_batch(&dir.bytes(NEWEST));
        let found = end_after(&dir, |bytes| bytes[batch + at] ^= 1);
        assert_eq!(is_damage(&found), is_lost, "snapshot {counter}, byte {at}: {found:?}");
        assert!(is_lost || found == Ok(zxid(30)), "{found:?}");
    }
}

/// How the process ended before a file is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum End {
    /// The end of the log was recorded, and the process stopped.
    Stopped,
    /// The end was recorded while the log was idle, then the power failed.
    QuietThenPower,
    /// The end was recorded while the log was idle, then the power failed during another append.
    QuietThenTorn,
    /// The process was killed, and the machine was not restarted.
    Killed,
}

/// Changes one file of a directory, or swaps two, and describes the change.
fn mutate(dir: &MemDir, rng: &mut Rng) -> String {
    let contents = dir.contents();
    let names: Vec<&String> = contents.keys().filter(|name| !name.ends_with(".tmp")).collect();
    let pick = |rng: &mut Rng, of: usize| usize::try_from(rng.below(of as u64)).expect("small");
    let name = names[pick(rng, names.len())].as_str();
    let bytes = &contents[name];
    let used: Vec<usize> = (0..bytes.len()).filter(|at| bytes[*at] != 0).collect();
    let any = pick(rng, bytes.len().max(1));
    let at = if used.is_empty() { any } else { used[pick(rng, used.len())] };
    match rng.below(6) {
        _ if bytes.is_empty() => format!("{name} is empty"),
        0 => {
            let bit = rng.below(8);
            dir.rot(name, |bytes| bytes[at] ^= 1 << bit);
            format!("bit {bit} of byte {at} of {name} is flipped")
        }
        1 => {
            let size = if rng.below(2) == 0 { at } else { any };
            dir.rot(name, |bytes| bytes.truncate(size));
            format!("{name} is cut at byte {size}")
        }
        2 => {
            dir.lose(name);
            format!("{name} is removed")
        }
        3 => {
            let other = names[pick(rng, names.len())].as_str();
            dir.rot(name, |bytes| bytes.clone_from(&contents[other]));
            dir.rot(other, |other| other.clone_from(bytes));
            format!("{name} and {other} are swapped")
        }
        kind => {
            let from = at - at % 512;
            let to = (from + 512).min(bytes.len());
            let fill: Vec<u8> = (from..to).map(|_| rng.next().to_le_bytes()[0]).collect();
            let zero = kind == 4;
            let sector = if zero { vec![0; to - from] } else { fill };
            dir.rot(name, |bytes| bytes[from..to].copy_from_slice(&sector));
            format!(
                "the sector at byte {from} of {name} is {}",
                if zero { "zero" } else { "noise" }
            )
        }
    }
}

/// The directory of a random run with this end, and the model of its content.
fn ended(seed: u64, end: End) -> (MemDir, Model) {
    let dir = MemDir::new();
    let mut model = Model::new(seed);
    dir.reseed(seed);
    model.work(&dir, 25).expect("nothing is in the way");
    let mut store = model.reopen(&dir).expect("it is sound");
    model.check(&store.recovered);
    for _ in 0..1 + seed % 4 {
        model.append(&mut store).expect("nothing is in the way");
    }
    if end != End::Killed {
        store.log.record_end().expect("nothing is in the way");
    }
    if end == End::QuietThenTorn {
        dir.cut_after(seed % 2);
        model.append(&mut store).expect_err("the power fails");
    }
    drop(store);
    match end {
        End::Stopped | End::Killed => dir.kill(),
        End::QuietThenPower => dir.power_cycle(Unsynced::Lost),
        End::QuietThenTorn => dir.power_cycle(Unsynced::Random),
    }
    (dir, model)
}

#[test]
fn no_change_of_one_file_loses_acknowledged_write_silently() {
    let (mut refused, mut kept) = (0, 0);
    for seed in 0..60 {
        for end in [End::Stopped, End::QuietThenPower, End::QuietThenTorn, End::Killed] {
            let (dir, model) = ended(seed, end);
            let untouched = model.reopen(&dir.copy()).expect("it is sound").recovered;
            for number in 0..10 {
                let copy = dir.copy();
                let what = mutate(&copy, &mut Rng(seed * 1_000 + number));
                let before = copy.contents();
                let inspected = model.inspect(&copy);
                assert_eq!(copy.contents(), before, "to look at a store does not change it");
                let reopened = model.reopen(&copy).map(|store| store.recovered);
                assert_eq!(
                    inspected.is_ok(),
                    reopened.is_ok(),
                    "seed {seed}, {end:?}: {what}: an open and a look at it judge alike"
                );
                match reopened {
                    Ok(found) => {
                        kept += 1;
                        let context = format!("seed {seed}, {end:?}: {what}");
                        check_kept(&model, &found, &untouched, &context);
                    }
                    Err(
                        StoreError::Damaged { .. }
                        | StoreError::ForeignStore { .. }
                        | StoreError::UnknownVersion { .. },
                    ) => {
                        refused += 1;
                        assert_eq!(copy.contents(), before, "a refused store stays as it is");
                    }
                    Err(error) => panic!("seed {seed}, {end:?}: {what}: {error}"),
                }
            }
        }
    }
    assert_eq!(refused + kept, 2_400);
    assert!(refused > 800 && kept > 400, "{refused} refused, {kept} kept");
}

/// Checks that all acknowledged transactions were recovered, and only transactions that were
/// written.
fn check_kept(model: &Model, found: &Recovered, untouched: &Recovered, context: &str) {
    model.check_acknowledged(found, context);
    assert_eq!(found.state.accepted_epoch, untouched.state.accepted_epoch, "{context}");
    assert_eq!(found.state.damaged, untouched.state.damaged, "{context}");
}
