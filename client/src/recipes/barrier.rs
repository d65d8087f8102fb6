//! A barrier that everybody waits at until somebody removes it (RECIPE-02).
//!
//! Owns nothing but its node. Must not know who waits.

use super::{create_if_absent, delete_if_there, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// A barrier: while its node exists, [`Barrier::wait`] waits.
///
/// # What it promises
/// Nobody passes who began to wait, at a server that knew of the barrier, before it was removed.
/// The node stays when the session that has set it ends.
///
/// # What it does not promise
/// That a server which lags behind knows of the barrier: put a [`Client::sync`] before
/// [`Barrier::wait`] where somebody has told the program that it is set. A barrier that is set
/// again at once may let some through and others not.
///
/// Lost connections are waited out; an expired session is a fatal error. The node is that of
/// Curator's `DistributedBarrier` and of kazoo's `Barrier`.
#[derive(Clone, Debug)]
pub struct Barrier {
    client: Client,
    path: String,
}

impl Barrier {
    /// The barrier of this path.
    pub fn new(client: &Client, path: impl Into<String>) -> Barrier {
        Barrier { client: client.clone(), path: path.into() }
    }

    /// Sets the barrier. It may be set already.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn set(&self) -> Result<(), Error> {
        create_if_absent(&self.client, &self.path, CreateMode::Persistent).await
    }

    /// Removes the barrier, if it is set, and lets everybody pass.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn remove(&self) -> Result<(), Error> {
        delete_if_there(&self.client, &self.path).await
    }

    /// Waits until the barrier is not set.
    ///
    /// # Errors
    /// Fatal ones.
    pub async fn wait(&self) -> Result<(), Error> {
        loop {
            match retried(&self.client, || self.client.exists_and_watch(&self.path)).await? {
                (None, _) => return Ok(()),
                (Some(_), watch) => watch.await.map(|_| ())?,
            }
        }
    }
}
