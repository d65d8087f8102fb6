//! Quotas: limits and usage of subtrees (DATA-28 to DATA-33).
//!
//! Owns the texts of limits and usage, and which quota covers a path. Must not change nodes:
//! `stage` does.

use std::collections::BTreeMap;

use zabkeeper_core::{ErrorCode, Zxid};

use super::{Model, Node, path};

const ROOT: &str = "/zookeeper/quota";
const LIMITS: &str = "zookeeper_limits";
const STATS: &str = "zookeeper_stats";

/// Limits or usage: numbers by name; a missing one counts as -1.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Figures(BTreeMap<String, i64>);

impl Figures {
    /// The figures in a node's data; `None` if it cannot be parsed.
    pub(super) fn read(node: &Node) -> Option<Figures> {
        let text = std::str::from_utf8(node.data.as_deref()?).ok()?;
        let mut figures = Figures::default();
        if text.is_empty() {
            return Some(figures);
        }
        for pair in text.trim_end_matches([',', ';']).split([',', ';']) {
            let mut parts = pair.split('=');
            let (name, value) = (parts.next()?, parts.next()?);
            figures.0.insert(name.to_owned(), value.parse().ok()?);
        }
        Some(figures)
    }

    pub(super) fn of(count: i64, bytes: i64) -> Figures {
        Figures([("count".to_owned(), count), ("bytes".to_owned(), bytes)].into())
    }

    fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(-1)
    }

    pub(super) fn plus(mut self, count: i64, bytes: i64) -> Figures {
        for (name, more) in [("count", count), ("bytes", bytes)] {
            let sum = self.get(name) + more;
            self.0.insert(name.to_owned(), sum);
        }
        self
    }

    /// The text as ZooKeeper writes it (DATA-28).
    pub(super) fn text(&self) -> String {
        let mut text = format!("count={},bytes={}", self.get("count"), self.get("bytes"));
        let others = self.0.iter().filter(|(name, _)| *name != "count" && *name != "bytes");
        let others: Vec<String> = others.map(|(name, value)| format!(";{name}={value}")).collect();
        if !others.is_empty() {
            text += "=";
        }
        text + &others.concat()
    }

    /// Whether the hard limit of this name refuses the usage (edge 190); soft limits only warn.
    fn refuses(&self, hard: &str, used: i64) -> bool {
        let limit = self.get(hard);
        limit > -1 && used > limit
    }

    fn limits(&self, hard: &str, soft: &str) -> bool {
        self.get(hard) > -1 || self.get(soft) > -1
    }
}

/// The path whose usage the stats node at `asked` holds.
pub(super) fn counted_by(asked: &str) -> Option<&str> {
    let counted = path::parent(asked)?.strip_prefix(ROOT)?;
    (path::name(asked) == STATS && !counted.is_empty()).then_some(counted)
}

/// Whether the path is below `/zookeeper/quota`, where several writes may have the same data.
pub fn is_quota(path: &str) -> bool {
    path.starts_with(ROOT)
}

fn limits_of(path: &str) -> String {
    format!("{ROOT}{path}/{LIMITS}")
}

/// Path of the node with the usage of `path`.
pub(super) fn stats_of(path: &str) -> String {
    format!("{ROOT}{path}/{STATS}")
}

/// The longest path with limits that is `asked` or an ancestor of it (DATA-29); limits of the root
/// do not count.
pub(super) fn nearest(asked: &str, exists: impl Fn(&str) -> bool) -> Option<&str> {
    let mut at = asked;
    while at.len() > 1 {
        if exists(&limits_of(at)) {
            return Some(at);
        }
        at = path::parent(at)?;
    }
    None
}

impl Model {
    /// Whether the quota at `zxid` admits this many more nodes and bytes (DATA-32).
    pub(super) fn check_quota(
        &self,
        asked: &str,
        (count, bytes): (i64, i64),
        zxid: Zxid,
    ) -> Result<(), ErrorCode> {
        if !self.rules.tree.enforce_quota {
            return Ok(());
        }
        let exists = |path: &str| self.node_at(path, zxid).is_some();
        let Some(limited) = nearest(asked, exists) else {
            return Ok(());
        };
        let limits = self.node_at(&limits_of(limited), zxid).expect("found");
        let limits = Figures::read(limits).ok_or(ErrorCode::Marshalling)?;
        let counts = count != 0 && limits.limits("countHardLimit", "count");
        let weighs = bytes != 0 && limits.limits("byteHardLimit", "bytes");
        if !counts && !weighs {
            return Ok(());
        }
        let Some(stats) = self.node_at(&stats_of(limited), zxid) else {
            return Ok(());
        };
        let used = Figures::read(stats).ok_or(ErrorCode::Marshalling)?.plus(count, bytes);
        let over = counts && limits.refuses("countHardLimit", used.get("count"))
            || weighs && limits.refuses("byteHardLimit", used.get("bytes"));
        if over { Err(ErrorCode::QuotaExceeded) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DATA-28
    #[test]
    fn quota_text_round_trips() {
        let text = "count=1,bytes=2=;byteHardLimit=3;countHardLimit=4";
        let node = Node { data: Some(text.into()), ..Node::initial(0, Vec::new(), 0) };
        let figures = Figures::read(&node).expect("well formed");
        assert_eq!(figures.text(), text);
        assert_eq!(
            figures.plus(1, -5).text(),
            "count=2,bytes=-3=;byteHardLimit=3;countHardLimit=4"
        );
    }

    /// DATA-29
    #[test]
    fn quota_of_the_longest_path_applies_and_never_the_roots() {
        let limits = ["/zookeeper/quota/a/zookeeper_limits", "/zookeeper/quota/zookeeper_limits"];
        let exists = |path: &str| limits.contains(&path);
        assert_eq!(nearest("/a/b/c", exists), Some("/a"));
        assert_eq!(nearest("/ab", exists), None);
    }
}
