//! Recipes: what programs build with a coordination service, each with its promises.
//!
//! Owns the recipes. Must not use anything but the handle's operations, so that they run with every
//! runtime, and in the simulator.
//!
//! Names of nodes are those of Apache Curator, so that its clients and these share a lock or an
//! election; those of queues are kazoo's. `.ci/recipes_check` runs both libraries beside this one;
//! `docs/compatibility.md` says which pairs it leaves out, and why other recipes are not shared.
//!
//! * [`Lock`], [`MultiLock`]: Curator's `InterProcessMutex`; kazoo's `Lock`, if that has
//!   `extra_lock_patterns=["-lock-"]`.
//! * [`RwLock`]: Curator's `InterProcessReadWriteLock`; kazoo's `ReadLock`, if that has
//!   `extra_lock_patterns=["__WRIT__"]`, and its `WriteLock`, if that has both `"__WRIT__"` and
//!   `"__READ__"`.
//! * [`Semaphore`]: Curator's `InterProcessSemaphoreV2`.
//! * [`Election`]: Curator's `LeaderLatch`; kazoo's `Election`, if the program has replaced its
//!   `lock` with one that has `extra_lock_patterns=["-latch-"]`.
//! * [`LeaderSelector`]: Curator's `LeaderSelector`; kazoo's `Lock`, as with [`Lock`].
//! * [`Barrier`]: Curator's `DistributedBarrier`; kazoo's `Barrier`.
//! * [`DoubleBarrier`]: Curator's `DistributedDoubleBarrier`; kazoo's `DoubleBarrier`.
//! * [`Counter`]: Curator's `DistributedAtomicLong`.
//! * [`Group`]: Curator's `GroupMember`.
//! * [`Discovery`]: Curator's `ServiceDiscovery` with its `JsonInstanceSerializer`.
//! * [`PersistentNode`]: Curator's `PersistentNode`, unless that is protected or sequential.
//! * [`Queue`], [`WorkQueue`]: kazoo's `Queue`, `LockingQueue`.

mod barrier;
mod configuration;
mod counter;
mod delay_queue;
mod discovery;
mod double_barrier;
mod election;
mod group;
mod leader_selector;
mod lock;
mod multi_lock;
mod once;
mod own_node;
mod persistent_node;
mod protected;
mod queue;
mod rw_lock;
mod semaphore;
mod site;
mod tree_cache;
mod two_phase_commit;
mod work_queue;

pub use barrier::Barrier;
pub use configuration::{Configuration, Versioned};
pub use counter::Counter;
pub use delay_queue::DelayQueue;
pub use discovery::{
    Discovery, Registration, ServiceInstance, ServiceProvider, ServiceType, UriPart, UriSpec,
};
pub use double_barrier::{DoubleBarrier, Inside};
pub use election::{Candidate, Election, Leadership};
pub use group::{Group, Members, Membership};
pub use leader_selector::LeaderSelector;
pub use lock::{Lock, LockGuard};
pub use multi_lock::{MultiLock, MultiLockGuard};
pub use persistent_node::PersistentNode;
pub use queue::Queue;
pub use rw_lock::RwLock;
pub use semaphore::{Lease, Semaphore};
pub use site::Site;
pub use tree_cache::{CachedNode, TreeCache};
pub use two_phase_commit::{Decision, TwoPhaseCommit};
pub use work_queue::{Job, WorkQueue};

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::wire::Stat;

use crate::error::Error;
use crate::handle::{Client, CreateMode, MultiError, OneshotWatch};
use crate::session::Failure;

/// Creates a node for the children of a recipe, and those above it, as containers: servers delete
/// them when they have had no children for a while.
async fn create_parents(client: &Client, path: &str) -> Result<(), Error> {
    let ends = path.match_indices('/').map(|(at, _)| at).skip(1).chain([path.len()]);
    for end in ends {
        match retried(client, || client.create(&path[..end], "", CreateMode::Container)).await {
            Err(error) if !error.is(ErrorCode::NodeExists) => return Err(error),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// Creates the nodes above this one, as containers.
async fn create_above(client: &Client, path: &str) -> Result<(), Error> {
    create_parents(client, path.rsplit_once('/').map_or("", |(parent, _)| parent)).await
}

/// Creates a node that may exist, and those above it as containers.
async fn create_if_absent(client: &Client, path: &str, mode: CreateMode) -> Result<(), Error> {
    loop {
        match retried(client, || client.create(path, "", mode)).await {
            Err(error) if error.is(ErrorCode::NoNode) => create_above(client, path).await?,
            Err(error) if !error.is(ErrorCode::NodeExists) => return Err(error),
            Ok(_) | Err(_) => return Ok(()),
        }
    }
}

/// The names of a node's children, and a watch for changes. The node is persistent: the numbers of
/// its children must not begin anew, and kazoo creates it once.
async fn children_of_persistent(
    client: &Client,
    path: &str,
) -> Result<(Vec<String>, OneshotWatch), Error> {
    let create = || create_if_absent(client, path, CreateMode::Persistent);
    children_of_created(client, path, create).await
}

/// The names of a node's children, and a watch for changes. The node is a container.
async fn children_of_container(
    client: &Client,
    path: &str,
) -> Result<(Vec<String>, OneshotWatch), Error> {
    children_of_created(client, path, || create_parents(client, path)).await
}

/// The names of a node's children, and a watch for changes. A node that is absent is created.
async fn children_of_created<F>(
    client: &Client,
    path: &str,
    create: impl Fn() -> F,
) -> Result<(Vec<String>, OneshotWatch), Error>
where
    F: Future<Output = Result<(), Error>>,
{
    loop {
        match if_there(retried(client, || client.children_and_watch(path)).await)? {
            Some((names, _, watch)) => return Ok((names, watch)),
            None => create().await?,
        }
    }
}

/// Deletes a node, which may be gone, and which nobody else creates anew with this name, or anybody
/// may delete.
async fn delete_if_there(client: &Client, path: &str) -> Result<(), Error> {
    if_there(retried(client, || client.delete(path, None)).await).map(|_| ())
}

/// The result of an operation on a node that may be missing: `None` if it is.
fn if_there<T>(result: Result<T, Error>) -> Result<Option<T>, Error> {
    match result {
        Err(error) if error.is(ErrorCode::NoNode) => Ok(None),
        result => result.map(Some),
    }
}

/// The data of a node, and its statistics, if there is such a node.
async fn get_if_there(client: &Client, path: &str) -> Result<Option<(Bytes, Stat)>, Error> {
    if_there(retried(client, || client.get(path)).await)
}

/// The names of a node's children; none if there is no such node.
async fn children_if_there(client: &Client, path: &str) -> Result<Vec<String>, Error> {
    let found = if_there(retried(client, || client.children(path)).await)?;
    Ok(found.map(|(names, _)| names).unwrap_or_default())
}

/// Waits until a request whose answer was lost is made, or never will be: the leader answers a
/// `sync` after all it had proposed before is committed, and refuses what arrives later from the
/// connection that was lost. (Seed 0xfe1c599e031c of the swarm at fe1c599: a reader that did not
/// wait created a second node, and waited for its own first one.)
async fn settled(client: &Client, path: &str) -> Result<(), Error> {
    retried(client, || client.sync(path)).await
}

/// Lets the driver delete a node whose owner is dropped, and whose name is its own.
fn delete_detached(client: &Client, path: String) {
    let (own, node) = (client.clone(), path.clone());
    client.detach_deletion(path, async move {
        // A fatal error means that the session's nodes are deleted anyway.
        let _ = delete_if_there(&own, &node).await;
    });
}

/// Pause before an operation is repeated that was refused for want of room.
const NO_ROOM_PAUSE: Duration = Duration::from_millis(10);

/// Repeats an operation that may be made twice until its result is known. The deletion of a node
/// must not be given up because too many calls are under way.
async fn retried<T, F>(client: &Client, operation: impl Fn() -> F) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    loop {
        match operation().await {
            Err(error) if error.is_recoverable() => client.connected().await?,
            Err(error) if lacks_room(&error) => client.sleep(NO_ROOM_PAUSE).await,
            result => return result,
        }
    }
}

/// Was the operation refused, unmade, because too many others are under way?
fn lacks_room(error: &Error) -> bool {
    error.failure() == Failure::Full || error.is(ErrorCode::Throttled)
}

/// The path of a child.
fn child(parent: &str, name: &str) -> String {
    format!("{}/{name}", parent.trim_end_matches('/'))
}

/// The transaction of a recipe has failed, for a reason that the recipe does not handle.
fn failed(operation: &'static str, path: &str, error: MultiError) -> Error {
    Error::new(operation, path.to_owned(), Failure::Code(error.code))
}

/// The node of a recipe has gone although its session lives: an operator, or another program, has
/// deleted it.
fn gone(operation: &'static str, path: &str) -> Error {
    Error::new(operation, path.to_owned(), Failure::Code(ErrorCode::NoNode))
}
