//! An ephemeral node whose name others may take once it is gone.
//!
//! Owns its creation, its data and its deletion, also when an answer is lost or a future is
//! dropped. Must not write or delete a node of anybody else: while an answer is lost, the node may
//! go, and the name be taken again. (Seed 0x112904000549 of the swarm at e783f6f4: a worker deleted
//! its claim twice, and the second time it was another worker's.)

use bytes::Bytes;
use zabkeeper_core::wire::Stat;
use zabkeeper_core::{ErrorCode, Zxid};

use super::{NO_ROOM_PAUSE, get_if_there, gone, if_there, lacks_room, retried, settled};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// See the module. Dropping it deletes the node.
#[derive(Debug)]
pub(super) struct OwnNode {
    client: Client,
    /// Empty once the node is gone.
    path: String,
    czxid: Zxid,
    /// A deletion has been asked for, and may have been made.
    may_be_gone: bool,
}

impl OwnNode {
    /// Creates the node, once an earlier one of this session is gone: its deletion may be under
    /// way, and would take this one. (Seed 0x5509 with programs of `Group`.)
    ///
    /// # Errors
    /// `NodeExists` if the node is another session's; fatal ones; those of [`Client::create`].
    pub(super) async fn create(
        client: &Client,
        path: String,
        data: &Bytes,
    ) -> Result<OwnNode, Error> {
        let is_ours = |stat: &Stat| stat.ephemeral_owner == client.session_id();
        while retried(client, || client.exists(&path)).await?.is_some_and(|stat| is_ours(&stat)) {
            if let (Some(_), gone) = retried(client, || client.exists_and_watch(&path)).await? {
                gone.await?;
            }
        }
        OwnNode::claim(client, path, data, |_, stat| is_ours(stat)).await
    }

    /// Creates the node. `is_ours` tells whether a node that is there already is the one of an
    /// earlier attempt, whose answer was lost.
    ///
    /// # Errors
    /// Those of [`OwnNode::create`].
    pub(super) async fn claim(
        client: &Client,
        path: String,
        data: &Bytes,
        is_ours: impl Fn(&[u8], &Stat) -> bool,
    ) -> Result<OwnNode, Error> {
        let create = || client.create_with_stat(&path, data.clone(), CreateMode::Ephemeral);
        let czxid = loop {
            match retried(client, create).await {
                Ok((_, stat)) => break stat.czxid,
                Err(error) if error.is(ErrorCode::NodeExists) => {
                    match get_if_there(client, &path).await? {
                        Some((found, stat)) if is_ours(&found, &stat) => break stat.czxid,
                        Some(_) => return Err(error),
                        None => {}
                    }
                }
                Err(error) => return Err(error),
            }
        };
        Ok(OwnNode { client: client.clone(), path, czxid, may_be_gone: false })
    }

    /// The path of the node.
    pub(super) fn path(&self) -> &str {
        &self.path
    }

    /// The node is gone: a transaction has deleted it.
    pub(super) fn forget(&mut self) {
        self.path.clear();
    }

    /// Replaces the data.
    ///
    /// # Errors
    /// `NoNode` if somebody else has deleted the node; those of [`Client::set`].
    pub(super) async fn set(&self, data: Bytes) -> Result<(), Error> {
        let OwnNode { client, path, czxid, .. } = self;
        let is_own = |stat: &Stat| stat.czxid == *czxid;
        let set = || client.set(path, data.clone(), None);
        let stat = on_own(client, path, is_own, false, set).await?;
        stat.map(|_| ()).ok_or_else(|| gone("set", path))
    }

    /// Deletes the node and waits for that. Dropping the future leaves it to the driver.
    ///
    /// # Errors
    /// Fatal ones; those of [`Client::delete`], but for `NoNode`.
    pub(super) async fn delete(mut self) -> Result<(), Error> {
        self.may_be_gone = true;
        let is_own = |stat: &Stat| stat.czxid == self.czxid;
        let result = delete_own(&self.client, &self.path, is_own, false).await;
        self.forget();
        result
    }
}

impl Drop for OwnNode {
    fn drop(&mut self) {
        if self.path.is_empty() {
            return;
        }
        let (client, path) = (self.client.clone(), std::mem::take(&mut self.path));
        let (czxid, may_be_gone) = (self.czxid, self.may_be_gone);
        self.client.detach(async move {
            // A fatal error means that the session's nodes are deleted anyway.
            let _ = delete_own(&client, &path, |stat| stat.czxid == czxid, may_be_gone).await;
        });
    }
}

/// Deletes a node that `is_own`; see [`on_own`].
pub(super) async fn delete_own(
    client: &Client,
    path: &str,
    is_own: impl Fn(&Stat) -> bool,
    may_be_gone: bool,
) -> Result<(), Error> {
    let delete = || client.delete(path, None);
    on_own(client, path, is_own, may_be_gone, delete).await.map(|_| ())
}

/// Repeats an operation on a node that `is_own` until its result is known; `None` if the node is
/// gone. If it may be gone already, and after each lost answer, this looks at the node first, once
/// that is settled.
pub(super) async fn on_own<T, F>(
    client: &Client,
    path: &str,
    is_own: impl Fn(&Stat) -> bool,
    mut may_be_gone: bool,
    operation: impl Fn() -> F,
) -> Result<Option<T>, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        if may_be_gone {
            settled(client, path).await?;
            let stat = retried(client, || client.exists(path)).await?;
            if !stat.is_some_and(|stat| is_own(&stat)) {
                return Ok(None);
            }
        }
        may_be_gone = true;
        match operation().await {
            Err(error) if error.is_recoverable() => client.connected().await?,
            Err(error) if lacks_room(&error) => client.sleep(NO_ROOM_PAUSE).await,
            result => return if_there(result),
        }
    }
}
