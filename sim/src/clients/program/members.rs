//! Programs that have a node of their own: as members of a group, and as keepers of a node.
//!
//! Owns what these programs do. Must not judge it: the oracles R8 and R9 do.

use zabkeeper_client::recipes::{Group, Membership, PersistentNode};
use zabkeeper_client::{Client, CreateMode, Error};
use zabkeeper_core::ErrorCode;

use super::queues::item_of;
use super::turns::unless_fatal;
use super::{Told, User};

/// Bound of data: a write of longer ones may be made once only (C8), and these are repeated after a
/// lost answer.
const DATA: u64 = 1_000_000;

/// Number of names that members take.
const NAMES: u64 = 6;

/// The node above all nodes that are kept.
const KEPT: &str = "/kept";

pub(super) async fn join_and_list(mut user: User) {
    let group = Group::new(&user.client, "/groups/g");
    loop {
        user.pause().await;
        let name = user.rng.below(NAMES);
        let result = match join(&mut user, &group, name).await {
            Ok(membership) => be_member(&mut user, &group, name, membership).await,
            // Another session has the name.
            Err(error) if !error.is_fatal() => list(&user, &group).await,
            Err(error) => Err(error),
        };
        if result.is_err_and(|error| error.is_fatal()) {
            return;
        }
    }
}

async fn join(user: &mut User, group: &Group, name: u64) -> Result<Membership, Error> {
    let data = user.rng.below(DATA);
    user.tell(Told::Joins(name, data));
    let membership = group.join(&name.to_string(), data.to_string()).await?;
    user.tell(Told::Joined(name, data));
    Ok(membership)
}

/// Stays for a while, and leaves.
async fn be_member(
    user: &mut User,
    group: &Group,
    name: u64,
    membership: Membership,
) -> Result<(), Error> {
    let stayed = stay(user, group, name, &membership).await;
    user.tell(Told::Quits(name));
    if user.rng.chance(1, 2) {
        membership.leave().await?;
    }
    stayed
}

async fn stay(
    user: &mut User,
    group: &Group,
    name: u64,
    membership: &Membership,
) -> Result<(), Error> {
    list(user, group).await?;
    user.pause().await;
    if user.rng.chance(1, 2) {
        let data = user.rng.below(DATA);
        user.tell(Told::Joins(name, data));
        membership.set_data(data.to_string()).await?;
        user.tell(Told::Joined(name, data));
        list(user, group).await?;
    }
    Ok(())
}

async fn list(user: &User, group: &Group) -> Result<(), Error> {
    user.tell(Told::Lists);
    for (name, data) in group.members().await? {
        user.tell(Told::Member(item_of(name.as_bytes()), item_of(&data)));
    }
    user.tell(Told::Listed);
    Ok(())
}

/// Keeps a node that it and others delete.
pub(super) async fn keep_a_node(mut user: User) {
    let path = format!("{KEPT}/{}", user.client.unique_id());
    let node = loop {
        let data = user.rng.below(DATA);
        user.tell(Told::Keeps(data));
        let mode = CreateMode::Ephemeral;
        let node = PersistentNode::keep(&user.client, &*path, data.to_string(), mode).await;
        match node.map(Some).or_else(unless_fatal) {
            Ok(Some(node)) => {
                user.tell(Told::Keeping(data));
                break node;
            }
            Ok(None) => user.pause().await,
            Err(_) => return,
        }
    };
    loop {
        user.pause().await;
        let changed = match user.rng.below(3) {
            0 => set(&mut user, &node).await,
            1 => user.client.delete(&*path, None).await,
            _ => delete_any(&mut user).await,
        };
        if changed.is_err_and(|error| error.is_fatal()) {
            return;
        }
        match returned(&user.client, &path).await.map(Some).or_else(unless_fatal) {
            Ok(Some(data)) => user.tell(Told::Kept(data)),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

async fn set(user: &mut User, node: &PersistentNode) -> Result<(), Error> {
    let data = user.rng.below(DATA);
    user.tell(Told::Keeps(data));
    node.set_data(data.to_string()).await?;
    user.tell(Told::Keeping(data));
    Ok(())
}

async fn delete_any(user: &mut User) -> Result<(), Error> {
    let (names, _) = user.client.children(KEPT).await?;
    if names.is_empty() {
        return Ok(());
    }
    let name = user.rng.pick(&names);
    user.client.delete(format!("{KEPT}/{name}"), None).await
}

/// Waits until the node is there, and returns its data.
async fn returned(client: &Client, path: &str) -> Result<u64, Error> {
    loop {
        let (stat, changed) = client.exists_and_watch(path).await?;
        if stat.is_none() {
            changed.await?;
            continue;
        }
        match client.get(path).await {
            Err(error) if error.is(ErrorCode::NoNode) => {}
            found => return Ok(item_of(&found?.0)),
        }
    }
}
