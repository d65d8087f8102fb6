//! Groups and weights of a run's servers.
//!
//! Owns which server is in which group with which weight. Must not compute quorums: the core does,
//! and `check::weights` for the oracles.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{ServerId, Voters};

use super::{Options, Profile};
use crate::check::weights::Weights;
use crate::engine::seed::Rng;

/// Which servers are in groups. Server N is in the group of the remainder of N by `count`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Groups {
    /// Number of groups; zero: every majority is a quorum.
    pub count: u32,
    /// The servers of weight zero.
    pub weightless: BTreeSet<ServerId>,
    /// The servers of weight two. All others have the weight one.
    pub heavy: BTreeSet<ServerId>,
}

impl Options {
    /// Draws groups for few ensembles of three or more servers that do not grow: the quorums of two
    /// configurations need not intersect.
    pub(super) fn draw_groups(&mut self, rng: &mut Rng) {
        let one_in = if self.profile == Some(Profile::Swarm) { 6 } else { 12 };
        let some = rng.chance(1, one_in);
        let measures = self.profile == Some(Profile::Perf);
        let changes = self.first_voters().is_some() || self.reconfigured().is_some();
        if !some || measures || self.servers < 3 || changes {
            return;
        }
        let mut ids: Vec<ServerId> = self.voters().collect();
        let mut one = || ids.remove(rng.index(ids.len()));
        let (weightless, heavy) = (one(), one());
        let most = if self.servers < 5 { 1 } else { 3 };
        self.groups.count = rng.range_u32(1, most);
        self.groups.weightless.extend(rng.chance(1, 2).then_some(weightless));
        self.groups.heavy.extend(rng.chance(1, 2).then_some(heavy));
    }

    /// The groups and weights, if they apply: to three servers or more, at least one of them with
    /// weight, that do not grow.
    pub fn weights(&self) -> Option<Weights> {
        let Groups { count, weightless, heavy } = &self.groups;
        let changes = self.first_voters().is_some() || self.reconfigured().is_some();
        if *count == 0 || self.servers < 3 || changes {
            return None;
        }
        let weight = |id| match (weightless.contains(&id), heavy.contains(&id)) {
            (true, _) => 0,
            (false, true) => 2,
            (false, false) => 1,
        };
        let of = |id: ServerId| (id, (id.0 % u64::from(*count), weight(id)));
        Weights::new(self.voters().map(of).collect())
    }

    /// The voters of the core's configuration.
    pub(super) fn core_voters(&self) -> Voters {
        let all = Voters::new(self.voters());
        let Some(weights) = self.weights() else {
            return all;
        };
        let mut groups: BTreeMap<u64, Vec<ServerId>> = BTreeMap::new();
        weights.voters().for_each(|(id, group, _)| groups.entry(group).or_default().push(id));
        let weight = |weight| u32::try_from(weight).expect("at most two");
        let weights = weights.voters().map(|(id, _, own)| (id, weight(own))).collect();
        let groups = groups.iter().map(|(group, ids)| (*group, &ids[..]));
        all.with_groups(groups, &weights).expect("each voter is in one group")
    }

    /// The lines of groups and weights in `/zookeeper/config`.
    pub(super) fn group_lines(&self) -> String {
        let mut groups: BTreeMap<u64, String> = BTreeMap::new();
        let mut weights = String::new();
        for (id, group, weight) in self.weights().iter().flat_map(Weights::voters) {
            let ids = groups.entry(group).or_default();
            *ids += &format!("{}{id}", if ids.is_empty() { "" } else { ":" });
            weights += &format!("weight.{id}={weight}\n");
        }
        let groups = groups.iter().map(|(group, ids)| format!("group.{group}={ids}\n"));
        groups.collect::<String>() + &weights
    }
}
