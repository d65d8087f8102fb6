//! Which fault hit whom, and for how long.
//!
//! Owns the record. It is kept in every run: there are few of them.

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
    /// Everybody.
    All,
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
            Hit::Client(_) | Hit::All => Vec::new(),
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
            Hit::Conn(ends) => ends.map(party).join("-"),
            Hit::Pairs(pairs) => pairs_text(pairs),
            Hit::All => "all".to_owned(),
        }
    }
}

fn party(party: Party) -> String {
    match party {
        Party::Server(server) => format!("s{server}"),
        Party::Client(client) => format!("client {}", client.0),
        Party::Stranger => "somebody".to_owned(),
    }
}

/// Pairs with the same first are told together, and those that are cut both ways once.
fn pairs_text(pairs: &[(ServerId, ServerId)]) -> String {
    let both = |pair: &(ServerId, ServerId)| pairs.contains(&(pair.1, pair.0));
    let told = pairs.iter().filter(|pair| !both(pair) || pair.0 < pair.1);
    let text = |pair: &(ServerId, ServerId)| {
        format!("s{}{}s{}", pair.0, if both(pair) { "|" } else { ">" }, pair.1)
    };
    told.map(text).collect::<Vec<_>>().join(" ")
}
