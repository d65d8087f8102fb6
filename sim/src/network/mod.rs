//! The network: connections as byte streams, and reachability between servers.
//!
//! Owns bytes in flight, their latencies, and how connections break. Must not know what the bytes
//! mean.

pub mod port;
pub mod reach;
pub mod slow;
pub mod stream;
