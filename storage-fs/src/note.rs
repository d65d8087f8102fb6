//! Repairs made by `open`, for the operator.
//!
//! Owns their texts. Must not describe a repair that lost acknowledged data: that is a
//! [`StoreError`](crate::StoreError).

use std::fmt;

use zabkeeper_core::Zxid;

/// A repair made by `open`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Note {
    /// The two slots of the state file differ; the valid one with the higher generation was used.
    StateSlotLost,
    /// The torn batch at the end of the log was removed.
    TornBatch {
        /// Bytes from its start to the last non-zero byte of the file.
        bytes: u64,
        /// Offset of the batch in the segment.
        offset: u64,
        /// The segment.
        file: String,
    },
    /// A snapshot was damaged and renamed; recovery used an older snapshot, or the log alone.
    SnapshotSetAside {
        /// The snapshot.
        file: String,
        /// Its new name.
        aside: String,
        /// The damage.
        why: String,
    },
    /// An unreadable segment was renamed; it lies before the newest snapshot, so recovery does not
    /// need it.
    OldSegmentSetAside {
        /// The segment.
        file: String,
        /// Its new name.
        aside: String,
        /// The damage.
        why: String,
    },
    /// The log was removed, because it ended before a leader's snapshot, which replaces it.
    LogReplaced {
        /// The last transaction of the removed log.
        end: Zxid,
        /// The zxid of the snapshot.
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
                "{file} is damaged ({why}): set aside as {aside}; it lies before the newest \
                 snapshot \
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
