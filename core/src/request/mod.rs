//! The processing of a request: ZooKeeper's chain of request processors as functions on one thread.
//!
//! ```text
//! connection ──► order ──read─────────────────────────────► read ──► reply (FinalRequestProcessor)
//!                  │                                        ▲
//!                  └─write─► prep ─► log ─► commit ─► apply ─► outcome ─► reply
//!            (PrepRequestProcessor) (SyncRequestProcessor) (FinalRequestProcessor)
//! ```
//!
//! * `prep`: turns a request into a transaction, on the leader, over the tree and the pending
//!   changes. It may refuse the request; a refusal becomes a transaction, too.
//! * `pending`: the changes that are proposed, but not yet applied.
//! * apply: on every replica (`replica`), deterministic; a transaction that cannot be applied stops
//!   the server.
//! * `outcome`: builds the reply to a request from its applied transaction.
//! * `read`: answers from the local tree.
//! * `order`: keeps the replies of each connection in the order of its requests (CommitProcessor).
//! * `cost`: estimates the work.
//!
//! Owns the order of requests, the decision on each, and its reply. Must not send anything:
//! `server` does.

pub(crate) mod cost;
pub(crate) mod order;
pub(crate) mod outcome;
mod pending;
pub(crate) mod prep;
pub(crate) mod read;
