//! The watermarks of the history: the last zxid appended, durable, committed and applied.
//!
//! Owns the watermarks and the numbering of the log lane (Java: `SyncRequestProcessor`, without its
//! thread). Must not interpret transactions. Always applied <= committed <= appended and durable <=
//! appended. A committed transaction is never truncated.

pub(crate) mod epochs;
pub(crate) mod tail;

use std::collections::VecDeque;

use crate::ids::{WriteId, Zxid};
use crate::store::{DiskCommand, DurableState, Entry};

/// The watermarks of one server.
#[derive(Debug)]
pub(crate) struct Log {
    appended: Zxid,
    durable: Zxid,
    committed: Zxid,
    applied: Zxid,
    last_write: WriteId,
    /// Commands of the log lane that are under way.
    writing: VecDeque<Writing>,
    undurable_bytes: u64,
}

#[derive(Debug)]
struct Writing {
    id: WriteId,
    what: Written,
}

/// A finished command of the log lane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Written {
    /// A transaction of this many bytes.
    Entry(Zxid, u64),
    /// The state file.
    State(DurableState),
    /// A transaction of this many bytes, which a later truncation or rebase in the lane removes.
    Dropped(u64),
    /// The truncation or rebase itself.
    Cut,
}

impl Log {
    /// The watermarks after recovery: the log ends at `last`, and the tree has everything up to
    /// `applied`.
    pub(crate) fn recovered(applied: Zxid, last: Zxid) -> Log {
        let log = Log {
            appended: last,
            durable: last,
            committed: applied,
            applied,
            last_write: WriteId(0),
            writing: VecDeque::new(),
            undurable_bytes: 0,
        };
        log.check_watermarks();
        log
    }

    /// Checks the relations between the watermarks, and the numbering of the log lane.
    fn check_watermarks(&self) {
        let Log { appended, durable, committed, applied, last_write, .. } = self;
        assert!(applied <= committed, "applied {applied} is ahead of committed {committed}");
        assert!(committed <= appended, "committed {committed} is ahead of appended {appended}");
        assert!(durable <= appended, "durable {durable} is ahead of appended {appended}");
        let count = self.writing.len() as u64;
        let oldest = self.writing.front().map_or(last_write.next(), |writing| writing.id);
        let last = last_write.0;
        assert!(oldest.0 + count == last + 1, "{count} writes from {oldest} do not end at w{last}");
        if self.writing.is_empty() {
            let bytes = self.undurable_bytes;
            assert!(durable == appended, "nothing writes what follows {durable}, to {appended}");
            assert!(bytes == 0, "nothing writes the {bytes} bytes that are not durable");
        }
    }

    /// Has no transaction ever been logged?
    pub(crate) fn is_empty(&self) -> bool {
        self.appended == Zxid::ZERO
    }

    pub(crate) fn appended(&self) -> Zxid {
        self.appended
    }

    /// The last durable zxid. Transactions that are about to be truncated do not count.
    pub(crate) fn durable(&self) -> Zxid {
        self.durable
    }

    pub(crate) fn committed(&self) -> Zxid {
        self.committed
    }

    pub(crate) fn applied(&self) -> Zxid {
        self.applied
    }

    pub(crate) fn undurable_bytes(&self) -> u64 {
        self.undurable_bytes
    }

    /// Is a command of the log lane under way?
    pub(crate) fn is_writing(&self) -> bool {
        !self.writing.is_empty()
    }

    /// Returns the command that appends `entry`.
    pub(crate) fn append(&mut self, entry: Entry) -> DiskCommand {
        self.check_watermarks();
        assert!(entry.zxid > self.appended, "{} follows {}", entry.zxid, self.appended);
        self.appended = entry.zxid;
        let bytes = entry.bytes.len() as u64;
        self.undurable_bytes += bytes;
        let id = self.begin(Written::Entry(entry.zxid, bytes));
        self.check_watermarks();
        DiskCommand::Append { id, entry }
    }

    /// Returns the command that replaces the state file, and its id.
    pub(crate) fn save(&mut self, state: DurableState) -> (WriteId, DiskCommand) {
        let id = self.begin(Written::State(state.clone()));
        self.check_watermarks();
        (id, DiskCommand::SaveState { id, state })
    }

    /// Returns the command that removes everything after `last`, which is a logged zxid or the
    /// start of the log.
    pub(crate) fn truncate(&mut self, last: Zxid) -> DiskCommand {
        self.check_watermarks();
        assert!(last >= self.committed, "truncation to {last} undoes {}", self.committed);
        assert!(last <= self.appended, "{last} is ahead of {}", self.appended);
        self.cut(last);
        let id = self.begin(Written::Cut);
        self.check_watermarks();
        DiskCommand::Truncate { id, to: last }
    }

    /// Returns the command that removes the whole log; the log continues after the snapshot, whose
    /// zxid is higher.
    pub(crate) fn rebase(&mut self, snapshot: Zxid) -> DiskCommand {
        self.check_watermarks();
        assert!(snapshot > self.appended, "snapshot {snapshot} is not ahead of {}", self.appended);
        self.cut(Zxid::ZERO);
        self.appended = snapshot;
        self.durable = snapshot;
        self.committed = snapshot;
        self.applied = snapshot;
        let id = self.begin(Written::Cut);
        self.check_watermarks();
        DiskCommand::Rebase { id, snapshot }
    }

    /// Pops the next command that `done` covers; the caller repeats until `None`. The durable
    /// watermark advances for every append, no matter which role asked for it.
    pub(crate) fn done(&mut self, done: WriteId) -> Option<(WriteId, Written)> {
        self.check_watermarks();
        assert!(done <= self.last_write, "the disk finished {done}, which was never asked for");
        if self.writing.front()?.id > done {
            return None;
        }
        let writing = self.writing.pop_front()?;
        match writing.what {
            Written::Entry(zxid, bytes) => {
                let (durable, appended) = (self.durable, self.appended);
                assert!(zxid > durable, "{zxid} becomes durable after {durable}");
                assert!(zxid <= appended, "durable <= appended: {zxid} is ahead of {appended}");
                self.durable = zxid;
                self.undurable_bytes -= bytes;
            }
            Written::Dropped(bytes) => self.undurable_bytes -= bytes,
            Written::State(_) | Written::Cut => {}
        }
        self.check_watermarks();
        Some((writing.id, writing.what))
    }

    /// A quorum has logged everything up to `zxid`.
    pub(crate) fn commit(&mut self, zxid: Zxid) {
        let (committed, appended) = (self.committed, self.appended);
        assert!(committed <= zxid, "committed {committed} would go back to {zxid}");
        assert!(zxid <= appended, "committed <= appended: {zxid} is ahead of {appended}");
        self.committed = zxid;
        self.check_watermarks();
    }

    /// The tree has applied `zxid`.
    pub(crate) fn apply(&mut self, zxid: Zxid) {
        let (applied, committed) = (self.applied, self.committed);
        assert!(applied < zxid, "{zxid} is applied after {applied}");
        assert!(zxid <= committed, "applied <= committed: {zxid} is ahead of {committed}");
        self.applied = zxid;
        self.check_watermarks();
    }

    /// Entries after `last` no longer count, although they may still become durable before they are
    /// removed.
    fn cut(&mut self, last: Zxid) {
        self.appended = last;
        self.durable = self.durable.min(last);
        for writing in &mut self.writing {
            if let Written::Entry(zxid, bytes) = writing.what
                && zxid > last
            {
                writing.what = Written::Dropped(bytes);
            }
        }
    }

    fn begin(&mut self, what: Written) -> WriteId {
        self.last_write = self.last_write.next();
        self.writing.push_back(Writing { id: self.last_write, what });
        self.last_write
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    fn entry(zxid: u64) -> Entry {
        Entry { zxid: Zxid(zxid), bytes: Bytes::from_static(b"abc") }
    }

    #[test]
    fn completed_write_completes_all_earlier_ones() {
        let mut log = Log::recovered(Zxid(4), Zxid(5));
        log.append(entry(6));
        log.save(DurableState::default());
        log.append(entry(7));
        log.append(entry(8));
        assert_eq!(log.undurable_bytes(), 9);
        let mut done = Vec::new();
        while let Some((_, written)) = log.done(WriteId(3)) {
            done.push(written);
        }
        assert_eq!(
            done,
            [
                Written::Entry(Zxid(6), 3),
                Written::State(DurableState::default()),
                Written::Entry(Zxid(7), 3)
            ]
        );
        assert_eq!((log.durable(), log.appended(), log.undurable_bytes()), (Zxid(7), Zxid(8), 3));
    }

    #[test]
    fn truncated_entries_are_no_longer_durable() {
        let mut log = Log::recovered(Zxid(4), Zxid(5));
        log.append(entry(6));
        log.append(entry(7));
        log.done(WriteId(1));
        assert_eq!(log.durable(), Zxid(6));
        log.truncate(Zxid(5));
        assert_eq!((log.durable(), log.appended()), (Zxid(5), Zxid(5)));
        log.append(entry(9));
        while log.done(WriteId(3)).is_some() {}
        assert_eq!((log.durable(), log.undurable_bytes()), (Zxid(5), 3));
        log.rebase(Zxid(20));
        while log.done(WriteId(5)).is_some() {}
        assert_eq!((log.applied(), log.durable(), log.undurable_bytes()), (Zxid(20), Zxid(20), 0));
    }

    #[test]
    #[should_panic(expected = "committed <= appended")]
    fn committing_an_entry_before_its_append_panics() {
        Log::recovered(Zxid(4), Zxid(5)).commit(Zxid(6));
    }
}
