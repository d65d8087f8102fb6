//! Clients: the real client library with a user that calls it, and the calls that users make.
//!
//! Owns sessions, connections and calls of clients, and the key space. Must not check replies:
//! oracles do.

pub mod client;
pub mod diary;
pub mod program;
pub mod workload;
