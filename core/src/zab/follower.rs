//! A follower (Java `Learner`, `Follower`): receives a leader's history, then logs its proposals
//! and applies its commits.
//!
//! Owns its link, its promise to this leader, and the sessions to renew at the leader. Must not
//! answer clients. Its event handlers return effects, on which `server` acts.

mod feeds;
mod receive;
mod take_over;

use std::collections::{BTreeMap, BTreeSet};

use super::{DIGESTS, ObserverMaster};
use crate::cx::Cx;
use crate::identity::{self, EpochNonce, Identity};
use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, WriteId, Zxid};
use crate::io::Mark;
use crate::membership::{HistoryStatus, Voters};
use crate::notice::Notice;
use crate::peer::{
    Behind, FromLeader, FromLearner, LinkCloseReason, PeerMisbehaved, StepDownReason, Vote,
};
use crate::replica::Replica;
use crate::store::Entry;

/// The follower's part of a server.
#[derive(Debug)]
pub(crate) struct Follower {
    leader: ServerId,
    /// The server that it dials: the leader or, if this server observes, one that feeds it.
    source: ServerId,
    /// The followers that may feed this server and that it has not tried.
    untried: Vec<ServerId>,
    /// The observers that this server feeds.
    master: ObserverMaster,
    /// The epoch in the vote that elected the leader.
    elected_epoch: Epoch,
    phase: Phase,
    /// When to look for another leader, unless a message extends the deadline.
    deadline: Instant,
    /// Sessions with a heartbeat since the last ping, and their timeouts granted here, in ms.
    touched: BTreeMap<SessionId, u32>,
    /// The digests up to this zxid have been sent to the leader.
    compared: Zxid,
    /// The zxid of the last ACK.
    acked: Zxid,
    /// The leader has no data and belongs to another ensemble: this server must not truncate its
    /// own data for that leader.
    keeps_data: bool,
    /// Had this server no data when the link came up, so that it joins the leader's ensemble?
    joins: bool,
    /// While the leader's snapshot is being stored or loaded: when to report the progress next.
    next_loading_report: Instant,
}

/// The phase of the follower; the diagram is in the module above.
#[derive(Debug)]
enum Phase {
    /// Waits for the link.
    Dialling,
    /// Waits for LEADERINFO.
    Discovery { link: LinkId },
    /// Waits until its promise is durable.
    Promising { link: LinkId, epoch: Epoch, fresh: bool, write: WriteId },
    /// Receives the leader's history.
    Synchronization { link: LinkId, epoch: Epoch },
    /// Has received NEWLEADER; waits until the history, and then the epoch, is durable.
    Entering { link: LinkId, epoch: Epoch, write: WriteId },
    /// Has sent ACK NEWLEADER; waits for UPTODATE. Before that, a second NEWLEADER may order it to
    /// record other voters.
    Synced { link: LinkId, epoch: Epoch, recording: Option<WriteId> },
    /// Serves clients. A damaged server sends no ACK until its state file is free of `damaged`.
    Following { link: LinkId, silent_until: Option<WriteId> },
}

/// What `server` has to do after an event.
#[must_use]
#[derive(Debug)]
pub(crate) enum FollowerEffect {
    /// Nothing.
    None,
    /// The history is committed up to this zxid.
    Commit(Zxid),
    /// The same, and clients are served from now on.
    Serve(Zxid),
    /// The sync of this client is confirmed.
    Synced(ConnId, u64),
    /// The sync of a client of this observer is confirmed.
    SyncedBehind(Behind, ConnId, u64),
    /// The state of this server at this zxid differs from the ensemble's.
    Differs(Zxid),
    /// This leader cannot be followed: look for a leader.
    Abandon(LinkCloseReason),
    /// The leader has stepped down, and has named this candidate.
    TakeOver(Vote),
}

impl Follower {
    /// Becomes a follower, and dials the leader. `elected_epoch` is the epoch in the vote that
    /// elected it.
    pub(crate) fn begin(leader: ServerId, elected_epoch: Epoch, cx: &mut Cx<'_>) -> Follower {
        let mut follower = Follower {
            leader,
            source: leader,
            untried: feeds::masters(leader, cx),
            master: ObserverMaster::default(),
            elected_epoch,
            phase: Phase::Dialling,
            deadline: cx.now.mono.after(cx.config.discovery_limit() * 2),
            touched: BTreeMap::new(),
            compared: Zxid::ZERO,
            acked: Zxid::ZERO,
            keeps_data: false,
            joins: false,
            next_loading_report: Instant(0),
        };
        follower.dial_next(cx);
        follower
    }

    /// Checks that the state of this server fits the phase.
    fn check(&self, replica: &Replica) {
        let (state, saved) = (replica.state(), replica.saved());
        let [promised, entered] = [state.accepted_epoch, state.current_epoch];
        let [durable_promise, durable_entry] = [saved.accepted_epoch, saved.current_epoch];
        match self.phase {
            Phase::Dialling | Phase::Discovery { .. } => {}
            Phase::Promising { epoch, .. } => {
                assert!(epoch == promised, "{epoch} is to be promised, not {promised}");
            }
            Phase::Synchronization { epoch, .. } => {
                let both = [promised, durable_promise];
                assert!(both == [epoch; 2], "epoch {epoch} begins after promises {both:?}");
            }
            Phase::Entering { epoch, .. } => {
                let both = [durable_promise, entered];
                assert!(both == [epoch; 2], "{epoch} is entered: promise and epoch {both:?}");
            }
            Phase::Synced { epoch, .. } => {
                let both = [entered, durable_entry];
                assert!(both == [epoch; 2], "epoch {epoch} is acknowledged, not {both:?}");
            }
            Phase::Following { .. } => {
                let both = [promised, durable_entry];
                assert!(both == [entered; 2], "epoch {entered} is served, not {both:?}");
            }
        }
        let (compared, applied) = (self.compared, replica.log().applied());
        assert!(compared <= applied, "digests to {compared} are sent, {applied} is applied");
    }

    /// Sends ACK: the log is durable up to `zxid`, and this server has all that it ever
    /// acknowledged.
    fn acknowledge(&mut self, link: LinkId, zxid: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        let durable = replica.log().durable();
        assert!(zxid <= durable, "ACK {zxid} goes beyond {durable}, which is durable");
        assert!(self.acked <= zxid, "ACK {zxid} follows ACK {}", self.acked);
        assert!(!replica.saved().damaged, "a damaged server sends ACK {zxid}");
        self.acked = zxid;
        cx.send_peer(link, FromLearner::Ack { zxid });
    }

    /// The leader that it follows.
    pub(crate) fn leader(&self) -> ServerId {
        self.leader
    }

    /// The link to the leader, once it is up.
    pub(crate) fn link(&self) -> Option<LinkId> {
        match self.phase {
            Phase::Dialling => None,
            Phase::Discovery { link }
            | Phase::Promising { link, .. }
            | Phase::Synchronization { link, .. }
            | Phase::Entering { link, .. }
            | Phase::Synced { link, .. }
            | Phase::Following { link, .. } => Some(link),
        }
    }

    /// The link to the leader, if clients are served.
    pub(crate) fn serving(&self) -> Option<LinkId> {
        match self.phase {
            Phase::Following { link, .. } => Some(link),
            Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. }
            | Phase::Synced { .. } => None,
        }
    }

    /// Is it receiving the leader's history, or making it durable?
    pub(crate) fn is_synchronizing(&self) -> bool {
        matches!(self.phase, Phase::Synchronization { .. } | Phase::Entering { .. })
    }

    /// When to call [`Follower::is_late`], or the next [`Follower::report_loading`] before.
    pub(crate) fn deadline(&self, replica: &Replica) -> Instant {
        match replica.loading_progress() {
            Some(_) => self.deadline.min(self.next_loading_report),
            None => self.deadline,
        }
    }

    /// A client's session has had a heartbeat (SESS-05).
    pub(crate) fn touch(&mut self, session: SessionId, timeout_ms: u32) {
        self.touched.insert(session, timeout_ms);
    }

    /// The link is up: sends FOLLOWERINFO.
    pub(crate) fn on_up(&mut self, link: LinkId, replica: &Replica, cx: &mut Cx<'_>) {
        assert!(self.link().is_none(), "{link} to the leader is up beside {:?}", self.link());
        let (durable, appended) = (replica.log().durable(), replica.log().appended());
        assert!(durable == appended, "voted with {appended}, which is durable to {durable}");
        self.phase = Phase::Discovery { link };
        let accepted = replica.state().accepted_epoch;
        let (history, ensemble) =
            (replica.history_info(cx.config.id(), cx.voters), replica.ensemble_id());
        let leader = self.leader;
        cx.send_peer(
            link,
            if self.source == leader {
                FromLearner::FollowerInfo { accepted, history, ensemble }
            } else {
                FromLearner::ObserverInfo { leader, accepted, history, ensemble }
            },
        );
        self.deadline = cx.now.mono.after(cx.config.discovery_limit() * 2);
    }

    /// Processes a message of the leader. A leader that breaks the protocol is abandoned.
    pub(crate) fn on_message(
        &mut self,
        message: FromLeader,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        self.check(replica);
        let serves = self.serving().is_some();
        if !serves {
            self.deadline = cx.now.mono.after(cx.config.init_limit());
        }
        match message {
            FromLeader::LeaderInfo { epoch, empty, ensemble, blank } => {
                let ours = replica.ensemble_id();
                let differs = identity::differ(ours, ensemble);
                if differs && !blank {
                    cx.mark(Mark::EnsembleDiffers);
                    return self.refuse(LinkCloseReason::other_ensemble(ensemble, ours), cx);
                }
                self.keeps_data = differs;
                self.joins = replica.has_nothing_to_lose();
                self.on_leader_info(epoch, empty, ensemble, replica, cx)
            }
            FromLeader::Trunc { to } => self.on_trunc(to, replica, cx),
            FromLeader::Snap { zxid, index, bytes, last } => {
                self.on_snap((zxid, index, bytes, last), replica, cx)
            }
            FromLeader::Proposal(entry) => self.on_proposal(entry, replica, cx),
            FromLeader::NewLeader { epoch, voters, established, identity, nonces } => {
                self.on_new_leader(epoch, (voters, established), (identity, nonces), replica, cx)
            }
            FromLeader::TakeOver { vote } => self.on_take_over(vote, replica, cx),
            FromLeader::Differs { zxid } if cx.voters.set().len() > 2 => {
                FollowerEffect::Differs(zxid)
            }
            FromLeader::UpToDate { committed } => self.on_up_to_date(committed, replica, cx),
            FromLeader::Commit { zxid } if serves && zxid <= replica.log().appended() => {
                FollowerEffect::Commit(zxid)
            }
            FromLeader::Inform(entry) if serves => self.on_inform(entry, replica, cx),
            FromLeader::Ping { round, sent, echo } => self.on_ping(round, sent, echo, replica, cx),
            FromLeader::Synced { conn, request } if serves => FollowerEffect::Synced(conn, request),
            FromLeader::Attached { behind, logged } if serves => {
                self.master.on_attached(behind, logged, replica, cx);
                FollowerEffect::None
            }
            FromLeader::SyncedBehind { behind, conn, request } if serves => {
                FollowerEffect::SyncedBehind(behind, conn, request)
            }
            FromLeader::DiffersBehind { behind, zxid } if serves => {
                self.master.on_differs(behind, zxid, cx);
                FollowerEffect::None
            }
            FromLeader::Detached { behind } if serves => {
                self.master.on_detached(behind, cx);
                FollowerEffect::None
            }
            FromLeader::Commit { .. }
            | FromLeader::Attached { .. }
            | FromLeader::SyncedBehind { .. }
            | FromLeader::DiffersBehind { .. }
            | FromLeader::Detached { .. }
            | FromLeader::Inform(_)
            | FromLeader::Synced { .. }
            | FromLeader::Differs { .. } => {
                self.refuse(PeerMisbehaved::OutOfTurn(message.to_string()), cx)
            }
        }
    }

    /// A state file of this server is durable.
    pub(crate) fn on_state_durable(&mut self, id: WriteId, replica: &Replica, cx: &mut Cx<'_>) {
        match &mut self.phase {
            Phase::Promising { link, epoch, fresh, write } if *write == id => {
                let (link, epoch, fresh) = (*link, *epoch, *fresh);
                self.phase = Phase::Synchronization { link, epoch };
                let (current, last) = (replica.state().current_epoch, replica.log().appended());
                let durable = replica.log().durable();
                assert!(durable == last, "ACKEPOCH names {last}, which is durable to {durable}");
                let nonce = replica.nonce_at(last);
                cx.send_peer(link, FromLearner::AckEpoch { fresh, current, last, nonce });
            }
            Phase::Entering { link, epoch, write } if *write == id => {
                let (link, epoch) = (*link, *epoch);
                self.phase = Phase::Synced { link, epoch, recording: None };
                cx.send_peer(link, FromLearner::AckNewLeader { epoch });
                // Some of the received entries may need this server's ACK to be committed.
                self.on_durable(replica.log().durable(), replica, cx);
            }
            Phase::Synced { link, epoch, recording } if *recording == Some(id) => {
                *recording = None;
                cx.send_peer(*link, FromLearner::AckNewLeader { epoch: *epoch });
            }
            Phase::Following { silent_until, .. } if *silent_until == Some(id) => {
                *silent_until = None;
                cx.mark(Mark::Refilled);
                self.on_durable(replica.log().durable(), replica, cx);
            }
            // A write for an earlier role, or one that this phase does not wait for.
            Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. } => cx.mark(Mark::StateDoneStale),
            Phase::Synced { .. } | Phase::Following { .. } => {}
        }
        self.check(replica);
    }

    /// The log of this server is durable up to `zxid` (ZAB-15).
    pub(crate) fn on_durable(&mut self, zxid: Zxid, replica: &Replica, cx: &mut Cx<'_>) {
        // The acknowledgement of an observer would count nowhere.
        let votes = cx.voters.contains(cx.config.id());
        let acknowledges = match self.phase {
            Phase::Synced { .. } => !replica.state().damaged,
            Phase::Following { silent_until, .. } => silent_until.is_none(),
            Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. } => false,
        };
        if let Some(link) = self.link().filter(|_| votes && acknowledges) {
            self.acknowledge(link, zxid, replica, cx);
        }
    }

    /// The leader's snapshot has become the state.
    pub(crate) fn on_installed(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        if let Phase::Synchronization { link, .. } = self.phase {
            let last = replica.log().appended();
            cx.send_peer(link, FromLearner::SyncAt { last, nonce: replica.nonce_at(last) });
        }
    }

    /// Has the leader been silent for too long?
    pub(crate) fn is_late(&self, cx: &mut Cx<'_>) -> bool {
        let late = self.deadline <= cx.now.mono;
        if late {
            cx.mark(Mark::LeaderSilent);
        }
        late
    }

    /// ZAB-04.
    fn on_leader_info(
        &mut self,
        epoch: Epoch,
        empty: bool,
        ensemble: u64,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let state = replica.state();
        let known = self.elected_epoch.max(state.accepted_epoch);
        let link = match self.phase {
            Phase::Discovery { link } if epoch.is_credible(known) => link,
            Phase::Discovery { .. }
            | Phase::Dialling
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. }
            | Phase::Synced { .. }
            | Phase::Following { .. } => {
                let proposed = epoch;
                return self.refuse(PeerMisbehaved::Epoch { proposed, known }, cx);
            }
        };
        if !state.accepted_epoch.is_credible(epoch) {
            let promised = state.accepted_epoch;
            return self.refuse(
                LinkCloseReason::Incompatible(format!(
                    "this server has promised epoch {promised}, and the others know of {epoch}: \
                     move its data directory away and start it; it gets its data from the leader"
                )),
                cx,
            );
        }
        if epoch < state.accepted_epoch {
            cx.mark(Mark::PromiseRefused);
            return FollowerEffect::Abandon(LinkCloseReason::Looks(StepDownReason::Outdated));
        }
        let fresh = epoch > state.accepted_epoch;
        let may_have_lost_data = replica.history_status() == HistoryStatus::Uninitialized && !empty;
        let joins = self.joins && ensemble != 0;
        let write = replica.save_state(cx, |state| {
            state.accepted_epoch = epoch;
            state.damaged |= may_have_lost_data;
            // The history to come belongs to another ensemble, so its former identity is removed.
            // The identity of the same ensemble stays: this server may lead with it.
            state.identity.take_if(|known| joins && known.id != ensemble);
        });
        self.phase = Phase::Promising { link, epoch, fresh, write };
        if !fresh {
            cx.mark(Mark::PromiseRepeated);
        }
        if may_have_lost_data {
            cx.mark(Mark::FoundEmpty);
        }
        FollowerEffect::None
    }

    fn on_proposal(
        &mut self,
        entry: Entry,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let expected = match self.phase {
            Phase::Synchronization { .. }
            | Phase::Entering { .. }
            | Phase::Synced { .. }
            | Phase::Following { .. } => true,
            Phase::Dialling | Phase::Discovery { .. } | Phase::Promising { .. } => false,
        };
        if !expected {
            let what = format!("PROPOSAL {}", entry.zxid);
            return self.refuse(PeerMisbehaved::OutOfTurn(what), cx);
        }
        match replica.receive(entry, cx) {
            Ok(()) => FollowerEffect::None,
            Err(what) => self.refuse(PeerMisbehaved::History(what), cx),
        }
    }

    /// ZAB-11: the received history is on its way to the disk; the state write follows it in the
    /// same lane.
    fn on_new_leader(
        &mut self,
        epoch: Epoch,
        (voters, established): (BTreeSet<ServerId>, BTreeSet<ServerId>),
        (identity, nonces): (Identity, Vec<EpochNonce>),
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        // All of these are stored in the state file, in a single block.
        if identity.id == 0 || established.len() > Voters::MAX || nonces.len() > identity::EPOCHS {
            return self.refuse(PeerMisbehaved::NewLeaderTooLong(epoch), cx);
        }
        let joins = self.joins;
        let known = replica.state().identity.filter(|known| known.established);
        let known = known.filter(|known| !joins || known.id == identity.id);
        if let Some(known) = known.filter(|known| known.id != identity.id) {
            cx.mark(Mark::EnsembleDiffers);
            return self.refuse(LinkCloseReason::other_ensemble(identity.id, known.id), cx);
        }
        match self.phase {
            Phase::Synchronization { link, epoch: promised } if epoch == promised => {
                // Where configurations are replicated, the files of the two may differ.
                if voters != *cx.voters.set() && replica.membership().is_none() {
                    let here = cx.voters.set().clone();
                    let (leader, there) = (self.leader, voters.clone());
                    cx.out.notices.push(Notice::VotersDiffer { leader, there, here });
                }
                let write = replica.save_state(cx, |state| {
                    state.current_epoch = epoch;
                    state.voters = established;
                    state.identity = known.or(Some(Identity { established: false, ..identity }));
                    state.nonces = nonces;
                });
                self.phase = Phase::Entering { link, epoch, write };
                FollowerEffect::None
            }
            // A quorum has the history: records the voters of this epoch.
            Phase::Synced { link, epoch: entered, recording: None } if epoch == entered => {
                let write = replica.save_state(cx, |state| state.voters = established);
                self.phase = Phase::Synced { link, epoch, recording: Some(write) };
                FollowerEffect::None
            }
            Phase::Synchronization { .. }
            | Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Entering { .. }
            | Phase::Synced { .. }
            | Phase::Following { .. } => {
                self.refuse(PeerMisbehaved::OutOfTurn(format!("NEWLEADER {epoch}")), cx)
            }
        }
    }

    /// ZAB-12.
    fn on_up_to_date(&self, committed: Zxid, replica: &Replica, cx: &mut Cx<'_>) -> FollowerEffect {
        let log = replica.log();
        let possible = log.committed()..=log.appended();
        match self.phase {
            Phase::Synced { .. } if possible.contains(&committed) => {
                FollowerEffect::Serve(committed)
            }
            Phase::Synced { .. }
            | Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. }
            | Phase::Following { .. } => {
                let (from, to) = (log.committed(), log.appended());
                self.refuse(PeerMisbehaved::Committed { zxid: committed, from, to }, cx)
            }
        }
    }

    /// Everything that is committed is applied: service begins.
    pub(crate) fn activate(&mut self, replica: &mut Replica, cx: &mut Cx<'_>) {
        self.check(replica);
        let (applied, committed) = (replica.log().applied(), replica.log().committed());
        assert!(applied == committed, "service begins at {applied}, before {committed} is applied");
        let Phase::Synced { link, .. } = self.phase else {
            unreachable!("service begins after synchronization")
        };
        cx.mark(Mark::FollowingBegun);
        self.deadline = cx.now.mono.after(cx.config.silence_limit());
        let damaged = replica.state().damaged;
        let established = replica.state().identity.is_some_and(|known| known.established);
        let write = (damaged || !established).then(|| {
            replica.save_state(cx, |state| {
                state.damaged = false;
                // The leader serves, so a quorum has the identity.
                state.identity.iter_mut().for_each(|identity| identity.established = true);
            })
        });
        self.phase = Phase::Following { link, silent_until: write.filter(|_| damaged) };
        if feeds::feeds(cx) {
            replica.hold_recent(Some(committed));
        }
    }

    /// `echo` is the send time, on this server's clock, of the last PONG that the leader had read
    /// when it sent this ping. While clients are served, nothing else extends the deadline: after a
    /// stall, a server reads messages that were sent long ago, and `echo` shows how long ago.
    fn on_ping(
        &mut self,
        round: u64,
        leaders_clock: Instant,
        echo: Instant,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        match self.phase {
            Phase::Synced { link, .. } | Phase::Following { link, .. } => {
                if self.serving().is_some() {
                    let fresh_until = echo.min(cx.now.mono).after(cx.config.silence_limit());
                    self.deadline = self.deadline.max(fresh_until);
                }
                let touched = std::mem::take(&mut self.touched).into_iter().collect();
                let digests = replica.digests_after(self.compared, DIGESTS);
                self.compared = digests.last().map_or(self.compared, |(zxid, _)| *zxid);
                let (sent, echo) = (cx.now.mono, leaders_clock);
                cx.send_peer(link, FromLearner::Pong { round, sent, echo, touched, digests });
                FollowerEffect::None
            }
            Phase::Dialling
            | Phase::Discovery { .. }
            | Phase::Promising { .. }
            | Phase::Synchronization { .. }
            | Phase::Entering { .. } => {
                self.refuse(PeerMisbehaved::OutOfTurn(format!("PING {round}")), cx)
            }
        }
    }

    /// Abandons a leader that has broken the protocol.
    fn refuse(&self, why: impl Into<LinkCloseReason>, cx: &mut Cx<'_>) -> FollowerEffect {
        cx.mark(Mark::LeaderRefused);
        FollowerEffect::Abandon(why.into())
    }
}
