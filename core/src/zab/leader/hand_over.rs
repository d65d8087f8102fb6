//! How a leader that is to stop, has lost its vote (RECONF-11), or has a slow disk hands leadership
//! over, and how one whose epoch is used up begins the next one (ZAB-20).
//!
//! Owns when such a leader steps down, and which server it names. Must not decide the election: the
//! name is a hint that makes the outcome of the usual rules quick.

use super::{Leader, LeaderEffect, Learner};
use crate::cx::Cx;
use crate::ids::{Instant, ServerId, Zxid};
use crate::io::Mark;
use crate::peer::{FromLeader, StepDownReason, Vote};
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
        let stops = StepDownReason::Stops;
        match &mut self.hand_over_by {
            Some((by, why)) if *why == stops => *by = cx.now.mono,
            Some((_, why)) => *why = stops,
            None => self.hand_over(stops, cx),
        }
    }

    /// The epoch has no zxid for the next proposal (ZAB-20). The leader first commits what it has
    /// proposed, so that clients get their answers in this epoch, and then has itself elected for
    /// the next one. Where no other server may lead, there is no wait.
    pub(crate) fn end_epoch(&mut self, cx: &mut Cx<'_>) -> LeaderEffect {
        cx.mark(Mark::EpochUsedUp);
        if !self.hands_over() {
            self.hand_over(StepDownReason::Epoch, cx);
        }
        if self.hands_over() {
            LeaderEffect::None
        } else {
            LeaderEffect::StepDown(StepDownReason::Epoch)
        }
    }

    fn hand_over(&mut self, why: StepDownReason, cx: &mut Cx<'_>) {
        let own = cx.config.id();
        if self.serving().is_some() && cx.voters.ids().any(|id| id != own && cx.voters.may_lead(id))
        {
            cx.mark(Mark::HandOverBegun);
            let by = cx.now.mono.after(cx.config.tick() * WAIT_TICKS);
            self.hand_over_by = Some((by, why));
        }
    }

    /// Hands over if the disk of this server has held a transaction for `syncLimit`, and the others
    /// have committed it: a leader demands of itself what it demands of its learners. Where the
    /// commit needs this server, nobody else could lead. Pings make this leader look often enough.
    pub(crate) fn watch_disk(&mut self, replica: &Replica, cx: &mut Cx<'_>) {
        let (log, now) = (replica.log(), cx.now.mono);
        let written = |(zxid, _): &(Zxid, Instant)| *zxid <= log.durable();
        self.unwritten = self.unwritten.filter(|mark| !written(mark));
        if self.serving().is_some() && log.durable() < log.appended() {
            self.unwritten.get_or_insert((log.appended(), now));
        }
        let late = self.unwritten.filter(|(_, since)| since.after(cx.config.sync_limit()) <= now);
        if self.hand_over_by.is_none() && late.is_some_and(|(zxid, _)| zxid <= log.committed()) {
            cx.mark(Mark::HandOverSlowDisk);
            self.unwritten = None;
            self.hand_over(StepDownReason::SlowDisk, cx);
        }
    }

    /// Does this leader propose nothing more, because it is about to step down?
    pub(crate) fn hands_over(&self) -> bool {
        self.hand_over_by.is_some()
    }

    /// Is it time to step down? Then every proposal is committed, and the server to be named has
    /// them all; or the wait is over.
    pub(crate) fn hand_over_due(
        &self,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> Option<StepDownReason> {
        let (by, why) = self.hand_over_by?;
        let (committed, appended) = (replica.log().committed(), replica.log().appended());
        let best = self.next_leader(why, replica, cx).map(|(acked, _)| acked);
        if committed == appended && best >= Some(appended) {
            return Some(why);
        }
        let late = by <= cx.now.mono;
        if late {
            cx.mark(Mark::HandOverLate);
        }
        late.then_some(why)
    }

    /// Names the server that is to lead next to all learners, if it has all that is committed. The
    /// caller steps down in the same step.
    ///
    /// Each learner that is told has been sent the whole log before, so the vote for the named
    /// server is the one that this server will cast itself. Of servers that have acknowledged the
    /// same, the one with the highest id is named, because its vote is the best one.
    pub(crate) fn name_next(
        &self,
        why: StepDownReason,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> Option<Vote> {
        let committed = replica.log().committed();
        let best = self.next_leader(why, replica, cx).filter(|(acked, _)| *acked >= committed);
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

    /// The voter that is to lead next, and the zxid that it has acknowledged: this server for the
    /// next epoch, else the learner that has acknowledged most.
    fn next_leader(
        &self,
        why: StepDownReason,
        replica: &Replica,
        cx: &Cx<'_>,
    ) -> Option<(Zxid, ServerId)> {
        if why == StepDownReason::Epoch {
            return Some((replica.log().durable(), cx.config.id()));
        }
        let proposer = self.serving()?;
        let fit = |learner: &&Learner| learner.is_ready() && cx.voters.may_lead(learner.server);
        let learners = self.learners.values().filter(fit);
        learners.map(|learner| (proposer.acked_by(learner.server), learner.server)).max()
    }
}
