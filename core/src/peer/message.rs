//! The messages on a link between a learner, who has dialled, and its leader: first in, first out.
//!
//! Owns what each end may say, as one type for each direction. Must not decide anything. Sent by position: append only.

use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::SessionKind;
use crate::auth::Ids;
use crate::identity::{EpochNonce, Identity};
use crate::ids::{ConnId, Epoch, Instant, ServerId, SessionId, Zxid};
use crate::quorum::HistoryInfo;
use crate::store::Entry;
use crate::txn::Origin;
use crate::wire::Request;

/// A message on a link. The direction says which of both types is read, so that bytes carry no mark of it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// From the end that has dialled.
    Learner(FromLearner),
    /// From the end that was dialled.
    Leader(FromLeader),
}

/// What a learner says to its leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromLearner {
    /// First: what it has promised so far (ZAB-02).
    FollowerInfo {
        /// Highest epoch promised.
        accepted: Epoch,
        /// Its history.
        history: HistoryInfo,
        /// Its ensemble; 0 where it does not know it yet.
        ensemble: u64,
    },
    /// The promise not to follow an older epoch is durable (ZAB-04).
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
    /// Where its history ends, after [`FromLeader::Trunc`] or the last [`FromLeader::Snap`].
    SyncAt {
        /// Last transaction.
        last: Zxid,
        /// The random number of its epoch; 0 where it is not known.
        nonce: u64,
    },
    /// History and epoch are durable.
    AckNewLeader {
        /// The epoch.
        epoch: Epoch,
    },
    /// Its log is durable up to here (ZAB-15).
    Ack {
        /// The watermark.
        zxid: Zxid,
    },
    /// The answer to a ping, with the sessions that were heard of since the last answer.
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
    /// A client's write (ZAB-16).
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
        session_kind: SessionKind,
    },
    /// A client wants a session.
    CreateSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
        /// Who has to answer.
        origin: Origin,
    },
    /// A client wants to go on with its session here (ZAB-21). Where it comes from another server, the answer is
    /// a transaction that says so; else it is [`FromLeader::Synced`]: once a quorum has confirmed the leader, what the
    /// learner knows of the session by then is true.
    Revalidate {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Which session.
        session: SessionId,
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// A client wants to see whatever was committed before now (CONS-04).
    Sync {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// It makes a tree of the snapshot that it was sent, which takes its time.
    Loading {
        /// Parts of the work that are done.
        done: u64,
        /// All of them.
        all: u64,
    },
}

/// What a leader says to a learner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromLeader {
    /// The epoch it proposes to begin, or has begun (ZAB-03).
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
    /// Forget what comes after this position (ZAB-07).
    Trunc {
        /// The position.
        to: Zxid,
    },
    /// A piece of a snapshot, which is to replace the learner's history (ZAB-10).
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
    /// The next transaction (ZAB-09, ZAB-14).
    Proposal(Entry),
    /// The learner has been sent the whole history (ZAB-11). It says so again, with the new list to keep, where the
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
    /// Serve clients (ZAB-12).
    UpToDate {
        /// The history is committed up to here.
        committed: Zxid,
    },
    /// The history is committed up to here.
    Commit {
        /// The watermark.
        zxid: Zxid,
    },
    /// Is somebody there? (ZAB-17)
    Ping {
        /// Counts pings.
        round: u64,
        /// The leader's monotonic clock when it sends this: an opaque number to the learner.
        sent: Instant,
        /// `sent` of the last [`FromLearner::Pong`] that the leader has read on this link; zero before the first.
        /// It bounds the age of this message on the learner's own clock, however long the message waited to be read.
        echo: Instant,
    },
    /// Everything is in what was sent before this message.
    Synced {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// What the learner has at this position is not what the ensemble has there.
    Differs {
        /// The position.
        zxid: Zxid,
    },
}

impl From<FromLearner> for PeerMessage {
    fn from(message: FromLearner) -> PeerMessage {
        PeerMessage::Learner(message)
    }
}

impl From<FromLeader> for PeerMessage {
    fn from(message: FromLeader) -> PeerMessage {
        PeerMessage::Leader(message)
    }
}

impl fmt::Display for PeerMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerMessage::Learner(message) => message.fmt(f),
            PeerMessage::Leader(message) => message.fmt(f),
        }
    }
}

impl fmt::Display for FromLearner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FromLearner::FollowerInfo { accepted, history, .. } => {
                write!(f, "FOLLOWERINFO accepted={accepted} {:?}", history.history_status)
            }
            FromLearner::AckEpoch { fresh, current, last, .. } => {
                let old = if *fresh { "" } else { " not fresh" };
                write!(f, "ACKEPOCH current={current} last={last}{old}")
            }
            FromLearner::SyncAt { last, .. } => write!(f, "at {last}"),
            FromLearner::AckNewLeader { epoch } => write!(f, "ACK NEWLEADER {epoch}"),
            FromLearner::Ack { zxid } => write!(f, "ACK {zxid}"),
            FromLearner::Pong { round, touched, .. } => {
                write!(f, "PONG {round} touched={}", touched.len())
            }
            FromLearner::Request { session, origin, request, session_kind, .. } => {
                write!(f, "REQUEST {session} {}#{} {request}", origin.conn, origin.request)?;
                match session_kind {
                    SessionKind::Global => Ok(()),
                    SessionKind::Local => write!(f, ", of a local session"),
                    SessionKind::Upgrading { timeout_ms } => {
                        write!(f, ", upgrading {timeout_ms}ms")
                    }
                }
            }
            FromLearner::CreateSession { timeout_ms, origin } => {
                write!(f, "CREATESESSION {} {timeout_ms}ms", origin.conn)
            }
            FromLearner::Revalidate { conn, session, timeout_ms } => {
                write!(f, "REVALIDATE {conn} {session} {timeout_ms}ms")
            }
            FromLearner::Sync { conn, request } => write!(f, "SYNC {conn}#{request}"),
            FromLearner::Loading { done, all } => write!(f, "LOADING {done} of {all}"),
        }
    }
}

impl fmt::Display for FromLeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FromLeader::LeaderInfo { epoch, empty, .. } => {
                write!(f, "LEADERINFO epoch={epoch}{}", if *empty { " empty" } else { "" })
            }
            FromLeader::Trunc { to } => write!(f, "TRUNC {to}"),
            FromLeader::Snap { zxid, index, bytes, last } => {
                let end = if *last { " last" } else { "" };
                write!(f, "SNAP {zxid} piece {index} {}B{end}", bytes.len())
            }
            FromLeader::Proposal(entry) => {
                write!(f, "PROPOSAL {} {}B", entry.zxid, entry.bytes.len())
            }
            FromLeader::NewLeader { epoch, .. } => write!(f, "NEWLEADER {epoch}"),
            FromLeader::UpToDate { committed } => write!(f, "UPTODATE committed={committed}"),
            FromLeader::Commit { zxid } => write!(f, "COMMIT {zxid}"),
            FromLeader::Ping { round, .. } => write!(f, "PING {round}"),
            FromLeader::Synced { conn, request } => write!(f, "SYNCED {conn}#{request}"),
            FromLeader::Differs { zxid } => write!(f, "DIFFERS at {zxid}"),
        }
    }
}
