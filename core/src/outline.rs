//! A summary of the tree that a server sets aside, to find the node in which it differs from the
//! ensemble's tree.
//!
//! Owns the rule which differences count: those that later transactions cannot explain, because the
//! tree is compared with one of a later zxid. Must not decide which tree is right.

use std::collections::BTreeMap;
use std::fmt;

use crate::digest::{self, NodeView};
use crate::error::Corrupt;
use crate::ids::Zxid;
use crate::offline::replay_up_to;
use crate::store::Recovered;
use crate::tree::{Tree, split};

/// The nodes of a tree, by path; some hundred bytes each.
#[derive(Clone, Debug)]
pub struct Outline {
    at: Zxid,
    /// The nodes that are not compared yet.
    nodes: BTreeMap<String, NodeOutline>,
}

/// See [`NodeOutline::of`].
#[derive(Clone, Copy, Debug)]
struct NodeOutline {
    czxid: Zxid,
    aversion: i32,
    children: u32,
    content: u64,
    acl: u64,
}

/// The result of [`crate::Server::compare_outline`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum OutlineCompared {
    /// No difference in this part; more nodes are left.
    Unfinished,
    /// Later transactions explain all differences.
    Alike,
    /// The first node that differs, in the order of paths.
    Differs {
        /// Its path.
        path: String,
        /// What differs.
        what: Difference,
    },
}

/// How a node of the outline differs from the same node in the ensemble's tree.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the text of each says it")]
pub enum Difference {
    Missing,
    Another { ours: Zxid, theirs: Zxid },
    Content,
    Acl,
    Children { ours: u32, theirs: u32 },
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Difference::Missing => f.write_str("the ensemble does not have it"),
            Difference::Another { ours, theirs } => {
                write!(f, "it was created at {ours} here, and at {theirs} in the ensemble")
            }
            Difference::Content => f.write_str("its data or statistics were others here"),
            Difference::Acl => f.write_str("its ACL was another one here"),
            Difference::Children { ours, theirs } => {
                write!(f, "it had {ours} children here, and {theirs} in the ensemble")
            }
        }
    }
}

impl Outline {
    /// Builds the outline of the tree at `zxid`, or at the last transaction before it.
    ///
    /// # Errors
    /// Content that passed its checksums and is still inconsistent.
    pub fn at(zxid: Zxid, recovered: Recovered) -> Result<Outline, Corrupt> {
        let (replica, replayed) = replay_up_to(recovered, zxid)?;
        let mut outline = Outline { at: replayed.applied, nodes: BTreeMap::new() };
        replica.visit_nodes(&mut |view| outline.add(view));
        Ok(outline)
    }

    fn add(&mut self, view: &NodeView<'_>) {
        self.nodes.insert(view.path.to_owned(), NodeOutline::of(view));
    }

    /// Compares at most `most` further nodes with a tree of the same zxid or a later one.
    pub(crate) fn compare(&mut self, tree: &Tree, most: usize) -> OutlineCompared {
        for _ in 0..most {
            let Some((path, node)) = self.nodes.pop_first() else {
                return OutlineCompared::Alike;
            };
            if let Some(what) = self.difference(&path, node, tree) {
                return OutlineCompared::Differs { path, what };
            }
        }
        OutlineCompared::Unfinished
    }

    fn difference(&self, path: &str, ours: NodeOutline, tree: &Tree) -> Option<Difference> {
        let Some(theirs) = tree.view_at(path) else {
            let parent = split(path).and_then(|(parent, _)| tree.view_at(parent));
            // If a child was deleted later, the parent's pzxid is later, too.
            let unchanged = parent.is_some_and(|parent| parent.pzxid <= self.at);
            return unchanged.then_some(Difference::Missing);
        };
        if theirs.czxid != ours.czxid {
            let (ours, theirs) = (ours.czxid, theirs.czxid);
            return (theirs <= self.at).then_some(Difference::Another { ours, theirs });
        }
        let as_ours = NodeOutline::of(&theirs);
        if theirs.mzxid <= self.at && as_ours.content != ours.content {
            return Some(Difference::Content);
        }
        // An ACL carries no zxid, only a version.
        if theirs.aversion == ours.aversion && as_ours.acl != ours.acl {
            return Some(Difference::Acl);
        }
        let (ours, theirs) = (ours.children, (theirs.pzxid, theirs.children));
        (theirs.0 <= self.at && theirs.1 > ours)
            .then_some(Difference::Children { ours, theirs: theirs.1 })
    }
}

impl NodeOutline {
    fn of(view: &NodeView<'_>) -> NodeOutline {
        // The ACL, and the fields that changes of children affect, are compared separately.
        let content =
            NodeView { acl: &[], pzxid: Zxid::ZERO, creates: 0, aversion: 0, children: 0, ..*view };
        NodeOutline {
            czxid: view.czxid,
            aversion: view.aversion,
            children: view.children,
            content: digest::node(&content),
            acl: digest::acl(view.acl),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{SessionId, WallMs};
    use crate::rng::{KeyedHash, Rng};
    use crate::tree::NewNode;
    use crate::wire::{Acl, Perms};

    /// Both trees have the same transactions after this zxid; they may differ before.
    const AT: u64 = 10;

    fn create(tree: &mut Tree, path: &str, zxid: u64) {
        let parent = tree.find(split(path).expect("no root").0).expect("the parent exists");
        let parent_creates = tree.node(parent).creates + 1;
        let (data, acl) = (Some(&b"x"[..]), &Acl::open());
        let new = NewNode { path, data, acl, owner: SessionId(0), parent_creates };
        tree.create(new, Zxid(zxid), WallMs(0)).expect("fits");
    }

    fn set(tree: &mut Tree, path: &str, data: &[u8], zxid: u64) {
        let version = tree.node(tree.find(path).expect("exists")).version + 1;
        tree.set_data(path, Some(data), version, Zxid(zxid), WallMs(0)).expect("fits");
    }

    fn delete(tree: &mut Tree, path: &str, zxid: u64) {
        tree.delete(path, Zxid(zxid)).expect("fits");
    }

    fn set_acl(tree: &mut Tree, path: &str, perms: Perms, version: i32) {
        let acl = [Acl { perms, scheme: "world".into(), id: "anyone".into() }];
        tree.set_acl(path, &acl, version).expect("fits");
    }

    fn base() -> Tree {
        let mut tree = Tree::new(KeyedHash::new(&mut Rng::new(7)));
        for (path, zxid) in [("/a", 1), ("/a/b", 2), ("/a/c", 3), ("/d", 4)] {
            create(&mut tree, path, zxid);
        }
        tree
    }

    /// Applies different changes to two copies of one tree, and returns the first difference found.
    fn found(ours: impl Fn(&mut Tree), theirs: impl Fn(&mut Tree)) -> Option<(String, Difference)> {
        let [mut one, mut other] = [base(), base()];
        ours(&mut one);
        theirs(&mut other);
        let mut outline = Outline { at: Zxid(AT), nodes: BTreeMap::new() };
        one.visit(&mut |view| outline.add(view));
        loop {
            match outline.compare(&other, 2) {
                OutlineCompared::Unfinished => {}
                OutlineCompared::Alike => return None,
                OutlineCompared::Differs { path, what } => return Some((path, what)),
            }
        }
    }

    #[test]
    fn difference_without_a_later_transaction_is_reported() {
        let at = |path: &str, what| Some((path.to_owned(), what));
        assert_eq!(
            found(|tree| set(tree, "/a/b", b"ours", 5), |tree| set(tree, "/a/b", b"theirs", 5)),
            at("/a/b", Difference::Content)
        );
        assert_eq!(
            found(|tree| create(tree, "/a/e", 5), |_| {}),
            at("/a/e", Difference::Missing),
            "nothing was deleted below /a since"
        );
        assert_eq!(
            found(|_| {}, |tree| create(tree, "/a/e", 5)),
            at("/a", Difference::Children { ours: 2, theirs: 3 })
        );
        assert_eq!(
            found(|tree| create(tree, "/a/e", 5), |tree| create(tree, "/a/e", 6)),
            at("/a/e", Difference::Another { ours: Zxid(5), theirs: Zxid(6) })
        );
        assert_eq!(
            found(
                |tree| set_acl(tree, "/d", Perms::READ, 1),
                |tree| set_acl(tree, "/d", Perms::ALL, 1)
            ),
            at("/d", Difference::Acl)
        );
    }

    #[test]
    fn change_by_a_later_transaction_is_no_difference() {
        let nothing = |_: &mut Tree| {};
        assert_eq!(found(nothing, nothing), None);
        assert_eq!(found(nothing, |tree| set(tree, "/a/b", b"later", AT + 1)), None);
        assert_eq!(found(nothing, |tree| delete(tree, "/a/b", AT + 1)), None);
        assert_eq!(found(nothing, |tree| create(tree, "/a/e", AT + 1)), None);
        assert_eq!(found(nothing, |tree| set_acl(tree, "/d", Perms::READ, 1)), None);
        let anew = |tree: &mut Tree| {
            delete(tree, "/d", AT + 1);
            create(tree, "/d", AT + 2);
        };
        assert_eq!(found(nothing, anew), None);
        let all_of_it = |tree: &mut Tree| {
            ["/a/b", "/a/c", "/a"].iter().for_each(|path| delete(tree, path, AT + 1));
        };
        assert_eq!(found(nothing, all_of_it), None);
    }
}
