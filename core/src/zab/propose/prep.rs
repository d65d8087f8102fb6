//! Turns requests into transactions, on the leader (Java `PrepRequestProcessor`).
//!
//! Owns the checks, in ZooKeeper's order (DATA-05 to DATA-09), and the view of the tree as it will
//! be when every proposal is applied (DATA-10). Must not change the tree.

use std::sync::Arc;

use bytes::Bytes;

use super::pending::{Node, NodeAcl, Pending};
use super::reconfig::{self, Ensemble};
use crate::auth::{Access, Schemes, Who};
use crate::config::Config;
use crate::error::ErrorCode;
use crate::ids::{SessionId, WallMs, Zxid};
use crate::progress::ReconfigRefusal;
use crate::rng::KeyedHash;
use crate::tree::{self, CONFIG_NODE, Expiry, QuotaVerdict, Tree};
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
    /// Why a reconfiguration has been refused since the last [`Prep::take_reconfig_refusal`].
    reconfig_refusal: Option<ReconfigRefusal>,
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
    /// The ensemble, for a request that changes it.
    pub(super) ensemble: Option<Ensemble<'a>>,
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
    pub(super) fn who(&self) -> Who<'a> {
        Who::new(self.ids, self.schemes)
    }
}

impl Prep {
    pub(crate) fn new(hash: KeyedHash) -> Prep {
        Prep {
            pending: Pending::new(hash),
            over_soft_quota: false,
            too_large: false,
            reconfig_refusal: None,
        }
    }

    /// Decides a write of a live session: returns the change of transaction `case.zxid`, or a
    /// refusal.
    ///
    /// # Panics
    /// If the request is no write.
    pub(crate) fn decide(&mut self, context: &PrepContext<'_>, request: Request) -> TxnOp {
        self.pending.begin();
        match self.decide_one(context, request).and_then(|op| self.fit(context, op)) {
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
    fn fit(&mut self, context: &PrepContext<'_>, op: TxnOp) -> Result<TxnOp, ErrorCode> {
        if op.size() > context.config.limits.record_bytes {
            self.too_large = true;
            return Err(ErrorCode::Marshalling);
        }
        Ok(op)
    }

    fn decide_one(
        &mut self,
        context: &PrepContext<'_>,
        request: Request,
    ) -> Result<TxnOp, ErrorCode> {
        match request {
            Request::Create { path, data, acl, flags, .. } => {
                let CreateMode { ephemeral, sequential } = mode(context, flags)?;
                if ephemeral && context.local {
                    // ERR-26: checked before the path.
                    return Err(ErrorCode::EphemeralOnLocalSession);
                }
                let lifetime = if ephemeral { Lifetime::Ephemeral } else { Lifetime::Persistent };
                self.create(context, Creation { path, data, acl, sequential, lifetime })
            }
            Request::CreateContainer { path, data, acl, flags } => {
                // createContainer ignores the ephemeral flag (DATA-24).
                let CreateMode { sequential, .. } = mode(context, flags)?;
                let lifetime = Lifetime::Container;
                self.create(context, Creation { path, data, acl, sequential, lifetime })
            }
            Request::CreateTtl { path, data, acl, flags, ttl } => {
                let (sequential, lifetime) = timed_mode(context, flags, ttl)?;
                self.create(context, Creation { path, data, acl, sequential, lifetime })
            }
            Request::Delete { path, version } => {
                self.delete(context, &path, version).map(|()| TxnOp::Delete { path })
            }
            Request::SetData { path, data, version } => self.set_data(context, path, data, version),
            Request::Check { path, version } => {
                self.check(context, &path, version).map(|()| TxnOp::Check { path })
            }
            Request::SetAcl { path, acl, version } => self
                .set_acl(context, &path, acl, version)
                .map(|(acl, version)| TxnOp::SetAcl { path, acl, version }),
            Request::Multi(requests) => Ok(self.multi(context, requests)),
            Request::CloseSession => Ok(self.close_session(context)),
            // ZooKeeper validates the whole path for these operations, and null is an invalid path.
            Request::NoPath {
                op: OpCode::SetData | OpCode::SetAcl | OpCode::Check,
                in_list: false,
            } => Err(ErrorCode::BadArguments),
            Request::Undecodable { .. } | Request::NoPath { .. } => Err(ErrorCode::Marshalling),
            Request::Reconfig => Err(self.refuse_reconfig(ReconfigRefusal::Disabled)),
            Request::Reconfigure(request) => {
                reconfig::decide(context, &request).map_err(|why| self.refuse_reconfig(why))
            }
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

    fn refuse_reconfig(&mut self, why: ReconfigRefusal) -> ErrorCode {
        let code = why.code();
        self.reconfig_refusal = Some(why);
        code
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
    pub(crate) fn expiry(&mut self, context: &PrepContext<'_>, path: &str) -> Option<TxnOp> {
        let node = self.look_up(context.tree, path)?;
        let lifetime = Lifetime::of(node.owner);
        let expiry = Expiry::of(lifetime, node.children, node.creates, node.mtime)?;
        if !expiry.is_due(context.time, &context.config.tree) {
            return None;
        }
        let parent_path = parent_of(path).expect("a node's path has a slash");
        let parent = self.look_up(context.tree, parent_path).expect("the parent of a node exists");
        self.remove(context, path, parent_path, parent);
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

    /// Why a reconfiguration has been refused since the last call, if one has.
    pub(crate) fn take_reconfig_refusal(&mut self) -> Option<ReconfigRefusal> {
        self.reconfig_refusal.take()
    }

    /// DATA-05, beginning with the check of the path.
    fn create(&mut self, context: &PrepContext<'_>, new: Creation) -> Result<TxnOp, ErrorCode> {
        let Creation { mut path, data, acl, sequential, lifetime } = new;
        let parent_path = parent_of(&path)?.to_owned();
        let acl = context.who().fixup(acl)?;
        let mut parent = self.look_up(context.tree, &parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(context, &Access::new(Perms::CREATE, &path).setting(&acl))?;
        if sequential {
            path = format!("{path}{:010}", parent.creates);
        }
        if !tree::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.look_up(context.tree, &path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if Lifetime::of(parent.owner) == Lifetime::Ephemeral {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        let length = data.as_ref().map_or(0, Bytes::len);
        self.check_quota(context, &path, 1, signed(length))?;
        parent.creates = parent.creates.wrapping_add(1);
        parent.children += 1;
        let parent_creates = parent.creates;
        self.pending.change(&parent_path, Some(parent), context.zxid);
        let node = Node {
            version: 0,
            aversion: 0,
            creates: 0,
            children: 0,
            owner: lifetime.owner(context.session),
            mtime: context.time.0,
            length,
            acl: NodeAcl::New(Arc::from(&acl[..])),
        };
        self.pending.change(&path, Some(node), context.zxid);
        Ok(TxnOp::Create { path, data, acl, lifetime, parent_creates })
    }

    /// DATA-06.
    fn delete(
        &mut self,
        context: &PrepContext<'_>,
        path: &str,
        version: i32,
    ) -> Result<(), ErrorCode> {
        let parent_path = parent_of(path)?;
        if tree::is_reserved(path) {
            return Err(ErrorCode::BadArguments);
        }
        let parent = self.look_up(context.tree, parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(context, &Access::new(Perms::DELETE, path))?;
        let node = self.look_up(context.tree, path).ok_or(ErrorCode::NoNode)?;
        node.expect_version(version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        self.remove(context, path, parent_path, parent);
        Ok(())
    }

    fn remove(
        &mut self,
        context: &PrepContext<'_>,
        path: &str,
        parent_path: &str,
        mut parent: Node,
    ) {
        parent.children -= 1;
        self.pending.change(parent_path, Some(parent), context.zxid);
        self.pending.change(path, None, context.zxid);
    }

    /// DATA-07.
    fn set_data(
        &mut self,
        context: &PrepContext<'_>,
        path: String,
        data: Option<Bytes>,
        version: i32,
    ) -> Result<TxnOp, ErrorCode> {
        // Servers take the configuration of the ensemble from this node when they start.
        let holds_config = context.config.reconfig.is_some() && path == CONFIG_NODE;
        if !tree::is_valid(&path) || holds_config {
            return Err(ErrorCode::BadArguments);
        }
        let mut node = self.look_up(context.tree, &path).ok_or(ErrorCode::NoNode)?;
        node.check(context, &Access::new(Perms::WRITE, &path))?;
        let length = data.as_ref().map_or(0, Bytes::len);
        self.check_quota(context, &path, 0, signed(length) - signed(node.length))?;
        node.expect_version(version)?;
        // 3.9 counts through -1; later releases skip it (DATA-12).
        node.version = node.version.wrapping_add(1);
        node.mtime = context.time.0;
        node.length = length;
        let version = node.version;
        self.pending.change(&path, Some(node), context.zxid);
        Ok(TxnOp::SetData { path, data, version })
    }

    /// DATA-32: checks `count` nodes and `bytes` bytes more at `path` against the quota.
    fn check_quota(
        &mut self,
        context: &PrepContext<'_>,
        path: &str,
        count: i64,
        bytes: i64,
    ) -> Result<(), ErrorCode> {
        if !context.config.tree.enforce_quota {
            return Ok(());
        }
        match context.tree.check_quota(path, count, bytes) {
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
        context: &PrepContext<'_>,
        path: &str,
        acl: Vec<Acl>,
        version: i32,
    ) -> Result<(Vec<Acl>, i32), ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let acl = context.who().fixup(acl)?;
        let mut node = self.look_up(context.tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(context, &Access::new(Perms::ADMIN, path).setting(&acl))?;
        if version != -1 && version != node.aversion {
            return Err(ErrorCode::BadVersion);
        }
        node.aversion = node.aversion.wrapping_add(1);
        node.acl = NodeAcl::New(Arc::from(&acl[..]));
        let version = node.aversion;
        self.pending.change(path, Some(node), context.zxid);
        Ok((acl, version))
    }

    /// DATA-09.
    fn check(&self, context: &PrepContext<'_>, path: &str, version: i32) -> Result<(), ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.look_up(context.tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(context, &Access::new(Perms::READ, path))?;
        node.expect_version(version)
    }

    /// MULTI-01, MULTI-04: each operation is decided over the changes of those before it. If one
    /// fails, all changes are undone, including the sequence numbers.
    fn multi(&mut self, context: &PrepContext<'_>, requests: Vec<Request>) -> TxnOp {
        let count = requests.len();
        let mut ops = Vec::with_capacity(count);
        let mut refusal = None;
        let mut size = 0;
        for request in requests {
            match self.decide_one(context, request) {
                Ok(op) => {
                    size += op.size();
                    if size > context.config.limits.record_bytes {
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
    fn close_session(&mut self, context: &PrepContext<'_>) -> TxnOp {
        let stays = |path: &&str| self.pending.get(path).is_none();
        let mut paths = self.pending.ephemerals(context.session);
        paths.extend(context.tree.ephemerals(context.session, "").filter(stays).map(Arc::from));
        for path in &paths {
            let parent_path = parent_of(path).expect("a node's path has a slash");
            let parent =
                self.look_up(context.tree, parent_path).expect("the parent of a node exists");
            self.remove(context, path, parent_path, parent);
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
    fn check(&self, context: &PrepContext<'_>, access: &Access<'_>) -> Result<(), ErrorCode> {
        let list = match &self.acl {
            NodeAcl::Stored(id) => context.tree.acls().list(*id),
            NodeAcl::New(list) => list,
        };
        if context.who().may(list, access) { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn expect_version(&self, version: i32) -> Result<(), ErrorCode> {
        if version == -1 || version == self.version { Ok(()) } else { Err(ErrorCode::BadVersion) }
    }
}

/// The mode of create and createContainer (DATA-05, edge 17).
fn mode(context: &PrepContext<'_>, flags: i32) -> Result<CreateMode, ErrorCode> {
    check_timed(context, flags)?;
    CreateMode::from_wire(flags).ok_or(ErrorCode::BadArguments)
}

/// The mode of createTTL: is it sequential, and how long does the node live? ZooKeeper's process
/// ends on a negative TTL with another mode (edge 23).
fn timed_mode(
    context: &PrepContext<'_>,
    flags: i32,
    ttl: i64,
) -> Result<(bool, Lifetime), ErrorCode> {
    check_timed(context, flags)?;
    let ms = ttl.try_into().ok().filter(|ms| (1..=Lifetime::TTL_MS_MAX).contains(ms));
    match (flags, ms) {
        (5 | 6, Some(ms)) => Ok((flags == 6, Lifetime::Ttl { ms })),
        _ => Err(ErrorCode::BadArguments),
    }
}

/// TTL modes may be disabled (edge 24).
fn check_timed(context: &PrepContext<'_>, flags: i32) -> Result<(), ErrorCode> {
    let off = matches!(flags, 5 | 6) && !context.config.tree.extended_types;
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
mod tests;
