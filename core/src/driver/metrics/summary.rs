//! Summaries of measured values: count, sum, bounds, and quantiles of the last minute or two.
//!
//! Owns the arithmetic. Must not read a clock: whoever adds a value has the time already.
//!
//! Quantiles come from counts in buckets whose width grows with the value, 32 for each power of
//! two, so a quantile is at most 3.2 % too high. The buckets begin anew every minute; those of the
//! minute before are kept, so that a quantile never comes from a few values only.

use std::time::Duration;

use crate::ids::Instant;

/// Values below this have a bucket each, and there are as many buckets for each power of two above.
const FINE: u64 = 32;
const FINE_BITS: u32 = FINE.trailing_zeros();

/// Larger values count as this one: in microseconds, twelve days.
const LARGEST: u64 = (1 << 40) - 1;
const BUCKETS: usize = 36 * 32;

/// Time after which the buckets begin anew.
const WINDOW: Duration = Duration::from_secs(60);

/// The quantiles of a [`Summary`].
pub const QUANTILES: [f64; 5] = [0.5, 0.9, 0.95, 0.99, 0.999];

/// Count, sum and bounds of values.
#[derive(Clone, Copy, Debug, Default)]
pub struct Totals {
    count: u64,
    sum: u64,
    min: u64,
    max: u64,
}

/// The same with quantiles. An empty one has no buckets.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    totals: Totals,
    windows: Option<Box<Windows>>,
}

#[derive(Clone, Debug)]
struct Windows {
    began: Instant,
    current: Vec<u32>,
    before: Vec<u32>,
}

impl Totals {
    /// Adds a value.
    pub fn add(&mut self, value: u64) {
        self.add_times(value, 1);
    }

    fn add_times(&mut self, value: u64, times: u32) {
        self.min = if self.count == 0 { value } else { self.min.min(value) };
        self.max = self.max.max(value);
        self.count += u64::from(times);
        self.sum = self.sum.saturating_add(value.saturating_mul(times.into()));
    }

    /// Number of values.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Sum, least and largest of the values; zero if there are none.
    pub fn sum_min_max(&self) -> [u64; 3] {
        [self.sum, self.min, self.max]
    }
}

impl Summary {
    /// Adds a value.
    pub fn add(&mut self, value: u64, now: Instant) {
        self.add_times(value, 1, now);
    }

    /// Adds a time, in microseconds.
    pub fn add_time(&mut self, time: Duration, now: Instant) {
        self.add_time_of(time, 1, now);
    }

    /// Adds the time that each of so many events has taken.
    pub fn add_time_of(&mut self, time: Duration, events: u32, now: Instant) {
        self.add_times(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), events, now);
    }

    fn add_times(&mut self, value: u64, times: u32, now: Instant) {
        if times == 0 {
            return;
        }
        self.totals.add_times(value, times);
        let windows = self.windows.get_or_insert_with(|| {
            Box::new(Windows { began: now, current: vec![0; BUCKETS], before: Vec::new() })
        });
        windows.turn(now);
        let bucket = &mut windows.current[bucket_of(value)];
        *bucket = bucket.saturating_add(times);
    }

    /// Count, sum and bounds.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// The [`QUANTILES`] of the values of the last minute or two; `None` if there are none.
    pub fn quantiles(&self, now: Instant) -> Option<[u64; QUANTILES.len()]> {
        let windows = self.windows.as_ref()?;
        let age = now.since(windows.began);
        let none: &[u32] = &[];
        let current = if age < 2 * WINDOW { &windows.current } else { none };
        let before = if age < WINDOW { &windows.before } else { none };
        let counts = || {
            let before = before.iter().copied().chain(std::iter::repeat(0));
            current.iter().zip(before).map(|(a, b)| u64::from(*a) + u64::from(b))
        };
        let total: u64 = counts().sum();
        if total == 0 {
            return None;
        }
        // The least value that so many values do not exceed.
        let mut found = [0; QUANTILES.len()];
        let (mut next, mut below) = (0, 0);
        for (bucket, count) in counts().enumerate() {
            below += count;
            while next < QUANTILES.len() && below as f64 >= QUANTILES[next] * total as f64 {
                found[next] = largest_in(bucket).min(self.totals.max);
                next += 1;
            }
        }
        Some(found)
    }
}

impl Windows {
    /// Begins anew if the minute is over.
    fn turn(&mut self, now: Instant) {
        let age = now.since(self.began);
        if age < WINDOW {
            return;
        }
        std::mem::swap(&mut self.current, &mut self.before);
        if age >= 2 * WINDOW {
            self.before.clear();
        }
        self.current.clear();
        self.current.resize(BUCKETS, 0);
        self.began = now;
    }
}

/// The bucket of a value.
fn bucket_of(value: u64) -> usize {
    let value = value.min(LARGEST);
    let bucket = if value < FINE {
        value
    } else {
        let shift = value.ilog2() - FINE_BITS;
        u64::from(shift) * FINE + (value >> shift)
    };
    usize::try_from(bucket).unwrap_or(BUCKETS - 1)
}

/// The largest value of a bucket.
fn largest_in(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < 2 * FINE {
        return bucket;
    }
    let shift = bucket / FINE - 1;
    ((bucket % FINE + FINE + 1) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;

    fn at(seconds: u64) -> Instant {
        Instant(seconds * 1_000_000_000)
    }

    #[test]
    fn buckets_are_in_order_and_narrow() {
        let mut last = 0;
        for bucket in 0..BUCKETS {
            let largest = largest_in(bucket);
            assert_eq!(bucket_of(largest), bucket, "of {largest}");
            assert!(bucket == 0 || bucket_of(last + 1) == bucket, "from {last}");
            assert!(largest - last <= 1 + last / 32, "{last} to {largest}");
            last = largest;
        }
        assert_eq!(last, LARGEST);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn quantiles_are_those_of_sorted_values_within_three_percent() {
        let mut rng = Rng::new(7);
        for count in [1, 2, 10, 999, 5_000] {
            let mut summary = Summary::default();
            let mut values: Vec<u64> = (0..count)
                .map(|_| {
                    let magnitude = rng.below(20);
                    u64::from(rng.below(1 << magnitude))
                })
                .collect();
            values.iter().for_each(|value| summary.add(*value, at(1)));
            values.sort_unstable();
            let found = summary.quantiles(at(2)).expect("has values");
            for (quantile, found) in QUANTILES.into_iter().zip(found) {
                let is_enough = |below: usize| below as f64 >= quantile * values.len() as f64;
                let rank = (1..=values.len()).find(|below| is_enough(*below));
                let exact = values[rank.expect("all of them are enough") - 1];
                assert!(
                    exact <= found && found <= exact + exact / 31,
                    "{quantile} of {count}: {found}, not {exact}"
                );
            }
            let totals = summary.totals();
            assert_eq!(totals.count(), values.len() as u64);
            let [sum, min, max] = totals.sum_min_max();
            assert_eq!(sum, values.iter().sum::<u64>());
            assert_eq!((Some(&min), Some(&max)), (values.first(), values.last()));
        }
    }

    #[test]
    fn quantiles_forget_and_totals_do_not() {
        let mut summary = Summary::default();
        assert_eq!(summary.quantiles(at(0)), None);
        summary.add_time_of(Duration::from_micros(10), 3, at(0));
        summary.add_time(Duration::from_micros(20), at(61));
        assert_eq!(summary.quantiles(at(62)), Some([10, 20, 20, 20, 20]));
        assert_eq!(summary.quantiles(at(122)), Some([20; 5]), "the first minute is forgotten");
        assert_eq!(summary.quantiles(at(182)), None);
        summary.add(5, at(1_000));
        assert_eq!(summary.quantiles(at(1_000)), Some([5; 5]));
        assert_eq!((summary.totals().count(), summary.totals().sum_min_max()), (5, [55, 5, 20]));
    }
}
