//! What servers say to each other: notifications while they look for a leader, then messages on a link.
//!
//! Owns the vocabulary (`zab` draws who says what when, `docs/design/001-ensemble.md` has the table) and, in [`frame`],
//! its encoding; [`greeting`] is how connections begin, and [`secret`] how servers prove that they are some. Must not
//! decide anything.

pub mod frame;
pub mod greeting;
pub mod secret;

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::auth::Ids;
use crate::identity::{EpochNonce, Identity};
use crate::ids::{ConnId, Epoch, Instant, ServerId, SessionId, Zxid};
use crate::quorum::{HistoryInfo, Voice};
use crate::store::Entry;
use crate::txn::{Lifetime, Origin};
use crate::wire::Request;

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
pub enum Stance {
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
pub enum Standing {
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
    pub stance: Stance,
    /// The sender's election, counted by itself and raised to the highest it hears.
    pub round: u64,
    /// Whom the sender would have lead, or whom it follows, or itself.
    pub vote: Vote,
    /// Of the sender.
    pub history: HistoryInfo,
    /// The sender's ensemble; 0 where it does not know it yet.
    pub ensemble: u64,
}

/// A message on a link between a learner, who has dialled, and its leader. First in, first out. Sent by position: append
/// only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// Learner, first: what it has promised so far (ZAB-02).
    FollowerInfo {
        /// Highest epoch promised.
        accepted: Epoch,
        /// Its history.
        history: HistoryInfo,
        /// Its ensemble; 0 where it does not know it yet.
        ensemble: u64,
    },
    /// Leader: the epoch it proposes to begin, or has begun (ZAB-03).
    LeaderInfo {
        /// The epoch.
        epoch: Epoch,
        /// Is there nothing that the learner can have forgotten, if it is blank? The leader has logged nothing at all, or the
        /// learner was no voter of the last epoch that was established.
        empty: bool,
        /// Its ensemble; 0 where it does not know it yet.
        ensemble: u64,
        /// Has it logged nothing at all, so that it may become part of another ensemble?
        blank: bool,
    },
    /// Learner: the promise not to follow an older epoch is durable (ZAB-04).
    AckEpoch {
        /// Was the promise made now? One that was made earlier may have been made to somebody else, and is not counted.
        fresh: bool,
        /// Epoch of its history.
        current: Epoch,
        /// Last transaction of its history.
        last: Zxid,
        /// The random number of the epoch of that transaction; 0 where it is not known.
        nonce: u64,
    },
    /// Leader: forget what comes after this position (ZAB-07).
    Trunc {
        /// The position.
        to: Zxid,
    },
    /// Leader: a piece of a snapshot, which is to replace the learner's history (ZAB-10).
    Snap {
        /// The snapshot's position.
        zxid: Zxid,
        /// Number of the piece, from zero.
        index: u32,
        /// Its content.
        bytes: Bytes,
        /// Is it the last piece?
        last: bool,
    },
    /// Learner: where its history ends, after [`Trunc`](Self::Trunc) or the last [`Snap`](Self::Snap).
    SyncAt {
        /// Last transaction.
        last: Zxid,
        /// The random number of its epoch; 0 where it is not known.
        nonce: u64,
    },
    /// Leader: the next transaction (ZAB-09, ZAB-14).
    Proposal(Entry),
    /// Leader: the learner has been sent the whole history (ZAB-11). It says so again, with the new list to keep, where the
    /// ensemble has other voters than before and a quorum has the history.
    NewLeader {
        /// The epoch that begins with it.
        epoch: Epoch,
        /// The voters of this epoch.
        voters: BTreeSet<ServerId>,
        /// The voters of the last established epoch: the list to keep.
        established: BTreeSet<ServerId>,
        /// The ensemble.
        identity: Identity,
        /// The random numbers of the epochs of the history.
        nonces: Vec<EpochNonce>,
    },
    /// Learner: history and epoch are durable.
    AckNewLeader {
        /// The epoch.
        epoch: Epoch,
    },
    /// Leader: serve clients (ZAB-12).
    UpToDate {
        /// The history is committed up to here.
        committed: Zxid,
    },
    /// Learner: its log is durable up to here (ZAB-15).
    Ack {
        /// The watermark.
        zxid: Zxid,
    },
    /// Leader: the history is committed up to here.
    Commit {
        /// The watermark.
        zxid: Zxid,
    },
    /// Leader: is somebody there? (ZAB-17)
    Ping {
        /// Counts pings.
        round: u64,
        /// The leader's monotonic clock when it sends this: an opaque number to the learner.
        sent: Instant,
        /// `sent` of the last [`Pong`](Self::Pong) that the leader has read on this link; zero before the first.
        /// It bounds the age of this message on the learner's own clock, however long the message waited to be read.
        echo: Instant,
    },
    /// Learner: yes, and these sessions have been heard of since the last answer.
    Pong {
        /// Of the ping.
        round: u64,
        /// The learner's monotonic clock when it sends this: an opaque number to the leader.
        sent: Instant,
        /// `sent` of the ping that this answers.
        echo: Instant,
        /// The sessions, and the timeout that each was granted last, ms (SESS-16).
        touched: Vec<(SessionId, u32)>,
        /// Fingerprints of its state at positions at which servers compare them.
        digests: Vec<(Zxid, u64)>,
    },
    /// Learner: a client's write (ZAB-16).
    Request {
        /// For which session.
        session: SessionId,
        /// Who has to answer.
        origin: Origin,
        /// Who asks (ACL-18).
        ids: Ids,
        /// The write.
        request: Request,
        /// What the session is to the ensemble.
        standing: Standing,
    },
    /// Learner: a client wants a session.
    CreateSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
        /// Who has to answer.
        origin: Origin,
    },
    /// Learner: a client wants to go on with its session here (ZAB-21). Where it comes from another server, the answer is
    /// a transaction that says so; else it is [`Synced`](Self::Synced): once a quorum has confirmed the leader, what the
    /// learner knows of the session by then is true.
    Revalidate {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Which session.
        session: SessionId,
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// Learner: a client wants to see whatever was committed before now (CONS-04).
    Sync {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// Leader: everything is in what was sent before this message.
    Synced {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// Learner: it makes a tree of the snapshot that it was sent, which takes its time.
    Loading {
        /// Parts of the work that are done.
        done: u64,
        /// All of them.
        all: u64,
    },
    /// Leader: what the learner has at this position is not what the ensemble has there.
    Differs {
        /// The position.
        zxid: Zxid,
    },
}

impl Standing {
    /// May `server` say this of the session for which it wants `request` to be decided? Only its own sessions may be known
    /// to it alone, they are named for it, and it ends them itself.
    pub(crate) fn admits(self, session: SessionId, server: ServerId, request: &Request) -> bool {
        let own = session.server_byte() == server.session_byte()
            && Lifetime::of(session) == Lifetime::Ephemeral;
        match self {
            Standing::Global => true,
            Standing::Local => own && *request != Request::CloseSession,
            Standing::Upgrading { .. } => own,
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
        let Notification { stance, round, vote, history, ensemble: _ } = self;
        match stance {
            Stance::Looking => write!(f, "looking round {round}: {vote}")?,
            Stance::Following => write!(f, "following {vote}, round {round}")?,
            Stance::Leading => write!(f, "leading {vote}, round {round}")?,
        }
        match history.voice {
            Voice::Full => Ok(()),
            Voice::Blank => write!(f, ", blank"),
            Voice::Damaged => write!(f, ", damaged"),
        }
    }
}

impl fmt::Display for PeerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerMessage::FollowerInfo { accepted, history, .. } => {
                write!(f, "FOLLOWERINFO accepted={accepted} {:?}", history.voice)
            }
            PeerMessage::LeaderInfo { epoch, empty, .. } => {
                write!(f, "LEADERINFO epoch={epoch}{}", if *empty { " empty" } else { "" })
            }
            PeerMessage::AckEpoch { fresh, current, last, .. } => {
                let old = if *fresh { "" } else { " not fresh" };
                write!(f, "ACKEPOCH current={current} last={last}{old}")
            }
            PeerMessage::Trunc { to } => write!(f, "TRUNC {to}"),
            PeerMessage::Snap { zxid, index, bytes, last } => {
                let end = if *last { " last" } else { "" };
                write!(f, "SNAP {zxid} piece {index} {}B{end}", bytes.len())
            }
            PeerMessage::SyncAt { last, .. } => write!(f, "at {last}"),
            PeerMessage::Proposal(entry) => {
                write!(f, "PROPOSAL {} {}B", entry.zxid, entry.bytes.len())
            }
            PeerMessage::NewLeader { epoch, .. } => write!(f, "NEWLEADER {epoch}"),
            PeerMessage::AckNewLeader { epoch } => write!(f, "ACK NEWLEADER {epoch}"),
            PeerMessage::UpToDate { committed } => write!(f, "UPTODATE committed={committed}"),
            PeerMessage::Ack { zxid } => write!(f, "ACK {zxid}"),
            PeerMessage::Commit { zxid } => write!(f, "COMMIT {zxid}"),
            PeerMessage::Ping { round, .. } => write!(f, "PING {round}"),
            PeerMessage::Pong { round, touched, .. } => {
                write!(f, "PONG {round} touched={}", touched.len())
            }
            PeerMessage::Request { session, origin, request, standing, .. } => {
                write!(f, "REQUEST {session} {}#{} {request}", origin.conn, origin.request)?;
                match standing {
                    Standing::Global => Ok(()),
                    Standing::Local => write!(f, ", of a local session"),
                    Standing::Upgrading { timeout_ms } => write!(f, ", upgrading {timeout_ms}ms"),
                }
            }
            PeerMessage::CreateSession { timeout_ms, origin } => {
                write!(f, "CREATESESSION {} {timeout_ms}ms", origin.conn)
            }
            PeerMessage::Revalidate { conn, session, timeout_ms } => {
                write!(f, "REVALIDATE {conn} {session} {timeout_ms}ms")
            }
            PeerMessage::Sync { conn, request } => write!(f, "SYNC {conn}#{request}"),
            PeerMessage::Synced { conn, request } => write!(f, "SYNCED {conn}#{request}"),
            PeerMessage::Loading { done, all } => write!(f, "LOADING {done} of {all}"),
            PeerMessage::Differs { zxid } => write!(f, "DIFFERS at {zxid}"),
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
