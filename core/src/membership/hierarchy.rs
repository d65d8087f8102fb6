//! Hierarchical quorums (Java `QuorumHierarchical`): voters in groups, each with a weight (QV-02).
//!
//! Owns the groups, their consistency and the arithmetic of their quorums. Must not know what is
//! voted on, nor how a file writes groups.
//!
//! A group agrees if more than half of its weight agrees. A quorum is more than half of the groups
//! whose weight is not zero. Two quorums intersect: they share a group, and in this group a server
//! of positive weight.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;

/// The groups of an ensemble: each voter is in exactly one, and at least one weight is above zero.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(super) struct Hierarchy(BTreeMap<u64, BTreeMap<ServerId, u32>>);

/// Why groups and weights do not fit the voters.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HierarchyError {
    /// `group` names this server, and so does the group `earlier`, which may be the same.
    NamedTwice {
        /// The server.
        server: ServerId,
        /// The number of the group that names it first.
        earlier: u64,
        /// The number of the group that names it again.
        group: u64,
    },
    /// This server of a group does not vote.
    NoVoter {
        /// The server.
        server: ServerId,
        /// The number of its group.
        group: u64,
    },
    /// This voter is in no group.
    NoGroup(ServerId),
    /// No voter has a weight above zero, so no quorum exists.
    NoWeight,
}

impl Hierarchy {
    /// Weight of a voter without another weight.
    const DEFAULT_WEIGHT: u32 = 1;

    /// Checks that each of `ids` is in exactly one group.
    pub(super) fn new<'a>(
        ids: &BTreeSet<ServerId>,
        groups: impl IntoIterator<Item = (u64, &'a [ServerId])>,
        weights: &BTreeMap<ServerId, u32>,
    ) -> Result<Hierarchy, HierarchyError> {
        let mut group_of: BTreeMap<ServerId, u64> = BTreeMap::new();
        let mut hierarchy = Hierarchy(BTreeMap::new());
        for (group, servers) in groups {
            for &server in servers {
                if let Some(earlier) = group_of.insert(server, group) {
                    return Err(HierarchyError::NamedTwice { server, earlier, group });
                }
                if !ids.contains(&server) {
                    return Err(HierarchyError::NoVoter { server, group });
                }
                let weight = weights.get(&server).copied().unwrap_or(Self::DEFAULT_WEIGHT);
                hierarchy.0.entry(group).or_default().insert(server, weight);
            }
        }
        if let Some(server) = ids.iter().find(|id| !group_of.contains_key(id)) {
            return Err(HierarchyError::NoGroup(*server));
        }
        if hierarchy.counted().next().is_none() {
            return Err(HierarchyError::NoWeight);
        }
        Ok(hierarchy)
    }

    /// All groups by number, each with its servers and their weights.
    pub(super) fn groups(&self) -> &BTreeMap<u64, BTreeMap<ServerId, u32>> {
        &self.0
    }

    /// The weight of a voter; 0 for another server.
    pub(super) fn weight(&self, id: ServerId) -> u32 {
        self.0.values().find_map(|group| group.get(&id).copied()).unwrap_or(0)
    }

    /// The groups that count, with their weights: those above zero.
    fn counted(&self) -> impl Iterator<Item = (&BTreeMap<ServerId, u32>, u64)> {
        let weighed = self.0.values().map(|group| (group, total(group.values().copied())));
        weighed.filter(|(_, weight)| *weight > 0)
    }

    /// Whether the servers for which `acked` holds include a quorum.
    pub(super) fn is_quorum(&self, acked: impl Fn(ServerId) -> bool) -> bool {
        let (mut agree, mut counted) = (0, 0);
        for (group, weight) in self.counted() {
            let servers = group.iter().filter(|(id, _)| acked(**id));
            counted += 1;
            agree += usize::from(2 * total(servers.map(|(_, weight)| *weight)) > weight);
        }
        2 * agree > counted
    }

    /// The highest value that a quorum has reached: the watermark of the groups' watermarks.
    pub(super) fn quorum_watermark<T: Ord + Copy>(&self, progress: impl Fn(ServerId) -> T) -> T {
        let of_group = |(group, weight): (&BTreeMap<ServerId, u32>, u64)| {
            let mut reached: Vec<(T, u32)> =
                group.iter().map(|(id, weight)| (progress(*id), *weight)).collect();
            reached.sort_unstable_by(|(one, _), (other, _)| other.cmp(one));
            let mut sum = 0;
            let passes = |(_, own): &(T, u32)| {
                sum += u64::from(*own);
                2 * sum > weight
            };
            reached.into_iter().find(passes).expect("the whole group has its whole weight").0
        };
        let mut marks: Vec<T> = self.counted().map(of_group).collect();
        super::quorum::majority_watermark(&mut marks)
    }

    /// Number of servers in the smallest quorum.
    pub(super) fn smallest_quorum(&self) -> usize {
        let of_group = |(group, weight): (&BTreeMap<ServerId, u32>, u64)| {
            let mut weights: Vec<u32> = group.values().copied().collect();
            weights.sort_unstable_by(|one, other| other.cmp(one));
            let enough = |count: &usize| 2 * total(weights[..*count].iter().copied()) > weight;
            (1..=weights.len()).find(enough).expect("the whole group has its whole weight")
        };
        let mut sizes: Vec<usize> = self.counted().map(of_group).collect();
        sizes.sort_unstable();
        sizes[..=sizes.len() / 2].iter().sum()
    }
}

fn total(weights: impl Iterator<Item = u32>) -> u64 {
    weights.map(u64::from).sum()
}

impl fmt::Display for HierarchyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            HierarchyError::NamedTwice { server, earlier, group } if earlier == group => {
                write!(f, "names server {server} twice; name it once")
            }
            HierarchyError::NamedTwice { server, earlier, group: _ } => write!(
                f,
                "server {server} is in group.{earlier} already; leave it in one group only"
            ),
            HierarchyError::NoVoter { server, group: _ } => write!(
                f,
                "server {server} does not vote; add server.{server} as a participant, or remove \
                 {server} from the group"
            ),
            HierarchyError::NoGroup(server) => write!(
                f,
                "server {server} is in no group; name it in one group.N line, because with groups or \
                 weights every participant must be in a group"
            ),
            HierarchyError::NoWeight => {
                f.write_str("no server has a weight above 0, so none could lead; give some 1")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;
    use crate::membership::{HistoryInfo, HistoryStatus, Voters};

    type Groups = Vec<(u64, Vec<ServerId>)>;

    fn grouped(
        count: u64,
        groups: &[(u64, &[u64])],
        weights: &[(u64, u32)],
    ) -> Result<Voters, HierarchyError> {
        let groups: Groups = groups
            .iter()
            .map(|(group, ids)| (*group, ids.iter().copied().map(ServerId).collect()))
            .collect();
        let groups = groups.iter().map(|(group, ids)| (*group, &ids[..]));
        let weights = weights.iter().map(|(id, weight)| (ServerId(*id), *weight)).collect();
        Voters::new((1..=count).map(ServerId)).with_groups(groups, &weights)
    }

    /// Numbers that look random, the same in each run.
    struct Random(u64);

    impl Random {
        fn below(&mut self, limit: u64) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (self.0 >> 33) % limit
        }

        /// One to seven voters in one to three groups, with weights from zero.
        fn voters(&mut self) -> Voters {
            loop {
                let (count, groups) = (1 + self.below(7), 1 + self.below(3));
                let ids = || (1..=count).map(ServerId);
                let mut members: BTreeMap<u64, Vec<ServerId>> = BTreeMap::new();
                ids().for_each(|id| members.entry(self.below(groups)).or_default().push(id));
                let weights = ids().map(|id| (id, u32::try_from(self.below(5)).unwrap())).collect();
                let members = members.iter().map(|(group, ids)| (*group, &ids[..]));
                match Voters::new(ids()).with_groups(members, &weights) {
                    Ok(voters) => return voters,
                    Err(error) => assert_eq!(error, HierarchyError::NoWeight),
                }
            }
        }
    }

    /// All sets of these voters, as functions.
    fn subsets(voters: &Voters) -> impl Iterator<Item = BTreeSet<ServerId>> {
        let ids: Vec<ServerId> = voters.ids().collect();
        (0..1_u32 << ids.len()).map(move |bits| {
            let chosen = ids.iter().enumerate().filter(|(index, _)| bits >> index & 1 == 1);
            chosen.map(|(_, id)| *id).collect()
        })
    }

    fn quorums(voters: &Voters) -> Vec<BTreeSet<ServerId>> {
        subsets(voters).filter(|set| voters.is_quorum(|id| set.contains(&id))).collect()
    }

    /// QV-02, and edge case 218: the group of weight zero does not count.
    #[test]
    fn quorum_is_most_groups_by_most_of_their_weight() {
        let is = |voters: &Voters, ids: &[u64]| voters.is_quorum(|id| ids.contains(&id.0));
        let nine = [(1, &[1, 2, 3][..]), (2, &[4, 5, 6]), (3, &[7, 8, 9])];
        let even = grouped(9, &nine, &[]).unwrap();
        assert!(is(&even, &[1, 2, 4, 5]) && is(&even, &[2, 3, 8, 9, 4]));
        assert!(!is(&even, &[1, 2, 3, 4, 7]), "five servers, and most of one group only");
        let heavy = grouped(9, &nine, &[(1, 3), (7, 0), (8, 0), (9, 0)]).unwrap();
        assert!(is(&heavy, &[1, 4, 5]));
        assert!(!is(&heavy, &[1, 7, 8, 9]), "group 3 has no weight, so both others must agree");
        assert!(!is(&heavy, &[2, 3, 4, 5, 6]), "two of the five in group 1");
        let half = grouped(2, &[(7, &[1, 2])], &[(1, 2), (2, 2)]).unwrap();
        assert!(!is(&half, &[1]) && is(&half, &[1, 2]), "half of the weight is too little");
        assert_eq!([&even, &heavy, &half].map(Voters::smallest_quorum), [4, 3, 2]);
    }

    #[test]
    fn groups_that_do_not_fit_the_voters_are_refused() {
        use HierarchyError::{NamedTwice, NoGroup, NoVoter, NoWeight};
        let server = ServerId;
        for (groups, weights, error) in [
            (
                &[(1, &[1, 2][..]), (2, &[2, 3])][..],
                &[][..],
                NamedTwice { server: server(2), earlier: 1, group: 2 },
            ),
            (&[(1, &[1, 2, 3, 3])], &[], NamedTwice { server: server(3), earlier: 1, group: 1 }),
            (&[(1, &[1, 2, 3, 4])], &[], NoVoter { server: server(4), group: 1 }),
            (&[(1, &[1, 2])], &[], NoGroup(server(3))),
            (&[], &[(1, 5)], NoGroup(server(1))),
            (&[(1, &[1, 2, 3])], &[(1, 0), (2, 0), (3, 0)], NoWeight),
        ] {
            assert_eq!(grouped(3, groups, weights), Err(error), "{groups:?} {weights:?}");
        }
    }

    /// The reason why an acknowledged transaction survives.
    #[test]
    fn any_two_quorums_intersect() {
        let mut random = Random(1);
        for _ in 0..300 {
            let voters = random.voters();
            let quorums = quorums(&voters);
            assert!(!quorums.is_empty(), "{voters:?}");
            for one in &quorums {
                let other = quorums.iter().find(|other| one.is_disjoint(other));
                assert_eq!(other, None, "{one:?} of {voters:?}");
            }
            let smallest = quorums.iter().map(BTreeSet::len).min();
            assert_eq!(Some(voters.smallest_quorum()), smallest, "{voters:?}");
        }
    }

    #[test]
    fn watermark_is_the_highest_that_a_quorum_reached() {
        let mut random = Random(2);
        for _ in 0..2_000 {
            let voters = random.voters();
            let progress: BTreeMap<ServerId, u64> =
                voters.ids().map(|id| (id, random.below(6))).collect();
            let reaches = |mark: &u64| voters.is_quorum(|id| progress[&id] >= *mark);
            let highest = (0..6).rev().find(reaches).expect("all reach 0");
            let mark = voters.quorum_watermark(|id| progress[&id]);
            assert_eq!(mark, highest, "{progress:?} of {voters:?}");
        }
    }

    /// One group of equal weights is a plain majority.
    #[test]
    fn equal_weights_in_one_group_are_a_majority() {
        let mut random = Random(3);
        for count in 1..=7_u64 {
            let ids: Vec<u64> = (1..=count).collect();
            let weights: Vec<(u64, u32)> = ids.iter().map(|id| (*id, 3)).collect();
            let grouped = grouped(count, &[(0, &ids)], &weights).unwrap();
            let plain = Voters::new(grouped.ids());
            assert_eq!(grouped.smallest_quorum(), plain.smallest_quorum());
            assert_eq!(quorums(&grouped), quorums(&plain));
            for _ in 0..50 {
                let progress: BTreeMap<ServerId, u64> =
                    plain.ids().map(|id| (id, random.below(6))).collect();
                let of = |id| progress[&id];
                assert_eq!(grouped.quorum_watermark(of), plain.quorum_watermark(of));
            }
        }
    }

    /// With groups, `Complete` servers must be a quorum themselves: two `Complete` servers and a
    /// new one are none, whatever the reports say.
    #[test]
    fn blank_votes_do_not_count_beside_complete_ones() {
        use HistoryStatus::{Complete, Lost, Uninitialized};
        let voters = grouped(3, &[(1, &[1, 2, 3])], &[(1, 0)]).unwrap();
        let plain = Voters::new(voters.ids());
        let may = |voters: &Voters, spoken: &[HistoryStatus], nothing_logged| {
            let info = |history_status: &HistoryStatus| HistoryInfo {
                newcomers: 0b110,
                ..HistoryInfo::new(*history_status, Epoch(1))
            };
            let said = (1..).map(ServerId).zip(spoken.iter().map(info)).collect();
            voters.may_decide(&said, nothing_logged)
        };
        let grown = [Complete, Uninitialized, Uninitialized];
        assert!(may(&plain, &grown, false), "one grows to three");
        assert!(!may(&voters, &grown, false) && may(&voters, &grown, true));
        assert!(may(&voters, &[Lost, Complete, Complete], false));
        assert!(!may(&voters, &[Complete, Complete, Lost], false), "server 1 weighs nothing");
        assert!(may(&voters, &[Lost, Uninitialized, Uninitialized], false), "a new ensemble");
        assert!(!may(&voters, &[Uninitialized, Uninitialized], false));
        assert_eq!(voters.newcomers(&Voters::new([ServerId(1)])), 0);
        assert_eq!(voters.or(&voters.ids().collect()), voters, "its own list keeps the groups");
        assert!(!voters.may_lead(ServerId(1)) && voters.may_lead(ServerId(2)));
    }

    #[test]
    fn great_weight_is_a_quorum_but_no_majority_of_witnesses() {
        let voters = grouped(3, &[(1, &[1, 2, 3])], &[(1, 5)]).unwrap();
        assert!(voters.is_quorum(|id| id.0 == 1) && !voters.most_agree(|id| id.0 == 1));
        assert!(!voters.most_agree(|id| id.0 > 1) && voters.most_agree(|id| id.0 < 3));
        assert!(voters.completes(ServerId(1), |_| true));
        assert!(
            !voters.completes(ServerId(2), |_| true) && !voters.completes(ServerId(2), |_| false)
        );
    }
}
