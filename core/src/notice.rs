//! Messages for the operator's log.
//!
//! Owns the events and their texts. Must not have any other effect.

use std::collections::BTreeSet;
use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::ids::{ConnId, ServerId, SessionId, Zxid};
use crate::peer::LinkCloseReason;
use crate::progress::{ReconfigRefusal, list};

/// An event for the operator's log. It has no other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// This server stops following its leader, or stops leading.
    LeavesLeader {
        /// The leader; this server itself if it led.
        leader: ServerId,
        /// The reason.
        why: LinkCloseReason,
    },
    /// This server expires a session whose client sent nothing for longer than the timeout.
    ExpiryProposed {
        /// The session.
        session: SessionId,
        /// Timeout negotiated last, ms.
        timeout_ms: u32,
        /// Time since the client's last request or ping.
        silent: Duration,
        /// How long this server has tracked the session.
        watched: Duration,
        /// The server that the client connected to last, if known.
        server: Option<ServerId>,
    },
    /// A session has expired; this server closes the client's connection.
    ExpiredConnClosed {
        /// The session.
        session: SessionId,
        /// The connection.
        conn: ConnId,
    },
    /// This server builds a tree from its leader's snapshot.
    Loading {
        /// The snapshot's zxid.
        zxid: Zxid,
        /// Units of work done.
        done: u64,
        /// Units of work in total.
        all: u64,
    },
    /// This server follows a leader whose configuration has other voters.
    VotersDiffer {
        /// The leader.
        leader: ServerId,
        /// The voters in the leader's configuration.
        there: BTreeSet<ServerId>,
        /// The voters in this server's configuration.
        here: BTreeSet<ServerId>,
    },
    /// Another configuration of the ensemble is logged, or in force.
    Reconfigured {
        /// Its version; zero for that of the files, to which the server returns if the leader that
        /// has proposed another one is gone.
        version: Zxid,
        /// Is a quorum of the voters of both configurations still to log it?
        pending: bool,
        /// The servers that vote.
        voters: Vec<ServerId>,
        /// The servers that observe.
        observers: Vec<ServerId>,
    },
    /// A learner's state or history differs from this server's at the same zxid.
    StatesDiffer {
        /// The learner.
        server: ServerId,
        /// The zxid that was compared.
        zxid: Zxid,
    },
    /// Servers of an older release prevent this leader from putting its configuration into the log.
    ConfigHeld {
        /// These servers.
        older: Vec<ServerId>,
    },
    /// This leader refuses a request to reconfigure the ensemble. The reply has only the code.
    ReconfigRefused {
        /// The session of the request.
        session: SessionId,
        /// The server that its client is connected to.
        server: ServerId,
        /// The reason.
        why: ReconfigRefusal,
    },
    /// This leader goes on without the other voter, because the oracle permits it.
    GoesOnAlone,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::LeavesLeader { leader, why } => write!(f, "leaves leader {leader}: {why}"),
            Notice::ExpiryProposed { session, timeout_ms, silent, watched, server } => {
                let (silent_ms, seconds) = (silent.as_millis(), watched.as_secs());
                write!(
                    f,
                    "session {session} expires: it sent nothing for {silent_ms} ms, its \
                     timeout is {timeout_ms} ms; "
                )?;
                match server {
                    Some(server) => write!(f, "its client was connected to server {server}, ")?,
                    None => write!(f, "nobody knows where its client was connected, ")?,
                }
                write!(f, "and this server has watched over it for {seconds} s")
            }
            Notice::ExpiredConnClosed { session, conn } => {
                write!(f, "session {session} has expired; closed its connection {conn}")
            }
            Notice::Loading { zxid, done, all } => {
                let percent = done * 100 / (*all).max(1);
                write!(f, "loads the leader's snapshot {zxid}: {percent} %")
            }
            Notice::VotersDiffer { leader, there, here } => {
                write!(
                    f,
                    "server {leader} leads the servers {}, and here zoo.cfg has {}: give all of \
                     them the same server.N lines",
                    list(there),
                    list(here)
                )
            }
            Notice::Reconfigured { version, pending, voters, observers } => {
                let what = if *pending {
                    "waits for quorums of the present and the next voters, to change to"
                } else {
                    "is configured with"
                };
                write!(f, "the ensemble {what} the voters {}", list(voters))?;
                if !observers.is_empty() {
                    write!(f, " and the observers {}", list(observers))?;
                }
                write!(f, " (version {:x})", version.0)
            }
            Notice::StatesDiffer { server, zxid } => write!(
                f,
                "server {server} has another state at {zxid} than this server: whoever differs \
                 from a majority sets its \
                 data aside, and names the first node that differs once a leader has filled it"
            ),
            Notice::ConfigHeld { older } => write!(
                f,
                "the ensemble cannot be reconfigured yet, because these servers run a release \
                 before 0.3: {}. Upgrade them; the configuration becomes part of the log after \
                 the last one, and they cannot join after that",
                list(older)
            ),
            Notice::GoesOnAlone => write!(
                f,
                "goes on without the other voter: the oracle says that it is down (oraclePath)"
            ),
            Notice::ReconfigRefused { session, server, why } => write!(
                f,
                "refused ({}) the reconfiguration that session {session} has requested at server \
                 {server}: {why}",
                why.code().wire()
            ),
        }
    }
}
