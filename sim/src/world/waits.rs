//! The wait-for relation between clients and servers, for reports about missing progress.
//!
//! Owns the wording. Must not change the world, nor check anything.

use std::fmt;

use zabkeeper_core::{ServerId, Status};

use super::World;
use crate::check::observe::ClientId;
use crate::clients::client::Client;
use crate::network::stream::Party;
use crate::record::role::Role;
use crate::record::timeline::position;

/// A client or server that waits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Who {
    Client(ClientId),
    Server(ServerId),
}

/// Why a party waits, and for which servers.
struct Wait {
    who: Who,
    /// Empty if it waits for no server.
    whom: Vec<ServerId>,
    why: String,
}

impl World {
    /// One line per waiting party, preceded by the chain that the first one leads to.
    pub(super) fn waits(&self) -> Vec<String> {
        let clients = self.clients.values().filter(|client| !client.is_proven());
        let mut waits: Vec<Wait> = clients.map(|client| self.client_waits(client)).collect();
        waits.extend(self.nodes.keys().map(|server| self.server_waits(*server)));
        let lines = waits.iter().map(|Wait { who, whom, why }| match whom[..] {
            [] => format!("{who} {why}"),
            _ => format!("{who} waits for {}: it {why}", names(whom)),
        });
        chain(&waits).into_iter().chain(lines).collect()
    }

    fn client_waits(&self, client: &Client) -> Wait {
        let server = |party: Party| match party {
            Party::Server(server) => Some(server),
            Party::Client(_) | Party::BadPeer => None,
        };
        let parties = client.conns().filter_map(|conn| self.shared.net.parties(conn));
        let whom = parties.flatten().filter_map(server).collect();
        Wait { who: Who::Client(client.id()), whom, why: client.describe() }
    }

    fn server_waits(&self, id: ServerId) -> Wait {
        let who = Who::Server(id);
        let node = &self.nodes[&id];
        if let Some(fate) = self.shared.outside.get(&id) {
            return Wait {
                who,
                whom: Vec::new(),
                why: format!("is left out of the heal: it {fate}"),
            };
        }
        let Some(status) = node.status() else {
            let why = if node.is_running() { "reads its disk" } else { "is down" };
            return Wait { who, whom: Vec::new(), why: why.to_owned() };
        };
        if let Some(why) = &status.halted {
            return Wait { who, whom: Vec::new(), why: format!("has halted: {why}") };
        }
        let (mut whom, mut why) = self.role_waits(id, &status);
        // Pending work may explain the wait.
        if let Some(unrest) = node.unrest(&self.shared.outside) {
            why.push_str("; ");
            why.push_str(unrest.split_once(": ").map_or(&*unrest, |(_, what)| what));
        }
        let cut = |other: &&ServerId| !self.shared.reach.connects(self.shared.now, id, **other);
        let apart: Vec<ServerId> =
            self.nodes.keys().filter(|o| **o != id).filter(cut).copied().collect();
        if !apart.is_empty() {
            why.push_str(&format!("; it does not reach {}", names(&apart)));
        }
        whom.retain(|other| *other != id);
        Wait { who, whom, why }
    }

    /// The servers that it needs for its role, and its state.
    fn role_waits(&self, id: ServerId, status: &Status) -> (Vec<ServerId>, String) {
        let quorum = self.shared.options.voters().count() / 2 + 1;
        let role = |server: ServerId| self.nodes[&server].status().map(|s| Role::of(&s));
        let those = |test: &dyn Fn(&Status) -> bool| -> Vec<ServerId> {
            let fits = |server: &ServerId| self.nodes[server].status().is_none_or(|s| test(&s));
            self.nodes.keys().copied().filter(fits).collect()
        };
        let state = format!(
            "(epoch {}, log to {}, committed to {})",
            status.current_epoch.0,
            position(status.appended),
            position(status.committed)
        );
        match Role::of(status) {
            Role::Looking | Role::ReadOnly => {
                let leads = |server: &ServerId| role(*server) == Some(Role::Leads);
                let leaders: Vec<ServerId> = self.nodes.keys().copied().filter(leads).collect();
                let whom = if leaders.is_empty() { those(&|_| true) } else { leaders };
                (whom, format!("looks for a leader {state}"))
            }
            Role::Joins => {
                let whom = status.leader.into_iter().collect();
                (whom, format!("wants to follow {state}"))
            }
            Role::Begins => {
                let have = status.synced_followers + 1;
                let whom = those(&|other| other.leader != Some(id));
                (whom, format!("begins to lead with {have} of {quorum} servers {state}"))
            }
            Role::Leads => {
                let behind = those(&|other| other.durable < status.appended);
                let whom = if status.outstanding > 0 { behind } else { Vec::new() };
                (whom, format!("leads {state}"))
            }
            Role::Follows => {
                let writes = status.committed < status.appended;
                let whom = if writes { status.leader.into_iter().collect() } else { Vec::new() };
                (
                    whom,
                    format!(
                        "follows {} {state}",
                        status.leader.map_or(String::new(), |l| format!("s{l}"))
                    ),
                )
            }
            Role::Down => (Vec::new(), "is down".to_owned()),
        }
    }
}

/// Follows the first waiting party to one that waits for no other, or around a cycle.
fn chain(waits: &[Wait]) -> Option<String> {
    let mut at = waits.iter().find(|wait| !wait.whom.is_empty())?;
    let mut seen = vec![at.who];
    let mut text = at.who.to_string();
    loop {
        let Some(next) = at.whom.first().map(|server| Who::Server(*server)) else {
            return Some(format!("{text}, which waits for nobody: it {}", at.why));
        };
        text.push_str(&format!(" waits for {next}"));
        if seen.contains(&next) {
            return Some(format!("{text}: a ring"));
        }
        seen.push(next);
        at = waits.iter().find(|wait| wait.who == next)?;
        if !at.whom.is_empty() {
            text.push_str(", which");
        }
    }
}

fn names(servers: &[ServerId]) -> String {
    servers.iter().map(|server| format!("s{server}")).collect::<Vec<_>>().join(", ")
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Who::Client(client) => write!(f, "client {}", client.0),
            Who::Server(server) => write!(f, "s{server}"),
        }
    }
}
