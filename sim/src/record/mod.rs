//! What is kept of a run, and how people read it: the trace, the timeline of events, counters, the
//! summary of one screen, and the page.
//!
//! Owns these records and their text. Must not influence the run, nor check it.
//!
//! World, machines and clients emit each [`event::RunEvent`] once, by `Shared::record`. Its readers
//! have exhaustive matches of their own, and read it in this order:
//!
//! 1. Roles, injections, counters with shapes, state lines, timeline: in their methods `record`,
//!    which [`recorder::Recorder`] calls.
//! 2. The trace: `trace::entries` makes its notes. State lines and timeline read notes, too.
//! 3. Oracles: [`event::RunEvent::observations`]. State lines and timeline read these, too.
//!
//! Some records have one source, which calls the keeper directly: the answers to clients and the
//! applied transactions (`machine/node/process`), the outputs of a turn for the trace, and broken
//! connections for the state lines (`world`).
//!
//! To add something:
//!
//! * A new event: a variant of `RunEvent`; the compiler then asks every reader. It is worthwhile
//!   where several readers need it. Otherwise its only reader is called directly: `Shared::note`
//!   for the trace, `Shared::observe` for the oracles, a counter beside either.
//! * A new record keeper: a field of `Recorder`, a method `record` with an exhaustive match, and
//!   its call in `Recorder::record`, behind those whose records it reads.

pub mod counters;
pub mod coverage;
pub mod event;
pub mod html;
pub mod injection;
pub(crate) mod output;
pub mod recorder;
pub mod role;
pub mod roles;
pub mod shapes;
pub mod sometimes;
pub mod summary;
pub mod timeline;
pub mod trace;
pub mod unreceived;
