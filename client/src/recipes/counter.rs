//! A counter that sessions share.
//!
//! Owns its format and the repetition of a change that another one has overtaken. Must not decide
//! whether a change was made whose answer is lost: `once` does.

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::Stat;

use super::once::Once;
use super::{create_above, failed, get_if_there, retried};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi};
use crate::session::Failure;

/// A whole number that sessions share and change atomically.
///
/// # What it promises
/// Each successful [`Counter::add`] is made exactly once, also if its answer is lost: it is a
/// transaction with a node of the session that remembers it. A value is what all additions before
/// it have made together.
///
/// # What it does not promise
/// After a fatal error it is unknown whether the addition was made. [`Counter::get`] may be behind
/// by what the session's server has not applied yet; put a [`Client::sync`] before it where that
/// matters.
///
/// Additions wait out lost connections, and fail with a fatal error when the session expires. One
/// that is dropped may be made. The data are eight bytes, most significant first, as those of
/// Curator's `DistributedAtomicLong`; a node without data counts as zero.
#[derive(Debug)]
pub struct Counter {
    client: Client,
    path: String,
    once: Once,
}

impl Counter {
    /// The counter of this path. The first addition creates it, with zero, and the nodes above it.
    pub fn new(client: &Client, path: impl Into<String>) -> Counter {
        let path = path.into();
        Counter { client: client.clone(), once: Once::new(client, &path), path }
    }

    /// The value; zero if there is no node.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`; [`Failure::UnexpectedData`] if the node is no counter.
    pub async fn get(&self) -> Result<i64, Error> {
        Ok(self.read().await?.map_or(0, |(value, _)| value))
    }

    /// Adds `delta`, and returns the new value.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`; [`Failure::UnexpectedData`] if the node is no counter, or if the new
    /// value does not fit into 64 bits.
    pub async fn add(&mut self, delta: i64) -> Result<i64, Error> {
        loop {
            let Some((value, stat)) = self.read().await? else {
                self.create().await?;
                continue;
            };
            let unfit = || Error::new("add", self.path.clone(), Failure::UnexpectedData);
            let value = value.checked_add(delta).ok_or_else(unfit)?;
            let set = Multi::new().set(&self.path, bytes(value), stat.version);
            match self.once.make(&set).await? {
                Ok(_) => return Ok(value),
                // Another session was faster, or has deleted the counter.
                Err(error) if matches!(error.code, ErrorCode::BadVersion | ErrorCode::NoNode) => {}
                Err(error) => return Err(failed("add", &self.path, error)),
            }
        }
    }

    async fn read(&self) -> Result<Option<(i64, Stat)>, Error> {
        let Some((data, stat)) = get_if_there(&self.client, &self.path).await? else {
            return Ok(None);
        };
        if data.is_empty() {
            return Ok(Some((0, stat)));
        }
        match data[..].try_into() {
            Ok(bytes) => Ok(Some((i64::from_be_bytes(bytes), stat))),
            Err(_) => Err(Error::new("get", self.path.clone(), Failure::UnexpectedData)),
        }
    }

    async fn create(&self) -> Result<(), Error> {
        let create = || self.client.create(&self.path, bytes(0), CreateMode::Persistent);
        match retried(&self.client, create).await {
            Err(error) if error.is(ErrorCode::NoNode) => {
                create_above(&self.client, &self.path).await
            }
            Err(error) if !error.is(ErrorCode::NodeExists) => Err(error),
            Ok(_) | Err(_) => Ok(()),
        }
    }
}

fn bytes(value: i64) -> Bytes {
    Bytes::copy_from_slice(&value.to_be_bytes())
}
