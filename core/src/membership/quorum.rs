//! Quorums: majorities of a set of voters (QV-01).
//!
//! Owns the arithmetic of quorums. Must not know what is voted on.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ServerId};

/// The voting members of an ensemble; never empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Voters(BTreeSet<ServerId>);

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
    /// The given servers.
    ///
    /// # Panics
    /// If there are none.
    pub fn new(ids: impl IntoIterator<Item = ServerId>) -> Voters {
        let ids: BTreeSet<ServerId> = ids.into_iter().collect();
        assert!(!ids.is_empty(), "an ensemble has voters");
        Voters(ids)
    }

    /// Maximum number of voters: [`HistoryInfo::newcomers`] has one bit for each.
    pub(crate) const MAX: usize = u64::BITS as usize;

    /// Whether this server is a voter.
    pub fn contains(&self, id: ServerId) -> bool {
        self.0.contains(&id)
    }

    /// Whether there is only one voter.
    pub fn alone(&self) -> bool {
        self.0.len() == 1
    }

    /// Size of the smallest majority.
    pub(crate) fn quorum_size(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Whether the servers for which `acked` holds include a majority of the voters (Z21).
    pub fn is_quorum(&self, acked: impl Fn(ServerId) -> bool) -> bool {
        self.0.iter().filter(|id| acked(**id)).count() > self.0.len() / 2
    }

    /// Whether the servers in `said` may decide without the risk of losing an acknowledged
    /// transaction.
    ///
    /// One of these must hold:
    ///
    /// - A majority of the voters is `Complete`.
    /// - A majority is `Uninitialized` and no voter is `Complete`: a new ensemble. If a majority
    ///   has lost its disks instead, no rule could help.
    /// - `nothing_logged`, and every voter is `Complete` or `Uninitialized`: a new ensemble whose
    ///   start was interrupted after some servers had begun.
    /// - `Complete` and new `Uninitialized` voters together are a majority, and the `Complete` ones
    ///   include a majority of the earlier voters. A new voter has acknowledged nothing. So an
    ///   ensemble grows from one server to three.
    ///
    /// If the `Complete` voters of the latest epoch report different earlier voters, because an
    /// epoch with more voters was interrupted before it was established, the last rule must hold
    /// for each report.
    pub fn may_decide(&self, said: &BTreeMap<ServerId, HistoryInfo>, nothing_logged: bool) -> bool {
        let is = |id: ServerId, history_status| {
            said.get(&id).is_some_and(|info| info.history_status == history_status)
        };
        let full = self.0.iter().filter(|id| is(**id, HistoryStatus::Complete)).count();
        let blank = self.0.iter().filter(|id| is(**id, HistoryStatus::Uninitialized)).count();
        let lists = self.before(said);
        let is_new = |id: ServerId| lists.iter().all(|before| !before.contains(id));
        let new = self
            .0
            .iter()
            .filter(|id| is(**id, HistoryStatus::Uninitialized) && is_new(**id))
            .count();
        let majority = self.0.len() / 2;
        full > majority
            || (full == 0 && blank > majority)
            || (nothing_logged && full + blank == self.0.len())
            || (full > 0
                && full + new > majority
                && lists
                    .iter()
                    .all(|before| before.is_quorum(|id| is(id, HistoryStatus::Complete))))
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

    /// These voters, or `self` if `others` is empty.
    pub(crate) fn or(&self, others: &BTreeSet<ServerId>) -> Voters {
        if others.is_empty() { self.clone() } else { Voters(others.clone()) }
    }

    pub(crate) fn set(&self) -> &BTreeSet<ServerId> {
        &self.0
    }

    /// The voters that are not in `before`: one bit each, in the order of ids, as in notifications.
    pub(crate) fn newcomers(&self, before: &Voters) -> u64 {
        let new = (0..u64::BITS).zip(&self.0).filter(|(_, id)| !before.0.contains(id));
        new.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The voters without those in the bit set `newcomers`; all voters if none would remain.
    pub(crate) fn without(&self, newcomers: u64) -> Voters {
        let bit = |index: usize| index < 64 && newcomers >> index & 1 == 1;
        let old = self.0.iter().enumerate().filter(|(index, _)| !bit(*index)).map(|(_, id)| *id);
        self.or(&old.collect())
    }

    /// All voters, ordered by id.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        self.0.iter().copied()
    }

    /// The highest value that a majority has reached, given the progress of each voter.
    pub(crate) fn quorum_watermark<T: Ord + Copy>(&self, progress: impl Fn(ServerId) -> T) -> T {
        let mut reached: Vec<T> = self.0.iter().map(|id| progress(*id)).collect();
        reached.sort_unstable();
        // In ascending order of n voters, those from index (n - 1) / 2 upwards are a majority.
        reached[(reached.len() - 1) / 2]
    }
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
