//! The log lane: appends, truncations and state writes. Client requests wait for it.
//!
//! Owns the newest log segment, the end of the log and the state file. Must not touch snapshots,
//! nor segments that end before a snapshot: the snapshot lane removes those.
//!
//! Invariants: a batch is written only when everything before it is durable; a segment gets its
//! final name only with a durable header; a transaction is removed only when the state file no
//! longer names it as durable; after an error the lane writes nothing.
//!
//! After recovery or a truncation the lane never writes to existing segments: the next append
//! begins a new one. To append to the last segment instead would save a file and three syncs per
//! start, but would mix bytes of two processes in one segment, and the durable offset in a batch
//! header would mean something different for each.

use std::sync::Arc;

use zabkeeper_core::store::{DiskCommand, Lane};
use zabkeeper_core::{WriteId, Zxid};

use crate::Locks;
use crate::cut::{self, Cut};
use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::segment::{BatchBuffer, FIRST_BATCH, SegmentHeader, begins_segment, follows};
use crate::state::{Slot, StateFile};
use crate::vfs::Vfs;

/// A batch that reaches this size in bytes is written, so that the buffer stays bounded.
const BATCH_LIMIT: u64 = 64 << 20;
/// Bytes that the buffer keeps allocated between batches: a thousand appends of one KiB.
const BUFFER_KEPT: usize = 1 << 20;

/// Runs appends, truncations and state writes. One thread at a time; independent of the snapshot
/// lane.
pub struct LogLane<V: Vfs> {
    dir: Dir<V>,
    state: StateFile<V>,
    segment_bytes: u64,
    /// The segment for the next batch; `None` until the first append after an open or a truncation.
    active: Option<Active<V>>,
    buffer: BatchBuffer,
    /// The last durable transaction of the log; in an empty log, the zxid that the log follows.
    last: Zxid,
    failed: Option<StoreError>,
    _locks: Arc<Locks<V::Lock>>,
}

/// The segment that is being written.
struct Active<V: Vfs> {
    file: DirFile<V>,
    header: SegmentHeader,
    /// Offset after the last batch; everything before it is durable.
    end: u64,
    /// Bytes preallocated.
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

    /// Runs all commands and makes them durable. Returns the id of the last one.
    ///
    /// Consecutive appends share one write and one sync, up to 64 MiB.
    ///
    /// # Errors
    /// The first failure; some commands may then be durable. Every later call returns the same
    /// error and does nothing, because after a failed sync the content of the disk is unknown.
    ///
    /// # Panics
    /// On an empty batch, a command of another lane, a zxid that does not follow the one before it,
    /// a truncation to before the snapshot named in the state file, or a rebase on a snapshot that
    /// the state file does not name or that the log has reached.
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

    /// Records the end of the log in the state file, durably, unless it is recorded already: so a
    /// later start can detect that the end is missing. The host calls it when the log has had no
    /// appends for a while, and before the host stops.
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
                    if begins_segment(entry.zxid) {
                        self.flush()?;
                        self.active = None;
                    }
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

    /// Removes all transactions after `to`. A power failure leaves a log that ends anywhere between
    /// `to` and its old end.
    fn truncate(&mut self, to: Zxid) -> Result<(), StoreError> {
        let Slot { store_id, state, .. } = self.state.current().clone();
        assert!(to >= state.snapshot, "cut to {to}, before the snapshot at {}", state.snapshot);
        if self.last <= to {
            return Ok(());
        }
        let cut = Cut::plan(&self.dir, to, store_id)?;
        let last = cut.last;
        // The state file comes first: a start that misses transactions named in it reports damage.
        self.state.note_end(last)?;
        self.state.save(&state, last)?;
        self.active = None;
        cut.run(&self.dir)?;
        self.last = last;
        Ok(())
    }

    /// Removes the whole log, because a leader's snapshot replaces it.
    fn rebase(&mut self, snapshot: Zxid) -> Result<(), StoreError> {
        let named = self.state.current().state.snapshot;
        assert!(named == snapshot, "rebased on {snapshot}, but the state file names {named}");
        assert!(self.last < snapshot, "rebased on {snapshot}, though the log is at {}", self.last);
        self.active = None;
        cut::remove_log(&self.dir, &self.dir.list()?)?;
        self.last = snapshot;
        Ok(())
    }

    /// Creates a segment with room for a batch of `size` bytes. The segment before it must be
    /// durable.
    fn begin_segment(&self, size: u64) -> Result<Active<V>, StoreError> {
        let store_id = self.state.current().store_id;
        let header = SegmentHeader::new(store_id, self.buffer.first(), self.last);
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

/// Preallocates `wanted` bytes, or if the disk is too full halves that until it fits, down to
/// `needed` bytes. Returns the size.
fn reserve<V: Vfs>(file: &mut DirFile<V>, wanted: u64, needed: u64) -> Result<u64, StoreError> {
    let mut size = wanted;
    loop {
        match file.preallocate(size) {
            Err(StoreError::DiskFull { .. }) if size > needed => size = (size / 2).max(needed),
            reserved => return reserved.map(|()| size),
        }
    }
}
