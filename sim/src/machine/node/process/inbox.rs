//! The queue of deliveries that the loop has not taken yet.
//!
//! Owns their order. Must not interpret them.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::ConnId;
use zabkeeper_core::driver::{PeerDial, SocketId};
use zabkeeper_core::store::DiskEvent;

use super::ReceivedNotification;
use super::sockets::conn_of;
use crate::engine::seed::Rng;
use crate::network::port::Port;
use crate::network::stream::Party;

/// One delivery.
#[derive(Debug)]
pub(super) enum Delivered {
    /// A client or another server has connected.
    Accepted(SocketId, Party, Port),
    /// This server's attempt to dial has ended: is the connection open?
    Dialled(PeerDial, bool),
    Bytes(SocketId, Bytes),
    Gone(SocketId),
    Disk(DiskEvent),
    Notified(ReceivedNotification),
}

/// The origin of deliveries: those of one origin keep their order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Socket(SocketId),
    Election,
    Disk,
}

impl Delivered {
    fn side(&self) -> Side {
        match self {
            Delivered::Accepted(id, ..) | Delivered::Bytes(id, _) | Delivered::Gone(id) => {
                Side::Socket(*id)
            }
            Delivered::Dialled(dial, _) => Side::Socket(SocketId::Server(dial.link)),
            Delivered::Notified(_) => Side::Election,
            Delivered::Disk(_) => Side::Disk,
        }
    }

    fn is_bytes_of(&self, conn: ConnId) -> bool {
        matches!(self, Delivered::Bytes(id, _) if conn_of(*id) == conn)
    }
}

/// Removes unread bytes of a connection, which a reset has discarded.
pub(super) fn forget_bytes(inbox: &mut VecDeque<Delivered>, of: ConnId) {
    inbox.retain(|delivered| !delivered.is_bytes_of(of));
}

/// Reorders deliveries of different origins that have arrived during a pause: a process empties one
/// socket after the other, in any order.
pub(super) fn disorder(inbox: &mut VecDeque<Delivered>, rng: &mut Rng) {
    let mut places = BTreeMap::new();
    for delivered in inbox.iter() {
        places.entry(delivered.side()).or_insert_with(|| rng.word());
    }
    inbox.make_contiguous().sort_by_key(|delivered| places[&delivered.side()]);
}
