//! Which fault hit whom, and for how long.
//!
//! Owns the record. It is kept in every run: there are few of them.

use std::collections::BTreeSet;

use zabkeeper_core::{Instant, ServerId};

use crate::faults::Fault;
use crate::observe::ClientId;
use crate::stream::Party;

/// One fault that struck.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Strike {
    /// When.
    pub at: Instant,
    /// Until when it lasts, if it lasts.
    pub until: Option<Instant>,
    /// What.
    pub fault: Fault,
    /// Whom.
    pub hit: Hit,
}

/// Who was hit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Hit {
    /// A server, or its disk.
    Server(ServerId),
    /// A client.
    Client(ClientId),
    /// A connection between these two.
    Conn([Party; 2]),
    /// Nothing gets from the first to the second.
    Pairs(Vec<(ServerId, ServerId)>),
    /// Clients, whoever they are: no server is worse off for it.
    Clients,
}

/// The record of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Strikes {
    list: Vec<Strike>,
    /// What strikes just now.
    fault: Option<Fault>,
}

impl Strikes {
    /// Whatever is hit from now on is hit by this.
    pub fn begin(&mut self, fault: Fault) {
        self.fault = Some(fault);
    }

    /// Somebody is hit.
    pub fn hit(&mut self, at: Instant, hit: Hit, until: Option<Instant>) {
        if let Some(fault) = self.fault {
            self.list.push(Strike { at, until, fault, hit });
        }
    }

    /// Somebody is hit by a fault that was planned earlier.
    pub fn late(&mut self, at: Instant, fault: Fault, hit: Hit) {
        self.list.push(Strike { at, until: None, fault, hit });
    }

    /// Everything that lasts has ended.
    pub fn healed(&mut self, at: Instant) {
        for strike in &mut self.list {
            strike.until = strike.until.map(|until| until.min(at));
        }
    }

    /// What was done to the process of a server has ended with it.
    pub fn process_ended(&mut self, at: Instant, server: ServerId) {
        for strike in &mut self.list {
            let of_process = matches!(strike.fault, Fault::NodePause | Fault::NodeSlow);
            if of_process && strike.hit == Hit::Server(server) {
                strike.until = strike.until.map(|until| until.min(at));
            }
        }
    }

    /// All of them.
    pub fn list(&self) -> &[Strike] {
        &self.list
    }
}

impl Strike {
    /// The servers that are hit.
    pub fn servers(&self) -> Vec<ServerId> {
        let mut servers = match &self.hit {
            Hit::Server(server) => vec![*server],
            Hit::Conn(ends) => {
                let server = |party: &Party| match party {
                    Party::Server(server) => Some(*server),
                    Party::Client(_) | Party::Stranger => None,
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

    /// Whom it hit, in words.
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

/// Who does not get anything to whom: whole parts where there are such, else pairs.
pub fn pairs_text(pairs: &[(ServerId, ServerId)]) -> String {
    let names = |part: &BTreeSet<ServerId>| {
        part.iter().map(|id| format!("s{id}")).collect::<Vec<_>>().join(" ")
    };
    let froms: BTreeSet<ServerId> = pairs.iter().map(|(from, _)| *from).collect();
    let tos: BTreeSet<ServerId> = pairs.iter().map(|(_, to)| *to).collect();
    if froms.is_disjoint(&tos) && pairs.len() == froms.len() * tos.len() {
        return format!("{} > {}", names(&froms), names(&tos));
    }
    // In a split everybody is cut off from all that the first is not with.
    let parted =
        |id: &&ServerId| froms.first().is_some_and(|first| pairs.contains(&(*first, **id)));
    let (there, here): (BTreeSet<_>, BTreeSet<_>) = froms.iter().partition(parted);
    let between = |pair: &(ServerId, ServerId)| here.contains(&pair.0) != here.contains(&pair.1);
    if pairs.iter().all(between) && pairs.len() == 2 * here.len() * there.len() {
        return format!("{} | {}", names(&here), names(&there));
    }
    let both = |pair: &(ServerId, ServerId)| pairs.contains(&(pair.1, pair.0));
    let told = pairs.iter().filter(|pair| !both(pair) || pair.0 < pair.1);
    let text = |pair: &(ServerId, ServerId)| {
        format!("s{}{}s{}", pair.0, if both(pair) { "|" } else { ">" }, pair.1)
    };
    told.map(text).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_ends_with_its_process() {
        let mut strikes = Strikes::default();
        for (fault, server) in [(Fault::NodePause, 1), (Fault::DiskSlow, 1), (Fault::NodePause, 2)]
        {
            strikes.begin(fault);
            strikes.hit(Instant(3), Hit::Server(ServerId(server)), Some(Instant(9)));
        }
        strikes.process_ended(Instant(5), ServerId(1));
        let until: Vec<u64> = strikes.list().iter().filter_map(|s| s.until).map(|t| t.0).collect();
        assert_eq!(until, [5, 9, 9]);
    }

    #[test]
    fn parts_are_told_as_parts() {
        let told = |pairs: &[(u64, u64)]| {
            let pairs: Vec<_> = pairs.iter().map(|(a, b)| (ServerId(*a), ServerId(*b))).collect();
            pairs_text(&pairs)
        };
        assert_eq!(told(&[(1, 3), (1, 4), (2, 3), (2, 4)]), "s1 s2 > s3 s4");
        assert_eq!(told(&[(1, 2), (2, 1), (2, 3), (3, 2)]), "s1 s3 | s2");
        let partial = [(1, 2), (2, 1), (2, 3), (3, 2), (3, 1), (1, 3)];
        assert_eq!(told(&partial), "s1|s2 s2|s3 s1|s3");
    }
}
