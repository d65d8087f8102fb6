//! A world before its first event.
//!
//! Owns how a run's options become servers, clients and the events that start them. Must not run
//! anything.

use std::collections::BTreeMap;

use zabkeeper_core::{ConnId, Instant, ServerId, Zxid};

use super::World;
use super::grow::Growth;
use super::oracle::Oracle;
use super::phases::Liveness;
use crate::check::checker::Checker;
use crate::clients::workload::KeySpace;
use crate::engine::decisions::Decisions;
use crate::engine::queue::Queue;
use crate::engine::seed::{Rng, Seeds};
use crate::faults::catalog::Fault;
use crate::faults::targets::Targets;
use crate::machine::node::Node;
use crate::network::reach::Reach;
use crate::network::stream::Network;
use crate::record::counters::Counts;
use crate::record::recorder::Recorder;
use crate::record::role::Role;
use crate::record::trace::TraceSink;
use crate::record::unreceived::Unreceived;
use crate::replay::schedule::Schedule;
use crate::workload::Custom;
use crate::world::options::Options;
use crate::world::shared::{Event, Shared};
use crate::world::stop::Stop;

/// Events after which a run ends as inconclusive: far more than any run needs.
const EVENTS_MAX: u64 = 200_000_000;

/// Servers start within this time, ns: before the first client.
const STAGGER: u64 = 30_000_000;

impl World {
    pub(super) fn build(
        base: &Schedule,
        options: Options,
        decisions: Decisions,
        sink: TraceSink,
        compare: bool,
    ) -> World {
        let (length, forks) = (options.duration, options.forks.clone());
        let shared = shared_part(base, options, decisions, sink, compare);
        let (seeds, servers) = (shared.seeds, shared.options.all_servers());
        let nodes = servers.map(|id| (id, Node::new(id, &shared))).collect();
        let grows = shared.options.first_voters().is_some();
        let mut world = World {
            shared,
            nodes,
            clients: BTreeMap::new(),
            bad_clients: BTreeMap::new(),
            byzantine_peers: BTreeMap::new(),
            usurped: None,
            claims_far: None,
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
            oracle: Oracle::default(),
            wiped: None,
            client_ids: 0,
            liveness: Liveness::default(),
            end_digest: None,
            healed: Counts::default(),
            last_unhealed: ConnId(0),
        };
        world.plan_starts(grows);
        world.plan_upgrades();
        for id in &base.absent {
            if let Some(client) = world.clients.get_mut(id) {
                client.stay_away();
            }
        }
        world
    }

    /// Starts the servers, then the clients.
    fn plan_starts(&mut self, grows: bool) {
        let shared = &mut self.shared;
        for server in self.nodes.keys().copied() {
            shared.recorder.roles.change(shared.now, server, Role::Down);
            let after = shared.seeds.stream("config/start", server.0).below(STAGGER);
            shared.after(after, Event::Start { server });
        }
        if grows {
            let after = shared.options.grows_at.as_nanos();
            shared.after(u64::try_from(after).unwrap_or(u64::MAX), Event::Grow);
        }
        for _ in 0..self.shared.options.clients {
            let within = self.shared.seeds.stream("client/start", self.client_ids.into());
            self.add_client(within);
        }
    }
}

/// What servers and clients share.
fn shared_part(
    base: &Schedule,
    options: Options,
    decisions: Decisions,
    sink: TraceSink,
    compare: bool,
) -> Shared {
    let seeds = Seeds::new(base.seed);
    let keys = &mut Seeds::new(base.keys).stream("workload", 0);
    let keys = KeySpace::draw(options.workload.paths, options.workload.hot, keys);
    let keys = keys.with_servers(options.servers);
    let tie = if base.in_order { Rng::scripted(Vec::new()) } else { seeds.stream("queue", 0) };
    let servers: Vec<ServerId> = options.all_servers().collect();
    let first = options.first_voters().or(options.reconfigured());
    let first = first.unwrap_or_else(|| options.voters().collect());
    let checker = Checker::new(&first, options.rules());
    let checker = checker.with_weights(options.weights()).without(&options.without);
    let checker = checker.judged_by(options.custom.as_ref().map(Custom::judging));
    Shared {
        healed: None,
        outside: BTreeMap::new(),
        permitted: None,
        now: Instant(0),
        queue: Queue::new(tie),
        decisions,
        targets: Targets::new(&options.rules, seeds),
        // A large random start keeps session and connection numbers distinct from constants.
        net: Network::new(seeds.stream("net/numbers", 0).below(1 << 40)),
        reach: Reach::default(),
        unreceived: Unreceived::default(),
        recorder: Recorder::new(sink, compare, &servers),
        checker,
        newest: Zxid::ZERO,
        options,
        keys,
        seeds,
    }
}
