//! Whether a quorum has confirmed a leader since a sync was requested: the evidence for each sync
//! that a leader answers (C5).
//!
//! Owns the check. Must not collect the evidence: `link` does.

use zabkeeper_core::peer::PeerMessage;
use zabkeeper_core::{Instant, LinkId, ServerId};

use super::catalog::{Checks, Id, Verdict};
use super::zab::{Server, Zab};

impl Zab {
    /// Notes up to when a quorum agrees with a leader that has handled a message. A later quorum
    /// may have other members while a sync waits for a commit: the leader has logged a
    /// configuration (seed 0x2b5d2b270068 of the swarm at 2b5d2b2), or the other one of two voters
    /// is back (QV-03; seed 0x1129010001b2 at 1ee79f4).
    pub(super) fn note_agreement(&mut self, leader: ServerId, at: Instant) {
        if !self.servers[&leader].acts_as_leader() {
            return;
        }
        let (quorum, confirmed) = (self.quorum_of(leader), &self.servers[&leader].confirmed);
        let agrees =
            |since: Instant| quorum.most(|id| id == leader || confirmed.get(&id) >= Some(&since));
        let agreed = confirmed.values().copied().chain([at]).filter(|since| agrees(*since)).max();
        let server = self.server(leader);
        server.agreed = agreed.unwrap_or_default().max(server.agreed);
    }

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
        self.note_agreement(by, at);
        let Server { confirmed, agreed, .. } = &self.servers[&by];
        checks.check(Id::C5, *agreed >= since, || {
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
