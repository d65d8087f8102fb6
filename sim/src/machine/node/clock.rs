//! The clocks of one machine: a monotonic one that runs fast or slow, and a wall clock that jumps.
//!
//! Owns the translation between virtual time and a server's time. Must not know what either is used
//! for.

use zabkeeper_core::{Instant, Now, WallMs};

/// Milliseconds since 1970 at which every run begins.
const EPOCH_MS: i64 = 1_700_000_000_000;

/// The clocks since a boot.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    booted_at: Instant,
    /// Reading of the monotonic clock at boot, ns.
    origin: u64,
    /// Thousandths by which the monotonic clock runs fast; negative: slow.
    drift: i64,
    /// Error of the wall clock, ms.
    wall_offset: i64,
}

impl Clock {
    /// Clocks of which the monotonic one shows `origin` at `booted_at` and runs `drift` thousandths
    /// fast.
    pub(crate) fn new(booted_at: Instant, origin: u64, drift: i64, wall_offset: i64) -> Clock {
        assert!((-500..=500).contains(&drift), "a drift of {drift} thousandths");
        Clock { booted_at, origin, drift, wall_offset }
    }

    /// Reads both clocks.
    pub(crate) fn read(&self, at: Instant) -> Now {
        let passed = at.0.saturating_sub(self.booted_at.0);
        let shown = passed.checked_mul(self.rate()).expect("a run is shorter than that") / 1_000;
        let mono = Instant(self.origin + shown);
        let ms = i64::try_from(at.0 / 1_000_000).expect("a run is shorter than that");
        Now { mono, wall: WallMs(EPOCH_MS + ms + self.wall_offset) }
    }

    /// When the monotonic clock will show `mono`.
    pub(crate) fn when(&self, mono: Instant) -> Instant {
        let ahead = mono.0.saturating_sub(self.origin);
        // A deadline whose computation overflows never comes.
        let passed =
            ahead.checked_mul(1_000).map_or(u64::MAX, |scaled| scaled.div_ceil(self.rate()));
        Instant(self.booted_at.0.saturating_add(passed))
    }

    /// The wall clock jumps by `ms`.
    pub(crate) fn step_wall(&mut self, ms: i64) {
        self.wall_offset += ms;
    }

    /// Error of the wall clock, ms; it survives a boot.
    pub(crate) fn wall_offset(&self) -> i64 {
        self.wall_offset
    }

    fn rate(&self) -> u64 {
        u64::try_from(1_000 + self.drift).expect("the drift is bounded")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_maps_to_the_first_instant_at_which_the_clock_reaches_it() {
        for drift in [-100, -7, 0, 3, 100] {
            let clock = Clock::new(Instant(5_000), 77, drift, 0);
            for deadline in [77, 78, 1_077, 123_456_789] {
                let at = clock.when(Instant(deadline));
                assert!(clock.read(at).mono >= Instant(deadline), "{drift} {deadline}");
                if at.0 > 5_000 {
                    assert!(clock.read(Instant(at.0 - 1)).mono < Instant(deadline));
                }
            }
        }
    }

    #[test]
    fn drift_changes_the_monotonic_clock_and_a_jump_only_the_wall_clock() {
        let mut clock = Clock::new(Instant(0), 0, 100, 0);
        let before = clock.read(Instant(1_000_000_000));
        assert_eq!(before.mono, Instant(1_100_000_000));
        clock.step_wall(-5_000);
        let after = clock.read(Instant(1_000_000_000));
        assert_eq!((after.mono, after.wall.0), (before.mono, before.wall.0 - 5_000));
    }
}
