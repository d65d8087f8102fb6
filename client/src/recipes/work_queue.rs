//! A queue whose items are acknowledged.
//!
//! Owns who works at which item. Must not decide which item comes first: `queue` does.

use bytes::Bytes;
use futures::future::select;
use zabkeeper_core::ErrorCode;

use super::once::Once;
use super::own_node::OwnNode;
use super::queue::Queue;
use super::{child, children_of_persistent, failed, get_if_there};
use crate::error::Error;
use crate::handle::{Client, Multi};

/// Names of the nodes, as in kazoo's `LockingQueue`.
const ENTRIES: &str = "entries";
const TAKEN: &str = "taken";

/// A queue of work: a session claims an item, and the item goes when the work is acknowledged. If
/// the session ends before, the item is offered again.
///
/// # What it promises
/// Each item is worked at until somebody acknowledges it: at least once. One session at a time
/// works at it, as far as the servers know. With [`Job::complete_with`] the result of the work
/// becomes visible in the same transaction that removes the item: exactly once.
///
/// # What it does not promise
/// That a worker knows in time that its session has expired and another one has begun with the same
/// item. Its acknowledgement fails then, and the transaction of [`Job::complete_with`] is not made.
/// The names of all items have to fit into one reply of the server, some 30,000 by default.
///
/// Lost connections are waited out; an expired session is a fatal error. Nodes have the names of
/// kazoo's `LockingQueue`.
#[derive(Debug)]
pub struct WorkQueue {
    client: Client,
    path: String,
    items: Queue,
    taken: String,
}

/// An item that this session works at. Dropping it offers the item again.
#[derive(Debug)]
pub struct Job {
    entry: String,
    /// The node that keeps others away.
    taken: OwnNode,
    item: Bytes,
    once: Once,
}

impl WorkQueue {
    /// The queue of this path. Its nodes are created when needed.
    pub fn new(client: &Client, path: impl Into<String>) -> WorkQueue {
        let path = path.into();
        let items = Queue::with(client, child(&path, ENTRIES), Once::new(client, &path));
        WorkQueue { client: client.clone(), items, taken: child(&path, TAKEN), path }
    }

    /// Puts an item at the end, with priority 100.
    ///
    /// # Errors
    /// Those of [`Queue::put`](super::Queue::put).
    pub async fn put(&mut self, item: impl Into<Bytes>) -> Result<(), Error> {
        self.items.put(item).await
    }

    /// Puts an item behind those with the same priority, 0 to 999; see
    /// [`Queue::put_with_priority`](super::Queue::put_with_priority).
    ///
    /// # Errors
    /// Those of [`Queue::put`](super::Queue::put).
    pub async fn put_with_priority(
        &mut self,
        priority: u16,
        item: impl Into<Bytes>,
    ) -> Result<(), Error> {
        self.items.put_with_priority(priority, item).await
    }

    /// Claims the first item that nobody works at, and waits while there is none. A future that is
    /// dropped may keep an item until the session ends: let it finish.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn claim(&self) -> Result<Job, Error> {
        loop {
            let (taken, released) = children_of_persistent(&self.client, &self.taken).await?;
            let (names, come) = self.items.entries().await?;
            for name in names.iter().filter(|name| !taken.contains(name)) {
                if let Some(job) = self.claim_one(name).await? {
                    return Ok(job);
                }
            }
            select(released, come).await.factor_first().0?;
        }
    }

    async fn claim_one(&self, name: &str) -> Result<Option<Job>, Error> {
        let (client, taken) = (&self.client, child(&self.taken, name));
        let id = Bytes::from(client.unique_id());
        let taken = match OwnNode::claim(client, taken, &id, |data, _| data == id).await {
            Ok(taken) => taken,
            Err(error) if error.is(ErrorCode::NodeExists) || error.is(ErrorCode::NoNode) => {
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        let (entry, once) = (self.items.entry(name), Once::new(client, &self.path));
        let mut job = Job { entry, taken, item: Bytes::new(), once };
        // Another worker may have acknowledged it meanwhile; dropping the job releases its name.
        Ok(get_if_there(client, &job.entry).await?.map(|(item, _)| {
            job.item = item;
            job
        }))
    }
}

impl Job {
    /// The item.
    pub fn item(&self) -> &Bytes {
        &self.item
    }

    /// Acknowledges the work: the item is removed.
    ///
    /// # Errors
    /// Those of [`Job::complete_with`].
    pub async fn complete(self) -> Result<(), Error> {
        self.complete_with(Multi::new()).await
    }

    /// Makes these changes and removes the item, in one transaction.
    ///
    /// # Errors
    /// Fatal ones; `NoNode` if the item is not this session's any more, or that of the operation
    /// which has failed. Then nothing is changed, and the item is offered again.
    pub async fn complete_with(mut self, changes: Multi) -> Result<(), Error> {
        let all = changes.delete(self.taken.path(), None).delete(&self.entry, None);
        match self.once.make(&all).await? {
            Ok(_) => {
                self.taken.forget();
                Ok(())
            }
            Err(error) => Err(failed("complete", &self.entry, error)),
        }
    }
}
