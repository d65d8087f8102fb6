//! What a log holds, as a few numbers: so that two logs can be compared whatever their length.
//!
//! Owns the spans of a log and the search for the last position that another log can share. Must not know servers.
//!
//! Within an epoch one leader deals counters without a gap, beginning at 1, and whoever has a transaction of an epoch
//! has all before it. So a log is one span for each epoch, and two logs that both hold a zxid agree up to it.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Zxid};

/// The transactions on a disk: everything after a position, as spans of epochs.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// The log holds what comes after this position, up to its end.
    after: Zxid,
    /// One for each epoch that has transactions, rising.
    spans: Vec<Span>,
}

/// The transactions of one epoch in a log; both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Span {
    first: Zxid,
    last: Zxid,
}

impl History {
    /// An empty log that begins after `position`, which is that of a snapshot, or zero.
    pub fn after(position: Zxid) -> History {
        History { after: position, spans: Vec::new() }
    }

    /// The position that the log begins after.
    pub fn start(&self) -> Zxid {
        self.after
    }

    /// The last transaction, or the position that the log begins after.
    pub fn end(&self) -> Zxid {
        self.spans.last().map_or(self.after, |span| span.last)
    }

    /// Are there transactions of this epoch, or does the log begin after one of them?
    pub(crate) fn holds(&self, epoch: Epoch) -> bool {
        self.after.epoch() == epoch || self.spans.iter().any(|span| span.first.epoch() == epoch)
    }

    /// May a transaction with this zxid come next? The following one of the same epoch, or the first of a later one.
    pub fn may_follow(&self, zxid: Zxid) -> bool {
        let end = self.end();
        let next = end.epoch() == zxid.epoch() && end.next() == Some(zxid);
        next || (zxid.epoch() > end.epoch() && zxid.counter() == 1)
    }

    /// Takes up the next transaction.
    ///
    /// # Panics
    /// Where it leaves a gap.
    pub fn push(&mut self, zxid: Zxid) {
        assert!(self.may_follow(zxid), "{zxid} does not follow {}", self.end());
        match self.spans.last_mut() {
            Some(span) if span.last.epoch() == zxid.epoch() => span.last = zxid,
            _ => self.spans.push(Span { first: zxid, last: zxid }),
        }
    }

    /// The last position at or before `zxid` that this log can vouch for; `None` where that lies before its start.
    pub(crate) fn last_at_or_before(&self, zxid: Zxid) -> Option<Zxid> {
        let span = self.spans.iter().rev().find(|span| span.first <= zxid);
        match span {
            Some(span) => Some(span.last.min(zxid)),
            None => (self.after <= zxid).then_some(self.after),
        }
    }

    /// Forgets everything after the last position at or before `zxid`, which becomes the end.
    ///
    /// # Panics
    /// Where that would lie before the start.
    pub(crate) fn truncate(&mut self, zxid: Zxid) {
        assert!(zxid >= self.after, "nothing before {} can be cut off", self.after);
        self.spans.retain(|span| span.first <= zxid);
        if let Some(span) = self.spans.last_mut() {
            span.last = span.last.min(zxid);
        }
    }

    /// Forgets what is at or before `zxid`: it may have been removed from the disk.
    pub(crate) fn forget(&mut self, zxid: Zxid) {
        if zxid <= self.after {
            return;
        }
        self.after = zxid;
        self.spans.retain(|span| span.last > zxid);
        if let Some(span) = self.spans.first_mut().filter(|span| span.first <= zxid) {
            span.first = Zxid(zxid.0 + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn z(epoch: u64, counter: u64) -> Zxid {
        Zxid(epoch << 32 | counter)
    }

    fn history(after: Zxid, zxids: impl IntoIterator<Item = Zxid>) -> History {
        let mut history = History::after(after);
        zxids.into_iter().for_each(|zxid| history.push(zxid));
        history
    }

    fn three_epochs() -> History {
        history(z(1, 4), [z(1, 5), z(1, 6), z(3, 1), z(3, 2), z(3, 3), z(7, 1)])
    }

    #[test]
    fn the_last_shared_position_is_found_by_epochs() {
        let ours = three_epochs();
        for (theirs, shared) in [
            (z(7, 1), Some(z(7, 1))),
            (z(9, 4), Some(z(7, 1))),
            (z(5, 2), Some(z(3, 3))),
            (z(3, 9), Some(z(3, 3))),
            (z(3, 2), Some(z(3, 2))),
            (z(2, 8), Some(z(1, 6))),
            (z(1, 4), Some(z(1, 4))),
            (z(1, 3), None),
            (Zxid::ZERO, None),
        ] {
            assert_eq!(ours.last_at_or_before(theirs), shared, "{theirs}");
        }
    }

    #[test]
    fn cutting_the_end_and_forgetting_the_start_keep_the_rest() {
        let mut log = three_epochs();
        log.truncate(z(5, 0));
        assert_eq!(log.end(), z(3, 3));
        log.truncate(z(3, 1));
        assert_eq!(log, history(z(1, 4), [z(1, 5), z(1, 6), z(3, 1)]));
        log.forget(z(1, 5));
        assert_eq!(log, history(z(1, 5), [z(1, 6), z(3, 1)]));
        log.forget(z(3, 1));
        assert_eq!((log.start(), log.end()), (z(3, 1), z(3, 1)));
        log.truncate(z(3, 1));
        assert_eq!(log, History::after(z(3, 1)));
    }

    #[test]
    fn zab_13_a_gap_is_told_from_the_next_transaction() {
        let log = three_epochs();
        assert!(log.may_follow(z(7, 2)) && log.may_follow(z(8, 1)));
        for wrong in [z(7, 1), z(7, 3), z(8, 2), z(3, 4), z(7, 0)] {
            assert!(!log.may_follow(wrong), "{wrong}");
        }
        assert!(History::after(z(2, 9)).may_follow(z(2, 10)));
    }
}
