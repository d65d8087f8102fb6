//! What the world shows to its checkers: raw frames on client connections, and what goes in and out of servers.
//!
//! Owns the vocabulary between `world` and `oracle`. Must not judge.
//!
//! Clients are watched on the wire, not through their library: a library may drop a doubled event or repair an order,
//! and a fault of the server would hide behind it.

use std::collections::BTreeSet;
use std::fmt;
use std::net::Ipv6Addr;

use bytes::Bytes;
use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::Notification;
use zabkeeper_core::store::{DiskCommand, DurableState};
use zabkeeper_core::{
    ConnId, Input, Instant, Server, ServerId, SessionId, SessionInfo, SessionOptions, Status,
    WatchSummary, Zxid,
};

/// Subject of the certificate of who may do everything.
pub const SUPER_SUBJECT: &str = "CN=root+OU=ops";

/// A client of the simulated world, counted from zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct ClientId(pub u32);

impl ClientId {
    /// From where the client connects: no two have the same address. One in eight has an address of IPv6.
    pub fn address(self) -> String {
        let [_, a, b, c] = self.0.to_be_bytes();
        if c % 8 == 7 {
            let (high, low) = (u16::from(a), u16::from_be_bytes([b, c]));
            return Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, high, low).to_string();
        }
        format!("10.{a}.{b}.{c}")
    }

    /// Subject of its certificate, where servers ask for one. Some have none.
    pub fn subject(self) -> Option<&'static str> {
        match self.0 % 8 {
            1 | 5 => Some("CN=ann"),
            2 => Some("CN=bob,OU=ops"),
            4 => Some(SUPER_SUBJECT),
            _ => None,
        }
    }
}

/// Who holds what has a digest, for whoever has to say what differs.
#[derive(Clone, Copy)]
pub struct Holder<'a>(pub Option<&'a Server>);

/// The digest stands beside it.
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
    /// To be read: what it has sent has lain there since then, and it takes what it is sent.
    Turn(Instant),
    /// For the answer to what its server has read then.
    Answer(Instant),
}

/// One thing that has happened, in the order of the world's events.
#[derive(Clone, PartialEq, Debug)]
pub enum Observation<'a> {
    /// A connection stands, as seen by the client. It gets its handshake and frames from here on.
    ConnOpened {
        /// Whose.
        client: ClientId,
        /// The connection, unique in the run.
        conn: ConnId,
        /// With which server.
        server: ServerId,
    },
    /// The client has written a whole frame (without its length): the handshake first, then requests. It may never
    /// arrive.
    ToServer {
        /// On which connection.
        conn: ConnId,
        /// The frame.
        frame: Bytes,
    },
    /// The client has read a whole frame (without its length).
    ToClient {
        /// On which connection.
        conn: ConnId,
        /// The frame.
        frame: Bytes,
    },
    /// The client's end of the connection is gone: nothing more is read from it.
    ConnClosed {
        /// Which.
        conn: ConnId,
    },
    /// A server is about to take an input of its election, its links or its disk.
    Input {
        /// Who.
        server: ServerId,
        /// The input.
        input: &'a Input,
    },
    /// The input that a server is about to take is a ping of its leader, and it has read no clients for longer than a tick: its
    /// disk is behind.
    Unread {
        /// Who.
        server: ServerId,
        /// Connections that it has.
        open: &'a [ConnId],
    },
    /// What a step has put out, and what the server says of itself after it. Not told where there is nothing and
    /// nothing has changed. A crash may still keep some of it from leaving.
    Output {
        /// Whose step.
        server: ServerId,
        /// Orders to the disk.
        disk: &'a [DiskCommand],
        /// Orders to the links.
        peers: &'a [PeerCommand],
        /// Notifications.
        election: &'a [(ServerId, Notification)],
        /// What the server says of itself.
        status: &'a Status,
    },
    /// A server's tree has moved on to this transaction: one observation for each, but only one with a digest where a
    /// leader's snapshot has replaced the tree.
    Applied {
        /// By whom.
        server: ServerId,
        /// Which.
        zxid: Zxid,
        /// Digest of tree and sessions, where the world took it (sampled).
        digest: Option<u64>,
        /// Whose digest it is.
        holder: Holder<'a>,
    },
    /// Ground truth, sampled: what a fresh recovery from only the durable bytes of a server's disk would find now.
    DurableTruth {
        /// Whose disk.
        server: ServerId,
        /// Its state file.
        state: DurableState,
        /// The last transaction that would survive a power failure now, committed or not.
        last: Zxid,
        /// Digest of tree and sessions when all that would survive is applied.
        digest: u64,
        /// A server that has applied it.
        holder: Holder<'a>,
    },
    /// Sampled beside it: what recovery would find if the power failed now and everything written happened to survive.
    CachedTruth {
        /// Whose disk.
        server: ServerId,
        /// Its state file.
        state: DurableState,
        /// The last transaction that would survive.
        last: Zxid,
    },
    /// A server serves its clients from now on; told after the step that says so.
    Serves {
        /// Who.
        server: ServerId,
        /// How many of its clients' syncs wait for the leader's word.
        syncs: usize,
        /// How many handshakes wait for it to serve.
        held: usize,
    },
    /// The sessions that only this server knows are others than they were; told after what has been applied.
    Locals {
        /// Who.
        server: ServerId,
        /// By id.
        sessions: &'a [SessionId],
    },
    /// An operator has asked a server about itself.
    Reported {
        /// Which.
        server: ServerId,
        /// The answer.
        report: &'a SelfReport,
        /// Connections that the server has.
        open: &'a BTreeSet<ConnId>,
    },
    /// A server begins a new life from its disk. Recovery is an observation of its own (`Recovered`).
    Started {
        /// Which.
        server: ServerId,
        /// What it is told about new sessions in this life.
        sessions: SessionOptions,
    },
    /// A server has recovered.
    Recovered {
        /// Which.
        server: ServerId,
        /// State file found.
        state: DurableState,
        /// Last transaction found.
        last: Zxid,
    },
    /// A server is gone: killed or without power.
    Stopped {
        /// Which.
        server: ServerId,
    },
    /// The disk of a server that is down has been replaced by an empty one.
    Wiped {
        /// Whose.
        server: ServerId,
    },
    /// Whoever holds this session begins anew with nothing but its id and password; its connections are gone.
    Forgotten {
        /// Which.
        session: SessionId,
    },
    /// Told now and then: which client of a server has waited longest.
    Waits {
        /// Which server.
        server: ServerId,
        /// The client's connection.
        conn: ConnId,
        /// What for.
        wait: Wait,
    },
    /// The ensemble is stopped, and from now on all these are it.
    Grown {
        /// All its voters.
        voters: &'a [ServerId],
    },
    /// A fault strikes these servers, or what is between them, and lasts until then.
    Struck {
        /// Which.
        servers: &'a [ServerId],
        /// The end of it.
        until: Instant,
    },
    /// A server gets no time until then. Told again when a pause is cut short.
    StandsStill {
        /// Which.
        server: ServerId,
        /// The end of the pause.
        until: Instant,
    },
    /// End of the run, at the audit: the live sessions and the digest of a server.
    Final {
        /// Whose.
        server: ServerId,
        /// What it has applied.
        applied: Zxid,
        /// Digest of tree and sessions.
        digest: u64,
        /// Whose digest it is.
        holder: Holder<'a>,
        /// Its live sessions.
        sessions: Vec<SessionId>,
    },
}

/// What a server says of itself when an operator asks.
#[derive(Clone, PartialEq, Debug)]
pub struct SelfReport {
    /// Counters and watermarks.
    pub status: Status,
    /// Live sessions of the ensemble.
    pub sessions: Vec<SessionInfo>,
    /// Transactions that it has logged and not applied, as its driver has counted them.
    pub unapplied: usize,
    /// Those that only this server knows.
    pub local_sessions: Vec<SessionInfo>,
    /// Ephemeral nodes by session.
    pub ephemerals: Vec<(SessionId, Vec<String>)>,
    /// How many watches of getData and exists there are.
    pub watched: WatchSummary,
    /// These watches, by connection.
    pub by_conn: Vec<(ConnId, String)>,
    /// The same, by path.
    pub by_path: Vec<(ConnId, String)>,
}

/// An observation with its time.
#[derive(Clone, PartialEq, Debug)]
pub struct Observed<'a> {
    /// Virtual time.
    pub at: Instant,
    /// What has happened.
    pub what: Observation<'a>,
}
