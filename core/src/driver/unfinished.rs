//! The time limit for the arrival of a message.
//!
//! Owns the deadline of the message whose first bytes have arrived. Must not read from a socket.

use std::time::Duration;

use crate::ids::Instant;

/// A message that has arrived in part.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    limit: Duration,
    /// The deadline for its last byte.
    due: Option<Instant>,
    bytes: usize,
}

impl Unfinished {
    /// No message has begun; each has to be complete `limit` after its beginning.
    pub(super) fn new(limit: Duration) -> Unfinished {
        Unfinished { limit, due: None, bytes: 0 }
    }

    /// Notes that `bytes` bytes of an incomplete message are left, after all complete messages have
    /// been taken.
    pub(super) fn note(&mut self, bytes: usize, now: Instant) {
        // The remainder has shrunk, so a message was completed and another one has begun.
        if bytes == 0 {
            self.due = None;
        } else if self.due.is_none() || bytes < self.bytes {
            self.due = Some(now.after(self.limit));
        }
        self.bytes = bytes;
    }

    /// Notes that a message is complete.
    pub(super) fn ended(&mut self) {
        self.due = None;
    }

    /// The deadline for the last byte of the message; `None` if none has begun.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn deadline_counts_from_the_first_byte_of_a_message() {
        let at = |ms| Instant(0).after(Duration::from_millis(ms));
        let mut unfinished = Unfinished::new(Duration::from_millis(1_000));
        unfinished.note(0, at(0));
        assert_eq!(unfinished.due(), None);
        unfinished.note(5, at(0));
        unfinished.note(900, at(700));
        assert_eq!(unfinished.due(), Some(at(1_000)));
        unfinished.note(3, at(800));
        assert_eq!(unfinished.due(), Some(at(1_800)));
        unfinished.ended();
        unfinished.note(4, at(900));
        assert_eq!(unfinished.due(), Some(at(1_900)));
        unfinished.note(0, at(950));
        assert_eq!(unfinished.due(), None);
    }
}
