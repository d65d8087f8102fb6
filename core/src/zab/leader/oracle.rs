//! A leader without its only follower, and the oracle that permits it to go on (QV-03, Java
//! `QuorumOracleMaj`).
//!
//! Owns of which voters this leader needs a quorum. Must not decide what a quorum is: `membership`
//! does. The oracle belongs to the operator, and vouches that the other voter is down.
//!
//! The rule: among exactly two voters without groups, a leader that the oracle permits needs only
//! itself,
//!
//! * while it serves, as long as the other voter has not the history, or has lost its link;
//! * before that, if it has acknowledged all that the two can have committed
//!   ([`Replica::may_lead_alone`]), and the other voter has no link at all: one that is there shows
//!   whether it has more.

use std::borrow::Cow;

use super::{Leader, LeaderEffect, Learner, Phase};
use crate::cx::Cx;
use crate::ids::{ServerId, Zxid};
use crate::io::Mark;
use crate::membership::Voters;
use crate::notice::Notice;
use crate::peer::StepDownReason;
use crate::replica::Replica;

impl Leader {
    /// The voters of which this leader needs a quorum: itself alone if the oracle permits it.
    pub(super) fn quorum_voters<'a>(&self, cx: &Cx<'a>) -> Cow<'a, Voters> {
        let serves = self.serving().is_some();
        if !cx.oracle || !(serves || self.may_begin_alone) {
            return Cow::Borrowed(cx.voters);
        }
        let counts = |learner: &Learner| !serves || learner.is_synced();
        let is_present =
            |id| self.learners.values().any(|learner| learner.server == id && counts(learner));
        cx.voters.on_oracle(cx.config.id(), is_present)
    }

    /// A voter has acknowledged `zxid`.
    pub(super) fn acked(&mut self, from: ServerId, zxid: Zxid, cx: &mut Cx<'_>) -> LeaderEffect {
        let voters = self.quorum_voters(cx);
        let mut cx = Cx { voters: &voters, ..cx.reborrow() };
        self.proposer().map_or(LeaderEffect::None, |proposer| {
            LeaderEffect::Commit(proposer.on_ack(from, zxid, &mut cx))
        })
    }

    /// What a quorum has may be committed.
    pub(super) fn commit_agreed(&self, cx: &mut Cx<'_>) -> LeaderEffect {
        let voters = self.quorum_voters(cx);
        let cx = Cx { voters: &voters, ..cx.reborrow() };
        self.serving()
            .map_or(LeaderEffect::None, |proposer| LeaderEffect::Commit(proposer.agreed(&cx)))
    }

    /// The oracle has spoken, or the other voter has come or gone. Returns an effect if this leader
    /// begins or ceases to go on alone.
    pub(crate) fn heed_oracle(
        &mut self,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> Option<LeaderEffect> {
        let alone = matches!(self.quorum_voters(cx), Cow::Owned(_));
        if alone == std::mem::replace(&mut self.alone, alone) {
            return None;
        }
        if !alone {
            let deserted = self.serving().is_some() && !self.has_quorum(Learner::is_synced, cx);
            return deserted.then(|| {
                cx.mark(Mark::OracleTakenBack);
                LeaderEffect::StepDown(StepDownReason::Quorum)
            });
        }
        cx.mark(Mark::OracleAlone);
        cx.out.notices.push(Notice::GoesOnAlone);
        Some(match self.phase {
            Phase::Gathering => {
                self.maybe_propose_epoch(replica, cx);
                LeaderEffect::None
            }
            Phase::Promising { .. } => {
                self.maybe_synchronize(replica, cx);
                LeaderEffect::None
            }
            Phase::Synchronization { .. } => self.maybe_establish(replica, cx),
            Phase::Broadcast { .. } => self.commit_agreed(cx),
        })
    }
}
