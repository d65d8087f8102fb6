//! The monotonic clock and the wall clock of the process: the only place that reads system time for
//! the core.
//!
//! Owns the start of monotonic time. Must not know what the times are used for.
//!
//! Invariant: monotonic time starts near zero with the process and never goes back.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use zabkeeper_core::{Instant as CoreInstant, Now, WallMs};

/// Reads both clocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    start: Instant,
}

impl Clock {
    pub(crate) fn start() -> Clock {
        Clock { start: Instant::now() }
    }

    pub(crate) fn now(&self) -> Now {
        Now { mono: self.mono(), wall: wall() }
    }

    pub(crate) fn mono(&self) -> CoreInstant {
        CoreInstant::default().after(self.start.elapsed())
    }

    /// Converts to the clock of tokio's timers.
    pub(crate) fn timer(&self, at: CoreInstant) -> tokio::time::Instant {
        // A very late deadline must not overflow the operating system's clock.
        let offset = at.since(CoreInstant::default()).min(FAR);
        tokio::time::Instant::from_std(self.start + offset)
    }
}

/// The longest timer: a year.
const FAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);

pub(crate) fn wall() -> WallMs {
    let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    WallMs(ms)
}
