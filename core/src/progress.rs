//! How far the servers of an ensemble are, as its leader knows, and why a reconfiguration is
//! refused or waits: plain data for operators.
//!
//! Owns these types and their texts. Must not decide anything.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::error::ErrorCode;
use crate::ids::{ServerId, Zxid};

/// A server as the leader sees it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ServerProgress {
    /// The server; the leader itself is among them.
    pub server: ServerId,
    /// Does it vote in one of the leader's configurations?
    pub votes: bool,
    /// How far it is.
    pub state: SyncState,
    /// Transactions in the leader's log that the server does not have: of a voter, those that it
    /// has not acknowledged; of another server, those after the newest ping that it has answered;
    /// during synchronization, those to be sent. `None` if the leader does not know.
    pub behind: Option<u64>,
    /// How long the server has lacked some of them, at least.
    pub lag: Duration,
    /// Does it run a release before 0.3, which cannot read a reconfiguration?
    pub older: bool,
}

/// How far a server is.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum SyncState {
    /// It has no link to the leader.
    Absent,
    /// It has a link, and the leader does not send it the history yet.
    Joining,
    /// It receives the history.
    Syncing,
    /// It has the history, and receives each proposal.
    Synced,
    /// It has the history, too, but came with a disk that had lost data, and has acknowledged no
    /// proposal since. If it restarts now, it may be without a vote until a leader serves.
    Recovering,
}

impl fmt::Display for ServerProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ServerProgress { server, state, behind, lag, .. } = self;
        match (state, behind) {
            (SyncState::Absent, _) => write!(f, "server {server} is not connected"),
            (SyncState::Joining, _) => write!(f, "server {server} has just connected"),
            (SyncState::Syncing, None) => write!(f, "server {server} is being synchronized"),
            (SyncState::Syncing, Some(count)) => {
                let lacks = transactions(*count);
                write!(f, "server {server} is being synchronized and lacks {lacks}")
            }
            (SyncState::Recovering, _) => {
                write!(
                    f,
                    "server {server} came without its data, and has acknowledged nothing since"
                )
            }
            (SyncState::Synced, Some(count)) if *count > 0 => {
                let lacks = transactions(*count);
                write!(f, "server {server} has lacked {lacks} for {} ms", lag.as_millis())
            }
            (SyncState::Synced, None) => {
                write!(f, "server {server} has lacked transactions for {} ms", lag.as_millis())
            }
            (SyncState::Synced, Some(_)) => write!(f, "server {server} is up to date"),
        }
    }
}

/// A reconfiguration that is logged and not committed.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct PendingReconfig {
    /// The version of the configuration that is to come into force.
    pub version: Zxid,
    /// The time since the leader has proposed it.
    pub waited: Duration,
    /// The voters in force that have not acknowledged it; empty once a quorum of them has.
    pub missing_old: Vec<ServerProgress>,
    /// The next voters that have not acknowledged it; empty once a quorum of them has.
    pub missing_new: Vec<ServerProgress>,
}

impl fmt::Display for PendingReconfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let PendingReconfig { version, waited, missing_old, missing_new } = self;
        let seconds = waited.as_secs();
        write!(f, "the reconfiguration of version {:x} waits for {seconds} s", version.0)?;
        for (missing, which) in [(missing_old, "voters in force"), (missing_new, "next voters")] {
            if !missing.is_empty() {
                let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
                write!(f, "; no quorum of the {which} has it: {}", missing.join(", "))?;
            }
        }
        write!(f, ". It continues when enough of these servers run and reach the leader")
    }
}

/// Why a leader refuses to reconfigure the ensemble.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReconfigRefusal {
    /// The leader has reconfiguration disabled (RECONF-01).
    Disabled,
    /// The leader is the only server (RECONF-01).
    Standalone,
    /// These learners run a release that cannot read a reconfiguration.
    OlderServers(Vec<ServerId>),
    /// Another reconfiguration is under way (RECONF-03).
    InProgress {
        /// The version of the configuration that is to come into force.
        version: Zxid,
    },
    /// The configuration of the files is not in the log yet (RECONF-03).
    NotEstablished,
    /// The request expects another version than that in force (RECONF-04).
    OtherVersion {
        /// The version in the request.
        expected: Zxid,
        /// The version in force.
        active: Zxid,
    },
    /// The request is wrong: what is, with the line or number (RECONF-05, RECONF-06).
    BadArguments(String),
    /// A single voter would be left (RECONF-07).
    TooFewVoters(ServerId),
    /// No quorum of the next voters has the history (RECONF-08).
    NoQuorum {
        /// The next voters that acknowledge.
        ready: Vec<ServerId>,
        /// Those that do not.
        missing: Vec<ServerProgress>,
        /// Those that observe now, and acknowledge only once they vote.
        observing: Vec<ServerId>,
    },
    /// There is no node of the configuration.
    NoConfigNode,
    /// The user may not write to the node of the configuration (RECONF-02).
    NotPermitted,
}

impl ReconfigRefusal {
    /// The error that the client gets.
    pub fn code(&self) -> ErrorCode {
        match self {
            // The answer of a leader that runs such a release.
            ReconfigRefusal::Disabled | ReconfigRefusal::OlderServers(_) => {
                ErrorCode::ReconfigDisabled
            }
            ReconfigRefusal::Standalone => ErrorCode::Unimplemented,
            ReconfigRefusal::InProgress { .. } | ReconfigRefusal::NotEstablished => {
                ErrorCode::ReconfigInProgress
            }
            ReconfigRefusal::OtherVersion { .. } => ErrorCode::BadVersion,
            ReconfigRefusal::BadArguments(_) | ReconfigRefusal::TooFewVoters(_) => {
                ErrorCode::BadArguments
            }
            ReconfigRefusal::NoQuorum { .. } => ErrorCode::NewConfigNoQuorum,
            ReconfigRefusal::NoConfigNode => ErrorCode::NoNode,
            ReconfigRefusal::NotPermitted => ErrorCode::NoAuth,
        }
    }
}

/// The reason, and what to do.
impl fmt::Display for ReconfigRefusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ReconfigRefusal::Disabled => {
                write!(f, "reconfiguration is disabled: set reconfigEnabled=true on all servers")
            }
            ReconfigRefusal::Standalone => write!(
                f,
                "this is a standalone server: set standaloneEnabled=false, or list all servers in \
                 zoo.cfg"
            ),
            ReconfigRefusal::OlderServers(older) => write!(
                f,
                "these servers run a release before 0.3: {}. Upgrade them first",
                list(older)
            ),
            ReconfigRefusal::InProgress { version } => write!(
                f,
                "the reconfiguration of version {:x} is not in force yet: try again once it is; \
                 mntr shows what it waits for (zk_reconfig_...)",
                version.0
            ),
            ReconfigRefusal::NotEstablished => write!(
                f,
                "the configuration of zoo.cfg is not committed yet: try again in a moment"
            ),
            ReconfigRefusal::OtherVersion { expected, active } => write!(
                f,
                "it expects version {:x}, and {:x} is in force: read /zookeeper/config again",
                expected.0, active.0
            ),
            ReconfigRefusal::BadArguments(what) => write!(f, "{what}: correct the request"),
            ReconfigRefusal::TooFewVoters(last) => write!(
                f,
                "server {last} would be the only voter: keep two, or set standaloneEnabled=false"
            ),
            ReconfigRefusal::NoQuorum { ready, missing, observing } => {
                let ready = list(ready);
                write!(f, "no quorum of the next voters is up to date, only {ready}: ")?;
                let missing = missing.iter().map(ToString::to_string);
                let observing = observing
                    .iter()
                    .map(|id| format!("server {id} observes, and counts only once it votes"));
                f.write_str(&missing.chain(observing).collect::<Vec<_>>().join("; "))?;
                write!(f, ". Start what is missing and wait for it, or add fewer servers at once")
            }
            ReconfigRefusal::NoConfigNode => write!(f, "there is no node /zookeeper/config"),
            ReconfigRefusal::NotPermitted => write!(
                f,
                "the user may not write to /zookeeper/config: authenticate as the superuser, or \
                 have the superuser set the access control list of the node"
            ),
        }
    }
}

fn transactions(count: u64) -> String {
    if count == 1 { "1 transaction".to_owned() } else { format!("{count} transactions") }
}

/// The ids, separated by commas; `none` if there are none.
pub(crate) fn list<'a>(ids: impl IntoIterator<Item = &'a ServerId>) -> String {
    let ids: Vec<String> = ids.into_iter().map(ServerId::to_string).collect();
    if ids.is_empty() { "none".to_owned() } else { ids.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(server: u64, state: SyncState, behind: Option<u64>) -> ServerProgress {
        let lag = Duration::from_millis(700);
        ServerProgress { server: ServerId(server), votes: true, state, behind, lag, older: false }
    }

    #[test]
    fn refusal_names_the_servers_that_are_missing_and_how_far_they_lag() {
        let missing = vec![
            server(4, SyncState::Absent, None),
            server(5, SyncState::Syncing, Some(300)),
            server(6, SyncState::Synced, Some(2)),
        ];
        let refusal = ReconfigRefusal::NoQuorum {
            ready: [1, 2].map(ServerId).into(),
            missing,
            observing: vec![ServerId(7)],
        };
        assert_eq!(
            refusal.to_string(),
            "no quorum of the next voters is up to date, only 1, 2: server 4 is not connected; \
             server 5 is being synchronized and lacks 300 transactions; server 6 has lacked \
             2 transactions for 700 ms; server 7 observes, and counts only once it votes. Start \
             what is missing and wait for it, or add fewer servers at once"
        );
        assert_eq!(refusal.code(), ErrorCode::NewConfigNoQuorum);
    }

    #[test]
    fn wait_names_the_quorum_that_is_missing() {
        let reconfig = PendingReconfig {
            version: Zxid(0x2_0000_000a),
            waited: Duration::from_millis(10_500),
            missing_old: Vec::new(),
            missing_new: vec![
                server(4, SyncState::Absent, None),
                server(5, SyncState::Synced, Some(1)),
            ],
        };
        assert_eq!(
            reconfig.to_string(),
            "the reconfiguration of version 20000000a waits for 10 s; no quorum of the next voters \
             has it: server 4 is not connected, server 5 has lacked 1 transaction for 700 ms. It \
             continues when enough of these servers run and reach the leader"
        );
    }
}
