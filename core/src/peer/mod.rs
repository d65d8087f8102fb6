//! Messages between servers: notifications while they look for a leader, then messages on links.
//!
//! Owns the types of messages (`docs/design/001-ensemble.md` has a table of them, `zab` a diagram
//! of their order) and, in [`frame`], their encoding; [`greeting`] is how connections begin, and
//! [`secret`] how an end proves that it belongs to the ensemble. Must not decide anything.

mod close;
pub mod frame;
pub mod greeting;
mod message;
pub mod secret;

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, ServerId, SessionId, Zxid};
use crate::membership::{HistoryInfo, HistoryStatus};
use crate::txn::Lifetime;
use crate::wire::Request;

pub use close::{LinkCloseReason, PeerMisbehaved, StepDownReason};
pub use message::{Behind, FromLeader, FromLearner, PeerMessage};

/// A vote. The derived order compares the epochs, then the zxids, then the ids; the greater vote is
/// the better one (FLE-02).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Vote {
    /// Epoch of the candidate's history.
    pub epoch: Epoch,
    /// Zxid of the last transaction that the candidate has logged.
    pub zxid: Zxid,
    /// The server that should lead.
    pub candidate: ServerId,
}

/// The role of a server, as its notifications state it (FLE-01). Encoded as the variant's index:
/// append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ServerState {
    /// Looks for a leader.
    Looking,
    /// Follows a leader.
    Following,
    /// Leads.
    Leading,
}

/// Which servers know a session, as stated by the server that holds its connection (SESS-14).
/// Encoded as the variant's index: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SessionKind {
    /// All servers know it. The leader decides whether it is alive.
    Global,
    /// Only that server knows it, and decides whether it is alive.
    Local,
    /// Only that server knows it until the leader has made it global, which the leader does before
    /// it processes the write (SESS-15).
    Upgrading {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
}

/// A message of the election. The network may lose, repeat and reorder it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Notification {
    /// Role of the sender.
    pub server_state: ServerState,
    /// The sender's election round: it counts its own elections, and adopts the highest round that
    /// it receives.
    pub round: u64,
    /// While the sender looks, the vote that it proposes; else the vote for the leader that it
    /// follows or is.
    pub vote: Vote,
    /// The sender's history.
    pub history: HistoryInfo,
    /// The sender's ensemble; 0 if it has no data, or does not know its ensemble yet.
    pub ensemble: u64,
}

/// The texts of the configurations that come with a notification. With none, reconfiguration is
/// disabled, or no leader has established a configuration.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct NotedConfigs {
    /// The one that the sender has in force.
    pub in_force: Option<String>,
    /// The one that the sender has logged, and not in force.
    pub logged: Option<String>,
}

impl SessionKind {
    /// May `server` state this kind for `session` in a `request` that it forwards? The id of a
    /// local or upgrading session must be one of a client's session, with that server's byte. A
    /// local session is ended by its server alone.
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

    /// FLE-02.
    #[test]
    fn edges_213_and_214_votes_compare_epoch_then_zxid_then_id() {
        let vote = |epoch, zxid, id| Vote {
            epoch: Epoch(epoch),
            zxid: Zxid(zxid),
            candidate: ServerId(id),
        };
        let rising = [vote(1, 9, 3), vote(2, 4, 1), vote(2, 5, 1), vote(2, 5, 2), vote(3, 0, 1)];
        assert!(rising.is_sorted());
    }
}
