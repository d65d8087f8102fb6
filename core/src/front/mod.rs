//! What a server keeps for its clients (Java `CommitProcessor`, `FinalRequestProcessor`).
//!
//! ```text
//! connection ──► queue ──read─────────────────────────────► read ──► reply (FinalRequestProcessor)
//!                  │                                        ▲
//!                  └─write─► prep ─► log ─► commit ─► apply ─► reply to the write
//!            (PrepRequestProcessor) (SyncRequestProcessor) (FinalRequestProcessor)
//! ```
//!
//! * `queue`: keeps the replies of each connection in the order of its requests (CommitProcessor).
//! * `read`: answers from the local tree.
//! * `reply`: builds the reply to a request from its applied transaction.
//! * `local`: the sessions that only this server knows.
//!
//! Owns the order of requests and their replies. Must not know the role of the server.

pub(crate) mod local;
pub(crate) mod queue;
pub(crate) mod read;
pub(crate) mod reply;
