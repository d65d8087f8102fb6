//! The timeouts of the client library, observed on the wire (CLIENT-05).
//!
//! Owns when each connection was last used. Must not rely on the library's own state.

use bytes::Bytes;
use zabkeeper_client::State;
use zabkeeper_core::Instant;
use zabkeeper_core::wire::ConnectResponse;

use super::Client;
use super::conns::lengthened;
use crate::check::checker::Check;
use crate::world::shared::Shared;

/// When a connection was last used.
#[derive(Clone, Copy)]
pub(super) struct Deadlines {
    /// The granted timeout, ns.
    timeout: u64,
    pub(super) sent: Instant,
    pub(super) received: Instant,
}

impl Deadlines {
    /// `answer` is the handshake response; `percent` the share of the timeout after which the
    /// library pings. After a refusal or an invalid response no deadline applies.
    pub(super) fn begin(answer: &Bytes, percent: u32, now: Instant) -> Deadlines {
        let granted = ConnectResponse::decode(answer.clone()).map_or(0, |answer| answer.timeout_ms);
        let granted = lengthened(granted, percent);
        let timeout = u64::try_from(granted).unwrap_or(0) * 1_000_000;
        Deadlines {
            timeout: if timeout > 0 { timeout } else { u64::MAX / 8 },
            sent: now,
            received: now,
        }
    }
}

impl Client {
    /// A connected session must set its timer before it would have to ping, or to disconnect from a
    /// silent server; clocks run up to a tenth slow. A session without a timer waits for ever.
    pub(super) fn check_deadlines(&self, next: Option<Instant>, shared: &mut Shared) {
        let next = next.unwrap_or(Instant(u64::MAX));
        if !self.state().is_some_and(State::is_connected) {
            return;
        }
        for Deadlines { timeout, sent, received } in
            self.conns.values().filter_map(|tap| tap.deadlines)
        {
            let ping_by = sent.0 + timeout / 2 + 1_000_000;
            let leave_by = received.0 + timeout / 5 * 4 + 1_000_000;
            let late = next.0 > ping_by.min(leave_by);
            let evidence = || {
                format!(
                    "client {}: sent at {sent}, received at {received}, a timeout of {} ms: and it \
                     waits until {next}",
                    self.id.0,
                    timeout / 1_000_000
                )
            };
            shared.check(Check::CLIENT_DEADLINES, if late { Err(evidence()) } else { Ok(()) });
        }
    }
}
