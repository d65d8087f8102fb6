//! The newest transactions of the log, in memory: what learners that are a little behind are sent.
//!
//! Owns a bounded tail of the log. Whatever is not durable yet is always in it, so the disk is only asked for what it
//! has. Must not know learners.

use std::collections::VecDeque;

use crate::ids::Zxid;
use crate::store::Entry;

/// The tail.
#[derive(Debug)]
pub(crate) struct LogTail {
    /// The position that the tail begins after.
    after: Zxid,
    entries: VecDeque<Entry>,
    bytes: u64,
}

impl LogTail {
    /// Nothing yet, of a log that ends here.
    pub(crate) fn after(position: Zxid) -> LogTail {
        LogTail { after: position, entries: VecDeque::new(), bytes: 0 }
    }

    /// Takes up the next transaction.
    pub(crate) fn push(&mut self, entry: Entry) {
        self.bytes += entry.bytes.len() as u64;
        self.entries.push_back(entry);
    }

    /// Lets go of the oldest above `bytes`, as far as they are durable.
    pub(crate) fn trim(&mut self, bytes: u64, durable: Zxid) {
        while self.bytes > bytes
            && let Some(oldest) = self.entries.pop_front_if(|oldest| oldest.zxid <= durable)
        {
            self.bytes -= oldest.bytes.len() as u64;
            self.after = oldest.zxid;
        }
    }

    /// Forgets what comes after `last`.
    pub(crate) fn truncate(&mut self, last: Zxid) {
        while let Some(newest) = self.entries.pop_back_if(|newest| newest.zxid > last) {
            self.bytes -= newest.bytes.len() as u64;
        }
        self.after = self.after.min(last);
    }

    /// How many of its own rules it breaks where the log ends at `end`: bytes are counted right, and whoever has the whole
    /// log need not ask the disk. Visits every transaction.
    pub(crate) fn faults(&self, end: Zxid) -> usize {
        let bytes: u64 = self.entries.iter().map(|entry| entry.bytes.len() as u64).sum();
        usize::from(self.bytes != bytes) + usize::from(self.after > end)
    }

    /// The transactions after `position`, oldest first, if all of them are here.
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
    fn the_tail_knows_how_far_back_it_goes() {
        let mut recent = recent();
        assert_eq!(since(&recent, 3), None);
        assert_eq!(since(&recent, 4), Some(vec![5, 6, 7, 8]));
        recent.trim(20, Zxid(8));
        assert_eq!((since(&recent, 5), since(&recent, 6)), (None, Some(vec![7, 8])));
        assert_eq!(since(&recent, 8), Some(vec![]));
    }

    #[test]
    fn what_is_not_durable_is_kept_whatever_its_size() {
        let mut recent = recent();
        recent.trim(0, Zxid(5));
        assert_eq!(since(&recent, 5), Some(vec![6, 7, 8]));
    }

    #[test]
    fn a_cut_takes_the_newest() {
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
