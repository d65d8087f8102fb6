//! A node that is kept: created again whenever somebody else has deleted it.
//!
//! Owns the creation and the deletion of its node. Must not outlive its session: a handle ends with
//! that, and the program keeps the node with a new one.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::FutureExt;
use futures::channel::oneshot;
use futures::future::{Shared, select};
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::Stat;

use super::own_node::{delete_own, on_own};
use super::{create_above, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode, CreateOptions};
use crate::session::Failure;

/// A node, ephemeral as a rule, that is there as long as the value of this type and its session
/// live.
///
/// # What it promises
/// After somebody else has deleted the node it is created again, with the last data of this
/// program. If the node is to be ephemeral and another session has it, such as an earlier one of
/// the same program whose timeout has not passed, it is created when that one goes.
///
/// # What it does not promise
/// That the node is there at each moment: after a deletion it is missing for some round trips, or
/// until a lost connection is back. Data that others have set stay until
/// [`PersistentNode::set_data`]. When the session ends, an ephemeral node ends with it:
/// [`PersistentNode::ended`] completes, and the program keeps the node with a new client.
///
/// Dropping the value, or the future of [`PersistentNode::keep`], deletes the node. What is to be
/// ephemeral and is another session's is neither written nor deleted.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, CreateMode, recipes::PersistentNode};
/// loop {
///     let client = Client::connect("127.0.0.1:2181").await?;
///     let mode = CreateMode::Ephemeral;
///     let node = PersistentNode::keep(&client, "/hosts/a", "10.0.0.7:9000", mode).await?;
///     println!("the node is not kept any more: {}", node.ended().await);
/// }
/// # }
/// ```
pub struct PersistentNode {
    kept: Arc<Kept>,
    ended: Shared<oneshot::Receiver<Error>>,
    /// Dropped to end the maintenance.
    alive: Option<oneshot::Sender<()>>,
    is_deleted: bool,
}

/// What the maintenance and the program share.
struct Kept {
    client: Client,
    path: String,
    options: CreateOptions,
    /// The data of the next creation. A call that carries them is queued while this is locked, so
    /// that the servers get old and new data in the right order.
    data: Mutex<Bytes>,
}

impl PersistentNode {
    /// Keeps a node with these data at this path, and returns when it is there. The nodes above are
    /// created as containers. A persistent node that exists gets the data.
    ///
    /// # Errors
    /// `BadArguments` for a sequential mode, which would give the node another name after each
    /// creation; fatal ones; those of [`Client::create`], but for `NodeExists` and `NoNode`.
    pub async fn keep(
        client: &Client,
        path: impl Into<String>,
        data: impl Into<Bytes>,
        options: impl Into<CreateOptions>,
    ) -> Result<PersistentNode, Error> {
        let (client, path, options) = (client.clone(), path.into(), options.into());
        if options.mode.is_sequential() {
            return Err(Error::new("create", path, Failure::Code(ErrorCode::BadArguments)));
        }
        let kept = Arc::new(Kept { client, path, options, data: Mutex::new(data.into()) });
        let (alive, dropped) = oneshot::channel();
        let (ready, created) = oneshot::channel();
        let (sender, ended) = oneshot::channel();
        let own = kept.clone();
        let maintain = async move {
            // Nobody may wait for the end.
            let _ = sender.send(own.maintain(ready).await);
        };
        // The end comes first: after a deletion by this program nothing creates the node again.
        kept.client.detach(select(dropped, maintain.boxed()).map(|_| ()));
        let node =
            PersistentNode { kept, ended: ended.shared(), alive: Some(alive), is_deleted: false };
        match created.await {
            Ok(()) => Ok(node),
            Err(_) => Err(node.ended().await),
        }
    }

    /// The path of the node.
    pub fn path(&self) -> &str {
        &self.kept.path
    }

    /// Replaces the data, also those of later creations.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`; `QuotaExceeded`.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<(), Error> {
        *self.kept.data() = data.into();
        self.kept.write().await
    }

    /// Completes when the node is not kept any more, with the reason: the session has ended, or may
    /// not create the node.
    pub async fn ended(&self) -> Error {
        let closed = || Error::new("create", self.kept.path.clone(), Failure::Closed);
        self.ended.clone().await.unwrap_or_else(|_| closed())
    }

    /// Deletes the node and waits until the servers have done so.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`; `NotEmpty`.
    pub async fn delete(mut self) -> Result<(), Error> {
        self.alive = None;
        // Dropping this future leaves the deletion to the driver.
        let result = self.kept.delete().await;
        self.is_deleted = result.is_ok();
        result
    }
}

impl Drop for PersistentNode {
    fn drop(&mut self) {
        self.alive = None;
        if !self.is_deleted {
            let own = self.kept.clone();
            self.kept.client.detach(async move {
                // A fatal error means that an ephemeral node is deleted anyway.
                let _ = own.delete().await;
            });
        }
    }
}

impl Kept {
    /// Creates the node whenever it is gone, until that is impossible, and returns why.
    async fn maintain(&self, ready: oneshot::Sender<()>) -> Error {
        let mut ready = Some(ready);
        loop {
            if let Err(error) = self.turn(&mut ready).await {
                return error;
            }
        }
    }

    /// Creates the node if it is gone; waits for its next change otherwise.
    async fn turn(&self, ready: &mut Option<oneshot::Sender<()>>) -> Result<(), Error> {
        let Kept { client, path, .. } = self;
        let (stat, watch) = retried(client, || client.exists_and_watch(path)).await?;
        let Some(stat) = stat else {
            let create = || client.create(path, self.data().clone(), self.options.clone());
            return match retried(client, create).await {
                Err(error) if error.is(ErrorCode::NoNode) => create_above(client, path).await,
                Err(error) if !error.is(ErrorCode::NodeExists) => Err(error),
                Ok(_) | Err(_) => Ok(()),
            };
        };
        if self.is_own(&stat)
            && let Some(ready) = ready.take()
        {
            // A node that was there before may have other data.
            self.write().await?;
            // Who has dropped the future does not wait.
            let _ = ready.send(());
        }
        watch.await.map(|_| ())
    }

    /// Writes the data into the node, unless it is gone: its creation takes them.
    async fn write(&self) -> Result<(), Error> {
        let Kept { client, path, .. } = self;
        let set = || client.set(path, self.data().clone(), None);
        on_own(client, path, |stat| self.is_own(stat), true, set).await.map(|_| ())
    }

    async fn delete(&self) -> Result<(), Error> {
        // A creation may be under way, and the node another session's.
        delete_own(&self.client, &self.path, |stat| self.is_own(stat), true).await
    }

    /// May this program write and delete the node?
    fn is_own(&self, stat: &Stat) -> bool {
        self.options.mode != CreateMode::Ephemeral
            || stat.ephemeral_owner == self.client.session_id()
    }

    fn data(&self) -> MutexGuard<'_, Bytes> {
        self.data.lock().expect("no code that holds it panics")
    }
}

impl fmt::Debug for PersistentNode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PersistentNode({}, {:?})", self.kept.path, self.kept.options.mode)
    }
}
