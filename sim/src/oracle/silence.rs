//! Who goes on serving although it hears nothing of those it needs (Z25).
//!
//! Owns how long one may serve and hear nobody. Must not believe what a server says of its links:
//! only what has arrived counts, however much has left. Whose machine is gone is told of nothing, and its kernel's
//! buffers take words for it for long.

use std::time::Duration;

use zabkeeper_core::{Instant, ServerId};

use super::catalog::{Id, Tally, Verdict};
use super::ledger::Ledger;

/// What a server may take beyond its limit to act: a step may be slow, and the one that looks stands behind others.
const SLACK: Duration = Duration::from_secs(2);

impl Ledger {
    /// ZAB-17: a leader that has heard of no majority for the limit steps down, and a follower that has not heard of its
    /// leader looks for another. A clock may run at half its speed. `awake` is the end of the server's last pause.
    pub(super) fn is_not_deaf(
        &self,
        tally: &mut Tally,
        id: ServerId,
        (now, awake): (Instant, Instant),
        sync_limit: Duration,
    ) -> Verdict {
        let server = &self.servers[&id];
        let since = server.role_since.max(awake);
        let patience = sync_limit * 2 + SLACK;
        if !server.serves || sync_limit.is_zero() || now.since(since) <= patience {
            return Ok(());
        }
        let hears = |peer: ServerId| {
            let mut links = server.links.values();
            peer == id || links.any(|link| link.peer == peer && now.since(link.heard) <= patience)
        };
        let enough = match server.follows {
            Some(leader) => hears(leader),
            None => self.voters.most(hears),
        };
        tally.hold(Id::Z25, enough, || {
            let heard: Vec<String> = server
                .links
                .values()
                .map(|link| format!("of server {} at {}", link.peer, link.heard))
                .collect();
            let limit = format!("and its limit is {sync_limit:?}");
            vec![format!(
                "server {id} serves at {now}, has last heard {}, {limit}",
                heard.join(", ")
            )]
        })
    }
}
