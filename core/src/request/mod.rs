//! The life of a request, in the five functions that ZooKeeper's chain of processors comes down to on one thread.
//!
//! ```text
//! connection ──► order ──read─────────────────────────────► read ──► reply   (FinalRequestProcessor)
//!                  │                                        ▲
//!                  └─write─► prep ─► log ─► commit ─► apply ─► outcome ─► reply
//!            (PrepRequestProcessor) (SyncRequestProcessor) (FinalRequestProcessor)
//! ```
//!
//! * `prep`: on the leader, from request to transaction, over the tree and the changes that are still under way. It may
//!   refuse; a refusal becomes a transaction, too.
//! * `pending`: those changes.
//! * apply: on every replica (`replica`), deterministic; a transaction that does not fit stops the server.
//! * `outcome`: from a transaction that is applied back to what its request is answered with.
//! * `read`: from the local tree.
//! * `order`: keeps each connection's answers in the order of its requests (CommitProcessor).
//! * `cost`: how much work that is.
//!
//! Owns whose turn it is, what a request is decided to be, and what it is answered with. Must not send anything:
//! `server` does.

pub(crate) mod cost;
pub(crate) mod order;
pub(crate) mod outcome;
mod pending;
pub(crate) mod prep;
pub(crate) mod read;
