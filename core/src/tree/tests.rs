//! Tests of the tree: statistics by row, and snapshots taken while everything changes.

use super::*;
use crate::rng::Rng;

const NOBODY: SessionId = SessionId(0);

fn tree() -> Tree {
    Tree::new(KeyedHash::new(&mut Rng::new(7)))
}

/// Creates `path` as the leader would have it.
fn create(tree: &mut Tree, path: &str, owner: SessionId, zxid: u64) -> Stat {
    let parent = tree.find(split(path).expect("no root").0).expect("the parent exists");
    let parent_creates = tree.node(parent).creates + 1;
    let new = NewNode { path, data: Some(b"x"), acl: &Acl::open(), owner, parent_creates };
    tree.create(new, Zxid(zxid), WallMs(zxid.cast_signed() * 10))
}

fn stat(tree: &Tree, path: &str) -> Stat {
    tree.stat(tree.find(path).expect("the node exists"))
}

#[test]
fn data_25_edges_61_to_63_the_tree_of_a_new_server() {
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
    assert!(tree.may(config, Perms::READ) && !tree.may(config, Perms::WRITE));
}

#[test]
fn stat_03_05_edges_65_to_67_children_move_pzxid_and_cversion() {
    let mut tree = tree();
    let created = create(&mut tree, "/p", NOBODY, 1);
    assert_eq!((created.pzxid, created.czxid, created.ctime), (Zxid(1), Zxid(1), 10));
    create(&mut tree, "/p/a", NOBODY, 2);
    create(&mut tree, "/p/b", NOBODY, 3);
    assert_eq!(stat(&tree, "/p").cversion, 2);
    tree.delete("/p/a", Zxid(4));
    assert_eq!(stat(&tree, "/p").cversion, 3);
    create(&mut tree, "/p/c", NOBODY, 5);
    let parent = stat(&tree, "/p");
    assert_eq!((parent.cversion, parent.pzxid, parent.num_children), (4, Zxid(5), 2));
    assert_eq!((parent.mzxid, parent.version), (Zxid(1), 0), "the node itself has not changed");
    assert_eq!(tree.node(tree.find("/p").expect("there")).creates, 3, "the sequence counter");
}

#[test]
fn data_15_edge_30_the_counter_never_goes_back() {
    let mut tree = tree();
    create(&mut tree, "/p", NOBODY, 1);
    for (path, parent_creates) in [("/p/a", i32::MAX), ("/p/b", i32::MIN)] {
        let new = NewNode { path, data: None, acl: &Acl::open(), owner: NOBODY, parent_creates };
        tree.create(new, Zxid(2), WallMs(0));
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

#[test]
fn ephemerals_are_known_by_session() {
    let mut tree = tree();
    create(&mut tree, "/p", NOBODY, 1);
    create(&mut tree, "/p/e", SessionId(9), 2);
    create(&mut tree, "/f", SessionId(9), 3);
    assert_eq!(Vec::from_iter(tree.ephemerals(SessionId(9))), ["/p/e", "/f"]);
    assert_eq!(stat(&tree, "/f").ephemeral_owner, SessionId(9));
    tree.delete("/p/e", Zxid(4));
    tree.delete("/f", Zxid(4));
    assert_eq!(tree.ephemerals(SessionId(9)).count(), 0);
    assert_eq!(tree.counts().ephemerals, 0);
}

/// Random changes between slices of random size: what is loaded is the tree as it was when the walk began.
#[test]
fn a_snapshot_is_exact_whatever_changes_meanwhile() {
    for seed in 0..300 {
        let mut rng = Rng::new(seed);
        let mut tree = Tree::new(KeyedHash::new(&mut rng));
        let mut zxid = 0;
        for number in 1..4 {
            for _ in 0..rng.below(60) {
                change(&mut tree, &mut rng, &mut zxid);
            }
            let before = (tree.digest(), tree.counts());
            let header = SnapshotHeader {
                zxid: Zxid(zxid),
                sessions: vec![(SessionId(3), 400)],
                owners: vec![],
                last_session_ids: vec![],
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
            assert_eq!((loaded.digest(), loaded.counts()), before, "seed {seed}");
            assert_eq!(found, header);
            if rng.below(2) == 0 {
                // Life goes on from what was loaded.
                tree = loaded;
            }
        }
    }
}

#[test]
fn cut_and_mangled_snapshots_are_refused() {
    let mut tree = tree();
    create(&mut tree, "/a", NOBODY, 1);
    let header = SnapshotHeader {
        zxid: Zxid(1),
        sessions: vec![],
        owners: vec![(SessionId(4), crate::ids::ServerId(2))],
        last_session_ids: vec![],
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

/// One random change among a few paths.
fn change(tree: &mut Tree, rng: &mut Rng, zxid: &mut u64) {
    *zxid += 1;
    let top = format!("/n{}", rng.below(8));
    let path = if rng.below(2) == 0 { top.clone() } else { format!("{top}/c{}", rng.below(4)) };
    let owner = SessionId(if path != top && rng.below(3) == 0 { 3 } else { 0 });
    match tree.find(&path) {
        Some(id) if rng.below(2) == 0 && tree.children_count(id) == 0 => {
            tree.delete(&path, Zxid(*zxid));
        }
        Some(id) => {
            let version = tree.node(id).version + 1;
            let data = vec![b'd'; rng.below(20) as usize];
            tree.set_data(&path, Some(&data), version, Zxid(*zxid), WallMs(5));
        }
        None if tree.find(&top).is_some() || path == top => {
            create(tree, &path, owner, *zxid);
        }
        None => {}
    }
}
