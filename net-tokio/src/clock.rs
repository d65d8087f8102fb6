//! The two clocks of the process: the only place where the world's time enters.
//!
//! Owns when monotonic time began. Must not know what either is asked for.
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

    /// The same point in time on the clock of tokio's timers.
    pub(crate) fn timer(&self, at: CoreInstant) -> tokio::time::Instant {
        // A deadline at the end of time must not overflow the operating system's clock.
        let offset = at.since(CoreInstant::default()).min(FAR);
        tokio::time::Instant::from_std(self.start + offset)
    }
}

/// A year: no timer needs to be set later.
const FAR: std::time::Duration = std::time::Duration::from_secs(365 * 24 * 3600);

pub(crate) fn wall() -> WallMs {
    let ms = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(after) => i64::try_from(after.as_millis()).unwrap_or(i64::MAX),
        Err(before) => i64::try_from(before.duration().as_millis()).map_or(i64::MIN, |ms| -ms),
    };
    WallMs(ms)
}
