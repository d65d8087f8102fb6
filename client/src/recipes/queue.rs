//! A queue, with priorities (RECIPE-05, RECIPE-06).
//!
//! Owns the names of its nodes and which item comes first. Must not decide whether an item was put
//! or taken whose answer is lost: `once` does.
//!
//! Invariant: an item's name is never used again, so a name that was read before a connection was
//! lost still means the same item. The queue's node is persistent for that: numbers begin anew in a
//! container that a server has deleted while it was empty (seed 33 of 10 s at 666b1d0: a consumer
//! took one item twice, and another one was lost).

use bytes::Bytes;
use zabkeeper_core::ErrorCode;

use super::once::Once;
use super::{child, children_of_persistent, create_if_absent, failed, get_if_there};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi, OneshotWatch};

/// Prefix of the nodes, as in kazoo's `Queue`.
const PREFIX: &str = "entry-";

/// The priority of [`Queue::put`]; a lower one comes first.
const PRIORITY: u16 = 100;
/// The highest priority number.
const PRIORITY_MAX: u16 = 999;

/// A queue of items, the lowest priority number first, and in the order of their arrival among
/// equals.
///
/// # What it promises
/// An item that was put is taken once: a lost answer neither loses nor doubles it. It outlives the
/// session that has put it.
///
/// # What it does not promise
/// That a program which takes an item and fails has finished its work: for that there is a
/// [`WorkQueue`](super::WorkQueue). After a fatal error it is unknown whether the item was put or
/// taken. Consumers that take at the same time try for the same item, and all but one look again.
/// The names of all items have to fit into one reply of the server, some 30,000 by default.
///
/// Lost connections are waited out; an expired session is a fatal error. A future of
/// [`Queue::take`] that is dropped may have taken an item: let it finish. Nodes have the names of
/// kazoo's `Queue`.
#[derive(Debug)]
pub struct Queue {
    client: Client,
    path: String,
    once: Once,
}

impl Queue {
    /// The queue of this path. Its node is created when needed, and stays; those above it are
    /// created as containers.
    pub fn new(client: &Client, path: impl Into<String>) -> Queue {
        let path = path.into();
        let once = Once::new(client, &path);
        Queue::with(client, path, once)
    }

    pub(super) fn with(client: &Client, path: String, once: Once) -> Queue {
        Queue { client: client.clone(), path, once }
    }

    /// Puts an item at the end, with priority 100.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`; `QuotaExceeded`.
    pub async fn put(&mut self, item: impl Into<Bytes>) -> Result<(), Error> {
        self.put_with_priority(PRIORITY, item).await
    }

    /// Puts an item behind those with the same priority, 0 to 999; higher ones count as 999. Lower
    /// ones are taken first.
    ///
    /// # Errors
    /// Those of [`Queue::put`].
    pub async fn put_with_priority(
        &mut self,
        priority: u16,
        item: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.put_before(&format!("{:03}", priority.min(PRIORITY_MAX)), item).await
    }

    /// Puts an item before those with a higher text of the same length, and behind those with the
    /// same one.
    pub(super) async fn put_before(
        &mut self,
        order: &str,
        item: impl Into<Bytes>,
    ) -> Result<(), Error> {
        let entry = child(&self.path, &format!("{PREFIX}{order}-"));
        let mode = CreateMode::PersistentSequential;
        let create = Multi::new().create(entry, item, mode);
        loop {
            match self.once.make(&create).await? {
                Ok(()) => return Ok(()),
                Err(error) if error.code == ErrorCode::NoNode => {
                    create_if_absent(&self.client, &self.path, CreateMode::Persistent).await?;
                }
                Err(error) => return Err(failed("put", &self.path, error)),
            }
        }
    }

    /// The names of the items, the first one first, and a watch for more.
    pub(super) async fn entries(&self) -> Result<(Vec<String>, OneshotWatch), Error> {
        let (mut names, watch) = children_of_persistent(&self.client, &self.path).await?;
        names.retain(|name| name.starts_with(PREFIX));
        names.sort_unstable();
        Ok((names, watch))
    }

    /// The path of an item.
    pub(super) fn entry(&self, name: &str) -> String {
        child(&self.path, name)
    }

    /// Takes the first item, and waits while there is none.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn take(&mut self) -> Result<Bytes, Error> {
        loop {
            let (names, watch) = self.entries().await?;
            if let Some(item) = self.take_one(&names).await? {
                return Ok(item);
            }
            // Others have taken what was there; what has come meanwhile has fired the watch.
            watch.await?;
        }
    }

    /// Takes the first item, if there is one.
    ///
    /// # Errors
    /// Those of [`Queue::take`].
    pub async fn try_take(&mut self) -> Result<Option<Bytes>, Error> {
        let (names, _) = self.entries().await?;
        self.take_one(&names).await
    }

    /// Takes the first one of these items that nobody else takes.
    pub(super) async fn take_one(&mut self, names: &[String]) -> Result<Option<Bytes>, Error> {
        for name in names {
            let path = self.entry(name);
            let found = get_if_there(&self.client, &path).await?;
            let Some((item, _)) = found else { continue };
            match self.once.make(&Multi::new().delete(&path, None)).await? {
                Ok(_) => return Ok(Some(item)),
                Err(error) if error.code == ErrorCode::NoNode => {}
                Err(error) => return Err(failed("take", &path, error)),
            }
        }
        Ok(None)
    }
}
