//! How long a message may take to arrive.
//!
//! Owns one moment. Must not read.

use std::time::Duration;

use crate::ids::Instant;

/// The message whose beginning has come on a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unfinished {
    limit: Duration,
    /// When its end has to be there.
    due: Option<Instant>,
    bytes: usize,
}

impl Unfinished {
    /// Messages have to end within `limit`.
    pub(super) fn new(limit: Duration) -> Unfinished {
        Unfinished { limit, due: None, bytes: 0 }
    }

    /// All whole messages have been taken, and so many bytes are left.
    pub(super) fn note(&mut self, bytes: usize, now: Instant) {
        // Where there are fewer than before, a message has ended and another one has begun.
        if bytes == 0 {
            self.due = None;
        } else if self.due.is_none() || bytes < self.bytes {
            self.due = Some(now.after(self.limit));
        }
        self.bytes = bytes;
    }

    /// One more message has come to its end.
    pub(super) fn ended(&mut self) {
        self.due = None;
    }

    /// When the end of the message is late; none where none has begun.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_a_message_and_not_with_each_of_its_bytes() {
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
