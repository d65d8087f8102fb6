//! The messages on a link between a learner, which has dialled, and its leader. Links deliver in
//! order.
//!
//! Owns the messages that each end may send, as one type for each direction. Must not decide
//! anything. Variants are encoded as their index: append only.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::greeting::{FIRST_RECONFIGURABLE, VERSION_MIN};
use super::{SessionKind, Vote};
use crate::auth::Ids;
use crate::identity::{EpochNonce, Identity};
use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, Zxid};
use crate::membership::HistoryInfo;
use crate::store::Entry;
use crate::txn::Origin;
use crate::wire::Request;

/// A message on a link. The link's direction determines which type the reader decodes, so the bytes
/// do not contain the type.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMessage {
    /// From the end that has dialled.
    Learner(FromLearner),
    /// From the end that was dialled.
    Leader(FromLeader),
}

/// A message of a learner to its leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromLearner {
    /// The first message: what the learner has promised so far (ZAB-02).
    FollowerInfo {
        /// The highest epoch promised.
        accepted: Epoch,
        /// The learner's history.
        history: HistoryInfo,
        /// The learner's ensemble; 0 if it has no data, or does not know its ensemble yet.
        ensemble: u64,
    },
    /// The promise not to follow an older epoch is durable (ZAB-04).
    AckEpoch {
        /// Was the promise made now? An earlier one may have been made to another leader, and is
        /// not counted.
        fresh: bool,
        /// Epoch of the learner's history.
        current: Epoch,
        /// Last transaction of the learner's history.
        last: Zxid,
        /// The nonce of the epoch of that transaction; 0 if it is unknown.
        nonce: u64,
    },
    /// The end of the learner's history, after [`FromLeader::Trunc`] or the last
    /// [`FromLeader::Snap`].
    SyncAt {
        /// Last transaction.
        last: Zxid,
        /// The nonce of its epoch; 0 if it is unknown.
        nonce: u64,
    },
    /// The learner's history is durable, and so is the epoch: acknowledges
    /// [`FromLeader::NewLeader`].
    AckNewLeader {
        /// The epoch.
        epoch: Epoch,
    },
    /// The learner's log is durable up to here (ZAB-15).
    Ack {
        /// The last durable transaction.
        zxid: Zxid,
    },
    /// Answers a ping, with the sessions that were touched since the last answer.
    Pong {
        /// The round of the ping.
        round: u64,
        /// The learner's monotonic clock when it sends this: an opaque number to the leader.
        sent: Instant,
        /// `sent` of the ping that this answers.
        echo: Instant,
        /// The touched sessions, and the timeout last granted to each, ms (SESS-16).
        touched: Vec<(SessionId, u32)>,
        /// Digests of the learner's state at the positions at which servers compare them.
        digests: Vec<(Zxid, u64)>,
    },
    /// Forwards a client's write (ZAB-16).
    Request {
        /// The client's session.
        session: SessionId,
        /// The server, connection and request that wait for the answer.
        origin: Origin,
        /// The client's authenticated ids (ACL-18).
        ids: Ids,
        /// The write.
        request: Request,
        /// Which servers know the session.
        session_kind: SessionKind,
    },
    /// A client asks for a new session.
    CreateSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
        /// The server, connection and request that wait for the answer.
        origin: Origin,
    },
    /// A client resumes its session at this learner (ZAB-21). If the session moves from another
    /// server, the answer is a transaction that moves it; otherwise it is [`FromLeader::Synced`],
    /// once a quorum has confirmed the leader: what the learner then knows of the session is true.
    Revalidate {
        /// The client's connection with the learner.
        conn: ConnId,
        /// The session.
        session: SessionId,
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// A client's `sync`: it waits for everything that was committed before now (CONS-04).
    Sync {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// The learner is building a tree from the snapshot that it received: reports progress.
    Loading {
        /// Parts of the work that are done.
        done: u64,
        /// All parts of the work.
        all: u64,
    },
    /// The first message of an observer to a follower that is to feed it (ZAB-23). This message and
    /// all that follow here are sent to ends that speak version 6 of the protocol or later.
    ObserverInfo {
        /// The leader that the observer has found.
        leader: ServerId,
        /// As in [`FromLearner::FollowerInfo`].
        accepted: Epoch,
        /// As in [`FromLearner::FollowerInfo`].
        history: HistoryInfo,
        /// As in [`FromLearner::FollowerInfo`].
        ensemble: u64,
    },
    /// A follower feeds this observer, and relays its requests from now on.
    Attach {
        /// The observer.
        behind: Behind,
    },
    /// Relays [`FromLearner::Revalidate`].
    RevalidateBehind {
        /// The observer.
        behind: Behind,
        /// The client's connection with the observer.
        conn: ConnId,
        /// The session.
        session: SessionId,
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// Relays [`FromLearner::Sync`].
    SyncBehind {
        /// The observer.
        behind: Behind,
        /// The client's connection with the observer.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// Relays what an observer reports in a [`FromLearner::Pong`].
    TouchedBehind {
        /// The observer.
        behind: Behind,
        /// The touched sessions, and the timeout last granted to each, ms.
        touched: Vec<(SessionId, u32)>,
        /// Digests of the observer's state.
        digests: Vec<(Zxid, u64)>,
    },
}

/// An observer that a follower feeds, as the follower and the leader call it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Behind {
    /// The observer.
    pub server: ServerId,
    /// The follower's link with it: what was meant for an earlier link is dropped.
    pub link: LinkId,
}

/// A message of a leader to a learner.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum FromLeader {
    /// The epoch that the leader proposes, or has begun (ZAB-03).
    LeaderInfo {
        /// The epoch.
        epoch: Epoch,
        /// If the learner's disk is empty, is it certain that nothing was lost? That is so if the
        /// leader has logged nothing at all, or if the learner was no voter of the last established
        /// epoch.
        empty: bool,
        /// The leader's ensemble; 0 if it does not know it yet.
        ensemble: u64,
        /// Has the leader logged nothing at all, so that it may join another ensemble?
        blank: bool,
    },
    /// The learner must discard what follows this position (ZAB-07).
    Trunc {
        /// The position.
        to: Zxid,
    },
    /// A chunk of a snapshot, which replaces the learner's history (ZAB-10).
    Snap {
        /// The snapshot's position.
        zxid: Zxid,
        /// Number of the chunk, from zero.
        index: u32,
        /// The bytes of the chunk.
        bytes: Bytes,
        /// Is this the last chunk?
        last: bool,
    },
    /// The next transaction (ZAB-09, ZAB-14).
    Proposal(Entry),
    /// The whole history was sent to the learner (ZAB-11). Sent a second time, with the new list of
    /// voters to store, if the voters have changed and a quorum has the history.
    NewLeader {
        /// The epoch that begins.
        epoch: Epoch,
        /// The voters of this epoch.
        voters: BTreeSet<ServerId>,
        /// The voters of the last established epoch: the list to store.
        established: BTreeSet<ServerId>,
        /// The ensemble's identity.
        identity: Identity,
        /// The nonces of the epochs of the history.
        nonces: Vec<EpochNonce>,
    },
    /// The learner may serve clients (ZAB-12).
    UpToDate {
        /// The history is committed up to here.
        committed: Zxid,
    },
    /// The history is committed up to here.
    Commit {
        /// The last committed transaction.
        zxid: Zxid,
    },
    /// Asks for a [`FromLearner::Pong`] (ZAB-17).
    Ping {
        /// Number of this ping round.
        round: u64,
        /// The leader's monotonic clock when it sends this: an opaque number to the learner.
        sent: Instant,
        /// `sent` of the last [`FromLearner::Pong`] that the leader has read on this link; zero
        /// before the first. It bounds the age of this message on the learner's own clock, however
        /// long the message waited to be read.
        echo: Instant,
    },
    /// Answers [`FromLearner::Sync`] and [`FromLearner::Revalidate`]: the learner has already been
    /// sent everything that was committed when the request arrived.
    Synced {
        /// The client's connection with the learner.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// The learner's state at this position differs from that of the ensemble.
    Differs {
        /// The position.
        zxid: Zxid,
    },
    /// The leader steps down after this message, and names the server to elect (RECONF-11): itself
    /// if its epoch is used up (ZAB-20). A hint: the rules of elections decide. Sent to ends that
    /// speak version 6 of the protocol or later.
    TakeOver {
        /// The vote for that server.
        vote: Vote,
    },
    /// The next transaction, which is committed (ZAB-14). Sent to learners that observe and speak
    /// version 6 of the protocol or later.
    Inform(Entry),
    /// Answers [`FromLearner::Attach`].
    Attached {
        /// The observer.
        behind: Behind,
        /// The end of the leader's log: the observer must not serve before this is committed.
        logged: Zxid,
    },
    /// Answers [`FromLearner::SyncBehind`] and [`FromLearner::RevalidateBehind`], as
    /// [`FromLeader::Synced`] does.
    SyncedBehind {
        /// The observer.
        behind: Behind,
        /// The client's connection with the observer.
        conn: ConnId,
        /// Number of the request on that connection.
        request: u64,
    },
    /// The observer's state at this position differs from that of the ensemble.
    DiffersBehind {
        /// The observer.
        behind: Behind,
        /// The position.
        zxid: Zxid,
    },
    /// Someone else speaks for the observer now: the leader ignores what this follower relays for
    /// it.
    Detached {
        /// The observer.
        behind: Behind,
    },
}

impl PeerMessage {
    /// The first version of the protocol that has this message.
    pub(super) fn since(&self) -> u8 {
        let newer = match self {
            PeerMessage::Leader(message) => match message {
                FromLeader::LeaderInfo { .. }
                | FromLeader::Trunc { .. }
                | FromLeader::Snap { .. }
                | FromLeader::Proposal(_)
                | FromLeader::NewLeader { .. }
                | FromLeader::UpToDate { .. }
                | FromLeader::Commit { .. }
                | FromLeader::Ping { .. }
                | FromLeader::Synced { .. }
                | FromLeader::Differs { .. } => false,
                FromLeader::TakeOver { .. }
                | FromLeader::Inform(_)
                | FromLeader::Attached { .. }
                | FromLeader::SyncedBehind { .. }
                | FromLeader::DiffersBehind { .. }
                | FromLeader::Detached { .. } => true,
            },
            PeerMessage::Learner(message) => match message {
                FromLearner::FollowerInfo { .. }
                | FromLearner::AckEpoch { .. }
                | FromLearner::SyncAt { .. }
                | FromLearner::AckNewLeader { .. }
                | FromLearner::Ack { .. }
                | FromLearner::Pong { .. }
                | FromLearner::CreateSession { .. }
                | FromLearner::Revalidate { .. }
                | FromLearner::Sync { .. }
                | FromLearner::Loading { .. } => false,
                FromLearner::Request { request, .. } => {
                    matches!(request, Request::Reconfigure(_))
                }
                FromLearner::ObserverInfo { .. }
                | FromLearner::Attach { .. }
                | FromLearner::RevalidateBehind { .. }
                | FromLearner::SyncBehind { .. }
                | FromLearner::TouchedBehind { .. } => true,
            },
        };
        if newer { FIRST_RECONFIGURABLE } else { VERSION_MIN }
    }

    /// The message as an end that speaks this version of the protocol knows it; `None` for a hint
    /// that it does not know. A server of version 5 has no reconfiguration: as leader it answers
    /// the empty request that it knows, with the error that clients expect of such a server.
    pub(super) fn known_to(&self, version: u8) -> Option<Cow<'_, PeerMessage>> {
        if version >= FIRST_RECONFIGURABLE {
            return Some(Cow::Borrowed(self));
        }
        if matches!(self, PeerMessage::Leader(FromLeader::TakeOver { .. })) {
            return None;
        }
        let mut known = Cow::Borrowed(self);
        if let PeerMessage::Learner(FromLearner::Request { request, .. }) = self
            && matches!(request, Request::Reconfigure(_))
            && let PeerMessage::Learner(FromLearner::Request { request, .. }) = known.to_mut()
        {
            *request = Request::Reconfig;
        }
        Some(known)
    }
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

impl fmt::Display for Behind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "s{}", self.server)
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
            FromLearner::ObserverInfo { leader, accepted, history, .. } => {
                let status = history.history_status;
                write!(f, "OBSERVERINFO leader=s{leader} accepted={accepted} {status:?}")
            }
            FromLearner::Attach { behind } => write!(f, "ATTACH {behind}"),
            FromLearner::RevalidateBehind { behind, conn, session, timeout_ms } => {
                write!(f, "REVALIDATE {conn} {session} {timeout_ms}ms of {behind}")
            }
            FromLearner::SyncBehind { behind, conn, request } => {
                write!(f, "SYNC {conn}#{request} of {behind}")
            }
            FromLearner::TouchedBehind { behind, touched, .. } => {
                write!(f, "TOUCHED {} of {behind}", touched.len())
            }
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
            FromLeader::TakeOver { vote } => write!(f, "TAKEOVER {vote}"),
            FromLeader::Inform(entry) => {
                write!(f, "INFORM {} {}B", entry.zxid, entry.bytes.len())
            }
            FromLeader::Attached { behind, logged } => {
                write!(f, "ATTACHED {behind} logged={logged}")
            }
            FromLeader::SyncedBehind { behind, conn, request } => {
                write!(f, "SYNCED {conn}#{request} of {behind}")
            }
            FromLeader::DiffersBehind { behind, zxid } => {
                write!(f, "DIFFERS at {zxid}, {behind}")
            }
            FromLeader::Detached { behind } => write!(f, "DETACHED {behind}"),
        }
    }
}
