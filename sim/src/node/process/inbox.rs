//! What waits to be taken by the loop, and from which side it has come.
//!
//! Owns the order in which it lies there. Must not know what is done with it.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::store::DiskEvent;
use zabkeeper_core::{ConnId, LinkId};

use super::Heard;
use super::links::LinkEvent;
use crate::observe::ClientId;
use crate::seed::Dice;

/// A piece of it.
#[derive(Debug)]
pub(super) enum Delivered {
    Accepted(ConnId, ClientId),
    Bytes(ConnId, Bytes),
    Gone(ConnId),
    Disk(DiskEvent),
    Link(LinkId, LinkEvent),
    Notified(Heard),
}

/// Where something comes from: what comes from one side keeps its order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Side {
    Client(ConnId),
    Link(LinkId),
    Election,
    Disk,
}

impl Delivered {
    fn side(&self) -> Side {
        match self {
            Delivered::Accepted(conn, _) | Delivered::Bytes(conn, _) | Delivered::Gone(conn) => {
                Side::Client(*conn)
            }
            Delivered::Link(link, _) => Side::Link(*link),
            Delivered::Notified(_) => Side::Election,
            Delivered::Disk(_) => Side::Disk,
        }
    }

    fn is_bytes_of(&self, conn: ConnId) -> bool {
        match self {
            Delivered::Bytes(of, _) => *of == conn,
            Delivered::Link(of, LinkEvent::Bytes(_)) => of.0 == conn.0,
            Delivered::Link(..)
            | Delivered::Accepted(..)
            | Delivered::Gone(_)
            | Delivered::Disk(_)
            | Delivered::Notified(..) => false,
        }
    }
}

/// A reset has taken with it what has arrived and was not read.
pub(super) fn forget_bytes(inbox: &mut VecDeque<Delivered>, of: ConnId) {
    inbox.retain(|delivered| !delivered.is_bytes_of(of));
}

/// What has come from different sides while a process stood still is found in any order: one socket after the other is
/// emptied.
pub(super) fn disorder(inbox: &mut VecDeque<Delivered>, dice: &mut Dice) {
    let mut places = BTreeMap::new();
    for delivered in inbox.iter() {
        places.entry(delivered.side()).or_insert_with(|| dice.word());
    }
    inbox.make_contiguous().sort_by_key(|delivered| places[&delivered.side()]);
}
