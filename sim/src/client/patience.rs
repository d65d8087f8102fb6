//! How long the client library waits, seen from outside (CLIENT-05).
//!
//! Owns when each connection was used last. Must not believe what the library says of itself.

use bytes::Bytes;
use zabkeeper_client::State;
use zabkeeper_core::Instant;
use zabkeeper_core::wire::ConnectResponse;

use super::Client;
use super::conns::lengthened;
use crate::judge::Check;
use crate::shared::Shared;

/// How long a connection has been quiet.
#[derive(Clone, Copy)]
pub(super) struct Patience {
    /// The timeout that was granted, ns.
    timeout: u64,
    pub(super) sent: Instant,
    pub(super) heard: Instant,
}

impl Patience {
    /// `answer`: to the handshake, to whom it pings after this part of the timeout. Where that is a refusal, or nonsense, nothing is to be waited for.
    pub(super) fn begin(answer: &Bytes, percent: u32, now: Instant) -> Patience {
        let granted = ConnectResponse::decode(answer.clone()).map_or(0, |answer| answer.timeout_ms);
        let granted = lengthened(granted, percent);
        let timeout = u64::try_from(granted).unwrap_or(0) * 1_000_000;
        Patience {
            timeout: if timeout > 0 { timeout } else { u64::MAX / 8 },
            sent: now,
            heard: now,
        }
    }
}

impl Client {
    /// A session that serves wants to be asked again before it would have to ping, or to give up the server: clocks run up to
    /// a tenth slow. One that never wants to be asked again waits for ever.
    pub(super) fn check_patience(&self, next: Option<Instant>, shared: &mut Shared) {
        let next = next.unwrap_or(Instant(u64::MAX));
        if self.state() != Some(State::Connected) {
            return;
        }
        for Patience { timeout, sent, heard } in self.conns.values().filter_map(|tap| tap.patience)
        {
            let ping_by = sent.0 + timeout / 2 + 1_000_000;
            let leave_by = heard.0 + timeout / 5 * 4 + 1_000_000;
            let late = next.0 > ping_by.min(leave_by);
            let evidence = || {
                format!(
                    "client {}: sent at {sent}, heard at {heard}, a timeout of {} ms: and it waits until {next}",
                    self.id.0,
                    timeout / 1_000_000
                )
            };
            shared.hold(Check::PATIENCE, if late { Err(evidence()) } else { Ok(()) });
        }
    }
}
