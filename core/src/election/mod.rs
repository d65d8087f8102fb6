//! Leader election (Java `FastLeaderElection`): what a server does that knows no leader.
//!
//! Owns the votes of one election, and when it is over. Must not send, nor change roles: it says what there is to tell
//! and who won, `server` acts on it.
//!
//! ```text
//!   own history on the disk ──► vote for it, tell all
//!        better vote heard  ──► vote for that, tell all              (a higher round: begin anew in it)
//!   a quorum shares my vote ──► every voter that may be alive does: over
//!                               else over after a pause without a better vote
//!      a majority follows a leader, and it says so ──► join it
//! ```
//!
//! An election may be wrong: discovery compares histories again, and what ends in a leader that cannot lead costs
//! another election. It must end, though, and become quiet. Between two servers nothing echoes for ever:
//! * the votes and rounds of a server only rise, and *all* are told only when they do (except where a candidate itself
//!   contradicts a vote for it, which has to come from the outside each time);
//! * *the sender* alone is told only if its word was its first of this round, or is worse than ours and nothing new. Of
//!   two servers one has the worse word, and takes the better one up.
//!
//! A candidate that nobody hears any more may be one that not all believe in. Who has said its vote for it in vain until
//! that is said as seldom as it ever is, and never heard it itself, begins another round, in which all vote for what they have.
//!
//! Rounds are counted in memory. A restarted server begins low and is raised by the first that it hears.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::Limits;
use crate::ids::{Epoch, Instant, ServerId, Zxid};
use crate::io::{Mark, Marks};
use crate::peer::{Notification, ServerState, Vote};
use crate::quorum::{HistoryInfo, HistoryStatus, Voters};

#[cfg(test)]
mod tests;

/// An election under way.
#[derive(Debug)]
pub(crate) struct Election {
    own: ServerId,
    round: u64,
    /// The leader just lost. Nobody waits for its vote, until it is heard looking for a leader itself.
    lost: Option<ServerId>,
    /// The own history, once it is settled on the disk, and what that makes the own word worth.
    initial: Option<Word>,
    /// The best candidate so far. A damaged server has none until it hears of one.
    proposal: Option<Vote>,
    /// The last word, in this round, of each other voter that looks for a leader.
    received: BTreeMap<ServerId, Word>,
    /// The last word of each other voter that leads or follows, whatever its round.
    settled: BTreeMap<ServerId, Notification>,
    /// Was a voter heard that has a history? Then blank voices decide nothing among themselves.
    full_heard: bool,
    /// When a quorum has shared the proposal for long enough.
    final_deadline: Option<Instant>,
    repeat: Repeat,
    /// Branches taken since they were asked for.
    marks: Marks,
}

/// What the end of an election makes of this server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It leads.
    Lead,
    /// It follows.
    Follow(ServerId),
}

/// Who is to be told the own vote.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reaction {
    /// Nobody.
    Nothing,
    /// All others: the vote has changed.
    TellAll,
    /// Only who has just spoken, and does not know better.
    TellSender,
}

/// A vote, and the history of its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Word {
    vote: Vote,
    history: HistoryInfo,
}

/// When to say it again: notifications may be lost.
#[derive(Clone, Copy, Debug, Default)]
struct Repeat {
    /// When all were told last; `None` before the own vote.
    told_at: Option<Instant>,
    /// `None` until the limits are known.
    pause: Option<Duration>,
}

impl Election {
    /// The election after the one of `round`; `lost` is the leader that this server followed until now.
    pub(crate) fn new(own: ServerId, round: u64, lost: Option<ServerId>) -> Election {
        Election {
            own,
            // A peer may have said any number. A round that cannot rise still has an outcome.
            round: round.saturating_add(1),
            lost,
            initial: None,
            proposal: None,
            received: BTreeMap::new(),
            settled: BTreeMap::new(),
            full_heard: false,
            final_deadline: None,
            repeat: Repeat::default(),
            marks: Marks::default(),
        }
    }

    /// The own history is settled on the disk: vote for it, or for the best that was heard meanwhile. All are to be
    /// told. What a damaged server has is worth nothing here, whatever it is.
    ///
    /// # Panics
    /// When it has voted already.
    pub(crate) fn vote(&mut self, own: Vote, history: HistoryInfo, now: Instant) {
        assert!(self.initial.is_none(), "one history for each election");
        assert_eq!(own.candidate, self.own, "a server vouches for its own history");
        if history.history_status == HistoryStatus::Lost {
            self.marks.hit(Mark::ElectionDamaged);
        }
        let vote = match history.history_status {
            HistoryStatus::Complete | HistoryStatus::Uninitialized => own,
            HistoryStatus::Lost => Vote { epoch: Epoch(0), zxid: Zxid::ZERO, candidate: self.own },
        };
        self.initial = Some(Word { vote, history });
        self.propose(self.best_known(), now);
    }

    /// Branches taken since the last call.
    pub(crate) fn take_marks(&mut self) -> Marks {
        std::mem::take(&mut self.marks)
    }

    /// Has the own history been settled? Nothing is said before.
    pub(crate) fn has_voted(&self) -> bool {
        self.initial.is_some()
    }

    /// The round of this election; after [`Outcome::Follow`] that of the leader.
    pub(crate) fn round(&self) -> u64 {
        self.round
    }

    /// The best candidate so far; after an outcome the one that won.
    pub(crate) fn proposal(&self) -> Option<Vote> {
        self.proposal
    }

    /// What a server of this ensemble (0: it does not know which) has to tell; `None` before the own vote.
    pub(crate) fn notification(&self, ensemble: u64) -> Option<Notification> {
        // A damaged server that has heard of no candidate names itself, so that others answer. They know not to follow.
        let own = self.initial?;
        Some(Notification {
            server_state: ServerState::Looking,
            round: self.round,
            vote: self.proposal.unwrap_or(own.vote),
            history: own.history,
            ensemble,
        })
    }

    /// What the word of a voter is worth, if it was heard.
    pub(crate) fn history_status_of(&self, id: ServerId) -> Option<HistoryStatus> {
        if id == self.own {
            return self.initial.map(|own| own.history.history_status);
        }
        let looking = self.received.get(&id).map(|word| word.history.history_status);
        looking.or(self.settled.get(&id).map(|said| said.history.history_status))
    }

    /// Another server has spoken.
    pub(crate) fn hear(
        &mut self,
        from: ServerId,
        said: &Notification,
        voters: &Voters,
        now: Instant,
    ) -> Reaction {
        if from == self.own {
            return Reaction::Nothing;
        }
        if !voters.contains(from) {
            return self.hear_non_voter(said);
        }
        self.full_heard |= said.history.history_status == HistoryStatus::Complete;
        let word = Word { vote: said.vote, history: said.history };
        let reaction = match said.server_state {
            ServerState::Looking => self.hear_looking(from, word, said.round, voters, now),
            ServerState::Following | ServerState::Leading => {
                self.hear_settled(from, said, voters, now)
            }
        };
        if self.has_voted() { reaction } else { Reaction::Nothing }
    }

    /// Is the election over? Then round and proposal are those of the leader.
    pub(crate) fn outcome(
        &mut self,
        voters: &Voters,
        limits: &Limits,
        now: Instant,
    ) -> Option<Outcome> {
        self.initial?;
        if let Some((leader, said)) = self.established(voters) {
            self.marks.hit(Mark::ElectionEstablished);
            self.round = said.round;
            self.proposal = Some(said.vote);
            return Some(Outcome::Follow(leader));
        }
        let proposal = self.proposal?;
        let sharing = self.sharing(proposal, voters);
        if !self.decides(proposal, &sharing, voters) {
            self.final_deadline = None;
            return None;
        }
        let complete = voters.ids().all(|id| sharing.contains_key(&id) || self.lost == Some(id));
        let deadline = *self.final_deadline.get_or_insert(now.after(limits.final_wait));
        let candidate_agrees = sharing.contains_key(&proposal.candidate);
        if !(complete && candidate_agrees) && now < deadline {
            return None;
        }
        let at_once = complete && candidate_agrees;
        self.marks.hit(if at_once { Mark::ElectionComplete } else { Mark::ElectionWaited });
        Some(if proposal.candidate == self.own {
            Outcome::Lead
        } else {
            Outcome::Follow(proposal.candidate)
        })
    }

    /// Is it time to tell all once more? If so, that counts as done. The pauses double, up to a limit, while there is no
    /// news.
    pub(crate) fn take_resend(&mut self, limits: &Limits, now: Instant) -> bool {
        let Some(told_at) = self.repeat.told_at else {
            return false;
        };
        let pause = *self.repeat.pause.get_or_insert(limits.notify_min);
        if now < told_at.after(pause) {
            return false;
        }
        let longer = pause.saturating_mul(2).min(limits.notify_max);
        self.repeat = Repeat { told_at: Some(now), pause: Some(longer) };
        if longer == pause {
            self.marks.hit(Mark::ElectionRepeatCapped);
            if self.waits_for_hearsay() && self.raise(self.round.saturating_add(1)) {
                self.marks.hit(Mark::ElectionHearsay);
                self.begin_anew(now);
            }
        }
        true
    }

    /// Is the candidate known from others only, in this round? Two servers can keep a vote alive in each other whose
    /// candidate is gone, while a third knows from the candidate itself that it has less, and never shares it.
    fn waits_for_hearsay(&self) -> bool {
        self.proposal.is_some_and(|Vote { candidate, .. }| {
            let settled = self.settled.get(&candidate);
            candidate != self.own
                && !self.received.contains_key(&candidate)
                && settled.is_none_or(|said| said.round < self.round)
        })
    }

    /// When [`outcome`](Self::outcome) and [`take_resend`](Self::take_resend) are to be asked again. Before they were
    /// asked for the first time that is at once, because only they know the limits.
    pub(crate) fn next_deadline(&self) -> Option<Instant> {
        let repeat = self.repeat.told_at.map(|at| at.after(self.repeat.pause.unwrap_or_default()));
        [self.final_deadline, repeat].into_iter().flatten().min()
    }

    /// A server without a vote listens for the outcome. It is answered, and never counted (FLE-09).
    fn hear_non_voter(&self, said: &Notification) -> Reaction {
        let Some(ours) = self.notification(0) else {
            return Reaction::Nothing;
        };
        let older = said.round < ours.round;
        let worse = said.round == ours.round && said.vote < ours.vote;
        if said.server_state == ServerState::Looking && (older || worse) {
            Reaction::TellSender
        } else {
            Reaction::Nothing
        }
    }

    /// FLE-04.
    fn hear_looking(
        &mut self,
        from: ServerId,
        word: Word,
        round: u64,
        voters: &Voters,
        now: Instant,
    ) -> Reaction {
        self.settled.remove(&from);
        if self.lost == Some(from) {
            self.lost = None;
        }
        if round < self.round {
            self.marks.hit(Mark::ElectionRoundOld);
            return Reaction::TellSender;
        }
        let raised = self.raise(round);
        if !voters.contains(word.vote.candidate) {
            // Its configuration is not ours. Whom it would have lead cannot lead us.
            return if raised { self.begin_anew(now) } else { Reaction::Nothing };
        }
        let before = self.received.insert(from, word);
        if raised {
            return self.begin_anew(now);
        }
        if self.proposal.is_some_and(|proposal| !self.is_credible(proposal)) {
            self.marks.hit(Mark::ElectionNotCredible);
            return self.begin_anew(now);
        }
        if self.adopt(word.vote, now) {
            return Reaction::TellAll;
        }
        // Who votes for ever better ones hears others, and will hear us. Who repeats a worse vote has not.
        let repeats = before.is_none_or(|before| word.vote <= before.vote);
        let worse = self.notification(0).is_some_and(|ours| word.vote < ours.vote);
        if before.is_none() || (worse && repeats) {
            Reaction::TellSender
        } else {
            Reaction::Nothing
        }
    }

    /// FLE-07. The word of a leader counts as a vote too: one that was left alone before it was established would wait
    /// in vain for those who come back in a lower round.
    fn hear_settled(
        &mut self,
        from: ServerId,
        said: &Notification,
        voters: &Voters,
        now: Instant,
    ) -> Reaction {
        self.received.remove(&from);
        let leader = said.vote.candidate;
        if !voters.contains(leader) {
            self.settled.remove(&from);
            return Reaction::Nothing;
        }
        self.settled.insert(from, *said);
        let leads =
            said.server_state == ServerState::Leading && leader == from && said.round >= self.round;
        if !leads {
            return Reaction::Nothing;
        }
        let raised = self.raise(said.round);
        if raised {
            self.begin_anew(now);
        }
        // A leader's position moves on while it leads. It is taken up once, or two servers would chase it for ever.
        let other = self.proposal.is_none_or(|proposal| proposal.candidate != leader);
        if (other && self.adopt(said.vote, now)) || raised {
            Reaction::TellAll
        } else {
            Reaction::Nothing
        }
    }

    /// Goes on in a higher round. The votes of the old one are void, the own vote has yet to follow.
    fn raise(&mut self, round: u64) -> bool {
        let higher = round > self.round;
        if higher {
            self.marks.hit(Mark::ElectionRoundRaised);
            self.round = round;
            self.received.clear();
        }
        higher
    }

    /// Votes anew for the best that is known.
    fn begin_anew(&mut self, now: Instant) -> Reaction {
        if self.has_voted() {
            self.propose(self.best_known(), now);
        }
        Reaction::TellAll
    }

    /// Takes up a vote that is better than the own one.
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
        self.repeat = Repeat { told_at: Some(now), pause: None };
    }

    /// The own history or a better one, of this round.
    fn best_known(&self) -> Option<Vote> {
        let words = self.initial.iter().chain(self.received.values());
        words.map(|word| word.vote).filter(|vote| self.is_credible(*vote)).max()
    }

    /// May the candidate have this history? Nobody knows better than the candidate: it may have lost its disk, or have
    /// found its log damaged, since others heard of it.
    fn is_credible(&self, vote: Vote) -> bool {
        if vote.candidate == self.own {
            let own = self.initial;
            return own.is_some_and(|own| {
                own.history.history_status != HistoryStatus::Lost && own.vote == vote
            });
        }
        match self.received.get(&vote.candidate) {
            Some(word) => word.history.history_status != HistoryStatus::Lost && word.vote >= vote,
            None => true,
        }
    }

    /// The voters that share the own proposal, this server included, each with its history. One that has left the
    /// election of this round to follow the candidate does.
    fn sharing(&self, proposal: Vote, voters: &Voters) -> BTreeMap<ServerId, HistoryInfo> {
        let history_of = |id: ServerId| {
            if id == self.own {
                return self.initial.map(|own| own.history);
            }
            let looking = self.received.get(&id).filter(|word| word.vote == proposal);
            let settled = self.settled.get(&id).filter(|said| {
                said.round == self.round && said.vote.candidate == proposal.candidate
            });
            looking.map(|word| word.history).or(settled.map(|said| said.history))
        };
        voters.ids().filter_map(|id| Some((id, history_of(id)?))).collect()
    }

    /// FLE-05. Blank voices decide only where no other is heard.
    fn decides(
        &self,
        proposal: Vote,
        sharing: &BTreeMap<ServerId, HistoryInfo>,
        voters: &Voters,
    ) -> bool {
        let full =
            sharing.values().any(|history| history.history_status == HistoryStatus::Complete);
        (full || !self.full_heard) && voters.may_decide(sharing, proposal.zxid == Zxid::ZERO)
    }

    /// A leader that says so itself and that a majority follows or is (FLE-07). Their words need not agree on more than who
    /// it is: a leader that was restarted and taken at its followers' word knows another round and epoch than they do. Not
    /// this server: who still follows its former reign will notice.
    fn established(&self, voters: &Voters) -> Option<(ServerId, Notification)> {
        self.settled.iter().map(|(id, said)| (*id, *said)).find(|(leader, said)| {
            said.server_state == ServerState::Leading
                && said.vote.candidate == *leader
                && voters.is_quorum(|id| {
                    self.settled.get(&id).is_some_and(|other| other.vote.candidate == *leader)
                })
        })
    }
}
