//! One-shot watches: which connection wants to hear of which path (Java `WatchManager`, WATCH-01 to WATCH-04).
//!
//! Owns the data table (set by getData and exists) and the child table (set by getChildren). They belong to
//! connections, not to sessions, and are gone with the connection. Must not know nodes, and takes no `Cx`: it says who
//! is to be told, `server` tells them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::ids::ConnId;
use crate::wire::WatcherType;

/// Both tables.
#[derive(Debug, Default)]
pub(crate) struct Watches {
    data: Table,
    child: Table,
}

/// Which table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    Data,
    Child,
}

/// Paths and connections, found from either side. Ordered maps, because both sides are iterated.
#[derive(Debug, Default)]
struct Table {
    by_path: BTreeMap<Arc<str>, BTreeSet<ConnId>>,
    by_conn: BTreeMap<ConnId, BTreeSet<Arc<str>>>,
    count: usize,
}

impl Watches {
    pub(crate) fn add(&mut self, kind: Kind, path: &str, conn: ConnId) {
        self.table(kind).add(path, conn);
    }

    /// Who watches `path`, in the order of connections; they do so no longer.
    pub(crate) fn fire(&mut self, kind: Kind, path: &str) -> BTreeSet<ConnId> {
        self.table(kind).fire(path)
    }

    /// Does the connection have such a watch (WATCH-26)?
    pub(crate) fn contains(&self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        let data = || self.data.contains(path, conn);
        let child = || self.child.contains(path, conn);
        match which {
            WatcherType::Data => data(),
            WatcherType::Children => child(),
            WatcherType::Any => data() || child(),
            WatcherType::Persistent | WatcherType::PersistentRecursive => false,
        }
    }

    /// Takes such watches away (WATCH-27) and says whether there were any.
    pub(crate) fn remove(&mut self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        match which {
            WatcherType::Data => self.data.remove(path, conn),
            WatcherType::Children => self.child.remove(path, conn),
            WatcherType::Any => {
                let data = self.data.remove(path, conn);
                self.child.remove(path, conn) || data
            }
            WatcherType::Persistent | WatcherType::PersistentRecursive => false,
        }
    }

    /// The connection is gone, and its watches with it.
    pub(crate) fn drop_conn(&mut self, conn: ConnId) {
        self.data.drop_conn(conn);
        self.child.drop_conn(conn);
    }

    /// Watches set, both tables (WATCH-28).
    pub(crate) fn count(&self) -> usize {
        self.data.count + self.child.count
    }

    fn table(&mut self, kind: Kind) -> &mut Table {
        match kind {
            Kind::Data => &mut self.data,
            Kind::Child => &mut self.child,
        }
    }
}

impl Table {
    fn add(&mut self, path: &str, conn: ConnId) {
        let path = match self.by_path.get_key_value(path) {
            Some((known, _)) => known.clone(),
            None => Arc::from(path),
        };
        if self.by_conn.entry(conn).or_default().insert(path.clone()) {
            self.by_path.entry(path).or_default().insert(conn);
            self.count += 1;
        }
    }

    fn fire(&mut self, path: &str) -> BTreeSet<ConnId> {
        let Some((path, conns)) = self.by_path.remove_entry(path) else {
            return BTreeSet::new();
        };
        for conn in &conns {
            self.forget(*conn, &path);
        }
        self.count -= conns.len();
        conns
    }

    fn contains(&self, path: &str, conn: ConnId) -> bool {
        self.by_path.get(path).is_some_and(|conns| conns.contains(&conn))
    }

    fn remove(&mut self, path: &str, conn: ConnId) -> bool {
        if !self.contains(path, conn) {
            return false;
        }
        self.forget(conn, path);
        self.leave(path, conn);
        true
    }

    fn drop_conn(&mut self, conn: ConnId) {
        for path in self.by_conn.remove(&conn).unwrap_or_default() {
            self.leave(&path, conn);
        }
    }

    /// The path's side of a removal.
    fn leave(&mut self, path: &str, conn: ConnId) {
        let conns = self.by_path.get_mut(path).expect("both sides agree");
        conns.remove(&conn);
        if conns.is_empty() {
            self.by_path.remove(path);
        }
        self.count -= 1;
    }

    /// The connection's side of a removal.
    fn forget(&mut self, conn: ConnId, path: &str) {
        let paths = self.by_conn.get_mut(&conn).expect("both sides agree");
        paths.remove(path);
        if paths.is_empty() {
            self.by_conn.remove(&conn);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: ConnId = ConnId(1);
    const B: ConnId = ConnId(2);

    #[test]
    fn edge_103_a_watch_fires_once() {
        let mut watches = Watches::default();
        watches.add(Kind::Data, "/x", B);
        watches.add(Kind::Data, "/x", A);
        watches.add(Kind::Data, "/x", A);
        assert_eq!(watches.count(), 2);
        assert_eq!(Vec::from_iter(watches.fire(Kind::Data, "/x")), [A, B]);
        assert!(watches.fire(Kind::Data, "/x").is_empty());
        assert_eq!(watches.count(), 0);
    }

    #[test]
    fn edge_136_watches_go_with_their_connection() {
        let mut watches = Watches::default();
        watches.add(Kind::Data, "/x", A);
        watches.add(Kind::Child, "/x", A);
        watches.add(Kind::Child, "/x", B);
        watches.drop_conn(A);
        assert_eq!(watches.count(), 1);
        assert_eq!(Vec::from_iter(watches.fire(Kind::Child, "/x")), [B]);
    }

    #[test]
    fn edges_119_and_120_removing_any_twice() {
        let mut watches = Watches::default();
        assert!(!watches.contains("/x", A, WatcherType::Any));
        watches.add(Kind::Child, "/x", A);
        assert!(!watches.remove("/x", A, WatcherType::Data));
        assert!(watches.remove("/x", A, WatcherType::Any));
        assert!(!watches.remove("/x", A, WatcherType::Any));
        assert_eq!(watches.count(), 0);
    }
}
