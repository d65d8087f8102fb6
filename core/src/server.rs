//! One server: takes inputs one at a time, and is the only file that changes its role (Java `QuorumPeer`).
//!
//! Owns the connections and the joints between them, the role and the replica. Must not do what those can do alone.

mod clients;

use std::collections::BTreeMap;
use std::mem;
use std::sync::Arc;

use crate::config::Config;
use crate::election::{Looking, Vote};
use crate::error::Corrupt;
use crate::ids::{ConnId, Instant, SessionId, WriteId, Zxid};
use crate::io::{
    ClientCommand, Cx, DiskEvent, DurableState, Input, Mark, Now, Outbox, Pressure, Recovered,
};
use crate::log::Written;
use crate::replica::Replica;
use crate::rng::Rng;
use crate::status::{Mode, SessionInfo, Status};
use crate::timer::{Timer, TimerTable};
use crate::zab::{Broadcast, Leader};
use clients::Conn;

/// A server of an ensemble.
///
/// * Once: [`Server::recover`].
/// * Then, for ever: [`Server::step`] with each input, and with [`Input::Timeout`] when [`Server::next_deadline`] comes.
/// * At any time: [`Server::pressure`], [`Server::status`], [`Server::sessions`], [`Server::digest`].
#[derive(Debug)]
pub struct Server {
    config: Arc<Config>,
    rng: Rng,
    role: Role,
    replica: Replica,
    timers: TimerTable,
    conns: BTreeMap<ConnId, Conn>,
    /// The connection of each session that has one here.
    by_session: BTreeMap<SessionId, ConnId>,
    /// Were clients paused at the end of the last step?
    paused: bool,
    halted: Option<String>,
}

/// What a server is doing; each role owns what only it needs.
#[derive(Debug)]
enum Role {
    Looking(Looking),
    Leading(Leader),
}

impl Server {
    /// A server as the disk left it. It knows no leader; the first [`Input::Timeout`], due at once, starts it.
    ///
    /// `seed` feeds every choice that needs variety: equal seeds and inputs give equal outputs.
    ///
    /// # Errors
    /// Content that passed its checksums and still makes no sense.
    pub fn recover(config: Config, seed: u64, recovered: Recovered) -> Result<Server, Corrupt> {
        let mut rng = Rng::new(seed);
        let replica = Replica::recover(recovered, &mut rng)?;
        let mut timers = TimerTable::default();
        timers.set(Timer::Election, Some(Instant(0)));
        Ok(Server {
            config: Arc::new(config),
            rng,
            role: Role::Looking(Looking::new()),
            replica,
            timers,
            conns: BTreeMap::new(),
            by_session: BTreeMap::new(),
            paused: false,
            halted: None,
        })
    }

    /// Takes one input and appends to `out` what is to be done about it.
    pub fn step(&mut self, now: Now, input: Input, out: &mut Outbox) {
        if self.halted.is_some() {
            return;
        }
        let config = self.config.clone();
        let mut rng = mem::replace(&mut self.rng, Rng::new(0));
        let mut cx = Cx { now, config: &config, rng: &mut rng, out };
        match input {
            Input::Timeout => self.on_timeout(&mut cx),
            Input::Client(conn, event) => self.on_client(conn, event, &mut cx),
            Input::Disk(DiskEvent::Done(id)) => self.on_done(id, &mut cx),
            Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
                self.replica.on_chunk_done(zxid, index, &mut cx);
            }
            Input::Disk(DiskEvent::Failed(why)) => self.halt(why, &mut cx),
        }
        self.replica.maybe_snapshot(&mut cx);
        self.set_timers(&mut cx);
        self.rng = rng;
    }

    /// When to give [`Input::Timeout`] next. `None` where only an input can change
    /// anything: for a halted server, one that waits for its disk, or one without sessions.
    pub fn next_deadline(&self) -> Option<Instant> {
        if self.halted.is_some() { None } else { self.timers.next() }
    }

    /// Should clients be read?
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
        let (mode, serving) = match &self.role {
            Role::Looking(_) => (Mode::Looking, false),
            Role::Leading(leader) => {
                let mode =
                    if self.config.voters().alone() { Mode::Standalone } else { Mode::Leader };
                (mode, leader.serving().is_some())
            }
        };
        Status {
            id: self.config.id(),
            mode,
            serving: serving && self.halted.is_none(),
            accepted_epoch: state.accepted_epoch,
            current_epoch: state.current_epoch,
            applied: log.applied(),
            committed: log.committed(),
            appended: log.appended(),
            durable: log.durable(),
            snapshot: state.snapshot,
            snapshot_running: self.replica.snapshot_running(),
            connections: self.conns.len(),
            sessions: self.replica.sessions().len(),
            outstanding: self.replica.outstanding(),
            // ZooKeeper counts the root under both of its names.
            nodes: counts.nodes + 1,
            ephemerals: counts.ephemerals,
            data_bytes: counts.bytes,
            watches: self.replica.watches.count(),
            halted: self.halted.clone(),
        }
    }

    /// Live sessions, by id.
    pub fn sessions(&self) -> Vec<SessionInfo> {
        let tracker = match &self.role {
            Role::Leading(leader) => leader.serving().map(|broadcast| &broadcast.tracker),
            Role::Looking(_) => None,
        };
        let info = |(id, created_with)| {
            let tracked = tracker.and_then(|tracker| tracker.get(id));
            let (timeout_ms, expires) = match tracked {
                Some((timeout_ms, expires)) => (timeout_ms, Some(expires)),
                None => (created_with, None),
            };
            SessionInfo { id, timeout_ms, expires }
        };
        self.replica.sessions().live().map(info).collect()
    }

    /// Fingerprint of tree and sessions at `status().applied`; see [`crate::digest`]. Visits every node.
    pub fn digest(&self) -> u64 {
        self.replica.digest()
    }

    fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        let now = cx.now.mono;
        if self.timers.due(Timer::Election, now) {
            self.continue_election(cx);
        }
        if let Some(deadline) = self.timers.get(Timer::SessionExpiry)
            && deadline <= now
        {
            self.expire_sessions(deadline, cx);
        }
        if self.timers.due(Timer::Hold, now) && self.serving().is_none() {
            self.close_held(cx);
        }
    }

    /// Every command of the log lane up to `id` is durable: what waited for that goes on.
    fn on_done(&mut self, id: WriteId, cx: &mut Cx<'_>) {
        let before = self.replica.log().durable();
        while let Some(written) = self.replica.log.done(id) {
            if let Written::State(state) = written {
                self.on_state_durable(&state, cx);
            }
        }
        let durable = self.replica.log().durable();
        match &mut self.role {
            Role::Looking(_) => self.continue_election(cx),
            Role::Leading(leader) => {
                if durable > before
                    && let Some(broadcast) = leader.broadcast()
                {
                    let committed = broadcast.on_ack(cx.config.id(), durable, cx);
                    self.commit(committed, cx);
                }
            }
        }
    }

    fn on_state_durable(&mut self, state: &DurableState, cx: &mut Cx<'_>) {
        // True of most state writes, of which only the first after a snapshot finds something to purge.
        if state.snapshot == self.replica.state().snapshot {
            self.replica.on_snapshot_named(cx);
        }
        let Role::Leading(leader) = &mut self.role else {
            return;
        };
        leader.on_state_durable(state, &mut self.replica, cx);
        if leader.is_established(cx) {
            self.activate(cx);
        }
    }

    /// The initial history is committed, because a quorum has it; then service begins.
    fn activate(&mut self, cx: &mut Cx<'_>) {
        let history = self.replica.log().appended();
        if history > self.replica.log().applied() {
            cx.mark(Mark::HistoryReplayed);
        }
        self.commit(history, cx);
        let Role::Leading(leader) = &mut self.role else { unreachable!("only a leader activates") };
        leader.activate(&self.replica, cx);
        self.timers.set(Timer::Hold, None);
        self.admit_held(cx);
    }

    /// Looks for a leader: the own vote waits until nothing is being written, because it vouches for the log.
    fn continue_election(&mut self, cx: &mut Cx<'_>) {
        let Role::Looking(looking) = &mut self.role else {
            return;
        };
        let log = self.replica.log();
        if log.is_writing() {
            return;
        }
        looking.vote(Vote {
            epoch: self.replica.state().current_epoch,
            zxid: log.appended(),
            candidate: cx.config.id(),
        });
        if looking.winner(cx.config.voters()) == Some(cx.config.id()) {
            cx.mark(Mark::ElectionAlone);
            self.role = Role::Leading(Leader::begin(&mut self.replica, cx));
        }
    }

    /// The epoch is used up: a new one has to be elected. Connections stay; their requests wait.
    fn resign(&mut self, cx: &mut Cx<'_>) {
        cx.mark(Mark::EpochUsedUp);
        self.role = Role::Looking(Looking::new());
        self.continue_election(cx);
    }

    /// The history is committed up to `zxid`: apply it, tell watchers, answer.
    fn commit(&mut self, zxid: Zxid, cx: &mut Cx<'_>) {
        if zxid <= self.replica.log().committed() {
            return;
        }
        self.replica.log.commit(zxid);
        let mut count = 0;
        while let Some(applied) = self.replica.apply_next() {
            count += 1;
            if let Role::Leading(leader) = &mut self.role
                && let Some(broadcast) = leader.broadcast()
            {
                broadcast.on_applied(&applied.txn, cx);
            }
            self.on_applied(applied, cx);
        }
        if count > 1 {
            cx.mark(Mark::CommitBatch);
        }
    }

    /// The role and the replica, where clients are served.
    fn serving(&mut self) -> Option<(&mut Broadcast, &mut Replica)> {
        match &mut self.role {
            Role::Leading(leader) => leader.broadcast().map(|serving| (serving, &mut self.replica)),
            Role::Looking(_) => None,
        }
    }

    fn set_timers(&mut self, cx: &mut Cx<'_>) {
        let paused = self.pressure() == Pressure::PauseClients;
        if paused {
            cx.mark(Mark::PressurePaused);
        }
        let released = self.paused && !paused;
        self.paused = paused;
        let now = cx.now.mono;
        let expiry = self.serving().and_then(|(broadcast, _)| {
            if released {
                // Nobody could be heard while clients were not read.
                broadcast.tracker.touch_all(now);
            }
            broadcast.tracker.next_expiry()
        });
        self.timers.set(Timer::SessionExpiry, expiry);
    }

    /// The disk failed: nothing that is said from now on could be kept.
    fn halt(&mut self, why: String, cx: &mut Cx<'_>) {
        cx.mark(Mark::DiskFailed);
        for conn in mem::take(&mut self.conns).into_keys() {
            cx.send(conn, ClientCommand::Close);
        }
        self.by_session.clear();
        self.halted = Some(why);
    }
}
