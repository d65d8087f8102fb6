//! Limit on the rate of client connections (Java `BlueThrottle`, THR-05).
//!
//! Owns the token bucket and the random drops. Must not close connections nor read clocks: the
//! driver passes it each handshake and the current time, before the core sees the handshake.
//!
//! A handshake takes tokens from a bucket that refills with time. If random drops are enabled,
//! their probability rises when the bucket is empty and falls when it is full enough.

use std::time::Duration;

use crate::ids::Instant;
use crate::rng::Rng;

/// Probability 1, in millionths.
const ALWAYS: u32 = 1_000_000;

/// Settings of a [`ConnectThrottle`]; see `connection_throttle_*` in ZooKeeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThrottleOptions {
    /// Capacity of the bucket in tokens; with weights, in new sessions. Default 0, which disables
    /// the throttle.
    pub tokens: u32,
    /// The bucket gains `fill_count` tokens per this time. At least 1 ms, the default.
    pub fill_time: Duration,
    /// Tokens gained per `fill_time`; with weights, in new sessions. Default 1.
    pub fill_count: u32,
    /// Minimum time between two changes of the drop probability. Default `None`, which disables
    /// random drops.
    pub freeze_time: Option<Duration>,
    /// Added to the drop probability when the bucket is empty, in millionths. Default 20,000.
    pub drop_increase: u32,
    /// Subtracted from the drop probability when the bucket is full enough, in millionths. Default
    /// 2,000.
    pub drop_decrease: u32,
    /// Part of the capacity that may be missing from a full enough bucket, in millionths. Default
    /// 0.
    pub decrease_ratio: u32,
    /// Cost of handshakes by kind. Default `None`: one token each.
    pub weights: Option<Weights>,
}

/// Cost of a handshake in tokens, by kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// A new session. Default 3.
    pub global: u32,
    /// A new local session. Default 1.
    pub local: u32,
    /// Reconnecting to an existing session. Default 2.
    pub renew: u32,
}

/// The kind of a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// A new session.
    Global,
    /// A new local session.
    Local,
    /// Reconnects to an existing session.
    Renew,
}

/// Decides whether a client may connect now.
#[derive(Debug)]
pub struct ConnectThrottle {
    options: ThrottleOptions,
    capacity: u64,
    tokens: u64,
    /// When the bucket was last refilled.
    filled: Instant,
    /// When the drop probability was last evaluated.
    frozen: Instant,
    /// The drop probability, in millionths.
    drop: u32,
    rng: Rng,
}

impl Default for ThrottleOptions {
    fn default() -> ThrottleOptions {
        ThrottleOptions {
            tokens: 0,
            fill_time: Duration::from_millis(1),
            fill_count: 1,
            freeze_time: None,
            drop_increase: 20_000,
            drop_decrease: 2_000,
            decrease_ratio: 0,
            weights: None,
        }
    }
}

impl Default for Weights {
    fn default() -> Weights {
        Weights { global: 3, local: 1, renew: 2 }
    }
}

impl ThrottleOptions {
    /// The bucket is configured in new sessions, so capacity and refill scale with their weight.
    fn scaled(&self, number: u32) -> u64 {
        u64::from(number) * u64::from(self.weights.map_or(1, |weights| weights.global))
    }

    fn cost(&self, handshake: Handshake) -> u64 {
        let Some(weights) = self.weights else {
            return 1;
        };
        u64::from(match handshake {
            Handshake::Global => weights.global,
            Handshake::Local => weights.local,
            Handshake::Renew => weights.renew,
        })
    }
}

impl ConnectThrottle {
    /// A full bucket. `seed` feeds the random drops.
    pub fn new(options: ThrottleOptions, seed: u64, now: Instant) -> ConnectThrottle {
        let capacity = options.scaled(options.tokens);
        ConnectThrottle {
            options,
            capacity,
            tokens: capacity,
            filled: now,
            frozen: now,
            drop: 0,
            rng: Rng::new(seed),
        }
    }

    /// Whether the client may connect. If so, takes its tokens.
    pub fn admit(&mut self, handshake: Handshake, now: Instant) -> bool {
        if self.capacity == 0 {
            return true;
        }
        self.fill(now);
        if self.is_dropped(now) {
            return false;
        }
        let cost = self.options.cost(handshake);
        let enough = self.tokens >= cost;
        if enough {
            self.tokens -= cost;
        }
        enough
    }

    /// Tokens that the bucket lacks.
    pub fn deficit(&self) -> u64 {
        self.capacity - self.tokens
    }

    /// The current probability of a random drop, in millionths.
    pub fn drop_probability(&self) -> u32 {
        self.drop
    }

    fn fill(&mut self, now: Instant) {
        let passed = now.since(self.filled);
        if passed <= self.options.fill_time {
            return;
        }
        let per_fill = u128::from(self.options.scaled(self.options.fill_count));
        let new = passed.as_nanos() * per_fill / self.options.fill_time.as_nanos().max(1);
        let new = u64::try_from(new).unwrap_or(u64::MAX);
        self.tokens = self.tokens.saturating_add(new).min(self.capacity);
        self.filled = now;
    }

    fn is_dropped(&mut self, now: Instant) -> bool {
        let Some(freeze_time) = self.options.freeze_time else {
            return false;
        };
        if now.since(self.frozen) > freeze_time {
            let missing = u128::from(self.capacity - self.tokens);
            let full_enough = u128::from(self.capacity) * u128::from(self.options.decrease_ratio);
            if self.tokens == 0 {
                self.drop = self.drop.saturating_add(self.options.drop_increase).min(ALWAYS);
            } else if missing * u128::from(ALWAYS) <= full_enough {
                self.drop = self.drop.saturating_sub(self.options.drop_decrease);
            }
            self.frozen = now;
        }
        self.rng.below(ALWAYS) < self.drop
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn throttle(options: ThrottleOptions) -> ConnectThrottle {
        ConnectThrottle::new(options, 7, at(0))
    }

    fn admitted(throttle: &mut ConnectThrottle, handshake: Handshake, ms: u64) -> usize {
        (0..100).take_while(|_| throttle.admit(handshake, at(ms))).count()
    }

    /// THR-05.
    #[test]
    fn throttle_without_tokens_admits_all() {
        assert_eq!(admitted(&mut throttle(ThrottleOptions::default()), Handshake::Global, 0), 100);
    }

    /// THR-05.
    #[test]
    fn bucket_empties_and_refills_with_time() {
        let fill_time = Duration::from_millis(10);
        let options = ThrottleOptions { tokens: 5, fill_time, fill_count: 2, ..Default::default() };
        let mut throttle = throttle(options);
        assert_eq!(admitted(&mut throttle, Handshake::Global, 0), 5);
        assert_eq!(admitted(&mut throttle, Handshake::Global, 10), 0, "only after the fill time");
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 11), 2);
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 1000), 5, "never more than it holds");
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 500), 0, "clocks that go back");
    }

    /// THR-05.
    #[test]
    fn capacity_counts_in_new_sessions_if_weighted() {
        let options =
            ThrottleOptions { tokens: 2, weights: Some(Weights::default()), ..Default::default() };
        let new = || throttle(options.clone());
        assert_eq!(admitted(&mut new(), Handshake::Global, 0), 2);
        assert_eq!(admitted(&mut new(), Handshake::Renew, 0), 3);
        assert_eq!(admitted(&mut new(), Handshake::Local, 0), 6);
    }

    /// THR-05.
    #[test]
    fn drop_probability_rises_if_bucket_is_empty_and_falls_if_full() {
        let mut throttle = throttle(ThrottleOptions {
            tokens: 1,
            fill_time: Duration::from_secs(1),
            freeze_time: Some(Duration::from_millis(10)),
            drop_increase: 400_000,
            drop_decrease: 300_000,
            ..Default::default()
        });
        assert!(throttle.admit(Handshake::Global, at(0)));
        let mut seen = Vec::new();
        for ms in [11, 15, 22, 33, 44] {
            assert!(!throttle.admit(Handshake::Global, at(ms)), "no token");
            seen.push(throttle.drop_probability());
        }
        assert_eq!(seen, [400_000, 400_000, 800_000, ALWAYS, ALWAYS]);
        assert!(!throttle.admit(Handshake::Global, at(1100)), "a token, and dropped at 70 %");
        let at_last = (0..20).find(|step| throttle.admit(Handshake::Global, at(1200 + 100 * step)));
        assert!(at_last.is_some());
        assert!(throttle.drop_probability() < 700_000);
    }
}
