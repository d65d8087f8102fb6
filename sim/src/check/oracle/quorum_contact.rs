//! Servers that continue to serve without messages from their leader or a majority (Z25).
//!
//! Owns how long a server may serve without such messages. Must not trust what a server reports of
//! its links: only messages that it has handled count, and only from their send time, however late
//! it handled them. A peer whose machine has lost power closes no link, and the local kernel goes
//! on buffering for it.

use std::time::Duration;

use zabkeeper_core::{Instant, ServerId};

use super::catalog::{Checks, Id, Verdict};
use super::zab::Zab;

/// Allowance beyond the limit: a server reads its clock once for all inputs of one turn.
const SLACK: Duration = Duration::from_millis(100);

impl Zab {
    /// ZAB-17, Z25: a leader without messages of a majority for the limit steps down, and a
    /// follower without messages of its leader looks for another one. A clock may run at half
    /// speed. `awake` is the end of the server's last pause.
    ///
    /// Steps that handle inputs from links, elections or the disk are exempt: more messages may be
    /// queued, and such a step serves no client.
    pub(super) fn has_quorum_contact(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        (now, awake): (Instant, Instant),
        silence_limit: Duration,
    ) -> Verdict {
        if std::mem::take(&mut self.server(id).catches_up) {
            return Ok(());
        }
        let server = &self.servers[&id];
        let since = server.role_since.max(awake);
        let limit = silence_limit * 2 + SLACK;
        if !server.serves || silence_limit.is_zero() || now.since(since) <= limit {
            return Ok(());
        }
        let hears = |peer: ServerId| {
            let mut links = server.links.values();
            peer == id || links.any(|link| link.peer == peer && now.since(link.spoken) <= limit)
        };
        let enough = match server.follows {
            // A follower may stand between an observer and the leader.
            Some(_) if !self.voters_of(id).contains(id) => {
                server.links.values().any(|link| now.since(link.spoken) <= limit)
            }
            Some(leader) => hears(leader),
            None => self.quorum_of(id).most(hears),
        };
        checks.check(Id::Z25, enough, || {
            let received: Vec<String> = server
                .links
                .values()
                .map(|link| format!("of server {} what it sent at {}", link.peer, link.spoken))
                .collect();
            let limit = format!("and its limit is {silence_limit:?}");
            vec![format!(
                "server {id} serves at {now}, has last received {}, {limit}",
                received.join(", ")
            )]
        })
    }
}
