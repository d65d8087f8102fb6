//! How long a message may take to arrive.
//!
//! Owns one moment. Must not read.

use std::future::pending;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};

/// The message whose beginning has come on a connection.
#[derive(Clone, Copy)]
pub(crate) struct Unfinished {
    limit: Duration,
    /// When its end has to be there.
    due: Option<Instant>,
    bytes: usize,
}

impl Unfinished {
    pub(crate) fn new(limit: Duration) -> Unfinished {
        Unfinished { limit, due: None, bytes: 0 }
    }

    /// All whole messages have been taken, and so many bytes are left.
    pub(crate) fn note(&mut self, bytes: usize, now: Instant) {
        // Where there are fewer than before, a message has ended and another one has begun.
        if bytes == 0 {
            self.due = None;
        } else if self.due.is_none() || bytes < self.bytes {
            self.due = Some(now + self.limit);
        }
        self.bytes = bytes;
    }

    /// One more message has come to its end.
    pub(crate) fn ended(&mut self) {
        self.due = None;
    }

    /// Returns when the end is late.
    pub(crate) async fn late(&self) {
        match self.due {
            Some(due) => sleep_until(due).await,
            None => pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_begins_with_a_message_and_not_with_each_of_its_bytes() {
        let (began, ms) = (Instant::now(), Duration::from_millis);
        let mut unfinished = Unfinished::new(ms(1_000));
        unfinished.note(0, began);
        assert_eq!(unfinished.due, None);
        unfinished.note(5, began);
        unfinished.note(900, began + ms(700));
        assert_eq!(unfinished.due, Some(began + ms(1_000)));
        unfinished.note(3, began + ms(800));
        assert_eq!(unfinished.due, Some(began + ms(1_800)));
        unfinished.ended();
        unfinished.note(4, began + ms(900));
        assert_eq!(unfinished.due, Some(began + ms(1_900)));
        unfinished.note(0, began + ms(950));
        assert_eq!(unfinished.due, None);
    }
}
