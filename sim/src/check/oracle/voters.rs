//! Majorities as the oracles count them, apart from the core's code, which they check.
//!
//! Owns the set of voters. Must not use the core's quorums.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{Epoch, HistoryStatus, ServerId};

/// What a server knows of earlier epochs, by its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Past {
    pub(super) history_status: HistoryStatus,
    /// The current epoch of its history.
    pub(super) epoch: Epoch,
    /// The voters of the last established epoch that it knows of.
    pub(super) before: Voters,
}

/// The servers that vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Voters(pub(super) BTreeSet<ServerId>);

impl Voters {
    /// Whether `does` holds for more than half of the voters; servers that do not vote are ignored
    /// (QV-01, Z21).
    pub(super) fn most(&self, does: impl Fn(ServerId) -> bool) -> bool {
        let yes = self.0.iter().filter(|id| does(**id)).count();
        yes > self.0.len() - yes
    }

    /// Whether servers with these pasts may determine the history. `nothing`: the prospective
    /// leader has an empty log.
    ///
    /// They may if more than half of the voters are `Complete`; if none is `Complete` and more than
    /// half are `Uninitialized`; if `nothing` holds and every voter is one of the two; or if more
    /// than half of the voters of the last established epoch are `Complete`, where an
    /// `Uninitialized` server that was no voter then counts as `Complete` in the present majority.
    /// The last rule must hold for the voters that each `Complete` server of the latest epoch
    /// names.
    pub(super) fn may_decide(&self, pasts: &BTreeMap<ServerId, Past>, nothing: bool) -> bool {
        let speaks = |id: ServerId, history_status: HistoryStatus| {
            pasts.get(&id).is_some_and(|p| p.history_status == history_status)
        };
        let know = || {
            pasts.iter().filter(|(id, past)| {
                self.0.contains(id) && past.history_status == HistoryStatus::Complete
            })
        };
        let latest = know().map(|(_, past)| past.epoch).max();
        let before: Vec<&Voters> = know()
            .filter(|(_, past)| Some(past.epoch) == latest)
            .map(|(_, past)| &past.before)
            .collect();
        let nobody_knows = !self.0.iter().any(|id| speaks(*id, HistoryStatus::Complete));
        let sound = |id: &ServerId| {
            speaks(*id, HistoryStatus::Complete) || speaks(*id, HistoryStatus::Uninitialized)
        };
        let counts = |id: ServerId| {
            let joins = before.iter().all(|before| !before.0.contains(&id))
                && speaks(id, HistoryStatus::Uninitialized);
            joins || speaks(id, HistoryStatus::Complete)
        };
        self.most(|id| speaks(id, HistoryStatus::Complete))
            || (nobody_knows && self.most(|id| speaks(id, HistoryStatus::Uninitialized)))
            || (nothing && self.0.iter().all(sound))
            || (latest.is_some()
                && before
                    .iter()
                    .all(|before| before.most(|id| speaks(id, HistoryStatus::Complete)))
                && self.most(counts))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn voters(n: u64) -> Voters {
        Voters((1..=n).map(ServerId).collect())
    }

    fn pasts(voices: &[HistoryStatus], before: u64) -> BTreeMap<ServerId, Past> {
        let past = |history_status: &HistoryStatus| Past {
            history_status: *history_status,
            epoch: Epoch(1),
            before: voters(before),
        };
        (1..).map(ServerId).zip(voices.iter().map(past)).collect()
    }

    /// QV-01
    #[test]
    fn majority_is_more_than_half_of_the_voters() {
        for (n, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            assert!(voters(n).most(|id| id.0 <= needed));
            assert!(!voters(n).most(|id| id.0 < needed));
        }
    }

    /// The present voters alone decide, by their history statuses.
    #[test]
    fn majority_of_complete_histories_may_decide() {
        use HistoryStatus::{Complete, Lost, Uninitialized};
        let may =
            |voices: &[HistoryStatus], nothing| voters(3).may_decide(&pasts(voices, 3), nothing);
        assert!(may(&[Complete, Complete], false));
        assert!(!may(&[Complete, Uninitialized], false) && !may(&[Complete, Uninitialized], true));
        assert!(may(&[Uninitialized, Uninitialized], false));
        assert!(
            !may(&[Uninitialized, Uninitialized, Complete], false)
                && may(&[Uninitialized, Uninitialized, Complete], true)
        );
        assert!(!may(&[Uninitialized, Lost], false) && !may(&[Lost, Lost, Uninitialized], true));
    }

    #[test]
    fn joining_voter_counts_beside_a_majority_of_earlier_voters() {
        use HistoryStatus::{Complete, Lost, Uninitialized};
        let grows =
            |voices: &[HistoryStatus], before| voters(3).may_decide(&pasts(voices, before), false);
        assert!(
            grows(&[Complete, Uninitialized], 1) && grows(&[Complete, Complete, Uninitialized], 2)
        );
        assert!(
            !grows(&[Complete, Lost], 1) && !grows(&[Complete, Uninitialized, Uninitialized], 2)
        );
        let mut lists = pasts(&[Complete, Complete, Uninitialized, Uninitialized], 2);
        assert!(voters(4).may_decide(&lists, false));
        lists.get_mut(&ServerId(2)).unwrap().before = voters(4);
        assert!(!voters(4).may_decide(&lists, false), "one knows of an epoch of four");
    }
}
