//! One simulated world: servers, clients, the network between them, and the event loop.
//!
//! Owns the options of a run, the order of events and their dispatch, the phases, and the injection
//! of faults. Must not check anything.

mod bad_client;
mod bad_peer;
mod byzantine_peer;
mod fork;
mod grow;
mod heal;
mod inject;
mod load;
pub mod options;
mod outcome;
mod partition;
mod phases;
mod scene;
pub mod shared;
pub mod stop;
mod waits;
mod wipe;

use std::collections::BTreeMap;

use zabkeeper_core::{ConnId, Instant, ServerId, Zxid};

use crate::check::checker::Checker;
use crate::check::observe::ClientId;
use crate::clients::client::Client;
use crate::clients::workload::KeySpace;
use crate::engine::decisions::{Act, Step};
use crate::engine::decisions::{Decisions, Due};
use crate::engine::fork::Fork;
use crate::engine::queue::Queue;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::faults::heal::Fate;
use crate::faults::targets::Targets;
use crate::machine::node::Node;
use crate::network::reach::Reach;
use crate::network::stream::{Arrival, Delivery, End, Network, Party};
use crate::record::counters::{Counters, Counts};
use crate::record::role::Role;
use crate::record::roles::Roles;
use crate::record::timeline::{Injections, Lines};
use crate::record::trace::{Kind, Trace, TraceSink};
use crate::replay::schedule::Schedule;
use crate::world::options::Options;
use crate::world::shared::{Event, Shared};
use crate::world::stop::Stop;
use bad_client::BadClient;
use byzantine_peer::{ByzantinePeer, Usurped};
use grow::Growth;
use partition::Partition;

pub use outcome::{Held, Outcome};
pub use phases::Liveness;

/// Events after which a run ends as inconclusive: far more than any run needs.
const EVENTS_MAX: u64 = 200_000_000;
/// Servers start within this time, ns: before the first client.
const STAGGER: u64 = 30_000_000;
/// Duration of a connection attempt to a silent machine, ns.
const DIAL_TIMEOUT: u64 = 3_000_000_000;

/// One millisecond, ns.
const MS: u64 = 1_000_000;

/// A simulated ensemble with its clients.
pub struct World {
    shared: Shared,
    nodes: BTreeMap<ServerId, Node>,
    clients: BTreeMap<ClientId, Client>,
    bad_clients: BTreeMap<ConnId, BadClient>,
    byzantine_peers: BTreeMap<ConnId, ByzantinePeer>,
    usurped: Option<Usurped>,
    /// Planned partitions; an [`Event::Parts`] starts each.
    partitions: Vec<Partition>,
    /// Random streams, one per kind of fault.
    fault_rng: [Rng; Fault::ALL.len()],
    /// All connection attempts of clients are refused until then.
    refusing_until: Instant,
    /// The fault that fails the run when it is injected.
    trips: Option<Fault>,
    /// The fault that is injected at this moment.
    injecting: Option<Fault>,
    /// End of the phase of faults.
    ends: Instant,
    /// Forks still to come, the next one last.
    forks: Vec<Fork>,
    in_order: bool,
    /// The condition at which the run ends early, for inspection.
    stop: Stop,
    /// Why the run ended early.
    stopped: Option<String>,
    /// The run ends as inconclusive after this time or this event.
    give_up: (Instant, u64),
    growth: Growth,
    /// The server whose disk was wiped or damaged last.
    wiped: Option<ServerId>,
    /// Number of clients so far, bad clients included.
    client_ids: u32,
    liveness: Liveness,
    /// Counters at the heal.
    healed: Counts,
    /// See [`Outcome::end_digest`].
    end_digest: Option<u64>,
}

impl World {
    /// A world before its first event.
    pub fn new(seeds: Seeds, options: Options, sink: TraceSink, compare: bool) -> World {
        let base = Schedule::of_run(seeds.seed(), &options, Vec::new());
        let mut world = World::build(&base, options, Decisions::default(), sink, compare);
        for fault in Fault::ALL {
            world.plan_fault(fault);
        }
        world
    }

    /// A world whose decisions come only from the schedule.
    pub fn scripted(schedule: &Schedule, sink: TraceSink, compare: bool) -> World {
        let decisions = Decisions::scripted(schedule.steps.clone());
        World::build(schedule, schedule.options.clone(), decisions, sink, compare)
    }

    /// Records all decisions, with a description of their effects.
    pub fn recorded(mut self) -> World {
        self.shared.decisions.keep_record(true);
        self
    }

    /// Records all decisions without descriptions.
    pub fn noted(mut self) -> World {
        self.shared.decisions.keep_record(false);
        self
    }

    /// Disables oracles and trace, to measure their cost.
    pub(crate) fn unwatched(self) -> World {
        let mut world = self.unchecked();
        world.shared.trace.stop();
        world
    }

    /// Disables the oracles.
    pub(crate) fn unchecked(mut self) -> World {
        self.shared.checker.stop();
        self
    }

    /// Runs up to the first event, to measure the start-up time.
    pub(crate) fn first_event(&mut self) {
        if let Some(at) = self.next_at() {
            self.run_until(at);
        }
    }

    /// Fails the run when this fault is injected.
    pub(crate) fn tripped_by(mut self, fault: Option<Fault>) -> World {
        self.trips = fault;
        self
    }

    /// Ends the run at `stop`.
    pub fn stopping(mut self, stop: Stop) -> World {
        if let Some(id) = stop.promise() {
            self.shared.checker.look_only_for(id);
        }
        self.stop = stop;
        self
    }

    /// Ends the run as inconclusive after this time or this event.
    pub fn given_up_at(mut self, at: Instant, events: u64) -> World {
        self.give_up = (at, events);
        self
    }

    fn build(
        base: &Schedule,
        options: Options,
        decisions: Decisions,
        sink: TraceSink,
        compare: bool,
    ) -> World {
        let seeds = Seeds::new(base.seed);
        let keys = &mut Seeds::new(base.keys).stream("workload", 0);
        let keys = KeySpace::draw(options.workload.paths, options.workload.hot, keys);
        let tie = if base.in_order { Rng::scripted(Vec::new()) } else { seeds.stream("queue", 0) };
        let servers: Vec<ServerId> = options.voters().collect();
        let (length, forks) = (options.duration, options.forks.clone());
        let (first, grows_at) = (options.first_voters(), options.grows_at);
        let grows = first.is_some();
        let first = first.unwrap_or_else(|| servers.clone());
        let checker = Checker::new(&first, options.rules()).without(&options.without);
        let mut shared = Shared {
            healed: None,
            outside: BTreeMap::new(),
            now: Instant(0),
            queue: Queue::new(tie),
            decisions,
            targets: Targets::new(&options.rules, seeds),
            // A large random start keeps session and connection numbers distinct from constants.
            net: Network::new(seeds.stream("net/numbers", 0).below(1 << 40)),
            reach: Reach::default(),
            roles: Roles::default(),
            injections: Injections::default(),
            timeline: (sink == TraceSink::Collect).then(Box::default),
            lines: match sink {
                TraceSink::States(view) => Some(Box::new(Lines::new(view, &servers))),
                TraceSink::Off
                | TraceSink::Print(_)
                | TraceSink::Collect
                | TraceSink::Discard
                | TraceSink::Keep(..) => None,
            },
            trace: Trace::new(sink, compare),
            checker,
            counters: Counters::default(),
            newest: Zxid::ZERO,
            options,
            keys,
            seeds,
        };
        let nodes = servers.iter().map(|id| (*id, Node::new(*id, &shared))).collect();
        let mut world = World {
            nodes,
            clients: BTreeMap::new(),
            bad_clients: BTreeMap::new(),
            byzantine_peers: BTreeMap::new(),
            usurped: None,
            partitions: Vec::new(),
            fault_rng: Fault::ALL.map(|fault| seeds.stream("faults", fault as u64)),
            refusing_until: Instant(0),
            trips: base.trips,
            injecting: None,
            ends: Instant(u64::try_from(length.as_nanos()).unwrap_or(u64::MAX)),
            forks: forks.into_iter().rev().collect(),
            in_order: base.in_order,
            stop: Stop::default(),
            stopped: None,
            give_up: (Instant(u64::MAX), EVENTS_MAX),
            growth: if grows { Growth::ToCome } else { Growth::Over },
            wiped: None,
            client_ids: 0,
            liveness: Liveness::default(),
            end_digest: None,
            healed: Counts::default(),
            shared: {
                for server in servers {
                    shared.roles.record(shared.now, server, Role::Down);
                    let after = seeds.stream("config/start", server.0).below(STAGGER);
                    shared.after(after, Event::Start { server });
                }
                if grows {
                    let after = u64::try_from(grows_at.as_nanos()).unwrap_or(u64::MAX);
                    shared.after(after, Event::Grow);
                }
                shared
            },
        };
        for _ in 0..world.shared.options.clients {
            let within = world.shared.seeds.stream("client/start", world.client_ids.into());
            world.add_client(within);
        }
        for id in &base.absent {
            if let Some(client) = world.clients.get_mut(id) {
                client.stay_away();
            }
        }
        world
    }

    /// Runs all phases.
    pub fn run(mut self) -> Outcome {
        let inconclusive = !self.phases() && self.stopped.is_none();
        let healed = self.told_of(&self.shared.outside);
        let looked_at = self.stop != Stop::default();
        let held = if looked_at { self.held() } else { Held::default() };
        let mut shared = self.shared;
        let (cut, slow) = shared.net.strained();
        shared.counters.faults[Fault::NetCut as usize] += cut;
        shared.counters.faults[Fault::NetTail as usize] += slow;
        let place = shared.place();
        if let (Some(lines), Some(failure)) = (&mut shared.lines, shared.checker.failure()) {
            lines.broken(place, failure.id);
        }
        Outcome {
            failure: shared.checker.failure().cloned(),
            inconclusive,
            stopped: self.stopped,
            unforked: self.forks.last().copied(),
            ended: shared.now,
            hash: shared.trace.hash(),
            events: shared.trace.events(),
            counters: shared.counters,
            checks: shared.checker.checks(),
            liveness: self.liveness,
            healed,
            end_digest: self.end_digest,
            roles: shared.roles,
            injections: shared.injections,
            timeline: shared.timeline,
            held,
            trace: shared.trace,
            steps: shared.decisions.take_record(),
            hits: *shared.targets.hits(),
            rules: shared.targets.take_injected(),
        }
    }

    fn held(&self) -> Held {
        let now = self.shared.now;
        let due = |(at, event): (Instant, &Event)| format!("{at} {event:?}");
        Held {
            servers: self.nodes.iter().map(|(id, node)| (*id, node.held(now))).collect(),
            queue: self.shared.queue.list().into_iter().map(due).collect(),
        }
    }

    fn next_client(&mut self) -> ClientId {
        self.client_ids += 1;
        ClientId(self.client_ids - 1)
    }

    fn add_client(&mut self, mut start: Rng) {
        let id = self.next_client();
        self.clients.insert(id, Client::new(id, &mut self.shared));
        // Clients start after the servers, which start within [`STAGGER`].
        let after = start.range(50_000_000, 250_000_000);
        self.shared.after(after, Event::SessionStart { client: id, incarnation: 0 });
    }

    /// Processes events up to `until` or up to a fork. Returns whether the run may go on.
    fn run_until(&mut self, until: Instant) -> bool {
        let end = self.stop.until.map_or(until, |stop| stop.min(until));
        while let Some(at) = self.next_at().filter(|at| *at <= end) {
            if self.forks_before(at) {
                self.fork();
                return true;
            }
            self.shared.now = at;
            let mut ran = None;
            if self.shared.decisions.peek() == Some(at) {
                let due = self.shared.decisions.pop().expect("looked at above");
                self.act(due);
            } else {
                let (_, event) = self.shared.queue.pop().expect("looked at above");
                if let Event::Wake { server, .. } = event {
                    ran = Some(server);
                }
                self.happen(event);
            }
            for met in std::mem::take(&mut self.shared.targets.met) {
                self.inject_at_mark(met);
            }
            let (last, events) = self.give_up;
            let over = at > last || self.shared.trace.events() > events;
            if over || self.shared.checker.failure().is_some() {
                return false;
            }
            self.stopped = self.stop.met(ran, &self.shared);
            if self.stopped.is_some() {
                return false;
            }
        }
        self.shared.now = end;
        if end < until {
            self.stopped = Some("that is the time asked for".to_owned());
        }
        end == until
    }

    fn next_at(&self) -> Option<Instant> {
        let (queue, decisions) = (self.shared.queue.peek(), self.shared.decisions.peek());
        queue.into_iter().chain(decisions).min()
    }

    /// Carries out a decision.
    fn act(&mut self, due: Due) {
        match due {
            Due::Inject(fault) => self.inject(fault),
            Due::Load { server, until } => self.load(server, until),
            Due::Work { client, incarnation } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.work(incarnation, &mut self.shared);
                }
            }
            Due::GoOn { client, incarnation, reads } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.go_on(incarnation, reads, &mut self.shared);
                }
            }
            Due::Scripted(index) => {
                let Some(Step { act, choices, .. }) = self.shared.decisions.step(index) else {
                    return;
                };
                match act {
                    Act::Inject(fault) => self.inject_as(fault, choices),
                    Act::Call(client, op) => {
                        let shared = &mut self.shared;
                        let client = self.clients.get_mut(&client);
                        let later = client.and_then(|state| state.call_as(op, &choices, shared));
                        if let Some(until) = later {
                            shared.decisions.put_off(until, due);
                        }
                    }
                }
            }
        }
    }

    fn happen(&mut self, event: Event) {
        let shared = &mut self.shared;
        match event {
            Event::Arrival(arrival) => self.arrive(arrival),
            Event::Wake { server, incarnation } => {
                let (node, shared) = self.node(server);
                node.wake(incarnation, shared);
            }
            Event::Deadline { server, incarnation } => {
                let (node, shared) = self.node(server);
                node.deadline(incarnation, shared);
            }
            Event::LaneDone { server, incarnation, lane } => {
                let (node, shared) = self.node(server);
                node.lane_done(incarnation, lane, shared);
            }
            Event::Quiet { server, incarnation } => {
                let (node, shared) = self.node(server);
                node.log_is_quiet(incarnation, shared);
            }
            Event::Look { server, incarnation } => {
                let (node, shared) = self.node(server);
                node.look(incarnation, shared);
            }
            Event::Recovered { server, incarnation } => {
                let (node, shared) = self.node(server);
                node.recovered(incarnation, shared);
            }
            Event::Start { server } => {
                if !self.is_gone(server) {
                    let (node, shared) = self.node(server);
                    node.start(shared);
                }
            }
            Event::Grow => self.grow(),
            Event::Crash { server, incarnation, how } => self.crash(server, incarnation, how),
            Event::CrashInRecovery { server, incarnation, how } => {
                self.cut_recovery(server, incarnation, how)
            }
            Event::Relief { server } => self.relieve(server),
            Event::Dial { client, incarnation, link, server } => {
                let (conn, after) = self.dial(client, server);
                let answer = Event::Dialled { client, incarnation, link, conn, server };
                self.shared.after(after, answer);
            }
            Event::Dialled { client, incarnation, link, conn, server } => {
                let Some(state) = self.clients.get_mut(&client) else {
                    return;
                };
                if let Some(until) = state.still_frozen(shared.now) {
                    return shared.at(until, event);
                }
                state.dialled(incarnation, link, conn, server, shared);
            }
            Event::PeerDial { from, incarnation, conn, to } => {
                self.dial_peer(from, incarnation, conn, to)
            }
            Event::PeerDialled { from, incarnation, conn, to, stands } => {
                let (node, shared) = self.node(from);
                if !node.dialled(incarnation, conn, to, stands, shared) && stands {
                    shared.net.abandon(shared.now, conn, End::Dialler, None);
                    shared.schedule_arrivals();
                }
            }
            Event::Notified { from, to, what, sent } => {
                if shared.reach.cut_until(shared.now, from, to).is_none() {
                    let (node, shared) = self.node(to);
                    node.notified((from, what, sent), shared);
                }
            }
            Event::ClientDeadline { client, incarnation } => {
                let Some(state) = self.clients.get_mut(&client) else {
                    return;
                };
                if let Some(until) = state.still_frozen(shared.now) {
                    return shared.at(until, event);
                }
                state.deadline(incarnation, shared);
            }
            Event::Probe { client, incarnation } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.probe(incarnation, shared);
                }
            }
            Event::SessionStart { client, incarnation } => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.start_session(incarnation, shared);
                }
            }
            Event::BadPeerCloses { conn } => self.end_bad_peer(conn),
            Event::ByzantinePeerSends { conn } => self.byzantine_peer_turn(conn),
            Event::BadClient { conn, server } => self.bad_client_turn(conn, server),
            Event::Parts { partition } => self.part_as_planned(partition),
            Event::Breaks { conn, how } => self.break_as_planned(conn, how),
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { conn, to, .. } = arrival;
        let shared = &mut self.shared;
        let Some(parties) = shared.net.parties(conn) else {
            return;
        };
        let (receiver, sender) = (parties[to as usize], parties[to.other() as usize]);
        let frozen = match receiver {
            Party::Client(client) => {
                self.clients.get(&client).and_then(|c| c.still_frozen(shared.now))
            }
            Party::Server(_) | Party::BadPeer => None,
        };
        if let Some(until) = frozen {
            return shared.at(until, Event::Arrival(arrival));
        }
        let delivery = shared.net.arrive(shared.now, conn, to);
        if let Delivery::Later(at) = delivery {
            return shared.at(at, Event::Arrival(arrival));
        }
        match receiver {
            Party::Server(server) => {
                if let Delivery::Bytes(bytes) = &delivery {
                    shared.note(Kind::Receive, (server.0, conn.0), bytes, || {
                        format!("s{server} <- {conn} {}B", bytes.len())
                    });
                }
                if let Some(node) = self.nodes.get_mut(&server) {
                    node.arrive(conn, sender, delivery, shared);
                }
            }
            Party::Client(client) => {
                if let Some(state) = self.clients.get_mut(&client) {
                    state.arrive(conn, delivery, shared);
                } else {
                    self.bad_client_receives(conn, delivery);
                }
            }
            Party::BadPeer => self.bad_peer_receives(conn, &delivery),
        }
        if let Party::Server(server) = sender
            && let Some(node) = self.nodes.get_mut(&server)
        {
            node.drained(conn, &mut self.shared);
        }
    }

    /// A server's attempt to open a link reaches the other server, if it can.
    fn dial_peer(&mut self, from: ServerId, incarnation: u64, conn: ConnId, to: ServerId) {
        let (node, _) = self.node(from);
        if node.incarnation() != incarnation || !node.is_up() {
            return;
        }
        let parties = [Party::Server(from), Party::Server(to)];
        let mut attempt = self.shared.net.attempt(self.shared.seeds, parties);
        let after = attempt.takes(self.shared.options.peers.link);
        if self.is_usurped(from, to, conn) {
            let answer = Event::PeerDialled { from, incarnation, conn, to, stands: true };
            return self.shared.after(after, answer);
        }
        let answered = if self.shared.reach.connects(self.shared.now, from, to) {
            let (node, shared) = self.node(to);
            node.accept(conn, Party::Server(from), shared)
        } else {
            None
        };
        let shared = &mut self.shared;
        let stands = answered == Some(true);
        if stands {
            shared.net.open(conn, attempt, shared.options.peers.link);
        }
        let silent = answered.is_none();
        let after = if silent { shared.options.peers.dial_timeout_ms * 1_000_000 } else { after };
        shared.after(after, Event::PeerDialled { from, incarnation, conn, to, stands });
    }

    /// A client's connection attempt. Returns the connection if it succeeds, and the time until the
    /// client learns the result, ns.
    fn dial(&mut self, client: ClientId, server: ServerId) -> (Option<ConnId>, u64) {
        let shared = &mut self.shared;
        let conn = shared.net.allocate();
        let parties = [Party::Client(client), Party::Server(server)];
        let mut attempt = shared.net.attempt(shared.seeds, parties);
        let after = attempt.takes(shared.options.link);
        if shared.now < self.refusing_until {
            return (None, after);
        }
        if shared.outside.get(&server) == Some(&Fate::Alone) {
            return (None, DIAL_TIMEOUT);
        }
        let Some(node) = self.nodes.get_mut(&server) else {
            return (None, after);
        };
        match node.accept(conn, Party::Client(client), shared) {
            Some(true) => {
                shared.net.open(conn, attempt, shared.options.link);
                (Some(conn), after)
            }
            Some(false) => (None, after),
            None => (None, DIAL_TIMEOUT),
        }
    }

    fn client(&mut self, client: ClientId) -> (&mut Client, &mut Shared) {
        let state = self.clients.get_mut(&client).expect("clients of this world are named");
        (state, &mut self.shared)
    }

    fn node(&mut self, server: ServerId) -> (&mut Node, &mut Shared) {
        split(&mut self.nodes, &mut self.shared, server)
    }
}

/// A server and the shared state, borrowed separately.
fn split<'a>(
    nodes: &'a mut BTreeMap<ServerId, Node>,
    shared: &'a mut Shared,
    server: ServerId,
) -> (&'a mut Node, &'a mut Shared) {
    (nodes.get_mut(&server).expect("events name servers of this world"), shared)
}

#[cfg(test)]
mod tests;
