//! A fair lock (RECIPE-07).
//!
//! Owns what a holder and a waiter may do. Must not decide whose turn it is: `protected` does.

use std::time::Duration;

use zabkeeper_core::Zxid;

use super::protected::ProtectedNode;
use crate::error::Error;
use crate::handle::Client;

/// Prefix of the nodes, as in Curator's `InterProcessMutex`.
const PREFIX: &str = "lock-";

/// What the names of all holders and waiters contain, those of kazoo's `Lock` included. It waits
/// for these nodes if it is told `extra_lock_patterns=["-lock-"]`.
const LOCKS: [&str; 2] = [PREFIX, "__lock__"];

/// Data that ask the holder of a node to release it, as Curator's `Revoker` writes them.
const REVOKE: &[u8] = b"__REVOKE__";

/// A lock that one session at a time holds, in the order in which they asked for it.
///
/// # What it promises
/// While the servers know the holder's session, no other session gets the lock. Who waits is woken
/// alone, by the one before it. A lost reply or a dropped future leaves no node behind that would
/// block the others for longer than the session lives.
///
/// # What it does not promise
/// That the holder *knows* in time when it has lost the lock: its process may stand still while the
/// session expires, and go on afterwards. No lock in the world can promise that. So a resource that
/// must not be changed by two holders checks the [token](LockGuard::token) of each request and
/// refuses a lower one than it has seen; tokens rise from holder to holder.
///
/// That it works with any number of waiters: their names have to fit into one reply of the server,
/// some 20,000 by default. Beyond that acquiring fails, and a node may stay until its session ends.
///
/// When the connection is lost the lock is still held, as long as the session lives; waiting goes
/// on after the reconnection. When the session expires, or no server has answered for its timeout,
/// [`LockGuard::lost`] completes; waiting fails with a fatal error once a server says that the
/// session has expired.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::Lock};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let guard = Lock::new(&client, "/locks/printer").acquire().await?;
/// println!("printing with token {}", guard.token());
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Lock {
    client: Client,
    path: String,
    data: Vec<u8>,
}

/// A lock that is held. Dropping it releases the lock; [`LockGuard::release`] also waits for that.
#[derive(Debug)]
pub struct LockGuard {
    node: ProtectedNode,
}

/// The last one of these siblings whose name contains one of the texts.
pub(super) fn last_of<'a>(siblings: &[&'a str], texts: &[&str]) -> Option<&'a str> {
    let contains = |name: &&&str| texts.iter().any(|text| name.contains(text));
    siblings.iter().rev().find(contains).copied()
}

impl Lock {
    /// The lock of this path. Its node, and those above it, are created when needed, as containers.
    pub fn new(client: &Client, path: impl Into<String>) -> Lock {
        Lock { client: client.clone(), path: path.into(), data: Vec::new() }
    }

    /// The same, with this text in the nodes of those that hold it or wait, for operators.
    pub fn with_data(mut self, data: impl Into<Vec<u8>>) -> Lock {
        self.data = data.into();
        self
    }

    /// Waits until the lock is held. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// Fatal ones when the session ends; `NoAuth`; `NoNode` if somebody else has deleted the place
    /// in the queue, which shows when its turn comes, or if the chroot does not exist. Lost
    /// connections are waited out.
    pub async fn acquire(&self) -> Result<LockGuard, Error> {
        let node = self.enqueue().await?;
        node.turn("lock", |before| last_of(before, &LOCKS)).await?;
        Ok(LockGuard::new(node))
    }

    /// [`Lock::acquire`] for at most this time, by the driver's clock; `None` if others hold the
    /// lock until then. A time of zero takes a lock that is free.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub async fn acquire_within(&self, time: Duration) -> Result<Option<LockGuard>, Error> {
        let node = self.enqueue().await?;
        if node.turn_within("lock", time, |before| last_of(before, &LOCKS)).await? {
            return Ok(Some(LockGuard::new(node)));
        }
        node.delete().await?;
        Ok(None)
    }

    async fn enqueue(&self) -> Result<ProtectedNode, Error> {
        let mut node = ProtectedNode::new(&self.client, &self.path, PREFIX);
        node.create(&self.data).await?;
        Ok(node)
    }

    /// Asks the holder or waiter with this node to release the lock, by the data of the node
    /// (RECIPE-10): see [`LockGuard::revoked`]. The paths of all of them are the children of the
    /// lock's node.
    ///
    /// # Errors
    /// Those of [`Client::set`].
    pub async fn revoke(client: &Client, node: &str) -> Result<(), Error> {
        client.set(node, REVOKE, None).await.map(|_| ())
    }
}

impl LockGuard {
    pub(super) fn new(node: ProtectedNode) -> LockGuard {
        LockGuard { node }
    }

    /// The fencing token: the zxid at which this holder has taken its place. Each later holder has
    /// a higher one, also after the lock's node was deleted and created again.
    pub fn token(&self) -> Zxid {
        self.node.zxid()
    }

    /// The path of the holder's node.
    pub fn path(&self) -> String {
        self.node.path()
    }

    /// Completes when the lock is lost or may be: somebody has deleted the node, the session has
    /// ended, or no server has answered for the session timeout ([`Client::session_lost`]). It
    /// cannot complete while the process stands still; see [`Lock`].
    pub async fn lost(&self) {
        self.node.lost().await;
    }

    /// Completes when somebody asks the holder to release the lock (RECIPE-10; Curator's
    /// `Revocable`), or when the lock is lost. Whether the holder obeys, and when, is its decision.
    pub async fn revoked(&self) {
        // An error means that the session has ended.
        let _ = self.node.has_data(REVOKE).await;
    }

    /// Releases the lock and waits until the servers have done so, without a limit while there is
    /// no connection. Dropping the future leaves the rest to the driver.
    ///
    /// # Errors
    /// Fatal ones: the session has ended, and the lock with it.
    pub async fn release(self) -> Result<(), Error> {
        self.node.delete().await
    }
}
