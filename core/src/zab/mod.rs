//! Atomic broadcast: the phases that leader and learner go through together, from election to service.
//!
//! ```text
//!        leader                                                          follower
//!
//!        elected                                                         elected another
//!           │                                                                │ dials
//!           ▼                                                                ▼
//!       Gathering ◄──────────────── FOLLOWERINFO ─────────────────────── Discovery
//!           │ a quorum says what it has promised                             │
//!           ▼                                                                │
//!       Promising ───────────────── LEADERINFO ─────────────────────────►    │
//!           │ ◄──────────────────── ACKEPOCH ───────────────────────────     ▼ promise durable
//!           │ a quorum has promised, nobody knows more                  Synchronization
//!           ▼                                                                │
//!    Synchronization ─── TRUNC, SNAP, PROPOSAL.., NEWLEADER ────────────►    │
//!           │ ◄──────────────────── ACK NEWLEADER ──────────────────────     ▼ history, then epoch durable
//!           │ a quorum has the history, and keeps the voters of              Synced
//!           ▼ now: a second NEWLEADER says those that are new                │
//!       Broadcast ───────────────── UPTODATE ───────────────────────────►    ▼
//!           │ ─── PROPOSAL, COMMIT, PING ─► ◄─ ACK, PONG, REQUEST ───────  Following
//!           ▼ epoch used up, or no quorum is heard                           ▼ the link is down
//!        Looking                                                          Looking
//! ```
//!
//! Owns the order of these steps and what each waits for. Must not know connections of clients. With a single voter each
//! quorum is the leader itself, which goes through every step all the same: there is no second path.

mod broadcast;
mod cleaning;
mod digests;
mod follower;
mod leader;
mod learner;
mod syncs;

pub(crate) use broadcast::{Proposer, Resumption, Write};
pub(crate) use follower::{Follower, FollowerEffect};
pub(crate) use leader::{LEADER_TIMERS, Leader, LeaderEffect};
pub(crate) use syncs::SyncWaiter;
