//! Error types: codes for clients, malformed input from clients, corrupt data from the disk.
//!
//! Owns the codes of ZooKeeper's `KeeperException.Code` that a server sends. Must not know which
//! component sends them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares an enum whose variants have numbers on the wire, with conversions in both directions.
/// One list generates both, so that they always agree.
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

            /// The variant with this number, if this server supports it.
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
    /// Why the server refused a request, as sent to the client. The discriminant is the wire value
    /// and never zero, which means success. The log stores the variant's index: append new variants
    /// only.
    #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
    pub enum ErrorCode {
        /// The server could not decode the request's record, or a field has an invalid value.
        Marshalling = -5,
        /// This server does not know the operation, or the operation is switched off.
        Unimplemented = -6,
        /// Bad path, bad create flag, or an attempt to delete a reserved node.
        BadArguments = -8,
        /// The server does not know the session.
        UnknownSession = -12,
        /// The node, or the parent of a node to create, does not exist.
        NoNode = -101,
        /// An access control list denies the request.
        NoAuth = -102,
        /// The version in the request differs from the node's.
        BadVersion = -103,
        /// The parent is ephemeral.
        NoChildrenForEphemerals = -108,
        /// The node to create exists.
        NodeExists = -110,
        /// The node to delete has children.
        NotEmpty = -111,
        /// The session is closing or gone.
        SessionExpired = -112,
        /// The access control list is empty, malformed, or names an unsupported scheme.
        InvalidAcl = -114,
        /// Authentication failed; the connection is closed.
        AuthFailed = -115,
        /// The connection has no such watch.
        NoWatcher = -121,
        /// A local session asked for an ephemeral node, and upgrading local sessions is switched
        /// off.
        EphemeralOnLocalSession = -120,
        /// The request would exceed a hard quota.
        QuotaExceeded = -125,
        /// The request waited longer than the configured limit.
        Throttled = -127,
        /// The connection has not authenticated with a scheme that the server requires; the server
        /// closes it.
        SchemeRequired = -124,
        /// Reconfiguration of the ensemble is disabled.
        ReconfigDisabled = -123,
        /// Another reconfiguration is under way.
        ReconfigInProgress = -14,
        /// No quorum of the new configuration is connected and up to date.
        NewConfigNoQuorum = -13,
        /// The server is read-only, and the request needs a leader (ERR-25).
        NotReadOnly = -119,
    }
}

impl fmt::Display for ErrorCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}({})", self.wire())
    }
}

impl std::error::Error for ErrorCode {}

/// Bytes from a client that break the protocol: the server closes that connection only.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Malformed {
    /// A frame's length is negative or above the limit (WIRE-03).
    FrameLength {
        /// The length read; signed on the wire.
        length: i32,
        /// The largest length accepted (`jute.maxbuffer`).
        limit: u32,
    },
    /// The frame ends before the record in it does.
    Truncated {
        /// The field being read.
        field: &'static str,
    },
    /// A length or count inside a record is out of range.
    Length {
        /// The field being read.
        field: &'static str,
        /// The length read.
        length: i32,
    },
    /// A value is out of range.
    Value {
        /// The field being read.
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

/// Durable bytes that passed their checksum but cannot be decoded: the server refuses to start.
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

/// A logged transaction that does not fit the state before it: a bug, or bytes that no leader
/// wrote. The server halts, because skipping the transaction would make its state differ from the
/// other replicas.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Inapplicable {
    /// Which check failed, with the offending value.
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
    fn error_codes_round_trip() {
        let known = (-1_000..=0).filter_map(|value| Some((value, ErrorCode::from_wire(value)?)));
        let mut count = 0;
        for (value, code) in known {
            assert_eq!(code.wire(), value);
            count += 1;
        }
        assert_eq!(count, 22);
        assert_eq!(ErrorCode::from_wire(0), None);
    }
}
