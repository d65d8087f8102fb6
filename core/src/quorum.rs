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

    /// Does this server vote?
    pub fn contains(&self, id: ServerId) -> bool {
        self.0.contains(&id)
    }

    /// The only voter there is, if there is only one.
    pub fn alone(&self) -> bool {
        self.0.len() == 1
    }

    /// Are those who `acked` a majority? Others than voters do not count (Z21).
    pub fn is_quorum(&self, acked: impl Fn(ServerId) -> bool) -> bool {
        self.0.iter().filter(|id| acked(**id)).count() > self.0.len() / 2
    }

    /// May those with these voices decide, without the danger that something acknowledged is forgotten?
    ///
    /// A majority of full voices may. Blank ones may where there was nothing to forget: a majority of nothing but blank
    /// ones (a new ensemble; where a majority was wiped, no rule could help), or all voters together, if none of them
    /// has logged anything (`nothing_logged`): a new ensemble that was interrupted while some had begun and others not.
    pub fn may_decide(&self, voices: &BTreeMap<ServerId, Voice>, nothing_logged: bool) -> bool {
        let is = |id: &ServerId, voice| voices.get(id) == Some(&voice);
        let full = self.0.iter().filter(|id| is(id, Voice::Full)).count();
        let blank = self.0.iter().filter(|id| is(id, Voice::Blank)).count();
        let majority = self.0.len() / 2;
        full > majority
            || (full == 0 && blank > majority)
            || (nothing_logged && full + blank == self.0.len())
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
            assert_eq!(voters(3).may_decide(&voices, false), with_history, "{spoken:?}");
            assert_eq!(voters(3).may_decide(&voices, true), without, "{spoken:?}");
        }
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
