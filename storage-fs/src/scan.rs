//! Reads a log segment and decides whether its end is clean, torn or damaged.
//!
//! Owns that decision. Must not change any file: recovery does, after it has checked every file.
//!
//! A hole is the place of the first unreadable batch. After a power failure any subset of the
//! unsynced sectors may have survived, so neither the hole nor a complete batch after it proves
//! damage. The proof is the header of a later batch: it states up to which offset the segment was
//! durable when that batch was written. A hole below that offset is damage; no other hole was ever
//! acknowledged. A segment's header names the transaction that it follows, which was durable when
//! the segment was created: so recovery detects a hole at the end of the segment before it.
//!
//! If only the process ended, the page cache is intact: every completed write is readable, and only
//! the last write may be incomplete. A batch is written over zeros, and an interrupted write leaves
//! a prefix of it, so a non-zero end mark shows that the batch was written completely.

use bytes::Bytes;
use zabkeeper_core::Zxid;
use zabkeeper_core::store::Entry;

use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::segment::{self, ALIGN, BATCH_HEADER, FIRST_BATCH, SegmentHeader, follows};
use crate::vfs::Vfs;

/// Bytes per read when searching the rest of a segment for batch headers.
const WINDOW_BYTES: usize = 64 << 10;

/// A segment that is open for reading and whose header has been checked.
pub(crate) struct Segment<V: Vfs> {
    pub(crate) file: DirFile<V>,
    pub(crate) header: SegmentHeader,
}

/// A position between two batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The last transaction before this position; at the start of a segment it is in an earlier
    /// segment.
    pub(crate) last: Zxid,
    /// Offset in the segment.
    pub(crate) offset: u64,
}

/// Where the readable part of a segment ends, and what follows it.
pub(crate) struct End {
    /// The position after the last readable batch.
    pub(crate) place: Place,
    /// Bytes of a torn batch after `place`; 0 if only zeros follow.
    pub(crate) torn: u64,
    /// The unreadable batch at `place`, if it was written completely: a power failure may leave
    /// such a batch, an interrupted write cannot.
    pub(crate) unsound: Option<UnsoundBatch>,
}

/// A batch that was written completely and is unreadable now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnsoundBatch {
    /// The last transaction of the batch; `None` if its header is unreadable, too.
    pub(crate) last: Option<Zxid>,
}

impl<V: Vfs> Segment<V> {
    /// Opens the segment that begins with transaction `first`.
    ///
    /// # Errors
    /// The header is damaged (it was durable before the file got its name), has an unknown version
    /// or another store id, or does not match the file name; and those of the file system.
    pub(crate) fn open(dir: &Dir<V>, first: Zxid, store_id: u64) -> Result<Segment<V>, StoreError> {
        let file = dir.open(FileName::Log(first).to_string())?;
        let Some(header) = file.read_block(0, &segment::KIND, SegmentHeader::decode)? else {
            return Err(file.damaged("the checksum of its header is wrong"));
        };
        if header.store_id != store_id {
            return Err(file.foreign(header.store_id, store_id));
        }
        if header.first != first {
            let what = format!("its header is that of the segment beginning at {}", header.first);
            return Err(file.damaged(what));
        }
        Ok(Segment { file, header })
    }

    /// The position before the first batch.
    pub(crate) fn start(&self) -> Place {
        Place { last: self.header.after, offset: FIRST_BATCH }
    }

    /// Reads all entries.
    ///
    /// # Errors
    /// Damage that this segment alone proves, and those of the file system.
    pub(crate) fn scan(&self, mut each: impl FnMut(Entry)) -> Result<End, StoreError> {
        let (mut place, mut entries) = (self.start(), Vec::new());
        while self.next(&mut place, &mut entries)? {
            entries.drain(..).for_each(&mut each);
        }
        let hole = place.offset;
        let behind = self.look_behind(hole, self.file.size()?)?;
        if let Some(durable) = behind.proof {
            return Err(self.file.damaged(format!(
                "the batch at byte {hole} is not readable, though a later one says that it was \
                 durable up to byte {durable}"
            )));
        }
        let torn = behind.last_used.map_or(0, |last| last + 1 - hole);
        let unsound = if torn > 0 { self.unsound(hole, torn)? } else { None };
        Ok(End { place, torn, unsound })
    }

    /// The batch at offset `hole`, if it was written completely; `used` is the distance from there
    /// to the last non-zero byte, inclusive. `None` if the header's bytes are all zero, because no
    /// batch need have been there, and in segments without end marks.
    fn unsound(&self, hole: u64, used: u64) -> Result<Option<UnsoundBatch>, StoreError> {
        let mut bytes = [0; BATCH_HEADER];
        let read = self.file.read_at(hole, &mut bytes)?;
        if let Some(header) = self.header.batch(hole, &bytes[..read]) {
            // Only zeros follow an interrupted write.
            let is_whole = header.end_mark.is_some_and(|mark| used > mark);
            return Ok(is_whole.then_some(UnsoundBatch { last: Some(header.last) }));
        }
        let has_header = bytes.iter().any(|byte| *byte != 0);
        let is_whole = self.header.has_end_marks() && has_header && used > BATCH_HEADER as u64;
        Ok(is_whole.then_some(UnsoundBatch { last: None }))
    }

    /// Reads the batch at `place` into `entries`, which lose what they held, and moves `place` past
    /// it; false if no readable batch is there.
    ///
    /// # Errors
    /// A batch with a matching checksum that cannot be decoded, and those of the file system.
    pub(crate) fn next(
        &self,
        place: &mut Place,
        entries: &mut Vec<Entry>,
    ) -> Result<bool, StoreError> {
        let mut bytes = [0; BATCH_HEADER];
        let read = self.file.read_at(place.offset, &mut bytes)?;
        let Some(header) = self.header.batch(place.offset, &bytes[..read]) else {
            return Ok(false);
        };
        let at = place.offset + BATCH_HEADER as u64;
        // A length beyond the end of the file is rejected before anything is allocated.
        if u64::from(header.payload) > self.file.size()?.saturating_sub(at) {
            return Ok(false);
        }
        let mut payload = vec![0; header.payload as usize];
        self.file.read_exact(at, &mut payload)?;
        if crc32c::crc32c(&payload) != header.payload_crc {
            return Ok(false);
        }
        // The checksum matched, so an error below is a bug in our encoder.
        let damaged = |what: String| {
            self.file.damaged(format!("the batch at byte {} is wrong: {what}", place.offset))
        };
        let first_of_segment = place.offset == FIRST_BATCH && header.first != self.header.first;
        if first_of_segment || !follows(place.last, header.first) {
            return Err(damaged(format!("{} does not follow {}", header.first, place.last)));
        }
        header.entries(Bytes::from(payload), entries).map_err(damaged)?;
        *place = Place { last: header.last, offset: place.offset + header.size };
        Ok(true)
    }

    /// Searches the bytes after the last readable batch.
    fn look_behind(&self, hole: u64, size: u64) -> Result<Behind, StoreError> {
        let mut behind = Behind { proof: None, last_used: None };
        let rest = usize::try_from(size.saturating_sub(hole)).unwrap_or(WINDOW_BYTES);
        let mut window = vec![0; rest.min(WINDOW_BYTES)];
        let mut at = hole;
        loop {
            let read = self.file.read_at(at, &mut window)?;
            let bytes = &window[..read];
            if let Some(last) = last_used(bytes) {
                behind.last_used = Some(at + last as u64);
                for start in (0..=last).step_by(ALIGN) {
                    let header = self.header.batch(at + start as u64, &bytes[start..]);
                    if let Some(header) = header.filter(|header| header.durable > hole) {
                        behind.proof = Some(header.durable);
                        return Ok(behind);
                    }
                }
            }
            if read < WINDOW_BYTES {
                return Ok(behind);
            }
            // The windows overlap, because a header may span two of them.
            at += (WINDOW_BYTES - BATCH_HEADER) as u64;
        }
    }
}

/// Index of the last non-zero byte. The preallocated rest of a segment is mostly zeros, so the
/// search compares 64 bytes at a time.
fn last_used(bytes: &[u8]) -> Option<usize> {
    let is_used = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) != 0;
    let mut lines = bytes.rchunks_exact(64);
    let zeros = lines.by_ref().take_while(|line| !is_used(line)).count();
    let rest = &bytes[..bytes.len() - 64 * zeros];
    rest.iter().rposition(|byte| *byte != 0)
}

struct Behind {
    /// The durable offset stated by a later batch's header, if it is above the hole.
    proof: Option<u64>,
    /// Offset of the last non-zero byte.
    last_used: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::last_used;

    #[test]
    fn last_nonzero_byte_is_found_at_any_offset() {
        for length in [0, 1, 63, 64, 65, 127, 128, 200] {
            assert_eq!(last_used(&vec![0; length]), None);
            for at in 0..length {
                let mut bytes = vec![0; length];
                bytes[at] = 1;
                bytes[at / 2] = 255;
                assert_eq!(last_used(&bytes), Some(at), "of {length}");
            }
        }
    }
}
