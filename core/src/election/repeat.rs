//! When a server sends its vote again, because notifications may be lost.
//!
//! Owns the pauses: they double from `notify_min` up to `notify_max`, until the next new proposal.
//! Must not know votes.

use std::time::Duration;

use crate::config::Limits;
use crate::ids::Instant;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Repeat {
    /// When all others were last notified; `None` before the own vote.
    sent_at: Option<Instant>,
    /// The current pause; `None` until [`Repeat::take`] gets the limits.
    pause: Option<Duration>,
}

impl Repeat {
    /// All others are notified of a new proposal.
    pub(super) fn begun(now: Instant) -> Repeat {
        Repeat { sent_at: Some(now), pause: None }
    }

    /// If the pause is over, begins the next one, and returns whether that has reached its longest.
    pub(super) fn take(&mut self, limits: &Limits, now: Instant) -> Option<bool> {
        let pause = *self.pause.get_or_insert(limits.notify_min);
        self.sent_at.filter(|at| now >= at.after(pause))?;
        let longer = pause.saturating_mul(2).min(limits.notify_max);
        *self = Repeat { sent_at: Some(now), pause: Some(longer) };
        Some(longer == pause)
    }

    /// When the pause ends. Before the first call of [`Repeat::take`] that is at once.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.sent_at.map(|at| at.after(self.pause.unwrap_or_default()))
    }
}
