//! What a server shows of itself to operators, tools and checkers.
//!
//! Owns these views. Must not change anything.

use std::sync::Arc;

use super::Server;
use super::role::Role;
use crate::digest::NodeView;
use crate::ids::{ConnId, Instant, ServerId, SessionId, Zxid};
use crate::membership::{EnsembleConfig, Member, Members};
use crate::outline::{Outline, OutlineCompared};
use crate::peer::NotedConfigs;
use crate::progress::{PendingReconfig, ServerProgress};
use crate::replica::Membership;
use crate::status::{Backlog, Halted, Mode, SessionInfo, Status, Waiting, WatchSummary};
use crate::watch::WatchListing;
use crate::wire::WatcherType;
use crate::zab::{Leader, Proposer};

impl Server {
    /// The id of the ensemble, for the handshakes of links; 0 while it is unknown.
    pub fn ensemble_id(&self) -> u64 {
        self.replica.ensemble_id()
    }

    /// The members of the ensemble as this server knows them; during a reconfiguration, those of
    /// both configurations.
    pub fn members(&self) -> &Arc<Members> {
        &self.members
    }

    /// The configuration in force, with the addresses of its servers; `None` if reconfiguration is
    /// disabled.
    pub fn ensemble_config(&self) -> Option<&EnsembleConfig> {
        self.replica.membership().map(Membership::active)
    }

    /// The configuration in force, and the newest one in the log; `None` if reconfiguration is
    /// disabled.
    pub(crate) fn ensemble_configs(&self) -> Option<(&EnsembleConfig, &EnsembleConfig)> {
        self.replica.membership().map(|known| (known.active(), known.newest()))
    }

    /// The configurations that go with this server's notifications. One that no leader has
    /// established is that of the files, and others need not have it.
    pub fn noted_configs(&self) -> NotedConfigs {
        let logged = self.replica.membership().filter(|membership| membership.is_changing());
        NotedConfigs {
            in_force: self.replica.established_config().map(ToString::to_string),
            logged: logged.map(|membership| membership.newest().to_string()),
        }
    }

    /// The lines of a server: in the configuration that is to come into force, and in the one in
    /// force if it differs there. Which of its addresses it listens on depends on what it has
    /// applied, so a host tries one after the other. None if reconfiguration is disabled.
    pub fn lines_of(&self, id: ServerId) -> impl Iterator<Item = &Member> {
        self.replica.membership().into_iter().flat_map(move |membership| membership.lines_of(id))
    }

    /// Why the server has halted, if it has.
    pub fn halted(&self) -> Option<&Halted> {
        self.halted.as_ref()
    }

    /// What the server waits for; `None` if it serves clients or has halted.
    pub fn waiting(&self) -> Option<Waiting> {
        if self.serves() || self.halted.is_some() {
            return None;
        }
        let (own, voters) = (self.config.id(), self.members.voters());
        let history_status_of = |id: ServerId| match &self.role {
            Role::Looking(looking) => looking.history_status_of(id),
            Role::Leading(leader) => leader.history_status_of(id, own),
            Role::Following(_) => (id == own).then(|| self.replica.history_status()),
        };
        Some(Waiting {
            id: own,
            elected: self.leader(),
            needed: voters.smallest_quorum(),
            has_groups: voters.has_groups(),
            heard_quorum: voters.is_quorum(|id| history_status_of(id).is_some()),
            voters: voters.ids().map(|id| (id, history_status_of(id))).collect(),
            before: self.replica.voters_before(own, voters).ids().collect(),
        })
    }

    /// Counters and watermarks.
    pub fn status(&self) -> Status {
        let log = self.replica.log();
        let state = self.replica.state();
        let counts = self.replica.tree().counts();
        let own = self.config.id();
        let mode = match &self.role {
            Role::Looking(_) if self.front.is_read_only() => Mode::ReadOnly,
            Role::Looking(_) => Mode::Looking,
            Role::Following(_) if self.members.is_observer(own) => Mode::Observer,
            Role::Following(_) => Mode::Follower,
            Role::Leading(_) if self.members.alone() => Mode::Standalone,
            Role::Leading(_) => Mode::Leader,
        };
        let ((followers, observers, learners), pending_syncs) = match &self.role {
            Role::Leading(leader) => {
                let counts = leader.learner_counts(|id| match self.replica.membership() {
                    Some(membership) => membership.is_observer(id),
                    None => self.members.is_observer(id),
                });
                (counts, leader.serving().map_or(0, |proposer| proposer.syncs.len()))
            }
            Role::Looking(_) | Role::Following(_) => ((0, 0, 0), 0),
        };
        Status {
            id: own,
            mode,
            leader: self.leader(),
            synced_followers: followers,
            synced_observers: observers,
            learners,
            pending_syncs,
            serving: self.serves() && self.halted.is_none(),
            accepted_epoch: state.accepted_epoch,
            current_epoch: state.current_epoch,
            applied: log.applied(),
            committed: log.committed(),
            appended: log.appended(),
            durable: log.durable(),
            snapshot: self.replica.newest_snapshot().unwrap_or(Zxid::ZERO),
            snapshots: self.replica.snapshots_kept(),
            snapshot_running: self.replica.snapshot_running(),
            sessions: self.replica.sessions().len(),
            local_sessions: self.front.local_sessions_len(),
            outstanding: self.replica.outstanding(),
            // ZooKeeper counts the root under both of its names.
            nodes: counts.nodes + 1,
            ephemerals: counts.ephemerals,
            data_bytes: counts.bytes,
            watches: self.replica.watches.count(),
            halted: self.halted.clone(),
        }
    }

    /// How far each member and learner is, by id, as this server knows while it leads and serves;
    /// otherwise nothing.
    pub fn progress(&self, now: Instant) -> Vec<ServerProgress> {
        let own = self.config.id();
        self.serving_leader()
            .map_or_else(Vec::new, |leader| leader.progress(own, &self.members, &self.replica, now))
    }

    /// The reconfiguration that this server has proposed and that is not committed.
    pub fn pending_reconfig(&self, now: Instant) -> Option<PendingReconfig> {
        let own = self.config.id();
        self.serving_leader()?.pending_reconfig(own, &self.members, &self.replica, now)
    }

    fn serving_leader(&self) -> Option<&Leader> {
        match &self.role {
            Role::Leading(leader) => leader.serving().map(|_| leader),
            Role::Looking(_) | Role::Following(_) => None,
        }
    }

    /// Live local sessions, by id. A session that is being upgraded does not expire here.
    pub fn local_sessions(&self) -> Vec<SessionInfo> {
        self.front.local_sessions()
    }

    /// Live sessions of the ensemble, by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        self.sessions_behind(None).collect()
    }

    /// The same, starting after `last`.
    pub fn sessions_behind(&self, last: Option<SessionId>) -> impl Iterator<Item = SessionInfo> {
        let tracker = match &self.role {
            Role::Leading(leader) => leader.serving().map(|proposer| &proposer.tracker),
            Role::Looking(_) | Role::Following(_) => None,
        };
        let info = move |(id, created_with)| {
            let tracked = tracker.and_then(|tracker| tracker.get(id));
            let (timeout_ms, expires) = match tracked {
                Some((timeout_ms, expires)) => (timeout_ms, Some(expires)),
                None => (created_with, None),
            };
            let server = match tracker {
                Some(tracker) => tracker.owner(id),
                None => self.replica.sessions().owner(id),
            };
            SessionInfo { id, timeout_ms, expires, server }
        };
        self.replica.sessions().live_behind(last).map(info)
    }

    /// The connection of a session, if its client is connected to this server.
    pub fn conn_of(&self, session: SessionId) -> Option<ConnId> {
        self.front.conn_of(session)
    }

    /// Sessions that own ephemeral nodes, by id, with the paths of these nodes in order.
    pub fn ephemerals(&self) -> impl Iterator<Item = (SessionId, impl Iterator<Item = &str>)> {
        let tree = self.replica.tree();
        tree.owners().map(|session| (session, tree.ephemerals(session, "")))
    }

    /// The same as pairs, starting after `last`.
    pub fn ephemerals_behind(
        &self,
        last: Option<(SessionId, &str)>,
    ) -> impl Iterator<Item = (SessionId, &str)> {
        self.replica.tree().ephemerals_behind(last)
    }

    /// Counts of the data watches, which getData and exists set.
    pub fn watch_summary(&self) -> WatchSummary {
        self.replica.watches.data_summary()
    }

    /// Each connection with each path that it watches with getData or exists.
    pub fn watches_by_conn(&self) -> impl Iterator<Item = (ConnId, &str)> {
        self.replica.watches.data_by_conn()
    }

    /// Each connection with each path on which it has a watch of this kind.
    pub fn watches_of(&self, which: WatcherType) -> impl Iterator<Item = (ConnId, &str)> {
        self.replica.watches.kind_by_conn(which)
    }

    /// The pairs of [`Server::watches_by_conn`], grouped by path.
    pub fn watches_by_path(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.replica.watches.data_by_path()
    }

    /// Passes further pairs of [`Server::watches_by_conn`] to `put`, about `lines` of them, grouped
    /// by connection; `at` keeps the position. Returns whether there may be more.
    pub fn list_watches_by_conn(
        &self,
        at: &mut WatchListing,
        lines: usize,
        put: impl FnMut(ConnId, &str),
    ) -> bool {
        self.replica.watches.list_by_conn(at, lines, put)
    }

    /// The same, grouped by path. All watchers of a path are passed in one call.
    pub fn list_watches_by_path(
        &self,
        at: &mut WatchListing,
        lines: usize,
        put: impl FnMut(&str, ConnId),
    ) -> bool {
        self.replica.watches.list_by_path(at, lines, put)
    }

    /// Sizes of the work under way; see [`Backlog`]. Visits every connection and every node.
    pub fn backlog(&self) -> Backlog {
        let backlog = self.replica.backlog();
        let (requests, strays) = (self.front.requests(), self.front.strays());
        let proposer = match &self.role {
            Role::Leading(leader) => leader.serving(),
            Role::Looking(_) | Role::Following(_) => None,
        };
        let (syncs, changes, upgrades) = proposer.map_or((0, 0, 0), Proposer::backlog);
        let upgrades = upgrades + self.front.upgrading();
        Backlog { requests, syncs, changes, upgrades, strays, ..backlog }
    }

    /// Is a leader's snapshot on the disk, but not the state yet? For checkers.
    pub fn is_loading(&self) -> bool {
        self.replica.is_loading()
    }

    /// The number of client syncs that wait for the leader's answer, for checkers. Visits every
    /// connection.
    pub fn waiting_syncs(&self) -> usize {
        self.front.waiting_syncs()
    }

    /// The number of handshakes that wait for service to begin, for checkers. Visits every
    /// connection.
    pub fn held_handshakes(&self) -> usize {
        self.front.waiting_handshakes()
    }

    /// Passes each node of the tree at `status().applied` to `visit`, in no particular order: to
    /// find the node in which two trees with different digests differ.
    pub fn visit_nodes(&self, visit: &mut dyn FnMut(&NodeView<'_>)) {
        self.replica.visit_nodes(visit);
    }

    /// Compares at most `most` further nodes of a tree that this server has set aside with its
    /// current tree. The server must have been synchronised meanwhile: before that, every node
    /// would differ.
    pub fn compare_outline(&self, outline: &mut Outline, most: usize) -> OutlineCompared {
        outline.compare(self.replica.tree(), most)
    }

    /// Digest of tree and sessions at `status().applied`; see [`crate::digest`]. It is maintained
    /// with each transaction, so this call is cheap.
    pub fn digest(&self) -> u64 {
        self.replica.digest()
    }
}
