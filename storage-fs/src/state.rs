//! The state file: two slots with the server's durable state, and a note of where the log ends.
//!
//! Owns the file `state` and the rule that a saved state is never lost: a slot is overwritten only
//! while the other one is durable and valid. Must not interpret the state, such as its epochs.
//!
//! The note is written after each batch of the log and not synced: only a power failure can lose
//! it. So after a kill under load, a file other than the log has the end of the log. The note is
//! never ahead of the log.
//!
//! An open replaces the file and never repairs it in place. After a kill or a failed sync one slot
//! may be in the page cache only, and recovery cannot see which of the two is durable.

use std::num::NonZeroU128;

use zabkeeper_core::Zxid;
use zabkeeper_core::store::DurableState;

use crate::block::{self, BLOCK_END, Kind};
use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::vfs::{BootId, Vfs};

/// Magic and versions of a slot.
const KIND: Kind = Kind { magic: *b"zabk-sta", version: 3, oldest: 1 };
const SLOTS: [u64; 2] = [0, BLOCK_END];
/// Magic and versions of the note, and its offset. State files written before the note was
/// introduced end before it.
const NOTE_KIND: Kind = Kind { magic: *b"zabk-end", version: 1, oldest: 1 };
const NOTE: u64 = 2 * BLOCK_END;
/// Size of the file in bytes.
pub(crate) const BYTES: u64 = 3 * BLOCK_END;
/// Offset of the state's length in a slot's content.
const HEAD: usize = 40;
/// [`HEAD`] in versions 1 and 2, which had no boot id.
const OLDER_HEAD: usize = 24;

/// Content of a slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Slot {
    /// Rises with every save; the valid slot with the higher generation is used.
    pub(crate) generation: u64,
    /// The store id of all files of this server.
    pub(crate) store_id: u64,
    /// The log was durable up to this transaction when the slot was written: a log that ends before
    /// it is damaged.
    pub(crate) log_end: Zxid,
    /// The boot under which the log was last written; `None` where the system has no boot ids.
    pub(crate) boot: Option<BootId>,
    /// The state of the core: accepted epoch, current epoch and so on.
    pub(crate) state: DurableState,
}

/// The open state file.
pub(crate) struct StateFile<V: Vfs> {
    file: DirFile<V>,
    current: Slot,
}

impl Slot {
    /// The slot of a new store.
    pub(crate) fn fresh(store_id: u64) -> Slot {
        let state = DurableState::default();
        Slot { generation: 1, store_id, log_end: Zxid::ZERO, boot: None, state }
    }

    fn encode(&self) -> Vec<u8> {
        let state = postcard::to_allocvec(&self.state).expect("plain data encodes");
        let length = u32::try_from(state.len()).expect("a few numbers are short");
        let mut content = Vec::with_capacity(HEAD + 4 + state.len());
        content.extend_from_slice(&self.generation.to_le_bytes());
        content.extend_from_slice(&self.store_id.to_le_bytes());
        content.extend_from_slice(&self.log_end.0.to_le_bytes());
        let boot = self.boot.map_or(0, |BootId(id)| id.get());
        content.extend_from_slice(&boot.to_le_bytes());
        content.extend_from_slice(&length.to_le_bytes());
        content.extend_from_slice(&state);
        KIND.seal(&content)
    }

    fn decode(version: u32, content: &[u8]) -> Option<Slot> {
        let head = if version < 3 { OLDER_HEAD } else { HEAD };
        let length = block::u32_at(content, head) as usize;
        let mut state = content[head + 4..].get(..length)?.to_vec();
        if version == 1 {
            // Version 1 had no field `damaged`.
            state.push(0);
        }
        if version < 3 {
            // Versions 1 and 2 had no voters, identity, random numbers of epochs and `differs`.
            state.extend([0; 4]);
        }
        Some(Slot {
            generation: block::u64_at(content, 0),
            store_id: block::u64_at(content, 8),
            log_end: Zxid(block::u64_at(content, 16)),
            boot: if version < 3 { None } else { boot_at(content, 24) },
            state: postcard::from_bytes(&state).ok()?,
        })
    }
}

/// The boot id at offset `at`: zero means none.
fn boot_at(content: &[u8], at: usize) -> Option<BootId> {
    let id = u128::from_le_bytes(*content[at..].first_chunk().expect("a block is long enough"));
    NonZeroU128::new(id).map(BootId)
}

impl<V: Vfs> StateFile<V> {
    /// Creates the file, atomically replacing an existing one: a power failure leaves the old or
    /// the new one.
    pub(crate) fn create(dir: &Dir<V>, slot: Slot) -> Result<StateFile<V>, StoreError> {
        let bytes = slot.encode();
        let mut file = dir.create(&FileName::State.unfinished())?;
        for at in SLOTS {
            file.write_at(at, &bytes)?;
        }
        file.write_at(NOTE, &encode_note(slot.log_end))?;
        file.sync()?;
        file.publish(FileName::State.to_string())?;
        Ok(StateFile { file, current: slot })
    }

    pub(crate) fn current(&self) -> &Slot {
        &self.current
    }

    /// Writes the note that the log is durable up to `log_end`. The next save makes the note
    /// durable.
    pub(crate) fn note_end(&mut self, log_end: Zxid) -> Result<(), StoreError> {
        self.file.write_at(NOTE, &encode_note(log_end))
    }

    /// Saves the state, durably; the log must be durable up to `log_end`.
    pub(crate) fn save(&mut self, state: &DurableState, log_end: Zxid) -> Result<(), StoreError> {
        self.current.generation += 1;
        self.current.log_end = log_end;
        self.current.state = state.clone();
        let bytes = self.current.encode();
        for at in SLOTS {
            self.file.write_at(at, &bytes)?;
            self.file.sync()?;
        }
        Ok(())
    }
}

fn encode_note(log_end: Zxid) -> Vec<u8> {
    NOTE_KIND.seal(&log_end.0.to_le_bytes())
}

/// Reads the state file and changes nothing. `log_end` is the greater of the slot's and the note's.
/// The flag: are both slots equal? If not, a save was interrupted or one slot is
/// damaged.
///
/// # Errors
/// `Damaged` if no slot is valid, because both slots were durable before the file got its name; a
/// slot of a later version; and those of the file system.
pub(crate) fn read<V: Vfs>(dir: &Dir<V>) -> Result<(Slot, bool), StoreError> {
    let file = dir.open(FileName::State.to_string())?;
    let [first, second] = SLOTS.map(|at| file.read_block(at, &KIND, Slot::decode));
    let [first, second] = [first?.flatten(), second?.flatten()];
    let alike = first == second;
    let newest = match (first, second) {
        (Some(first), Some(second)) if second.generation > first.generation => Some(second),
        (first, second) => first.or(second),
    };
    match newest {
        Some(mut slot) => {
            let decode = |_, content: &[u8]| Zxid(block::u64_at(content, 0));
            if let Some(log_end) = file.read_block(NOTE, &NOTE_KIND, decode)? {
                slot.log_end = slot.log_end.max(log_end);
            }
            Ok((slot, alike))
        }
        None => Err(file.damaged("the checksums of both its slots are wrong")),
    }
}
