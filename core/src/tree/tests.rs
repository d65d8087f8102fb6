//! Tests of the tree: Stats row by row, and snapshots taken while the tree changes.

use std::collections::BTreeMap;

use super::*;
use crate::config::TreeOptions;
use crate::rng::Rng;
use crate::txn::Lifetime;

const NOBODY: SessionId = SessionId(0);

fn tree() -> Tree {
    Tree::new(KeyedHash::new(&mut Rng::new(7)))
}

/// Creates `path` with the sequence counter that the leader would assign.
fn create(tree: &mut Tree, path: &str, owner: SessionId, zxid: u64) -> Stat {
    let parent = tree.find(split(path).expect("no root").0).expect("the parent exists");
    let parent_creates = tree.node(parent).creates + 1;
    let new = NewNode { path, data: Some(b"x"), acl: &Acl::open(), owner, parent_creates };
    tree.create(new, Zxid(zxid), WallMs(zxid.cast_signed() * 10)).expect("fits")
}

fn stat(tree: &Tree, path: &str) -> Stat {
    tree.stat(tree.find(path).expect("the node exists"))
}

/// DATA-25.
#[test]
fn edges_61_to_63_new_tree_has_the_nodes_of_zookeeper() {
    let tree = tree();
    for (path, cversion, aversion, children) in
        [("/", -1, 0, 1), ("/zookeeper", -2, 0, 2), ("/zookeeper/config", 0, -1, 0)]
    {
        let stat = stat(&tree, path);
        assert_eq!(
            (stat.cversion, stat.aversion, stat.num_children, stat.czxid, stat.mtime),
            (cversion, aversion, children, Zxid::ZERO, 0),
            "{path}"
        );
    }
    assert_eq!(tree.counts().nodes, 4);
    let config = tree.find("/zookeeper/config").expect("DATA-27");
    let [acl] = tree.acl(config) else { panic!("one entry") };
    assert_eq!((acl.perms, &*acl.scheme, &*acl.id), (Perms::READ, "world", "anyone"));
}

/// STAT-03, STAT-05.
#[test]
fn edges_65_to_67_child_changes_update_pzxid_and_cversion() {
    let mut tree = tree();
    let created = create(&mut tree, "/p", NOBODY, 1);
    assert_eq!((created.pzxid, created.czxid, created.ctime), (Zxid(1), Zxid(1), 10));
    create(&mut tree, "/p/a", NOBODY, 2);
    create(&mut tree, "/p/b", NOBODY, 3);
    assert_eq!(stat(&tree, "/p").cversion, 2);
    tree.delete("/p/a", Zxid(4)).expect("fits");
    assert_eq!(stat(&tree, "/p").cversion, 3);
    create(&mut tree, "/p/c", NOBODY, 5);
    let parent = stat(&tree, "/p");
    assert_eq!((parent.cversion, parent.pzxid, parent.num_children), (4, Zxid(5), 2));
    assert_eq!((parent.mzxid, parent.version), (Zxid(1), 0), "the node itself has not changed");
    assert_eq!(tree.node(tree.find("/p").expect("there")).creates, 3, "the sequence counter");
}

/// DATA-15.
#[test]
fn edge_30_sequence_counter_never_decreases() {
    let mut tree = tree();
    create(&mut tree, "/p", NOBODY, 1);
    for (path, parent_creates) in [("/p/a", i32::MAX), ("/p/b", i32::MIN)] {
        let new = NewNode { path, data: None, acl: &Acl::open(), owner: NOBODY, parent_creates };
        tree.create(new, Zxid(2), WallMs(0)).expect("fits");
    }
    assert_eq!(tree.node(tree.find("/p").expect("there")).creates, i32::MAX);
}

#[test]
fn paths_are_found_component_by_component() {
    let mut tree = tree();
    create(&mut tree, "/a", NOBODY, 1);
    create(&mut tree, "/a/b", NOBODY, 2);
    for missing in ["/b", "/a/", "//a", "a", "/a//b", "/a/b/"] {
        assert_eq!(tree.find(missing), None, "{missing}");
    }
    assert_eq!(tree.find(""), Some(NodeId::ROOT));
    assert_eq!(tree.children(tree.find("/a").expect("there")), ["b"]);
}

/// OP-08.
#[test]
fn children_are_listed_in_order_of_creation() {
    let mut tree = tree();
    assert_eq!(names(&tree, "/zookeeper"), ["config", "quota"]);
    create(&mut tree, "/p", NOBODY, 1);
    for (name, zxid) in [("d", 2), ("b", 3), ("e", 4), ("a", 4), ("c", 4)] {
        create(&mut tree, &format!("/p/{name}"), NOBODY, zxid);
    }
    assert_eq!(names(&tree, "/p"), ["d", "b", "e", "a", "c"]);
    // The oldest, the youngest, and one in between; a child that is created again becomes the
    // youngest.
    for (name, left) in [("d", "b e a c d"), ("d", "b e a c d"), ("a", "b e c d a")] {
        tree.delete(&format!("/p/{name}"), Zxid(5)).expect("fits");
        create(&mut tree, &format!("/p/{name}"), NOBODY, 5);
        assert_eq!(names(&tree, "/p").join(" "), left);
    }
    for name in ["a", "e", "b", "d", "c"] {
        tree.delete(&format!("/p/{name}"), Zxid(6)).expect("fits");
    }
    create(&mut tree, "/p/f", NOBODY, 7);
    assert_eq!(names(&tree, "/p"), ["f"]);
}

/// OP-08. Snapshots of older builds do not record the order of siblings that one transaction
/// created.
#[test]
fn snapshot_of_older_build_loads_with_deterministic_child_order() {
    let mut tree = tree();
    create(&mut tree, "/gone", NOBODY, 1);
    create(&mut tree, "/p", NOBODY, 1);
    tree.delete("/gone", Zxid(2)).expect("fits");
    for (name, zxid) in [("z", 2), ("y", 2), ("b", 3), ("x", 4), ("c", 4)] {
        create(&mut tree, &format!("/p/{name}"), NOBODY, zxid);
    }
    let (chunk, _) = snapshot(&mut tree);
    assert_eq!(
        names(&load(std::slice::from_ref(&chunk), KeyedHash::default()).expect("whole").0, "/p"),
        ["z", "y", "b", "x", "c"]
    );
    let mut loaded = load(&[as_older_build(&chunk)], KeyedHash::default()).expect("whole").0;
    assert_eq!(
        names(&loaded, "/p"),
        ["y", "z", "b", "c", "x"],
        "by name where nothing else decides"
    );
    create(&mut loaded, "/p/a", NOBODY, 5);
    let (chunk, _) = snapshot(&mut loaded);
    let again = load(&[chunk], KeyedHash::default()).expect("whole").0;
    assert_eq!(names(&again, "/p"), ["y", "z", "b", "c", "x", "a"]);
}

/// OP-104.
#[test]
fn descendants_are_counted_at_every_level() {
    let mut tree = tree();
    let below = |tree: &Tree| {
        ["/", "/a", "/a/b"].map(|path| tree.descendants(tree.find(path).expect("there")))
    };
    for (path, zxid) in [("/a", 1), ("/a/b", 2), ("/a/b/c", 3), ("/a/d", 4)] {
        create(&mut tree, path, NOBODY, zxid);
    }
    assert_eq!(below(&tree), [7, 3, 1]);
    tree.delete("/a/b/c", Zxid(5)).expect("fits");
    assert_eq!(below(&tree), [6, 2, 0]);
}

/// The incremental counts equal those of a full walk.
#[test]
fn descendant_counts_and_ephemerals_match_a_full_walk() {
    for seed in 0..100 {
        let mut rng = Rng::new(seed);
        let (mut tree, mut zxid) = (Tree::new(KeyedHash::new(&mut rng)), 0);
        for _ in 0..60 {
            change(&mut tree, &mut rng, &mut zxid);
            let mut ephemerals = BTreeSet::new();
            let nodes = walk(&tree, NodeId::ROOT, &mut ephemerals);
            assert_eq!(tree.counts().nodes, nodes);
            assert_eq!(tree.ephemerals, ephemerals, "seed {seed}");
            assert_eq!(tree.counts().ephemerals, ephemerals.len());
        }
    }
}

/// Visits a node and its descendants; returns their number.
fn walk(tree: &Tree, id: NodeId, ephemerals: &mut BTreeSet<(SessionId, Box<str>)>) -> usize {
    let node = tree.node(id);
    if node.is_ephemeral() {
        ephemerals.insert((node.owner, tree.path_of(id).into()));
    }
    let below: usize = tree.child_ids(id).map(|child| walk(tree, child, ephemerals)).sum();
    assert_eq!(tree.descendants(id), i32::try_from(below).expect("few"), "{}", tree.path_of(id));
    below + 1
}

/// A node that is its own ancestor cannot be reached from the root.
#[test]
fn snapshot_with_a_parent_cycle_is_refused() {
    let mut tree = tree();
    for path in ["/a", "/a/zookeeper_limits", "/a/e"] {
        create(&mut tree, path, NOBODY, 1);
    }
    let (a, limits) =
        (tree.find("/a").expect("there"), tree.find("/a/zookeeper_limits").expect("there"));
    tree.node_mut(a).parent = limits;
    let (chunk, _) = snapshot(&mut tree);
    let refused = load(&[chunk], KeyedHash::default()).expect_err("it is no tree");
    assert_eq!(refused.what, "snapshot: some places are their own ancestors");
}

fn names(tree: &Tree, path: &str) -> Vec<String> {
    tree.children(tree.find(path).expect("the node exists"))
}

/// The whole snapshot in one slice.
fn snapshot(tree: &mut Tree) -> (Bytes, bool) {
    let header = SnapshotHeader {
        zxid: Zxid(9),
        sessions: vec![],
        owners: vec![],
        last_session_ids: vec![],
        keyed: vec![],
    };
    tree.begin_snapshot(header, 1);
    tree.snapshot_slice(1 << 20)
}

/// The same snapshot as written by builds that do not know `NodeInTxn` and `KeyedSessions`.
fn as_older_build(chunk: &[u8]) -> Bytes {
    let mut rest = chunk;
    let mut older = Vec::new();
    while !rest.is_empty() {
        let (item, behind) = postcard::take_from_bytes(rest).expect("a whole chunk");
        let item = match item {
            SnapshotItem::NodeInTxn { id, node, .. } => SnapshotItem::Node { id, node },
            other @ (SnapshotItem::Header { .. }
            | SnapshotItem::Acl { .. }
            | SnapshotItem::Node { .. }
            | SnapshotItem::Owners(_)) => other,
            SnapshotItem::KeyedSessions(_) => {
                rest = behind;
                continue;
            }
        };
        older = postcard::to_extend(&item, older).expect("plain data encodes");
        rest = behind;
    }
    Bytes::from(older)
}

#[test]
fn ephemerals_are_indexed_by_session() {
    let mut tree = tree();
    create(&mut tree, "/p", NOBODY, 1);
    create(&mut tree, "/p/e", SessionId(9), 2);
    create(&mut tree, "/f", SessionId(9), 3);
    create(&mut tree, "/p/em", SessionId(9), 3);
    create(&mut tree, "/p/o", SessionId(8), 3);
    for (prefix, below) in [
        ("", &["/f", "/p/e", "/p/em"][..]),
        ("/p/e", &["/p/e", "/p/em"]),
        ("/p/em", &["/p/em"]),
        ("/p/o", &[]),
        ("/q", &[]),
        ("x", &[]),
    ] {
        assert_eq!(Vec::from_iter(tree.ephemerals(SessionId(9), prefix)), below, "{prefix}");
    }
    assert_eq!(Vec::from_iter(tree.owners()), [SessionId(8), SessionId(9)]);
    let behind = |last| Vec::from_iter(tree.ephemerals_behind(last));
    assert_eq!(behind(Some((SessionId(9), "/p/e"))), [(SessionId(9), "/p/em")]);
    assert_eq!(behind(Some((SessionId(8), "/p/o"))), behind(None)[1..]);
    assert_eq!(behind(None)[0], (SessionId(8), "/p/o"));
    tree.delete("/p/em", Zxid(4)).expect("fits");
    tree.delete("/p/o", Zxid(4)).expect("fits");
    assert_eq!(stat(&tree, "/f").ephemeral_owner, SessionId(9));
    tree.delete("/p/e", Zxid(4)).expect("fits");
    tree.delete("/f", Zxid(4)).expect("fits");
    assert_eq!(tree.owners().count(), 0);
    assert_eq!(tree.counts().ephemerals, 0);
}

/// Random changes between slices of random size: the loaded tree equals the tree at the beginning
/// of the walk.
#[test]
fn snapshot_is_exact_while_the_tree_changes() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut tree = Tree::new(KeyedHash::new(&mut rng));
        let mut zxid = 0;
        for number in 1..4 {
            for _ in 0..rng.below(60) {
                change(&mut tree, &mut rng, &mut zxid);
            }
            let before = picture(&tree);
            let header = SnapshotHeader {
                zxid: Zxid(zxid),
                sessions: vec![(SessionId(3), 400)],
                owners: vec![],
                last_session_ids: vec![],
                keyed: vec![],
            };
            tree.begin_snapshot(header.clone(), number);
            let mut chunks = Vec::new();
            loop {
                let (chunk, last) = tree.snapshot_slice(1 + rng.below(300) as usize);
                chunks.push(chunk);
                if last {
                    break;
                }
                for _ in 0..rng.below(6) {
                    change(&mut tree, &mut rng, &mut zxid);
                }
            }
            let hash = KeyedHash::new(&mut rng);
            let (loaded, found) = load(&chunks, hash).expect("a whole snapshot");
            assert_eq!(picture(&loaded), before, "seed {seed}");
            assert_eq!(found, header);
            if rng.below(2) == 0 {
                // The next rounds change the loaded tree.
                tree = loaded;
            }
        }
    }
}

#[test]
fn truncated_and_repeated_snapshots_are_refused() {
    let mut tree = tree();
    create(&mut tree, "/a", NOBODY, 1);
    let header = SnapshotHeader {
        zxid: Zxid(1),
        sessions: vec![],
        owners: vec![(SessionId(4), crate::ids::ServerId(2))],
        last_session_ids: vec![],
        keyed: vec![],
    };
    tree.begin_snapshot(header, 1);
    let (whole, last) = tree.snapshot_slice(1 << 20);
    assert!(last);
    let hash = KeyedHash::default();
    assert!(load(std::slice::from_ref(&whole), hash).is_ok());
    assert!(load(&[], hash).is_err());
    for cut in 0..whole.len() {
        assert!(load(&[whole.slice(..cut)], hash).is_err(), "cut at {cut}");
    }
    assert!(load(&[whole.clone(), whole], hash).is_err(), "every place is filled once");
}

/// Everything that must be the same in a loaded tree.
fn picture(tree: &Tree) -> impl PartialEq + std::fmt::Debug + use<> {
    let ids = (0..u32::try_from(tree.slots.len()).expect("few")).map(NodeId);
    let ids = ids.filter(|id| tree.slots[id.index()].node.is_some());
    let below = |id| (tree.children(id), tree.descendants(id));
    let lists: BTreeMap<_, _> = ids.map(|id| (tree.path_of(id), below(id))).collect();
    let (expiring, quotas) = (tree.expiring.clone(), tree.quotas.clone());
    (tree.digest(), tree.counts(), expiring, quotas, tree.ephemerals.clone(), lists)
}

/// One random change among a few paths, sometimes by the same transaction as the one before.
fn change(tree: &mut Tree, rng: &mut Rng, zxid: &mut u64) {
    *zxid += u64::from(rng.below(3) > 0);
    tree.settle_digest();
    let top = format!("/n{}", rng.below(8));
    let path = if rng.below(2) == 0 { top.clone() } else { format!("{top}/c{}", rng.below(4)) };
    let below = if path == top { Lifetime::Persistent } else { Lifetime::Ephemeral };
    let lifetimes = [Lifetime::Persistent, below, Lifetime::Container, Lifetime::Ttl { ms: 9 }];
    let owner = lifetimes[rng.below(4) as usize].owner(SessionId(3));
    if rng.below(8) == 0 {
        return change_quota(tree, rng, &top, *zxid);
    }
    match tree.find(&path) {
        Some(id) if rng.below(2) == 0 && tree.children_count(id) == 0 => {
            tree.delete(&path, Zxid(*zxid)).expect("fits");
        }
        Some(id) => {
            let version = tree.node(id).version + 1;
            let data = vec![b'd'; rng.below(20) as usize];
            tree.set_data(&path, Some(&data), version, Zxid(*zxid), WallMs(5)).expect("fits");
        }
        None if path == top
            || tree.find(&top).is_some_and(|top| !tree.node(top).is_ephemeral()) =>
        {
            create(tree, &path, owner, *zxid);
        }
        None => {}
    }
}

/// Adds the next node of a path's quota, or deletes one of them.
fn change_quota(tree: &mut Tree, rng: &mut Rng, limited: &str, zxid: u64) {
    let quota = format!("/zookeeper/quota{limited}");
    let names = ["", "/zookeeper_limits", "/zookeeper_stats"];
    let Some(missing) = names.iter().find(|name| tree.find(&format!("{quota}{name}")).is_none())
    else {
        let last = names[1 + rng.below(2) as usize];
        tree.delete(&format!("{quota}{last}"), Zxid(zxid)).expect("fits");
        return;
    };
    create(tree, &format!("{quota}{missing}"), NOBODY, zxid);
}

/// STAT-07.
#[test]
fn edge_68_ephemeral_owner_shows_only_sessions() {
    let mut tree = tree();
    for (path, lifetime, shown) in [
        ("/c", Lifetime::Container, NOBODY),
        ("/t", Lifetime::Ttl { ms: 5 }, NOBODY),
        ("/p", Lifetime::Persistent, NOBODY),
        ("/e", Lifetime::Ephemeral, SessionId(9)),
    ] {
        let created = create(&mut tree, path, lifetime.owner(SessionId(9)), 1);
        assert_eq!(created.ephemeral_owner, shown, "{path}");
        assert_eq!(tree.node(tree.find(path).expect("there")).lifetime(), lifetime);
    }
    assert_eq!(tree.counts().ephemerals, 1);
}

/// The nodes that are due for deletion at `now`, in order.
fn due(tree: &Tree, now: i64, options: &TreeOptions) -> Vec<String> {
    let mut after = None;
    let mut found = Vec::new();
    while let Some(next) = tree.next_expiring(after, WallMs(now), options) {
        found.push(tree.path_of(next.1));
        after = Some(next);
    }
    found
}

/// DATA-18, DATA-19.
#[test]
fn edges_191_193_194_containers_and_ttl_nodes_are_due_in_time() {
    let mut tree = tree();
    let container = Lifetime::Container.owner(NOBODY);
    let ttl = |ms| Lifetime::Ttl { ms }.owner(NOBODY);
    let mut options = TreeOptions { extended_types: true, ..TreeOptions::default() };
    for index in 0..100 {
        create(&mut tree, &format!("/n{index}"), NOBODY, 1);
    }
    assert!(!tree.has_expiring(), "ordinary nodes are not among them");
    create(&mut tree, "/c", container, 1); // at 10 ms
    create(&mut tree, "/late", ttl(20), 1);
    create(&mut tree, "/soon", ttl(5), 1);
    assert_eq!(due(&tree, 15, &options), [""; 0], "its time is over after it, not with it");
    assert_eq!(due(&tree, 16, &options), ["/soon"]);
    assert_eq!(
        due(&tree, 31, &options),
        ["/soon", "/late"],
        "a container that was never used stays"
    );
    options.container_never_used_ms = 10;
    assert_eq!(due(&tree, 20, &options), ["/soon"]);
    assert_eq!(due(&tree, 21, &options), ["/c", "/soon"]);
    options.extended_types = false;
    assert_eq!(due(&tree, 21, &options), ["/c"]);
    options.extended_types = true;
    create(&mut tree, "/c/x", NOBODY, 2);
    create(&mut tree, "/soon/x", NOBODY, 2);
    assert_eq!(due(&tree, 31, &options), ["/late"], "who has children stays");
    tree.delete("/c/x", Zxid(3)).expect("fits");
    tree.delete("/soon/x", Zxid(3)).expect("fits");
    assert_eq!(due(&tree, 0, &options), ["/c"], "a container that was used goes at once");
    assert_eq!(due(&tree, 16, &options), ["/c", "/soon"], "children renew nothing");
    tree.set_data("/soon", None, 1, Zxid(4), WallMs(40)).expect("fits");
    assert_eq!(due(&tree, 45, &options), ["/c", "/late"], "a write does");
    tree.delete("/c", Zxid(5)).expect("fits");
    tree.delete("/late", Zxid(5)).expect("fits");
    assert_eq!(due(&tree, 46, &options), ["/soon"]);
    tree.delete("/soon", Zxid(6)).expect("fits");
    assert!(!tree.has_expiring());
}

/// Creates `path` with this data.
fn create_with(tree: &mut Tree, path: &str, data: &str) {
    create(tree, path, NOBODY, 1);
    set(tree, path, data);
}

fn set(tree: &mut Tree, path: &str, data: &str) {
    tree.set_data(path, Some(data.as_bytes()), 0, Zxid(1), WallMs(10)).expect("fits");
}

fn data<'a>(tree: &'a Tree, path: &str) -> &'a str {
    let node = tree.node(tree.find(path).expect("there"));
    std::str::from_utf8(node.data.as_deref().expect("no null")).expect("text")
}

/// DATA-29, DATA-30.
#[test]
fn edges_80_184_usage_is_counted_at_the_nearest_quota() {
    let mut tree = tree();
    create_with(&mut tree, "/q", "12345");
    create_with(&mut tree, "/q/a", "123");
    for path in ["/zookeeper/quota/q", "/zookeeper/quota/q/a"] {
        create_with(&mut tree, path, "");
    }
    let stats = "/zookeeper/quota/q/zookeeper_stats";
    create_with(&mut tree, "/zookeeper/quota/q/zookeeper_limits", "count=5");
    create(&mut tree, stats, NOBODY, 7);
    assert_eq!(data(&tree, stats), "count=2,bytes=8");
    let before = stat(&tree, stats);
    create(&mut tree, "/q/b", NOBODY, 8);
    set(&mut tree, "/q/a", "1");
    assert_eq!(data(&tree, stats), "count=3,bytes=7");
    tree.delete("/q/b", Zxid(9)).expect("fits");
    assert_eq!(data(&tree, stats), "count=2,bytes=6");
    assert_eq!(stat(&tree, stats), before, "as if nobody had written it");
    // A nearer quota takes over. Its usage is not counted until its usage node exists.
    create_with(&mut tree, "/zookeeper/quota/q/a/zookeeper_limits", "");
    set(&mut tree, "/q/a", "1234");
    assert_eq!(data(&tree, stats), "count=2,bytes=6");
    create(&mut tree, "/zookeeper/quota/q/a/zookeeper_stats", NOBODY, 7);
    set(&mut tree, "/q/a", "12345");
    assert_eq!(data(&tree, "/zookeeper/quota/q/a/zookeeper_stats"), "count=1,bytes=5");
    // Counting continues from what clients wrote there, unless it cannot be parsed.
    set(&mut tree, stats, "bytes=100;x=1");
    set(&mut tree, "/q", "1");
    assert_eq!(data(&tree, stats), "count=-1,bytes=96=;x=1");
    set(&mut tree, stats, "nonsense");
    set(&mut tree, "/q", "12");
    assert_eq!(data(&tree, stats), "nonsense");
    // Without limits nothing is counted.
    set(&mut tree, stats, "count=0");
    tree.delete("/zookeeper/quota/q/zookeeper_limits", Zxid(9)).expect("fits");
    set(&mut tree, "/q", "123");
    assert_eq!(data(&tree, stats), "count=0");
    // The root has no quota, although its usage is measured once, at the creation of the usage
    // node.
    create(&mut tree, "/zookeeper/quota/zookeeper_limits", NOBODY, 7);
    create(&mut tree, "/zookeeper/quota/zookeeper_stats", NOBODY, 7);
    assert!(data(&tree, "/zookeeper/quota/zookeeper_stats").starts_with("count=13,"));
    assert_eq!(tree.check_quota("/a", 1, 1), QuotaVerdict::Within);
}

/// DATA-32.
#[test]
fn edges_185_to_190_limits_decide_the_verdict() {
    use QuotaVerdict::{Hard, Soft, Unreadable, Within};
    let mut tree = tree();
    create_with(&mut tree, "/q", "12345");
    create_with(&mut tree, "/zookeeper/quota/q", "");
    let limits = "/zookeeper/quota/q/zookeeper_limits";
    create_with(&mut tree, limits, "");
    assert_eq!(tree.check_quota("/q/a", 9, 99), Within, "no limit");
    set(&mut tree, limits, "count=0");
    assert_eq!(tree.check_quota("/q/a", 9, 99), Within, "no usage");
    create_with(&mut tree, "/zookeeper/quota/q/zookeeper_stats", "count=1,bytes=5");
    for (text, count, bytes, verdict) in [
        ("count=2,bytes=-1", 1, 9, Within),
        ("count=2,bytes=-1", 2, 9, Soft),
        ("count=2,bytes=-1=;countHardLimit=3", 2, 0, Within),
        ("count=9,bytes=-1=;countHardLimit=2", 2, 0, Hard),
        ("count=0,bytes=-1", 0, 9, Within),
        ("count=-1,bytes=-1=;byteHardLimit=6", 1, 1, Within),
        ("count=-1,bytes=-1=;byteHardLimit=6", 1, 2, Hard),
        ("count=-1,bytes=0=;byteHardLimit=3", 0, -1, Hard),
        ("count=-1,bytes=0=;byteHardLimit=3", 0, 0, Within),
        ("count=1,bytes=-1=;byteHardLimit=3", 1, 1, Hard),
        ("nonsense", 1, 1, Unreadable),
    ] {
        set(&mut tree, limits, text);
        assert_eq!(tree.check_quota("/q/a", count, bytes), verdict, "{text} {count} {bytes}");
    }
}

#[test]
fn node_and_slot_sizes_are_limited() {
    assert!(size_of::<Node>() <= 120, "{}", size_of::<Node>());
    assert!(size_of::<Slot>() <= 152, "{}", size_of::<Slot>());
}
