//! The ensemble grows: all its servers are stopped, and start again beside new ones with a list of all.
//!
//! Owns in which order. Must not let anybody decide by the old list when somebody has the new one: lists that differ at one
//! time promise nothing. Nor may so many new ones be there at once, before most have the history, that they could take
//! themselves for a new ensemble: the others come later.

use zabkeeper_core::ServerId;

use super::{MS, World};
use crate::fs::Crash;
use crate::node::Node;
use crate::observe::Observation;
use crate::shared::Event;
use crate::sometimes::Sometimes;
use crate::trace::Kind;

/// All are started again within this time, ms.
const STARTED_WITHIN: u64 = 3_000;
/// Time between two looks at whether the others may come, ms.
const LOOK: u64 = 200;

/// How far the ensemble has grown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Growth {
    /// It has the servers that it began with.
    ToCome,
    /// Its servers know of all. Some new ones may have to wait until most serve.
    Begun,
    /// It does not grow, or no more.
    Over,
}

impl World {
    /// The ensemble grows, or goes on with it.
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
                    self.shared.tally.saw(Sometimes::Grown);
                } else {
                    self.shared.after(LOOK * MS, Event::Grow);
                }
            }
        }
    }

    /// All its servers end, and know of all when they are started again; of the new ones as many come with them as may. Not
    /// before most of them know the history, or nobody does.
    fn begin_to_grow(&mut self) {
        let members = || self.nodes.values().filter(|node| node.is_member());
        let know = members().filter(|node| node.knows_its_history(&self.shared)).count();
        if know > 0 && know * 2 <= members().count() {
            return self.shared.after(LOOK * MS, Event::Grow);
        }
        self.growth = Growth::Begun;
        let shared = &mut self.shared;
        let voters: Vec<ServerId> = self.nodes.keys().copied().collect();
        shared.note(Kind::Life, (0, 0), b"grow", || {
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
        // Where nobody knows anything, nothing can be forgotten.
        let at_first = match know {
            0 => new.len(),
            _ => (voters.len() / 2).saturating_sub(old.len() - know),
        };
        let first: Vec<ServerId> = old.into_iter().chain(new.into_iter().take(at_first)).collect();
        self.join_and_start(&first);
        self.shared.after(LOOK * MS, Event::Grow);
    }

    /// Those that are not up are members now, and start soon.
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
