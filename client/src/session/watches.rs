//! The watches of a session, as known from replies and events (Java: `ZKWatchManager`).
//!
//! Owns the sets of paths, in the server's form. Must not send anything.
//!
//! Invariant: across connections, a watch is in its set from the reply that set it to the event
//! that fires it, or to the reply that removes it; a persistent watch only to the latter.

use std::collections::BTreeSet;

use zabkeeper_core::wire::{AddWatchMode, EventType, Request, SetWatches, WatcherType};
use zabkeeper_core::{ErrorCode, Zxid};

#[derive(Clone, Debug, Default)]
pub(crate) struct Watches {
    /// Set by getData, and by exists that found a node.
    data: BTreeSet<String>,
    /// Set by exists that found no node.
    exist: BTreeSet<String>,
    /// Set by getChildren.
    child: BTreeSet<String>,
    /// Set by addWatch in mode persistent: watches the node and its children list; stays after
    /// events.
    persistent: BTreeSet<String>,
    /// Set by addWatch in mode persistent recursive: watches the node and all its descendants
    /// (WATCH-06).
    recursive: BTreeSet<String>,
}

/// The change of the watches that a request makes when its reply arrives.
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
            | Request::Reconfigure(_)
            | Request::Throttled { .. }
            | Request::Sasl { .. }
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::Unknown { .. } => Change::None,
        }
    }
}

/// Does an event fire data watches, and does it fire child watches? Recursive watches are fired by
/// what fires data watches.
pub(crate) fn kinds_fired(event: EventType) -> (bool, bool) {
    match event {
        EventType::NodeCreated | EventType::NodeDataChanged => (true, false),
        EventType::NodeDeleted => (true, true),
        EventType::NodeChildrenChanged => (false, true),
    }
}

/// The path and those of all nodes above it, each once, from the root on.
pub(crate) fn self_and_above(path: &str) -> impl Iterator<Item = &str> {
    let above = path.match_indices('/').map(|(slash, _)| &path[..slash.max(1)]);
    above.chain((path != "/").then_some(path))
}

impl Watches {
    /// Applies `change` after a reply with error code `err`, 0 being success (CLIENT-07).
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

    /// Removes the standard watches that `event` fires. True if it fires any watch, persistent ones
    /// included. While it sets watches again, a server may send one deletion twice, once for the
    /// data and once for the child watch.
    pub(crate) fn fired(&mut self, event: EventType, path: &str) -> bool {
        let (data, child) = kinds_fired(event);
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
        !self.recursive.is_empty()
            && self_and_above(path).any(|above| self.recursive.contains(above))
    }

    /// The requests that set all watches again on a new connection and ask for events of changes
    /// after `since`; a request is full once its paths have `bytes_max` bytes.
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

    /// WATCH-06.
    #[test]
    fn recursive_watch_fires_for_descendants_but_not_for_children_changes() {
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

    /// WATCH-07.
    #[test]
    fn watch_kinds_on_one_path_are_independent() {
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

    /// OP-X1, WATCH-23.
    #[test]
    fn only_batches_with_persistent_watches_use_set_watches_2() {
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
