//! The expected contents of one server's disk: what was commanded, and what the disk worker has
//! confirmed.
//!
//! Owns the unconfirmed commands of the log lane. Must not check anything: it only lists which disk
//! contents are possible.
//!
//! The worker runs commands in order, and a crash may come between any two of them, so a disk holds
//! all confirmed commands and then a prefix of the unconfirmed ones. Appends may reach the disk
//! before an earlier append is confirmed, but never before an earlier barrier (a state write, a
//! truncation, a rebase) is complete.

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::store::DurableState;
use zabkeeper_core::{ServerId, WriteId, Zxid};

use super::difference::Nodes;
use super::history::Path;

/// Digest of the tree and sessions on a disk.
#[derive(Clone, Debug)]
pub(super) struct DiskDigest {
    pub(super) server: ServerId,
    pub(super) zxid: Zxid,
    pub(super) digest: u64,
    /// The nodes behind the digest, kept where the digest may be wrong.
    pub(super) nodes: Option<Nodes>,
}

/// Log and state file of a disk.
#[derive(Clone, Default, Debug)]
pub(super) struct Held {
    pub(super) path: Path,
    pub(super) state: DurableState,
}

/// A command of the log lane.
#[derive(Clone, Debug)]
pub(super) enum Order {
    Append(Zxid),
    Truncate(Zxid),
    /// With the history that the snapshot contains.
    Rebase(Path),
    /// With the history that its snapshot contains, if the snapshot is ahead of the log: recovery
    /// then begins at the snapshot.
    State(DurableState, Option<Path>),
}

/// One server's disk.
#[derive(Clone, Default, Debug)]
pub(super) struct DiskModel {
    /// After all confirmed commands.
    durable: Held,
    /// After all commands.
    issued: Held,
    pending: VecDeque<(WriteId, Order)>,
    /// Leader's snapshots ahead of the log whose last chunk was commanded, now or before a restart,
    /// with the number of that chunk.
    ahead: BTreeMap<Zxid, u32>,
    /// The history in a complete snapshot ahead of the log. Recovery begins at that snapshot,
    /// for any content of the state file.
    installed: Option<Path>,
}

impl Held {
    fn take(&mut self, order: &Order) {
        match order {
            Order::Append(zxid) => self.path.push(*zxid),
            Order::Truncate(to) => self.path.cut(*to),
            Order::Rebase(path) => self.path = path.clone(),
            Order::State(state, ahead) => {
                self.state = state.clone();
                if let Some(path) = ahead {
                    self.path = path.clone();
                }
            }
        }
    }
}

impl DiskModel {
    pub(super) fn durable(&self) -> &Held {
        &self.durable
    }

    /// The durable history: the log, or a complete snapshot ahead of it.
    pub(super) fn kept(&self) -> &Path {
        let log = &self.durable.path;
        self.installed.as_ref().filter(|path| path.end() > log.end()).unwrap_or(log)
    }

    pub(super) fn issued(&self) -> &Held {
        &self.issued
    }

    /// Whether all commands are confirmed.
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn command(&mut self, id: WriteId, order: Order) {
        self.issued.take(&order);
        self.pending.push_back((id, order));
    }

    /// The last chunk of a snapshot is commanded.
    pub(super) fn snapshot(&mut self, zxid: Zxid, index: u32) {
        if zxid > self.issued.path.end() {
            self.ahead.insert(zxid, index);
        }
    }

    /// A chunk is confirmed: the last chunk of a leader's snapshot makes the snapshot durable.
    pub(super) fn chunk_done(&mut self, zxid: Zxid, index: u32, committed: &Path) {
        if self.ahead.get(&zxid) == Some(&index) {
            let mut path = committed.clone();
            path.cut(zxid);
            self.installed = Some(path);
        }
    }

    /// All commands up to `id` are confirmed. Returns whether state files were among them.
    pub(super) fn done(&mut self, id: WriteId) -> bool {
        let mut stored = false;
        while let Some((_, order)) = self.pending.pop_front_if(|(next, _)| *next <= id) {
            stored |= matches!(order, Order::State(..));
            self.durable.take(&order);
        }
        stored
    }

    /// The possible disk with this state and last zxid, if there is one; a leader's snapshot
    /// contains a prefix of `committed`.
    pub(super) fn explain(
        &self,
        state: &DurableState,
        last: Zxid,
        committed: &Path,
    ) -> Option<Held> {
        let mut held = self.durable.clone();
        if let Some(found) = self.matches(&held, state, last, committed) {
            return Some(found);
        }
        for (_, order) in &self.pending {
            // A truncation that a crash interrupts may leave any part of what it was to remove.
            let cut = match order {
                Order::Truncate(to) => held.path.contains(last) && last >= *to,
                Order::Append(_) | Order::Rebase(_) | Order::State(..) => false,
            };
            if cut && same(&held.state, state) {
                held.path.cut(last);
                return Some(held);
            }
            held.take(order);
            if let Some(found) = self.matches(&held, state, last, committed) {
                return Some(found);
            }
        }
        None
    }

    fn matches(
        &self,
        held: &Held,
        state: &DurableState,
        last: Zxid,
        committed: &Path,
    ) -> Option<Held> {
        if !same(&held.state, state) {
            return None;
        }
        if held.path.end() == last {
            return Some(held.clone());
        }
        let ahead = last > held.path.end() && self.ahead.contains_key(&last);
        ahead.then(|| {
            let mut path = committed.clone();
            path.cut(last);
            Held { path, state: state.clone() }
        })
    }

    /// A server recovers this from the disk.
    pub(super) fn reset(&mut self, held: Held) {
        let end = held.path.end();
        self.ahead.retain(|zxid, _| *zxid > end);
        self.installed = None;
        self.issued = held.clone();
        self.durable = held;
        self.pending.clear();
    }

    /// The disk has been replaced by an empty one.
    pub(super) fn wipe(&mut self) {
        *self = DiskModel::default();
    }
}

/// Ignores the newest snapshot, which recovery determines from the disk.
fn same(a: &DurableState, b: &DurableState) -> bool {
    let facts = |s: &DurableState| (s.accepted_epoch, s.current_epoch, s.damaged);
    facts(a) == facts(b)
}
