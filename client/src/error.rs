//! Why an operation of the handle failed, in three classes (CLIENT-11).
//!
//! Owns the classes and the words for users. Must not decide when an operation fails: the session
//! and the engine do.

use std::fmt;

use zabkeeper_core::ErrorCode;

use crate::session::Failure;

/// An operation of a [`Client`](crate::Client) has failed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    operation: &'static str,
    path: String,
    failure: Failure,
    /// What exactly is wrong with the data of a node; empty for other failures.
    reason: String,
}

/// What an error means for the program.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ErrorClass {
    /// The request is at fault, or what it found: `NoNode`, `BadVersion`, a path without a slash.
    /// Nothing has changed, and the session goes on.
    Operation,
    /// The answer was lost or is late: whether a write was carried out is unknown. The session goes
    /// on. Repeat what may be done twice; for the rest, look first.
    Recoverable,
    /// The session has ended, and its ephemeral nodes are gone or going. All other operations of
    /// this client fail, too: connect a new one.
    Fatal,
}

impl Error {
    pub(crate) fn new(operation: &'static str, path: String, failure: Failure) -> Error {
        Error { operation, path, failure, reason: String::new() }
    }

    /// The data of a node are not what a recipe keeps there, for this reason.
    pub(crate) fn unexpected(
        operation: &'static str,
        path: &str,
        reason: impl fmt::Display,
    ) -> Error {
        let (path, failure) = (path.to_owned(), Failure::UnexpectedData);
        Error { operation, path, failure, reason: reason.to_string() }
    }

    /// The operation, as ZooKeeper's command line names it: `create`, `get`.
    pub fn operation(&self) -> &'static str {
        self.operation
    }

    /// The path of the operation; empty for operations without one.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Why it failed.
    pub fn failure(&self) -> Failure {
        self.failure
    }

    /// What the error means for the program.
    pub fn class(&self) -> ErrorClass {
        match self.failure {
            Failure::ConnectionLoss | Failure::TimedOut => ErrorClass::Recoverable,
            Failure::SessionExpired
            | Failure::AuthFailed
            | Failure::Closed
            | Failure::Code(
                ErrorCode::SessionExpired | ErrorCode::AuthFailed | ErrorCode::SchemeRequired,
            ) => ErrorClass::Fatal,
            Failure::Code(_)
            | Failure::UnknownCode(_)
            | Failure::Full
            | Failure::TooLarge
            | Failure::InvalidPath(_)
            | Failure::NotACall
            | Failure::Lagged
            | Failure::WatchRemoved
            | Failure::UnexpectedData
            | Failure::OtherReply => ErrorClass::Operation,
        }
    }

    /// Is it unknown whether the operation was carried out, while the session goes on?
    pub fn is_recoverable(&self) -> bool {
        self.class() == ErrorClass::Recoverable
    }

    /// Has the session ended?
    pub fn is_fatal(&self) -> bool {
        self.class() == ErrorClass::Fatal
    }

    /// The code of the server's answer; `None` if it has not refused the operation so.
    pub fn code(&self) -> Option<ErrorCode> {
        let Failure::Code(code) = self.failure else { return None };
        Some(code)
    }

    /// Has the server answered with this code?
    pub fn is(&self, code: ErrorCode) -> bool {
        self.code() == Some(code)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Error { operation, path, failure, reason } = self;
        let space = if path.is_empty() { "" } else { " " };
        let colon = if reason.is_empty() { "" } else { ": " };
        write!(f, "{operation}{space}{path}: {failure}{colon}{reason}")
    }
}

impl std::error::Error for Error {}
