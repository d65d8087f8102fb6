//! Tests of the reader lane while the other lanes write and remove files.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry};
use zabkeeper_core::{LinkId, WriteId, Zxid};

use super::damage::{append, last_batch, sample, sample_with_gap, snapshot, zxid};
use super::mem::MemDir;
use super::world::{STORE_ID, reopen};
use crate::vfs::Vfs;
use crate::{Opened, Options, open};

const LINK: LinkId = LinkId(1);

fn read(
    store: &mut Opened<MemDir>,
    link: LinkId,
    after: Zxid,
    bytes: u32,
) -> Result<Vec<Entry>, String> {
    let event = store.reader.run(&DiskCommand::ReadLog { link, after, bytes });
    let DiskEvent::LogRead { link: answered, found } = event else { panic!("{event:?}") };
    assert_eq!(answered, link);
    found
}

fn counters(found: Result<Vec<Entry>, String>) -> Vec<u32> {
    found.expect("there is log").iter().map(|entry| entry.zxid.counter()).collect()
}

fn chunk(
    store: &mut Opened<MemDir>,
    link: LinkId,
    snapshot: Zxid,
    index: u32,
) -> Result<(Bytes, bool), String> {
    let event = store.reader.run(&DiskCommand::ReadSnapshot { link, zxid: snapshot, index });
    let DiskEvent::SnapshotRead { link: answered, zxid, index: at, found } = event else {
        panic!("{event:?}")
    };
    assert_eq!((answered, zxid, at), (link, snapshot, index));
    found
}

#[test]
fn log_read_starts_after_any_zxid_and_respects_byte_limit() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    for (link, after, bytes, expected) in [
        (1, Zxid::ZERO, 0, 1..=1),
        (1, zxid(1), 0, 2..=2),
        (1, zxid(2), 201, 3..=4),
        (1, zxid(4), 1000, 5..=9),
        (1, zxid(9), 1 << 20, 10..=27),
        (1, zxid(3), 400, 4..=5),
        (2, zxid(20), 401, 21..=23),
        (3, Zxid(1 << 32), 200, 1..=1),
    ] {
        let found = read(&mut store, LinkId(link), after, bytes);
        assert_eq!(counters(found), expected.collect::<Vec<_>>(), "after {after}");
    }
    for nothing in [zxid(27), zxid(90), Zxid(9 << 32)] {
        let why = read(&mut store, LINK, nothing, 100).expect_err("nothing is there");
        assert!(why.contains("nothing after"), "{why}");
    }
}

#[test]
fn sequential_log_reads_need_no_search() {
    let dir = MemDir::new();
    let options = Options { segment_bytes: 1 << 20, store_id: STORE_ID };
    let mut store = open(dir.clone(), dir.clone(), options).expect("a new store");
    for batch in 0..300 {
        let appends: Vec<_> = (1..=3).map(|i| append(batch * 3 + i, 8)).collect();
        store.log.run(&appends).expect("nothing is in the way");
    }
    let before = dir.reads();
    for after in 0..900 {
        let found = read(&mut store, LINK, zxid(after), 0);
        let expected = u32::try_from(after + 1).expect("small");
        assert_eq!(counters(found), [expected]);
    }
    // Five reads: the segment's header, the batch, and the check for a next batch.
    assert!(dir.reads() - before <= 900 * 5, "{} reads", dir.reads() - before);
}

#[test]
fn read_of_purged_log_fails() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    assert_eq!(counters(read(&mut store, LINK, zxid(3), 0)), [4]);
    snapshot(&mut store, 10);
    store.snapshots.run(&DiskCommand::Purge { oldest: zxid(10) }).expect("nothing is in the way");
    let why = read(&mut store, LINK, zxid(4), 0).expect_err("it is gone");
    assert!(why.contains("begins after"), "{why}");
    assert_eq!(counters(read(&mut store, LINK, zxid(9), 0)), [10]);
}

#[test]
fn log_read_stops_at_missing_segment() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    sample.dir.lose(sample.segments[1]);
    assert_eq!(counters(read(&mut store, LINK, zxid(6), 1 << 20)), [7, 8, 9]);
    let why = read(&mut store, LINK, zxid(9), 1 << 20).expect_err("it is gone");
    assert!(why.contains("no readable log"), "{why}");
}

/// After a purge, a power failure may bring back some of the removed segments but not others;
/// `open` removes those before the gap. (Seed 0xb110056d with five servers: a learner whose log
/// ended where the first needed segment begins was never synchronized.)
#[test]
fn log_after_gap_is_readable() {
    let sample = sample_with_gap(18);
    let mut store = reopen(&sample.dir).expect("what is missing lies before the newest snapshot");
    assert_eq!(store.recovered.history.start(), zxid(18));
    assert_eq!(counters(read(&mut store, LINK, zxid(18), 401)), [19, 20, 21]);
    assert_eq!(counters(read(&mut store, LINK, zxid(21), 0)), [22]);
}

#[test]
fn log_read_ends_before_incomplete_batch() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let name = sample.segments[2];
    let whole = sample.dir.bytes(name);
    let start = last_batch(&whole);
    for at in (start..start + 48 + 3 * 212).step_by(7) {
        sample.dir.rot(name, |bytes| bytes[at..].fill(0));
        assert_eq!(counters(read(&mut store, LINK, zxid(22), 1 << 20)), [23, 24], "byte {at}");
        read(&mut store, LINK, zxid(24), 1 << 20).expect_err("it is torn");
        sample.dir.rot(name, |bytes| bytes.clone_from(&whole));
        assert_eq!(counters(read(&mut store, LINK, zxid(24), 1 << 20)), [25, 26, 27]);
    }
}

#[test]
fn log_read_never_returns_damaged_entries() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let expected = read(&mut store, LINK, Zxid::ZERO, 1 << 20).expect("there is log");
    for name in sample.segments {
        for at in 0..sample.dir.bytes(name).len() {
            sample.dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
            let found = read(&mut store, LinkId(2), Zxid::ZERO, 1 << 20).unwrap_or_default();
            assert_eq!(found, expected[..found.len()], "byte {at} of {name}");
            sample.dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
        }
    }
}

#[test]
fn log_read_after_truncation_returns_no_removed_entries() {
    for counter in 9..25 {
        let sample = sample();
        let mut store = reopen(&sample.dir).expect("it is sound");
        let links = [LinkId(3), LinkId(4), LinkId(5)];
        for (link, ahead) in links.into_iter().zip(0..) {
            read(&mut store, link, zxid(counter + ahead), 0).expect("there is log");
        }
        let truncate = DiskCommand::Truncate { id: WriteId(1), to: zxid(counter) };
        store.log.run(&[truncate]).expect("nothing is in the way");
        read(&mut store, links[0], zxid(counter), 0).expect_err("it was cut");
        let next = Entry { zxid: zxid(counter + 1), bytes: Bytes::from_static(b"another") };
        let command = DiskCommand::Append { id: WriteId(2), entry: next.clone() };
        store.log.run(&[command]).expect("nothing is in the way");
        for link in links {
            assert_eq!(read(&mut store, link, zxid(counter), 0), Ok(vec![next.clone()]));
        }
    }
}

#[test]
fn read_of_log_replaced_by_leaders_snapshot_fails() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    read(&mut store, LINK, zxid(9), 0).expect("there is log");
    let state = DurableState { snapshot: zxid(40), ..DurableState::default() };
    let batch = [
        DiskCommand::SaveState { id: WriteId(1), state },
        DiskCommand::Rebase { id: WriteId(2), snapshot: zxid(40) },
    ];
    store.log.run(&batch).expect("nothing is in the way");
    let why = read(&mut store, LINK, zxid(10), 0).expect_err("it is gone");
    assert!(why.contains("no log"), "{why}");
    store.log.run(&[append(41, 8)]).expect("nothing is in the way");
    read(&mut store, LINK, zxid(10), 0).expect_err("it is gone");
    assert_eq!(counters(read(&mut store, LINK, zxid(40), 0)), [41]);
}

#[test]
fn snapshot_read_continues_after_purge() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let content = |counter| Bytes::from(vec![counter; 900]);
    assert_eq!(chunk(&mut store, LINK, zxid(3), 0), Ok((content(3), false)));
    assert_eq!(chunk(&mut store, LinkId(2), zxid(9), 0), Ok((content(9), false)));
    store.snapshots.run(&DiskCommand::Purge { oldest: zxid(9) }).expect("nothing is in the way");
    assert_eq!(chunk(&mut store, LINK, zxid(3), 1), Ok((content(3), true)));
    assert_eq!(chunk(&mut store, LinkId(2), zxid(9), 1), Ok((content(9), true)));
    // The reader closed the snapshot after its last chunk.
    chunk(&mut store, LINK, zxid(3), 0).expect_err("it is gone");
    // Another snapshot on the same link, a change within a snapshot, and a repeated chunk.
    snapshot(&mut store, 27);
    for (counter, index, last) in [(9, 0, false), (27, 0, false), (27, 0, false), (27, 1, true)] {
        let expected = Ok((content(counter), last));
        assert_eq!(chunk(&mut store, LINK, zxid(counter.into()), index), expected);
    }
    let why = chunk(&mut store, LINK, zxid(27), 2).expect_err("it has two");
    assert!(why.contains("ends before chunk 2"), "{why}");
}

/// Regression: the space of up to 64 removed snapshots stayed occupied, for links that had gone.
#[test]
fn removed_snapshot_is_closed_when_another_link_reads() {
    for reads_log in [false, true] {
        let sample = sample();
        let mut store = reopen(&sample.dir).expect("it is sound");
        chunk(&mut store, LINK, zxid(3), 0).expect("it is there");
        chunk(&mut store, LinkId(2), zxid(9), 0).expect("it is there");
        let purge = DiskCommand::Purge { oldest: zxid(9) };
        store.snapshots.run(&purge).expect("nothing is in the way");
        if reads_log {
            read(&mut store, LinkId(3), zxid(20), 0).expect("it is there");
        } else {
            chunk(&mut store, LinkId(3), zxid(9), 0).expect("it is there");
        }
        chunk(&mut store, LINK, zxid(3), 1).expect_err("it is closed");
        chunk(&mut store, LinkId(2), zxid(9), 1).expect("it is open");
    }
}

#[test]
fn links_beyond_cache_size_are_served() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let links = || (1..=200).map(LinkId);
    for index in 0..2 {
        for link in links() {
            let (_, last) = chunk(&mut store, link, zxid(9), index).expect("it is there");
            assert_eq!(last, index == 1);
        }
    }
    for after in [11, 12, 20] {
        for link in links() {
            let expected = u32::try_from(after + 1).expect("small");
            assert_eq!(counters(read(&mut store, link, zxid(after), 0)), [expected]);
        }
    }
}

#[test]
fn damaged_snapshot_is_not_sent_but_renamed() {
    let sample = sample();
    let mut store = reopen(&sample.dir).expect("it is sound");
    let name = sample.snapshots[1];
    for at in 0..sample.dir.bytes(name).len() {
        sample.dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
        let chunks = [0, 1].map(|index| chunk(&mut store, LINK, zxid(9), index));
        let found = chunks.iter().find_map(|chunk| chunk.as_ref().err());
        let what = found.unwrap_or_else(|| panic!("byte {at}: {chunks:?}"));
        let aside = format!("{name}.damaged");
        assert!(what.ends_with(&format!("is kept as {aside}")), "byte {at}: {what}");
        sample.dir.rename(&aside, name).expect("nothing is in the way");
        sample.dir.rot(name, |bytes| bytes[at] ^= 1 << (at % 8));
    }
}

#[test]
#[should_panic(expected = "is not for this lane")]
fn reader_lane_panics_on_write_command() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    store.reader.run(&append(1, 8));
}
