//! Reference model of the server's connection throttle (THR-05).
//!
//! Owns two buckets: the first gains its tokens as soon as they are due, and the second gains them
//! late and loses fractions, as Java's may. An admitted client must have found enough tokens in the
//! first; a refused client must have found too few in the second.

use std::time::Duration;

use zabkeeper_core::Instant;
use zabkeeper_core::throttle::{Handshake, ThrottleOptions, Weights};

/// The model. Amounts are tokens times the ns of one filling.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    weights: Option<Weights>,
    capacity: u128,
    per_fill: u128,
    fill_ns: u128,
    /// Random drops may refuse a client that the bucket admits.
    drops: Option<Drops>,
    at: Instant,
    /// When a client was last admitted, or the beginning, and the most that the bucket lacked then.
    admitted: Instant,
    missing: u128,
    most: u128,
    least: u128,
}

/// The largest possible probability of a random drop, in millionths.
#[derive(Clone, Debug)]
struct Drops {
    most: u32,
    increase: u32,
    decrease: u32,
    freeze_time: Duration,
    /// When the probability may last have changed.
    frozen: Instant,
}

impl Drops {
    /// Notes a handshake that finds the bucket certainly full, or possibly empty, or neither.
    fn on_attempt(&mut self, full: bool, empty: bool, now: Instant) {
        if now.since(self.frozen) <= self.freeze_time {
            return;
        }
        self.frozen = now;
        if full {
            self.most = self.most.saturating_sub(self.decrease);
        } else if empty {
            self.most = self.most.saturating_add(self.increase).min(1_000_000);
        }
    }
}

impl Gate {
    /// A full bucket.
    pub(super) fn new(options: &ThrottleOptions, now: Instant) -> Gate {
        let unit = u128::from(options.weights.map_or(1, |weights| weights.global));
        let fill_ns = options.fill_time.as_nanos().max(1);
        let capacity = u128::from(options.tokens) * unit * fill_ns;
        let drops = options.freeze_time.map(|freeze_time| Drops {
            most: 0,
            increase: options.drop_increase,
            decrease: options.drop_decrease,
            freeze_time,
            frozen: now,
        });
        Gate {
            weights: options.weights,
            capacity,
            per_fill: u128::from(options.fill_count) * unit,
            fill_ns,
            drops,
            at: now,
            admitted: now,
            missing: 0,
            most: capacity,
            least: capacity,
        }
    }

    /// Does the throttle admit every client?
    pub(super) fn is_open(&self) -> bool {
        self.capacity == 0
    }

    /// Compares a decision of the throttle with the model.
    ///
    /// # Errors
    /// The decision was wrong.
    pub(super) fn admit(
        &mut self,
        handshake: Handshake,
        admitted: bool,
        now: Instant,
    ) -> Result<(), String> {
        if self.is_open() {
            return Ok(());
        }
        let passed = now.since(self.at).as_nanos();
        self.at = now;
        // The server may credit passed time later: up to one filling, also to a bucket that was
        // full.
        let filling = self.per_fill * self.fill_ns;
        self.most = (self.most + passed * self.per_fill).min(self.capacity + filling);
        // Half of each filling may be lost, and the last one may not be credited yet.
        let late = filling / 2;
        self.least = (self.least + passed * self.per_fill / 2).min(self.capacity);
        let cost = self.cost(handshake) * self.fill_ns;
        let idle = now.since(self.admitted).as_nanos() * self.per_fill;
        let full = idle >= filling + 2 * self.missing;
        if let Some(drops) = &mut self.drops {
            drops.on_attempt(full, self.least < self.fill_ns + late, now);
        }
        if admitted {
            self.admitted = now;
            let held = self.most;
            self.most = held.saturating_sub(cost);
            self.least = self.least.saturating_sub(cost);
            self.missing = self.capacity - self.least.saturating_sub(late);
            let enough = held >= cost;
            return enough.then_some(()).ok_or_else(|| self.evidence("is let in", held, cost));
        }
        let enough = match &self.drops {
            None => full || self.least >= cost + late,
            Some(drops) => full && drops.most == 0,
        };
        if enough && cost <= self.capacity {
            Err(self.evidence("is refused", self.least, cost))
        } else {
            Ok(())
        }
    }

    fn cost(&self, handshake: Handshake) -> u128 {
        let Some(weights) = self.weights else {
            return 1;
        };
        u128::from(match handshake {
            Handshake::Global => weights.global,
            Handshake::Local => weights.local,
            Handshake::Renew => weights.renew,
        })
    }

    fn evidence(&self, what: &str, held: u128, cost: u128) -> String {
        let (held, cost) = (held / self.fill_ns, cost / self.fill_ns);
        format!("a client {what} that takes {cost} of {held} tokens")
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::throttle::ConnectThrottle;

    use super::*;
    use crate::engine::seed::Seeds;

    fn at(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    fn options() -> ThrottleOptions {
        let fill_time = Duration::from_millis(100);
        ThrottleOptions { tokens: 2, fill_time, ..ThrottleOptions::default() }
    }

    /// THR-05.
    #[test]
    fn early_admissions_and_late_refusals_are_reported() {
        let gate = Gate::new(&options(), at(0));
        let accepts = |scenario: &[(u64, bool)]| {
            let mut gate = gate.clone();
            let admits = |(ms, admitted): &(u64, bool)| {
                gate.admit(Handshake::Global, *admitted, at(*ms)).is_ok()
            };
            scenario.iter().map(admits).collect::<Vec<bool>>()
        };
        assert_eq!(accepts(&[(0, true), (0, true), (0, false), (101, true)]), [true; 4]);
        assert_eq!(accepts(&[(0, true), (0, true), (0, true)]), [true, true, false]);
        assert_eq!(accepts(&[(0, true), (0, true), (50, true)]), [true, true, false]);
        assert_eq!(accepts(&[(0, true), (0, true), (290, false)]), [true; 3]);
        assert_eq!(accepts(&[(0, true), (0, true), (310, false)]), [true, true, false]);
        assert_eq!(accepts(&[(0, false)]), [false], "the bucket is full");
    }

    /// THR-05.
    #[test]
    fn random_refusals_that_never_decrease_are_reported() {
        let options = ThrottleOptions {
            freeze_time: Some(Duration::from_millis(10)),
            drop_increase: 300_000,
            drop_decrease: 300_000,
            ..options()
        };
        let mut gate = Gate::new(&options, at(0));
        let mut accepts = |ms, admitted| gate.admit(Handshake::Global, admitted, at(ms)).is_ok();
        assert!(accepts(0, true) && accepts(0, true));
        assert!(
            accepts(20, false),
            "nothing is left, and from now on there are refusals at random"
        );
        assert!(
            !accepts(1_000, false),
            "it has had time to become full, and with that to refuse nobody"
        );
    }

    /// THR-05.
    #[test]
    fn throttle_of_the_server_agrees_with_the_model() {
        let mut rng = Seeds::new(3).stream("gate", 0);
        for _ in 0..200 {
            let options = ThrottleOptions {
                tokens: rng.range_u32(1, 6),
                fill_time: Duration::from_millis(rng.magnitude(1, 150)),
                fill_count: rng.range_u32(1, 3),
                weights: rng.chance(1, 2).then(Weights::default),
                freeze_time: rng.chance(1, 2).then(|| Duration::from_millis(rng.magnitude(1, 100))),
                drop_increase: rng.range_u32(1, 900_000),
                drop_decrease: rng.range_u32(1, 900_000),
                decrease_ratio: *rng.pick(&[0, 0, 200_000]),
            };
            let mut gate = Gate::new(&options, at(0));
            let mut throttle = ConnectThrottle::new(options.clone(), 5, at(0));
            let mut now = 0;
            for _ in 0..300 {
                now += rng.magnitude(1, 300_000_000);
                let all = [Handshake::Global, Handshake::Local, Handshake::Renew];
                let handshake = *rng.pick(&all);
                let admitted = throttle.admit(handshake, Instant(now));
                assert_eq!(gate.admit(handshake, admitted, Instant(now)), Ok(()), "{options:?}");
            }
        }
    }
}
