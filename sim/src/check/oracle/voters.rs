//! Quorums as the oracles count them, apart from the core's code, which they check.
//!
//! Owns the set of voters. Must not use the core's quorums.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{Epoch, HistoryStatus, ServerId};

use crate::check::weights::Weights;

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
pub(super) struct Voters {
    pub(super) ids: BTreeSet<ServerId>,
    /// Their groups and weights; `None`: more than half of them are a quorum.
    pub(super) weights: Option<Weights>,
    /// The voters that are to replace them: a quorum needs one of either (RECONF-10).
    pub(super) next: Option<Box<Voters>>,
}

impl Voters {
    /// Voters without groups.
    pub(super) fn of(ids: impl IntoIterator<Item = ServerId>) -> Voters {
        Voters { ids: ids.into_iter().collect(), weights: None, next: None }
    }

    /// The same while `next` are to replace them.
    pub(super) fn before(self, next: &Voters) -> Voters {
        Voters { next: Some(Box::new(next.clone())), ..self }
    }

    /// The sets of which a quorum is needed.
    fn parts(&self) -> impl Iterator<Item = &Voters> {
        std::iter::successors(Some(self), |voters| voters.next.as_deref())
    }

    /// All voters, each at least once.
    pub(super) fn all(&self) -> impl Iterator<Item = ServerId> {
        self.parts().flat_map(|part| part.ids.iter().copied())
    }

    /// Whether this server votes.
    pub(super) fn contains(&self, id: ServerId) -> bool {
        self.parts().any(|part| part.ids.contains(&id))
    }

    /// The voters that a state file lists. It names no groups: the same servers are taken to have
    /// the same groups.
    pub(super) fn listed(&self, ids: impl IntoIterator<Item = ServerId>) -> Voters {
        let listed = Voters::of(ids);
        if listed.ids == self.ids { self.clone() } else { listed }
    }

    /// Whether this server may be elected: not if it has no weight (FLE-02).
    pub(super) fn may_lead(&self, id: ServerId) -> bool {
        let counts = |part: &Voters| part.weights.as_ref().is_none_or(|all| all.counts(id));
        self.parts().any(|part| part.ids.contains(&id) && counts(part))
    }

    /// Whether `does` holds for a quorum: for more than half of the voters, or by groups and
    /// weights; servers that do not vote are ignored (QV-01, QV-02, Z21).
    pub(super) fn most(&self, does: impl Fn(ServerId) -> bool) -> bool {
        self.parts().all(|part| part.most_of_part(&does))
    }

    fn most_of_part(&self, does: impl Fn(ServerId) -> bool) -> bool {
        if let Some(weights) = &self.weights {
            return weights.most(does);
        }
        let yes = self.ids.iter().filter(|id| does(**id)).count();
        yes > self.ids.len() - yes
    }

    /// Whether servers with these pasts may determine the history. `nothing`: the prospective
    /// leader has an empty log.
    ///
    /// They may if more than half of the voters are `Complete`, and so are more than half of the
    /// voters of the last established epoch, unless one of them knows that epoch to be of these
    /// voters; if none is `Complete` and more than
    /// half are `Uninitialized`; if `nothing` holds and every voter is one of the two; or if more
    /// than half of the voters of the last established epoch are `Complete`, where an
    /// `Uninitialized` server that was no voter then counts as `Complete` in the present majority.
    /// The last rule must hold for the voters that each `Complete` server of the latest epoch
    /// names, and never holds with groups. With groups, a quorum takes the place of more than half.
    pub(super) fn may_decide(&self, pasts: &BTreeMap<ServerId, Past>, nothing: bool) -> bool {
        self.parts().all(|part| part.part_may_decide(pasts, nothing))
    }

    /// The same where the log names the voters: no list of earlier ones counts.
    pub(super) fn may_decide_by_log(
        &self,
        pasts: &BTreeMap<ServerId, Past>,
        nothing: bool,
    ) -> bool {
        self.parts().all(|part| {
            let before = Voters { next: None, ..part.clone() };
            let known = |past: &Past| Past { before: before.clone(), ..past.clone() };
            let pasts = pasts.iter().map(|(id, past)| (*id, known(past))).collect();
            part.part_may_decide(&pasts, nothing)
        })
    }

    fn part_may_decide(&self, pasts: &BTreeMap<ServerId, Past>, nothing: bool) -> bool {
        let speaks = |id: ServerId, history_status: HistoryStatus| {
            pasts.get(&id).is_some_and(|p| p.history_status == history_status)
        };
        let know = || {
            pasts.iter().filter(|(id, past)| {
                self.ids.contains(id) && past.history_status == HistoryStatus::Complete
            })
        };
        let latest = know().map(|(_, past)| past.epoch).max();
        let before: Vec<&Voters> = know()
            .filter(|(_, past)| Some(past.epoch) == latest)
            .map(|(_, past)| &past.before)
            .collect();
        let nobody_knows = !self.ids.iter().any(|id| speaks(*id, HistoryStatus::Complete));
        let sound = |id: &ServerId| {
            speaks(*id, HistoryStatus::Complete) || speaks(*id, HistoryStatus::Uninitialized)
        };
        let counts = |id: ServerId| {
            let joins = before.iter().all(|before| !before.ids.contains(&id))
                && speaks(id, HistoryStatus::Uninitialized);
            joins || speaks(id, HistoryStatus::Complete)
        };
        let complete = |id| speaks(id, HistoryStatus::Complete);
        let established = self.weights.is_some()
            || before.iter().any(|before| before.ids == self.ids)
            || before.iter().all(|before| before.most(complete));
        (self.most(complete) && established)
            || (nobody_knows && self.most(|id| speaks(id, HistoryStatus::Uninitialized)))
            || (nothing && self.ids.iter().all(sound))
            || (latest.is_some()
                && self.weights.is_none()
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
        Voters::of((1..=n).map(ServerId))
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

    /// QV-02
    #[test]
    fn weights_replace_the_majority_and_blank_votes_beside_it() {
        use HistoryStatus::{Complete, Uninitialized};
        let groups = (1..).map(ServerId).zip([(1, 0), (1, 1), (1, 1)]).collect();
        let weighted = Voters { weights: Weights::new(groups), ..voters(3) };
        let may =
            |voices: &[HistoryStatus], before| weighted.may_decide(&pasts(voices, before), false);
        assert!(may(&[Uninitialized, Complete, Complete], 3));
        assert!(!may(&[Complete, Complete, Uninitialized], 3), "server 1 weighs nothing");
        assert!(!may(&[Complete, Uninitialized, Uninitialized], 1), "no growth");
        assert!(!weighted.may_lead(ServerId(1)) && weighted.may_lead(ServerId(2)));
        assert!(weighted.most(|id| id.0 > 1) && !weighted.most(|id| id.0 < 3));
        assert_eq!(weighted.listed((1..=3).map(ServerId)), weighted);
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
