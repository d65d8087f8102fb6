//! The watches that a session holds, as far as it knows from replies and events (Java: `ZKWatchManager`).
//!
//! Owns the three sets of paths, as the server knows them. Must not send anything.
//!
//! Invariant: a watch is here from the reply that set it to the event that used it up, across connections.

use std::collections::BTreeSet;

use zabkeeper_core::wire::{EventType, Request, SetWatches, WatcherType};
use zabkeeper_core::{ErrorCode, Zxid};

/// Bytes of paths after which a setWatches request is full; the last path may exceed it (WATCH-25).
const BATCH_BYTES: usize = 128 << 10;

#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    /// Set by getData, and by exists that found a node.
    data: BTreeSet<String>,
    /// Set by exists that found nothing.
    exist: BTreeSet<String>,
    /// Set by getChildren.
    child: BTreeSet<String>,
}

/// What a request does to the watches, once its reply is there.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    None,
    SetData(String),
    SetExist(String),
    SetChild(String),
    Remove(WatcherType, String),
}

impl Change {
    pub(crate) fn of(request: &Request) -> Change {
        match request {
            Request::GetData { path, watch: true } => Change::SetData(path.clone()),
            Request::Exists { path, watch: true } => Change::SetExist(path.clone()),
            Request::GetChildren { path, watch: true, .. } => Change::SetChild(path.clone()),
            Request::Watches { path, kind, remove: true } => Change::Remove(*kind, path.clone()),
            Request::GetData { watch: false, .. }
            | Request::Exists { watch: false, .. }
            | Request::GetChildren { watch: false, .. }
            | Request::Watches { remove: false, .. }
            | Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::Sync { .. }
            | Request::Ping
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::Unknown { .. } => Change::None,
        }
    }
}

impl Watches {
    /// The request that asked for `change` was answered with error number `err`, zero being success (CLIENT-07).
    pub(crate) fn answered(&mut self, change: Change, err: i32) {
        match (change, err) {
            (Change::SetData(path) | Change::SetExist(path), 0) => {
                self.data.insert(path);
            }
            (Change::SetExist(path), err) if err == ErrorCode::NoNode.wire() => {
                self.exist.insert(path);
            }
            (Change::SetChild(path), 0) => {
                self.child.insert(path);
            }
            (Change::Remove(kind, path), 0) => {
                if matches!(kind, WatcherType::Data | WatcherType::Any) {
                    self.data.remove(&path);
                    self.exist.remove(&path);
                }
                if matches!(kind, WatcherType::Children | WatcherType::Any) {
                    self.child.remove(&path);
                }
            }
            (_, _) => {}
        }
    }

    /// Uses up the watches that `event` fires. Were there any? A server that sets watches again may tell of one
    /// deletion twice, once for data and once for children.
    pub(crate) fn fired(&mut self, event: EventType, path: &str) -> bool {
        let (data, child) = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => (true, false),
            EventType::NodeDeleted => (true, true),
            EventType::NodeChildrenChanged => (false, true),
        };
        let mut any = false;
        if data {
            any |= self.data.remove(path);
            any |= self.exist.remove(path);
        }
        if child {
            any |= self.child.remove(path);
        }
        any
    }

    /// The requests that set all watches again on a new connection, to be told of changes after `since`.
    pub(crate) fn batches(&self, since: Zxid) -> Vec<SetWatches> {
        let empty = || SetWatches { relative_zxid: since, ..SetWatches::default() };
        let mut batches = Vec::new();
        let mut batch = empty();
        let mut bytes = 0;
        let mut add = |paths: &BTreeSet<String>, list: fn(&mut SetWatches) -> &mut Vec<String>| {
            for path in paths {
                list(&mut batch).push(path.clone());
                bytes += path.len();
                if bytes >= BATCH_BYTES {
                    batches.push(std::mem::replace(&mut batch, empty()));
                    bytes = 0;
                }
            }
        };
        add(&self.data, |batch| &mut batch.data);
        add(&self.exist, |batch| &mut batch.exist);
        add(&self.child, |batch| &mut batch.child);
        if bytes > 0 {
            batches.push(batch);
        }
        batches
    }
}
