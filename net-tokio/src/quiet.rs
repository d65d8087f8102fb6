//! A bound on log lines whose rate others decide: whoever sends garbage must not fill the operator's disk.
//!
//! Owns the counting. Must not log.

use std::time::Duration;

use zabkeeper_core::Instant;

/// Counts the lines of the current window of time.
#[derive(Debug)]
pub(crate) struct LineLimit {
    most: u32,
    window: Duration,
    began: Instant,
    lines: u32,
    held_back: u64,
}

/// Ten lines a second.
impl Default for LineLimit {
    fn default() -> LineLimit {
        LineLimit::new(10, Duration::from_secs(1))
    }
}

impl LineLimit {
    /// So many lines in each window.
    pub(crate) fn new(most: u32, window: Duration) -> LineLimit {
        LineLimit { most, window, began: Instant::default(), lines: 0, held_back: 0 }
    }

    /// May one more line be logged now? If so, the answer is how many were held back since the last one.
    pub(crate) fn admit(&mut self, now: Instant) -> Option<u64> {
        if now.since(self.began) >= self.window {
            self.began = now;
            self.lines = 0;
        }
        if self.lines == self.most {
            self.held_back += 1;
            return None;
        }
        self.lines += 1;
        Some(std::mem::take(&mut self.held_back))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ten_lines_a_second_and_the_rest_is_counted() {
        let mut limit = LineLimit::default();
        let admitted = (0..25).filter(|_| limit.admit(Instant(5)).is_some()).count();
        assert_eq!(admitted, 10);
        assert_eq!(limit.admit(Instant(1_000_000_000)), Some(15));
        assert_eq!(limit.admit(Instant(1_000_000_001)), Some(0));
    }
}
