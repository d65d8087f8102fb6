//! A vote, and which of two is better (FLE-02).
//!
//! Owns the total order of votes. Must not know elections.

use crate::ids::{Epoch, ServerId, Zxid};

/// For whom, and why: the derived order compares epoch, then history, then id, and greater is better.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Vote {
    /// Epoch of the candidate's history.
    pub(crate) epoch: Epoch,
    /// Last transaction that the candidate has logged.
    pub(crate) zxid: Zxid,
    /// Who is to lead.
    pub(crate) candidate: ServerId,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fle_02_edges_213_and_214_epoch_then_zxid_then_id() {
        let vote = |epoch, zxid, id| Vote {
            epoch: Epoch(epoch),
            zxid: Zxid(zxid),
            candidate: ServerId(id),
        };
        let rising = [vote(1, 9, 3), vote(2, 4, 1), vote(2, 5, 1), vote(2, 5, 2), vote(3, 0, 1)];
        assert!(rising.is_sorted());
    }
}
