//! The newest transactions of the log, in memory: sent to learners that are slightly behind.
//!
//! Owns a bounded tail of the log. Transactions that are not durable yet always stay in the tail,
//! so the disk is only asked for durable ones. Must not know learners.

use std::collections::VecDeque;

use crate::ids::Zxid;
use crate::store::Entry;

/// The tail.
#[derive(Debug)]
pub(crate) struct LogTail {
    /// The tail holds everything after this zxid.
    after: Zxid,
    entries: VecDeque<Entry>,
    bytes: u64,
    /// What follows this zxid stays in the tail, because learners are still to be sent it.
    held: Option<Zxid>,
}

impl LogTail {
    /// An empty tail of a log that ends at `position`.
    pub(crate) fn after(position: Zxid) -> LogTail {
        LogTail { after: position, entries: VecDeque::new(), bytes: 0, held: None }
    }

    /// Appends the next transaction.
    pub(crate) fn push(&mut self, entry: Entry) {
        let end = self.end();
        assert!(entry.zxid > end, "{} is pushed after {end}", entry.zxid);
        self.bytes += entry.bytes.len() as u64;
        self.entries.push_back(entry);
    }

    /// Keeps everything after this zxid; `None` keeps no more than the bound demands.
    pub(crate) fn hold(&mut self, after: Option<Zxid>) {
        self.held = after;
    }

    /// Drops the oldest durable transactions while the tail is larger than `bytes`.
    pub(crate) fn trim(&mut self, bytes: u64, durable: Zxid) {
        let last = self.held.map_or(durable, |held| held.min(durable));
        while self.bytes > bytes
            && let Some(oldest) = self.entries.pop_front_if(|oldest| oldest.zxid <= last)
        {
            self.bytes -= oldest.bytes.len() as u64;
            self.after = oldest.zxid;
        }
        self.check_ends();
    }

    /// Removes all transactions after `last`.
    pub(crate) fn truncate(&mut self, last: Zxid) {
        while let Some(newest) = self.entries.pop_back_if(|newest| newest.zxid > last) {
            self.bytes -= newest.bytes.len() as u64;
        }
        self.after = self.after.min(last);
        assert!(self.end() <= last, "the tail ends at {} after a cut at {last}", self.end());
        self.check_ends();
    }

    /// The last transaction of the tail, or the position that the tail begins after.
    pub(crate) fn end(&self) -> Zxid {
        self.entries.back().map_or(self.after, |newest| newest.zxid)
    }

    /// The position that the tail begins after.
    pub(crate) fn start(&self) -> Zxid {
        self.after
    }

    fn check_ends(&self) {
        let (after, bytes) = (self.after, self.bytes);
        let oldest = self.entries.front().map(|oldest| oldest.zxid);
        assert!(oldest.is_none_or(|oldest| oldest > after), "{oldest:?} is before {after}");
        assert!(oldest.is_some() || bytes == 0, "an empty tail counts {bytes} bytes");
    }

    /// Counts violated invariants, where the log ends at `end`: `bytes` is the sum of the entries,
    /// and `after` is not above `end`. Visits every transaction.
    pub(crate) fn faults(&self, end: Zxid) -> usize {
        let bytes: u64 = self.entries.iter().map(|entry| entry.bytes.len() as u64).sum();
        usize::from(self.bytes != bytes) + usize::from(self.after > end)
    }

    /// The transactions after `position`, oldest first; `None` if the tail begins after it.
    pub(crate) fn since(&self, position: Zxid) -> Option<impl Iterator<Item = &Entry>> {
        if position < self.after {
            return None;
        }
        let first = self.entries.partition_point(|entry| entry.zxid <= position);
        Some(self.entries.range(first..))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn recent() -> LogTail {
        let mut recent = LogTail::after(Zxid(4));
        for zxid in 5..=8 {
            recent.push(Entry { zxid: Zxid(zxid), bytes: vec![0; 10].into() });
        }
        recent
    }

    fn since(recent: &LogTail, position: u64) -> Option<Vec<u64>> {
        recent.since(Zxid(position)).map(|entries| entries.map(|entry| entry.zxid.0).collect())
    }

    #[test]
    fn tail_returns_entries_only_since_covered_positions() {
        let mut recent = recent();
        assert_eq!(since(&recent, 3), None);
        assert_eq!(since(&recent, 4), Some(vec![5, 6, 7, 8]));
        recent.trim(20, Zxid(8));
        assert_eq!((since(&recent, 5), since(&recent, 6)), (None, Some(vec![7, 8])));
        assert_eq!(since(&recent, 8), Some(vec![]));
    }

    #[test]
    fn trim_keeps_entries_that_are_not_durable() {
        let mut recent = recent();
        recent.trim(0, Zxid(5));
        assert_eq!(since(&recent, 5), Some(vec![6, 7, 8]));
    }

    #[test]
    fn trim_keeps_entries_that_are_held() {
        let mut recent = recent();
        recent.hold(Some(Zxid(6)));
        recent.trim(0, Zxid(8));
        assert_eq!(since(&recent, 6), Some(vec![7, 8]));
        recent.hold(None);
        recent.trim(0, Zxid(8));
        assert_eq!((since(&recent, 7), since(&recent, 8)), (None, Some(vec![])));
    }

    #[test]
    fn truncate_removes_the_newest_entries() {
        let mut recent = recent();
        recent.truncate(Zxid(6));
        assert_eq!(since(&recent, 4), Some(vec![5, 6]));
        recent.truncate(Zxid(3));
        assert_eq!((since(&recent, 2), since(&recent, 3)), (None, Some(vec![])));
        recent.push(Entry { zxid: Zxid(9), bytes: vec![0].into() });
        assert_eq!((recent.bytes, recent.faults(Zxid(9))), (1, 0));
        recent.bytes += 7;
        assert_eq!((recent.faults(Zxid(9)), recent.faults(Zxid(2))), (1, 2));
    }
}
