//! Tests of watches: rows and edge cases one by one, and random operations against a model of
//! ZooKeeper's two tables.

use std::collections::BTreeSet;

use super::*;
use crate::rng::Rng;

const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);

fn none() -> Watches {
    Watches::new(KeyedHash::default())
}

fn created(watches: &mut Watches, path: &str) -> Vec<ConnId> {
    watches.fire(EventType::NodeCreated, path)
}

fn changed(watches: &mut Watches, path: &str) -> Vec<ConnId> {
    watches.fire(EventType::NodeDataChanged, path)
}

fn deleted(watches: &mut Watches, path: &str) -> Vec<ConnId> {
    watches.fire(EventType::NodeDeleted, path)
}

fn children(watches: &mut Watches, path: &str) -> Vec<ConnId> {
    watches.fire(EventType::NodeChildrenChanged, path)
}

#[test]
fn edge_103_a_watch_fires_once() {
    let mut watches = none();
    watches.add(Kind::Data, "/x", B);
    watches.add(Kind::Data, "/x", A);
    watches.add(Kind::Data, "/x", A);
    assert_eq!(watches.count(), 2);
    assert_eq!(changed(&mut watches, "/x"), [A, B]);
    assert!(changed(&mut watches, "/x").is_empty());
    assert_eq!(watches.count(), 0);
}

#[test]
fn edge_136_watches_are_dropped_with_their_connection() {
    let mut watches = none();
    watches.add(Kind::Data, "/x", A);
    watches.add(Kind::Child, "/x", A);
    watches.add(Kind::Child, "/x", B);
    watches.drop_conn(A);
    watches.drop_conn(A);
    assert_eq!(watches.count(), 1);
    assert_eq!(children(&mut watches, "/x"), [B]);
}

#[test]
fn edges_119_and_120_second_removal_of_any_watch_finds_nothing() {
    let mut watches = none();
    assert!(!watches.contains("/x", A, WatcherType::Any));
    watches.add(Kind::Child, "/x", A);
    assert!(!watches.remove("/x", A, WatcherType::Data));
    assert!(watches.remove("/x", A, WatcherType::Any));
    assert!(!watches.remove("/x", A, WatcherType::Any));
    assert_eq!(watches.count(), 0);
}

#[test]
fn edges_104_and_105_deletion_notifies_data_and_child_watcher_once() {
    let mut watches = none();
    watches.add(Kind::Data, "/x", A);
    watches.add(Kind::Child, "/x", A);
    watches.add(Kind::Child, "/x", B);
    assert_eq!(deleted(&mut watches, "/x"), [A, B]);
    assert_eq!(watches.count(), 0, "both are used up");
}

#[test]
fn edges_106_to_108_data_and_child_watches_are_independent() {
    let mut watches = none();
    watches.add(Kind::Data, "/p", A);
    watches.add(Kind::Child, "/p", B);
    assert_eq!(children(&mut watches, "/p"), [B]);
    watches.add(Kind::Child, "/p", B);
    assert_eq!(changed(&mut watches, "/p"), [A]);
    assert!(children(&mut watches, "/p/c").is_empty());
    assert!(created(&mut watches, "/p/c").is_empty(), "one-shot watches cover one node");
}

#[test]
fn edges_110_and_111_persistent_watch_stays_in_both_tables() {
    let mut watches = none();
    watches.add(Kind::Persistent, "/p", A);
    assert_eq!(watches.count(), 2);
    for _ in 0..2 {
        assert_eq!(created(&mut watches, "/p"), [A]);
        assert_eq!(children(&mut watches, "/p"), [A]);
        assert_eq!(changed(&mut watches, "/p"), [A]);
        assert_eq!(deleted(&mut watches, "/p"), [A]);
        assert!(created(&mut watches, "/p/c").is_empty());
    }
}

#[test]
fn edges_112_to_114_recursive_watch_covers_descendants_without_child_events() {
    let mut watches = none();
    watches.add(Kind::Recursive, "/r", A);
    assert_eq!(watches.count(), 1);
    assert!(created(&mut watches, "/rx").is_empty());
    assert!(created(&mut watches, "/").is_empty());
    assert_eq!(created(&mut watches, "/r/a/b"), [A]);
    assert_eq!(deleted(&mut watches, "/r/a/b"), [A]);
    assert_eq!(changed(&mut watches, "/r"), [A]);
    assert!(children(&mut watches, "/r").is_empty());
    assert!(children(&mut watches, "/r/a").is_empty());
    watches.add(Kind::Recursive, "/", A);
    assert_eq!(changed(&mut watches, "/r"), [A], "edge 114: one event");
    assert_eq!(changed(&mut watches, "/"), [A]);
    assert_eq!(created(&mut watches, "/zookeeper/quota/a"), [A]);
}

/// WATCH-07.
#[test]
fn watch_kinds_coexist_and_only_one_shots_are_removed() {
    let mut watches = none();
    for kind in [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive, Kind::Data] {
        watches.add(kind, "/x", A);
    }
    assert_eq!(watches.count(), 2, "a table counts a connection once");
    assert_eq!(changed(&mut watches, "/x"), [A]);
    let has = |watches: &Watches, which| watches.contains("/x", A, which);
    assert!(!has(&watches, WatcherType::Data) && has(&watches, WatcherType::Children));
    assert!(has(&watches, WatcherType::Persistent));
    assert!(has(&watches, WatcherType::PersistentRecursive));
    assert_eq!(deleted(&mut watches, "/x"), [A]);
    assert!(!has(&watches, WatcherType::Children) && has(&watches, WatcherType::Any));
}

/// WATCH-26, WATCH-27.
#[test]
fn edge_121_watches_are_checked_and_removed_by_type() {
    let mut watches = none();
    watches.add(Kind::Persistent, "/x", A);
    assert!(!watches.remove("/x", A, WatcherType::Data), "edge 121");
    assert!(!watches.remove("/x", A, WatcherType::Children));
    watches.add(Kind::Data, "/x", A);
    watches.add(Kind::Recursive, "/x", A);
    assert!(watches.remove("/x", A, WatcherType::Persistent));
    assert!(!watches.remove("/x", A, WatcherType::Persistent));
    assert!(children(&mut watches, "/x").is_empty(), "gone from both tables");
    assert!(watches.remove("/x", A, WatcherType::Data));
    assert_eq!(created(&mut watches, "/x/y"), [A]);
    assert!(watches.remove("/x", A, WatcherType::PersistentRecursive));
    assert!(created(&mut watches, "/x/y").is_empty());
    for kind in [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive] {
        watches.add(kind, "/x", A);
    }
    watches.add(Kind::Data, "/x", B);
    assert!(watches.remove("/x", A, WatcherType::Any));
    assert!(!watches.contains("/x", A, WatcherType::Any));
    assert_eq!(changed(&mut watches, "/x"), [B], "another's watch is left alone");
}

/// WATCH-28, edge 135.
#[test]
fn edge_135_wchs_wchc_wchp_list_only_the_data_watch_table() {
    let mut watches = none();
    watches.add(Kind::Data, "/", A);
    watches.add(Kind::Child, "/", A);
    watches.add(Kind::Child, "/c", B);
    assert_eq!(watches.count(), 3);
    let summary = WatchSummary { connections: 1, paths: 1, watches: 1 };
    assert_eq!(watches.data_summary(), summary);
    watches.add(Kind::Persistent, "/c", B);
    watches.add(Kind::Recursive, "/", B);
    assert_eq!(Vec::from_iter(watches.data_by_conn()), [(A, "/"), (B, "/"), (B, "/c")]);
    assert_eq!(Vec::from_iter(watches.data_by_path()), [("/", A), ("/", B), ("/c", B)]);
    let of = |which| Vec::from_iter(watches.kind_by_conn(which));
    assert_eq!(of(WatcherType::Data), [(A, "/")]);
    assert_eq!(of(WatcherType::Children), [(A, "/"), (B, "/c")]);
    assert_eq!(of(WatcherType::Persistent), [(B, "/c")]);
    assert_eq!(of(WatcherType::PersistentRecursive), [(B, "/")]);
    assert_eq!(of(WatcherType::Any), [(A, "/"), (B, "/"), (B, "/c")]);
}

#[test]
fn repeated_watches_of_one_connection_take_bounded_memory() {
    let mut watches = none();
    watches.add(Kind::Child, "/other", A);
    for round in 0..10_000 {
        let path = format!("/{}", round % 10);
        watches.add(Kind::Data, &path, A);
        assert_eq!(changed(&mut watches, &path), [A]);
    }
    assert!(watches.conns[0].paths.capacity() <= 8, "{}", watches.conns[0].paths.capacity());
    assert!(watches.paths.len() <= 2);
    assert!(watches.remove("/other", A, WatcherType::Any));
    assert!(watches.by_path.is_empty());
}

/// One of ZooKeeper's tables: path, connection and mode of each watch.
type Table = BTreeSet<(String, ConnId, u8)>;

/// Model of both tables, as the rows describe them.
#[derive(Default)]
struct Model {
    data: Table,
    child: Table,
}

const STANDARD: u8 = 0;
const PERSISTENT: u8 = 1;
const RECURSIVE: u8 = 2;

impl Model {
    fn add(&mut self, kind: Kind, path: &str, conn: ConnId) {
        let path = path.to_owned();
        match kind {
            Kind::Data => self.data.insert((path, conn, STANDARD)),
            Kind::Child => self.child.insert((path, conn, STANDARD)),
            Kind::Persistent => {
                self.data.insert((path.clone(), conn, PERSISTENT));
                self.child.insert((path, conn, PERSISTENT))
            }
            Kind::Recursive => self.data.insert((path, conn, RECURSIVE)),
        };
    }

    fn trigger(table: &mut Table, path: &str) -> BTreeSet<ConnId> {
        let covers = |(watched, _, mode): &&(String, ConnId, u8)| {
            let below = format!("{}/", watched.trim_end_matches('/'));
            let recursive = *mode == RECURSIVE && !watched.is_empty();
            watched == path || recursive && path.starts_with(&below)
        };
        let conns = table.iter().filter(covers).map(|(_, conn, _)| *conn).collect();
        table.retain(|(watched, _, mode)| watched != path || *mode != STANDARD);
        conns
    }

    fn fire(&mut self, event: EventType, path: &str) -> BTreeSet<ConnId> {
        match event {
            EventType::NodeCreated | EventType::NodeDataChanged => {
                Self::trigger(&mut self.data, path)
            }
            EventType::NodeChildrenChanged => Self::trigger(&mut self.child, path),
            EventType::NodeDeleted => {
                let conns = Self::trigger(&mut self.data, path);
                &conns | &Self::trigger(&mut self.child, path)
            }
        }
    }

    fn remove(&mut self, path: &str, conn: ConnId, which: WatcherType) -> bool {
        let gone = |mode: Option<u8>| {
            move |watch: &(String, ConnId, u8)| {
                watch.0 == path && watch.1 == conn && mode.is_none_or(|mode| watch.2 == mode)
            }
        };
        let take = |table: &mut Table, mode| {
            let before = table.len();
            table.retain(|watch| !gone(mode)(watch));
            before != table.len()
        };
        match which {
            WatcherType::Data => take(&mut self.data, Some(STANDARD)),
            WatcherType::Children => take(&mut self.child, Some(STANDARD)),
            WatcherType::Any => take(&mut self.data, None) | take(&mut self.child, None),
            WatcherType::Persistent => {
                take(&mut self.data, Some(PERSISTENT)) | take(&mut self.child, Some(PERSISTENT))
            }
            WatcherType::PersistentRecursive => take(&mut self.data, Some(RECURSIVE)),
        }
    }

    fn watchers(table: &Table) -> BTreeSet<(&str, ConnId)> {
        table.iter().map(|(path, conn, _)| (path.as_str(), *conn)).collect()
    }
}

fn check(watches: &Watches, model: &Model) {
    let (data, child) = (Model::watchers(&model.data), Model::watchers(&model.child));
    assert_eq!(watches.count(), data.len() + child.len());
    let mut by_path = Vec::from_iter(watches.data_by_path());
    by_path.sort_unstable();
    assert_eq!(by_path, Vec::from_iter(data.iter().copied()));
    let mut by_conn = Vec::from_iter(watches.data_by_conn().map(|(conn, path)| (path, conn)));
    assert!(by_conn.is_sorted_by_key(|(_, conn)| conn));
    by_conn.sort_unstable();
    assert_eq!(by_conn, by_path);
    for lines in [1, 3] {
        let (mut at, mut listed) = (WatchListing::default(), Vec::new());
        let mut put = |conn, path: &str| listed.push((conn, path.to_owned()));
        while watches.list_by_conn(&mut at, lines, &mut put) {}
        let whole = watches.data_by_conn().map(|(conn, path)| (conn, path.to_owned()));
        assert_eq!(listed, Vec::from_iter(whole));

        let (mut at, mut listed) = (WatchListing::default(), Vec::new());
        let mut put = |path: &str, conn| listed.push((path.to_owned(), conn));
        while watches.list_by_path(&mut at, lines, &mut put) {}
        let whole = watches.data_by_path().map(|(path, conn)| (path.to_owned(), conn));
        assert_eq!(listed, Vec::from_iter(whole));
    }
    let summary = WatchSummary {
        connections: data.iter().map(|(_, conn)| conn).collect::<BTreeSet<_>>().len(),
        paths: data.iter().map(|(path, _)| path).collect::<BTreeSet<_>>().len(),
        watches: data.len(),
    };
    assert_eq!(watches.data_summary(), summary);
}

/// Paths with common beginnings; the last two never have events.
const PATHS: [&str; 13] = [
    "/",
    "/a",
    "/a/b",
    "/a/b/c",
    "/ab",
    "/a/bc",
    "/z",
    "/z/z/z",
    "/a/b/cdefgh",
    "/a/b/cdefgh/ijklmnopqrs",
    "/a/b/cdefgh/ijklmnopqrs/t",
    "no path",
    "",
];
const KINDS: [Kind; 4] = [Kind::Data, Kind::Child, Kind::Persistent, Kind::Recursive];
const EVENTS: [EventType; 4] = [
    EventType::NodeCreated,
    EventType::NodeDeleted,
    EventType::NodeDataChanged,
    EventType::NodeChildrenChanged,
];
const TYPES: [WatcherType; 5] = [
    WatcherType::Data,
    WatcherType::Children,
    WatcherType::Any,
    WatcherType::Persistent,
    WatcherType::PersistentRecursive,
];

/// WATCH-01 to WATCH-11, WATCH-26 to WATCH-28.
#[test]
fn random_operations_match_a_model_of_zookeepers_tables() {
    for seed in 0..40 {
        let mut rng = Rng::new(seed);
        let mut watches = Watches::new(KeyedHash::new(&mut rng));
        let mut model = Model::default();
        let mut conns: Vec<ConnId> = (1..=6).map(ConnId).collect();
        let mut next = 7;
        for _ in 0..600 {
            let mut pick =
                |count: usize| usize::try_from(rng.below(u32::try_from(count).unwrap())).unwrap();
            let (path, at) = (PATHS[pick(PATHS.len())], pick(conns.len()));
            let conn = conns[at];
            match pick(20) {
                0 => {
                    watches.drop_conn(conn);
                    model.data.retain(|watch| watch.1 != conn);
                    model.child.retain(|watch| watch.1 != conn);
                    conns[at] = ConnId(next);
                    next += 1;
                }
                1..=3 => {
                    let which = TYPES[pick(TYPES.len())];
                    let had = watches.contains(path, conn, which);
                    assert_eq!(watches.remove(path, conn, which), had);
                    assert_eq!(model.remove(path, conn, which), had);
                }
                4..=8 => {
                    let (event, path) = (EVENTS[pick(4)], PATHS[pick(11)]);
                    let conns = Vec::from_iter(model.fire(event, path));
                    assert_eq!(watches.fire(event, path), conns, "{event:?} {path}");
                }
                _ => {
                    let kind = KINDS[pick(4)];
                    watches.add(kind, path, conn);
                    model.add(kind, path, conn);
                }
            }
            check(&watches, &model);
        }
        conns.iter().for_each(|conn| watches.drop_conn(*conn));
        assert!(watches.by_path.is_empty() && watches.by_conn.is_empty());
        assert_eq!(watches.counts, Counts::default());
    }
}
