//! What makes a run a function of its seed: random streams, the order of events, decisions, forks.
//!
//! Owns the derivation of random streams, ties between events of one instant, when the next
//! decision is due, and what a fork draws anew. Must not carry out any event: `world` does.

pub mod clock;
pub mod decisions;
pub mod fork;
pub mod queue;
pub mod seed;
pub mod selection;
