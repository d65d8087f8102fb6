//! Quotas: how many nodes and bytes a subtree may have, and has (DATA-28 to DATA-33; Java
//! `StatsTrack`, `PathTrie`).
//!
//! Owns which paths have one, the text of limits and usage, and the upkeep of usage. Limits and
//! usage are data of ordinary nodes below `/zookeeper/quota`, so replicas agree on them and
//! snapshots hold them like anything else. Usage changes in place: no version, no zxid, no watch
//! (edge 80).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use bytes::Bytes;

use super::{NodeId, Tree, signed, split};

/// Each path with a quota is repeated below this node.
const QUOTAS: &str = "/zookeeper/quota";
/// The child that holds the limits.
const LIMITS: &str = "zookeeper_limits";
/// The child that holds the usage.
const STATS: &str = "zookeeper_stats";

const COUNT: &str = "count";
const COUNT_HARD: &str = "countHardLimit";
const BYTES: &str = "bytes";
const BYTES_HARD: &str = "byteHardLimit";

/// The paths that have a quota.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Quotas(BTreeSet<Box<str>>);

/// Verdict of a quota on a write.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Verdict {
    /// No limit is exceeded.
    Within,
    /// A soft limit is exceeded.
    Soft,
    /// A hard limit is exceeded.
    Hard,
    /// The limits or the usage cannot be parsed.
    Unreadable,
}

/// Limits or usage: numbers by name.
#[derive(Debug, Default)]
struct Track(BTreeMap<String, i64>);

impl Tree {
    /// Verdict of the quota nearest to `path` on `count` nodes and `bytes` bytes more (DATA-32).
    /// The check uses the applied usage, so pending writes may exceed a limit.
    pub(crate) fn check_quota(&self, path: &str, count: i64, bytes: i64) -> Verdict {
        let Some(limited) = self.quotas.nearest(path) else {
            return Verdict::Within;
        };
        let Some(limits) = self.find(&format!("{QUOTAS}{limited}/{LIMITS}")) else {
            return Verdict::Within;
        };
        let Some(limits) = self.track(limits) else {
            return Verdict::Unreadable;
        };
        let counted = (count != 0).then(|| limits.limit(COUNT, COUNT_HARD)).flatten();
        let weighed = (bytes != 0).then(|| limits.limit(BYTES, BYTES_HARD)).flatten();
        if counted.is_none() && weighed.is_none() {
            return Verdict::Within;
        }
        let Some(stats) = self.find(&format!("{QUOTAS}{limited}/{STATS}")) else {
            return Verdict::Within;
        };
        let Some(stats) = self.track(stats) else {
            return Verdict::Unreadable;
        };
        let judge = |limit: Option<(i64, Verdict)>, name: &str, more: i64| match limit {
            Some((limit, verdict)) if stats.get(name).wrapping_add(more) > limit => verdict,
            Some(_) | None => Verdict::Within,
        };
        judge(counted, COUNT, count).max(judge(weighed, BYTES, bytes))
    }

    /// Counts a created node. If it is a usage node, sets its data to the measured usage (DATA-29,
    /// edge 184).
    pub(super) fn use_created(&mut self, path: &str, id: NodeId) {
        let bytes = signed(self.node(id).length());
        if &*self.node(id).name == STATS
            && let Some(limited) = limited_by(path)
        {
            let (count, bytes) = self.measure(limited);
            let mut track = Track::default();
            track.0.insert(COUNT.into(), count);
            track.0.insert(BYTES.into(), bytes);
            self.replace_data(id, Some(Bytes::from(track.text())));
        }
        self.use_more(path, 1, bytes);
    }

    /// Adds to the usage of the quota nearest to `path` (DATA-30). Usage that cannot be parsed
    /// stays unchanged.
    pub(super) fn use_more(&mut self, path: &str, count: i64, bytes: i64) {
        let Some(limited) = self.quotas.nearest(path) else {
            return;
        };
        let Some(stats) = self.find(&format!("{QUOTAS}{limited}/{STATS}")) else {
            return;
        };
        let Some(mut track) = self.track(stats) else {
            return;
        };
        for (name, more) in [(COUNT, count), (BYTES, bytes)] {
            let used = track.get(name).wrapping_add(more);
            track.0.insert(name.into(), used);
        }
        self.replace_data(stats, Some(Bytes::from(track.text())));
    }

    /// Registers the quota of a node linked at `path`, if the node holds limits.
    pub(super) fn list_quota(&mut self, id: NodeId, path: &str) {
        if let Some(limited) = self.limited(id, path) {
            self.quotas.0.insert(limited);
        }
    }

    /// Unregisters the quota of a node that is deleted, if the node holds limits.
    pub(super) fn unlist_quota(&mut self, id: NodeId, path: &str) {
        if let Some(limited) = self.limited(id, path) {
            self.quotas.0.remove(&limited);
        }
    }

    /// The path that this node holds the limits of, if it does. The root has no quota.
    fn limited(&self, id: NodeId, path: &str) -> Option<Box<str>> {
        if &*self.node(id).name != LIMITS {
            return None;
        }
        let limited = normal(limited_by(path)?);
        (!limited.is_empty()).then(|| limited.into())
    }

    /// Nodes and bytes at `path` and below.
    fn measure(&self, path: &str) -> (i64, i64) {
        let (mut count, mut bytes) = (0, 0);
        let mut next = Vec::from_iter(self.find(path));
        while let Some(id) = next.pop() {
            count += 1;
            bytes += signed(self.node(id).length());
            next.extend(self.child_ids(id));
        }
        (count, bytes)
    }

    fn track(&self, id: NodeId) -> Option<Track> {
        Track::parse(&String::from_utf8_lossy(self.node(id).data.as_deref()?))
    }
}

impl Quotas {
    /// The longest path with a quota that `path` is at or below.
    fn nearest(&self, path: &str) -> Option<String> {
        if self.0.is_empty() {
            return None;
        }
        let mut path = normal(path);
        while !path.is_empty() {
            if self.0.contains(&*path) {
                return Some(path);
            }
            let end = path.rfind('/').expect("it begins with a slash");
            path.truncate(end);
        }
        None
    }
}

impl Track {
    /// Parses `key=number` between commas and semicolons; text after a second `=` is ignored.
    /// `None` if the text has another form.
    fn parse(text: &str) -> Option<Track> {
        let mut track = Track::default();
        let pieces = text.split([',', ';']);
        // Java splits at `[,;]+`, so adjacent separators count as one, and drops empty pieces at
        // the end.
        for (index, piece) in pieces.enumerate() {
            if piece.is_empty() && (index > 0 || text.chars().all(|c| matches!(c, ',' | ';'))) {
                continue;
            }
            let (key, rest) = piece.split_once('=')?;
            let value = rest.split('=').next().unwrap_or_default();
            let value = match value {
                // Java's split at `=` drops an empty value, too, unless text follows.
                "" if rest.chars().all(|c| c == '=') => return None,
                "" => -1,
                value => value.parse().ok()?,
            };
            track.0.insert(key.into(), value);
        }
        Some(track)
    }

    /// -1 if the key is missing.
    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(-1)
    }

    /// The effective limit: the hard one if both are set (edge 190).
    fn limit(&self, soft: &str, hard: &str) -> Option<(i64, Verdict)> {
        let limits = [(self.get(hard), Verdict::Hard), (self.get(soft), Verdict::Soft)];
        limits.into_iter().find(|(limit, _)| *limit > -1)
    }

    /// Formats like ZooKeeper; the `=` after the bytes hides the rest from old readers.
    fn text(&self) -> String {
        let mut text = format!("{COUNT}={},{BYTES}={}", self.get(COUNT), self.get(BYTES));
        let others = self.0.iter().filter(|(key, _)| !matches!(&***key, COUNT | BYTES));
        for (index, (key, value)) in others.enumerate() {
            let extra = if index == 0 { "=" } else { "" };
            write!(text, "{extra};{key}={value}").expect("text takes all");
        }
        text
    }
}

/// The path whose limits or usage a node at `path` holds; empty for the root.
fn limited_by(path: &str) -> Option<&str> {
    let (parent, _) = split(path)?;
    parent.strip_prefix(QUOTAS)
}

/// The path without blank names, as ZooKeeper's `PathTrie` treats it.
fn normal(path: &str) -> String {
    let names = path.split('/').filter(|name| name.chars().any(|c| c > ' '));
    names.fold(String::new(), |path, name| path + "/" + name)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DATA-28.
    #[test]
    fn quota_track_text_round_trips_like_zookeeper() {
        for (text, written) in [
            ("", "count=-1,bytes=-1"),
            ("count=3", "count=3,bytes=-1"),
            ("count=3,bytes=5", "count=3,bytes=5"),
            ("bytes=5;count=-3", "count=-3,bytes=5"),
            (
                "count=1,bytes=2=;byteHardLimit=3;countHardLimit=4",
                "count=1,bytes=2=;byteHardLimit=3;countHardLimit=4",
            ),
            ("countHardLimit=4;b=7,,;count=1=9;", "count=1,bytes=-1=;b=7;countHardLimit=4"),
            ("count==3", "count=-1,bytes=-1"),
            ("=3", "count=-1,bytes=-1=;=3"),
            (",", "count=-1,bytes=-1"),
            ("count=+3", "count=3,bytes=-1"),
        ] {
            assert_eq!(
                Track::parse(text).map(|track| track.text()).as_deref(),
                Some(written),
                "{text:?}"
            );
        }
        for text in [
            "x",
            "count=",
            "count==",
            ",count=1",
            "count=x",
            "count= 1",
            "count=1,x",
            "count=9223372036854775808",
            "=",
        ] {
            assert!(Track::parse(text).is_none(), "{text:?}");
        }
    }

    /// DATA-29.
    #[test]
    fn nearest_quota_is_the_longest_prefix_of_whole_names() {
        let quotas = Quotas(["/a", "/a/b"].into_iter().map(Box::from).collect());
        for (path, nearest) in [
            ("/a", Some("/a")),
            ("/a/b/c/d", Some("/a/b")),
            ("/a/bc", Some("/a")),
            ("/ab", None),
            ("/", None),
            ("/a/ /b", Some("/a/b")),
        ] {
            assert_eq!(quotas.nearest(path).as_deref(), nearest, "{path}");
        }
    }
}
