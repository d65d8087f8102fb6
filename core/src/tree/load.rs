//! Loading a tree from a snapshot, in small parts, so that the server can do other work in between.
//!
//! Owns the intermediate state. Must not know the receiver of the tree, nor the budget of a step.
//!
//! ```text
//! Records ─► Checking ─► Linking ─► Counting ─► Adding ─► Hashing ─► done
//!  chunks     places      by age     by path     below     shares
//! ```

use std::collections::BTreeSet;
use std::mem;

use bytes::Bytes;

use super::snapshot::{Item, SnapshotHeader};
use super::{AclId, AclTable, Node, NodeId, Slot, Tree, utf16_units};
use crate::error::Corrupt;
use crate::ids::{ServerId, SessionId, Zxid};
use crate::rng::KeyedHash;
use crate::wire::Acl;

/// Nodes processed per part.
pub(crate) const PART: usize = 64;

/// See the module.
#[derive(Debug)]
pub(crate) struct Loader {
    tree: Tree,
    header: Option<(SnapshotHeader, u64)>,
    owners: Vec<(SessionId, ServerId)>,
    keyed: Vec<SessionId>,
    lists: Vec<(AclId, Vec<Acl>)>,
    phase: Phase,
    /// Nodes processed, counted once per phase.
    visited: u64,
}

/// Phases of loading.
#[derive(Debug)]
enum Phase {
    /// The snapshot's records are being read.
    Records,
    /// The slots are checked in order, beginning at `next`; `found` sorts the nodes by age.
    Checking { next: usize, found: BTreeSet<(Zxid, u32, NodeId)> },
    /// Nodes are linked under their parents, the oldest first.
    Linking { left: BTreeSet<(Zxid, u32, NodeId)>, nodes: usize },
    /// Nodes are counted by path, from the root down.
    Counting { path: String, stack: Vec<(NodeId, usize, u64)>, order: Vec<NodeId>, nodes: usize },
    /// Descendants are added up, from the leaves to the root.
    Adding { order: Vec<NodeId>, left: usize },
    /// The nodes' digest shares are computed.
    Hashing { order: Vec<NodeId>, next: usize },
    /// Loading is complete.
    Done,
}

/// Phases that process every node.
const PHASES: u64 = 6;

impl Loader {
    /// A loader of a tree with this hasher.
    pub(crate) fn new(hash: KeyedHash) -> Loader {
        Loader {
            tree: Tree::bare(hash),
            header: None,
            owners: Vec::new(),
            keyed: Vec::new(),
            lists: Vec::new(),
            phase: Phase::Records,
            visited: 0,
        }
    }

    /// Decodes the next piece of the snapshot.
    ///
    /// # Errors
    /// An item that cannot be decoded, or whose slot is taken or does not exist.
    ///
    /// # Panics
    /// If it is called after [`Loader::go_on`].
    pub(crate) fn take(&mut self, piece: &[u8]) -> Result<(), Corrupt> {
        assert!(matches!(self.phase, Phase::Records), "all chunks come first");
        let mut rest = piece;
        while !rest.is_empty() {
            let (item, behind) = postcard::take_from_bytes::<Item>(rest)
                .map_err(|error| corrupt(format!("an item cannot be decoded: {error}")))?;
            rest = behind;
            self.take_item(item)?;
        }
        Ok(())
    }

    fn take_item(&mut self, item: Item) -> Result<(), Corrupt> {
        let (id, node) = match item {
            Item::Header { header, slots, nodes } => {
                self.header = Some((header, nodes));
                self.tree.slots.resize_with(slots as usize, Slot::empty);
                return Ok(());
            }
            Item::Owners(owners) => {
                self.owners = owners;
                return Ok(());
            }
            Item::KeyedSessions(sessions) => {
                self.keyed = sessions;
                return Ok(());
            }
            Item::Acl { id, list } => {
                self.lists.push((id, list));
                return Ok(());
            }
            Item::Node { id, node } => (id, node),
            Item::NodeInTxn { id, node, txn_order } => (id, Node { txn_order, ..node }),
        };
        self.visited += 1;
        match self.tree.slots.get_mut(id.index()) {
            Some(Slot { node: place @ None, .. }) => *place = Some(node),
            _ => return Err(corrupt(format!("place {} is taken or outside", id.0))),
        }
        Ok(())
    }

    /// The zxid of the snapshot, once its header has been read.
    pub(crate) fn zxid(&self) -> Option<Zxid> {
        self.header.as_ref().map(|(header, _)| header.zxid)
    }

    /// Progress: nodes processed so far, and the total over all phases.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let nodes = self.header.as_ref().map_or(0, |(_, nodes)| *nodes);
        (self.visited, nodes.saturating_mul(PHASES))
    }

    /// Processes about [`PART`] nodes, once all chunks are read. Returns whether loading is
    /// complete.
    ///
    /// # Errors
    /// The chunks are no whole snapshot. The loader must not be used any more.
    pub(crate) fn go_on(&mut self) -> Result<bool, Corrupt> {
        let phase = mem::replace(&mut self.phase, Phase::Done);
        self.phase = match phase {
            Phase::Records => self.begin_checking()?,
            Phase::Checking { next, found } => self.check(next, found)?,
            Phase::Linking { left, nodes } => self.link(left, nodes),
            Phase::Counting { path, stack, order, nodes } => {
                self.count(path, stack, order, nodes)?
            }
            Phase::Adding { order, left } => self.add(order, left),
            Phase::Hashing { order, next } => self.hash(order, next),
            Phase::Done => Phase::Done,
        };
        Ok(matches!(self.phase, Phase::Done))
    }

    /// The loaded tree, and the header of the snapshot.
    ///
    /// # Panics
    /// If [`Loader::go_on`] has not returned true.
    pub(crate) fn finish(self) -> (Tree, SnapshotHeader) {
        assert!(matches!(self.phase, Phase::Done), "it is not done");
        let (header, _) = self.header.expect("looked at first");
        (self.tree, header)
    }

    fn begin_checking(&mut self) -> Result<Phase, Corrupt> {
        let (header, _) = self.header.as_mut().ok_or_else(|| corrupt("there is no header"))?;
        header.owners = mem::take(&mut self.owners);
        header.keyed = mem::take(&mut self.keyed);
        self.tree.acls = AclTable::restore(mem::take(&mut self.lists));
        if self.tree.slots.first().is_none_or(|slot| slot.node.is_none()) {
            return Err(corrupt("there is no root"));
        }
        Ok(Phase::Checking { next: 0, found: BTreeSet::new() })
    }

    fn check(
        &mut self,
        next: usize,
        mut found: BTreeSet<(Zxid, u32, NodeId)>,
    ) -> Result<Phase, Corrupt> {
        let tree = &mut self.tree;
        let end = tree.slots.len().min(next + PART);
        for index in next..end {
            let id = NodeId(u32::try_from(index).expect("the header's count is 32-bit"));
            let Some(node) = &tree.slots[index].node else {
                tree.free.push(id);
                continue;
            };
            let (parent, acl) = (node.parent, node.acl);
            found.insert((node.czxid, node.txn_order, id));
            if tree.slots.get(parent.index()).is_none_or(|slot| slot.node.is_none()) {
                return Err(corrupt(format!("place {} has no parent", id.0)));
            }
            if !tree.acls.reference(acl) {
                return Err(corrupt(format!("place {} names a list that is not there", id.0)));
            }
            self.visited += 1;
        }
        if end < tree.slots.len() {
            return Ok(Phase::Checking { next: end, found });
        }
        // The list is a stack: its top must be the lowest free slot, so that slots are reused in
        // order.
        tree.free.reverse();
        let nodes = found.len();
        Ok(Phase::Linking { left: found, nodes })
    }

    fn link(&mut self, mut left: BTreeSet<(Zxid, u32, NodeId)>, nodes: usize) -> Phase {
        for _ in 0..PART {
            let Some((zxid, txn_order, id)) = left.pop_first() else {
                let stack = vec![(NodeId::ROOT, 0, 0)];
                let (path, order) = (String::new(), Vec::with_capacity(nodes));
                return Phase::Counting { path, stack, order, nodes };
            };
            // Slot numbers do not show age, because slots are reused. If a snapshot of an older
            // build does not record the order of siblings of one transaction, names decide, so that
            // all servers that load it agree.
            let mut alike = vec![id];
            while left.first().is_some_and(|next| (next.0, next.1) == (zxid, txn_order)) {
                alike.extend(left.pop_first().map(|(_, _, more)| more));
            }
            alike.sort_by(|one, other| self.tree.node(*one).name.cmp(&self.tree.node(*other).name));
            self.visited += alike.len() as u64;
            alike.into_iter().for_each(|id| self.tree.link(id));
        }
        Phase::Linking { left, nodes }
    }

    /// Each name is visited once, however deep the tree is.
    fn count(
        &mut self,
        mut path: String,
        mut stack: Vec<(NodeId, usize, u64)>,
        mut order: Vec<NodeId>,
        nodes: usize,
    ) -> Result<Phase, Corrupt> {
        for _ in 0..PART {
            let Some((id, length, mut units)) = stack.pop() else {
                if order.len() < nodes {
                    return Err(corrupt("some places are their own ancestors"));
                }
                let (_, expected) = self.header.as_ref().expect("looked at first");
                if nodes as u64 != *expected {
                    return Err(corrupt(format!("{nodes} of {expected} nodes are there")));
                }
                return Ok(Phase::Adding { order, left: nodes });
            };
            path.truncate(length);
            if id == NodeId::ROOT {
                self.tree.count(id, "/", 1);
            } else {
                let name = &self.tree.node(id).name;
                path.push('/');
                path.push_str(name);
                units += 1 + utf16_units(name);
                self.tree.count(id, &path, units);
            }
            order.push(id);
            self.visited += 1;
            let length = path.len();
            stack.extend(self.tree.child_ids(id).map(|child| (child, length, units)));
        }
        Ok(Phase::Counting { path, stack, order, nodes })
    }

    fn add(&mut self, order: Vec<NodeId>, left: usize) -> Phase {
        let first = left.saturating_sub(PART);
        for id in order[first..left].iter().rev().filter(|id| **id != NodeId::ROOT) {
            let below = self.tree.slots[id.index()].links.descendants;
            let parent = self.tree.node(*id).parent;
            self.tree.slots[parent.index()].links.descendants += below + 1;
        }
        self.visited += (left - first) as u64;
        if first > 0 {
            Phase::Adding { order, left: first }
        } else {
            Phase::Hashing { order, next: 0 }
        }
    }

    fn hash(&mut self, order: Vec<NodeId>, next: usize) -> Phase {
        let end = order.len().min(next + PART);
        order[next..end].iter().for_each(|id| self.tree.remove_share(*id));
        self.tree.add_changed_shares();
        self.visited += (end - next) as u64;
        if end < order.len() { Phase::Hashing { order, next: end } } else { Phase::Done }
    }
}

fn corrupt(what: impl AsRef<str>) -> Corrupt {
    Corrupt { what: format!("snapshot: {}", what.as_ref()) }
}

/// Loads the tree and the header from the chunks of a snapshot, at once.
///
/// # Errors
/// Chunks that are no whole snapshot.
pub(crate) fn load(chunks: &[Bytes], hash: KeyedHash) -> Result<(Tree, SnapshotHeader), Corrupt> {
    let mut loader = Loader::new(hash);
    for chunk in chunks {
        loader.take(chunk)?;
    }
    while !loader.go_on()? {}
    Ok(loader.finish())
}
