//! Facts that the driver reports for the operator's log and for tests.
//!
//! Owns the facts. Must not format them.

use core::net::SocketAddr;
use std::time::Duration;

use crate::ids::ConnId;
use crate::throttle::Handshake;

/// A fact about clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientNote {
    /// A handshake was read, and the throttle has admitted it (`true`) or refused it (THR-05).
    Handshake(ConnId, Handshake, bool),
    /// A connection is not read because of a bound on the requests of all connections.
    Overloaded {
        /// Unanswered requests of all connections.
        under_way: u64,
    },
    /// A request was refused that had waited for longer than `throttled_op_wait_time`.
    OpWaitedTooLong {
        /// How long it had waited.
        waited: Duration,
        /// The value of `throttled_op_wait_time`.
        op_wait_max: Duration,
    },
    /// The core closes the connection with this address for this reason.
    Complaint(SocketAddr, String),
}
