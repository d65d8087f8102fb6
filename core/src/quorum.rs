//! Who decides, and when enough have: majorities of a set of voters (QV-01).
//!
//! Owns the arithmetic of quorums. Must not know what is voted on.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;
use crate::peer::Voice;

/// The voting members of an ensemble; never empty.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Voters(BTreeSet<ServerId>);

impl Voters {
    /// The given servers.
    ///
    /// # Panics
    /// When there are none.
    pub fn new(ids: impl IntoIterator<Item = ServerId>) -> Voters {
        let ids: BTreeSet<ServerId> = ids.into_iter().collect();
        assert!(!ids.is_empty(), "an ensemble has voters");
        Voters(ids)
    }

    /// More voters than this no configuration has: each has a bit in what servers say of newcomers.
    pub(crate) const MAX: usize = u64::BITS as usize;

    /// Does this server vote?
    pub fn contains(&self, id: ServerId) -> bool {
        self.0.contains(&id)
    }

    /// The only voter there is, if there is only one.
    pub fn alone(&self) -> bool {
        self.0.len() == 1
    }

    /// How many are the smallest majority.
    pub(crate) fn quorum_size(&self) -> usize {
        self.0.len() / 2 + 1
    }

    /// Are those who `acked` a majority? Others than voters do not count (Z21).
    pub fn is_quorum(&self, acked: impl Fn(ServerId) -> bool) -> bool {
        self.0.iter().filter(|id| acked(**id)).count() > self.0.len() / 2
    }

    /// May those with these voices decide, without the danger that something acknowledged is forgotten? `before` are the
    /// voters of the last established epoch, as far as the server knows that decides.
    ///
    /// A majority of full voices may. Blank ones may where there was nothing to forget: a majority of nothing but blank
    /// ones (a new ensemble; where a majority was wiped, no rule could help), or all voters together, if none of them
    /// has logged anything (`nothing_logged`): a new ensemble that was interrupted while some had begun and others not.
    /// And who was no voter before has acknowledged nothing: such blank ones count beside full ones that were a majority
    /// then. So one server grows to three.
    pub fn may_decide(
        &self,
        voices: &BTreeMap<ServerId, Voice>,
        nothing_logged: bool,
        before: &Voters,
    ) -> bool {
        let is = |id: &ServerId, voice| voices.get(id) == Some(&voice);
        let full = self.0.iter().filter(|id| is(id, Voice::Full)).count();
        let blank = self.0.iter().filter(|id| is(id, Voice::Blank)).count();
        let new = self.0.difference(&before.0).filter(|id| is(id, Voice::Blank)).count();
        let majority = self.0.len() / 2;
        full > majority
            || (full == 0 && blank > majority)
            || (nothing_logged && full + blank == self.0.len())
            || (full + new > majority && before.is_quorum(|id| is(&id, Voice::Full)))
    }

    /// These voters, or `self` where there are none.
    pub(crate) fn or(&self, others: &BTreeSet<ServerId>) -> Voters {
        if others.is_empty() { self.clone() } else { Voters(others.clone()) }
    }

    pub(crate) fn set(&self) -> &BTreeSet<ServerId> {
        &self.0
    }

    /// The voters that are not among `before`, one bit for each by their order, as notifications carry them.
    pub(crate) fn newcomers(&self, before: &Voters) -> u64 {
        let new = (0..u64::BITS).zip(&self.0).filter(|(_, id)| !before.0.contains(id));
        new.fold(0, |bits, (index, _)| bits | 1 << index)
    }

    /// The voters without the newcomers that these bits say; all where nobody would be left.
    pub(crate) fn without(&self, newcomers: u64) -> Voters {
        let bit = |index: usize| index < 64 && newcomers >> index & 1 == 1;
        let old = self.0.iter().enumerate().filter(|(index, _)| !bit(*index)).map(|(_, id)| *id);
        self.or(&old.collect())
    }

    /// All of them, by id.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        self.0.iter().copied()
    }

    /// What a majority has reached, given how far each voter is.
    pub(crate) fn reached_by_quorum<T: Ord + Copy>(&self, progress: impl Fn(ServerId) -> T) -> T {
        let mut reached: Vec<T> = self.0.iter().map(|id| progress(*id)).collect();
        reached.sort_unstable();
        // With n voters sorted upwards, position (n - 1) / 2 has a majority at or above it.
        reached[(reached.len() - 1) / 2]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Zxid;

    fn voters(n: u64) -> Voters {
        Voters::new((1..=n).map(ServerId))
    }

    #[test]
    fn qv_01_more_than_half() {
        for (n, needed) in [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3)] {
            assert!(voters(n).is_quorum(|id| id.0 <= needed));
            assert!(!voters(n).is_quorum(|id| id.0 < needed));
        }
    }

    #[test]
    fn blank_voices_count_where_there_is_nothing_to_forget() {
        use Voice::{Blank, Damaged, Full};
        for (spoken, with_history, without) in [
            (&[Full, Full][..], true, true),
            (&[Blank, Blank], true, true),
            (&[Full, Blank], false, false),
            (&[Full, Blank, Blank], false, true),
            (&[Full, Full, Blank], true, true),
            (&[Blank, Blank, Damaged], true, true),
            (&[Full, Blank, Damaged], false, false),
            (&[Full, Damaged, Damaged], false, false),
            (&[Blank], false, false),
        ] {
            let voices: BTreeMap<_, _> = (1..).map(ServerId).zip(spoken.iter().copied()).collect();
            assert_eq!(
                voters(3).may_decide(&voices, false, &voters(3)),
                with_history,
                "{spoken:?}"
            );
            assert_eq!(voters(3).may_decide(&voices, true, &voters(3)), without, "{spoken:?}");
        }
    }

    #[test]
    fn who_was_no_voter_before_counts_beside_a_majority_of_those_who_were() {
        use Voice::{Blank, Damaged, Full};
        let among = |n: u64, spoken: &[Voice], before: u64| {
            let voices = (1..).map(ServerId).zip(spoken.iter().copied()).collect();
            voters(n).may_decide(&voices, false, &voters(before))
        };
        assert!(among(3, &[Full, Blank], 1), "one grows to three");
        assert!(!among(3, &[Full, Damaged], 1) && !among(3, &[Full], 1));
        assert!(!among(3, &[Full, Blank, Blank], 3), "both were voters, and have lost their disks");
        assert!(among(5, &[Full, Full, Damaged, Blank], 3), "three grow to five");
        assert!(!among(5, &[Full, Blank, Blank, Blank, Blank], 3), "two of three are lost");
        assert!(!among(5, &[Blank, Full, Full], 2), "one of two is lost");
    }

    #[test]
    fn newcomers_go_into_bits_and_back() {
        let (three, five) = (voters(3), voters(5));
        assert_eq!((five.newcomers(&three), five.newcomers(&five)), (0b11000, 0));
        assert_eq!(five.without(0b11000), three);
        assert_eq!(three.without(0b111), three, "nobody would be left");
    }

    #[test]
    fn reached_is_what_a_majority_has() {
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
            assert_eq!(voters.reached_by_quorum(|id| progress[&id]), Zxid(reached));
            assert!(voters.is_quorum(|id| progress[&id] >= Zxid(reached)));
        }
    }
}
