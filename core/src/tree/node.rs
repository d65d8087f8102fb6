//! One node of the tree in memory.
//!
//! Owns the fields, and the stat that clients see. Must not know other nodes: `tree` follows the
//! links.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::acl::AclId;
use crate::ids::{SessionId, Zxid};
use crate::txn::Lifetime;
use crate::wire::Stat;

/// Slot of a node in the slab; the root has slot zero.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub(crate) struct NodeId(pub(crate) u32);

impl NodeId {
    pub(crate) const ROOT: NodeId = NodeId(0);

    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// What is replicated of a node, without its links: also the unit of a snapshot.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) parent: NodeId,
    /// Last component of the path; empty for the root.
    pub(crate) name: Box<str>,
    /// `None` is distinct from empty data (DATA-13).
    pub(crate) data: Option<Bytes>,
    pub(crate) acl: AclId,
    pub(crate) czxid: Zxid,
    pub(crate) mzxid: Zxid,
    pub(crate) pzxid: Zxid,
    pub(crate) ctime: i64,
    pub(crate) mtime: i64,
    pub(crate) version: i32,
    /// Children ever created: the source of sequence numbers, and half of what clients see as
    /// cversion (STAT-05).
    pub(crate) creates: i32,
    pub(crate) aversion: i32,
    /// What [`Lifetime::owner`] makes of it; the session of an ephemeral node.
    pub(crate) owner: SessionId,
    /// Orders siblings that one transaction has created, oldest first. Not part of the record that
    /// older snapshots have.
    #[serde(skip)]
    pub(crate) txn_order: u32,
}

/// A node's place among its siblings: a doubly linked list in the order of creation, so that
/// the cost of creating and deleting does not depend on the number of children.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Links {
    pub(crate) children: u32,
    /// Nodes below this one, at any depth.
    pub(crate) descendants: u32,
    /// The oldest child.
    pub(crate) first_child: Link,
    /// The next older sibling; for the oldest child the youngest, so that a parent stores only one
    /// end.
    pub(crate) before: Link,
    /// The next younger sibling.
    pub(crate) after: Link,
}

/// A node or none. The root is no child, so its number encodes none, which saves half the memory of
/// an `Option`.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Link(u32);

impl Link {
    pub(crate) const NONE: Link = Link(0);

    pub(crate) fn to(child: NodeId) -> Link {
        assert_ne!(child, NodeId::ROOT, "the root is nobody's child");
        Link(child.0)
    }

    pub(crate) fn get(self) -> Option<NodeId> {
        (self != Link::NONE).then_some(NodeId(self.0))
    }
}

impl Node {
    pub(crate) fn lifetime(&self) -> Lifetime {
        Lifetime::of(self.owner)
    }

    pub(crate) fn is_ephemeral(&self) -> bool {
        self.lifetime() == Lifetime::Ephemeral
    }

    /// Its data as clients count it.
    pub(crate) fn length(&self) -> usize {
        self.data.as_ref().map_or(0, Bytes::len)
    }

    /// The statistics that clients see (STAT rows).
    pub(crate) fn stat(&self, children: u32) -> Stat {
        let children = i32::try_from(children).expect("fewer children than 2^31");
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            // STAT-07: only a session is shown.
            ephemeral_owner: if self.is_ephemeral() { self.owner } else { SessionId(0) },
            data_length: i32::try_from(self.length()).expect("a frame is shorter than 2 GiB"),
            num_children: children,
            pzxid: self.pzxid,
        }
    }
}
