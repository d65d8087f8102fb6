//! Clients that wait for a `sync`.
//!
//! Owns which ping round confirms which sync. Must not send pings, nor answer clients: `leader`
//! does.
//!
//! A `sync` is answered once a quorum has answered a ping that was sent after the sync had arrived:
//! until then another leader may have been established, whose commits this one does not know
//! (CONS-04, stronger than in ZooKeeper).

use std::collections::VecDeque;

use crate::ids::{ConnId, LinkId};
use crate::peer::Behind;

/// A client that waits for a `sync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SyncWaiter {
    /// The learner that has forwarded it; `None` if the client is connected to the leader.
    pub(crate) link: Option<LinkId>,
    /// The observer that the learner has forwarded it for.
    pub(crate) behind: Option<Behind>,
    pub(crate) conn: ConnId,
    pub(crate) request: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// The ping round that has to confirm the syncs in `waiting`, until a quorum has answered it.
    asked: Option<u64>,
    /// The syncs that the round in `asked` confirms.
    waiting: VecDeque<SyncWaiter>,
    /// The syncs that have arrived after that ping was sent: the next one confirms them.
    next: VecDeque<SyncWaiter>,
}

impl Syncs {
    /// Adds a sync. Returns whether it must wait for the round after the current one.
    pub(crate) fn push(&mut self, waiter: SyncWaiter) -> bool {
        self.next.push_back(waiter);
        self.asked.is_some()
    }

    /// A ping is being sent: it will confirm the syncs in `next`, unless an earlier ping is
    /// unconfirmed.
    pub(crate) fn on_ping(&mut self, round: u64) {
        if self.want_ping() {
            let waiting = self.waiting.len();
            assert!(waiting == 0, "{waiting} syncs wait for no ping before round {round}");
            self.asked = Some(round);
            self.waiting = std::mem::take(&mut self.next);
        }
    }

    /// A quorum has answered the pings up to `round`. Returns the syncs that this confirms.
    pub(crate) fn on_confirmed(&mut self, round: u64) -> VecDeque<SyncWaiter> {
        if self.asked.is_none_or(|asked| asked > round) {
            return VecDeque::new();
        }
        self.asked = None;
        std::mem::take(&mut self.waiting)
    }

    /// The number of waiting syncs.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.next.len()
    }

    /// Does a sync wait for a ping that has not been sent?
    pub(crate) fn want_ping(&self) -> bool {
        self.asked.is_none() && !self.next.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(request: u64) -> SyncWaiter {
        SyncWaiter { link: None, behind: None, conn: ConnId(7), request }
    }

    /// CONS-04.
    #[test]
    fn sync_is_not_confirmed_by_an_earlier_ping() {
        let mut syncs = Syncs::default();
        assert!(!syncs.push(waiter(1)));
        syncs.on_ping(4);
        assert!(syncs.push(waiter(2)), "comes after the ping of round 4 has left");
        assert!(!syncs.want_ping(), "one round at a time");
        assert_eq!(syncs.on_confirmed(4), [waiter(1)]);
        assert!(syncs.want_ping());
        assert!(
            syncs.on_confirmed(4).is_empty(),
            "the same answers say nothing about what came later"
        );
        syncs.on_ping(5);
        assert_eq!(syncs.on_confirmed(5), [waiter(2)]);
        assert!(!syncs.want_ping());
    }

    /// CONS-04.
    #[test]
    fn ping_sent_before_the_sync_confirms_nothing_when_answered_late() {
        let mut syncs = Syncs::default();
        syncs.on_ping(1);
        assert!(!syncs.push(waiter(1)));
        assert!(syncs.on_confirmed(1).is_empty());
        syncs.on_ping(2);
        syncs.on_ping(3);
        assert!(syncs.on_confirmed(1).is_empty(), "answered late, to a ping from before it came");
        assert_eq!(syncs.on_confirmed(2), [waiter(1)], "the first ping after it came is enough");
    }

    #[test]
    fn one_ping_round_confirms_all_waiting_syncs() {
        let mut syncs = Syncs::default();
        let all = [1, 2, 3].map(waiter);
        for one in all {
            syncs.push(one);
        }
        syncs.on_ping(9);
        assert_eq!(syncs.on_confirmed(9), all);
    }
}
