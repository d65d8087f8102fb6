//! What is kept of a run, and how people read it: the trace, the timeline of events, counters, the
//! summary of one screen, and the page.
//!
//! Owns these records and their text. Must not influence the run, nor check it.

pub mod counters;
pub mod coverage;
pub mod html;
pub(crate) mod output;
pub mod recorder;
pub mod role;
pub mod roles;
pub mod shapes;
pub mod sometimes;
pub mod summary;
pub mod timeline;
pub mod trace;
