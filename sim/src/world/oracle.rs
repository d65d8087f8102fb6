//! The oracle of two voters: the operator's failure detector, which holds one of them down and
//! permits the other one to go on alone (QV-03).
//!
//! Owns when it does. It keeps the contract of an oracle: it permits one server only in the whole
//! run, and begins to while the other one is down. So no transaction is ever acknowledged by the
//! other server alone, and whatever the permitted server lacks was never committed.

use zabkeeper_core::{Instant, ServerId};

use super::{MS, World};
use crate::record::trace::Kind;
use crate::world::shared::Event;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Oracle {
    /// The other voter is not started before this time.
    held_until: Instant,
    /// When the oracle takes its permission back.
    until: Instant,
    /// How often it has looked at a server that went down.
    looks: u64,
}

impl World {
    /// The process of this server has ended. In some of the cases, the oracle permits the other
    /// one to go on without it for a while. The server stays down until then in half of these
    /// cases, and otherwise returns earlier.
    pub(super) fn may_hold_down(&mut self, server: ServerId) {
        let shared = &mut self.shared;
        let Some(permitted) = shared.options.permitted() else { return };
        let votes = shared.options.voters().any(|id| id == server);
        let over = self.oracle.until.max(self.oracle.held_until) <= shared.now;
        if server == permitted || !votes || !over || !shared.is_faulty() {
            return;
        }
        self.oracle.looks += 1;
        let mut rng = shared.seeds.stream("oracle", self.oracle.looks);
        if !rng.chance(1, 2) {
            return;
        }
        let after = rng.magnitude(1, 3_000);
        let length = rng.magnitude(200, 15_000);
        let down = if rng.chance(1, 2) { length + rng.below(2_000) } else { rng.below(length) };
        self.oracle.until = Instant(shared.now.0 + (after + length) * MS);
        self.oracle.held_until = Instant(shared.now.0 + (after + down) * MS);
        shared.after(after * MS, Event::Oracle { permits: true });
        shared.after((after + length) * MS, Event::Oracle { permits: false });
    }

    /// Until when the oracle holds this server down.
    pub(super) fn held_down_until(&self, server: ServerId) -> Option<Instant> {
        let permitted = self.shared.options.permitted()?;
        let held = server != permitted && self.shared.now < self.oracle.held_until;
        let votes = self.shared.options.voters().any(|id| id == server);
        (held && votes).then_some(self.oracle.held_until)
    }

    /// The oracle speaks; the heal has ended what it had planned.
    pub(super) fn oracle_says(&mut self, permits: bool) {
        if self.shared.is_faulty() {
            self.say(permits);
        }
    }

    /// Nobody is held down, and nobody is permitted to go on alone.
    pub(super) fn end_oracle(&mut self) {
        self.oracle.held_until = self.shared.now;
        if self.shared.permitted.is_some() {
            self.say(false);
        }
    }

    fn say(&mut self, permits: bool) {
        let Some(server) = self.shared.options.permitted() else { return };
        self.shared.permitted = permits.then_some(server);
        let what = if permits { "permits" } else { "does not permit" };
        self.shared.note(Kind::Process, (server.0, u64::from(permits)), b"oracle", || {
            format!("the oracle {what} s{server} to go on without the other voter")
        });
        let (node, shared) = self.node(server);
        node.on_oracle(permits, shared);
    }
}
