//! One simulated machine: a disk that outlives the process, clocks, and at most one server process.
//!
//! Owns starts and recovery. Must not decide when they happen. `end` has the end of a process,
//! `process` the host's loop around the real server, `disk` the content of the disk.

mod clock;
mod config_change;
mod disk;
pub mod disk_audit;
mod end;
mod gate;
mod held;
mod lanes;
mod process;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use storage_fs::Opened;
use zabkeeper_core::driver::{Driver, PeerDial};
use zabkeeper_core::store::Lane;
use zabkeeper_core::{
    Config, ConnId, Epoch, Instant, Limits, Server, ServerId, SessionId, Status, Voters, Zxid,
};

use crate::check::checker::Check;
use crate::check::guard;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::faults::heal::Fate;
use crate::machine::fs::{Crash, Disk, LogEnd, SimFs};
use crate::network::port::Port;
use crate::network::stream::{Delivery, Party};
use crate::record::event::RunEvent;
use crate::record::sometimes::Sometimes;
use crate::world::options::{Options, config_of_older};
use crate::world::shared::{Event, Shared};
pub(crate) use clock::Clock;
pub use disk::is_snapshot;
use end::power;
use gate::Gate;
use lanes::Lanes;
use process::{Process, ReceivedNotification};

/// Time for reading the disk's content into memory and starting up, ns.
const STARTUP: u64 = 500_000;
/// Longest idle time after which a log records its end, ms; each process draws its own.
const QUIET_MS: u64 = 1_000;

/// A machine.
#[derive(Debug)]
pub struct Node {
    id: ServerId,
    config: Config,
    /// Is it a member of the ensemble yet?
    member: bool,
    /// Configuration of an ensemble of one, for replaying the disk's content.
    alone: Config,
    store: storage_fs::Options,
    disk: Rc<RefCell<Disk>>,
    incarnation: u64,
    phase: Phase,
    /// The epoch that the previous process had promised, durably or not.
    promised: Epoch,
    clock: Clock,
    rng: Rng,
    /// The power is off, and not only the process ended: connection attempts get no answer, not
    /// even a refusal.
    powered_off: bool,
    /// The server has halted, and its end is planned.
    crash_planned: bool,
    /// Factor on the cost of every step.
    slowness: u64,
    bit_rot: BitRot,
    /// Names of the damaged files.
    damaged_files: Vec<String>,
    /// Knowledge about the end of its log since its last process ended.
    log_end: LogEnd,
    /// Does it run the last release from its next start on?
    older: bool,
}

/// Is durable content of the disk damaged?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum BitRot {
    No,
    /// The next start shows whether the damage matters.
    Perhaps,
    /// The same, unless the power fails first: the damage then looks like a torn write.
    UnderThisBoot,
    /// The server has refused to start because of the damage; the next start replaces the disk.
    Found,
}

#[derive(Debug)]
enum Phase {
    Down,
    Recovering(Box<Booting>),
    Up(Box<Process>),
}

/// Result of opening the store, until recovery is over.
struct Booting(Result<Opened<SimFs>, String>);

impl std::fmt::Debug for Booting {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Booting").field(&self.0.as_ref().map(|opened| &opened.notes)).finish()
    }
}

/// The first configuration of the ensemble. A server outside of it is not started.
fn first_config(id: ServerId, options: &Options) -> Config {
    match options.first_voters() {
        Some(first) if first.contains(&id) => options.config_among(id, Voters::new(first)),
        Some(_) | None => options.config(id),
    }
}

impl Node {
    /// A machine with an empty disk, switched off.
    pub fn new(id: ServerId, shared: &Shared) -> Node {
        let seeds = shared.seeds;
        let disk = Disk::new(seeds.stream("disk", id.0), shared.options.disk);
        let mut store = storage_fs::Options::new(seeds.stream("cluster", 0).word());
        store.segment_bytes = shared.options.server.segment_bytes;
        Node {
            id,
            config: first_config(id, &shared.options),
            member: shared.options.first_voters().is_none_or(|first| first.contains(&id)),
            alone: Options { servers: 1, observers: 0, ..shared.options.clone() }
                .config(ServerId(1)),
            store,
            disk: Rc::new(RefCell::new(disk)),
            incarnation: 0,
            phase: Phase::Down,
            promised: Epoch(0),
            clock: Clock::new(shared.now, 0, 0, 0),
            rng: seeds.stream("node", id.0),
            powered_off: true,
            crash_planned: false,
            slowness: 1,
            bit_rot: BitRot::No,
            damaged_files: Vec::new(),
            log_end: LogEnd::Unknown,
            older: shared.options.older.servers.contains(&id),
        }
    }

    /// Changes its release from its next start on; returns whether it was another one.
    pub fn set_older(&mut self, older: bool) -> bool {
        std::mem::replace(&mut self.older, older) != older
    }

    /// Does the last release run there now?
    pub fn runs_last_release(&self) -> bool {
        self.process().is_some_and(Process::runs_last_release)
    }

    /// The configuration of its next process.
    fn config_of_release(&self) -> Config {
        if self.older { config_of_older(&self.config) } else { self.config.clone() }
    }

    /// Is it a member of the ensemble yet?
    pub fn is_member(&self) -> bool {
        self.member
    }

    /// Gives it a configuration with all servers from its next start on.
    pub fn join(&mut self, shared: &Shared) {
        (self.config, self.member) = (shared.options.config(self.id), true);
    }

    /// Its id.
    pub fn id(&self) -> ServerId {
        self.id
    }

    /// Number of the process; events for an earlier one are ignored.
    pub fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// Is there a process, recovering or up?
    pub fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Down)
    }

    /// Is there a process that has recovered?
    pub fn is_up(&self) -> bool {
        matches!(self.phase, Phase::Up(_))
    }

    /// The server, while it is up.
    pub fn server(&self) -> Option<&Server> {
        self.process().map(Process::server)
    }

    /// Status that the server reports.
    pub fn status(&self) -> Option<Status> {
        self.process().map(|process| process.server().status())
    }

    /// Limits in the server's latest configuration: servers may have different ones.
    pub fn limits(&self) -> &Limits {
        &self.config.limits
    }

    /// When its process last had no room for a snapshot.
    pub fn lacked_room(&self) -> Option<Instant> {
        self.process().and_then(Process::lacked_room)
    }

    /// Live sessions, as the server reports them.
    pub fn sessions(&self) -> Vec<SessionId> {
        let live = |process: &Process| process.server().sessions().iter().map(|s| s.id).collect();
        self.process().map_or_else(Vec::new, live)
    }

    /// Digest of the live tree and sessions.
    pub fn digest(&self) -> Option<u64> {
        self.process().map(|process| process.server().digest())
    }

    /// Why the machine is not quiet; `None` if nothing is pending except for servers in `outside`.
    pub fn unrest(&self, outside: &BTreeMap<ServerId, Fate>) -> Option<String> {
        match &self.phase {
            Phase::Down => Some(format!("server {} is down", self.id)),
            Phase::Recovering(_) => Some(format!("server {} is recovering", self.id)),
            Phase::Up(process) => process.unrest(outside),
        }
    }

    /// The disk, for fault injection and queries.
    pub fn disk(&self) -> &RefCell<Disk> {
        &self.disk
    }

    fn process(&self) -> Option<&Process> {
        match &self.phase {
            Phase::Up(process) => Some(process),
            Phase::Down | Phase::Recovering(_) => None,
        }
    }

    /// Switches the machine on; recovery begins.
    pub fn start(&mut self, shared: &mut Shared) {
        if self.is_running() || !self.member {
            return;
        }
        self.incarnation += 1;
        self.reset_old_connections(shared);
        self.powered_off = false;
        self.crash_planned = false;
        let mut clock = shared.seeds.stream("clock", self.id.0 << 32 | self.incarnation);
        let origin = clock.below(1 << 40);
        let drift = if shared.options.faults.has(Fault::NodeDrift) {
            i64::try_from(clock.below(201)).expect("small") - 100
        } else {
            0
        };
        self.clock = Clock::new(shared.now, origin, drift, self.clock.wall_offset());
        let (id, incarnation) = (self.id, self.incarnation);
        let one_in = shared.options.config_change_one_in;
        let mut rng = shared.seeds.stream("node/settings", id.0 << 32 | incarnation);
        let changed = if incarnation > 1 && one_in > 0 && rng.chance(1, one_in) {
            config_change::draw(&mut self.config, &mut self.store, &shared.options.server, &mut rng)
        } else {
            String::new()
        };
        let changed = if self.older { format!("{changed}, of the last release") } else { changed };
        shared.record(&RunEvent::Started {
            server: id,
            incarnation,
            sessions: self.config.sessions,
            drifts: drift != 0,
            changed: &changed,
        });
        if self.bit_rot == BitRot::Found {
            self.wipe(shared);
        }
        self.disk.borrow_mut().begin(shared.now);
        let opened = self.open();
        let ends = self.disk.borrow().cursor();
        self.maybe_cut_recovery(shared);
        lanes::record(&self.disk, id, shared);
        if let Err(panic) = &opened {
            shared.panicked("opening the store", panic);
        }
        let opened = opened.unwrap_or_else(Err);
        self.phase = Phase::Recovering(Box::new(Booting(opened)));
        let ready = Instant(ends.0 + STARTUP);
        shared.at(ready, Event::Recovered { server: id, incarnation });
    }

    /// Opens the store. The outer error is a panic, the inner one the store's error.
    fn open(&self) -> Result<Result<Opened<SimFs>, String>, String> {
        let (log, snapshots) = SimFs::both(&self.disk);
        let store = self.store;
        guard::catch(|| storage_fs::open(log, snapshots, store).map_err(|e| e.to_string()))
    }

    /// Interrupts some recoveries in the middle of a disk operation.
    fn maybe_cut_recovery(&mut self, shared: &mut Shared) {
        if !shared.options.faults.has(Fault::NodeCrashInRecovery)
            || !shared.is_faulty()
            || !self.rng.chance(1, 3)
        {
            return;
        }
        let spans = self.disk.borrow().spans();
        if spans.is_empty() {
            return;
        }
        let span = *self.rng.pick(&spans);
        let at = Instant(self.rng.range(span.begin.0, span.end.0));
        let how = self.draw_crash(shared);
        shared
            .at(at, Event::CrashInRecovery { server: self.id, incarnation: self.incarnation, how });
    }

    /// Recovery is over: the server starts.
    pub fn recovered(&mut self, incarnation: u64, shared: &mut Shared) {
        let Phase::Recovering(booting) = &mut self.phase else {
            return;
        };
        if incarnation != self.incarnation {
            return;
        }
        let opened = std::mem::replace(&mut booting.0, Err(String::new()));
        match opened {
            Ok(opened) => self.serve(opened, shared),
            Err(why) => self.refused_to_open(&why, shared),
        }
    }

    fn serve(&mut self, mut opened: Opened<SimFs>, shared: &mut Shared) {
        if self.bit_rot != BitRot::No {
            shared.check(Check::REFUSES, Ok(()));
        }
        self.bit_rot = BitRot::No;
        self.damaged_files.clear();
        let (id, incarnation) = (self.id, self.incarnation);
        let recovered = std::mem::take(&mut opened.recovered);
        let notes = std::mem::take(&mut opened.notes);
        let last = disk_audit::last_of(&recovered);
        shared.record(&RunEvent::Recovered {
            server: id,
            incarnation,
            state: &recovered.state,
            last,
            notes: &notes,
            promise_lost: recovered.state.accepted_epoch < self.promised,
        });
        let replayed: Vec<Zxid> = recovered.entries.iter().map(|entry| entry.zxid).collect();
        let seed = shared.seeds.stream("core", id.0 << 32 | incarnation).word();
        let config = self.config_of_release();
        match guard::catch(|| Server::recover(config, seed, recovered)) {
            Ok(Ok(server)) => {
                let looks = shared.seeds.stream("looks", id.0 << 32 | incarnation);
                let pauses = shared.seeds.stream("pauses", id.0 << 32 | incarnation);
                let mut quiet = shared.seeds.stream("quiet", id.0 << 32 | incarnation);
                let quiet = quiet.magnitude(20, QUIET_MS) * 1_000_000;
                let lanes = Lanes::new(id, incarnation, opened, [looks, pauses], quiet);
                let odd = shared.seeds.stream("buggify", id.0 << 32 | incarnation);
                let seed = shared.seeds.stream("node/throttle", id.0 << 32 | incarnation).word();
                let now = self.clock.read(shared.now).mono;
                let limits = shared.options.server.client_limits();
                let gate = Gate::new(&limits.throttle, now);
                let config = Arc::new(self.config_of_release());
                let turn = shared.options.server.turn_limits();
                let peers = shared.options.driver_peers(server.ensemble_id(), self.older);
                let driver = Driver::new(config.clone(), limits, peers, turn, seed, now)
                    .with_four_letter(process::four_letter(&config, &shared.options))
                    .with_members(process::members(&config));
                let parts = (driver, gate, process::Operators::new(&config, now));
                let mut process =
                    Process::new(&config, incarnation, server, parts, lanes, replayed, odd);
                process.set_older(self.older);
                process.on_oracle(shared.permitted == Some(id), shared);
                process.begin(shared);
                self.phase = Phase::Up(Box::new(process));
            }
            Ok(Err(corrupt)) => shared.check(Check::RECOVERS, Err(corrupt.to_string())),
            Err(panic) => shared.panicked(&format!("s{id}, Server::recover"), &panic),
        }
    }

    /// The store has refused to open. That is correct only after a disk error, or if the disk is
    /// damaged.
    fn refused_to_open(&mut self, why: &str, shared: &mut Shared) {
        let (server, incarnation) = (self.id, self.incarnation);
        if self.disk.borrow().failed().is_none() {
            if !matches!(self.bit_rot, BitRot::Perhaps | BitRot::UnderThisBoot) {
                let evidence = format!("s{server} cannot open its store: {why}");
                return shared.check(Check::RECOVERS, Err(evidence));
            }
            self.bit_rot = BitRot::Found;
            let needless = self.could_recover(shared.now).then(|| {
                let files = self.damaged_files.join(", ");
                format!("s{server} cannot open its store, and could without {files}: {why}")
            });
            shared.check(Check::REFUSES, needless.map_or(Ok(()), Err));
            shared.saw(Sometimes::DamageRefused);
            shared.after(1, Event::Crash { server, incarnation, how: Crash::Kill });
            return shared.after(2, Event::Start { server });
        }
        let how = self.draw_crash(shared);
        shared.after(1, Event::Crash { server: self.id, incarnation: self.incarnation, how });
    }

    /// The oracle permits this server to go on without the other voter, or does not any more. A
    /// process asks it at its start.
    pub fn on_oracle(&mut self, permits: bool, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase {
            process.on_oracle(permits, shared);
        }
    }

    /// Runs a turn of the process.
    pub fn wake(&mut self, incarnation: u64, shared: &mut Shared) {
        let Phase::Up(process) = &mut self.phase else {
            return;
        };
        if incarnation != self.incarnation {
            return;
        }
        let sampled = process.run(&self.clock, self.slowness, &self.disk, shared);
        if process.differs() {
            // The next start sets the data aside.
            self.bit_rot = BitRot::Perhaps;
        }
        if process.has_halted() && !self.crash_planned {
            self.crash_planned = true;
            let how = self.power(shared);
            let after = self.rng.range(1, 50_000_000);
            shared.after(after, Event::Crash { server: self.id, incarnation, how });
        }
        if sampled {
            self.examine(shared);
        }
    }

    /// Lets the process check whether its log is idle.
    pub fn log_is_idle(&mut self, incarnation: u64, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase
            && incarnation == self.incarnation
        {
            process.log_is_idle(&self.disk, shared);
        }
    }

    /// A worker of the disk has finished.
    pub fn lane_done(&mut self, incarnation: u64, lane: Lane, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase
            && incarnation == self.incarnation
        {
            process.lane_done(lane, &self.disk, shared);
        }
    }

    /// A deadline of the server is due.
    pub fn deadline(&mut self, incarnation: u64, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase
            && incarnation == self.incarnation
        {
            process.deadline(shared);
        }
    }

    /// Does a connection attempt of a client or another server succeed? `None`: it gets no answer.
    pub fn accept(
        &mut self,
        conn: ConnId,
        from: Party,
        port: Port,
        shared: &mut Shared,
    ) -> Option<bool> {
        match &mut self.phase {
            Phase::Up(process) if !process.is_ending() => {
                process.accept(conn, from, port, shared);
                Some(true)
            }
            Phase::Up(_) | Phase::Recovering(_) => Some(false),
            Phase::Down if self.powered_off => None,
            Phase::Down => Some(false),
        }
    }

    /// Reports the result of an attempt to dial another server. Returns whether the process that
    /// dialled still runs.
    pub fn dialled(
        &mut self,
        incarnation: u64,
        dial: PeerDial,
        stands: bool,
        shared: &mut Shared,
    ) -> bool {
        match &mut self.phase {
            Phase::Up(process) if incarnation == self.incarnation && !process.is_ending() => {
                process.dialled(dial, stands, shared);
                true
            }
            Phase::Up(_) | Phase::Recovering(_) | Phase::Down => false,
        }
    }

    /// The servers that have dialled open links to this one.
    pub fn linked_by(&self) -> BTreeSet<ServerId> {
        match &self.phase {
            Phase::Up(process) => process.linked_by(),
            Phase::Recovering(_) | Phase::Down => BTreeSet::new(),
        }
    }

    /// A notification that travels without a connection arrives.
    pub fn notified(&mut self, notified: ReceivedNotification, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase {
            process.notified(notified, shared);
        }
    }

    /// A delivery for the process arrives.
    pub fn arrive(&mut self, conn: ConnId, from: Party, delivery: Delivery, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase {
            process.arrive(conn, from, delivery, shared);
        }
    }

    /// The other end has read bytes of a connection, so the network may have room again.
    pub fn drained(&mut self, conn: ConnId, shared: &mut Shared) {
        if let Phase::Up(process) = &mut self.phase {
            process.drained(conn, shared);
        }
    }

    /// Pauses the process, if there is one. Returns when it continues.
    pub fn pause(&mut self, until: Instant) -> Option<Instant> {
        match &mut self.phase {
            Phase::Up(process) => Some(process.pause(until)),
            Phase::Down | Phase::Recovering(_) => None,
        }
    }

    /// Ends all disturbances: normal speed, the end of a pause, no interrupted step.
    pub fn heal(&mut self, shared: &mut Shared) {
        self.slow_down(1);
        if let Phase::Up(process) = &mut self.phase {
            process.heal(shared);
        }
    }

    /// Draws from the streams of `seeds` from now on.
    pub fn draw_anew(&mut self, seeds: Seeds) {
        self.rng = seeds.stream("node", self.id.0);
        self.disk.borrow_mut().draw_anew(seeds.stream("disk", self.id.0));
        if let Phase::Up(process) = &mut self.phase {
            process.draw_anew(seeds.stream("buggify", self.id.0 << 32 | self.incarnation));
        }
    }

    /// Every step costs `slowness` times as much.
    pub fn slow_down(&mut self, slowness: u64) {
        self.slowness = slowness;
    }

    /// The wall clock jumps by `ms`.
    pub fn step_wall(&mut self, ms: i64) {
        self.clock.step_wall(ms);
    }

    /// Makes the server crash between the outputs of one of its next steps.
    pub fn arm_crash_in_step(&mut self, fate: Rng, how: Crash) {
        if let Phase::Up(process) = &mut self.phase {
            process.arm(fate, how);
        }
    }
}
