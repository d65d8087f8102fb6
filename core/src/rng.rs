//! Pseudo-random generator of the core, seeded by the host, for choices that need no secrecy.
//!
//! Owns the random state of one server. Must not be used for secrets.

use std::hash::{BuildHasher, Hasher};

/// SplitMix64 (Steele, Lea, Flood 2014): passes statistical tests, eight bytes of state.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
    map_salt: u64,
}

impl Rng {
    pub(crate) fn new(seed: u64) -> Rng {
        Rng { state: seed, map_salt: 0 }
    }

    /// The same sequence of numbers, with other keys for hash maps.
    pub(crate) fn with_map_salt(self, map_salt: u64) -> Rng {
        Rng { map_salt, ..self }
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// A random number below `bound`. The bias is below 2^-32.
    pub(crate) fn below(&mut self, bound: u32) -> u32 {
        let scaled = (u128::from(self.next()) * u128::from(bound)) >> 64;
        u32::try_from(scaled).expect("the product of 64 and 32 bits, less 64, has 32")
    }
}

#[expect(clippy::cast_possible_truncation, reason = "cutting in two is the purpose")]
fn halves(product: u128) -> (u64, u64) {
    (product as u64, (product >> 64) as u64)
}

fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Hasher of the core's maps, keyed from the server's seed: clients choose paths, and with a fixed
/// hasher they could choose collisions. Maps are never iterated, so their order stays invisible.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyedHash(u64);

/// Folds 8 bytes at a time with a 128-bit multiplication; both factors depend on the key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KeyedHasher {
    state: u64,
    key: u64,
}

impl KeyedHash {
    pub(crate) fn new(rng: &mut Rng) -> KeyedHash {
        KeyedHash(rng.next() ^ rng.map_salt)
    }
}

impl BuildHasher for KeyedHash {
    type Hasher = KeyedHasher;

    fn build_hasher(&self) -> KeyedHasher {
        KeyedHasher { state: self.0, key: mix(self.0 ^ 0x1319_8a2e_0370_7344) | 1 }
    }
}

impl KeyedHasher {
    fn fold(&mut self, word: u64) {
        let (low, high) = halves(u128::from(self.state ^ word) * u128::from(self.key));
        self.state = low ^ high ^ self.key.rotate_left(23);
    }
}

impl Hasher for KeyedHasher {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks::<8>();
        for word in words {
            self.fold(u64::from_le_bytes(*word));
        }
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        // Mixing in the length makes "a" and "a\0" differ.
        self.fold(u64::from_le_bytes(last) ^ (bytes.len() as u64) << 56);
    }

    fn write_u8(&mut self, n: u8) {
        self.fold(u64::from(n));
    }

    fn write_u32(&mut self, n: u32) {
        self.fold(u64::from(n));
    }

    fn write_u64(&mut self, n: u64) {
        self.fold(n);
    }

    fn write_usize(&mut self, n: usize) {
        self.fold(n as u64);
    }

    fn finish(&self) -> u64 {
        mix(self.state)
    }
}
