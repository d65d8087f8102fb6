//! Clients that wait for a `sync`.
//!
//! Owns which round of pings confirms whom. Must not send pings, nor answer anybody: `leader` does.
//!
//! A `sync` is answered once a quorum has answered a ping that was sent after the sync had arrived: until then another
//! leader may have been established, whose commits this one does not know (CONS-04, stronger than in ZooKeeper).

use std::collections::VecDeque;

use crate::ids::{ConnId, LinkId};

/// A client that waits for a `sync`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct SyncWaiter {
    /// The learner that it asked; `None` where it is connected to the leader.
    pub(crate) link: Option<LinkId>,
    pub(crate) conn: ConnId,
    pub(crate) request: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct Syncs {
    /// The last ping that asks for a sync, while it is not confirmed.
    asked: Option<u64>,
    /// Wait for that one.
    waiting: VecDeque<SyncWaiter>,
    /// Have come after it was sent: wait for the next one.
    next: VecDeque<SyncWaiter>,
}

impl Syncs {
    /// A client wants to see whatever is committed by now. Does it have to wait for the round after one that is under way?
    pub(crate) fn push(&mut self, waiter: SyncWaiter) -> bool {
        self.next.push_back(waiter);
        self.asked.is_some()
    }

    /// A ping is being sent: it can confirm what has come before, unless an earlier one still has to.
    pub(crate) fn on_ping(&mut self, round: u64) {
        if self.want_ping() {
            self.asked = Some(round);
            self.waiting = std::mem::take(&mut self.next);
        }
    }

    /// A quorum has answered pings up to this one. Returns whom that satisfies.
    pub(crate) fn on_confirmed(&mut self, round: u64) -> VecDeque<SyncWaiter> {
        if self.asked.is_none_or(|asked| asked > round) {
            return VecDeque::new();
        }
        self.asked = None;
        std::mem::take(&mut self.waiting)
    }

    /// Who waits.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len() + self.next.len()
    }

    /// Does somebody wait for a ping that is yet to be sent?
    pub(crate) fn want_ping(&self) -> bool {
        self.asked.is_none() && !self.next.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiter(request: u64) -> SyncWaiter {
        SyncWaiter { link: None, conn: ConnId(7), request }
    }

    #[test]
    fn cons_04_a_sync_is_not_confirmed_by_a_ping_that_was_sent_before_it_came() {
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

    #[test]
    fn cons_04_pings_that_ask_for_nothing_confirm_nothing() {
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
    fn one_round_serves_all_that_wait_for_it() {
        let mut syncs = Syncs::default();
        let all = [1, 2, 3].map(waiter);
        for one in all {
            syncs.push(one);
        }
        syncs.on_ping(9);
        assert_eq!(syncs.on_confirmed(9), all);
    }
}
