//! The state machine of Zabkeeper, without sockets, files, clocks or threads.
//!
//! A [`Server`] takes one [`Input`] at a time and appends the resulting commands to an [`Outbox`].
//! A [`Driver`](driver::Driver) is the layer between the server and the sockets: it decodes and
//! encodes bytes and enforces limits. The host, which owns the sockets, the disk and the clock,
//! calls both. The loop is the same in every host. This is a complete host, with one client that
//! sends a handshake and a request, and a disk that stores nothing:
//!
//! ```
//! use std::{sync::Arc, time::Duration};
//! use bytes::{Bytes, BytesMut};
//! use zabkeeper_core::driver::{ClientLimits, Driver, PeerOptions, TurnLimits};
//! use zabkeeper_core::store::{DiskCommand, DiskEvent, Recovered};
//! use zabkeeper_core::wire::{ConnectRequest, Request, RequestFrame};
//! use zabkeeper_core::*;
//!
//! let id = ServerId(1);
//! let config = Config::new(id, Voters::new([id]), Duration::from_secs(2))?;
//! let mut server = Server::recover(config.clone(), 7, Recovered::default())?;
//! let (limits, turn) = (ClientLimits::default(), TurnLimits::default());
//! let peers = PeerOptions::new(limits.max_frame);
//! let mut driver = Driver::new(Arc::new(config), limits, peers, turn, 7, Instant(0));
//! let mut out = Outbox::default();
//!
//! let client = ConnId(1);
//! driver.clients.accept(client, "127.0.0.1:40000".parse()?, Vec::new(), Now::default())?;
//! let (mut sent, mut answers) = (BytesMut::new(), Vec::new());
//! let (session, password) = (SessionId(0), Bytes::new());
//! let (last_zxid_seen, timeout_ms, read_only) = (Zxid::ZERO, 10_000, None);
//! ConnectRequest { last_zxid_seen, timeout_ms, session, password, read_only }.encode(&mut sent);
//! let exists = Request::Exists { path: "/".into(), watch: false };
//! RequestFrame { xid: 1, request: exists }.encode(&mut sent);
//! driver.clients.receive(client, &sent, Instant(0));
//!
//! for ms in 0..100 {
//!     // The clocks are read once per turn; a host may sleep until `Driver::next_deadline`.
//!     let now = Now { mono: Instant(ms * 1_000_000), wall: WallMs(1_800_000_000_000) };
//!     driver.begin_turn(now);
//!     while let Some(input) = driver.next_input(now, &server, out.cost) {
//!         out.cost = 0;
//!         server.step(now, input, &mut out);
//!     }
//!     // A real host passes `disk` to its workers, and dials what `Peers::next_dial` returns.
//!     for command in out.disk.drain(..) {
//!         if let DiskCommand::Append { id, .. } | DiskCommand::SaveState { id, .. } = command {
//!             driver.push(Input::Disk(DiskEvent::Done(id)));
//!         }
//!     }
//!     driver.deliver(now, &server, &mut out);
//!     while let Some(socket) = driver.next_to_flush() {
//!         // A real socket may accept fewer bytes, or none: the host then calls `Driver::block`.
//!         while let length @ 1.. = driver.output(socket).len() {
//!             answers.extend_from_slice(driver.output(socket));
//!             driver.sent(socket, length, now.mono);
//!         }
//!     }
//! }
//! assert_eq!(answers.len(), (4 + 36) + (4 + 16 + 68), "the answer to the handshake, and a Stat");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Invariants of every module: no I/O, no clock, no thread, no async, no ambient randomness; a step
//! cannot fail; input from outside never panics; no code iterates a map in hash order.

pub mod auth;
mod config;
mod cost;
mod cx;
pub mod digest;
pub mod driver;
mod election;
mod error;
mod front;
mod identity;
mod ids;
pub mod io;
mod log;
mod mark;
pub mod measure;
mod membership;
mod notice;
mod offline;
mod outline;
pub mod peer;
mod progress;
mod replica;
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
pub use config::{
    Config, ConfigError, Limits, Membership, ReconfigOptions, SessionOptions, TreeOptions,
};
pub use error::{Corrupt, ErrorCode, Malformed};
pub use identity::{EpochNonce, Identity, Seed, SessionSecret};
pub use ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, WallMs, WriteId, Zxid};
pub use io::{Input, Now, Outbox, Pressure};
pub use log::epochs::EpochIndex;
pub use membership::{
    EnsembleConfig, HierarchyError, HistoryInfo, HistoryStatus, Member, Members, ServerAddress,
    Voters,
};
pub use notice::Notice;
pub use offline::{Compared, Replayed, compare, replay};
pub use outline::{Difference, Outline, OutlineCompared};
pub use peer::{LinkCloseReason, NotedConfigs, StepDownReason};
pub use progress::{PendingReconfig, ReconfigRefusal, ServerProgress, SyncState};
pub use server::Server;
pub use server::operators::{NodeShown, Refused, Requester};
pub use status::{Backlog, Halted, Mode, SessionInfo, Status, Waiting, WatchSummary};
pub use timer::Timer;
pub use watch::WatchListing;
