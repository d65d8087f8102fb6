//! All servers of an ensemble, with the role of each (Java `QuorumVerifier`, `LearnerType`).
//!
//! Owns which servers vote and which observe. Must not know what is voted on, nor how members are
//! reached.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use super::Voters;
use crate::ids::ServerId;

/// The servers of an ensemble: voters, and observers, which follow the leader and count in no
/// quorum.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Members {
    voters: Voters,
    observers: BTreeSet<ServerId>,
}

impl Members {
    /// These voters, and no observers.
    pub fn new(voters: Voters) -> Members {
        Members { voters, observers: BTreeSet::new() }
    }

    /// The same with these observers.
    ///
    /// # Panics
    /// If one of them is a voter.
    pub fn with_observers(mut self, ids: impl IntoIterator<Item = ServerId>) -> Members {
        self.observers = ids.into_iter().collect();
        let both = self.observers.iter().find(|id| self.voters.contains(**id));
        assert!(both.is_none(), "server {both:?} is a voter and an observer");
        self
    }

    /// The members while `next` are to replace these ones: all of both, with the role of the next
    /// configuration where both have one.
    pub(crate) fn with_next(&self, next: &Members) -> Members {
        let voters = self.voters.with_next(&next.voters);
        let observers = self.observers.union(&next.observers).copied();
        let observers = observers.filter(|id| !voters.contains(*id)).collect();
        Members { voters, observers }
    }

    /// The same with those servers of `others` that are not among them: known, and without a vote.
    pub(crate) fn with_known(mut self, others: &Members) -> Members {
        let unknown: Vec<ServerId> = others.ids().filter(|id| !self.contains(*id)).collect();
        self.observers.extend(unknown);
        self
    }

    /// The voters.
    pub fn voters(&self) -> &Voters {
        &self.voters
    }

    /// Is this server an observer?
    pub fn is_observer(&self, id: ServerId) -> bool {
        self.observers.contains(&id)
    }

    /// Is there only one server?
    pub fn alone(&self) -> bool {
        self.voters.alone() && self.observers.is_empty()
    }

    /// Is this server one of the ensemble?
    pub fn contains(&self, id: ServerId) -> bool {
        self.voters.contains(id) || self.is_observer(id)
    }

    /// All servers, ordered by id.
    pub fn ids(&self) -> impl Iterator<Item = ServerId> {
        let all: BTreeSet<ServerId> = self.voters.ids().chain(self.observers.clone()).collect();
        all.into_iter()
    }
}

impl From<Voters> for Members {
    fn from(voters: Voters) -> Members {
        Members::new(voters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn observers_are_members_without_a_vote() {
        let members = Members::new(Voters::new([1, 3].map(ServerId)));
        let members = members.with_observers([2, 9].map(ServerId));
        assert!(members.contains(ServerId(2)) && !members.voters().contains(ServerId(2)));
        assert!(members.is_observer(ServerId(9)) && !members.is_observer(ServerId(1)));
        assert_eq!(members.ids().collect::<Vec<_>>(), [1, 2, 3, 9].map(ServerId));
        assert!(!members.contains(ServerId(4)));
        let one = Members::new(Voters::new([ServerId(1)]));
        assert!(one.alone() && !one.with_observers([ServerId(2)]).alone());
    }

    #[test]
    #[should_panic(expected = "is a voter and an observer")]
    fn server_has_one_role() {
        let _both = Members::new(Voters::new([ServerId(1)])).with_observers([ServerId(1)]);
    }
}
