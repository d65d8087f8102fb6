//! Errors, sorted by blame: what a client is told, what a client did to the wire, what the disk did to us.
//!
//! Owns the codes of ZooKeeper's `KeeperException.Code` that a server sends. Must not know who sends them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have numbers on the wire, and the way there and back: one list, so that none is left
/// out of the way back.
macro_rules! numbered {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$doc:meta])* $variant:ident = $number:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[repr(i32)]
        pub enum $name {
            $($(#[$doc])* $variant = $number,)+
        }

        impl $name {
            /// The number on the wire.
            pub fn wire(self) -> i32 {
                self as i32
            }

            /// What has this number, if a server of ours knows it.
            pub fn from_wire(value: i32) -> Option<$name> {
                match value {
                    $($number => Some($name::$variant),)+
                    _ => None,
                }
            }
        }
    };
}
pub(crate) use numbered;

numbered! {
    /// Why a request was refused, as the client is told. The number is the wire value, and never zero, which is
    /// success; in the log it is stored by position: append only.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub enum ErrorCode {
        /// The request's record could not be decoded, or one of its fields has no meaning.
        Marshalling = -5,
        /// The operation is unknown here, or switched off.
        Unimplemented = -6,
        /// Bad path, bad create flag, or an attempt to delete a reserved node.
        BadArguments = -8,
        /// The session is not known to the server.
        UnknownSession = -12,
        /// The node, or the parent of a node to create, does not exist.
        NoNode = -101,
        /// An access control list refuses.
        NoAuth = -102,
        /// The version given is not the node's.
        BadVersion = -103,
        /// The parent is ephemeral.
        NoChildrenForEphemerals = -108,
        /// The node to create exists.
        NodeExists = -110,
        /// The node to delete has children.
        NotEmpty = -111,
        /// The session is closing or gone.
        SessionExpired = -112,
        /// The access control list is empty, malformed, or names a scheme that is not offered.
        InvalidAcl = -114,
        /// Authentication failed; the connection is closed.
        AuthFailed = -115,
        /// This connection has no such watch.
        NoWatcher = -121,
        /// An ephemeral node was asked for by a session that only its server knows, and that may not be made known.
        EphemeralOnLocalSession = -120,
        /// A hard quota refuses.
        QuotaExceeded = -125,
        /// The request has waited for longer than the server is told to let requests wait.
        Throttled = -127,
        /// The connection has not authenticated with a scheme that the server demands; it is closed.
        SchemeRequired = -124,
        /// The members of the ensemble may not be changed.
        ReconfigDisabled = -123,
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}({})", self.wire())
    }
}

impl std::error::Error for ErrorCode {}

/// Bytes on a connection that break the protocol: the connection is closed, nobody else is disturbed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A frame's length is negative or above the limit (WIRE-03).
    FrameLength {
        /// The length read, as the signed number it is on the wire.
        length: i32,
        /// The largest length accepted (`jute.maxbuffer`).
        limit: u32,
    },
    /// A frame ends before its record does.
    Truncated {
        /// What was being read.
        field: &'static str,
    },
    /// A length or count inside a record cannot be right.
    Length {
        /// What was being read.
        field: &'static str,
        /// The length read.
        length: i32,
    },
    /// A value out of its range.
    Value {
        /// What was being read.
        field: &'static str,
        /// The value read.
        value: i64,
    },
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Malformed::FrameLength { length, limit } => {
                write!(f, "frame length {length} is not within 0..={limit} (jute.maxbuffer)")
            }
            Malformed::Truncated { field } => write!(f, "frame ends inside {field}"),
            Malformed::Length { field, length } => write!(f, "length {length} of {field} is wrong"),
            Malformed::Value { field, value } => write!(f, "{value} is no valid {field}"),
        }
    }
}

impl std::error::Error for Malformed {}

/// Durable bytes that passed their checksum and still make no sense: the server does not start on them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Corrupt {
    /// What is wrong, where, and with which value.
    pub what: String,
}

impl fmt::Display for Corrupt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "damaged data: {}", self.what)
    }
}

impl std::error::Error for Corrupt {}

/// A logged transaction that the state before it does not admit: a bug, or bytes that no leader of ours has decided. The
/// server stops on it, because whoever goes on without it differs from the others from then on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inapplicable {
    /// What the state has against it, with the value.
    pub(crate) what: String,
}

impl Inapplicable {
    pub(crate) fn new(what: impl Into<String>) -> Inapplicable {
        Inapplicable { what: what.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_survive_the_wire() {
        let known = (-1_000..=0).filter_map(|value| Some((value, ErrorCode::from_wire(value)?)));
        let mut count = 0;
        for (value, code) in known {
            assert_eq!(code.wire(), value);
            count += 1;
        }
        assert_eq!(count, 19);
        assert_eq!(ErrorCode::from_wire(0), None);
    }
}
