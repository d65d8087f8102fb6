//! Watches: which connection watches which path, in which modes (Java `WatchManager`, WATCH-01 to
//! WATCH-10).
//!
//! Owns ZooKeeper's data watch table and child watch table, stored as one: each connection that
//! watches a path has a set of modes there, and each table is a subset of these modes. Watches
//! belong to connections, not to sessions, and are dropped with the connection. Must not know
//! nodes, and takes no `Cx`: it returns the connections to notify, and `front/requests`
//! notifies them.
//!
//! A server may hold millions of watches, so paths and connections are numbered. The watcher list
//! of a path (`list`) is exact. The path list of a connection is a superset of the paths that it
//! watches: the path of a fired watch stays in the list until the list would grow. The hash table
//! from path to number is for lookup only and never iterated.

mod list;

use std::collections::BTreeMap;
use std::hash::{BuildHasher, Hasher};
use std::ops::Bound;

use hashbrown::HashTable;

use crate::ids::ConnId;
use crate::rng::{KeyedHash, KeyedHasher};
use crate::status::WatchSummary;
use crate::wire::{AddWatchMode, EventType, WatcherType};
use list::{List, Watcher};

/// Bytes that the hasher takes at once.
const WORD: usize = 8;

/// All watches of a server.
#[derive(Debug)]
pub(crate) struct Watches {
    hash: KeyedHash,
    by_path: HashTable<PathId>,
    paths: Vec<Path>,
    free_paths: Vec<PathId>,
    by_conn: BTreeMap<ConnId, Slot>,
    conns: Vec<Conn>,
    free_conns: Vec<Slot>,
    counts: Counts,
}

/// How a connection watches a path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Kind {
    /// One-shot watch of the node, set by getData and exists.
    Data,
    /// One-shot watch of the child list, set by getChildren.
    Child,
    /// Persistent watch of both, set by addWatch.
    Persistent,
    /// Persistent watch of the node and all its descendants, without child lists (WATCH-06).
    Recursive,
}

/// The kinds in which one connection watches one path, as a bit set. Kinds coexist (WATCH-07).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Modes(u8);

/// Index of a connection in `Watches::conns`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot(u32);

/// Index of a path in `Watches::paths`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PathId(u32);

/// A watched path, or a free entry.
#[derive(Debug, Default)]
struct Path {
    path: Box<str>,
    list: List,
    /// Watchers with a recursive watch. At zero, an event below this path skips the list.
    recursive: u32,
    /// Watchers in the data table.
    data: u32,
}

/// A connection that watches or has watched, or a free entry.
#[derive(Debug)]
struct Conn {
    id: ConnId,
    /// Every path that the connection watches. Paths of fired watches and duplicates may be among
    /// them.
    paths: Vec<PathId>,
    /// Number of paths that the connection watches.
    live: u32,
    /// Number of those paths that are in the data table.
    data: u32,
}

/// Position in a long listing of watches. Each line is accurate when it is listed; a watch that
/// changes between two parts may be listed or not.
#[derive(Debug, Default)]
pub struct WatchListing {
    /// Index of the next path.
    place: usize,
    /// The connection being listed, and its remaining paths in descending order.
    conn: Option<ConnId>,
    paths: Vec<PathId>,
}

/// Totals over all watchers: in the data table, in the child table (WATCH-28), and recursive ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    data: usize,
    child: usize,
    recursive: usize,
    /// Distinct paths and connections in the data table.
    data_paths: usize,
    data_conns: usize,
}

impl Watches {
    pub(crate) fn new(hash: KeyedHash) -> Watches {
        Watches {
            hash,
            by_path: HashTable::new(),
            paths: Vec::new(),
            free_paths: Vec::new(),
            by_conn: BTreeMap::new(),
            conns: Vec::new(),
            free_conns: Vec::new(),
            counts: Counts::default(),
        }
    }

    pub(crate) fn add(&mut self, kind: Kind, path: &str, conn: ConnId) {
        let id = self.find(path).unwrap_or_else(|| self.place(path));
        let slot = self.by_conn.get(&conn).copied().unwrap_or_else(|| self.intern_conn(conn));
        let before = self.path(id).list.modes(slot);
        self.change(id, slot, before, before.with(kind.modes()));
        if before == Modes::NONE {
            let known = &self.conns[slot.index()];
            if known.paths.len() == known.paths.capacity()
                && known.live as usize <= known.paths.len() / 2
            {
                self.tidy(slot);
            }
            let known = &mut self.conns[slot.index()];
            known.paths.push(id);
            known.live += 1;
        }
    }

    /// The connections to notify of the event, each once, in ascending order (WATCH-08 to
    /// WATCH-11). Removes the one-shot watches that fire.
    pub(crate) fn fire(&mut self, event: EventType, path: &str) -> Vec<ConnId> {
        let table = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => Modes::DATA_TABLE,
            EventType::NodeChildrenChanged => Modes::CHILD_TABLE,
            EventType::NodeDeleted => Modes::DATA_TABLE.with(Modes::CHILD_TABLE),
        };
        let mut conns = Vec::new();
        if self.counts.recursive > 0 && table.meets(Modes::RECURSIVE) {
            self.collect_above(path, &mut conns);
        }
        if let Some(id) = self.find(path) {
            self.fire_at(id, table, &mut conns);
        }
        // Slots are reused, so slot order is not connection order. A connection that watches
        // several ancestors is in the list several times.
        conns.sort_unstable();
        conns.dedup();
        conns
    }

    /// Does the connection have a watch of this type (WATCH-26)?
    pub(crate) fn contains(&self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        self.modes(path, conn).is_some_and(|(.., modes)| modes.meets(Modes::of(which)))
    }

    /// Removes the connection's watches of this type (WATCH-27). Returns whether there were any.
    pub(crate) fn remove(&mut self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        let Some((id, slot, before)) = self.modes(path, conn) else {
            return false;
        };
        let after = before.without(Modes::of(which));
        self.change(id, slot, before, after);
        if after == Modes::NONE {
            self.conns[slot.index()].lose_one();
        }
        before != after
    }

    /// Removes all watches of a closed connection.
    pub(crate) fn drop_conn(&mut self, conn: ConnId) {
        let Some(slot) = self.by_conn.remove(&conn) else {
            return;
        };
        for id in std::mem::take(&mut self.conns[slot.index()].paths) {
            let before = self.path(id).list.modes(slot);
            self.change(id, slot, before, Modes::NONE);
        }
        self.conns[slot.index()].live = 0;
        self.free_conns.push(slot);
    }

    /// Watches in both tables (WATCH-28).
    pub(crate) fn count(&self) -> usize {
        self.counts.data + self.counts.child
    }

    /// Connections, paths and watches of the data table (WATCH-28).
    pub(crate) fn data_summary(&self) -> WatchSummary {
        let Counts { data, data_paths, data_conns, .. } = self.counts;
        WatchSummary { connections: data_conns, paths: data_paths, watches: data }
    }

    /// The data table by connection, in ascending order; the paths of one connection are in no
    /// particular order.
    pub(crate) fn data_by_conn(&self) -> impl Iterator<Item = (ConnId, &str)> {
        self.paths_by_conn(Modes::DATA_TABLE)
    }

    /// The watches of one type, in the same order.
    pub(crate) fn kind_by_conn(&self, which: WatcherType) -> impl Iterator<Item = (ConnId, &str)> {
        self.paths_by_conn(Modes::of(which))
    }

    /// Each connection with each path that it watches in any of these modes, without duplicates.
    /// Allocates four bytes per path, for one connection at a time.
    fn paths_by_conn(&self, modes: Modes) -> impl Iterator<Item = (ConnId, &str)> {
        self.by_conn.iter().flat_map(move |(conn, slot)| {
            let mut paths = Vec::from_iter(self.paths_of(*slot, modes));
            paths.sort_unstable();
            paths.dedup();
            paths.into_iter().map(|id| (*conn, &*self.path(id).path))
        })
    }

    /// The data table by path.
    pub(crate) fn data_by_path(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.paths.iter().flat_map(|path| {
            let watchers = path.list.as_slice().iter().filter(|watcher| watcher.modes().is_data());
            watchers.map(|watcher| (&*path.path, self.conns[watcher.slot().index()].id))
        })
    }

    /// Continues a listing of the data table by connection, by at most `lines` lines. Returns false
    /// at the end.
    pub(crate) fn list_by_conn(
        &self,
        at: &mut WatchListing,
        lines: usize,
        mut put: impl FnMut(ConnId, &str),
    ) -> bool {
        for _ in 0..lines {
            if let (Some(conn), Some(id)) = (at.conn, at.paths.pop()) {
                let slot = self.by_conn.get(&conn);
                // Since the last part, the index may have been reused for another path, and the
                // connection may have been closed.
                if slot.is_some_and(|slot| self.path(id).list.modes(*slot).is_data()) {
                    put(conn, &self.path(id).path);
                }
                continue;
            }
            let from = at.conn.map_or(Bound::Unbounded, Bound::Excluded);
            let Some((conn, slot)) = self.by_conn.range((from, Bound::Unbounded)).next() else {
                return false;
            };
            at.conn = Some(*conn);
            at.paths = self.paths_of(*slot, Modes::DATA_TABLE).collect();
            at.paths.sort_unstable_by(|one, other| other.cmp(one));
            at.paths.dedup();
        }
        true
    }

    /// Continues a listing of the data table by path. Lists all watchers of a path in one part, so
    /// a part may exceed `lines`.
    pub(crate) fn list_by_path(
        &self,
        at: &mut WatchListing,
        lines: usize,
        mut put: impl FnMut(&str, ConnId),
    ) -> bool {
        let mut listed = 0;
        while listed < lines {
            let Some(path) = self.paths.get(at.place) else { return false };
            at.place += 1;
            listed += 1;
            for watcher in path.list.as_slice().iter().filter(|watcher| watcher.modes().is_data()) {
                put(&path.path, self.conns[watcher.slot().index()].id);
                listed += 1;
            }
        }
        true
    }

    /// Paths that the connection watches in any of these modes; may contain duplicates.
    fn paths_of(&self, slot: Slot, modes: Modes) -> impl Iterator<Item = PathId> {
        let paths = self.conns[slot.index()].paths.iter().copied();
        paths.filter(move |id| self.path(*id).list.modes(slot).meets(modes))
    }

    fn path(&self, id: PathId) -> &Path {
        &self.paths[id.index()]
    }

    fn hash(&self, path: &str) -> u64 {
        hash_of(&self.hash, path)
    }

    fn find(&self, path: &str) -> Option<PathId> {
        self.by_path.find(self.hash(path), |id| &*self.path(*id).path == path).copied()
    }

    /// The modes in which the connection watches the path, with both indices; `None` if it does
    /// not.
    fn modes(&self, path: &str, conn: ConnId) -> Option<(PathId, Slot, Modes)> {
        let (id, slot) = (self.find(path)?, *self.by_conn.get(&conn)?);
        let modes = self.path(id).list.modes(slot);
        (modes != Modes::NONE).then_some((id, slot, modes))
    }

    /// Allocates an index for a path; the caller adds a watcher.
    fn place(&mut self, path: &str) -> PathId {
        let id = self.free_paths.pop().unwrap_or_else(|| {
            let id = PathId(u32::try_from(self.paths.len()).expect("places are 32-bit"));
            self.paths.push(Path::default());
            id
        });
        self.paths[id.index()].path = path.into();
        let (paths, hash) = (&self.paths, &self.hash);
        self.by_path
            .insert_unique(hash_of(hash, path), id, |id| hash_of(hash, &paths[id.index()].path));
        id
    }

    /// Allocates an index for a connection.
    fn intern_conn(&mut self, conn: ConnId) -> Slot {
        let slot = self.free_conns.pop().unwrap_or_else(|| {
            let slot = Slot(u32::try_from(self.conns.len()).expect("places are 32-bit"));
            self.conns.push(Conn { id: conn, paths: Vec::new(), live: 0, data: 0 });
            slot
        });
        self.conns[slot.index()].id = conn;
        self.by_conn.insert(conn, slot);
        slot
    }

    /// Changes the modes of one watcher at its path, and updates all counts. Frees a path without
    /// watchers.
    fn change(&mut self, id: PathId, slot: Slot, before: Modes, after: Modes) {
        if before == after {
            return;
        }
        let path = &mut self.paths[id.index()];
        path.list.set(slot, after);
        path.recursive += u32::from(after.meets(Modes::RECURSIVE));
        path.recursive -= u32::from(before.meets(Modes::RECURSIVE));
        self.counts.count(before, after);
        let conn = &mut self.conns[slot.index()];
        let held = [
            (&mut path.data, &mut self.counts.data_paths),
            (&mut conn.data, &mut self.counts.data_conns),
        ];
        count_data(before, after, held);
        self.forget_if_unwatched(id);
    }

    /// Collects the connections that watch exactly this path in the table's modes, and removes the
    /// one-shot modes among these.
    fn fire_at(&mut self, id: PathId, table: Modes, conns: &mut Vec<ConnId>) {
        let spent = Modes(table.0 & Modes::ONCE.0);
        let path = &mut self.paths[id.index()];
        conns.reserve_exact(path.list.len());
        for watcher in path.list.as_slice() {
            let (before, after) = (watcher.modes(), watcher.modes().without(spent));
            if before.meets(table) {
                let conn = &mut self.conns[watcher.slot().index()];
                conns.push(conn.id);
                self.counts.count(before, after);
                let held = [
                    (&mut path.data, &mut self.counts.data_paths),
                    (&mut conn.data, &mut self.counts.data_conns),
                ];
                count_data(before, after, held);
                if after == Modes::NONE {
                    conn.lose_one();
                }
            }
        }
        path.list.strip(spent);
        self.forget_if_unwatched(id);
    }

    /// Collects the connections with a recursive watch on an ancestor of `path`. Hashes each byte
    /// of the path once, and compares names only with ancestors that have recursive watchers.
    fn collect_above(&self, path: &str, conns: &mut Vec<ConnId>) {
        if path.len() > 1
            && path.starts_with('/')
            && let Some(root) = self.find("/")
        {
            self.collect_recursive(root, conns);
        }
        let mut hasher = self.hash.build_hasher();
        let mut hashed = 0;
        // The text before the first slash is empty: the root was looked up as `/` above.
        for (end, _) in path.match_indices('/').skip(1) {
            while hashed + WORD <= end {
                hash_word(&mut hasher, &path.as_bytes()[hashed..]);
                hashed += WORD;
            }
            let mut above = hasher;
            above.write(&path.as_bytes()[hashed..end]);
            let is_above = |id: &PathId| {
                let watched = self.path(*id);
                watched.recursive > 0 && *watched.path == path[..end]
            };
            if let Some(id) = self.by_path.find(above.finish(), is_above) {
                self.collect_recursive(*id, conns);
            }
        }
    }

    fn collect_recursive(&self, id: PathId, conns: &mut Vec<ConnId>) {
        let recursive = |watcher: &&Watcher| watcher.modes().meets(Modes::RECURSIVE);
        let watchers = self.path(id).list.as_slice().iter().filter(recursive);
        conns.extend(watchers.map(|watcher| self.conns[watcher.slot().index()].id));
    }

    fn forget_if_unwatched(&mut self, id: PathId) {
        if self.path(id).list.len() > 0 {
            return;
        }
        let entry = self.by_path.find_entry(self.hash(&self.path(id).path), |other| *other == id);
        entry.expect("a path with a place is found").remove();
        self.paths[id.index()] = Path::default();
        self.free_paths.push(id);
    }

    /// Drops the paths that the connection no longer watches from its list.
    fn tidy(&mut self, slot: Slot) {
        let (paths, conn) = (&self.paths, &mut self.conns[slot.index()]);
        conn.paths.sort_unstable();
        conn.paths.dedup();
        conn.paths.retain(|id| paths[id.index()].list.modes(slot) != Modes::NONE);
    }
}

/// Updates the data-table counts of one watcher's path and connection, and the numbers of paths and
/// connections whose count is positive.
fn count_data(before: Modes, after: Modes, held: [(&mut u32, &mut usize); 2]) {
    for (watchers, holders) in held {
        let had_any = *watchers > 0;
        *watchers = *watchers + u32::from(after.is_data()) - u32::from(before.is_data());
        *holders = *holders + usize::from(*watchers > 0) - usize::from(had_any);
    }
}

impl Conn {
    fn lose_one(&mut self) {
        self.live -= 1;
        if self.live == 0 {
            self.paths = Vec::new();
        }
    }
}

impl Counts {
    /// Updates the totals after a change of one watcher.
    fn count(&mut self, before: Modes, after: Modes) {
        self.data = self.data + usize::from(after.is_data()) - usize::from(before.is_data());
        self.child = self.child + usize::from(after.is_child()) - usize::from(before.is_child());
        self.recursive = self.recursive + usize::from(after.meets(Modes::RECURSIVE))
            - usize::from(before.meets(Modes::RECURSIVE));
    }
}

impl Modes {
    const NONE: Modes = Modes(0);
    const DATA: Modes = Modes(1);
    const CHILD: Modes = Modes(1 << 1);
    const PERSISTENT: Modes = Modes(1 << 2);
    const RECURSIVE: Modes = Modes(1 << 3);
    const ALL: Modes = Modes(0xf);
    /// Bits per set of modes.
    const BITS: u32 = 4;
    /// The one-shot modes.
    const ONCE: Modes = Modes::DATA.with(Modes::CHILD);
    const DATA_TABLE: Modes = Modes::DATA.with(Modes::PERSISTENT).with(Modes::RECURSIVE);
    const CHILD_TABLE: Modes = Modes::CHILD.with(Modes::PERSISTENT);

    /// The modes that a type stands for in checkWatches and removeWatches.
    fn of(which: WatcherType) -> Modes {
        match which {
            WatcherType::Data => Modes::DATA,
            WatcherType::Children => Modes::CHILD,
            WatcherType::Any => Modes::ALL,
            WatcherType::Persistent => Modes::PERSISTENT,
            WatcherType::PersistentRecursive => Modes::RECURSIVE,
        }
    }

    const fn with(self, other: Modes) -> Modes {
        Modes(self.0 | other.0)
    }

    fn without(self, other: Modes) -> Modes {
        Modes(self.0 & !other.0)
    }

    fn meets(self, other: Modes) -> bool {
        self.0 & other.0 != 0
    }

    fn is_data(self) -> bool {
        self.meets(Modes::DATA_TABLE)
    }

    fn is_child(self) -> bool {
        self.meets(Modes::CHILD_TABLE)
    }
}

impl Kind {
    fn modes(self) -> Modes {
        match self {
            Kind::Data => Modes::DATA,
            Kind::Child => Modes::CHILD,
            Kind::Persistent => Modes::PERSISTENT,
            Kind::Recursive => Modes::RECURSIVE,
        }
    }
}

impl From<AddWatchMode> for Kind {
    fn from(mode: AddWatchMode) -> Kind {
        match mode {
            AddWatchMode::Persistent => Kind::Persistent,
            AddWatchMode::PersistentRecursive => Kind::Recursive,
        }
    }
}

impl Slot {
    fn index(self) -> usize {
        self.0 as usize
    }
}

impl PathId {
    fn index(self) -> usize {
        self.0 as usize
    }
}

/// Hashes whole words, then the rest. `collect_above` can therefore hash a path and all its
/// ancestors in one pass.
fn hash_of(keyed: &KeyedHash, path: &str) -> u64 {
    let mut hasher = keyed.build_hasher();
    let mut rest = path.as_bytes();
    while rest.len() >= WORD {
        hash_word(&mut hasher, rest);
        rest = &rest[WORD..];
    }
    hasher.write(rest);
    hasher.finish()
}

/// Hashes the first word of `bytes`.
fn hash_word(hasher: &mut KeyedHasher, bytes: &[u8]) {
    let word = bytes.first_chunk().expect("the caller has seen that there is one");
    hasher.write_u64(u64::from_le_bytes(*word));
}

#[cfg(test)]
mod tests;
