//! Tests of the store on real files.

#![expect(clippy::disallowed_methods, reason = "what others do to the files goes around the store")]

use std::fs::Permissions;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry};
use zabkeeper_core::{Epoch, LinkId, WriteId, Zxid};

use crate::{LogLane, Opened, Options, OsDir, StoreError, open};

fn append(counter: u64) -> DiskCommand {
    let bytes = Bytes::from(format!("transaction {counter}"));
    DiskCommand::Append {
        id: WriteId(counter),
        entry: Entry { zxid: Zxid((1 << 32) + counter), bytes },
    }
}

fn start(dir: &OsDir) -> Opened<OsDir> {
    open(dir.clone(), dir.clone(), Options::new(7)).expect("the store opens")
}

#[test]
fn reopened_store_has_log_snapshot_and_state() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = OsDir::new(temp.path().join("data/version-1")).expect("a directory");
    let mut store = start(&dir);
    assert_eq!(store.recovered, Default::default());
    let state =
        DurableState { accepted_epoch: Epoch(1), current_epoch: Epoch(1), ..Default::default() };
    let save = DiskCommand::SaveState { id: WriteId(9), state: state.clone() };
    assert_eq!(store.log.run(&[save]), Ok(WriteId(9)));
    assert_eq!(store.log.run(&[append(1), append(2), append(3)]), Ok(WriteId(3)));
    let zxid = Zxid((1 << 32) + 2);
    let bytes = Bytes::from_static(b"tree");
    let chunk = DiskCommand::SnapshotChunk { zxid, index: 0, bytes: bytes.clone(), last: true };
    let done = Some(DiskEvent::ChunkDone { zxid, index: 0 });
    assert_eq!(store.snapshots.run(&chunk), Ok(done));
    assert_eq!(store.snapshots.run(&DiskCommand::Purge { oldest: zxid }), Ok(None));
    drop(store);

    let store = start(&dir);
    assert_eq!(store.notes, Vec::<crate::Note>::new());
    assert_eq!(store.recovered.state, state);
    let image = store.recovered.snapshot.expect("a snapshot");
    assert_eq!((image.zxid, image.chunks), (zxid, vec![bytes]));
    let DiskCommand::Append { entry, .. } = append(3) else { unreachable!() };
    assert_eq!(store.recovered.entries, vec![entry]);
}

#[test]
fn created_files_have_owner_mode_and_links_are_not_followed() {
    let mode = |path: &Path| path.metadata().expect("is there").permissions().mode() & 0o777;
    let temp = tempfile::tempdir().expect("a directory");
    let path = temp.path().join("data/log");
    let dir = OsDir::new(&path).expect("a directory");
    let [target, other] = ["target", "other"].map(|name| temp.path().join(name));
    std::fs::write(&target, b"of somebody else").expect("writes");
    symlink(&target, path.join("state.tmp")).expect("links");
    symlink(&other, path.join("log.0000000100000001.tmp")).expect("links");
    // An unfinished file of a killed process is replaced, too.
    std::fs::write(path.join("snapshot.0000000100000001.tmp"), b"left").expect("writes");
    let mut store = start(&dir);
    assert_eq!(store.log.run(&[append(1)]), Ok(WriteId(1)));
    let (zxid, bytes) = (Zxid((1 << 32) + 1), Bytes::from_static(b"tree"));
    std::fs::write(path.join("snapshot.0000000100000001.tmp"), b"left").expect("writes");
    let chunk = DiskCommand::SnapshotChunk { zxid, index: 0, bytes, last: true };
    store.snapshots.run(&chunk).expect("nothing is in the way");
    drop(store);

    assert_eq!(std::fs::read(&target).expect("is there"), b"of somebody else");
    assert!(!other.exists());
    let mut names = Vec::new();
    for entry in std::fs::read_dir(&path).expect("a directory") {
        let entry = entry.expect("a file");
        assert!(entry.file_type().expect("is known").is_file(), "{entry:?}");
        assert_eq!(mode(&entry.path()), 0o600, "{entry:?}");
        names.push(entry.file_name().into_string().expect("a name of ours"));
    }
    names.sort();
    let expected = ["lock", "log.0000000100000001", "snapshot.0000000100000001", "state"];
    assert_eq!(names, expected);
    assert_eq!([mode(&path), mode(&temp.path().join("data"))], [0o700; 2]);

    // Opening the lock file does not follow a link, either.
    std::fs::remove_file(path.join("lock")).expect("is there");
    symlink(&target, path.join("lock")).expect("links");
    let refused = open(dir.clone(), dir.clone(), Options::new(7)).map(|_| ());
    assert!(matches!(refused, Err(StoreError::Io { operation: "lock", .. })), "{refused:?}");
}

#[test]
fn access_by_other_users_is_reported() {
    let temp = tempfile::tempdir().expect("a directory");
    for (mode, open) in [(0o700, false), (0o750, true), (0o755, true), (0o701, true)] {
        std::fs::set_permissions(temp.path(), Permissions::from_mode(mode)).expect("is ours");
        let dir = OsDir::new(temp.path()).expect("a directory");
        assert_eq!(dir.is_open_to_others().expect("can be asked"), open, "{mode:o}");
        assert_eq!(temp.path().metadata().expect("is there").mode() & 0o777, mode);
    }
}

#[test]
fn dropped_snapshot_leaves_no_file() {
    let temp = tempfile::tempdir().expect("a directory");
    let dir = OsDir::new(temp.path().to_owned()).expect("a directory");
    let mut store = start(&dir);
    let snapshots = || {
        let names = std::fs::read_dir(temp.path())
            .expect("a directory")
            .map(|entry| entry.expect("a file").file_name().into_string().expect("a name of ours"));
        names.filter(|name| name.starts_with("snapshot.")).count()
    };
    let zxid = Zxid((1 << 32) + 2);
    for last in [false, true] {
        let bytes = Bytes::from_static(b"tree");
        let chunk = DiskCommand::SnapshotChunk { zxid, index: 0, bytes, last };
        store.snapshots.run(&chunk).expect("nothing is in the way");
        assert_eq!(snapshots(), 1);
        assert_eq!(store.snapshots.run(&DiskCommand::DropSnapshot { zxid }), Ok(None));
        assert_eq!(snapshots(), 0, "last: {last}");
    }
}

#[test]
fn second_open_fails_until_both_writing_lanes_are_dropped() {
    let temp = tempfile::tempdir().expect("a directory");
    let log = OsDir::new(temp.path().join("log")).expect("a directory");
    let snapshots = OsDir::new(temp.path().join("snapshots")).expect("a directory");
    let second = |log: &OsDir, snapshots: &OsDir| {
        open(log.clone(), snapshots.clone(), Options::new(7)).map(|_| ()).map_err(|e| e.to_string())
    };
    let in_use = |place| Err(StoreError::InUse { place }.to_string());
    let Opened { log: log_lane, snapshots: snapshot_lane, .. } =
        open(log.clone(), snapshots.clone(), Options::new(7)).expect("the store opens");
    assert_eq!(second(&log, &snapshots), in_use("log directory"));
    let elsewhere = OsDir::new(temp.path().join("elsewhere")).expect("a directory");
    assert_eq!(second(&elsewhere, &snapshots), in_use("snapshot directory"));
    drop(log_lane);
    assert_eq!(second(&log, &snapshots), in_use("log directory"));
    drop(snapshot_lane);
    assert_eq!(second(&log, &snapshots), Ok(()));
}

#[test]
fn lanes_and_errors_are_send() {
    fn sendable<T: Send>() {}
    sendable::<LogLane<OsDir>>();
    sendable::<crate::SnapshotLane<OsDir>>();
    sendable::<crate::ReaderLane<OsDir>>();
    sendable::<StoreError>();
}

#[test]
fn log_reads_succeed_during_appends_and_purges() {
    const LAST: u64 = 3000;
    let temp = tempfile::tempdir().expect("a directory");
    let dir = OsDir::new(temp.path().join("data")).expect("a directory");
    let options = Options { segment_bytes: 16 << 10, ..Options::new(7) };
    let Opened { mut log, mut snapshots, mut reader, .. } =
        open(dir.clone(), dir, options).expect("the store opens");
    let zxid = |counter| Zxid((1 << 32) + counter);
    let (sender, receiver) = std::sync::mpsc::sync_channel::<u64>(0);
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for counter in 1..=LAST {
                log.run(&[append(counter)]).expect("nothing is in the way");
                if counter % 100 == 0 {
                    sender.send(counter).expect("the learner listens");
                }
            }
        });
        let mut after = 0;
        let mut read_up_to = |counter: u64, beyond: bool| {
            while after < counter {
                let read = DiskCommand::ReadLog { link: LinkId(1), after: zxid(after), bytes: 90 };
                let DiskEvent::LogRead { found: Ok(found), .. } = reader.run(&read) else {
                    panic!("nothing after {after}, though {counter} is durable");
                };
                for entry in found {
                    after += 1;
                    let DiskCommand::Append { entry: expected, .. } = append(after) else {
                        unreachable!("an append is one");
                    };
                    assert_eq!(entry, expected);
                }
            }
            assert!(beyond || after == counter);
        };
        for counter in receiver {
            read_up_to(counter, true);
            let bytes = Bytes::from_static(b"tree");
            let oldest = zxid(counter);
            let chunk = DiskCommand::SnapshotChunk { zxid: oldest, index: 0, bytes, last: true };
            snapshots.run(&chunk).expect("nothing is in the way");
            snapshots.run(&DiskCommand::Purge { oldest }).expect("nothing is in the way");
        }
        read_up_to(LAST, false);
    });
}
