//! No room, or no descriptor: a snapshot can wait, the log takes what there is.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent};

use super::damage::{append, zxid};
use super::mem::MemDir;
use super::world::{CLUSTER, reopen};
use crate::{Opened, Options, StoreError, open};

fn chunk(counter: u64, index: u32, last: bool) -> DiskCommand {
    let bytes = Bytes::from(vec![0x11; 900]);
    DiskCommand::SnapshotChunk { zxid: zxid(counter), index, bytes, last }
}

/// Gives it to the lane; says whether it was written, and else why not.
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
fn a_snapshot_without_room_is_given_up_and_the_store_goes_on() {
    // Where the room ends: before the header, inside a chunk, at the footer.
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
        // It may be dropped by who does not know yet.
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
fn a_snapshot_without_a_descriptor_is_given_up_and_a_purge_waits() {
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

/// Anything but a lack of room leaves doubt: the lane stops, as before.
#[test]
fn a_write_error_in_a_snapshot_stops_the_lane() {
    let (dir, mut store) = begun();
    dir.fail_after(1);
    let error = store.snapshots.run(&chunk(3, 0, true)).expect_err("the write fails");
    assert!(matches!(error, StoreError::Io { .. }), "{error}");
    assert_eq!(store.snapshots.run(&chunk(3, 0, true)), Err(error));
}

#[test]
fn a_log_segment_takes_what_room_there_is() {
    const ROOM: u64 = 65_000;
    let dir = MemDir::new();
    let options = Options { segment_bytes: 1 << 20, cluster_id: CLUSTER };
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
