//! From request to transaction, on the leader (Java `PrepRequestProcessor`).
//!
//! Owns the checks, in ZooKeeper's order (DATA-05 to DATA-07), and the picture of the tree as it will be when all that
//! is proposed has been applied (DATA-10). Must not change the tree.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use hashbrown::HashMap;

use crate::error::ErrorCode;
use crate::ids::{SessionId, Zxid};
use crate::rng::KeyedHash;
use crate::tree::{self, AclId, Tree};
use crate::txn::TxnOp;
use crate::wire::{Acl, CreateMode, Perms, Request};

/// What is proposed and not yet applied, by path. Lookup only; `order` says what to forget.
#[derive(Debug)]
pub(crate) struct Prep {
    changes: HashMap<Arc<str>, Change, KeyedHash>,
    order: VecDeque<(Zxid, Arc<str>)>,
    /// While a multi is decided: what its changes have replaced, so that they can be taken back.
    undo: Option<Vec<(Arc<str>, Option<Change>)>>,
}

#[derive(Debug)]
struct Change {
    /// The last transaction that changes the node.
    zxid: Zxid,
    /// What it leaves; `None` where it deletes.
    node: Option<Pending>,
}

/// As much of a node as the checks need.
#[derive(Clone, Debug)]
struct Pending {
    version: i32,
    creates: i32,
    children: u32,
    owner: SessionId,
    acl: PendingAcl,
}

#[derive(Clone, Debug)]
enum PendingAcl {
    Stored(AclId),
    New(Arc<[Acl]>),
}

impl Prep {
    pub(crate) fn new(hash: KeyedHash) -> Prep {
        Prep { changes: HashMap::with_hasher(hash), order: VecDeque::new(), undo: None }
    }

    /// Decides a write of a live session: the change it makes as transaction `zxid`, or its refusal.
    ///
    /// # Panics
    /// On requests that are no writes.
    pub(crate) fn decide(
        &mut self,
        tree: &Tree,
        session: SessionId,
        request: Request,
        zxid: Zxid,
    ) -> TxnOp {
        self.decide_one(tree, session, request, zxid).unwrap_or_else(|code| TxnOp::Error { code })
    }

    fn decide_one(
        &mut self,
        tree: &Tree,
        session: SessionId,
        request: Request,
        zxid: Zxid,
    ) -> Result<TxnOp, ErrorCode> {
        match request {
            Request::Create { path, data, acl, flags, .. } => self
                .create(tree, session, path, acl, flags, zxid)
                .map(|(path, acl, ephemeral, parent_creates)| TxnOp::Create {
                    path,
                    data,
                    acl,
                    ephemeral,
                    parent_creates,
                }),
            Request::Delete { path, version } => {
                self.delete(tree, &path, version, zxid).map(|()| TxnOp::Delete { path })
            }
            Request::SetData { path, data, version } => self
                .set_data(tree, &path, version, zxid)
                .map(|version| TxnOp::SetData { path, data, version }),
            Request::Check { path, version } => {
                self.check(tree, &path, version).map(|()| TxnOp::Check { path })
            }
            Request::Multi(requests) => Ok(self.multi(tree, session, requests, zxid)),
            Request::CloseSession => Ok(self.close_session(tree, session, zxid)),
            Request::Undecodable { .. } => Err(ErrorCode::Marshalling),
            Request::Exists { .. }
            | Request::GetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::Unknown { .. } => unreachable!("{request} is no write"),
        }
    }

    /// Forgets the changes of a transaction that the tree now has.
    pub(crate) fn applied(&mut self, zxid: Zxid) {
        while let Some((change, path)) = self.order.front() {
            if *change > zxid {
                break;
            }
            if self.changes.get(path).is_some_and(|last| last.zxid <= zxid) {
                self.changes.remove(path);
            }
            self.order.pop_front();
        }
    }

    /// DATA-05. Returns the path with its suffix, the list to store, ephemeral or not, and the parent's new counter.
    fn create(
        &mut self,
        tree: &Tree,
        session: SessionId,
        mut path: String,
        acl: Vec<Acl>,
        flags: i32,
        zxid: Zxid,
    ) -> Result<(String, Vec<Acl>, bool, i32), ErrorCode> {
        let mode = CreateMode::from_wire(flags).ok_or(match flags {
            // TTL nodes are switched off, as by default in ZooKeeper (edge 24).
            5 | 6 => ErrorCode::Unimplemented,
            _ => ErrorCode::BadArguments,
        })?;
        let parent_path = parent_of(&path)?.to_owned();
        let acl = tree::fixup(acl)?;
        let mut parent = self.look_up(tree, &parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(tree, Perms::CREATE)?;
        if mode.sequential {
            path = format!("{path}{:010}", parent.creates);
        }
        if !tree::is_valid(&path) {
            return Err(ErrorCode::BadArguments);
        }
        if self.look_up(tree, &path).is_some() {
            return Err(ErrorCode::NodeExists);
        }
        if parent.owner != SessionId(0) {
            return Err(ErrorCode::NoChildrenForEphemerals);
        }
        parent.creates = parent.creates.wrapping_add(1);
        parent.children += 1;
        let parent_creates = parent.creates;
        self.change(&parent_path, Some(parent), zxid);
        let owner = if mode.ephemeral { session } else { SessionId(0) };
        let node = Pending {
            version: 0,
            creates: 0,
            children: 0,
            owner,
            acl: PendingAcl::New(Arc::from(&acl[..])),
        };
        self.change(&path, Some(node), zxid);
        Ok((path, acl, mode.ephemeral, parent_creates))
    }

    /// DATA-06.
    fn delete(
        &mut self,
        tree: &Tree,
        path: &str,
        version: i32,
        zxid: Zxid,
    ) -> Result<(), ErrorCode> {
        let parent_path = parent_of(path)?;
        if tree::is_reserved(path) {
            return Err(ErrorCode::BadArguments);
        }
        let mut parent = self.look_up(tree, parent_path).ok_or(ErrorCode::NoNode)?;
        parent.check(tree, Perms::DELETE)?;
        let node = self.look_up(tree, path).ok_or(ErrorCode::NoNode)?;
        node.expect_version(version)?;
        if node.children > 0 {
            return Err(ErrorCode::NotEmpty);
        }
        parent.children -= 1;
        self.change(parent_path, Some(parent), zxid);
        self.change(path, None, zxid);
        Ok(())
    }

    /// DATA-07. Returns the new version.
    fn set_data(
        &mut self,
        tree: &Tree,
        path: &str,
        version: i32,
        zxid: Zxid,
    ) -> Result<i32, ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let mut node = self.look_up(tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(tree, Perms::WRITE)?;
        node.expect_version(version)?;
        // 3.9 goes through -1, later releases leave it out (DATA-12).
        node.version = node.version.wrapping_add(1);
        let version = node.version;
        self.change(path, Some(node), zxid);
        Ok(version)
    }

    /// DATA-09.
    fn check(&self, tree: &Tree, path: &str, version: i32) -> Result<(), ErrorCode> {
        if !tree::is_valid(path) {
            return Err(ErrorCode::BadArguments);
        }
        let node = self.look_up(tree, path).ok_or(ErrorCode::NoNode)?;
        node.check(tree, Perms::READ)?;
        node.expect_version(version)
    }

    /// MULTI-01, MULTI-04: each operation is decided over those before it; where one fails, none has happened, and the
    /// sequence numbers are given back.
    fn multi(
        &mut self,
        tree: &Tree,
        session: SessionId,
        requests: Vec<Request>,
        zxid: Zxid,
    ) -> TxnOp {
        let count = requests.len();
        let changes_before = self.order.len();
        self.undo = Some(Vec::new());
        let mut ops = Vec::with_capacity(count);
        let mut refusal = None;
        for request in requests {
            match self.decide_one(tree, session, request, zxid) {
                Ok(op) => ops.push(op),
                Err(code) => {
                    refusal = Some(code);
                    break;
                }
            }
        }
        let undo = self.undo.take().unwrap_or_default();
        let Some(code) = refusal else { return TxnOp::Multi(ops) };
        for (path, before) in undo.into_iter().rev() {
            match before {
                Some(change) => self.changes.insert(path, change),
                None => self.changes.remove(&path),
            };
        }
        self.order.truncate(changes_before);
        let number = |n: usize| u32::try_from(n).expect("a frame holds fewer operations");
        TxnOp::MultiRefused { count: number(count), failed: number(ops.len()), code }
    }

    /// SESS-07: the ephemerals that the session will have had when this transaction is applied.
    fn close_session(&mut self, tree: &Tree, session: SessionId, zxid: Zxid) -> TxnOp {
        let mut paths: BTreeSet<Arc<str>> = tree.ephemerals(session).map(Arc::from).collect();
        for (_, path) in &self.order {
            match self.changes.get(path).and_then(|change| change.node.as_ref()) {
                Some(node) if node.owner == session => paths.insert(path.clone()),
                _ => paths.remove(path),
            };
        }
        for path in &paths {
            let parent_path = parent_of(path).expect("a node's path has a slash");
            let mut parent = self.look_up(tree, parent_path).expect("the parent of a node exists");
            parent.children -= 1;
            self.change(parent_path, Some(parent), zxid);
            self.change(path, None, zxid);
        }
        let ephemerals = paths.iter().map(|path| path.to_string()).collect();
        TxnOp::CloseSession { ephemerals }
    }

    /// The node as it will be.
    fn look_up(&self, tree: &Tree, path: &str) -> Option<Pending> {
        if let Some(change) = self.changes.get(path) {
            return change.node.clone();
        }
        let id = tree.find(path)?;
        let node = tree.node(id);
        Some(Pending {
            version: node.version,
            creates: node.creates,
            children: tree.children_count(id),
            owner: node.owner,
            acl: PendingAcl::Stored(node.acl),
        })
    }

    fn change(&mut self, path: &str, node: Option<Pending>, zxid: Zxid) {
        let path = match self.changes.get_key_value(path) {
            Some((known, _)) => known.clone(),
            None => Arc::from(path),
        };
        self.order.push_back((zxid, path.clone()));
        let before = self.changes.insert(path.clone(), Change { zxid, node });
        if let Some(undo) = &mut self.undo {
            undo.push((path, before));
        }
    }
}

impl Pending {
    fn check(&self, tree: &Tree, wanted: Perms) -> Result<(), ErrorCode> {
        let allowed = match &self.acl {
            PendingAcl::Stored(id) => tree.acls().allows(*id, wanted),
            PendingAcl::New(list) => tree::allows(list, wanted),
        };
        if allowed { Ok(()) } else { Err(ErrorCode::NoAuth) }
    }

    fn expect_version(&self, version: i32) -> Result<(), ErrorCode> {
        if version == -1 || version == self.version { Ok(()) } else { Err(ErrorCode::BadVersion) }
    }
}

/// The path up to the last slash; of a child of the root: the root.
fn parent_of(path: &str) -> Result<&str, ErrorCode> {
    match path.rsplit_once('/') {
        Some(_) if path.contains('\0') => Err(ErrorCode::BadArguments),
        Some(("", _)) => Ok("/"),
        Some((parent, _)) => Ok(parent),
        None => Err(ErrorCode::BadArguments),
    }
}
