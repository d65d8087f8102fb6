//! Leader election (Java `FastLeaderElection`): what a server does that knows no leader.
//!
//! Owns the votes of one election. Must not change roles: it says who won, `server` acts on it.
//!
//! A server votes for the history that it has *logged*, not for what it has applied, so it first lets its outstanding
//! writes finish. With a single voter the own vote is all there is to wait for.

mod vote;

use std::collections::BTreeMap;

pub(crate) use vote::Vote;

use crate::ids::ServerId;
use crate::quorum::Voters;

/// An election under way.
#[derive(Debug)]
pub(crate) struct Looking {
    /// The best candidate so far; `None` until the own history is settled on the disk.
    proposal: Option<Vote>,
    /// The last vote heard from each server, the own one included.
    received: BTreeMap<ServerId, Vote>,
}

impl Looking {
    /// A server that has not voted yet.
    pub(crate) fn new() -> Looking {
        Looking { proposal: None, received: BTreeMap::new() }
    }

    /// The own history is settled: vote for it.
    pub(crate) fn vote(&mut self, own: Vote) {
        self.proposal = Some(own);
        self.received.insert(own.candidate, own);
    }

    /// The winner: the own proposal, once a quorum shares it (FLE-05).
    pub(crate) fn winner(&self, voters: &Voters) -> Option<ServerId> {
        let proposal = self.proposal?;
        voters
            .is_quorum(|id| self.received.get(&id) == Some(&proposal))
            .then_some(proposal.candidate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Zxid};

    #[test]
    fn alone_the_own_vote_wins_and_among_three_it_does_not() {
        let own = Vote { epoch: Epoch(1), zxid: Zxid(5), candidate: ServerId(1) };
        let mut looking = Looking::new();
        let one = Voters::new([ServerId(1)]);
        assert_eq!(looking.winner(&one), None, "nobody wins before the history is settled");
        looking.vote(own);
        assert_eq!(looking.winner(&one), Some(ServerId(1)));
        assert_eq!(looking.winner(&Voters::new([1, 2, 3].map(ServerId))), None);
    }
}
