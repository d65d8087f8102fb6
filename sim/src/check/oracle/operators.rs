//! A server's answers to operators, compared with the committed state at the zxid that it has
//! applied.
//!
//! Owns O1. Must not check text: the driver formats it.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{
    ConnId, Mode, ServerId, ServerProgress, SessionId, SessionInfo, Status, SyncState,
};

use super::Oracles;
use super::catalog::{Id, Verdict};
use super::text::maybe;
use super::voters::Voters;
use crate::check::observe::SelfReport;

impl Oracles {
    /// A server has answered an operator while it had these connections.
    pub(super) fn reported(
        &mut self,
        id: ServerId,
        report: &SelfReport,
        open: &BTreeSet<ConnId>,
    ) -> Verdict {
        self.counts_what_is_there(id, report)?;
        self.knows_who_lags(id, report)?;
        self.knows_what_reconfigures(id, report)?;
        self.names_the_sessions(id, report)?;
        self.names_the_watches(id, report, open)
    }

    fn counts_what_is_there(&mut self, id: ServerId, report: &SelfReport) -> Verdict {
        let status = &report.status;
        let counts = self.model.counts_at(status.applied);
        // ZooKeeper counts the root twice, as "" and as "/".
        let right = (counts.nodes + 1, counts.ephemerals, counts.bytes, counts.sessions);
        let reported = (status.nodes, status.ephemerals, status.data_bytes, status.sessions);
        self.checks.check(Id::O1, reported == right, || {
            let words = |(nodes, ephemerals, bytes, sessions)| {
                format!(
                    "{nodes} nodes, {ephemerals} of them ephemeral, {bytes} bytes, {sessions} \
                    sessions"
                )
            };
            let (reported, right) = (words(reported), words(right));
            vec![format!("server {id} tells of {reported} at {}; right: {right}", status.applied)]
        })?;
        let leads = matches!(status.mode, Mode::Leader | Mode::Standalone);
        let knows = match status.leader {
            // A leader that has left the voters leads until the reconfiguration is committed.
            Some(leader) => {
                let votes = self.zab.configs.is_some() || self.zab.voters.contains(leader);
                leads == (leader == id) && votes
            }
            None => matches!(status.mode, Mode::Looking | Mode::ReadOnly),
        };
        let learners = if leads { self.zab.learners_of(id) } else { [0; 3] };
        let counted = [status.learners, status.synced_followers, status.synced_observers];
        let waiting = status.outstanding == report.unapplied;
        self.checks.check(Id::O1, knows && counted == learners && waiting, || {
            let words = |[all, followers, observers]: [usize; 3], waiting| {
                format!(
                    "{all} learners, {followers} followers and {observers} observers of them \
                    with its history, {waiting} transactions that wait"
                )
            };
            let reported = words(counted, status.outstanding);
            let right = words(learners, report.unapplied);
            let (mode, leader) = (&status.mode, maybe(status.leader));
            vec![format!(
                "server {id} says of itself: {mode:?}, its leader is {leader}, {reported}; \
                right: {right}"
            )]
        })
    }

    /// How far the learners of a leader are. What a voter lacks is known once it has acknowledged
    /// something on its link in the epoch of the last transaction.
    fn knows_who_lags(&mut self, id: ServerId, report: &SelfReport) -> Verdict {
        let SelfReport { status, progress, .. } = report;
        // The only voter is told of as standalone, also while servers that an operator may add are
        // connected (seed 0x81076 of the swarm at 4997e86).
        let leads = status.serving && matches!(status.mode, Mode::Leader | Mode::Standalone);
        let links = if leads { self.zab.progress_of(id) } else { BTreeMap::new() };
        let older = self.zab.older_peers(id);
        let others = || progress.iter().filter(|other| other.server != id);
        let voters = self.zab.voters_of(id);
        let appended = status.appended;
        let is_right = |other: &ServerProgress| {
            let link = links.get(&other.server);
            let state = match link {
                None => other.state == SyncState::Absent,
                Some((synced, _)) => {
                    *synced == matches!(other.state, SyncState::Synced | SyncState::Recovering)
                        && other.state != SyncState::Absent
                }
            };
            let known = link.filter(|(synced, acked)| *synced && acked.epoch() == appended.epoch());
            let lacks = known.filter(|_| other.votes).map(|(_, acked)| appended.0 - acked.0);
            let right = lacks.is_none_or(|lacks| other.behind == Some(lacks));
            let votes = voters.contains(other.server) == other.votes;
            let timed = other.lag.is_zero() || other.behind != Some(0);
            let release = other.older == (leads && older.contains(&other.server));
            state && right && votes && timed && release
        };
        let named = links.keys().all(|peer| others().any(|other| other.server == *peer));
        let right = named && others().all(is_right) && (leads || others().next().is_none());
        self.checks.check(Id::O1, right, || {
            vec![format!(
                "server {id} tells of the other servers at {appended}: {progress:?}; right: whether \
                 each has its history, and the last zxid acknowledged: {links:?}"
            )]
        })
    }

    /// The reconfiguration that a leader has proposed, and the voters that it waits for.
    fn knows_what_reconfigures(&mut self, id: ServerId, report: &SelfReport) -> Verdict {
        let SelfReport { status, pending_reconfig, .. } = report;
        let leads = status.serving && matches!(status.mode, Mode::Leader | Mode::Standalone);
        let logged = self.zab.pending_config(id).filter(|_| leads);
        let links = self.zab.progress_of(id);
        let right = match (pending_reconfig, &logged) {
            (None, None) => true,
            (None, Some(_)) | (Some(_), None) => false,
            (Some(pending), Some((zxid, version, voters))) => {
                let lacks = |server: ServerId| match links.get(&server) {
                    Some((_, acked)) => acked < zxid,
                    None => server != id || status.durable < *zxid,
                };
                let right = |missing: &[ServerProgress], voters: &Voters| {
                    missing.iter().all(|of| voters.contains(of.server) && lacks(of.server))
                };
                // The leader may still be applying what a quorum of both has acknowledged.
                let waits = |voters: &Voters| !voters.most(|server| !lacks(server));
                let (old, new) = (&pending.missing_old, &pending.missing_new);
                pending.version == *version
                    && right(old, &voters[0])
                    && right(new, &voters[1])
                    && (status.committed >= *zxid
                        || !(old.is_empty() && new.is_empty())
                        || !(waits(&voters[0]) || waits(&voters[1])))
            }
        };
        self.checks.check(Id::O1, right, || {
            vec![format!(
                "server {id} tells of the reconfiguration {pending_reconfig:?}; right: {logged:?}, \
                 of whom it knows {links:?}"
            )]
        })
    }

    fn names_the_sessions(&mut self, id: ServerId, report: &SelfReport) -> Verdict {
        let SelfReport { status, sessions, local_sessions, ephemerals, .. } = report;
        let alive = self.model.sessions_at(status.applied);
        let named = sessions.iter().map(|session| session.id);
        let right = named.eq(alive.iter().copied());
        // Only a leader knows when a session expires.
        let leads = status.serving && matches!(status.mode, Mode::Leader | Mode::Standalone);
        let timed = sessions.iter().all(|session| leads || session.expires.is_none());
        let local = local_sessions.len() == status.local_sessions;
        self.checks.check(Id::O1, right && timed && local, || {
            vec![format!(
                "server {id} tells of the sessions {sessions:?} and {local_sessions:?} of its own; \
                 right: {alive:?}"
            )]
        })?;
        for session in sessions {
            self.knows_the_session(id, status, session)?;
        }
        for session in local_sessions {
            self.knows_the_local_session(id, session)?;
        }
        let owned: BTreeMap<SessionId, BTreeSet<&str>> = ephemerals
            .iter()
            .map(|(session, paths)| (*session, paths.iter().map(String::as_str).collect()))
            .collect();
        let right = self.model.owners_at(status.applied);
        let same = owned.len() == ephemerals.len()
            && owned.len() == right.len()
            && owned.iter().zip(&right).all(|((session, paths), (other, owned))| {
                session == other && paths.iter().copied().eq(owned.iter().map(String::as_str))
            });
        self.checks.check(Id::O1, same, || {
            vec![format!("server {id} tells of the ephemeral nodes {owned:?}; right: {right:?}")]
        })
    }

    /// The session's timeout and its client's server. A leader knows the timeout granted last if it
    /// has touched the session with that timeout while it leads; it also knows moves that are not
    /// committed, which are not checked.
    fn knows_the_session(
        &mut self,
        id: ServerId,
        status: &Status,
        reported: &SessionInfo,
    ) -> Verdict {
        let Some(session) = self.model.session(reported.id) else {
            return Ok(());
        };
        let leads = matches!(status.mode, Mode::Leader | Mode::Standalone);
        let renewed = self.liveness.is_renewed(reported.id, id, self.zab.role_since(id));
        // A leader removes a closing session from its list. A leader that a later one has replaced
        // does not know the timeouts that the later one grants.
        let watched = leads && reported.expires.is_some();
        let timed = match self.sessions.get(&reported.id).filter(|_| watched) {
            Some(_) if !self.zab.is_newest(status.current_epoch) => true,
            Some(view) => view.timeouts.may_be(renewed, reported.timeout_ms),
            None => reported.timeout_ms == session.timeout_ms,
        };
        let server = session.server_at(status.applied);
        let found = reported.server == server || (leads && status.outstanding > 0);
        self.checks.check(Id::O1, timed && found, || {
            let timeouts = self.sessions.get(&reported.id).map(|view| &view.timeouts);
            let known = timeouts.map_or_else(
                || format!("{} ms", session.timeout_ms),
                |timeouts| timeouts.described(renewed),
            );
            vec![format!(
                "server {id} tells an operator of session {}: {} ms, and its client is at server \
                 {}; after \
                 {}, which it has applied, right is: {known}, at server {}",
                reported.id,
                reported.timeout_ms,
                maybe(reported.server),
                status.applied,
                maybe(server)
            )]
        })
    }

    /// A local session's timeout: one that was asked for or granted, once its client has read the
    /// connect response.
    fn knows_the_local_session(&mut self, id: ServerId, reported: &SessionInfo) -> Verdict {
        // Once the upgrade is committed, the session may be resumed elsewhere with another timeout
        // before its server has applied the upgrade (seed 0xe00000afd, fork WriteFound#1/68417174,
        // at bb32438).
        let local = self.model.session(reported.id).is_none();
        let view = self.sessions.get(&reported.id).filter(|view| local && view.granted_ms > 0);
        let Some(view) = view else {
            return Ok(());
        };
        self.checks.check(Id::O1, view.timeouts.may_be(true, reported.timeout_ms), || {
            let (session, ms) = (reported.id, reported.timeout_ms);
            let known = view.timeouts.described(true);
            vec![format!("server {id} says of its own session {session}: {ms} ms; right: {known}")]
        })
    }

    /// `wchs`, `wchc` and `wchp` agree, and each watch that they list belongs to an open
    /// connection.
    fn names_the_watches(
        &mut self,
        id: ServerId,
        report: &SelfReport,
        open: &BTreeSet<ConnId>,
    ) -> Verdict {
        let SelfReport { status, watched, by_conn, by_path, .. } = report;
        let pairs: BTreeSet<&(ConnId, String)> = by_conn.iter().collect();
        let same = pairs.len() == by_conn.len()
            && pairs.len() == by_path.len()
            && by_path.iter().all(|pair| pairs.contains(pair));
        let conns: BTreeSet<ConnId> = by_conn.iter().map(|(conn, _)| *conn).collect();
        let paths: BTreeSet<&str> = by_conn.iter().map(|(_, path)| path.as_str()).collect();
        let counted = (watched.connections, watched.paths, watched.watches)
            == (conns.len(), paths.len(), pairs.len());
        let held = conns.is_subset(open) && pairs.len() <= status.watches;
        self.checks.check(Id::O1, same && counted && held, || {
            vec![format!(
                "server {id} tells of {watched:?} among {} watches, and of {by_conn:?} by \
                 connection and \
                 {by_path:?} by path; connected: {open:?}",
                status.watches
            )]
        })
    }
}
