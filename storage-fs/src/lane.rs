//! The snapshot lane: writes snapshots, and purges the snapshots and segments that they replace. No
//! client request waits for it.
//!
//! Owns snapshot files and the removal of old log segments. Must not touch the newest segment,
//! which the log lane writes.
//!
//! Invariants: a snapshot gets its final name only when all of its content is durable; segments are
//! removed only before a snapshot that exists and is durable. When disk space or file descriptors
//! run out, the lane abandons the snapshot: nothing relies on it yet.

use std::sync::Arc;

use zabkeeper_core::Zxid;
use zabkeeper_core::store::{DiskCommand, DiskEvent, Lane};

use crate::Locks;
use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::{self, FileName};
use crate::snapshot::{CHUNK_HEADER, FIRST_CHUNK, SnapshotHeader};
use crate::vfs::Vfs;

/// Bytes written between two syncs of an unfinished snapshot: one sync of a gigabyte at the end
/// would delay the syncs of the log by seconds on common file systems.
const SYNC_BYTES: u64 = 8 << 20;

/// Runs snapshot chunks and purges. One thread at a time; independent of the log lane.
pub struct SnapshotLane<V: Vfs> {
    log_dir: Dir<V>,
    dir: Dir<V>,
    store_id: u64,
    /// Free bytes that a large snapshot must leave for the log: the size of a segment.
    spared: u64,
    unfinished: Option<Unfinished<V>>,
    /// The abandoned snapshot, for which more chunks may arrive, and the reason.
    given_up: Option<(Zxid, String)>,
    failed: Option<StoreError>,
    _locks: Arc<Locks<V::Lock>>,
}

/// The snapshot that is being written.
struct Unfinished<V: Vfs> {
    file: DirFile<V>,
    header: SnapshotHeader,
    /// Index of the next chunk.
    next: u32,
    /// Offset of the next chunk.
    end: u64,
    /// Offset up to which the file has been synced.
    synced: u64,
}

impl<V: Vfs> SnapshotLane<V> {
    pub(crate) fn new(
        log_dir: Dir<V>,
        dir: Dir<V>,
        store_id: u64,
        spared: u64,
        locks: Arc<Locks<V::Lock>>,
    ) -> SnapshotLane<V> {
        SnapshotLane {
            log_dir,
            dir,
            store_id,
            spared,
            unfinished: None,
            given_up: None,
            failed: None,
            _locks: locks,
        }
    }

    /// Runs one command. The answer to a chunk is `ChunkDone`; only that of the last chunk means
    /// that the snapshot is durable. When disk space or file descriptors run out, the answer to
    /// this chunk and to all later ones of the snapshot is `SnapshotFailed`. `DropSnapshot` and
    /// `Purge` return `None`.
    ///
    /// # Errors
    /// The first failure. Every later call returns the same error and does nothing.
    ///
    /// # Panics
    /// On a command of another lane, or a chunk out of order.
    pub fn run(&mut self, command: &DiskCommand) -> Result<Option<DiskEvent>, StoreError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let result = self.run_one(command);
        if let Err(error) = &result {
            self.failed = Some(error.clone());
        }
        result
    }

    fn run_one(&mut self, command: &DiskCommand) -> Result<Option<DiskEvent>, StoreError> {
        match command {
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                self.write(*zxid, *index, bytes, *last).map(Some)
            }
            DiskCommand::DropSnapshot { zxid } => {
                self.drop_snapshot(*zxid)?;
                Ok(None)
            }
            DiskCommand::Purge { oldest } => {
                match self.purge(*oldest) {
                    // The next purge removes the rest.
                    Err(StoreError::TooManyFiles { .. }) | Ok(()) => Ok(None),
                    Err(error) => Err(error),
                }
            }
            DiskCommand::Append { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. } => {
                let lane = command.lane();
                assert_eq!(lane, Lane::Snapshot, "{command} is not for this lane");
                Ok(None)
            }
        }
    }

    /// Writes a chunk, unless its snapshot is abandoned before or by this call.
    fn write(
        &mut self,
        zxid: Zxid,
        index: u32,
        bytes: &[u8],
        last: bool,
    ) -> Result<DiskEvent, StoreError> {
        if index == 0 {
            self.given_up = None;
        }
        if self.given_up.is_none() {
            match self.try_write(zxid, index, bytes, last) {
                Ok(()) => {}
                Err(error) => match error.shortage() {
                    Some(lacks) => self.give_up(zxid, lacks)?,
                    None => return Err(error),
                },
            }
        }
        if let Some((of, why)) = &self.given_up {
            assert_eq!(*of, zxid, "a chunk of a snapshot that has not begun");
            return Ok(DiskEvent::SnapshotFailed { zxid, index, why: why.clone() });
        }
        if last {
            self.dir.sync()?;
        }
        Ok(DiskEvent::ChunkDone { zxid, index })
    }

    /// Does all but the sync of the directory. A failure of that sync must not abandon the
    /// snapshot: its final name may be durable already.
    fn try_write(
        &mut self,
        zxid: Zxid,
        index: u32,
        bytes: &[u8],
        last: bool,
    ) -> Result<(), StoreError> {
        if index == 0 {
            self.begin(zxid)?;
        }
        self.chunk(zxid, index, bytes)?;
        if last { self.finish() } else { Ok(()) }
    }

    /// Abandons a snapshot and removes its unfinished file. If even the removal lacks disk space,
    /// the next start removes the file.
    fn give_up(&mut self, zxid: Zxid, why: String) -> Result<(), StoreError> {
        self.unfinished = None;
        self.given_up = Some((zxid, why));
        match self.dir.remove_if_there(&FileName::Snapshot(zxid).unfinished()) {
            Err(error) if error.shortage().is_none() => Err(error),
            Ok(()) | Err(_) => Ok(()),
        }
    }

    fn begin(&mut self, zxid: Zxid) -> Result<(), StoreError> {
        assert!(self.unfinished.is_none(), "snapshot {zxid} begins before the last one has ended");
        let header = SnapshotHeader { store_id: self.store_id, zxid };
        let mut file = self.dir.create(&FileName::Snapshot(zxid).unfinished())?;
        file.write_at(0, &header.encode())?;
        self.unfinished = Some(Unfinished { file, header, next: 0, end: FIRST_CHUNK, synced: 0 });
        Ok(())
    }

    fn chunk(&mut self, zxid: Zxid, index: u32, content: &[u8]) -> Result<(), StoreError> {
        let unfinished = self.unfinished.as_mut().expect("chunk 0 begins a snapshot");
        let expected = (unfinished.header.zxid, unfinished.next);
        assert_eq!((zxid, index), expected, "snapshot and chunk out of order");
        unfinished.file.write_at(unfinished.end, &unfinished.header.chunk(index, content))?;
        unfinished.file.write_at(unfinished.end + CHUNK_HEADER as u64, content)?;
        unfinished.end += (CHUNK_HEADER + content.len()) as u64;
        unfinished.next += 1;
        if unfinished.end - unfinished.synced >= SYNC_BYTES {
            self.dir.check_room(unfinished.file.name(), self.spared)?;
            unfinished.file.sync()?;
            unfinished.synced = unfinished.end;
        }
        Ok(())
    }

    fn finish(&mut self) -> Result<(), StoreError> {
        let mut done = self.unfinished.take().expect("a chunk has been written");
        done.file.write_at(done.end, &done.header.footer(done.next, done.end))?;
        done.file.sync()?;
        self.dir.rename(done.file.name(), &FileName::Snapshot(done.header.zxid).to_string())
    }

    /// Removes a snapshot without a sync: if a power failure brings it back, it is harmless, as in
    /// [`Self::purge`].
    fn drop_snapshot(&mut self, zxid: Zxid) -> Result<(), StoreError> {
        if self.given_up.take_if(|(of, _)| *of == zxid).is_some() {
            return Ok(());
        }
        match self.unfinished.take() {
            Some(dropped) => {
                assert_eq!(dropped.header.zxid, zxid, "another snapshot is being written");
                self.dir.remove(dropped.file.name())
            }
            None => self.dir.remove(&FileName::Snapshot(zxid).to_string()),
        }
    }

    /// Removes snapshots older than `oldest`, and segments that end before it. No sync: files that
    /// a power failure brings back do no harm, and the next purge removes them. If a directory
    /// cannot be listed for lack of resources, the rest waits for the next purge, too.
    fn purge(&mut self, oldest: Zxid) -> Result<(), StoreError> {
        let snapshots = match self.dir.list() {
            Err(error) if error.shortage().is_some() => return Ok(()),
            listed => listed?,
        };
        let kept = FileName::Snapshot(oldest).to_string();
        if !snapshots.contains(&kept) {
            // The reader lane has set it aside as damaged. Older snapshots and segments are needed
            // until there is a newer snapshot.
            return Ok(());
        }
        for zxid in names::snapshots(&snapshots).into_iter().filter(|zxid| *zxid < oldest) {
            self.dir.remove(&FileName::Snapshot(zxid).to_string())?;
        }
        let segments = match self.log_dir.list() {
            Err(error) if error.shortage().is_some() => return Ok(()),
            listed => names::segments(&listed?),
        };
        for pair in segments.windows(2) {
            // A segment ends before the first transaction of the next one. The segment that holds
            // the snapshot's own transaction stays, even if the log lane concurrently truncates the
            // log after it: so a log that has reached a snapshot never ends before it.
            if pair[1] > oldest {
                break;
            }
            // The log lane may be removing the whole log, because a leader's snapshot replaces it.
            self.log_dir.remove_if_there(&FileName::Log(pair[0]).to_string())?;
        }
        Ok(())
    }
}
