//! The format of a log segment: a header block, then batches (`docs/formats.md`).
//!
//! Owns encoding and decoding, as pure functions. Must not touch files.
//!
//! The checksum of a batch header is seeded with the store id, the segment and the offset: a
//! batch is valid only at the offset it was written to. So neither client data nor a misplaced disk
//! write can be taken for a batch. The header has its own checksum, because the durable offset in
//! it counts even if the payload is torn.

use bytes::{Buf, Bytes};
use zabkeeper_core::store::Entry;
use zabkeeper_core::{EpochIndex, Zxid};

use crate::block::{self, BLOCK_END, Kind};

/// Magic and versions of a segment's header block.
pub(crate) const KIND: Kind = Kind { magic: *b"zabk-log", version: 3, oldest: 1 };
/// The first version whose batches end with [`END_MARK`].
const MARKED: u32 = 2;
/// The version of segments whose first transaction has counter 0. Readers of the earlier versions
/// would take it for the end of the log, and serve without the rest.
const BEGINS_EPOCH: u32 = 3;
/// Offset of the first batch.
pub(crate) const FIRST_BATCH: u64 = BLOCK_END;
/// Bytes of a batch before its payload.
pub(crate) const BATCH_HEADER: usize = 48;
/// Batches begin at multiples of this offset.
pub(crate) const ALIGN: usize = 8;

/// The last byte of a batch. A batch is written over zeros, and an interrupted write leaves a
/// prefix of it, so if this byte is not zero the batch was written completely.
const END_MARK: u8 = 0xff;

const BATCH_MAGIC: u32 = u32::from_le_bytes(*b"zkba");
/// Bytes before the transaction of an entry: zxid and length.
const ENTRY_HEADER: usize = 12;

/// Content of a segment's header block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SegmentHeader {
    /// The format version of the segment.
    pub(crate) version: u32,
    /// The store id.
    pub(crate) store_id: u64,
    /// The first transaction of the segment, which is also in the file name.
    pub(crate) first: Zxid,
    /// The last transaction before the segment; zero at the start of the log.
    pub(crate) after: Zxid,
}

/// The header of a batch, with the sizes computed from it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BatchHeader {
    /// crc32c of the payload.
    pub(crate) payload_crc: u32,
    /// Bytes of the payload, without padding.
    pub(crate) payload: u32,
    /// Entries in the payload, at least one.
    pub(crate) count: u32,
    /// Zxid of the first entry.
    pub(crate) first: Zxid,
    /// Zxid of the last entry.
    pub(crate) last: Zxid,
    /// Everything in the segment before this offset was durable when the batch was written.
    pub(crate) durable: u64,
    /// Offset of the end mark from the start of the batch; `None` in segments without end marks.
    pub(crate) end_mark: Option<u64>,
    /// Bytes of the batch in the segment, padding included.
    pub(crate) size: u64,
}

impl SegmentHeader {
    /// The header of a new segment, in the lowest version that its content needs, so that an
    /// earlier release can read it.
    pub(crate) fn new(store_id: u64, first: Zxid, after: Zxid) -> SegmentHeader {
        let version = if begins_segment(first) { BEGINS_EPOCH } else { MARKED };
        SegmentHeader { version, store_id, first, after }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut content = [0; 24];
        content[..8].copy_from_slice(&self.store_id.to_le_bytes());
        content[8..16].copy_from_slice(&self.first.0.to_le_bytes());
        content[16..].copy_from_slice(&self.after.0.to_le_bytes());
        Kind { version: self.version, ..KIND }.seal(&content)
    }

    pub(crate) fn decode(version: u32, content: &[u8]) -> SegmentHeader {
        SegmentHeader {
            version,
            store_id: block::u64_at(content, 0),
            first: Zxid(block::u64_at(content, 8)),
            after: Zxid(block::u64_at(content, 16)),
        }
    }

    /// Does each batch of the segment end with an end mark?
    pub(crate) fn has_end_marks(&self) -> bool {
        self.version >= MARKED
    }

    /// The checksum of a batch header at `offset`: of that place, then of the bytes of the header
    /// behind the checksum.
    fn checksum(&self, offset: u64, header: &[u8; BATCH_HEADER]) -> u32 {
        let mut covered = [0; 24 + BATCH_HEADER - 8];
        covered[..8].copy_from_slice(&self.store_id.to_le_bytes());
        covered[8..16].copy_from_slice(&self.first.0.to_le_bytes());
        covered[16..24].copy_from_slice(&offset.to_le_bytes());
        covered[24..].copy_from_slice(&header[8..]);
        crc32c::crc32c(&covered)
    }

    /// Decodes the batch header in the first 48 of these bytes, which were read at `offset`; `None`
    /// if they are no valid header.
    pub(crate) fn batch(&self, offset: u64, bytes: &[u8]) -> Option<BatchHeader> {
        let header: &[u8; BATCH_HEADER] = bytes.first_chunk()?;
        if block::u32_at(header, 0) != BATCH_MAGIC
            || block::u32_at(header, 4) != self.checksum(offset, header)
        {
            return None;
        }
        let payload = block::u32_at(header, 12);
        let size = batch_size(self.version, u64::from(payload) + BATCH_HEADER as u64);
        Some(BatchHeader {
            payload_crc: block::u32_at(header, 8),
            payload,
            count: block::u32_at(header, 16),
            first: Zxid(block::u64_at(header, 24)),
            last: Zxid(block::u64_at(header, 32)),
            durable: block::u64_at(header, 40),
            end_mark: self.has_end_marks().then_some(size - 1),
            size,
        })
    }
}

/// A batch being built; its memory is reused for the next batch.
#[derive(Default)]
pub(crate) struct BatchBuffer {
    bytes: Vec<u8>,
    count: u32,
    first: Zxid,
    last: Zxid,
}

impl BatchBuffer {
    pub(crate) fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(crate) fn first(&self) -> Zxid {
        self.first
    }

    pub(crate) fn last(&self) -> Zxid {
        self.last
    }

    /// Bytes that the batch occupies in a segment of the current version.
    pub(crate) fn size(&self) -> u64 {
        batch_size(KIND.version, self.bytes.len() as u64)
    }

    pub(crate) fn push(&mut self, entry: &Entry) {
        if self.is_empty() {
            self.bytes.resize(BATCH_HEADER, 0);
            self.first = entry.zxid;
        }
        let length = u32::try_from(entry.bytes.len()).expect("no transaction reaches 4 GiB");
        self.bytes.extend_from_slice(&entry.zxid.0.to_le_bytes());
        self.bytes.extend_from_slice(&length.to_le_bytes());
        self.bytes.extend_from_slice(&entry.bytes);
        self.count += 1;
        self.last = entry.zxid;
    }

    /// Completes header and end mark, and returns the bytes of the batch at `offset` of this
    /// segment. Everything before offset `durable` is durable.
    pub(crate) fn seal(&mut self, segment: &SegmentHeader, offset: u64, durable: u64) -> &[u8] {
        let (header, payload) =
            self.bytes.split_first_chunk_mut::<BATCH_HEADER>().expect("a batch has a header");
        let length = u32::try_from(payload.len()).expect("batches are split far below 4 GiB");
        header[..4].copy_from_slice(&BATCH_MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&crc32c::crc32c(payload).to_le_bytes());
        header[12..16].copy_from_slice(&length.to_le_bytes());
        header[16..20].copy_from_slice(&self.count.to_le_bytes());
        header[24..32].copy_from_slice(&self.first.0.to_le_bytes());
        header[32..40].copy_from_slice(&self.last.0.to_le_bytes());
        header[40..48].copy_from_slice(&durable.to_le_bytes());
        let crc = segment.checksum(offset, header);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        let size = batch_size(segment.version, self.bytes.len() as u64);
        self.bytes.resize(usize::try_from(size).expect("it is in memory"), 0);
        if segment.has_end_marks() {
            *self.bytes.last_mut().expect("a batch has a header") = END_MARK;
        }
        &self.bytes
    }

    /// Clears the batch and keeps at most `keep` bytes allocated.
    pub(crate) fn clear(&mut self, keep: usize) {
        self.bytes.clear();
        self.bytes.shrink_to(keep);
        self.count = 0;
    }
}

impl BatchHeader {
    /// Decodes the entries, which share the payload's memory, in place of what `entries` held.
    ///
    /// # Errors
    /// A payload that does not decode. Its checksum was right, so the encoder has a bug.
    pub(crate) fn entries(
        &self,
        mut payload: Bytes,
        entries: &mut Vec<Entry>,
    ) -> Result<(), String> {
        entries.clear();
        let mut previous = None;
        for _ in 0..self.count {
            if payload.len() < ENTRY_HEADER {
                return Err(format!("its payload ends before entry {} of it", self.count));
            }
            let zxid = Zxid(payload.get_u64_le());
            let length = payload.get_u32_le() as usize;
            if length > payload.len() {
                return Err(format!("transaction {zxid} has length {length}, beyond its batch"));
            }
            let expected = match previous {
                None => zxid == self.first,
                Some(previous) => follows(previous, zxid),
            };
            if !expected {
                return Err(format!("transaction {zxid} does not follow the one before it"));
            }
            previous = Some(zxid);
            entries.push(Entry { zxid, bytes: payload.split_to(length) });
        }
        if previous != Some(self.last) || !payload.is_empty() {
            return Err(format!("its entries do not end at {} with the payload", self.last));
        }
        Ok(())
    }
}

/// Bytes of a batch whose header and payload have `length` bytes: with end mark and padding.
fn batch_size(version: u32, length: u64) -> u64 {
    let marked = if version >= MARKED { length + 1 } else { length };
    marked.next_multiple_of(ALIGN as u64)
}

/// Does a segment begin with this transaction, wherever the one before it ends?
pub(crate) fn begins_segment(zxid: Zxid) -> bool {
    zxid.counter() == 0
}

/// May `next` directly follow `previous` in the log? The counter rises by one within an epoch, and
/// begins at 1 in a new epoch, or at 0.
pub(crate) fn follows(previous: Zxid, next: Zxid) -> bool {
    EpochIndex::after(previous).may_follow(next)
}
