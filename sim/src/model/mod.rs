//! The reference model: a plain, sequential data tree with its sessions, which says what every server must hold.
//!
//! Owns the state after each committed transaction, and enough of the past to answer a read at any of them. It is
//! written from the promises to clients, not from the server, so that a fault would have to be made twice to go
//! unseen. Must not know servers, connections or frames, and must not take anything from the core but records,
//! identifiers and the definition of the digest.
//!
//! Invariants: transactions are fed in strictly rising zxid order; one that is not exactly what the state demands
//! changes nothing and is told as [`Wrong`]; the past never changes.

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

/// Which of the two tables a watch stands in.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Table {
    /// Set by getData and exists.
    Data,
    /// Set by getChildren.
    Child,
}

/// A transaction has touched something that can be watched.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Firing {
    /// The transaction.
    pub zxid: Zxid,
    /// Place among the firings of that transaction. Deleting a node fires both of its tables at one place, because
    /// a connection hears of it once (WATCH-10).
    pub place: u32,
    /// In which table the watch would stand.
    pub table: Table,
    /// What is told.
    pub event: EventType,
    /// About which node.
    pub path: String,
    /// Who may read the node. To others nothing is told, although their watch is used up (WATCH-17).
    pub acl: Arc<[Acl]>,
}

/// Why a transaction cannot be: what the state demands, and what was found.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Wrong {
    /// What kind of promise is broken.
    pub kind: Kind,
    /// What was demanded and what was found.
    pub what: String,
}

/// The promises that a transaction can break on its own, whoever asked for it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Its zxid is not above the last one.
    Order,
    /// A parent, a node, a child count or a version is not as it must be.
    Structure,
    /// An ephemeral node would outlive its session, or go before it.
    Ephemeral,
    /// A session id is used twice, or ends without having begun.
    Session,
}

/// A committed transaction and what it left behind.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Logged {
    /// The transaction.
    pub txn: Txn,
    /// Digest of tree and sessions after it.
    pub digest: u64,
    /// What each of its creations and changes of data answers, in order.
    pub stats: Vec<Stat>,
}

/// What servers are told that decides about requests.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Rules {
    /// Who is believed.
    pub auth: AuthOptions,
    /// Which nodes there may be.
    pub tree: TreeOptions,
    /// Who keeps sessions to itself.
    pub local: LocalRules,
    /// What the node of the members shows instead of what the tree has.
    pub membership: Option<Membership>,
    /// Bytes of an answer or a transaction, about, at most; zero: there is no bound.
    pub record_bytes: usize,
    /// Transactions of an epoch, at most; zero: no end is in sight.
    pub epoch_txns: u32,
    /// The unit of servers' patience; zero: nothing is known of that.
    pub tick: Duration,
    /// For how long a server may hear nothing of those it works with; zero: for ever.
    pub sync_limit: Duration,
    /// For how long who does not serve yet may be silent; zero: for ever.
    pub init_limit: Duration,
    /// In which time a leader finds followers and brings a quorum into step, or gives up; zero: never.
    pub begin_limit: Duration,
    /// In which time a quorum that is well commits what its leader proposes; zero: nothing is known of that.
    pub commit_within: Duration,
    /// In which time a server in a quorum that is well reads and answers its clients; zero: nothing is known of that.
    pub answer_within: Duration,
    /// Which timeouts are granted.
    pub timeouts: TimeoutBounds,
}

impl Rules {
    /// How old the newest proof of life may be of those a server works with; zero: as old as may be. It goes back to the
    /// ping before, or the answer to that.
    pub(crate) fn silence_limit(&self) -> Duration {
        if self.sync_limit.is_zero() { Duration::ZERO } else { self.sync_limit + self.tick / 2 }
    }
}

/// The least and the greatest timeout that each server grants, ms; zeros: nothing is known of that.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TimeoutBounds {
    /// Of most servers.
    pub usual_ms: (u32, u32),
    /// These servers have others.
    pub others: BTreeSet<ServerId>,
    /// The bounds of those.
    pub others_ms: (u32, u32),
}

impl TimeoutBounds {
    /// What this server grants to a client that asks for so much (HS-06); `None` where that is not known.
    pub(crate) fn granted_ms(&self, server: ServerId, asked_ms: i32) -> Option<u32> {
        let others = self.others.contains(&server);
        let (least, most) = if others { self.others_ms } else { self.usual_ms };
        let asked_ms = u32::try_from(asked_ms).unwrap_or(0);
        (most > 0).then(|| asked_ms.clamp(least, most))
    }
}

/// Which servers begin sessions that only they know (SESS-14).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LocalRules {
    /// These.
    pub servers: BTreeSet<ServerId>,
    /// Do they make them known when they have to own something (SESS-15)?
    pub upgrade: bool,
}

/// How much there is, as operators are told.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Nodes.
    pub nodes: usize,
    /// Ephemeral ones.
    pub ephemerals: usize,
    /// Bytes of data, and UTF-16 units of paths.
    pub bytes: u64,
    /// Live sessions.
    pub sessions: usize,
}

/// What the model knows of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Session {
    /// Timeout that its createSession carried, ms.
    pub timeout_ms: u32,
    /// When it began.
    pub created: Zxid,
    /// When it ended.
    pub ended: Option<Zxid>,
    /// Its ephemeral nodes now.
    pub ephemerals: BTreeSet<String>,
    /// How they came and went: when, whether it came, which.
    moves: Vec<(Zxid, bool, String)>,
    /// The server that its client was connected to when it began.
    first: Option<ServerId>,
    /// To which servers it has moved, and when.
    servers: Vec<(Zxid, ServerId)>,
}

impl Session {
    /// The server that it had moved to last at `zxid`, if it ever had.
    pub fn moved_to(&self, zxid: Zxid) -> Option<ServerId> {
        self.servers.iter().rev().find(|(since, _)| *since <= zxid).map(|(_, server)| *server)
    }

    /// The server that its client had connected to last at `zxid`.
    pub fn server_at(&self, zxid: Zxid) -> Option<ServerId> {
        self.moved_to(zxid).or(self.first)
    }

    /// Its ephemeral nodes right after the transaction `zxid`.
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

/// The state after the last transaction, and its past.
#[derive(Clone, Debug)]
pub struct Model {
    rules: Rules,
    paths: BTreeMap<String, PathHistory>,
    sessions: BTreeMap<SessionId, Session>,
    /// Those that live: there may be a hundred thousand that do not.
    living: BTreeSet<SessionId>,
    /// Those that have ended, in that order.
    ended: Vec<SessionId>,
    /// The highest id ever of each byte that names a server.
    last_sessions: BTreeMap<u8, SessionId>,
    log: Vec<Logged>,
    /// All that was ever fired, in order.
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
    /// The tree of a new ensemble (DATA-25), no sessions.
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
            ("/zookeeper/config", Node::initial(0, config_acl, -1)),
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

    /// What servers are told.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// The last transaction applied.
    pub fn tip(&self) -> Zxid {
        self.log.last().map_or(Zxid::ZERO, |logged| logged.txn.zxid)
    }

    /// The transaction with this zxid, and what it left behind.
    pub fn logged(&self, zxid: Zxid) -> Option<&Logged> {
        let index = self.log.binary_search_by_key(&zxid, |logged| logged.txn.zxid).ok()?;
        self.log.get(index)
    }

    /// The transaction with this zxid.
    pub fn txn(&self, zxid: Zxid) -> Option<&Txn> {
        self.logged(zxid).map(|logged| &logged.txn)
    }

    /// The transaction after `zxid`, which need not be one itself.
    pub fn after(&self, zxid: Zxid) -> Option<&Txn> {
        let index = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        self.log.get(index).map(|logged| &logged.txn)
    }

    /// The state at `zxid`, and after each transaction since.
    pub fn tips_from(&self, zxid: Zxid) -> impl Iterator<Item = Zxid> {
        let first = self.log.partition_point(|logged| logged.txn.zxid <= zxid);
        let later = self.log[first..].iter().map(|logged| logged.txn.zxid);
        std::iter::once(zxid).chain(later)
    }

    /// The last transaction at or before `zxid`; zero where there is none. A server may name the beginning of an
    /// epoch, which is no transaction.
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

    /// The containers and timed nodes that there are.
    pub fn fleeting(&self) -> Vec<(&str, &Node)> {
        let nodes = self.paths.iter().filter_map(|(path, each)| Some((&**path, each.now()?)));
        let goes = |node: &Node| match node.lifetime {
            Lifetime::Container | Lifetime::Ttl { .. } => true,
            Lifetime::Persistent | Lifetime::Ephemeral => false,
        };
        nodes.filter(|(_, node)| goes(node)).collect()
    }

    /// The first transaction of the newest reign from which on the node might have gone by itself without a break, as its
    /// leader's clock was.
    pub fn overdue_since(&self, node: &Node) -> Option<Zxid> {
        let epoch = self.tip().epoch();
        let most = self.rules.epoch_txns;
        if most > 0 && self.tip().counter() >= most {
            // Nobody resigns from an epoch that is used up to tidy up in the next one.
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

    /// All that was ever at a path, if anything was.
    pub fn history(&self, path: &str) -> Option<&PathHistory> {
        self.paths.get(path)
    }

    /// What is known of a session, living or not.
    pub fn session(&self, id: SessionId) -> Option<&Session> {
        self.sessions.get(&id)
    }

    /// May a server delete this node by itself now? It says so by a transaction without an origin.
    pub fn may_go(&self, path: &str, now: WallMs) -> bool {
        self.node(path).is_some_and(|node| lifetime::may_go(node, now, &self.rules.tree))
    }

    /// Is the session alive after the last transaction?
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

    /// What there is right after the transaction `zxid`.
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

    /// The sessions that own something right after the transaction `zxid`, and what.
    pub fn owners_at(&self, zxid: Zxid) -> BTreeMap<SessionId, BTreeSet<String>> {
        let alive = self.sessions_at(zxid).into_iter();
        let owned = alive.map(|id| (id, self.sessions[&id].ephemerals_at(zxid)));
        owned.filter(|(_, paths)| !paths.is_empty()).collect()
    }

    /// All that has fired after the transaction `zxid`, in order.
    pub fn firings_after(&self, zxid: Zxid) -> impl Iterator<Item = &Firing> {
        let first = self.firings.partition_point(|firing| firing.zxid <= zxid);
        self.firings[first..].iter().map(|firing| &**firing)
    }

    /// The first firing at `path` in `table` after the transaction `zxid`.
    pub fn next_firing(&self, table: Table, path: &str, zxid: Zxid) -> Option<&Firing> {
        self.paths.get(path)?.next_firing(table, zxid)
    }
}

/// Share of a session in the digest. All are younger than the secret of their ensemble.
fn session_share(id: SessionId, session: &Session) -> u64 {
    digest::session(id, session.timeout_ms, session.server_at(Zxid(u64::MAX)), true)
}
