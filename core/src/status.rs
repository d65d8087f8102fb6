//! What operators, tests and checkers may know of a server, as plain data.
//!
//! Owns the vocabulary of `srvr` and `mntr` as far as the core knows it. Must not render text: drivers add what only
//! they know (traffic, latency) and print.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Instant, ServerId, SessionId, Zxid};
use crate::quorum::HistoryStatus;

/// What a server is doing, under the names that ZooKeeper prints.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Mode {
    /// No leader is known: clients are not served.
    Looking,
    /// Leads an ensemble of one.
    Standalone,
    /// Leads an ensemble.
    Leader,
    /// Follows a leader.
    Follower,
}

/// A snapshot of the counters and watermarks; cheap to make.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Status {
    /// This server.
    pub id: ServerId,
    /// What it is doing.
    pub mode: Mode,
    /// Whom it follows, or itself where it leads.
    pub leader: Option<ServerId>,
    /// Of a leader: followers that have its history.
    pub synced_followers: usize,
    /// Of a leader: all servers that are connected to it.
    pub learners: usize,
    /// Of a leader: syncs that wait for a quorum.
    pub pending_syncs: usize,
    /// Are clients served?
    pub serving: bool,
    /// Highest epoch promised (durable or being written).
    pub accepted_epoch: Epoch,
    /// Epoch of the history (durable or being written).
    pub current_epoch: Epoch,
    /// Last transaction applied to the tree; never above `committed`.
    pub applied: Zxid,
    /// Last transaction known to be on a quorum; never above `appended`.
    pub committed: Zxid,
    /// Last transaction handed to the log.
    pub appended: Zxid,
    /// Last transaction known durable here; never above `appended`.
    pub durable: Zxid,
    /// The newest snapshot that is durable.
    pub snapshot: Zxid,
    /// Snapshots on the disk: that one, and older ones.
    pub snapshots: usize,
    /// Is a snapshot being written?
    pub snapshot_running: bool,
    /// Live sessions of the ensemble.
    pub sessions: usize,
    /// Live sessions that only this server knows.
    pub local_sessions: usize,
    /// Transactions that are logged and not applied yet.
    pub outstanding: usize,
    /// Nodes of the tree, counted as ZooKeeper does (an empty tree has 5).
    pub nodes: usize,
    /// Ephemeral nodes.
    pub ephemerals: usize,
    /// Bytes of paths and data.
    pub data_bytes: u64,
    /// Watches set, both tables.
    pub watches: usize,
    /// Why the server has halted, if it has.
    pub halted: Option<Halted>,
}

/// What a server that serves nobody waits for.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Waiting {
    /// This server.
    pub id: ServerId,
    /// Whom it has elected, if it has.
    pub elected: Option<ServerId>,
    /// How many of the voters decide.
    pub needed: usize,
    /// All voters, by id, and what the word of each is worth; `None` of whom nothing was heard since this server looks for a
    /// leader, or of whom does not follow it since it was elected.
    pub voters: Vec<(ServerId, Option<HistoryStatus>)>,
    /// The voters of the last established epoch, as far as this server knows.
    pub before: Vec<ServerId>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { id, elected, needed, voters, before } = self;
        match elected {
            None => write!(f, "no leader yet")?,
            Some(leader) if leader == id => write!(f, "elected, and waits for followers")?,
            Some(leader) => write!(f, "waits for server {leader}, which is elected")?,
        }
        write!(f, ": {needed} of {} servers are needed", voters.len())?;
        for (voter, history_status) in voters {
            let this = if voter == id { " (this one)" } else { "" };
            write!(f, "; server {voter}{this} ")?;
            f.write_str(match history_status {
                None => "was not heard of",
                Some(HistoryStatus::Complete) => "has its data",
                Some(HistoryStatus::Uninitialized) if before.contains(voter) => "is empty",
                Some(HistoryStatus::Uninitialized) => "is new",
                Some(HistoryStatus::Lost) => "has lost data and is not refilled",
            })?;
        }
        let heard = voters.iter().filter(|(_, history_status)| history_status.is_some()).count();
        if heard >= *needed
            && voters
                .iter()
                .any(|(_, history_status)| *history_status == Some(HistoryStatus::Complete))
        {
            write!(
                f,
                ". Servers whose data is lost do not count: start those that are missing. Where their data is lost for good, \
                 start one that has its data with only itself in zoo.cfg, then the others with empty directories"
            )?;
        }
        Ok(())
    }
}

/// Why a server does nothing any more. Its process ends; what was acknowledged is on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Halted {
    /// The disk has failed, and this is what it said.
    Disk(String),
    /// A committed transaction does not fit the state that it is to be applied to.
    Inapplicable {
        /// Its position.
        zxid: Zxid,
        /// Its session.
        session: SessionId,
        /// Its change, as one line.
        record: String,
        /// What the state has against it.
        what: String,
    },
    /// What this server has at this position is not what the ensemble has there. Its state file says so: the next start
    /// sets its data aside, and the leader fills it anew.
    Differs {
        /// The position.
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
    /// Which.
    pub id: SessionId,
    /// Timeout negotiated last, ms.
    pub timeout_ms: u32,
    /// When it expires if nothing is heard; `None` where this server does not decide that.
    pub expires: Option<Instant>,
    /// The server that its client connected to last, as far as that is known: to a leader with the moves under way.
    pub server: Option<ServerId>,
}

/// What a server holds for work under way, for checkers. Where nothing is going on all of it is zero.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Backlog {
    /// Bytes counted as handed to the log and not durable.
    pub undurable_bytes: u64,
    /// Rules that are broken by what is kept of the log in memory. There is none at any time.
    pub tail_faults: usize,
    /// Snapshots of its own that have begun, although nobody writes them.
    pub walks: usize,
    /// Pieces of a leader's snapshot.
    pub pieces: usize,
    /// Pieces of snapshots at the disk.
    pub pieces_at_disk: usize,
    /// Requests that wait for their turn.
    pub requests: usize,
    /// Syncs that wait for a quorum.
    pub syncs: usize,
    /// Changes that are proposed and not applied, as its decisions know them.
    pub changes: usize,
    /// Sessions that are being made known to all.
    pub upgrades: usize,
    /// Sessions whose connection is not the one that it is taken for. There is none at any time.
    pub strays: usize,
    /// Access control lists that count as in use, although no node has them. There is none at any time.
    pub lists: usize,
}

/// What the data table of watches holds: those set by getData and exists.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WatchSummary {
    /// Connections that watch anything.
    pub connections: usize,
    /// Paths that anybody watches.
    pub paths: usize,
    /// Pairs of both.
    pub watches: usize,
}
