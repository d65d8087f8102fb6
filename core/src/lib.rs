//! The state machine of Zabkeeper, without sockets, files, clocks or threads.
//!
//! A [`Server`] takes one [`Input`] at a time and appends what it wants done to an [`Outbox`]. The driver's loop is
//! the same everywhere:
//!
//! ```text
//! collect a bounded batch of inputs        sockets, disk completions, a deadline
//! read the clocks once                     Now
//! step each input                          server.step(now, input, &mut outbox)
//! hand `disk` to its three workers         the log's writes all, syncs once, answers Done(last id)
//! hand `clients` to their connections      encoding happens there
//! hand `peers`, `election` to theirs       the same
//! sleep until input or next_deadline()
//! ```
//!
//! Invariants, here and in every module: no I/O, no clock, no thread, no async, no ambient randomness; a step cannot
//! fail; input from outside never panics; maps are never iterated in hash order.

pub mod auth;
mod config;
mod cx;
pub mod digest;
mod election;
mod error;
mod history;
mod identity;
mod ids;
pub mod io;
mod log;
mod mark;
mod notice;
mod offline;
mod outline;
pub mod peer;
mod quorum;
mod recent;
mod replica;
mod request;
mod rng;
mod server;
mod session;
mod status;
pub mod store;
#[cfg(test)]
mod tests;
pub mod throttle;
mod timer;
mod tree;
pub mod txn;
mod watch;
pub mod wire;
mod zab;

pub use auth::{AuthOptions, DigestAlg};
pub use config::{Config, ConfigError, Limits, Membership, SessionOptions, TreeOptions};
pub use error::{Corrupt, ErrorCode, Malformed};
pub use history::History;
pub use identity::{EpochNonce, Identity, Seed, SessionSecret};
pub use ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, WallMs, WriteId, Zxid};
pub use io::{Input, Now, Outbox, Pressure};
pub use notice::Notice;
pub use offline::{Compared, Replayed, compare, replay};
pub use outline::{Difference, Outline, OutlineCompared};
pub use peer::{LinkCloseReason, StepDownReason};
pub use quorum::{HistoryInfo, HistoryStatus, Voters};
pub use server::Server;
pub use status::{Backlog, Halted, Mode, SessionInfo, Status, Waiting, WatchSummary};
pub use timer::Timer;
pub use watch::WatchListing;
