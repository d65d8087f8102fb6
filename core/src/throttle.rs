//! How many clients may connect in a time (Java `BlueThrottle`, THR-05).
//!
//! Owns the token bucket and the random drops beside it. Must not close connections nor read clocks: the driver asks it
//! about each handshake before the core sees it, and says what time it is.
//!
//! A handshake takes tokens out of a bucket that fills with time. Beside that, if it is switched on, handshakes are
//! refused at random: more of them each time the bucket is found empty, fewer each time it is found full.

use std::time::Duration;

use crate::ids::Instant;
use crate::rng::Rng;

/// Certainty, in millionths.
const ALWAYS: u32 = 1_000_000;

/// Settings of a [`ConnectThrottle`]; see `connection_throttle_*` in ZooKeeper.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ThrottleOptions {
    /// Tokens that the bucket holds, for new sessions if weights differ. Default 0, which lets everybody in.
    pub tokens: u32,
    /// The bucket gets `fill_count` tokens in this time. At least 1 ms, which is the default.
    pub fill_time: Duration,
    /// Default 1.
    pub fill_count: u32,
    /// Random drops: the shortest time between two changes of their probability. Default none, which switches them off.
    pub freeze_time: Option<Duration>,
    /// What the probability gains with an empty bucket, in millionths. Default 20,000.
    pub drop_increase: u32,
    /// What it loses with a full enough bucket, in millionths. Default 2,000.
    pub drop_decrease: u32,
    /// The part of the bucket that may be missing from one that is full enough, in millionths. Default 0.
    pub decrease_ratio: u32,
    /// What handshakes cost; none is a token each, whatever they ask for. Default none.
    pub weights: Option<Weights>,
}

/// What a handshake costs in tokens.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Weights {
    /// A new session. Default 3.
    pub global: u32,
    /// A new local session. Default 1.
    pub local: u32,
    /// Going on with a session. Default 2.
    pub renew: u32,
}

/// What a handshake asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Handshake {
    /// A new session.
    Global,
    /// A new local session.
    Local,
    /// To go on with a session.
    Renew,
}

/// Decides whether a client may connect now.
#[derive(Debug)]
pub struct ConnectThrottle {
    options: ThrottleOptions,
    capacity: u64,
    tokens: u64,
    /// When the bucket got its last tokens.
    filled: Instant,
    /// When the probability of random drops changed last.
    frozen: Instant,
    /// That probability, in millionths.
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
    /// The numbers of the bucket are meant for new sessions, so both grow with their weight.
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

    /// May the client connect? If so, its tokens are taken.
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

    /// How probable a random drop is, in millionths.
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

    #[test]
    fn thr_05_without_tokens_everybody_is_let_in() {
        assert_eq!(admitted(&mut throttle(ThrottleOptions::default()), Handshake::Global, 0), 100);
    }

    #[test]
    fn thr_05_the_bucket_empties_and_fills_with_time() {
        let fill_time = Duration::from_millis(10);
        let options = ThrottleOptions { tokens: 5, fill_time, fill_count: 2, ..Default::default() };
        let mut throttle = throttle(options);
        assert_eq!(admitted(&mut throttle, Handshake::Global, 0), 5);
        assert_eq!(admitted(&mut throttle, Handshake::Global, 10), 0, "only after the fill time");
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 11), 2);
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 1000), 5, "never more than it holds");
        assert_eq!(admitted(&mut throttle, Handshake::Renew, 500), 0, "clocks that go back");
    }

    #[test]
    fn thr_05_weights_count_in_new_sessions() {
        let options =
            ThrottleOptions { tokens: 2, weights: Some(Weights::default()), ..Default::default() };
        let new = || throttle(options.clone());
        assert_eq!(admitted(&mut new(), Handshake::Global, 0), 2);
        assert_eq!(admitted(&mut new(), Handshake::Renew, 0), 3);
        assert_eq!(admitted(&mut new(), Handshake::Local, 0), 6);
    }

    #[test]
    fn thr_05_random_drops_grow_while_the_bucket_is_empty_and_shrink_when_it_is_full() {
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
