//! A configuration of the ensemble: its servers with their roles and addresses, its quorums, and
//! its version (Java `QuorumVerifier`).
//!
//! Owns its text, which `/zookeeper/config` and the dynamic file hold, and how a request to
//! reconfigure changes it. Must not know which configuration is in force.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Member, Members, Voters};
use crate::ids::{ServerId, Zxid};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct EnsembleConfig {
    /// The zxid at which it was proposed (RECONF-09); zero for one that no leader has established.
    pub version: Zxid,
    servers: BTreeMap<ServerId, Member>,
    members: Members,
}

impl EnsembleConfig {
    /// These servers, with their groups and weights if there are any (QV-02).
    ///
    /// # Errors
    /// Two servers with one id or one address, no voters, more than 64, or groups that do not fit.
    pub fn new(
        version: Zxid,
        servers: impl IntoIterator<Item = Member>,
        groups: &BTreeMap<u64, Vec<ServerId>>,
        weights: &BTreeMap<ServerId, u32>,
    ) -> Result<EnsembleConfig, String> {
        let servers = Vec::from_iter(servers);
        let participants = servers.iter().filter(|server| !server.observes);
        let voters: BTreeSet<ServerId> = participants.map(|server| server.id).collect();
        if voters.is_empty() || voters.len() > Voters::MAX {
            return Err(format!("{} servers vote; 1 to {} can", voters.len(), Voters::MAX));
        }
        let mut quorums = Voters::new(voters);
        if !(groups.is_empty() && weights.is_empty()) {
            let groups = groups.iter().map(|(number, servers)| (*number, &servers[..]));
            quorums = quorums.with_groups(groups, weights).map_err(|error| error.to_string())?;
        }
        EnsembleConfig::with_voters(version, servers, quorums)
    }

    /// These servers; `voters` are those of them that do not observe.
    ///
    /// # Errors
    /// Two servers with one id or one address.
    pub fn with_voters(
        version: Zxid,
        servers: impl IntoIterator<Item = Member>,
        voters: Voters,
    ) -> Result<EnsembleConfig, String> {
        let mut by_id: BTreeMap<ServerId, Member> = BTreeMap::new();
        for server in servers {
            if let Some(other) = by_id.values().find(|other| other.shares_an_address(&server)) {
                return Err(format!("{server} and {other} share an address"));
            }
            if let Some(other) = by_id.insert(server.id, server) {
                return Err(format!("a second line for server {}", other.id));
            }
        }
        let observers = by_id.values().filter(|server| server.observes).map(|server| server.id);
        let members = Members::new(voters).with_observers(observers);
        Ok(EnsembleConfig { version, servers: by_id, members })
    }

    /// Parses lines of the form `server.N=...`, `group.N=id:id`, `weight.id=W` and `version=hex`.
    ///
    /// # Errors
    /// Another line, or servers, groups and weights that do not fit.
    pub fn parse(text: &str) -> Result<EnsembleConfig, String> {
        let (mut servers, mut version) = (Vec::new(), Zxid::ZERO);
        let (mut groups, mut weights) = (BTreeMap::new(), BTreeMap::new());
        let lines = text.lines().map(str::trim);
        for line in lines.filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let Some((key, value)) = line.split_once('=') else {
                return Err(format!("{line}: there is no ="));
            };
            let (key, value) = (key.trim(), value.trim());
            let wrong = |what: &str| format!("{line}: {what}");
            if key == "version" {
                let parsed = u64::from_str_radix(value, 16);
                version = Zxid(parsed.map_err(|_| wrong("a version is a hexadecimal number"))?);
            } else if let Some(id) = key.strip_prefix("server.") {
                let id = parse_id(id).map_err(wrong)?;
                servers.push(Member::parse(id, value).map_err(wrong)?);
            } else if let Some(number) = key.strip_prefix("group.") {
                let number: u64 = number.parse().map_err(|_| wrong("a group has a number"))?;
                let ids = value.split(':').map(|id| parse_id(id.trim()));
                let ids = ids.collect::<Result<Vec<_>, _>>().map_err(wrong)?;
                if groups.insert(number, ids).is_some() {
                    return Err(wrong("a second line for this group"));
                }
            } else if let Some(id) = key.strip_prefix("weight.") {
                let id = parse_id(id).map_err(wrong)?;
                let weight = value.parse().map_err(|_| wrong("a weight is a whole number"))?;
                if weights.insert(id, weight).is_some() {
                    return Err(wrong("a second weight for this server"));
                }
            } else {
                return Err(wrong("only server.N, group.N, weight.N and version are known"));
            }
        }
        EnsembleConfig::new(version, servers, &groups, &weights)
    }

    /// The configuration without the servers in `leaving`, a list of ids, and with those in
    /// `joining`, a list of server lines, which replace lines with the same id (RECONF-05). Both
    /// are separated by commas.
    ///
    /// # Errors
    /// Text of another form, a joining server without a client port, an address that two servers
    /// share, or groups: their sizes cannot change one by one.
    pub fn changed(&self, joining: &str, leaving: &str) -> Result<EnsembleConfig, String> {
        if self.members.voters().has_groups() {
            return Err("with groups, name all members (reconfig -members)".to_owned());
        }
        let mut servers = self.servers.clone();
        for id in leaving.split(',').map(str::trim).filter(|id| !id.is_empty()) {
            servers.remove(&parse_id(id)?);
        }
        for line in joining.split(',').map(str::trim).filter(|line| !line.is_empty()) {
            let Some((key, value)) = line.split_once('=') else {
                return Err(format!("{line}: write server.N=host:2888:3888;2181"));
            };
            let id = key.rsplit_once('.').map_or(key, |(_, id)| id);
            let server = Member::parse(parse_id(id.trim())?, value)?;
            if server.client.is_none() {
                return Err(format!("{line}: a server that joins needs a client port (;2181)"));
            }
            servers.insert(server.id, server);
        }
        EnsembleConfig::new(self.version, servers.into_values(), &BTreeMap::new(), &BTreeMap::new())
    }

    /// The same with another version.
    pub fn at(self, version: Zxid) -> EnsembleConfig {
        EnsembleConfig { version, ..self }
    }

    /// The servers and their roles.
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// The servers with their addresses, by id.
    pub fn servers(&self) -> impl Iterator<Item = &Member> {
        self.servers.values()
    }

    /// The server with this id.
    pub fn server(&self, id: ServerId) -> Option<&Member> {
        self.servers.get(&id)
    }
}

/// The number of a server. As in ZooKeeper, one that joins may have a number that its own
/// `zoo.cfg` could not have.
fn parse_id(text: &str) -> Result<ServerId, &'static str> {
    let id = text.parse().ok().filter(|id| i64::try_from(*id).is_ok());
    id.map(ServerId).ok_or("a server has a number")
}

/// The text of `/zookeeper/config`: servers, all groups, the weights of all voters if there are
/// groups, and the version, without a line end behind it (DATA-27, QV-04).
impl fmt::Display for EnsembleConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for server in self.servers.values() {
            writeln!(f, "{server}")?;
        }
        f.write_str(&self.members.voters().group_lines())?;
        write!(f, "version={:x}", self.version.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THREE: &str = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                         server.2=b:2888:3888:participant;0.0.0.0:2181\n\
                         server.3=[::1]:2888:3888:observer;[::1]:2181\nversion=100000000";

    #[test]
    fn text_round_trips() {
        let three = EnsembleConfig::parse(THREE).expect("valid");
        assert_eq!((three.to_string(), three.version), (THREE.to_owned(), Zxid(1 << 32)));
        assert_eq!(three.members().voters().ids().collect::<Vec<_>>(), [1, 2].map(ServerId));
        let grouped = "server.1=a:1:2:participant\nserver.2=b:1:2:participant\ngroup.1=1:2\n\
                       weight.1=2\nweight.2=1\nversion=0";
        assert_eq!(EnsembleConfig::parse(grouped).expect("valid").to_string(), grouped);
    }

    /// RECONF-05.
    #[test]
    fn servers_leave_and_join() {
        let three = EnsembleConfig::parse(THREE).expect("valid");
        let changed = three.changed("server.4=c:2888:3888;2181,2=d:2888:3888:observer;2181", "3");
        assert_eq!(
            changed.expect("valid").to_string(),
            "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
             server.2=d:2888:3888:observer;0.0.0.0:2181\n\
             server.4=c:2888:3888:participant;0.0.0.0:2181\nversion=100000000"
        );
        for (joining, leaving, what) in [
            ("server.4=c:2888:3888", "", "client port"),
            ("server.4=a:2888:3889;2182", "", "share an address"),
            ("4=c:2:3;e:2181,5=d:2:3;e:2181", "", "share an address"),
            ("server.4", "", "write server.N"),
            ("server.x=c:2888:3888;2181", "", "has a number"),
            ("server.4=c:2888;2181", "", "write server.N"),
            ("", "one", "has a number"),
            ("", "1,2", "0 servers vote"),
        ] {
            let error = three.changed(joining, leaving).expect_err(what);
            assert!(error.contains(what), "{joining} {leaving}: {error}");
        }
    }

    /// RECONF-06.
    #[test]
    fn invalid_text_is_refused() {
        for (text, what) in [
            ("", "0 servers vote"),
            ("server.1=a:1:2\nserver.1=b:1:2", "second line"),
            ("server.1=a:1:2\nserver.2=a:2:3", "share an address"),
            ("server.1=a:1:2\ntickTime=3", "only server.N"),
            ("server.1=a:1:2\nversion=x", "hexadecimal"),
            ("server.1=a:1:2\ngroup.1=1\ngroup.1=1", "second line"),
            ("server.1=a:1:2\ngroup.1=1:2", "2"),
            ("server.1", "no ="),
        ] {
            let error = EnsembleConfig::parse(text).expect_err(what);
            assert!(error.contains(what), "{text}: {error}");
        }
    }
}
