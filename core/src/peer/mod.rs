//! What servers say to each other: notifications while they look for a leader, then messages on a link.
//!
//! Owns the vocabulary (`zab` draws who says what when, `docs/design/001-ensemble.md` has the table) and, in [`frame`],
//! its encoding; [`greeting`] is how connections begin, and [`secret`] how servers prove that they are some. Must not
//! decide anything.

mod close;
pub mod frame;
pub mod greeting;
mod message;
pub mod secret;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ServerId, SessionId, Zxid};
use crate::quorum::{HistoryInfo, HistoryStatus};
use crate::txn::Lifetime;
use crate::wire::Request;

pub use close::{LinkCloseReason, PeerMisbehaved, StepDownReason};
pub use message::{FromLeader, FromLearner, PeerMessage};

/// For whom, and why: the derived order compares epoch, then history, then id, and greater is better (FLE-02).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// Epoch of the candidate's history.
    pub epoch: Epoch,
    /// Last transaction that the candidate has logged.
    pub zxid: Zxid,
    /// Who is to lead.
    pub candidate: ServerId,
}

/// What a server is doing, as far as an election is concerned (FLE-01). Sent by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ServerState {
    /// Looks for a leader.
    Looking,
    /// Follows one.
    Following,
    /// Leads.
    Leading,
}

/// What a session is to the ensemble, by the word of the server that holds its connection (SESS-14). Sent by
/// position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionKind {
    /// Known to all: whether it is alive is the leader's to say.
    Global,
    /// Known to that server alone, who answers for it.
    Local,
    /// Known to that server alone until now: the leader makes it known to all before it looks at the write (SESS-15).
    Upgrading {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
}

/// A message of the election. May be lost, repeated and reordered.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notification {
    /// Of the sender.
    pub server_state: ServerState,
    /// The sender's election, counted by itself and raised to the highest it hears.
    pub round: u64,
    /// Whom the sender would have lead, or whom it follows, or itself.
    pub vote: Vote,
    /// Of the sender.
    pub history: HistoryInfo,
    /// The sender's ensemble; 0 where it does not know it yet.
    pub ensemble: u64,
}

impl SessionKind {
    /// May `server` say this of the session for which it wants `request` to be decided? Only its own sessions may be known
    /// to it alone, they are named for it, and it ends them itself.
    pub(crate) fn admits(self, session: SessionId, server: ServerId, request: &Request) -> bool {
        let own = session.server_byte() == server.session_byte()
            && Lifetime::of(session) == Lifetime::Ephemeral;
        match self {
            SessionKind::Global => true,
            SessionKind::Local => own && *request != Request::CloseSession,
            SessionKind::Upgrading { .. } => own,
        }
    }
}

impl fmt::Display for Vote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{} (epoch {}, {})", self.candidate, self.epoch, self.zxid)
    }
}

impl fmt::Display for Notification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Notification { server_state, round, vote, history, ensemble: _ } = self;
        match server_state {
            ServerState::Looking => write!(f, "looking round {round}: {vote}")?,
            ServerState::Following => write!(f, "following {vote}, round {round}")?,
            ServerState::Leading => write!(f, "leading {vote}, round {round}")?,
        }
        match history.history_status {
            HistoryStatus::Complete => Ok(()),
            HistoryStatus::Uninitialized => write!(f, ", uninitialized"),
            HistoryStatus::Lost => write!(f, ", lost"),
        }
    }
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
