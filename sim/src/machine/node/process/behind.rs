//! Learners that a leader is synchronizing: for them it may keep snapshots that it would purge.
//!
//! Owns the set of their links, derived from the messages on them. Must not look into the server.

use std::collections::BTreeSet;

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::{Input, LinkId, ServerId};

/// Links of learners that are not synchronized yet.
#[derive(Debug, Default)]
pub(super) struct Behind(BTreeSet<LinkId>);

impl Behind {
    /// Notes an input of the server. A learner has to be synchronized once it has reported the end
    /// of its log.
    pub(super) fn on_input(&mut self, input: &Input) {
        let Input::Peer(link, event) = input else {
            return;
        };
        if let PeerEvent::Message(
            PeerMessage::Learner(FromLearner::AckEpoch { .. })
            | PeerMessage::Learner(FromLearner::SyncAt { .. }),
        ) = event
        {
            self.0.insert(*link);
        } else if matches!(event, PeerEvent::Down) {
            self.0.remove(link);
        }
    }

    /// Notes commands of the server. NEWLEADER follows the last transaction that a learner lacks.
    pub(super) fn on_commands(&mut self, commands: &[PeerCommand]) {
        for command in commands {
            if let PeerCommand::Send(link, PeerMessage::Leader(FromLeader::NewLeader { .. }))
            | PeerCommand::Close(link, _) = command
            {
                self.0.remove(link);
            }
        }
    }

    /// The server purges less than it may: is there a learner that needs it?
    pub(super) fn is_somebody(&self, id: ServerId) -> Result<(), String> {
        if self.0.is_empty() {
            return Err(format!("s{id} keeps old snapshots for a learner, and brings none in"));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::{Instant, Zxid};

    use super::*;

    const LINK: LinkId = LinkId(3);

    fn learner(message: PeerMessage) -> Behind {
        let mut behind = Behind::default();
        behind.on_input(&Input::Peer(LINK, PeerEvent::Message(message)));
        behind
    }

    /// E4.
    #[test]
    fn snapshots_kept_for_no_learner_are_reported() {
        let at = || learner(PeerMessage::Learner(FromLearner::SyncAt { last: Zxid(5), nonce: 0 }));
        assert!(at().is_somebody(ServerId(1)).is_ok());
        let mut gone = at();
        gone.on_input(&Input::Peer(LINK, PeerEvent::Down));
        assert!(gone.is_somebody(ServerId(1)).is_err());
        let mut has_all = at();
        let epoch = zabkeeper_core::Epoch(1);
        let identity = zabkeeper_core::Seed::from(1).identity(epoch);
        let (voters, established, nonces) = ([].into(), [].into(), Vec::new());
        let new_leader = PeerMessage::Leader(FromLeader::NewLeader {
            epoch,
            voters,
            established,
            identity,
            nonces,
        });
        has_all.on_commands(&[PeerCommand::Send(LINK, new_leader)]);
        assert!(has_all.is_somebody(ServerId(1)).is_err());
        let pong = learner(PeerMessage::Learner(FromLearner::Pong {
            round: 1,
            sent: Instant(0),
            echo: Instant(0),
            touched: Vec::new(),
            digests: Vec::new(),
        }));
        assert!(pong.is_somebody(ServerId(1)).is_err());
    }
}
