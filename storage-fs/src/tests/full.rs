//! Full disks and missing file descriptors: snapshots are abandoned, log segments get smaller.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent};

use super::damage::{append, zxid};
use super::mem::MemDir;
use super::world::{STORE_ID, reopen};
use crate::{Opened, Options, StoreError, open};

fn chunk(counter: u64, index: u32, last: bool) -> DiskCommand {
    let bytes = Bytes::from(vec![0x11; 900]);
    DiskCommand::SnapshotChunk { zxid: zxid(counter), index, bytes, last }
}

/// Runs a chunk on the snapshot lane; the error is that of `SnapshotFailed`.
fn write(store: &mut Opened<MemDir>, command: &DiskCommand) -> Result<(), String> {
    match store.snapshots.run(command) {
        Ok(Some(DiskEvent::ChunkDone { .. })) => Ok(()),
        Ok(Some(DiskEvent::SnapshotFailed { why, .. })) => Err(why),
        other => panic!("{other:?}"),
    }
}

fn names(dir: &MemDir) -> Vec<String> {
    dir.contents().into_keys().filter(|name| name.starts_with("snapshot.")).collect()
}

/// A store with a log of three transactions.
fn begun() -> (MemDir, Opened<MemDir>) {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    store.log.run(&[append(1, 8), append(2, 8), append(3, 8)]).expect("nothing is in the way");
    (dir, store)
}

#[test]
fn snapshot_on_full_disk_is_abandoned_and_store_continues() {
    // The disk is full before the header, within a chunk, or at the footer.
    for (room, written) in [(0, 0), (4_096, 0), (5_100, 1), (5_950, 2)] {
        let (dir, mut store) = begun();
        let used: usize = dir.contents().values().map(Vec::len).sum();
        dir.set_room(Some(used as u64 + room));
        let results = [(0, false), (1, false), (2, true)]
            .map(|(index, last)| write(&mut store, &chunk(3, index, last)));
        let done = results.iter().filter(|result| result.is_ok()).count();
        assert_eq!(done, written, "{results:?}");
        for why in results.into_iter().filter_map(Result::err) {
            assert!(
                why.starts_with("disk full: cannot write snapshot.0000000100000003.tmp"),
                "{why}"
            );
        }
        assert_eq!(names(&dir), Vec::<String>::new(), "its room is free again");
        // The core may drop the snapshot before it learns of the failure.
        if room > 5_000 {
            let drop = DiskCommand::DropSnapshot { zxid: zxid(3) };
            assert_eq!(store.snapshots.run(&drop), Ok(None));
        }
        store.log.run(&[append(4, 8)]).expect("its room is reserved");
        dir.set_room(None);
        for (index, last) in [(0, false), (1, true)] {
            assert_eq!(write(&mut store, &chunk(4, index, last)), Ok(()));
        }
        drop(store);
        let found = reopen(&dir).expect("it is sound").recovered;
        assert_eq!((found.snapshots, found.history.end()), (vec![zxid(4)], zxid(4)));
    }
}

#[test]
fn without_descriptors_snapshot_is_abandoned_and_purge_deferred() {
    let (dir, mut store) = begun();
    for counter in [1, 2] {
        assert_eq!(write(&mut store, &chunk(counter, 0, true)), Ok(()));
    }
    dir.set_out_of_files(true);
    let why = write(&mut store, &chunk(3, 0, true)).expect_err("no file can be opened");
    assert!(why.starts_with("too many open files: cannot create snapshot."), "{why}");
    let purge = DiskCommand::Purge { oldest: zxid(2) };
    assert_eq!((store.snapshots.run(&purge), names(&dir).len()), (Ok(None), 2));
    dir.set_out_of_files(false);
    assert_eq!((store.snapshots.run(&purge), names(&dir).len()), (Ok(None), 1));
    assert_eq!(write(&mut store, &chunk(3, 0, true)), Ok(()));
}

/// After any other error the content of the disk is uncertain, so the lane stops.
#[test]
fn snapshot_write_error_stops_lane() {
    let (dir, mut store) = begun();
    dir.fail_after(1);
    let error = store.snapshots.run(&chunk(3, 0, true)).expect_err("the write fails");
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(store.snapshots.run(&chunk(3, 0, true)), Err(error));
}

#[test]
fn segment_size_is_halved_until_it_fits_the_disk() {
    const ROOM: u64 = 65_000;
    let dir = MemDir::new();
    let options = Options { segment_bytes: 1 << 20, store_id: STORE_ID };
    let mut store = open(dir.clone(), dir.clone(), options).expect("a new store");
    dir.set_room(Some(ROOM));
    let mut counter = 0;
    let error = loop {
        match store.log.run(&[append(counter + 1, 500)]) {
            Ok(_) => counter += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, StoreError::DiskFull { .. }), "{error}");
    assert!(counter > 60, "{counter} transactions of 500 bytes in {ROOM}");
    let sizes = dir.contents().into_iter().filter(|(name, _)| name.starts_with("log."));
    let sizes: Vec<usize> = sizes.map(|(_, bytes)| bytes.len()).collect();
    assert!(sizes[0] > 20_000 && sizes.len() < 12, "each took a half of what was free: {sizes:?}");
    drop(store);
    dir.set_room(None);
    let found = reopen(&dir).expect("it is sound").recovered;
    assert_eq!(found.history.end(), zxid(counter));
}
