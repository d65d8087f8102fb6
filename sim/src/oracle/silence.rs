//! Who goes on serving although it hears nothing of those it needs (Z25).
//!
//! Owns how long one may serve and hear nobody. Must not believe what a server says of its links:
//! only what was read counts, however much has left, and only from when it was sent, however late it was read. Whose machine
//! is gone is told of nothing, and its kernel's buffers take words for it for long.

use std::time::Duration;

use zabkeeper_core::{Instant, ServerId};

use super::catalog::{Id, Tally, Verdict};
use super::ledger::Ledger;

/// What a server may take beyond its limit: it reads its clock once for all that it takes in one turn.
const SLACK: Duration = Duration::from_millis(100);

impl Ledger {
    /// ZAB-17: a leader that has heard of no majority for the limit steps down, and a follower that has not heard of its
    /// leader looks for another. A clock may run at half its speed. `awake` is the end of the server's last pause.
    ///
    /// Not while it takes what others have said: there may be more of it, and nobody is served on it meanwhile.
    pub(super) fn is_not_deaf(
        &mut self,
        tally: &mut Tally,
        id: ServerId,
        (now, awake): (Instant, Instant),
        silence_limit: Duration,
    ) -> Verdict {
        if std::mem::take(&mut self.server(id).catches_up) {
            return Ok(());
        }
        let server = &self.servers[&id];
        let since = server.role_since.max(awake);
        let patience = silence_limit * 2 + SLACK;
        if !server.serves || silence_limit.is_zero() || now.since(since) <= patience {
            return Ok(());
        }
        let hears = |peer: ServerId| {
            let mut links = server.links.values();
            peer == id || links.any(|link| link.peer == peer && now.since(link.spoken) <= patience)
        };
        let enough = match server.follows {
            Some(leader) => hears(leader),
            None => self.voters.most(hears),
        };
        tally.hold(Id::Z25, enough, || {
            let heard: Vec<String> = server
                .links
                .values()
                .map(|link| format!("of server {} what it said at {}", link.peer, link.spoken))
                .collect();
            let limit = format!("and its limit is {silence_limit:?}");
            vec![format!(
                "server {id} serves at {now}, has last heard {}, {limit}",
                heard.join(", ")
            )]
        })
    }
}
