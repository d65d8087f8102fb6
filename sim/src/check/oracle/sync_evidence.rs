//! Whether a quorum has confirmed a leader since a sync was requested: the evidence for each sync
//! that a leader answers (C5).
//!
//! Owns the check. Must not collect the evidence: `link` does.

use zabkeeper_core::peer::PeerMessage;
use zabkeeper_core::{Instant, LinkId, ServerId};

use super::catalog::{Checks, Id, Verdict};
use super::zab::Zab;

impl Zab {
    /// CONS-04, C5: a leader answers a sync only after a quorum has answered messages that left
    /// after the sync arrived. Before that, another leader may exist.
    pub(super) fn is_confirmed(
        &mut self,
        checks: &mut Checks,
        by: ServerId,
        link: LinkId,
        message: &PeerMessage,
        at: Instant,
    ) -> Verdict {
        let Some(view) = self.server(by).links.get_mut(&link) else {
            return Ok(());
        };
        let Some(since) = view.evidence.sent(message, at) else {
            return Ok(());
        };
        if !self.servers[&by].acts_as_leader() {
            // It relays the answer of its leader, which was checked.
            return Ok(());
        }
        let confirmed = &self.servers[&by].confirmed;
        let confirms = |id: ServerId| id == by || confirmed.get(&id) >= Some(&since);
        // The leader may have logged a configuration after the quorum had confirmed it, while the
        // sync waited for the commit (seed 0x2b5d2b270068 of the swarm at 2b5d2b2).
        let by_now = self.quorum_of(by).most(confirms);
        let confirmed_before = || self.voters_in_force(by).most(confirms);
        checks.check(Id::C5, by_now || confirmed_before(), || {
            let answers =
                confirmed.iter().map(|(id, at)| format!("server {id} to what left at {at}"));
            let answers: Vec<String> = answers.collect();
            vec![
                format!("server {by} says at {at} on {link}: {message}; it was asked at {since}"),
                format!("answers that it has had: {}", answers.join(", ")),
            ]
        })
    }
}
