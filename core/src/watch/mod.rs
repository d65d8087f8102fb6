//! Watches: which connection wants to hear of which path, and how long (Java `WatchManager`, WATCH-01 to WATCH-10).
//!
//! Owns both tables of ZooKeeper in one: each connection that watches a path has a set of modes there, and the data and
//! the child table are what some of the modes stand for. Watches belong to connections, not to sessions, and are gone
//! with the connection. Must not know nodes, and takes no `Cx`: it says who is to be told, `server` tells them.
//!
//! A server may hold millions, so paths and connections have numbers. A path knows its watchers exactly (`list`). A
//! connection knows at least the paths it watches: a watch that fires is not looked up there, but goes when the
//! connection's list would grow. The table from path to number is for lookup only and never iterated.

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

/// Bytes that are hashed at once.
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
    /// Once, the node: getData and exists.
    Data,
    /// Once, the list of its children: getChildren.
    Child,
    /// For ever, both.
    Persistent,
    /// For ever, the node and all below it, but no lists of children (WATCH-06).
    Recursive,
}

/// The kinds in which one connection watches one path; they exist side by side (WATCH-07).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Modes(u8);

/// Place of a connection.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Slot(u32);

/// Place of a path.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct PathId(u32);

/// A path that somebody watches, or a free place.
#[derive(Debug, Default)]
struct Path {
    path: Box<str>,
    list: List,
    /// How many of the watchers are recursive: below a path without any, nobody looks at the list.
    recursive: u32,
    /// How many are in the data table.
    data: u32,
}

/// A connection that watches or has watched, or a free place.
#[derive(Debug)]
struct Conn {
    id: ConnId,
    /// Every path that it watches, and others: those whose watches have fired, and some twice.
    paths: Vec<PathId>,
    /// How many it watches.
    live: u32,
    /// How many of those in the data table.
    data: u32,
}

/// How far a long listing of watches has come. Each line is true when it is listed; what changes between two parts may be in it
/// or not.
#[derive(Debug, Default)]
pub struct WatchListing {
    /// The place of the next path.
    place: usize,
    /// The connection that is being listed, and what is left of its paths, last first.
    conn: Option<ConnId>,
    paths: Vec<PathId>,
}

/// Sums over all watchers: of the data table, of the child table (WATCH-28), and recursive ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
struct Counts {
    data: usize,
    child: usize,
    recursive: usize,
    /// Paths and connections that the data table has.
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
        let slot = self.by_conn.get(&conn).copied().unwrap_or_else(|| self.seat(conn));
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

    /// Who is to hear of it, each once, in the order of connections (WATCH-08 to WATCH-11). Watches that fire once have
    /// fired now.
    pub(crate) fn fire(&mut self, event: EventType, path: &str) -> Vec<ConnId> {
        let table = match event {
            EventType::NodeCreated | EventType::NodeDataChanged => Modes::DATA_TABLE,
            EventType::NodeChildrenChanged => Modes::CHILD_TABLE,
            EventType::NodeDeleted => Modes::DATA_TABLE.with(Modes::CHILD_TABLE),
        };
        let mut told = Vec::new();
        if self.counts.recursive > 0 && table.meets(Modes::RECURSIVE) {
            self.collect_above(path, &mut told);
        }
        if let Some(id) = self.find(path) {
            self.fire_at(id, table, &mut told);
        }
        // Slots are dealt anew: their order is not that of connections. A connection may watch several ancestors.
        told.sort_unstable();
        told.dedup();
        told
    }

    /// Does the connection have such a watch (WATCH-26)?
    pub(crate) fn contains(&self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        self.modes(path, conn).is_some_and(|(.., modes)| modes.meets(Modes::of(which)))
    }

    /// Takes such watches away (WATCH-27) and says whether there were any.
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

    /// The connection is gone, and its watches with it.
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

    /// Watches set, both tables (WATCH-28).
    pub(crate) fn count(&self) -> usize {
        self.counts.data + self.counts.child
    }

    /// How many connections watch how many paths; of the data table only (WATCH-28).
    pub(crate) fn data_summary(&self) -> WatchSummary {
        let Counts { data, data_paths, data_conns, .. } = self.counts;
        WatchSummary { connections: data_conns, paths: data_paths, watches: data }
    }

    /// The data table, connection by connection in their order; the paths of each come in no particular one.
    pub(crate) fn data_by_conn(&self) -> impl Iterator<Item = (ConnId, &str)> {
        self.paths_by_conn(Modes::DATA_TABLE)
    }

    /// Watches of one kind, in the same order.
    pub(crate) fn kind_by_conn(&self, which: WatcherType) -> impl Iterator<Item = (ConnId, &str)> {
        self.paths_by_conn(Modes::of(which))
    }

    /// Each connection with each path that it watches in any of these modes, each path once. It takes four bytes for each
    /// path of one connection at a time.
    fn paths_by_conn(&self, modes: Modes) -> impl Iterator<Item = (ConnId, &str)> {
        self.by_conn.iter().flat_map(move |(conn, slot)| {
            let mut paths = Vec::from_iter(self.paths_of(*slot, modes));
            paths.sort_unstable();
            paths.dedup();
            paths.into_iter().map(|id| (*conn, &*self.path(id).path))
        })
    }

    /// The data table, path by path.
    pub(crate) fn data_by_path(&self) -> impl Iterator<Item = (&str, ConnId)> {
        self.paths.iter().flat_map(|path| {
            let watchers = path.list.as_slice().iter().filter(|watcher| watcher.modes().is_data());
            watchers.map(|watcher| (&*path.path, self.conns[watcher.slot().index()].id))
        })
    }

    /// Some lines more of the data table, connection by connection. Is there more?
    pub(crate) fn list_by_conn(
        &self,
        at: &mut WatchListing,
        lines: usize,
        mut put: impl FnMut(ConnId, &str),
    ) -> bool {
        for _ in 0..lines {
            if let (Some(conn), Some(id)) = (at.conn, at.paths.pop()) {
                let slot = self.by_conn.get(&conn);
                // It may have been given to another path since, or the connection may be gone.
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

    /// The same path by path; those who watch one path are not told apart from the others.
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

    /// Paths that the connection watches in any of these modes; some may come twice.
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

    /// Where the connection watches the path in some way.
    fn modes(&self, path: &str, conn: ConnId) -> Option<(PathId, Slot, Modes)> {
        let (id, slot) = (self.find(path)?, *self.by_conn.get(&conn)?);
        let modes = self.path(id).list.modes(slot);
        (modes != Modes::NONE).then_some((id, slot, modes))
    }

    /// Gives a path a place; the caller gives it a watcher.
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

    /// Gives a connection a place.
    fn seat(&mut self, conn: ConnId) -> Slot {
        let slot = self.free_conns.pop().unwrap_or_else(|| {
            let slot = Slot(u32::try_from(self.conns.len()).expect("places are 32-bit"));
            self.conns.push(Conn { id: conn, paths: Vec::new(), live: 0, data: 0 });
            slot
        });
        self.conns[slot.index()].id = conn;
        self.by_conn.insert(conn, slot);
        slot
    }

    /// The path's side of every change to a single watcher. A path that nobody watches is forgotten.
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

    /// Whoever watches this very path in the table's modes is told; of these modes, those for once are spent.
    fn fire_at(&mut self, id: PathId, table: Modes, told: &mut Vec<ConnId>) {
        let spent = Modes(table.0 & Modes::ONCE.0);
        let path = &mut self.paths[id.index()];
        told.reserve_exact(path.list.len());
        for watcher in path.list.as_slice() {
            let (before, after) = (watcher.modes(), watcher.modes().without(spent));
            if before.meets(table) {
                let conn = &mut self.conns[watcher.slot().index()];
                told.push(conn.id);
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

    /// Whoever watches all that is below a path above this one. Hashes each byte of the path once, and compares it only with
    /// those above it that have such watchers.
    fn collect_above(&self, path: &str, told: &mut Vec<ConnId>) {
        if path.len() > 1
            && path.starts_with('/')
            && let Some(root) = self.find("/")
        {
            self.collect_recursive(root, told);
        }
        let mut hasher = self.hash.build_hasher();
        let mut hashed = 0;
        // What comes before the first slash is nothing: the root has been looked for by its own name.
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
                self.collect_recursive(*id, told);
            }
        }
    }

    fn collect_recursive(&self, id: PathId, told: &mut Vec<ConnId>) {
        let recursive = |watcher: &&Watcher| watcher.modes().meets(Modes::RECURSIVE);
        let watchers = self.path(id).list.as_slice().iter().filter(recursive);
        told.extend(watchers.map(|watcher| self.conns[watcher.slot().index()].id));
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

    /// A connection forgets the paths that it no longer watches.
    fn tidy(&mut self, slot: Slot) {
        let (paths, conn) = (&self.paths, &mut self.conns[slot.index()]);
        conn.paths.sort_unstable();
        conn.paths.dedup();
        conn.paths.retain(|id| paths[id.index()].list.modes(slot) != Modes::NONE);
    }
}

/// A watcher has changed: how many there are of the data table at its path and its connection, and how many of these have any.
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
    /// A watcher has changed.
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
    /// How many bits that takes.
    const BITS: u32 = 4;
    /// Those that are gone when they have fired.
    const ONCE: Modes = Modes::DATA.with(Modes::CHILD);
    const DATA_TABLE: Modes = Modes::DATA.with(Modes::PERSISTENT).with(Modes::RECURSIVE);
    const CHILD_TABLE: Modes = Modes::CHILD.with(Modes::PERSISTENT);

    /// What a client may ask for and take away by this name.
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

/// Whole words, and then the rest: so the hash of a path is made of the same words as those of all paths above it.
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

/// The first word of what is left.
fn hash_word(hasher: &mut KeyedHasher, bytes: &[u8]) {
    let word = bytes.first_chunk().expect("the caller has seen that there is one");
    hasher.write_u64(u64::from_le_bytes(*word));
}

#[cfg(test)]
mod tests;
