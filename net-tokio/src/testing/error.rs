//! What goes wrong with servers inside a test.
//!
//! Owns the kinds of errors and their texts. Must not cause any.

use std::error;
use std::fmt;
use std::time::Duration;

/// Why an ensemble inside a test could not do what the test demands.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Error {
    /// The test demands what is not possible: a setting that is invalid, or a server that the
    /// ensemble does not have.
    Invalid(String),
    /// The operating system has no folder, port or thread for the ensemble.
    System(String),
    /// A server could not start, or has ended by itself.
    Server {
        /// The server.
        id: u64,
        /// Why it has ended.
        what: String,
    },
    /// A server was not ready in time; see
    /// [`EnsembleBuilder::timeout`](super::EnsembleBuilder::timeout).
    TimedOut {
        /// The server.
        id: u64,
        /// How long the test has waited.
        waited: Duration,
    },
}

impl Error {
    /// The ensemble has servers 1 to `last` only.
    pub(super) fn no_server(id: u64, last: usize) -> Error {
        Error::Invalid(format!("there is no server {id}: the servers are 1 to {last}"))
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Invalid(what) | Error::System(what) => f.write_str(what),
            Error::Server { id, what } => write!(f, "server {id} has ended: {what}"),
            Error::TimedOut { id, waited } => write!(
                f,
                "server {id} was not ready after {waited:?}: a majority of the servers has to run, \
                 and to reach each other; install a subscriber of `tracing` to see what it waits \
                 for, or raise the timeout of the ensemble if the machine is slow"
            ),
        }
    }
}

impl error::Error for Error {}
