//! Containers and TTL nodes without children, in the order in which they expire (DATA-18, DATA-19).
//!
//! Owns that order. It lists no other nodes, so finding the next one is cheap. Must not know what
//! time it is, nor delete nodes (the leader does, by a transaction).

use std::ops::Bound;

use super::{NodeId, Tree};
use crate::config::TreeOptions;
use crate::ids::WallMs;
use crate::txn::Lifetime;

/// When a childless node expires.
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
    /// The expiry of a node, given its number of children, how many it ever had, and its `mtime`.
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

    /// Whether the node has expired.
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
    /// Whether any node may expire, now or later.
    pub(crate) fn has_expiring(&self) -> bool {
        !self.expiring.is_empty()
    }

    /// The first node after `after` that has expired.
    pub(crate) fn next_expiring(
        &self,
        after: Option<(Expiry, NodeId)>,
        now: WallMs,
        options: &TreeOptions,
    ) -> Option<(Expiry, NodeId)> {
        let mut from = after.map_or(Bound::Unbounded, Bound::Excluded);
        loop {
            let next = *self.expiring.range((from, Bound::Unbounded)).next()?;
            if next.0.is_due(now, options) {
                return Some(next);
            }
            // If one node has not expired, no later node of its kind has.
            from = match next.0 {
                Expiry::Emptied => unreachable!("it may go at any time"),
                Expiry::Unused(_) => Bound::Included((Expiry::Expires(i64::MIN), NodeId::ROOT)),
                Expiry::Expires(_) => return None,
            };
        }
    }

    /// To be called before a node changes in a way that may affect its expiry.
    pub(super) fn unindex_expiry(&mut self, id: NodeId) {
        if let Some(expiry) = self.expiry(id) {
            self.expiring.remove(&(expiry, id));
        }
    }

    /// To be called after that change.
    pub(super) fn index_expiry(&mut self, id: NodeId) {
        if let Some(expiry) = self.expiry(id) {
            self.expiring.insert((expiry, id));
        }
    }

    fn expiry(&self, id: NodeId) -> Option<Expiry> {
        let node = self.node(id);
        Expiry::of(node.lifetime(), self.children_count(id), node.creates, node.mtime)
    }
}
