//! An exact copy of the tree at one zxid, taken in slices while the tree changes. `load` reads it
//! back.
//!
//! Owns the walk and the content of snapshot chunks (postcard items; the file's format version
//! covers them). Must not know files.
//!
//! A cursor walks the slots that existed when the walk began. The first change to a slot ahead of
//! the cursor sets its old content aside; the walk skips that slot and writes the old content
//! instead. Links are not part of the copy, so a parent with a million children is one small
//! record.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AclId, Node, NodeId, Tree};
use crate::ids::{ServerId, SessionId, Zxid};
use crate::wire::Acl;

/// What a snapshot holds besides nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotHeader {
    /// The zxid of the tree that is copied.
    pub(crate) zxid: Zxid,
    /// Live sessions and the timeouts their createSession carried, ms.
    pub(crate) sessions: Vec<(SessionId, u32)>,
    /// The highest session id of each creating server (its top byte), so that no id is assigned
    /// twice.
    pub(crate) last_session_ids: Vec<(u8, SessionId)>,
    /// The servers that the clients connected to last. A separate item, which older snapshots lack.
    #[serde(skip)]
    pub(crate) owners: Vec<(SessionId, ServerId)>,
    /// The sessions whose passwords come from the ensemble's secret. A separate item, which older
    /// snapshots lack.
    #[serde(skip)]
    pub(crate) keyed: Vec<SessionId>,
}

/// Stored by position: append only.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) enum Item {
    Header {
        header: SnapshotHeader,
        slots: u32,
        nodes: u64,
    },
    Acl {
        id: AclId,
        list: Vec<Acl>,
    },
    Node {
        id: NodeId,
        node: Node,
    },
    Owners(Vec<(SessionId, ServerId)>),
    /// A node with a sibling that the same transaction created before it. Older snapshots have a
    /// `Node` item instead.
    NodeInTxn {
        id: NodeId,
        node: Node,
        txn_order: u32,
    },
    KeyedSessions(Vec<SessionId>),
}

/// A walk in progress.
#[derive(Debug)]
pub(super) struct Walk {
    number: u32,
    cursor: u32,
    end: u32,
    aside: Vec<(NodeId, Node)>,
    /// Encoded items that begin the first slice.
    head: Vec<u8>,
}

impl Tree {
    /// Begins a walk. Only one may be in progress.
    pub(crate) fn begin_snapshot(&mut self, header: SnapshotHeader, number: u32) {
        assert!(self.walk.is_none(), "one snapshot at a time");
        assert_ne!(number, 0, "zero is the number of no walk");
        let end = u32::try_from(self.slots.len()).expect("places are 32-bit");
        let owners = Item::Owners(header.owners.clone());
        let keyed = Item::KeyedSessions(header.keyed.clone());
        let nodes = self.counts.nodes as u64;
        let mut head = encode(Vec::new(), &Item::Header { header, slots: end, nodes });
        head = encode(encode(head, &owners), &keyed);
        for (id, list) in self.acls.in_use() {
            head = encode(head, &Item::Acl { id, list: list.to_vec() });
        }
        self.walk = Some(Walk { number, cursor: 0, end, aside: Vec::new(), head });
    }

    /// Cancels the walk, if one is in progress.
    pub(crate) fn cancel_snapshot(&mut self) {
        self.walk = None;
    }

    /// Is a walk in progress?
    pub(crate) fn is_walked(&self) -> bool {
        self.walk.is_some()
    }

    /// The next slice of about `bytes`, and whether it is the last.
    pub(crate) fn snapshot_slice(&mut self, bytes: usize) -> (Bytes, bool) {
        let walk = self.walk.as_mut().expect("a snapshot has begun");
        let mut slice = std::mem::take(&mut walk.head);
        while slice.len() < bytes {
            if let Some((id, node)) = walk.aside.pop() {
                slice = encode(slice, &item(id, node));
            } else if walk.cursor < walk.end {
                let id = NodeId(walk.cursor);
                walk.cursor += 1;
                let slot = &self.slots[id.index()];
                if slot.walked != walk.number
                    && let Some(node) = &slot.node
                {
                    slice = encode(slice, &item(id, node.clone()));
                }
            } else {
                self.walk = None;
                return (Bytes::from(slice), true);
            }
        }
        (Bytes::from(slice), false)
    }

    /// Keeps the old content of a slot for the walk. To be called before every change of a slot.
    pub(super) fn touch(&mut self, id: NodeId) {
        self.remove_share(id);
        let Some(walk) = &mut self.walk else { return };
        let slot = &mut self.slots[id.index()];
        if (walk.cursor..walk.end).contains(&id.0) && slot.walked != walk.number {
            slot.walked = walk.number;
            if let Some(node) = &slot.node {
                walk.aside.push((id, node.clone()));
            }
        }
    }

    /// Number of old nodes that the walk keeps.
    pub(crate) fn set_aside(&self) -> usize {
        self.walk.as_ref().map_or(0, |walk| walk.aside.len())
    }
}

fn item(id: NodeId, node: Node) -> Item {
    match node.txn_order {
        0 => Item::Node { id, node },
        txn_order => Item::NodeInTxn { id, node, txn_order },
    }
}

fn encode(buffer: Vec<u8>, item: &Item) -> Vec<u8> {
    postcard::to_extend(item, buffer).expect("plain data encodes")
}
