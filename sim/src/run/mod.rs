//! The program: one run, batches of runs, measurements, and the command line.
//!
//! Owns threads, wall-clock time, files, exit codes and flags. Must not take part in a run: a world
//! knows nothing of the batch that it belongs to.

pub mod batch;
pub mod cli;
pub mod determinism;
pub mod evidence_log;
pub mod format;
pub mod job;
pub mod plan;
pub mod program;
pub mod report;
pub mod speed;
pub mod track;

pub use program::main_with;
