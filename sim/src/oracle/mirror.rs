//! What one server's disk must hold: what was commanded, and what the worker has confirmed.
//!
//! Owns the commands of a log lane that are not confirmed yet. Must not judge: it says what a disk may look like.
//!
//! Commands run in order and a crash may come between any two of them, so a disk holds what is confirmed and then some
//! beginning of what is not. Appends may lie on the disk before an earlier one is confirmed, but never before an earlier
//! barrier (a state write, a truncation, a rebase) has been carried out.

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::store::DurableState;
use zabkeeper_core::{WriteId, Zxid};

use super::history::Path;

/// A disk, as far as the log lane is concerned.
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
    /// The history that the snapshot stands for.
    Rebase(Path),
    /// With the history that its snapshot stands for, if that is ahead of the log: recovery then goes on behind it.
    State(DurableState, Option<Path>),
}

/// One server's disk.
#[derive(Clone, Default, Debug)]
pub(super) struct Mirror {
    /// As the worker has confirmed.
    durable: Held,
    /// After all that was commanded.
    issued: Held,
    pending: VecDeque<(WriteId, Order)>,
    /// Snapshots ahead of the log, from a leader, whose last chunk was commanded in this life or an earlier one, with
    /// the number of that chunk.
    ahead: BTreeMap<Zxid, u32>,
    /// What a snapshot ahead of the log stands for that is there: recovery goes on behind it, whatever the state file
    /// says.
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

impl Mirror {
    pub(super) fn durable(&self) -> &Held {
        &self.durable
    }

    /// The history that is durable.
    pub(super) fn kept(&self) -> &Path {
        let log = &self.durable.path;
        self.installed.as_ref().filter(|path| path.end() > log.end()).unwrap_or(log)
    }

    pub(super) fn issued(&self) -> &Held {
        &self.issued
    }

    /// Is everything confirmed?
    pub(super) fn is_settled(&self) -> bool {
        self.pending.is_empty()
    }

    pub(super) fn command(&mut self, id: WriteId, order: Order) {
        self.issued.take(&order);
        self.pending.push_back((id, order));
    }

    /// The last chunk of a snapshot is on its way to the disk.
    pub(super) fn snapshot(&mut self, zxid: Zxid, index: u32) {
        if zxid > self.issued.path.end() {
            self.ahead.insert(zxid, index);
        }
    }

    /// A chunk is confirmed: the last one of a leader's snapshot makes it durable.
    pub(super) fn chunk_done(&mut self, zxid: Zxid, index: u32, committed: &Path) {
        if self.ahead.get(&zxid) == Some(&index) {
            let mut path = committed.clone();
            path.cut(zxid);
            self.installed = Some(path);
        }
    }

    /// Everything up to `id` is confirmed. Says whether state writes were among it.
    pub(super) fn done(&mut self, id: WriteId) -> bool {
        let mut stored = false;
        while let Some((_, order)) = self.pending.pop_front_if(|(next, _)| *next <= id) {
            stored |= matches!(order, Order::State(..));
            self.durable.take(&order);
        }
        stored
    }

    /// The disk that was found, if it is one that may be; `committed` is what a snapshot from a leader stands for.
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
            // A truncation that was cut off leaves any part of what it was to remove.
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

    /// A new life begins on what was found.
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
        *self = Mirror::default();
    }
}

/// Which snapshot is the newest is the disk's own affair: recovery finds out.
fn same(a: &DurableState, b: &DurableState) -> bool {
    let facts = |s: &DurableState| (s.accepted_epoch, s.current_epoch, s.damaged);
    facts(a) == facts(b)
}
