//! The other servers: election notifications, and links (Java `QuorumCnxManager`,
//! `LearnerCnxAcceptor`).
//!
//! Owns when votes are sent and when an election ends, and links until a role adopts them. Must not
//! know the phases of a role.

use std::collections::BTreeSet;

use super::Server;
use super::role::Role;
use crate::cx::Cx;
use crate::election::{Oracle, Outcome, Recipients};
use crate::identity;
use crate::ids::{Epoch, LinkId, ServerId};
use crate::io::{Mark, PeerCommand, PeerEvent};
use crate::membership::HistoryInfo;
use crate::peer::greeting::VERSION;
use crate::peer::{
    FromLeader, FromLearner, LinkCloseReason, NotedConfigs, Notification, PeerMessage,
    PeerMisbehaved, ServerState, StepDownReason,
};
use crate::timer::Timer;
use crate::zab::{FollowerInfo, LEADER_TIMERS};

/// An inbound link that no role has adopted yet: its peer may know the outcome of the election
/// before this server does.
#[derive(Debug)]
pub(super) struct Inbound {
    peer: ServerId,
    /// The contents of its FOLLOWERINFO: the accepted epoch, and the history.
    info: Option<(Epoch, HistoryInfo)>,
    /// The version of the protocol that both ends speak.
    version: u8,
    /// The same of its OBSERVERINFO, and the leader that it has found.
    observes: Option<(ServerId, Epoch, HistoryInfo)>,
}

impl Server {
    pub(super) fn on_notification(
        &mut self,
        from: ServerId,
        notification: &Notification,
        cx: &mut Cx<'_>,
    ) {
        let ours = self.replica.ensemble_id();
        if identity::differ(ours, notification.ensemble) {
            return cx.mark(Mark::EnsembleDiffers);
        }
        if self.is_overtaken(from, notification, cx) {
            cx.mark(Mark::ElectionOvertaken);
            self.look(None, LinkCloseReason::Looks(StepDownReason::Overtaken), cx);
        }
        let Role::Looking(looking) = &mut self.role else {
            if notification.server_state == ServerState::Looking {
                self.answer_notification(from, cx);
            }
            return;
        };
        let recipients = looking.receive(from, notification, cx.voters, cx.now.mono);
        match recipients {
            Recipients::None => {}
            Recipients::All => self.notify_all(cx),
            Recipients::Sender => {
                let ensemble = self.replica.ensemble_id();
                let notification = looking.notification(ensemble);
                cx.out.election.extend(notification.map(|ours| (from, ours)));
            }
        }
        self.continue_election(cx);
    }

    /// Another server knows these configurations. A server that was down or apart when one was
    /// committed may know none of its servers, and could never find the leader: it takes the
    /// configuration in force over, until its own log names it (Java `QuorumPeer.processReconfig`
    /// in `FastLeaderElection`). One that is only logged adds candidates.
    pub(super) fn on_configs(&mut self, from: ServerId, configs: &NotedConfigs, cx: &mut Cx<'_>) {
        let Role::Looking(looking) = &mut self.role else { return };
        if !cx.members.contains(from) {
            return;
        }
        let is_in_force = |text: &String| self.replica.adopt_config(text);
        if configs.in_force.as_ref().is_some_and(is_in_force) {
            // The election begins anew at the end of the step.
            return cx.mark(Mark::ConfigAdopted);
        }
        let is_logged = |text: &String| self.replica.see_config(text);
        if configs.logged.as_ref().is_some_and(is_logged)
            && let Some(membership) = self.replica.membership()
        {
            cx.mark(Mark::ConfigSeen);
            looking.set_foreign(membership.foreign_candidates());
            self.members = membership.members().clone();
        }
    }

    /// Continues the election. The vote of this server waits until no write is under way, because
    /// it states the end of the durable log.
    pub(super) fn continue_election(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let Role::Looking(looking) = &mut self.role else {
            return;
        };
        if !looking.has_voted() && self.replica.log().is_writing() {
            cx.mark(Mark::ElectionVoteHeld);
        }
        if !looking.has_voted() {
            if self.replica.log().is_writing() {
                return;
            }
            let own = self.replica.vote(cx.config.id());
            looking.vote(own, self.replica.history_info(cx.config.id(), cx.voters), now);
            self.notify_all(cx);
        }
        let Role::Looking(looking) = &mut self.role else {
            return;
        };
        // During the pause after a failed snapshot, the server votes and repeats its vote, but
        // follows no leader.
        let rests = self.replica.rests_until(now).is_some();
        if cx.config.oracle {
            let own = cx.config.id();
            let permits = cx.oracle && self.replica.may_lead_alone(own, cx.voters);
            looking.set_oracle(if permits { Oracle::Permits } else { Oracle::Refuses });
        }
        let outcome = if rests { None } else { looking.outcome(cx.voters, &cx.config.limits, now) };
        let resends = outcome.is_none() && looking.take_resend(&cx.config.limits, now);
        cx.out.marks.add(looking.take_marks());
        if resends {
            cx.mark(Mark::ElectionResent);
            return self.notify_all(cx);
        }
        let Some(outcome) = outcome else {
            return;
        };
        self.round = looking.round();
        self.elected = looking.proposal();
        match outcome {
            Outcome::Lead => self.lead(cx),
            Outcome::Follow(leader) => self.follow(leader, cx),
        }
    }

    /// Has a later election begun that this server should join? Either its leader is looking, which
    /// a notification may report before the link closes; or this server leads, but the voters
    /// that elected it are in a later election, because a partition separates it from them.
    fn is_overtaken(&self, from: ServerId, notification: &Notification, cx: &Cx<'_>) -> bool {
        if notification.server_state != ServerState::Looking || notification.round <= self.round {
            return false;
        }
        match &self.role {
            Role::Looking(_) => false,
            Role::Following(follower) => from == follower.leader(),
            Role::Leading(leader) => cx.voters.contains(from) && leader.is_deserted(cx),
        }
    }

    /// The servers without a vote that have asked for the outcome of the election.
    pub(super) fn take_askers(&mut self) -> BTreeSet<ServerId> {
        match &mut self.role {
            Role::Looking(looking) => looking.take_askers(),
            Role::Following(_) | Role::Leading(_) => BTreeSet::new(),
        }
    }

    /// Sends them the outcome. They would ask again, but only after a pause of up to a second.
    pub(super) fn answer_askers(&self, askers: BTreeSet<ServerId>, cx: &mut Cx<'_>) {
        for asker in askers {
            self.answer_notification(asker, cx);
        }
    }

    fn notify_all(&self, cx: &mut Cx<'_>) {
        let Role::Looking(looking) = &self.role else {
            return;
        };
        if let Some(notification) = looking.notification(self.replica.ensemble_id()) {
            let own = cx.config.id();
            let others = cx.voters.ids().filter(|id| *id != own);
            let others = others.chain(looking.foreign());
            cx.out.election.extend(others.map(|id| (id, notification)));
        }
    }

    /// Answers a looking server with the outcome of this server's election (FLE-09).
    fn answer_notification(&self, from: ServerId, cx: &mut Cx<'_>) {
        let server_state = match &self.role {
            Role::Looking(_) => ServerState::Looking,
            Role::Following(_) => ServerState::Following,
            Role::Leading(_) => ServerState::Leading,
        };
        let (round, history) = (self.round, self.replica.history_info(cx.config.id(), cx.voters));
        let ensemble = self.replica.ensemble_id();
        let notification = |vote| Notification { server_state, round, vote, history, ensemble };
        let notification = self.elected.map(notification);
        cx.out.election.extend(notification.map(|notification| (from, notification)));
    }

    pub(super) fn on_peer(&mut self, link: LinkId, event: PeerEvent, cx: &mut Cx<'_>) {
        match event {
            PeerEvent::Up { peer, dialled: true } => self.on_dialled(link, peer, cx),
            PeerEvent::Up { peer, dialled: false } => {
                let following = matches!(self.role, Role::Following(_));
                let feeds = cx.config.observer_masters;
                let own = cx.config.id();
                let refused = if peer == own {
                    Some(LinkCloseReason::NotAMember)
                } else if following && !feeds {
                    Some(LinkCloseReason::Follows)
                } else if !cx.voters.contains(own) {
                    Some(LinkCloseReason::HasNoVote)
                } else {
                    None
                };
                if let Some(why) = refused {
                    return cx.out.peers.push(PeerCommand::Close(link, why));
                }
                let inbound = Inbound { peer, info: None, version: VERSION, observes: None };
                self.inbound.insert(link, inbound);
            }
            PeerEvent::Version(version) => {
                if let Some(inbound) = self.inbound.get_mut(&link) {
                    inbound.version = version;
                }
            }
            PeerEvent::Unreachable { peer } => {
                if let Role::Following(follower) = &mut self.role
                    && follower.source() == peer
                    && follower.link().is_none()
                {
                    if follower.try_next(cx) {
                        return;
                    }
                    cx.mark(Mark::LeaderUnreachable);
                    self.look(Some(peer), LinkCloseReason::Looks(StepDownReason::Leader), cx);
                }
            }
            PeerEvent::Message(PeerMessage::Learner(message)) => {
                self.on_learner_message(link, message, cx);
            }
            PeerEvent::Message(PeerMessage::Leader(message)) => {
                self.on_leader_message(link, message, cx);
            }
            PeerEvent::Drained => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.on_drained(link, &self.replica, cx);
                } else if let Role::Following(follower) = &mut self.role {
                    follower.observers_mut().on_drained(link, &self.replica, cx);
                }
            }
            PeerEvent::Down => self.on_down(link, cx),
        }
    }

    fn on_dialled(&mut self, link: LinkId, peer: ServerId, cx: &mut Cx<'_>) {
        match &mut self.role {
            Role::Following(follower) if follower.source() == peer && follower.link().is_none() => {
                follower.on_up(link, &self.replica, cx);
            }
            // The link was dialled for an earlier role.
            Role::Looking(_) | Role::Following(_) | Role::Leading(_) => {
                cx.mark(Mark::LinkUnwanted);
                cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Unwanted));
            }
        }
    }

    /// Processes a learner's message: the first on an inbound link, or one to this server as the
    /// leader.
    fn on_learner_message(&mut self, link: LinkId, message: FromLearner, cx: &mut Cx<'_>) {
        if self.inbound.contains_key(&link) {
            return self.on_first_message(link, message, cx);
        }
        match &mut self.role {
            Role::Leading(leader) => {
                let effect = leader.on_message(link, message, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
            Role::Following(follower) => match follower.feeding(cx) {
                Some((master, leader)) => {
                    master.on_message(link, message, leader, &self.replica, cx);
                }
                // A late message on a link that this server has closed.
                None => cx.mark(Mark::LinkDead),
            },
            Role::Looking(_) => {}
        }
    }

    /// An observer asks to be fed.
    fn on_observer_info(
        &mut self,
        link: LinkId,
        observes: (ServerId, Epoch, HistoryInfo),
        ensemble: u64,
        cx: &mut Cx<'_>,
    ) {
        let ours = self.replica.ensemble_id();
        let refused = match &self.role {
            Role::Following(follower) => follower.leader() != observes.0,
            Role::Leading(_) => true,
            Role::Looking(_) => false,
        };
        if refused || !cx.config.observer_masters || identity::differ(ours, ensemble) {
            self.inbound.remove(&link);
            return cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Unwanted));
        }
        if let Some(inbound) = self.inbound.get_mut(&link) {
            inbound.observes = Some(observes);
        }
        self.adopt_observers(cx);
    }

    /// A follower that serves feeds the observers that wait for it.
    pub(super) fn adopt_observers(&mut self, cx: &mut Cx<'_>) {
        let Role::Following(follower) = &mut self.role else { return };
        let Some((master, leader)) = follower.feeding(cx) else { return };
        let waits = |_: &LinkId, inbound: &mut Inbound| inbound.observes.is_some();
        for (link, Inbound { peer, observes, .. }) in self.inbound.extract_if(.., waits) {
            let Some((_, accepted, history)) = observes else { continue };
            let (observer, known) = ((link, peer), (accepted, history));
            master.on_observer_info(observer, known, leader, &self.replica, cx);
        }
    }

    /// Takes the inbound links that this server does not need once it follows this leader: all but
    /// those of observers that it is to feed.
    pub(super) fn take_unfed(&mut self, leader: ServerId, cx: &Cx<'_>) -> Vec<LinkId> {
        let feeds = cx.config.observer_masters;
        let unfed = |_: &LinkId, inbound: &mut Inbound| {
            !feeds || inbound.observes.is_none_or(|(found, ..)| found != leader)
        };
        self.inbound.extract_if(.., unfed).map(|(link, _)| link).collect()
    }

    /// The first message of a learner must be FOLLOWERINFO, or OBSERVERINFO; after any other
    /// message, the link is closed.
    fn on_first_message(&mut self, link: LinkId, message: FromLearner, cx: &mut Cx<'_>) {
        if let FromLearner::ObserverInfo { leader, accepted, history, ensemble } = message {
            return self.on_observer_info(link, (leader, accepted, history), ensemble, cx);
        }
        if matches!(self.role, Role::Following(_)) {
            self.inbound.remove(&link);
            return cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Follows));
        }
        let inbound = self.inbound.get_mut(&link).expect("the caller has found it");
        let refused: LinkCloseReason = if let FromLearner::FollowerInfo {
            accepted,
            history,
            ensemble,
        } = message
            && inbound.info.is_none()
        {
            let ours = self.replica.ensemble_id();
            if !identity::differ(ours, ensemble) {
                inbound.info = Some((accepted, history));
                self.maybe_lead_inbound(cx);
                return self.adopt_inbound(cx);
            }
            cx.mark(Mark::EnsembleDiffers);
            let peer = inbound.peer;
            LinkCloseReason::Incompatible(format!(
                "server {peer} belongs to ensemble {ensemble:#018x}, and this one to {ours:#018x}"
            ))
        } else {
            PeerMisbehaved::FirstMessage(message.to_string()).into()
        };
        self.inbound.remove(&link);
        cx.out.peers.push(PeerCommand::Close(link, refused));
    }

    fn on_leader_message(&mut self, link: LinkId, message: FromLeader, cx: &mut Cx<'_>) {
        // While clients are not read, their heartbeats do not arrive, so their sessions count as
        // alive.
        let exempt = matches!(message, FromLeader::Ping { .. }) && self.front.had_long_pause(cx);
        let here = if exempt { self.front.sessions(cx.config) } else { Vec::new() };
        match &mut self.role {
            Role::Following(follower) if follower.link() == Some(link) => {
                for (session, timeout_ms) in here {
                    if !self.front.is_local(session) {
                        follower.touch(session, timeout_ms);
                    }
                }
                let effect = follower.on_message(message, &mut self.replica, cx);
                self.apply_follower_effect(effect, cx);
            }
            // A late message on a link that this server has closed.
            Role::Following(_) | Role::Leading(_) => cx.mark(Mark::LinkDead),
            Role::Looking(_) => {}
        }
    }

    fn on_down(&mut self, link: LinkId, cx: &mut Cx<'_>) {
        self.inbound.remove(&link);
        match &mut self.role {
            Role::Following(follower) if follower.link() == Some(link) => {
                if follower.on_down(cx) {
                    return;
                }
                if follower.is_synchronizing() {
                    cx.mark(Mark::SyncLeaderLost);
                }
                let lost = Some(follower.leader());
                self.look(lost, LinkCloseReason::Looks(StepDownReason::Leader), cx);
            }
            Role::Leading(leader) => {
                let effect = leader.on_down(link, cx);
                self.apply_leader_effect(effect, cx);
            }
            Role::Following(follower) => {
                follower.observers_mut().on_down(link);
            }
            Role::Looking(_) => {}
        }
    }

    /// A quorum that has sent FOLLOWERINFO to this server has elected it, even if the votes have
    /// not arrived: this server may have restarted since.
    fn maybe_lead_inbound(&mut self, cx: &mut Cx<'_>) {
        let Role::Looking(looking) = &self.role else {
            return;
        };
        cx.mark(Mark::LinkEarly);
        let learners = self.inbound.values();
        let histories = learners.filter_map(|inbound| inbound.info.map(|(_, h)| (inbound.peer, h)));
        let own = (cx.config.id(), self.replica.history_info(cx.config.id(), cx.voters));
        let histories = histories.chain([own]).collect();
        let nothing_logged = self.replica.log().is_empty();
        let may_lead = looking.may_win() && cx.voters.may_lead(cx.config.id());
        if may_lead && cx.voters.may_decide(&histories, nothing_logged) {
            self.round = looking.round();
            self.elected = Some(self.replica.vote(cx.config.id()));
            cx.mark(Mark::ElectionByLinks);
            self.lead(cx);
        }
    }

    /// A leader adopts the links on which FOLLOWERINFO has arrived as learners.
    pub(super) fn adopt_inbound(&mut self, cx: &mut Cx<'_>) {
        if matches!(self.role, Role::Leading(_)) {
            let observes = |_: &LinkId, inbound: &mut Inbound| inbound.observes.is_some();
            for (link, _) in self.inbound.extract_if(.., observes) {
                cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Unwanted));
            }
        }
        while let Role::Leading(leader) = &mut self.role
            && let Some((link, inbound)) =
                self.inbound.extract_if(.., |_, inbound| inbound.info.is_some()).next()
            && let Some((accepted, history)) = inbound.info
        {
            let info = FollowerInfo { accepted, history, version: inbound.version };
            let effect = leader.on_follower_info(link, inbound.peer, info, &mut self.replica, cx);
            self.apply_leader_effect(effect, cx);
        }
    }

    /// Acts on servers that were silent for too long, and on the timers of a leader.
    pub(super) fn check_role_timers(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.timers.due(Timer::LeaderSilence, now)
            && let Role::Following(follower) = &mut self.role
        {
            if let Some(progress) = self.replica.loading_progress() {
                follower.report_loading(progress, cx);
            } else if follower.is_late(cx) && !follower.try_next(cx) {
                let leader = follower.leader();
                self.look(Some(leader), LinkCloseReason::Silent, cx);
            }
        }
        if let Role::Following(follower) = &mut self.role {
            for timer in [Timer::LearnerSilence, Timer::Ping] {
                if self.timers.due(timer, now) {
                    follower.observers_mut().on_timers(cx);
                }
            }
        }
        for timer in LEADER_TIMERS {
            if self.timers.due(timer, now)
                && let Role::Leading(leader) = &mut self.role
            {
                let effect = leader.on_timer(timer, &self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }
}
