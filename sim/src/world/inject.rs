//! Fault injection.
//!
//! Owns when the next fault is injected, its target and its severity. Must not extend what is
//! legal: `fs` and `stream` define which failures a disk or a connection may show.

use zabkeeper_core::{ConnId, Instant, Mode, ServerId};

use super::{World, split};
use crate::check::checker::Check;
use crate::clients::client::Client;
use crate::engine::decisions::Act;
use crate::engine::decisions::Due;
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;
use crate::faults::targets::Met;
use crate::machine::fs::{self, Crash};
use crate::machine::node::Node;
use crate::network::slow::SlowReader;
use crate::network::stream::{Break, End, Party};
use crate::record::event::RunEvent;
use crate::record::injection::Hit;
use crate::record::trace::Kind;
use crate::world::shared::{Event, Shared};

const MS: u64 = 1_000_000;

impl World {
    /// Plans the next injection of a fault with a mean interval.
    pub(super) fn plan_fault(&mut self, fault: Fault) {
        if let Some(mean) = self.shared.options.faults.mean(fault) {
            let after = self.fault_rng[fault as usize].exponential(mean);
            let at = Instant(self.shared.now.0 + after.max(1));
            self.shared.decisions.plan(at, Due::Inject(fault));
        }
    }

    /// Injects a fault with random choices, and plans its next injection.
    pub(super) fn inject(&mut self, fault: Fault) {
        if self.shared.is_faulty() {
            self.plan_fault(fault);
            self.inject_once(fault);
        }
    }

    /// Injects a fault with the choices of a schedule.
    pub(super) fn inject_as(&mut self, fault: Fault, choices: Vec<u64>) {
        if self.shared.is_faulty() {
            self.fault_rng[fault as usize] = Rng::scripted(choices);
            self.inject_once(fault);
        }
    }

    pub(super) fn inject_once(&mut self, fault: Fault) {
        let ends_calls = matches!(fault, Fault::ClientClose | Fault::ClientDuplicate);
        if ends_calls && !self.shared.decisions.is_scripted() {
            self.burst(fault);
        }
        if self.shared.decisions.is_recording() {
            self.fault_rng[fault as usize].record();
        }
        self.shared.decisions.begin();
        self.injecting = Some(fault);
        let hit = self.inject_into_any(fault);
        self.injecting = None;
        self.shared.recorder.counters.faults[fault as usize] += u64::from(hit);
        let choices = self.fault_rng[fault as usize].recorded();
        if hit && self.trips == Some(fault) {
            self.shared.check(Check::TRIP, Err(format!("{fault} was injected")));
        }
        // Whether an armed crash happens shows only later.
        let met = hit || fault == Fault::NodeCrashInStep;
        self.shared.decisions.end(self.shared.now, Act::Inject(fault), choices, met);
    }

    /// In half of the cases all clients issue calls right before one client closes its session or
    /// loses it to another connection, so that these calls are in flight together with the
    /// session's end. In half of those all clients use one path. The calls are ordinary calls, not
    /// choices of the fault: a schedule lists them as its own steps.
    fn burst(&mut self, fault: Fault) {
        let rng = &mut self.fault_rng[fault as usize];
        let calls = if rng.chance(1, 2) { rng.range(1, 3) } else { 0 };
        let paths = self.shared.keys.count();
        let contended = (calls > 0 && rng.chance(1, 2)).then(|| rng.index(paths));
        for client in self.clients.values_mut() {
            client.burst(calls, contended, &mut self.shared);
        }
    }

    /// The random stream of the fault that is injected now.
    pub(super) fn injection_rng(&mut self) -> &mut Rng {
        let fault = self.injecting.expect("asked for while a fault is injected");
        &mut self.fault_rng[fault as usize]
    }

    /// Returns whether the fault finds a target.
    fn inject_into_any(&mut self, fault: Fault) -> bool {
        let servers: Vec<ServerId> = self.nodes.keys().copied().collect();
        let server = *self.fault_rng[fault as usize].pick(&servers);
        self.inject_at(fault, server, None)
    }

    /// A server hit a rule's mark: faults that its process cannot execute itself are injected
    /// here.
    pub(super) fn inject_at_mark(&mut self, met: Met) {
        let Met { rule, server, fault } = met;
        if self.trips == Some(fault) {
            self.shared.check(Check::TRIP, Err(format!("{fault} was injected at a mark")));
        }
        if self.shared.targets.is_injected(rule) {
            return;
        }
        let rng = self.shared.targets.rng(rule);
        let before = std::mem::replace(&mut self.fault_rng[fault as usize], rng);
        self.shared.decisions.begin();
        self.injecting = Some(fault);
        let hit = self.inject_at(fault, server, Some(server));
        self.injecting = None;
        self.shared.recorder.counters.faults[fault as usize] += u64::from(hit);
        let effect = self.shared.decisions.effect();
        let choices = std::mem::replace(&mut self.fault_rng[fault as usize], before).recorded();
        self.shared.targets.injected(met, choices, effect);
    }

    /// `only` limits connections and partitions to those of this server.
    fn inject_at(&mut self, fault: Fault, server: ServerId, only: Option<ServerId>) -> bool {
        self.shared.note(Kind::Fault, (fault as u64, server.0), &[], || fault.name().to_owned());
        let before = self.shared.recorder.injections.list().len();
        let hit = match fault {
            Fault::NodeKill => self.end_server(server, Some(Crash::Kill)),
            Fault::NodePower => self.end_server(server, None),
            Fault::NodeStop => self.stop_server(server),
            Fault::NodeHandOver => self.hand_over(server),
            Fault::NodeKillLeader => self.end_leader(),
            Fault::NodeBlackout => self.black_out(),
            Fault::NodePause => self.pause_server(server),
            Fault::NodeSlow => self.slow_server(server),
            Fault::NodeWall => self.step_wall(server),
            Fault::NodeCrashInStep => self.arm_crash_in_step(server),
            Fault::DiskSlow
            | Fault::DiskStall
            | Fault::DiskWriteError
            | Fault::DiskFull
            | Fault::DiskSnapshotsFull
            | Fault::DiskFsyncError => self.inject_into_disk(fault, server),
            Fault::NetReset => self.inject_into_conn(fault, only, |shared, _, conn| {
                shared.net.break_off(shared.now, conn, Break::Both);
                None
            }),
            Fault::NetHalfOpen => self.inject_into_conn(fault, only, half_open),
            Fault::NetStall => self.inject_into_conn(fault, only, stall),
            Fault::NetRefuse => self.refuse_connections(),
            Fault::NetBadPeer => self.send_bad_peer(server),
            Fault::NetByzantine => self.send_byzantine_peer(server),
            Fault::NetSplit | Fault::NetOneWay | Fault::NetPartial | Fault::NetIsolateLeader => {
                self.part(fault, only)
            }
            Fault::NetStragglers => self.leave_behind(),
            Fault::DiskWipe => self.wipe_disk(server),
            Fault::DiskBitRot => self.damage_disk(server),
            Fault::ClientFreeze => self.inject_into_client(fault, freeze),
            Fault::ClientDeath => self.inject_into_client(fault, die),
            Fault::ClientClose => self.inject_into_client(fault, |client, _, shared| {
                client.close(shared);
                None
            }),
            Fault::ClientRestart => self.inject_into_client(fault, restart),
            Fault::ClientWrongPassword => self.try_wrong_password(server),
            Fault::ClientGarbage => self.send_garbage(server),
            Fault::ClientOperator => self.send_operator(server),
            Fault::ClientDuplicate => self.take_over(server),
            Fault::ClientStorm => self.scatter_clients(),
            Fault::ClientDeaf => self.inject_into_client(fault, stop_reading),
            Fault::ClientSlow => self.inject_into_client(fault, read_slowly),
            // Properties are drawn once per run and have no time.
            Fault::NodeDrift
            | Fault::ClientDrift
            | Fault::NodeCrashInRecovery
            | Fault::DiskTorn
            | Fault::DiskGarbage
            | Fault::DiskNames
            | Fault::NetCut
            | Fault::NetTail
            | Fault::NetVotes => false,
        };
        if hit && self.shared.recorder.injections.list().len() == before {
            self.shared.hit(fault, Hit::Server(server), None);
        }
        hit
    }

    /// `None`: the power fails.
    fn end_server(&mut self, server: ServerId, how: Option<Crash>) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let (running, incarnation) = (node.is_running(), node.incarnation());
        let how = how.unwrap_or_else(|| node.power(shared));
        if let Some(fault) = self.injecting.filter(|_| running) {
            shared.hit(fault, Hit::Server(server), None);
        }
        self.crash(server, incarnation, how);
        running
    }

    /// A server in the role of leader is killed or loses power.
    fn end_leader(&mut self) -> bool {
        let leaders = self.leaders();
        if leaders.is_empty() {
            return false;
        }
        let rng = &mut self.fault_rng[Fault::NodeKillLeader as usize];
        let server = *rng.pick(&leaders);
        let how = if rng.chance(1, 2) { Some(Crash::Kill) } else { None };
        self.end_server(server, how)
    }

    /// Servers in the role of leader, deposed ones included.
    pub(super) fn leaders(&self) -> Vec<ServerId> {
        let leads = |node: &Node| {
            node.status().is_some_and(|s| matches!(s.mode, Mode::Leader | Mode::Standalone))
        };
        self.nodes.values().filter(|node| leads(node)).map(Node::id).collect()
    }

    /// The same, sorted by current epoch, the oldest first.
    pub(super) fn leaders_by_epoch(&self) -> Vec<ServerId> {
        let mut leaders = self.leaders();
        leaders.sort_by_key(|id| self.nodes[id].status().map(|status| status.current_epoch));
        leaders
    }

    /// The power of several machines fails at once; in half of the cases of all machines.
    pub(super) fn black_out(&mut self) -> bool {
        let rng = &mut self.fault_rng[Fault::NodeBlackout as usize];
        let all = rng.chance(1, 2);
        let mut hit = 0;
        for server in self.nodes.keys().copied().collect::<Vec<_>>() {
            let rng = &mut self.fault_rng[Fault::NodeBlackout as usize];
            if all || rng.chance(1, 2) {
                hit += u32::from(self.end_server(server, None));
            }
        }
        hit > 1 || (all && hit > 0)
    }

    /// A crash during recovery, unless the world has been healed since it was drawn.
    pub(super) fn cut_recovery(&mut self, server: ServerId, incarnation: u64, how: Crash) {
        if self.shared.is_faulty() && incarnation == self.nodes[&server].incarnation() {
            let (shared, fault) = (&mut self.shared, Fault::NodeCrashInRecovery);
            shared.record(&RunEvent::LateFault { fault, server });
            self.crash(server, incarnation, how);
        }
    }

    /// A server crashes, and starts again some time later.
    pub(super) fn crash(&mut self, server: ServerId, incarnation: u64, how: Crash) {
        self.let_end(server, incarnation, Some(how));
    }

    /// A server stops gracefully, and starts again some time later.
    pub(super) fn stop_server(&mut self, server: ServerId) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let (up, incarnation) = (node.is_up(), node.incarnation());
        if up {
            shared.hit(Fault::NodeStop, Hit::Server(server), None);
            self.let_end(server, incarnation, None);
        }
        up
    }

    /// A server is told to stop, in three of four cases one that leads, and ends by itself. It
    /// starts again some time later.
    fn hand_over(&mut self, server: ServerId) -> bool {
        let leaders = self.leaders();
        let rng = &mut self.fault_rng[Fault::NodeHandOver as usize];
        let to_leader = rng.chance(3, 4) && !leaders.is_empty();
        let server = if to_leader { *rng.pick(&leaders) } else { server };
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        // As long for the hand-over as for the last answers; a clock may run at half its speed.
        let latest = shared.now.after(shared.options.server.tick() * 4);
        let told = node.begin_stop(latest, shared);
        if told {
            shared.hit(Fault::NodeHandOver, Hit::Server(server), Some(latest));
        }
        told
    }

    /// `None`: the server stops gracefully.
    pub(super) fn let_end(&mut self, server: ServerId, incarnation: u64, how: Option<Crash>) {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        if incarnation != node.incarnation() || !node.is_running() {
            return;
        }
        // The fault's stream decides; without a fault, the server's own stream does.
        let rng = match self.injecting {
            Some(fault) => &mut self.fault_rng[fault as usize],
            None => node.rng(),
        };
        let fate = rng.fork();
        let after = if rng.chance(1, 4) { rng.below(50) } else { rng.range(50, 5_000) };
        match how {
            Some(how) => node.crash(how, fate, shared),
            None => node.stop(fate, shared),
        }
        shared.after(after * MS, Event::Start { server });
        shared.describe(|| format!("it starts again after {after} ms"));
        self.may_hold_down(server);
    }

    fn pause_server(&mut self, server: ServerId) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let tick_ms = u64::from(shared.options.server.tick_ms);
        let rng = &mut self.fault_rng[Fault::NodePause as usize];
        // In half of the cases one to eight ticks, around the timeouts of servers and clients.
        let (any_ms, ticks_ms) = (rng.magnitude(10, 20_000), rng.range(tick_ms, tick_ms * 8));
        let ms = if rng.chance(1, 2) { any_ms } else { ticks_ms };
        let until = Instant(shared.now.0 + ms * MS);
        let awake = node.pause(until);
        shared.describe(|| format!("s{server} for {ms} ms"));
        if let Some(until) = awake {
            shared.hit(Fault::NodePause, Hit::Server(server), Some(until));
        }
        awake.is_some()
    }

    fn slow_server(&mut self, server: ServerId) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let rng = &mut self.fault_rng[Fault::NodeSlow as usize];
        node.slow_down(rng.range(10, 200));
        let after = rng.range(1, 5_000) * MS;
        shared.describe(|| format!("s{server} for {} ms", after / MS));
        shared.after(after, Event::Relief { server });
        shared.hit(Fault::NodeSlow, Hit::Server(server), Some(Instant(shared.now.0 + after)));
        node.is_up()
    }

    fn step_wall(&mut self, server: ServerId) -> bool {
        let (node, _) = split(&mut self.nodes, &mut self.shared, server);
        let rng = &mut self.fault_rng[Fault::NodeWall as usize];
        let ms = i64::try_from(rng.magnitude(1, 10_000_000)).expect("small");
        let ms = if rng.chance(1, 2) { ms } else { -ms };
        node.step_wall(ms);
        self.shared.describe(|| format!("s{server} by {ms} ms"));
        true
    }

    /// Only arms the crash; it is counted when it happens.
    fn arm_crash_in_step(&mut self, server: ServerId) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let rng = &mut self.fault_rng[Fault::NodeCrashInStep as usize];
        let how = node.end_by(rng.chance(1, 2), shared);
        node.arm_crash_in_step(rng.fork(), how);
        shared.describe(|| format!("s{server} will end amid the outputs of a step: {how:?}"));
        false
    }

    fn inject_into_disk(&mut self, fault: Fault, server: ServerId) -> bool {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let rng = &mut self.fault_rng[fault as usize];
        let mut disk = node.disk().borrow_mut();
        let injected = fs::inject(&mut disk, fault, rng, shared.now);
        if injected {
            shared.describe(|| format!("s{server}"));
            shared.hit(fault, Hit::Server(server), disk.faults.until(fault));
        }
        injected
    }

    /// Ends the slow period of a server.
    pub(super) fn relieve(&mut self, server: ServerId) {
        let (node, shared) = split(&mut self.nodes, &mut self.shared, server);
        let ends = (Fault::NodeSlow as u64, server.0);
        shared.note(Kind::Fault, ends, b"end", || format!("{} ends", Fault::NodeSlow));
        node.slow_down(1);
    }

    fn refuse_connections(&mut self) -> bool {
        let ms = self.fault_rng[Fault::NetRefuse as usize].magnitude(50, 5_000);
        self.refusing_until = Instant(self.shared.now.0 + ms * MS);
        self.shared.describe(|| format!("for {ms} ms"));
        self.shared.hit(Fault::NetRefuse, Hit::Clients, Some(self.refusing_until));
        true
    }

    fn inject_into_conn(
        &mut self,
        fault: Fault,
        only: Option<ServerId>,
        inject: impl FnOnce(&mut Shared, &mut Rng, ConnId) -> Option<Instant>,
    ) -> bool {
        let mut session_kind = self.shared.net.session_kind();
        if let Some(server) = only {
            let net = &self.shared.net;
            let has = |parties: [Party; 2]| parties.contains(&Party::Server(server));
            session_kind.retain(|conn| net.parties(*conn).is_some_and(has));
        }
        if session_kind.is_empty() {
            return false;
        }
        // Client connections far outnumber links between servers, so links are picked in half of
        // the cases. They follow the full list, so that recorded choices keep their meaning.
        let between_servers = |conn: &&ConnId| {
            let parties = self.shared.net.parties(**conn);
            parties.is_some_and(|all| all.iter().all(Party::is_server))
        };
        let links: Vec<ConnId> = session_kind.iter().filter(between_servers).copied().collect();
        let favoured = links.iter().cycle().take(session_kind.len());
        let pool: Vec<ConnId> = session_kind.iter().chain(favoured).copied().collect();
        let rng = &mut self.fault_rng[fault as usize];
        let conn = *rng.pick(&pool);
        let ends = self.shared.net.parties(conn);
        if let Some([dialler, acceptor]) = ends {
            self.shared.describe(|| format!("{conn} between {dialler} and {acceptor}"));
        }
        let until = inject(&mut self.shared, rng, conn);
        self.shared.hit(fault, ends.map_or(Hit::Clients, Hit::Conn), until);
        self.shared.schedule_arrivals();
        true
    }

    /// The break that a stall preceded, if faults are still injected.
    pub(super) fn break_as_planned(&mut self, conn: ConnId, how: Break) {
        if self.shared.is_faulty() {
            self.shared.net.break_off(self.shared.now, conn, how);
            self.shared.schedule_arrivals();
        }
    }

    /// Breaks all client connections, so that all clients reconnect at once.
    fn scatter_clients(&mut self) -> bool {
        let conns: Vec<ConnId> = self.clients.values().flat_map(Client::conns).collect();
        for conn in &conns {
            self.shared.net.break_off(self.shared.now, *conn, Break::Both);
        }
        self.shared.schedule_arrivals();
        self.shared.hit(Fault::ClientStorm, Hit::Clients, None);
        conns.len() > 1
    }

    fn inject_into_client(
        &mut self,
        fault: Fault,
        inject: impl FnOnce(&mut Client, &mut Rng, &mut Shared) -> Option<Instant>,
    ) -> bool {
        let ids: Vec<_> = self.clients.keys().copied().collect();
        if ids.is_empty() {
            return false;
        }
        let rng = &mut self.fault_rng[fault as usize];
        let id = *rng.pick(&ids);
        let client = self.clients.get_mut(&id).expect("picked among the keys");
        if client.still_frozen(self.shared.now).is_some() {
            return false;
        }
        self.shared.describe(|| format!("c{}", client.id().0));
        let until = inject(client, rng, &mut self.shared);
        self.shared.hit(fault, Hit::Client(id), until);
        true
    }
}

/// In half of the cases a stall precedes the break: nothing arrives from the end that will see the
/// break first. A part of those bytes arrives late, when a new connection may exist already.
fn half_open(shared: &mut Shared, rng: &mut Rng, conn: ConnId) -> Option<Instant> {
    let late = Instant(shared.now.0 + rng.magnitude(100, 60_000) * MS);
    let first = either_end(rng);
    let how = Break::HalfOpen { first, late, on_write: rng.chance(1, 2) };
    if rng.chance(1, 2) {
        shared.net.break_off(shared.now, conn, how);
        return None;
    }
    shared.net.stall(conn, first.other(), late);
    let after = rng.below(shared.options.server.sync_limit_ns() / 2);
    shared.after(after, Event::Breaks { conn, how });
    Some(Instant(shared.now.0 + after))
}

fn freeze(client: &mut Client, rng: &mut Rng, shared: &mut Shared) -> Option<Instant> {
    // Longer than the session timeout in some cases, so that sessions of running clients expire.
    let longest = (shared.options.workload.session_ms.1 * 3).clamp(50, 60_000);
    let until = Instant(shared.now.0 + rng.magnitude(20, longest) * MS);
    client.freeze(until);
    Some(until)
}

/// The client dies, at once or when it connects next. Both choices are always drawn.
fn die(client: &mut Client, rng: &mut Rng, shared: &mut Shared) -> Option<Instant> {
    let silent = rng.chance(1, 3);
    // Value 2 means to abandon the session, since a schedule without this choice yields 0 and
    // means none.
    if rng.below(3) == 2 {
        client.abandon_later(shared);
    } else {
        client.die(silent, shared);
    }
    None
}

fn restart(client: &mut Client, rng: &mut Rng, shared: &mut Shared) -> Option<Instant> {
    let (low, high) = shared.options.workload.session_ms;
    let timeout_ms = rng.range(low, high.max(low));
    client.restart(rng.chance(1, 3), timeout_ms, rng.magnitude(1, 1_000) * MS, shared);
    None
}

/// No byte arrives at the client for a while.
fn stop_reading(client: &mut Client, rng: &mut Rng, shared: &mut Shared) -> Option<Instant> {
    let until = Instant(shared.now.0 + rng.magnitude(20, 20_000) * MS);
    for conn in client.conns() {
        shared.net.stall(conn, End::Dialler, until);
    }
    Some(until)
}

/// The pauses are mostly shorter than a session timeout, which the whole period often exceeds.
fn read_slowly(client: &mut Client, rng: &mut Rng, shared: &mut Shared) -> Option<Instant> {
    let slow = SlowReader::draw(shared.now, rng);
    for conn in client.conns() {
        shared.net.read_slowly(conn, End::Dialler, slow);
    }
    Some(slow.until)
}

fn stall(shared: &mut Shared, rng: &mut Rng, conn: ConnId) -> Option<Instant> {
    let until = Instant(shared.now.0 + rng.magnitude(20, 20_000) * MS);
    shared.net.stall(conn, either_end(rng), until);
    Some(until)
}

fn either_end(rng: &mut Rng) -> End {
    if rng.chance(1, 2) { End::Dialler } else { End::Acceptor }
}
