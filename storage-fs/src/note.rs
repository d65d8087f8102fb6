//! What opening the store has found and mended, for the operator.
//!
//! Owns the words. Whatever is here was mended without losing anything that was acknowledged; what cannot be is a
//! [`StoreError`](crate::StoreError).

use std::fmt;

use zabkeeper_core::Zxid;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// One slot of the state file holds nothing.
    StateSlotLost,
    /// The last batch of the log was cut off.
    TornBatch {
        /// Its bytes, as far as they are there.
        bytes: u64,
        /// Where it began.
        offset: u64,
        /// The segment.
        file: String,
    },
    /// A snapshot cannot be used, an older one can.
    SnapshotSetAside {
        /// The snapshot.
        file: String,
        /// Its name from now on.
        aside: String,
        /// What is wrong with it.
        why: String,
    },
    /// A segment cannot be read that this server itself does not need.
    OldSegmentSetAside {
        /// The segment.
        file: String,
        /// Its name from now on.
        aside: String,
        /// What is wrong with it.
        why: String,
    },
    /// A leader's snapshot has taken the place of the whole log.
    LogReplaced {
        /// Where the log ended.
        end: Zxid,
        /// Where the snapshot is.
        snapshot: Zxid,
    },
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Note::StateSlotLost => write!(
                f,
                "a save of the state file was cut short, or one of its slots is damaged: the other \
                 one holds"
            ),
            Note::TornBatch { bytes, offset, file } => write!(
                f,
                "cut a torn batch of {bytes} bytes at byte {offset} of {file}: it was never \
                 acknowledged"
            ),
            Note::SnapshotSetAside { file, aside, why } => write!(
                f,
                "{file} is damaged ({why}): set aside as {aside}, recovered from an older snapshot \
                 and the log"
            ),
            Note::OldSegmentSetAside { file, aside, why } => write!(
                f,
                "{file} is damaged ({why}): set aside as {aside}; it lies before the newest snapshot \
                 and is not needed, but no learner can be served from it"
            ),
            Note::LogReplaced { end, snapshot } => write!(
                f,
                "the log ended at {end}, before the snapshot at {snapshot}, which came from a \
                 leader: removed the log, and the history begins there"
            ),
        }
    }
}
