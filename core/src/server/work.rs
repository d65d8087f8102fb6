//! What a step leaves to later ones: transactions that are committed and not applied, and reads whose turn has come.
//!
//! Owns when that goes on. A step stops when it has spent what [`Limits::step_units`](crate::config::Limits) allows, so that
//! nobody waits for long because others ask for much; the rest is due at once, and everybody else has a turn in between.
//! Whatever else the order of applying and answering promises holds all the same. Must not know what anything costs:
//! whoever does it says so.

use std::collections::VecDeque;

use super::clients::Conn;
use super::{Role, Server};
use crate::ids::{ConnId, Zxid};
use crate::io::{Cx, Mark};

/// What is left to do.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// Connections with reads whose turn has come, in the order in which they are served.
    ready: VecDeque<ConnId>,
    /// Syncs that are confirmed, and how much has to be applied before they are true of this server's tree.
    confirmed: VecDeque<(Zxid, ConnId, u64)>,
}

impl Server {
    /// Is there something to do that nothing else has to happen for?
    pub(super) fn has_work(&self) -> bool {
        let log = self.replica.log();
        let serving = !self.work.ready.is_empty() || log.applied() < log.committed();
        self.replica.is_loading() || (self.serves() && serving)
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

    /// The history is committed up to `zxid`: tell learners, and apply it.
    pub(super) fn commit(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        if zxid > self.replica.log().committed() {
            self.replica.log.commit(zxid);
            if let Role::Leading(leader) = &self.role {
                leader.send_commit(zxid, cx);
            }
            self.apply_committed(cx);
        }
    }

    /// The same before service begins, which needs all of it applied, whatever it costs.
    pub(super) fn commit_all(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        cx.spend_freely();
        self.commit(zxid, cx);
        if self.halted.is_none() {
            self.apply_committed(cx);
        }
        cx.renew();
    }

    /// Applies what is committed, tells watchers, answers.
    fn apply_committed(&mut self, cx: &mut Cx<'_>) {
        let mut count = 0;
        while self.replica.log().applied() < self.replica.log().committed() {
            if cx.is_spent() {
                cx.mark(Mark::ApplySliced);
                break;
            }
            if let Some(origin) = self.replica.next_origin()
                && !self.before_apply(origin, cx)
            {
                break;
            }
            let applied = match self.replica.apply_next() {
                Ok(Some(applied)) => applied,
                Ok(None) => break,
                Err(halted) => {
                    cx.mark(Mark::Inapplicable);
                    return self.halt(halted, cx);
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
        if count > 1 {
            cx.mark(Mark::CommitBatch);
        }
    }

    /// A quorum has confirmed that what is committed here is all there was when the sync came.
    pub(super) fn confirm_sync(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        self.work.confirmed.push_back((self.replica.log().committed(), conn, request));
        self.take_confirmed(cx);
    }

    /// Syncs whose word is true by now.
    fn take_confirmed(&mut self, cx: &mut Cx<'_>) {
        let applied = self.replica.log().applied();
        let is_true = |(zxid, ..): &mut (Zxid, ConnId, u64)| *zxid <= applied;
        while let Some((_, conn, request)) = self.work.confirmed.pop_front_if(is_true) {
            self.on_confirmed(conn, request, cx);
        }
    }

    /// The role ends: whoever waits for a quorum's word asks the next leader for it.
    pub(super) fn forget_confirmed(&mut self) {
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
