//! What clients ask for: random operations on a small tree, so that they collide.
//!
//! Owns the key space, the mix of operations and their arguments. Must not know when they are sent, nor judge answers.
//!
//! Invariant: data of eight bytes and more is unique for each attempt to write (client, serial), so that every value
//! read can be traced to the request that wrote it.

use std::collections::BTreeMap;
use std::fmt;

use bytes::Bytes;
use zabkeeper_core::wire::{Acl, ReplyBody, Request, WatcherType};

use crate::observe::ClientId;
use crate::options::WorkloadOptions;
use crate::seed::Dice;

/// An operation that the workload makes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the operations'")]
pub enum Op {
    Create,
    CreateEphemeral,
    CreateSequential,
    Delete,
    SetData,
    GetData,
    Exists,
    GetChildren,
    Sync,
    CheckWatches,
    RemoveWatches,
    Multi,
}

/// How often each operation is made, relative to the others.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpMix([u64; Op::ALL.len()]);

/// The paths of a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct KeySpace(Vec<String>);

/// The source of one client's operations.
#[derive(Debug)]
pub struct Ops {
    client: ClientId,
    dice: Dice,
    serial: u32,
    /// Versions seen last, by path.
    versions: BTreeMap<String, i32>,
}

impl Op {
    /// All of them, in order.
    pub const ALL: [Op; 12] = [
        Op::Create,
        Op::CreateEphemeral,
        Op::CreateSequential,
        Op::Delete,
        Op::SetData,
        Op::GetData,
        Op::Exists,
        Op::GetChildren,
        Op::Sync,
        Op::CheckWatches,
        Op::RemoveWatches,
        Op::Multi,
    ];

    /// As it is reported.
    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::CreateEphemeral => "ephemeral",
            Op::CreateSequential => "sequential",
            Op::Delete => "delete",
            Op::SetData => "setData",
            Op::GetData => "getData",
            Op::Exists => "exists",
            Op::GetChildren => "getChildren",
            Op::Sync => "sync",
            Op::CheckWatches => "checkWatches",
            Op::RemoveWatches => "removeWatches",
            Op::Multi => "multi",
        }
    }
}

impl OpMix {
    /// Reads and writes about alike.
    pub fn usual() -> OpMix {
        OpMix([12, 8, 6, 14, 14, 14, 10, 12, 4, 2, 3, 8])
    }

    /// The usual one, varied; a wide one leaves out half of the operations. Something is always created.
    pub fn draw(wide: bool, dice: &mut Dice) -> OpMix {
        let OpMix(mut weights) = OpMix::usual();
        for weight in &mut weights {
            let (on, factor) = (!wide || dice.chance(1, 2), dice.range(1, 4));
            *weight = if on { *weight * factor } else { 0 };
        }
        weights[Op::Create as usize] = weights[Op::Create as usize].max(10);
        OpMix(weights)
    }

    fn pick(&self, dice: &mut Dice) -> Op {
        let mut left = dice.below(self.0.iter().sum());
        for op in Op::ALL {
            let weight = self.0[op as usize];
            if left < weight {
                return op;
            }
            left -= weight;
        }
        unreachable!("the number drawn is below the sum of the weights")
    }
}

impl KeySpace {
    /// `count` paths, up to four levels deep.
    pub fn draw(count: u64, dice: &mut Dice) -> KeySpace {
        let mut paths: Vec<String> = Vec::new();
        for number in 0..count.max(1) {
            let shallow: Vec<&String> =
                paths.iter().filter(|path| path.matches('/').count() < 4).collect();
            let parent = match dice.chance(1, 3) || shallow.is_empty() {
                true => "",
                false => shallow[dice.index(shallow.len())],
            };
            paths.push(format!("{parent}/n{number}"));
        }
        KeySpace(paths)
    }

    fn pick(&self, dice: &mut Dice) -> String {
        dice.pick(&self.0).clone()
    }
}

impl Ops {
    /// Operations of `client`.
    pub fn new(client: ClientId, dice: Dice) -> Ops {
        Ops { client, dice, serial: 0, versions: BTreeMap::new() }
    }

    /// The next operation.
    pub fn next(&mut self, options: &WorkloadOptions, keys: &KeySpace) -> (Op, Request) {
        let op = options.mix.pick(&mut self.dice);
        let request = match op {
            Op::Multi => {
                let count = self.dice.range(1, 6);
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
            | Op::RemoveWatches => self.single(op, options, keys),
        };
        (op, request)
    }

    /// One part of a multi. Mostly such as succeeds, so that some multis do.
    fn part(&mut self, options: &WorkloadOptions, keys: &KeySpace) -> Request {
        let parts = [Op::Create, Op::CreateSequential, Op::Delete, Op::SetData, Op::SetData];
        if self.dice.chance(1, 5) {
            let path = keys.pick(&mut self.dice);
            let version = self.version(&path);
            return Request::Check { path, version };
        }
        let op = *self.dice.pick(&parts);
        self.single(op, options, keys)
    }

    fn single(&mut self, op: Op, options: &WorkloadOptions, keys: &KeySpace) -> Request {
        let path = keys.pick(&mut self.dice);
        let watch = self.dice.chance(1, 2);
        let with_stat = self.dice.chance(1, 2);
        match op {
            Op::Create => self.create(path, 0, with_stat, options),
            Op::CreateEphemeral => self.create(path, 1, with_stat, options),
            Op::CreateSequential => {
                let flags = if self.dice.chance(1, 2) { 2 } else { 3 };
                self.create(format!("{path}-"), flags, with_stat, options)
            }
            Op::Delete => {
                let version = self.version(&path);
                Request::Delete { path, version }
            }
            Op::SetData => {
                let (version, data) = (self.version(&path), self.data(options));
                Request::SetData { path, data, version }
            }
            Op::GetData => Request::GetData { path, watch },
            Op::Exists => Request::Exists { path, watch },
            Op::GetChildren => {
                let path = if self.dice.chance(1, 8) { "/".to_owned() } else { path };
                Request::GetChildren { path, watch, with_stat }
            }
            Op::Sync => Request::Sync { path },
            Op::Multi => unreachable!("a multi is no part of another"),
            Op::CheckWatches | Op::RemoveWatches => {
                let kinds = [WatcherType::Children, WatcherType::Data, WatcherType::Any];
                let kind = *self.dice.pick(&kinds);
                Request::Watches { path, kind, remove: op == Op::RemoveWatches }
            }
        }
    }

    /// A create of a path that nobody else uses, for proving that writes get through.
    pub fn probe(&mut self) -> Request {
        self.serial += 1;
        let path = format!("/probe-{}-{}", self.client.0, self.serial);
        let data = Some(self.stamp());
        Request::Create { path, data, acl: Acl::open(), flags: 0, with_stat: false }
    }

    /// Remembers the version that an answer tells.
    pub fn learn(&mut self, path: &str, body: &ReplyBody) {
        let stat = match body {
            ReplyBody::Stat(stat)
            | ReplyBody::Data(_, stat)
            | ReplyBody::ChildrenStat(_, stat)
            | ReplyBody::PathStat(_, stat) => stat,
            ReplyBody::Empty
            | ReplyBody::Path(_)
            | ReplyBody::Children(_)
            | ReplyBody::Multi(_) => return,
        };
        self.versions.insert(path.to_owned(), stat.version);
    }

    fn create(
        &mut self,
        path: String,
        flags: i32,
        with_stat: bool,
        options: &WorkloadOptions,
    ) -> Request {
        // Bad flags are refused by a transaction of their own.
        let flags = if self.dice.chance(1, 100) { 9 } else { flags };
        Request::Create { path, data: self.data(options), acl: Acl::open(), flags, with_stat }
    }

    /// Any, the one seen last, or the one before.
    fn version(&mut self, path: &str) -> i32 {
        let seen = self.versions.get(path).copied().unwrap_or(0);
        match self.dice.below(4) {
            0 | 1 => -1,
            2 => seen,
            _ => (seen - 1).max(0),
        }
    }

    /// Mostly the unique stamp, sometimes with a long tail, sometimes nothing.
    fn data(&mut self, options: &WorkloadOptions) -> Option<Bytes> {
        self.serial += 1;
        match self.dice.below(16) {
            0 => None,
            1 => Some(Bytes::new()),
            2 | 3 => {
                let mut data = self.stamp().to_vec();
                let length = self.dice.upto(options.data_bytes).max(data.len());
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

impl fmt::Display for OpMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for op in Op::ALL {
            if self.0[op as usize] > 0 {
                write!(f, "{separator}{}:{}", op.name(), self.0[op as usize])?;
                separator = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::slice;

    use super::*;
    use crate::options::{Options, Pinned, Profile};
    use crate::seed::Seeds;

    fn made(count: usize) -> Vec<(Op, Request)> {
        let seeds = Seeds::new(1);
        let mut options = Options::draw(seeds, Profile::Calm, &Pinned::default()).workload;
        options.mix = OpMix::usual();
        let keys = KeySpace::draw(20, &mut seeds.stream("workload", 0));
        let mut ops = Ops::new(ClientId(3), seeds.stream("client/ops", 3));
        (0..count).map(|_| ops.next(&options, &keys)).collect()
    }

    #[test]
    fn every_operation_is_made() {
        let kinds: BTreeSet<Op> = made(1_000).into_iter().map(|(op, _)| op).collect();
        assert_eq!(kinds.len(), Op::ALL.len());
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
                if let Request::Create { data, .. } | Request::SetData { data, .. } = part {
                    data.clone()
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
    fn paths_are_few_and_shallow() {
        let KeySpace(paths) = KeySpace::draw(50, &mut Seeds::new(2).stream("workload", 0));
        assert_eq!(paths.len(), 50);
        assert!(paths.iter().all(|path| (1..=4).contains(&path.matches('/').count())));
    }
}
