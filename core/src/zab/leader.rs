//! The leader (Java `Leader`, `LeaderZooKeeperServer`): establishes an epoch, then decides, numbers and commits.
//!
//! Owns who has promised, synchronised and acknowledged, and everything that only a serving leader has: the checks over
//! pending changes and the sessions' deadlines. Must not answer clients.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Epoch, ServerId, SessionId, Zxid};
use crate::io::{Cx, DurableState, Mark};
use crate::replica::Replica;
use crate::request::prep::Prep;
use crate::rng::KeyedHash;
use crate::session::{self, SessionTracker};
use crate::txn::{Origin, Txn, TxnOp};
use crate::wire::Request;

/// A server that was elected.
#[derive(Debug)]
pub(crate) struct Leader {
    epoch: Epoch,
    phase: Phase,
}

/// Where the leader stands; drawn in the module above.
#[derive(Debug)]
enum Phase {
    /// Waits for promises not to follow an older epoch.
    Discovery { promised: BTreeSet<ServerId> },
    /// Waits for servers that have taken over its history, durably.
    Synchronization { synced: BTreeSet<ServerId> },
    /// Serves.
    Broadcast(Box<Broadcast>),
}

/// What a serving leader has.
#[derive(Debug)]
pub(crate) struct Broadcast {
    pub(crate) tracker: SessionTracker,
    prep: Prep,
    next_session: SessionId,
    last_proposed: Zxid,
    /// How far each voter's log is.
    acked: BTreeMap<ServerId, Zxid>,
}

impl Leader {
    /// Begins a reign: proposes the epoch after the highest that was accepted, and promises it first (ZAB-03).
    pub(crate) fn begin(replica: &mut Replica, cx: &mut Cx<'_>) -> Leader {
        let epoch = replica.state().accepted_epoch.next();
        replica.save_state(cx, |state| state.accepted_epoch = epoch);
        Leader { epoch, phase: Phase::Discovery { promised: BTreeSet::new() } }
    }

    /// What serves, while this leader does.
    pub(crate) fn serving(&self) -> Option<&Broadcast> {
        match &self.phase {
            Phase::Broadcast(broadcast) => Some(broadcast),
            Phase::Discovery { .. } | Phase::Synchronization { .. } => None,
        }
    }

    /// The same, to act.
    pub(crate) fn broadcast(&mut self) -> Option<&mut Broadcast> {
        match &mut self.phase {
            Phase::Broadcast(broadcast) => Some(broadcast),
            Phase::Discovery { .. } | Phase::Synchronization { .. } => None,
        }
    }

    /// A state file of this server is durable: its own promise, or its own synchronisation. What an earlier reign
    /// wrote carries a smaller epoch and counts for nothing.
    pub(crate) fn on_state_durable(
        &mut self,
        durable: &DurableState,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let own = cx.config.id();
        let voters = cx.config.voters();
        match &mut self.phase {
            Phase::Discovery { promised } => {
                if durable.accepted_epoch == self.epoch {
                    promised.insert(own);
                }
                if voters.is_quorum(|id| promised.contains(&id)) {
                    cx.mark(Mark::DiscoveryPromised);
                    // The history is on the disk already, so the epoch may follow it (Z18).
                    let epoch = self.epoch;
                    replica.save_state(cx, |state| state.current_epoch = epoch);
                    self.phase = Phase::Synchronization { synced: BTreeSet::new() };
                }
            }
            Phase::Synchronization { synced } => {
                if durable.current_epoch == self.epoch {
                    synced.insert(own);
                }
            }
            Phase::Broadcast(_) => {}
        }
    }

    /// A quorum has the leader's history: all of it is committed, and service can begin once it is applied.
    pub(crate) fn is_established(&self, cx: &Cx<'_>) -> bool {
        match &self.phase {
            Phase::Synchronization { synced } => {
                cx.config.voters().is_quorum(|id| synced.contains(&id))
            }
            Phase::Discovery { .. } | Phase::Broadcast(_) => false,
        }
    }

    /// Service begins; the initial history is applied.
    pub(crate) fn activate(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        assert_eq!(replica.log().applied(), replica.log().appended(), "history before service");
        cx.mark(Mark::BroadcastBegun);
        let sessions = replica.sessions();
        self.phase = Phase::Broadcast(Box::new(Broadcast {
            tracker: SessionTracker::new(sessions, cx.config.tick(), cx.now.mono),
            prep: Prep::new(KeyedHash::new(cx.rng)),
            next_session: sessions.first_id(cx.config.id(), cx.now.wall),
            last_proposed: Zxid::start_of(self.epoch),
            acked: BTreeMap::new(),
        }));
    }
}

impl Broadcast {
    /// A write of a client: decided against the tree and all that is proposed, given a zxid, and handed to the log.
    pub(crate) fn propose(
        &mut self,
        session: SessionId,
        origin: Option<Origin>,
        request: Request,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let zxid = self.take_zxid(cx);
        let closes = request == Request::CloseSession;
        let op = self.prep.decide(replica.tree(), session, request, zxid);
        if matches!(op, TxnOp::Error { .. }) {
            cx.mark(Mark::WriteRefused);
        }
        if closes {
            // Nothing that comes later can revive it or create for it (SESS-06).
            self.tracker.forget(session);
        }
        replica.append(Txn { zxid, session, time: cx.now.wall, origin, op }, cx);
    }

    /// A new session, with the id that it will have.
    pub(crate) fn propose_session(
        &mut self,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> SessionId {
        let zxid = self.take_zxid(cx);
        let session = self.next_session;
        self.next_session = session::next_id(session);
        let op = TxnOp::CreateSession { timeout_ms };
        let txn = Txn { zxid, session, time: cx.now.wall, origin: Some(origin), op };
        replica.append(txn, cx);
        session
    }

    /// A voter's log has reached `zxid`. Returns how far the history is committed: as far as a quorum's logs are.
    pub(crate) fn on_ack(&mut self, from: ServerId, zxid: Zxid, cx: &Cx<'_>) -> Zxid {
        let acked = self.acked.entry(from).or_default();
        *acked = zxid.max(*acked);
        cx.config.voters().reached_by_quorum(|id| self.acked.get(&id).copied().unwrap_or_default())
    }

    /// The tree has moved on.
    pub(crate) fn on_applied(&mut self, txn: &Txn, cx: &Cx<'_>) {
        self.prep.applied(txn.zxid);
        if let TxnOp::CreateSession { timeout_ms } = txn.op {
            self.tracker.track(txn.session, timeout_ms, cx.now.mono);
        }
    }

    /// Is there a zxid left? If not, the leader must resign, and a new epoch goes on (ZAB-20).
    pub(crate) fn has_room(&self, cx: &Cx<'_>) -> bool {
        self.last_proposed.counter() < cx.config.limits.epoch_txns
            && self.last_proposed.next().is_some()
    }

    fn take_zxid(&mut self, cx: &Cx<'_>) -> Zxid {
        assert!(self.has_room(cx), "the caller resigns from an epoch that is used up");
        self.last_proposed = self.last_proposed.next().expect("there is room");
        self.last_proposed
    }
}
