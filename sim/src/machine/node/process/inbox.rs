//! What waits to be taken by the loop, and from which side it has come.
//!
//! Owns the order in which it lies there. Must not know what is done with it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::driver::SocketId;
use zabkeeper_core::store::DiskEvent;
use zabkeeper_core::{ConnId, LinkId};

use super::Heard;
use super::sockets::conn_of;
use crate::engine::seed::Rng;
use crate::network::stream::Party;

/// A piece of it.
#[derive(Debug)]
pub(super) enum Delivered {
    /// Somebody has connected.
    Accepted(SocketId, Party),
    /// This server's own attempt to dial has ended: does the connection stand?
    Dialled(LinkId, bool),
    Bytes(SocketId, Bytes),
    Gone(SocketId),
    Disk(DiskEvent),
    Notified(Heard),
}

/// Where something comes from: what comes from one side keeps its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Socket(SocketId),
    Election,
    Disk,
}

impl Delivered {
    fn side(&self) -> Side {
        match self {
            Delivered::Accepted(id, _) | Delivered::Bytes(id, _) | Delivered::Gone(id) => {
                Side::Socket(*id)
            }
            Delivered::Dialled(link, _) => Side::Socket(SocketId::Server(*link)),
            Delivered::Notified(_) => Side::Election,
            Delivered::Disk(_) => Side::Disk,
        }
    }

    fn is_bytes_of(&self, conn: ConnId) -> bool {
        matches!(self, Delivered::Bytes(id, _) if conn_of(*id) == conn)
    }
}

/// A reset has taken with it what has arrived and was not read.
pub(super) fn forget_bytes(inbox: &mut VecDeque<Delivered>, of: ConnId) {
    inbox.retain(|delivered| !delivered.is_bytes_of(of));
}

/// What has come from different sides while a process stood still is found in any order: one socket
/// after the other is emptied.
pub(super) fn disorder(inbox: &mut VecDeque<Delivered>, rng: &mut Rng) {
    let mut places = BTreeMap::new();
    for delivered in inbox.iter() {
        places.entry(delivered.side()).or_insert_with(|| rng.word());
    }
    inbox.make_contiguous().sort_by_key(|delivered| places[&delivered.side()]);
}
