//! What is asked of a leader that is one no longer, and does not know it.
//!
//! Owns when, and by whom. All of it are calls and strikes like any others, which schedules say by themselves; under a
//! schedule there is nothing else.

use zabkeeper_core::{Instant, ServerId};

use super::World;
use crate::agenda::Due;
use crate::faults::Fault;
use crate::stream::Party;
use crate::workload::Op;

impl World {
    /// Others have been told that this leader is gone, and it will not learn of that before `until`: what it should not
    /// say meanwhile is asked often, for that is soon over.
    pub(super) fn press_upon(&mut self, server: ServerId, until: Instant) {
        let tick = u64::from(self.shared.options.server.tick_ms) * 1_000_000;
        let after = self.fault_dice[Fault::NetIsolateLeader as usize].exponential(tick / 8);
        let at = Instant(self.shared.now.0 + after.max(1));
        if at < until {
            self.shared.agenda.plan(at, Due::Press { server, until });
        }
    }

    /// It is asked something, if there is another leader by now, or somebody else begins anew, whom it will not know.
    pub(super) fn press(&mut self, server: ServerId, until: Instant) {
        if !self.shared.is_faulty() {
            return;
        }
        self.press_upon(server, until);
        let leaders = self.leaders();
        if leaders.len() < 2 || !leaders.contains(&server) {
            return;
        }
        let faults = &self.shared.options.faults;
        let enabled = [Fault::ClientTwin, Fault::ClientClose].map(|fault| faults.has(fault));
        match self.fault_dice[Fault::NetIsolateLeader as usize].below(4) {
            0 if enabled[0] => self.strike_once(Fault::ClientTwin),
            1 if enabled[1] => self.strike_once(Fault::ClientClose),
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
        let dice = &mut self.fault_dice[Fault::NetIsolateLeader as usize];
        let picked = dice.below(there.len() as u64);
        there[usize::try_from(picked).expect("small")].ask(Op::Sync, shared);
    }
}
