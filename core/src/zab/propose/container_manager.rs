//! When the leader deletes empty containers and expired TTL nodes (Java `ContainerManager`;
//! DATA-22).
//!
//! Owns the pace: a search begins at fixed intervals, and deletes the nodes it finds one by one,
//! evenly spaced. Must not decide whether a node may be deleted (`tree::expiry` and `prep` do), nor
//! propose.

use std::time::Duration;

use super::prep::{Prep, PrepContext};
use crate::config::TreeOptions;
use crate::cx::Cx;
use crate::ids::Instant;
use crate::tree::{Expiry, NodeId, Tree};
use crate::txn::TxnOp;

const MINUTE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct ContainerManager {
    /// Rounds begin at this time plus multiples of the interval.
    begun: Instant,
    /// The time of the next deletion in this round, or of the next round. `None` while the tree has
    /// no container and no TTL node.
    next: Option<Instant>,
    /// The last node that this round has examined.
    after: Option<(Expiry, NodeId)>,
}

impl ContainerManager {
    /// A new leader begins with a round that finds whatever the previous leader has not deleted.
    pub(crate) fn new(now: Instant) -> ContainerManager {
        ContainerManager { begun: now, next: None, after: None }
    }

    pub(crate) fn deadline(&mut self, tree: &Tree, cx: &Cx<'_>) -> Option<Instant> {
        if !tree.has_expiring() {
            (self.next, self.after) = (None, None);
        } else if self.next.is_none() {
            self.next = Some(self.next_round(cx.now.mono, &cx.config.tree));
        }
        self.next
    }

    /// The next deletion, if a node can be deleted now.
    pub(crate) fn take_due(
        &mut self,
        prep: &mut Prep,
        context: &PrepContext<'_>,
        now: Instant,
    ) -> Option<TxnOp> {
        let options = &context.config.tree;
        while let Some(found) = context.tree.next_expiring(self.after, context.time, options) {
            self.after = Some(found);
            if let Some(op) = prep.expiry(context, &context.tree.path_of(found.1)) {
                self.next = Some(now.after(MINUTE / options.container_max_per_minute.max(1)));
                return Some(op);
            }
        }
        self.pause(now, options);
        None
    }

    /// Ends the round; the next one begins at its regular time.
    pub(crate) fn pause(&mut self, now: Instant, options: &TreeOptions) {
        self.next = Some(self.next_round(now, options));
        self.after = None;
    }

    fn next_round(&self, now: Instant, options: &TreeOptions) -> Instant {
        let interval = options.container_check_ms.max(1).saturating_mul(1_000_000);
        let rounds = now.0.saturating_sub(self.begun.0) / interval + 1;
        self.begun.after(Duration::from_nanos(interval.saturating_mul(rounds)))
    }
}
