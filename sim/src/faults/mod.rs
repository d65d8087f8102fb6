//! The faults of a run: which there are, which are selected, and which the heal leaves in place.
//!
//! Owns the catalog with its rates, faults at coverage marks, buggify sites, and the draw of the
//! servers that the heal leaves out. Must not change a machine or a connection: `world` injects.

pub mod buggify;
pub mod catalog;
pub mod heal;
pub mod targets;
