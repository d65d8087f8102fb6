//! The requests of clients: random operations on a small tree, so that they conflict.
//!
//! Owns the key space and the arguments of operations; `op` their kinds and weights. Must not know
//! when they are sent, nor check replies.
//!
//! Invariant: data of eight bytes or more is unique per write attempt (client, serial), so that
//! every value read can be traced to the request that wrote it.

mod identity;
mod op;
mod options;
mod outcome;
mod quota;
mod reconfig;

use std::collections::BTreeMap;

use bytes::Bytes;
use zabkeeper_core::wire::{Acl, AddWatchMode, ReplyBody, Request, WatcherType};

use crate::check::observe::ClientId;
use crate::engine::seed::Rng;

pub use identity::{ENSEMBLE, known};
pub use op::{Op, OpMix};
pub use options::WorkloadOptions;
pub use outcome::CallOutcome;

/// Number of unique users that a client authenticates as.
const OTHER_USERS: u32 = 12;

/// Paths that are invalid, unusual, or reserved.
const ODD_PATHS: [&str; 18] = [
    "/",
    "//n0",
    "/n0/",
    "/n0//n1",
    "/.",
    "/n0/..",
    "/n0/./x",
    "/...",
    "/n0..",
    "/n0\0",
    "/n\u{7f}",
    "/n\u{a0}",
    "/n\u{e000}",
    "/\u{1f600}",
    "/zookeeper",
    "/zookeeper/x",
    "/zookeeper/config",
    "/zookeeper/quota",
];

/// The paths and the servers that the calls of a run name.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySpace {
    paths: Vec<String>,
    /// The servers that reconfigurations name: those from 1 to this.
    servers: u32,
}

/// The source of one client's operations.
#[derive(Debug)]
pub struct Ops {
    client: ClientId,
    rng: Rng,
    /// Never writes. Replies on a connection are in order, so a write that cannot be committed
    /// would block all replies that a server without a quorum might send.
    only_reads: bool,
    serial: u32,
    /// Number of unique users that it has authenticated as.
    other_users: u32,
    before: Vec<(Op, Request)>,
    /// Index of the only path that it uses, if limited.
    focus: Option<usize>,
    /// Versions seen last.
    versions: BTreeMap<(Number, String), i32>,
    /// The version of the ensemble's configuration that was seen last.
    config_version: Option<i64>,
}

/// The kind of a node's version.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Number {
    Data,
    Acl,
}

impl KeySpace {
    /// `count` paths, up to four levels deep. The first two are listed `hot` more times in total,
    /// so that many calls meet on them.
    pub fn draw(count: u64, hot: u64, rng: &mut Rng) -> KeySpace {
        let mut paths: Vec<String> = Vec::new();
        for number in 0..count.max(1) {
            let shallow: Vec<&String> =
                paths.iter().filter(|path| path.matches('/').count() < 4).collect();
            let parent = match rng.chance(1, 3) || shallow.is_empty() {
                true => "",
                false => shallow[rng.index(shallow.len())],
            };
            paths.push(format!("{parent}/n{number}"));
        }
        let first: Vec<String> = paths.iter().take(2).cloned().collect();
        let more = usize::try_from(hot).expect("small");
        paths.extend(first.into_iter().cycle().take(more));
        KeySpace { paths, servers: 3 }
    }

    /// The same for a run with this many servers.
    #[must_use]
    pub fn with_servers(self, servers: u32) -> KeySpace {
        KeySpace { servers, ..self }
    }

    /// Number of paths, repetitions included.
    pub fn count(&self) -> usize {
        self.paths.len()
    }
}

impl Ops {
    /// Operations of `client`. One client in four only reads.
    pub fn new(client: ClientId, mut rng: Rng) -> Ops {
        let only_reads = rng.chance(1, 4);
        let (before, versions) = (Vec::new(), BTreeMap::new());
        let (focus, config_version) = (None, None);
        let (serial, other_users) = (0, 0);
        Ops {
            client,
            rng,
            only_reads,
            serial,
            other_users,
            before,
            focus,
            versions,
            config_version,
        }
    }

    /// The next operation.
    pub fn next(&mut self, options: &WorkloadOptions) -> Op {
        let reads = if self.only_reads { options.mix.reads() } else { None };
        reads.as_ref().unwrap_or(&options.mix).pick(&mut self.rng)
    }

    /// The next operation among reads, if there are any.
    pub fn next_read(&mut self, options: &WorkloadOptions) -> Option<Op> {
        options.mix.reads().map(|reads| reads.pick(&mut self.rng))
    }

    /// The next operation for a contended path; `None` for a client that only reads.
    pub fn contend(&mut self, options: &WorkloadOptions) -> Option<Op> {
        let made = |op: &Op| !self.only_reads && options.mix.has(*op);
        let fight = [Op::CreateEphemeral, Op::CreateEphemeral, Op::Create, Op::Delete];
        let ops: Vec<Op> = fight.into_iter().filter(made).collect();
        (!ops.is_empty()).then(|| *self.rng.pick(&ops))
    }

    /// Limits the paths to the one with this index, or ends the limit.
    pub fn focus(&mut self, path: Option<usize>) {
        self.focus = path;
    }

    /// Draws from this stream from now on.
    pub fn draw_anew(&mut self, rng: Rng) {
        self.rng = rng;
    }

    /// Records the choices of the next request.
    pub fn record(&mut self) {
        self.rng.record();
    }

    /// The recorded choices.
    pub fn recorded(&mut self) -> Vec<u64> {
        self.rng.recorded()
    }

    /// The next request makes these choices.
    pub fn choose(&mut self, choices: Vec<u64>) {
        self.rng = Rng::scripted(choices);
    }

    /// A request for this operation.
    pub fn request(&mut self, op: Op, options: &WorkloadOptions, keys: &KeySpace) -> Request {
        match op {
            Op::Multi => {
                let count = self.rng.range(1, 6);
                Request::Multi((0..count).map(|_| self.part(options, keys)).collect())
            }
            Op::Create
            | Op::CreateEphemeral
            | Op::CreateSequential
            | Op::Delete
            | Op::SetData
            | Op::GetData
            | Op::Exists
            | Op::GetChildren
            | Op::Sync
            | Op::CheckWatches
            | Op::RemoveWatches
            | Op::GetAcl
            | Op::SetAcl
            | Op::GetEphemerals
            | Op::GetAllChildrenNumber
            | Op::WhoAmI
            | Op::Auth
            | Op::AddWatch
            | Op::Container
            | Op::Ttl
            | Op::Quota => self.single(op, options, keys),
            Op::Reconfig => self.reconfigure(keys.servers),
            Op::MultiRead => {
                let count = self.rng.below(5);
                Request::MultiRead((0..count).map(|_| self.read_part(keys)).collect())
            }
        }
    }

    fn path(&mut self, KeySpace { paths, .. }: &KeySpace) -> String {
        let index = match self.focus {
            Some(path) => {
                let index = self.rng.decided(path as u64, paths.len() as u64);
                usize::try_from(index).expect("below a usize")
            }
            None => self.rng.index(paths.len()),
        };
        paths[index].clone()
    }

    /// One operation of a multi, mostly one that succeeds, so that some multis do.
    fn part(&mut self, options: &WorkloadOptions, keys: &KeySpace) -> Request {
        let plain = [Op::Create, Op::CreateSequential, Op::Delete, Op::SetData, Op::SetData];
        let kinds = [Op::Container, Op::Ttl];
        let mut parts: &[Op] = if self.rng.chance(1, 6) { &kinds } else { &plain };
        if options.ephemeral_parts && self.rng.chance(1, 6) {
            parts = &[Op::CreateEphemeral];
        }
        if self.rng.chance(1, 5) {
            let path = self.path(keys);
            let version = self.version_of(Number::Data, &path);
            return Request::Check { path, version };
        }
        let op = *self.rng.pick(parts);
        self.single(op, options, keys)
    }

    /// One operation of a multiRead.
    fn read_part(&mut self, keys: &KeySpace) -> Request {
        let path = self.path(keys);
        // The stock client sets no watch here, although the record has a field for it (OP-22).
        if self.rng.chance(1, 2) {
            Request::GetData { path, watch: false }
        } else {
            Request::GetChildren { path, watch: false, with_stat: false }
        }
    }

    fn single(&mut self, op: Op, options: &WorkloadOptions, keys: &KeySpace) -> Request {
        let one_in = options.odd_one_in;
        // The root's ACL is left open, since every client must be able to create children of it.
        let odd = op != Op::SetAcl && one_in > 0 && self.rng.chance(1, one_in);
        let path = match odd {
            true => (*self.rng.pick(&ODD_PATHS)).to_owned(),
            false => self.path(keys),
        };
        let watch = self.rng.chance(1, 2);
        let with_stat = self.rng.chance(1, 2);
        match op {
            Op::Create => self.create(path, 0, with_stat, options),
            Op::CreateEphemeral => self.create(path, 1, with_stat, options),
            Op::CreateSequential => {
                let flags = if self.rng.chance(1, 2) { 2 } else { 3 };
                self.create(format!("{path}-"), flags, with_stat, options)
            }
            Op::Delete => {
                let version = self.version_of(Number::Data, &path);
                Request::Delete { path, version }
            }
            Op::SetData => {
                let (version, data) = (self.version_of(Number::Data, &path), self.data(options));
                Request::SetData { path, data, version }
            }
            Op::GetData => Request::GetData { path, watch },
            Op::Exists => Request::Exists { path, watch },
            Op::GetChildren => {
                let path = if self.rng.chance(1, 8) { "/".to_owned() } else { path };
                Request::GetChildren { path, watch, with_stat }
            }
            Op::Sync => Request::Sync { path },
            Op::Multi | Op::MultiRead | Op::Reconfig => unreachable!("no part of a multi"),
            Op::GetAcl => Request::GetAcl { path },
            Op::SetAcl => {
                let version = self.version_of(Number::Acl, &path);
                Request::SetAcl { path, acl: self.acl(options), version }
            }
            Op::GetEphemerals => self.ephemerals(path),
            Op::GetAllChildrenNumber => {
                let path = if self.rng.chance(1, 6) { "/".to_owned() } else { path };
                Request::GetAllChildrenNumber { path }
            }
            Op::WhoAmI => Request::WhoAmI,
            Op::Container => self.container(path, options),
            Op::Ttl => self.ttl(path, options),
            Op::Quota => {
                let depth = path.match_indices('/').nth(2).map_or(path.len(), |(end, _)| end);
                quota::request(&path[..depth], &mut self.rng)
            }
            // This branch issues several calls at once.
            Op::Auth
                if options.depth > 1 && self.other_users < OTHER_USERS && self.rng.chance(1, 2) =>
            {
                self.as_other_user(options)
            }
            Op::Auth => self.auth(),
            Op::AddWatch => {
                let modes = [AddWatchMode::Persistent, AddWatchMode::PersistentRecursive];
                let path = if self.rng.chance(1, 20) { "/".to_owned() } else { path };
                Request::AddWatch { path, mode: *self.rng.pick(&modes) }
            }
            Op::CheckWatches | Op::RemoveWatches => {
                let kind = self.watcher_type();
                Request::Watches { path, kind, remove: op == Op::RemoveWatches }
            }
        }
    }

    fn container(&mut self, path: String, options: &WorkloadOptions) -> Request {
        let (path, flags) = match self.rng.below(10) {
            0 => (format!("{path}-"), 2),
            1 => (path, *self.rng.pick(&[0, 1, 5, 7])),
            _ => (path, 4),
        };
        let (data, acl) = (self.data(options), self.acl(options));
        Request::CreateContainer { path, data, acl, flags }
    }

    fn ephemerals(&mut self, path: String) -> Request {
        let prefixes = ["", "/", " / ", "/n", "/n1"];
        let any = self.rng.chance(1, 2);
        let prefix = if any { path } else { (*self.rng.pick(&prefixes)).to_owned() };
        Request::GetEphemerals { prefix }
    }

    fn watcher_type(&mut self) -> WatcherType {
        let kinds = [
            WatcherType::Children,
            WatcherType::Data,
            WatcherType::Any,
            WatcherType::Persistent,
            WatcherType::PersistentRecursive,
        ];
        *self.rng.pick(&kinds)
    }

    /// A create of a unique path, which proves that writes succeed.
    pub fn probe(&mut self) -> Request {
        self.serial += 1;
        let path = format!("/probe-{}-{}", self.client.0, self.serial);
        let data = Some(self.stamp());
        Request::Create { path, data, acl: Acl::open(), flags: 0, with_stat: false }
    }

    /// Remembers the versions in a reply.
    pub fn learn(&mut self, path: &str, body: &ReplyBody) {
        self.learn_config(path, body);
        let stat = match body {
            ReplyBody::Stat(stat)
            | ReplyBody::Data(_, stat)
            | ReplyBody::ChildrenStat(_, stat)
            | ReplyBody::PathStat(_, stat)
            | ReplyBody::Acl(_, stat) => stat,
            ReplyBody::Empty
            | ReplyBody::Path(_)
            | ReplyBody::Children(_)
            | ReplyBody::Multi(_)
            | ReplyBody::Number(_)
            | ReplyBody::NullPath
            | ReplyBody::BrokenMulti(_)
            | ReplyBody::Token(_)
            | ReplyBody::Identities(_) => return,
        };
        self.versions.insert((Number::Data, path.to_owned()), stat.version);
        self.versions.insert((Number::Acl, path.to_owned()), stat.aversion);
    }

    fn create(
        &mut self,
        path: String,
        flags: i32,
        with_stat: bool,
        options: &WorkloadOptions,
    ) -> Request {
        // The server refuses invalid flags by a transaction of its own.
        let flags = if self.rng.chance(1, 100) { 9 } else { flags };
        let (data, acl) = (self.data(options), self.acl(options));
        Request::Create { path, data, acl, flags, with_stat }
    }

    /// Mostly TTLs that expire within a run, and a few invalid ones.
    fn ttl(&mut self, path: String, options: &WorkloadOptions) -> Request {
        let (path, flags) = match self.rng.below(10) {
            0 => (format!("{path}-"), 6),
            1 => (path, *self.rng.pick(&[0, 1, 4, 7])),
            _ => (path, 5),
        };
        let ttl = match self.rng.below(20) {
            0 => *self.rng.pick(&[0, -1, 1 << 40, (1 << 40) - 1]),
            _ => i64::try_from(self.rng.magnitude(1, 20_000)).expect("small"),
        };
        let (data, acl) = (self.data(options), self.acl(options));
        Request::CreateTtl { path, data, acl, flags, ttl }
    }

    /// Mostly the open ACL.
    fn acl(&mut self, options: &WorkloadOptions) -> Vec<Acl> {
        let one_in = options.narrow_one_in;
        let narrow = one_in > 0 && self.rng.chance(1, one_in);
        if narrow { identity::narrow(&mut self.rng) } else { Acl::open() }
    }

    /// Authenticates as a new user, right behind requests that only that user may make: a request
    /// is checked against the client's identities at the time it was sent, however long it is
    /// queued (ACL-17).
    fn as_other_user(&mut self, options: &WorkloadOptions) -> Request {
        self.other_users += 1;
        let (auth, acl) = identity::other_user(self.client.0, self.other_users);
        let path = format!("/t{}.{}", self.client.0, self.other_users);
        let (first, data) = (self.data(options), self.data(options));
        let with_stat = self.rng.chance(1, 2);
        let create = Request::Create { path: path.clone(), data: first, acl, flags: 1, with_stat };
        let set = Request::SetData { path: path.clone(), data, version: -1 };
        let get = Request::GetData { path, watch: self.rng.chance(1, 2) };
        self.before = vec![(Op::CreateEphemeral, create), (Op::SetData, set), (Op::GetData, get)];
        Request::Auth { scheme: "digest".to_owned(), auth }
    }

    /// Requests to send right before the request that was drawn last.
    pub fn take_before(&mut self) -> Vec<(Op, Request)> {
        std::mem::take(&mut self.before)
    }

    fn auth(&mut self) -> Request {
        let (scheme, auth) = identity::credential(&mut self.rng);
        Request::Auth { scheme, auth }
    }

    /// Any version, the one seen last, or the one before.
    fn version_of(&mut self, number: Number, path: &str) -> i32 {
        let seen = self.versions.get(&(number, path.to_owned())).copied().unwrap_or(0);
        match self.rng.below(4) {
            0 | 1 => -1,
            2 => seen,
            _ => (seen - 1).max(0),
        }
    }

    /// Mostly the unique stamp, sometimes with padding, sometimes empty or null.
    fn data(&mut self, options: &WorkloadOptions) -> Option<Bytes> {
        self.serial += 1;
        match self.rng.below(16) {
            0 => None,
            1 => Some(Bytes::new()),
            2 | 3 => {
                let mut data = self.stamp().to_vec();
                let length = self.rng.upto(options.data_bytes).max(data.len());
                data.resize(length, b'.');
                Some(Bytes::from(data))
            }
            _ => Some(self.stamp()),
        }
    }

    fn stamp(&self) -> Bytes {
        Bytes::from(format!("c{:03}/{:06}", self.client.0, self.serial))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::slice;

    use super::*;
    use crate::engine::seed::Seeds;
    use crate::world::options::{Options, Pinned, Profile};

    fn made(count: usize) -> Vec<(Op, Request)> {
        made_by(|ops| !ops.only_reads, count)
    }

    fn made_by(wanted: impl Fn(&Ops) -> bool, count: usize) -> Vec<(Op, Request)> {
        let seeds = Seeds::new(1);
        let mut options = Options::draw(seeds, Profile::Calm, &Pinned::default()).workload;
        options.mix = OpMix::usual();
        let keys = KeySpace::draw(20, 0, &mut seeds.stream("workload", 0));
        let drawn = |n| Ops::new(ClientId(3), seeds.stream("client/ops", n));
        let mut ops = (0..100).map(drawn).find(wanted).expect("some are, and some are not");
        let mut make = || {
            let op = ops.next(&options);
            (op, ops.request(op, &options, &keys))
        };
        (0..count).map(|_| make()).collect()
    }

    #[test]
    fn workload_makes_every_operation() {
        let kinds: BTreeSet<Op> = made(1_000).into_iter().map(|(op, _)| op).collect();
        let usual = Op::ALL.into_iter().filter(|op| *op != Op::Reconfig);
        assert!(usual.eq(kinds));
    }

    /// ACL-17.
    #[test]
    fn requests_of_a_new_user_precede_its_auth_packet() {
        let seeds = Seeds::new(1);
        let mut options = Options::draw(seeds, Profile::Calm, &Pinned::default()).workload;
        options.depth = 4;
        let keys = KeySpace::draw(20, 0, &mut seeds.stream("workload", 0));
        let mut ops = Ops::new(ClientId(3), seeds.stream("client/ops", 1));
        let mut shown = BTreeSet::new();
        for _ in 0..100 {
            let Request::Auth { auth, .. } = ops.request(Op::Auth, &options, &keys) else {
                panic!("an auth packet");
            };
            let before = ops.take_before();
            if before.is_empty() {
                continue;
            }
            assert!(shown.insert(auth.0), "nobody else is this one");
            let kinds: Vec<Op> = before.iter().map(|(op, _)| *op).collect();
            assert_eq!(kinds, [Op::CreateEphemeral, Op::SetData, Op::GetData]);
        }
        assert_eq!(shown.len(), OTHER_USERS as usize);
        assert!(ops.take_before().is_empty());
    }

    #[test]
    fn read_only_clients_only_read_and_sync() {
        let kinds: BTreeSet<Op> =
            made_by(|ops| ops.only_reads, 1_000).into_iter().map(|(op, _)| op).collect();
        let reads = [
            Op::GetData,
            Op::Exists,
            Op::GetChildren,
            Op::Sync,
            Op::GetAcl,
            Op::MultiRead,
            Op::GetAllChildrenNumber,
        ];
        assert!(kinds.into_iter().eq(reads));
        let writes = OpMix::usual().without(&reads);
        assert_eq!(writes.reads(), None, "where there are no reads, all clients write");
    }

    #[test]
    fn long_data_is_unique() {
        let made = made(2_000);
        let long: Vec<Bytes> = made
            .iter()
            .flat_map(|(_, request)| {
                if let Request::Multi(parts) = request { parts } else { slice::from_ref(request) }
            })
            .filter_map(|part| {
                if let Request::Create { path, data, .. }
                | Request::CreateContainer { path, data, .. }
                | Request::CreateTtl { path, data, .. }
                | Request::SetData { path, data, .. } = part
                {
                    data.clone().filter(|_| !crate::check::model::is_quota(path))
                } else {
                    None
                }
            })
            .filter(|data| data.len() >= 8)
            .collect();
        let distinct: BTreeSet<&Bytes> = long.iter().collect();
        assert_eq!(distinct.len(), long.len());
    }

    #[test]
    fn key_space_is_small_and_shallow() {
        let KeySpace { paths, .. } =
            KeySpace::draw(50, 7, &mut Seeds::new(2).stream("workload", 0));
        assert_eq!(paths.len(), 57);
        let hot = |path: &str| paths.iter().filter(|other| *other == path).count();
        assert_eq!((hot(&paths[0]), hot(&paths[1]), hot(&paths[2])), (5, 4, 1));
        assert!(paths.iter().all(|path| (1..=4).contains(&path.matches('/').count())));
    }
}
