//! One simulated world: servers, clients, the network between them, and the event loop.
//!
//! Owns the options of a run, the order of events, the phases, and the injection of faults; `build`
//! has the state before the first event, `dispatch` the effects of events. Must not check anything.

mod bad_client;
mod bad_peer;
mod build;
mod byzantine_peer;
mod dispatch;
mod fork;
mod grow;
mod heal;
mod inject;
mod load;
pub mod options;
mod oracle;
mod outcome;
mod partition;
mod phases;
mod scene;
pub mod shared;
pub mod stop;
mod upgrade;
mod waits;
mod wipe;

use std::collections::BTreeMap;

use zabkeeper_core::{ConnId, Instant, ServerId};

use crate::check::observe::ClientId;
use crate::clients::client::Client;
use crate::engine::decisions::Decisions;
use crate::engine::fork::Fork;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::machine::node::Node;
use crate::record::counters::Counts;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::world::options::Options;
use crate::world::shared::{Event, Shared};
use crate::world::stop::Stop;
use bad_client::BadClient;
use byzantine_peer::{ByzantinePeer, Usurped};
use grow::Growth;
use oracle::Oracle;
use partition::Partition;

pub use outcome::{Held, Outcome};
pub use phases::Liveness;

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
    /// The server in whose name byzantine peers claim epochs far ahead of all others.
    claims_far: Option<ServerId>,
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
    oracle: Oracle,
    /// The server whose disk was erased or damaged last.
    wiped: Option<ServerId>,
    /// Number of clients so far, bad clients included.
    client_ids: u32,
    liveness: Liveness,
    /// Counters at the heal.
    healed: Counts,
    /// The last connection that was allocated before the heal.
    last_unhealed: ConnId,
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
        world.shared.recorder.trace.stop();
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

    /// Runs all phases.
    pub fn run(mut self) -> Outcome {
        let inconclusive = !self.phases() && self.stopped.is_none();
        let healed = self.describe_fates(&self.shared.outside);
        let looked_at = self.stop != Stop::default();
        let held = if looked_at { self.held() } else { Held::default() };
        let mut shared = self.shared;
        let (cut, slow) = shared.net.strained();
        shared.recorder.counters.faults[Fault::NetCut as usize] += cut;
        shared.recorder.counters.faults[Fault::NetTail as usize] += slow;
        let place = shared.recorder.place(shared.now);
        if let (Some(lines), Some(failure)) = (&mut shared.recorder.lines, shared.checker.failure())
        {
            lines.broken(place, failure.id);
        }
        Outcome {
            failure: shared.checker.failure().cloned(),
            inconclusive,
            stopped: self.stopped,
            unforked: self.forks.last().copied(),
            ended: shared.now,
            hash: shared.recorder.trace.hash(),
            events: shared.recorder.trace.events(),
            counters: shared.recorder.counters,
            checks: shared.checker.checks(),
            liveness: self.liveness,
            healed,
            end_digest: self.end_digest,
            roles: shared.recorder.roles,
            injections: shared.recorder.injections,
            timeline: shared.recorder.timeline,
            held,
            trace: shared.recorder.trace,
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

    /// Processes events up to `until` or up to a fork. Returns whether the run may continue.
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
            let over = at > last || self.shared.recorder.trace.events() > events;
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
