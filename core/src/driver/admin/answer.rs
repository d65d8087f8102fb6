//! The answers of the admin server as data: their fields have ZooKeeper's names and order.
//!
//! Owns these types. Must not collect what is in them, nor make text of them: the host does.

use std::collections::BTreeMap;

use serde::Serialize;

use crate::driver::metrics::LineValue;
use crate::ids::{ConnId, SessionId};
use crate::watch::WatchListing;

/// The fields of an answer, apart from rows.
#[derive(Clone, Debug, Serialize)]
#[serde(untagged)]
pub enum AdminAnswer {
    /// No fields.
    Empty {},
    /// `configuration`.
    Configuration {
        /// Port for clients.
        client_port: u16,
        /// Directory of snapshots and state.
        data_dir: String,
        /// Directory of the log.
        data_log_dir: String,
        /// `tickTime`, ms.
        tick_time: u128,
        /// `maxClientCnxns`; 0 for no bound.
        max_client_cnxns: usize,
        /// ms.
        min_session_timeout: u128,
        /// ms.
        max_session_timeout: u128,
        /// 0 for a standalone server.
        server_id: u64,
        /// `clientPortListenBacklog`, or its default.
        client_port_listen_backlog: u32,
    },
    /// `dirs`.
    Dirs {
        /// Bytes in the directory of snapshots and state.
        datadir_size: u64,
        /// Bytes in that of the log.
        logdir_size: u64,
    },
    /// `hash`: empty, because digests depend on the encoding of the history (FLW-18).
    Hash {
        /// No digests.
        digests: [(); 0],
    },
    /// `is_read_only`.
    ReadOnly {
        /// Are only read-only clients served?
        read_only: bool,
    },
    /// `get_trace_mask`, `set_trace_mask`.
    TraceMask {
        /// The mask.
        tracemask: i64,
    },
    /// `last_snapshot`.
    LastSnapshot {
        /// In hex, without a prefix.
        zxid: String,
        /// When it was written, seconds since 1970.
        timestamp: u64,
    },
    /// `leader`.
    Leader {
        /// Does this server lead?
        is_leader: bool,
        /// The server that leads.
        leader_id: u64,
        /// Its host.
        leader_ip: String,
    },
    /// `monitor`: lines of `mntr` without their prefix. The host makes fields of them.
    #[serde(skip)]
    Monitor(Vec<(String, LineValue)>),
    /// `observers`.
    Observers {
        /// How many have this server's history.
        synced_observers: usize,
        /// The observers.
        observers: Vec<Observer>,
    },
    /// `server_stats`, and `stats` before its rows.
    Stats(Box<Stats>),
    /// `voting_view`.
    VotingView {
        /// The voters by id.
        current_config: BTreeMap<u64, Voter>,
    },
    /// `watch_summary`.
    WatchSummary {
        /// Connections with at least one watch.
        num_connections: usize,
        /// Paths with at least one watch.
        num_paths: usize,
        /// Pairs of connection and path.
        num_total_watches: usize,
    },
    /// `zabstate` of a member of an ensemble.
    ZabState(Box<ZabState>),
    /// `zabstate` of a standalone server.
    Alone {
        /// `false`: it votes in no ensemble.
        voting: bool,
        /// Empty.
        zabstate: &'static str,
    },
}

/// An observer that a server feeds.
#[derive(Clone, Debug, Serialize)]
pub struct Observer {
    /// Its id.
    pub sid: u64,
    /// Transactions that it does not have; `None` if that is unknown.
    pub behind: Option<u64>,
    /// How long it has lacked some of them, ms.
    pub lag_ms: u128,
}

/// The fields of `server_stats`.
#[derive(Clone, Debug, Serialize)]
pub struct Stats {
    /// Version and date of the build.
    pub version: String,
    /// Are only read-only clients served?
    pub read_only: bool,
    /// The counters.
    pub server_stats: ServerStats,
    /// Sizes of answers.
    pub client_response: BufferSizes,
    /// Sizes of proposals, on a leader.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proposal_stats: Option<BufferSizes>,
    /// Nodes of the tree.
    pub node_count: usize,
}

/// Counters of a server.
#[derive(Clone, Debug, Serialize)]
pub struct ServerStats {
    /// Answers and events queued for sending.
    pub packets_sent: u64,
    /// Requests, handshakes and four-letter commands read.
    pub packets_received: u64,
    /// Sizes of answers.
    pub client_response_stats: BufferSizes,
    /// Bytes in the directory of snapshots and state.
    pub data_dir_size: u64,
    /// Bytes in that of the log.
    pub log_dir_size: u64,
    /// Does the server not exist? Always `false`.
    pub provider_null: bool,
    /// The last applied transaction.
    pub last_processed_zxid: u64,
    /// Requests read and not answered.
    pub outstanding_requests: u64,
    /// The role.
    pub server_state: &'static str,
    /// ms.
    pub avg_latency: f64,
    /// ms.
    pub max_latency: u128,
    /// ms.
    pub min_latency: u128,
    /// Open connections.
    pub num_alive_client_connections: usize,
    /// ms since the process began.
    pub uptime: u128,
}

/// Sizes in bytes; -1 before the first one.
#[derive(Clone, Copy, Debug, Serialize)]
pub struct BufferSizes {
    /// The last one.
    pub last_buffer_size: i64,
    /// The smallest one.
    pub min_buffer_size: i64,
    /// The largest one.
    pub max_buffer_size: i64,
}

/// A voter in `voting_view`.
#[derive(Clone, Debug, Serialize)]
pub struct Voter {
    /// Host and port for learners, of each of its addresses.
    pub server_addresses: Vec<String>,
    /// Host and port for election notifications.
    pub election_addresses: Vec<String>,
    /// Host and port for clients; empty if the configuration does not have them.
    pub client_address: String,
    /// `participant`.
    pub learner_type: &'static str,
}

/// The fields of `zabstate`.
#[derive(Clone, Debug, Serialize)]
pub struct ZabState {
    /// The id of this server.
    pub myid: u64,
    /// Does this server lead?
    pub is_leader: bool,
    /// Addresses for learners.
    pub quorum_address: Addresses,
    /// Addresses for election notifications.
    pub election_address: Addresses,
    /// Host and port for clients.
    pub client_address: String,
    /// Does this server vote?
    pub voting: bool,
    /// The last applied transaction, in hex.
    pub last_zxid: String,
    /// Its epoch.
    pub zab_epoch: u64,
    /// Its number within the epoch.
    pub zab_counter: u64,
    /// The phase of the protocol.
    pub zabstate: &'static str,
}

/// Addresses of one purpose. ZooKeeper's fields that depend on which address is reachable are
/// absent: this server asks none of its own.
#[derive(Clone, Debug, Serialize)]
pub struct Addresses {
    /// Are there none?
    pub empty: bool,
    /// All of them.
    pub all_addresses: Vec<String>,
    /// The same ports on every address of the machine.
    pub wildcard_addresses: Vec<String>,
    /// The ports.
    pub all_ports: Vec<u16>,
    /// The hosts.
    pub all_host_strings: Vec<String>,
    /// The first one.
    pub one: String,
}

/// A row of an answer that comes in parts.
#[derive(Clone, Debug)]
pub enum AdminRow {
    /// A connection.
    Connection(ConnectionRow),
    /// A session and the time at which it expires, ms on the monotonic clock.
    Expiry(u64, SessionId),
    /// A session and one of its ephemeral nodes.
    Ephemeral(SessionId, String),
    /// A session and a path that it watches with getData or exists.
    Watch(SessionId, String),
    /// The same, grouped by path.
    Watcher(String, SessionId),
}

/// A connection in `connections` and `stats`.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionRow {
    /// Address and port of the client.
    pub remote_socket_address: String,
    /// Bits: 1 if the server waits for input, 4 if it waits for the socket to take output.
    pub interest_ops: u8,
    /// Requests not answered yet.
    pub outstanding_requests: u32,
    /// Requests read.
    pub packets_received: u64,
    /// Answers and events queued for sending.
    pub packets_sent: u64,
    /// Further fields: of a connection with a session, in `connections`.
    #[serde(flatten)]
    pub session: Option<ConnectionSession>,
}

/// The further fields of a connection that has a session.
#[derive(Clone, Debug, Serialize)]
pub struct ConnectionSession {
    /// The session.
    pub session_id: i64,
    /// ZooKeeper's name of the last operation.
    pub last_operation: &'static str,
    /// When the connection was accepted, ms since 1970.
    pub established: i64,
    /// ms.
    pub session_timeout: i32,
    /// -1 before the first request.
    pub last_cxid: i32,
    /// -1 before the first reply.
    pub last_zxid: i64,
    /// When the last reply was queued, ms on the monotonic clock.
    pub last_response_time: u64,
    /// ms.
    pub last_latency: u128,
    /// ms.
    pub min_latency: u128,
    /// ms.
    pub avg_latency: u128,
    /// ms.
    pub max_latency: u128,
}

/// Where the next part of an answer begins. A row that becomes valid or invalid between two parts
/// may be in the answer or not.
#[derive(Debug)]
pub enum AdminCursor {
    /// Connections behind this one, with all fields or not.
    Connections {
        /// The last one that was listed.
        last: Option<ConnId>,
        /// Are the fields about the session wanted?
        whole: bool,
    },
    /// Sessions behind this one, then ephemeral nodes.
    Sessions(Option<SessionId>),
    /// Ephemeral nodes behind this one.
    Ephemerals(Option<(SessionId, String)>),
    /// Watches by session.
    Watches(WatchListing),
    /// Watches by path.
    WatchesByPath(WatchListing),
}
