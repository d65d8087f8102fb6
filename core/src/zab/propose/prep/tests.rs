//! Tests of the decisions on writes.

use std::time::Duration;

use super::*;
use crate::auth::AuthOptions;
use crate::config::TreeOptions;
use crate::ids::ServerId;
use crate::membership::Voters;
use crate::rng::Rng;
use crate::tree::NewNode;

const SESSION: SessionId = SessionId(7);

struct World {
    tree: Tree,
    prep: Prep,
    config: Config,
    schemes: Schemes,
    zxid: Zxid,
    time: WallMs,
}

impl World {
    fn new(options: TreeOptions) -> World {
        let hash = KeyedHash::new(&mut Rng::new(1));
        let id = ServerId(1);
        let config = Config::new(id, Voters::new([id]), Duration::from_secs(1));
        World {
            tree: Tree::new(hash),
            prep: Prep::new(hash),
            config: config.and_then(|config| config.with_tree(options)).expect("fine"),
            schemes: Schemes::new(&AuthOptions::default()),
            zxid: Zxid::ZERO,
            time: WallMs(1000),
        }
    }

    fn context(&self) -> PrepContext<'_> {
        let World { tree, config, schemes, zxid, time, .. } = self;
        PrepContext {
            tree,
            config,
            schemes,
            session: SESSION,
            local: false,
            ids: &[],
            zxid: *zxid,
            time: *time,
            ensemble: None,
        }
    }

    fn decide(&mut self, request: Request) -> TxnOp {
        self.zxid = Zxid(self.zxid.0 + 1);
        let mut prep = std::mem::replace(&mut self.prep, Prep::new(KeyedHash::default()));
        let op = prep.decide(&self.context(), request);
        self.prep = prep;
        op
    }

    fn expiry(&mut self, path: &str) -> bool {
        let mut prep = std::mem::replace(&mut self.prep, Prep::new(KeyedHash::default()));
        let op = prep.expiry(&self.context(), path);
        self.prep = prep;
        op.is_some()
    }

    /// Decides a creation and applies it.
    fn create(&mut self, request: Request) -> Result<String, ErrorCode> {
        let op = self.decide(request);
        let TxnOp::Create { path, data, acl, lifetime, parent_creates } = op else {
            return Err(code(&op).expect("a creation or its refusal"));
        };
        let (data, owner) = (data.as_deref(), lifetime.owner(SESSION));
        let new = NewNode { path: &path, data, acl: &acl, owner, parent_creates };
        self.tree.create(new, self.zxid, self.time).expect("fits");
        self.prep.applied(self.zxid);
        Ok(path)
    }
}

fn create(path: &str, flags: i32) -> Request {
    let (path, acl) = (path.into(), Acl::open());
    Request::Create { path, data: None, acl, flags, with_stat: false }
}

fn container(path: &str, flags: i32) -> Request {
    Request::CreateContainer { path: path.into(), data: None, acl: Acl::open(), flags }
}

fn timed(path: &str, flags: i32, ttl: i64) -> Request {
    Request::CreateTtl { path: path.into(), data: None, acl: Acl::open(), flags, ttl }
}

fn code(op: &TxnOp) -> Option<ErrorCode> {
    if let TxnOp::Error { code } = op { Some(*code) } else { None }
}

/// DATA-05, DATA-19, DATA-23, DATA-24.
#[test]
fn edges_15_to_24_create_mode_is_checked_first() {
    use ErrorCode::{BadArguments, Unimplemented};
    let on = TreeOptions { extended_types: true, ..TreeOptions::default() };
    let cases = [
        (create("bad", 9), BadArguments, BadArguments),
        (create("/a", 5), Unimplemented, BadArguments),
        (create("/a", 6), Unimplemented, BadArguments),
        (container("/a", 9), BadArguments, BadArguments),
        (container("/a", 5), Unimplemented, BadArguments),
        (timed("bad", 5, 0), Unimplemented, BadArguments),
        (timed("/missing/a", 6, 1 << 40), Unimplemented, BadArguments),
        (timed("/a", 5, -1), Unimplemented, BadArguments),
        (timed("/a", 0, 5), BadArguments, BadArguments),
        (timed("/a", 0, -1), BadArguments, BadArguments),
        (timed("/a", 9, 5), BadArguments, BadArguments),
    ];
    for (request, off, extended) in cases {
        let mut world = World::new(TreeOptions::default());
        assert_eq!(code(&world.decide(request.clone())), Some(off), "{request}");
        let mut world = World::new(on.clone());
        assert_eq!(code(&world.decide(request.clone())), Some(extended), "{request}");
    }
    let mut world = World::new(on);
    for (request, made, kind) in [
        (create("/p", 4), "/p", Lifetime::Persistent),
        (container("/c", 0), "/c", Lifetime::Container),
        (container("/e", 1), "/e", Lifetime::Container),
        (container("/s", 2), "/s0000000003", Lifetime::Container),
        (timed("/t", 5, 1), "/t", Lifetime::Ttl { ms: 1 }),
        (timed("/u", 6, (1 << 40) - 1), "/u0000000005", Lifetime::Ttl { ms: (1 << 40) - 1 }),
    ] {
        assert_eq!(world.create(request).as_deref(), Ok(made));
        let id = world.tree.find(made).expect("applied");
        assert_eq!(world.tree.node(id).lifetime(), kind, "{made}");
        assert_eq!(world.create(create(&format!("{made}/child"), 0)).map(|_| ()), Ok(()));
    }
}

/// DATA-15.
#[test]
fn edges_30_31_sequence_counter_wraps_only_in_pending_changes() {
    let mut world = World::new(TreeOptions::default());
    world.create(create("/p", 0)).expect("fine");
    let new = NewNode {
        path: "/p/last",
        data: None,
        acl: &[],
        owner: SessionId(0),
        parent_creates: i32::MAX,
    };
    world.tree.create(new, world.zxid, world.time).expect("fits");
    let ahead = world.zxid;
    let path = |op| if let TxnOp::Create { path, .. } = op { path } else { panic!("{op}") };
    assert_eq!(path(world.decide(create("/p/s", 2))), "/p/s2147483647");
    assert_eq!(path(world.decide(create("/p/s", 2))), "/p/s-2147483648");
    // Neither is applied to the tree; the applied counter never decreases.
    world.prep.applied(world.zxid);
    assert!(ahead < world.zxid);
    for expected in [Ok("/p/s2147483647".into()), Err(ErrorCode::NodeExists)] {
        assert_eq!(world.create(create("/p/s", 2)), expected);
    }
}

/// DATA-12.
#[test]
fn edges_44_45_data_version_wraps_and_passes_minus_one() {
    let mut world = World::new(TreeOptions::default());
    world.create(create("/p", 0)).expect("fine");
    for (before, after) in [(-2, -1), (-1, 0), (i32::MAX, i32::MIN)] {
        world.tree.set_data("/p", None, before, world.zxid, world.time).expect("fits");
        let written = world.decide(Request::SetData { path: "/p".into(), data: None, version: -1 });
        let TxnOp::SetData { version, .. } = written else { panic!("{written}") };
        assert_eq!(version, after, "from {before}");
        world.prep.applied(world.zxid);
    }
}

/// DATA-19.
#[test]
fn edge_69_ttl_node_is_kept_while_ttl_nodes_are_disabled() {
    let on = TreeOptions { extended_types: true, ..TreeOptions::default() };
    let mut world = World::new(on);
    world.create(timed("/t", 5, 10)).expect("fine");
    world.time = WallMs(5000);
    let config = world.config.clone();
    world.config = config.with_tree(TreeOptions::default()).expect("fine");
    assert!(!world.expiry("/t"), "nothing goes whose kind the operator has switched off");
    let id = world.tree.find("/t").expect("applied");
    assert_eq!(world.tree.stat(id).ephemeral_owner, SessionId(0), "and nobody owns it");
    assert_eq!(world.create(create("/t/child", 0)).as_deref(), Ok("/t/child"));
    world.config = world
        .config
        .clone()
        .with_tree(TreeOptions { extended_types: true, ..TreeOptions::default() })
        .expect("fine");
    assert!(!world.expiry("/t"), "it has a child");
    world.decide(Request::Delete { path: "/t/child".into(), version: -1 });
    assert!(world.expiry("/t"));
}

#[test]
fn edges_191_195_pending_changes_may_keep_a_node_from_deletion() {
    let on = TreeOptions { extended_types: true, ..TreeOptions::default() };
    let mut world = World::new(on);
    for request in [timed("/t", 5, 10), timed("/u", 5, 10), container("/c", 0), create("/p", 0)] {
        world.create(request).expect("fine");
    }
    world.time = WallMs(1010);
    assert!(!world.expiry("/t"), "not yet");
    world.time = WallMs(1011);
    world.decide(Request::SetData { path: "/u".into(), data: None, version: -1 });
    assert!(!world.expiry("/u"), "written a moment ago");
    assert!(!world.expiry("/c"), "never used");
    world.decide(create("/c/x", 0));
    assert!(!world.expiry("/c"), "it has a child");
    world.decide(Request::Delete { path: "/c/x".into(), version: -1 });
    assert!(world.expiry("/c"), "emptied under way");
    assert!(!world.expiry("/c"), "gone");
    assert!(!world.expiry("/p") && !world.expiry("/none"), "not of that kind");
    assert!(world.expiry("/t"));
    assert_eq!(code(&world.decide(create("/t/x", 0))), Some(ErrorCode::NoNode));
}

#[test]
fn oversized_transaction_is_refused_without_changes() {
    let mut world = World::new(TreeOptions::default());
    world.config.limits.record_bytes = 1_000;
    let large = |path: &str, bytes| {
        let data = Some(Bytes::from(vec![0; bytes]));
        Request::Create { path: path.into(), data, acl: Acl::open(), flags: 0, with_stat: false }
    };
    assert_eq!(code(&world.decide(large("/a", 1_000))), Some(ErrorCode::Marshalling));
    assert!(world.prep.take_too_large() && !world.prep.take_too_large());
    let parts = vec![large("/a", 400), large("/b", 400), large("/c", 400)];
    assert_eq!(code(&world.decide(Request::Multi(parts))), Some(ErrorCode::Marshalling));
    assert!(world.prep.take_too_large());
    let parts = vec![large("/a", 400), large("/b", 400)];
    assert!(matches!(world.decide(Request::Multi(parts)), TxnOp::Multi(ops) if ops.len() == 2));
    assert!(!world.prep.take_too_large());
}
