//! Facts for the metrics that only the core knows.
//!
//! Owns their form. Must not influence any behaviour: the driver counts them and drops them.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::WallMs;
use crate::txn::TxnOp;
use crate::wire::{EventType, MultiResult, ReplyBody, Request};

/// A fact for the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Measure {
    /// A serving server has applied a transaction that the leader has made at this time.
    Applied(WallMs),
    /// A watch has fired for so many connections.
    Fired(EventType, usize),
    /// A client has read so many bytes.
    Read(Namespace, usize),
    /// A transaction has written so many bytes.
    Written(Namespace, usize),
    /// The end of a session has deleted so many ephemeral nodes.
    EphemeralsDeleted(usize),
    /// So many connections end because no server has led for too long.
    ClosedWithoutLeader(usize),
}

/// The first segment of a path. Only its first 31 bytes count, so that a fact needs no allocation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Namespace([u8; LENGTH]);

const LENGTH: usize = 31;

/// Bytes that ZooKeeper adds for the Stat to each read.
const STAT_OVERHEAD: usize = 68;

impl Namespace {
    /// The namespace of a path; `None` if it has none, as the root.
    pub fn of(path: &str) -> Option<Namespace> {
        let first = path.strip_prefix('/')?.split('/').next().filter(|first| !first.is_empty())?;
        let first = &first[..first.floor_char_boundary(LENGTH)];
        let mut bytes = [0; LENGTH];
        bytes[..first.len()].copy_from_slice(first.as_bytes());
        Some(Namespace(bytes))
    }

    /// Its text.
    pub fn as_str(&self) -> &str {
        // A path has no zero byte.
        let length = self.0.iter().position(|byte| *byte == 0).unwrap_or(LENGTH);
        str::from_utf8(&self.0[..length]).unwrap_or_default()
    }
}

impl fmt::Debug for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.as_str().fmt(f)
    }
}

/// The namespaces that a read is about, and the lengths of their paths.
pub(crate) enum ReadOf {
    None,
    One(Namespace, usize),
    Many(Vec<Option<(Namespace, usize)>>),
}

impl ReadOf {
    /// Those of a request that ZooKeeper counts as a read of a node.
    pub(crate) fn new(request: &Request) -> ReadOf {
        let of = |path: &str| Some((Namespace::of(path)?, path.len()));
        let path_of = |request: &Request| {
            if let Request::GetData { path, .. }
            | Request::GetChildren { path, .. }
            | Request::Exists { path, .. } = request
            {
                return of(path);
            }
            None
        };
        if let Request::MultiRead(parts) = request {
            return ReadOf::Many(parts.iter().map(path_of).collect());
        }
        path_of(request).map_or(ReadOf::None, |(namespace, path)| ReadOf::One(namespace, path))
    }

    /// The facts about the answer to the request.
    pub(crate) fn measure(&self, answer: &ReplyBody, measures: &mut Vec<Measure>) {
        let names = |names: &[String]| names.iter().map(String::len).sum::<usize>();
        let mut read = |namespace, path: usize, bytes: usize| {
            measures.push(Measure::Read(namespace, path + bytes + STAT_OVERHEAD));
        };
        match (self, answer) {
            (ReadOf::None, _) => {}
            (ReadOf::One(namespace, path), ReplyBody::Data(data, _)) => {
                read(*namespace, *path, data.as_ref().map_or(0, |data| data.len()));
            }
            (
                ReadOf::One(namespace, path),
                ReplyBody::Children(list) | ReplyBody::ChildrenStat(list, _),
            ) => read(*namespace, *path, names(list)),
            (ReadOf::One(namespace, path), _) => read(*namespace, *path, 0),
            (ReadOf::Many(of), ReplyBody::Multi(results)) => {
                for (of, result) in of.iter().zip(results) {
                    let bytes = match result {
                        MultiResult::Data(data, _) => data.as_ref().map_or(0, |data| data.len()),
                        MultiResult::Children(list) => names(list),
                        MultiResult::Created(_)
                        | MultiResult::CreatedStat(..)
                        | MultiResult::Changed(_)
                        | MultiResult::Deleted
                        | MultiResult::Checked
                        | MultiResult::Failed(_) => continue,
                    };
                    if let Some((namespace, path)) = of {
                        read(*namespace, *path, bytes);
                    }
                }
            }
            (ReadOf::Many(_), _) => {}
        }
    }
}

/// The facts about what a transaction writes.
pub(crate) fn measure_writes(op: &TxnOp, measures: &mut Vec<Measure>) {
    let (path, bytes) = match op {
        TxnOp::Create { path, data, .. } | TxnOp::SetData { path, data, .. } => {
            (path, data.as_ref().map_or(0, |data| data.len()))
        }
        TxnOp::Delete { path } => (path, 0),
        TxnOp::Multi(ops) => return ops.iter().for_each(|op| measure_writes(op, measures)),
        TxnOp::Check { .. }
        | TxnOp::MultiRefused { .. }
        | TxnOp::CreateSession { .. }
        | TxnOp::CloseSession
        | TxnOp::Error { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::SetAcl { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::Reconfig { .. } => return,
    };
    if let Some(namespace) = Namespace::of(path) {
        measures.push(Measure::Written(namespace, path.len() + bytes));
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::wire::Stat;

    #[test]
    fn namespace_is_the_first_segment_cut_at_a_character() {
        let of = |path: &str| Namespace::of(path).map(|found| found.as_str().to_owned());
        assert_eq!((of("/"), of(""), of("relative")), (None, None, None));
        assert_eq!(of("/a"), Some("a".to_owned()));
        assert_eq!(of("/kafka/brokers/1"), Some("kafka".to_owned()));
        let long = format!("/{}ä/b", "x".repeat(30));
        assert_eq!(of(&long), Some("x".repeat(30)), "the ä would be cut in two");
    }

    /// METRIC-12.
    #[test]
    fn read_counts_path_data_and_stat_as_zookeeper_does() {
        let path = || "/ns/a".to_owned();
        let data = ReplyBody::Data(Some(Bytes::from_static(b"1234")), Stat::default());
        let mut measures = Vec::new();
        ReadOf::new(&Request::GetData { path: path(), watch: false }).measure(&data, &mut measures);
        let parts = vec![
            Request::GetData { path: path(), watch: false },
            Request::GetChildren { path: "/".to_owned(), watch: false, with_stat: false },
            Request::GetChildren { path: path(), watch: false, with_stat: false },
        ];
        let results = vec![
            MultiResult::Failed(-101),
            MultiResult::Children(vec!["ns".to_owned()]),
            MultiResult::Children(vec!["b".to_owned(), "cd".to_owned()]),
        ];
        ReadOf::new(&Request::MultiRead(parts)).measure(&ReplyBody::Multi(results), &mut measures);
        let namespace = Namespace::of("/ns").expect("is one");
        let [one, many] = [5 + 4 + 68, 5 + 3 + 68].map(|bytes| Measure::Read(namespace, bytes));
        assert_eq!(measures, [one, many]);
    }
}
