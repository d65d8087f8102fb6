//! The leader (Java `Leader`): establishes an epoch, then sends proposals and pings to its
//! learners.
//!
//! Owns the learners, their promises and their synchronisation, and the pings. Must not decide
//! writes (`propose` does), nor answer clients. Its event handlers return effects, on which
//! `server` acts.

mod differences;
mod digests;
mod establish;
mod hand_over;
mod learner;
mod observer_master;
mod oracle;
mod progress;
mod relay;
mod serve;
pub(super) mod sync_requests;

use std::collections::{BTreeMap, BTreeSet};

use self::differences::other_epoch;
use self::digests::Digests;
pub(crate) use self::establish::FollowerInfo;
use self::learner::{Learner, Stage};
pub(crate) use self::observer_master::ObserverMaster;
pub(crate) use self::sync_requests::SyncWaiter;
use super::DIGESTS;
use super::propose::{Proposer, Write};
use crate::cx::Cx;
use crate::identity::Seed;
use crate::ids::{Epoch, Instant, LinkId, ServerId, WriteId, Zxid};
use crate::io::{Mark, PeerCommand};
use crate::log::Log;
use crate::membership::{HistoryInfo, HistoryStatus};
use crate::peer::{FromLearner, LinkCloseReason, PeerMisbehaved, StepDownReason};
use crate::replica::Replica;
use crate::store::Entry;
use crate::timer::Timer;
use crate::txn::Origin;

/// The timers of a leader.
pub(crate) const LEADER_TIMERS: [Timer; 4] =
    [Timer::LearnerSilence, Timer::Establishment, Timer::Ping, Timer::HandOver];

/// The leader's part of a server.
#[derive(Debug)]
pub(crate) struct Leader {
    phase: Phase,
    /// Source of the nonce of the epoch and of the ensemble's identity.
    seed: Seed,
    /// The history of this server when it was elected.
    history: HistoryInfo,
    learners: BTreeMap<LinkId, Learner>,
    /// The followers that feed observers: the link of the follower, and its link to the observer.
    masters: BTreeMap<ServerId, (LinkId, LinkId)>,
    /// Servers whose accepted epoch is far above all others.
    far_ahead: BTreeSet<ServerId>,
    /// The round of the last ping.
    round: u64,
    /// The round of the last ping that each server has answered.
    answered: BTreeMap<ServerId, u64>,
    digests: Digests,
    /// Servers whose last epoch has another nonce than the same epoch of this leader: the epoch,
    /// and its nonce at that server.
    other_epochs: BTreeMap<ServerId, (Epoch, u64)>,
    next_ping: Instant,
    /// When the leader steps down, if service has not begun (ZAB-06).
    begin_by: Instant,
    /// When it steps down at the latest, and why: the process is to stop, or its disk is slow.
    hand_over_by: Option<(Instant, StepDownReason)>,
    /// The transaction whose write to the disk of this server is timed, and since when, as
    /// acknowledgements of learners are.
    unwritten: Option<(Zxid, Instant)>,
    /// Has it reported that servers of an older release prevent reconfigurations?
    reported_older: bool,
    /// May it begin to serve without the other voter, if the oracle permits it?
    may_begin_alone: bool,
    /// Does it go on without the other voter?
    alone: bool,
}

/// The phase of the leader; the diagram is in the module above.
#[derive(Debug)]
enum Phase {
    /// Waits until a quorum has sent FOLLOWERINFO.
    Gathering,
    /// Waits until a quorum has promised not to follow an older epoch.
    Promising { epoch: Epoch, write: WriteId, promised: BTreeMap<ServerId, HistoryInfo> },
    /// Waits until a quorum has the history, and the voters of this epoch, durably.
    Synchronization { epoch: Epoch, write: WriteId, own: bool, recording: Option<WriteId> },
    /// Serves clients.
    Broadcast { epoch: Epoch, proposer: Box<Proposer> },
}

/// What `server` has to do after an event.
#[must_use]
#[derive(Debug)]
pub(crate) enum LeaderEffect {
    /// Nothing.
    None,
    /// The history is committed up to this zxid.
    Commit(Zxid),
    /// A quorum has the history: all of it is committed, and service begins once it is applied.
    Establish,
    /// The syncs of these clients, which are connected to this server, are confirmed.
    Synced(Vec<SyncWaiter>),
    /// A majority has a different state at this zxid than this server.
    Differs(Zxid),
    /// This leader has no quorum, or a learner is ahead: look for a leader.
    StepDown(StepDownReason),
}

impl Leader {
    /// Becomes leader: waits for a quorum, which may be this server alone.
    pub(crate) fn begin(seed: Seed, replica: &mut Replica, cx: &mut Cx<'_>) -> Leader {
        let (durable, appended) = (replica.log().durable(), replica.log().appended());
        assert!(durable == appended, "elected with {appended}, which is durable to {durable}");
        let now = cx.now.mono;
        let mut leader = Leader {
            phase: Phase::Gathering,
            seed,
            history: replica.history_info(cx.config.id(), cx.voters),
            learners: BTreeMap::new(),
            masters: BTreeMap::new(),
            far_ahead: BTreeSet::new(),
            round: 0,
            answered: BTreeMap::new(),
            digests: Digests::default(),
            other_epochs: BTreeMap::new(),
            next_ping: now.after(cx.config.tick() / 2),
            begin_by: now.after(cx.config.discovery_limit()),
            hand_over_by: None,
            unwritten: None,
            reported_older: false,
            may_begin_alone: replica.may_lead_alone(cx.config.id(), cx.voters),
            alone: false,
        };
        leader.maybe_propose_epoch(replica, cx);
        leader.check(replica);
        leader
    }

    /// Checks that the state of this server and its learners fit the phase.
    pub(super) fn check(&self, replica: &Replica) {
        let (state, saved) = (replica.state(), replica.saved());
        if let Some(epoch) = self.epoch() {
            let accepted = state.accepted_epoch;
            assert!(epoch == accepted, "this leader proposes {epoch}, and promises {accepted}");
        }
        if let Phase::Synchronization { epoch, .. } | Phase::Broadcast { epoch, .. } = self.phase {
            let current = state.current_epoch;
            assert!(epoch == current, "the leader of epoch {epoch} is in epoch {current}");
            let promised = saved.accepted_epoch;
            assert!(epoch == promised, "epoch {epoch} has begun, and {promised} is durable");
        }
        let entered = saved.current_epoch;
        match &self.phase {
            Phase::Synchronization { epoch, own: true, .. } => {
                assert!(*epoch == entered, "epoch {epoch} is entered, and {entered} is durable");
            }
            Phase::Broadcast { epoch, proposer } => {
                assert!(*epoch == entered, "epoch {epoch} serves, and {entered} is durable");
                proposer.check_proposed(*epoch, replica);
            }
            Phase::Gathering | Phase::Promising { .. } | Phase::Synchronization { .. } => {}
        }
        if cfg!(debug_assertions) {
            self.check_learners(replica.log());
        }
    }

    /// Visits each learner.
    fn check_learners(&self, log: &Log) {
        let mut servers = BTreeSet::new();
        for (link, learner) in &self.learners {
            let server = learner.server;
            assert!(*link == learner.link, "{link} is the key of {}", learner.link);
            assert!(servers.insert(server), "server {server} has two links");
            let accepted = learner.accepted;
            let follows = self.epoch().is_none_or(|epoch| accepted <= epoch);
            assert!(follows, "server {server} has promised {accepted}: {:?}", self.epoch());
            learner.check_sent(log);
        }
    }

    /// The proposer, while this leader serves.
    pub(crate) fn serving(&self) -> Option<&Proposer> {
        match &self.phase {
            Phase::Broadcast { proposer, .. } => Some(proposer),
            Phase::Gathering | Phase::Promising { .. } | Phase::Synchronization { .. } => None,
        }
    }

    /// The same, mutable.
    pub(crate) fn proposer(&mut self) -> Option<&mut Proposer> {
        match &mut self.phase {
            Phase::Broadcast { proposer, .. } => Some(proposer),
            Phase::Gathering | Phase::Promising { .. } | Phase::Synchronization { .. } => None,
        }
    }

    /// Is this leader without a quorum, and not yet serving? The voters may have elected another
    /// leader, and never connect.
    pub(crate) fn is_deserted(&self, cx: &Cx<'_>) -> bool {
        match self.phase {
            Phase::Gathering => true,
            Phase::Promising { .. } | Phase::Synchronization { .. } => {
                !self.has_quorum(|_| true, cx)
            }
            Phase::Broadcast { .. } => false,
        }
    }

    /// The history status of a voter that is this leader or one of its learners.
    pub(crate) fn history_status_of(&self, id: ServerId, own: ServerId) -> Option<HistoryStatus> {
        if id == own {
            return Some(self.history.history_status);
        }
        let learner = self.learners.values().find(|learner| learner.server == id);
        learner.map(|learner| learner.history.history_status)
    }

    /// The links of its learners.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.learners.keys().copied()
    }

    /// The number of followers and of observers that have the history, and of all learners.
    pub(crate) fn learner_counts(
        &self,
        observes: impl Fn(ServerId) -> bool,
    ) -> (usize, usize, usize) {
        let (mut followers, mut observers) = (0, 0);
        for learner in self.learners.values().filter(|learner| learner.is_synced()) {
            let count = if observes(learner.server) { &mut observers } else { &mut followers };
            *count += 1;
        }
        (followers, observers, self.learners.len())
    }

    /// The oldest zxid from which a learner still needs the log, or the snapshot, on the disk.
    pub(crate) fn oldest_needed(&self) -> Option<Zxid> {
        self.learners.values().filter_map(Learner::needs).min()
    }

    /// Processes any message except FOLLOWERINFO. A learner that breaks the protocol is dropped.
    pub(crate) fn on_message(
        &mut self,
        link: LinkId,
        message: FromLearner,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        self.check(replica);
        let Some(learner) = self.learners.get_mut(&link) else {
            cx.mark(Mark::LinkDead);
            return LeaderEffect::None;
        };
        learner.on_message(cx.now.mono);
        if let Some(end) = other_epoch(&message, replica) {
            return self.on_another_epoch(link, end, cx);
        }
        // A learner that does not serve has no clients whose requests it could forward.
        let (server, serves) = (learner.server, learner.stage == Stage::Serving);
        let relays = learner.relays && is_of_another(&message, server);
        if serves && self.hand_over_by.is_some() && proposes(&message) {
            // The learner sends it again to the next leader.
            cx.mark(Mark::HandOverHeld);
            return LeaderEffect::None;
        }
        match message {
            FromLearner::AckEpoch { fresh, current, last, nonce: _ } => {
                self.on_ack_epoch(link, fresh, current, last, replica, cx)
            }
            FromLearner::SyncAt { last, nonce: _ } => self.on_sync_at(link, last, replica, cx),
            FromLearner::AckNewLeader { epoch } => self.on_ack_new_leader(link, epoch, replica, cx),
            FromLearner::Ack { zxid } => self.on_ack(link, zxid, replica, cx),
            // The message only shows that the learner is alive.
            FromLearner::Loading { .. } => LeaderEffect::None,
            FromLearner::Pong { round, echo, sent, touched, digests }
                if digests.len() <= DIGESTS =>
            {
                learner.on_pong(sent, echo, cx.now.mono);
                let digests = if learner.is_synced() { &digests[..] } else { &[] };
                let effect = self.compare(server, digests, replica, cx);
                if matches!(effect, LeaderEffect::None) {
                    self.on_pong(link, round, &touched, cx)
                } else {
                    effect
                }
            }
            FromLearner::Request { origin, .. } | FromLearner::CreateSession { origin, .. }
                if serves && relays && !self.speaks_for(link, origin.server) =>
            {
                // Another server feeds the observer by now.
                cx.mark(Mark::ObserverMoved);
                LeaderEffect::None
            }
            FromLearner::Request { session, origin, ids, request, session_kind }
                if serves
                    && (origin.server == server || relays)
                    && origin.request != Origin::HANDSHAKE
                    && request.is_proper_write()
                    && session_kind.admits(session, origin.server, &request) =>
            {
                let write = Write { session, origin, ids, request, session_kind };
                self.on_request(link, write, replica, cx)
            }
            FromLearner::CreateSession { timeout_ms, origin }
                if serves && (origin.server == server || relays) =>
            {
                self.create_session(timeout_ms, origin, replica, cx)
            }
            FromLearner::Revalidate { conn, session, timeout_ms } if serves => {
                self.on_revalidate((link, None), conn, session, timeout_ms, replica, cx)
            }
            FromLearner::Sync { conn, request } if serves => {
                self.sync(SyncWaiter { link: Some(link), behind: None, conn, request }, cx)
            }
            FromLearner::Attach { behind } if serves => self.on_attach(link, behind, replica, cx),
            FromLearner::RevalidateBehind { .. }
            | FromLearner::SyncBehind { .. }
            | FromLearner::TouchedBehind { .. }
                if serves =>
            {
                self.on_relayed(link, message, replica, cx)
            }
            FromLearner::Request { .. }
            | FromLearner::CreateSession { .. }
            | FromLearner::Revalidate { .. }
            | FromLearner::Sync { .. }
            | FromLearner::FollowerInfo { .. }
            | FromLearner::ObserverInfo { .. }
            | FromLearner::Attach { .. }
            | FromLearner::RevalidateBehind { .. }
            | FromLearner::SyncBehind { .. }
            | FromLearner::TouchedBehind { .. }
            | FromLearner::Pong { .. } => {
                self.refuse(link, PeerMisbehaved::OutOfTurn(message.to_string()), cx)
            }
        }
    }

    /// A link is down.
    pub(crate) fn on_down(&mut self, link: LinkId, cx: &mut Cx<'_>) -> LeaderEffect {
        let gone = self.learners.remove(&link);
        self.masters.retain(|_, (master, _)| *master != link);
        if gone.is_some_and(|learner| learner.is_syncing()) {
            cx.mark(Mark::SyncInterrupted);
        }
        if matches!(self.phase, Phase::Synchronization { .. }) && !self.has_quorum(|_| true, cx) {
            cx.mark(Mark::SyncQuorumLost);
        }
        self.check_quorum(cx)
    }

    /// The send queue of a link is empty.
    pub(crate) fn on_drained(&mut self, link: LinkId, replica: &Replica, cx: &mut Cx<'_>) {
        if let Some(epoch) = self.epoch()
            && let Some(learner) = self.learners.get_mut(&link)
        {
            learner.on_drained(replica, epoch, cx);
        }
    }

    /// The disk has read transactions for a learner.
    pub(crate) fn on_log_read(
        &mut self,
        link: LinkId,
        found: Result<Vec<Entry>, String>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        match self.learners.get_mut(&link).map(|learner| learner.on_log_read(found, replica, cx)) {
            // The link is gone, or the read was successful.
            None | Some(Ok(())) => LeaderEffect::None,
            Some(Err(what)) => {
                cx.mark(Mark::LogReadFailed);
                replica.on_log_unreadable();
                self.refuse(link, LinkCloseReason::Unreadable(what), cx)
            }
        }
    }

    /// The disk has read a chunk of a snapshot for a learner.
    pub(crate) fn on_snapshot_read(
        &mut self,
        link: LinkId,
        (zxid, index): (Zxid, u32),
        found: Result<(bytes::Bytes, bool), String>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let learner = self.learners.get_mut(&link);
        match learner.map(|learner| learner.on_snapshot_read(index, found, cx)) {
            None | Some(Ok(())) => LeaderEffect::None,
            Some(Err(what)) => {
                cx.mark(Mark::LogReadFailed);
                replica.on_snapshot_unreadable(zxid);
                self.refuse(link, LinkCloseReason::Unreadable(what), cx)
            }
        }
    }

    /// A snapshot of this server is durable: synchronises the learners that have waited for one.
    pub(crate) fn on_snapshot_taken(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        let (Phase::Synchronization { epoch, .. } | Phase::Broadcast { epoch, .. }) = self.phase
        else {
            return;
        };
        let serves = self.serving().is_some();
        self.start_syncs(epoch, |learner| serves || !learner.is_informed(), replica, cx);
    }

    /// Synchronises the learners that wait for it and for which `may` holds.
    fn start_syncs(
        &mut self,
        epoch: Epoch,
        may: impl Fn(&Learner) -> bool,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) {
        for learner in self.learners.values_mut().filter(|learner| may(learner)) {
            if let Stage::Promised { last } = learner.stage {
                learner.start_sync(last, replica, epoch, cx);
            }
        }
    }

    /// The log of this server is durable up to `zxid`.
    pub(crate) fn on_durable(&mut self, zxid: Zxid, cx: &mut Cx<'_>) -> LeaderEffect {
        self.acked(cx.config.id(), zxid, cx)
    }

    /// Service begins; the initial history is applied.
    pub(crate) fn activate(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        self.check(replica);
        let Phase::Synchronization { epoch, own, .. } = self.phase else {
            unreachable!("service begins after synchronization")
        };
        assert!(own, "service begins in epoch {epoch} before this server has entered it");
        // The history may have brought another configuration into force, in this step.
        let established =
            replica.established_config().is_some() || replica.is_established_under(cx.voters);
        assert!(established, "the voters of epoch {epoch} are not durable");
        debug_assert!(self.has_quorum(Learner::is_ready, cx), "no quorum is ready: {self:?}");
        cx.mark(Mark::BroadcastBegun);
        let proposer = Box::new(Proposer::new(epoch, replica, cx));
        self.phase = Phase::Broadcast { epoch, proposer };
        replica.hold_recent(Some(replica.log().committed()));
        for learner in self.learners.values_mut().filter(|learner| learner.is_ready()) {
            learner.serve(replica, cx);
        }
        self.start_syncs(epoch, Learner::is_informed, replica, cx);
        self.check(replica);
    }

    /// The deadline of each of [`LEADER_TIMERS`].
    pub(crate) fn deadlines(&self, cx: &Cx<'_>) -> [(Timer, Option<Instant>); 4] {
        let silence = self.learners.values().map(|learner| learner.deadline(cx)).min();
        let (establishment, ping) = match self.phase {
            // A single server has no other to ping.
            Phase::Broadcast { .. } => {
                let pings = !cx.voters.alone() || !self.learners.is_empty();
                (None, pings.then_some(self.next_ping))
            }
            Phase::Gathering | Phase::Promising { .. } | Phase::Synchronization { .. } => {
                (Some(self.begin_by), None)
            }
        };
        [
            (Timer::LearnerSilence, silence),
            (Timer::Establishment, establishment),
            (Timer::Ping, ping),
            (Timer::HandOver, self.hand_over_by.map(|(by, _)| by)),
        ]
    }

    /// One of [`LEADER_TIMERS`] is due: drops silent learners, steps down without a quorum, or
    /// sends pings (ZAB-17).
    pub(crate) fn on_timer(
        &mut self,
        timer: Timer,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        self.check(replica);
        if timer == Timer::LearnerSilence {
            let late = self.learners.values().filter(|learner| learner.deadline(cx) <= cx.now.mono);
            for link in Vec::from_iter(late.map(|learner| learner.link)) {
                cx.mark(Mark::LearnerSilent);
                self.drop_learner(link, LinkCloseReason::Silent, cx);
            }
        } else if timer == Timer::Establishment && self.serving().is_none() {
            return self.give_up(replica, cx);
        } else if timer == Timer::Ping && self.serving().is_some() {
            self.ping(cx);
        }
        self.check_quorum(cx)
    }

    /// No quorum has followed this leader in time.
    fn give_up(&self, replica: &Replica, cx: &mut Cx<'_>) -> LeaderEffect {
        cx.mark(Mark::LeaderNotEstablished);
        cx.mark(match self.phase {
            Phase::Synchronization { .. } => Mark::SyncTimedOut,
            Phase::Gathering | Phase::Promising { .. } | Phase::Broadcast { .. } => {
                Mark::DiscoveryTimedOut
            }
        });
        let used_up =
            matches!(self.phase, Phase::Gathering) && self.highest(replica).next().is_none();
        LeaderEffect::StepDown(if used_up {
            StepDownReason::LastEpoch
        } else {
            StepDownReason::NotEstablished
        })
    }

    /// The epoch, once it is proposed.
    fn epoch(&self) -> Option<Epoch> {
        match self.phase {
            Phase::Gathering => None,
            Phase::Promising { epoch, .. }
            | Phase::Synchronization { epoch, .. }
            | Phase::Broadcast { epoch, .. } => Some(epoch),
        }
    }

    /// Drops a learner, which may connect again, and checks the quorum.
    fn refuse(
        &mut self,
        link: LinkId,
        why: impl Into<LinkCloseReason>,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        cx.mark(Mark::LearnerRefused);
        self.drop_learner(link, why.into(), cx);
        self.check_quorum(cx)
    }

    fn drop_learner(&mut self, link: LinkId, why: LinkCloseReason, cx: &mut Cx<'_>) {
        self.masters.retain(|_, (master, _)| *master != link);
        if self.learners.remove(&link).is_some() {
            cx.out.peers.push(PeerCommand::Close(link, why));
        }
    }

    /// A serving leader whose history no quorum follows cannot commit: it steps down at once.
    fn check_quorum(&self, cx: &mut Cx<'_>) -> LeaderEffect {
        if self.serving().is_none() {
            return LeaderEffect::None;
        }
        if self.has_quorum(Learner::is_synced, cx) {
            return LeaderEffect::None;
        }
        cx.mark(Mark::QuorumLost);
        LeaderEffect::StepDown(StepDownReason::Quorum)
    }

    /// Are this server and the learners for which `counts` holds a quorum?
    fn has_quorum(&self, counts: impl Fn(&Learner) -> bool, cx: &Cx<'_>) -> bool {
        self.quorum_voters(cx).is_quorum(|id| {
            id == cx.config.id() || self.learners.values().any(|l| l.server == id && counts(l))
        })
    }
}

/// Is this the request of a client of another server than this one?
fn is_of_another(message: &FromLearner, server: ServerId) -> bool {
    if let FromLearner::Request { origin, .. } | FromLearner::CreateSession { origin, .. } = message
    {
        origin.server != server
    } else {
        false
    }
}

/// Could the answer to this message be a transaction?
fn proposes(message: &FromLearner) -> bool {
    matches!(
        message,
        FromLearner::Request { .. }
            | FromLearner::CreateSession { .. }
            | FromLearner::Revalidate { .. }
            | FromLearner::RevalidateBehind { .. }
    )
}
