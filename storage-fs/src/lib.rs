//! The disk of a Zabkeeper server: a checksummed log, snapshots, a state file, and their recovery.
//!
//! Owns durability: data that a lane has reported as done survives a power failure, and recovery
//! reports every loss. Knows zxids and bytes. Must not know sessions or trees. The byte layouts are
//! in `docs/formats.md`.
//!
//! ```text
//! open(log_dir, snapshot_dir)   reads, checks, repairs     recover
//!   -> Recovered                for Server::recover        scan, snapshot, state
//!   -> notes                    the repairs made           note
//!   -> LogLane                  appends and state writes   log
//!   -> SnapshotLane             snapshots and purging      lane
//!   -> ReaderLane               reads for learners         read
//! set_aside(..)                 replaces a damaged store   aside
//! ```
//!
//! Each lane runs on a thread of its own: the three share no memory, and no two write the same
//! file. The log lane and the snapshot lane fail for good at their first error, with one exception:
//! when disk space or file descriptors run out, the snapshot lane abandons the snapshot and goes
//! on. The reader lane reports failures in its answers; its only change is to rename a damaged
//! snapshot.

mod aside;
mod block;
mod cut;
mod dir;
mod error;
mod lane;
mod log;
mod names;
mod note;
mod read;
mod recover;
mod scan;
mod segment;
mod snapshot;
mod state;
#[cfg(test)]
mod tests;
pub mod vfs;

pub use aside::set_aside;
pub use error::StoreError;
pub use lane::SnapshotLane;
pub use log::LogLane;
pub use note::Note;
pub use read::ReaderLane;
pub use recover::{Inspected, Opened, inspect, open};
pub use vfs::os::OsDir;

/// Settings of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Options {
    /// Bytes preallocated for a log segment, and thus the unit in which the log is purged; a larger
    /// batch gets a segment of its own. Any value is valid: below some kilobytes every batch begins
    /// a segment, and if the disk is too full the size is halved until it fits. Default 64 MiB, as
    /// ZooKeeper's `preAllocSize`.
    pub segment_bytes: u64,
    /// Random id of this server's store; used only if the directory has no state file yet, and then
    /// stored in it. Files with another store id are refused.
    pub store_id: u64,
}

impl Options {
    /// Default options; `store_id` applies only to a directory without a state file.
    pub fn new(store_id: u64) -> Options {
        Options { segment_bytes: 64 << 20, store_id }
    }
}

/// Directory locks that keep other processes out; both writing lanes hold them.
struct Locks<L> {
    _log: L,
    /// `None` if the log directory and the snapshot directory are the same.
    _snapshots: Option<L>,
}
