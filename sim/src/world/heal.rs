//! The heal: faults end, for all servers or for a quorum; the rest keep their faults for ever.
//!
//! Owns which faults end, and the state of the servers that the heal leaves out. Must not check the
//! recovery: `phases` does.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::ServerId;

use super::World;
use crate::check::observe::Observation;
use crate::faults::catalog::Fault;
use crate::faults::heal::{self, FOREVER, Fate};
use crate::machine::fs::Crash;
use crate::machine::node::Node;
use crate::network::stream::{End, LinkPace, Party};
use crate::record::event::RunEvent;
use crate::record::injection::Hit;
use crate::world::options::VotePace;
use crate::world::shared::Event;

impl World {
    /// Ends all faults: servers of the core are up, their disks and links work, clients are not
    /// frozen.
    pub(super) fn heal(&mut self) {
        self.grow();
        self.end_upgrades();
        self.end_oracle();
        let fates = self.left_out();
        self.shared.record(&RunEvent::Healed { outside: &self.describe_fates(&fates) });
        self.shared.targets.disarm();
        self.healed = self.shared.recorder.counters.counts;
        self.last_unhealed = self.shared.net.newest();
        self.shared.healed = Some(self.shared.now);
        self.refusing_until = self.shared.now;
        self.end_byzantine_peers();
        let shared = &mut self.shared;
        let cut = shared.options.link.cut_one_in;
        shared.options.link = LinkPace { cut_one_in: cut, ..LinkPace::CALM };
        shared.options.peers.link = shared.options.link;
        shared.options.peers.votes = VotePace::WELL;
        shared.options.peers.words_late_ms = 0;
        shared.options.server.timer_slack_us = 0;
        shared.options.server.log_pause_us = 0;
        shared.options.server.snapshot_pause_us = 0;
        shared.options.workload.hops = false;
        shared.reach.heal();
        for client in self.clients.values_mut() {
            client.thaw(shared);
        }
        shared.net.heal(shared.now, shared.options.link);
        shared.schedule_arrivals();
        for node in self.nodes.values_mut() {
            node.heal(shared);
            let (server, until) = (node.id(), shared.now);
            shared.observe(Observation::StandsStill { server, until });
            node.disk().borrow_mut().calm();
            shared.after(0, Event::Start { server: node.id() });
        }
        for (server, fate) in fates {
            self.leave_out(server, fate);
        }
    }

    /// The servers left out, in words; empty if there are none.
    pub(super) fn describe_fates(&self, fates: &BTreeMap<ServerId, Fate>) -> String {
        if fates.is_empty() {
            return String::new();
        }
        heal::describe(fates, self.nodes.keys().copied())
    }

    /// The core: the servers that must serve from now on.
    pub(super) fn core(&self) -> impl Iterator<Item = &Node> {
        self.nodes.values().filter(|node| !self.shared.outside.contains_key(&node.id()))
    }

    /// Whether this server never starts again.
    pub(super) fn is_gone(&self, server: ServerId) -> bool {
        matches!(self.shared.outside.get(&server), Some(Fate::Dead | Fate::Hung))
    }

    /// The servers that the options leave out, if the others can do without them: the core must
    /// contain a majority of all voters that know the history they have acknowledged. A server with
    /// a lost disk or without any history does not count.
    fn left_out(&self) -> BTreeMap<ServerId, Fate> {
        if self.shared.options.reconfigured().is_some() {
            // A server that is down may be the only one that knows which voters a quorum needs.
            return BTreeMap::new();
        }
        let servers = self.shared.options.servers;
        let mut fates = self.shared.options.left_out.fates(servers);
        if fates.is_empty() {
            return fates;
        }
        // A leader with a stuck disk keeps leading as long as a quorum of the others logs its
        // proposals, but no longer serves its own clients. So it dies instead.
        for leader in self.leaders() {
            if let Some(fate @ Fate::Stuck) = fates.get_mut(&leader) {
                *fate = Fate::Dead;
            }
        }
        let core = self.nodes.values().filter(|node| !fates.contains_key(&node.id()));
        let knows: BTreeSet<ServerId> =
            core.filter(|node| node.knows_its_history(&self.shared)).map(Node::id).collect();
        // An epoch with more voters may not have been established yet. Then most of the first ones
        // must be there, too: in 0x40499e4c9366 one of four had lost its disk, and another one was
        // left out.
        let most_of_first = self.shared.options.first_voters().is_none_or(|first| {
            2 * first.iter().filter(|id| knows.contains(id)).count() > first.len()
        });
        if self.is_quorum(&knows) && most_of_first { fates } else { BTreeMap::new() }
    }

    /// Whether these servers include a quorum of the voters; with reconfigurations, of the voters
    /// that any server knows.
    pub(super) fn is_quorum(&self, servers: &BTreeSet<ServerId>) -> bool {
        let options = &self.shared.options;
        if options.reconfigured().is_some() {
            let servers_up = self.nodes.values().filter_map(Node::server);
            let mut known = servers_up.map(|server| server.members().voters());
            return known.all(|voters| voters.is_quorum(|id| servers.contains(&id)));
        }
        match options.weights() {
            None => {
                let voters = || options.voters();
                2 * voters().filter(|id| servers.contains(id)).count() > voters().count()
            }
            Some(weights) => weights.most(|id| servers.contains(&id)),
        }
    }

    fn leave_out(&mut self, server: ServerId, fate: Fate) {
        self.shared.outside.insert(server, fate);
        match fate {
            Fate::Dead => self.end_for_good(server),
            Fate::Hung => self.hang(server),
            Fate::Stuck => {
                self.shared.hit(Fault::DiskStall, Hit::Server(server), Some(FOREVER));
                self.nodes[&server].disk().borrow_mut().faults.stalled_until = FOREVER;
            }
            Fate::Alone | Fate::Apart => {
                self.hit_and_cut(Fault::NetSplit, self.all_around(server), FOREVER);
            }
        }
        if fate == Fate::Alone {
            self.cut_off_clients(server);
        }
    }

    /// A kill or a power failure, with equal odds. After a power failure connection attempts time
    /// out; after a kill the kernel refuses them.
    fn end_for_good(&mut self, server: ServerId) {
        let mut rng = self.shared.seeds.stream("heal", server.0);
        let (node, shared) = self.node(server);
        let how = node.end_by(rng.chance(1, 2), shared);
        if node.is_running() {
            let fault = if how == Crash::Kill { Fault::NodeKill } else { Fault::NodePower };
            shared.hit(fault, Hit::Server(server), Some(FOREVER));
            node.crash(how, rng, shared);
        }
    }

    /// A server that is not up cannot hang, so it stays down instead.
    fn hang(&mut self, server: ServerId) {
        let (node, shared) = self.node(server);
        if node.pause(FOREVER).is_none() {
            return self.end_for_good(server);
        }
        shared.hit(Fault::NodePause, Hit::Server(server), Some(FOREVER));
    }

    /// Bytes between the server and its clients never arrive.
    fn cut_off_clients(&mut self, server: ServerId) {
        let of_it = |parties: [Party; 2]| parties.contains(&Party::Server(server));
        let conns: Vec<_> = self.shared.net.list().filter(|(_, p)| of_it(*p)).collect();
        for (conn, _) in conns {
            for end in [End::Dialler, End::Acceptor] {
                self.shared.net.stall(conn, end, FOREVER);
            }
        }
    }
}
