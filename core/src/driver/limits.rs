//! Bounds on the resources that clients may occupy: connections, bytes, outstanding requests (THR
//! rows).
//!
//! Owns the numbers and their defaults. Must not enforce them.

use std::time::Duration;

use crate::throttle::ThrottleOptions;
use crate::wire::MAX_FRAME_DEFAULT;

/// Bounds on the resources that clients may occupy. Names in the text are those of `zoo.cfg`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// `jute.maxbuffer`: largest request, bytes (WIRE-03).
    pub max_frame: u32,
    /// `maxClientCnxns`: connections accepted from one address; `None` is unlimited (THR-02).
    pub connections_per_ip: Option<usize>,
    /// `maxCnxns`: connections accepted altogether; `None` is unlimited (THR-03).
    pub connections: Option<usize>,
    /// `nio.sessionlessCnxnTimeout`: time for a handshake or a four-letter command (WIRE-17).
    pub sessionless_timeout: Duration,
    /// `globalOutstandingLimit`, divided among the servers: number of unanswered requests of all
    /// connections above which a connection with unanswered requests of its own is not read
    /// (THR-01).
    pub outstanding: u64,
    /// `request_throttle_max_requests`: number of unanswered requests of all connections at which
    /// no connection is read; `None` is unlimited (THR-06).
    pub throttle_max_requests: Option<u64>,
    /// `throttled_op_wait_time`: how long a request may wait because of `throttle_max_requests`;
    /// `None` is unlimited (THR-07).
    pub op_wait_max: Option<Duration>,
    /// `request_stale_latency_check`, unless `request_throttle_drop_stale` is off: the server
    /// disconnects a client whose request has waited because of `throttle_max_requests` for longer
    /// than the timeout of its session (THR-06).
    pub drop_stale: bool,
    /// `largeRequestThreshold` and `largeRequestMaxBytes`; `None` is unlimited (THR-04).
    pub large: Option<LargeRequests>,
    /// `connection_throttle_*` (THR-05).
    pub throttle: ThrottleOptions,
    /// Bytes of queued output above which a connection is not read, because its client does not
    /// take the answers to its requests. The session stays alive while the client takes some of
    /// them. Default 4 MiB, room for a few of the largest answers that a default `jute.maxbuffer`
    /// allows.
    pub output_bytes: usize,
    /// Bytes of queued events above which a connection is closed: other clients decide how many
    /// events there are. A client that reconnects receives the missed events by setWatches. Default
    /// 10 MiB.
    pub event_bytes: u64,
}

/// A bound on the bytes of large requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeRequests {
    /// Requests of more bytes than this are large.
    pub above: u32,
    /// Bytes of all outstanding large requests together.
    pub bytes: u64,
}

impl ClientLimits {
    /// Takes the bounds from `newer` that are looked up whenever they apply. The others stay:
    /// connections and the throttle keep them, or other limits depend on them.
    pub(super) fn reload(&mut self, newer: &ClientLimits) {
        self.connections_per_ip = newer.connections_per_ip;
        self.connections = newer.connections;
        self.outstanding = newer.outstanding;
        self.throttle_max_requests = newer.throttle_max_requests;
        self.op_wait_max = newer.op_wait_max;
        self.drop_stale = newer.drop_stale;
        self.large = newer.large;
    }
}

impl Default for ClientLimits {
    fn default() -> ClientLimits {
        ClientLimits {
            max_frame: MAX_FRAME_DEFAULT,
            connections_per_ip: Some(60),
            connections: None,
            sessionless_timeout: Duration::from_secs(10),
            outstanding: 1000,
            throttle_max_requests: None,
            op_wait_max: None,
            drop_stale: false,
            large: None,
            throttle: ThrottleOptions::default(),
            output_bytes: 4 << 20,
            event_bytes: 10 << 20,
        }
    }
}
