//! Leader election (Java `FastLeaderElection`): the vote of a server that looks for a leader.
//!
//! Owns the votes of one election and the decision when it is over. Must not send notifications or
//! change roles: it returns a [`Recipients`] or an [`Outcome`], on which `server` acts.
//!
//! ```text
//!       own history is durable ──► vote for it, notify all
//!         better vote received ──► adopt it, notify all      (of a higher round: vote anew in it)
//! quorum shares the own vote   ──► over at once if all voters but a lost leader share it, and no
//!                                  other server has logged further voters, or the
//!                                  last leader has named the candidate,
//!                                  else after `final_wait` without a better vote
//!  quorum follows a leader,
//!              which is leading ──► follow it
//! ```
//!
//! The winner may be unfit: discovery compares histories again, and a leader that cannot lead costs
//! another election. But each election must end, and its messages must cease. Two servers cannot
//! answer each other for ever:
//! * The vote and the round of a server only rise, and it notifies *all* only when one of them
//!   does. (Exception: a candidate contradicts the vote for it. Each time, this takes a new
//!   notification from the candidate.)
//! * It notifies *the sender* alone if the notification is of an older round, is the sender's first
//!   of this round, or repeats a vote that is worse than its own. Of two servers with different
//!   votes, the one with the worse vote adopts the better one.
//!
//! Voters may keep a vote alive among themselves although its candidate is gone, while another
//! voter has rejected that candidate. So a server whose resend pause has reached
//! `notify_max`, without a notification of the candidate itself in this round, starts a new round,
//! in which each server first votes for its own history.
//!
//! The round is kept in memory only. A restarted server begins with a low round, and the first
//! notification of a higher one raises it.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::config::Limits;
use crate::ids::{Epoch, Instant, ServerId, Zxid};
use crate::io::{Mark, Marks};
use crate::membership::{HistoryInfo, HistoryStatus, Voters};
use crate::peer::{Notification, ServerState, Vote};
use oracle::AwaitOracle;
pub(crate) use oracle::Oracle;
use repeat::Repeat;

mod oracle;
mod repeat;
#[cfg(test)]
mod tests;

/// An election in progress.
#[derive(Debug)]
pub(crate) struct Election {
    own: ServerId,
    /// Whether this server is a voter. An observer has no history to propose: it learns from the
    /// voters which server leads.
    votes: bool,
    round: u64,
    /// The leader that this server has just lost. The election does not wait for its vote, unless
    /// it sends a looking notification.
    lost: Option<ServerId>,
    /// Voters that no server votes for: those of weight zero (FLE-02). They have no vote for
    /// themselves, like a server with [`HistoryStatus::Lost`].
    barred: BTreeSet<ServerId>,
    /// Voters that only a configuration names which others have logged, and its version. They may
    /// be elected, because those others vote for them, and count in no quorum.
    foreign: (BTreeSet<ServerId>, Zxid),
    /// The vote of this server for its own history, with the status of that history; `None` until
    /// that history is durable.
    initial: Option<ReceivedVote>,
    /// The best vote so far. A server with [`HistoryStatus::Lost`], of weight zero or without a
    /// vote has none until it receives one.
    proposal: Option<Vote>,
    /// The last looking notification, in this round, of each other voter.
    recvset: BTreeMap<ServerId, ReceivedVote>,
    /// The last notification of each other voter that leads or follows, of any round.
    out_of_election: BTreeMap<ServerId, Notification>,
    /// Servers without a vote that asked who leads, and must be told when the election is over.
    askers: BTreeSet<ServerId>,
    /// Has a voter with a complete history sent a notification? Then voters with empty disks cannot
    /// decide among themselves.
    complete_received: bool,
    /// The end of the `final_wait` for a better vote; `None` while no quorum shares the proposal.
    final_deadline: Option<Instant>,
    repeat: Repeat,
    /// When this server begins to serve read-only clients, unless the election is over; `None`
    /// until [`Election::read_only_from`] gets the time.
    read_only_from: Option<Instant>,
    /// The vote for the server that the last leader has named.
    named: Option<Vote>,
    /// Is this server to stop? It then sends no vote, and is not elected.
    abstains: bool,
    /// What the oracle says, and whom it allows to be absent.
    oracle: AwaitOracle,
    /// Branches taken since the last `take_marks`.
    marks: Marks,
}

/// The role of this server after an election.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It leads.
    Lead,
    /// It follows.
    Follow(ServerId),
}

/// The servers that must get the own vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Recipients {
    /// None.
    None,
    /// All others: the vote or the round has changed.
    All,
    /// Only the sender of the notification just processed.
    Sender,
}

/// A vote, and the history of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct ReceivedVote {
    vote: Vote,
    history: HistoryInfo,
}

impl Election {
    /// The election after the one of `round`; `lost` is the leader that this server followed until
    /// now.
    pub(crate) fn new(own: ServerId, round: u64, lost: Option<ServerId>) -> Election {
        Election {
            own,
            votes: true,
            // A peer may have sent any round. `u64::MAX` cannot rise, but the election can still
            // end.
            round: round.saturating_add(1),
            lost,
            barred: BTreeSet::new(),
            foreign: Default::default(),
            initial: None,
            proposal: None,
            recvset: BTreeMap::new(),
            out_of_election: BTreeMap::new(),
            askers: BTreeSet::new(),
            complete_received: false,
            final_deadline: None,
            repeat: Repeat::default(),
            read_only_from: None,
            named: None,
            abstains: false,
            oracle: AwaitOracle::default(),
            marks: Marks::default(),
        }
    }

    /// The same election among these voters: some may have the weight zero, and this server may be
    /// none of them.
    pub(crate) fn among(mut self, voters: &Voters) -> Election {
        self.votes = voters.contains(self.own);
        self.barred = voters.ids().filter(|id| !voters.may_lead(*id)).collect();
        self
    }

    /// The same election, in which this server votes for the server that the last leader has named.
    /// A third server's vote would have the same effect, except that a quorum for the named server
    /// waits for no better vote: the leader has compared the histories.
    pub(crate) fn naming(mut self, named: Option<Vote>) -> Election {
        self.named = named;
        self
    }

    /// The same election, of which this server learns the outcome only.
    pub(crate) fn without_own_vote(mut self) -> Election {
        self.abstains = true;
        self.barred.insert(self.own);
        self
    }

    /// Sets the voters that only others have logged.
    pub(crate) fn set_foreign(&mut self, (mut ids, version): (BTreeSet<ServerId>, Zxid)) {
        ids.remove(&self.own);
        self.foreign = (ids, version);
    }

    /// The voters that only others have logged.
    pub(crate) fn foreign(&self) -> impl Iterator<Item = ServerId> {
        self.foreign.0.iter().copied()
    }

    /// May the candidate be elected, as far as configurations say?
    fn may_stand(&self, vote: Vote, voters: &Voters) -> bool {
        let (foreign, version) = &self.foreign;
        let has_logged = vote.zxid >= *version;
        voters.contains(vote.candidate) || has_logged && foreign.contains(&vote.candidate)
    }

    /// Has this server voted, and may it be elected?
    pub(crate) fn may_win(&self) -> bool {
        self.has_voted() && !self.abstains
    }

    /// The own history is durable: votes for it, or for a better vote received before. The caller
    /// must notify all others. With [`HistoryStatus::Lost`], or without a vote, the own history
    /// counts as none at all.
    ///
    /// # Panics
    /// If this election has voted already, or if `own` names another candidate.
    pub(crate) fn vote(&mut self, own: Vote, history: HistoryInfo, now: Instant) {
        assert!(self.initial.is_none(), "one history for each election");
        assert_eq!(own.candidate, self.own, "a server vouches for its own history");
        if history.history_status == HistoryStatus::Lost {
            self.marks.hit(Mark::ElectionDamaged);
        }
        let vote = match history.history_status {
            HistoryStatus::Complete | HistoryStatus::Uninitialized if self.votes => own,
            HistoryStatus::Complete | HistoryStatus::Uninitialized | HistoryStatus::Lost => {
                Vote { epoch: Epoch(0), zxid: Zxid::ZERO, candidate: self.own }
            }
        };
        self.initial = Some(ReceivedVote { vote, history });
        self.oracle.begin(now);
        self.propose(self.best_known(), now);
    }

    /// The servers without a vote that asked who leads.
    pub(crate) fn take_askers(&mut self) -> BTreeSet<ServerId> {
        std::mem::take(&mut self.askers)
    }

    /// Branches taken since the last call.
    pub(crate) fn take_marks(&mut self) -> Marks {
        std::mem::take(&mut self.marks)
    }

    /// When this server begins to serve read-only clients (RO-01): `grace` after the first call.
    pub(crate) fn read_only_from(&mut self, now: Instant, grace: Duration) -> Instant {
        *self.read_only_from.get_or_insert(now.after(grace))
    }

    /// Has this server voted? It sends no notification before.
    pub(crate) fn has_voted(&self) -> bool {
        self.initial.is_some()
    }

    /// The round of this election; after [`Outcome::Follow`] that of the leader.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// The best vote so far; after an outcome, that of the winner.
    pub(crate) fn proposal(&self) -> Option<Vote> {
        self.proposal
    }

    /// The notification to send; `None` before the own vote. `ensemble` is 0 while this server does
    /// not know its ensemble.
    pub(crate) fn notification(&self, ensemble: u64) -> Option<Notification> {
        // A server that may not be elected and has no proposal names itself, so that others answer.
        // They vote neither for a server with `HistoryStatus::Lost` nor for one of weight zero.
        let own = self.initial.filter(|_| !self.abstains)?;
        Some(Notification {
            server_state: ServerState::Looking,
            round: self.round,
            vote: self.proposal.unwrap_or(own.vote),
            history: own.history,
            ensemble,
        })
    }

    /// The history status in the last notification of a voter, or that of this server.
    pub(crate) fn history_status_of(&self, id: ServerId) -> Option<HistoryStatus> {
        if id == self.own {
            return self.initial.map(|own| own.history.history_status);
        }
        let looking = self.recvset.get(&id).map(|received| received.history.history_status);
        let settled = self.out_of_election.get(&id).map(|other| other.history.history_status);
        looking.or(settled)
    }

    /// Processes a notification of another server.
    pub(crate) fn receive(
        &mut self,
        from: ServerId,
        notification: &Notification,
        voters: &Voters,
        now: Instant,
    ) -> Recipients {
        if from == self.own {
            return Recipients::None;
        }
        self.oracle.on_notification(from, now);
        let stands =
            notification.vote.candidate == from && self.may_stand(notification.vote, voters);
        if !voters.contains(from) && !stands {
            return self.on_non_voter(from, notification);
        }
        self.complete_received |= notification.history.history_status == HistoryStatus::Complete;
        let received = ReceivedVote { vote: notification.vote, history: notification.history };
        let recipients = match notification.server_state {
            ServerState::Looking => {
                self.on_looking(from, received, notification.round, voters, now)
            }
            ServerState::Following | ServerState::Leading => {
                self.on_out_of_election(from, notification, voters, now)
            }
        };
        if self.has_voted() { recipients } else { Recipients::None }
    }

    /// Is the election over? Then round and proposal are those of the leader.
    pub(crate) fn outcome(
        &mut self,
        voters: &Voters,
        limits: &Limits,
        now: Instant,
    ) -> Option<Outcome> {
        self.initial?;
        if let Some((leader, notification)) = self.established(voters) {
            if self.stays_apart(notification.vote) {
                return None;
            }
            let trusts = self.oracle.trusts(voters);
            self.marks.hit(if trusts {
                Mark::ElectionOracleRefuses
            } else {
                Mark::ElectionEstablished
            });
            self.round = notification.round;
            self.proposal = Some(notification.vote);
            return Some(Outcome::Follow(leader));
        }
        let proposal = self.proposal.filter(|proposal| !self.stays_apart(*proposal))?;
        let sharing = self.sharing(proposal, voters);
        let present = self.oracle.without_silent(self.own, voters, limits, now);
        let voters = &*present;
        if !self.decides(proposal, &sharing, voters) {
            self.final_deadline = None;
            return None;
        }
        let shared = |id| sharing.contains_key(&id) || self.lost == Some(id);
        let complete = voters.ids().all(shared) && self.foreign.0.is_empty();
        let deadline = *self.final_deadline.get_or_insert(now.after(limits.final_wait));
        let candidate_agrees = sharing.contains_key(&proposal.candidate);
        let named = self.named == Some(proposal);
        let at_once = (complete || named) && candidate_agrees;
        if !at_once && now < deadline {
            return None;
        }
        if matches!(present, Cow::Owned(_)) {
            self.marks.hit(Mark::ElectionByOracle);
        }
        self.marks.hit(match (complete, at_once) {
            (true, true) => Mark::ElectionComplete,
            (false, true) => Mark::ElectionNamed,
            (_, false) => Mark::ElectionWaited,
        });
        Some(if proposal.candidate == self.own {
            Outcome::Lead
        } else {
            Outcome::Follow(proposal.candidate)
        })
    }

    /// Does this server, which is to stop, have a later history than this one? It joins no such
    /// leader: the leader would step down at its sight, and so would the next one.
    fn stays_apart(&self, vote: Vote) -> bool {
        let later = |own: ReceivedVote| (own.vote.epoch, own.vote.zxid) > (vote.epoch, vote.zxid);
        self.abstains && self.initial.is_some_and(later)
    }

    /// Must all others be notified again? If so, the next pause begins.
    pub(crate) fn take_resend(&mut self, limits: &Limits, now: Instant) -> bool {
        let Some(capped) = self.repeat.take(limits, now) else {
            return false;
        };
        if capped {
            self.marks.hit(Mark::ElectionRepeatCapped);
        }
        // A named server that is still there has sent its vote by now.
        let doubted = capped || self.named.is_some();
        if doubted && self.candidate_is_silent() && self.raise(self.round.saturating_add(1)) {
            self.marks.hit(Mark::ElectionHearsay);
            self.named = None;
            self.begin_anew(now);
        }
        true
    }

    /// Is the candidate known in this round only from other voters' notifications? Two servers can
    /// keep a vote alive between them after its candidate is gone, while a third knows from the
    /// candidate itself that its history ends earlier, and never shares the vote.
    fn candidate_is_silent(&self) -> bool {
        self.proposal.is_some_and(|Vote { candidate, .. }| {
            let settled = self.out_of_election.get(&candidate);
            candidate != self.own
                && !self.recvset.contains_key(&candidate)
                && settled.is_none_or(|notification| notification.round < self.round)
        })
    }

    /// When [`outcome`](Self::outcome) and [`take_resend`](Self::take_resend) must be called again.
    /// Before their first call that is at once, because only they get the limits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let deadlines = [self.final_deadline, self.repeat.deadline(), self.oracle.deadline()];
        deadlines.into_iter().flatten().min()
    }

    /// A non-voter sends notifications to learn the outcome. It is answered, but its vote is never
    /// counted (FLE-09).
    fn on_non_voter(&mut self, from: ServerId, notification: &Notification) -> Recipients {
        let asks = notification.server_state == ServerState::Looking;
        if asks && self.votes {
            self.askers.insert(from);
        }
        let Some(ours) = self.notification(0) else {
            return Recipients::None;
        };
        let older = notification.round < ours.round;
        let worse = notification.round == ours.round && notification.vote < ours.vote;
        if asks && (older || worse) { Recipients::Sender } else { Recipients::None }
    }

    /// A notification of a voter that looks for a leader (FLE-04).
    fn on_looking(
        &mut self,
        from: ServerId,
        received: ReceivedVote,
        round: u64,
        voters: &Voters,
        now: Instant,
    ) -> Recipients {
        self.out_of_election.remove(&from);
        if self.lost == Some(from) {
            self.lost = None;
        }
        if round < self.round {
            self.marks.hit(Mark::ElectionRoundOld);
            return Recipients::Sender;
        }
        let raised = self.raise(round);
        if !self.may_stand(received.vote, voters) {
            // The sender's configuration differs: its candidate is no voter here.
            return if raised { self.begin_anew(now) } else { Recipients::None };
        }
        let before = self.recvset.insert(from, received);
        if raised {
            return self.begin_anew(now);
        }
        if self.proposal.is_some_and(|proposal| !self.is_credible(proposal)) {
            self.marks.hit(Mark::ElectionNotCredible);
            return self.begin_anew(now);
        }
        if self.adopt(received.vote, now) {
            return Recipients::All;
        }
        // A sender whose votes still improve receives notifications, so ours will arrive. A sender
        // that repeats a worse vote has not received ours.
        let repeats = before.is_none_or(|before| received.vote <= before.vote);
        let worse = self.notification(0).is_some_and(|ours| received.vote < ours.vote);
        if before.is_none() || (worse && repeats) { Recipients::Sender } else { Recipients::None }
    }

    /// A notification of a voter that leads or follows (FLE-07). A leading one also counts as a
    /// vote: otherwise a leader that lost its followers before it was established would wait in
    /// vain for servers that return in a lower round.
    fn on_out_of_election(
        &mut self,
        from: ServerId,
        notification: &Notification,
        voters: &Voters,
        now: Instant,
    ) -> Recipients {
        self.recvset.remove(&from);
        self.out_of_election.insert(from, *notification);
        let leader = notification.vote.candidate;
        if !self.may_stand(notification.vote, voters) {
            return Recipients::None;
        }
        let leads = notification.server_state == ServerState::Leading
            && leader == from
            && notification.round >= self.round;
        if !leads {
            return Recipients::None;
        }
        let raised = self.raise(notification.round);
        if raised {
            self.begin_anew(now);
        }
        // A leader's zxid rises while it leads. Its vote is adopted once: if each rise were
        // adopted, servers would notify each other for ever.
        let other = self.proposal.is_none_or(|proposal| proposal.candidate != leader);
        let news = (other && self.adopt(notification.vote, now)) || raised;
        if news { Recipients::All } else { Recipients::None }
    }

    /// Enters `round` if it is higher, and discards the votes of the old one. The caller must then
    /// vote anew.
    fn raise(&mut self, round: u64) -> bool {
        let higher = round > self.round;
        if higher {
            self.marks.hit(Mark::ElectionRoundRaised);
            self.round = round;
            self.recvset.clear();
        }
        higher
    }

    /// Votes anew for the best known vote.
    fn begin_anew(&mut self, now: Instant) -> Recipients {
        if self.has_voted() {
            self.propose(self.best_known(), now);
        }
        Recipients::All
    }

    /// Adopts a vote that is better than the own one.
    fn adopt(&mut self, vote: Vote, now: Instant) -> bool {
        let better = self.has_voted()
            && self.is_credible(vote)
            && self.proposal.is_none_or(|proposal| vote > proposal);
        if better {
            self.marks.hit(match self.proposal {
                Some(before) if before.epoch != vote.epoch => Mark::ElectionByEpoch,
                Some(before) if before.zxid != vote.zxid => Mark::ElectionByZxid,
                Some(_) | None => Mark::ElectionById,
            });
            if self.final_deadline.is_some() {
                self.marks.hit(Mark::ElectionLateVote);
            }
            self.propose(Some(vote), now);
        }
        better
    }

    fn propose(&mut self, proposal: Option<Vote>, now: Instant) {
        self.proposal = proposal;
        self.final_deadline = None;
        self.repeat = Repeat::begun(now);
    }

    /// The best credible vote of this round, the own one included.
    fn best_known(&self) -> Option<Vote> {
        let votes = self.initial.iter().chain(self.recvset.values());
        let votes = votes.map(|received| received.vote).chain(self.named);
        votes.filter(|vote| self.is_credible(*vote)).max()
    }

    /// May the candidate lead, and have this history? The candidate's own notification overrides
    /// those of others: it may have lost its disk, or found its log damaged, in the meantime.
    fn is_credible(&self, vote: Vote) -> bool {
        if self.barred.contains(&vote.candidate) {
            return false;
        }
        if vote.candidate == self.own {
            let own = self.initial;
            let can_lead =
                |own: ReceivedVote| self.votes && own.history.history_status != HistoryStatus::Lost;
            return own.is_some_and(|own| can_lead(own) && own.vote == vote);
        }
        match self.recvset.get(&vote.candidate) {
            Some(received) => {
                received.history.history_status != HistoryStatus::Lost && received.vote >= vote
            }
            None => true,
        }
    }

    /// The voters that share the own proposal, this server included, each with its history. A voter
    /// that has already decided to follow the candidate in this round shares it, too.
    fn sharing(&self, proposal: Vote, voters: &Voters) -> BTreeMap<ServerId, HistoryInfo> {
        let history_of = |id: ServerId| {
            if id == self.own {
                return self.initial.map(|own| own.history);
            }
            let looking = self.recvset.get(&id).filter(|received| received.vote == proposal);
            let settled = self.out_of_election.get(&id).filter(|notification| {
                notification.round == self.round
                    && notification.vote.candidate == proposal.candidate
            });
            looking.map(|received| received.history).or(settled.map(|other| other.history))
        };
        voters.ids().filter_map(|id| Some((id, history_of(id)?))).collect()
    }

    /// Do these voters suffice to decide (FLE-05)? If none of them has a complete history, they
    /// suffice only while no voter with a complete history has sent a notification.
    fn decides(
        &self,
        proposal: Vote,
        sharing: &BTreeMap<ServerId, HistoryInfo>,
        voters: &Voters,
    ) -> bool {
        let full =
            sharing.values().any(|history| history.history_status == HistoryStatus::Complete);
        (full || !self.complete_received) && voters.may_decide(sharing, proposal.zxid == Zxid::ZERO)
    }
}
