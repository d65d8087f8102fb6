//! The data tree: nodes, their statistics, ephemerals, access control lists (Java `DataTree`, `DataNode`).
//!
//! Owns every node. Changes are strict: they come from decided transactions and assert what the decision has checked.
//! Must not know sessions' timeouts, watches or connections, and takes no `Cx`: it cannot act.
//!
//! Nodes lie in a slab and are found by one table from (parent, name) to place, so a name is stored once and a path
//! never. A snapshot walks the slab (`snapshot`); whoever changes a node calls `touch` first.

mod acl;
mod node;
mod path;
mod snapshot;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{BuildHasher, Hasher};

use bytes::Bytes;
use hashbrown::HashTable;

pub(crate) use acl::{AclId, AclTable, allows, fixup};
pub(crate) use node::{Node, NodeId};
pub(crate) use path::{is_reserved, is_valid, split};
pub(crate) use snapshot::{SnapshotHeader, load};

use crate::digest::{self, NodeView};
use crate::ids::{SessionId, WallMs, Zxid};
use crate::rng::KeyedHash;
use crate::wire::{Acl, Perms, Stat};
use node::Links;
use snapshot::Walk;

/// All nodes.
#[derive(Debug)]
pub(crate) struct Tree {
    slots: Vec<Slot>,
    free: Vec<NodeId>,
    /// From (parent, name) to place; the root is not in it.
    names: HashTable<NodeId>,
    hash: KeyedHash,
    acls: AclTable,
    ephemerals: BTreeMap<SessionId, BTreeSet<NodeId>>,
    counts: Counts,
    walk: Option<Walk>,
}

#[derive(Debug)]
struct Slot {
    node: Option<Node>,
    links: Links,
    /// The walk that need not visit this slot: it was set aside, or empty when the walk began.
    walked: u32,
}

/// Sums over all nodes, kept up to date.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) nodes: usize,
    pub(crate) ephemerals: usize,
    /// Bytes of paths and data.
    pub(crate) bytes: u64,
}

/// A node to create, decided.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: &'a [Acl],
    /// Zero for persistent nodes.
    pub(crate) owner: SessionId,
    pub(crate) parent_creates: i32,
}

impl Tree {
    /// The tree of a new server (DATA-25).
    pub(crate) fn new(hash: KeyedHash) -> Tree {
        let mut tree = Tree::bare(hash);
        tree.place(blank(NodeId::ROOT, "", AclId::NONE));
        let zookeeper = tree.place(blank(NodeId::ROOT, "zookeeper", AclId::NONE));
        tree.place(blank(zookeeper, "quota", AclId::NONE));
        let readable = [Acl { perms: Perms::READ, scheme: "world".into(), id: "anyone".into() }];
        let acl = tree.acls.intern(&readable);
        tree.place(Node { aversion: -1, ..blank(zookeeper, "config", acl) });
        tree
    }

    fn bare(hash: KeyedHash) -> Tree {
        Tree {
            slots: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            hash,
            acls: AclTable::default(),
            ephemerals: BTreeMap::new(),
            counts: Counts::default(),
            walk: None,
        }
    }

    /// The node at `path`. Nothing is validated: a malformed path simply does not exist (DATA-04). The root answers to
    /// the empty path, too, as in ZooKeeper.
    pub(crate) fn find(&self, path: &str) -> Option<NodeId> {
        let rest = match path {
            "" | "/" => return Some(NodeId::ROOT),
            path => path.strip_prefix('/')?,
        };
        rest.split('/').try_fold(NodeId::ROOT, |parent, name| self.child(parent, name))
    }

    pub(crate) fn node(&self, id: NodeId) -> &Node {
        self.slots[id.index()].node.as_ref().expect("links lead to nodes")
    }

    pub(crate) fn children_count(&self, id: NodeId) -> u32 {
        self.slots[id.index()].links.children
    }

    pub(crate) fn stat(&self, id: NodeId) -> Stat {
        self.node(id).stat(self.children_count(id))
    }

    /// Names of the children, in no promised order (edge 70).
    pub(crate) fn children(&self, id: NodeId) -> Vec<String> {
        let mut names = Vec::with_capacity(self.children_count(id) as usize);
        let mut next = self.slots[id.index()].links.first_child;
        while let Some(child) = next {
            names.push(self.node(child).name.to_string());
            next = self.slots[child.index()].links.after;
        }
        names
    }

    pub(crate) fn acls(&self) -> &AclTable {
        &self.acls
    }

    pub(crate) fn may(&self, id: NodeId, wanted: Perms) -> bool {
        self.acls.allows(self.node(id).acl, wanted)
    }

    /// Paths of the ephemeral nodes of a session, in the order of their slots.
    pub(crate) fn ephemerals(&self, session: SessionId) -> impl Iterator<Item = String> {
        self.ephemerals.get(&session).into_iter().flatten().map(|id| self.path_of(*id))
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Creates a node (the transaction's header gives zxid and time) and returns its statistics.
    pub(crate) fn create(&mut self, new: NewNode<'_>, zxid: Zxid, time: WallMs) -> Stat {
        let (parent, name) = split(new.path).expect("a created path has a parent");
        let parent = self.find(parent).expect("the parent of a created node exists");
        assert!(self.child(parent, name).is_none(), "{} exists", new.path);
        self.touch(parent);
        let above = self.node_mut(parent);
        assert_eq!(above.owner, SessionId(0), "ephemerals have no children");
        // The counter never goes back, even where the sequence has run over (DATA-15).
        if new.parent_creates > above.creates {
            above.creates = new.parent_creates;
            above.pzxid = zxid;
        }
        let acl = self.acls.intern(new.acl);
        // The only copy of the payload: a slice of the frame or of the log would keep all of that alive.
        let data = new.data.map(Bytes::copy_from_slice);
        let id = self.place(Node {
            data,
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time.0,
            mtime: time.0,
            owner: new.owner,
            ..blank(parent, name, acl)
        });
        self.stat(id)
    }

    /// Deletes a node without children. Could it be read, so that watchers may hear of it?
    pub(crate) fn delete(&mut self, path: &str, zxid: Zxid) -> bool {
        let id = self.find(path).expect("a deleted node exists");
        assert_eq!(self.children_count(id), 0, "{path} has children");
        assert_ne!(id, NodeId::ROOT, "the root is never deleted");
        let parent = self.node(id).parent;
        self.touch(id);
        self.touch(parent);
        self.node_mut(parent).pzxid = zxid;
        let readable = self.may(id, Perms::READ);
        self.displace(id);
        readable
    }

    /// Replaces a node's data and returns its new statistics.
    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        zxid: Zxid,
        time: WallMs,
    ) -> Stat {
        let id = self.find(path).expect("a changed node exists");
        self.touch(id);
        let node = self.node_mut(id);
        let before = node.data.as_ref().map_or(0, Bytes::len);
        node.data = data.map(Bytes::copy_from_slice);
        node.version = version;
        node.mzxid = zxid;
        node.mtime = time.0;
        let after = data.map_or(0, <[u8]>::len);
        self.counts.bytes = self.counts.bytes - before as u64 + after as u64;
        self.stat(id)
    }

    /// Sum over all nodes; see [`digest`].
    pub(crate) fn digest(&self) -> u64 {
        let mut sum = 0_u64;
        for (index, slot) in self.slots.iter().enumerate() {
            let Some(node) = &slot.node else { continue };
            let id = NodeId(u32::try_from(index).expect("places are 32-bit"));
            let path = self.path_of(id);
            sum = sum.wrapping_add(digest::node(&NodeView {
                path: &path,
                data: node.data.as_deref(),
                acl: self.acls.list(node.acl),
                czxid: node.czxid,
                mzxid: node.mzxid,
                pzxid: node.pzxid,
                ctime: node.ctime,
                mtime: node.mtime,
                version: node.version,
                creates: node.creates,
                aversion: node.aversion,
                owner: node.owner,
                children: slot.links.children,
            }));
        }
        sum
    }

    fn child(&self, parent: NodeId, name: &str) -> Option<NodeId> {
        let hash = hash_of(&self.hash, parent, name);
        self.names
            .find(hash, |id| {
                let node = self.node(*id);
                node.parent == parent && *node.name == *name
            })
            .copied()
    }

    fn node_mut(&mut self, id: NodeId) -> &mut Node {
        self.slots[id.index()].node.as_mut().expect("links lead to nodes")
    }

    fn path_of(&self, id: NodeId) -> String {
        if id == NodeId::ROOT {
            return "/".into();
        }
        let mut names = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT {
            let node = self.node(at);
            names.push(&*node.name);
            at = node.parent;
        }
        names.iter().rev().fold(String::new(), |path, name| path + "/" + name)
    }

    fn path_length(&self, id: NodeId) -> u64 {
        let mut length = 0;
        let mut at = id;
        while at != NodeId::ROOT {
            let node = self.node(at);
            length += 1 + node.name.len() as u64;
            at = node.parent;
        }
        length.max(1)
    }

    /// Puts a node into a slot and links it under its parent.
    fn place(&mut self, node: Node) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = NodeId(u32::try_from(self.slots.len()).expect("places are 32-bit"));
            self.slots.push(Slot::empty());
            id
        });
        self.touch(id);
        assert!(self.slots[id.index()].node.replace(node).is_none(), "a free slot is empty");
        self.link(id);
        id
    }

    /// Links a node that is in its slot under its parent, and counts it.
    fn link(&mut self, id: NodeId) {
        let node = self.node(id);
        let (parent, owner) = (node.parent, node.owner);
        let data = node.data.as_ref().map_or(0, Bytes::len) as u64;
        if id != NodeId::ROOT {
            let hash = hash_of(&self.hash, parent, &node.name);
            let (slots, keyed) = (&self.slots, &self.hash);
            self.names.insert_unique(hash, id, |id| {
                let node = slots[id.index()].node.as_ref().expect("only nodes are named");
                hash_of(keyed, node.parent, &node.name)
            });
            let above = &mut self.slots[parent.index()].links;
            above.children += 1;
            let after = above.first_child.replace(id);
            self.slots[id.index()].links.after = after;
            if let Some(after) = after {
                self.slots[after.index()].links.before = Some(id);
            }
        }
        if owner != SessionId(0) {
            self.ephemerals.entry(owner).or_default().insert(id);
            self.counts.ephemerals += 1;
        }
        self.counts.nodes += 1;
        self.counts.bytes += data + self.path_length(id);
    }

    /// The reverse of [`Tree::place`]. The caller has touched the slot.
    fn displace(&mut self, id: NodeId) {
        self.counts.bytes -= self.path_length(id);
        let node = self.slots[id.index()].node.as_ref().expect("a displaced node is there");
        let hash = hash_of(&self.hash, node.parent, &node.name);
        let entry = self.names.find_entry(hash, |other| *other == id);
        entry.expect("every node but the root is named").remove();
        let slot = &mut self.slots[id.index()];
        let node = slot.node.take().expect("a displaced node is there");
        let Links { before, after, .. } = std::mem::take(&mut slot.links);
        match before {
            Some(before) => self.slots[before.index()].links.after = after,
            None => self.slots[node.parent.index()].links.first_child = after,
        }
        if let Some(after) = after {
            self.slots[after.index()].links.before = before;
        }
        self.slots[node.parent.index()].links.children -= 1;
        if node.owner != SessionId(0) {
            let of_session = self.ephemerals.get_mut(&node.owner).expect("ephemerals are indexed");
            of_session.remove(&id);
            if of_session.is_empty() {
                self.ephemerals.remove(&node.owner);
            }
            self.counts.ephemerals -= 1;
        }
        self.counts.nodes -= 1;
        self.counts.bytes -= node.data.as_ref().map_or(0, Bytes::len) as u64;
        self.free.push(id);
        self.acls.release(node.acl);
    }
}

impl Slot {
    fn empty() -> Slot {
        Slot { node: None, links: Links::default(), walked: 0 }
    }
}

fn hash_of(keyed: &KeyedHash, parent: NodeId, name: &str) -> u64 {
    let mut hasher = keyed.build_hasher();
    hasher.write_u32(parent.0);
    hasher.write(name.as_bytes());
    hasher.finish()
}

fn blank(parent: NodeId, name: &str, acl: AclId) -> Node {
    Node {
        parent,
        name: name.into(),
        data: Some(Bytes::new()),
        acl,
        czxid: Zxid::ZERO,
        mzxid: Zxid::ZERO,
        pzxid: Zxid::ZERO,
        ctime: 0,
        mtime: 0,
        version: 0,
        creates: 0,
        aversion: 0,
        owner: SessionId(0),
    }
}

#[cfg(test)]
mod tests;
