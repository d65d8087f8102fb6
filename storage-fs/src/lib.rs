//! The disk of a Zabkeeper server: a checksummed log, snapshots, a state file, and their recovery.
//!
//! Owns durability: what a lane has reported as done survives a power failure, and what does not survive is found
//! and named, never silently dropped. Knows zxids and bytes, no sessions or trees. The byte layouts are in
//! `docs/formats.md`.
//!
//! ```text
//! open(log_dir, snapshot_dir)   reads, judges, mends       recover
//!   -> Recovered                for Server::recover        scan, snapshot, state
//!   -> notes                    what it has mended         note
//!   -> LogLane                  appends and state writes   log
//!   -> SnapshotLane             snapshots and purging      lane
//!   -> ReaderLane               what learners lack         read
//! set_aside(..)                 begins anew, without a say aside
//! ```
//!
//! The lanes are for three threads: they share no memory, and no file that two of them write. The two that write stop
//! for good at their first error; only where room or descriptors lack for a snapshot, that is given up and the lane goes on.
//! The reader changes nothing, and its failures are answers.

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
    /// Bytes reserved for a log segment, and thus the unit in which the log is purged; a batch that is larger gets a
    /// segment of its own. Any number works: below some kilobytes every batch begins a segment, and of more than there is
    /// free a half is taken, or a half of that. Default 64 MiB, as ZooKeeper's `preAllocSize`.
    pub segment_bytes: u64,
    /// Random number that names the ensemble; used only where the directory has no state file yet, which then keeps
    /// it. Files of another cluster are refused.
    pub cluster_id: u64,
}

impl Options {
    /// Defaults, and this id for the cluster if the directory is new.
    pub fn new(cluster_id: u64) -> Options {
        Options { segment_bytes: 64 << 20, cluster_id }
    }
}

/// What keeps other processes out; the lanes that write hold it.
struct Locks<L> {
    _log: L,
    /// `None` where both directories are one.
    _snapshots: Option<L>,
}
