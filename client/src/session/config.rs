//! The settings of a session, each with unit, default, range and reason.
//!
//! Owns these settings and their defaults. Must not hold anything that changes during the session.

use std::time::Duration;

use zabkeeper_core::SessionId;
use zabkeeper_core::wire::{MAX_FRAME_DEFAULT, Password};

use super::connect::ConnectString;

/// Settings of a [`Session`](crate::Session).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// The servers to connect to, and the chroot.
    pub servers: ConnectString,
    /// Requested session timeout, ms. The server grants the nearest allowed value (HS-06). Values
    /// below 1 count as 1.
    pub session_timeout_ms: i32,
    /// An existing session to resume instead of creating one (CLIENT-17). Default `None`.
    pub resume: Option<(SessionId, Password)>,
    /// Whether a read-only server may serve the session (RO-02): such a server answers reads from a
    /// state that may be old, and refuses all else with -119. Meanwhile the session asks the other
    /// servers, ever more rarely, and moves to the first one that takes writes (RO-04). Default:
    /// no.
    pub read_only: bool,
    /// Maximum number of outstanding calls; one more fails with
    /// [`Failure::Full`](crate::Failure::Full). Default 10,000, at least 1. Bounds the memory of a
    /// caller that never waits for replies.
    pub calls_max: usize,
    /// Maximum bytes of a request, without its length field; a larger one fails with
    /// [`Failure::TooLarge`](crate::Failure::TooLarge). Default 1,048,575, ZooKeeper's default
    /// `jute.maxbuffer`: a server that receives more closes the connection, and all other calls
    /// fail.
    pub request_bytes_max: u32,
    /// Upper bound of the random delay before a reconnect. Default 1 s, zero allowed. Spreads the
    /// reconnects of all clients of a failed server over time (CLIENT-04).
    pub reconnect_delay_max: Duration,
    /// Pause after every server has been tried once. Default 1 s, zero allowed. Limits the
    /// connection attempts while the ensemble is down (CLIENT-04).
    pub round_pause: Duration,
    /// Bytes of paths after which a setWatches request is full; its last path may exceed the limit
    /// (WATCH-25). Default 128 KiB, as in ZooKeeper's clients: well below the default
    /// `jute.maxbuffer`.
    pub watches_bytes: usize,
}

impl Config {
    /// The settings of a new session with these servers; all others have their defaults.
    pub fn new(servers: ConnectString, session_timeout_ms: i32) -> Config {
        Config {
            servers,
            session_timeout_ms,
            resume: None,
            read_only: false,
            calls_max: 10_000,
            request_bytes_max: MAX_FRAME_DEFAULT,
            reconnect_delay_max: Duration::from_secs(1),
            round_pause: Duration::from_secs(1),
            watches_bytes: 128 << 10,
        }
    }
}
