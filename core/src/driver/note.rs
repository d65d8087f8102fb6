//! What the driver has to tell beside its work: for the operator's log, and for whoever checks it.
//!
//! Owns the facts. Must not word them.

use core::net::SocketAddr;
use std::time::Duration;

use crate::ids::ConnId;
use crate::throttle::Handshake;

/// Something about clients that is worth telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ClientNote {
    /// A handshake has been read, and the throttle has admitted it, or not (THR-05).
    Handshake(ConnId, Handshake, bool),
    /// Requests have to wait because of a bound on all of them.
    Overloaded {
        /// Requests under way.
        under_way: u64,
    },
    /// A request was refused that had waited for longer than `throttled_op_wait_time`.
    OpWaitedTooLong {
        /// So long.
        waited: Duration,
        /// The bound.
        op_wait_max: Duration,
    },
    /// The core closes a connection for this reason.
    Complaint(SocketAddr, String),
}
