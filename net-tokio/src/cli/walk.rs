//! Reads a subtree: statistics and children of each node.
//!
//! Owns the order and the number of requests under way. Must not print.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use zabkeeper_client::{Client, ErrorCode, Stat};

use super::failure::Failed;
use super::output::Progress;

/// Requests that are under way at a time.
pub(crate) const AHEAD: usize = 128;

/// The node of ZooKeeper itself, and those below it.
pub(crate) const SYSTEM: &str = "/zookeeper";

/// A node of a subtree.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Node {
    pub(crate) path: String,
    /// Levels below the first node.
    pub(crate) depth: usize,
    pub(crate) stat: Stat,
    /// The names of its children, sorted.
    pub(crate) children: Vec<String>,
}

/// A subtree: each node before its children, these sorted by name.
#[derive(Debug, Default)]
pub(crate) struct Subtree {
    pub(crate) nodes: Vec<Node>,
    /// Nodes that may not be read.
    pub(crate) denied: Vec<String>,
}

/// What a node means that may not be read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Denied {
    /// The walk fails.
    Fails,
    /// The walk leaves it out and says so.
    IsLeftOut,
}

/// Reads the subtree of a node. Nodes that are deleted meanwhile are left out.
pub(crate) async fn walk(
    client: &Client,
    root: &str,
    progress: &mut Progress<'_>,
    denied: Denied,
) -> Result<Subtree, Failed> {
    let mut found: BTreeMap<String, (Stat, Vec<String>)> = BTreeMap::new();
    let mut subtree = Subtree::default();
    let mut level = vec![root.to_owned()];
    while !level.is_empty() {
        let mut next = Vec::new();
        let calls = level.iter().map(|path| client.children(path));
        let mut replies = stream::iter(calls).buffered(AHEAD).zip(stream::iter(&level));
        while let Some((reply, path)) = replies.next().await {
            progress.add(1);
            match reply {
                Ok((mut names, stat)) => {
                    names.sort_unstable();
                    next.extend(names.iter().map(|name| child(path, name)));
                    found.insert(path.clone(), (stat, names));
                }
                Err(error) if error.is(ErrorCode::NoNode) && path != root => {}
                Err(error) if error.is(ErrorCode::NoAuth) && denied == Denied::IsLeftOut => {
                    subtree.denied.push(path.clone());
                }
                Err(error) => return Err(error.into()),
            }
        }
        drop(replies);
        level = next;
    }
    let mut ahead = vec![(root.to_owned(), 0)];
    while let Some((path, depth)) = ahead.pop() {
        let Some((stat, children)) = found.remove(&path) else { continue };
        ahead.extend(children.iter().rev().map(|name| (child(&path, name), depth + 1)));
        subtree.nodes.push(Node { path, depth, stat, children });
    }
    Ok(subtree)
}

/// The path of a child.
pub(crate) fn child(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// The last name of a path.
pub(crate) fn name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

/// Is it one of ZooKeeper's own nodes?
pub(crate) fn is_system(path: &str) -> bool {
    path.strip_prefix(SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
