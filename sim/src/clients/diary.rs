//! What a client asks and receives, in order of time, for scenes.
//!
//! Owns the kinds of entries. Must not know whether clients are simulated or real.

use zabkeeper_client::{Done, Failure};
use zabkeeper_core::wire::{Request, WatchEvent};

use crate::check::observe::ClientId;

/// A call, reply or event of a client.
#[derive(Clone, PartialEq, Debug)]
pub enum Word {
    /// It made a call.
    Asked(Request),
    /// It closed its session.
    Left,
    /// Its call has completed.
    Answered(Result<Done, Failure>),
    /// A watch event.
    Event(WatchEvent),
    /// Its session is over.
    Over,
}

/// All calls, replies and events, in order of time.
pub type History = Vec<(ClientId, Word)>;
