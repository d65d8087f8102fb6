//! State of a server for operators, tests and checkers, as plain data.
//!
//! Owns the fields of `srvr` and `mntr` that the core knows. Must not render them: `driver`
//! does, and adds its own figures (traffic, latency).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Instant, ServerId, SessionId, Zxid};
use crate::membership::HistoryStatus;

/// What a server is doing; the names are those that ZooKeeper prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// The server knows no leader and serves no clients.
    Looking,
    /// The server leads an ensemble of one.
    Standalone,
    /// The server leads an ensemble.
    Leader,
    /// The server follows a leader.
    Follower,
    /// The server follows a leader without a vote, as configured.
    Observer,
    /// The server knows no leader and serves read-only clients.
    ReadOnly,
}

/// Counters and watermarks of a server; cheap to make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// The id of this server.
    pub id: ServerId,
    /// What it is doing.
    pub mode: Mode,
    /// The leader that this server follows; itself if it leads.
    pub leader: Option<ServerId>,
    /// On a leader: followers that have its history.
    pub synced_followers: usize,
    /// On a leader: observers that have its history.
    pub synced_observers: usize,
    /// On a leader: all connected learners.
    pub learners: usize,
    /// On a leader: sync requests that wait for a quorum.
    pub pending_syncs: usize,
    /// Whether the server serves clients. In [`Mode::ReadOnly`] it serves only some, and this is
    /// `false`.
    pub serving: bool,
    /// Highest epoch promised to a leader (acceptedEpoch), durable or being written.
    pub accepted_epoch: Epoch,
    /// Epoch of the history (currentEpoch), durable or being written.
    pub current_epoch: Epoch,
    /// Last transaction applied to the tree; never above `committed`.
    pub applied: Zxid,
    /// Last transaction known to be on a quorum; never above `appended`.
    pub committed: Zxid,
    /// Last transaction appended to the log.
    pub appended: Zxid,
    /// Last transaction durable on this server; never above `appended`.
    pub durable: Zxid,
    /// The newest durable snapshot.
    pub snapshot: Zxid,
    /// Snapshots on the disk, the newest included.
    pub snapshots: usize,
    /// Whether a snapshot is being written.
    pub snapshot_running: bool,
    /// Live global sessions.
    pub sessions: usize,
    /// Live local sessions.
    pub local_sessions: usize,
    /// Transactions in the log that are not applied yet.
    pub outstanding: usize,
    /// Nodes of the tree, counted as ZooKeeper counts them (an empty tree has 5).
    pub nodes: usize,
    /// Ephemeral nodes.
    pub ephemerals: usize,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Watches set, over all kinds.
    pub watches: usize,
    /// Why the server has halted, if so.
    pub halted: Option<Halted>,
}

/// What a server that serves no clients waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// The id of this server.
    pub id: ServerId,
    /// The leader it has elected, if any.
    pub elected: Option<ServerId>,
    /// Number of voters in the smallest quorum.
    pub needed: usize,
    /// Whether quorums depend on groups and weights, so that `needed` voters may be too few.
    pub has_groups: bool,
    /// Whether a quorum of the voters has sent something, this server included.
    pub heard_quorum: bool,
    /// All voters, by id, with the status of their histories. `None` for a voter that has sent
    /// nothing since this server began to look for a leader or, once this server is elected, does
    /// not follow it.
    pub voters: Vec<(ServerId, Option<HistoryStatus>)>,
    /// The voters of the last established epoch, as far as this server knows.
    pub before: Vec<ServerId>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { id, elected, needed, has_groups, heard_quorum, voters, before } = self;
        match elected {
            None => write!(f, "no leader yet")?,
            Some(leader) if leader == id => write!(f, "elected, and waits for followers")?,
            Some(leader) => write!(f, "waits for server {leader}, which is elected")?,
        }
        if *has_groups {
            write!(f, ": a quorum of groups is needed, {needed} or more of ")?;
            write!(f, "{} servers", voters.len())?;
        } else {
            write!(f, ": {needed} of {} servers are needed", voters.len())?;
        }
        for (voter, history_status) in voters {
            let this = if voter == id { " (this one)" } else { "" };
            write!(f, "; server {voter}{this} ")?;
            f.write_str(match history_status {
                None => "has sent nothing",
                Some(HistoryStatus::Complete) => "has its data",
                Some(HistoryStatus::Uninitialized) if before.contains(voter) => "is empty",
                Some(HistoryStatus::Uninitialized) => "is new",
                Some(HistoryStatus::Lost) => "has lost data and is not refilled",
            })?;
        }
        if *heard_quorum
            && voters
                .iter()
                .any(|(_, history_status)| *history_status == Some(HistoryStatus::Complete))
        {
            write!(
                f,
                ". Servers whose data is lost do not count: start those that are missing. Where \
                 their data is lost for good, \
                 start one that has its data with only itself in zoo.cfg, then the others with \
                 empty directories"
            )?;
        }
        Ok(())
    }
}

/// Why a server has halted. Its process ends; acknowledged transactions are on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Halted {
    /// A disk operation failed, with this error.
    Disk(String),
    /// A committed transaction does not fit the state that it applies to.
    Inapplicable {
        /// The transaction's zxid.
        zxid: Zxid,
        /// The transaction's session.
        session: SessionId,
        /// The transaction's operation, as one line.
        record: String,
        /// Which check failed.
        what: String,
    },
    /// This server's history or state at this zxid differs from the ensemble's. The state file
    /// records this: at the next start the server sets its data aside, and the leader sends it a
    /// snapshot.
    Differs {
        /// The zxid at which they differ.
        zxid: Zxid,
    },
}

impl fmt::Display for Halted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Halted::Disk(what) => f.write_str(what),
            Halted::Differs { zxid } => {
                write!(f, "what this server has at {zxid} is not what the ensemble has there")
            }
            Halted::Inapplicable { zxid, session, record, what } => {
                write!(
                    f,
                    "transaction {zxid} of session {session} ({record}) cannot be applied: {what}"
                )
            }
        }
    }
}

/// A live session, for checkers and dumps.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct SessionInfo {
    /// The session.
    pub id: SessionId,
    /// Timeout negotiated last, ms.
    pub timeout_ms: u32,
    /// When it expires unless its client sends something; `None` if another server decides that.
    pub expires: Option<Instant>,
    /// The server that its client connected to last, if known. On a leader this includes moves that
    /// are proposed but not applied.
    pub server: Option<ServerId>,
}

/// Work in progress on a server, for checkers. All fields are zero on an idle server.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Backlog {
    /// Bytes counted as handed to the log but not durable.
    pub undurable_bytes: u64,
    /// Violated invariants of the in-memory part of the log. Always zero.
    pub tail_faults: usize,
    /// Walks of the tree for own snapshots that are still open, although no snapshot is being
    /// written.
    pub walks: usize,
    /// Pieces received of a leader's snapshot that is not installed yet.
    pub chunks: usize,
    /// Pieces of snapshots handed to the disk and not yet written.
    pub chunks_at_disk: usize,
    /// Requests queued on connections.
    pub requests: usize,
    /// Sync requests that wait for a quorum.
    pub syncs: usize,
    /// Proposed changes that are not applied yet.
    pub changes: usize,
    /// Local sessions being upgraded to global ones.
    pub upgrades: usize,
    /// Connections and sessions whose mappings to each other disagree. Always zero.
    pub strays: usize,
    /// Access control lists counted as in use that no node refers to. Always zero.
    pub lists: usize,
}

/// Counts of data watches, which getData and exists set.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WatchSummary {
    /// Connections with at least one watch.
    pub connections: usize,
    /// Paths with at least one watch.
    pub paths: usize,
    /// Pairs of connection and path.
    pub watches: usize,
}
