//! One server: processes inputs one at a time; the only file that changes the server's role (Java
//! `QuorumPeer`).
//!
//! Owns connections, links, the role and the replica, and passes calls between them. Must not do
//! what one of these can do alone.
//!
//! ```text
//!            ┌───────── elected ──────────► Leading ───────┐  no quorum, epoch used up,
//!            │                                             │  or a learner has more history
//!  start ─► Looking ◄──────────────────────────────────────┤
//!            │                                             │
//!            └───── another is elected ───► Following ─────┘  the leader is lost
//! ```

mod clients;
mod peers;
mod requests;
mod work;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::auth::{Scheme, Schemes};
use crate::config::Config;
use crate::cx::Cx;
use crate::digest::NodeView;
use crate::election::Election;
use crate::error::Corrupt;
use crate::front::local::LocalSessions;
use crate::identity::Seed;
use crate::ids::{ConnId, Instant, LinkId, ServerId, SessionId, WriteId, Zxid};
use crate::io::{ClientCommand, Input, Mark, Now, Outbox, PeerCommand, Pressure};
use crate::log::Written;
use crate::notice::Notice;
use crate::outline::{Outline, OutlineCompared};
use crate::peer::{LinkCloseReason, PeerMisbehaved, Vote};
use crate::replica::Replica;
use crate::rng::Rng;
use crate::session::SessionTracker;
use crate::status::{Backlog, Halted, Mode, SessionInfo, Status, Waiting, WatchSummary};
use crate::store::{DiskEvent, DurableState, Recovered};
use crate::timer::{Timer, TimerTable};
use crate::watch::WatchListing;
use crate::wire::WatcherType;
use crate::zab::{Follower, FollowerEffect, Leader, LeaderEffect, Proposer};
use clients::{Conn, ConnPhase};
use peers::Inbound;
use work::Work;

/// A server of an ensemble.
///
/// * Once: [`Server::recover`], and [`Server::with_scheme`] for schemes of authentication that are
///   not built in.
/// * Then, repeatedly: [`Server::step`] with each input, and with [`Input::Timeout`] when
///   [`Server::next_deadline`] has passed.
/// * At any time: [`Server::pressure`], [`Server::status`] and the other getters, which change
///   nothing.
#[derive(Debug)]
pub struct Server {
    config: Arc<Config>,
    schemes: Arc<Schemes>,
    seed: Seed,
    rng: Rng,
    role: Role,
    replica: Replica,
    timers: TimerTable,
    /// The round of the last election that this server took part in; `elected` is its outcome.
    round: u64,
    elected: Option<Vote>,
    /// Inbound links, until a leader adopts them as learners.
    inbound: BTreeMap<LinkId, Inbound>,
    conns: BTreeMap<ConnId, Conn>,
    /// The connection of each session that is connected to this server.
    by_session: BTreeMap<SessionId, ConnId>,
    local: LocalSessions,
    work: Work,
    /// The time at which the server stopped reading clients, while it does not read them.
    paused_since: Option<Instant>,
    /// Why the server has halted, if it has.
    halted: Option<Halted>,
}

/// The role of a server; each variant owns the state that only this role needs.
#[derive(Debug)]
enum Role {
    Looking(Election),
    Following(Follower),
    Leading(Leader),
}

impl Server {
    /// A server with the state that recovery found. It knows no leader; the first
    /// [`Input::Timeout`], due at once, starts the election.
    ///
    /// `seed` feeds all random choices and secrets: equal seeds and inputs give equal outputs.
    ///
    /// # Errors
    /// Content that passed its checksums and is still inconsistent.
    pub fn recover(
        config: Config,
        seed: impl Into<Seed>,
        recovered: Recovered,
    ) -> Result<Server, Corrupt> {
        let seed = seed.into();
        let mut rng = Rng::new(seed.number()).with_map_salt(config.map_salt);
        let replica = Replica::recover(recovered, &mut rng)?;
        let mut timers = TimerTable::default();
        timers.set(Timer::Election, Some(Instant(0)));
        let looking = Election::new(config.id(), 0, None);
        Ok(Server {
            schemes: Arc::new(Schemes::new(&config.auth)),
            local: LocalSessions::new(config.tick()),
            config: Arc::new(config),
            seed,
            rng,
            role: Role::Looking(looking),
            replica,
            timers,
            round: 0,
            elected: None,
            inbound: BTreeMap::new(),
            conns: BTreeMap::new(),
            by_session: BTreeMap::new(),
            work: Work::default(),
            paused_since: None,
            halted: None,
        })
    }

    /// Adds a scheme of authentication, or replaces the one with the same name. Call it before the
    /// first [`Server::step`]; all servers of an ensemble should have the same schemes.
    pub fn with_scheme(mut self, scheme: impl Scheme + 'static) -> Server {
        Arc::make_mut(&mut self.schemes).add(Arc::new(scheme));
        self
    }

    /// Processes one input and appends the resulting commands and their cost to `out`. Work beyond
    /// the budget of a step is left to later steps; the next deadline is then immediate.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Outbox) {
        if self.halted.is_some() {
            return;
        }
        let config = self.config.clone();
        let mut rng = mem::replace(&mut self.rng, Rng::new(0));
        let schemes = self.schemes.clone();
        let mut cx = Cx { now, config: &config, schemes: &schemes, rng: &mut rng, out, stop_at: 0 };
        cx.spend(1);
        cx.renew();
        if matches!(input, Input::Client(..)) && self.serves() {
            // After a stall, the server serves no client before it has checked that its leader, or
            // its quorum, is still there.
            self.check_silence(&mut cx);
        }
        match input {
            Input::Timeout => self.on_timeout(&mut cx),
            Input::Client(conn, event) => self.on_client(conn, event, &mut cx),
            Input::Election(from, said) => self.on_notification(from, &said, &mut cx),
            Input::Peer(link, event) => self.on_peer(link, event, &mut cx),
            Input::Disk(event) => self.on_disk(event, &mut cx),
        }
        if self.halted.is_none() {
            self.replica.maybe_snapshot(&mut cx);
            self.set_timers(&mut cx);
        }
        self.rng = rng;
    }

    /// The time of the next [`Input::Timeout`] and its reason. `None` if only another input can
    /// change anything: for a server that is halted, waits for its disk, or has no sessions.
    pub fn next_deadline(&self) -> Option<(Instant, Timer)> {
        if self.halted.is_some() { None } else { self.timers.next() }
    }

    /// The id of the ensemble, for the handshakes of links; 0 while it is unknown.
    pub fn ensemble_id(&self) -> u64 {
        self.replica.ensemble_id()
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
        let (own, voters) = (self.config.id(), self.config.voters());
        let history_status_of = |id: ServerId| match &self.role {
            Role::Looking(looking) => looking.history_status_of(id),
            Role::Leading(leader) => leader.history_status_of(id, own),
            Role::Following(_) => (id == own).then(|| self.replica.history_status()),
        };
        Some(Waiting {
            id: own,
            elected: self.leader(),
            needed: voters.quorum_size(),
            voters: voters.ids().map(|id| (id, history_status_of(id))).collect(),
            before: self.replica.voters_before(&self.config).ids().collect(),
        })
    }

    /// Whether the driver may read from clients.
    pub fn pressure(&self) -> Pressure {
        if self.replica.log().undurable_bytes() > self.config.limits.undurable_bytes {
            Pressure::PauseClients
        } else {
            Pressure::Accept
        }
    }

    /// Counters and watermarks.
    pub fn status(&self) -> Status {
        let log = self.replica.log();
        let state = self.replica.state();
        let counts = self.replica.tree().counts();
        let own = self.config.id();
        let mode = match &self.role {
            Role::Looking(_) => Mode::Looking,
            Role::Following(_) => Mode::Follower,
            Role::Leading(_) if self.config.voters().alone() => Mode::Standalone,
            Role::Leading(_) => Mode::Leader,
        };
        let (followers, pending_syncs) = match &self.role {
            Role::Leading(leader) => {
                (leader.followers(), leader.serving().map_or(0, |broadcast| broadcast.syncs.len()))
            }
            Role::Looking(_) | Role::Following(_) => ((0, 0), 0),
        };
        Status {
            id: own,
            mode,
            leader: self.leader(),
            synced_followers: followers.0,
            learners: followers.1,
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
            local_sessions: self.local.len(),
            outstanding: self.replica.outstanding(),
            // ZooKeeper counts the root under both of its names.
            nodes: counts.nodes + 1,
            ephemerals: counts.ephemerals,
            data_bytes: counts.bytes,
            watches: self.replica.watches.count(),
            halted: self.halted.clone(),
        }
    }

    /// Live local sessions, by id. A session that is being upgraded does not expire here.
    pub fn local_sessions(&self) -> Vec<SessionInfo> {
        self.local.infos()
    }

    /// Live sessions of the ensemble, by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let tracker = match &self.role {
            Role::Leading(leader) => leader.serving().map(|broadcast| &broadcast.tracker),
            Role::Looking(_) | Role::Following(_) => None,
        };
        let info = |(id, created_with)| {
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
        self.replica.sessions().live().map(info).collect()
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
        let requests = self.conns.values().map(|conn| conn.queue.len()).sum();
        let broadcast = match &self.role {
            Role::Leading(leader) => leader.serving(),
            Role::Looking(_) | Role::Following(_) => None,
        };
        let (syncs, changes, upgrades) = broadcast.map_or((0, 0, 0), Proposer::backlog);
        let upgrades = upgrades + self.local.upgrading();
        Backlog { requests, syncs, changes, upgrades, strays: self.strays(), ..backlog }
    }

    /// The number of client syncs that wait for the leader's answer, for checkers. Visits every
    /// connection.
    pub fn waiting_syncs(&self) -> usize {
        self.conns.values().map(|conn| conn.queue.unconfirmed().count()).sum()
    }

    /// The number of handshakes that wait for service to begin, for checkers. Visits every
    /// connection.
    pub fn held_handshakes(&self) -> usize {
        let held = |conn: &&Conn| matches!(conn.phase, ConnPhase::AwaitLeader(_));
        self.conns.values().filter(held).count()
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

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.timers.due(Timer::Election, now) {
            self.continue_election(cx);
        }
        self.check_silence(cx);
        if let Some(deadline) = self.timers.get(Timer::SessionExpiry)
            && deadline <= now
        {
            self.expire_sessions(deadline, cx);
        }
        if let Some(deadline) = self.timers.get(Timer::LocalSessionExpiry)
            && deadline <= now
        {
            self.expire_local_sessions(deadline, cx);
        }
        if self.timers.due(Timer::AwaitLeader, now) && !self.serves() {
            self.close_held(cx);
        }
        if self.timers.due(Timer::ContainerCheck, now) {
            self.clean(cx);
        }
        if self.timers.due(Timer::Work, now) && self.has_work() {
            self.go_on(cx);
        }
    }

    /// While clients are not read, the leader deletes no containers either (DATA-22).
    fn clean(&mut self, cx: &mut Cx<'_>) {
        let busy = self.pressure() == Pressure::PauseClients;
        let Role::Leading(leader) = &mut self.role else {
            return;
        };
        match leader.broadcast() {
            Some(broadcast) if busy => broadcast.pause_cleaning(cx),
            Some(_) | None => leader.clean(&mut self.replica, cx),
        }
    }

    fn on_disk(&mut self, event: DiskEvent, cx: &mut Cx<'_>) {
        match event {
            DiskEvent::Done(id) => self.on_done(id, cx),
            DiskEvent::ChunkDone { zxid, index } => self.on_chunk_done(zxid, index, cx),
            DiskEvent::Failed(why) => {
                cx.mark(Mark::DiskFailed);
                self.halt(Halted::Disk(why), cx);
            }
            DiskEvent::SnapshotFailed { zxid, why, .. } => {
                if self.replica.on_snapshot_failed(zxid, cx) {
                    self.look(None, LinkCloseReason::NoRoom(why), cx);
                }
            }
            DiskEvent::LogRead { link, found } => {
                if let Role::Leading(leader) = &mut self.role {
                    let effect = leader.on_log_read(link, found, &mut self.replica, cx);
                    self.apply_leader_effect(effect, cx);
                }
            }
            DiskEvent::SnapshotRead { link, zxid, index, found } => {
                if let Role::Leading(leader) = &mut self.role {
                    let replica = &mut self.replica;
                    let effect = leader.on_snapshot_read(link, (zxid, index), found, replica, cx);
                    self.apply_leader_effect(effect, cx);
                }
            }
        }
    }

    /// Every command of the log lane up to `id` is durable: continues what waited for it.
    fn on_done(&mut self, id: WriteId, cx: &mut Cx<'_>) {
        let before = self.replica.log().durable();
        while let Some(written) = self.replica.log.done(id) {
            if let (id, Written::State(state)) = written {
                self.on_state_durable(id, &state, cx);
            }
        }
        let durable = self.replica.log().durable();
        match &mut self.role {
            Role::Looking(_) => self.continue_election(cx),
            Role::Following(follower) if durable > before => {
                follower.on_durable(durable, &self.replica, cx);
            }
            Role::Leading(leader) if durable > before => {
                let effect = leader.on_durable(durable, cx);
                self.apply_leader_effect(effect, cx);
            }
            Role::Following(_) | Role::Leading(_) => {}
        }
    }

    fn on_state_durable(&mut self, id: WriteId, state: &DurableState, cx: &mut Cx<'_>) {
        self.replica.on_saved(state);
        if let Some(zxid) = state.differs {
            return self.halt(Halted::Differs { zxid }, cx);
        }
        // Most state writes satisfy this; only the first one after a snapshot finds something to
        // purge.
        if state.snapshot == self.replica.state().snapshot {
            let needed = match &self.role {
                Role::Leading(leader) => leader.oldest_needed(),
                Role::Looking(_) | Role::Following(_) => None,
            };
            self.replica.purge(needed, cx);
        }
        match &mut self.role {
            Role::Looking(_) => {}
            Role::Following(follower) => follower.on_state_durable(id, &self.replica, cx),
            Role::Leading(leader) => {
                let effect = leader.on_state_durable(id, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    fn on_chunk_done(&mut self, zxid: Zxid, index: u32, cx: &mut Cx<'_>) {
        let loaded = self.replica.on_chunk_done(zxid, index, cx);
        self.on_loaded(loaded, cx);
    }

    /// A chunk of a snapshot is durable, or more of a leader's snapshot is loaded. `Ok(true)` means
    /// that the leader's snapshot has become the state.
    fn on_loaded(&mut self, loaded: Result<bool, String>, cx: &mut Cx<'_>) {
        match loaded {
            Ok(false) => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.on_snapshot_taken(&self.replica, cx);
                }
            }
            Ok(true) => {
                // The outcome of the clients' pending writes is unknown, and their watches were set
                // on another tree.
                self.close_all(cx);
                self.local.on_installed();
                if let Role::Following(follower) = &mut self.role {
                    follower.on_installed(&self.replica, cx);
                }
            }
            Err(what) => {
                cx.mark(Mark::LeaderRefused);
                self.look(None, PeerMisbehaved::History(what).into(), cx);
            }
        }
    }

    /// Acts on the result of a leader's event handler.
    fn apply_leader_effect(&mut self, effect: LeaderEffect, cx: &mut Cx<'_>) {
        match effect {
            LeaderEffect::GoOn => {}
            LeaderEffect::Commit(zxid) => self.commit(zxid, cx),
            LeaderEffect::Establish => self.activate(cx),
            LeaderEffect::Synced(waiters) => {
                for waiter in waiters {
                    self.confirm_sync(waiter.conn, waiter.request, cx);
                }
            }
            LeaderEffect::Differs(zxid) => self.on_difference(zxid, cx),
            LeaderEffect::StepDown(lost) => self.look(None, LinkCloseReason::Looks(lost), cx),
        }
    }

    /// Acts on the result of a follower's event handler.
    fn apply_follower_effect(&mut self, effect: FollowerEffect, cx: &mut Cx<'_>) {
        match effect {
            FollowerEffect::None => {}
            FollowerEffect::Commit(zxid) => self.commit(zxid, cx),
            FollowerEffect::Serve(committed) => {
                self.commit_all(committed, cx);
                if self.halted.is_some() {
                    return;
                }
                if let Role::Following(follower) = &mut self.role {
                    follower.activate(&mut self.replica, cx);
                }
                self.resume_clients(cx);
            }
            FollowerEffect::Synced(conn, request) => self.confirm_sync(conn, request, cx),
            FollowerEffect::Differs(zxid) => self.on_difference(zxid, cx),
            FollowerEffect::Abandon(why) => self.look(None, why, cx),
        }
    }

    /// The state of this server differs from the ensemble's. The server no longer counts towards a
    /// quorum, and halts once this is durable: the next start sets the data aside.
    fn on_difference(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        cx.mark(Mark::SetsAside);
        self.replica.save_state(cx, |state| {
            state.damaged = true;
            state.differs = Some(zxid);
        });
        let what = format!("what this server has at {zxid} is not what the ensemble has there");
        self.look(None, LinkCloseReason::Incompatible(what), cx);
    }

    /// Commits the initial history, which a quorum has logged, and begins service.
    fn activate(&mut self, cx: &mut Cx<'_>) {
        let history = self.replica.log().appended();
        if history > self.replica.log().applied() {
            cx.mark(Mark::HistoryReplayed);
        }
        self.commit_all(history, cx);
        if self.halted.is_some() {
            return;
        }
        let Role::Leading(leader) = &mut self.role else { unreachable!("only a leader activates") };
        leader.activate(&self.replica, cx);
        self.resume_clients(cx);
    }

    /// Becomes leader, and adopts the links on which learners have sent FOLLOWERINFO.
    fn lead(&mut self, cx: &mut Cx<'_>) {
        let alone = cx.config.voters().alone();
        cx.mark(if alone { Mark::ElectionAlone } else { Mark::ElectionWon });
        self.role = Role::Leading(Leader::begin(self.seed, &mut self.replica, cx));
        self.adopt_inbound(cx);
    }

    /// Becomes a follower of `leader`.
    fn follow(&mut self, leader: ServerId, cx: &mut Cx<'_>) {
        cx.mark(Mark::ElectionJoined);
        for link in mem::take(&mut self.inbound).into_keys() {
            cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Follows));
        }
        let elected_epoch = self.elected.map(|vote| vote.epoch).unwrap_or_default();
        self.role = Role::Following(Follower::begin(leader, elected_epoch, cx));
    }

    /// Starts an election, closes all links of the role, and logs `why`. Client connections stay
    /// open; their requests wait.
    fn look(&mut self, lost: Option<ServerId>, why: LinkCloseReason, cx: &mut Cx<'_>) {
        let links = match &self.role {
            Role::Looking(_) => Vec::new(),
            Role::Following(follower) => Vec::from_iter(follower.link()),
            Role::Leading(leader) => leader.links().collect(),
        };
        let close = |link| PeerCommand::Close(link, why.clone());
        cx.out.peers.extend(links.into_iter().map(close));
        if let Some(leader) = self.leader() {
            cx.out.notices.push(Notice::LeavesLeader { leader, why });
        }
        self.replica.abandon_incoming(cx);
        self.forget_agreed();
        if self.replica.outstanding() > 0 {
            match &self.role {
                Role::Looking(_) => {}
                Role::Following(_) => cx.mark(Mark::FollowerLeftUncommitted),
                Role::Leading(_) => cx.mark(Mark::LeaderLeftUncommitted),
            }
        }
        self.role = Role::Looking(Election::new(cx.config.id(), self.round, lost));
        if !self.conns.is_empty() {
            self.start_hold_timer(cx);
        }
        self.continue_election(cx);
    }

    /// The leader that this server follows, or its own id if it leads.
    fn leader(&self) -> Option<ServerId> {
        match &self.role {
            Role::Looking(_) => None,
            Role::Following(follower) => Some(follower.leader()),
            Role::Leading(_) => Some(self.config.id()),
        }
    }

    /// Are clients served?
    fn serves(&self) -> bool {
        match &self.role {
            Role::Looking(_) => false,
            Role::Following(follower) => follower.serving().is_some(),
            Role::Leading(leader) => leader.serving().is_some(),
        }
    }

    /// While clients are not read, their heartbeats do not arrive: no session expires, and a long
    /// pause renews all sessions, because clients could not reconnect either.
    fn note_pressure(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.pressure() == Pressure::PauseClients {
            cx.mark(Mark::PressurePaused);
            self.paused_since.get_or_insert(now);
            return;
        }
        let long = self.had_paused_clients(cx);
        self.paused_since = None;
        if !long {
            return;
        }
        cx.mark(Mark::SessionsSpared);
        self.local.touch_all(now);
        if let Role::Leading(leader) = &mut self.role
            && let Some(broadcast) = leader.broadcast()
        {
            broadcast.tracker.touch_all(now);
        }
        for (session, timeout_ms) in self.sessions_here(cx) {
            self.touch(session, timeout_ms, cx);
        }
    }

    /// Have clients not been read for longer than the interval between two pings, half a tick?
    /// Shorter pauses do not count: they are no worse than a slow network, and are so frequent
    /// under load that the session of a dead client would never expire.
    fn had_paused_clients(&self, cx: &Cx<'_>) -> bool {
        let now = cx.now.mono;
        self.paused_since.is_some_and(|since| now.since(since) > cx.config.tick() / 2)
    }

    fn set_timers(&mut self, cx: &mut Cx<'_>) {
        self.note_pressure(cx);
        let paused = self.paused_since.is_some();
        let now = cx.now.mono;
        Timer::OF_ROLES.iter().for_each(|timer| self.timers.set(*timer, None));
        match &mut self.role {
            Role::Looking(looking) if !looking.has_voted() && !self.replica.log().is_writing() => {
                self.timers.set(Timer::Election, Some(now));
            }
            Role::Looking(looking) => {
                // No election is decided before the pause after a failed snapshot is over.
                let rest = self.replica.rests_until(now);
                let next = looking.next_deadline().filter(|next| rest.is_none() || *next > now);
                self.timers.set(Timer::Election, next.into_iter().chain(rest).min());
            }
            Role::Following(follower) => {
                self.timers.set(Timer::LeaderSilence, Some(follower.deadline()));
            }
            Role::Leading(leader) => {
                for (timer, deadline) in leader.deadlines(cx) {
                    self.timers.set(timer, deadline);
                }
                let mut broadcast = leader.broadcast();
                let cleaning = broadcast
                    .as_mut()
                    .and_then(|broadcast| broadcast.cleaning_deadline(&self.replica, cx));
                self.timers.set(Timer::ContainerCheck, cleaning);
                let tracker = broadcast.map(|broadcast| &broadcast.tracker);
                let expiry = tracker.filter(|_| !paused).and_then(SessionTracker::next_expiry);
                self.timers.set(Timer::SessionExpiry, expiry);
            }
        }
        let local = self.local.next_expiry().filter(|_| !paused && self.serves());
        self.timers.set(Timer::LocalSessionExpiry, local);
        self.timers.set(Timer::Work, self.has_work().then_some(now));
    }

    /// Stops the server: its promises can no longer become durable, or its state is wrong. It
    /// closes all client connections and emits nothing afterwards.
    fn halt(&mut self, why: Halted, cx: &mut Cx<'_>) {
        for conn in mem::take(&mut self.conns).into_keys() {
            cx.send(conn, ClientCommand::Close);
        }
        self.by_session.clear();
        self.halted = Some(why);
    }
}
