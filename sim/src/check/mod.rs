//! What must hold in every run: observations, the reference model, the oracles, and the first
//! failure.
//!
//! Owns every verdict. Must not influence the run, nor read the state of servers other than
//! through observations.

pub mod answers;
pub mod checker;
pub mod ensemble;
pub mod guard;
pub mod history;
pub mod judge;
pub mod model;
pub mod observe;
pub mod oracle;
pub mod weights;
