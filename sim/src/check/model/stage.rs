//! Pending changes of one transaction: each operation sees the earlier ones, and all are kept or
//! dropped together.
//!
//! Owns the effects of each operation on nodes, and what it fires. `decide` (for the later
//! operations of a multi) and `apply` use it. Must not change the model.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use zabkeeper_core::txn::{Lifetime, TxnOp};
use zabkeeper_core::wire::{Acl, EventType, Stat};
use zabkeeper_core::{SessionId, WallMs, Zxid};

use super::quota::{self, Figures};
use super::{CONFIG_NODE, Firing, Kind, Model, Node, Rules, Table, Wrong, path};

/// Zxid, session and time of the transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    pub(super) zxid: Zxid,
    pub(super) session: SessionId,
    pub(super) time: WallMs,
}

/// The model with pending changes.
pub(super) struct Stage<'a> {
    model: &'a Model,
    header: Header,
    changes: Changes,
    place: u32,
}

/// The pending changes.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// Changed nodes by path; `None` where the node is deleted.
    pub(super) nodes: BTreeMap<String, Option<Node>>,
    /// Nodes that were created or deleted, in order.
    pub(super) moves: Vec<Move>,
    /// Firings in the order of their events.
    pub(super) firings: Vec<Firing>,
    /// The node's stat right after each create, setData and setACL, in order, for the reply; later
    /// operations of a multi may change the node again.
    pub(super) stats: Vec<Stat>,
}

/// A node was created or deleted.
#[derive(Debug)]
pub(super) struct Move {
    pub(super) came: bool,
    pub(super) path: String,
    /// The owner of an ephemeral node, else zero.
    pub(super) owner: SessionId,
}

/// The node in a create operation.
struct Creation<'a> {
    path: &'a str,
    data: &'a Option<Bytes>,
    acl: &'a [Acl],
    lifetime: Lifetime,
    parent_creates: i32,
}

impl<'a> Stage<'a> {
    pub(super) fn new(model: &'a Model, header: Header) -> Stage<'a> {
        Stage { model, header, changes: Changes::default(), place: 0 }
    }

    /// The node with the pending changes.
    pub(super) fn node(&self, path: &str) -> Option<&Node> {
        match self.changes.nodes.get(path) {
            Some(changed) => changed.as_ref(),
            None => self.model.node(path),
        }
    }

    /// The model without the pending changes.
    pub(super) fn model(&self) -> &'a Model {
        self.model
    }

    /// The configuration of the servers.
    pub(super) fn rules(&self) -> &'a Rules {
        &self.model.rules
    }

    pub(super) fn finish(self) -> Changes {
        self.changes
    }

    /// Executes an operation.
    pub(super) fn run(&mut self, op: &TxnOp) -> Result<(), Wrong> {
        match op {
            TxnOp::Create { path, data, acl, lifetime, parent_creates } => {
                let (lifetime, parent_creates) = (*lifetime, *parent_creates);
                self.create(&Creation { path, data, acl, lifetime, parent_creates })
            }
            TxnOp::Delete { path } => self.delete(path),
            TxnOp::SetData { path, data, version } => self.set_data(path, data, *version),
            TxnOp::Check { path } => {
                let exists = self.node(path).is_some();
                demand(exists, Kind::Structure, || format!("check {path}: it does not exist"))
            }
            TxnOp::Multi(ops) => ops.iter().try_for_each(|op| match op {
                TxnOp::Multi(_) | TxnOp::Reconfig { .. } => {
                    Err(wrong(Kind::Structure, format!("{op} in a multi")))
                }
                TxnOp::Create { .. }
                | TxnOp::Delete { .. }
                | TxnOp::SetData { .. }
                | TxnOp::SetAcl { .. }
                | TxnOp::Check { .. }
                | TxnOp::MultiRefused { .. }
                | TxnOp::CreateSession { .. }
                | TxnOp::UpgradeSession { .. }
                | TxnOp::CloseSession
                | TxnOp::MoveSession { .. }
                | TxnOp::Error { .. } => self.run(op),
            }),
            TxnOp::CloseSession => {
                let session = self.model.session(self.header.session);
                let mut own = session.into_iter().flat_map(|session| &session.ephemerals);
                own.try_for_each(|path| self.delete(path))
            }
            TxnOp::SetAcl { path, acl, version } => self.set_acl(path, acl, *version),
            TxnOp::Reconfig { config } => self.reconfigure(config),
            TxnOp::CreateSession { .. }
            | TxnOp::UpgradeSession { .. }
            | TxnOp::MoveSession { .. }
            | TxnOp::MultiRefused { .. }
            | TxnOp::Error { .. } => Ok(()),
        }
    }

    fn create(&mut self, new: &Creation<'_>) -> Result<(), Wrong> {
        let &Creation { path, lifetime, parent_creates, .. } = new;
        let Header { zxid, session, time } = self.header;
        let demand = |holds, what: &dyn Fn() -> String| {
            demand(holds, Kind::Structure, || format!("create {path}: {}", what()))
        };
        demand(path::is_valid(path), &|| "the path is not valid".to_owned())?;
        let parent_path = path::parent(path).expect("a valid path has a slash");
        let Some(parent) = self.node(parent_path) else {
            return Err(wrong(Kind::Structure, format!("create {path}: no parent {parent_path}")));
        };
        demand(parent.owner == SessionId(0), &|| "the parent is ephemeral".to_owned())?;
        demand(self.node(path).is_none(), &|| "it exists".to_owned())?;
        let counted = parent.creates.wrapping_add(1);
        demand(parent_creates == counted, &|| {
            format!("it counts {parent_creates} children, not {counted}")
        })?;
        if lifetime == Lifetime::Ephemeral && !self.model.is_alive(session) {
            let what = format!("create {path} for session {session}, which is not alive");
            return Err(wrong(Kind::Ephemeral, what));
        }

        let mut parent = parent.clone();
        // The stored counter never decreases, even when it overflows (DATA-15).
        parent.creates = parent.creates.max(parent_creates);
        parent.children += 1;
        parent.pzxid = zxid;
        let owner = if lifetime == Lifetime::Ephemeral { session } else { SessionId(0) };
        let node = Node {
            data: new.data.clone(),
            czxid: zxid,
            mzxid: zxid,
            pzxid: zxid,
            ctime: time.0,
            mtime: time.0,
            lifetime,
            owner,
            ..Node::initial(0, new.acl.to_vec(), 0)
        };
        self.fire_node(path, EventType::NodeCreated, &node);
        self.fire_children(parent_path, &parent);
        self.changes.stats.push(node.stat());
        self.changes.moves.push(Move { came: true, path: path.to_owned(), owner });
        let bytes = length(&node);
        self.changes.nodes.insert(path.to_owned(), Some(node));
        self.changes.nodes.insert(parent_path.to_owned(), Some(parent));
        if let Some(counted) = quota::counted_by(path) {
            let usage = self.measure(counted);
            self.report_usage(path, &usage);
        }
        self.uses(path, 1, bytes);
        Ok(())
    }

    fn delete(&mut self, path: &str) -> Result<(), Wrong> {
        let demand =
            |holds, what: &str| demand(holds, Kind::Structure, || format!("delete {path}: {what}"));
        demand(!path::is_reserved(path), "it belongs to the server")?;
        let Some(node) = self.node(path).cloned() else {
            return Err(wrong(Kind::Structure, format!("delete {path}: it does not exist")));
        };
        demand(node.children == 0, "it has children")?;

        let parent_path = path::parent(path).expect("a node's path has a slash");
        let mut parent = self.node(parent_path).expect("a node has a parent").clone();
        parent.children -= 1;
        parent.pzxid = self.header.zxid;
        self.fire_node(path, EventType::NodeDeleted, &node);
        self.fire_children(parent_path, &parent);
        let owner = node.owner;
        self.changes.moves.push(Move { came: false, path: path.to_owned(), owner });
        self.changes.nodes.insert(path.to_owned(), None);
        self.changes.nodes.insert(parent_path.to_owned(), Some(parent));
        self.uses(path, -1, -length(&node));
        Ok(())
    }

    fn set_data(&mut self, path: &str, data: &Option<Bytes>, version: i32) -> Result<(), Wrong> {
        let Some(mut node) = self.node(path).cloned() else {
            return Err(wrong(Kind::Structure, format!("setData {path}: it does not exist")));
        };
        let next = node.version.wrapping_add(1);
        demand(version == next, Kind::Structure, || {
            format!("setData {path} makes version {version}, not {next}")
        })?;
        self.replace_data(path, &mut node, data, version);
        Ok(())
    }

    /// RECONF-17: the version of the node is always -1.
    fn reconfigure(&mut self, config: &str) -> Result<(), Wrong> {
        let mut node = self.node(CONFIG_NODE).expect("nobody can delete it").clone();
        self.replace_data(
            CONFIG_NODE,
            &mut node,
            &Some(Bytes::copy_from_slice(config.as_bytes())),
            -1,
        );
        Ok(())
    }

    fn replace_data(&mut self, path: &str, node: &mut Node, data: &Option<Bytes>, version: i32) {
        let before = length(node);
        node.data = data.clone();
        node.version = version;
        node.mzxid = self.header.zxid;
        node.mtime = self.header.time.0;
        self.fire_node(path, EventType::NodeDataChanged, node);
        self.changes.stats.push(node.stat());
        let more = length(node) - before;
        self.changes.nodes.insert(path.to_owned(), Some(node.clone()));
        self.uses(path, 0, more);
    }

    /// Adds to the usage of the quota that covers the path (DATA-30). Only the data of the stats
    /// node changes, not its Stat (edge 80).
    fn uses(&mut self, path: &str, count: i64, bytes: i64) {
        let Some(limited) = quota::nearest(path, |limits| self.node(limits).is_some()) else {
            return;
        };
        let stats = quota::stats_of(limited);
        if let Some(used) = self.node(&stats).and_then(Figures::read) {
            self.report_usage(&stats, &used.plus(count, bytes));
        }
    }

    fn report_usage(&mut self, stats: &str, usage: &Figures) {
        let node = self.node(stats).expect("looked up before").clone();
        let data = Some(Bytes::from(usage.text()));
        self.changes.nodes.insert(stats.to_owned(), Some(Node { data, ..node }));
    }

    /// Nodes and bytes at and below the path, counted node by node (edge 184).
    fn measure(&self, path: &str) -> Figures {
        let below = format!("{path}/");
        let known = self.model.paths.range(below.clone()..).map(|(path, _)| path);
        let known = known.take_while(|path| path.starts_with(&below));
        let staged = self.changes.nodes.keys().filter(|path| path.starts_with(&below));
        let paths: BTreeSet<&str> = known.chain(staged).map(String::as_str).chain([path]).collect();
        let nodes = paths.into_iter().filter_map(|path| self.node(path));
        let (count, bytes) =
            nodes.fold((0, 0), |(count, bytes), node| (count + 1, bytes + length(node)));
        Figures::of(count, bytes)
    }

    /// setACL fires no watch (WATCH-12), and changes only aversion in the Stat (edge 52).
    fn set_acl(&mut self, path: &str, acl: &[Acl], version: i32) -> Result<(), Wrong> {
        let Some(mut node) = self.node(path).cloned() else {
            return Err(wrong(Kind::Structure, format!("setACL {path}: it does not exist")));
        };
        let next = node.aversion.wrapping_add(1);
        demand(version == next, Kind::Structure, || {
            format!("setACL {path} makes version {version}, not {next}")
        })?;
        node.acl = acl.into();
        node.aversion = version;
        self.changes.stats.push(node.stat());
        self.changes.nodes.insert(path.to_owned(), Some(node));
        Ok(())
    }

    /// Fires the watches of the node itself. A deletion fires both tables at one place.
    fn fire_node(&mut self, path: &str, event: EventType, node: &Node) {
        self.place += 1;
        self.fire(Table::Data, event, path, &node.acl);
        if event == EventType::NodeDeleted {
            self.fire(Table::Child, event, path, &node.acl);
        }
    }

    fn fire_children(&mut self, parent_path: &str, parent: &Node) {
        self.place += 1;
        self.fire(Table::Child, EventType::NodeChildrenChanged, parent_path, &parent.acl);
    }

    fn fire(&mut self, table: Table, event: EventType, path: &str, acl: &Arc<[Acl]>) {
        let (zxid, place, path) = (self.header.zxid, self.place, path.to_owned());
        let acl = acl.clone();
        self.changes.firings.push(Firing { zxid, place, table, event, path, acl });
    }
}

/// Bytes of the node's data.
pub(super) fn length(node: &Node) -> i64 {
    i64::try_from(node.data.as_ref().map_or(0, Bytes::len)).expect("data fits a frame")
}

pub(super) fn wrong(kind: Kind, what: String) -> Wrong {
    Wrong { kind, what }
}

pub(super) fn demand(holds: bool, kind: Kind, what: impl FnOnce() -> String) -> Result<(), Wrong> {
    if holds { Ok(()) } else { Err(wrong(kind, what())) }
}
