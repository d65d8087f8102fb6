//! How a call of a client ended.
//!
//! Owns the kinds. Must not know the reply.

/// How a call ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum CallOutcome {
    /// It succeeded.
    Done = 0,
    /// The server refused it.
    Refused = 1,
    /// Unknown, because the connection was lost.
    Unknown = 2,
    /// The session was over, or the client library refused the call.
    Over = 3,
}
