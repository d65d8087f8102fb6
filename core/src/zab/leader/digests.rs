//! Comparison of the servers' states: their digests at the same zxids, as reported to the leader.
//!
//! Owns the reported digests, and which servers differ from a majority. Must not act on a
//! difference. If no digest has a majority, it is unknown which server is right.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{ServerId, Zxid};
use crate::membership::Voters;

/// The number of zxids at which the leader waits for more digests.
const POSITIONS: usize = 64;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Digests {
    reported: BTreeMap<Zxid, BTreeMap<ServerId, u64>>,
}

impl Digests {
    /// Adds the digests of two servers at `zxid`. Returns the servers that differ there from a
    /// majority of the voters.
    pub(super) fn add(
        &mut self,
        zxid: Zxid,
        fingerprints: [(ServerId, u64); 2],
        voters: &Voters,
    ) -> BTreeSet<ServerId> {
        let reported = self.reported.entry(zxid).or_default();
        reported.extend(fingerprints);
        let agree = |digest: u64| voters.most_agree(|id| reported.get(&id) == Some(&digest));
        let right =
            fingerprints.map(|(_, digest)| digest).into_iter().find(|digest| agree(*digest));
        let differing =
            reported.iter().filter(|(_, digest)| right.is_some_and(|it| it != **digest));
        let differing = differing.map(|(id, _)| *id).collect();
        while self.reported.len() > POSITIONS {
            self.reported.pop_first();
        }
        differing
    }

    /// Removes the digests of a server whose state will be replaced.
    pub(super) fn forget(&mut self, server: ServerId) {
        self.reported.values_mut().for_each(|reported| {
            reported.remove(&server);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: Zxid = Zxid(1_000);

    fn ids(ids: &[u64]) -> BTreeSet<ServerId> {
        ids.iter().map(|id| ServerId(*id)).collect()
    }

    #[test]
    fn server_that_differs_from_a_majority_is_found() {
        let voters = Voters::new([1, 2, 3].map(ServerId));
        let mut digests = Digests::default();
        let mut hear = |zxid, one: (u64, u64), other: (u64, u64)| {
            let [one, other] = [one, other].map(|(id, digest)| (ServerId(id), digest));
            digests.add(zxid, [one, other], &voters)
        };
        assert_eq!(hear(AT, (1, 7), (2, 7)), ids(&[]));
        assert_eq!(hear(AT, (1, 7), (3, 8)), ids(&[3]), "a learner");
        assert_eq!(hear(Zxid(2_000), (1, 7), (2, 8)), ids(&[]), "nobody can say which is right");
        assert_eq!(hear(Zxid(2_000), (1, 7), (3, 8)), ids(&[1]), "the leader");
        assert_eq!(hear(Zxid(3_000), (1, 7), (2, 8)), ids(&[]));
        assert_eq!(hear(Zxid(3_000), (1, 7), (3, 9)), ids(&[]), "three opinions");
    }

    #[test]
    fn two_servers_have_no_majority_to_differ_from() {
        let voters = Voters::new([1, 2].map(ServerId));
        let pair = [(ServerId(1), 7), (ServerId(2), 8)];
        assert_eq!(Digests::default().add(AT, pair, &voters), ids(&[]));
    }

    #[test]
    fn positions_are_bounded_and_forget_discards_a_servers_digests() {
        let voters = Voters::new([1, 2, 3].map(ServerId));
        let mut digests = Digests::default();
        for zxid in 0..1_000 {
            let pair = [(ServerId(1), 7), (ServerId(2), 7)];
            assert!(digests.add(Zxid(zxid), pair, &voters).is_empty());
        }
        assert_eq!(digests.reported.len(), POSITIONS);
        digests.add(AT, [(ServerId(1), 7), (ServerId(3), 8)], &voters);
        digests.forget(ServerId(3));
        assert!(digests.add(AT, [(ServerId(1), 7), (ServerId(2), 7)], &voters).is_empty());
    }
}
