//! What a file contains, and what of it would survive a power failure.
//!
//! Owns bytes, size and the writes that are not durable yet. Must not know names, clocks or dice: what survives is
//! decided in `crash`.

use std::ops::Range;
use std::rc::Rc;

use bytes::Bytes;
use zabkeeper_core::Instant;

/// An interval of virtual time: an operation takes effect somewhere in it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The operation is begun.
    pub begin: Instant,
    /// The operation has ended: the caller knows its result.
    pub end: Instant,
}

/// Bytes and size. Bytes beyond those stored, up to the size, are zeros that cost nothing; so do copies, until one is
/// changed: ground truth is examined on copies of whole disks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Content {
    /// Without those of the hole.
    bytes: Rc<Vec<u8>>,
    /// Zeros that are not stored; whatever changes the content stores them first.
    hole: Range<usize>,
    size: u64,
}

/// What a hole consists of: zeros are looked for by so many at once, which is fast.
const ZEROS: [u8; 512] = [0; 512];

/// A change that is in the page cache and not durable.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) span: Span,
    pub(super) change: Change,
    /// Its pages were marked clean by a sync that failed: no later sync makes it durable.
    pub(super) doomed: bool,
}

/// A change of a file.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Change {
    /// Bytes are written at an offset.
    Write { offset: u64, bytes: Bytes },
    /// The file grows to this size, with zeros.
    Grow { size: u64 },
    /// The file is cut at this size.
    Cut { size: u64 },
}

/// The write that a file has got last.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastWrite {
    /// Where it begins in the file.
    pub(super) from: u64,
    /// Where it ends.
    pub(super) to: u64,
    /// When it began.
    pub(super) at: Instant,
}

/// A file: what programs see, what is durable, and what lies between.
#[derive(Clone, Debug, Default)]
pub(super) struct File {
    /// What a reader sees: durable content and all pending changes.
    pub(super) live: Content,
    /// What survives the worst power failure.
    pub(super) durable: Content,
    /// Changes in the order they were made.
    pub(super) pending: Vec<Pending>,
    /// Syncs that have not ended yet when last looked.
    pub(super) syncs: Vec<Span>,
    /// The last write, where it is known to have been done whole.
    pub(super) last_write: Option<LastWrite>,
    /// Open handles.
    pub(super) handles: u32,
    /// Name that it was made, renamed or opened by last, for the trace.
    pub(super) name: String,
}

impl Content {
    pub(super) fn size(&self) -> u64 {
        self.size
    }

    /// Copies from `offset` on; gives the number of bytes.
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
        let (start, end) = (index(offset), index(offset) + bytes.len());
        let stored = self.stored();
        if stored.len() < end {
            stored.resize(end, 0);
        }
        stored[start..end].copy_from_slice(bytes);
        self.size = self.size.max(end as u64);
    }

    /// All bytes, to change them.
    fn stored(&mut self) -> &mut Vec<u8> {
        let bytes = Rc::make_mut(&mut self.bytes);
        let hole = std::mem::take(&mut self.hole);
        if !hole.is_empty() {
            bytes.splice(hole.start..hole.start, hole.map(|_| 0));
        }
        bytes
    }

    /// The same without its longest stretch of zeros, and without room to grow: most of a block is empty, and most segments
    /// of a log are full, some of them with a single batch.
    fn packed(&self) -> Content {
        if !self.hole.is_empty() {
            return self.clone();
        }
        // Zeros have lasted since `from`, up to `to`.
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
        self.pending.push(Pending { span, change, doomed: false });
    }

    /// Makes durable what syncs that ended by `now` cover: changes that had ended when the sync began.
    pub(super) fn settle(&mut self, now: Instant) {
        while let Some(at) = self.syncs.iter().position(|sync| sync.end <= now) {
            let sync = self.syncs.remove(at);
            self.synced(sync.begin);
        }
        self.share();
    }

    /// Keeps one copy where all is durable and nobody has it open: most files are segments that are full.
    pub(super) fn share(&mut self) {
        let shared = Rc::ptr_eq(&self.live.bytes, &self.durable.bytes);
        if self.handles == 0 && self.pending.is_empty() && !shared && self.live == self.durable {
            self.live = self.live.packed();
            self.durable = self.live.clone();
            self.pending = Vec::new();
        }
    }

    /// Makes durable what had ended by `begin`.
    pub(super) fn synced(&mut self, begin: Instant) {
        let durable = &mut self.durable;
        self.pending.retain(|pending| {
            let covered = pending.span.end <= begin && !pending.doomed;
            if covered {
                durable.apply(&pending.change);
            }
            !covered
        });
    }

    /// The last write, if it is durable.
    pub(super) fn kept_last(&self) -> Option<LastWrite> {
        self.last_write.filter(|_| self.pending.is_empty())
    }

    /// Durable bytes are others now.
    pub(super) fn rot(&mut self, offset: u64, bytes: &[u8]) {
        self.durable.write(offset, bytes);
        self.rebuild();
    }

    /// Of the durable bytes only these are left.
    pub(super) fn cut_durable(&mut self, size: u64) {
        self.durable.cut(size);
        self.rebuild();
    }

    /// Recomputes what readers see, after pending changes were taken away.
    pub(super) fn rebuild(&mut self) {
        self.live = self.durable.clone();
        for pending in &self.pending {
            self.live.apply(&pending.change);
        }
    }
}

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("simulated files fit into memory")
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECTOR: usize = ZEROS.len();

    #[test]
    fn preallocated_zeros_cost_nothing_and_read_as_zeros() {
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
    fn what_is_packed_reads_and_changes_as_before() {
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
    fn a_sync_covers_what_had_ended_when_it_began() {
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
