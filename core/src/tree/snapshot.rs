//! An exact picture of the tree at one zxid, taken in slices while the tree goes on changing, and its way back.
//!
//! Owns the walk and the content of snapshot chunks (postcard items; the file's format version covers them). Must not
//! know files.
//!
//! A cursor walks the slots that there were when the walk began. Whoever changes a slot ahead of the cursor for the
//! first time sets its old content aside; the walk then leaves that slot out and gives the old content instead. Links
//! are not part of the picture, so a parent with a million children is one small record like any other.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::{AclId, AclTable, Node, NodeId, Slot, Tree, utf16_units};
use crate::error::Corrupt;
use crate::ids::{ServerId, SessionId, Zxid};
use crate::rng::KeyedHash;
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

/// The tree and the header that the chunks of a snapshot hold.
///
/// # Errors
/// Chunks that are no whole snapshot.
pub(crate) fn load(chunks: &[Bytes], hash: KeyedHash) -> Result<(Tree, SnapshotHeader), Corrupt> {
    let corrupt = |what: &str| Corrupt { what: format!("snapshot: {what}") };
    let mut tree = Tree::bare(hash);
    let mut found = None;
    let (mut owned, mut with_secret) = (Vec::new(), Vec::new());
    let mut lists: Vec<(AclId, Vec<Acl>)> = Vec::new();
    for chunk in chunks {
        let mut rest = &chunk[..];
        while !rest.is_empty() {
            let (item, behind) = postcard::take_from_bytes::<Item>(rest)
                .map_err(|error| corrupt(&format!("an item cannot be decoded: {error}")))?;
            rest = behind;
            match item {
                Item::Header { header, slots, nodes } => {
                    found = Some((header, nodes));
                    tree.slots.resize_with(slots as usize, Slot::empty);
                }
                Item::Owners(owners) => owned = owners,
                Item::KeyedSessions(sessions) => with_secret = sessions,
                Item::Acl { id, list } => lists.push((id, list)),
                Item::Node { id, node } => tree.restore(id, node).map_err(|what| corrupt(&what))?,
                Item::NodeInTxn { id, node, txn_order } => {
                    let node = Node { txn_order, ..node };
                    tree.restore(id, node).map_err(|what| corrupt(&what))?;
                }
            }
        }
    }
    let (mut header, nodes): (SnapshotHeader, u64) =
        found.ok_or_else(|| corrupt("there is no header"))?;
    (header.owners, header.keyed) = (owned, with_secret);
    tree.acls = AclTable::restore(lists);
    tree.relink().map_err(|what| corrupt(&what))?;
    if tree.counts.nodes as u64 != nodes {
        return Err(corrupt(&format!("{} of {nodes} nodes are there", tree.counts.nodes)));
    }
    Ok((tree, header))
}

impl Tree {
    /// Puts a record where it was.
    fn restore(&mut self, id: NodeId, node: Node) -> Result<(), String> {
        match self.slots.get_mut(id.index()) {
            Some(Slot { node: place @ None, .. }) => *place = Some(node),
            _ => return Err(format!("place {} is taken or outside", id.0)),
        }
        Ok(())
    }

    /// Rebuilds all that is not in the records: links, names, counts, references, free places.
    fn relink(&mut self) -> Result<(), String> {
        if self.slots.first().is_none_or(|slot| slot.node.is_none()) {
            return Err("there is no root".into());
        }
        let mut found = Vec::new();
        for index in 0..self.slots.len() {
            let id = NodeId(u32::try_from(index).expect("the header's count is 32-bit"));
            let Some(node) = &self.slots[index].node else {
                self.free.push(id);
                continue;
            };
            let (parent, acl) = (node.parent, node.acl);
            found.push((node.czxid, node.txn_order, id));
            if self.slots.get(parent.index()).is_none_or(|slot| slot.node.is_none()) {
                return Err(format!("place {} has no parent", id.0));
            }
            if !self.acls.reference(acl) {
                return Err(format!("place {} names a list that is not there", id.0));
            }
        }
        // Places say nothing of age: they are used again. Names decide where a snapshot of an older build does not say which
        // siblings of a transaction came first, so that all servers that load it agree.
        found.sort_unstable_by(|one, other| {
            let name = |id| &self.node(id).name;
            (one.0, one.1).cmp(&(other.0, other.1)).then_with(|| name(one.2).cmp(name(other.2)))
        });
        for (_, _, id) in &found {
            self.link(*id);
        }
        if self.recount() < found.len() {
            return Err("some places are their own ancestors".into());
        }
        found.iter().for_each(|(_, _, id)| self.take_out_share(*id));
        self.bring_in_changes();
        // Lowest place first, so that a reloaded slab fills up as it lies.
        self.free.reverse();
        Ok(())
    }

    /// Counts all nodes that the root leads to. Each name is visited once, however deep the tree is.
    fn recount(&mut self) -> usize {
        let mut order = Vec::new();
        let mut path = String::new();
        let mut next = vec![(NodeId::ROOT, 0, 0)];
        while let Some((id, length, mut units)) = next.pop() {
            path.truncate(length);
            if id == NodeId::ROOT {
                self.count(id, "/", 1);
            } else {
                let name = &self.node(id).name;
                path.push('/');
                path.push_str(name);
                units += 1 + utf16_units(name);
                self.count(id, &path, units);
            }
            order.push(id);
            next.extend(self.child_ids(id).map(|child| (child, path.len(), units)));
        }
        for id in order.iter().rev().filter(|id| **id != NodeId::ROOT) {
            let below = self.slots[id.index()].links.descendants;
            let parent = self.node(*id).parent;
            self.slots[parent.index()].links.descendants += below + 1;
        }
        order.len()
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
