//! Several locks, held together.
//!
//! Owns the order in which they are acquired. Must not know how one is: `lock` does.

use zabkeeper_core::Zxid;

use super::lock::{Lock, LockGuard};
use crate::error::Error;
use crate::handle::Client;

/// Several locks that a session holds all or none of.
///
/// # What it promises
/// What each [`Lock`] promises. Sessions acquire the locks in the order of their paths, so two that
/// want some of the same ones never wait for each other in a circle.
///
/// # What it does not promise
/// That somebody who takes the same locks one by one, in another order, does not wait for ever.
#[derive(Clone, Debug)]
pub struct MultiLock {
    locks: Vec<Lock>,
}

/// All the locks are held. Dropping it releases them.
#[derive(Debug)]
pub struct MultiLockGuard {
    guards: Vec<LockGuard>,
}

impl MultiLock {
    /// The locks of these paths; a path that is named twice counts once.
    pub fn new(client: &Client, paths: impl IntoIterator<Item = impl Into<String>>) -> MultiLock {
        let mut paths: Vec<String> = paths.into_iter().map(Into::into).collect();
        paths.sort_unstable();
        paths.dedup();
        MultiLock { locks: paths.into_iter().map(|path| Lock::new(client, path)).collect() }
    }

    /// Waits until all locks are held. Dropping the future releases those that are.
    ///
    /// # Errors
    /// Those of [`Lock::acquire`].
    pub async fn acquire(&self) -> Result<MultiLockGuard, Error> {
        let mut guards = Vec::new();
        for lock in &self.locks {
            guards.push(lock.acquire().await?);
        }
        Ok(MultiLockGuard { guards })
    }
}

impl MultiLockGuard {
    /// The fencing token of each lock, in the order of their paths.
    pub fn tokens(&self) -> Vec<Zxid> {
        self.guards.iter().map(LockGuard::token).collect()
    }

    /// Completes when one of the locks is lost; see [`LockGuard::lost`].
    pub async fn lost(&self) {
        let lost = self.guards.iter().map(|guard| Box::pin(guard.lost()));
        futures::future::select_all(lost).await;
    }

    /// Releases all locks and waits until the servers have done so.
    ///
    /// # Errors
    /// Fatal ones: the session has ended, and the locks with it.
    pub async fn release(self) -> Result<(), Error> {
        for guard in self.guards.into_iter().rev() {
            guard.release().await?;
        }
        Ok(())
    }
}
