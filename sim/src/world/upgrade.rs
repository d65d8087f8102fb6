//! A rolling upgrade: an operator restarts servers of the last release as servers of the present
//! one, and in some runs the other way round.
//!
//! Owns when and how these servers stop. Must not change what a release does: `options::older` has
//! that. Must not return a server to the last release once anything is written that it cannot read:
//! where clients reconfigure, none returns.

use std::time::Duration;

use zabkeeper_core::ServerId;

use super::World;
use crate::record::sometimes::Sometimes;
use crate::record::trace::Kind;
use crate::world::shared::Event;

/// Ticks within which a server that is told to stop ends.
const STOP_TICKS: u32 = 4;

impl World {
    /// Plans all changes of releases.
    pub(super) fn plan_upgrades(&mut self) {
        let shared = &mut self.shared;
        let older = shared.options.older.clone();
        let mut servers: Vec<ServerId> = older.servers.iter().copied().collect();
        let mut rng = shared.seeds.stream("upgrade/order", 0);
        for last in (1..servers.len()).rev() {
            servers.swap(last, rng.index(last + 1));
        }
        let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let changes = [(Some(older.upgrade_at), false), (shared.options.downgrade_at(), true)];
        for (at, to_older) in changes {
            let Some(at) = at else { continue };
            for (place, server) in (0..).zip(&servers) {
                let after = ns(at).saturating_add(ns(older.pause).saturating_mul(place));
                shared.after(after, Event::ChangeRelease { server: *server, to_older });
            }
        }
    }

    /// The operator changes the release of a server, and stops its process. A server that is down
    /// starts with the other release later.
    pub(super) fn change_release(&mut self, server: ServerId, to_older: bool) {
        if !self.shared.is_faulty() || !self.set_release(server, to_older) {
            return;
        }
        let (node, shared) = self.node(server);
        let mut rng = shared.seeds.stream("upgrade/stop", server.0 << 1 | u64::from(to_older));
        let (up, incarnation) = (node.is_up(), node.incarnation());
        let latest = shared.now.after(shared.options.server.tick() * STOP_TICKS);
        match rng.below(3) {
            // Told to stop, it ends by itself. The last release hands over to nobody.
            0 if up && node.begin_stop(latest, shared) => {}
            0 | 1 if up => self.let_end(server, incarnation, None),
            _ => {
                let how = node.end_by(true, shared);
                self.let_end(server, incarnation, Some(how));
            }
        }
    }

    /// The heal ends the upgrade where clients reconfigure: a server of the last release cannot
    /// join a leader that has a configuration in its log. Its start follows.
    pub(super) fn end_upgrades(&mut self) {
        if self.shared.options.reconfigured().is_none() {
            return;
        }
        let servers: Vec<ServerId> = self.nodes.keys().copied().collect();
        for server in servers {
            if self.set_release(server, false) {
                let (node, shared) = self.node(server);
                let fate = shared.seeds.stream("upgrade/heal", server.0);
                let how = node.end_by(true, shared);
                node.crash(how, fate, shared);
            }
        }
    }

    /// Returns whether the server had another release.
    fn set_release(&mut self, server: ServerId, to_older: bool) -> bool {
        let (node, shared) = self.node(server);
        if !node.set_older(to_older) {
            return false;
        }
        let (kind, release) = match to_older {
            true => (Sometimes::Downgraded, "last"),
            false => (Sometimes::Upgraded, "present"),
        };
        shared.saw(kind);
        shared.note(Kind::Process, (server.0, u64::from(to_older)), b"release", || {
            format!("s{server} runs the {release} release from its next start on")
        });
        true
    }
}
