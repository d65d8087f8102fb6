//! Turns requests into transactions, on the leader (Java `PrepRequestProcessor`).
//!
//! Owns the checks, in ZooKeeper's order (DATA-05 to DATA-09), and the view of the tree as it will
//! be when every proposal is applied (DATA-10). Must not change the tree.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::{Node, NodeAcl, Pending};
use crate::auth::{Access, Schemes, Who};
use crate::config::Config;
use crate::error::ErrorCode;
use crate::ids::{SessionId, WallMs, Zxid};
use crate::rng::KeyedHash;
use crate::tree::{self, Expiry, QuotaVerdict, Tree};
use crate::txn::{Lifetime, TxnOp};
use crate::wire::{Acl, CreateMode, Id, OpCode, Perms, Request};

/// See the module.
#[derive(Debug)]
pub(crate) struct Prep {
    pending: Pending,
    /// Has a write exceeded a soft quota since the last [`Prep::take_over_soft_quota`]?
    over_soft_quota: bool,
    /// Has a transaction been too large since the last [`Prep::take_too_large`]?
    too_large: bool,
}

/// The input of a decision, besides the request and the pending changes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PrepContext<'a> {
    /// The tree as applied so far.
    pub(crate) tree: &'a Tree,
    /// The configuration of this server.
    pub(crate) config: &'a Config,
    /// The authentication schemes offered.
    pub(crate) schemes: &'a Schemes,
    /// The session of the request.
    pub(crate) session: SessionId,
    /// Is the session local, so that the ensemble does not know it? Then it cannot own ephemerals.
    pub(crate) local: bool,
    /// The identities of the client.
    pub(crate) ids: &'a [Arc<Id>],
    /// The zxid that the transaction will have.
    pub(crate) zxid: Zxid,
    /// The time that the transaction will have.
    pub(crate) time: WallMs,
}

/// A node to create, with its mode resolved by the operation.
struct Creation {
    path: String,
    data: Option<Bytes>,
    acl: Vec<Acl>,
    sequential: bool,
    lifetime: Lifetime,
}

impl<'a> PrepContext<'a> {
    fn who(&self) -> Who<'a> {
        Who::new(self.ids, self.schemes)
    }
}

impl Prep {
    pub(crate) fn new(hash: KeyedHash) -> Prep {
        Prep { pending: Pending::new(hash), over_soft_quota: false, too_large: false }
    }

    /// Decides a write of a live session: returns the change of transaction `case.zxid`, or a
    /// refusal.
    ///
    /// # Panics
    /// If the request is no write.
    pub(crate) fn decide(&mut self, case: &PrepContext<'_>, request: Request) -> TxnOp {
        self.pending.begin();
        match self.decide_one(case, request).and_then(|op| self.fit(case, op)) {
            Ok(op) => {
                self.pending.keep();
                op
            }
            Err(code) => {
                self.pending.take_back();
                TxnOp::Error { code }
            }
        }
    }

    /// Refuses a transaction that exceeds the record limit of links between servers: a few bytes of
    /// a request may expand to a list of many identities.
    fn fit(&mut self, case: &PrepContext<'_>, op: TxnOp) -> Result<TxnOp, ErrorCode> {
        if op.size() > case.config.limits.record_bytes {
            self.too_large = true;
            return Err(ErrorCode::Marshalling);
        }
        Ok(op)
    }

    fn decide_one(&mut self, case: &PrepContext<'_>, request: Request) -> Result<TxnOp, ErrorCode> {
        match request {
            Request::Create { path, data, acl, flags, .. } => {
                let CreateMode { ephemeral, sequential } = mode(case, flags)?;
                if ephemeral && case.local {
                    // ERR-26: checked before the path.
                    return Err(ErrorCode::EphemeralOnLocalSession);
                }
                let lifetime = if ephemeral { Lifetime::Ephemeral } else { Lifetime::Persistent };
                self.create(case, Creation { path, data, acl, sequential, lifetime })
            }
            Request::CreateContainer { path, data, acl, flags } => {
                // createContainer ignores the ephemeral flag (DATA-24).
                let CreateMode { sequential, .. } = mode(case, flags)?;
                let lifetime = Lifetime::Container;
                self.create(case, Creation { path, data, acl, sequential, lifetime })
            }
            Request::CreateTtl { path, data, acl, flags, ttl } => {
                let (sequential, lifetime) = timed_mode(case, flags, ttl)?;
                self.create(case, Creation { path, data, acl, sequential, lifetime })
            }
            Request::Delete { path, version } => {
                self.delete(case, &path, version).map(|()| TxnOp::Delete { path })
            }
            Request::SetData { path, data, version } => self.set_data(case, path, data, version),
            Request::Check { path, version } => {
                self.check(case, &path, version).map(|()| TxnOp::Check { path })
            }
            Request::SetAcl { path, acl, version } => self
                .set_acl(case, &path, acl, version)
                .map(|(acl, version)| TxnOp::SetAcl { path, acl, version }),
            Request::Multi(requests) => Ok(self.multi(case, requests)),
            Request::CloseSession => Ok(self.close_session(case)),
            // ZooKeeper validates the whole path for these operations, and null is an invalid path.
            Request::NoPath {
                op: OpCode::SetData | OpCode::SetAcl | OpCode::Check,
                in_list: false,
            } => Err(ErrorCode::BadArguments),
            Request::Undecodable { .. } | Request::NoPath { .. } => Err(ErrorCode::Marshalling),
            Request::Reconfig => Err(ErrorCode::ReconfigDisabled),
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::GetAcl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::Sasl { .. }
            | Request::Throttled { .. }
            | Request::Unknown { .. } => unreachable!("{request} is no write"),
        }
    }

    /// Number of pending changes.
    pub(crate) fn backlog(&self) -> usize {
        self.pending.len()
    }

    /// Drops the pending changes of a transaction that the tree now has.
    pub(crate) fn applied(&mut self, zxid: Zxid) {
        self.pending.applied(zxid);
    }

    /// The deletion of a container or TTL node, if it is still due when every proposal is applied
    /// (edge 195).
    pub(crate) fn lapse(&mut self, case: &PrepContext<'_>, path: &str) -> Option<TxnOp> {
        let node = self.look_up(case.tree, path)?;
        let lifetime = Lifetime::of(node.owner);
        let lapse = Expiry::of(lifetime, node.children, node.creates, node.mtime)?;
        if !lapse.is_due(case.time, &case.config.tree) {
            return None;
        }
        let parent_path = parent_of(path).expect("a node's path has a slash");
        let parent = self.look_up(case.tree, parent_path).expect("the parent of a node exists");
        self.remove(case, path, parent_path, parent);
        Some(TxnOp::Delete { path: path.into() })
    }

    /// Has a write decided since the last call exceeded a soft quota (DATA-31)?
    pub(crate) fn take_over_soft_quota(&mut self) -> bool {
        std::mem::take(&mut self.over_soft_quota)
    }

    /// Has a write been refused since the last call because its transaction was too large?
    pub(crate) fn take_too_large(&mut self) -> bool {
        std::mem::take(&mut self.too_large)
    }

    /// DATA-05, beginning with the check of the path.
    fn create(&mut self, case: &PrepContext<'_>, new: Creation) -> Result<TxnOp, ErrorCode> {
        let Creation { mut path, data, acl, sequential, lifetime } = new;
        let parent_path = parent_of(&path)?.to_owned();
        let acl = case.who().fixup(acl)?;
        let mut parent = self.look_up(case.tree, &parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(case, &Access::new(Perms::CREATE, &path).setting(&acl))?;
        if sequential {
            path = format!("{path}{:010}", parent.creates);
        }
        if !tree::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.look_up(case.tree, &path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if Lifetime::of(parent.owner) == Lifetime::Ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let length = data.as_ref().map_or(0, Bytes::len);
        self.check_quota(case, &path, 1, signed(length))?;
        parent.creates = parent.creates.wrapping_add(1);
        parent.children += 1;
        let parent_creates = parent.creates;
        self.pending.change(&parent_path, Some(parent), case.zxid);
        let node = Node {
            version: 0,
            aversion: 0,
            creates: 0,
            children: 0,
            owner: lifetime.owner(case.session),
            mtime: case.time.0,
            length,
            acl: NodeAcl::New(Arc::from(&acl[..])),
        };
        self.pending.change(&path, Some(node), case.zxid);
        Ok(TxnOp::Create { path, data, acl, lifetime, parent_creates })
    }

    /// DATA-06.
    fn delete(
        &mut self,
        case: &PrepContext<'_>,
        path: &str,
        version: i32,
    ) -> Result<(), ErrorCode> {
        let parent_path = parent_of(path)?;
        if tree::is_reserved(path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.look_up(case.tree, parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(case, &Access::new(Perms::DELETE, path))?;
        let node = self.look_up(case.tree, path).ok_or(ErrorCode::NoNode)?;
        node.expect_version(version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(case, path, parent_path, parent);
        Ok(())
    }

    fn remove(&mut self, case: &PrepContext<'_>, path: &str, parent_path: &str, mut parent: Node) {
        parent.children -= 1;
        self.pending.change(parent_path, Some(parent), case.zxid);
        self.pending.change(path, None, case.zxid);
    }

    /// DATA-07.
    fn set_data(
        &mut self,
        case: &PrepContext<'_>,
        path: String,
        data: Option<Bytes>,
        version: i32,
    ) -> Result<TxnOp, ErrorCode> {
        if !tree::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        let mut node = self.look_up(case.tree, &path).ok_or(ErrorCode::NoNode)?;
        node.check(case, &Access::new(Perms::WRITE, &path))?;
        let length = data.as_ref().map_or(0, Bytes::len);
        self.check_quota(case, &path, 0, signed(length) - signed(node.length))?;
        node.expect_version(version)?;
        // 3.9 counts through -1; later releases skip it (DATA-12).
        node.version = node.version.wrapping_add(1);
        node.mtime = case.time.0;
        node.length = length;
        let version = node.version;
        self.pending.change(&path, Some(node), case.zxid);
        Ok(TxnOp::SetData { path, data, version })
    }

    /// DATA-32: checks `count` nodes and `bytes` bytes more at `path` against the quota.
    fn check_quota(
        &mut self,
        case: &PrepContext<'_>,
        path: &str,
        count: i64,
        bytes: i64,
    ) -> Result<(), ErrorCode> {
        if !case.config.tree.enforce_quota {
            return Ok(());
        }
        match case.tree.check_quota(path, count, bytes) {
            QuotaVerdict::Within => Ok(()),
            QuotaVerdict::Soft => {
                self.over_soft_quota = true;
                Ok(())
            }
            QuotaVerdict::Hard => Err(ErrorCode::QuotaExceeded),
            QuotaVerdict::Unreadable => Err(ErrorCode::Marshalling),
        }
    }

    /// DATA-08.
    fn set_acl(
        &mut self,
        case: &PrepContext<'_>,
        path: &str,
        acl: Vec<Acl>,
        version: i32,
    ) -> Result<(Vec<Acl>, i32), ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = case.who().fixup(acl)?;
        let mut node = self.look_up(case.tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(case, &Access::new(Perms::ADMIN, path).setting(&acl))?;
        if version != -1 && version != node.aversion {
            return Err(ErrorCode::BadVersion);
        }
        node.aversion = node.aversion.wrapping_add(1);
        node.acl = NodeAcl::New(Arc::from(&acl[..]));
        let version = node.aversion;
        self.pending.change(path, Some(node), case.zxid);
        Ok((acl, version))
    }

    /// DATA-09.
    fn check(&self, case: &PrepContext<'_>, path: &str, version: i32) -> Result<(), ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.look_up(case.tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(case, &Access::new(Perms::READ, path))?;
        node.expect_version(version)
    }

    /// MULTI-01, MULTI-04: each operation is decided over the changes of those before it. If one
    /// fails, all changes are undone, including the sequence numbers.
    fn multi(&mut self, case: &PrepContext<'_>, requests: Vec<Request>) -> TxnOp {
        let count = requests.len();
        let mut ops = Vec::with_capacity(count);
        let mut refusal = None;
        let mut size = 0;
        for request in requests {
            match self.decide_one(case, request) {
                Ok(op) => {
                    size += op.size();
                    if size > case.config.limits.record_bytes {
                        // The remaining operations can only add to the size.
                        self.too_large = true;
                        refusal = Some(ErrorCode::Marshalling);
                        break;
                    }
                    ops.push(op);
                }
                Err(code) => {
                    refusal = Some(code);
                    break;
                }
            }
        }
        let Some(code) = refusal else { return TxnOp::Multi(ops) };
        self.pending.take_back();
        if code == ErrorCode::Marshalling {
            // As in ZooKeeper, this error refuses the whole multi, without results per operation.
            return TxnOp::Error { code };
        }
        let number = |n: usize| u32::try_from(n).expect("a frame holds fewer operations");
        TxnOp::MultiRefused { count: number(count), failed: number(ops.len()), code }
    }

    /// SESS-07: deletes the ephemeral nodes that the session will own when this transaction is
    /// applied.
    fn close_session(&mut self, case: &PrepContext<'_>) -> TxnOp {
        let stays = |path: &&str| self.pending.get(path).is_none();
        let mut paths = self.pending.ephemerals(case.session);
        paths.extend(case.tree.ephemerals(case.session, "").filter(stays).map(Arc::from));
        for path in &paths {
            let parent_path = parent_of(path).expect("a node's path has a slash");
            let parent = self.look_up(case.tree, parent_path).expect("the parent of a node exists");
            self.remove(case, path, parent_path, parent);
        }
        TxnOp::CloseSession
    }

    /// The node as it will be when every proposal is applied.
    fn look_up(&self, tree: &Tree, path: &str) -> Option<Node> {
        if let Some(node) = self.pending.get(path) {
            return node.cloned();
        }
        let id = tree.find(path)?;
        let node = tree.node(id);
        Some(Node {
            version: node.version,
            aversion: node.aversion,
            creates: node.creates,
            children: tree.children_count(id),
            owner: node.owner,
            mtime: node.mtime,
            length: node.length(),
            acl: NodeAcl::Stored(node.acl),
        })
    }
}

impl Node {
    fn check(&self, case: &PrepContext<'_>, access: &Access<'_>) -> Result<(), ErrorCode> {
        let list = match &self.acl {
            NodeAcl::Stored(id) => case.tree.acls().list(*id),
            NodeAcl::New(list) => list,
        };
        if case.who().may(list, access) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn expect_version(&self, version: i32) -> Result<(), ErrorCode> {
        if version == -1 || version == self.version { Ok(()) } else { Err(ErrorCode::BadVersion) }
    }
}

/// The mode of create and createContainer (DATA-05, edge 17).
fn mode(case: &PrepContext<'_>, flags: i32) -> Result<CreateMode, ErrorCode> {
    check_timed(case, flags)?;
    CreateMode::from_wire(flags).ok_or(ErrorCode::BadArguments)
}

/// The mode of createTTL: is it sequential, and how long does the node live? ZooKeeper's process
/// ends on a negative TTL with another mode (edge 23).
fn timed_mode(case: &PrepContext<'_>, flags: i32, ttl: i64) -> Result<(bool, Lifetime), ErrorCode> {
    check_timed(case, flags)?;
    let ms = ttl.try_into().ok().filter(|ms| (1..=Lifetime::TTL_MS_MAX).contains(ms));
    match (flags, ms) {
        (5 | 6, Some(ms)) => Ok((flags == 6, Lifetime::Ttl { ms })),
        _ => Err(ErrorCode::BadArguments),
    }
}

/// TTL modes may be disabled (edge 24).
fn check_timed(case: &PrepContext<'_>, flags: i32) -> Result<(), ErrorCode> {
    let off = matches!(flags, 5 | 6) && !case.config.tree.extended_types;
    if off { Err(ErrorCode::Unimplemented) } else { Ok(()) }
}

fn signed(bytes: usize) -> i64 {
    i64::try_from(bytes).expect("a frame is shorter")
}

/// The path up to its last slash; `/` for a child of the root.
fn parent_of(path: &str) -> Result<&str, ErrorCode> {
    match path.rsplit_once('/') {
        Some(_) if path.contains('\0') => Err(ErrorCode::BadArguments),
        Some(("", _)) => Ok("/"),
        Some((parent, _)) => Ok(parent),
        None => Err(ErrorCode::BadArguments),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::auth::AuthOptions;
    use crate::config::TreeOptions;
    use crate::ids::ServerId;
    use crate::quorum::Voters;
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

        fn case(&self) -> PrepContext<'_> {
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
            }
        }

        fn decide(&mut self, request: Request) -> TxnOp {
            self.zxid = Zxid(self.zxid.0 + 1);
            let mut prep = std::mem::replace(&mut self.prep, Prep::new(KeyedHash::default()));
            let op = prep.decide(&self.case(), request);
            self.prep = prep;
            op
        }

        fn lapse(&mut self, path: &str) -> bool {
            let mut prep = std::mem::replace(&mut self.prep, Prep::new(KeyedHash::default()));
            let op = prep.lapse(&self.case(), path);
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
            let written =
                world.decide(Request::SetData { path: "/p".into(), data: None, version: -1 });
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
        assert!(!world.lapse("/t"), "nothing goes whose kind the operator has switched off");
        let id = world.tree.find("/t").expect("applied");
        assert_eq!(world.tree.stat(id).ephemeral_owner, SessionId(0), "and nobody owns it");
        assert_eq!(world.create(create("/t/child", 0)).as_deref(), Ok("/t/child"));
        world.config = world
            .config
            .clone()
            .with_tree(TreeOptions { extended_types: true, ..TreeOptions::default() })
            .expect("fine");
        assert!(!world.lapse("/t"), "it has a child");
        world.decide(Request::Delete { path: "/t/child".into(), version: -1 });
        assert!(world.lapse("/t"));
    }

    #[test]
    fn edges_191_195_pending_changes_may_keep_a_node_from_deletion() {
        let on = TreeOptions { extended_types: true, ..TreeOptions::default() };
        let mut world = World::new(on);
        for request in [timed("/t", 5, 10), timed("/u", 5, 10), container("/c", 0), create("/p", 0)]
        {
            world.create(request).expect("fine");
        }
        world.time = WallMs(1010);
        assert!(!world.lapse("/t"), "not yet");
        world.time = WallMs(1011);
        world.decide(Request::SetData { path: "/u".into(), data: None, version: -1 });
        assert!(!world.lapse("/u"), "written a moment ago");
        assert!(!world.lapse("/c"), "never used");
        world.decide(create("/c/x", 0));
        assert!(!world.lapse("/c"), "it has a child");
        world.decide(Request::Delete { path: "/c/x".into(), version: -1 });
        assert!(world.lapse("/c"), "emptied under way");
        assert!(!world.lapse("/c"), "gone");
        assert!(!world.lapse("/p") && !world.lapse("/none"), "not of that kind");
        assert!(world.lapse("/t"));
        assert_eq!(code(&world.decide(create("/t/x", 0))), Some(ErrorCode::NoNode));
    }

    #[test]
    fn oversized_transaction_is_refused_without_changes() {
        let mut world = World::new(TreeOptions::default());
        world.config.limits.record_bytes = 1_000;
        let large = |path: &str, bytes| {
            let data = Some(Bytes::from(vec![0; bytes]));
            Request::Create {
                path: path.into(),
                data,
                acl: Acl::open(),
                flags: 0,
                with_stat: false,
            }
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
}
