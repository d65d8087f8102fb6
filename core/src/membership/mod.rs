//! The members of the ensemble: which servers vote, and what a quorum is (Java `QuorumVerifier`).
//!
//! Owns the types of a membership. A server starts with the members of its configuration and passes
//! its current ones to every step ([`Cx::members`](crate::cx::Cx)). Must not open connections.

mod ensemble_config;
mod hierarchy;
mod member;
mod members;
mod quorum;

pub use ensemble_config::EnsembleConfig;
pub use hierarchy::HierarchyError;
pub use member::{Member, ServerAddress};
pub use members::Members;
pub use quorum::{HistoryInfo, HistoryStatus, Voters};
