//! The ensemble grows: all servers stop, and start again with new ones and a longer voter list.
//!
//! Owns the order of that. Must not let servers with different voter lists run at one time: quorums
//! of two lists need not intersect. Must not start so many new servers, before most have the
//! history, that new ones alone could form a quorum of an empty ensemble: the others start later.

use zabkeeper_core::ServerId;

use super::{MS, World};
use crate::check::observe::Observation;
use crate::machine::fs::Crash;
use crate::machine::node::Node;
use crate::record::sometimes::Sometimes;
use crate::record::trace::Kind;
use crate::world::shared::Event;

/// All servers start within this time, ms.
const STARTED_WITHIN: u64 = 3_000;
/// Interval of the check whether the remaining servers may start, ms.
const LOOK: u64 = 200;

/// Progress of the growth.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// The ensemble has its initial servers.
    ToCome,
    /// The members know the new voter list. Some new servers may wait until a majority serves.
    Begun,
    /// The ensemble does not grow, or growth is complete.
    Over,
}

impl World {
    /// Begins the growth, or continues it.
    pub(super) fn grow(&mut self) {
        match self.growth {
            Growth::Over => {}
            Growth::ToCome => self.begin_to_grow(),
            Growth::Begun => {
                let serves = |node: &&Node| {
                    node.status().is_some_and(|status| status.serving && status.halted.is_none())
                };
                let most = self.nodes.values().filter(serves).count() * 2 > self.nodes.len();
                if most {
                    self.growth = Growth::Over;
                    let all: Vec<ServerId> = self.nodes.keys().copied().collect();
                    self.join_and_start(&all);
                    self.shared.saw(Sometimes::Grown);
                } else {
                    self.shared.after(LOOK * MS, Event::Grow);
                }
            }
        }
    }

    /// Ends all members and restarts them with the new list, together with as many new servers as
    /// are safe. Waits until a majority of the members has the history, unless no member has any,
    /// nor has promised an epoch: quorums of two lists could begin the same one.
    fn begin_to_grow(&mut self) {
        let members = || self.nodes.values().filter(|node| node.is_member());
        let know = members().filter(|node| node.knows_its_history(&self.shared)).count();
        let began = know > 0 || members().any(|node| node.may_have_promised(&self.shared));
        if began && know * 2 <= members().count() {
            return self.shared.after(LOOK * MS, Event::Grow);
        }
        self.growth = Growth::Begun;
        let shared = &mut self.shared;
        let voters: Vec<ServerId> = self.nodes.keys().copied().collect();
        shared.note(Kind::Process, (0, 0), b"grow", || {
            format!("the ensemble grows to {} servers", voters.len())
        });
        let (old, new): (Vec<ServerId>, Vec<ServerId>) =
            voters.iter().partition(|id| self.nodes[id].is_member());
        for server in &old {
            let Some(node) = self.nodes.get_mut(server) else { continue };
            let mut fate = shared.seeds.stream("growth", server.0);
            if node.is_up() && fate.chance(1, 2) {
                node.stop(fate, shared);
            } else if node.is_running() {
                node.crash(Crash::Kill, fate, shared);
            }
        }
        shared.observe(Observation::Grown { voters: &voters });
        // Without any history nothing can be lost.
        let at_first = match know {
            0 => new.len(),
            _ => (voters.len() / 2).saturating_sub(old.len() - know),
        };
        let first: Vec<ServerId> = old.into_iter().chain(new.into_iter().take(at_first)).collect();
        self.join_and_start(&first);
        self.shared.after(LOOK * MS, Event::Grow);
    }

    /// Makes the servers that are down members, and starts them soon.
    fn join_and_start(&mut self, servers: &[ServerId]) {
        for server in servers {
            let (node, shared) = super::split(&mut self.nodes, &mut self.shared, *server);
            if !node.is_running() {
                node.join(shared);
                let after = shared.seeds.stream("growth/start", server.0).below(STARTED_WITHIN);
                shared.after(after * MS, Event::Start { server: *server });
            }
        }
    }
}
