//! A lock that several readers or one writer hold (RECIPE-09).
//!
//! Owns who waits for whom. Must not decide how a place is taken and left: `protected` does.

use super::lock::{LockGuard, last_of};
use super::protected::ProtectedNode;
use crate::error::Error;
use crate::handle::Client;

/// Prefixes of the nodes, as in Curator's `InterProcessReadWriteLock`.
const READ: &str = "__READ__";
const WRITE: &str = "__WRIT__";

/// What the names of writers contain, those of kazoo's `WriteLock` included, and those of all. Its
/// locks wait for these nodes if they are told `extra_lock_patterns`, see the module `recipes`.
const WRITERS: [&str; 2] = [WRITE, "__lock__"];
const ALL: [&str; 4] = [READ, WRITE, "__lock__", "__rlock__"];

/// A lock that either one writer or any number of readers hold, in the order in which they asked:
/// a reader waits for the writers before it, a writer for everybody before it. So neither readers
/// nor writers can starve.
///
/// # What it promises
/// While the servers know a writer's session, nobody else holds the lock; while they know a
/// reader's, no writer does. Tokens rise from each writer to all that come after it.
///
/// # What it does not promise
/// The same as for a [`Lock`](super::Lock). A reader cannot become a writer: two that tried would
/// wait for each other.
///
/// When the connection is lost the lock is still held; waiting goes on after the reconnection. When
/// the session expires, [`LockGuard::lost`] completes, and waiting fails with a fatal error.
///
/// ```no_run
/// # async fn example() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// use zabkeeper_client::{Client, recipes::RwLock};
/// let client = Client::connect("127.0.0.1:2181").await?;
/// let lock = RwLock::new(&client, "/locks/catalog");
/// let reading = lock.read().await?;
/// reading.release().await?;
/// let writing = lock.write().await?;
/// println!("writing with token {}", writing.token());
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct RwLock {
    client: Client,
    path: String,
}

impl RwLock {
    /// The lock of this path. Its node, and those above it, are created when needed, as containers.
    pub fn new(client: &Client, path: impl Into<String>) -> RwLock {
        RwLock { client: client.clone(), path: path.into() }
    }

    /// Waits until this session reads. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`](super::Lock::acquire).
    pub async fn read(&self) -> Result<LockGuard, Error> {
        self.acquire(READ, &WRITERS).await
    }

    /// Waits until this session writes. Dropping the future gives the place in the queue up.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`](super::Lock::acquire).
    pub async fn write(&self) -> Result<LockGuard, Error> {
        self.acquire(WRITE, &ALL).await
    }

    async fn acquire(&self, prefix: &'static str, blockers: &[&str]) -> Result<LockGuard, Error> {
        let mut node = ProtectedNode::new(&self.client, &self.path, prefix);
        node.create(&[]).await?;
        node.turn("lock", |before| last_of(before, blockers)).await?;
        Ok(LockGuard::new(node))
    }
}
