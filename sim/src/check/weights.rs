//! Quorums of weighted groups, computed apart from the core's code, which the oracles check.
//!
//! Owns the groups and weights of a run. Must not use the core's quorums.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::ServerId;

/// Each voter with the number of its group and its weight; some weight is above zero.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Weights(BTreeMap<ServerId, (u64, u64)>);

impl Weights {
    /// `None` if all weights are zero.
    pub fn new(voters: BTreeMap<ServerId, (u64, u64)>) -> Option<Weights> {
        voters.values().any(|(_, weight)| *weight > 0).then_some(Weights(voters))
    }

    /// Whether `does` holds for more than half of the weight of more than half of the groups;
    /// groups without weight are ignored (QV-02).
    pub fn most(&self, does: impl Fn(ServerId) -> bool) -> bool {
        let sum = |group: u64, yes: bool| -> u64 {
            let own = self.0.iter().filter(|(id, (of, _))| *of == group && does(**id) == yes);
            own.map(|(_, (_, weight))| weight).sum()
        };
        let groups: BTreeSet<u64> = self.0.values().map(|(group, _)| *group).collect();
        let sums = groups.iter().map(|group| (sum(*group, true), sum(*group, false)));
        let counted: Vec<_> = sums.filter(|(yes, no)| yes + no > 0).collect();
        let agree = counted.iter().filter(|(yes, no)| yes > no).count();
        agree > counted.len() - agree
    }

    /// Whether the server has weight.
    pub fn counts(&self, id: ServerId) -> bool {
        self.0.get(&id).is_some_and(|(_, weight)| *weight > 0)
    }

    /// Each voter with the number of its group and its weight, by id.
    pub fn voters(&self) -> impl Iterator<Item = (ServerId, u64, u64)> {
        self.0.iter().map(|(id, (group, weight))| (*id, *group, *weight))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// QV-02
    #[test]
    fn most_of_the_weight_of_most_groups() {
        let weights = |list: &[(u64, u64)]| {
            Weights::new((1..).map(ServerId).zip(list.iter().copied()).collect())
        };
        assert_eq!(weights(&[(1, 0), (2, 0)]), None);
        let six = weights(&[(1, 1), (1, 1), (1, 1), (2, 2), (2, 1), (3, 0)]).unwrap();
        let most = |ids: &[u64]| six.most(|id| ids.contains(&id.0));
        assert!(most(&[1, 2, 4]) && most(&[1, 2, 3, 4, 5]));
        assert!(!most(&[1, 2, 3, 6]), "one of two groups");
        assert!(!most(&[1, 4, 5]) && !most(&[1, 2, 5]) && !most(&[]));
        assert!(six.counts(ServerId(5)) && !six.counts(ServerId(6)) && !six.counts(ServerId(7)));
    }
}
