//! The zxids of a log in compact form, so that two logs can be compared regardless of length.
//!
//! Owns the spans of a log and the search for the last position that another log can share. Must
//! not know servers.
//!
//! Within an epoch, the one leader assigns counters without gaps, beginning at 1, or at 0 in the
//! epoch that puts the first configuration into the log. A server that has a transaction of an
//! epoch has all earlier ones. So a log has one span per epoch, and two logs that both contain a
//! zxid agree up to that zxid.

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Zxid};

/// The zxids of the transactions on a disk: everything after a start position, as one span per
/// epoch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct EpochIndex {
    /// The log contains everything after this zxid, up to its end.
    after: Zxid,
    /// One for each epoch that has transactions, by rising epoch.
    spans: Vec<Span>,
}

/// The transactions of one epoch in a log; both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
struct Span {
    first: Zxid,
    last: Zxid,
}

impl EpochIndex {
    /// An empty log that begins after `position`: the zxid of a snapshot, or zero.
    pub fn after(position: Zxid) -> EpochIndex {
        EpochIndex { after: position, spans: Vec::new() }
    }

    /// The position that the log begins after.
    pub fn start(&self) -> Zxid {
        self.after
    }

    /// The last transaction, or the position that the log begins after.
    pub fn end(&self) -> Zxid {
        self.spans.last().map_or(self.after, |span| span.last)
    }

    /// Does the log have transactions of this epoch, or begin after one of them?
    pub(crate) fn holds(&self, epoch: Epoch) -> bool {
        self.after.epoch() == epoch || self.spans.iter().any(|span| span.first.epoch() == epoch)
    }

    /// May a transaction with this zxid come next? True for the successor in the same epoch, and
    /// for counter 1 of a later epoch, or its counter 0, which a first configuration has.
    pub fn may_follow(&self, zxid: Zxid) -> bool {
        let end = self.end();
        let next = end.epoch() == zxid.epoch() && end.next() == Some(zxid);
        next || (zxid.epoch() > end.epoch() && zxid.counter() <= 1)
    }

    /// Appends the next transaction.
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

    /// The last position of this log at or before `zxid`; `None` if `zxid` lies before its start.
    pub(crate) fn last_at_or_before(&self, zxid: Zxid) -> Option<Zxid> {
        let span = self.spans.iter().rev().find(|span| span.first <= zxid);
        match span {
            Some(span) => Some(span.last.min(zxid)),
            None => (self.after <= zxid).then_some(self.after),
        }
    }

    /// The number of transactions after `position`, up to and with `to`.
    pub(crate) fn count(&self, position: Zxid, to: Zxid) -> u64 {
        let of = |span: &Span| {
            let (first, last) = (span.first.max(Zxid(position.0 + 1)), span.last.min(to));
            (last.0 + 1).saturating_sub(first.0)
        };
        self.spans.iter().map(of).sum()
    }

    /// Removes everything after the last position at or before `zxid`, which becomes the end.
    ///
    /// # Panics
    /// Where that would lie before the start.
    pub(crate) fn truncate(&mut self, zxid: Zxid) {
        assert!(zxid >= self.after, "nothing before {} can be cut off", self.after);
        self.spans.retain(|span| span.first <= zxid);
        if let Some(span) = self.spans.last_mut() {
            span.last = span.last.min(zxid);
        }
        assert!(self.end() <= zxid, "the log ends at {} after a cut at {zxid}", self.end());
        self.check_spans();
    }

    /// Removes the spans at or before `zxid`: the disk may have purged those transactions.
    ///
    /// # Panics
    /// Where the log ends before `zxid`.
    pub(crate) fn forget(&mut self, zxid: Zxid) {
        let end = self.end();
        assert!(zxid <= end, "the log ends at {end}, before {zxid}");
        if zxid <= self.after {
            return;
        }
        self.after = zxid;
        self.spans.retain(|span| span.last > zxid);
        if let Some(span) = self.spans.first_mut().filter(|span| span.first <= zxid) {
            span.first = Zxid(zxid.0 + 1);
        }
        assert!(self.end() == end, "the log ended at {end}, and now at {}", self.end());
        self.check_spans();
    }

    /// Checks that the spans rise, by epoch too, and begin after the start.
    fn check_spans(&self) {
        let spans = &self.spans;
        let sound =
            |span: &Span| span.first <= span.last && span.first.epoch() == span.last.epoch();
        debug_assert!(spans.iter().all(sound), "a span is not within an epoch: {self:?}");
        let rise = spans.is_sorted_by(|one, next| one.last.epoch() < next.first.epoch());
        debug_assert!(rise, "the epochs do not rise: {self:?}");
        let first = spans.first().map(|span| span.first);
        assert!(first.is_none_or(|first| first > self.after), "{first:?} before {}", self.after);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn z(epoch: u64, counter: u64) -> Zxid {
        Zxid(epoch << 32 | counter)
    }

    #[test]
    fn transactions_between_two_positions_are_counted() {
        let log = history(z(1, 3), [z(1, 4), z(1, 5), z(3, 1), z(3, 2), z(3, 3)]);
        assert_eq!(log.count(z(1, 3), z(3, 3)), 5);
        assert_eq!(log.count(z(1, 4), z(3, 1)), 2);
        assert_eq!(log.count(z(1, 5), z(2, 7)), 0);
        assert_eq!(log.count(z(3, 3), z(3, 1)), 0);
    }

    fn history(after: Zxid, zxids: impl IntoIterator<Item = Zxid>) -> EpochIndex {
        let mut history = EpochIndex::after(after);
        zxids.into_iter().for_each(|zxid| history.push(zxid));
        history
    }

    fn three_epochs() -> EpochIndex {
        history(z(1, 4), [z(1, 5), z(1, 6), z(3, 1), z(3, 2), z(3, 3), z(7, 1)])
    }

    #[test]
    fn last_shared_position_is_found_by_epoch() {
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
    fn truncate_and_forget_keep_the_positions_between() {
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
        assert_eq!(log, EpochIndex::after(z(3, 1)));
    }

    /// ZAB-13.
    #[test]
    fn gap_is_distinguished_from_the_next_transaction() {
        let log = three_epochs();
        assert!(log.may_follow(z(7, 2)) && log.may_follow(z(8, 1)));
        for wrong in [z(7, 1), z(7, 3), z(8, 2), z(3, 4), z(7, 0)] {
            assert!(!log.may_follow(wrong), "{wrong}");
        }
        assert!(EpochIndex::after(z(2, 9)).may_follow(z(2, 10)));
    }
}
