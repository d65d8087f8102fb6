//! Pauses before dialling a server that could not be reached.
//!
//! Owns the growing of the pauses and their end. Must not dial.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

const FIRST: Duration = Duration::from_millis(10);
const LONGEST: Duration = Duration::from_secs(1);

/// Doubles with each failure; a sign of life ends it.
#[derive(Default)]
pub(super) struct Backoff {
    failures: Cell<u32>,
    until: Cell<Option<Instant>>,
    ended: Notify,
}

impl Backoff {
    /// An attempt has failed. Is it the first one since the last success?
    pub(super) fn fail(&self) -> bool {
        let failures = self.failures.get();
        self.failures.set(failures.saturating_add(1));
        self.until.set(Some(Instant::now() + pause(failures)));
        failures == 0
    }

    /// The other end is there: whoever waits goes on.
    pub(super) fn reset(&self) {
        self.failures.set(0);
        self.until.set(None);
        self.ended.notify_waiters();
    }

    /// Waits until the next attempt may be made.
    pub(super) async fn wait(&self) {
        if let Some(until) = self.until.get() {
            tokio::select! {
                () = tokio::time::sleep_until(until) => {}
                () = self.ended.notified() => {}
            }
        }
    }
}

/// After so many failures before the latest.
fn pause(failures: u32) -> Duration {
    FIRST.saturating_mul(1 << failures.min(16)).min(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_from_10_ms_to_a_second_and_begin_anew_after_a_success() {
        let pauses: Vec<u128> = (0..9).map(|failures| pause(failures).as_millis()).collect();
        assert_eq!(pauses, [10, 20, 40, 80, 160, 320, 640, 1000, 1000]);
        assert_eq!(pause(u32::MAX), LONGEST);
        let backoff = Backoff::default();
        assert!(backoff.fail() && !backoff.fail());
        backoff.reset();
        assert!(backoff.fail());
    }
}
