//! The watches that a session holds, as far as it knows from replies and events (Java: `ZKWatchManager`).
//!
//! Owns the sets of paths, as the server knows them. Must not send anything.
//!
//! Invariant: a watch is here from the reply that set it to the event that used it up, or, where it is persistent, to
//! the reply that removed it, across connections.

use std::collections::BTreeSet;

use zabkeeper_core::wire::{AddWatchMode, EventType, Request, SetWatches, WatcherType};
use zabkeeper_core::{ErrorCode, Zxid};

#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    /// Set by getData, and by exists that found a node.
    data: BTreeSet<String>,
    /// Set by exists that found nothing.
    exist: BTreeSet<String>,
    /// Set by getChildren.
    child: BTreeSet<String>,
    /// Set by addWatch, for the node and the list of its children; no event uses it up.
    persistent: BTreeSet<String>,
    /// Set by addWatch, for the node and all below it (WATCH-06).
    recursive: BTreeSet<String>,
}

/// What a request does to the watches, once its reply is there.
#[derive(Clone, Debug)]
pub(crate) enum Change {
    None,
    SetData(String),
    SetExist(String),
    SetChild(String),
    SetPersistent(String),
    SetRecursive(String),
    Remove(WatcherType, String),
}

impl Change {
    pub(crate) fn of(request: &Request) -> Change {
        match request {
            Request::GetData { path, watch: true } => Change::SetData(path.clone()),
            Request::Exists { path, watch: true } => Change::SetExist(path.clone()),
            Request::GetChildren { path, watch: true, .. } => Change::SetChild(path.clone()),
            Request::AddWatch { path, mode: AddWatchMode::Persistent } => {
                Change::SetPersistent(path.clone())
            }
            Request::AddWatch { path, mode: AddWatchMode::PersistentRecursive } => {
                Change::SetRecursive(path.clone())
            }
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
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Reconfig
            | Request::Throttled { .. }
            | Request::Sasl { .. }
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
            (Change::SetPersistent(path), 0) => {
                self.persistent.insert(path);
            }
            (Change::SetRecursive(path), 0) => {
                self.recursive.insert(path);
            }
            (Change::Remove(kind, path), 0) => self.remove(kind, &path),
            (_, _) => {}
        }
    }

    fn remove(&mut self, kind: WatcherType, path: &str) {
        if matches!(kind, WatcherType::Data | WatcherType::Any) {
            self.data.remove(path);
            self.exist.remove(path);
        }
        if matches!(kind, WatcherType::Children | WatcherType::Any) {
            self.child.remove(path);
        }
        if matches!(kind, WatcherType::Persistent | WatcherType::Any) {
            self.persistent.remove(path);
        }
        if matches!(kind, WatcherType::PersistentRecursive | WatcherType::Any) {
            self.recursive.remove(path);
        }
    }

    /// Uses up the watches that `event` fires. Were there any, or others that it concerns? A server that sets watches
    /// again may tell of one deletion twice, once for data and once for children.
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
        any || self.persistent.contains(path) || data && self.is_below_recursive(path)
    }

    fn is_below_recursive(&self, path: &str) -> bool {
        let above = path.match_indices('/').map(|(slash, _)| &path[..slash.max(1)]);
        !self.recursive.is_empty()
            && above.chain([path]).any(|above| self.recursive.contains(above))
    }

    /// The requests that set all watches again on a new connection, to be told of changes after `since`;
    /// each is full with so many `bytes_max` of paths.
    pub(crate) fn batches(&self, since: Zxid, bytes_max: usize) -> Vec<SetWatches> {
        let empty = || SetWatches { relative_zxid: Some(since), ..SetWatches::default() };
        let mut batches = Vec::new();
        let mut batch = empty();
        let mut bytes = 0;
        let mut add = |paths: &BTreeSet<String>, list: fn(&mut SetWatches) -> &mut Vec<String>| {
            for path in paths {
                list(&mut batch).push(path.clone());
                bytes += path.len();
                if bytes >= bytes_max {
                    batches.push(std::mem::replace(&mut batch, empty()));
                    bytes = 0;
                }
            }
        };
        add(&self.data, |batch| &mut batch.data);
        add(&self.exist, |batch| &mut batch.exist);
        add(&self.child, |batch| &mut batch.child);
        add(&self.persistent, |batch| &mut batch.persistent);
        add(&self.recursive, |batch| &mut batch.recursive);
        if bytes > 0 {
            batches.push(batch);
        }
        batches
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn add(watches: &mut Watches, path: &str, mode: AddWatchMode) {
        let request = Request::AddWatch { path: path.into(), mode };
        watches.answered(Change::of(&request), 0);
    }

    #[test]
    fn watch_06_recursive_watches_concern_components_and_no_lists_of_children() {
        let mut watches = Watches::default();
        add(&mut watches, "/r", AddWatchMode::PersistentRecursive);
        for path in ["/r", "/r/a", "/r/a/b"] {
            assert!(watches.fired(EventType::NodeCreated, path), "{path}");
            assert!(!watches.fired(EventType::NodeChildrenChanged, path), "{path}");
        }
        for path in ["/", "/rx", "/q/r"] {
            assert!(!watches.fired(EventType::NodeCreated, path), "{path}");
        }
        add(&mut watches, "/", AddWatchMode::PersistentRecursive);
        assert!(watches.fired(EventType::NodeDeleted, "/rx"));
        assert!(watches.fired(EventType::NodeDataChanged, "/"));
    }

    #[test]
    fn watch_07_kinds_exist_side_by_side_and_are_removed_one_by_one() {
        let mut watches = Watches::default();
        watches.answered(Change::SetData("/n".into()), 0);
        add(&mut watches, "/n", AddWatchMode::Persistent);
        add(&mut watches, "/n", AddWatchMode::PersistentRecursive);
        assert!(watches.fired(EventType::NodeDataChanged, "/n"));
        assert!(watches.data.is_empty());
        watches.answered(Change::Remove(WatcherType::PersistentRecursive, "/n".into()), 0);
        assert!(watches.fired(EventType::NodeChildrenChanged, "/n"));
        assert!(!watches.fired(EventType::NodeCreated, "/n/c"));
        let refused = ErrorCode::NoWatcher.wire();
        watches.answered(Change::Remove(WatcherType::Persistent, "/n".into()), refused);
        assert!(watches.fired(EventType::NodeDataChanged, "/n"));
        watches.answered(Change::Remove(WatcherType::Persistent, "/n".into()), 0);
        assert!(!watches.fired(EventType::NodeDataChanged, "/n"));
        add(&mut watches, "/n", AddWatchMode::Persistent);
        add(&mut watches, "/n", AddWatchMode::PersistentRecursive);
        watches.answered(Change::Remove(WatcherType::Any, "/n".into()), 0);
        assert!(watches.batches(Zxid::ZERO, 1).is_empty());
    }

    #[test]
    fn op_x1_and_watch_23_only_batches_with_persistent_watches_need_the_newer_request() {
        let mut watches = Watches::default();
        let long = |name| format!("/{name}{}", "n".repeat(100));
        watches.answered(Change::SetData(long("data")), 0);
        add(&mut watches, &long("persistent"), AddWatchMode::Persistent);
        add(&mut watches, "/r", AddWatchMode::PersistentRecursive);
        let batches = watches.batches(Zxid(7), 100);
        let ops = batches.iter().map(|batch| Request::SetWatches(batch.clone()).op());
        assert_eq!(Vec::from_iter(ops), [101, 105, 105]);
        assert_eq!(batches[1].persistent, [long("persistent")]);
        assert_eq!(batches[2].recursive, ["/r"]);
        assert!(batches.iter().all(|batch| batch.relative_zxid == Some(Zxid(7))));
    }
}
