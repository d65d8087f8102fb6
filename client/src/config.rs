//! What a session is told about itself; every number with unit, default, range and reason.
//!
//! Owns these settings and their defaults. Must not hold anything that changes while the session lives.

use std::time::Duration;

use zabkeeper_core::SessionId;
use zabkeeper_core::wire::{MAX_FRAME_DEFAULT, Password};

use crate::connect::ConnectString;

/// Settings of a [`Session`](crate::Session).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Config {
    /// Whom to dial, and below which path all paths lie.
    pub servers: ConnectString,
    /// Session timeout to ask for, ms. The server grants the nearest it allows (HS-06). Less than 1 counts as 1.
    pub session_timeout_ms: i32,
    /// A session to go on with instead of a new one (CLIENT-17).
    pub resume: Option<(SessionId, Password)>,
    /// Calls that may be under way at once; one more fails with [`Failure::Full`](crate::Failure::Full). Default
    /// 10,000, at least 1: keeps a caller that never waits from filling the memory.
    pub calls_max: usize,
    /// Bytes of the largest request sent, without its length; a larger one fails with
    /// [`Failure::TooLarge`](crate::Failure::TooLarge). Default 1,048,575: servers whose `jute.maxbuffer` is exceeded
    /// close the connection, and all other calls would fail with it.
    pub request_bytes_max: u32,
    /// Before a reconnect passes a random time below this. Default 1 s, zero allowed: spreads the clients of a server
    /// that has died over the others (CLIENT-04).
    pub reconnect_delay_max: Duration,
    /// Pause after every server has been tried once. Default 1 s, zero allowed: an ensemble that is down is not
    /// flooded (CLIENT-04).
    pub round_pause: Duration,
    /// Bytes of paths after which a request that sets watches again is full; the last path may exceed it (WATCH-25).
    /// Default 128 KiB, as ZooKeeper's clients have it: well below the usual `jute.maxbuffer` of servers.
    pub watches_bytes: usize,
}

impl Config {
    /// A new session with these servers; the rest as by default.
    pub fn new(servers: ConnectString, session_timeout_ms: i32) -> Config {
        Config {
            servers,
            session_timeout_ms,
            resume: None,
            calls_max: 10_000,
            request_bytes_max: MAX_FRAME_DEFAULT,
            reconnect_delay_max: Duration::from_secs(1),
            round_pause: Duration::from_secs(1),
            watches_bytes: 128 << 10,
        }
    }
}
