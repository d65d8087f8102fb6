//! What the driver has to tell of connections with other servers: for the operator's log and for
//! whoever checks it.
//!
//! Owns the facts. Must not word them.

use core::net::SocketAddr;

use super::close::PeerCloseReason;
use crate::ids::{LinkId, ServerId};
use crate::peer::greeting::Channel;

/// Something about connections between servers that is worth telling.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerNote {
    /// A link is established.
    Up {
        /// Which.
        link: LinkId,
        /// The other end.
        server: ServerId,
        /// Has this server dialled it?
        dialled: bool,
    },
    /// A link has ended.
    Down {
        /// Which.
        link: LinkId,
        /// The other end.
        server: ServerId,
        /// Why.
        why: PeerCloseReason,
    },
    /// An attempt to dial a server has failed.
    DialFailed {
        /// Whom.
        server: ServerId,
        /// On which of its ports.
        channel: Channel,
        /// Is it the first failure since the server was heard of last?
        first: bool,
        /// Why.
        why: PeerCloseReason,
    },
    /// A connection from this address was closed, for a fault of the other end.
    Rejected {
        /// Whose.
        from: SocketAddr,
        /// Why.
        why: PeerCloseReason,
    },
}

/// What is known of a connection with another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLine {
    /// Its id.
    pub link: LinkId,
    /// What it is for.
    pub channel: Channel,
    /// The server at the other end, once that is known.
    pub peer: Option<ServerId>,
    /// Has this server dialled it?
    pub dialled: bool,
    /// Do both ends know each other?
    pub established: bool,
    /// Bytes that wait to leave.
    pub output_bytes: usize,
    /// Bytes of a message that is not whole.
    pub unread_bytes: usize,
}
