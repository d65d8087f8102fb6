//! The block that every file of ours begins with: what it is, which version, and a checksum.
//!
//! Owns the first 16 bytes, which mean the same in every version of every format, so that a block of a later
//! version can be told from a damaged one. Must not know what stands behind them.
//!
//! | at | bytes | content |
//! | --- | --- | --- |
//! | 0 | 8 | magic |
//! | 8 | 4 | format version |
//! | 12 | 4 | crc32c of bytes 0..12 and 16..4096 |
//! | 16 | 4080 | content, then zeros |

/// Size of a block: the largest unit that disks in use write as a whole, so that writing behind it never risks it.
pub(crate) const BLOCK_BYTES: usize = 4096;
/// The same, as an offset in a file.
pub(crate) const BLOCK_END: u64 = BLOCK_BYTES as u64;

const CONTENT_AT: usize = 16;

/// What the files of one kind begin with.
pub(crate) struct Kind {
    pub(crate) magic: [u8; 8],
    /// What is written.
    pub(crate) version: u32,
    /// The oldest version that is still read.
    pub(crate) oldest: u32,
}

/// Why a block cannot be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum BadBlock {
    /// Not what we once wrote.
    Damaged,
    /// Undamaged, but of a version that is not known here.
    Version(u32),
}

impl Kind {
    /// A block with this content.
    pub(crate) fn seal(&self, content: &[u8]) -> Vec<u8> {
        let mut block = vec![0; BLOCK_BYTES];
        block[..8].copy_from_slice(&self.magic);
        block[8..12].copy_from_slice(&self.version.to_le_bytes());
        block[CONTENT_AT..CONTENT_AT + content.len()].copy_from_slice(content);
        let crc = checksum(&block);
        block[12..16].copy_from_slice(&crc.to_le_bytes());
        block
    }

    /// The version and the content of a block that was read: everything behind its first 16 bytes.
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

/// The little-endian number at this place; the caller has checked that there is one.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("the record is long enough"))
}

/// The little-endian number at this place; the caller has checked that there is one.
pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(*bytes[at..].first_chunk().expect("the record is long enough"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind { magic: *b"testtest", version: 3, oldest: 2 };

    #[test]
    fn every_flipped_bit_is_damage_never_another_version() {
        let mut block = KIND.seal(b"content");
        assert_eq!(KIND.open(&block).map(|(v, c)| (v, &c[..7])), Ok((3, &b"content"[..])));
        for bit in 0..BLOCK_BYTES * 8 {
            block[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(KIND.open(&block), Err(BadBlock::Damaged), "bit {bit}");
            block[bit / 8] ^= 1 << (bit % 8);
        }
    }

    #[test]
    fn an_older_version_is_read_and_a_later_one_is_recognised() {
        for (version, known) in [(1, false), (2, true), (3, true), (4, false)] {
            let block = Kind { version, ..KIND }.seal(b"news");
            let found = KIND.open(&block).map(|(version, _)| version);
            assert_eq!(found, if known { Ok(version) } else { Err(BadBlock::Version(version)) });
        }
    }
}
