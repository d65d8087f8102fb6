//! Servers whose state at some zxid differs from the ensemble's: an operator has restored an older
//! copy of a data directory, or memory or software has failed.
//!
//! Owns which learners are dropped for it, and when this leader steps down for it. Must not decide
//! which state is right: a majority does.

use super::{Leader, LeaderEffect};
use crate::cx::Cx;
use crate::ids::{LinkId, ServerId, Zxid};
use crate::io::Mark;
use crate::notice::Notice;
use crate::peer::{FromLeader, FromLearner, LinkCloseReason};
use crate::replica::Replica;

impl Leader {
    /// A learner reports digests of its state. Each server that differs from a majority of the
    /// voters is dropped.
    pub(super) fn compare(
        &mut self,
        server: ServerId,
        digests: &[(Zxid, u64)],
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let own = cx.config.id();
        for (zxid, theirs) in digests {
            let Some(ours) = replica.digest_at(*zxid) else {
                continue;
            };
            if ours != *theirs {
                cx.mark(Mark::StateDiffers);
                cx.out.notices.push(Notice::StatesDiffer { server, zxid: *zxid });
            }
            let fingerprints = [(own, ours), (server, *theirs)];
            let differing = self.digests.add(*zxid, fingerprints, cx.voters);
            if differing.contains(&own) {
                return LeaderEffect::Differs(*zxid);
            }
            for server in differing {
                self.digests.forget(server);
                let learner = self.learners.values().find(|learner| learner.server == server);
                let Some(link) = learner.map(|learner| learner.link) else {
                    self.on_difference_behind(server, *zxid, cx);
                    continue;
                };
                let effect = self.on_difference(link, *zxid, cx);
                if !matches!(effect, LeaderEffect::None) {
                    return effect;
                }
            }
        }
        LeaderEffect::None
    }

    /// The last epoch of a learner has another nonce here, so it had another leader there. While
    /// this leader serves, a quorum has its history, so the learner sets its data aside. Before
    /// that it is unknown which history is right, unless a quorum reports the other nonce.
    pub(super) fn on_another_epoch(
        &mut self,
        link: LinkId,
        (last, nonce): (Zxid, u64),
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        if self.serving().is_some() {
            return self.on_difference(link, last, cx);
        }
        cx.mark(Mark::HistoryDiffers);
        let theirs = (last.epoch(), nonce);
        if let Some(learner) = self.learners.get(&link) {
            let server = learner.server;
            self.other_epochs.insert(server, theirs);
            cx.out.notices.push(Notice::StatesDiffer { server, zxid: last });
        }
        if cx.voters.is_quorum(|id| self.other_epochs.get(&id) == Some(&theirs)) {
            return LeaderEffect::Differs(last);
        }
        // The learner stays connected without counting: closing the link would start another
        // election, and another epoch, at once.
        LeaderEffect::None
    }

    /// Orders a learner to set its data aside, so that it is synchronised anew. With only two
    /// servers it is unknown which one is right.
    pub(super) fn on_difference(
        &mut self,
        link: LinkId,
        zxid: Zxid,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        cx.mark(Mark::HistoryDiffers);
        if cx.voters.set().len() < 3 {
            let what = format!(
                "its state at {zxid} differs from this server's, and two servers cannot tell which one \
                 is right: decide which of them keeps its data, move the data directory of the \
                 other one away, start the first one with only itself in zoo.cfg, then the other"
            );
            return self.refuse(link, LinkCloseReason::Incompatible(what), cx);
        }
        cx.send_peer(link, FromLeader::Differs { zxid });
        let what =
            format!("its state at {zxid} differs from this server's: it sets its data aside");
        self.refuse(link, LinkCloseReason::Incompatible(what), cx)
    }
}

/// The end of a learner's log, if a leader unknown here has written it and it is not ahead.
pub(super) fn other_epoch(message: &FromLearner, replica: &Replica) -> Option<(Zxid, u64)> {
    let (FromLearner::AckEpoch { last, nonce, .. } | FromLearner::SyncAt { last, nonce }) =
        *message
    else {
        return None;
    };
    let differs = ends_in_another_epoch(last, nonce, replica) && !is_ahead(message, replica);
    differs.then_some((last, nonce))
}

/// Does a learner's history end in an epoch that has another nonce here? If an operator restores an
/// older copy of a data directory, a second leader can begin an epoch with a number that is in use.
fn ends_in_another_epoch(last: Zxid, nonce: u64, replica: &Replica) -> bool {
    let ours = replica.nonce_at(last);
    let holds = replica.history().holds(last.epoch());
    holds && ours != 0 && nonce != 0 && ours != nonce
}

/// Is the learner ahead of this leader, which then must not judge its history?
fn is_ahead(message: &FromLearner, replica: &Replica) -> bool {
    if let FromLearner::AckEpoch { current, last, .. } = message {
        (*current, *last) > (replica.state().current_epoch, replica.log().appended())
    } else {
        false
    }
}
