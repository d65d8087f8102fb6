//! The formats, byte for byte: who changes one has to raise its version and go on reading the old one.

use std::fmt::Write as _;

use bytes::Bytes;
use zabkeeper_core::io::{DiskCommand, DurableState, Entry};
use zabkeeper_core::{Epoch, WriteId, Zxid};

use super::mem::MemDir;
use super::world::{CLUSTER, reopen};
use crate::block::Kind;
use crate::vfs::{Vfs, VfsFile};

#[test]
fn formats_are_what_they_were() {
    let dir = MemDir::new();
    let mut store = reopen(&dir).expect("a new store");
    let entry = |counter: u64, text: &'static str| DiskCommand::Append {
        id: WriteId(1),
        entry: Entry {
            zxid: Zxid((5 << 32) + counter),
            bytes: Bytes::from_static(text.as_bytes()),
        },
    };
    let state = DurableState {
        accepted_epoch: Epoch(6),
        current_epoch: Epoch(5),
        snapshot: Zxid((5 << 32) + 2),
        damaged: false,
    };
    let commands =
        [entry(1, "first"), entry(2, "second"), DiskCommand::SaveState { id: WriteId(2), state }];
    store.log.run(&commands).expect("nothing is in the way");
    store.log.run(&[entry(3, "third")]).expect("nothing is in the way");
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

#[test]
fn a_state_file_of_version_1_is_read_as_not_damaged_and_becomes_one_of_version_2() {
    let state = postcard::to_allocvec(&(Epoch(6), Epoch(5), Zxid::ZERO)).expect("it encodes");
    let mut content = Vec::new();
    for number in [2, CLUSTER, 0] {
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
        damaged: false,
    };
    let store = reopen(&dir).expect("it is sound");
    assert_eq!((store.recovered.state, store.notes), (expected, Vec::new()));
    assert_eq!(dir.bytes("state")[8], 2);
}

/// Sixteen bytes a line; lines of zeros are left out.
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
