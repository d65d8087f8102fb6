//! Tests of the core through its public interface.
#![expect(clippy::unwrap_used, reason = "a broken test script may panic")]

mod corpus;
mod ensemble;
mod golden;
mod passwords;
mod play;
mod recover;
mod scenarios;
mod tidy;
mod work;
