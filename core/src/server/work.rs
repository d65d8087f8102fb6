//! Work that a step leaves to later steps: transactions that a quorum has logged, and reads that
//! may be answered.
//!
//! Owns when this work continues. A step stops when it has spent
//! [`Limits::step_units`](crate::config::Limits), so that no input waits long behind expensive
//! requests; the rest is due at once, and other inputs are processed in between. The order of
//! applying and answering is the same as without the limit. Must not know costs: the code that does
//! the work counts them.

use std::collections::VecDeque;

use super::Server;
use super::role::Role;
use crate::cx::Cx;
use crate::ids::{ConnId, Zxid};
use crate::io::Mark;
use crate::peer::Behind;
use crate::txn::Origin;

/// The work that is left.
#[derive(Debug, Default)]
pub(super) struct Work {
    /// The zxid up to which a quorum has the history. The server commits and applies up to it, and
    /// a leader sends COMMIT only for what it has applied: it never knows less than its followers.
    agreed: Zxid,
    /// Confirmed syncs, each with the zxid that this server must have applied before it completes.
    confirmed: VecDeque<(Zxid, ConnId, u64)>,
}

impl Server {
    /// Is there work that can continue without another input?
    pub(super) fn has_work(&self) -> bool {
        let applies = self.serves() && self.next_to_apply().is_some();
        let answers = self.serves_any() && self.front.has_ready();
        self.replica.is_loading() || applies || answers
    }

    fn next_to_apply(&self) -> Option<(Zxid, Option<Origin>)> {
        self.replica.next_unapplied().filter(|(zxid, _)| *zxid <= self.work.agreed)
    }

    /// Continues the work that earlier steps have left.
    pub(super) fn continue_work(&mut self, cx: &mut Cx<'_>) {
        cx.renew();
        if self.replica.is_loading() {
            return self.continue_loading(cx);
        }
        self.front.serve_ready(&mut self.replica, cx);
        // Reads do not delay writes: these have a budget of their own.
        cx.renew();
        self.apply_committed(cx);
    }

    /// Continues to load a leader's snapshot, and reports the progress to the leader, so that it
    /// does not time out.
    fn continue_loading(&mut self, cx: &mut Cx<'_>) {
        if let (Role::Following(follower), Some(progress)) =
            (&mut self.role, self.replica.loading_progress())
        {
            follower.report_loading(progress, cx);
        }
        let loaded = self.replica.continue_loading(cx);
        self.on_loaded(loaded, cx);
    }

    /// A quorum has the history up to `zxid`: commits and applies it, and informs learners.
    pub(super) fn commit(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        if zxid > self.work.agreed.max(self.replica.log().committed()) {
            self.work.agreed = zxid;
            self.apply_committed(cx);
        }
    }

    /// The same before service begins: everything must be applied, whatever it costs.
    pub(super) fn commit_all(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        self.work.agreed = zxid;
        cx.spend_freely();
        self.apply_committed(cx);
        cx.renew();
    }

    /// Applies what a quorum has, sends watch events and replies, and then informs learners.
    fn apply_committed(&mut self, cx: &mut Cx<'_>) {
        let before = self.replica.log().committed();
        let mut count = 0;
        while let Some((zxid, origin)) = self.next_to_apply() {
            if cx.is_spent() {
                cx.mark(Mark::ApplySliced);
                break;
            }
            if let Some(origin) = origin
                && !self.front.before_apply(origin, &mut self.replica, cx)
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
                && let Some(proposer) = leader.proposer()
            {
                proposer.on_applied(&applied.txn, cx);
            }
            self.on_applied(applied, cx);
            self.complete_syncs(cx);
        }
        let committed = self.replica.log().committed();
        if let Role::Leading(leader) = &mut self.role
            && committed > before
        {
            let effect = leader.send_commit(committed, &mut self.replica, cx);
            self.apply_leader_effect(effect, cx);
        } else if let Role::Following(follower) = &mut self.role
            && committed > before
        {
            follower.on_committed(committed, &mut self.replica, cx);
        }
        if count > 1 {
            cx.mark(Mark::CommitBatch);
        }
    }

    /// A quorum has confirmed the leader after the sync arrived, so `agreed` includes everything
    /// that was committed before it.
    pub(super) fn await_applied(&mut self, conn: ConnId, request: u64, cx: &mut Cx<'_>) {
        self.work.confirmed.push_back((self.work.agreed, conn, request));
        self.complete_syncs(cx);
    }

    /// The same for a client of an observer that this server feeds.
    pub(super) fn await_informed(
        &mut self,
        behind: Behind,
        (conn, request): (ConnId, u64),
        cx: &mut Cx<'_>,
    ) {
        let (agreed, committed) = (self.work.agreed, self.replica.log().committed());
        if let Role::Following(follower) = &mut self.role {
            let master = follower.observers_mut();
            master.on_synced(behind, (conn, request), (agreed, committed), cx);
        }
    }

    /// Completes the syncs whose zxid is applied.
    fn complete_syncs(&mut self, cx: &mut Cx<'_>) {
        let is_behind = self.next_to_apply().is_some();
        let applied = if is_behind { self.replica.log().applied() } else { self.work.agreed };
        let is_true = |(zxid, ..): &mut (Zxid, ConnId, u64)| *zxid <= applied;
        while let Some((_, conn, request)) = self.work.confirmed.pop_front_if(is_true) {
            self.complete_sync(conn, request, cx);
        }
    }

    /// The role ends: the next leader decides what is committed, and pending syncs are sent to it.
    pub(super) fn forget_agreed(&mut self) {
        self.work.agreed = self.replica.log().committed();
        self.work.confirmed.clear();
        self.replica.hold_recent(None);
    }
}
