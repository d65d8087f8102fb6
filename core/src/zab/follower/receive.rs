//! What a follower receives of its leader's history besides proposals: TRUNC, snapshots, and INFORM
//! where it observes.
//!
//! Owns the conditions for taking them over, and the reports of progress. Must not decide what is
//! committed: the leader does.

use bytes::Bytes;

use super::{Follower, FollowerEffect, Phase};
use crate::cx::Cx;
use crate::ids::Zxid;
use crate::io::Mark;
use crate::notice::Notice;
use crate::peer::{FromLearner, LinkCloseReason, PeerMisbehaved};
use crate::replica::Replica;
use crate::store::Entry;

impl Follower {
    /// The leader's snapshot is being stored or loaded: extends the deadline and reports the
    /// progress, because neither side sends anything else meanwhile. A slow disk would be as slow
    /// at the next attempt.
    pub(crate) fn report_loading(&mut self, (zxid, done, all): (Zxid, u64, u64), cx: &mut Cx<'_>) {
        self.deadline = cx.now.mono.after(cx.config.init_limit());
        let Phase::Synchronization { link, .. } = self.phase else {
            return;
        };
        if self.next_loading_report <= cx.now.mono {
            self.next_loading_report = cx.now.mono.after(cx.config.tick() / 2);
            cx.send_peer(link, FromLearner::Loading { done, all });
            cx.out.notices.push(Notice::Loading { zxid, done, all });
        }
    }

    pub(super) fn on_trunc(
        &mut self,
        to: Zxid,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let Phase::Synchronization { link, .. } = self.phase else {
            return self.refuse(PeerMisbehaved::OutOfTurn(format!("TRUNC {to}")), cx);
        };
        if self.keeps_data {
            cx.mark(Mark::EnsembleDiffers);
            let what = "the leader has no data, and its epoch is later than that of the data here: \
                stop the servers without \
                        data, remove their data directories, and start them after this one";
            return self.refuse(LinkCloseReason::Incompatible(what.to_owned()), cx);
        }
        match replica.truncate(to, cx) {
            Ok(last) => {
                cx.mark(Mark::Truncated);
                cx.send_peer(link, FromLearner::SyncAt { last, nonce: replica.nonce_at(last) });
                FollowerEffect::None
            }
            Err(what) => self.refuse(PeerMisbehaved::History(what), cx),
        }
    }

    pub(super) fn on_snap(
        &mut self,
        (zxid, index, bytes, last): (Zxid, u32, Bytes, bool),
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let Phase::Synchronization { .. } = self.phase else {
            return self.refuse(PeerMisbehaved::OutOfTurn(format!("SNAP {zxid}")), cx);
        };
        match replica.receive_chunk(zxid, index, bytes, last, cx) {
            Ok(()) => FollowerEffect::None,
            Err(what) => self.refuse(PeerMisbehaved::History(what), cx),
        }
    }

    /// The next transaction, which is committed (ZAB-14).
    pub(super) fn on_inform(
        &mut self,
        entry: Entry,
        replica: &mut Replica,
        cx: &mut Cx<'_>,
    ) -> FollowerEffect {
        let zxid = entry.zxid;
        match replica.receive(entry, cx) {
            Ok(()) => FollowerEffect::Commit(zxid),
            Err(what) => self.refuse(PeerMisbehaved::History(what), cx),
        }
    }
}
