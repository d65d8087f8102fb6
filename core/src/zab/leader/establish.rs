//! How a leader becomes established: discovery and synchronisation (ZAB-02 to ZAB-08).
//!
//! Owns what the leader requires of a quorum before service, and the same steps for learners that
//! connect later. Must not touch the proposer.

use std::collections::BTreeMap;

use super::learner::{Learner, Stage};
use super::{Leader, LeaderEffect, Phase};
use crate::cx::Cx;
use crate::ids::{Epoch, LinkId, ServerId, WriteId, Zxid};
use crate::io::{Mark, PeerCommand};
use crate::membership::{HistoryInfo, HistoryStatus};
use crate::peer::greeting::FIRST_RECONFIGURABLE;
use crate::peer::{FromLeader, LinkCloseReason, PeerMisbehaved, StepDownReason};
use crate::replica::{Membership, Replica};

/// What a learner has sent with FOLLOWERINFO, and on what link.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FollowerInfo {
    /// Its accepted epoch.
    pub(crate) accepted: Epoch,
    /// Its history.
    pub(crate) history: HistoryInfo,
    /// The version of the protocol that both ends of the link speak.
    pub(crate) version: u8,
}

impl Leader {
    /// A learner has sent FOLLOWERINFO (ZAB-02).
    pub(crate) fn on_follower_info(
        &mut self,
        link: LinkId,
        server: ServerId,
        info: FollowerInfo,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        self.check(replica);
        assert!(server != cx.config.id(), "server {server} follows itself");
        let FollowerInfo { accepted, version, .. } = info;
        if version < FIRST_RECONFIGURABLE
            && replica.membership().is_some_and(Membership::is_in_history)
        {
            let what = format!(
                "server {server} runs a release before 0.3, which cannot read the configuration \
                 in the history: upgrade server {server} first"
            );
            cx.mark(Mark::LearnerRefused);
            cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Incompatible(what)));
            return LeaderEffect::None;
        }
        if !self.believes(server, accepted, replica, cx) {
            return self.turn_away(link, server, accepted, replica, cx);
        }
        self.replace(server, cx);
        let votes = cx.voters.contains(server);
        let learner = Learner::new(link, server, votes, info, cx.now.mono);
        self.learners.insert(link, learner);
        if self.epoch().is_some_and(|epoch| accepted > epoch) {
            // The learner, even if it is an observer, could never follow this leader (ZAB-04). This
            // server makes the same promise: whoever leads next hears of it from both, and begins
            // an epoch above it. Otherwise each election could begin just the next epoch.
            cx.mark(Mark::LeaderOutrun);
            replica.save_state(cx, |state| state.accepted_epoch = accepted);
            return LeaderEffect::StepDown(StepDownReason::Behind);
        }
        self.maybe_propose_epoch(replica, cx);
        self.announce_epoch(replica, cx);
        self.check(replica);
        LeaderEffect::None
    }

    /// Is the learner's accepted epoch credible? A single server whose epoch is far above all
    /// others does not count: a promise of the epoch after it would bind all servers for good. If
    /// most voters have such an epoch, it counts.
    fn believes(
        &mut self,
        server: ServerId,
        accepted: Epoch,
        replica: &Replica,
        cx: &Cx<'_>,
    ) -> bool {
        let is_credible = accepted.is_credible(self.known_epoch(replica));
        // Nobody can have promised `Epoch::END`: who names it supports no other claim either.
        if is_credible || accepted >= Epoch::END {
            self.far_ahead.remove(&server);
            return is_credible;
        }
        self.far_ahead.insert(server);
        cx.voters.is_quorum(|id| self.far_ahead.contains(&id))
    }

    fn known_epoch(&self, replica: &Replica) -> Epoch {
        self.epoch().unwrap_or_default().max(replica.state().accepted_epoch)
    }

    /// Sends the known epoch to the learner, and closes the link; the close reason names the
    /// operator's remedy.
    fn turn_away(
        &mut self,
        link: LinkId,
        server: ServerId,
        accepted: Epoch,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        cx.mark(Mark::LearnerRefused);
        let epoch = self.known_epoch(replica);
        let (ensemble, blank) = (replica.last_ensemble_id(), replica.has_nothing_to_lose());
        cx.send_peer(link, FromLeader::LeaderInfo { epoch, empty: false, ensemble, blank });
        let what = format!(
            "server {server} has promised epoch {accepted}, and this one knows of {epoch}: move \
             the data directory of server {server} away and start it; it gets its data from the \
             leader"
        );
        cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Incompatible(what)));
        LeaderEffect::None
    }

    /// A state write of this server is durable: its promise, its own entry into the epoch, or the
    /// voters.
    pub(crate) fn on_state_durable(
        &mut self,
        id: WriteId,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        self.check(replica);
        match &mut self.phase {
            Phase::Promising { epoch, write, promised } if *write == id => {
                let durable = replica.saved().accepted_epoch;
                assert!(durable == *epoch, "epoch {epoch} is promised, and {durable} durable");
                promised.insert(cx.config.id(), self.history);
                self.announce_epoch(replica, cx);
                self.maybe_synchronize(replica, cx);
                LeaderEffect::None
            }
            Phase::Synchronization { epoch, write, own, .. } if *write == id => {
                let durable = replica.saved().current_epoch;
                assert!(durable == *epoch, "epoch {epoch} is entered, and {durable} durable");
                *own = true;
                self.maybe_establish(replica, cx)
            }
            Phase::Synchronization { recording, .. } if *recording == Some(id) => {
                self.maybe_establish(replica, cx)
            }
            Phase::Gathering
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Broadcast { .. } => LeaderEffect::None,
        }
    }

    /// Proposes the epoch after the highest accepted one once a quorum has sent FOLLOWERINFO; the
    /// leader promises it first (ZAB-03).
    pub(super) fn maybe_propose_epoch(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        let Phase::Gathering = self.phase else {
            return;
        };
        if self.may_decide(&self.histories(|_| true, cx), replica, cx) {
            let own = replica.state().accepted_epoch;
            let newer = self.learners.values().any(|learner| learner.accepted > own);
            cx.mark(if newer { Mark::EpochOfLearner } else { Mark::EpochOwn });
            let Some(epoch) = self.highest(replica).next() else {
                // The leader reports this when its time to begin is over.
                return;
            };
            assert!(epoch > own, "epoch {epoch} is proposed, and {own} is promised");
            let write = replica.save_state(cx, |state| state.accepted_epoch = epoch);
            self.phase = Phase::Promising { epoch, write, promised: BTreeMap::new() };
            self.begin_by = cx.now.mono.after(cx.config.init_limit());
        }
    }

    /// The highest accepted epoch of this server and its learners.
    pub(super) fn highest(&self, replica: &Replica) -> Epoch {
        let accepted = self.learners.values().map(|learner| learner.accepted);
        accepted.fold(replica.state().accepted_epoch, Epoch::max)
    }

    /// Sends LEADERINFO to each learner that lacks it, once this server's promise is durable.
    fn announce_epoch(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        let (epoch, promised) = match &self.phase {
            Phase::Gathering => return,
            Phase::Promising { epoch, promised, .. } => {
                (*epoch, promised.contains_key(&cx.config.id()))
            }
            Phase::Synchronization { epoch, .. } | Phase::Broadcast { epoch, .. } => (*epoch, true),
        };
        if !promised {
            return;
        }
        let (empty, ensemble) = (replica.log().is_empty(), replica.last_ensemble_id());
        let blank = replica.has_nothing_to_lose();
        let voters = cx.voters;
        let mut lists = voters.before(&self.histories(|_| true, cx));
        lists.push(voters.without(self.history.newcomers));
        for learner in self.learners.values_mut().filter(|l| l.stage == Stage::Informed) {
            let empty = empty || lists.iter().all(|before| !before.contains(learner.server));
            learner.on_leader_info(empty);
            cx.send_peer(learner.link, FromLeader::LeaderInfo { epoch, empty, ensemble, blank });
        }
    }

    pub(super) fn on_ack_epoch(
        &mut self,
        link: LinkId,
        fresh: bool,
        current: Epoch,
        last: Zxid,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let state = replica.state();
        // The history of a damaged server does not count: it has acknowledged none of it, and
        // cannot lead. Nor does that of an observer or of a server of weight zero: it cannot lead,
        // and a quorum has whatever was committed.
        let counts = self.learners.get(&link).is_some_and(|learner| {
            let complete = learner.history.history_status != HistoryStatus::Lost;
            complete && cx.voters.may_lead(learner.server)
        });
        if counts && (current, last) > (state.current_epoch, replica.log().appended()) {
            // ZAB-05: the election has ended too early, and another server should lead.
            cx.mark(Mark::LeaderBehind);
            return LeaderEffect::StepDown(StepDownReason::Behind);
        }
        let Some(learner) = self.learners.get_mut(&link).filter(|l| l.stage == Stage::Promising)
        else {
            return self.refuse(link, PeerMisbehaved::OutOfTurn("ACKEPOCH".into()), cx);
        };
        learner.stage = Stage::Promised { last };
        match &mut self.phase {
            Phase::Promising { epoch, promised, .. } => {
                let own = promised.contains_key(&cx.config.id());
                assert!(own, "epoch {epoch} was announced before this server has promised it");
                if fresh && learner.votes {
                    promised.insert(learner.server, learner.history);
                } else if learner.votes {
                    cx.mark(Mark::PromiseOld);
                }
                self.maybe_synchronize(replica, cx);
            }
            // An observer is sent only what is committed, so it waits until this leader serves.
            Phase::Synchronization { .. } if learner.is_informed() => {}
            Phase::Synchronization { epoch, .. } | Phase::Broadcast { epoch, .. } => {
                learner.start_sync(last, replica, *epoch, cx);
            }
            Phase::Gathering => unreachable!("no epoch was announced"),
        }
        LeaderEffect::None
    }

    /// A quorum has promised, and no learner is ahead: this leader's history becomes that of the
    /// epoch.
    pub(super) fn maybe_synchronize(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        let Phase::Promising { epoch, promised, .. } = &self.phase else {
            return;
        };
        let own = promised.contains_key(&cx.config.id());
        if !own || !self.may_decide(promised, replica, cx) {
            return;
        }
        cx.mark(Mark::DiscoveryPromised);
        let promises = |id| promised.contains_key(&id);
        if promised.keys().all(|id| cx.voters.completes(*id, promises)) {
            cx.mark(Mark::DiscoveryMinimal);
        }
        let epoch = *epoch;
        let write = replica.begin_epoch(epoch, &self.seed, cx);
        self.phase = Phase::Synchronization { epoch, write, own: false, recording: None };
        self.start_syncs(epoch, |learner| !learner.is_informed(), replica, cx);
    }

    /// A learner reports its last zxid, after TRUNC or a snapshot.
    pub(super) fn on_sync_at(
        &mut self,
        link: LinkId,
        last: Zxid,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let epoch = self.epoch();
        if let Some(epoch) = epoch
            && let Some(learner) = self.learners.get_mut(&link)
            && matches!(learner.stage, Stage::Truncating | Stage::Snapshotting { next: None, .. })
        {
            learner.note_answer(last, replica, cx);
            learner.choose_sync_mode(last, replica, epoch, cx);
            return LeaderEffect::None;
        }
        self.refuse(link, PeerMisbehaved::OutOfTurn(format!("at {last}")), cx)
    }

    pub(super) fn on_ack_new_leader(
        &mut self,
        link: LinkId,
        epoch: Epoch,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let right = self.epoch() == Some(epoch);
        let serves = self.serving().is_some();
        let mut learner = self.learners.get_mut(&link).filter(|_| right);
        let asked = learner.as_mut().is_some_and(|l| l.on_ack_new_leader(cx.now.mono));
        let Some(learner) = learner.filter(|_| asked) else {
            return self.refuse(
                link,
                PeerMisbehaved::OutOfTurn(format!("ACK NEWLEADER {epoch}")),
                cx,
            );
        };
        learner.renew_voters(replica, epoch, cx);
        if !serves {
            return self.maybe_establish(replica, cx);
        }
        if learner.may_serve(replica.log()) {
            cx.mark(Mark::LearnerJoined);
            learner.serve(replica, cx);
        } else if learner.is_ready() {
            cx.mark(Mark::ObserverHeld);
        }
        LeaderEffect::None
    }

    /// Begins service once a quorum has the history and the identity of the ensemble durably, and
    /// after that the voters of this epoch, which this leader records first: only then may anything
    /// be committed, because a server outside the recorded list counts as having acknowledged
    /// nothing. The voters are not recorded earlier: if the epoch fails before a quorum has the
    /// history, the new voters have no acknowledged transactions to lose.
    pub(super) fn maybe_establish(
        &mut self,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let Phase::Synchronization { epoch, own, recording, .. } = self.phase else {
            return LeaderEffect::None;
        };
        if !own || !self.may_decide(&self.histories(Learner::is_synced, cx), replica, cx) {
            return LeaderEffect::None;
        }
        if replica.is_established_under(cx.voters) {
            let keep_voters = self.may_decide(&self.histories(Learner::is_ready, cx), replica, cx);
            return if keep_voters { LeaderEffect::Establish } else { LeaderEffect::None };
        }
        if recording.is_none() {
            if let Phase::Synchronization { recording, .. } = &mut self.phase {
                *recording = Some(replica.record_establishment(cx));
            }
            for learner in self.learners.values_mut() {
                learner.renew_voters(replica, epoch, cx);
            }
        }
        LeaderEffect::None
    }

    fn may_decide(
        &self,
        histories: &BTreeMap<ServerId, HistoryInfo>,
        replica: &Replica,
        cx: &Cx<'_>,
    ) -> bool {
        self.quorum_voters(cx).may_decide(histories, replica.log().is_empty())
    }

    /// The histories of this server and of the learners for which `so_far` holds.
    fn histories(
        &self,
        so_far: impl Fn(&Learner) -> bool,
        cx: &Cx<'_>,
    ) -> BTreeMap<ServerId, HistoryInfo> {
        let learners = self.learners.values().filter(|learner| so_far(learner));
        let own = (cx.config.id(), self.history);
        learners.map(|learner| (learner.server, learner.history)).chain([own]).collect()
    }
}
