//! The format of a snapshot: a header block, chunks, a footer (`docs/formats.md`).
//!
//! Owns encoding and checking. Must not write or rename files: the snapshot lane and recovery do.
//! Must not interpret the content of chunks: the core does.

use bytes::Bytes;
use zabkeeper_core::Zxid;

use crate::block::{self, BLOCK_END, Kind};
use crate::dir::{Dir, DirFile};
use crate::error::StoreError;
use crate::names::FileName;
use crate::vfs::Vfs;

/// Magic and versions of a snapshot's header block.
const KIND: Kind = Kind { magic: *b"zabk-snp", version: 2, oldest: 1 };
/// Offset of the first chunk.
pub(crate) const FIRST_CHUNK: u64 = BLOCK_END;
/// Bytes of a chunk before its content.
pub(crate) const CHUNK_HEADER: usize = 16;
/// Bytes of the footer.
pub(crate) const FOOTER: usize = 24;

const CHUNK_MAGIC: u32 = u32::from_le_bytes(*b"zksc");
const FOOTER_MAGIC: u32 = u32::from_le_bytes(*b"zkse");

/// Content of a snapshot's header block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SnapshotHeader {
    /// The store id.
    pub(crate) store_id: u64,
    /// The last transaction in the snapshot, which is also in the file name.
    pub(crate) zxid: Zxid,
}

impl SnapshotHeader {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut content = [0; 16];
        content[..8].copy_from_slice(&self.store_id.to_le_bytes());
        content[8..].copy_from_slice(&self.zxid.0.to_le_bytes());
        KIND.seal(&content)
    }

    fn decode(content: &[u8]) -> SnapshotHeader {
        SnapshotHeader {
            store_id: block::u64_at(content, 0),
            zxid: Zxid(block::u64_at(content, 8)),
        }
    }

    /// The seed of this snapshot's checksums, so that chunks of other snapshots are not valid in
    /// it.
    fn seed(&self) -> u32 {
        let mut place = [0; 16];
        place[..8].copy_from_slice(&self.store_id.to_le_bytes());
        place[8..].copy_from_slice(&self.zxid.0.to_le_bytes());
        crc32c::crc32c(&place)
    }

    /// Encodes the header of a chunk.
    pub(crate) fn chunk(&self, index: u32, content: &[u8]) -> [u8; CHUNK_HEADER] {
        let length = u32::try_from(content.len()).expect("no chunk reaches 4 GiB");
        let mut header = [0; CHUNK_HEADER];
        header[..4].copy_from_slice(&CHUNK_MAGIC.to_le_bytes());
        header[8..12].copy_from_slice(&index.to_le_bytes());
        header[12..].copy_from_slice(&length.to_le_bytes());
        let crc = self.chunk_crc(&header, content);
        header[4..8].copy_from_slice(&crc.to_le_bytes());
        header
    }

    fn chunk_crc(&self, header: &[u8; CHUNK_HEADER], content: &[u8]) -> u32 {
        crc32c::crc32c_append(crc32c::crc32c_append(self.seed(), &header[8..]), content)
    }

    /// Encodes the footer of a snapshot of `count` chunks; `length` is its offset.
    pub(crate) fn footer(&self, count: u32, length: u64) -> [u8; FOOTER] {
        let mut footer = [0; FOOTER];
        footer[..4].copy_from_slice(&FOOTER_MAGIC.to_le_bytes());
        footer[8..12].copy_from_slice(&count.to_le_bytes());
        footer[16..].copy_from_slice(&length.to_le_bytes());
        let crc = crc32c::crc32c_append(self.seed(), &footer[8..]);
        footer[4..8].copy_from_slice(&crc.to_le_bytes());
        footer
    }
}

/// A snapshot file whose header and footer have been checked.
pub(crate) struct Snapshot<V: Vfs> {
    file: DirFile<V>,
    header: SnapshotHeader,
    count: u32,
    /// Offset of the footer.
    end: u64,
}

/// The position of a chunk or of the footer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ChunkPlace {
    /// Number of chunks before this position.
    pub(crate) index: u32,
    at: u64,
}

/// The reason why a snapshot file cannot be used.
pub(crate) type Unusable = String;

impl<V: Vfs> Snapshot<V> {
    /// Opens the snapshot at `zxid` and checks its header and its footer.
    ///
    /// # Errors
    /// A snapshot of a later version or of another store, and those of the file system.
    pub(crate) fn open(
        dir: &Dir<V>,
        zxid: Zxid,
        store_id: u64,
    ) -> Result<Result<Snapshot<V>, Unusable>, StoreError> {
        let file = dir.open(FileName::Snapshot(zxid).to_string())?;
        let decode = |_, content: &[u8]| SnapshotHeader::decode(content);
        let Some(header) = file.read_block(0, &KIND, decode)? else {
            return Ok(Err("the checksum of its header is wrong".into()));
        };
        if header.store_id != store_id {
            return Err(file.foreign(header.store_id, store_id));
        }
        if header.zxid != zxid {
            return Ok(Err(format!("its header is that of the snapshot at {}", header.zxid)));
        }
        let end = file.size()?.saturating_sub(FOOTER as u64);
        let mut footer = [0; FOOTER];
        if end < FIRST_CHUNK {
            return Ok(Err("it ends before its footer".into()));
        }
        file.read_exact(end, &mut footer)?;
        let count = block::u32_at(&footer, 8);
        if footer != header.footer(count, end) {
            return Ok(Err("its footer is not sound".into()));
        }
        Ok(Ok(Snapshot { file, header, count, end }))
    }

    /// Reads and checks all chunks.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn chunks(&self) -> Result<Result<Vec<Bytes>, Unusable>, StoreError> {
        let mut chunks = Vec::new();
        let mut place = ChunkPlace::START;
        loop {
            match self.next_chunk(&mut place)? {
                Ok(Some(chunk)) => chunks.push(chunk),
                Ok(None) => return Ok(Ok(chunks)),
                Err(why) => return Ok(Err(why)),
            }
        }
    }

    /// The number of chunks.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Reads and checks the chunk at `place`, and moves `place` past it; `None` at the footer.
    ///
    /// # Errors
    /// Those of the file system.
    pub(crate) fn next_chunk(
        &self,
        place: &mut ChunkPlace,
    ) -> Result<Result<Option<Bytes>, Unusable>, StoreError> {
        let ChunkPlace { index, at } = *place;
        if index == self.count {
            let why = || format!("its chunks end at byte {at}, its footer is at {}", self.end);
            return Ok(if at == self.end { Ok(None) } else { Err(why()) });
        }
        let content_at = at + CHUNK_HEADER as u64;
        let bad = || Ok(Err(format!("chunk {index} at byte {at} is not sound")));
        if content_at > self.end {
            return bad();
        }
        let mut header = [0; CHUNK_HEADER];
        self.file.read_exact(at, &mut header)?;
        // A length beyond the footer is rejected before anything is allocated.
        let length = block::u32_at(&header, 12);
        if u64::from(length) > self.end - content_at {
            return bad();
        }
        let mut content = vec![0; length as usize];
        self.file.read_exact(content_at, &mut content)?;
        if header != self.header.chunk(index, &content) {
            return bad();
        }
        *place = ChunkPlace { index: index + 1, at: content_at + u64::from(length) };
        Ok(Ok(Some(Bytes::from(content))))
    }
}

impl ChunkPlace {
    /// The position of the first chunk.
    pub(crate) const START: ChunkPlace = ChunkPlace { index: 0, at: FIRST_CHUNK };
}
