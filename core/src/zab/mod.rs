//! Atomic broadcast: the phases that a leader goes through, from election to service.
//!
//! ```text
//!             elected
//!                │
//!                ▼
//!            Discovery        a quorum promises the new epoch         (promise durable)
//!                │
//!                ▼
//!         Synchronization     a quorum has the leader's history       (epoch durable after history)
//!                │
//!                ▼
//!            Broadcast        propose, log, commit in order           (until the epoch is used up)
//!                │
//!                ▼
//!             Looking
//! ```
//!
//! Owns the order of these steps and what each waits for. Must not know connections. With a single voter each quorum is
//! the leader itself, which goes through every step all the same: there is no second path.

mod leader;

pub(crate) use leader::{Broadcast, Leader};
