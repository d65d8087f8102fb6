//! The block at the start of every file of the store: magic, format version and checksum.
//!
//! Owns the first 16 bytes, which mean the same in every version of every format, so that the
//! reader can distinguish a block of a later version from a damaged one. Must not know the content
//! after them.
//!
//! | at | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic |
//! | 8 | 4 | format version |
//! | 12 | 4 | crc32c of bytes 0..12 and 16..4096 |
//! | 16 | 4080 | content, then zeros |

/// Size of a block: the largest atomic write unit of disks in use, so that a torn write to the
/// bytes after the block leaves the block intact.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// [`BLOCK_BYTES`] as a file offset.
pub(crate) const BLOCK_END: u64 = BLOCK_BYTES as u64;

const CONTENT_AT: usize = 16;

/// Magic and format versions of one kind of block.
pub(crate) struct Kind {
    pub(crate) magic: [u8; 8],
    /// The version that this software writes.
    pub(crate) version: u32,
    /// The oldest version that this software reads.
    pub(crate) oldest: u32,
}

/// Why a block cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadBlock {
    /// Wrong length, magic or checksum.
    Damaged,
    /// The checksum is right, but this software does not read this format version.
    Version(u32),
}

impl Kind {
    /// Encodes a block with this content.
    pub(crate) fn seal(&self, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[..8].copy_from_slice(&self.magic);
        block[8..12].copy_from_slice(&self.version.to_le_bytes());
        block[CONTENT_AT..CONTENT_AT + content.len()].copy_from_slice(content);
        let crc = checksum(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// Checks a block and returns its version and its content: all bytes after the first 16.
    pub(crate) fn open<'a>(&self, block: &'a [u8]) -> Result<(u32, &'a [u8]), BadBlock> {
        if block.len() != BLOCK_BYTES
            || block[..8] != self.magic
            || u32_at(block, 12) != checksum(block)
        {
            return Err(BadBlock::Damaged);
        }
        match u32_at(block, 8) {
            version if (self.oldest..=self.version).contains(&version) => {
                Ok((version, &block[CONTENT_AT..]))
            }
            version => Err(BadBlock::Version(version)),
        }
    }
}

fn checksum(block: &[u8]) -> u32 {
    crc32c::crc32c_append(crc32c::crc32c(&block[..12]), &block[CONTENT_AT..])
}

/// The little-endian `u32` at offset `at`.
///
/// # Panics
/// If `bytes` ends before it.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the record is long enough"))
}

/// The little-endian `u64` at offset `at`.
///
/// # Panics
/// If `bytes` ends before it.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the record is long enough"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { magic: *b"testtest", version: 3, oldest: 2 };

    #[test]
    fn any_flipped_bit_in_a_block_is_damage() {
        let mut block = KIND.seal(b"content");
        assert_eq!(KIND.open(&block).map(|(v, c)| (v, &c[..7])), Ok((3, &b"content"[..])));
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(KIND.open(&block), Err(BadBlock::Damaged), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn older_block_version_is_read_and_later_one_is_reported() {
        for (version, known) in [(1, false), (2, true), (3, true), (4, false)] {
            let block = Kind { version, ..KIND }.seal(b"news");
            let found = KIND.open(&block).map(|(version, _)| version);
            assert_eq!(found, if known { Ok(version) } else { Err(BadBlock::Version(version)) });
        }
    }
}
