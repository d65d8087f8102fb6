//! The thread that monitors the process itself, twice a second.
//!
//! Owns the thread, the detection of process pauses, and when free memory is returned to the
//! system. Must not touch the state of the server.

use std::thread;
use std::time::{Duration, Instant};

use crate::log_limit::LineLimits;

/// Time between two checks.
const PERIOD: Duration = Duration::from_millis(500);

/// Delay of a check that is logged: after such a pause sessions may have expired, and a quorum may
/// have replaced this server as leader or follower.
const PAUSE: Duration = Duration::from_secs(1);

/// Starts the thread, which ends with the process.
///
/// # Errors
/// The operating system cannot create a thread.
pub(crate) fn start(limits: LineLimits) -> std::io::Result<()> {
    let run = move || {
        let mut before = Instant::now();
        loop {
            thread::sleep(PERIOD);
            let now = Instant::now();
            if let Some(pause) = pause(now - before) {
                tracing::warn!(
                    "this process stood still for {} ms: it was stopped, or the machine had no \
                     time or memory \
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

/// Makes mimalloc return memory that has been free for a while. It does so when an allocation as
/// large as one of its segments is freed (`mi_arenas_try_purge`), which never happens on an idle
/// server. So this function allocates that much, does not touch it, and frees it.
fn return_memory() {
    const SEGMENT_BYTES: usize = 32 << 20;
    drop(std::hint::black_box(Vec::<u8>::with_capacity(SEGMENT_BYTES + 1)));
}

/// The delay of a check beyond [`PERIOD`], if it is at least [`PAUSE`].
fn pause(since_last: Duration) -> Option<Duration> {
    Some(since_last.saturating_sub(PERIOD)).filter(|pause| *pause >= PAUSE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pause_is_the_delay_of_a_check() {
        assert_eq!(pause(Duration::from_millis(1499)), None);
        assert_eq!(pause(Duration::from_millis(1500)), Some(Duration::from_secs(1)));
    }
}
