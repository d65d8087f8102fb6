//! Removing the end of the log, or all of it.
//!
//! Owns what is removed, and in which order: newest first, each removal durable before the next, so that whatever a
//! power failure leaves is a log without a hole. Must not touch promises: who calls it does so before.
//!
//! A segment is made shorter by a copy that takes its name. So it is cut or not, nothing of what was cut is behind its
//! end, and whoever reads the old file meanwhile goes on reading it.

use zabkeeper_core::Zxid;
use zabkeeper_core::store::Entry;

use crate::dir::Dir;
use crate::error::StoreError;
use crate::names::{self, FileName};
use crate::scan::{Place, Segment};
use crate::segment::BatchBuffer;
use crate::vfs::Vfs;

/// How much of a segment is copied at a time.
const COPY_BYTES: usize = 1 << 20;

/// What has to be done for the log to end at a position.
pub(crate) struct Cut<V: Vfs> {
    /// The last transaction that stays, or the one before the log where none does.
    pub(crate) last: Zxid,
    /// First transactions of the segments that go, oldest first.
    removed: Vec<Zxid>,
    /// The segment that stays in part: up to this place, and these entries of the batch behind it.
    shortened: Option<(Segment<V>, Place, Vec<Entry>)>,
}

impl<V: Vfs> Cut<V> {
    /// Looks for the end of a log that has transactions after `to`, and changes nothing.
    ///
    /// The snapshot lane may be removing segments that lie at or before a snapshot, and so before `to`. The one that
    /// has to be shortened reaches beyond `to` and is not among them; of one that ends before, the following one's
    /// header says all.
    ///
    /// # Errors
    /// A log that is damaged, and what the file system says.
    pub(crate) fn plan(dir: &Dir<V>, to: Zxid, cluster: u64) -> Result<Cut<V>, StoreError> {
        let mut kept = names::segments(&dir.list()?);
        let removed = kept.split_off(kept.partition_point(|first| *first <= to));
        if let Some(first) = removed.first() {
            let last = Segment::open(dir, *first, cluster)?.header.after;
            if last <= to {
                return Ok(Cut { last, removed, shortened: None });
            }
        }
        let Some(first) = kept.last() else {
            let what = format!("it was to be cut at {to}, and nothing of it reaches back so far");
            return Err(dir.damaged("the log", what));
        };
        let segment = Segment::open(dir, *first, cluster)?;
        let mut behind = segment.start();
        loop {
            let place = behind;
            let Some(mut entries) = segment.next(&mut behind)? else {
                let what =
                    format!("it ends at {}, and later transactions were durable", place.last);
                return Err(segment.file.damaged(what));
            };
            if behind.last > to {
                entries.retain(|entry| entry.zxid <= to);
                let last = entries.last().map_or(place.last, |entry| entry.zxid);
                return Ok(Cut { last, removed, shortened: Some((segment, place, entries)) });
            }
        }
    }

    /// Does it, durably. No promise must be left of what goes.
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

/// Replaces a segment by a copy of its first `size` bytes, where a batch ends, and a batch of these entries.
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
        // Of the zeros that align the end some may be missing.
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

/// Removes all segments, durably. Whatever a power failure leaves of them ends before the snapshot that the state file
/// names, and so counts for nothing, too.
pub(crate) fn remove_log<V: Vfs>(dir: &Dir<V>, names: &[String]) -> Result<(), StoreError> {
    for first in names::segments(names) {
        // The snapshot lane may be purging it.
        dir.remove_if_there(&FileName::Log(first).to_string())?;
    }
    dir.sync()
}
