//! One node, and all that ever stood at its path.
//!
//! Owns the versions of a node by zxid, the coming and going of its children, and what could have been watched there.
//! Must not know any rule about which changes are allowed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::digest::{self, NodeView};
use zabkeeper_core::txn::Lifetime;
use zabkeeper_core::wire::{Acl, Stat};
use zabkeeper_core::{SessionId, Zxid};

use super::{Firing, Table, lifetime};

/// A node at one moment.
#[derive(Clone, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the names are those of `wire::Stat`")]
pub struct Node {
    pub data: Option<Bytes>,
    /// Empty for the nodes that servers make themselves: no restriction.
    pub acl: Arc<[Acl]>,
    pub czxid: Zxid,
    pub mzxid: Zxid,
    pub pzxid: Zxid,
    pub ctime: i64,
    pub mtime: i64,
    pub version: i32,
    /// Children ever created: the number that the next sequential child gets.
    pub creates: i32,
    pub aversion: i32,
    /// When it goes by itself.
    pub lifetime: Lifetime,
    /// The session of an ephemeral node, else zero.
    pub owner: SessionId,
    /// Children now.
    pub children: u32,
}

/// What has stood at a path, and what happened there.
#[derive(Clone, Default, Debug)]
pub struct PathHistory {
    versions: Vec<(Zxid, Option<Node>)>,
    /// The children now, each with the move with which it came.
    children: BTreeMap<Arc<str>, usize>,
    /// The same, oldest first.
    by_age: BTreeSet<usize>,
    moves: Vec<Move>,
    data_firings: Vec<Arc<Firing>>,
    child_firings: Vec<Arc<Firing>>,
}

/// A child came or went.
#[derive(Clone, Debug)]
struct Move {
    zxid: Zxid,
    name: Arc<str>,
    /// Of a child that went: the move with which it had come.
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

    /// As clients see it.
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

    /// Share in the digest.
    pub(super) fn share(&self, path: &str) -> u64 {
        digest::node(&self.view(path))
    }

    /// As it is replicated.
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
    pub(super) fn begin(node: Node) -> PathHistory {
        PathHistory { versions: vec![(Zxid::ZERO, Some(node))], ..PathHistory::default() }
    }

    /// The node as it is now.
    pub(super) fn now(&self) -> Option<&Node> {
        self.versions.last()?.1.as_ref()
    }

    /// The node right after the transaction `zxid`.
    pub(super) fn at(&self, zxid: Zxid) -> Option<&Node> {
        let count = self.versions.partition_point(|(since, _)| *since <= zxid);
        self.versions[..count].last()?.1.as_ref()
    }

    /// The node is this from `zxid` on.
    pub(super) fn set(&mut self, zxid: Zxid, node: Option<Node>) {
        match self.versions.last_mut() {
            Some((since, last)) if *since == zxid => *last = node,
            Some(_) | None => self.versions.push((zxid, node)),
        }
    }

    /// A child came or went.
    pub(super) fn moved(&mut self, zxid: Zxid, came: bool, name: &str) {
        let name: Arc<str> = name.into();
        let went = if came {
            self.children.insert(name.clone(), self.moves.len());
            self.by_age.insert(self.moves.len());
            None
        } else {
            let birth = self.children.remove(&name).expect("who goes has come");
            self.by_age.remove(&birth);
            Some(birth)
        };
        self.moves.push(Move { zxid, name, went });
    }

    /// Names of the children right after the transaction `zxid`, oldest first: that is the order in which servers list
    /// them. Costs as much as there are children and later moves: reads are judged near the tip.
    pub(super) fn children_at(&self, zxid: Zxid) -> impl Iterator<Item = &str> {
        let later = self.moves.partition_point(|each| each.zxid <= zxid);
        let gone_since = self.moves[later..].iter().filter_map(|each| each.went);
        let gone_since: BTreeSet<usize> = gone_since.filter(|birth| *birth < later).collect();
        let mut staying = self.by_age.range(..later).copied().peekable();
        let mut gone_since = gone_since.into_iter().peekable();
        let births = std::iter::from_fn(move || match (staying.peek(), gone_since.peek()) {
            (Some(stays), Some(gone)) if gone < stays => gone_since.next(),
            (Some(_), _) => staying.next(),
            (None, _) => gone_since.next(),
        });
        births.map(|birth| &*self.moves[birth].name)
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

    /// Has this data ever stood here?
    pub fn ever_held(&self, data: Option<&[u8]>) -> bool {
        let same = |node: &Node| node.data.as_deref() == data;
        self.versions.iter().any(|(_, node)| node.as_ref().is_some_and(same))
    }
}
