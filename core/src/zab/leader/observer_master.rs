//! A follower that feeds observers (Java `ObserverMaster`, ZAB-23), so that the leader's work does
//! not grow with their number.
//!
//! Owns the observers' links, their synchronisation from this follower's committed log, their pings
//! and what is relayed between them and the leader. Must not decide anything about the epoch, nor
//! count for any quorum.
//!
//! The leader answers ATTACH with the end of its log. Until this follower has committed that, the
//! observer does not serve: writes that it forwarded before, by any server, may be among that. From
//! ATTACH on, the leader ignores what other servers relay for this observer.

use std::collections::{BTreeMap, VecDeque};

use super::differences::other_epoch;
use super::establish::FollowerInfo;
use super::learner::{Learner, Stage};
use crate::cx::Cx;
use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, Zxid};
use crate::io::{Mark, PeerCommand};
use crate::log::Log;
use crate::membership::HistoryInfo;
use crate::peer::greeting::VERSION;
use crate::peer::{
    Behind, FromLeader, FromLearner, LinkCloseReason, PeerMisbehaved, SessionKind, StepDownReason,
};
use crate::replica::Replica;
use crate::store::Entry;
use crate::timer::Timer;
use crate::zab::DIGESTS;

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct ObserverMaster {
    observers: BTreeMap<LinkId, Fed>,
    /// The round of the last ping.
    round: u64,
    next_ping: Option<Instant>,
}

/// An observer that this follower feeds.
#[derive(Debug)]
struct Fed {
    learner: Learner,
    /// The end of the leader's log when the leader learned that this server feeds the observer.
    attached: Option<Zxid>,
    /// Confirmed syncs of its clients, each with the zxid that it must be informed of before.
    syncs: VecDeque<(Zxid, ConnId, u64)>,
}

impl Fed {
    fn may_serve(&self, log: &Log) -> bool {
        self.learner.may_serve(log) && self.attached.is_some_and(|end| end <= log.committed())
    }

    fn behind(&self) -> Behind {
        Behind { server: self.learner.server, link: self.learner.link }
    }
}

impl ObserverMaster {
    /// An observer has sent OBSERVERINFO. `leader` is the link to this server's leader.
    pub(crate) fn on_observer_info(
        &mut self,
        (link, server): (LinkId, ServerId),
        (accepted, history): (Epoch, HistoryInfo),
        leader: LinkId,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) {
        let epoch = replica.state().current_epoch;
        if accepted > epoch || server == cx.config.id() || cx.voters.contains(server) {
            // Only the leader can find out who is right.
            let why = LinkCloseReason::Looks(StepDownReason::Outdated);
            return cx.out.peers.push(PeerCommand::Close(link, why));
        }
        cx.mark(Mark::ObserverAdopted);
        let older = self.observers.values().find(|fed| fed.learner.server == server);
        if let Some(older) = older.map(|fed| fed.learner.link) {
            self.drop(older, LinkCloseReason::Replaced, cx);
        }
        // No older release knows OBSERVERINFO.
        let info = FollowerInfo { accepted, history, version: VERSION };
        let mut learner = Learner::new(link, server, false, info, cx.now.mono);
        let (ensemble, blank) = (replica.last_ensemble_id(), false);
        let empty = !replica.voters_before(cx.config.id(), cx.voters).contains(server);
        learner.on_leader_info(empty);
        cx.send_peer(link, FromLeader::LeaderInfo { epoch, empty, ensemble, blank });
        let fed = Fed { learner, attached: None, syncs: VecDeque::new() };
        cx.send_peer(leader, FromLearner::Attach { behind: fed.behind() });
        self.observers.insert(link, fed);
        self.next_ping.get_or_insert(cx.now.mono.after(cx.config.tick() / 2));
    }

    /// Processes a message of an observer: answers it, or relays it to the leader.
    pub(crate) fn on_message(
        &mut self,
        link: LinkId,
        message: FromLearner,
        leader: LinkId,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) {
        let Some(fed) = self.observers.get_mut(&link) else {
            return cx.mark(Mark::LinkDead);
        };
        let epoch = replica.state().current_epoch;
        fed.learner.on_message(cx.now.mono);
        if other_epoch(&message, replica).is_some() {
            // The leader orders it to set its data aside.
            let what = "the leader has to compare the histories".to_owned();
            return self.drop(link, LinkCloseReason::Incompatible(what), cx);
        }
        let (serves, behind) = (fed.learner.stage == Stage::Serving, fed.behind());
        match message {
            FromLearner::AckEpoch { last, .. } if fed.learner.stage == Stage::Promising => {
                fed.learner.stage = Stage::Promised { last };
                self.start_sync(link, replica, cx);
            }
            FromLearner::SyncAt { last, .. }
                if matches!(
                    fed.learner.stage,
                    Stage::Truncating | Stage::Snapshotting { next: None, .. }
                ) =>
            {
                fed.learner.note_answer(last, replica, cx);
                fed.learner.choose_sync_mode(last, replica, epoch, cx);
            }
            FromLearner::AckNewLeader { epoch: entered } if entered == epoch => {
                if !fed.learner.on_ack_new_leader(cx.now.mono) {
                    return self.refuse(link, "ACK NEWLEADER".to_owned(), cx);
                }
                fed.maybe_serve(replica, cx);
            }
            FromLearner::Loading { .. } => {}
            FromLearner::Pong { round, echo, sent, touched, digests }
                if round <= self.round && digests.len() <= DIGESTS =>
            {
                fed.learner.on_pong(sent, echo, cx.now.mono);
                if serves && !(touched.is_empty() && digests.is_empty()) {
                    cx.send_peer(leader, FromLearner::TouchedBehind { behind, touched, digests });
                }
            }
            FromLearner::Request { session, origin, ids, request, session_kind }
                if serves && origin.server == behind.server =>
            {
                cx.mark(Mark::ObserverRelayed);
                let session_kind: SessionKind = session_kind;
                cx.send_peer(
                    leader,
                    FromLearner::Request { session, origin, ids, request, session_kind },
                );
            }
            FromLearner::CreateSession { timeout_ms, origin }
                if serves && origin.server == behind.server =>
            {
                cx.send_peer(leader, FromLearner::CreateSession { timeout_ms, origin });
            }
            FromLearner::Revalidate { conn, session, timeout_ms } if serves => {
                let relayed = FromLearner::RevalidateBehind { behind, conn, session, timeout_ms };
                cx.send_peer(leader, relayed);
            }
            FromLearner::Sync { conn, request } if serves => {
                cx.send_peer(leader, FromLearner::SyncBehind { behind, conn, request });
            }
            FromLearner::FollowerInfo { .. }
            | FromLearner::ObserverInfo { .. }
            | FromLearner::AckEpoch { .. }
            | FromLearner::SyncAt { .. }
            | FromLearner::AckNewLeader { .. }
            | FromLearner::Ack { .. }
            | FromLearner::Pong { .. }
            | FromLearner::Request { .. }
            | FromLearner::CreateSession { .. }
            | FromLearner::Revalidate { .. }
            | FromLearner::Sync { .. }
            | FromLearner::Attach { .. }
            | FromLearner::RevalidateBehind { .. }
            | FromLearner::SyncBehind { .. }
            | FromLearner::TouchedBehind { .. } => self.refuse(link, message.to_string(), cx),
        }
    }

    /// The leader knows that this server feeds the observer; its log ended at `logged` then.
    pub(crate) fn on_attached(
        &mut self,
        behind: Behind,
        logged: Zxid,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) {
        if let Some(fed) = self.fed(behind) {
            fed.attached = Some(logged);
            fed.maybe_serve(replica, cx);
        }
    }

    /// The leader has confirmed a sync, when `agreed` included all that was committed before it.
    pub(crate) fn on_synced(
        &mut self,
        behind: Behind,
        (conn, request): (ConnId, u64),
        (agreed, committed): (Zxid, Zxid),
        cx: &mut Cx<'_>,
    ) {
        if let Some(fed) = self.fed(behind) {
            fed.syncs.push_back((agreed, conn, request));
            fed.confirm(committed, cx);
        }
    }

    /// The state of an observer differs from the ensemble's.
    pub(crate) fn on_differs(&mut self, behind: Behind, zxid: Zxid, cx: &mut Cx<'_>) {
        if self.fed(behind).is_some() {
            cx.send_peer(behind.link, FromLeader::Differs { zxid });
            let what = format!("its state at {zxid} differs: it sets its data aside");
            self.drop(behind.link, LinkCloseReason::Incompatible(what), cx);
        }
    }

    /// The leader ignores what this server relays for the observer.
    pub(crate) fn on_detached(&mut self, behind: Behind, cx: &mut Cx<'_>) {
        if self.fed(behind).is_some() {
            self.drop(behind.link, LinkCloseReason::Replaced, cx);
        }
    }

    /// The history is committed up to `zxid`: informs the observers.
    pub(crate) fn commit(&mut self, zxid: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        for link in Vec::from_iter(self.observers.keys().copied()) {
            self.start_sync(link, replica, cx);
        }
        for fed in self.observers.values_mut() {
            fed.learner.commit(zxid, replica, cx);
            fed.maybe_serve(replica, cx);
            fed.confirm(zxid, cx);
        }
    }

    /// Synchronises an observer that waits for it. One that has committed more of this epoch than
    /// this server waits until this server has it, too.
    fn start_sync(&mut self, link: LinkId, replica: &Replica, cx: &mut Cx<'_>) {
        let epoch = replica.state().current_epoch;
        let Some(fed) = self.observers.get_mut(&link) else { return };
        if let Stage::Promised { last } = fed.learner.stage {
            if last.epoch() == epoch && last > replica.log().appended() {
                return cx.mark(Mark::ObserverAhead);
            }
            fed.learner.start_sync(last, replica, epoch, cx);
        }
    }

    /// A snapshot of this server is durable: synchronises the observers that have waited for one.
    pub(crate) fn on_snapshot_taken(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        for link in Vec::from_iter(self.observers.keys().copied()) {
            self.start_sync(link, replica, cx);
        }
    }

    /// The send queue of a link is empty.
    pub(crate) fn on_drained(&mut self, link: LinkId, replica: &Replica, cx: &mut Cx<'_>) {
        if let Some(fed) = self.observers.get_mut(&link) {
            fed.learner.on_drained(replica, replica.state().current_epoch, cx);
        }
    }

    /// The disk has read transactions for an observer.
    pub(crate) fn on_log_read(
        &mut self,
        link: LinkId,
        found: Result<Vec<Entry>, String>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let fed = self.observers.get_mut(&link);
        if let Some(Err(what)) = fed.map(|fed| fed.learner.on_log_read(found, replica, cx)) {
            replica.on_log_unreadable();
            self.unreadable(link, what, cx);
        }
    }

    /// The disk has read a chunk of a snapshot for an observer.
    pub(crate) fn on_snapshot_read(
        &mut self,
        link: LinkId,
        (zxid, index): (Zxid, u32),
        found: Result<(bytes::Bytes, bool), String>,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) {
        let fed = self.observers.get_mut(&link);
        if let Some(Err(what)) = fed.map(|fed| fed.learner.on_snapshot_read(index, found, cx)) {
            replica.on_snapshot_unreadable(zxid);
            self.unreadable(link, what, cx);
        }
    }

    fn unreadable(&mut self, link: LinkId, what: String, cx: &mut Cx<'_>) {
        cx.mark(Mark::LogReadFailed);
        self.drop(link, LinkCloseReason::Unreadable(what), cx);
    }

    /// The links of its observers.
    pub(crate) fn links(&self) -> impl Iterator<Item = LinkId> {
        self.observers.keys().copied()
    }

    /// A link is down. Returns whether it was an observer's.
    pub(crate) fn on_down(&mut self, link: LinkId) -> bool {
        self.observers.remove(&link).is_some()
    }

    /// The oldest zxid from which an observer still needs the log, or the snapshot, on the disk.
    pub(crate) fn oldest_needed(&self) -> Option<Zxid> {
        self.observers.values().filter_map(|fed| fed.learner.needs()).min()
    }

    /// When observers were silent for too long, and when to ping them.
    pub(crate) fn deadlines(&self, cx: &Cx<'_>) -> [(Timer, Option<Instant>); 2] {
        let silence = self.observers.values().map(|fed| fed.learner.deadline(cx)).min();
        let ping = self.next_ping.filter(|_| !self.observers.is_empty());
        [(Timer::LearnerSilence, silence), (Timer::Ping, ping)]
    }

    /// Drops silent observers, and sends pings.
    pub(crate) fn on_timers(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        let late = self.observers.values().filter(|fed| fed.learner.deadline(cx) <= now);
        for link in Vec::from_iter(late.map(|fed| fed.learner.link)) {
            cx.mark(Mark::LearnerSilent);
            self.drop(link, LinkCloseReason::Silent, cx);
        }
        if self.next_ping.is_some_and(|at| at <= now) {
            self.round += 1;
            self.next_ping = Some(now.after(cx.config.tick() / 2));
            let (round, sent) = (self.round, now);
            for fed in self.observers.values().filter(|fed| fed.learner.is_synced()) {
                let echo = fed.learner.echo();
                cx.send_peer(fed.learner.link, FromLeader::Ping { round, sent, echo });
            }
        }
    }

    /// Checks that the observers have been sent no more than what is committed, and all of it once
    /// they are live.
    pub(crate) fn check(&self, log: &Log) {
        if cfg!(debug_assertions) {
            self.observers.values().for_each(|fed| fed.learner.check_sent(log));
        }
    }

    fn fed(&mut self, behind: Behind) -> Option<&mut Fed> {
        self.observers.get_mut(&behind.link).filter(|fed| fed.learner.server == behind.server)
    }

    fn refuse(&mut self, link: LinkId, what: String, cx: &mut Cx<'_>) {
        cx.mark(Mark::LearnerRefused);
        self.drop(link, PeerMisbehaved::OutOfTurn(what).into(), cx);
    }

    fn drop(&mut self, link: LinkId, why: LinkCloseReason, cx: &mut Cx<'_>) {
        if self.observers.remove(&link).is_some() {
            cx.out.peers.push(PeerCommand::Close(link, why));
        }
    }
}

impl Fed {
    /// Sends UPTODATE if the observer has what it needs for that.
    fn maybe_serve(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        if self.may_serve(replica.log()) {
            cx.mark(Mark::LearnerJoined);
            self.learner.serve(replica, cx);
        } else if self.learner.is_ready() && self.learner.stage != Stage::Serving {
            cx.mark(Mark::ObserverHeld);
        }
    }

    /// Sends the confirmed syncs whose zxid the observer has been informed of.
    fn confirm(&mut self, committed: Zxid, cx: &mut Cx<'_>) {
        while let Some((_, conn, request)) =
            self.syncs.pop_front_if(|(zxid, ..)| *zxid <= committed)
        {
            cx.send_peer(self.learner.link, FromLeader::Synced { conn, request });
        }
    }
}
