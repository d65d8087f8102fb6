//! Quorums: majorities of a set of voters (QV-01), or of groups of weighted voters (QV-02); during
//! a reconfiguration, a quorum of the old voters and one of the new ones (RECONF-10).
//!
//! Owns the rules about quorums that hold for all kinds, and the arithmetic of majorities;
//! `hierarchy` owns that of groups. Must not know what is voted on.
//!
//! The state file and NEWLEADER name voters without groups and weights. So nobody can tell which of
//! the earlier voters were a quorum of an earlier epoch, and two rules follow:
//!
//! * Where groups apply, no vote counts on the word of a list of earlier voters: a quorum of
//!   `Complete` servers intersects every quorum of the same groups, and needs no list. Such a
//!   server reports no newcomers, so that a server without groups counts none on its word either.
//! * Groups and weights must be the same on all servers and from start to start, as in ZooKeeper
//!   without reconfiguration: a quorum of the new groups need not intersect one of the former. Who
//!   changes them must have all servers synchronised first, and stop them all.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::hierarchy::{Hierarchy, HierarchyError};
use crate::ids::{Epoch, ServerId};

/// The voting members of an ensemble, never empty, and which of them are a quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Voters {
    ids: BTreeSet<ServerId>,
    /// The groups; `None` if every majority is a quorum.
    hierarchy: Option<Hierarchy>,
    /// During a reconfiguration: the old voters and the new ones, who all are in `ids`.
    both: Option<Box<[Voters; 2]>>,
}

/// Whether a server's vote counts where a quorum must not forget acknowledged transactions. Sent by
/// variant index: append new variants only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum HistoryStatus {
    /// The server has all transactions that it ever acknowledged.
    Complete,
    /// The server's disk is empty: new, or erased; the server does not know which. Its vote counts
    /// only in the cases that [`Voters::may_decide`] lists.
    Uninitialized,
    /// The server lost part of its history and has not yet recovered all of it. Its vote never
    /// counts.
    Lost,
}

/// What a server reports about its history, for [`Voters::may_decide`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct HistoryInfo {
    /// Whether its vote counts.
    pub history_status: HistoryStatus,
    /// The epoch of its history.
    pub epoch: Epoch,
    /// The voters in its configuration that were not voters in the last established epoch, as far
    /// as the server knows: one bit each, in the order of their ids. Only reports of `Complete`
    /// servers count.
    pub newcomers: u64,
}

impl Voters {
    /// The given servers; every majority is a quorum.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(ids: impl IntoIterator<Item = ServerId>) -> Voters {
        let ids: BTreeSet<ServerId> = ids.into_iter().collect();
        assert!(!ids.is_empty(), "an ensemble has voters");
        Voters { ids, hierarchy: None, both: None }
    }

    /// The voters while `next` are to replace these ones: a quorum needs one of either (RECONF-10).
    ///
    /// # Panics
    /// If one of the two is such a pair already: reconfigurations follow each other (RECONF-03).
    pub(crate) fn with_next(&self, next: &Voters) -> Voters {
        assert!(self.both.is_none() && next.both.is_none(), "one reconfiguration at a time");
        if self == next {
            return self.clone();
        }
        let ids = &self.ids | &next.ids;
        Voters { ids, hierarchy: None, both: Some(Box::new([self.clone(), next.clone()])) }
    }

    /// These voters for the server `own` when the oracle permits it to go on alone: of exactly two
    /// voters without groups, `own` alone is a quorum unless the other one is present (QV-03). No
    /// other set of voters changes.
    pub(crate) fn on_oracle(
        &self,
        own: ServerId,
        is_present: impl Fn(ServerId) -> bool,
    ) -> Cow<'_, Voters> {
        let is_left = |part: &Voters| {
            let other = part.ids.iter().find(|id| **id != own);
            part.are_two() && part.contains(own) && other.is_some_and(|other| !is_present(*other))
        };
        if !self.parts().iter().any(is_left) {
            return Cow::Borrowed(self);
        }
        let left = |part: &Voters| if is_left(part) { Voters::new([own]) } else { part.clone() };
        Cow::Owned(match &self.both {
            None => left(self),
            Some(both) => {
                let both = Some(Box::new([left(&both[0]), left(&both[1])]));
                Voters { ids: self.ids.clone(), hierarchy: None, both }
            }
        })
    }

    /// Are there exactly two voters, in a configuration that is in force or logged?
    pub(crate) fn has_two(&self) -> bool {
        self.parts().iter().any(Voters::are_two)
    }

    /// Are these exactly two voters, both of which a quorum needs?
    fn are_two(&self) -> bool {
        self.ids.len() == 2 && self.hierarchy.is_none() && self.both.is_none()
    }

    /// The sets of voters of which a quorum is needed: two during a reconfiguration.
    fn parts(&self) -> &[Voters] {
        self.both.as_ref().map_or(std::slice::from_ref(self), |both| &both[..])
    }

    /// The same servers in numbered groups. A server without a weight has the weight 1.
    ///
    /// # Errors
    /// A server that is not in exactly one group, a group with a server that does not vote, or no
    /// weight above zero.
    pub fn with_groups<'a>(
        self,
        groups: impl IntoIterator<Item = (u64, &'a [ServerId])>,
        weights: &BTreeMap<ServerId, u32>,
    ) -> Result<Voters, HierarchyError> {
        let hierarchy = Some(Hierarchy::new(&self.ids, groups, weights)?);
        Ok(Voters { hierarchy, both: None, ..self })
    }

    /// The groups by number, each with its servers and their weights; empty without groups.
    pub fn groups(
        &self,
    ) -> impl Iterator<Item = (u64, impl Iterator<Item = (ServerId, u32)> + Clone)> {
        let groups = self.hierarchy.iter().flat_map(Hierarchy::groups);
        groups.map(|(group, servers)| (*group, servers.iter().map(|(id, weight)| (*id, *weight))))
    }

    /// The lines of groups and weights in ZooKeeper's text of a configuration: all groups, then the
    /// weights of all voters, given or not; nothing without groups (QV-04).
    pub fn group_lines(&self) -> String {
        let (mut lines, mut weights) = (String::new(), BTreeMap::new());
        for (group, servers) in self.groups() {
            let ids: Vec<String> = servers.clone().map(|(id, _)| id.to_string()).collect();
            lines += &format!("group.{group}={}\n", ids.join(":"));
            weights.extend(servers);
        }
        let weights = weights.iter().map(|(id, weight)| format!("weight.{id}={weight}\n"));
        lines + &weights.collect::<String>()
    }

    /// Whether quorums are hierarchical.
    pub fn has_groups(&self) -> bool {
        self.parts().iter().any(|part| part.hierarchy.is_some())
    }

    /// Maximum number of voters: [`HistoryInfo::newcomers`] has one bit for each.
    pub(crate) const MAX: usize = u64::BITS as usize;

    /// Whether this server is a voter.
    pub fn contains(&self, id: ServerId) -> bool {
        self.ids.contains(&id)
    }

    /// Whether there is only one voter.
    pub fn alone(&self) -> bool {
        self.ids.len() == 1
    }

    /// Whether this server may be elected: a voter of weight zero never is (FLE-02).
    pub(crate) fn may_lead(&self, id: ServerId) -> bool {
        self.parts().iter().any(|part| match &part.hierarchy {
            None => part.contains(id),
            Some(hierarchy) => hierarchy.weight(id) > 0,
        })
    }

    /// Number of servers in the smallest quorum. Without groups, this many voters always suffice.
    pub(crate) fn smallest_quorum(&self) -> usize {
        let smallest = |part: &Voters| match &part.hierarchy {
            None => part.ids.len() / 2 + 1,
            Some(hierarchy) => hierarchy.smallest_quorum(),
        };
        self.parts().iter().map(smallest).max().expect("an ensemble has voters")
    }

    /// Whether the servers for which `acked` holds include a quorum of the voters (Z21).
    pub fn is_quorum(&self, acked: impl Fn(ServerId) -> bool) -> bool {
        self.parts().iter().all(|part| match &part.hierarchy {
            None => part.is_majority(&acked),
            Some(hierarchy) => hierarchy.is_quorum(&acked),
        })
    }

    /// The same for the old voters or for the new ones during a reconfiguration: enough to join a
    /// leader, which has to know itself what it needs.
    pub(crate) fn is_quorum_of_either(&self, follows: impl Fn(ServerId) -> bool) -> bool {
        self.parts().iter().any(|part| part.is_quorum(&follows))
    }

    /// Whether `holds` is true for a quorum, and for none without the server `last`.
    pub(crate) fn completes(&self, last: ServerId, holds: impl Fn(ServerId) -> bool) -> bool {
        self.is_quorum(&holds) && !self.is_quorum(|id| id != last && holds(id))
    }

    /// Whether the servers for which `agrees` holds outweigh the others as witnesses: a quorum, and
    /// a majority by number. One server of great weight may be a quorum, but can err alone.
    pub(crate) fn most_agree(&self, agrees: impl Fn(ServerId) -> bool) -> bool {
        self.is_quorum(&agrees) && self.is_majority(agrees)
    }

    fn is_majority(&self, holds: impl Fn(ServerId) -> bool) -> bool {
        self.ids.iter().filter(|id| holds(**id)).count() > self.ids.len() / 2
    }

    /// Whether the servers in `said` may decide without the risk of losing an acknowledged
    /// transaction.
    ///
    /// One of these must hold:
    ///
    /// - A quorum of the voters is `Complete`, and none of them was an observer in the last
    ///   established epoch, or a majority of the earlier voters is `Complete`. It then intersects
    ///   every quorum that has acknowledged something. An observer's history may end anywhere.
    /// - A quorum is `Uninitialized` and no voter is `Complete`: a new ensemble. If a quorum has
    ///   lost its disks instead, no rule could help. A `Complete` voter of weight zero prevents
    ///   this, because it shows that the ensemble is not new.
    /// - `nothing_logged`, and every voter is `Complete` or `Uninitialized`: a new ensemble whose
    ///   start was interrupted after some servers had begun.
    /// - Without groups: `Complete` and new `Uninitialized` voters together are a majority, and the
    ///   `Complete` ones include a majority of the earlier voters. A new voter has acknowledged
    ///   nothing. So an ensemble grows from one server to three. With groups, see the module.
    ///
    /// If the `Complete` voters of the latest epoch report different earlier voters, because an
    /// epoch with more voters was interrupted before it was established, the last rule must hold
    /// for each report. For the first rule, one report that all voters were established suffices:
    /// its server has everything that was committed before, and what was committed since needed a
    /// quorum of all.
    ///
    /// During a reconfiguration, one of these must hold for the old voters, and one for the new.
    pub fn may_decide(&self, said: &BTreeMap<ServerId, HistoryInfo>, nothing_logged: bool) -> bool {
        self.parts().iter().all(|part| part.alone_may_decide(said, nothing_logged))
    }

    /// [`may_decide`](Self::may_decide) for voters that are no pair.
    fn alone_may_decide(
        &self,
        said: &BTreeMap<ServerId, HistoryInfo>,
        nothing_logged: bool,
    ) -> bool {
        let is = |id: ServerId, history_status| {
            said.get(&id).is_some_and(|info| info.history_status == history_status)
        };
        let full = |id: ServerId| is(id, HistoryStatus::Complete);
        let blank = |id: ServerId| is(id, HistoryStatus::Uninitialized);
        let some_full = self.ids.iter().any(|id| full(*id));
        let lists = self.before(said);
        let established = || {
            self.has_groups()
                || lists.iter().any(|before| before.ids == self.ids)
                || lists.iter().all(|before| before.is_majority(full))
        };
        (self.is_quorum(full) && established())
            || (!some_full && self.is_quorum(blank))
            || (nothing_logged && self.ids.iter().all(|id| full(*id) || blank(*id)))
            || (some_full && !self.has_groups() && {
                let is_new = |id: ServerId| lists.iter().all(|before| !before.contains(id));
                self.is_majority(|id| full(id) || (blank(id) && is_new(id)))
                    && lists.iter().all(|before| before.is_majority(full))
            })
    }

    /// The voters of the last established epoch, as reported by each `Complete` voter of the latest
    /// epoch.
    pub(crate) fn before(&self, said: &BTreeMap<ServerId, HistoryInfo>) -> Vec<Voters> {
        let of_voter = |(id, info): (&ServerId, &HistoryInfo)| self.contains(*id).then_some(*info);
        let infos = said.iter().filter_map(of_voter);
        let full: Vec<_> =
            infos.filter(|info| info.history_status == HistoryStatus::Complete).collect();
        let latest = full.iter().map(|info| info.epoch).max();
        let know_most = full.iter().filter(|info| Some(info.epoch) == latest);
        know_most.map(|info| self.without(info.newcomers)).collect()
    }

    /// These voters, without groups, or `self` if `others` is empty or the same servers.
    pub(crate) fn or(&self, others: &BTreeSet<ServerId>) -> Voters {
        let same = others.is_empty() || *others == self.ids;
        if same { self.clone() } else { Voters::new(others.iter().copied()) }
    }

    pub(crate) fn set(&self) -> &BTreeSet<ServerId> {
        &self.ids
    }

    /// The voters that are not in `before`: one bit each, in the order of ids, as in notifications.
    /// With groups there are none: no blank vote may count on such a report.
    pub(crate) fn newcomers(&self, before: &Voters) -> u64 {
        if self.has_groups() || self.both.is_some() {
            return 0;
        }
        let new = (0..u64::BITS).zip(&self.ids).filter(|(_, id)| !before.ids.contains(id));
        new.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The voters without those in the bit set `newcomers`; all voters if none would remain.
    pub(crate) fn without(&self, newcomers: u64) -> Voters {
        let bit = |index: usize| index < 64 && newcomers >> index & 1 == 1;
        let old = self.ids.iter().enumerate().filter(|(index, _)| !bit(*index)).map(|(_, id)| *id);
        self.or(&old.collect())
    }

    /// All voters, ordered by id.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        self.ids.iter().copied()
    }

    /// The highest value that a quorum has reached, given the progress of each voter.
    pub(crate) fn quorum_watermark<T: Ord + Copy>(&self, progress: impl Fn(ServerId) -> T) -> T {
        let of_part = |part: &Voters| match &part.hierarchy {
            None => {
                let mut reached: Vec<T> = part.ids.iter().map(|id| progress(*id)).collect();
                majority_watermark(&mut reached)
            }
            Some(hierarchy) => hierarchy.quorum_watermark(&progress),
        };
        self.parts().iter().map(of_part).min().expect("an ensemble has voters")
    }
}

/// The highest of these values that more than half of them reach.
pub(super) fn majority_watermark<T: Ord + Copy>(reached: &mut [T]) -> T {
    reached.sort_unstable();
    // In ascending order of n values, those from index (n - 1) / 2 upwards are a majority.
    reached[(reached.len() - 1) / 2]
}

impl HistoryInfo {
    /// The report of a server that knows of no new voters.
    pub fn new(history_status: HistoryStatus, epoch: Epoch) -> HistoryInfo {
        HistoryInfo { history_status, epoch, newcomers: 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Zxid;

    fn info(history_status: HistoryStatus, epoch: u32, newcomers: u64) -> HistoryInfo {
        HistoryInfo { history_status, epoch: Epoch(epoch), newcomers }
    }

    fn voters(n: u64) -> Voters {
        Voters::new((1..=n).map(ServerId))
    }

    /// QV-01: a majority is a quorum.
    #[test]
    fn quorum_is_more_than_half() {
        for (n, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert!(voters(n).is_quorum(|id| id.0 <= needed));
            assert!(!voters(n).is_quorum(|id| id.0 < needed));
        }
    }

    #[test]
    fn uninitialized_votes_count_if_nothing_can_be_lost() {
        use HistoryStatus::{Complete, Lost, Uninitialized};
        for (spoken, with_history, without) in [
            (&[Complete, Complete][..], true, true),
            (&[Uninitialized, Uninitialized], true, true),
            (&[Complete, Uninitialized], false, false),
            (&[Complete, Uninitialized, Uninitialized], false, true),
            (&[Complete, Complete, Uninitialized], true, true),
            (&[Uninitialized, Uninitialized, Lost], true, true),
            (&[Complete, Uninitialized, Lost], false, false),
            (&[Complete, Lost, Lost], false, false),
            (&[Uninitialized], false, false),
        ] {
            let said = (1..)
                .map(ServerId)
                .zip(spoken.iter().map(|history_status| info(*history_status, 1, 0)));
            let said = said.collect();
            assert_eq!(voters(3).may_decide(&said, false), with_history, "{spoken:?}");
            assert_eq!(voters(3).may_decide(&said, true), without, "{spoken:?}");
        }
    }

    #[test]
    fn new_voters_count_beside_a_majority_of_earlier_voters() {
        use HistoryStatus::{Complete, Lost, Uninitialized};
        let among = |n: u64, spoken: &[HistoryStatus], before: u64| {
            let newcomers = voters(n).newcomers(&voters(before));
            let said = spoken.iter().map(|history_status| info(*history_status, 1, newcomers));
            voters(n).may_decide(&(1..).map(ServerId).zip(said).collect(), false)
        };
        assert!(among(3, &[Complete, Uninitialized], 1), "one grows to three");
        assert!(!among(3, &[Complete, Lost], 1) && !among(3, &[Complete], 1));
        assert!(
            !among(3, &[Complete, Uninitialized, Uninitialized], 3),
            "both were voters, and have lost their disks"
        );
        assert!(among(5, &[Complete, Complete, Lost, Uninitialized], 3), "three grow to five");
        assert!(
            !among(5, &[Complete, Uninitialized, Uninitialized, Uninitialized, Uninitialized], 3),
            "two of three are lost"
        );
        assert!(!among(5, &[Uninitialized, Complete, Complete], 2), "one of two is lost");
    }

    /// Epoch 7 with five servers was interrupted: some servers still report three voters, others
    /// five.
    #[test]
    fn earlier_voters_reported_for_latest_epoch_apply() {
        use HistoryStatus::{Complete, Uninitialized};
        let (of_three, of_five) = (0b11000, 0);
        let among = |said: &[HistoryInfo]| {
            voters(5).may_decide(&(1..).map(ServerId).zip(said.iter().copied()).collect(), false)
        };
        let blank = info(Uninitialized, 0, 0);
        let old = info(Complete, 7, of_three);
        assert!(among(&[old, old, blank, blank]), "nobody knows that five were established");
        let new = info(Complete, 7, of_five);
        assert!(!among(&[old, new, blank, blank]), "server 4 may have acknowledged something");
        let outdated = info(Complete, 6, of_three);
        assert!(!among(&[outdated, new, blank, blank]));
        assert!(among(&[old, info(Complete, 6, of_five), blank, blank]), "an older word");
        let gone = info(HistoryStatus::Lost, 0, 0);
        assert!(!among(&[gone, gone, old, old, old]), "4 and 5 were observers of three voters");
        assert!(among(&[gone, old, old, old, old]), "two of the three voters are there");
        assert!(among(&[gone, gone, old, new, old]), "server 4 knows that five were established");
    }

    /// RECONF-10: a reconfiguration needs a quorum of the old voters and one of the new ones.
    #[test]
    fn two_configurations_need_a_quorum_of_each() {
        use HistoryStatus::{Complete, Uninitialized};
        let (old, new) = (voters(3), Voters::new([3, 4, 5].map(ServerId)));
        let both = old.with_next(&new);
        for (acked, enough) in [
            (&[1, 2, 3][..], false),
            (&[3, 4, 5], false),
            (&[1, 2, 4], false),
            (&[1, 2, 4, 5], true),
            (&[2, 3, 4], true),
        ] {
            assert_eq!(both.is_quorum(|id| acked.contains(&id.0)), enough, "{acked:?}");
            let reached = both.quorum_watermark(|id| Zxid(u64::from(acked.contains(&id.0))));
            assert_eq!(reached, Zxid(u64::from(enough)), "{acked:?}");
            let said = acked.iter().map(|id| (ServerId(*id), info(Complete, 1, 0))).collect();
            assert_eq!(both.may_decide(&said, false), enough, "{acked:?}");
        }
        let blank = [2, 3, 4].map(|id| (ServerId(id), info(Uninitialized, 0, 0)));
        assert!(!both.may_decide(&[blank[0], blank[1]].into(), false));
        assert!(both.contains(ServerId(1)) && both.contains(ServerId(5)));
        assert_eq!((both.smallest_quorum(), old.with_next(&old)), (2, old));
    }

    /// QV-03.
    #[test]
    fn oracle_makes_one_of_exactly_two_voters_a_quorum() {
        let nobody = |_| false;
        let own = ServerId(1);
        let enough = |voters: &Voters, present: &dyn Fn(ServerId) -> bool, acked: &[u64]| {
            voters.on_oracle(own, present).is_quorum(|id| acked.contains(&id.0))
        };
        let two = voters(2);
        assert!(enough(&two, &nobody, &[1]) && !enough(&two, &nobody, &[2]));
        assert!(!enough(&two, &|id| id == ServerId(2), &[1]), "the other one is there");
        assert!(!two.on_oracle(ServerId(3), nobody).is_quorum(|id| id == own), "no voter asks");
        for others in [voters(3), voters(4)] {
            assert!(!enough(&others, &nobody, &[1]));
        }
        let groups = [(1, &[own, ServerId(2)][..])];
        let grouped = voters(2).with_groups(groups, &BTreeMap::new()).expect("valid");
        assert!(!enough(&grouped, &nobody, &[1]));
        let grows = two.with_next(&voters(3));
        assert!(!enough(&grows, &nobody, &[1]), "three voters need two");
        assert!(enough(&grows, &nobody, &[1, 3]));
        let replaced = two.with_next(&Voters::new([1, 3].map(ServerId)));
        assert!(!enough(&replaced, &|id| id == ServerId(3), &[1]));
        assert!(enough(&replaced, &|id| id == ServerId(3), &[1, 3]));
        let left = two.with_next(&Voters::new([2, 3].map(ServerId)));
        assert!(!enough(&left, &nobody, &[1, 3]), "the next voters are two others");
        assert_eq!(two.on_oracle(own, nobody).quorum_watermark(|id| id.0), 1);
    }

    #[test]
    fn newcomer_bits_round_trip() {
        let (three, five) = (voters(3), voters(5));
        assert_eq!((five.newcomers(&three), five.newcomers(&five)), (0b11000, 0));
        assert_eq!(five.without(0b11000), three);
        assert_eq!(three.without(0b111), three, "nobody would be left");
    }

    #[test]
    fn quorum_watermark_is_what_a_majority_has() {
        for (marks, reached) in [
            (&[7][..], 7),
            (&[3, 9], 3),
            (&[1, 5, 9], 5),
            (&[1, 2, 8, 9], 2),
            (&[1, 2, 3, 8, 9], 3),
        ] {
            let progress: BTreeMap<ServerId, Zxid> =
                (1..).map(ServerId).zip(marks.iter().copied().map(Zxid)).collect();
            let voters = Voters::new(progress.keys().copied());
            assert_eq!(voters.quorum_watermark(|id| progress[&id]), Zxid(reached));
            assert!(voters.is_quorum(|id| progress[&id] >= Zxid(reached)));
        }
    }
}
