//! Reading a log segment, and the judgement at its end: is it clean, torn or damaged?
//!
//! Owns that judgement. Must not change any file: recovery does, once everything has been judged.
//!
//! After a power failure any subset of the unsynced sectors may have survived, so neither a hole nor a whole batch
//! behind it proves anything. What proves is a batch header that says how far the segment was durable when it was
//! written: a hole below that is damage, any other hole was never acknowledged. A segment's header says which
//! transaction it follows, all up to which was durable then: so recovery finds a hole at the end of an older one.
//!
//! After the end of a process alone the page cache is there: what was written whole is read whole, and only the last write
//! may have been cut short. A batch is one write of a prefix of its bytes over zeros, so its end mark tells the two apart.

use bytes::Bytes;
use zabkeeper_core::Zxid;
use zabkeeper_core::store::Entry;

use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::segment::{self, ALIGN, BATCH_HEADER, FIRST_BATCH, SegmentHeader, follows};
use crate::vfs::Vfs;

/// How much of a segment is looked through at a time.
const WINDOW_BYTES: usize = 64 << 10;

/// A segment that is open for reading; its header is sound.
pub(crate) struct Segment<V: Vfs> {
    pub(crate) file: DirFile<V>,
    pub(crate) header: SegmentHeader,
}

/// A place between two batches.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Place {
    /// The last transaction before it, which at the start of a segment is in an earlier one.
    pub(crate) last: Zxid,
    /// Offset in the segment.
    pub(crate) offset: u64,
}

/// Where the sound part of a segment ends, and what is behind it.
pub(crate) struct End {
    /// Behind the last batch.
    pub(crate) place: Place,
    /// Bytes of a torn batch behind the end; zero where only zeros follow.
    pub(crate) torn: u64,
    /// The batch behind the end that is not sound, if it was written to its end: a power failure may leave that, a write cut
    /// short does not.
    pub(crate) unsound: Option<UnsoundBatch>,
}

/// A batch that was written to its end and is not sound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct UnsoundBatch {
    /// Its last transaction; `None` where its header is not sound, either.
    pub(crate) last: Option<Zxid>,
}

impl<V: Vfs> Segment<V> {
    /// Opens the segment of this name.
    ///
    /// # Errors
    /// A header that is damaged (it is made durable before the file gets its name), of an unknown version, of
    /// another cluster, or under another name.
    pub(crate) fn open(dir: &Dir<V>, first: Zxid, cluster: u64) -> Result<Segment<V>, StoreError> {
        let file = dir.open(&FileName::Log(first).to_string())?;
        let Some((version, content)) = file.read_block(0, &segment::KIND)? else {
            return Err(file.damaged("the checksum of its header is wrong"));
        };
        let header = SegmentHeader::decode(version, &content);
        if header.cluster != cluster {
            return Err(file.foreign(header.cluster, cluster));
        }
        if header.first != first {
            let what = format!("its header is that of the segment beginning at {}", header.first);
            return Err(file.damaged(what));
        }
        Ok(Segment { file, header })
    }

    /// Before its first batch.
    pub(crate) fn start(&self) -> Place {
        Place { last: self.header.after, offset: FIRST_BATCH }
    }

    /// Reads all entries.
    ///
    /// # Errors
    /// Damage that this segment alone proves, and what the file system says.
    pub(crate) fn scan(&self, mut each: impl FnMut(Entry)) -> Result<End, StoreError> {
        let mut place = self.start();
        while let Some(entries) = self.next(&mut place)? {
            entries.into_iter().for_each(&mut each);
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

    /// The batch at this hole, if it was written to its end. Behind the hole so many bytes are used. Where nothing of a
    /// header is left, nothing says that there was a batch; in segments without end marks nothing says where it ended.
    fn unsound(&self, hole: u64, used: u64) -> Result<Option<UnsoundBatch>, StoreError> {
        let mut bytes = [0; BATCH_HEADER];
        let read = self.file.read_at(hole, &mut bytes)?;
        if let Some(header) = self.header.batch(hole, &bytes[..read]) {
            // Behind a batch that is cut short there is nothing.
            let is_whole = header.end_mark.is_some_and(|mark| used > mark);
            return Ok(is_whole.then_some(UnsoundBatch { last: Some(header.last) }));
        }
        let has_header = bytes.iter().any(|byte| *byte != 0);
        let is_whole = self.header.has_end_marks() && has_header && used > BATCH_HEADER as u64;
        Ok(is_whole.then_some(UnsoundBatch { last: None }))
    }

    /// Reads the batch at this place and moves the place behind it; `None` where there is no whole batch.
    ///
    /// # Errors
    /// A batch that was never right, and what the file system says.
    pub(crate) fn next(&self, place: &mut Place) -> Result<Option<Vec<Entry>>, StoreError> {
        let mut bytes = [0; BATCH_HEADER];
        let read = self.file.read_at(place.offset, &mut bytes)?;
        let Some(header) = self.header.batch(place.offset, &bytes[..read]) else {
            return Ok(None);
        };
        let at = place.offset + BATCH_HEADER as u64;
        // The length is believed as far as the file goes.
        if u64::from(header.payload) > self.file.size()?.saturating_sub(at) {
            return Ok(None);
        }
        let mut payload = vec![0; header.payload as usize];
        self.file.read_exact(at, &mut payload)?;
        if crc32c::crc32c(&payload) != header.payload_crc {
            return Ok(None);
        }
        // From here on the batch is what we wrote: what is wrong now was never right.
        let damaged = |what: String| {
            self.file.damaged(format!("the batch at byte {} is wrong: {what}", place.offset))
        };
        let first_of_segment = place.offset == FIRST_BATCH && header.first != self.header.first;
        if first_of_segment || !follows(place.last, header.first) {
            return Err(damaged(format!("{} does not follow {}", header.first, place.last)));
        }
        let entries = header.entries(Bytes::from(payload)).map_err(damaged)?;
        *place = Place { last: header.last, offset: place.offset + header.size };
        Ok(Some(entries))
    }

    /// Looks through what is behind the last sound batch.
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
            // A header may lie across two windows.
            at += (WINDOW_BYTES - BATCH_HEADER) as u64;
        }
    }
}

/// The last byte that is not zero. Most of what is behind a log is zeros, of which there may be many: they are looked
/// at many at a time.
fn last_used(bytes: &[u8]) -> Option<usize> {
    let is_used = |line: &[u8]| line.iter().fold(0, |all, byte| all | byte) != 0;
    let mut lines = bytes.rchunks_exact(64);
    let zeros = lines.by_ref().take_while(|line| !is_used(line)).count();
    let rest = &bytes[..bytes.len() - 64 * zeros];
    rest.iter().rposition(|byte| *byte != 0)
}

struct Behind {
    /// A durable offset above the hole, which the header of a later batch states.
    proof: Option<u64>,
    /// The last byte that is not zero.
    last_used: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::last_used;

    #[test]
    fn the_last_used_byte_is_found_wherever_it_is() {
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
