//! Who decides, and when enough have: majorities of a set of voters (QV-01).
//!
//! Owns the arithmetic of quorums. Must not know what is voted on.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::ids::{ServerId, Zxid};

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

    /// The highest zxid that a majority has reached, given how far each voter is.
    pub fn reached_by_quorum(&self, progress: impl Fn(ServerId) -> Zxid) -> Zxid {
        let mut reached: Vec<Zxid> = self.0.iter().map(|id| progress(*id)).collect();
        reached.sort_unstable();
        // With n voters sorted upwards, position (n - 1) / 2 has a majority at or above it.
        reached[(reached.len() - 1) / 2]
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

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
