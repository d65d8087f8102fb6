//! What a follower does when its leader names the next one, or itself, and steps down.
//!
//! Owns the conditions for believing it. Must not vote: `election` does.

use super::{Follower, FollowerEffect, Phase};
use crate::cx::Cx;
use crate::io::Mark;
use crate::peer::{FromLeader, PeerMisbehaved, Vote};
use crate::replica::Replica;

impl Follower {
    /// The leader had sent its whole log before, so it and this server end at the same zxid.
    pub(super) fn on_take_over(
        &self,
        vote: Vote,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let synced = matches!(self.phase, Phase::Synced { .. } | Phase::Following { .. });
        let ours = (replica.state().current_epoch, replica.log().appended());
        let fits = (vote.epoch, vote.zxid) == ours && cx.voters.may_lead(vote.candidate);
        if !(synced && fits) {
            let what = FromLeader::TakeOver { vote }.to_string();
            return self.refuse(PeerMisbehaved::OutOfTurn(what), cx);
        }
        cx.mark(Mark::TakeOverReceived);
        FollowerEffect::TakeOver(vote)
    }
}
