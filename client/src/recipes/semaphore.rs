//! A semaphore: at most so many sessions at a time.
//!
//! Owns when a lease is granted. Must not decide whose turn it is to ask: a lock does.

use zabkeeper_core::{ErrorCode, Zxid};

use super::lock::Lock;
use super::protected::ProtectedNode;
use super::{child, gone, retried};
use crate::error::Error;
use crate::handle::Client;

/// Names of the nodes, as in Curator's `InterProcessSemaphoreV2`.
const LOCKS: &str = "locks";
const LEASES: &str = "leases";
const PREFIX: &str = "lease-";

/// At most `leases` leases at a time, in the order in which sessions asked for them.
///
/// # What it promises
/// While the servers know their sessions, no more than `leases` leases are held, if all programs
/// give the same number. One session at a time watches for a free lease, so a release wakes no
/// herd.
///
/// # What it does not promise
/// That a holder knows in time when it has lost its lease; see [`Lock`]. The
/// [token](Lease::token) of a lease rises from holder to holder.
///
/// When the connection is lost a lease is still held; waiting goes on after the reconnection. When
/// the session expires, [`Lease::lost`] completes, and waiting fails with a fatal error.
#[derive(Clone, Debug)]
pub struct Semaphore {
    client: Client,
    lock: Lock,
    path: String,
    leases: usize,
}

/// A lease that is held. Dropping it returns the lease; [`Lease::release`] also waits for that.
#[derive(Debug)]
pub struct Lease {
    node: ProtectedNode,
}

impl Semaphore {
    /// The semaphore of this path, with this many leases. Its nodes are created when needed, as
    /// containers.
    pub fn new(client: &Client, path: impl Into<String>, leases: usize) -> Semaphore {
        let path = path.into();
        let lock = Lock::new(client, child(&path, LOCKS));
        Semaphore { client: client.clone(), lock, path: child(&path, LEASES), leases }
    }

    /// Waits until this session holds a lease. Dropping the future gives the place up.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<Lease, Error> {
        let guard = self.lock.acquire().await?;
        let mut node = ProtectedNode::new(&self.client, &self.path, PREFIX);
        node.create(&[]).await?;
        loop {
            let list = retried(&self.client, || self.client.children_and_watch(&self.path)).await;
            let (names, watch) = match list {
                Ok((names, _, watch)) => (names, watch),
                Err(error) if error.is(ErrorCode::NoNode) => {
                    return Err(gone("semaphore", &node.path()));
                }
                Err(error) => return Err(error),
            };
            if !names.iter().any(|name| name == node.name()) {
                return Err(gone("semaphore", &node.path()));
            }
            if names.iter().filter(|name| name.contains(PREFIX)).count() <= self.leases {
                break;
            }
            watch.await?;
        }
        guard.release().await?;
        Ok(Lease { node })
    }
}

impl Lease {
    /// The fencing token: the zxid at which this holder's node was created. Each later holder has a
    /// higher one.
    pub fn token(&self) -> Zxid {
        self.node.zxid()
    }

    /// Completes when the lease is lost; see [`LockGuard::lost`](super::LockGuard::lost).
    pub async fn lost(&self) {
        self.node.lost().await;
    }

    /// Returns the lease and waits until the servers know.
    ///
    /// # Errors
    /// Fatal ones: the session has ended, and the lease with it.
    pub async fn release(self) -> Result<(), Error> {
        self.node.delete().await
    }
}
