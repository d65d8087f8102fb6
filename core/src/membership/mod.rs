//! The members of the ensemble: which servers vote, and what a quorum is (Java `QuorumVerifier`).
//!
//! Owns the types of a membership. A server starts with the voters of its configuration and passes
//! its current ones to every step ([`Cx::voters`](crate::cx::Cx)). Must not know how members are
//! reached.

mod hierarchy;
mod members;
mod quorum;

pub use hierarchy::HierarchyError;
pub use members::Members;
pub use quorum::{HistoryInfo, HistoryStatus, Voters};
