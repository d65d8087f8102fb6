//! What a leader knows of how far each server is, for operators and for requests to reconfigure.
//!
//! Owns these views. Must not change anything.

use std::time::Duration;

use super::{Leader, Learner};
use crate::ids::{Instant, ServerId, Zxid};
use crate::membership::{Members, Voters};
use crate::progress::{PendingReconfig, ServerProgress, SyncState};
use crate::replica::Replica;

impl Leader {
    /// The progress of all `members`, and of the learners that are none, ordered by id; `own` is
    /// this server.
    pub(crate) fn progress(
        &self,
        own: ServerId,
        members: &Members,
        replica: &Replica,
        now: Instant,
    ) -> Vec<ServerProgress> {
        let strangers = self.learners.values().map(|learner| learner.server);
        let strangers = strangers.filter(|id| !members.contains(*id));
        let mut ids: Vec<ServerId> = members.ids().chain(strangers).collect();
        ids.sort_unstable();
        let votes = |id| members.voters().contains(id);
        let of = |server| {
            let learner = self.learners.values().find(|learner| learner.server == server);
            let (state, behind, lag) = match learner {
                Some(learner) => learner.progress(replica, now),
                None if server == own => own_progress(replica),
                None => (SyncState::Absent, None, Duration::ZERO),
            };
            let older = learner.is_some_and(|learner| learner.older);
            ServerProgress { server, votes: votes(server), state, behind, lag, older }
        };
        ids.into_iter().map(of).collect()
    }

    /// The reconfiguration that this leader has proposed and that is not committed, if there is
    /// one.
    pub(crate) fn pending_reconfig(
        &self,
        own: ServerId,
        members: &Members,
        replica: &Replica,
        now: Instant,
    ) -> Option<PendingReconfig> {
        let (proposer, membership) = (self.serving()?, replica.membership()?);
        let zxid = membership.next_zxid()?;
        let since = proposer.reconfigured_at()?;
        let servers = self.progress(own, members, replica, now);
        let acked = |id| proposer.acked_by(id) >= zxid;
        let missing = |voters: &Voters| {
            let lacks =
                |server: &&ServerProgress| voters.contains(server.server) && !acked(server.server);
            let all = servers.iter().filter(lacks).cloned().collect();
            if voters.is_quorum(acked) { Vec::new() } else { all }
        };
        Some(PendingReconfig {
            version: membership.newest().version,
            waited: now.since(since),
            missing_old: missing(membership.active().members().voters()),
            missing_new: missing(membership.newest().members().voters()),
        })
    }
}

/// The progress of the leader's own log. The leader does not time its disk.
fn own_progress(replica: &Replica) -> (SyncState, Option<u64>, Duration) {
    let lacks = missing(replica.log().durable(), replica);
    (SyncState::Synced, lacks, Duration::ZERO)
}

/// The number of transactions after `zxid`; `None` if a snapshot has replaced some of them, and
/// they may be of several epochs.
fn missing(zxid: Zxid, replica: &Replica) -> Option<u64> {
    let (history, end) = (replica.history(), replica.log().appended());
    if zxid >= history.start() {
        Some(history.count(zxid, end))
    } else if zxid.epoch() == end.epoch() {
        Some(end.0 - zxid.0)
    } else {
        None
    }
}

impl Learner {
    /// How far the learner is, what it lacks, and for how long.
    fn progress(&self, replica: &Replica, now: Instant) -> (SyncState, Option<u64>, Duration) {
        if self.is_synced() {
            let lacks = missing(self.has(), replica);
            let has_all = lacks == Some(0);
            let lag = if has_all { Duration::ZERO } else { now.since(self.lacks_since()) };
            let state = if self.is_complete { SyncState::Synced } else { SyncState::Recovering };
            return (state, lacks, lag);
        }
        let lacks = self.needs().and_then(|zxid| missing(zxid, replica));
        let syncs = self.is_syncing() || self.is_live();
        (if syncs { SyncState::Syncing } else { SyncState::Joining }, lacks, Duration::ZERO)
    }
}
