//! The thread that looks after the process itself, twice a second.
//!
//! Owns the thread, how a pause is noticed, and when memory goes back to the system. Must not touch what is served.

use std::thread;
use std::time::{Duration, Instant};

use crate::quiet::LineLimits;

/// Time between two looks.
const PERIOD: Duration = Duration::from_millis(500);

/// A look that comes so much too late is worth a line: a session or a follower may have been given up meanwhile.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread, which ends with the process.
///
/// # Errors
/// The operating system refuses a thread.
pub(crate) fn start(limits: LineLimits) -> std::io::Result<()> {
    let run = move || {
        let mut before = Instant::now();
        loop {
            thread::sleep(PERIOD);
            let now = Instant::now();
            if let Some(pause) = pause(now - before) {
                tracing::warn!(
                    "this process stood still for {} ms: it was stopped, or the machine had no time or memory \
                     for it; other servers and clients may have given it up",
                    pause.as_millis()
                );
            }
            limits.say_what_was_suppressed(Some(now));
            return_memory();
            before = now;
        }
    };
    thread::Builder::new().name("monitor".to_owned()).spawn(run).map(drop)
}

/// Has the allocator give back what has been free for a while. mimalloc does so when something as large as one of its segments is
/// freed (`mi_arenas_try_purge`), which a server that has become quiet does not do. This much is reserved, and not touched.
fn return_memory() {
    const SEGMENT_BYTES: usize = 32 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(SEGMENT_BYTES + 1)));
}

/// By how much the time since the last look is too long, if that is worth a line.
fn pause(since_last: Duration) -> Option<Duration> {
    Some(since_last.saturating_sub(PERIOD)).filter(|pause| *pause >= PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_is_what_a_look_comes_too_late_by() {
        assert_eq!(pause(Duration::from_millis(1499)), None);
        assert_eq!(pause(Duration::from_millis(1500)), Some(Duration::from_secs(1)));
    }
}
