//! Transactions that are made once, although their answer may be lost.
//!
//! Owns the marker that tells whether the last one was made. Must not know what a transaction does.
//!
//! Each transaction also writes its number into an ephemeral node of the session, beside the nodes
//! of the recipe. After a lost answer the number there says whether the transaction was made, once
//! that is settled.

use super::{NO_ROOM_PAUSE, create_if_absent, delete_detached, get_if_there, lacks_room, settled};
use crate::error::Error;
use crate::handle::{Client, CreateMode, Multi, MultiError};

/// See the module.
#[derive(Debug)]
pub(super) struct Once {
    client: Client,
    /// The marker.
    path: String,
    /// The number of the last transaction.
    last: u64,
}

impl Once {
    /// For the recipe whose node is `path`; the markers are children of `path.once`, a container.
    pub(super) fn new(client: &Client, path: &str) -> Once {
        let path = format!("{}.once/{}", path.trim_end_matches('/'), client.unique_id());
        Once { client: client.clone(), path, last: 0 }
    }

    /// Makes the transaction once, or fails without having made it. Fatal errors leave that open.
    pub(super) async fn make(&mut self, multi: &Multi) -> Result<Result<(), MultiError>, Error> {
        self.last += 1;
        let number = self.last.to_string();
        loop {
            let marked = multi.clone().set(&self.path, number.clone(), None);
            match self.client.multi(marked).await {
                Ok(Ok(_)) => return Ok(Ok(())),
                Ok(Err(failed)) if failed.operation == multi.len() => {
                    create_if_absent(&self.client, &self.path, CreateMode::Ephemeral).await?
                }
                Ok(Err(failed)) => return Ok(Err(failed)),
                Err(error) if error.is_recoverable() => {
                    self.client.connected().await?;
                    if self.is_made(&number).await? {
                        return Ok(Ok(()));
                    }
                }
                Err(error) if lacks_room(&error) => self.client.sleep(NO_ROOM_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    async fn is_made(&self, number: &str) -> Result<bool, Error> {
        settled(&self.client, &self.path).await?;
        let found = get_if_there(&self.client, &self.path).await?;
        Ok(found.is_some_and(|(data, _)| data == number))
    }
}

impl Drop for Once {
    fn drop(&mut self) {
        if self.last > 0 {
            delete_detached(&self.client, self.path.clone());
        }
    }
}
