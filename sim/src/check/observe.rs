//! Observations that the world passes to the oracles: frames on client connections, inputs and
//! outputs of servers.
//!
//! Owns the interface between `world` and `oracle`. Must not check anything.
//!
//! Clients are observed on the wire, not through the client library: a library may drop a duplicate
//! event or repair an order, which would hide a defect of the server.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use bytes::Bytes;
use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::{DiskCommand, DurableState};
use zabkeeper_core::{
    ConnId, Input, Instant, PendingReconfig, Server, ServerId, ServerProgress, SessionId,
    SessionInfo, SessionOptions, Status, WatchSummary, Zxid,
};

use super::answers::Answer;
use crate::clients::program::Told;

/// Subject of the super user's certificate.
pub const SUPER_SUBJECT: &str = "CN=root+OU=ops";

/// A client of the simulated world, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u32);

impl ClientId {
    /// The client's address, unique in the run. One in eight is an IPv6 address.
    pub fn address(self) -> String {
        let [_, a, b, c] = self.0.to_be_bytes();
        if c % 8 == 7 {
            let (high, low) = (u16::from(a), u16::from_be_bytes([b, c]));
            return Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, high, low).to_string();
        }
        format!("10.{a}.{b}.{c}")
    }

    /// Subject of its certificate, where servers require one. Some clients have none.
    pub fn subject(self) -> Option<&'static str> {
        match self.0 % 8 {
            1 | 5 => Some("CN=ann"),
            2 => Some("CN=bob,OU=ops"),
            4 => Some(SUPER_SUBJECT),
            _ => None,
        }
    }
}

/// The server whose digest is observed, so that a report can say what differs.
#[derive(Clone, Copy)]
pub struct Holder<'a>(pub Option<&'a Server>);

/// The digest is compared instead.
impl PartialEq for Holder<'_> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl fmt::Debug for Holder<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Holder")
    }
}

/// What a client waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wait {
    /// For the server to read its bytes, which arrived at this time, although the client reads its
    /// own output.
    Turn(Instant),
    /// For the reply to a request that the server read at this time.
    Answer(Instant),
}

/// One observation, in the order of the world's events.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation<'a> {
    /// A connection is open, as seen by the client. Its handshake and frames follow.
    ConnOpened {
        /// The client.
        client: ClientId,
        /// The connection, unique in the run.
        conn: ConnId,
        /// The server.
        server: ServerId,
    },
    /// The client has written a complete frame (without its length): the handshake first, then
    /// requests. It may never arrive.
    ToServer {
        /// The connection.
        conn: ConnId,
        /// The frame.
        frame: Bytes,
    },
    /// The client has read a complete frame (without its length).
    ToClient {
        /// The connection.
        conn: ConnId,
        /// The frame.
        frame: Bytes,
    },
    /// The client's end of the connection is closed: it reads nothing more.
    ConnClosed {
        /// The connection.
        conn: ConnId,
    },
    /// A program tells what it does with a recipe.
    Told {
        /// The client.
        client: ClientId,
        /// Its session.
        session: SessionId,
        /// What it says.
        told: Told,
    },
    /// A server is about to process an input from an election, a link or its disk.
    Input {
        /// The server.
        server: ServerId,
        /// The input.
        input: &'a Input,
    },
    /// The server is about to process a ping of its leader, and has read no client for longer than
    /// a tick, because its disk is behind.
    Unread {
        /// The server.
        server: ServerId,
        /// Its open connections.
        open: &'a [ConnId],
    },
    /// The outputs of a step, and the server's status after it. Omitted if there are no outputs and
    /// the status is unchanged. A crash may still discard some of the outputs.
    Output {
        /// The server.
        server: ServerId,
        /// Commands to the disk.
        disk: &'a [DiskCommand],
        /// Commands to the links.
        peers: &'a [PeerCommand],
        /// Notifications.
        election: &'a [(ServerId, Notification)],
        /// The server's status.
        status: &'a Status,
    },
    /// A server's tree has advanced to this transaction: one observation per transaction, but only
    /// one, with a digest, when a leader's snapshot has replaced the tree.
    Applied {
        /// The server.
        server: ServerId,
        /// The transaction.
        zxid: Zxid,
        /// Digest of tree and sessions, where the world sampled it.
        digest: Option<u64>,
        /// The server that the digest is of.
        holder: Holder<'a>,
    },
    /// Sampled: what recovery from only the durable bytes of a server's disk would find now.
    DurableAudit {
        /// The server.
        server: ServerId,
        /// Its state file.
        state: DurableState,
        /// The last transaction that would survive a power failure now, committed or not.
        last: Zxid,
        /// Digest of tree and sessions after applying all surviving transactions.
        digest: u64,
        /// A server that has applied them.
        holder: Holder<'a>,
    },
    /// Sampled together with it: what recovery would find if the power failed now and all written
    /// bytes survived.
    CachedAudit {
        /// The server.
        server: ServerId,
        /// Its state file.
        state: DurableState,
        /// The last transaction that would survive.
        last: Zxid,
    },
    /// A server begins to serve clients; observed after the step that says so.
    Serves {
        /// The server.
        server: ServerId,
        /// Number of its clients' syncs that wait for the leader.
        syncs: usize,
        /// Number of handshakes that were held until it serves.
        held: usize,
    },
    /// The set of local sessions of a server has changed; observed after the applied transactions.
    Locals {
        /// The server.
        server: ServerId,
        /// The sessions, by id.
        sessions: &'a [SessionId],
    },
    /// A server has sent the whole answer to a four-letter command.
    Answered {
        /// The connection.
        conn: ConnId,
        /// The answer, and what is right.
        answer: &'a Answer,
    },
    /// An operator has read this, up to the end of its connection.
    AnswerRead {
        /// The connection.
        conn: ConnId,
        /// The bytes.
        text: Bytes,
    },
    /// An operator has queried a server.
    Reported {
        /// The server.
        server: ServerId,
        /// The answer.
        report: &'a SelfReport,
        /// Open connections of the server.
        open: &'a BTreeSet<ConnId>,
    },
    /// A server starts a new incarnation from its disk. The result of recovery is a separate
    /// observation (`Recovered`).
    Started {
        /// The server.
        server: ServerId,
        /// Its session options in this incarnation.
        sessions: SessionOptions,
    },
    /// A server has recovered.
    Recovered {
        /// The server.
        server: ServerId,
        /// State file found.
        state: DurableState,
        /// Last transaction found.
        last: Zxid,
    },
    /// A server has ended: by kill or power failure, or gracefully.
    Stopped {
        /// The server.
        server: ServerId,
    },
    /// The disk of a server that is down has been replaced by an empty one.
    Wiped {
        /// The server.
        server: ServerId,
    },
    /// The owner of this session restarts with only its id and password; its connections are gone.
    Forgotten {
        /// The session.
        session: SessionId,
    },
    /// Sampled: the client of a server that has waited longest.
    Waits {
        /// The server.
        server: ServerId,
        /// The client's connection.
        conn: ConnId,
        /// What it waits for.
        wait: Wait,
    },
    /// The ensemble is stopped, and consists of these voters from now on.
    Grown {
        /// All voters.
        voters: &'a [ServerId],
    },
    /// From this step, or from its start on, a server has this configuration in force, which a
    /// leader has established. Observed before the outputs of the step.
    InForce {
        /// The server.
        server: ServerId,
        /// The version of the configuration.
        version: Zxid,
    },
    /// A fault is injected into these servers, or the links between them, and lasts until then.
    FaultInjected {
        /// The servers.
        servers: &'a [ServerId],
        /// The end of the fault.
        until: Instant,
    },
    /// A server does not run until then. Observed again when the pause is cut short.
    StandsStill {
        /// The server.
        server: ServerId,
        /// The end of the pause.
        until: Instant,
    },
    /// At the final audit: the live sessions and the digest of a server.
    Final {
        /// The server.
        server: ServerId,
        /// The last transaction that it has applied.
        applied: Zxid,
        /// Digest of tree and sessions.
        digest: u64,
        /// The server that the digest is of.
        holder: Holder<'a>,
        /// Its live sessions.
        sessions: Vec<SessionId>,
    },
}

/// What a server reports of itself.
#[derive(Clone, PartialEq, Debug)]
pub struct SelfReport {
    /// Counters and watermarks.
    pub status: Status,
    /// Live sessions of the ensemble.
    pub sessions: Vec<SessionInfo>,
    /// Transactions logged but not applied, as counted by the server.
    pub unapplied: usize,
    /// Live local sessions of this server.
    pub local_sessions: Vec<SessionInfo>,
    /// How far all servers are, if it leads.
    pub progress: Vec<ServerProgress>,
    /// The reconfiguration that it has proposed and that is not committed.
    pub pending_reconfig: Option<PendingReconfig>,
    /// Ephemeral nodes by session.
    pub ephemerals: Vec<(SessionId, Vec<String>)>,
    /// Summary of the data watches.
    pub watched: WatchSummary,
    /// Data watches, by connection.
    pub by_conn: Vec<(ConnId, String)>,
    /// Data watches, by path.
    pub by_path: Vec<(ConnId, String)>,
}

/// An observation with its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed<'a> {
    /// Virtual time.
    pub at: Instant,
    /// The observation.
    pub what: Observation<'a>,
}
