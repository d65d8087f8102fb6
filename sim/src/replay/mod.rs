//! Decisions as data: schedules that replay a run, shrinking them, and scenes of sequential calls.
//!
//! Owns the text of schedules and the search for shorter ones. Must not draw decisions from a seed.

mod result;
pub mod scene;
pub mod schedule;
pub mod shrink;
