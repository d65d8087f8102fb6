//! Nodes that go by themselves, in the order in which their time comes (DATA-18, DATA-19).
//!
//! Owns that order: it holds the childless containers and nodes with a time to live, and nothing else, so finding the next
//! one costs nothing for all the others. Must not know what time it is, nor delete (the leader does, by a transaction).

use std::ops::Bound;

use super::{NodeId, Tree};
use crate::config::TreeOptions;
use crate::ids::WallMs;
use crate::txn::Lifetime;

/// When a childless node may go.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Expiry {
    /// A container that had children: at any time.
    Emptied,
    /// A container that never had a child: some time after this wall clock, ms, if ever.
    Unused(i64),
    /// A node with a time to live: after this wall clock, ms.
    Expires(i64),
}

impl Expiry {
    /// Of a node of this kind that has children or none, ever had some, and was written at `mtime`.
    pub(crate) fn of(
        lifetime: Lifetime,
        children: u32,
        creates: i32,
        mtime: i64,
    ) -> Option<Expiry> {
        match lifetime {
            Lifetime::Persistent | Lifetime::Ephemeral => None,
            Lifetime::Container | Lifetime::Ttl { .. } if children > 0 => None,
            Lifetime::Container if creates > 0 => Some(Expiry::Emptied),
            Lifetime::Container => Some(Expiry::Unused(mtime)),
            Lifetime::Ttl { ms } => Some(Expiry::Expires(mtime.saturating_add_unsigned(ms))),
        }
    }

    /// Has its time come?
    pub(crate) fn is_due(self, now: WallMs, options: &TreeOptions) -> bool {
        match self {
            Expiry::Emptied => true,
            Expiry::Unused(mtime) => {
                let limit = options.container_never_used_ms;
                limit != 0 && now.0 > mtime.saturating_add_unsigned(limit)
            }
            Expiry::Expires(at) => options.extended_types && now.0 > at,
        }
    }
}

impl Tree {
    /// Is there anything that may go by itself, now or later?
    pub(crate) fn has_lapses(&self) -> bool {
        !self.lapses.is_empty()
    }

    /// The first node behind `after` whose time has come.
    pub(crate) fn next_lapse(
        &self,
        after: Option<(Expiry, NodeId)>,
        now: WallMs,
        options: &TreeOptions,
    ) -> Option<(Expiry, NodeId)> {
        let mut from = after.map_or(Bound::Unbounded, Bound::Excluded);
        loop {
            let next = *self.lapses.range((from, Bound::Unbounded)).next()?;
            if next.0.is_due(now, options) {
                return Some(next);
            }
            // Where one is early, all behind it of its kind are.
            from = match next.0 {
                Expiry::Emptied => unreachable!("it may go at any time"),
                Expiry::Unused(_) => Bound::Included((Expiry::Expires(i64::MIN), NodeId::ROOT)),
                Expiry::Expires(_) => return None,
            };
        }
    }

    /// To be called before a node changes: its time may change with it.
    pub(super) fn unlist_lapse(&mut self, id: NodeId) {
        if let Some(lapse) = self.lapse(id) {
            self.lapses.remove(&(lapse, id));
        }
    }

    /// To be called afterwards.
    pub(super) fn list_lapse(&mut self, id: NodeId) {
        if let Some(lapse) = self.lapse(id) {
            self.lapses.insert((lapse, id));
        }
    }

    fn lapse(&self, id: NodeId) -> Option<Expiry> {
        let node = self.node(id);
        Expiry::of(node.lifetime(), self.children_count(id), node.creates, node.mtime)
    }
}
