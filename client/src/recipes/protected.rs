//! An ephemeral sequential node that is never lost sight of (RECIPE-07, RECIPE-08).
//!
//! Owns its creation, its place among its siblings, and its deletion, also when a reply is lost or
//! a future is dropped. Must not know what the place is good for.
//!
//! The name of the node is `_c_GUID-PREFIX0000000007`. After a lost reply the GUID tells whether
//! the node exists, once that is settled.

use std::pin::pin;
use std::time::Duration;

use futures::future::{Either, select};
use zabkeeper_core::{ErrorCode, Zxid};

use super::{
    NO_ROOM_PAUSE, child, children_if_there, create_parents, delete_if_there, gone, lacks_room,
    retried, settled,
};
use crate::error::Error;
use crate::handle::{Client, CreateMode};

/// See the module. Dropping it deletes the node.
#[derive(Debug)]
pub(super) struct ProtectedNode {
    client: Client,
    parent: String,
    guid: String,
    prefix: &'static str,
    /// The name of the node and the zxid of its creation, once known.
    created: Option<(String, Zxid)>,
}

impl ProtectedNode {
    /// A node that does not exist yet.
    pub(super) fn new(client: &Client, parent: &str, prefix: &'static str) -> ProtectedNode {
        let id = client.unique_id();
        let guid = [&id[..8], &id[8..12], &id[12..16], &id[16..20], &id[20..]].join("-");
        let (client, parent) = (client.clone(), parent.to_owned());
        ProtectedNode { client, parent, guid, prefix, created: None }
    }

    /// Creates the node, and the nodes above it, unless a lost reply hides that it exists.
    pub(super) async fn create(&mut self, data: &[u8]) -> Result<(), Error> {
        let path = self.path_of(&format!("_c_{}-{}", self.guid, self.prefix));
        while self.created.is_none() {
            let (data, mode) = (data.to_vec(), CreateMode::EphemeralSequential);
            match self.client.create_with_stat(&path, data, mode).await {
                Ok((path, stat)) => {
                    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
                    self.created = Some((name, stat.czxid));
                }
                Err(error) if error.is(ErrorCode::NoNode) => {
                    create_parents(&self.client, &self.parent).await?;
                }
                Err(error) if error.is_recoverable() => {
                    self.client.connected().await?;
                    self.find().await?;
                }
                Err(error) if lacks_room(&error) => self.client.sleep(NO_ROOM_PAUSE).await,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Looks for the node after a lost reply.
    async fn find(&mut self) -> Result<(), Error> {
        let Some(name) = name_with(&self.client, &self.parent, &self.guid).await? else {
            return Ok(());
        };
        let path = self.path_of(&name);
        if let Some(stat) = retried(&self.client, || self.client.exists(&path)).await? {
            self.created = Some((name, stat.czxid));
        }
        Ok(())
    }

    /// The zxid of the node's creation.
    ///
    /// # Panics
    /// Before [`ProtectedNode::create`] has returned `Ok`.
    pub(super) fn zxid(&self) -> Zxid {
        self.created.as_ref().expect("the node is created").1
    }

    /// The path of the node.
    ///
    /// # Panics
    /// Before [`ProtectedNode::create`] has returned `Ok`.
    pub(super) fn path(&self) -> String {
        self.path_of(&self.created.as_ref().expect("the node is created").0)
    }

    /// The name of the node.
    ///
    /// # Panics
    /// Before [`ProtectedNode::create`] has returned `Ok`.
    pub(super) fn name(&self) -> &str {
        &self.created.as_ref().expect("the node is created").0
    }

    /// Waits until `blocks` names no sibling any more. It gets the names of all siblings with lower
    /// numbers, in the order of these, and returns the one that this node has to wait for.
    pub(super) async fn turn<B>(&self, operation: &'static str, blocks: B) -> Result<(), Error>
    where
        B: for<'a> Fn(&[&'a str]) -> Option<&'a str>,
    {
        let own = number(self.name());
        loop {
            let (names, _) =
                match retried(&self.client, || self.client.children(&self.parent)).await {
                    Err(error) if error.is(ErrorCode::NoNode) => {
                        return Err(gone(operation, &self.path()));
                    }
                    result => result?,
                };
            if !names.iter().any(|name| name == self.name()) {
                return Err(gone(operation, &self.path()));
            }
            let mut before: Vec<&str> = names.iter().map(String::as_str).collect();
            before.retain(|name| number(name) < own);
            before.sort_unstable_by_key(|name| number(name));
            let Some(blocker) = blocks(&before) else { return Ok(()) };
            let blocker = self.path_of(blocker);
            let found = retried(&self.client, || self.client.exists_and_watch(&blocker)).await?;
            if let (Some(_), watch) = found {
                watch.await?;
            }
        }
    }

    /// [`ProtectedNode::turn`] for at most this time, by the driver's clock: whether it has come.
    pub(super) async fn turn_within<B>(
        &self,
        operation: &'static str,
        time: Duration,
        blocks: B,
    ) -> Result<bool, Error>
    where
        B: for<'a> Fn(&[&'a str]) -> Option<&'a str>,
    {
        let turn = Box::pin(self.turn(operation, blocks));
        match select(turn, self.client.sleep(time)).await {
            Either::Left((came, _)) => came.map(|()| true),
            Either::Right(((), _)) => Ok(false),
        }
    }

    /// Completes when the node is gone, or with the error that has ended the session.
    pub(super) async fn gone(&self) -> Result<(), Error> {
        let path = self.path();
        loop {
            let (stat, watch) =
                retried(&self.client, || self.client.exists_and_watch(&path)).await?;
            if stat.is_none() {
                return Ok(());
            }
            watch.await?;
        }
    }

    /// Completes when the node is gone, or may be: the session has ended, or is presumed to.
    pub(super) async fn lost(&self) {
        let gone = pin!(self.gone());
        select(gone, self.client.session_lost()).await;
    }

    /// Completes when the node has these data or is gone, or with the error that has ended the
    /// session.
    pub(super) async fn has_data(&self, wanted: &[u8]) -> Result<(), Error> {
        let path = self.path();
        loop {
            match retried(&self.client, || self.client.get_and_watch(&path)).await {
                Ok((data, ..)) if data == wanted => return Ok(()),
                Ok((.., watch)) => watch.await.map(|_| ())?,
                Err(error) if error.is(ErrorCode::NoNode) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Deletes the node and waits for that.
    pub(super) async fn delete(mut self) -> Result<(), Error> {
        let (client, parent, guid) = (self.client.clone(), self.parent.clone(), self.guid.clone());
        let name = self.created.as_ref().map(|(name, _)| name.clone());
        // From here on the node is this future's; dropping it leaves the deletion to the driver.
        let result = delete(client, parent, guid, name).await;
        if result.is_ok() {
            self.guid.clear();
        }
        result
    }

    fn path_of(&self, name: &str) -> String {
        child(&self.parent, name)
    }
}

impl Drop for ProtectedNode {
    fn drop(&mut self) {
        if self.guid.is_empty() {
            return;
        }
        let name = self.created.take().map(|(name, _)| name);
        let (parent, guid) = (self.parent.clone(), self.guid.clone());
        let client = self.client.clone();
        self.client.detach(async move {
            // A fatal error means that the session's nodes are deleted anyway.
            let _ = delete(client, parent, guid, name).await;
        });
    }
}

/// Deletes the node; if its name is not known, the one with the GUID, if there is one.
async fn delete(
    client: Client,
    parent: String,
    guid: String,
    name: Option<String>,
) -> Result<(), Error> {
    let name = match name {
        Some(name) => Some(name),
        None => name_with(&client, &parent, &guid).await?,
    };
    let Some(name) = name else { return Ok(()) };
    let path = child(&parent, &name);
    delete_if_there(&client, &path).await
}

/// The name of the child with this GUID, if there is one.
async fn name_with(client: &Client, parent: &str, guid: &str) -> Result<Option<String>, Error> {
    settled(client, parent).await?;
    let names = children_if_there(client, parent).await?;
    Ok(names.into_iter().find(|name| name.contains(guid)))
}

/// The digits that the server has appended; ten of them as long as no counter has overflowed.
pub(super) fn number(name: &str) -> i64 {
    let digits = name.len().saturating_sub(10);
    name.get(digits..).and_then(|digits| digits.parse().ok()).unwrap_or(i64::MAX)
}
