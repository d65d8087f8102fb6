//! The reference model: a sequential data tree with its sessions, which determines what every
//! server must hold.
//!
//! Owns the state after each committed transaction, and enough of the past to answer a read at any
//! zxid. It is written from the promises to clients and not from the server, so that a bug stays
//! hidden only if both have it. Must not know servers, connections or frames, and must not use
//! anything of the core but records, identifiers and the definition of the digest.
//!
//! Invariants: transactions arrive in strictly ascending zxid order; a transaction that the state
//! does not allow changes nothing and is returned as [`Wrong`]; the past never changes.

mod answer;
mod apply;
mod auth;
mod bounds;
mod decide;
mod lifetime;
mod node;
mod path;
mod quota;
mod read;
mod sha1;
mod stage;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use zabkeeper_core::txn::{Lifetime, Txn};
use zabkeeper_core::wire::{Acl, EventType, Perms, Stat};
use zabkeeper_core::{
    AuthOptions, Membership, ServerId, SessionId, TreeOptions, WallMs, Zxid, digest,
};

pub use auth::{Asker, NAMES, digest as digest_of, ip};
pub use node::{Node, PathHistory};
pub use quota::is_quota;
pub use read::Resumption;

/// The node of the ensemble's configuration.
pub const CONFIG_NODE: &str = "/zookeeper/config";

/// The watch table of a one-shot watch.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// Set by getData and exists.
    Data,
    /// Set by getChildren.
    Child,
}

/// A transaction has changed something that a watch may cover.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Firing {
    /// Zxid of the transaction.
    pub zxid: Zxid,
    /// Place among the firings of that transaction. A deletion fires both tables of the node at one
    /// place, because a connection gets one event for it (WATCH-10).
    pub place: u32,
    /// The table whose watches fire.
    pub table: Table,
    /// The event that clients get.
    pub event: EventType,
    /// Path of the node.
    pub path: String,
    /// The node's ACL. A client without READ gets no event, but its watch is used up (WATCH-17).
    pub acl: Arc<[Acl]>,
}

/// Why a transaction is not possible on the present state.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// The kind of property that it violates.
    pub kind: Kind,
    /// What the state demands, and what was found.
    pub what: String,
}

/// The properties that a transaction can violate, whatever its origin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Its zxid is not above the previous one.
    Order,
    /// A parent, a node, a child counter or a version is wrong.
    Structure,
    /// An ephemeral node is created for a session that is not alive.
    Ephemeral,
    /// A session id is used again, or a session that is not alive ends or moves.
    Session,
}

/// A committed transaction and its results.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The transaction.
    pub txn: Txn,
    /// Digest of tree and sessions after the transaction.
    pub digest: u64,
    /// The stats of its creates, setData and setACL operations, in order, for the replies.
    pub stats: Vec<Stat>,
}

/// The configuration of the servers, as far as the oracles need it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// The authentication options.
    pub auth: AuthOptions,
    /// The options of the tree.
    pub tree: TreeOptions,
    /// The servers with local sessions.
    pub local: LocalRules,
    /// Content of `/zookeeper/config` for readers, in place of the stored data.
    pub membership: Option<Membership>,
    /// The server lines of the first configuration, if clients reconfigure the ensemble.
    pub first_config: Option<String>,
    /// Greatest size of an answer or a transaction, approximately, bytes; zero: no bound.
    pub record_bytes: usize,
    /// Greatest number of transactions of an epoch; zero: no bound.
    pub epoch_txns: u32,
    /// The tick time; zero: unknown.
    pub tick: Duration,
    /// How long a serving server may receive nothing from its leader or learners; zero: without
    /// limit.
    pub sync_limit: Duration,
    /// How long a server that does not serve yet may be silent; zero: without limit.
    pub init_limit: Duration,
    /// How long an elected leader may take to synchronize a quorum before it steps down; zero:
    /// without limit.
    pub begin_limit: Duration,
    /// How long a quorum without faults may take to commit a proposal; zero: unknown.
    pub commit_within: Duration,
    /// How long a server in a quorum without faults may take to read and answer its clients; zero:
    /// unknown.
    pub answer_within: Duration,
    /// Bounds of the session timeouts.
    pub timeouts: TimeoutBounds,
}

impl Rules {
    /// The greatest age of the newest proof that a peer is alive: `sync_limit` and half a tick,
    /// because the proof is the previous ping or its answer. Zero: without limit.
    pub(crate) fn silence_limit(&self) -> Duration {
        if self.sync_limit.is_zero() { Duration::ZERO } else { self.sync_limit + self.tick / 2 }
    }
}

/// The least and greatest session timeouts that each server grants, ms; zeros: unknown.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeoutBounds {
    /// Bounds of all servers that are not in `others`.
    pub usual_ms: (u32, u32),
    /// Servers with other bounds.
    pub others: BTreeSet<ServerId>,
    /// Bounds of the servers in `others`.
    pub others_ms: (u32, u32),
}

impl TimeoutBounds {
    /// The timeout that this server grants for the requested one (HS-06), ms; `None` if its bounds
    /// are unknown.
    pub(crate) fn granted_ms(&self, server: ServerId, asked_ms: i32) -> Option<u32> {
        let others = self.others.contains(&server);
        let (least, most) = if others { self.others_ms } else { self.usual_ms };
        let asked_ms = u32::try_from(asked_ms).unwrap_or(0);
        (most > 0).then(|| asked_ms.clamp(least, most))
    }
}

/// The servers that create local sessions (SESS-14).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalRules {
    /// The servers.
    pub servers: BTreeSet<ServerId>,
    /// Whether they upgrade a local session that needs to own an ephemeral node (SESS-15).
    pub upgrade: bool,
}

/// Totals as the four-letter commands report them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Number of nodes.
    pub nodes: usize,
    /// Number of ephemeral nodes.
    pub ephemerals: usize,
    /// Bytes of data plus UTF-16 code units of paths.
    pub bytes: u64,
    /// Live sessions.
    pub sessions: usize,
}

/// A session, as the model knows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// The timeout in its createSession or upgrade, ms.
    pub timeout_ms: u32,
    /// Zxid of its creation.
    pub created: Zxid,
    /// Zxid of its closeSession.
    pub ended: Option<Zxid>,
    /// Paths of its present ephemeral nodes.
    pub ephemerals: BTreeSet<String>,
    /// Zxid of each change, whether the node was created, and its path.
    moves: Vec<(Zxid, bool, String)>,
    /// The server that its client was connected to at its creation.
    first: Option<ServerId>,
    /// Zxid of each move, and the server moved to.
    servers: Vec<(Zxid, ServerId)>,
}

impl Session {
    /// The server of its last move at or before `zxid`, if there is one.
    pub fn moved_to(&self, zxid: Zxid) -> Option<ServerId> {
        self.servers.iter().rev().find(|(since, _)| *since <= zxid).map(|(_, server)| *server)
    }

    /// The server that its client last connected to at or before `zxid`.
    pub fn server_at(&self, zxid: Zxid) -> Option<ServerId> {
        self.moved_to(zxid).or(self.first)
    }

    /// Paths of its ephemeral nodes right after the transaction `zxid`.
    fn ephemerals_at(&self, zxid: Zxid) -> BTreeSet<String> {
        let mut paths = self.ephemerals.clone();
        for (_, came, path) in self.moves.iter().rev().take_while(|(at, ..)| *at > zxid) {
            if *came {
                paths.remove(path);
            } else {
                paths.insert(path.clone());
            }
        }
        paths
    }
}

/// The latest state and all past ones.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    paths: BTreeMap<String, PathHistory>,
    sessions: BTreeMap<SessionId, Session>,
    /// Sessions that are alive: a hundred thousand others may have ended.
    living: BTreeSet<SessionId>,
    /// Sessions that have ended, in order.
    ended: Vec<SessionId>,
    /// The highest session id ever, by the byte that names the server.
    last_sessions: BTreeMap<u8, SessionId>,
    log: Vec<Logged>,
    /// All firings, in order.
    firings: Vec<Arc<Firing>>,
    digest: u64,
    empty_digest: u64,
}

impl Default for Model {
    fn default() -> Model {
        Model::new(Rules::default())
    }
}

impl Model {
    /// The tree of a new ensemble (DATA-25) without sessions.
    pub fn new(rules: Rules) -> Model {
        let config_acl =
            vec![Acl { perms: Perms::READ, scheme: "world".into(), id: "anyone".into() }];
        let mut model = Model {
            rules,
            paths: BTreeMap::new(),
            sessions: BTreeMap::new(),
            living: BTreeSet::new(),
            ended: Vec::new(),
            last_sessions: BTreeMap::new(),
            log: Vec::new(),
            firings: Vec::new(),
            digest: 0,
            empty_digest: 0,
        };
        for (path, node) in [
            ("/", Node::initial(1, Vec::new(), 0)),
            ("/zookeeper", Node::initial(2, Vec::new(), 0)),
            ("/zookeeper/quota", Node::initial(0, Vec::new(), 0)),
            (CONFIG_NODE, Node::initial(0, config_acl, -1)),
        ] {
            model.digest = model.digest.wrapping_add(node.share(path));
            model.paths.insert(path.to_owned(), PathHistory::begin(node));
        }
        for (parent, child) in
            [("/", "zookeeper"), ("/zookeeper", "config"), ("/zookeeper", "quota")]
        {
            let parent = model.paths.get_mut(parent).expect("made above");
            parent.moved(Zxid::ZERO, true, child);
        }
        model.empty_digest = model.digest;
        model
    }

    /// The configuration of the servers.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The last transaction applied.
    pub fn tip(&self) -> Zxid {
        self.log.last().map_or(Zxid::ZERO, |logged| logged.txn.zxid)
    }

    /// The transaction with this zxid, and its results.
    pub fn logged(&self, zxid: Zxid) -> Option<&Logged> {
        let index = self.log.binary_search_by_key(&zxid, |logged| logged.txn.zxid).ok()?;
        self.log.get(index)
    }

    /// The transaction with this zxid.
    pub fn txn(&self, zxid: Zxid) -> Option<&Txn> {
        self.logged(zxid).map(|logged| &logged.txn)
    }

    /// The first transaction after `zxid`, which need not be a transaction.
    pub fn after(&self, zxid: Zxid) -> Option<&Txn> {
        let index = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        self.log.get(index).map(|logged| &logged.txn)
    }

    /// `zxid`, and the zxid of each later transaction.
    pub fn tips_from(&self, zxid: Zxid) -> impl Iterator<Item = Zxid> {
        let first = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        let later = self.log[first..].iter().map(|logged| logged.txn.zxid);
        std::iter::once(zxid).chain(later)
    }

    /// The last transaction at or before `zxid`; zero where there is none. A reply may name the
    /// zxid at which an epoch begins, which is no transaction.
    pub fn at_or_before(&self, zxid: Zxid) -> Zxid {
        let count = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        count.checked_sub(1).map_or(Zxid::ZERO, |last| self.log[last].txn.zxid)
    }

    /// Digest of tree and sessions at `zxid`.
    pub fn digest_at(&self, zxid: Zxid) -> u64 {
        let count = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        count.checked_sub(1).map_or(self.empty_digest, |last| self.log[last].digest)
    }

    /// The node as it is now.
    pub fn node(&self, path: &str) -> Option<&Node> {
        self.paths.get(path).and_then(PathHistory::now)
    }

    /// The node as it was right after the transaction `zxid`.
    pub fn node_at(&self, path: &str, zxid: Zxid) -> Option<&Node> {
        self.paths.get(path).and_then(|history| history.at(zxid))
    }

    /// All nodes as they were right after the transaction `zxid`, by path.
    pub fn nodes_at(&self, zxid: Zxid) -> impl Iterator<Item = (&str, &Node)> {
        self.paths.iter().filter_map(move |(path, each)| Some((&**path, each.at(zxid)?)))
    }

    /// All present containers and TTL nodes.
    pub fn fleeting(&self) -> Vec<(&str, &Node)> {
        let nodes = self.paths.iter().filter_map(|(path, each)| Some((&**path, each.now()?)));
        let goes = |node: &Node| match node.lifetime {
            Lifetime::Container | Lifetime::Ttl { .. } => true,
            Lifetime::Persistent | Lifetime::Ephemeral => false,
        };
        nodes.filter(|(_, node)| goes(node)).collect()
    }

    /// The first transaction of the latest epoch since which the node has been expired without a
    /// break, by the transactions' times; `None` if it is not expired.
    pub fn overdue_since(&self, node: &Node) -> Option<Zxid> {
        let epoch = self.tip().epoch();
        let most = self.rules.epoch_txns;
        if most > 0 && self.tip().counter() >= most {
            // A leader does not end an exhausted epoch only to delete expired nodes.
            return None;
        }
        let due = |logged: &&Logged| {
            let Txn { zxid, time, .. } = logged.txn;
            zxid.epoch() == epoch
                && zxid >= node.pzxid.max(node.mzxid)
                && lifetime::may_go(node, time, &self.rules.tree)
        };
        self.log.iter().rev().take_while(due).last().map(|logged| logged.txn.zxid)
    }

    /// The history of a path, if it ever had a node.
    pub fn history(&self, path: &str) -> Option<&PathHistory> {
        self.paths.get(path)
    }

    /// The sessions that have owned children of this node since `session` created its last one;
    /// none if it never did.
    pub fn owners_beside(&self, parent: &str, session: SessionId) -> BTreeSet<SessionId> {
        let prefix = format!("{parent}/");
        let below = self.paths.range(prefix.clone()..);
        let children: Vec<_> = below.take_while(|(path, _)| path.starts_with(&prefix)).collect();
        let nodes_since = |zxid| children.iter().flat_map(move |(_, history)| history.since(zxid));
        let own = nodes_since(Zxid::ZERO).filter(|node| node.owner == session);
        let Some(came) = own.map(|node| node.czxid).max() else { return BTreeSet::new() };
        let owners = nodes_since(came).map(|node| node.owner);
        owners.filter(|owner| *owner != SessionId::default()).collect()
    }

    /// The session with this id, alive or not.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// Whether a server may delete this node now, as an expired container or TTL node. Such a
    /// transaction has no origin.
    pub fn may_go(&self, path: &str, now: WallMs) -> bool {
        self.node(path).is_some_and(|node| lifetime::may_go(node, now, &self.rules.tree))
    }

    /// Whether the session is alive after the last transaction.
    pub fn is_alive(&self, id: SessionId) -> bool {
        self.living.contains(&id)
    }

    /// The sessions alive right after the transaction `zxid`, by id.
    pub fn sessions_at(&self, zxid: Zxid) -> Vec<SessionId> {
        let ended_later = |id: &&SessionId| self.sessions[id].ended > Some(zxid);
        let ended_since = self.ended.iter().rev().take_while(ended_later);
        let had_begun = |id: &&SessionId| self.sessions[id].created <= zxid;
        let mut alive: Vec<SessionId> =
            self.living.iter().chain(ended_since).filter(had_begun).copied().collect();
        alive.sort_unstable();
        alive
    }

    /// The totals right after the transaction `zxid`.
    pub fn counts_at(&self, zxid: Zxid) -> Counts {
        let mut counts = Counts { sessions: self.sessions_at(zxid).len(), ..Counts::default() };
        for (path, history) in &self.paths {
            let Some(node) = history.at(zxid) else {
                continue;
            };
            counts.nodes += 1;
            counts.ephemerals += usize::from(node.lifetime == Lifetime::Ephemeral);
            let data = node.data.as_ref().map_or(0, |data| data.len());
            counts.bytes += (path.encode_utf16().count() + data) as u64;
        }
        counts
    }

    /// The sessions with ephemeral nodes right after the transaction `zxid`, and the paths.
    pub fn owners_at(&self, zxid: Zxid) -> BTreeMap<SessionId, BTreeSet<String>> {
        let alive = self.sessions_at(zxid).into_iter();
        let owned = alive.map(|id| (id, self.sessions[&id].ephemerals_at(zxid)));
        owned.filter(|(_, paths)| !paths.is_empty()).collect()
    }

    /// All firings after the transaction `zxid`, in order.
    pub fn firings_after(&self, zxid: Zxid) -> impl Iterator<Item = &Firing> {
        let first = self.firings.partition_point(|firing| firing.zxid <= zxid);
        self.firings[first..].iter().map(|firing| &**firing)
    }

    /// The first firing at `path` in `table` after the transaction `zxid`.
    pub fn next_firing(&self, table: Table, path: &str, zxid: Zxid) -> Option<&Firing> {
        self.paths.get(path)?.next_firing(table, zxid)
    }
}

/// The session's share in the digest. Every session of the model was created with its ensemble's
/// secret (`keyed`).
fn session_share(id: SessionId, session: &Session) -> u64 {
    digest::session(id, session.timeout_ms, session.server_at(Zxid(u64::MAX)), true)
}
