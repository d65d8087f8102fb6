//! An injected fault, with its target and duration.
//!
//! Owns the texts that name targets. Must not know which faults a run has had.

use std::collections::BTreeSet;

use zabkeeper_core::{Instant, ServerId};

use crate::check::observe::ClientId;
use crate::faults::catalog::Fault;
use crate::network::stream::Party;

/// An injected fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Injection {
    /// When.
    pub at: Instant,
    /// When it ends, if it lasts.
    pub until: Option<Instant>,
    /// The fault.
    pub fault: Fault,
    /// Its target.
    pub hit: Hit,
}

/// The target of a fault.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hit {
    /// A server, or its disk.
    Server(ServerId),
    /// A client.
    Client(ClientId),
    /// The connection between two parties.
    Conn([Party; 2]),
    /// The directions, from sender to receiver, that are cut.
    Pairs(Vec<(ServerId, ServerId)>),
    /// Clients in general; no server is affected.
    Clients,
}

impl Injection {
    /// The servers that are affected.
    pub fn servers(&self) -> Vec<ServerId> {
        let mut servers = match &self.hit {
            Hit::Server(server) => vec![*server],
            Hit::Conn(ends) => {
                let server = |party: &Party| match party {
                    Party::Server(server) => Some(*server),
                    Party::Client(_) | Party::BadPeer => None,
                };
                ends.iter().filter_map(server).collect()
            }
            Hit::Pairs(pairs) => pairs.iter().flat_map(|(from, to)| [*from, *to]).collect(),
            Hit::Client(_) | Hit::Clients => Vec::new(),
        };
        servers.sort_unstable();
        servers.dedup();
        servers
    }

    /// The target in words.
    pub fn whom(&self) -> String {
        match &self.hit {
            Hit::Server(server) => format!("s{server}"),
            Hit::Client(client) => format!("client {}", client.0),
            Hit::Conn(ends) => ends.map(|end| end.to_string()).join("-"),
            Hit::Pairs(pairs) => pairs_text(pairs),
            Hit::Clients => "clients".to_owned(),
        }
    }
}

/// The cut directions in words: as two groups where possible, otherwise as pairs.
pub fn pairs_text(pairs: &[(ServerId, ServerId)]) -> String {
    let names = |part: &BTreeSet<ServerId>| {
        part.iter().map(|id| format!("s{id}")).collect::<Vec<_>>().join(" ")
    };
    let froms: BTreeSet<ServerId> = pairs.iter().map(|(from, _)| *from).collect();
    let tos: BTreeSet<ServerId> = pairs.iter().map(|(_, to)| *to).collect();
    if froms.is_disjoint(&tos) && pairs.len() == froms.len() * tos.len() {
        return format!("{} > {}", names(&froms), names(&tos));
    }
    // In a split every server is cut off from exactly the other group.
    let parted =
        |id: &&ServerId| froms.first().is_some_and(|first| pairs.contains(&(*first, **id)));
    let (there, here): (BTreeSet<_>, BTreeSet<_>) = froms.iter().partition(parted);
    let between = |pair: &(ServerId, ServerId)| here.contains(&pair.0) != here.contains(&pair.1);
    if pairs.iter().all(between) && pairs.len() == 2 * here.len() * there.len() {
        return format!("{} | {}", names(&here), names(&there));
    }
    let both = |pair: &(ServerId, ServerId)| pairs.contains(&(pair.1, pair.0));
    let shown = pairs.iter().filter(|pair| !both(pair) || pair.0 < pair.1);
    let text = |pair: &(ServerId, ServerId)| {
        format!("s{}{}s{}", pair.0, if both(pair) { "|" } else { ">" }, pair.1)
    };
    shown.map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_is_printed_as_two_groups() {
        let shown = |pairs: &[(u64, u64)]| {
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (ServerId(*a), ServerId(*b))).collect();
            pairs_text(&pairs)
        };
        assert_eq!(shown(&[(1, 3), (1, 4), (2, 3), (2, 4)]), "s1 s2 > s3 s4");
        assert_eq!(shown(&[(1, 2), (2, 1), (2, 3), (3, 2)]), "s1 s3 | s2");
        let partial = [(1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (1, 3)];
        assert_eq!(shown(&partial), "s1|s2 s2|s3 s1|s3");
    }
}
