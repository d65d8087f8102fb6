//! What a leader does for observers that a follower feeds (ZAB-23).
//!
//! Owns which follower speaks for which observer. Must not synchronise these observers: their
//! master does.

use super::{Leader, LeaderEffect};
use crate::cx::Cx;
use crate::ids::{LinkId, ServerId, Zxid};
use crate::io::Mark;
use crate::peer::{Behind, FromLeader, FromLearner, LinkCloseReason, PeerMisbehaved};
use crate::replica::Replica;

impl Leader {
    /// A follower feeds this observer from now on. What others relay for the observer is ignored
    /// after this: the observer forwards it again, unless it is logged now.
    pub(super) fn on_attach(
        &mut self,
        link: LinkId,
        behind: Behind,
        replica: &Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let Behind { server, .. } = behind;
        if self.serving().is_none() || server == cx.config.id() || cx.voters.contains(server) {
            let what = format!("ATTACH of server {server}");
            return self.refuse(link, PeerMisbehaved::OutOfTurn(what), cx);
        }
        cx.mark(Mark::ObserverAttached);
        self.replace(server, cx);
        if let Some(master) = self.learners.get_mut(&link) {
            master.relays = true;
        }
        self.masters.insert(server, (link, behind.link));
        let logged = replica.log().appended();
        cx.send_peer(link, FromLeader::Attached { behind, logged });
        LeaderEffect::None
    }

    /// A new link speaks for this learner from now on. Later messages on an older one must not be
    /// processed. If the learner still uses that, it learns by its end that it is not heard.
    pub(super) fn replace(&mut self, server: ServerId, cx: &mut Cx<'_>) {
        let older = self.learners.values().find(|learner| learner.server == server);
        if let Some(older) = older.map(|learner| learner.link) {
            cx.mark(Mark::LearnerReplaced);
            self.drop_learner(older, LinkCloseReason::Replaced, cx);
        }
        if let Some((master, link)) = self.masters.remove(&server) {
            cx.send_peer(master, FromLeader::Detached { behind: Behind { server, link } });
        }
        // The learner may have been synchronised anew since its last comparison.
        self.digests.forget(server);
    }

    /// Does the follower on this link speak for this observer?
    pub(super) fn speaks_for(&self, link: LinkId, server: ServerId) -> bool {
        self.masters.get(&server).is_some_and(|(master, _)| *master == link)
    }

    /// Processes what a follower relays, apart from writes and new sessions.
    pub(super) fn on_relayed(
        &mut self,
        link: LinkId,
        message: FromLearner,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> LeaderEffect {
        let (FromLearner::RevalidateBehind { behind, .. }
        | FromLearner::SyncBehind { behind, .. }
        | FromLearner::TouchedBehind { behind, .. }) = &message
        else {
            return LeaderEffect::None;
        };
        let Behind { server, link: there } = *behind;
        if self.masters.get(&server) != Some(&(link, there)) {
            cx.mark(Mark::ObserverMoved);
            return LeaderEffect::None;
        }
        let behind = Some(*behind);
        if let FromLearner::RevalidateBehind { conn, session, timeout_ms, .. } = message {
            self.on_revalidate((link, behind), conn, session, timeout_ms, replica, cx)
        } else if let FromLearner::SyncBehind { conn, request, .. } = message {
            self.sync(super::SyncWaiter { link: Some(link), behind, conn, request }, cx)
        } else if let FromLearner::TouchedBehind { touched, digests, .. } = message {
            let now = cx.now.mono;
            if let Some(proposer) = self.proposer() {
                for (session, timeout_ms) in touched {
                    proposer.tracker.touch_by(server, session, timeout_ms, now);
                }
            }
            self.compare(server, &digests, replica, cx)
        } else {
            LeaderEffect::None
        }
    }

    /// The state of an observer that a follower feeds differs at this zxid: has it ordered to set
    /// its data aside.
    pub(super) fn on_difference_behind(&mut self, server: ServerId, zxid: Zxid, cx: &mut Cx<'_>) {
        if let Some((master, link)) = self.masters.get(&server).copied()
            && cx.voters.set().len() > 2
        {
            cx.mark(Mark::HistoryDiffers);
            let behind = Behind { server, link };
            cx.send_peer(master, FromLeader::DiffersBehind { behind, zxid });
        }
    }
}
