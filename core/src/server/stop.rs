//! The end of the process, as the host announces it, and how a leader resigns before it.
//!
//! Owns when the process may exit. Must not name the next leader: `zab` does.

use super::Server;
use super::role::Role;
use crate::cx::Cx;
use crate::election::Election;
use crate::ids::ServerId;
use crate::peer::{LinkCloseReason, StepDownReason, Vote};
use crate::replica::Membership;

impl Server {
    /// After [`Input::Stop`](crate::Input::Stop): does the ensemble need this process no longer? A
    /// leader hands leadership over first, which takes a tick at most. Every other server may exit
    /// at once. Requests of clients may still be unanswered.
    pub fn may_exit(&self) -> bool {
        let hands_over = match &self.role {
            Role::Leading(leader) => leader.hands_over(),
            Role::Looking(_) | Role::Following(_) => false,
        };
        self.stopping && !hands_over
    }

    pub(super) fn on_stop(&mut self, cx: &mut Cx<'_>) {
        self.stopping = true;
        if let Role::Leading(leader) = &mut self.role {
            leader.begin_hand_over(cx);
        }
    }

    /// The step may have committed the last proposal of a leader that is about to step down.
    pub(super) fn maybe_hand_over(&mut self, cx: &mut Cx<'_>) {
        let Role::Leading(leader) = &mut self.role else { return };
        let members = self.members.clone();
        let mut cx = Cx { members: &members, voters: members.voters(), ..cx.reborrow() };
        leader.watch_disk(&self.replica, &mut cx);
        // It may have been elected, and not served yet, when the process was told to stop.
        if self.stopping && !leader.hands_over() {
            leader.begin_hand_over(&mut cx);
        }
        if let Some(why) = leader.hand_over_due(&self.replica, &mut cx) {
            self.step_down(why, &mut cx);
        }
    }

    /// This server leads no longer. If it has left the voters, is to stop, has a slow disk or has
    /// used its epoch up, it names the next leader, and votes for it.
    pub(super) fn step_down(&mut self, why: StepDownReason, cx: &mut Cx<'_>) {
        use StepDownReason::{Epoch, Removed, SlowDisk, Stops};
        // Who is to stop casts no vote for itself.
        let why = if self.stopping && why == Epoch { Stops } else { why };
        let names = matches!(why, Stops | Removed | SlowDisk | Epoch);
        let next = match &self.role {
            Role::Leading(leader) if names => leader.name_next(why, &self.replica, cx),
            Role::Leading(_) | Role::Looking(_) | Role::Following(_) => None,
        };
        self.look_for(next, None, LinkCloseReason::Looks(why), cx);
    }

    /// The leader has named `next`, maybe itself, and leads no longer.
    pub(super) fn on_take_over(&mut self, next: Vote, cx: &mut Cx<'_>) {
        let why = LinkCloseReason::Looks(StepDownReason::HandedOver);
        let lost = self.leader().filter(|leader| *leader != next.candidate);
        self.look_for(Some(next), lost, why, cx);
    }

    /// The next election. A server that is to stop casts no vote, so that nobody elects it or waits
    /// for it; it follows the next leader until it exits, because clients may wait for answers.
    pub(super) fn election(
        &self,
        next: Option<Vote>,
        lost: Option<ServerId>,
        cx: &Cx<'_>,
    ) -> Election {
        let foreign = self.replica.membership().map(Membership::foreign_candidates);
        let mut election = Election::new(cx.config.id(), self.round, lost).among(cx.voters);
        election.set_foreign(foreign.unwrap_or_default());
        let election = if self.stopping && !cx.voters.alone() {
            election.without_own_vote()
        } else {
            election
        };
        election.naming(next)
    }
}
