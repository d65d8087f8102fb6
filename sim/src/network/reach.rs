//! Reachability between servers: partitions, separately for each direction.
//!
//! Owns which directions are cut, and until when. Must not know the traffic: callers stall streams,
//! and drop connection attempts and notifications.

use std::collections::BTreeMap;

use zabkeeper_core::{Instant, ServerId};

/// The cut directions.
#[derive(Debug, Default)]
pub struct Reach {
    /// Sender, receiver, and the end of the cut.
    cut: BTreeMap<(ServerId, ServerId), Instant>,
}

impl Reach {
    /// Cuts this direction until then.
    pub fn cut(&mut self, from: ServerId, to: ServerId, until: Instant) {
        let end = self.cut.entry((from, to)).or_default();
        *end = until.max(*end);
    }

    /// The end of the cut in this direction, if it is cut.
    pub fn cut_until(&self, now: Instant, from: ServerId, to: ServerId) -> Option<Instant> {
        self.cut.get(&(from, to)).copied().filter(|until| now < *until)
    }

    /// Whether a connection can be made, which needs both directions.
    pub fn connects(&self, now: Instant, one: ServerId, other: ServerId) -> bool {
        self.cut_until(now, one, other).is_none() && self.cut_until(now, other, one).is_none()
    }

    /// Number of directions that are cut now.
    pub fn count(&self, now: Instant) -> usize {
        self.cut.values().filter(|until| now < **until).count()
    }

    /// Removes all cuts.
    pub fn heal(&mut self) {
        self.cut.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cut_is_one_way_and_ends_by_time_or_heal() {
        let (a, b) = (ServerId(1), ServerId(2));
        let mut reach = Reach::default();
        reach.cut(a, b, Instant(100));
        reach.cut(a, b, Instant(50));
        assert_eq!(reach.cut_until(Instant(99), a, b), Some(Instant(100)));
        assert_eq!(reach.cut_until(Instant(99), b, a), None);
        assert!(!reach.connects(Instant(99), b, a), "a connection takes both directions");
        assert!(reach.connects(Instant(100), a, b));
        assert_eq!((reach.count(Instant(99)), reach.count(Instant(100))), (1, 0));
        reach.heal();
        assert!(reach.connects(Instant(0), a, b));
    }
}
