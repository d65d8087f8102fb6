//! What programs do with recipes (R1 to R9).
//!
//! Owns who holds each lock, and what became of items, additions, barriers, votes and members. Must
//! not trust a program about its session: the model knows which sessions live.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::{SessionId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use crate::check::model::Model;
use crate::check::observe::ClientId;
use crate::clients::program::caches::{self, TREE};
use crate::clients::program::meetings::{barrier_path, double_barrier_path};
use crate::clients::program::queues::{CONFIGURATION, COUNTER, QUEUES, item_of};
use crate::clients::program::{LEASES, MEMBERS, Share, Told};

/// See the module.
#[derive(Clone, Default, Debug)]
pub(super) struct Recipes {
    locks: BTreeMap<u64, Lock>,
    items: Items,
    counter: Counter,
    /// The sessions that may be inside each double barrier.
    barriers: BTreeMap<u64, BTreeMap<SessionId, Place>>,
    /// The number of the last step at a barrier.
    steps: u64,
    transactions: BTreeMap<u64, Transaction>,
    /// The last transaction when a session began to set a barrier.
    closed: BTreeMap<(SessionId, u64), Zxid>,
    group: Group,
    /// The node that each session keeps.
    kept: BTreeMap<SessionId, Own>,
}

/// A lock or a semaphore.
#[derive(Clone, Default, Debug)]
struct Lock {
    /// Who has not said that it is about to release it.
    holders: Vec<Holder>,
    /// The highest token of holders that share with nobody, and of all.
    alone: Zxid,
    any: Zxid,
}

#[derive(Clone, Copy, Debug)]
struct Holder {
    client: ClientId,
    session: SessionId,
    token: Zxid,
    share: Share,
}

/// The items of the queue.
#[derive(Clone, Default, Debug)]
struct Items {
    /// Put, or under way.
    begun: BTreeSet<u64>,
    put: BTreeSet<u64>,
    taken: BTreeSet<u64>,
    taking: Attempts,
    /// The time from which an item may be taken, and the latest one of all transactions up to that
    /// zxid, ms.
    due: BTreeMap<u64, i64>,
    clock: (Zxid, i64),
}

#[derive(Clone, Default, Debug)]
struct Counter {
    /// Attempts to add, and the values of those that are known to be made.
    begun: i64,
    values: BTreeSet<i64>,
    adding: Attempts,
}

/// Attempts whose outcome is unknown: those under way, and those that a session's end has cut off.
#[derive(Clone, Default, Debug)]
struct Attempts {
    under_way: BTreeSet<(ClientId, SessionId)>,
}

/// A session at a double barrier: when it has begun, and said that it leaves.
#[derive(Clone, Copy, Default, Debug)]
struct Place {
    begun: Option<u64>,
    leaves: Option<u64>,
}

/// A transaction of several sites.
#[derive(Clone, Default, Debug)]
struct Transaction {
    /// The sites for which a program has wanted to vote for commit.
    for_commit: BTreeSet<u64>,
    /// Sites whose vote is abort.
    against: BTreeSet<u64>,
    decided: Option<bool>,
}

/// A group and the list of its members that each session is reading.
#[derive(Clone, Default, Debug)]
struct Group {
    /// All that a program has told of a member.
    known: BTreeSet<(u64, u64)>,
    own: BTreeMap<(SessionId, u64), Own>,
    lists: BTreeMap<SessionId, BTreeMap<u64, u64>>,
}

/// The data that a session's own node may have: the last known ones, and those since.
#[derive(Clone, Default, Debug)]
struct Own {
    is_there: bool,
    data: BTreeSet<u64>,
}

/// The sites of a transaction.
const SITES: usize = 2;

impl Recipes {
    /// Judges what a program tells.
    pub(super) fn told(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
        told: Told,
    ) -> Verdict {
        let who = (client, session);
        match told {
            Told::Holds(lock, share, token) => {
                let holder = Holder { client, session, token, share };
                self.locks.entry(lock).or_default().taken(checks, model, lock, holder)
            }
            Told::Ends(lock) => {
                let lock = self.locks.entry(lock).or_default();
                lock.holders.retain(|held| (held.client, held.session) != who);
                Ok(())
            }
            Told::Puts(item) => {
                self.items.begun.insert(item);
                Ok(())
            }
            Told::Put(item) => {
                self.items.put.insert(item);
                Ok(())
            }
            Told::Takes => self.items.taking.begin(who),
            Told::Due(item, ms) => {
                self.items.due.insert(item, ms);
                Ok(())
            }
            Told::Took(item) => self.items.took(checks, model, who, item),
            Told::Adds => {
                self.counter.begun += 1;
                self.counter.adding.begin(who)
            }
            Told::Added(value) => self.counter.added(checks, who, value),
            Told::Comes(number) => {
                *self.place(number, session) = Place::default();
                Ok(())
            }
            Told::Begins(number) => self.begins(checks, model, who, number),
            Told::Leaves(number) => {
                self.steps += 1;
                self.place(number, session).leaves = Some(self.steps);
                Ok(())
            }
            Told::Left(number) => self.left(checks, model, who, number),
            Told::Votes(number, site, commits) => {
                let transaction = self.transactions.entry(number).or_default();
                if commits {
                    transaction.for_commit.insert(site);
                }
                Ok(())
            }
            Told::Counts(number, site, commits) => {
                let transaction = self.transactions.entry(number).or_default();
                if !commits {
                    transaction.against.insert(site);
                }
                transaction.check(checks, number)
            }
            Told::Decided(number, commits) => {
                let transaction = self.transactions.entry(number).or_default();
                let before = *transaction.decided.get_or_insert(commits);
                checks.check(Id::R5, before == commits, || {
                    vec![format!(
                        "client {} learns that transaction {number} is {}, another one the opposite",
                        client.0,
                        if commits { "committed" } else { "aborted" }
                    )]
                })?;
                transaction.check(checks, number)
            }
            Told::Closes(number) => {
                self.closed.insert((session, number), model.tip());
                Ok(())
            }
            Told::Passes(number) => self.passes(checks, model, who, number),
            Told::Joins(name, data) => {
                self.group.known.insert((name, data));
                self.group.own.entry((session, name)).or_default().data.insert(data);
                Ok(())
            }
            Told::Joined(name, data) => {
                self.group.own.entry((session, name)).or_default().has(data);
                Ok(())
            }
            Told::Quits(name) => {
                self.group.own.remove(&(session, name));
                Ok(())
            }
            Told::Lists => {
                self.group.lists.insert(session, BTreeMap::new());
                Ok(())
            }
            Told::Member(name, data) => {
                self.group.lists.entry(session).or_default().insert(name, data);
                self.group.lists_a_member(checks, client, name, data)
            }
            Told::Listed => self.group.lists_itself(checks, model, who),
            Told::Keeps(data) => {
                self.kept.entry(session).or_default().data.insert(data);
                Ok(())
            }
            Told::Keeping(data) => {
                self.kept.entry(session).or_default().has(data);
                Ok(())
            }
            Told::Kept(data) => {
                let own = self.kept.entry(session).or_default();
                checks.check(Id::R9, own.data.contains(&data), || {
                    vec![format!(
                        "client {} finds {data:x} in its node, and has written one of {:x?}",
                        client.0, own.data
                    )]
                })
            }
            Told::Configured(version, value) => {
                // Each change adds 1; the first one creates the node.
                checks.check(Id::R6, value == i64::from(version) + 1, || {
                    vec![format!(
                        "client {} has the value {value} with version {version}",
                        client.0
                    )]
                })
            }
            Told::Cached(zxid, digest) => is_the_tree(checks, model, client, (zxid, digest)),
        }
    }

    fn place(&mut self, number: u64, session: SessionId) -> &mut Place {
        self.barriers.entry(number).or_default().entry(session).or_default()
    }

    /// R4: who begins has seen enough others come. One that has gone since still counts: its end
    /// counts as leaving.
    fn begins(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
        number: u64,
    ) -> Verdict {
        self.steps += 1;
        let begun = self.steps;
        self.place(number, session).begun = Some(begun);
        let come = model.owners_beside(&double_barrier_path(number), session).len();
        checks.check(Id::R4, come >= MEMBERS, || {
            vec![format!(
                "client {} begins at barrier {number}, and {come} have come; {MEMBERS} are needed",
                client.0
            )]
        })
    }

    /// R4: who has left has left after all that had begun before it said so.
    fn left(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
        number: u64,
    ) -> Verdict {
        let inside = self.barriers.entry(number).or_default();
        let since = inside.remove(&session).and_then(|place| place.leaves);
        let stays = |(id, other): &(&SessionId, &Place)| {
            model.is_alive(**id)
                && other.leaves.is_none()
                && other.begun.is_some_and(|begun| Some(begun) < since)
        };
        let staying = inside.iter().find(stays).map(|(id, _)| *id);
        checks.check(Id::R4, staying.is_none(), || {
            let staying = staying.expect("somebody stays");
            vec![format!(
                "client {} has left barrier {number}, and session {staying} is inside",
                client.0
            )]
        })
    }

    /// R7: the barrier was removed since the session that passes began to set it.
    fn passes(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
        number: u64,
    ) -> Verdict {
        let Some(since) = self.closed.remove(&(session, number)) else { return Ok(()) };
        let history = model.history(&barrier_path(number));
        let removed = history.is_some_and(|history| history.went_after(since));
        checks.check(Id::R7, removed, || {
            vec![format!(
                "client {} passes barrier {number}, which nobody has removed since {since}",
                client.0
            )]
        })
    }

    /// R2, R3: at the end of the run, with the tree.
    pub(super) fn finish(&self, checks: &mut Checks, model: &Model) -> Verdict {
        if !self.items.begun.is_empty() {
            let nodes = model.nodes_at(model.tip());
            let items = nodes.filter(|(path, _)| path.starts_with(QUEUES));
            let data = items.filter_map(|(_, node)| node.data.as_deref());
            let left: BTreeSet<u64> = data.map(item_of).collect();
            let Items { put, taken, taking, .. } = &self.items;
            let lost = put.iter().filter(|item| !taken.contains(item) && !left.contains(item));
            let (lost, unknown) = (lost.count(), taking.unknown());
            checks.check(Id::R2, lost <= unknown, || {
                vec![format!(
                    "{lost} items were put, and nobody has taken them; of {unknown} attempts to \
                     take one the outcome is unknown"
                )]
            })?;
        }
        if self.counter.begun == 0 {
            return Ok(());
        }
        let data = |path| model.node(path)?.data.as_deref();
        let counter = || data(COUNTER)?.try_into().ok().map(i64::from_be_bytes);
        let configuration = || str::from_utf8(data(CONFIGURATION)?).ok()?.parse().ok();
        let Some(value): Option<i64> = counter().or_else(configuration) else { return Ok(()) };
        let (made, unknown) = (self.counter.values.len(), self.counter.adding.unknown());
        let is_sum = usize::try_from(value).is_ok_and(|sum| (made..=made + unknown).contains(&sum));
        checks.check(Id::R3, is_sum, || {
            vec![format!(
                "the counter has {value} after {made} additions; of {unknown} others the outcome \
                 is unknown"
            )]
        })
    }
}

/// R6: a complete copy is what the subtree was at its zxid.
fn is_the_tree(
    checks: &mut Checks,
    model: &Model,
    client: ClientId,
    (zxid, digest): (Zxid, u64),
) -> Verdict {
    let is_below = |path: &str| {
        path.strip_prefix(TREE).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    };
    let nodes = || model.nodes_at(zxid).filter(|(path, _)| is_below(path));
    let views = nodes().map(|(path, node)| (path, node.data.as_deref().unwrap_or(&[]), node.mzxid));
    let views: BTreeMap<&str, (&[u8], Zxid)> =
        views.map(|(path, data, mzxid)| (path, (data, mzxid))).collect();
    let views = views.into_iter().map(|(path, (data, mzxid))| (path, data, mzxid));
    let expected = caches::digest(views);
    checks.check(Id::R6, expected == digest, || {
        let what = format!(
            "client {} has a copy of {TREE} up to {zxid} that is not what the tree was then",
            client.0
        );
        let nodes = nodes().map(|(path, node)| format!("{path} changed at {}", node.mzxid));
        std::iter::once(what).chain(nodes).collect()
    })
}

impl Lock {
    /// R1: who takes a lock shares it only as it may, and its token is higher than those of the
    /// holders that it must come after.
    fn taken(&mut self, checks: &mut Checks, model: &Model, number: u64, taker: Holder) -> Verdict {
        // A client may learn late that its session is over; no lock can prevent that, and the
        // token shows it to the resource (seed 0xf583b797479e of the swarm at bc425cb).
        if !model.is_alive(taker.session) {
            return Ok(());
        }
        self.holders.retain(|held| model.is_alive(held.session));
        let Holder { share, token, .. } = taker;
        let (shares, after) = match share {
            Share::Alone => (self.holders.is_empty(), self.any),
            Share::Readers => {
                (self.holders.iter().all(|held| held.share == Share::Readers), self.alone)
            }
            // Holders of leases learn that they hold them in any order.
            Share::Leases => (self.holders.len() < LEASES, Zxid::ZERO),
        };
        let (alone, any, holders) = (self.alone, self.any, self.holders.clone());
        self.any = any.max(token);
        if share == Share::Alone {
            self.alone = alone.max(token);
        }
        self.holders.push(taker);
        checks.check(Id::R1, token > after && shares, || {
            let taken = format!(
                "client {} takes lock {number} ({share:?}) with token {token}, after {after}",
                taker.client.0
            );
            let held = holders.iter().map(|held| {
                format!(
                    "client {} of session {} holds it ({:?}) with {}",
                    held.client.0, held.session, held.share, held.token
                )
            });
            std::iter::once(taken).chain(held).collect()
        })
    }
}

impl Items {
    /// R2: an item that somebody takes was put, nobody else has taken it, and its time has come by
    /// the clock of some leader.
    fn took(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        who: (ClientId, SessionId),
        item: Option<u64>,
    ) -> Verdict {
        self.taking.end(who);
        let Some(item) = item else { return Ok(()) };
        if let Some(due) = self.due.get(&item) {
            let (read, latest) = &mut self.clock;
            while let Some(txn) = model.after(*read) {
                (*read, *latest) = (txn.zxid, txn.time.0.max(*latest));
            }
            let latest = *latest;
            checks.check(Id::R2, *due <= latest, || {
                vec![format!(
                    "client {} takes item {item:x}, which is due at {due} ms; the latest time of a \
                     transaction is {latest} ms",
                    who.0.0
                )]
            })?;
        }
        let known = self.begun.contains(&item);
        let first = self.taken.insert(item);
        checks.check(Id::R2, known && first, || {
            let why = if known { "somebody has taken before" } else { "nobody has put" };
            vec![format!("client {} takes item {item:x}, which {why}", who.0.0)]
        })
    }
}

impl Counter {
    /// R3: no two additions make the same value, and there are not more than attempts.
    fn added(&mut self, checks: &mut Checks, who: (ClientId, SessionId), value: i64) -> Verdict {
        self.adding.end(who);
        let first = self.values.insert(value);
        let begun = self.begun;
        checks.check(Id::R3, first && (1..=begun).contains(&value), || {
            let again = if first { "" } else { ", as another addition did" };
            vec![format!(
                "client {} makes the counter {value}{again}, after {begun} attempts",
                who.0.0
            )]
        })
    }
}

impl Group {
    /// R8: who is listed has joined under this name with these data.
    fn lists_a_member(
        &self,
        checks: &mut Checks,
        client: ClientId,
        name: u64,
        data: u64,
    ) -> Verdict {
        checks.check(Id::R8, self.known.contains(&(name, data)), || {
            vec![format!(
                "client {} lists member {name} with {data:x}, which nobody has told",
                client.0
            )]
        })
    }

    /// R8: a member finds itself in its list.
    fn lists_itself(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        (client, session): (ClientId, SessionId),
    ) -> Verdict {
        let list = self.lists.remove(&session).unwrap_or_default();
        if !model.is_alive(session) {
            return Ok(());
        }
        let own = self.own.range((session, 0)..=(session, u64::MAX));
        for ((_, name), own) in own.filter(|(_, own)| own.is_there) {
            let listed = list.get(name);
            let is_listed = listed.is_some_and(|data| own.data.contains(data));
            checks.check(Id::R8, is_listed, || {
                vec![format!(
                    "client {} is member {name} with one of {:x?}, and lists {listed:x?} there",
                    client.0, own.data
                )]
            })?;
        }
        Ok(())
    }
}

impl Own {
    /// The servers have these data.
    fn has(&mut self, data: u64) {
        *self = Own { is_there: true, data: BTreeSet::from([data]) };
    }
}

impl Attempts {
    fn begin(&mut self, who: (ClientId, SessionId)) -> Verdict {
        self.under_way.insert(who);
        Ok(())
    }

    fn end(&mut self, who: (ClientId, SessionId)) {
        self.under_way.remove(&who);
    }

    fn unknown(&self) -> usize {
        self.under_way.len()
    }
}

impl Transaction {
    /// R5: commit is decided only after all sites have voted for it, and none against.
    fn check(&self, checks: &mut Checks, number: u64) -> Verdict {
        let commits = self.decided == Some(true);
        let all = self.for_commit.len() == SITES && self.against.is_empty();
        checks.check(Id::R5, !commits || all, || {
            vec![format!(
                "transaction {number} is committed; sites {:?} have voted for that, and {:?} \
                 against it",
                self.for_commit, self.against
            )]
        })
    }
}
