//! Truncates the log, or removes it.
//!
//! Owns which segments are removed and in which order: newest first, each removal durable before
//! the next, so that a power failure leaves a log without a hole. Must not change the state file:
//! the caller does that first.
//!
//! A segment is shortened by a copy that is renamed over it. So the cut is atomic, no removed bytes
//! remain after the new end, and a reader that has the old file open can continue to read it.

use zabkeeper_core::Zxid;
use zabkeeper_core::store::Entry;

use crate::dir::Dir;
use crate::error::StoreError;
use crate::names::{self, FileName};
use crate::scan::{Place, Segment};
use crate::segment::BatchBuffer;
use crate::vfs::Vfs;

/// Bytes copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// The steps that truncate the log at a zxid.
pub(crate) struct Cut<V: Vfs> {
    /// The last transaction that stays; if none stays, the one that the log follows.
    pub(crate) last: Zxid,
    /// First zxids of the segments to remove, oldest first.
    removed: Vec<Zxid>,
    /// The segment to shorten: it keeps the batches before this place, and these entries of the
    /// batch at it.
    shortened: Option<(Segment<V>, Place, Vec<Entry>)>,
}

impl<V: Vfs> Cut<V> {
    /// Finds the steps for a log that has transactions after `to`, and changes nothing.
    ///
    /// The snapshot lane may concurrently remove segments that end at or before a snapshot, and so
    /// at or before `to`. The segment to shorten has transactions after `to`, so it is not among
    /// them. A segment that ends at or before `to` is not opened: the next segment's header has
    /// its end.
    ///
    /// # Errors
    /// A damaged log, and those of the file system.
    pub(crate) fn plan(dir: &Dir<V>, to: Zxid, store_id: u64) -> Result<Cut<V>, StoreError> {
        let mut kept = names::segments(&dir.list()?);
        let removed = kept.split_off(kept.partition_point(|first| *first <= to));
        if let Some(first) = removed.first() {
            let last = Segment::open(dir, *first, store_id)?.header.after;
            if last <= to {
                return Ok(Cut { last, removed, shortened: None });
            }
        }
        let Some(first) = kept.last() else {
            let what = format!("it was to be cut at {to}, and nothing of it reaches back so far");
            return Err(dir.damaged("the log", what));
        };
        let segment = Segment::open(dir, *first, store_id)?;
        let (mut behind, mut entries) = (segment.start(), Vec::new());
        loop {
            let place = behind;
            if !segment.next(&mut behind, &mut entries)? {
                let what =
                    format!("it ends at {}, and later transactions were durable", place.last);
                return Err(segment.file.damaged(what));
            }
            if behind.last > to {
                entries.retain(|entry| entry.zxid <= to);
                let last = entries.last().map_or(place.last, |entry| entry.zxid);
                return Ok(Cut { last, removed, shortened: Some((segment, place, entries)) });
            }
        }
    }

    /// Runs the steps, durably. The state file must not name any removed transaction as durable.
    pub(crate) fn run(self, dir: &Dir<V>) -> Result<(), StoreError> {
        for first in self.removed.iter().rev() {
            dir.remove(&FileName::Log(*first).to_string())?;
            dir.sync()?;
        }
        match self.shortened {
            Some((segment, place, entries)) => shorten(dir, &segment, place.offset, &entries),
            None => Ok(()),
        }
    }
}

/// Replaces a segment by a copy of its first `size` bytes, which end with a batch, and a new batch
/// of `entries`, if there are any.
pub(crate) fn shorten<V: Vfs>(
    dir: &Dir<V>,
    segment: &Segment<V>,
    size: u64,
    entries: &[Entry],
) -> Result<(), StoreError> {
    let mut copy = dir.create(&FileName::Log(segment.header.first).unfinished())?;
    let mut window = vec![0; usize::try_from(size).unwrap_or(COPY_BYTES).min(COPY_BYTES)];
    let mut at = 0;
    while at < size {
        let length = usize::try_from(size - at).unwrap_or(COPY_BYTES).min(COPY_BYTES);
        let read = segment.file.read_at(at, &mut window[..length])?;
        // The file may end within the zero padding of its last batch.
        window[read..length].fill(0);
        copy.write_at(at, &window[..length])?;
        at += length as u64;
    }
    if !entries.is_empty() {
        let mut batch = BatchBuffer::default();
        entries.iter().for_each(|entry| batch.push(entry));
        copy.write_at(size, batch.seal(&segment.header, size, size))?;
    }
    copy.sync()?;
    copy.publish(segment.file.name().to_owned())
}

/// Removes all segments, durably. Segments that a power failure leaves end before the snapshot
/// named in the state file, so recovery removes them.
pub(crate) fn remove_log<V: Vfs>(dir: &Dir<V>, names: &[String]) -> Result<(), StoreError> {
    for first in names::segments(names) {
        // The snapshot lane may be purging the same segment.
        dir.remove_if_there(&FileName::Log(first).to_string())?;
    }
    dir.sync()
}
