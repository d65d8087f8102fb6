//! How a leader that is to stop, or has lost its vote, hands leadership over (RECONF-11).
//!
//! Owns when such a leader steps down, and which server it names. Must not decide the election: the
//! name is a hint that makes the outcome of the usual rules quick.

use super::{Leader, Learner};
use crate::cx::Cx;
use crate::ids::{ServerId, Zxid};
use crate::io::Mark;
use crate::peer::{FromLeader, Vote};
use crate::replica::Replica;

/// How long the leader waits until its proposals are committed and a voter has them all, in ticks.
/// A follower in good order needs milliseconds. In a tick the leader sends two pings, so that a
/// message that was lost with its connection shows; and clients, whose writes wait meanwhile, have
/// session timeouts of two ticks at least.
const WAIT_TICKS: u32 = 1;

impl Leader {
    /// The process is to stop: proposes nothing more, if another server may lead. The second call
    /// ends the wait. A single voter has nobody to hand over to.
    pub(crate) fn begin_hand_over(&mut self, cx: &mut Cx<'_>) {
        let own = cx.config.id();
        let others = cx.voters.ids().any(|id| id != own && cx.voters.may_lead(id));
        if self.serving().is_none() || !others {
            return;
        }
        let now = cx.now.mono;
        if self.hand_over_by.is_some() {
            self.hand_over_by = Some(now);
        } else {
            cx.mark(Mark::HandOverBegun);
            self.hand_over_by = Some(now.after(cx.config.tick() * WAIT_TICKS));
        }
    }

    /// Does this leader propose nothing more, because it is about to step down?
    pub(crate) fn hands_over(&self) -> bool {
        self.hand_over_by.is_some()
    }

    /// Is it time to step down? Then every proposal is committed, and the server to be named has
    /// them all; or the wait is over.
    pub(crate) fn is_hand_over_due(&self, replica: &Replica, cx: &mut Cx<'_>) -> bool {
        let Some(by) = self.hand_over_by else { return false };
        let (committed, appended) = (replica.log().committed(), replica.log().appended());
        let best = self.best_voter(cx).map(|(acked, _)| acked);
        if committed == appended && best >= Some(appended) {
            return true;
        }
        let late = by <= cx.now.mono;
        if late {
            cx.mark(Mark::HandOverLate);
        }
        late
    }

    /// Names the server that is to lead next to all learners: the one that has acknowledged most,
    /// if it has all that is committed. The caller steps down in the same step.
    ///
    /// Each learner that is told has been sent the whole log before, so the vote for the named
    /// server is the one that this server will cast itself. Of servers that have acknowledged the
    /// same, the one with the highest id is named, because its vote is the best one.
    pub(crate) fn name_next(&self, replica: &Replica, cx: &mut Cx<'_>) -> Option<Vote> {
        let committed = replica.log().committed();
        let best = self.best_voter(cx).filter(|(acked, _)| *acked >= committed);
        let Some((_, candidate)) = best else {
            cx.mark(Mark::HandOverToNobody);
            return None;
        };
        cx.mark(Mark::HandOverNamed);
        let (epoch, zxid) = (replica.state().current_epoch, replica.log().appended());
        let vote = Vote { epoch, zxid, candidate };
        let log = replica.log();
        let told = |learner: &&Learner| learner.is_synced() && learner.has_log(log);
        for learner in self.learners.values().filter(told) {
            cx.send_peer(learner.link, FromLeader::TakeOver { vote });
        }
        Some(vote)
    }

    /// The voter that may lead next: the zxid that it has acknowledged, and its id.
    fn best_voter(&self, cx: &Cx<'_>) -> Option<(Zxid, ServerId)> {
        let proposer = self.serving()?;
        let fit = |learner: &&Learner| learner.is_ready() && cx.voters.may_lead(learner.server);
        let learners = self.learners.values().filter(fit);
        learners.map(|learner| (proposer.acked_by(learner.server), learner.server)).max()
    }
}
