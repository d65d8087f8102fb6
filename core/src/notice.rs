//! What an operator reads in the log.
//!
//! Owns the facts and their sentences. Must not have any other effect.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, ServerId, SessionId, Zxid};
use crate::peer::LinkCloseReason;

/// What an operator wants to read in the log. It has no other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// This server leaves the leader that it has followed; itself where it has led.
    LeavesLeader {
        /// That leader.
        leader: ServerId,
        /// Why.
        why: LinkCloseReason,
    },
    /// This server ends a session, of which nothing was heard for too long.
    SessionExpires {
        /// Which.
        session: SessionId,
        /// Timeout negotiated last, ms.
        timeout_ms: u32,
        /// How long nothing was heard of it.
        silent: Duration,
        /// How long this server has watched over it.
        watched: Duration,
        /// The server that its client connected to last, as far as it is known.
        server: Option<ServerId>,
    },
    /// A session of which nothing was heard has ended, and this is its client's connection, which is closed.
    SessionExpired {
        /// Which.
        session: SessionId,
        /// The connection.
        conn: ConnId,
    },
    /// This server makes a tree of its leader's snapshot.
    Loading {
        /// The snapshot's position.
        zxid: Zxid,
        /// Parts of the work that are done.
        done: u64,
        /// All of them.
        all: u64,
    },
    /// This server follows a leader whose configuration has other voters.
    VotersDiffer {
        /// The leader.
        leader: ServerId,
        /// The voters there.
        there: BTreeSet<ServerId>,
        /// The voters here.
        here: BTreeSet<ServerId>,
    },
    /// A server that follows this one has another state at this position.
    StatesDiffer {
        /// The server.
        server: ServerId,
        /// The position.
        zxid: Zxid,
    },
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::LeavesLeader { leader, why } => write!(f, "leaves leader {leader}: {why}"),
            Notice::SessionExpires { session, timeout_ms, silent, watched, server } => {
                let (silent_ms, seconds) = (silent.as_millis(), watched.as_secs());
                write!(
                    f,
                    "session {session} expires: nothing was heard of it for {silent_ms} ms, its timeout is {timeout_ms} ms; "
                )?;
                match server {
                    Some(server) => write!(f, "its client was connected to server {server}, ")?,
                    None => write!(f, "nobody knows where its client was connected, ")?,
                }
                write!(f, "and this server has watched over it for {seconds} s")
            }
            Notice::SessionExpired { session, conn } => {
                write!(f, "session {session} has expired; closed its connection {conn}")
            }
            Notice::Loading { zxid, done, all } => {
                let percent = done * 100 / (*all).max(1);
                write!(f, "loads the leader's snapshot {zxid}: {percent} %")
            }
            Notice::VotersDiffer { leader, there, here } => {
                let list = |ids: &BTreeSet<ServerId>| {
                    let ids: Vec<String> = ids.iter().map(ServerId::to_string).collect();
                    ids.join(", ")
                };
                write!(
                    f,
                    "server {leader} leads the servers {}, and here zoo.cfg has {}: give all of them the same server.N lines",
                    list(there),
                    list(here)
                )
            }
            Notice::StatesDiffer { server, zxid } => write!(
                f,
                "server {server} has another state at {zxid} than this server: whoever differs from a majority sets its \
                 data aside, and names the first node that differs once a leader has filled it"
            ),
        }
    }
}
