//! The data tree: nodes, stats, ephemerals, access control lists (Java `DataTree`, `DataNode`).
//!
//! Owns every node. Changes come from transactions, and fail if no leader can have produced them.
//! Must not know sessions' timeouts, watches or connections, and takes no `Cx`, so it has no side
//! effects.
//!
//! Nodes are in a slab. One hash table maps (parent, name) to the slot, so the tree stores a name
//! once and no full paths except where listed. A snapshot walks the slab (`snapshot`), and the
//! digest is a sum over it: call `touch` before changing a slot.

mod acl;
mod digest;
mod expiry;
mod load;
mod node;
mod path;
mod quota;
mod snapshot;

use std::collections::BTreeSet;
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;
use std::sync::Arc;
use std::{iter, mem};

use bytes::Bytes;
use hashbrown::HashTable;

pub(crate) use acl::{AclId, AclTable};
pub(crate) use expiry::Expiry;
pub(crate) use load::{Loader, PART, load};
pub(crate) use node::{Node, NodeId};
pub(crate) use path::{is_reserved, is_valid, split};
pub(crate) use quota::Verdict as QuotaVerdict;
#[cfg(test)]
pub(crate) use snapshot::Item as SnapshotItem;
pub(crate) use snapshot::SnapshotHeader;

/// The node that holds the configuration of the ensemble (DATA-27).
pub(crate) const CONFIG_NODE: &str = "/zookeeper/config";

use crate::error::Inapplicable;
use crate::ids::{SessionId, WallMs, Zxid};
use crate::rng::KeyedHash;
use crate::wire::{Acl, Perms, Stat};
use node::{Link, Links};
use quota::Quotas;
use snapshot::Walk;

/// All nodes.
#[derive(Debug)]
pub(crate) struct Tree {
    slots: Vec<Slot>,
    free: Vec<NodeId>,
    /// Maps (parent, name) to the slot; the root is not in it.
    names: HashTable<NodeId>,
    hash: KeyedHash,
    acls: AclTable,
    /// Sorted by session, then by path, so that a prefix query visits matching nodes only.
    ephemerals: BTreeSet<(SessionId, Box<str>)>,
    expiring: BTreeSet<(Expiry, NodeId)>,
    quotas: Quotas,
    counts: Counts,
    walk: Option<Walk>,
    /// Sum of the digest shares of all nodes outside `changed`.
    digest: u64,
    /// Slots whose share is not in the sum; no duplicates.
    changed: Vec<NodeId>,
}

/// Markers in [`Slot::share`]; [`digest::node`](crate::digest::node) never returns them.
const NOT_IN_SUM: u64 = 0;
const NO_NODE: u64 = u64::MAX;

#[derive(Debug)]
struct Slot {
    node: Option<Node>,
    links: Links,
    /// Share in the digest; [`NOT_IN_SUM`] for slots in `changed`, [`NO_NODE`] for empty slots.
    share: u64,
    /// Number of the walk that skips this slot: its old node was set aside, or it was empty.
    walked: u32,
}

/// Totals over all nodes, updated with each change.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Counts {
    pub(crate) nodes: usize,
    pub(crate) ephemerals: usize,
    /// Bytes of data, plus paths in UTF-16 units.
    pub(crate) bytes: u64,
}

/// A node to create, with all values resolved.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewNode<'a> {
    pub(crate) path: &'a str,
    pub(crate) data: Option<&'a [u8]>,
    pub(crate) acl: &'a [Acl],
    /// From [`crate::txn::Lifetime::owner`].
    pub(crate) owner: SessionId,
    pub(crate) parent_creates: i32,
}

impl Tree {
    /// The tree of a new server (DATA-25).
    pub(crate) fn new(hash: KeyedHash) -> Tree {
        let mut tree = Tree::bare(hash);
        tree.place(blank(NodeId::ROOT, "", AclId::NONE), "/");
        let zookeeper = tree.place(blank(NodeId::ROOT, "zookeeper", AclId::NONE), "/zookeeper");
        let readable = [Acl { perms: Perms::READ, scheme: "world".into(), id: "anyone".into() }];
        let acl = tree.acls.intern(&readable);
        let config = Node { aversion: -1, ..blank(zookeeper, "config", acl) };
        tree.place(config, CONFIG_NODE);
        tree.place(blank(zookeeper, "quota", AclId::NONE), "/zookeeper/quota");
        tree
    }

    fn bare(hash: KeyedHash) -> Tree {
        Tree {
            slots: Vec::new(),
            free: Vec::new(),
            names: HashTable::new(),
            hash,
            acls: AclTable::default(),
            ephemerals: BTreeSet::new(),
            expiring: BTreeSet::new(),
            quotas: Quotas::default(),
            counts: Counts::default(),
            walk: None,
            digest: 0,
            changed: Vec::new(),
        }
    }

    /// The node at `path`. Does not validate: a malformed path matches no node (DATA-04). The empty
    /// path also names the root, as in ZooKeeper.
    pub(crate) fn find(&self, path: &str) -> Option<NodeId> {
        let rest = match path {
            "" | "/" => return Some(NodeId::ROOT),
            path => path.strip_prefix('/')?,
        };
        path::names(rest).try_fold(NodeId::ROOT, |parent, name| self.child(parent, name))
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

    /// Names of the children in creation order, on every server. ZooKeeper promises no order (edge
    /// 70).
    pub(crate) fn children(&self, id: NodeId) -> Vec<String> {
        let mut names = Vec::with_capacity(self.children_count(id) as usize);
        names.extend(self.child_ids(id).map(|child| self.node(child).name.to_string()));
        names
    }

    /// The same, starting after the child of this name; from the beginning if there is none.
    pub(crate) fn children_behind(
        &self,
        id: NodeId,
        last: Option<&str>,
    ) -> impl Iterator<Item = &str> {
        let links = |of: NodeId| self.slots[of.index()].links;
        let first = match last.and_then(|name| self.child(id, name)) {
            Some(child) => links(child).after,
            None => links(id).first_child,
        };
        let ids = iter::successors(first.get(), move |child| links(*child).after.get());
        ids.map(|child| &*self.node(child).name)
    }

    /// Encoded bytes of the children's names. Stops counting above `most` and returns some larger
    /// number.
    pub(crate) fn names_size(&self, id: NodeId, most: usize) -> usize {
        let mut size = 0;
        let mut sizes = self.child_ids(id).map(|child| 4 + self.node(child).name.len());
        while size <= most
            && let Some(one) = sizes.next()
        {
            size += one;
        }
        size
    }

    fn child_ids(&self, id: NodeId) -> impl Iterator<Item = NodeId> {
        let first = self.slots[id.index()].links.first_child.get();
        iter::successors(first, |child| self.slots[child.index()].links.after.get())
    }

    /// The key of the tree's hash tables.
    pub(crate) fn hash(&self) -> KeyedHash {
        self.hash
    }

    pub(crate) fn acls(&self) -> &AclTable {
        &self.acls
    }

    /// Number of lists counted as in use that no node refers to. Visits every node.
    pub(crate) fn unused_lists(&self) -> usize {
        let nodes = self.slots.iter().filter_map(|slot| slot.node.as_ref());
        let used: BTreeSet<AclId> = nodes.map(|node| node.acl).collect();
        self.acls.in_use().filter(|(id, _)| !used.contains(id)).count()
    }

    /// Number of nodes below this one, at any depth.
    pub(crate) fn descendants(&self, id: NodeId) -> i32 {
        let count = self.slots[id.index()].links.descendants;
        i32::try_from(count).expect("fewer nodes than 2^31")
    }

    /// The access control list of a node.
    pub(crate) fn acl(&self, id: NodeId) -> &[Acl] {
        self.acls.list(self.node(id).acl)
    }

    /// The access control list of a node, shared.
    pub(crate) fn share_acl(&self, id: NodeId) -> Arc<[Acl]> {
        self.acls.share(self.node(id).acl)
    }

    /// Paths of a session's ephemeral nodes that begin with `prefix`, sorted. Visits matching nodes
    /// only.
    pub(crate) fn ephemerals<'a>(
        &'a self,
        session: SessionId,
        prefix: &str,
    ) -> impl Iterator<Item = &'a str> {
        let own = self.ephemerals.range((session, Box::from(prefix))..);
        own.map(|(owner, path)| (*owner, &**path))
            .take_while(move |(owner, path)| *owner == session && path.starts_with(prefix))
            .map(|(_, path)| path)
    }

    /// All ephemeral nodes after `last`, sorted by session and path.
    pub(crate) fn ephemerals_behind(
        &self,
        last: Option<(SessionId, &str)>,
    ) -> impl Iterator<Item = (SessionId, &str)> {
        let last = last.map(|(session, path)| (session, Box::from(path)));
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let behind = self.ephemerals.range((from, Bound::Unbounded));
        behind.map(|(session, path)| (*session, &**path))
    }

    /// Sessions that have ephemeral nodes, by id.
    pub(crate) fn owners(&self) -> impl Iterator<Item = SessionId> {
        let first_from = |session: SessionId| {
            let mut later = self.ephemerals.range((session, Box::default())..);
            later.next().map(|(owner, _)| *owner)
        };
        let next = move |owner: &SessionId| first_from(SessionId(owner.0.checked_add(1)?));
        iter::successors(first_from(SessionId(i64::MIN)), next)
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Creates a node and returns its stat. `zxid` and `time` come from the transaction's header.
    ///
    /// # Errors
    /// If the path is invalid or exists, or its parent is missing or ephemeral.
    pub(crate) fn create(
        &mut self,
        new: NewNode<'_>,
        zxid: Zxid,
        time: WallMs,
    ) -> Result<Stat, Inapplicable> {
        let refuse = |what: &str| Inapplicable::new(format!("{} {what}", new.path));
        let (parent, name) =
            split(new.path).filter(|_| is_valid(new.path)).ok_or_else(|| refuse("is no path"))?;
        let parent = self.find(parent).ok_or_else(|| refuse("has no parent"))?;
        if self.child(parent, name).is_some() {
            return Err(refuse("exists"));
        }
        if self.node(parent).is_ephemeral() {
            return Err(refuse("is below an ephemeral node"));
        }
        self.touch(parent);
        self.unindex_expiry(parent);
        let above = self.node_mut(parent);
        // The counter never decreases, even after the sequence number overflows (DATA-15).
        if new.parent_creates > above.creates {
            above.creates = new.parent_creates;
            above.pzxid = zxid;
        }
        let acl = self.acls.intern(new.acl);
        // Copies the data: a slice would keep the whole frame or log entry in memory.
        let data = new.data.map(Bytes::copy_from_slice);
        let node = Node {
            data,
            txn_order: self.next_txn_order(parent, zxid),
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time.0,
            mtime: time.0,
            owner: new.owner,
            ..blank(parent, name, acl)
        };
        let id = self.place(node, new.path);
        let stat = self.stat(id);
        self.use_created(new.path, id);
        Ok(stat)
    }

    /// The number of siblings that the same transaction has created before.
    fn next_txn_order(&self, parent: NodeId, zxid: Zxid) -> u32 {
        let youngest = self.youngest_child(parent).map(|youngest| self.node(youngest));
        let of_same_txn = youngest.filter(|youngest| youngest.czxid == zxid);
        of_same_txn.map_or(0, |youngest| youngest.txn_order + 1)
    }

    /// Deletes a node without children. Returns its access control list, which decides which
    /// watchers get the event.
    ///
    /// # Errors
    /// If the node does not exist, has children, or is reserved.
    pub(crate) fn delete(&mut self, path: &str, zxid: Zxid) -> Result<Arc<[Acl]>, Inapplicable> {
        let refuse = |what: &str| Inapplicable::new(format!("{path} {what}"));
        let id = self.find(path).ok_or_else(|| refuse("does not exist"))?;
        if self.children_count(id) > 0 {
            return Err(refuse("has children"));
        }
        if id == NodeId::ROOT || is_reserved(path) {
            return Err(refuse("is never deleted"));
        }
        let parent = self.node(id).parent;
        self.touch(id);
        self.touch(parent);
        self.node_mut(parent).pzxid = zxid;
        let acl = self.share_acl(id);
        let bytes = self.node(id).length();
        self.displace(id, path);
        self.use_more(path, -1, -signed(bytes));
        Ok(acl)
    }

    /// Replaces a node's data and returns its new stat.
    ///
    /// # Errors
    /// If the node does not exist.
    pub(crate) fn set_data(
        &mut self,
        path: &str,
        data: Option<&[u8]>,
        version: i32,
        zxid: Zxid,
        time: WallMs,
    ) -> Result<Stat, Inapplicable> {
        let id = self.find_changed(path)?;
        self.unindex_expiry(id);
        let before = self.node(id).length();
        self.replace_data(id, data.map(Bytes::copy_from_slice));
        let node = self.node_mut(id);
        node.version = version;
        node.mzxid = zxid;
        node.mtime = time.0;
        self.index_expiry(id);
        let stat = self.stat(id);
        self.use_more(path, 0, signed(data.map_or(0, <[u8]>::len)) - signed(before));
        Ok(stat)
    }

    fn find_changed(&self, path: &str) -> Result<NodeId, Inapplicable> {
        self.find(path).ok_or_else(|| Inapplicable::new(format!("{path} does not exist")))
    }

    fn replace_data(&mut self, id: NodeId, data: Option<Bytes>) {
        self.touch(id);
        let node = self.node_mut(id);
        let before = node.length() as u64;
        node.data = data;
        let after = node.length() as u64;
        self.counts.bytes = self.counts.bytes - before + after;
    }

    /// Replaces a node's access control list and returns its new stat.
    ///
    /// # Errors
    /// If the node does not exist.
    pub(crate) fn set_acl(
        &mut self,
        path: &str,
        acl: &[Acl],
        version: i32,
    ) -> Result<Stat, Inapplicable> {
        let id = self.find_changed(path)?;
        self.touch(id);
        let acl = self.acls.intern(acl);
        let node = self.node_mut(id);
        let before = mem::replace(&mut node.acl, acl);
        node.aversion = version;
        self.acls.release(before);
        Ok(self.stat(id))
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

    pub(crate) fn path_of(&self, id: NodeId) -> String {
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

    /// Puts a node with this path into a slot, links it under its parent, and counts it.
    fn place(&mut self, node: Node, path: &str) -> NodeId {
        let id = self.free.pop().unwrap_or_else(|| {
            let id = NodeId(u32::try_from(self.slots.len()).expect("places are 32-bit"));
            self.slots.push(Slot::empty());
            id
        });
        self.touch(id);
        assert!(self.slots[id.index()].node.replace(node).is_none(), "a free slot is empty");
        self.link(id);
        // As many steps as the path has names; finding the parent took as many.
        let mut at = id;
        while at != NodeId::ROOT {
            at = self.node(at).parent;
            self.slots[at.index()].links.descendants += 1;
        }
        self.count(id, path, utf16_units(path));
        id
    }

    /// Links a node, which is already in its slot, under its parent.
    fn link(&mut self, id: NodeId) {
        let node = self.node(id);
        let parent = node.parent;
        if id != NodeId::ROOT {
            let hash = hash_of(&self.hash, parent, &node.name);
            let (slots, keyed) = (&self.slots, &self.hash);
            self.names.insert_unique(hash, id, |id| {
                let node = slots[id.index()].node.as_ref().expect("only nodes are named");
                hash_of(keyed, node.parent, &node.name)
            });
            self.unindex_expiry(parent);
            self.append_child(parent, id);
        }
        self.index_expiry(id);
    }

    /// Counts a linked node and adds it to the lists by path. `units`: UTF-16 length of `path`.
    fn count(&mut self, id: NodeId, path: &str, units: u64) {
        let node = self.node(id);
        let data = node.length() as u64;
        if node.is_ephemeral() {
            let owner = node.owner;
            self.ephemerals.insert((owner, path.into()));
            self.counts.ephemerals += 1;
        }
        self.list_quota(id, path);
        self.counts.nodes += 1;
        self.counts.bytes += data + units;
    }

    fn youngest_child(&self, parent: NodeId) -> Option<NodeId> {
        let oldest = self.slots[parent.index()].links.first_child.get()?;
        self.slots[oldest.index()].links.before.get()
    }

    /// Appends a node to its parent's list of children.
    fn append_child(&mut self, parent: NodeId, id: NodeId) {
        let youngest = self.youngest_child(parent);
        let above = &mut self.slots[parent.index()].links;
        above.children += 1;
        let oldest = above.first_child.get().unwrap_or(id);
        above.first_child = Link::to(oldest);
        if let Some(youngest) = youngest {
            self.slots[youngest.index()].links.after = Link::to(id);
            self.slots[id.index()].links.before = Link::to(youngest);
        }
        self.slots[oldest.index()].links.before = Link::to(id);
    }

    /// Removes a node from the list of its siblings and resets its links.
    fn remove_child(&mut self, parent: NodeId, id: NodeId) {
        let Links { before, after, .. } = mem::take(&mut self.slots[id.index()].links);
        let above = &mut self.slots[parent.index()].links;
        above.children -= 1;
        if above.first_child == Link::to(id) {
            above.first_child = after;
        } else {
            let older = before.get().expect("only the oldest has no older sibling");
            self.slots[older.index()].links.after = after;
        }
        // The link `before` of the oldest child points to the youngest.
        let oldest = self.slots[parent.index()].links.first_child;
        let next = if after == Link::NONE { oldest } else { after };
        if let Some(next) = next.get() {
            self.slots[next.index()].links.before = before;
        }
    }

    /// Reverse of [`Tree::place`]. The caller has called `touch` for the slot.
    fn displace(&mut self, id: NodeId, path: &str) {
        self.unindex_expiry(id);
        self.unindex_expiry(self.node(id).parent);
        self.unlist_quota(id, path);
        let node = self.node(id);
        let hash = hash_of(&self.hash, node.parent, &node.name);
        let entry = self.names.find_entry(hash, |other| *other == id);
        entry.expect("every node but the root is named").remove();
        let mut at = id;
        while at != NodeId::ROOT {
            at = self.node(at).parent;
            self.slots[at.index()].links.descendants -= 1;
        }
        let node = self.slots[id.index()].node.take().expect("a displaced node is there");
        self.remove_child(node.parent, id);
        self.index_expiry(node.parent);
        if node.is_ephemeral() {
            let listed = self.ephemerals.remove(&(node.owner, path.into()));
            assert!(listed, "ephemerals are listed");
            self.counts.ephemerals -= 1;
        }
        self.counts.nodes -= 1;
        self.counts.bytes -= node.length() as u64 + utf16_units(path);
        self.free.push(id);
        self.acls.release(node.acl);
    }
}

impl Slot {
    fn empty() -> Slot {
        Slot { node: None, links: Links::default(), share: NO_NODE, walked: 0 }
    }
}

/// Length of a path in Java's `char`s.
fn utf16_units(path: &str) -> u64 {
    path.encode_utf16().count() as u64
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("what is in memory is shorter")
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
        txn_order: 0,
    }
}

#[cfg(test)]
mod tests;
