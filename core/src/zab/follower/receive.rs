//! What a follower receives of its leader's history besides proposals: TRUNC, snapshots, and INFORM
//! where it observes.
//!
//! Owns the conditions for taking them over. Must not decide what is committed: the leader does.

use bytes::Bytes;

use super::{Follower, FollowerEffect, Phase};
use crate::cx::Cx;
use crate::ids::Zxid;
use crate::io::Mark;
use crate::peer::{FromLearner, LinkCloseReason, PeerMisbehaved};
use crate::replica::Replica;
use crate::store::Entry;

impl Follower {
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
