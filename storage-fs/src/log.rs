//! The log lane: appends, cuts and state writes, what clients wait for.
//!
//! Owns the newest log segment, the end of the log and the state file. Must not touch segments that lie before a
//! snapshot (the snapshot lane removes them) nor snapshots.
//!
//! Invariants: a batch is written only when everything before it is durable; a segment gets its name only with a
//! durable header; nothing is cut off the log that the state file still vouches for; after an error nothing is written
//! any more.
//!
//! Segments that recovery has judged, or that a cut has left, are never written again: the next append begins a new
//! one. The alternative, going on where the last one was cut, saves a file and its three syncs for each start, but mixes
//! bytes of two lives in one segment, and then what a header proves depends on which life wrote it.

use std::sync::Arc;

use zabkeeper_core::store::{DiskCommand, Lane};
use zabkeeper_core::{WriteId, Zxid};

use crate::Locks;
use crate::cut::{self, Cut};
use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::segment::{BatchBuffer, FIRST_BATCH, SegmentHeader, follows};
use crate::state::{Slot, StateFile};
use crate::vfs::Vfs;

/// A batch is closed when it reaches this size, so that the buffer stays bounded.
const BATCH_LIMIT: u64 = 64 << 20;
/// Memory that the buffer keeps between batches: a thousand appends of a kilobyte.
const BUFFER_KEPT: usize = 1 << 20;

/// Runs appends, cuts and state writes. One thread at a time; independent of the snapshot lane.
pub struct LogLane<V: Vfs> {
    dir: Dir<V>,
    state: StateFile<V>,
    segment_bytes: u64,
    /// Where the next batch goes; `None` until the first append after an open or a cut.
    active: Option<Active<V>>,
    buffer: BatchBuffer,
    /// The last transaction that is durable in the log, or the position that the log goes on after.
    last: Zxid,
    failed: Option<StoreError>,
    _locks: Arc<Locks<V::Lock>>,
}

/// The segment that is being written.
struct Active<V: Vfs> {
    file: DirFile<V>,
    header: SegmentHeader,
    /// Behind the last batch: all before it is durable.
    end: u64,
    /// Bytes reserved.
    size: u64,
}

impl<V: Vfs> LogLane<V> {
    pub(crate) fn new(
        dir: Dir<V>,
        state: StateFile<V>,
        last: Zxid,
        segment_bytes: u64,
        locks: Arc<Locks<V::Lock>>,
    ) -> LogLane<V> {
        LogLane {
            dir,
            state,
            segment_bytes,
            active: None,
            buffer: BatchBuffer::default(),
            last,
            failed: None,
            _locks: locks,
        }
    }

    /// Runs all commands; when it returns, all of them are durable. Returns the last one's id.
    ///
    /// Appends that stand together share one write and one sync, except that a batch is closed at 64 MiB.
    ///
    /// # Errors
    /// The first failure; some commands may then be durable. Every later call returns the same error and does
    /// nothing, because after a failed sync nobody knows what the disk holds.
    ///
    /// # Panics
    /// On an empty batch, a command of another lane, a zxid that does not follow the one before it, a cut below the
    /// snapshot that the state file names, or a rebase on a snapshot that it does not name or the log has reached.
    pub fn run(&mut self, batch: &[DiskCommand]) -> Result<WriteId, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.run_all(batch);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    /// Records in the state file where the log ends, durably, unless that stands there already: a later start then knows
    /// if the end is missing. For a driver whose log has been quiet for a while, or that stops.
    ///
    /// # Errors
    /// Those of [`LogLane::run`].
    pub fn record_end(&mut self) -> Result<(), StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let Slot { log_end, state, .. } = self.state.current();
        if *log_end == self.last {
            return Ok(());
        }
        let state = state.clone();
        let result = self.state.save(&state, self.last);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn run_all(&mut self, batch: &[DiskCommand]) -> Result<WriteId, StoreError> {
        let mut done = None;
        for command in batch {
            match command {
                DiskCommand::Append { id, entry } => {
                    let previous =
                        if self.buffer.is_empty() { self.last } else { self.buffer.last() };
                    assert!(
                        follows(previous, entry.zxid),
                        "transaction {} appended after {previous}",
                        entry.zxid
                    );
                    self.buffer.push(entry);
                    if self.buffer.size() >= BATCH_LIMIT {
                        self.flush()?;
                    }
                    done = Some(*id);
                }
                DiskCommand::SaveState { id, state } => {
                    self.flush()?;
                    self.state.save(state, self.last)?;
                    done = Some(*id);
                }
                DiskCommand::Truncate { id, to } => {
                    self.flush()?;
                    self.truncate(*to)?;
                    done = Some(*id);
                }
                DiskCommand::Rebase { id, snapshot } => {
                    self.flush()?;
                    self.rebase(*snapshot)?;
                    done = Some(*id);
                }
                DiskCommand::SnapshotChunk { .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {
                    let lane = command.lane();
                    assert_eq!(lane, Lane::Log, "{command} is not for this lane");
                }
            }
        }
        self.flush()?;
        Ok(done.expect("a batch has commands"))
    }

    /// Makes the buffered entries durable as one batch.
    fn flush(&mut self) -> Result<(), StoreError> {
        if self.buffer.is_empty() {
            return Ok(());
        }
        let size = self.buffer.size();
        let mut active = match self.active.take() {
            Some(active) if active.end + size <= active.size => active,
            Some(_) | None => self.begin_segment(size)?,
        };
        let bytes = self.buffer.seal(&active.header, active.end, active.end);
        active.file.write_at(active.end, bytes)?;
        active.file.sync()?;
        active.end += size;
        self.active = Some(active);
        self.last = self.buffer.last();
        self.buffer.clear(BUFFER_KEPT);
        self.state.note_end(self.last)
    }

    /// Removes everything after `to`. A power failure leaves a log that ends somewhere from `to` to its old end.
    fn truncate(&mut self, to: Zxid) -> Result<(), StoreError> {
        let Slot { cluster, state, .. } = self.state.current().clone();
        assert!(to >= state.snapshot, "cut to {to}, before the snapshot at {}", state.snapshot);
        if self.last <= to {
            return Ok(());
        }
        let cut = Cut::plan(&self.dir, to, cluster)?;
        let last = cut.last;
        // The promise first: to miss what is still vouched for would be damage.
        self.state.note_end(last)?;
        self.state.save(&state, last)?;
        self.active = None;
        cut.run(&self.dir)?;
        self.last = last;
        Ok(())
    }

    /// Removes everything: a leader's snapshot has taken its place.
    fn rebase(&mut self, snapshot: Zxid) -> Result<(), StoreError> {
        let named = self.state.current().state.snapshot;
        assert!(named == snapshot, "rebased on {snapshot}, but the state file names {named}");
        assert!(self.last < snapshot, "rebased on {snapshot}, though the log is at {}", self.last);
        self.active = None;
        cut::remove_log(&self.dir, &self.dir.list()?)?;
        self.last = snapshot;
        Ok(())
    }

    /// A new segment with room for a batch of `size` bytes. Everything in the one before it is durable.
    fn begin_segment(&self, size: u64) -> Result<Active<V>, StoreError> {
        let cluster = self.state.current().cluster;
        let header = SegmentHeader::new(cluster, self.buffer.first(), self.last);
        let name = FileName::Log(header.first);
        let needed = FIRST_BATCH + size;
        let mut file = self.dir.create(&name.unfinished())?;
        file.write_at(0, &header.encode())?;
        let size = reserve(&mut file, self.segment_bytes.max(needed), needed)?;
        file.sync()?;
        file.publish(name.to_string())?;
        Ok(Active { file, header, end: FIRST_BATCH, size })
    }
}

/// Reserves room for a segment and says how much: as much as is wanted, or of what there is at least what is needed.
fn reserve<V: Vfs>(file: &mut DirFile<V>, wanted: u64, needed: u64) -> Result<u64, StoreError> {
    let mut size = wanted;
    loop {
        match file.preallocate(size) {
            Err(StoreError::DiskFull { .. }) if size > needed => size = (size / 2).max(needed),
            reserved => return reserved.map(|()| size),
        }
    }
}
