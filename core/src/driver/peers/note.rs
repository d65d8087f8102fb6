//! Facts about connections with other servers, for the operator's log and for tests.
//!
//! Owns the facts. Must not format them.

use core::net::SocketAddr;

use super::close::PeerCloseReason;
use crate::ids::{LinkId, ServerId};
use crate::peer::greeting::Channel;

/// A fact about connections between servers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PeerNote {
    /// A link is established.
    Up {
        /// Its id.
        link: LinkId,
        /// The other end.
        server: ServerId,
        /// Has this server dialled it?
        dialled: bool,
    },
    /// A link has ended.
    Down {
        /// Its id.
        link: LinkId,
        /// The other end.
        server: ServerId,
        /// Why.
        why: PeerCloseReason,
    },
    /// An attempt to dial a server has failed.
    DialFailed {
        /// The server.
        server: ServerId,
        /// On which of its ports.
        channel: Channel,
        /// Is it the first failure since the last message of the server?
        first: bool,
        /// Why.
        why: PeerCloseReason,
    },
    /// A connection from this address was closed because of the other end.
    Rejected {
        /// The address.
        from: SocketAddr,
        /// Why.
        why: PeerCloseReason,
    },
}

/// State of a connection with another server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerLine {
    /// Its id.
    pub link: LinkId,
    /// Its purpose.
    pub channel: Channel,
    /// The server at the other end, once it is known.
    pub peer: Option<ServerId>,
    /// Has this server dialled it?
    pub dialled: bool,
    /// Is the connection established?
    pub established: bool,
    /// Bytes of queued output.
    pub output_bytes: usize,
    /// Received bytes of an incomplete message.
    pub unread_bytes: usize,
}
