//! The text of quota nodes and their paths.
//!
//! Owns ZooKeeper's `StatsTrack` and `Quotas`. Must not do I/O: `commands/quota` does.

use std::collections::BTreeMap;
use std::fmt;

/// The node below which quotas and usage are.
pub(crate) const QUOTA: &str = "/zookeeper/quota";
/// The child with the limits.
pub(crate) const LIMITS: &str = "zookeeper_limits";
/// The child with the usage.
pub(crate) const USAGE: &str = "zookeeper_stats";

pub(crate) const COUNT: &str = "count";
pub(crate) const BYTES: &str = "bytes";
pub(crate) const HARD_COUNT: &str = "countHardLimit";
pub(crate) const HARD_BYTES: &str = "byteHardLimit";

/// Counts and bytes: limits, or usage. -1 is no limit.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct StatsTrack(BTreeMap<String, i64>);

impl StatsTrack {
    /// Limits none of which is set.
    pub(crate) fn unlimited() -> StatsTrack {
        let keys = [COUNT, BYTES, HARD_COUNT, HARD_BYTES];
        StatsTrack(keys.map(|key| (key.to_owned(), -1)).into())
    }

    /// No nodes and no bytes.
    pub(crate) fn nothing_used() -> StatsTrack {
        StatsTrack([COUNT, BYTES].map(|key| (key.to_owned(), 0)).into())
    }

    /// Reads the data of a quota node.
    ///
    /// # Errors
    /// What is no pair of a name and a number.
    pub(crate) fn parse(data: &[u8]) -> Result<StatsTrack, String> {
        let text = String::from_utf8_lossy(data);
        let mut values = BTreeMap::new();
        for pair in text.split([',', ';']).filter(|pair| !pair.is_empty()) {
            let mut parts = pair.split('=');
            let (key, value) = (parts.next().unwrap_or_default(), parts.next().unwrap_or_default());
            let value = if value.is_empty() { Ok(-1) } else { value.parse() };
            let value = value.map_err(|_| format!("{pair} in {text} is no number"))?;
            values.insert(key.to_owned(), value);
        }
        Ok(StatsTrack(values))
    }

    /// The value; -1 if there is none.
    pub(crate) fn get(&self, key: &str) -> i64 {
        self.0.get(key).copied().unwrap_or(-1)
    }

    pub(crate) fn set(&mut self, key: &str, value: i64) {
        self.0.insert(key.to_owned(), value);
    }

    /// Name and value of each.
    pub(crate) fn values(&self) -> &BTreeMap<String, i64> {
        &self.0
    }

    /// What to say where limits are below the usage.
    pub(crate) fn warnings(&self, usage: &StatsTrack) -> Vec<String> {
        let below = |soft, hard, used| {
            let exceeds = |limit: i64| limit > -1 && limit < used;
            exceeds(self.get(soft)) || exceeds(self.get(hard))
        };
        let mut warnings = Vec::new();
        let (count, bytes) = (usage.get(COUNT), usage.get(BYTES));
        if below(COUNT, HARD_COUNT, count) {
            warnings.push(format!(
                "[Warning]: the count quota you create is less than the existing count:{count}"
            ));
        }
        if below(BYTES, HARD_BYTES, bytes) {
            warnings.push(format!(
                "[Warning]: the bytes quota you create is less than the existing bytes:{bytes}"
            ));
        }
        warnings
    }
}

/// The node with the quota of a path.
pub(crate) fn quota_path(path: &str) -> String {
    format!("{QUOTA}{path}")
}

/// The node with the limits of a path.
pub(crate) fn limits_path(path: &str) -> String {
    format!("{QUOTA}{path}/{LIMITS}")
}

/// The node with the usage of a path.
pub(crate) fn usage_path(path: &str) -> String {
    format!("{QUOTA}{path}/{USAGE}")
}

/// `count=1,bytes=-1`, and the other values behind `=;`, where old servers do not read on.
impl fmt::Display for StatsTrack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "count={},bytes={}", self.get(COUNT), self.get(BYTES))?;
        let others = self.0.iter().filter(|(key, _)| *key != COUNT && *key != BYTES);
        for (at, (key, value)) in others.enumerate() {
            let separator = if at == 0 { "=;" } else { ";" };
            write!(f, "{separator}{key}={value}")?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_read_as_they_are_printed() {
        for text in [
            "count=5,bytes=-1=;byteHardLimit=-1;countHardLimit=-1",
            "count=2,bytes=11",
            "count=-1,bytes=-1",
        ] {
            assert_eq!(StatsTrack::parse(text.as_bytes()).unwrap().to_string(), text);
        }
        assert_eq!(StatsTrack::nothing_used().to_string(), "count=0,bytes=0");
        let mut limits = StatsTrack::unlimited();
        limits.set(COUNT, 1);
        let usage = StatsTrack::parse(b"count=2,bytes=7").unwrap();
        assert_eq!(limits.warnings(&usage).len(), 1);
        assert!(StatsTrack::parse(b"count=x").is_err());
    }
}
