//! A barrier at the beginning and at the end of a computation (RECIPE-03).
//!
//! Owns who is inside. Must not know what the sessions compute.

use zabkeeper_core::wire::EventType;

use super::{
    child, children_if_there, create_if_absent, delete_detached, delete_if_there, gone, if_there,
    retried, settled,
};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi};

/// The node that tells everybody to begin, as in Curator's `DistributedDoubleBarrier`.
const READY: &str = "ready";

/// Sessions begin together, once `members` of them have come, and end together, once all of them
/// have left or are gone.
///
/// # What it promises
/// Nobody begins before `members` sessions have come. [`Inside::leave`] completes once each session
/// that was inside when it was called has left or has ended.
///
/// # What it does not promise
/// That a session which has come is still there when the others begin: its end counts as leaving.
/// The barrier can be used again only after all have left.
///
/// Lost connections are waited out; an expired session is a fatal error, and for the others it has
/// left. Dropping the future of [`DoubleBarrier::enter`], or an [`Inside`], leaves without waiting.
/// One client may enter several times, and counts as often; what it has given up counts no more.
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
    /// Fatal ones; `NoAuth`; `NoNode` if somebody else has deleted the session's node.
    pub async fn enter(&self) -> Result<Inside, Error> {
        let client = &self.client;
        // Their nodes would count beside the new one. (Seed 0x1129070000f1 of the swarm at
        // 0d38fcd: a session that had given up began alone, since it counted twice.)
        client.deleted_under(&self.path).await;
        let (barrier, name) = (self.path.clone(), client.unique_id());
        let inside = Inside { client: client.clone(), barrier, name, entered: true };
        let own = inside.path();
        create_if_absent(client, &own, CreateMode::Ephemeral).await?;
        let found = retried(client, || client.exists(&own)).await?;
        let came = found.ok_or_else(|| gone("enter", &own))?.czxid;
        loop {
            let ready = child(&self.path, READY);
            let (found, watch) = retried(client, || client.exists_and_watch(&ready)).await?;
            // What is older tells others to begin, or is left from sessions that have ended.
            if found.is_some_and(|stat| stat.mzxid > came) {
                return Ok(inside);
            }
            if members(client, &self.path).await?.len() >= self.members {
                self.announce(&ready).await?;
                return Ok(inside);
            }
            // The node may have gone again: kazoo deletes it when the first member leaves.
            if watch.await?.event == EventType::NodeCreated {
                return Ok(inside);
            }
        }
    }

    /// Tells all who have come to begin. A node that is there may be older than they are.
    async fn announce(&self, ready: &str) -> Result<(), Error> {
        let told = if_there(retried(&self.client, || self.client.set(ready, "", None)).await)?;
        match told {
            Some(_) => Ok(()),
            None => create_if_absent(&self.client, ready, CreateMode::Persistent).await,
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
        // The server of this session may not know yet who has entered with others.
        settled(&client, &self.barrier).await?;
        let mut inside = None;
        loop {
            let mut names = members(&client, &self.barrier).await?;
            let is_alone = names.len() == 1;
            // Who comes later waits for others to come, and may be one that has just left.
            let inside = inside.get_or_insert_with(|| names.clone());
            names.retain(|name| inside.contains(name));
            if self.entered && !names.contains(&self.name) {
                return Err(gone("leave", &self.path()));
            }
            let (Some(first), Some(last)) = (names.first(), names.last()) else { return Ok(()) };
            if self.entered && (names.len() == 1 || *first != self.name) {
                self.delete(is_alone).await?;
                continue;
            }
            let awaited = child(&self.barrier, if self.entered { last } else { first });
            let (found, watch) = retried(&client, || client.exists_and_watch(&awaited)).await?;
            if found.is_some() {
                watch.await?;
            }
        }
    }

    /// Deletes the node; with the last one, also what has told all to begin. In one transaction: a
    /// moment later it may tell that to others.
    async fn delete(&mut self, is_last: bool) -> Result<(), Error> {
        let (client, own) = (&self.client, self.path());
        if is_last {
            let both = Multi::new().delete(&own, None).delete(child(&self.barrier, READY), None);
            // It fails if an earlier attempt was made, or if somebody else has deleted a node.
            let _ = retried(client, || client.multi(both.clone())).await?;
        }
        delete_if_there(client, &own).await?;
        self.entered = false;
        Ok(())
    }
}

/// The names of the nodes of those who have come and have not left, in order.
async fn members(client: &Client, barrier: &str) -> Result<Vec<String>, Error> {
    let mut names = children_if_there(client, barrier).await?;
    names.retain(|name| name != READY);
    names.sort_unstable();
    Ok(names)
}

impl Drop for Inside {
    fn drop(&mut self) {
        if self.entered {
            delete_detached(&self.client, self.path());
        }
    }
}
