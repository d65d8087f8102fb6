//! Clients that wait for a `sync`.
//!
//! Owns which ping round confirms which sync, and which proposals each waits for. Must not send
//! pings, nor answer clients: `leader` does.
//!
//! A `sync` is answered once everything that was proposed before it is committed, as in ZooKeeper
//! (CONS-04): a client that has lost its connection then finds what it wrote before. Besides, a
//! quorum has answered a ping that was sent after the sync had arrived: until then another leader
//! may have been established, whose commits this one does not know.

use std::collections::VecDeque;

use crate::ids::{ConnId, LinkId, Zxid};
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
#[derive(Debug)]
pub(crate) struct Syncs {
    /// The history is committed up to this zxid.
    committed: Zxid,
    /// The syncs that a quorum has confirmed, each with the zxid that has to be committed; these
    /// rise.
    confirmed: VecDeque<(Zxid, SyncWaiter)>,
    /// The ping round that has to confirm the syncs in `waiting`, until a quorum has answered it.
    asked: Option<u64>,
    /// The syncs that the round in `asked` confirms.
    waiting: VecDeque<(Zxid, SyncWaiter)>,
    /// The syncs that have arrived after that ping was sent: the next one confirms them.
    next: VecDeque<(Zxid, SyncWaiter)>,
}

impl Syncs {
    /// No sync waits. The history is committed up to `committed`.
    pub(crate) fn new(committed: Zxid) -> Syncs {
        Syncs {
            committed,
            confirmed: VecDeque::new(),
            asked: None,
            waiting: VecDeque::new(),
            next: VecDeque::new(),
        }
    }

    /// Adds a sync that has arrived after `proposed` was. Returns whether it must wait for the
    /// round after the current one.
    pub(crate) fn push(&mut self, waiter: SyncWaiter, proposed: Zxid) -> bool {
        self.next.push_back((proposed, waiter));
        self.asked.is_some()
    }

    /// The history is committed up to `zxid`.
    pub(crate) fn on_committed(&mut self, zxid: Zxid) {
        self.committed = zxid;
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

    /// A quorum has answered the pings up to `round`. Returns the syncs that are complete.
    pub(crate) fn on_confirmed(&mut self, round: u64) -> Vec<SyncWaiter> {
        if self.asked.is_some_and(|asked| asked <= round) {
            self.asked = None;
            self.confirmed.append(&mut self.waiting);
        }
        let committed = self.committed;
        let complete = self.confirmed.iter().take_while(|(proposed, _)| *proposed <= committed);
        let complete = complete.count();
        self.confirmed.drain(..complete).map(|(_, waiter)| waiter).collect()
    }

    /// The number of waiting syncs.
    pub(crate) fn len(&self) -> usize {
        self.confirmed.len() + self.waiting.len() + self.next.len()
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
        let mut syncs = Syncs::new(Zxid(9));
        assert!(!syncs.push(waiter(1), Zxid(9)));
        syncs.on_ping(4);
        assert!(syncs.push(waiter(2), Zxid(9)), "comes after the ping of round 4 has left");
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
        let mut syncs = Syncs::new(Zxid(9));
        syncs.on_ping(1);
        assert!(!syncs.push(waiter(1), Zxid(9)));
        assert!(syncs.on_confirmed(1).is_empty());
        syncs.on_ping(2);
        syncs.on_ping(3);
        assert!(syncs.on_confirmed(1).is_empty(), "answered late, to a ping from before it came");
        assert_eq!(syncs.on_confirmed(2), [waiter(1)], "the first ping after it came is enough");
    }

    #[test]
    fn one_ping_round_confirms_all_waiting_syncs() {
        let mut syncs = Syncs::new(Zxid(9));
        let all = [1, 2, 3].map(waiter);
        for one in all {
            syncs.push(one, Zxid(9));
        }
        syncs.on_ping(9);
        assert_eq!(syncs.on_confirmed(9), all);
    }

    /// CONS-04.
    #[test]
    fn sync_waits_for_what_was_proposed_before_it() {
        let mut syncs = Syncs::new(Zxid(5));
        syncs.push(waiter(1), Zxid(6));
        syncs.push(waiter(2), Zxid(7));
        syncs.on_ping(1);
        assert!(syncs.on_confirmed(1).is_empty(), "a quorum has confirmed, and 6 is not committed");
        syncs.on_committed(Zxid(6));
        assert_eq!(syncs.on_confirmed(1), [waiter(1)]);
        syncs.push(waiter(3), Zxid(7));
        syncs.on_committed(Zxid(8));
        assert_eq!(syncs.on_confirmed(1), [waiter(2)], "no ping has confirmed the last one");
    }
}
