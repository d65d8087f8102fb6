//! The content of a file, and which part of it would survive a power failure.
//!
//! Owns bytes, size and pending writes. Must not know names, clocks or random streams: `crash`
//! decides what survives.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use zabkeeper_core::Instant;

/// An interval of virtual time; an operation takes effect somewhere in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The operation begins.
    pub begin: Instant,
    /// The operation ends: the caller gets its result.
    pub end: Instant,
}

/// Bytes and size. Bytes beyond the stored ones, up to the size, are zeros without memory. Copies
/// share memory until one of them changes, since sampling of recovery copies whole disks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    /// The bytes outside of the hole.
    bytes: Rc<Vec<u8>>,
    /// A range of zeros that is not stored; any change of the content stores it first.
    hole: Range<usize>,
    size: u64,
}

/// The hole is searched in pieces of this size, for speed.
const ZEROS: [u8; 512] = [0; 512];

/// A change that is in the page cache and not durable.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) span: Span,
    pub(super) change: Change,
    /// A failed sync marked its pages clean, so no later sync makes it durable.
    pub(super) sync_failed: bool,
}

/// A change of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Writes bytes at an offset.
    Write { offset: u64, bytes: Bytes },
    /// Grows the file to this size, with zeros.
    Grow { size: u64 },
    /// Truncates the file to this size.
    Cut { size: u64 },
}

/// The last write to a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWrite {
    /// Start offset.
    pub(super) from: u64,
    /// End offset.
    pub(super) to: u64,
    /// When it began.
    pub(super) at: Instant,
}

/// A file: visible content, durable content, and pending changes.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What a reader sees: durable content and all pending changes.
    pub(super) live: Content,
    /// What survives any power failure.
    pub(super) durable: Content,
    /// Pending changes, in order.
    pub(super) pending: Vec<Pending>,
    /// Syncs that had not ended at the last settling.
    pub(super) syncs: Vec<Span>,
    /// The last write, if it is known to be complete.
    pub(super) last_write: Option<LastWrite>,
    /// Number of open handles.
    pub(super) handles: u32,
    /// The name at its last creation, renaming or opening, for the trace.
    pub(super) name: Rc<str>,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Copies bytes from `offset` on. Returns their number.
    pub(super) fn read(&self, offset: u64, buffer: &mut [u8]) -> usize {
        let available = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let count = available.min(buffer.len());
        let (from, to) = (index(offset), index(offset) + count);
        let (before, behind) = self.bytes.split_at(self.hole.start);
        let mut done = from;
        for (place, stored) in [(0, before), (self.hole.end, behind)] {
            let (begin, end) = (place.max(from), (place + stored.len()).min(to));
            if begin < end {
                buffer[done - from..begin - from].fill(0);
                buffer[begin - from..end - from]
                    .copy_from_slice(&stored[begin - place..end - place]);
                done = end;
            }
        }
        buffer[done - from..count].fill(0);
        count
    }

    pub(super) fn write(&mut self, offset: u64, bytes: &[u8]) {
        let start = index(offset);
        let stored = self.stored();
        if stored.len() < start {
            stored.resize(start, 0);
        }
        let (over, behind) = bytes.split_at(bytes.len().min(stored.len() - start));
        stored[start..start + over.len()].copy_from_slice(over);
        stored.extend_from_slice(behind);
        self.size = self.size.max(offset + bytes.len() as u64);
    }

    /// All bytes, for modification.
    fn stored(&mut self) -> &mut Vec<u8> {
        let bytes = Rc::make_mut(&mut self.bytes);
        let hole = std::mem::take(&mut self.hole);
        if !hole.is_empty() {
            bytes.splice(hole.start..hole.start, hole.map(|_| 0));
        }
        bytes
    }

    /// The same content without its longest run of zeros, and without spare capacity: most bytes of
    /// a block are zeros, and most segments are full, some with a single batch.
    fn packed(&self) -> Content {
        if !self.hole.is_empty() {
            return self.clone();
        }
        // Zeros extend from `from` to `to`.
        let (mut hole, mut from, mut to) = (0..0, 0, 0);
        for piece in self.bytes.chunks_exact(ZEROS.len()) {
            to += piece.len();
            if piece != ZEROS {
                from = to;
            } else if to - from > hole.len() {
                hole = from..to;
            }
        }
        let bytes = [&self.bytes[..hole.start], &self.bytes[hole.end..]].concat();
        Content { bytes: Rc::new(bytes), hole, size: self.size }
    }

    pub(super) fn grow(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    pub(super) fn cut(&mut self, size: u64) {
        if self.hole.len() + self.bytes.len() > index(size) {
            self.stored().truncate(index(size));
        }
        self.size = self.size.min(size);
    }

    pub(super) fn apply(&mut self, change: &Change) {
        match change {
            Change::Write { offset, bytes } => self.write(*offset, bytes),
            Change::Grow { size } => self.grow(*size),
            Change::Cut { size } => self.cut(*size),
        }
    }
}

impl File {
    /// Makes a change visible, and pending.
    pub(super) fn change(&mut self, span: Span, change: Change) {
        self.live.apply(&change);
        if let Change::Write { offset, bytes } = &change {
            let (from, to) = (*offset, offset + bytes.len() as u64);
            self.last_write = Some(LastWrite { from, to, at: span.begin });
        }
        self.pending.push(Pending { span, change, sync_failed: false });
    }

    /// Makes durable what syncs that ended by `now` cover: changes that had ended when the sync
    /// began.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(at) = self.syncs.iter().position(|sync| sync.end <= now) {
            let sync = self.syncs.remove(at);
            self.synced(sync.begin);
        }
        self.share();
    }

    /// The intervals of the changes that settling at `now` would leave pending.
    pub(super) fn unsettled(&self, now: Instant) -> impl Iterator<Item = &Span> {
        let covers = newest_sync(&self.syncs, now);
        let left = move |pending: &&Pending| !covers.is_some_and(|begin| pending.is_covered(begin));
        self.pending.iter().filter(left).map(|pending| &pending.span)
    }

    /// Shares one copy when all is durable and no handle is open: most files are full segments.
    pub(super) fn share(&mut self) {
        let shared = Rc::ptr_eq(&self.live.bytes, &self.durable.bytes);
        if self.handles == 0 && self.pending.is_empty() && !shared && self.live == self.durable {
            self.live = self.live.packed();
            self.durable = self.live.clone();
            self.pending = Vec::new();
        }
    }

    /// Makes durable the changes that had ended by `begin`.
    pub(super) fn synced(&mut self, begin: Instant) {
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            let covered = pending.is_covered(begin);
            if covered {
                durable.apply(&pending.change);
            }
            !covered
        });
    }

    /// A copy without open handles that keeps what settling at `now` would make durable, and of
    /// the rest the changes in the intervals that `keeps` selects.
    pub(super) fn survivor(&self, now: Instant, keeps: impl Fn(&Span) -> bool) -> File {
        let covers = newest_sync(&self.syncs, now);
        let covered = |each: &Pending| covers.is_some_and(|begin| each.is_covered(begin));
        let settled = self.pending.iter().filter(|each| covered(each));
        let kept = self.pending.iter().filter(|each| !covered(each) && keeps(&each.span));
        let mut durable = self.durable.clone();
        settled.chain(kept).for_each(|each| durable.apply(&each.change));
        let live = durable.clone();
        File {
            live,
            durable,
            pending: Vec::new(),
            syncs: Vec::new(),
            last_write: self.last_write,
            handles: 0,
            name: Rc::clone(&self.name),
        }
    }

    /// The last write, if it is durable.
    pub(super) fn kept_last(&self) -> Option<LastWrite> {
        self.last_write.filter(|_| self.pending.is_empty())
    }

    /// Replaces durable bytes.
    pub(super) fn bit_rot(&mut self, offset: u64, bytes: &[u8]) {
        self.durable.write(offset, bytes);
        self.rebuild();
    }

    /// Truncates the durable bytes.
    pub(super) fn cut_durable(&mut self, size: u64) {
        self.durable.cut(size);
        self.rebuild();
    }

    /// Recomputes the visible content after pending changes were removed.
    pub(super) fn rebuild(&mut self) {
        self.live = self.durable.clone();
        for pending in &self.pending {
            self.live.apply(&pending.change);
        }
    }
}

impl Pending {
    /// Does a sync that began at `begin` make the change durable?
    fn is_covered(&self, begin: Instant) -> bool {
        self.span.end <= begin && !self.sync_failed
    }
}

/// When the newest of the syncs that ended by `now` began.
pub(super) fn newest_sync(syncs: &[Span], now: Instant) -> Option<Instant> {
    syncs.iter().filter(|sync| sync.end <= now).map(|sync| sync.begin).max()
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated files fit into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = ZEROS.len();

    #[test]
    fn preallocated_bytes_need_no_memory_and_read_as_zeros() {
        let mut content = Content::default();
        content.grow(64 << 20);
        content.write(2, b"ab");
        assert_eq!((content.size(), content.bytes.len()), (64 << 20, 4));
        let mut buffer = [9; 6];
        assert_eq!(content.read(1, &mut buffer), 6);
        assert_eq!(&buffer, b"\0ab\0\0\0");
        content.cut(3);
        assert_eq!((content.read(1, &mut buffer), &buffer[..2]), (2, &b"\0a"[..]));
        assert_eq!(content.read(7, &mut buffer), 0);
    }

    #[test]
    fn packed_content_reads_and_changes_like_the_original() {
        let mut content = Content::default();
        content.write(5, b"head");
        content.write(4 * SECTOR as u64 + 3, b"tail");
        let packed = content.packed();
        assert_eq!(packed.hole, SECTOR..4 * SECTOR);
        let all = |content: &Content| {
            let mut buffer = vec![9; index(content.size()) + 1];
            let count = content.read(0, &mut buffer);
            buffer.truncate(count);
            buffer
        };
        assert_eq!(all(&packed), all(&content));
        assert_eq!(packed.packed(), packed);
        for offset in [4, SECTOR - 1, SECTOR, 2 * SECTOR, 4 * SECTOR - 2, 4 * SECTOR + 4] {
            let (mut one, mut other) = ([8; 7], [7; 7]);
            let count = content.read(offset as u64, &mut one);
            assert_eq!(packed.read(offset as u64, &mut other), count);
            assert_eq!(one[..count], other[..count], "from {offset} on");
        }
        let changes = [
            Change::Write { offset: 2 * SECTOR as u64, bytes: Bytes::from_static(b"middle") },
            Change::Cut { size: 3 * SECTOR as u64 },
            Change::Grow { size: 9 * SECTOR as u64 },
        ];
        for change in changes {
            let (mut one, mut other) = (content.clone(), packed.clone());
            one.apply(&change);
            other.apply(&change);
            assert_eq!(all(&one), all(&other), "{change:?}");
        }
        let blank = Content { bytes: Rc::new(vec![0; 2 * SECTOR]), ..Content::default() };
        assert!(blank.packed().bytes.is_empty());
    }

    #[test]
    fn sync_covers_changes_that_ended_before_it_began() {
        let span = |begin, end| Span { begin: Instant(begin), end: Instant(end) };
        let write =
            |offset, text: &'static [u8]| Change::Write { offset, bytes: Bytes::from_static(text) };
        let mut file = File::default();
        file.change(span(0, 10), write(0, b"a"));
        file.change(span(15, 30), write(1, b"b"));
        file.syncs.push(span(20, 40));
        file.settle(Instant(39));
        assert_eq!(file.durable.size(), 0);
        file.settle(Instant(40));
        assert_eq!((file.durable.size(), file.pending.len(), file.live.size()), (1, 1, 2));
    }
}
