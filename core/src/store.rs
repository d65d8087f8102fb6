//! What a disk is asked and what it answers; what it keeps, and what recovery finds on it.
//!
//! Owns the data that passes between the core and a store, as plain types. Must not know how files hold it, nor decide when
//! anything is written.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::history::History;
use crate::identity::{EpochNonce, Identity};
use crate::ids::{Epoch, LinkId, ServerId, WriteId, Zxid};

/// In the list of voters of a server that is alone: itself, whatever number it will have in an ensemble. It need not have one
/// yet.
pub const THIS_SERVER: ServerId = ServerId(u64::MAX);

/// What the disk has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DiskEvent {
    /// Every command of the log lane up to this one is durable.
    Done(WriteId),
    /// The snapshot of this zxid: chunk number `index` is written; the last one's `Done` means the whole snapshot is
    /// durable under its name.
    ChunkDone {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
    },
    /// A command failed; the worker has stopped. What it said goes to the operator.
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
    /// There is no room for the snapshot of this zxid: chunk number `index` is not written, nor is any that follows it, and
    /// what was written of the snapshot is removed. The worker goes on with the next one.
    SnapshotFailed {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
        /// What lacks, for the operator.
        why: String,
    },
}

/// An order to the disk.
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
    /// Log lane: remove the whole log, which ends before a snapshot that is durable already and named by the state file;
    /// it goes on after that. A barrier. It may be cut off anywhere: a log that ends before the snapshot counts for
    /// nothing.
    Rebase {
        /// Number in the lane.
        id: WriteId,
        /// The snapshot's position.
        snapshot: Zxid,
    },
    /// Log lane: replace the state file. A barrier: it follows every append before it to the disk.
    SaveState {
        /// Number in the lane.
        id: WriteId,
        /// The new content.
        state: DurableState,
    },
    /// Snapshot lane: write the next chunk of a snapshot. Chunk 0 begins a new file; the last one is finished by then,
    /// dropped, or has failed.
    SnapshotChunk {
        /// The snapshot's position in the history.
        zxid: Zxid,
        /// Counts from zero.
        index: u32,
        /// The content, opaque to the disk.
        bytes: Bytes,
        /// Is the snapshot complete with it? Then it is made durable and gets its name.
        last: bool,
    },
    /// Snapshot lane: remove the snapshot whose chunks came last, which was given up. Though some may be under way still,
    /// all of it may be there, and durable.
    DropSnapshot {
        /// Its position in the history.
        zxid: Zxid,
    },
    /// Snapshot lane: remove snapshots older than this one, and log that lies wholly at or before it.
    Purge {
        /// The oldest snapshot to keep.
        oldest: Zxid,
    },
    /// Reader: transactions after a position, durable already, for a learner.
    ReadLog {
        /// For which link.
        link: LinkId,
        /// The position.
        after: Zxid,
        /// About so many bytes; at least one transaction.
        bytes: u32,
    },
    /// Reader: a chunk of a snapshot, durable already, for a learner. Chunks of a link are asked for in order.
    ReadSnapshot {
        /// For which link.
        link: LinkId,
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk, from zero.
        index: u32,
    },
}

/// The three workers of the disk. Each runs its commands in order; between them there is no order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lane {
    /// Appends and state writes: what clients wait for.
    Log,
    /// Snapshot chunks and purging: nobody waits.
    Snapshot,
    /// Reading for learners: changes nothing.
    Reader,
}

/// One transaction of the log: its position and its encoding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the history.
    pub zxid: Zxid,
    /// The encoded [`Txn`](crate::txn::Txn).
    pub bytes: Bytes,
}

/// The small file that says what a server has promised. Written whole, checksummed, in two slots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DurableState {
    /// Highest epoch promised to a would-be leader.
    pub accepted_epoch: Epoch,
    /// Epoch of the last leader whose history this server has taken over; never above `accepted_epoch`.
    pub current_epoch: Epoch,
    /// The newest snapshot that is durable under its name; zero where none was taken.
    pub snapshot: Zxid,
    /// The disk was found empty among servers whose disks were not, so what is on it now may lack what this server has
    /// acknowledged before. It has no say until a leader that others elected has filled it.
    pub damaged: bool,
    /// The voters that the last epoch was established under, as far as this server knows; empty where nobody has said so: data
    /// of before format 3. Whoever is none of them has acknowledged nothing so far. A server alone keeps [`THIS_SERVER`].
    pub voters: BTreeSet<ServerId>,
    /// The ensemble; `None` before this server has followed a leader, or led, in a build that knows identities.
    pub identity: Option<Identity>,
    /// The random numbers of the epochs that its log has transactions of, rising, as far as they are known.
    pub nonces: Vec<EpochNonce>,
    /// A leader has found that what is here is not the ensemble's at this position: the next start sets it aside.
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
    /// Names of all usable snapshots, oldest first, so that purging can count them.
    pub snapshots: Vec<Zxid>,
    /// The whole log, as far back as it goes: at or before the snapshot. Its end is that of `entries`, or the snapshot.
    pub history: History,
}

/// A snapshot as it lies on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotImage {
    /// Its position in the history.
    pub zxid: Zxid,
    /// Its chunks in order.
    pub chunks: Vec<Bytes>,
}

impl DiskCommand {
    /// Which worker runs it.
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
            "accepted={accepted_epoch} current={current_epoch} snapshot={snapshot}{damaged}{differs}"
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
