//! Why a connection with another server ends, or is not established.
//!
//! Owns the reasons and their texts for the operator's log. Must not close anything.

use std::fmt;
use std::time::Duration;

use super::{GREETING_TIME, UNGREETED_MAX};
use crate::ids::ServerId;
use crate::peer::LinkCloseReason;
use crate::peer::frame::BadFrame;
use crate::peer::greeting::Refusal;

/// Why a connection between servers has ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerCloseReason {
    /// The other end closed it.
    ByPeer,
    /// The other end closed it in the middle of a message.
    WithinFrame,
    /// The core of this server closed it.
    ByServer(LinkCloseReason),
    /// The same server has dialled another link, with a proof of the secret.
    Replaced,
    /// No message came on it for a while, and the same server has dialled another link.
    SilentLink,
    /// No greeting came within 3 s, or no proof after it.
    Silent,
    /// Too many further connections were accepted before its greeting was complete.
    TooManyUngreeted,
    /// The other end closed the connection instead of proving the secret.
    Unproven(ServerId),
    /// One end refuses the other.
    Refused(Refusal),
    /// The server could not be connected to; the operating system's error text.
    Unreachable(String),
    /// The server that was dialled has not answered the greeting in time.
    Unanswered,
    /// The server that was dialled has closed the connection instead of answering the greeting.
    ClosedUnanswered,
    /// The bytes are no valid frame of a server.
    Malformed(BadFrame),
    /// A message has begun, and was not complete within this time, which is `syncLimit`.
    Unfinished(Duration),
    /// The other end does not take its messages: more than this many bytes are queued.
    Overfull(usize),
    /// The other end has not taken a notification within this time.
    Untaken(Duration),
    /// The same server has opened another connection for notifications.
    Superseded,
    /// The connection failed; the operating system's error text.
    Broken(String),
}

impl PeerCloseReason {
    /// A short label for the operator's log.
    pub fn kind(&self) -> &'static str {
        match self {
            PeerCloseReason::Refused(refusal) => refusal.kind(),
            PeerCloseReason::Silent => "silent",
            PeerCloseReason::TooManyUngreeted => "crowded",
            PeerCloseReason::Unproven(_) => "unproven",
            PeerCloseReason::Malformed(_) => "malformed",
            PeerCloseReason::Unfinished(_) => "unfinished",
            PeerCloseReason::ByPeer
            | PeerCloseReason::WithinFrame
            | PeerCloseReason::ByServer(_)
            | PeerCloseReason::Replaced
            | PeerCloseReason::SilentLink
            | PeerCloseReason::Unreachable(_)
            | PeerCloseReason::Unanswered
            | PeerCloseReason::ClosedUnanswered
            | PeerCloseReason::Overfull(_)
            | PeerCloseReason::Untaken(_)
            | PeerCloseReason::Superseded
            | PeerCloseReason::Broken(_) => "closed",
        }
    }

    /// Does this server end the connection because of its core or of a newer link?
    pub(super) fn is_by_server(&self) -> bool {
        use PeerCloseReason::{ByServer, Replaced, SilentLink};
        matches!(self, ByServer(_) | Replaced | SilentLink)
    }
}

impl fmt::Display for PeerCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerCloseReason::ByPeer => write!(f, "the other end closed it"),
            PeerCloseReason::WithinFrame => {
                write!(f, "the other end went away in the middle of a message")
            }
            PeerCloseReason::ByServer(why) => write!(f, "this server closed it: {why}"),
            PeerCloseReason::Replaced => write!(f, "the server has dialled anew"),
            PeerCloseReason::SilentLink => write!(f, "the other end is silent"),
            PeerCloseReason::Silent => {
                write!(f, "no greeting within {} s", GREETING_TIME.as_secs())
            }
            PeerCloseReason::TooManyUngreeted => {
                write!(f, "{UNGREETED_MAX} others came and it had not greeted")
            }
            PeerCloseReason::Unproven(id) => write!(
                f,
                "server {id} closed it instead of proving that it knows the secret: compare the \
                 files that quorum.secretFile names on both servers"
            ),
            PeerCloseReason::Refused(refusal) => write!(f, "{refusal}"),
            PeerCloseReason::Unreachable(error) | PeerCloseReason::Broken(error) => {
                write!(f, "{error}")
            }
            PeerCloseReason::Unanswered => write!(f, "it does not answer the greeting"),
            PeerCloseReason::ClosedUnanswered => {
                write!(f, "it closed the connection instead of answering the greeting")
            }
            PeerCloseReason::Malformed(bad) => write!(f, "{bad}"),
            PeerCloseReason::Unfinished(limit) => {
                write!(f, "a message from it does not end within {} ms", limit.as_millis())
            }
            PeerCloseReason::Overfull(bytes) => {
                write!(f, "the other end has not taken {} MiB", bytes >> 20)
            }
            PeerCloseReason::Untaken(limit) => {
                let ms = limit.as_millis();
                write!(f, "the other end has not taken a notification within {ms} ms")
            }
            PeerCloseReason::Superseded => write!(f, "the same server has connected again"),
        }
    }
}
