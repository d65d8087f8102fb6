//! A server process: the real server, and the driver's loop around it as the shipped driver has it.
//!
//! Owns connections, the inbox and the order in which inputs are taken. Must not decide when it runs.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bytes::{Bytes, BytesMut};
use storage_fs::{LogLane, SnapshotLane};
use zabkeeper_core::io::{ClientCommand, ClientEvent, DiskCommand, DiskEvent, Lane, Outbox};
use zabkeeper_core::wire::{ClientFrames, FirstFrame, MAX_FRAME_DEFAULT};
use zabkeeper_core::{ConnId, Input, Instant, Malformed, Now, Pressure, Server, ServerId, Zxid};

use super::clock::Clock;
use super::lanes::Lanes;
use crate::faults::Fault;
use crate::fs::{Crash, Disk, SimFs};
use crate::guard;
use crate::judge::Check;
use crate::observe::Observation;
use crate::seed::Dice;
use crate::shared::{Event, Shared};
use crate::stream::{Delivery, End};
use crate::trace::Kind;

/// Bytes on their way to a client above which its requests are not read.
const OUTBOUND_MAX: usize = 64 << 10;
/// Digests are compared after so many applied transactions at least; with many nodes after as many as pay for the visit.
const DIGEST_EVERY: u64 = 16;
/// Ground truth is examined after so many applied transactions at least; a long log is replayed less often.
const TRUTH_EVERY: u64 = 128;
/// A deadline that stays due so many times in a row is one that the server does not act on.
const SPINS_MAX: u32 = 1_000;

/// A running server.
pub(super) struct Process {
    id: ServerId,
    life: u64,
    server: Server,
    lanes: Lanes,
    conns: BTreeMap<ConnId, Conn>,
    /// Connections with bytes that are not read for now.
    held: BTreeSet<ConnId>,
    inbox: VecDeque<Delivered>,
    out: Outbox,
    /// Logged and not yet applied.
    unapplied: VecDeque<Zxid>,
    applied: Zxid,
    /// Requests handed to the server and not answered.
    unanswered: u64,
    /// When the process runs next, if it is to.
    wake_at: Option<Instant>,
    deadline_at: Option<Instant>,
    /// Not before: it computes, or is paused.
    busy_until: Instant,
    spins: u32,
    /// Transactions applied in this life.
    commits: u64,
    /// How many it will be when the next digest is taken, and when ground truth is next examined.
    digest_due: u64,
    truth_due: u64,
    /// Ends in the middle of the next outputs.
    armed: Option<(Dice, Crash)>,
    ending: bool,
    halted: bool,
}

/// What waits to be taken by the loop.
#[derive(Debug)]
enum Delivered {
    Accepted(ConnId),
    Bytes(ConnId, Bytes),
    Gone(ConnId),
    /// This process has closed it, and owes the server the answer.
    Closed(ConnId),
    Disk(DiskEvent),
}

#[derive(Debug)]
struct Conn {
    frames: ClientFrames,
    buffer: BytesMut,
    unanswered: u64,
}

impl std::fmt::Debug for Process {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Process").field("id", &self.id).field("life", &self.life).finish()
    }
}

impl Process {
    pub(super) fn new(
        id: ServerId,
        life: u64,
        server: Server,
        log: LogLane<SimFs>,
        snapshots: SnapshotLane<SimFs>,
        replayed: Vec<Zxid>,
    ) -> Process {
        let applied = server.status().applied;
        Process {
            id,
            life,
            server,
            lanes: Lanes::new(id, life, log, snapshots),
            conns: BTreeMap::new(),
            held: BTreeSet::new(),
            inbox: VecDeque::new(),
            out: Outbox::default(),
            unapplied: replayed.into(),
            applied,
            unanswered: 0,
            wake_at: None,
            deadline_at: None,
            busy_until: Instant(0),
            spins: 0,
            commits: 0,
            digest_due: DIGEST_EVERY,
            truth_due: TRUTH_EVERY,
            armed: None,
            ending: false,
            halted: false,
        }
    }

    pub(super) fn server(&self) -> &Server {
        &self.server
    }

    pub(super) fn is_ending(&self) -> bool {
        self.ending
    }

    pub(super) fn has_halted(&self) -> bool {
        self.halted
    }

    pub(super) fn unrest(&self) -> Option<String> {
        let status = self.server.status();
        let buffered: usize = self.conns.values().map(|conn| conn.buffer.len()).sum();
        let counts = [
            ("inputs waiting", self.inbox.len()),
            ("commands at the disk", self.lanes.load()),
            ("proposals outstanding", status.outstanding),
            ("connections not read", self.held.len()),
            ("bytes unread", buffered),
            ("not serving", usize::from(!status.serving)),
            ("snapshots running", usize::from(status.snapshot_running)),
        ];
        let busy: Vec<String> = counts
            .iter()
            .filter(|(_, count)| *count > 0)
            .map(|(what, count)| format!("{count} {what}"))
            .collect();
        (!busy.is_empty()).then(|| format!("s{}: {}", self.id, busy.join(", ")))
    }

    pub(super) fn pause(&mut self, until: Instant) {
        self.busy_until = self.busy_until.max(until);
    }

    pub(super) fn resume(&mut self, shared: &mut Shared) {
        self.busy_until = self.busy_until.min(shared.now);
        self.ask_to_run(shared);
    }

    pub(super) fn arm(&mut self, dice: Dice, how: Crash) {
        self.armed = Some((dice, how));
    }

    pub(super) fn accept(&mut self, conn: ConnId, shared: &mut Shared) {
        self.inbox.push_back(Delivered::Accepted(conn));
        self.ask_to_run(shared);
    }

    pub(super) fn arrive(
        &mut self,
        conn: ConnId,
        delivery: Delivery,
        dice: &mut Dice,
        shared: &mut Shared,
    ) {
        match delivery {
            Delivery::Nothing | Delivery::Later(_) => return,
            Delivery::Bytes(bytes) => self.inbox.push_back(Delivered::Bytes(conn, bytes)),
            Delivery::Closed => self.inbox.push_back(Delivered::Gone(conn)),
            Delivery::Reset => {
                // A reset may take with it what has arrived and was not read.
                if dice.chance(1, 2) {
                    let unread = |d: &Delivered| matches!(d, Delivered::Bytes(c, _) if *c == conn);
                    self.inbox.retain(|delivered| !unread(delivered));
                }
                self.inbox.push_back(Delivered::Gone(conn));
            }
        }
        self.ask_to_run(shared);
    }

    pub(super) fn drained(&mut self, shared: &mut Shared) {
        if !self.held.is_empty() {
            self.ask_to_run(shared);
        }
    }

    pub(super) fn lane_done(&mut self, lane: Lane, disk: &RefCell<Disk>, shared: &mut Shared) {
        let event = self.lanes.done(lane);
        let told = event.is_some();
        shared.note(Kind::Completion, (self.id.0, lane as u64), &[u8::from(told)], || {
            format!("s{} {lane:?} lane: {event:?}", self.id)
        });
        if let Some(event) = event {
            self.inbox.push_back(Delivered::Disk(event));
        }
        if self.busy_until <= shared.now && !self.ending {
            self.lanes.start(disk, shared);
        }
        self.ask_to_run(shared);
    }

    pub(super) fn deadline(&mut self, shared: &mut Shared) {
        if self.deadline_at.is_some_and(|planned| planned <= shared.now) {
            self.deadline_at = None;
            self.ask_to_run(shared);
        }
    }

    pub(super) fn ask_to_run(&mut self, shared: &mut Shared) {
        let at = self.busy_until.max(shared.now);
        if self.wake_at.is_none_or(|planned| at < planned) && !self.ending {
            self.wake_at = Some(at);
            shared.at(at, Event::Wake { server: self.id, life: self.life });
        }
    }

    /// One turn of the driver's loop. Says whether ground truth is to be examined.
    pub(super) fn run(
        &mut self,
        clock: &Clock,
        slowness: u64,
        disk: &RefCell<Disk>,
        shared: &mut Shared,
    ) -> bool {
        if self.ending || self.wake_at.is_none_or(|planned| shared.now < planned) {
            return false;
        }
        if shared.now < self.busy_until {
            // It was paused after this was planned.
            self.wake_at = None;
            self.ask_to_run(shared);
            return false;
        }
        self.wake_at = None;
        let steps_before = shared.tally.counts.steps;
        let now = clock.read(shared.now);
        for _ in 0..shared.options.server.batch_inputs {
            match self.inbox.pop_front() {
                None => break,
                Some(delivered) => self.take(now, delivered, shared),
            }
        }
        if self.server.next_deadline().is_some_and(|deadline| deadline <= now.mono) {
            self.step(now, Input::Timeout, shared);
        }
        for conn in std::mem::take(&mut self.held) {
            self.read(now, conn, shared);
        }
        self.dispatch(disk, shared);
        let steps = shared.tally.counts.steps - steps_before;
        self.busy_until = Instant(shared.now.0 + steps * shared.options.server.step_ns * slowness);
        self.plan(clock, shared);
        let due = self.commits >= self.truth_due;
        if due {
            self.truth_due = self.commits + TRUTH_EVERY.max(self.commits / 4);
        }
        due && !self.ending
    }

    /// Arranges for the next turn.
    fn plan(&mut self, clock: &Clock, shared: &mut Shared) {
        if self.ending || self.halted {
            return;
        }
        let readable = self.held.iter().any(|conn| self.may_read(*conn, shared));
        if !self.inbox.is_empty() || readable {
            self.ask_to_run(shared);
        }
        let Some(deadline) = self.server.next_deadline() else {
            return;
        };
        let at = clock.when(deadline);
        if at <= shared.now {
            self.spins += 1;
            let holds = if self.spins < SPINS_MAX {
                Ok(())
            } else {
                Err(format!("s{} was given its deadline {deadline} {SPINS_MAX} times", self.id))
            };
            shared.hold(Check::BOUNDED, holds);
            self.ask_to_run(shared);
            return;
        }
        self.spins = 0;
        if self.deadline_at.is_none_or(|planned| at < planned) {
            self.deadline_at = Some(at);
            shared.at(at, Event::Deadline { server: self.id, life: self.life });
        }
    }

    fn take(&mut self, now: Now, delivered: Delivered, shared: &mut Shared) {
        match delivered {
            Delivered::Accepted(conn) => {
                let frames = ClientFrames::new(MAX_FRAME_DEFAULT);
                self.conns.insert(conn, Conn { frames, buffer: BytesMut::new(), unanswered: 0 });
            }
            Delivered::Bytes(conn, bytes) => {
                if let Some(state) = self.conns.get_mut(&conn) {
                    state.buffer.extend_from_slice(&bytes);
                    self.read(now, conn, shared);
                }
            }
            Delivered::Gone(conn) => self.gone(now, conn, shared),
            Delivered::Closed(conn) => {
                self.step(now, Input::Client(conn, ClientEvent::Closed), shared);
            }
            Delivered::Disk(event) => {
                let failed = matches!(event, DiskEvent::Failed(_));
                self.step(now, Input::Disk(event), shared);
                if failed {
                    self.halted = self.server.status().halted.is_some();
                    let holds = if self.halted { Ok(()) } else { Err(format!("s{}", self.id)) };
                    shared.hold(Check::HALTS, holds);
                }
            }
        }
    }

    /// The connection is no more: the server is told, if it knew of it.
    fn gone(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        let Some(state) = self.conns.remove(&conn) else {
            return;
        };
        self.held.remove(&conn);
        self.unanswered -= state.unanswered;
        shared.net.close(shared.now, conn, End::Server);
        shared.schedule_arrivals();
        if state.frames.is_open() {
            self.step(now, Input::Client(conn, ClientEvent::Closed), shared);
        }
    }

    /// Should requests of this connection be read?
    fn may_read(&self, conn: ConnId, shared: &Shared) -> bool {
        let window = u64::from(shared.options.server.limits.requests_per_conn);
        self.server.pressure() == Pressure::Accept
            && self.conns.get(&conn).is_some_and(|state| state.unanswered < window)
            && shared.net.under_way(conn, End::Client) < OUTBOUND_MAX
    }

    /// Reads what a connection has brought, as far as it may.
    fn read(&mut self, now: Now, conn: ConnId, shared: &mut Shared) {
        while let Some(state) = self.conns.get(&conn) {
            if state.buffer.is_empty() {
                return;
            }
            if !self.may_read(conn, shared) {
                self.held.insert(conn);
                return;
            }
            match self.read_one(conn) {
                Ok(Some(Read::Event(event))) => {
                    shared.tally.counts.frames += 1;
                    self.step(now, Input::Client(conn, event), shared);
                }
                Ok(Some(Read::Word)) => {
                    shared.net.send(shared.now, conn, End::Server, Bytes::from_static(b"imok"));
                    return self.gone(now, conn, shared);
                }
                Ok(None) => return,
                Err(malformed) => {
                    shared.note(Kind::Conn, (conn.0, 0), b"malformed", || {
                        format!("s{} closes {conn}: {malformed}", self.id)
                    });
                    return self.gone(now, conn, shared);
                }
            }
        }
    }

    fn read_one(&mut self, conn: ConnId) -> Result<Option<Read>, Malformed> {
        let state = self.conns.get_mut(&conn).expect("looked up by the caller");
        if state.frames.is_open() {
            let Some(request) = state.frames.next(&mut state.buffer)? else {
                return Ok(None);
            };
            state.unanswered += 1;
            self.unanswered += 1;
            return Ok(Some(Read::Event(ClientEvent::Request(request))));
        }
        Ok(match state.frames.first(&mut state.buffer)? {
            None => None,
            Some(FirstFrame::Word(_)) => Some(Read::Word),
            Some(FirstFrame::Connect(request)) => Some(Read::Event(ClientEvent::Opened(request))),
        })
    }

    fn step(&mut self, now: Now, input: Input, shared: &mut Shared) {
        if self.ending {
            return;
        }
        shared.tally.counts.steps += 1;
        let (number, what) = summary(&input);
        shared.note(Kind::Step, (self.id.0, number), what, || format!("s{} {input}", self.id));
        let (disk_before, clients_before) = (self.out.disk.len(), self.out.clients.len());
        let stepped = guard::catch(|| self.server.step(now, input, &mut self.out));
        if let Err(panic) = stepped {
            self.ending = true;
            return shared.panicked("Server::step", &panic);
        }
        self.propose(disk_before, shared);
        self.apply(shared);
        self.count_replies(clients_before);
        let grown = (self.out.disk.len() - disk_before) + (self.out.clients.len() - clients_before);
        if grown > 64 {
            self.check_bound(grown, shared);
        }
    }

    /// E2. What a step may cause is bounded by what waits for it: requests, watches, sessions, connections.
    fn check_bound(&self, grown: usize, shared: &mut Shared) {
        let status = self.server.status();
        let waiting = usize::try_from(self.unanswered).unwrap_or(usize::MAX);
        let bound = 1_000 + 4 * (status.watches + status.sessions + self.conns.len()) + 4 * waiting;
        let holds = if grown <= bound { Ok(()) } else { Err(format!("{grown} outputs > {bound}")) };
        shared.hold(Check::BOUNDED, holds);
    }

    fn propose(&mut self, from: usize, shared: &mut Shared) {
        for command in &self.out.disk[from..] {
            if let DiskCommand::Append { entry, .. } = command {
                self.unapplied.push_back(entry.zxid);
                shared.observe(Observation::Proposed { server: self.id, entry });
            }
        }
    }

    /// The tree has moved on: one observation for each transaction, the last one sometimes with a digest.
    fn apply(&mut self, shared: &mut Shared) {
        let status = self.server.status();
        while self.applied < status.applied {
            let zxid = self.unapplied.pop_front().unwrap_or(status.applied);
            self.applied = zxid;
            self.commits += 1;
            shared.tally.counts.commits += 1;
            let sampled = zxid == status.applied && self.commits >= self.digest_due;
            let digest = sampled.then(|| self.server.digest());
            if sampled {
                self.digest_due = self.commits + DIGEST_EVERY.max(status.nodes as u64 / 4);
                shared.tally.counts.digests += 1;
            }
            shared.observe(Observation::Applied { server: self.id, zxid, digest });
        }
    }

    fn count_replies(&mut self, from: usize) {
        for (conn, command) in &self.out.clients[from..] {
            if matches!(command, ClientCommand::Reply(_))
                && let Some(state) = self.conns.get_mut(conn)
            {
                state.unanswered = state.unanswered.saturating_sub(1);
                self.unanswered = self.unanswered.saturating_sub(1);
            }
        }
    }

    /// Hands the outputs on: disk commands to the workers, commands for clients to their connections.
    fn dispatch(&mut self, disk: &RefCell<Disk>, shared: &mut Shared) {
        shared.tally.marks.0 |= self.out.marks.0;
        self.out.marks.0 = 0;
        let mut commands = std::mem::take(&mut self.out.disk);
        let mut clients = std::mem::take(&mut self.out.clients);
        let ends = self.armed.take_if(|_| commands.len() + clients.len() > 1);
        let ends = ends.map(|(mut dice, how)| {
            commands.truncate(dice.upto(commands.len()));
            clients.truncate(dice.upto(clients.len()));
            self.ending = true;
            (dice, how)
        });
        for command in commands.drain(..) {
            self.lanes.push(command);
        }
        self.send(&mut clients, shared);
        let until = self.lanes.start(disk, shared);
        if let Some((mut dice, how)) = ends {
            shared.tally.fault(Fault::NodeCrashInStep);
            let at = Instant(dice.range(shared.now.0, until.0.max(shared.now.0 + 1)));
            shared.at(at, Event::Crash { server: self.id, life: self.life, how });
        }
        self.out.disk = commands;
        self.out.clients = clients;
    }

    /// All frames of one connection leave together.
    fn send(&mut self, clients: &mut Vec<(ConnId, ClientCommand)>, shared: &mut Shared) {
        let mut outbound: BTreeMap<ConnId, BytesMut> = BTreeMap::new();
        for (conn, command) in clients.drain(..) {
            let Some(state) = self.conns.get(&conn) else {
                continue;
            };
            let bytes = outbound.entry(conn).or_default();
            match command {
                ClientCommand::Connected(response) => response.encode(bytes),
                ClientCommand::Reply(reply) => reply.encode(bytes),
                ClientCommand::Event(event) => event.encode(bytes),
                ClientCommand::Close => {
                    let bytes = std::mem::take(bytes).freeze();
                    self.put(conn, bytes, shared);
                    shared.net.close(shared.now, conn, End::Server);
                    self.unanswered -= state.unanswered;
                    self.held.remove(&conn);
                    self.conns.remove(&conn);
                    self.inbox.push_back(Delivered::Closed(conn));
                }
            }
        }
        for (conn, bytes) in outbound {
            self.put(conn, bytes.freeze(), shared);
        }
        shared.schedule_arrivals();
    }

    fn put(&self, conn: ConnId, bytes: Bytes, shared: &mut Shared) {
        if bytes.is_empty() {
            return;
        }
        shared.tally.counts.bytes += bytes.len() as u64;
        shared.note(Kind::Send, (self.id.0, conn.0), &bytes, || {
            format!("s{} -> {conn} {}B", self.id, bytes.len())
        });
        shared.net.send(shared.now, conn, End::Server, bytes);
    }
}

/// One thing read from a connection.
enum Read {
    Event(ClientEvent),
    Word,
}

/// An input as numbers, for the hash; what arrived as bytes is in the hash already.
fn summary(input: &Input) -> (u64, &'static [u8]) {
    match input {
        Input::Timeout => (0, b"timeout"),
        Input::Client(conn, ClientEvent::Opened(_)) => (conn.0, b"opened"),
        Input::Client(conn, ClientEvent::Request(_)) => (conn.0, b"request"),
        Input::Client(conn, ClientEvent::Closed) => (conn.0, b"closed"),
        Input::Disk(DiskEvent::Done(id)) => (id.0, b"done"),
        Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
            (zxid.0 ^ u64::from(*index).rotate_left(40), b"chunk")
        }
        Input::Disk(DiskEvent::Failed(_)) => (0, b"failed"),
    }
}
