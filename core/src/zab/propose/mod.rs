//! The state that only a serving leader has (Java `LeaderZooKeeperServer`,
//! `ProposalRequestProcessor`).
//!
//! Owns the assignment of zxids, the checks against pending changes, the sessions' deadlines and
//! owners, the acknowledged zxid of each voter, and the syncs that wait for a quorum. Must not
//! answer clients, nor know how to reach learners.

mod container_manager;
mod pending;
mod prep;
mod reconfig;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use self::container_manager::ContainerManager;
use self::prep::{Prep, PrepContext};
use self::reconfig::Ensemble;
use super::leader::sync_requests::Syncs;
use crate::auth::Ids;
use crate::cost;
use crate::cx::Cx;
use crate::ids::{Epoch, Instant, ServerId, SessionId, Zxid};
use crate::io::Mark;
use crate::notice::Notice;
use crate::peer::SessionKind;
use crate::progress::ServerProgress;
use crate::replica::Replica;
use crate::rng::KeyedHash;
use crate::session::{self, SessionTracker};
use crate::store::Entry;
use crate::txn::{Origin, Txn, TxnOp};
use crate::wire::{Id, Request};

/// See the module.
#[derive(Debug)]
pub(crate) struct Proposer {
    pub(crate) tracker: SessionTracker,
    prep: Prep,
    containers: ContainerManager,
    /// The next session id, by the id byte of the server that the session is created for.
    next_session: BTreeMap<u8, SessionId>,
    /// Sessions whose creation or upgrade is proposed and not applied.
    beginning: BTreeSet<SessionId>,
    pub(crate) last_proposed: Zxid,
    /// The last zxid that each voter has acknowledged.
    acked: BTreeMap<ServerId, Zxid>,
    pub(crate) syncs: Syncs,
    /// When the last configuration was proposed.
    reconfigured_at: Option<Instant>,
}

/// The result of resuming a session on some server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Resumption {
    /// The session does not exist.
    Dead,
    /// The end of the session is proposed, and may be lost with this leader: the handshake waits
    /// for that transaction.
    Closing,
    /// The session already belongs to the client's server.
    Known,
    /// The session belongs to another server: this transaction moves it, and must be sent to the
    /// learners.
    Moves(Entry),
}

/// A client's write request.
#[derive(Debug)]
pub(crate) struct Write {
    /// The client's session.
    pub(crate) session: SessionId,
    /// The server, connection and request that get the reply.
    pub(crate) origin: Origin,
    /// The client's identities.
    pub(crate) ids: Ids,
    /// The request.
    pub(crate) request: Request,
    /// Is the session global, local, or to be upgraded?
    pub(crate) session_kind: SessionKind,
}

/// A write to decide, with or without a client that waits for it.
struct Decision<'a> {
    session: SessionId,
    /// Is the session local, so that the ensemble does not know it?
    local: bool,
    origin: Option<Origin>,
    ids: &'a [Arc<Id>],
    request: Request,
    /// How far all servers are, for a change of the ensemble.
    servers: &'a [ServerProgress],
}

impl Proposer {
    /// Service begins in `epoch`; the whole history is applied.
    pub(crate) fn new(epoch: Epoch, replica: &Replica, cx: &mut Cx<'_>) -> Proposer {
        let (applied, appended) = (replica.log().applied(), replica.log().appended());
        assert!(applied == appended, "service begins at {applied}, before {appended} is applied");
        let entered = replica.saved().current_epoch;
        assert!(entered == epoch, "service begins in {epoch}, and the durable epoch is {entered}");
        Proposer {
            tracker: SessionTracker::new(replica.sessions(), cx.config.tick(), cx.now.mono),
            prep: Prep::new(KeyedHash::new(cx.rng)),
            containers: ContainerManager::new(cx.now.mono),
            next_session: BTreeMap::new(),
            beginning: BTreeSet::new(),
            last_proposed: Zxid::start_of(epoch),
            acked: BTreeMap::new(),
            syncs: Syncs::new(Zxid::start_of(epoch)),
            reconfigured_at: None,
        }
    }

    /// Checks that proposals follow each other within the epoch of the leader, and that the log
    /// ends with the last one.
    pub(super) fn check_proposed(&self, epoch: Epoch, replica: &Replica) {
        let (last, appended) = (self.last_proposed, replica.log().appended());
        assert!(last.epoch() == epoch, "the leader of epoch {epoch} has proposed {last}");
        let first = last == Zxid::start_of(epoch);
        assert!(first || last == appended, "the log ends at {appended}, and proposals at {last}");
    }

    /// Decides a client's write against the tree and all pending changes, assigns a zxid and logs
    /// it. Returns `None` if the session is closing or gone (SESS-08), or belongs to another server
    /// (SESS-09): there is no reply, because the transaction that has ended or moved the session
    /// closes the connection. The leader does not verify that a session is local.
    pub(crate) fn propose(
        &mut self,
        write: Write,
        servers: &[ServerProgress],
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<Entry> {
        let Write { session, origin, ids, request, session_kind } = write;
        let local = session_kind == SessionKind::Local;
        if !local && !self.tracker.is_live(session) {
            cx.mark(Mark::RequestOnClosingSession);
            return None;
        }
        if !local && !self.tracker.check_owner(session, origin.server) {
            cx.mark(Mark::WriteOfMovedSession);
            return None;
        }
        let decision =
            Decision { session, local, origin: Some(origin), ids: &ids, request, servers };
        Some(self.decide(decision, replica, cx))
    }

    /// Proposes that a local session of `server` becomes global; this leader tracks its expiry from
    /// now on (SESS-15). Returns `None` if it is global already.
    pub(crate) fn propose_upgrade(
        &mut self,
        session: SessionId,
        timeout_ms: u32,
        server: ServerId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<Entry> {
        if self.has_begun(session, replica) {
            return None;
        }
        self.beginning.insert(session);
        self.tracker.track(session, timeout_ms, cx.now.mono);
        self.tracker.set_owner(session, server);
        // If the leader creates global sessions for this server later, their ids follow this one
        // (S4).
        let behind = replica.sessions().first_id_behind(session, server, cx.now.wall, &mut *cx.rng);
        let next = self.next_session.entry(session.server_byte()).or_insert(behind);
        *next = behind.max(*next);
        let zxid = self.take_zxid(cx);
        let op = TxnOp::UpgradeSession { timeout_ms, server };
        Some(replica.append(Txn { zxid, session, time: cx.now.wall, origin: None, op }, cx))
    }

    /// Is the session global, or will it be once everything is applied? It may be closing already.
    fn has_begun(&self, session: SessionId, replica: &Replica) -> bool {
        replica.sessions().timeout_ms(session).is_some() || self.beginning.contains(&session)
    }

    /// Proposes the end of an expired session.
    pub(crate) fn propose_expiry(
        &mut self,
        session: SessionId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Entry {
        let request = Request::CloseSession;
        let (local, origin, ids, servers) = (false, None, &[][..], &[][..]);
        let decision = Decision { session, local, origin, ids, request, servers };
        self.decide(decision, replica, cx)
    }

    fn decide(&mut self, decision: Decision<'_>, replica: &mut Replica, cx: &mut Cx<'_>) -> Entry {
        let Decision { session, local, origin, ids, request, servers } = decision;
        let zxid = self.take_zxid(cx);
        let closes = matches!(request, Request::CloseSession);
        let (config, schemes, time) = (cx.config, cx.schemes, cx.now.wall);
        let tree = replica.tree();
        let membership = replica.membership();
        let ensemble = membership.map(|membership| Ensemble { membership, servers });
        let context =
            PrepContext { tree, config, schemes, session, local, ids, zxid, time, ensemble };
        let op = self.prep.decide(&context, request);
        if self.prep.take_over_soft_quota() {
            cx.mark(Mark::QuotaSoft);
        }
        if self.prep.take_too_large() {
            cx.mark(Mark::RecordTooLarge);
        }
        if let Some(why) = self.prep.take_reconfig_refusal() {
            let server = origin.map_or(cx.config.id(), |origin| origin.server);
            cx.out.notices.push(Notice::ReconfigRefused { session, server, why });
        }
        if matches!(op, TxnOp::Error { .. }) {
            cx.mark(Mark::WriteRefused);
        }
        if matches!(op, TxnOp::Reconfig { .. }) {
            self.reconfigured_at = Some(cx.now.mono);
        }
        cx.spend(cost::of_decision(&op));
        if closes {
            // No later request can renew the session or create a node for it (SESS-06).
            self.tracker.set_closing(session);
        }
        replica.append(Txn { zxid, session, time: cx.now.wall, origin, op }, cx)
    }

    /// The time of the next [`Proposer::check_containers`].
    pub(crate) fn container_deadline(&mut self, replica: &Replica, cx: &Cx<'_>) -> Option<Instant> {
        self.containers.deadline(replica.tree(), cx)
    }

    /// Postpones the search to the next round, which finds the same nodes.
    pub(crate) fn pause_containers(&mut self, cx: &Cx<'_>) {
        self.containers.pause(cx.now.mono, &cx.config.tree);
    }

    /// Finds the next container or TTL node to delete, and proposes its deletion. The deletion is
    /// checked beforehand, so that no failed one is logged.
    pub(crate) fn check_containers(
        &mut self,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<Entry> {
        let Some(zxid) = self.last_proposed.next().filter(|_| self.has_room(cx)) else {
            self.pause_containers(cx);
            return None;
        };
        let (config, schemes, time) = (cx.config, cx.schemes, cx.now.wall);
        let (tree, session) = (replica.tree(), SessionId(0));
        let (local, ids, ensemble) = (false, &[][..], None);
        let context =
            PrepContext { tree, config, schemes, session, local, ids, zxid, time, ensemble };
        let op = self.containers.take_due(&mut self.prep, &context, cx.now.mono)?;
        let zxid = self.take_zxid(cx);
        cx.mark(Mark::NodeExpired);
        Some(replica.append(Txn { zxid, session, time, origin: None, op }, cx))
    }

    /// Proposes a new session; its id contains the server that the client is connected to.
    pub(crate) fn propose_session(
        &mut self,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Entry {
        let zxid = self.take_zxid(cx);
        let byte = origin.server.session_byte();
        let first = || replica.sessions().first_id(origin.server, cx.now.wall, &mut *cx.rng);
        let mut session = *self.next_session.entry(byte).or_insert_with(first);
        // A server chooses the ids of its local sessions, so this id may be in use.
        while self.has_begun(session, replica) {
            session = session::next_id(session);
        }
        self.next_session.insert(byte, session::next_id(session));
        self.beginning.insert(session);
        let op = TxnOp::CreateSession { timeout_ms };
        let txn = Txn { zxid, session, time: cx.now.wall, origin: Some(origin), op };
        replica.append(txn, cx)
    }

    /// Resumes a session for a client of `origin.server` (HS-10, HS-11). The caller ensures that a
    /// zxid is free.
    pub(crate) fn resume_session(
        &mut self,
        session: SessionId,
        timeout_ms: u32,
        origin: Origin,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Resumption {
        if !self.tracker.is_live(session) {
            let closing = self.has_begun(session, replica);
            return if closing { Resumption::Closing } else { Resumption::Dead };
        }
        self.tracker.track(session, timeout_ms, cx.now.mono);
        // A move that is not applied may be lost with this leader, and the connection must not be
        // served without it.
        let applied = replica.sessions().owner(session) == Some(origin.server);
        if applied && self.tracker.check_owner(session, origin.server) {
            return Resumption::Known;
        }
        cx.mark(Mark::SessionMoved);
        self.tracker.set_owner(session, origin.server);
        let zxid = self.take_zxid(cx);
        let op = TxnOp::MoveSession { server: origin.server };
        let txn = Txn { zxid, session, time: cx.now.wall, origin: Some(origin), op };
        Resumption::Moves(replica.append(txn, cx))
    }

    /// A voter has acknowledged `zxid`. Returns the zxid up to which a quorum has acknowledged the
    /// history.
    pub(crate) fn on_ack(&mut self, from: ServerId, zxid: Zxid, cx: &mut Cx<'_>) -> Zxid {
        let own = cx.config.id();
        let acked = self.acked.entry(from).or_default();
        let before = std::mem::replace(acked, zxid.max(*acked));
        assert!(from != own || before <= zxid, "the own log is durable to {before}, not {zxid}");
        let voters = cx.voters;
        let acked = |id| self.acked.get(&id).copied().unwrap_or_default();
        let committed = self.agreed(cx);
        let has = |id| acked(id) >= committed;
        debug_assert!(voters.is_quorum(has), "no quorum has {committed}: {:?}", self.acked);
        if !voters.alone() && zxid > before {
            self.note_ack(from, (before, zxid), committed, cx);
        }
        committed
    }

    /// Marks whether this acknowledgement, which takes a voter from `before` to `zxid`, has
    /// completed the quorum for `committed` or has come after it.
    fn note_ack(
        &self,
        from: ServerId,
        (before, zxid): (Zxid, Zxid),
        committed: Zxid,
        cx: &mut Cx<'_>,
    ) {
        let has = |id| self.acked.get(&id).is_some_and(|acked| *acked >= committed);
        let counts = before < committed && committed <= zxid;
        if counts && cx.voters.completes(from, has) {
            cx.mark(Mark::CommitExact);
            if from == cx.config.id() {
                cx.mark(Mark::CommitLeaderLast);
            }
        } else if counts {
            cx.mark(Mark::CommitAckLate);
        }
    }

    /// Proposes the configuration of the files, so that it is part of the log (RECONF-09): its
    /// version is that of the epoch that has established it.
    pub(crate) fn propose_config(
        &mut self,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<Entry> {
        let membership = replica.membership().filter(|membership| !membership.is_established())?;
        let start = Zxid::start_of(self.last_proposed.epoch());
        // As in ZooKeeper, a client's first write has counter 1 although the configuration comes
        // before it.
        let zxid = if self.last_proposed == start { start } else { self.take_zxid(cx) };
        self.reconfigured_at = Some(cx.now.mono);
        let config = membership.active().clone().at(start).to_string();
        let (session, time, op) = (SessionId(0), cx.now.wall, TxnOp::Reconfig { config });
        Some(replica.append(Txn { zxid, session, time, origin: None, op }, cx))
    }

    /// When this leader has proposed the last configuration, if it has proposed one.
    pub(crate) fn reconfigured_at(&self) -> Option<Instant> {
        self.reconfigured_at
    }

    /// The zxid up to which a server has acknowledged the history; zero if it has nothing.
    pub(crate) fn acked_by(&self, id: ServerId) -> Zxid {
        self.acked.get(&id).copied().unwrap_or_default()
    }

    /// The zxid up to which a quorum of the present voters has acknowledged the history.
    pub(crate) fn agreed(&self, cx: &Cx<'_>) -> Zxid {
        cx.voters.quorum_watermark(|id| self.acked.get(&id).copied().unwrap_or_default())
    }

    /// A transaction is applied to the tree.
    pub(crate) fn on_applied(&mut self, txn: &Txn, cx: &Cx<'_>) {
        let (zxid, last) = (txn.zxid, self.last_proposed);
        assert!(zxid <= last, "{zxid} is applied, and {last} the last proposal");
        assert!(zxid.epoch() == last.epoch(), "{zxid} is applied in the epoch of {last}");
        self.prep.applied(txn.zxid);
        if let TxnOp::UpgradeSession { .. } | TxnOp::CreateSession { .. } = txn.op {
            self.beginning.remove(&txn.session);
        }
        if let TxnOp::CreateSession { timeout_ms } = txn.op {
            self.tracker.track(txn.session, timeout_ms, cx.now.mono);
            if let Some(origin) = txn.origin {
                self.tracker.set_owner(txn.session, origin.server);
            }
        }
    }

    /// The numbers of waiting syncs, unapplied changes, and sessions whose creation or upgrade is
    /// not applied.
    pub(crate) fn backlog(&self) -> (usize, usize, usize) {
        (self.syncs.len(), self.prep.backlog(), self.beginning.len())
    }

    /// Is a zxid left? If not, the leader must resign, and a new epoch continues (ZAB-20).
    pub(crate) fn has_room(&self, cx: &Cx<'_>) -> bool {
        self.room(cx) > 0
    }

    /// The number of zxids that are left.
    pub(crate) fn room(&self, cx: &Cx<'_>) -> usize {
        let most = cx.config.limits.epoch_txns;
        most.saturating_sub(self.last_proposed.counter()) as usize
    }

    fn take_zxid(&mut self, cx: &Cx<'_>) -> Zxid {
        assert!(self.has_room(cx), "the caller resigns from an epoch that is used up");
        self.last_proposed = self.last_proposed.next().expect("there is room");
        self.last_proposed
    }
}
