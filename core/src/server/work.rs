//! What a step leaves to later ones: transactions that a quorum has, and reads whose turn has come.
//!
//! Owns when that goes on. A step stops when it has spent what [`Limits::step_units`](crate::config::Limits) allows, so that
//! nobody waits for long because others ask for much; the rest is due at once, and everybody else has a turn in between.
//! Whatever else the order of applying and answering promises holds all the same. Must not know what anything costs:
//! whoever does it says so.

use std::collections::VecDeque;

use super::clients::Conn;
use super::{Role, Server};
use crate::cx::Cx;
use crate::ids::{ConnId, Zxid};
use crate::io::Mark;
use crate::txn::Origin;

/// What is left to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// How far the history is to be committed. What is committed is applied in the same breath, and learners hear of it then: what
    /// a follower knows, its leader knows, too.
    agreed: Zxid,
    /// Connections with reads whose turn has come, in the order in which they are served.
    ready: VecDeque<ConnId>,
    /// Syncs that are confirmed, and how much has to be applied before they are true of this server's tree.
    confirmed: VecDeque<(Zxid, ConnId, u64)>,
}

impl Server {
    /// Is there something to do that nothing else has to happen for?
    pub(super) fn has_work(&self) -> bool {
        let serving = !self.work.ready.is_empty() || self.next_to_apply().is_some();
        self.replica.is_loading() || (self.serves() && serving)
    }

    fn next_to_apply(&self) -> Option<(Zxid, Option<Origin>)> {
        self.replica.next_unapplied().filter(|(zxid, _)| *zxid <= self.work.agreed)
    }

    /// Goes on with what earlier steps have left.
    pub(super) fn go_on(&mut self, cx: &mut Cx<'_>) {
        cx.renew();
        if self.replica.is_loading() {
            return self.go_on_loading(cx);
        }
        for _ in 0..self.work.ready.len() {
            if cx.is_spent() {
                break;
            }
            let Some(conn) = self.work.ready.pop_front() else { break };
            if let Some(Conn { is_ready, .. }) = self.conns.get_mut(&conn) {
                *is_ready = false;
                self.serve_reads(conn, cx);
            }
        }
        // However many reads there are, writes go on.
        cx.renew();
        self.apply_committed(cx);
    }

    /// Makes more of a leader's snapshot, and tells it that somebody is there.
    fn go_on_loading(&mut self, cx: &mut Cx<'_>) {
        if let (Role::Following(follower), Some(progress)) =
            (&mut self.role, self.replica.loading_progress())
        {
            follower.is_loading(progress, cx);
        }
        let loaded = self.replica.go_on_loading(cx);
        self.on_loaded(loaded, cx);
    }

    /// A quorum has the history up to `zxid`: commit it, which is to apply it and to tell learners.
    pub(super) fn commit(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        if zxid > self.work.agreed.max(self.replica.log().committed()) {
            self.work.agreed = zxid;
            self.apply_committed(cx);
        }
    }

    /// The same before service begins, which needs all of it applied, whatever it costs.
    pub(super) fn commit_all(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        self.work.agreed = zxid;
        cx.spend_freely();
        self.apply_committed(cx);
        cx.renew();
    }

    /// Applies what a quorum has, tells watchers, answers, and then tells learners.
    fn apply_committed(&mut self, cx: &mut Cx<'_>) {
        let before = self.replica.log().committed();
        let mut count = 0;
        while let Some((zxid, origin)) = self.next_to_apply() {
            if cx.is_spent() {
                cx.mark(Mark::ApplySliced);
                break;
            }
            if let Some(origin) = origin
                && !self.before_apply(origin, cx)
            {
                break;
            }
            self.replica.log.commit(zxid);
            let applied = match self.replica.apply_next() {
                Ok(Some(applied)) => applied,
                Ok(None) => break,
                Err(halted) => {
                    cx.mark(Mark::Inapplicable);
                    self.halt(halted, cx);
                    break;
                }
            };
            count += 1;
            cx.spend(applied.effects.units);
            self.replica.note_digest(cx.config);
            if let Role::Leading(leader) = &mut self.role
                && let Some(broadcast) = leader.broadcast()
            {
                broadcast.on_applied(&applied.txn, cx);
            }
            self.on_applied(applied, cx);
            self.take_confirmed(cx);
        }
        let committed = self.replica.log().committed();
        if let Role::Leading(leader) = &self.role
            && committed > before
        {
            leader.send_commit(committed, cx);
        }
        if count > 1 {
            cx.mark(Mark::CommitBatch);
        }
    }

    /// A quorum has confirmed that what is committed here is all there was when the sync came.
    pub(super) fn confirm_sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        self.work.confirmed.push_back((self.work.agreed, conn, request));
        self.take_confirmed(cx);
    }

    /// Syncs whose word is true by now.
    fn take_confirmed(&mut self, cx: &mut Cx<'_>) {
        let is_behind = self.next_to_apply().is_some();
        let applied = if is_behind { self.replica.log().applied() } else { self.work.agreed };
        let is_true = |(zxid, ..): &mut (Zxid, ConnId, u64)| *zxid <= applied;
        while let Some((_, conn, request)) = self.work.confirmed.pop_front_if(is_true) {
            self.on_confirmed(conn, request, cx);
        }
    }

    /// The role ends: the next leader says what is committed, and whoever waits for a quorum's word asks it.
    pub(super) fn forget_agreed(&mut self) {
        self.work.agreed = self.replica.log().committed();
        self.work.confirmed.clear();
    }

    /// Reads whose turn has come, up to the next write. Were they all answered? If not, the rest is ready.
    pub(super) fn serve_reads(&mut self, conn: ConnId, cx: &mut Cx<'_>) -> bool {
        // What is applied is committed, so they may be answered even while a new leader still applies its history.
        while let Some(Conn { queue, is_ready, .. }) = self.conns.get_mut(&conn) {
            if !queue.has_read() {
                break;
            }
            if cx.is_spent() {
                cx.mark(Mark::ReadsSliced);
                if !std::mem::replace(is_ready, true) {
                    self.work.ready.push_back(conn);
                }
                return false;
            }
            if let Some(asked) = queue.next_read() {
                self.read(conn, asked, cx);
            }
        }
        true
    }
}
