//! Operations on a node and everything below it (CLIENT-16; Java: `ZKUtil`).
//!
//! Owns their order. Must not promise that nobody else changes the subtree meanwhile: each is many
//! requests, sent ahead of their answers.

use futures::stream::{self, StreamExt};
use zabkeeper_core::ErrorCode;

use super::Client;
use crate::error::Error;

/// Requests that are under way at once.
const AHEAD: usize = 256;

/// The node of ZooKeeper's own data, which no client may delete.
const SYSTEM: &str = "/zookeeper";

impl Client {
    /// The paths of a node and of all nodes below it, each after its parent, level by level, and in
    /// the order of their names among siblings. Nodes that are deleted meanwhile are left out.
    ///
    /// # Errors
    /// `NoNode` if the node itself is absent; `NoAuth`; recoverable ones after a lost connection.
    pub async fn subtree(&self, path: impl Into<String>) -> Result<Vec<String>, Error> {
        let path = path.into();
        let mut level = vec![path.clone()];
        let mut all = level.clone();
        while !level.is_empty() {
            let lists = level.iter().map(|parent| self.children(parent));
            let mut lists = stream::iter(lists).buffered(AHEAD).zip(stream::iter(&level));
            let mut next = Vec::new();
            while let Some((found, parent)) = lists.next().await {
                let mut names = match found {
                    Ok((names, _)) => names,
                    Err(error) if error.is(ErrorCode::NoNode) && *parent != path => continue,
                    Err(error) => return Err(error),
                };
                names.sort_unstable();
                let prefix = parent.trim_end_matches('/');
                next.extend(names.into_iter().map(|name| format!("{prefix}/{name}")));
            }
            drop(lists);
            all.extend_from_slice(&next);
            level = next;
        }
        Ok(all)
    }

    /// Deletes a node and all nodes below it, the deepest first, and returns how many; of the root
    /// everything but ZooKeeper's own nodes. What others have deleted meanwhile is no error.
    ///
    /// # Errors
    /// `NoNode` if the node itself is absent; `NotEmpty` if somebody creates nodes there meanwhile;
    /// `NoAuth`; recoverable ones after a lost connection. A part may be deleted then.
    pub async fn delete_subtree(&self, path: impl Into<String>) -> Result<usize, Error> {
        let path = path.into();
        let mut paths = self.subtree(&path).await?;
        if path == "/" {
            paths.retain(|path| path != "/" && !is_system(path));
        }
        let mut deleted = 0;
        let deletions = paths.iter().rev().map(|path| self.delete(path, None));
        let mut deletions = stream::iter(deletions).buffered(AHEAD);
        while let Some(result) = deletions.next().await {
            match result {
                Ok(()) => deleted += 1,
                Err(error) if error.is(ErrorCode::NoNode) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }
}

fn is_system(path: &str) -> bool {
    path.strip_prefix(SYSTEM).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}
