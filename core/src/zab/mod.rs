//! Atomic broadcast: the phases of leader and follower, from election to service.
//!
//! ```text
//!        leader                                                          follower
//!
//!        elected                                                         elected another
//!           │                                                                │ dials
//!           ▼                                                                ▼
//!       Gathering ◄──────────────── FOLLOWERINFO ─────────────────────── Discovery
//!           │ a quorum has sent its accepted epochs                          │
//!           ▼                                                                │
//!       Promising ───────────────── LEADERINFO ─────────────────────────►    │
//!           │ ◄──────────────────── ACKEPOCH ───────────────────────────     ▼ promise durable
//!           │ a quorum has promised, no learner is ahead                Synchronization
//!           ▼                                                                │
//!    Synchronization ─── TRUNC, SNAP, PROPOSAL.., NEWLEADER ────────────►    │
//!           │ ◄──────────────────── ACK NEWLEADER ──────────────────────     ▼ history durable
//!           │ a quorum has the history, and keeps the voters of              Synced
//!           ▼ now: a second NEWLEADER announces them                         │
//!       Broadcast ───────────────── UPTODATE ───────────────────────────►    ▼
//!           │ ─── PROPOSAL, COMMIT, PING ─► ◄─ ACK, PONG, REQUEST ───────  Following
//!           ▼ epoch used up, or quorum lost                                  ▼ the link is down
//!        Looking                                                          Looking
//! ```
//!
//! Owns the order of these steps and the condition for each. Must not know client connections. A
//! single voter is a quorum of one and goes through every step: there is no separate code path.

mod follower;
mod leader;
mod propose;

pub(crate) use follower::{Follower, FollowerEffect};
use leader::ObserverMaster;
pub(crate) use leader::{FollowerInfo, LEADER_TIMERS, Leader, LeaderEffect, SyncWaiter};
pub(crate) use propose::{Proposer, Resumption, Write};

/// The maximum number of digests in a PONG.
const DIGESTS: usize = 16;
