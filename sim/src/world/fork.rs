//! Executes a fork of a world.
//!
//! Owns the choice of streams that are drawn anew. Must not touch earlier decisions: bytes in
//! flight and scheduled events stay.

use zabkeeper_core::Instant;

use super::World;
use crate::engine::fork::Place;
use crate::faults::catalog::Fault;
use crate::faults::targets;
use crate::record::trace::Kind;

/// Faults last at least this long after a fork, ns, for any drawn duration.
const AFTERWARDS: u64 = 15_000_000_000;
/// Or they end within this range after the fork, ns.
const SOON: (u64, u64) = (1_000_000, 4_000_000_000);

impl World {
    /// Whether the fork belongs before the event that is due at `next`.
    pub(super) fn forks_before(&self, next: Instant) -> bool {
        match self.forks.last().map(|fork| fork.place) {
            Some(Place::At(at)) => self.shared.is_faulty() && next >= at,
            Some(Place::Mark(..)) => self.shared.is_faulty() && self.shared.targets.is_at_fork(),
            None => false,
        }
    }

    /// Makes `targets` watch for the next fork's mark.
    pub(super) fn await_fork(&mut self) {
        if let Some(Place::Mark(mark, nth)) = self.forks.last().map(|fork| fork.place) {
            self.shared.targets.await_fork(mark, nth);
        }
    }

    /// Replaces all random streams by the fork's own: faults and rules, clients, latencies, tie
    /// breaking, and those of machines, disks and connections. Only the servers' own streams stay.
    pub(super) fn fork(&mut self) {
        let Some(fork) = self.forks.pop() else {
            return;
        };
        let seeds = self.shared.seeds.fork(&fork.domain(), fork.number);
        if let Place::At(at) = fork.place {
            // The last decision may have had no effect; a replay then lacks it, and its time may
            // differ.
            self.shared.now = self.shared.now.max(at);
        }
        let name = fork.to_string();
        let shared = &mut self.shared;
        shared.note(Kind::Phase, (0, 0), name.as_bytes(), || format!("fork {name}"));
        shared.seeds = seeds;
        if !self.in_order {
            shared.queue.break_ties_with(seeds.stream("queue", 0));
        }
        shared.net.draw_anew(seeds);
        for node in self.nodes.values_mut() {
            node.draw_anew(seeds);
        }
        for client in self.clients.values_mut() {
            client.draw_anew(seeds);
        }
        // A fork in two ends its faults early: a wait without end shows only where no later fault
        // resolves it.
        let mut rng = seeds.stream("config/ends", 0);
        self.ends = if rng.chance(1, 2) {
            Instant(shared.now.0 + rng.magnitude(SOON.0, SOON.1))
        } else {
            self.ends.max(Instant(shared.now.0 + AFTERWARDS))
        };
        if !shared.decisions.is_scripted() {
            shared.decisions.forget_faults();
            if let Some(allowed) = &shared.options.at_marks {
                let rules = targets::draw(2, allowed, &mut seeds.stream("config/marks", 0));
                shared.targets.replace(&rules, seeds);
            }
            self.fault_rng = Fault::ALL.map(|fault| seeds.stream("faults", fault as u64));
            for fault in Fault::ALL {
                self.plan_fault(fault);
            }
        }
        self.await_fork();
    }
}
