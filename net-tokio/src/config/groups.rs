//! Hierarchical quorums in `zoo.cfg`: the `group.N` and `weight.N` lines (QV-02, CONF-13).
//!
//! Owns their grammar, `group.N=id[:id]...` and `weight.id=W`, and which line an error names. Must
//! not decide which groups and weights fit the servers: `core` does.

use std::collections::BTreeMap;

use zabkeeper_core::{HierarchyError, Member, ServerId, Voters};

use super::properties::{BadSetting, Entry, Properties};

/// A `group.N` line.
struct Group {
    number: u64,
    servers: Vec<ServerId>,
    entry: Entry,
}

/// Reads all `group.N` and `weight.N` lines, in any order. Without one of them, every majority of
/// the members is a quorum. As in ZooKeeper, a single weight makes groups necessary.
pub(super) fn voters(keys: &mut Properties, members: &[Member]) -> Result<Voters, BadSetting> {
    let mut groups: Vec<Group> = Vec::new();
    for entry in keys.take_prefixed("group.") {
        let group = Group::read(keys, entry)?;
        if let Some(twin) = groups.iter().find(|other| other.number == group.number) {
            let what = format!("a second line for group {}", twin.number);
            return Err(keys.refuse(&group.entry, &what));
        }
        groups.push(group);
    }
    let mut weights: BTreeMap<ServerId, (u32, Entry)> = BTreeMap::new();
    for entry in keys.take_prefixed("weight.") {
        let (server, weight) = read_weight(keys, &entry)?;
        if weights.contains_key(&server) {
            return Err(keys.refuse(&entry, &format!("a second weight for server {server}")));
        }
        if !members.iter().any(|member| member.id == server) {
            let what = format!("has no effect: there is no server.{server} line");
            keys.warn(&entry, &what);
        }
        weights.insert(server, (weight, entry));
    }
    let participants = members.iter().filter(|member| !member.observes);
    let voters = Voters::new(participants.map(|member| member.id));
    if groups.is_empty() && weights.is_empty() {
        return Ok(voters);
    }
    let numbers = weights.iter().map(|(server, (weight, _))| (*server, *weight)).collect();
    let lists = groups.iter().map(|group| (group.number, &group.servers[..]));
    voters.with_groups(lists, &numbers).map_err(|error| {
        let entry = match error {
            HierarchyError::NamedTwice { group, .. } | HierarchyError::NoVoter { group, .. } => {
                groups.iter().find(|own| own.number == group).map(|own| &own.entry)
            }
            HierarchyError::NoWeight => weights.values().map(|(_, entry)| entry).min_by_key(place),
            // The server's own line, read before, has no entry any more.
            HierarchyError::NoGroup(_) => {
                let weights = weights.values().map(|(_, entry)| entry);
                groups
                    .iter()
                    .map(|group| &group.entry)
                    .min_by_key(place)
                    .or(weights.min_by_key(place))
            }
        };
        keys.refuse(entry.expect("groups or weights have a line"), &error.to_string())
    })
}

fn place(entry: &&Entry) -> super::properties::Place {
    entry.place
}

impl Group {
    fn read(keys: &Properties, entry: Entry) -> Result<Group, BadSetting> {
        let Ok(number) = entry.key["group.".len()..].parse() else {
            return Err(keys.refuse(&entry, "a group has a number, as in group.1"));
        };
        let ids = entry.value.split(':').map(|id| id.trim().parse().map(ServerId));
        let Ok(servers) = ids.collect() else {
            return Err(keys.refuse(&entry, "write the numbers of servers, as in group.1=1:2:3"));
        };
        Ok(Group { number, servers, entry })
    }
}

fn read_weight(keys: &Properties, entry: &Entry) -> Result<(ServerId, u32), BadSetting> {
    let Ok(server) = entry.key["weight.".len()..].parse() else {
        return Err(keys.refuse(entry, "a weight belongs to a server, as in weight.1"));
    };
    let Ok(weight) = entry.value.parse() else {
        return Err(keys.refuse(entry, "a weight is a whole number from 0 to 4294967295, as in 2"));
    };
    Ok((ServerId(server), weight))
}
