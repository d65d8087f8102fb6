//! The random numbers of a virtual ensemble.
//!
//! Owns their sequence, which the seed determines. Must not be used where secrecy counts.

/// SplitMix64 (Steele, Lea, Flood 2014).
#[derive(Clone, Debug)]
pub(super) struct Seeds(u64);

impl Seeds {
    pub(super) fn new(seed: u64) -> Seeds {
        Seeds(seed)
    }

    /// The next number.
    pub(super) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// The next `N` bytes.
    pub(super) fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut bytes = [0; N];
        for chunk in bytes.chunks_mut(size_of::<u64>()) {
            chunk.copy_from_slice(&self.number().to_le_bytes()[..chunk.len()]);
        }
        bytes
    }
}
