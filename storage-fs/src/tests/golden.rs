//! The file formats, byte for byte. A change of a format needs a new version, and the old version
//! must remain readable.

use std::fmt::Write as _;

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DurableState, Entry};
use zabkeeper_core::{Epoch, Seed, ServerId, WriteId, Zxid};

use super::mem::MemDir;
use super::world::{STORE_ID, reopen};
use crate::block::Kind;
use crate::vfs::{Vfs, VfsFile};

fn entry(counter: u64, text: &'static str) -> Entry {
    Entry { zxid: Zxid((5 << 32) + counter), bytes: Bytes::from_static(text.as_bytes()) }
}

#[test]
fn file_formats_are_unchanged() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    let append =
        |counter, text| DiskCommand::Append { id: WriteId(1), entry: entry(counter, text) };
    let state = DurableState {
        accepted_epoch: Epoch(6),
        current_epoch: Epoch(5),
        snapshot: Zxid((5 << 32) + 2),
        damaged: false,
        voters: [1, 2, 300].map(ServerId).into(),
        identity: Some(Seed::from(1).identity(Epoch(4))),
        nonces: vec![Seed::from(1).epoch_nonce(Epoch(5))],
        differs: None,
    };
    let save = DiskCommand::SaveState { id: WriteId(2), state };
    let commands = [append(1, "first"), append(2, "second"), save];
    store.log.run(&commands).expect("nothing is in the way");
    store.log.run(&[append(3, "third")]).expect("nothing is in the way");
    for index in 0..2 {
        let (zxid, bytes) = (Zxid((5 << 32) + 2), Bytes::from_static(b"some nodes"));
        let chunk = DiskCommand::SnapshotChunk { zxid, index, bytes, last: index == 1 };
        store.snapshots.run(&chunk).expect("nothing is in the way");
    }
    let mut dump = String::new();
    for (name, bytes) in dir.contents() {
        writeln!(dump, "{name}, {} bytes", bytes.len()).expect("strings grow");
        hex(&mut dump, &bytes);
    }
    insta::assert_snapshot!(dump);
}

/// 0.2.0 reads version 2 only, and takes a transaction with counter 0 for the end of the log.
#[test]
fn only_a_segment_that_begins_with_counter_0_has_version_3() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    let append = |epoch, counter| {
        let zxid = Zxid(Zxid::start_of(Epoch(epoch)).0 + counter);
        DiskCommand::Append { id: WriteId(1), entry: Entry { zxid, bytes: Bytes::new() } }
    };
    let commands = [append(5, 1), append(6, 0), append(6, 1), append(7, 1)];
    store.log.run(&commands).expect("nothing is in the way");
    drop(store);
    let segments = dir.contents().into_iter().filter(|(name, _)| name.starts_with("log."));
    let versions: Vec<_> = segments.map(|(name, bytes)| (name, bytes[8])).collect();
    let expected = [("log.0000000500000001", 2), ("log.0000000600000000", 3)];
    assert_eq!(versions, expected.map(|(name, version)| (name.to_owned(), version)));
    let recovered = reopen(&dir).expect("it is sound").recovered;
    let zxids: Vec<_> = recovered.entries.iter().map(|entry| entry.zxid.0).collect();
    assert_eq!(zxids, [5 << 32 | 1, 6 << 32, 6 << 32 | 1, 7 << 32 | 1]);
}

#[test]
fn state_file_version_1_is_read_and_rewritten_as_version_3() {
    let state = postcard::to_allocvec(&(Epoch(6), Epoch(5), Zxid::ZERO)).expect("it encodes");
    let mut content = Vec::new();
    for number in [2, STORE_ID, 0] {
        content.extend_from_slice(&number.to_le_bytes());
    }
    content.extend_from_slice(&u32::try_from(state.len()).expect("small").to_le_bytes());
    content.extend_from_slice(&state);
    let old = Kind { magic: *b"zabk-sta", version: 1, oldest: 1 }.seal(&content);
    let dir = MemDir::new();
    let mut file = dir.create("state").expect("nothing is in the way");
    for at in [0, 4096] {
        file.write_at(at, &old).expect("nothing is in the way");
    }
    let expected = DurableState {
        accepted_epoch: Epoch(6),
        current_epoch: Epoch(5),
        snapshot: Zxid::ZERO,
        ..DurableState::default()
    };
    let store = reopen(&dir).expect("it is sound");
    assert_eq!((store.recovered.state, store.notes), (expected, Vec::new()));
    assert_eq!(dir.bytes("state")[8], 3);
}

/// The files in `golden/state-2.txt`: a state file of version 2 and a segment of version 1.
#[test]
fn state_file_version_2_and_segment_version_1_are_read() {
    const SEGMENT: &str = "log.0000000500000001";
    let dir = MemDir::new();
    for (name, bytes) in undump(include_str!("golden/state-2.txt")) {
        dir.create(&name)
            .and_then(|mut file| file.write_at(0, &bytes))
            .expect("nothing is in the way");
    }
    let expected = DurableState {
        accepted_epoch: Epoch(6),
        current_epoch: Epoch(5),
        snapshot: Zxid((5 << 32) + 2),
        ..DurableState::default()
    };
    let mut store = reopen(&dir).expect("it is sound");
    assert_eq!((&store.recovered.state, &store.notes[..]), (&expected, &[][..]));
    assert_eq!(store.recovered.entries, [entry(3, "third")]);
    assert_eq!(dir.bytes("state")[8], 3);
    let append =
        |counter, text| DiskCommand::Append { id: WriteId(1), entry: entry(counter, text) };
    // A segment keeps its version when it is truncated; a new segment has the current version.
    store.log.run(&[append(4, "fourth")]).expect("nothing is in the way");
    assert_eq!((dir.bytes(SEGMENT)[8], dir.bytes("log.0000000500000004")[8]), (1, 2));
    let cut = DiskCommand::Truncate { id: WriteId(2), to: Zxid((5 << 32) + 2) };
    store.log.run(&[cut, append(3, "another third")]).expect("nothing is in the way");
    drop(store);
    let store = reopen(&dir).expect("it is sound");
    assert_eq!((store.recovered.entries, store.notes), (vec![entry(3, "another third")], vec![]));
    assert_eq!((dir.bytes(SEGMENT)[8], dir.bytes("log.0000000500000003")[8]), (1, 2));
}

/// Parses a dump of [`hex`] into files.
fn undump(dump: &str) -> Vec<(String, Vec<u8>)> {
    let mut files: Vec<(String, Vec<u8>)> = Vec::new();
    for line in dump.lines() {
        if let Some((name, size)) = line.split_once(", ") {
            let size = size.strip_suffix(" bytes").and_then(|size| size.parse().ok());
            files.push((name.to_owned(), vec![0; size.expect("a size")]));
            continue;
        }
        let at = usize::from_str_radix(&line[..6], 16).expect("an offset");
        let bytes = line[8..55].split_ascii_whitespace();
        let (_, file) = files.last_mut().expect("a file before its bytes");
        for (place, byte) in (at..).zip(bytes) {
            file[place] = u8::from_str_radix(byte, 16).expect("a byte");
        }
    }
    files
}

#[test]
fn snapshot_version_1_is_read() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    let (zxid, bytes) = (Zxid((5 << 32) + 2), Bytes::from_static(b"some nodes"));
    let chunk = DiskCommand::SnapshotChunk { zxid, index: 0, bytes: bytes.clone(), last: true };
    store.snapshots.run(&chunk).expect("nothing is in the way");
    drop(store);
    let name = "snapshot.0000000500000002";
    let written = dir.bytes(name);
    assert_eq!(written[8], 2);
    let old = Kind { magic: *b"zabk-snp", version: 1, oldest: 1 }.seal(&written[16..32]);
    let mut file = dir.open(name).expect("it was written");
    file.write_at(0, &old).expect("nothing is in the way");
    let store = reopen(&dir).expect("it is sound");
    let found = store.recovered.snapshot.expect("it is used");
    assert_eq!((found.zxid, found.chunks, store.notes), (zxid, vec![bytes], Vec::new()));
}

/// Appends a hex dump: sixteen bytes a line, without lines of zeros.
fn hex(dump: &mut String, bytes: &[u8]) {
    for (number, line) in bytes.chunks(16).enumerate() {
        if line.iter().all(|byte| *byte == 0) {
            continue;
        }
        let digits: Vec<String> = line.iter().map(|byte| format!("{byte:02x}")).collect();
        let text: String = line
            .iter()
            .map(|byte| if byte.is_ascii_graphic() { char::from(*byte) } else { '.' })
            .collect();
        writeln!(dump, "{:06x}  {:<47}  {text}", number * 16, digits.join(" "))
            .expect("strings grow");
    }
}
