//! The seed tree: every random choice of a run comes from one 64-bit seed, through a named stream.
//!
//! Owns key derivation, range reduction and the distributions. Must not know what is drawn.
//!
//! Invariants: a stream is named by a domain and an entity, so a further draw in one stream never
//! shifts another. All arithmetic is integer and implemented here, since a library may change its
//! range reduction, and `libm` differs between platforms.

use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng as _, SeedableRng};

/// The root of a run's randomness.
#[derive(Clone, Copy, Debug)]
pub struct Seeds {
    seed: u64,
}

/// One stream of choices, random or scripted. It can record its choices.
#[derive(Clone, Debug)]
pub struct Rng {
    source: Source,
    tape: Option<Vec<u64>>,
}

#[derive(Clone, Debug)]
#[expect(clippy::large_enum_variant, reason = "nearly all are random, and are used in place")]
enum Source {
    Random(ChaCha8Rng),
    /// Choices made beforehand; zeros after the last one.
    Script(std::vec::IntoIter<u64>),
}

/// Number of distinct streams that [`Rng::fork`] returns.
const FORKS: u64 = 1 << 16;

/// Quantiles of the exponential distribution with mean 256, at i / 64; the last one is set so that
/// the mean is exact.
const EXPONENTIAL: [u16; 65] = [
    0, 4, 8, 12, 17, 21, 25, 30, 34, 39, 43, 48, 53, 58, 63, 68, 74, 79, 85, 90, 96, 102, 108, 114,
    120, 127, 133, 140, 147, 155, 162, 170, 177, 186, 194, 203, 212, 221, 231, 241, 251, 262, 273,
    285, 298, 311, 325, 339, 355, 371, 389, 408, 429, 451, 475, 502, 532, 567, 606, 653, 710, 783,
    887, 1065, 1577,
];

impl Seeds {
    /// The tree of this seed.
    pub fn new(seed: u64) -> Seeds {
        Seeds { seed }
    }

    /// The seed.
    pub fn seed(self) -> u64 {
        self.seed
    }

    /// A new tree, seeded from a stream of this one.
    pub fn fork(self, domain: &str, number: u64) -> Seeds {
        Seeds::new(self.stream(domain, number).word())
    }

    /// The stream of one entity in one domain.
    pub fn stream(self, domain: &str, entity: u64) -> Rng {
        let mut root = [0; 32];
        root[..8].copy_from_slice(&self.seed.to_le_bytes());
        for (i, part) in root[8..].chunks_exact_mut(8).enumerate() {
            part.copy_from_slice(&label(domain, i as u64).to_le_bytes());
        }
        let mut key = [0; 32];
        ChaCha8Rng::from_seed(root).fill_bytes(&mut key);
        let mut rng = ChaCha8Rng::from_seed(key);
        rng.set_stream(entity);
        Rng { source: Source::Random(rng), tape: None }
    }
}

/// A hash of the domain's name, varied by `salt` (FNV-1a with a final mix).
fn label(domain: &str, salt: u64) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    for byte in domain.bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash = (hash ^ (hash >> 32)).wrapping_mul(0xd6e8_feb8_6659_fd93);
    hash ^ (hash >> 32)
}

impl Rng {
    /// Returns these choices, then zeros. A choice above its bound counts as the greatest valid
    /// one, so every list is valid.
    pub fn scripted(choices: Vec<u64>) -> Rng {
        Rng { source: Source::Script(choices.into_iter()), tape: None }
    }

    /// Begins to record choices.
    pub fn record(&mut self) {
        self.tape = Some(Vec::new());
    }

    /// The choices since [`Rng::record`], without trailing zeros: a script yields those anyway.
    pub fn recorded(&mut self) -> Vec<u64> {
        let mut tape = self.tape.take().unwrap_or_default();
        tape.truncate(tape.iter().rposition(|&choice| choice != 0).map_or(0, |last| last + 1));
        tape
    }

    fn keep(&mut self, choice: u64) -> u64 {
        if let Some(tape) = &mut self.tape {
            tape.push(choice);
        }
        choice
    }

    /// 64 random bits.
    pub fn word(&mut self) -> u64 {
        let word = match &mut self.source {
            Source::Random(rng) => rng.next_u64(),
            Source::Script(choices) => choices.next().unwrap_or(0),
        };
        self.keep(word)
    }

    /// 32 random bits, which are never recorded: only the order of simultaneous events uses them.
    pub fn next_u32(&mut self) -> u32 {
        match &mut self.source {
            Source::Random(rng) => rng.next_u32(),
            Source::Script(_) => 0,
        }
    }

    /// A separate stream for operations that need many choices: one recorded number determines all
    /// of them; zero yields zeros.
    pub fn fork(&mut self) -> Rng {
        match self.below(FORKS) {
            0 => Rng::scripted(Vec::new()),
            number => Seeds::new(number).stream("fork", 0),
        }
    }

    /// A number below `bound`, which must not be zero. Unbiased: multiply, take the high half, and
    /// reject the few low halves that would favour some numbers (Lemire 2019).
    pub fn below(&mut self, bound: u64) -> u64 {
        assert!(bound > 0, "there is no number below zero");
        let choice = match &mut self.source {
            Source::Random(rng) => below(bound, rng),
            Source::Script(choices) => choices.next().unwrap_or(0).min(bound - 1),
        };
        self.keep(choice)
    }

    /// Records a number below `bound` that the caller has chosen; a script overrides it.
    pub fn decided(&mut self, choice: u64, bound: u64) -> u64 {
        match &self.source {
            Source::Random(_) => self.keep(choice),
            Source::Script(_) => self.below(bound),
        }
    }

    /// A number from `low` to `high`, both inclusive.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        assert!(low <= high, "{low} is above {high}");
        match (high - low).checked_add(1) {
            Some(span) => low + self.below(span),
            None => self.word(),
        }
    }

    /// The same for `u32`.
    pub fn range_u32(&mut self, low: u32, high: u32) -> u32 {
        u32::try_from(self.range(low.into(), high.into())).expect("between two u32s")
    }

    /// An index below `length`, which must not be zero.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).expect("below a usize")
    }

    /// A number from 0 to `length`, both inclusive.
    pub fn upto(&mut self, length: usize) -> usize {
        self.index(length + 1)
    }

    /// True with probability `of / outof`.
    pub fn chance(&mut self, of: u64, outof: u64) -> bool {
        self.below(outof) < of
    }

    /// A random element of a slice, which must not be empty.
    pub fn pick<'a, T>(&mut self, things: &'a [T]) -> &'a T {
        &things[self.index(things.len())]
    }

    /// An exponentially distributed waiting time with mean `mean`, from a table, so at most about
    /// six times the mean.
    pub fn exponential(&mut self, mean: u64) -> u64 {
        let slot = self.index(EXPONENTIAL.len());
        let low = if slot == 0 { 0 } else { u64::from(EXPONENTIAL[slot - 1]) };
        let scaled = self.range(low, u64::from(EXPONENTIAL[slot]));
        u64::try_from(u128::from(mean) * u128::from(scaled) / 256).unwrap_or(u64::MAX)
    }

    /// A number from `low` to `high`, with all powers of two equally likely, as for settings.
    pub fn magnitude(&mut self, low: u64, high: u64) -> u64 {
        assert!(0 < low && low <= high, "{low} to {high} spans no orders of magnitude");
        let doublings = u64::from((high / low).ilog2());
        let floor = low << self.range(0, doublings);
        self.range(floor, floor.saturating_mul(2).min(high))
    }

    /// Fills a buffer.
    pub fn fill(&mut self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(8) {
            chunk.copy_from_slice(&self.word().to_le_bytes()[..chunk.len()]);
        }
    }
}

fn below(bound: u64, rng: &mut ChaCha8Rng) -> u64 {
    let threshold = bound.wrapping_neg() % bound;
    loop {
        let product = u128::from(rng.next_u64()) * u128::from(bound);
        let (high, low) = halves(product);
        if low >= threshold {
            return high;
        }
    }
}

fn halves(product: u128) -> (u64, u64) {
    let bytes = product.to_le_bytes();
    let (low, high) = bytes.split_at(8);
    let word = |half: &[u8]| u64::from_le_bytes(half.try_into().expect("eight bytes"));
    (word(high), word(low))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn draws(rng: &mut Rng) -> Vec<u64> {
        (0..8).map(|_| rng.word()).collect()
    }

    #[test]
    fn streams_differ_by_seed_domain_and_entity() {
        let base = draws(&mut Seeds::new(7).stream("disk", 1));
        assert_eq!(base, draws(&mut Seeds::new(7).stream("disk", 1)));
        for mut other in [
            Seeds::new(8).stream("disk", 1),
            Seeds::new(7).stream("disk", 2),
            Seeds::new(7).stream("dist", 1),
        ] {
            assert_ne!(base, draws(&mut other));
        }
    }

    #[test]
    fn draw_in_one_stream_does_not_shift_another() {
        let seeds = Seeds::new(1);
        let (mut a, mut b) = (seeds.stream("net", 0), seeds.stream("net", 1));
        let undisturbed = draws(&mut b.clone());
        a.word();
        a.below(3);
        assert_eq!(draws(&mut b), undisturbed);
    }

    #[test]
    fn recorded_choices_replay_and_any_script_is_valid() {
        let mut rng = Seeds::new(4).stream("test", 0);
        let draw = |rng: &mut Rng| {
            let mut noise = [0; 11];
            rng.fill(&mut noise);
            (rng.range(3, 70), rng.exponential(1_000), rng.fork().word(), noise, rng.below(2))
        };
        for _ in 0..50 {
            rng.record();
            let given = draw(&mut rng);
            let choices = rng.recorded();
            assert_eq!(draw(&mut Rng::scripted(choices)), given);
        }
        let zeros = draw(&mut Rng::scripted(Vec::new()));
        assert_eq!(zeros, (3, 0, 0, [0; 11], 0));
        assert_eq!(Rng::scripted(vec![100, 100]).range(3, 7), 7, "clipped");
    }

    #[test]
    fn seed_tree_is_stable_across_versions() {
        let mut rng = Seeds::new(0x5eed).stream("golden", 3);
        let got = [rng.word(), rng.below(1_000_000), rng.exponential(1_000_000)];
        assert_eq!(got, GOLDEN, "a changed draw makes every recorded seed mean something else");
    }

    const GOLDEN: [u64; 3] = [14_706_254_757_079_085_329, 55808, 1_046_875];

    #[test]
    fn ranges_reach_both_ends_and_ratios_hold() {
        let mut rng = Seeds::new(2).stream("test", 0);
        let mut seen = [0_u32; 5];
        for _ in 0..5_000 {
            seen[usize::try_from(rng.range(3, 7) - 3).expect("small")] += 1;
        }
        assert!(seen.iter().all(|&n| (850..1_150).contains(&n)), "{seen:?}");
        let hits = (0..10_000).filter(|_| rng.chance(1, 8)).count();
        assert!((1_100..1_400).contains(&hits), "{hits}");
        assert_eq!(rng.range(9, 9), 9);
        assert!((0..100).all(|_| (50..=2_000).contains(&rng.magnitude(50, 2_000))));
    }

    #[test]
    fn exponential_has_its_mean() {
        let mut rng = Seeds::new(3).stream("test", 0);
        let sum: u64 = (0..20_000).map(|_| rng.exponential(1_000)).sum();
        assert!((950..1_050).contains(&(sum / 20_000)), "{}", sum / 20_000);
    }
}
