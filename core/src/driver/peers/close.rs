//! Why a connection with another server ends, or does not come about.
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
    /// The same server has dialled another link, and has proved the secret there.
    Replaced,
    /// Nothing came on it, and the same server has dialled another link.
    SilentLink,
    /// No greeting came within 3 s, or no proof after it.
    Silent,
    /// Too many others connected while it had not greeted.
    TooManyUngreeted,
    /// The other end went away where its proof of the secret was due.
    Unproven(ServerId),
    /// One end refuses the other.
    Refused(Refusal),
    /// The host has found nobody at the address, in the operating system's words.
    Unreachable(String),
    /// The server that was dialled has not answered the greeting in time.
    Unanswered,
    /// The server that was dialled has closed the connection instead of answering the greeting.
    ClosedUnanswered,
    /// What came is no frame of a server.
    Malformed(BadFrame),
    /// A message has begun and has not ended within this time, which is the limit of `syncLimit`.
    Unfinished(Duration),
    /// The other end does not take what it is sent: so many bytes wait.
    Overfull(usize),
    /// The other end has not taken a notification within this time.
    Untaken(Duration),
    /// Another connection for notifications of the same server has taken its place.
    Superseded,
    /// The network failed, in the operating system's words.
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

    /// Is this server the one that ends it, as its core wants?
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
