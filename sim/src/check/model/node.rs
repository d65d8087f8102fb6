//! One node, and the history of its path.
//!
//! Owns the versions of a node by zxid, the creations and deletions of its children, and its
//! firings. Must not know which changes are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::digest::{self, NodeView};
use zabkeeper_core::txn::Lifetime;
use zabkeeper_core::wire::{Acl, Stat};
use zabkeeper_core::{SessionId, Zxid};

use super::{Firing, Table, lifetime};

/// A node at one zxid.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of `wire::Stat`")]
pub struct Node {
    pub data: Option<Bytes>,
    /// Empty for the nodes that servers create themselves: no restriction.
    pub acl: Arc<[Acl]>,
    pub czxid: Zxid,
    pub mzxid: Zxid,
    pub pzxid: Zxid,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    /// Counter of created children: the number of the next sequential child.
    pub creates: i32,
    pub aversion: i32,
    /// Whether, and how, the node goes without a delete request.
    pub lifetime: Lifetime,
    /// The session of an ephemeral node, else zero.
    pub owner: SessionId,
    /// Number of present children.
    pub children: u32,
}

/// All versions of the node at a path, and what happened there.
#[derive(Clone, Default, Debug)]
pub struct PathHistory {
    /// The node from each zxid on; `None` while it does not exist.
    versions: Vec<(Zxid, Option<Node>)>,
    /// Present children, with the index in `moves` of their creation.
    children: BTreeMap<Arc<str>, usize>,
    /// The same indexes, oldest first.
    by_age: BTreeSet<usize>,
    /// Creations and deletions of children, oldest first.
    moves: Vec<Move>,
    /// Transactions that fire the data watches of the path, oldest first.
    data_firings: Vec<Arc<Firing>>,
    /// The same for child watches.
    child_firings: Vec<Arc<Firing>>,
}

/// A child was created or deleted.
#[derive(Clone, Debug)]
struct Move {
    zxid: Zxid,
    name: Arc<str>,
    /// For a deletion: the index in `moves` of the child's creation.
    went: Option<usize>,
}

impl Node {
    /// A node of a new ensemble: all zxids and times are zero, the data is empty (DATA-25).
    pub(super) fn initial(children: u32, acl: Vec<Acl>, aversion: i32) -> Node {
        Node {
            data: Some(Bytes::new()),
            acl: acl.into(),
            czxid: Zxid::ZERO,
            mzxid: Zxid::ZERO,
            pzxid: Zxid::ZERO,
            ctime: 0,
            mtime: 0,
            version: 0,
            creates: 0,
            aversion,
            lifetime: Lifetime::Persistent,
            owner: SessionId(0),
            children,
        }
    }

    /// The stat that clients see.
    pub fn stat(&self) -> Stat {
        let children = i32::try_from(self.children).expect("far fewer children than 2^31");
        let length = self.data.as_ref().map_or(0, Bytes::len);
        Stat {
            czxid: self.czxid,
            mzxid: self.mzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            cversion: self.creates.wrapping_mul(2).wrapping_sub(children),
            aversion: self.aversion,
            ephemeral_owner: self.owner,
            data_length: i32::try_from(length).expect("data fits a frame"),
            num_children: children,
            pzxid: self.pzxid,
        }
    }

    /// The node's share in the digest.
    pub(super) fn share(&self, path: &str) -> u64 {
        digest::node(&self.view(path))
    }

    /// The replicated fields of the node.
    pub(crate) fn view<'a>(&'a self, path: &'a str) -> NodeView<'a> {
        NodeView {
            path,
            data: self.data.as_deref(),
            acl: &self.acl,
            czxid: self.czxid,
            mzxid: self.mzxid,
            pzxid: self.pzxid,
            ctime: self.ctime,
            mtime: self.mtime,
            version: self.version,
            creates: self.creates,
            aversion: self.aversion,
            owner: lifetime::owner_field(self.lifetime, self.owner),
            children: self.children,
        }
    }
}

impl PathHistory {
    /// Was a node of this path deleted after this zxid?
    pub fn went_after(&self, zxid: Zxid) -> bool {
        self.versions.iter().rev().take_while(|(at, _)| *at > zxid).any(|(_, node)| node.is_none())
    }

    /// The node as it was at this zxid and has become since, without the times when it was missing.
    pub(super) fn since(&self, zxid: Zxid) -> impl Iterator<Item = &Node> {
        let past = self.versions.partition_point(|(since, _)| *since <= zxid);
        self.versions[past.saturating_sub(1)..].iter().filter_map(|(_, node)| node.as_ref())
    }

    pub(super) fn begin(node: Node) -> PathHistory {
        PathHistory { versions: vec![(Zxid::ZERO, Some(node))], ..PathHistory::default() }
    }

    /// The present node.
    pub(super) fn now(&self) -> Option<&Node> {
        self.versions.last()?.1.as_ref()
    }

    /// The node right after the transaction `zxid`.
    pub(super) fn at(&self, zxid: Zxid) -> Option<&Node> {
        let count = self.versions.partition_point(|(since, _)| *since <= zxid);
        self.versions[..count].last()?.1.as_ref()
    }

    /// Sets the node from `zxid` on.
    pub(super) fn set(&mut self, zxid: Zxid, node: Option<Node>) {
        match self.versions.last_mut() {
            Some((since, last)) if *since == zxid => *last = node,
            Some(_) | None => self.versions.push((zxid, node)),
        }
    }

    /// Notes that a child was created or deleted.
    pub(super) fn moved(&mut self, zxid: Zxid, came: bool, name: &str) {
        let name: Arc<str> = name.into();
        let went = if came {
            self.children.insert(name.clone(), self.moves.len());
            self.by_age.insert(self.moves.len());
            None
        } else {
            let creation = self.children.remove(&name).expect("who goes has come");
            self.by_age.remove(&creation);
            Some(creation)
        };
        self.moves.push(Move { zxid, name, went });
    }

    /// Names of the children right after the transaction `zxid`, oldest first, as servers list
    /// them. The cost is linear in the children and the later moves: reads are checked near the
    /// tip.
    pub(super) fn children_at(&self, zxid: Zxid) -> impl Iterator<Item = &str> {
        let later = self.moves.partition_point(|each| each.zxid <= zxid);
        let gone_since = self.moves[later..].iter().filter_map(|each| each.went);
        let gone_since: BTreeSet<usize> = gone_since.filter(|creation| *creation < later).collect();
        let mut staying = self.by_age.range(..later).copied().peekable();
        let mut gone_since = gone_since.into_iter().peekable();
        let creations = std::iter::from_fn(move || match (staying.peek(), gone_since.peek()) {
            (Some(stays), Some(gone)) if gone < stays => gone_since.next(),
            (Some(_), _) => staying.next(),
            (None, _) => gone_since.next(),
        });
        creations.map(|creation| &*self.moves[creation].name)
    }

    pub(super) fn fired(&mut self, firing: Arc<Firing>) {
        match firing.table {
            Table::Data => self.data_firings.push(firing),
            Table::Child => self.child_firings.push(firing),
        }
    }

    pub(super) fn next_firing(&self, table: Table, zxid: Zxid) -> Option<&Firing> {
        let firings = match table {
            Table::Data => &self.data_firings,
            Table::Child => &self.child_firings,
        };
        firings.get(firings.partition_point(|firing| firing.zxid <= zxid)).map(|firing| &**firing)
    }

    /// Whether the node ever had this data.
    pub fn ever_held(&self, data: Option<&[u8]>) -> bool {
        let same = |node: &Node| node.data.as_deref() == data;
        self.versions.iter().any(|(_, node)| node.as_ref().is_some_and(same))
    }
}
