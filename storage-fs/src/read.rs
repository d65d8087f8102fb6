//! The reader lane: reads the log and snapshots for learners.
//!
//! Owns no file: it reads files of the other lanes. It can continue to read an open file that they
//! remove. Must not assume that a file it has seen still exists, nor change any file,
//! except that it renames a snapshot that it finds damaged, so that no later read uses it.
//!
//! The log lane may concurrently be writing the next batch, so an incomplete batch is the end of
//! the log. The reader may return a batch that is not durable yet; the leader has proposed it to
//! its learners already.

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent, Entry};
use zabkeeper_core::{LinkId, Zxid};

use crate::dir::Dir;
use crate::error::StoreError;
use crate::names::{self, FileName};
use crate::scan::{Place, Segment};
use crate::snapshot::{ChunkPlace, Snapshot};
use crate::vfs::Vfs;

/// Maximum number of links with a cached log position, and of links with an open snapshot. Those of
/// the oldest links are dropped; their next read has to search.
const LINKS: usize = 64;

/// Reads the log and snapshots for learners, concurrently with the two writing lanes.
pub struct ReaderLane<V: Vfs> {
    log_dir: Dir<V>,
    snapshot_dir: Dir<V>,
    store_id: u64,
    /// The log position at which each link's next read begins.
    places: BTreeMap<LinkId, LogPlace>,
    /// The snapshot being sent on each link. A link that has gone leaves its snapshot open; see
    /// [`ReaderLane::close_removed`].
    streams: BTreeMap<LinkId, Stream<V>>,
}

/// A position in the log.
#[derive(Clone, Copy)]
struct LogPlace {
    /// First zxid of the segment.
    segment: Zxid,
    place: Place,
}

/// A snapshot that is being read.
struct Stream<V: Vfs> {
    zxid: Zxid,
    snapshot: Snapshot<V>,
    next: ChunkPlace,
}

impl<V: Vfs> ReaderLane<V> {
    pub(crate) fn new(log_dir: Dir<V>, snapshot_dir: Dir<V>, store_id: u64) -> ReaderLane<V> {
        let (places, streams) = (BTreeMap::new(), BTreeMap::new());
        ReaderLane { log_dir, snapshot_dir, store_id, places, streams }
    }

    /// Runs one command of the reader lane. A failed read is part of the answer; it stops neither
    /// the lane nor the server.
    ///
    /// # Panics
    /// On a command of another lane.
    pub fn run(&mut self, command: &DiskCommand) -> DiskEvent {
        match command {
            DiskCommand::ReadLog { link, after, bytes } => {
                let found = self.read_log(*link, *after, *bytes as usize);
                DiskEvent::LogRead { link: *link, found }
            }
            DiskCommand::ReadSnapshot { link, zxid, index } => {
                let found = self.read_snapshot(*link, *zxid, *index).map_err(|fault| match fault {
                    Fault::Damaged(what) => self.set_aside(*zxid, what),
                    Fault::Unread(what) => what,
                });
                DiskEvent::SnapshotRead { link: *link, zxid: *zxid, index: *index, found }
            }
            DiskCommand::Append { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. }
            | DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. } => panic!("{command} is not for this lane"),
        }
    }

    /// Reads transactions after `after`, about `most` bytes of them. Fails if the log lacks
    /// them or is unreadable.
    fn read_log(&mut self, link: LinkId, after: Zxid, most: usize) -> Result<Vec<Entry>, String> {
        let known = self.places.remove(&link).filter(|known| known.place.last <= after);
        if known.is_none() {
            self.close_removed();
        }
        let mut wanted = Wanted { after, most, found: Vec::new(), size: 0 };
        match wanted.read(&self.log_dir, self.store_id, known) {
            Ok(place) => {
                self.places.insert(link, place);
                if self.places.len() > LINKS {
                    self.places.pop_first();
                }
            }
            Err(why) if wanted.found.is_empty() => return Err(why),
            // The next read runs into the same error and reports it.
            Err(_) => {}
        }
        if wanted.found.is_empty() {
            return Err(format!("the log has nothing after {after}"));
        }
        Ok(wanted.found)
    }

    /// Reads a chunk of a snapshot; the flag: is it the last?
    fn read_snapshot(
        &mut self,
        link: LinkId,
        zxid: Zxid,
        index: u32,
    ) -> Result<(Bytes, bool), Fault> {
        let known = self.streams.remove(&link);
        let mut stream = match known.filter(|s| s.zxid == zxid && s.next.index <= index) {
            Some(stream) => stream,
            None => {
                self.close_removed();
                self.open_snapshot(zxid)?
            }
        };
        loop {
            let unusable =
                |why| Fault::Damaged(format!("the snapshot at {zxid} is damaged: {why}"));
            let chunk = stream.snapshot.next_chunk(&mut stream.next)?;
            let Some(bytes) = chunk.map_err(unusable)? else {
                let what = format!("the snapshot at {zxid} ends before chunk {index}");
                return Err(Fault::Damaged(what));
            };
            // Earlier chunks are skipped; there are some only if the link's snapshot had been
            // closed.
            if stream.next.index > index {
                let last = stream.next.index == stream.snapshot.count();
                if last {
                    stream.snapshot.next_chunk(&mut stream.next)?.map_err(unusable)?;
                } else {
                    self.streams.insert(link, stream);
                    if self.streams.len() > LINKS {
                        self.streams.pop_first();
                    }
                }
                return Ok((bytes, last));
            }
        }
    }

    /// Closes the snapshots that have been removed, because the disk keeps the space of an open
    /// file. Only links that have gone were sent them: a snapshot that a learner still needs is
    /// kept.
    fn close_removed(&mut self) {
        if !self.streams.is_empty()
            && let Ok(names) = self.snapshot_dir.list()
        {
            let kept = names::snapshots(&names);
            self.streams.retain(|_, stream| kept.contains(&stream.zxid));
        }
    }

    fn open_snapshot(&self, zxid: Zxid) -> Result<Stream<V>, Fault> {
        match Snapshot::open(&self.snapshot_dir, zxid, self.store_id)? {
            Ok(snapshot) => Ok(Stream { zxid, snapshot, next: ChunkPlace::START }),
            Err(why) => Err(Fault::Damaged(format!("the snapshot at {zxid} is damaged: {why}"))),
        }
    }

    /// Can all chunks of the snapshot at `zxid` be read?
    fn is_sound(&self, zxid: Zxid) -> bool {
        let Ok(mut stream) = self.open_snapshot(zxid) else {
            return false;
        };
        loop {
            match stream.snapshot.next_chunk(&mut stream.next) {
                Ok(Ok(Some(_))) => {}
                Ok(Ok(None)) => return true,
                Ok(Err(_)) | Err(_) => return false,
            }
        }
    }

    /// Renames a damaged snapshot, and returns `what` with the new name appended.
    fn set_aside(&self, zxid: Zxid, what: String) -> String {
        if self.is_sound(zxid) {
            // A new snapshot at the same zxid has replaced the damaged one since it was opened.
            return what;
        }
        let name = FileName::Snapshot(zxid).to_string();
        let renamed = self.snapshot_dir.list().and_then(|names| {
            let aside = names::free_name(&name, &names);
            self.snapshot_dir.rename(&name, &aside).map(|()| aside)
        });
        match renamed {
            Ok(aside) => format!("{what}; it is kept as {aside}"),
            Err(error) => format!("{what}; it cannot be set aside: {}", words(error)),
        }
    }
}

/// Why there is no chunk.
enum Fault {
    /// The snapshot file is damaged.
    Damaged(String),
    /// The file could not be read, for another reason than damage.
    Unread(String),
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Fault {
        match error {
            StoreError::Damaged { .. } => Fault::Damaged(words(error)),
            StoreError::InUse { .. }
            | StoreError::DiskFull { .. }
            | StoreError::TooManyFiles { .. }
            | StoreError::Io { .. }
            | StoreError::UnknownVersion { .. }
            | StoreError::ForeignStore { .. } => Fault::Unread(words(error)),
        }
    }
}

/// The parameters of a log read, and the entries found so far.
struct Wanted {
    after: Zxid,
    most: usize,
    found: Vec<Entry>,
    /// Bytes of the entries in `found`.
    size: usize,
}

impl Wanted {
    /// Reads entries, from `known` if that still exists; it must not be past the first wanted
    /// transaction. Returns the position at which the next read begins.
    ///
    /// # Errors
    /// Why the read cannot continue; `found` may hold entries nevertheless.
    fn read<V: Vfs>(
        &mut self,
        dir: &Dir<V>,
        store_id: u64,
        known: Option<LogPlace>,
    ) -> Result<LogPlace, String> {
        // The names are listed before any segment is read: so a segment that is followed by another
        // one in this list has been written completely.
        let segments = names::segments(&dir.list().map_err(words)?);
        let known = known.filter(|known| segments.contains(&known.segment));
        let first = match &known {
            Some(known) => segments.partition_point(|first| *first < known.segment),
            None => segments.partition_point(|first| *first <= self.after).saturating_sub(1),
        };
        let (mut reached, mut entries) = (known, Vec::new());
        for first in &segments[first..] {
            let segment = Segment::open(dir, *first, store_id).map_err(words)?;
            let mut place = segment.start();
            match reached {
                Some(known) if known.segment == *first => place = known.place,
                Some(known) if known.place.last != place.last => {
                    let (end, begin) = (known.place.last, place.last);
                    return Err(format!("between {end} and {begin} there is no readable log"));
                }
                None if place.last > self.after => {
                    let (begin, after) = (place.last, self.after);
                    return Err(format!("the log begins after {begin}, behind {after}"));
                }
                Some(_) | None => {}
            }
            loop {
                let before = place;
                if !segment.next(&mut place, &mut entries).map_err(words)? {
                    break;
                }
                if !self.take(&mut entries) {
                    return Ok(LogPlace { segment: *first, place: before });
                }
            }
            reached = Some(LogPlace { segment: *first, place });
        }
        reached.ok_or_else(|| "there is no log".to_owned())
    }

    /// Adds the wanted entries of a batch to `found`; false once the size limit is reached.
    fn take(&mut self, entries: &mut Vec<Entry>) -> bool {
        for entry in entries.drain(..) {
            if entry.zxid <= self.after {
                continue;
            }
            if self.size >= self.most && !self.found.is_empty() {
                return false;
            }
            self.size += entry.bytes.len();
            self.found.push(entry);
        }
        true
    }
}

/// The text of an error without the operator advice of `Display`: a failed read does not stop the
/// server, and the file may have been purged meanwhile.
fn words(error: StoreError) -> String {
    match error {
        StoreError::Damaged { what, place } => format!("{place} is damaged: {what}"),
        error @ (StoreError::InUse { .. }
        | StoreError::DiskFull { .. }
        | StoreError::TooManyFiles { .. }
        | StoreError::Io { .. }
        | StoreError::UnknownVersion { .. }
        | StoreError::ForeignStore { .. }) => error.to_string(),
    }
}
