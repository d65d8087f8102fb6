//! Membership in a group (RECIPE-01).
//!
//! Owns the nodes of the members. Must not know what they do.

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;

use super::own_node::OwnNode;
use super::{child, children_if_there, children_of_container, create_parents, get_if_there};
use crate::error::Error;
use crate::handle::Client;

/// A group of sessions, each with a name and data of its own, such as an address.
///
/// # What it promises
/// A session is listed from [`Group::join`] until it leaves, or until the servers end it. Names are
/// unique.
///
/// # What it does not promise
/// That a listed member still works: the servers notice its end after its session timeout. A list
/// may be behind by what the reader's server has not applied yet.
///
/// Lost connections are waited out; an expired session is a fatal error, and ends the membership.
#[derive(Clone, Debug)]
pub struct Group {
    client: Client,
    path: String,
}

/// A session is a member. Dropping it leaves the group.
#[derive(Debug)]
pub struct Membership {
    node: OwnNode,
}

/// The members of a group at some time, for [`Group::changed`].
pub type Members = BTreeMap<String, Bytes>;

impl Group {
    /// The group of this path. Its node, and those above it, are created when needed, as
    /// containers.
    pub fn new(client: &Client, path: impl Into<String>) -> Group {
        Group { client: client.clone(), path: path.into() }
    }

    /// Joins the group under this name, once an earlier membership of this session with that name
    /// has ended.
    ///
    /// # Errors
    /// `NodeExists` if another session has the name, also an earlier one of the same program whose
    /// timeout has not passed; fatal ones; `NoAuth`.
    pub async fn join(&self, name: &str, data: impl Into<Bytes>) -> Result<Membership, Error> {
        let (client, data) = (&self.client, data.into());
        loop {
            match OwnNode::create(client, child(&self.path, name), &data).await {
                Err(error) if error.is(ErrorCode::NoNode) => {
                    create_parents(client, &self.path).await?;
                }
                node => return Ok(Membership { node: node? }),
            }
        }
    }

    /// The members and their data.
    ///
    /// # Errors
    /// Fatal ones; `NoAuth`.
    pub async fn members(&self) -> Result<Members, Error> {
        self.read(children_if_there(&self.client, &self.path).await?).await
    }

    /// Waits until the names of the members are others than the known ones, and returns all.
    ///
    /// # Errors
    /// Those of [`Group::members`].
    pub async fn changed(&self, known: &Members) -> Result<Members, Error> {
        loop {
            let (names, watch) = children_of_container(&self.client, &self.path).await?;
            if names.len() != known.len() || names.iter().any(|name| !known.contains_key(name)) {
                return self.read(names).await;
            }
            watch.await?;
        }
    }

    async fn read(&self, names: Vec<String>) -> Result<Members, Error> {
        let mut members = Members::new();
        for name in names {
            let path = child(&self.path, &name);
            let found = get_if_there(&self.client, &path).await?;
            members.extend(found.map(|(data, _)| (name, data)));
        }
        Ok(members)
    }
}

impl Membership {
    /// Replaces the member's data.
    ///
    /// # Errors
    /// `NoNode` if somebody else has deleted the member's node; fatal ones.
    pub async fn set_data(&self, data: impl Into<Bytes>) -> Result<(), Error> {
        self.node.set(data.into()).await
    }

    /// Leaves the group and waits until the servers know.
    ///
    /// # Errors
    /// Fatal ones: the session has ended, and the membership with it.
    pub async fn leave(self) -> Result<(), Error> {
        self.node.delete().await
    }
}
