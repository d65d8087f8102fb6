//! What operators are told of a server, against the committed state that it says to have applied.
//!
//! Owns O1. Must not judge text: drivers write it.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{ConnId, Mode, ServerId, SessionId};

use super::Oracles;
use super::catalog::{Id, Verdict};
use crate::observe::Report;

impl Oracles {
    /// A server has been asked, while it had these connections.
    pub(super) fn reported(
        &mut self,
        id: ServerId,
        report: &Report,
        open: &BTreeSet<ConnId>,
    ) -> Verdict {
        self.counts_what_is_there(id, report)?;
        self.names_the_sessions(id, report)?;
        self.names_the_watches(id, report, open)
    }

    fn counts_what_is_there(&mut self, id: ServerId, report: &Report) -> Verdict {
        let status = &report.status;
        let counts = self.model.counts_at(status.applied);
        // ZooKeeper counts the root under both of its names.
        let right = (counts.nodes + 1, counts.ephemerals, counts.bytes, counts.sessions);
        let told = (status.nodes, status.ephemerals, status.data_bytes, status.sessions);
        self.tally.hold(Id::O1, told == right, || {
            vec![format!(
                "server {id} tells of {told:?} nodes, ephemerals, bytes and sessions at {}; right: \
                 {right:?}",
                status.applied
            )]
        })?;
        let leads = matches!(status.mode, Mode::Leader | Mode::Standalone);
        let knows = match status.leader {
            Some(leader) => leads == (leader == id) && self.ledger.is_voter(leader),
            None => status.mode == Mode::Looking,
        };
        let followers = leads || (status.synced_followers, status.learners) == (0, 0);
        let counted = status.synced_followers <= status.learners;
        self.tally.hold(Id::O1, knows && followers && counted, || {
            vec![format!("server {id} says of itself: {status:?}")]
        })
    }

    fn names_the_sessions(&mut self, id: ServerId, report: &Report) -> Verdict {
        let Report { status, sessions, local_sessions, ephemerals, .. } = report;
        let alive = self.model.sessions_at(status.applied);
        let named = sessions.iter().map(|session| session.id);
        let right = named.eq(alive.iter().copied());
        // Who does not lead cannot say when a session ends.
        let leads = status.serving && matches!(status.mode, Mode::Leader | Mode::Standalone);
        let timed = sessions.iter().all(|session| leads || session.expires.is_none());
        let local = local_sessions.len() == status.local_sessions;
        self.tally.hold(Id::O1, right && timed && local, || {
            vec![format!(
                "server {id} tells of the sessions {sessions:?} and {local_sessions:?} of its own; \
                 right: {alive:?}"
            )]
        })?;
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
        self.tally.hold(Id::O1, same, || {
            vec![format!("server {id} tells of the ephemeral nodes {owned:?}; right: {right:?}")]
        })
    }

    /// The three words about watches tell the same, and all that are told have a connection.
    fn names_the_watches(
        &mut self,
        id: ServerId,
        report: &Report,
        open: &BTreeSet<ConnId>,
    ) -> Verdict {
        let Report { status, watched, by_conn, by_path, .. } = report;
        let pairs: BTreeSet<&(ConnId, String)> = by_conn.iter().collect();
        let same = pairs.len() == by_conn.len()
            && pairs.len() == by_path.len()
            && by_path.iter().all(|pair| pairs.contains(pair));
        let conns: BTreeSet<ConnId> = by_conn.iter().map(|(conn, _)| *conn).collect();
        let paths: BTreeSet<&str> = by_conn.iter().map(|(_, path)| path.as_str()).collect();
        let counted = (watched.connections, watched.paths, watched.watches)
            == (conns.len(), paths.len(), pairs.len());
        let held = conns.is_subset(open) && pairs.len() <= status.watches;
        self.tally.hold(Id::O1, same && counted && held, || {
            vec![format!(
                "server {id} tells of {watched:?} among {} watches, and of {by_conn:?} by connection and \
                 {by_path:?} by path; connected: {open:?}",
                status.watches
            )]
        })
    }
}
