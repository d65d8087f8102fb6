//! When enough voters agree, as the oracles count it: the core, which they judge, may be wrong about that.
//!
//! Owns the members. Must not ask the core's quorums.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{Epoch, HistoryStatus, ServerId};

/// What a server knows of the past, going by its disk.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Past {
    pub(super) history_status: HistoryStatus,
    /// The epoch of its history.
    pub(super) epoch: Epoch,
    /// Who voted in the last epoch that was established, as far as it knows.
    pub(super) before: Voters,
}

/// Those who vote.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Voters(pub(super) BTreeSet<ServerId>);

impl Voters {
    /// Do more than half of them? Whoever else does is nothing to them (QV-01, Z21).
    pub(super) fn most(&self, does: impl Fn(ServerId) -> bool) -> bool {
        let yes = self.0.iter().filter(|id| does(**id)).count();
        yes > self.0.len() - yes
    }

    /// May those who know this much say what the history is? `nothing`: whoever asks them has logged nothing.
    ///
    /// More than half that know what they have acknowledged do. Without a single one that does, more than half that are
    /// new do; and all together, if there is nothing to lose. And where more than half of those who voted before know, who
    /// was none of them and is new counts like one that knows. That has to be so by the word of each that knows most.
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

    #[test]
    fn qv_01_most_are_more_than_half() {
        for (n, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (7, 4)] {
            assert!(voters(n).most(|id| id.0 <= needed));
            assert!(!voters(n).most(|id| id.0 < needed));
        }
    }

    #[test]
    fn those_who_know_decide_and_new_ones_where_there_is_nothing_to_lose() {
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
    fn who_joins_counts_beside_most_of_those_who_were_there() {
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
        assert!(!voters(4).may_decide(&lists, false), "one knows of a reign of four");
    }
}
