//! A barrier at the beginning and at the end of a computation (RECIPE-03).
//!
//! Owns who is inside. Must not know what the sessions compute.

use zabkeeper_core::wire::EventType;

use super::{
    child, children_if_there, create_if_absent, delete_detached, delete_if_there, gone, retried,
};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// The node that tells everybody to begin, as in Curator's `DistributedDoubleBarrier`.
const READY: &str = "ready";

/// Sessions begin together, once `members` of them have come, and end together, once all of them
/// have left or are gone.
///
/// # What it promises
/// Nobody begins before `members` sessions have come. Nobody's [`Inside::leave`] completes while
/// another session that is inside has not left and lives.
///
/// # What it does not promise
/// That a session which has come is still there when the others begin: its end counts as leaving.
/// The barrier can be used again only after all have left.
///
/// Lost connections are waited out; an expired session is a fatal error, and for the others it has
/// left. Dropping the future of [`DoubleBarrier::enter`], or an [`Inside`], leaves without waiting.
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    client: Client,
    path: String,
    members: usize,
}

/// A session that has entered.
#[derive(Debug)]
pub struct Inside {
    client: Client,
    barrier: String,
    name: String,
    /// Dropping it deletes the node.
    entered: bool,
}

impl DoubleBarrier {
    /// The barrier of this path for this many sessions. Its node, and those above it, are created
    /// when needed, as containers.
    pub fn new(client: &Client, path: impl Into<String>, members: usize) -> DoubleBarrier {
        DoubleBarrier { client: client.clone(), path: path.into(), members }
    }

    /// Waits until enough sessions have come.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn enter(&self) -> Result<Inside, Error> {
        let (client, barrier) = (self.client.clone(), self.path.clone());
        let name = client.unique_id();
        let inside = Inside { client, barrier, name, entered: true };
        let (own, ready) = (inside.path(), child(&self.path, READY));
        create_if_absent(&self.client, &own, CreateMode::Ephemeral).await?;
        loop {
            let find = || self.client.exists_and_watch(&ready);
            let (found, watch) = retried(&self.client, find).await?;
            if found.is_some() {
                return Ok(inside);
            }
            let (names, _) = retried(&self.client, || self.client.children(&self.path)).await?;
            if names.iter().filter(|name| *name != READY).count() >= self.members {
                create_if_absent(&self.client, &ready, CreateMode::Persistent).await?;
                return Ok(inside);
            }
            // The node may have gone again: kazoo deletes it when the first member leaves.
            if watch.await?.event == EventType::NodeCreated {
                return Ok(inside);
            }
        }
    }
}

impl Inside {
    fn path(&self) -> String {
        child(&self.barrier, &self.name)
    }

    /// Waits until everybody who is inside has left. The one with the lowest name leaves last, so
    /// that each session but this one waits for one node only.
    ///
    /// # Errors
    /// Fatal ones; `NoNode` if somebody else has deleted the session's node.
    pub async fn leave(mut self) -> Result<(), Error> {
        let client = self.client.clone();
        loop {
            let mut names = children_if_there(&client, &self.barrier).await?;
            names.retain(|name| name != READY);
            names.sort_unstable();
            let is_inside = names.contains(&self.name);
            if self.entered && !is_inside {
                return Err(gone("leave", &self.path()));
            }
            let (Some(first), Some(last)) = (names.first(), names.last()) else { break };
            if self.entered && (names.len() == 1 || *first != self.name) {
                delete_if_there(&client, &self.path()).await?;
                self.entered = false;
                continue;
            }
            let awaited = child(&self.barrier, if self.entered { last } else { first });
            let (found, watch) = retried(&client, || client.exists_and_watch(&awaited)).await?;
            if found.is_some() {
                watch.await?;
            }
        }
        delete_if_there(&client, &child(&self.barrier, READY)).await
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.entered {
            delete_detached(&self.client, self.path());
        }
    }
}
