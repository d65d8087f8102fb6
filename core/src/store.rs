//! Disk commands and disk events, the state that the disk keeps, and the result of recovery.
//!
//! Owns the data that passes between the core and a store, as plain types. Must not know file
//! formats, nor decide when to write.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::identity::{EpochNonce, Identity};
use crate::ids::{Epoch, LinkId, ServerId, WriteId, Zxid};
use crate::log::epochs::EpochIndex;

/// Stands for this server in the voter list of a standalone server, whatever id it gets in an
/// ensemble later. A standalone server need not have an id yet.
pub const THIS_SERVER: ServerId = ServerId(u64::MAX);

/// An event of the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DiskEvent {
    /// Every command of the log lane up to this one is durable.
    Done(WriteId),
    /// Chunk `index` of the snapshot of this zxid is written. After the event of the last chunk,
    /// the whole snapshot is durable under its name.
    ChunkDone {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
    },
    /// A command failed, and the worker has stopped. The text is for the operator.
    Failed(String),
    /// The answer to [`DiskCommand::ReadLog`].
    LogRead {
        /// For which link.
        link: LinkId,
        /// The transactions, at least one; or why there are none.
        found: Result<Vec<Entry>, String>,
    },
    /// The answer to [`DiskCommand::ReadSnapshot`].
    SnapshotRead {
        /// For which link.
        link: LinkId,
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
        /// The chunk, and whether it is the last; or why there is none.
        found: Result<(Bytes, bool), String>,
    },
    /// The disk has no room for the snapshot of this zxid: chunk `index` and all later ones are not
    /// written, and the worker has removed the earlier ones. The worker accepts the next snapshot.
    SnapshotFailed {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
        /// The reason, for the operator.
        why: String,
    },
}

/// A command for the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DiskCommand {
    /// Log lane: append a transaction.
    Append {
        /// Number in the lane.
        id: WriteId,
        /// The transaction.
        entry: Entry,
    },
    /// Log lane: remove every transaction after a position. A barrier.
    Truncate {
        /// Number in the lane.
        id: WriteId,
        /// The position; there may be no transaction at it.
        to: Zxid,
    },
    /// Log lane: remove the whole log. All of it lies before a snapshot that is durable and named
    /// by the state file; the log continues after the snapshot. A barrier. A crash may leave any
    /// part of the old log: recovery ignores a log that ends before the snapshot.
    Rebase {
        /// Number in the lane.
        id: WriteId,
        /// The snapshot's position.
        snapshot: Zxid,
    },
    /// Log lane: replace the state file. A barrier: all earlier appends are durable before it.
    SaveState {
        /// Number in the lane.
        id: WriteId,
        /// The new content.
        state: DurableState,
    },
    /// Snapshot lane: write the next chunk of a snapshot. Chunk 0 begins a new file; by then the
    /// last snapshot is finished, dropped, or failed.
    SnapshotChunk {
        /// The snapshot's position in the history.
        zxid: Zxid,
        /// Counts from zero.
        index: u32,
        /// The content, opaque to the disk.
        bytes: Bytes,
        /// Does this chunk complete the snapshot? The disk then makes it durable under its name.
        last: bool,
    },
    /// Snapshot lane: remove the abandoned snapshot to which the latest chunks belong. Chunks may
    /// still be queued, or the snapshot may be complete and durable already.
    DropSnapshot {
        /// Its position in the history.
        zxid: Zxid,
    },
    /// Snapshot lane: remove snapshots older than this one, and log segments that lie wholly at or
    /// before it.
    Purge {
        /// The oldest snapshot to keep.
        oldest: Zxid,
    },
    /// Reader lane: read durable transactions after a position, for a learner.
    ReadLog {
        /// The link of the learner.
        link: LinkId,
        /// The position.
        after: Zxid,
        /// The approximate size limit of the answer, in bytes; at least one transaction is read.
        bytes: u32,
    },
    /// Reader lane: read a chunk of a durable snapshot, for a learner. The core asks for the chunks
    /// of a link in order.
    ReadSnapshot {
        /// For which link.
        link: LinkId,
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk, from zero.
        index: u32,
    },
}

/// The three disk workers. Each executes its commands in order; commands of different workers are
/// not ordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lane {
    /// Appends and state writes, which clients wait for.
    Log,
    /// Snapshot chunks and purging, which no client waits for.
    Snapshot,
    /// Reads for learners: changes nothing on the disk.
    Reader,
}

/// One transaction of the log: its zxid and its encoding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the history.
    pub zxid: Zxid,
    /// The encoded [`Txn`](crate::txn::Txn).
    pub bytes: Bytes,
}

/// The content of the state file: the promises of this server. The file is written whole, with a
/// checksum, in two slots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DurableState {
    /// Highest epoch promised to a would-be leader.
    pub accepted_epoch: Epoch,
    /// Epoch of the last leader whose history this server has accepted; never above
    /// `accepted_epoch`.
    pub current_epoch: Epoch,
    /// The newest snapshot that is durable under its name; zero if there is none.
    pub snapshot: Zxid,
    /// This server's disk was empty while those of other servers were not, so its log may lack
    /// transactions that it has acknowledged. The server does not count towards a quorum until an
    /// elected leader has synchronised it.
    pub damaged: bool,
    /// The voters of the last established epoch, as far as this server knows; empty if unknown
    /// (data of before format 3). A server that is not listed has acknowledged no transaction so
    /// far. A standalone server stores [`THIS_SERVER`].
    pub voters: BTreeSet<ServerId>,
    /// The identity of the ensemble; `None` before this server has followed or led in a version
    /// that has identities.
    pub identity: Option<Identity>,
    /// The nonces of the epochs that occur in the log, by rising epoch, as far as they are known.
    pub nonces: Vec<EpochNonce>,
    /// A leader has found that this server's state differs from the ensemble's at this zxid: the
    /// next start sets the data aside.
    pub differs: Option<Zxid>,
}

/// What recovery found on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Content of the state file.
    pub state: DurableState,
    /// The newest usable snapshot.
    pub snapshot: Option<SnapshotImage>,
    /// The log after that snapshot, zxids strictly rising.
    pub entries: Vec<Entry>,
    /// Zxids of all usable snapshots, oldest first, so that purging can count them.
    pub snapshots: Vec<Zxid>,
    /// The spans of the whole log, which begin at or before the snapshot and end where `entries`
    /// end, or at the snapshot.
    pub history: EpochIndex,
}

/// A snapshot as stored on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotImage {
    /// Its position in the history.
    pub zxid: Zxid,
    /// Its chunks in order.
    pub chunks: Vec<Bytes>,
}

impl DiskCommand {
    /// The worker that executes the command.
    pub fn lane(&self) -> Lane {
        match self {
            DiskCommand::Append { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. } => Lane::Log,
            DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. } => Lane::Snapshot,
            DiskCommand::ReadLog { .. } | DiskCommand::ReadSnapshot { .. } => Lane::Reader,
        }
    }
}

impl fmt::Display for DurableState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DurableState { accepted_epoch, current_epoch, snapshot, damaged, differs, .. } = self;
        let damaged = if *damaged { " damaged" } else { "" };
        let differs = differs.map_or_else(String::new, |zxid| format!(" differs={zxid}"));
        write!(
            f,
            "accepted={accepted_epoch} current={current_epoch} \
             snapshot={snapshot}{damaged}{differs}"
        )
    }
}

impl fmt::Display for DiskCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskCommand::Append { id, entry } => {
                write!(f, "append {id} {} {}B", entry.zxid, entry.bytes.len())
            }
            DiskCommand::SaveState { id, state } => write!(f, "state {id} {state}"),
            DiskCommand::Truncate { id, to } => write!(f, "truncate {id} to {to}"),
            DiskCommand::Rebase { id, snapshot } => write!(f, "rebase {id} on {snapshot}"),
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                let end = if *last { " last" } else { "" };
                write!(f, "snapshot {zxid} chunk {index} {}B{end}", bytes.len())
            }
            DiskCommand::DropSnapshot { zxid } => write!(f, "drop snapshot {zxid}"),
            DiskCommand::Purge { oldest } => write!(f, "purge before snapshot {oldest}"),
            DiskCommand::ReadLog { link, after, .. } => write!(f, "read after {after} for {link}"),
            DiskCommand::ReadSnapshot { link, zxid, index } => {
                write!(f, "read chunk {index} of snapshot {zxid} for {link}")
            }
        }
    }
}
