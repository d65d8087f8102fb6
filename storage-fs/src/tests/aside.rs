//! Tests of `set_aside`, with a power failure at any operation.

use zabkeeper_core::store::{DiskCommand, DurableState};
use zabkeeper_core::{Epoch, EpochIndex, WriteId, Zxid};

use super::damage::{append, sample, zxid};
use super::mem::{MemDir, Unsynced};
use super::world::{STORE_ID, reopen};
use crate::{Note, Options, StoreError, set_aside};

/// A store with accepted epoch 4 whose last batch is damaged.
fn damaged() -> MemDir {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let state =
        DurableState { accepted_epoch: Epoch(4), current_epoch: Epoch(1), ..Default::default() };
    let save = DiskCommand::SaveState { id: WriteId(1), state };
    store.log.run(&[append(28, 300), save]).expect("nothing is in the way");
    drop(store);
    sample.dir.rot("log.000000010000001c", |bytes| bytes[4096 + 60] ^= 1);
    assert!(matches!(reopen(&sample.dir.copy()).map(|_| ()), Err(StoreError::Damaged { .. })));
    sample.dir
}

fn aside(dir: &MemDir) -> Result<Vec<String>, StoreError> {
    let options = Options { segment_bytes: 4096, store_id: STORE_ID };
    set_aside(dir.clone(), dir.clone(), options)
}

#[test]
fn set_aside_renames_all_files_and_leaves_an_empty_damaged_store() {
    let dir = damaged();
    let before = dir.contents();
    let kept = aside(&dir).expect("nothing is in the way");
    let after = dir.contents();
    assert_eq!(kept.len(), before.len());
    for (name, bytes) in &before {
        let copy = format!("{name}.damaged");
        assert!(kept.contains(&copy) && after[&copy] == *bytes, "{name}");
    }
    dir.power_cycle(Unsynced::Lost);
    let mut store = reopen(&dir).expect("it is sound");
    let state = DurableState { accepted_epoch: Epoch(4), damaged: true, ..Default::default() };
    assert_eq!((&store.recovered.state, &store.notes[..]), (&state, &[] as &[Note]));
    assert_eq!(store.recovered.history, EpochIndex::after(Zxid::ZERO));
    assert_eq!((&store.recovered.snapshot, &store.recovered.snapshots[..]), (&None, &[][..]));
    // The new store can be set aside, too; the files of the first one stay.
    store.log.run(&[append(1, 300)]).expect("nothing is in the way");
    store.log.record_end().expect("nothing is in the way");
    drop(store);
    dir.rot("log.0000000100000001", |bytes| bytes[4096 + 60] ^= 1);
    let kept = aside(&dir).expect("nothing is in the way");
    assert_eq!(kept, ["state.damaged.2", "log.0000000100000001.damaged.2"]);
    assert_eq!(dir.bytes("log.0000000100000001.damaged"), before["log.0000000100000001"]);
}

/// After a power failure at any operation the state is `damaged`, or `open` still reports damage.
#[test]
fn set_aside_can_be_interrupted_at_any_operation() {
    let dir = damaged();
    let before = dir.operations();
    aside(&dir).expect("nothing is in the way");
    for cut in 0..dir.operations() - before {
        for seed in 0..20 {
            let dir = damaged();
            dir.reseed(seed);
            dir.cut_after(cut);
            aside(&dir).expect_err("the power fails");
            dir.power_cycle(Unsynced::pick(seed));
            match reopen(&dir.copy()).map(|store| store.recovered.state) {
                Ok(state) => {
                    assert!(state.damaged && state.accepted_epoch == Epoch(4), "{state:?}");
                }
                Err(error) => assert!(matches!(error, StoreError::Damaged { .. }), "{error}"),
            }
            aside(&dir).expect("nothing is in the way");
            let found = reopen(&dir).expect("it is sound").recovered;
            assert!(found.state.damaged && found.history.end() == Zxid::ZERO);
            assert_eq!(found.state.accepted_epoch, Epoch(4), "cut at {cut}, seed {seed}");
        }
    }
}

#[test]
fn set_aside_without_state_file_takes_accepted_epoch_from_file_names() {
    let dir = damaged();
    dir.lose("state");
    let kept = aside(&dir).expect("nothing is in the way");
    assert!(!kept.iter().any(|name| name.starts_with("state")), "{kept:?}");
    let state = reopen(&dir).expect("it is sound").recovered.state;
    assert_eq!((state.accepted_epoch, state.damaged), (zxid(1).epoch(), true));
}
