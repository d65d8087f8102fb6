//! Nodes as they will be when every proposal is applied (DATA-10).
//!
//! Owns the nodes that differ from the tree. Must not decide anything.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::ids::{SessionId, Zxid};
use crate::rng::KeyedHash;
use crate::tree::AclId;
use crate::txn::Lifetime;
use crate::wire::Acl;

/// The fields of a node that the checks need.
#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) version: i32,
    pub(super) aversion: i32,
    pub(super) creates: i32,
    pub(super) children: u32,
    pub(super) owner: SessionId,
    pub(super) mtime: i64,
    /// Bytes of data.
    pub(super) length: usize,
    pub(super) acl: NodeAcl,
}

#[derive(Clone, Debug)]
pub(super) enum NodeAcl {
    Stored(AclId),
    New(Arc<[Acl]>),
}

/// See the module.
#[derive(Debug)]
pub(super) struct Pending {
    /// For lookup only; `order` determines which entries to drop.
    changes: HashMap<Arc<str>, Change, KeyedHash>,
    order: VecDeque<(Zxid, Arc<str>)>,
    /// The ephemeral nodes among the changes, by session. When many sessions end together, closing
    /// one visits only its own nodes.
    ephemerals: BTreeMap<SessionId, BTreeSet<Arc<str>>>,
    /// While a request is decided: the changes that it has replaced, to undo it.
    undo: Option<Vec<(Arc<str>, Option<Change>)>>,
}

#[derive(Debug)]
struct Change {
    /// The last transaction that changes the node.
    zxid: Zxid,
    /// The node after that transaction; `None` if deleted.
    node: Option<Node>,
}

impl Change {
    /// The session that owns the node, if it is ephemeral.
    fn session(&self) -> Option<SessionId> {
        let owner = self.node.as_ref()?.owner;
        (Lifetime::of(owner) == Lifetime::Ephemeral).then_some(owner)
    }
}

impl Pending {
    pub(super) fn new(hash: KeyedHash) -> Pending {
        Pending {
            changes: HashMap::with_hasher(hash),
            order: VecDeque::new(),
            ephemerals: BTreeMap::new(),
            undo: None,
        }
    }

    /// The pending state of a path: `None` if unchanged, `Some(None)` if deleted.
    pub(super) fn get(&self, path: &str) -> Option<Option<&Node>> {
        self.changes.get(path).map(|change| change.node.as_ref())
    }

    /// The session's pending ephemeral nodes.
    pub(super) fn ephemerals(&self, session: SessionId) -> BTreeSet<Arc<str>> {
        self.ephemerals.get(&session).cloned().unwrap_or_default()
    }

    /// Records that transaction `zxid` leaves `node` at `path`; `None` deletes it.
    pub(super) fn change(&mut self, path: &str, node: Option<Node>, zxid: Zxid) {
        let path = match self.changes.get_key_value(path) {
            Some((known, _)) => known.clone(),
            None => Arc::from(path),
        };
        self.order.push_back((zxid, path.clone()));
        let before = self.put(&path, Some(Change { zxid, node }));
        if let Some(undo) = &mut self.undo {
            undo.push((path, before));
        }
    }

    /// Begins a group of changes, which are kept or undone together.
    pub(super) fn begin(&mut self) {
        self.undo = Some(Vec::new());
    }

    /// Keeps the changes since [`Pending::begin`].
    pub(super) fn keep(&mut self) {
        self.undo = None;
    }

    /// Undoes the changes since [`Pending::begin`].
    pub(super) fn take_back(&mut self) {
        let undo = self.undo.take().unwrap_or_default();
        self.order.truncate(self.order.len() - undo.len());
        for (path, before) in undo.into_iter().rev() {
            self.put(&path, before);
        }
    }

    /// Drops the changes of transactions up to `zxid`, which the tree now has.
    pub(super) fn applied(&mut self, zxid: Zxid) {
        while let Some((_, path)) = self.order.pop_front_if(|(change, _)| *change <= zxid) {
            if self.changes.get(&path).is_some_and(|last| last.zxid <= zxid) {
                self.put(&path, None);
            }
        }
    }

    /// Number of entries in the largest collection.
    pub(super) fn len(&self) -> usize {
        self.changes.len().max(self.order.len()).max(self.ephemerals.len())
    }

    /// The only place that modifies `changes`, so that `ephemerals` agrees with it.
    fn put(&mut self, path: &Arc<str>, change: Option<Change>) -> Option<Change> {
        let now = change.as_ref().and_then(Change::session);
        let before = match change {
            Some(change) => self.changes.insert(path.clone(), change),
            None => self.changes.remove(path),
        };
        let was = before.as_ref().and_then(Change::session);
        if was == now {
            return before;
        }
        if let Some(session) = was
            && let Some(paths) = self.ephemerals.get_mut(&session)
        {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session);
            }
        }
        if let Some(session) = now {
            self.ephemerals.entry(session).or_default().insert(path.clone());
        }
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(owner: i64) -> Option<Node> {
        let acl = NodeAcl::New(Arc::default());
        let (version, aversion, creates, children, mtime, length) = (0, 0, 0, 0, 0, 0);
        let owner = SessionId(owner);
        Some(Node { version, aversion, creates, children, owner, mtime, length, acl })
    }

    fn paths(pending: &Pending, session: i64) -> Vec<String> {
        pending.ephemerals(SessionId(session)).iter().map(|path| path.to_string()).collect()
    }

    #[test]
    fn pending_ephemerals_of_a_session_follow_every_change() {
        let mut pending = Pending::new(KeyedHash::default());
        pending.change("/a", node(1), Zxid(1));
        pending.change("/b", node(1), Zxid(2));
        pending.change("/c", node(2), Zxid(3));
        pending.change("/d", node(0), Zxid(4));
        pending.change("/e", node(i64::MIN), Zxid(5));
        assert_eq!(paths(&pending, 1), ["/a", "/b"]);
        assert!(paths(&pending, 0).is_empty() && paths(&pending, i64::MIN).is_empty());
        pending.change("/a", None, Zxid(6));
        pending.change("/a", node(2), Zxid(7));
        assert_eq!(paths(&pending, 1), ["/b"]);
        assert_eq!(paths(&pending, 2), ["/a", "/c"]);

        pending.begin();
        pending.change("/b", None, Zxid(8));
        pending.change("/f", node(1), Zxid(8));
        pending.change("/b", node(2), Zxid(8));
        assert_eq!(paths(&pending, 1), ["/f"]);
        pending.take_back();
        assert_eq!(paths(&pending, 1), ["/b"]);
        assert!(
            pending.get("/f").is_none() && pending.get("/b").is_some_and(|node| node.is_some())
        );

        pending.applied(Zxid(6));
        assert!(paths(&pending, 1).is_empty(), "the tree has them now");
        assert_eq!(paths(&pending, 2), ["/a"], "changed again since");
        pending.applied(Zxid(7));
        assert!(
            pending.changes.is_empty() && pending.order.is_empty() && pending.ephemerals.is_empty()
        );
    }
}
