//! Admission of connections, and of requests of one connection given those of all others.
//!
//! Owns the counts of connections and the queue of `request_throttle_max_requests`. Must not handle
//! bytes.

use core::net::IpAddr;
use std::collections::{BTreeMap, VecDeque};
use std::error::Error;
use std::fmt;

use super::limits::ClientLimits;
use super::metrics::Load;
use crate::ids::ConnId;

/// The open connections, and the connections that wait until fewer requests are outstanding.
#[derive(Debug, Default)]
pub(super) struct Admission {
    connections: usize,
    by_address: BTreeMap<IpAddr, usize>,
    /// Waiting connections, oldest first.
    pub(super) throttle_queue: VecDeque<ConnId>,
}

/// Why a connection is closed before any byte of it is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooManyConnections {
    /// `maxCnxns` (THR-03).
    Altogether(usize),
    /// `maxClientCnxns` (THR-02).
    FromAddress(usize),
}

impl Admission {
    /// Counts a connection.
    ///
    /// # Errors
    /// A bound is reached; the connection does not count.
    pub(super) fn accept(
        &mut self,
        address: IpAddr,
        limits: &ClientLimits,
    ) -> Result<(), TooManyConnections> {
        if let Some(bound) = limits.connections.filter(|bound| self.connections >= *bound) {
            return Err(TooManyConnections::Altogether(bound));
        }
        let here = self.by_address.get(&address).copied().unwrap_or(0);
        if let Some(bound) = limits.connections_per_ip.filter(|bound| here >= *bound) {
            return Err(TooManyConnections::FromAddress(bound));
        }
        self.connections += 1;
        self.by_address.insert(address, here + 1);
        Ok(())
    }

    /// Removes an accepted connection from the counts.
    pub(super) fn release(&mut self, address: IpAddr) {
        self.connections -= 1;
        let here = self.by_address.get_mut(&address).expect("counted when it was accepted");
        *here -= 1;
        if *here == 0 {
            self.by_address.remove(&address);
        }
    }
}

/// How many requests a connection with `unanswered` unanswered ones may have read now.
///
/// Above `globalOutstandingLimit` a connection is read only if it has no unanswered request, one
/// request at a time (THR-01); at `request_throttle_max_requests` no connection is read (THR-06).
pub(super) fn share(limits: &ClientLimits, load: &Load, unanswered: u32) -> u32 {
    let under_way = load.requests;
    let fair = match (limits.outstanding + 1).saturating_sub(under_way) {
        0 => u64::from(unanswered == 0),
        left => left,
    };
    let throttle = limits.throttle_max_requests;
    let left = throttle.map_or(u64::MAX, |bound| bound.saturating_sub(under_way));
    u32::try_from(fair.min(left)).unwrap_or(u32::MAX)
}

/// Are connections kept waiting by `request_throttle_max_requests`, and does an option limit how
/// long (THR-06, THR-07)?
pub(super) fn is_wait_timed(limits: &ClientLimits, load: &Load) -> bool {
    let timed = limits.op_wait_max.is_some() || limits.drop_stale;
    timed && limits.throttle_max_requests.is_some_and(|bound| load.requests >= bound)
}

impl Error for TooManyConnections {}

impl fmt::Display for TooManyConnections {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TooManyConnections::Altogether(bound) => write!(
                f,
                "{bound} connections are all that maxCnxns={bound} allows; raise it, or 0 for no \
                 bound"
            ),
            TooManyConnections::FromAddress(bound) => write!(
                f,
                "{bound} connections from its address are all that maxClientCnxns={bound} allows; \
                 raise it, or 0 for \
                 no bound"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_160_connections_are_bounded_per_address_and_in_total() {
        let limits = ClientLimits {
            connections_per_ip: Some(2),
            connections: Some(3),
            ..ClientLimits::default()
        };
        let mut admission = Admission::default();
        let address = |last: u8| IpAddr::from([10, 0, 0, last]);
        let accept = |admission: &mut Admission, last| admission.accept(address(last), &limits);
        assert_eq!(accept(&mut admission, 1), Ok(()));
        assert_eq!(accept(&mut admission, 1), Ok(()));
        assert_eq!(accept(&mut admission, 1), Err(TooManyConnections::FromAddress(2)));
        assert_eq!(accept(&mut admission, 2), Ok(()));
        assert_eq!(accept(&mut admission, 3), Err(TooManyConnections::Altogether(3)));
        admission.release(address(1));
        assert_eq!(accept(&mut admission, 1), Ok(()));
        assert_eq!((admission.connections, admission.by_address.len()), (3, 2));
    }
}
