//! Requests to a deposed leader that does not know yet that it has lost the leadership.
//!
//! Owns when they are made, and by which clients. They are ordinary calls and faults, which
//! schedules list as their own steps; under a schedule this module does nothing.

use zabkeeper_core::{Instant, ServerId};

use super::World;
use crate::clients::workload::Op;
use crate::engine::decisions::Due;
use crate::faults::catalog::Fault;
use crate::network::stream::Party;

impl World {
    /// The other servers know that this leader is cut off, and it will not learn of that before
    /// `until`. Requests come often, because its leadership ends soon.
    pub(super) fn load_leader(&mut self, server: ServerId, until: Instant) {
        let tick = u64::from(self.shared.options.server.tick_ms) * 1_000_000;
        let after = self.fault_rng[Fault::NetIsolateLeader as usize].exponential(tick / 8);
        let at = Instant(self.shared.now.0 + after.max(1));
        if at < until {
            self.shared.decisions.plan(at, Due::Load { server, until });
        }
    }

    /// Makes one request, if another leader exists by now: a sync, or a fault that takes over or
    /// closes a session.
    pub(super) fn load(&mut self, server: ServerId, until: Instant) {
        if !self.shared.is_faulty() {
            return;
        }
        self.load_leader(server, until);
        let leaders = self.leaders();
        if leaders.len() < 2 || !leaders.contains(&server) {
            return;
        }
        let faults = &self.shared.options.faults;
        let enabled = [Fault::ClientDuplicate, Fault::ClientClose].map(|fault| faults.has(fault));
        match self.fault_rng[Fault::NetIsolateLeader as usize].below(4) {
            0 if enabled[0] => self.inject_once(Fault::ClientDuplicate),
            1 if enabled[1] => self.inject_once(Fault::ClientClose),
            _ => self.ask_for_sync(server),
        }
    }

    fn ask_for_sync(&mut self, server: ServerId) {
        let shared = &mut self.shared;
        let is_there = |conn| {
            let parties = shared.net.parties(conn);
            parties.is_some_and(|[_, acceptor]| acceptor == Party::Server(server))
        };
        let there = self.clients.values_mut().filter(|client| client.conns().any(is_there));
        let mut there = Vec::from_iter(there);
        if there.is_empty() {
            return;
        }
        let rng = &mut self.fault_rng[Fault::NetIsolateLeader as usize];
        let picked = rng.below(there.len() as u64);
        there[usize::try_from(picked).expect("small")].ask(Op::Sync, shared);
    }
}
