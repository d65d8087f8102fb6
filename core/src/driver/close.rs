//! Why the connection of a client ends, with texts for the operator.
//!
//! Owns the reasons and their texts. Must not close anything.

use std::fmt;
use std::time::Duration;

use crate::error::Malformed;

/// Why a connection has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ConnCloseReason {
    /// The client closed it.
    ByClient,
    /// The client closed it in the middle of a frame.
    WithinFrame,
    /// The server closed it.
    ByServer,
    /// Neither handshake nor four-letter command in this time (WIRE-17).
    Sessionless(Duration),
    /// The throttle admits no further handshake for now (THR-05).
    Throttled,
    /// A request has waited longer than the timeout of its session (THR-06).
    Stale {
        /// How long it has waited.
        waited: Duration,
        /// Timeout of its session.
        timeout: Duration,
    },
    /// A request exceeds the bound on outstanding large requests (THR-04).
    TooLarge {
        /// Bytes of the request.
        length: u32,
        /// Bytes of large requests that are not answered yet.
        under_way: u64,
        /// Bytes of large requests that may be outstanding together.
        bound: u64,
    },
    /// The bytes are no valid frame.
    Malformed(Malformed),
    /// A frame has begun, and was not complete within this time, which is the timeout of its
    /// session.
    Unfinished(Duration),
    /// The client does not take the events of its watches.
    Events {
        /// Bytes of queued events.
        bytes: u64,
    },
    /// The client does not take the answers to its requests.
    Answers {
        /// Bytes of queued output.
        bytes: usize,
    },
    /// The connection failed; the operating system's error text.
    Broken(String),
}

impl ConnCloseReason {
    /// Has the client ended the connection, or the network?
    pub(super) fn is_drop(&self) -> bool {
        match self {
            ConnCloseReason::ByClient
            | ConnCloseReason::WithinFrame
            | ConnCloseReason::Broken(_) => true,
            ConnCloseReason::ByServer
            | ConnCloseReason::Sessionless(_)
            | ConnCloseReason::Throttled
            | ConnCloseReason::Stale { .. }
            | ConnCloseReason::TooLarge { .. }
            | ConnCloseReason::Malformed(_)
            | ConnCloseReason::Unfinished(_)
            | ConnCloseReason::Events { .. }
            | ConnCloseReason::Answers { .. } => false,
        }
    }

    /// A short name for the log, if the client caused the end and the operator should know.
    pub fn fault(&self) -> Option<&'static str> {
        match self {
            ConnCloseReason::Sessionless(_) => Some("silent"),
            ConnCloseReason::Throttled => Some("throttled"),
            ConnCloseReason::Stale { .. } => Some("stale"),
            ConnCloseReason::TooLarge { .. } => Some("too large"),
            ConnCloseReason::Malformed(_) => Some("malformed"),
            ConnCloseReason::WithinFrame => Some("cut"),
            ConnCloseReason::Unfinished(_) => Some("unfinished"),
            ConnCloseReason::Events { .. } | ConnCloseReason::Answers { .. } => Some("unread"),
            ConnCloseReason::ByClient | ConnCloseReason::ByServer | ConnCloseReason::Broken(_) => {
                None
            }
        }
    }
}

impl fmt::Display for ConnCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ConnCloseReason::ByClient => write!(f, "closed by the client"),
            ConnCloseReason::WithinFrame => {
                write!(f, "the client ended it in the middle of a frame")
            }
            ConnCloseReason::ByServer => write!(f, "closed by the server"),
            ConnCloseReason::Sessionless(time) => {
                let ms = time.as_millis();
                write!(f, "no handshake within {ms} ms (nio.sessionlessCnxnTimeout)")
            }
            ConnCloseReason::Throttled => write!(
                f,
                "more clients connect at once than connection_throttle_tokens, _fill_time and \
                 _fill_count \
                 let in; raise them, or set tokens to 0"
            ),
            ConnCloseReason::Stale { waited, timeout } => write!(
                f,
                "a request had waited {} ms for its turn, longer than its session's timeout of {} \
                 ms \
                 (request_stale_latency_check); raise request_throttle_max_requests",
                waited.as_millis(),
                timeout.as_millis()
            ),
            ConnCloseReason::TooLarge { length, under_way, bound } => write!(
                f,
                "a request of {length} bytes is large (largeRequestThreshold), and {under_way} \
                 bytes of \
                 large ones are under way already; raise largeRequestMaxBytes={bound}"
            ),
            ConnCloseReason::Malformed(malformed @ Malformed::FrameLength { length, limit }) => {
                if let Some(protocol) = protocol_of(*length) {
                    return write!(f, "it speaks {protocol}, and this port ZooKeeper's protocol");
                }
                write!(f, "{malformed}")?;
                if u32::try_from(*length).is_ok_and(|length| length > *limit) {
                    write!(f, "; if it is no mistake, raise it here and at the clients")?;
                }
                Ok(())
            }
            ConnCloseReason::Malformed(malformed) => write!(f, "{malformed}"),
            ConnCloseReason::Unfinished(limit) => {
                let ms = limit.as_millis();
                write!(f, "a frame has not ended within {ms} ms, the timeout of its session")
            }
            ConnCloseReason::Events { bytes } => write!(
                f,
                "{bytes} bytes of events wait for its client, which does not take them; when it \
                 comes back, it \
                 hears of what has changed"
            ),
            ConnCloseReason::Answers { bytes } => write!(
                f,
                "{bytes} bytes of answers wait for its client, which does not take them; let it \
                 ask for less at once"
            ),
            ConnCloseReason::Broken(error) => write!(f, "{error}"),
        }
    }
}

/// The protocol whose first four bytes were read as a frame length, if people and probes often use
/// it on this port.
fn protocol_of(length: i32) -> Option<&'static str> {
    match &length.to_be_bytes() {
        b"GET " | b"HEAD" | b"POST" | b"PUT " | b"DELE" | b"OPTI" | b"CONN" | b"TRAC" | b"PATC"
        | b"PRI " => Some("HTTP"),
        // A record of a TLS handshake: its type, and the major version.
        [0x16, 3, ..] => Some("TLS, which comes with a later version"),
        b"SSH-" => Some("SSH"),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(first: [u8; 4], expected: &str) {
        let length = i32::from_be_bytes(first);
        let reason =
            ConnCloseReason::Malformed(Malformed::FrameLength { length, limit: 1_048_575 });
        assert_eq!(reason.to_string(), expected);
    }

    #[test]
    fn bytes_of_another_protocol_are_reported_by_its_name() {
        check(*b"GET ", "it speaks HTTP, and this port ZooKeeper's protocol");
        check(*b"SSH-", "it speaks SSH, and this port ZooKeeper's protocol");
        let tls =
            "it speaks TLS, which comes with a later version, and this port ZooKeeper's protocol";
        check([0x16, 3, 1, 2], tls);
        check(
            *b"get ",
            "frame length 1734702112 is not within 0..=1048575 (jute.maxbuffer); if it is no \
             mistake, raise \
             it here and at the clients",
        );
        check([0xff; 4], "frame length -1 is not within 0..=1048575 (jute.maxbuffer)");
    }
}
