//! The model compared with observed behaviour of ZooKeeper 3.9.4.

use bytes::Bytes;
use zabkeeper_core::txn::{Lifetime, Txn, TxnOp};
use zabkeeper_core::wire::{Acl, EventType, Id, MultiResult, Perms, ReplyBody, Request, Stat};
use zabkeeper_core::{Membership, SessionId, WallMs, Zxid};

use super::{Asker, Kind, Model, Rules, Table, path};

const SESSION: SessionId = SessionId(0x77);
const ASKER: Asker<'_> = Asker { session: SESSION, ids: &[] };

fn started() -> Model {
    let mut model = Model::default();
    commit(&mut model, TxnOp::CreateSession { timeout_ms: 4_000 });
    model
}

fn commit(model: &mut Model, op: TxnOp) -> Zxid {
    let zxid = Zxid(model.tip().0.max(1 << 32) + 1);
    let txn = Txn { zxid, session: SESSION, time: WallMs(5), origin: None, op };
    model.apply(txn).expect("right");
    zxid
}

fn write(model: &mut Model, request: &Request) -> Zxid {
    let op = model.decide(ASKER, request).expect("a write");
    commit(model, op)
}

fn create(path: &str, flags: i32) -> Request {
    let data = Some(Bytes::from_static(b"v0"));
    Request::Create { path: path.into(), data, acl: Acl::open(), flags, with_stat: false }
}

fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

fn stat(model: &Model, path: &str) -> Stat {
    model.node(path).expect("exists").stat()
}

/// DATA-25, edges 61 to 63
#[test]
fn stats_of_a_new_tree_match_zookeeper() {
    let model = Model::default();
    let bare = Stat::default();
    assert_eq!(stat(&model, "/"), Stat { cversion: -1, num_children: 1, ..bare });
    assert_eq!(stat(&model, "/zookeeper"), Stat { cversion: -2, num_children: 2, ..bare });
    assert_eq!(stat(&model, "/zookeeper/config"), Stat { aversion: -1, ..bare });
    assert_eq!(stat(&model, "/zookeeper/quota"), bare);
}

/// Edges 27, 29 and 65
#[test]
fn sequence_numbers_count_creates_and_cversion_counts_changes() {
    let mut model = started();
    write(&mut model, &create("/p", 0));
    let mut cversions = Vec::new();
    for request in
        [create("/p/s", 2), create("/p/s", 2), delete("/p/s0000000001"), create("/p/x", 0)]
    {
        write(&mut model, &request);
        cversions.push(stat(&model, "/p").cversion);
    }
    assert_eq!(cversions, [1, 2, 3, 4]);
    write(&mut model, &create("/p/s", 2));
    write(&mut model, &create("/p/", 2));
    let names = model.read(
        ASKER,
        &Request::GetChildren { path: "/p".into(), watch: false, with_stat: false },
        model.tip(),
    );
    let right = ["s0000000000", "x", "s0000000003", "0000000004"].map(str::to_owned).to_vec();
    assert_eq!(names, Some(Ok(ReplyBody::Children(right))));
}

/// Edges 66 and 67
#[test]
fn child_create_changes_only_pzxid_of_its_parent() {
    let mut model = started();
    let created = write(&mut model, &create("/p", 0));
    assert_eq!(stat(&model, "/p").pzxid, created);
    let child = write(&mut model, &create("/p/c", 0));
    let Stat { czxid, mzxid, pzxid, version, .. } = stat(&model, "/p");
    assert_eq!((czxid, mzxid, pzxid, version), (created, created, child, 0));
}

#[test]
fn past_states_stay_readable() {
    let mut model = started();
    let first = write(&mut model, &create("/a", 0));
    let second = write(&mut model, &create("/b", 0));
    let third = write(&mut model, &delete("/a"));
    let fourth = write(&mut model, &create("/a", 0));
    write(&mut model, &delete("/b"));
    let names = |zxid| {
        let request = Request::GetChildren { path: "/".into(), watch: false, with_stat: false };
        match model.read(ASKER, &request, zxid) {
            Some(Ok(ReplyBody::Children(names))) => names.join(" "),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(names(first), "zookeeper a");
    assert_eq!(names(second), "zookeeper a b");
    assert_eq!(names(third), "zookeeper b");
    assert_eq!(names(fourth), "zookeeper b a");
    assert_eq!(names(model.tip()), "zookeeper a");
    assert_eq!(model.node_at("/a", first).map(|node| node.czxid), Some(first));
    assert_eq!(model.node_at("/a", third), None);
}

#[test]
fn digest_depends_only_on_the_state() {
    let mut model = started();
    let before = model.digest_at(model.tip());
    write(&mut model, &Request::Delete { path: "/nowhere".into(), version: -1 });
    assert_eq!(model.digest_at(model.tip()), before, "a refusal changes nothing");
    write(&mut model, &create("/a", 1));
    assert_ne!(model.digest_at(model.tip()), before);
    assert_eq!(model.digest_at(Zxid::ZERO), Model::default().digest_at(Zxid::ZERO));
}

/// WATCH-10
#[test]
fn deletion_fires_both_watch_tables_at_one_place() {
    let mut model = started();
    write(&mut model, &create("/a", 0));
    let before = model.tip();
    write(&mut model, &delete("/a"));
    let place = |table, path: &str| {
        let firing = model.next_firing(table, path, before).expect("fired");
        (firing.place, firing.event)
    };
    assert_eq!(place(Table::Data, "/a"), (1, EventType::NodeDeleted));
    assert_eq!(place(Table::Child, "/a"), (1, EventType::NodeDeleted));
    assert_eq!(place(Table::Child, "/"), (2, EventType::NodeChildrenChanged));
}

#[test]
fn wrong_transaction_is_refused_and_changes_nothing() {
    let mut model = started();
    write(&mut model, &create("/a", 0));
    write(&mut model, &create("/e", 1));
    let acl = Acl::open();
    let node = |path: &str, parent_creates| TxnOp::Create {
        path: path.into(),
        data: None,
        acl: acl.clone(),
        lifetime: Lifetime::Persistent,
        parent_creates,
    };
    let set = |path: &str, version| TxnOp::SetData { path: path.into(), data: None, version };
    let (before, tip) = (model.digest_at(model.tip()), model.tip());
    for (op, kind) in [
        (node("/a", 3), Kind::Structure),
        (node("/missing/x", 1), Kind::Structure),
        (node("/e/x", 1), Kind::Structure),
        (node("/b", 4), Kind::Structure),
        (node("bad", 3), Kind::Structure),
        (TxnOp::Delete { path: "/".into() }, Kind::Structure),
        (TxnOp::Delete { path: "/zookeeper".into() }, Kind::Structure),
        (TxnOp::Delete { path: "/b".into() }, Kind::Structure),
        (set("/a", 2), Kind::Structure),
        (set("/b", 1), Kind::Structure),
        (TxnOp::CreateSession { timeout_ms: 1 }, Kind::Session),
    ] {
        let zxid = Zxid(tip.0 + 1);
        let shown = format!("{op:?}");
        let txn = Txn { zxid, session: SESSION, time: WallMs(5), origin: None, op };
        assert_eq!(model.apply(txn).map_err(|wrong| wrong.kind), Err(kind), "{shown}");
    }
    assert_eq!((model.digest_at(model.tip()), model.tip()), (before, tip));
}

/// DATA-01, DATA-02
#[test]
fn path_grammar_matches_zookeeper() {
    for good in ["/", "/a", "/a/b", "/a..b", "/.a", "/...", "/\u{a0}", "/\u{f900}", "/\u{ffef}"] {
        assert!(path::is_valid(good), "{good:?}");
    }
    for bad in [
        "",
        "a",
        "/a/",
        "//a",
        "/a//b",
        "/.",
        "/..",
        "/a/./b",
        "/\0",
        "/\u{1f}",
        "/\u{7f}",
        "/\u{9f}",
        "/\u{e000}",
        "/\u{f8ff}",
        "/\u{fff0}",
        "/\u{1f600}",
    ] {
        assert!(!path::is_valid(bad), "{bad:?}");
    }
}

fn children(model: &Model, asker: Asker<'_>, request: &Request) -> String {
    match model.read(asker, request, model.tip()) {
        Some(Ok(ReplyBody::Children(names))) => names.join(" "),
        other => panic!("{other:?}"),
    }
}

/// OP-103, OP-104, edges 74 to 76
#[test]
fn ephemerals_are_listed_by_prefix_and_descendants_are_counted() {
    let mut model = started();
    let count = |model: &Model, path: &str| {
        let request = Request::GetAllChildrenNumber { path: path.into() };
        match model.read(ASKER, &request, model.tip()) {
            Some(Ok(ReplyBody::Number(count))) => count,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(count(&model, "/"), 3, "edge 74");
    for (path, flags) in [("/p", 0), ("/p/ge", 1), ("/p/gex", 1), ("/px", 0)] {
        write(&mut model, &create(path, flags));
    }
    assert_eq!((count(&model, "/"), count(&model, "/p")), (7, 2));
    let before = model.tip();
    write(&mut model, &delete("/p/gex"));
    let of = |prefix: &str| Request::GetEphemerals { prefix: prefix.into() };
    for (prefix, found) in [("/p/ge", "/p/ge"), ("", "/p/ge"), (" / ", "/p/ge"), ("/px", "")] {
        assert_eq!(children(&model, ASKER, &of(prefix)), found, "{prefix:?}");
    }
    let then = model.read(ASKER, &of("/p/ge"), before);
    let both = ["/p/ge", "/p/gex"].map(str::to_owned).to_vec();
    assert_eq!(then, Some(Ok(ReplyBody::Children(both))), "edge 75, and the past stays readable");
}

/// MULTI-11, edge 95
#[test]
fn each_part_of_a_multi_read_fails_on_its_own() {
    let model = started();
    let get = |path: &str| Request::GetData { path: path.into(), watch: false };
    let found = model.read(ASKER, &Request::MultiRead(vec![get("/x"), get("/")]), model.tip());
    let Some(Ok(ReplyBody::Multi(results))) = found else { panic!("{found:?}") };
    assert_eq!(results[0], MultiResult::Failed(-101));
    assert!(matches!(results[1], MultiResult::Data(..)));
}

/// OP-06, edge 52
#[test]
fn set_acl_raises_aversion_and_get_acl_hides_digests() {
    let mut model = started();
    write(&mut model, &create("/a", 0));
    let before = stat(&model, "/a");
    let id = super::digest_of(b"u:p");
    let list = vec![
        Acl { perms: Perms::ALL, scheme: "digest".into(), id: id.clone() },
        Acl { perms: Perms::READ, scheme: "world".into(), id: "anyone".into() },
    ];
    write(&mut model, &Request::SetAcl { path: "/a".into(), acl: list.clone(), version: 0 });
    assert_eq!(stat(&model, "/a"), Stat { aversion: 1, ..before });
    let read = |ids: &[Id]| {
        let asker = Asker { session: SESSION, ids };
        match model.read(asker, &Request::GetAcl { path: "/a".into() }, model.tip()) {
            Some(Ok(ReplyBody::Acl(list, _))) => list,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(read(&[])[0].id, "u:x", "edge 174");
    assert_eq!(read(&[Id { scheme: "digest".into(), id }]), list);
}

/// DATA-27, edge 64
#[test]
fn config_node_shows_the_membership_whatever_is_written() {
    let members = Membership { text: "server.1=here\nversion=0".into(), since: WallMs(7) };
    let mut model = Model::new(Rules { membership: Some(members), ..Rules::default() });
    let read = |model: &Model| {
        let get = Request::GetData { path: "/zookeeper/config".into(), watch: false };
        match model.read(ASKER, &get, model.tip()) {
            Some(Ok(ReplyBody::Data(data, stat))) => (data, stat),
            other => panic!("{other:?}"),
        }
    };
    let text = Some(Bytes::from_static(b"server.1=here\nversion=0"));
    let shown = Stat { version: -1, aversion: -1, mtime: 7, data_length: 23, ..Stat::default() };
    assert_eq!(read(&model), (text.clone(), shown));
    let (path, data) = ("/zookeeper/config".into(), Some("x".into()));
    let mzxid = commit(&mut model, TxnOp::SetData { path, data, version: 1 });
    assert_eq!(read(&model), (text, Stat { mzxid, ..shown }), "whatever is written to it");
}
