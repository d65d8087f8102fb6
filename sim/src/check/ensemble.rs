//! Configurations of the ensemble as clients name them and as the oracles read them.
//!
//! Owns the lines of a run's servers: the addresses of server N follow from N. Must not use the
//! core's configurations, which the oracles check.

use std::collections::{BTreeMap, BTreeSet};

use zabkeeper_core::ServerId;

/// The role of a server that votes.
pub const PARTICIPANT: &str = "participant";
/// The role of a server that does not.
pub const OBSERVER: &str = "observer";

/// The line of a server, as `/zookeeper/config` shows it.
pub fn line(id: ServerId, role: &str) -> String {
    format!("server.{id}=10.0.1.{id}:2888:3888:{role};0.0.0.0:2181\n")
}

/// The servers of a configuration, by id, and whether each votes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Ensemble(BTreeMap<ServerId, bool>);

impl Ensemble {
    /// Reads server lines; a version may follow. `None` if one of the lines is not that of
    /// [`line()`].
    pub fn parse(text: &str) -> Option<Ensemble> {
        let mut ensemble = Ensemble::default();
        for each in text.lines().filter(|line| !line.starts_with("version=")) {
            ensemble.add(each)?;
        }
        Some(ensemble)
    }

    fn add(&mut self, text: &str) -> Option<()> {
        let id: u64 = text.strip_prefix("server.")?.split_once('=')?.0.parse().ok()?;
        let votes = [PARTICIPANT, OBSERVER]
            .into_iter()
            .find(|role| line(ServerId(id), role).trim_end() == text)
            .map(|role| role == PARTICIPANT)?;
        self.0.insert(ServerId(id), votes);
        Some(())
    }

    /// The configuration after these servers have left and those have joined; both are lists of a
    /// request to reconfigure. `None` if one of them has another form.
    pub fn changed(&self, joining: &str, leaving: &str) -> Option<Ensemble> {
        let mut next = self.clone();
        for id in leaving.split(',').filter(|id| !id.is_empty()) {
            next.0.remove(&ServerId(id.parse().ok()?));
        }
        for each in joining.split(',').filter(|line| !line.is_empty()) {
            next.add(each)?;
        }
        Some(next)
    }

    /// The servers that vote.
    pub fn voters(&self) -> BTreeSet<ServerId> {
        self.0.iter().filter(|(_, votes)| **votes).map(|(id, _)| *id).collect()
    }

    /// The servers that observe.
    pub fn observers(&self) -> BTreeSet<ServerId> {
        self.0.iter().filter(|(_, votes)| !**votes).map(|(id, _)| *id).collect()
    }

    /// The text of `/zookeeper/config` for this configuration.
    pub fn text(&self, version: u64) -> String {
        let role = |votes: bool| if votes { PARTICIPANT } else { OBSERVER };
        let lines: String = self.0.iter().map(|(id, votes)| line(*id, role(*votes))).collect();
        format!("{lines}version={version:x}")
    }
}

/// The version in the text of `/zookeeper/config`; `None` before the first leader has put a
/// configuration there.
pub fn version(text: &[u8]) -> Option<u64> {
    let (_, version) = std::str::from_utf8(text).ok()?.rsplit_once("version=")?;
    u64::from_str_radix(version, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RECONF-05.
    #[test]
    fn servers_leave_and_join() {
        let two = Ensemble::parse(&[1, 2].map(|id| line(ServerId(id), PARTICIPANT)).concat());
        let two = two.expect("canonical lines");
        let joining = line(ServerId(3), OBSERVER);
        let next = two.changed(joining.trim_end(), "1").expect("canonical lines");
        assert_eq!((next.voters(), next.observers()), ([ServerId(2)].into(), [ServerId(3)].into()));
        assert_eq!(Ensemble::parse(&next.text(0x1_0000_0002)), Some(next.clone()));
        assert_eq!(version(next.text(0x1_0000_0002).as_bytes()), Some(0x1_0000_0002));
        assert_eq!(next.changed("server.3=10.0.1.3:2888:3888;2181", ""), None);
        assert_eq!(next.changed("", "x"), None);
    }
}
