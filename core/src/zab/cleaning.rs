//! When the leader deletes containers and nodes whose time is over (Java `ContainerManager`; DATA-22).
//!
//! Owns the pace: it looks every so often, and then deletes what it finds one by one, evenly spaced. Must not decide whether a
//! node may go (`tree::lapse` and `prep` do), nor propose.

use std::time::Duration;

use crate::config::TreeOptions;
use crate::cx::Cx;
use crate::ids::Instant;
use crate::request::prep::{Prep, PrepContext};
use crate::tree::{Expiry, NodeId, Tree};
use crate::txn::TxnOp;

const MINUTE: Duration = Duration::from_secs(60);

/// See the module.
#[derive(Debug)]
pub(crate) struct ContainerManager {
    /// Rounds begin at multiples of their interval from here.
    begun: Instant,
    /// The next deletion of this round, or the next round. `None` while there is nothing that could ever go.
    next: Option<Instant>,
    /// The last node that this round has looked at.
    after: Option<(Expiry, NodeId)>,
}

impl ContainerManager {
    /// A reign begins: whatever the last one has not deleted is found again.
    pub(crate) fn new(now: Instant) -> ContainerManager {
        ContainerManager { begun: now, next: None, after: None }
    }

    pub(crate) fn deadline(&mut self, tree: &Tree, cx: &Cx<'_>) -> Option<Instant> {
        if !tree.has_lapses() {
            (self.next, self.after) = (None, None);
        } else if self.next.is_none() {
            self.next = Some(self.next_round(cx.now.mono, &cx.config.tree));
        }
        self.next
    }

    /// The deletion that is due, if there is one.
    pub(crate) fn take_due(
        &mut self,
        prep: &mut Prep,
        case: &PrepContext<'_>,
        now: Instant,
    ) -> Option<TxnOp> {
        let options = &case.config.tree;
        while let Some(found) = case.tree.next_lapse(self.after, case.time, options) {
            self.after = Some(found);
            if let Some(op) = prep.lapse(case, &case.tree.path_of(found.1)) {
                self.next = Some(now.after(MINUTE / options.container_max_per_minute.max(1)));
                return Some(op);
            }
        }
        self.pause(now, options);
        None
    }

    /// No more until the next round.
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
