//! A server process: the real server and driver, and a host's loop around them as in `net-tokio`.
//!
//! Owns the turns of the loop and their inputs. `turns` has the times of the turns, `inbox` the
//! queue of deliveries, `sockets` the connections, `servers` the network between servers,
//! `notifications` how notifications travel, and `observe` the observations for oracles. Must not
//! decide when the process runs.

mod audits;
mod behind;
mod heartbeats;
mod inbox;
mod known;
mod left;
mod lengths;
mod marks;
mod notifications;
mod observe;
mod operator;
mod orders;
mod releases;
mod reports;
mod servers;
mod sockets;
mod stop;
mod traffic;
mod turns;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use zabkeeper_core::driver::{Driver, SocketId};
use zabkeeper_core::io::{ClientCommand, Outbox, PeerCommand};
use zabkeeper_core::store::{DiskEvent, Lane};
use zabkeeper_core::wire::Id;
use zabkeeper_core::{
    Config, ConnId, Halted, Input, Instant, LinkId, Now, Pressure, Server, ServerId, SessionId,
    Zxid,
};

use super::clock::Clock;
use super::gate::Gate;
use super::lanes::Lanes;
use crate::check::checker::Check;
use crate::check::guard;
use crate::check::observe::Observation;
use crate::engine::seed::Rng;
use crate::faults::buggify::FIRES_ONE_IN;
use crate::faults::catalog::Fault;
use crate::faults::heal::Fate;
use crate::faults::targets::Met;
use crate::machine::fs::{Crash, Disk};
use crate::network::port::Port;
use crate::network::stream::{Delivery, End, Party};
use crate::record::event::RunEvent;
use crate::record::trace::{Kind, plain};
use crate::world::shared::{Event, Shared};
use audits::Audits;
use behind::Behind;
use heartbeats::Heartbeats;
use inbox::Delivered;
use known::Known;
use lengths::Lengths;
pub(super) use notifications::ReceivedNotification;
use observe::{ObservedStatus, observed_status};
pub(super) use operator::{Operators, four_letter};
use orders::Orders;
use releases::Releases;
use reports::Reported;
pub(super) use reports::members;
use sockets::{Socket, socket_id};
use stop::Stopping;
use turns::{SPINS_MAX, Turns};

/// A server that lacks this many transactions of its epoch is far behind.
const FAR_BEHIND: u32 = 100;

/// A running server.
pub(super) struct Process {
    id: ServerId,
    incarnation: u64,
    /// Are its new sessions local?
    begins_local: bool,
    /// Limits on the unanswered requests of one connection, and on the bytes of one answer.
    requests_max: u32,
    record_bytes: usize,
    server: Server,
    driver: Driver,
    gate: Gate,
    operators: Operators,
    lanes: Lanes,
    sockets: BTreeMap<SocketId, Socket>,
    /// Sockets that wait until the driver's interest changes.
    held: BTreeSet<SocketId>,
    /// Sockets for whose output the network has no room.
    blocked: BTreeSet<SocketId>,
    known: Known,
    /// Learners that it is synchronizing.
    behind: Behind,
    releases: Releases,
    /// The role in the log; `None` for a standalone server.
    reported: Option<Reported>,
    /// Random streams of the traffic with each other party.
    between: BTreeMap<Party, Rng>,
    /// Random stream of sites that force unlikely events.
    odd: Rng,
    inbox: VecDeque<Delivered>,
    out: Outbox,
    orders: Orders,
    /// Transactions that are logged and not yet applied.
    unapplied: VecDeque<Zxid>,
    applied: Zxid,
    /// The status that was last reported to the oracles.
    observed: ObservedStatus,
    /// The version of the configuration in force that was last reported to the oracles.
    config_version: Zxid,
    /// The local sessions that were last reported to the oracles.
    locals: Vec<SessionId>,
    /// Since when it does not read from clients.
    reads_paused_since: Option<Instant>,
    turns: Turns,
    audits: Audits,
    heartbeats: Heartbeats,
    /// The process crashes between the next outputs.
    armed: Option<(Rng, Crash)>,
    /// The process crashes between the outputs of the last step, because of a rule; with the number
    /// of outputs before that step.
    cut: Option<(Met, Lengths)>,
    /// Rules with disk faults that were met in this turn.
    disk_faults: Vec<Met>,
    ending: bool,
    stopping: Option<Stopping>,
    halted: bool,
    /// When there was last no room for a snapshot.
    lacked_room: Option<Instant>,
    /// When the longest wait was last reported.
    waits_observed: Instant,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process")
            .field("id", &self.id)
            .field("incarnation", &self.incarnation)
            .finish()
    }
}

impl Process {
    pub(super) fn new(
        config: &Config,
        incarnation: u64,
        server: Server,
        (driver, gate, operators): (Driver, Gate, Operators),
        lanes: Lanes,
        replayed: Vec<Zxid>,
        odd: Rng,
    ) -> Process {
        let status = server.status();
        Process {
            id: config.id(),
            incarnation,
            begins_local: config.sessions.local,
            requests_max: config.limits.requests_per_conn,
            record_bytes: config.limits.record_bytes,
            server,
            driver,
            gate,
            operators,
            lanes,
            sockets: BTreeMap::new(),
            held: BTreeSet::new(),
            blocked: BTreeSet::new(),
            known: Known::default(),
            behind: Behind::default(),
            releases: Releases::default(),
            reported: (!config.members().alone()).then(Reported::default),
            between: BTreeMap::new(),
            odd,
            inbox: VecDeque::new(),
            out: Outbox::default(),
            orders: Orders::default(),
            unapplied: replayed.into(),
            applied: status.applied,
            observed: observed_status(&status),
            config_version: Zxid::ZERO,
            locals: Vec::new(),
            reads_paused_since: None,
            turns: Turns::new(config.id(), incarnation),
            audits: Audits::default(),
            heartbeats: Heartbeats::default(),
            armed: None,
            cut: None,
            disk_faults: Vec::new(),
            ending: false,
            stopping: None,
            halted: false,
            lacked_room: None,
            waits_observed: Instant(0),
        }
    }

    /// Begins the process.
    pub(super) fn begin(&mut self, shared: &mut Shared) {
        self.observe_config(shared);
        self.record_status(&self.server.status(), true, shared);
        self.ask_to_run(shared);
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    pub(super) fn lacked_room(&self) -> Option<Instant> {
        self.lacked_room
    }

    /// Has its leader found that its data differs from the ensemble's?
    pub(super) fn differs(&self) -> bool {
        matches!(self.server.halted(), Some(Halted::Differs { .. }))
    }

    pub(super) fn has_halted(&self) -> bool {
        self.halted
    }

    /// How many snapshots it knows of, if its disk has no pending command, every completion has
    /// been processed, and no snapshot of a leader is being loaded: that one's file is there
    /// already (seeds 0x11290200059f and 0x112902001e11 of the swarm at 1dddf9d).
    pub(super) fn snapshots_at_rest(&self) -> Option<usize> {
        let status = self.server.status();
        let rests = self.lanes.load() == 0
            && !self.server.is_loading()
            && self.inbox.is_empty()
            && !self.driver.has_work()
            && !self.ending;
        (rests && status.halted.is_none()).then_some(status.snapshots)
    }

    pub(super) fn unrest(&self, outside: &BTreeMap<ServerId, Fate>) -> Option<String> {
        let (status, backlog) = (self.server.status(), self.server.backlog());
        let buffered: usize = self.sockets.values().map(|socket| socket.received.len()).sum();
        let counts = [
            ("inputs waiting", self.inbox.len() + usize::from(self.driver.has_work())),
            ("commands at the disk", self.lanes.load()),
            ("proposals outstanding", status.outstanding),
            ("connections not read", self.held.len()),
            ("connections whose output does not leave", self.blocked_outputs(outside)),
            ("bytes unread", buffered),
            ("snapshots running", usize::from(status.snapshot_running)),
        ];
        let counts = counts.into_iter().chain(left::kinds(&backlog));
        let counts = counts.filter(|(_, count)| *count > 0);
        let mut busy: Vec<String> = counts.map(|(what, count)| format!("{count} {what}")).collect();
        if !status.serving {
            busy.push("does not serve".to_owned());
        }
        (!busy.is_empty()).then(|| format!("s{}: {}", self.id, busy.join(", ")))
    }

    /// Pauses the process. Returns when it continues: another pause may last longer.
    pub(super) fn pause(&mut self, until: Instant) -> Instant {
        self.turns.pause(until)
    }

    pub(super) fn heal(&mut self, shared: &mut Shared) {
        self.armed = None;
        self.turns.end_pause(shared.now);
        self.ask_to_run(shared);
    }

    /// Random streams of pairs are derived again, from the current seeds, when they are next used.
    pub(super) fn draw_anew(&mut self, odd: Rng) {
        self.between.clear();
        self.odd = odd;
    }

    /// The random stream of its traffic with `other`, which does not depend on traffic with third
    /// parties.
    fn between(&mut self, other: Party, shared: &Shared) -> &mut Rng {
        let (id, incarnation) = (Party::Server(self.id), self.incarnation);
        self.between
            .entry(other)
            .or_insert_with(|| shared.seeds.stream(&format!("net/{id}+{other}"), incarnation))
    }

    pub(super) fn arm(&mut self, rng: Rng, how: Crash) {
        self.armed = Some((rng, how));
    }

    pub(super) fn accept(&mut self, conn: ConnId, from: Party, port: Port, shared: &mut Shared) {
        self.inbox.push_back(Delivered::Accepted(socket_id(conn, from), from, port));
        self.ask_to_run(shared);
    }

    pub(super) fn arrive(
        &mut self,
        conn: ConnId,
        from: Party,
        delivery: Delivery,
        shared: &mut Shared,
    ) {
        if matches!(delivery, Delivery::Nothing | Delivery::Later(_)) {
            return;
        }
        if delivery == Delivery::Reset && self.between(from, shared).chance(1, 2) {
            inbox::forget_bytes(&mut self.inbox, conn);
        }
        let id = socket_id(conn, from);
        self.inbox.push_back(match delivery {
            Delivery::Bytes(bytes) => Delivered::Bytes(id, bytes),
            Delivery::Closed | Delivery::Reset | Delivery::Nothing | Delivery::Later(_) => {
                Delivered::Gone(id)
            }
        });
        self.ask_to_run(shared);
    }

    pub(super) fn drained(&mut self, conn: ConnId, shared: &mut Shared) {
        if !self.held.is_empty()
            || self.blocked.contains(&SocketId::Client(conn))
            || self.blocked.contains(&SocketId::Server(LinkId(conn.0)))
        {
            self.ask_to_run(shared);
        }
    }

    pub(super) fn lane_done(&mut self, lane: Lane, disk: &RefCell<Disk>, shared: &mut Shared) {
        let event = self.lanes.done(lane, shared);
        let completes = event.is_some();
        shared.note(Kind::Completion, (self.id.0, lane as u64), &[u8::from(completes)], || {
            format!("s{} {lane:?} lane{}", self.id, if completes { ", ends a command" } else { "" })
        });
        if let Some(event) = event {
            self.inbox.push_back(Delivered::Disk(event));
        }
        if self.turns.is_free(shared.now) && !self.ending {
            self.lanes.start(disk, shared);
        }
        self.ask_to_run(shared);
    }

    /// Checks whether the log is idle.
    pub(super) fn log_is_idle(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) {
        if !self.ending {
            self.lanes.check_idle(disk, shared);
        }
    }

    /// Has it recorded the end of its log, and written nothing since?
    pub(super) fn has_recorded_end(&self) -> bool {
        self.lanes.has_recorded_end()
    }

    pub(super) fn deadline(&mut self, shared: &mut Shared) {
        if self.turns.fires(shared.now) {
            self.ask_to_run(shared);
        }
    }

    pub(super) fn ask_to_run(&mut self, shared: &mut Shared) {
        if !self.ending {
            self.turns.ask(shared);
        }
    }

    /// Runs one turn of the host's loop. Returns whether the disk is to be audited.
    pub(super) fn run(
        &mut self,
        clock: &Clock,
        slowness: u64,
        disk: &RefCell<Disk>,
        shared: &mut Shared,
    ) -> bool {
        if self.ending || !self.turns.begin(shared) {
            return false;
        }
        if self.turns.stood_still() && self.odd.chance(1, 2) {
            inbox::disorder(&mut self.inbox, &mut self.odd);
        }
        let now = clock.read(shared.now);
        for _ in 0..shared.options.server.batch_inputs {
            let Some(delivered) = self.inbox.pop_front() else { break };
            self.take(now, delivered, shared);
        }
        for id in self.blocked.clone() {
            self.flush_socket(now, id, shared);
        }
        for id in std::mem::take(&mut self.held) {
            self.attend(now, id, shared);
        }
        self.driver.begin_turn(now);
        self.take_notes(now, shared);
        self.out.cost = 0;
        let mut steps = 0;
        while !self.ending
            && let Some(input) = self.driver.next_input(now, &self.server, self.out.cost)
        {
            self.out.cost = 0;
            self.step(now, input, shared);
            steps += 1;
        }
        shared.schedule_arrivals();
        self.inject_disk_faults(disk, shared);
        self.dispatch(now, disk, shared);
        self.observe_longest_wait(clock, shared);
        self.turns.end(steps * shared.options.server.step_ns * slowness, shared.now);
        self.check_stop(now, shared);
        self.plan(clock, shared);
        self.audits.is_due(shared.options.disk_audit_txns) && !self.ending
    }

    /// Plans the next turn.
    fn plan(&mut self, clock: &Clock, shared: &mut Shared) {
        if self.ending || self.halted {
            return;
        }
        if !self.inbox.is_empty() || self.driver.has_work() {
            self.ask_to_run(shared);
        }
        let Some(deadline) = self.driver.next_deadline(&self.server) else {
            return;
        };
        let at = self.late(clock.when(deadline), shared);
        if at <= shared.now {
            let holds = if self.turns.spin() {
                Ok(())
            } else {
                Err(format!(
                    "s{} was woken {SPINS_MAX} times at its deadline, {deadline} by its own clock, \
                     and asks to be woken \
                     then again, for {:?}",
                    self.id,
                    self.server.next_deadline()
                ))
            };
            shared.check(Check::BOUNDED, holds);
            self.ask_to_run(shared);
            return;
        }
        self.turns.plan(at, shared);
    }

    /// Delays some deadlines, if the run has that fault. A deadline that was planned before is not
    /// delayed again.
    fn late(&mut self, at: Instant, shared: &Shared) -> Instant {
        let slack = shared.options.server.timer_slack_us * 1_000;
        if slack == 0
            || self.turns.covers(at)
            || at <= shared.now
            || !self.odd.chance(1, FIRES_ONE_IN)
        {
            return at;
        }
        Instant(at.0 + self.odd.below(slack))
    }

    fn take(&mut self, now: Now, delivered: Delivered, shared: &mut Shared) {
        match delivered {
            Delivered::Accepted(id, from, port) => self.accepted(now, id, (from, port), shared),
            Delivered::Dialled(dial, stands) => self.take_dialled(now, dial, stands, shared),
            Delivered::Bytes(id, bytes) => self.received(now, id, &bytes, shared),
            Delivered::Gone(id) => self.gone(now, id, shared),
            Delivered::Notified(notified) => self.take_notification(notified, shared),
            Delivered::Disk(event) => {
                if matches!(event, DiskEvent::SnapshotFailed { .. }) {
                    self.lacked_room = Some(shared.now);
                }
                self.driver.push(Input::Disk(event));
            }
        }
    }

    fn step(&mut self, now: Now, input: Input, shared: &mut Shared) {
        if self.ending {
            return;
        }
        self.observe_input(now, &input, shared);
        let read = match &input {
            Input::Disk(DiskEvent::LogRead { found: Ok(entries), .. }) => entries.len(),
            Input::Disk(_)
            | Input::Client(..)
            | Input::Peer(..)
            | Input::Election(..)
            | Input::EnsembleConfig(..)
            | Input::Stop
            | Input::Oracle(_)
            | Input::Timeout => 0,
        };
        let failed = matches!(input, Input::Disk(DiskEvent::Failed(_)));
        let before = Lengths::of(&self.out);
        let stepped = guard::catch(|| self.server.step(now, input, &mut self.out));
        if let Err(panic) = stepped {
            self.ending = true;
            return shared.panicked(&format!("s{}, Server::step", self.id), &panic);
        }
        self.reads_paused_since = match self.server.pressure() {
            Pressure::PauseClients => self.reads_paused_since.or(Some(shared.now)),
            Pressure::Accept => None,
        };
        let status = self.server.status();
        if let Some(halted @ Halted::Inapplicable { .. }) = &status.halted {
            self.ending = true;
            return shared.panicked(&format!("s{}, apply", self.id), &halted.to_string());
        }
        self.observe_outputs(before, &status, shared);
        if failed {
            self.halted = status.halted.is_some();
            let holds = if self.halted { Ok(()) } else { Err(format!("s{}", self.id)) };
            shared.check(Check::HALTS, holds);
        }
        let grown = Lengths::of(&self.out).sum() - before.sum();
        if grown > 64 {
            self.check_bound(grown, read, &status, shared);
        }
    }

    /// Hands the outputs of the turn to their sinks. If a crash is armed, only a prefix of each
    /// sink leaves.
    fn dispatch(&mut self, now: Now, disk: &RefCell<Disk>, shared: &mut Shared) {
        let mut out = std::mem::take(&mut self.out);
        if !out.is_empty() {
            let text = || plain::from_server(Some(self.id), &out.to_string(), &shared.net);
            shared.recorder.trace.outputs(shared.now, self.id, text);
        }
        let rule = self.cut.take().map(|cut| self.end_at_mark(cut, shared));
        let armed = self.armed.take_if(|_| rule.is_none() && Lengths::of(&out).sum() > 1);
        if armed.is_some() {
            let fault = Fault::NodeCrashInStep;
            shared.record(&RunEvent::LateFault { fault, server: self.id });
        }
        let ends = rule.or(armed.map(|(rng, how)| (rng, how, Lengths::default())));
        let ends = ends.map(|(mut rng, how, before)| {
            before.cut(&mut out, &mut rng);
            self.ending = true;
            (rng, how)
        });
        self.note_proposals(&out);
        self.driver.observe(&out);
        out.notices.clear();
        for command in out.disk.drain(..) {
            self.lanes.push(command);
        }
        self.send_notifications(&mut out.election, shared);
        self.send(now, &mut out, shared);
        self.supply(disk);
        let until = self.lanes.start(disk, shared);
        if let Some((mut rng, how)) = ends {
            let at = Instant(rng.range(shared.now.0, until.0.max(shared.now.0 + 1)));
            shared.at(at, Event::Crash { server: self.id, incarnation: self.incarnation, how });
        }
        self.out = out;
    }
}
