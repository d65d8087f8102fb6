//! What clients may take up: connections, bytes, requests under way (THR rows).
//!
//! Owns the numbers and their defaults. Must not enforce them.

use std::time::Duration;

use crate::throttle::ThrottleOptions;
use crate::wire::MAX_FRAME_DEFAULT;

/// Bounds of what clients may take up. Names in the text are those of `zoo.cfg`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientLimits {
    /// `jute.maxbuffer`: largest request, bytes (WIRE-03).
    pub max_frame: u32,
    /// `maxClientCnxns`: connections accepted from one address; none is no bound (THR-02).
    pub connections_per_ip: Option<usize>,
    /// `maxCnxns`: connections accepted altogether; none is no bound (THR-03).
    pub connections: Option<usize>,
    /// `nio.sessionlessCnxnTimeout`: time for a handshake or a four-letter command (WIRE-17).
    pub sessionless_timeout: Duration,
    /// `globalOutstandingLimit`, divided among the servers: unanswered requests above which a
    /// connection that has some is not read (THR-01).
    pub outstanding: u64,
    /// `request_throttle_max_requests`: unanswered requests at which no connection is read; none is
    /// no bound (THR-06).
    pub throttle_max_requests: Option<u64>,
    /// `throttled_op_wait_time`: how long a request may wait because of `throttle_max_requests`;
    /// none is as long as it takes (THR-07).
    pub op_wait_max: Option<Duration>,
    /// `request_stale_latency_check`, unless `request_throttle_drop_stale` is off: a client is
    /// disconnected whose request has waited there for longer than its session may be silent
    /// (THR-06).
    pub drop_stale: bool,
    /// `largeRequestThreshold` and `largeRequestMaxBytes`: none is no bound (THR-04).
    pub large: Option<LargeRequests>,
    /// `connection_throttle_*` (THR-05).
    pub throttle: ThrottleOptions,
    /// Bytes of queued output above which a connection is not read: its client does not take the
    /// answers that it has asked for. While it takes some, its session lives. Default 4 MiB, room
    /// for a few of the largest answers that a default `jute.maxbuffer` allows.
    pub output_bytes: usize,
    /// Bytes of queued events above which a connection is closed: other clients decide how many
    /// events there are. A client that comes back learns by setWatches what it has missed. Default
    /// 10 MiB.
    pub event_bytes: u64,
}

/// A bound on the bytes of large requests.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LargeRequests {
    /// Bytes above which a request is large.
    pub above: u32,
    /// Bytes of all large requests under way together.
    pub bytes: u64,
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
