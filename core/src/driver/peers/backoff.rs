//! Pauses before the next attempt to dial a server after a failure.
//!
//! Owns the length and the end of the pauses. Must not dial.

use std::time::Duration;

use crate::ids::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// The pause doubles with each failure, from 10 ms to 1 s; a message of the server ends it.
#[derive(Debug, Default)]
pub(super) struct Backoff {
    failures: u32,
    until: Option<Instant>,
}

impl Backoff {
    /// Notes a failed attempt. Returns whether it is the first since the last success.
    pub(super) fn fail(&mut self, now: Instant) -> bool {
        let pause = FIRST.saturating_mul(1 << self.failures.min(16)).min(LONGEST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now.after(pause));
        self.failures == 1
    }

    /// Ends the pause, because the server was reached.
    pub(super) fn reset(&mut self) {
        *self = Backoff::default();
    }

    /// When the next attempt may be made; `None` is at once.
    pub(super) fn until(&self) -> Option<Instant> {
        self.until
    }

    /// May the next attempt be made?
    pub(super) fn is_over(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| until <= now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_10_ms_to_1_s_until_a_reset() {
        let (mut backoff, now) = (Backoff::default(), Instant(0));
        assert!(backoff.is_over(now));
        let pauses: Vec<u64> = (0..40)
            .map(|attempt| {
                assert_eq!(backoff.fail(now), attempt == 0);
                assert!(!backoff.is_over(now));
                backoff.until().expect("it has failed").0 / 1_000_000
            })
            .collect();
        assert_eq!(pauses[..9], [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pauses[39], 1000);
        assert!(backoff.is_over(now.after(LONGEST)));
        backoff.reset();
        assert!(backoff.is_over(now) && backoff.fail(now));
    }
}
