//! An exact picture of the tree at one zxid, taken in slices while the tree goes on changing. `load` is the way back.
//!
//! Owns the walk and the content of snapshot chunks (postcard items; the file's format version covers them). Must not
//! know files.
//!
//! A cursor walks the slots that there were when the walk began. Whoever changes a slot ahead of the cursor for the
//! first time sets its old content aside; the walk then leaves that slot out and gives the old content instead. Links
//! are not part of the picture, so a parent with a million children is one small record like any other.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AclId, Node, NodeId, Tree};
use crate::ids::{ServerId, SessionId, Zxid};
use crate::wire::Acl;

/// What a snapshot holds besides nodes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct SnapshotHeader {
    /// The position in the history that this is the picture of.
    pub(crate) zxid: Zxid,
    /// Live sessions and the timeouts their createSession carried, ms.
    pub(crate) sessions: Vec<(SessionId, u32)>,
    /// The highest session id of each creating server (its top byte), so that none is dealt twice.
    pub(crate) last_session_ids: Vec<(u8, SessionId)>,
    /// The servers that their clients connected to last. An item of its own: older snapshots have none.
    #[serde(skip)]
    pub(crate) owners: Vec<(SessionId, ServerId)>,
    /// The sessions whose passwords are of the ensemble's secret. An item of its own: older snapshots have none.
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
    /// A node with a sibling that the same transaction has created before it. Older snapshots have a plain one there.
    NodeInTxn {
        id: NodeId,
        node: Node,
        txn_order: u32,
    },
    KeyedSessions(Vec<SessionId>),
}

/// A walk under way.
#[derive(Debug)]
pub(super) struct Walk {
    number: u32,
    cursor: u32,
    end: u32,
    aside: Vec<(NodeId, Node)>,
    /// What the first slice begins with.
    head: Vec<u8>,
}

impl Tree {
    /// Begins a walk. There is one at a time.
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

    /// Gives up the walk under way, if there is one.
    pub(crate) fn cancel_snapshot(&mut self) {
        self.walk = None;
    }

    /// Is a walk under way?
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

    /// To be called before a slot changes.
    pub(super) fn touch(&mut self, id: NodeId) {
        self.take_out_share(id);
        let Some(walk) = &mut self.walk else { return };
        let slot = &mut self.slots[id.index()];
        if (walk.cursor..walk.end).contains(&id.0) && slot.walked != walk.number {
            slot.walked = walk.number;
            if let Some(node) = &slot.node {
                walk.aside.push((id, node.clone()));
            }
        }
    }

    /// How many old nodes a running walk keeps.
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
