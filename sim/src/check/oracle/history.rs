//! A history in constant space per epoch, so that histories of any length can be compared.
//!
//! Owns the arithmetic of histories. Must not know servers.
//!
//! Within an epoch counters rise by one from 1, or from 0 where it begins with the first
//! configuration, and a server with a transaction of an epoch has all earlier ones of it; both are
//! checked when a transaction is logged (Z5, Z10). So the first and the last transaction of each
//! epoch determine the history, and two histories that contain the same transaction agree up to it.

use zabkeeper_core::{Epoch, Zxid};

/// A whole history from the first epoch: each epoch that has any transactions, in ascending order.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub(super) struct Path(Vec<Span>);

/// The transactions of an epoch; both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Span {
    first: Zxid,
    last: Zxid,
}

impl Path {
    /// The last transaction; zero where there is none.
    pub(super) fn end(&self) -> Zxid {
        self.0.last().map_or(Zxid::ZERO, |span| span.last)
    }

    /// Whether the history contains this transaction; `Zxid::ZERO` counts as contained.
    pub(super) fn contains(&self, zxid: Zxid) -> bool {
        if zxid == Zxid::ZERO {
            return true;
        }
        let place = self.0.binary_search_by_key(&zxid.epoch(), |span| span.last.epoch());
        place.is_ok_and(|place| (self.0[place].first..=self.0[place].last).contains(&zxid))
    }

    /// Whether this transaction may come next: the next counter, or the first one of a later epoch.
    pub(super) fn may_follow(&self, zxid: Zxid) -> bool {
        let end = self.end();
        match zxid.epoch() == end.epoch() {
            true => end.next() == Some(zxid),
            false => zxid.epoch() > end.epoch() && zxid.counter() <= 1,
        }
    }

    /// Appends the next transaction.
    pub(super) fn push(&mut self, zxid: Zxid) {
        match self.0.last_mut() {
            Some(span) if span.last.epoch() == zxid.epoch() => span.last = zxid,
            Some(_) | None => self.0.push(Span { first: zxid, last: zxid }),
        }
    }

    /// The last transaction at or before `zxid`, which need not be a transaction; zero where there
    /// is none.
    pub(super) fn at_or_before(&self, zxid: Zxid) -> Zxid {
        let later = self.0.partition_point(|span| span.first <= zxid);
        later.checked_sub(1).map_or(Zxid::ZERO, |place| self.0[place].last.min(zxid))
    }

    /// The last transaction before the given epoch; zero where there is none.
    pub(super) fn before_epoch(&self, epoch: Epoch) -> Zxid {
        let later = self.0.partition_point(|span| span.last.epoch() < epoch);
        later.checked_sub(1).map_or(Zxid::ZERO, |place| self.0[place].last)
    }

    /// Removes everything after `zxid`, which need not be a transaction.
    pub(super) fn cut(&mut self, zxid: Zxid) {
        self.0.retain(|span| span.first <= zxid);
        if let Some(span) = self.0.last_mut() {
            span.last = span.last.min(zxid);
        }
    }

    /// The transactions after `after`, up to and including `upto`, oldest first; `after` is a
    /// transaction or zero.
    pub(super) fn between(&self, after: Zxid, upto: Zxid) -> Vec<Zxid> {
        let mut out = Vec::new();
        for Span { first, last } in &self.0 {
            let begin = first.0.max(after.0 + 1);
            out.extend((begin..=last.0.min(upto.0)).map(Zxid));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn z(epoch: u64, counter: u64) -> Zxid {
        Zxid(epoch << 32 | counter)
    }

    fn path(zxids: &[Zxid]) -> Path {
        let mut path = Path::default();
        for zxid in zxids {
            assert!(path.may_follow(*zxid), "{zxid} after {}", path.end());
            path.push(*zxid);
        }
        path
    }

    fn three() -> Path {
        path(&[z(1, 1), z(1, 2), z(1, 3), z(4, 0), z(4, 1), z(4, 2), z(7, 1)])
    }

    #[test]
    fn history_contains_all_up_to_the_last_of_each_epoch() {
        let path = three();
        assert_eq!(path.end(), z(7, 1));
        for held in [Zxid::ZERO, z(1, 1), z(1, 3), z(4, 0), z(4, 2), z(7, 1)] {
            assert!(path.contains(held), "{held}");
        }
        for absent in [z(1, 0), z(1, 4), z(2, 1), z(4, 3), z(7, 0), z(7, 2), z(8, 1)] {
            assert!(!path.contains(absent), "{absent}");
        }
    }

    #[test]
    fn next_is_the_next_counter_or_the_first_of_a_later_epoch() {
        let path = three();
        assert!(path.may_follow(z(7, 2)) && path.may_follow(z(9, 1)) && path.may_follow(z(8, 0)));
        for wrong in [z(7, 1), z(7, 3), z(9, 2), z(6, 1), z(6, 0), z(7, 0)] {
            assert!(!path.may_follow(wrong), "{wrong}");
        }
        assert!(Path::default().may_follow(z(1, 1)) && !Path::default().may_follow(z(1, 2)));
    }

    #[test]
    fn any_zxid_has_a_last_transaction_at_or_before_it() {
        for (at, found) in [
            (z(9, 9), z(7, 1)),
            (z(7, 0), z(4, 2)),
            (z(5, 3), z(4, 2)),
            (z(4, 1), z(4, 1)),
            (z(4, 0), z(4, 0)),
            (z(3, 9), z(1, 3)),
            (z(1, 2), z(1, 2)),
            (z(1, 0), Zxid::ZERO),
        ] {
            assert_eq!(three().at_or_before(at), found, "{at}");
        }
        assert_eq!(three().before_epoch(Epoch(7)), z(4, 2));
        assert_eq!(three().before_epoch(Epoch(1)), Zxid::ZERO);
    }

    #[test]
    fn cut_keeps_transactions_at_or_before() {
        let mut cut = three();
        cut.cut(z(4, 1));
        assert_eq!(cut, path(&[z(1, 1), z(1, 2), z(1, 3), z(4, 0), z(4, 1)]));
        cut.cut(z(4, 0));
        assert_eq!(cut.end(), z(4, 0));
        cut.cut(z(3, 0));
        assert_eq!(cut.end(), z(1, 3));
        cut.cut(Zxid::ZERO);
        assert_eq!(cut, Path::default());
    }

    #[test]
    fn between_lists_transactions_in_order() {
        let path = three();
        assert_eq!(path.between(z(1, 2), z(4, 1)), [z(1, 3), z(4, 0), z(4, 1)]);
        assert_eq!(path.between(Zxid::ZERO, z(1, 2)), [z(1, 1), z(1, 2)]);
        assert_eq!(path.between(z(4, 2), z(7, 1)), [z(7, 1)]);
        assert_eq!(path.between(z(7, 1), z(7, 1)), []);
    }
}
