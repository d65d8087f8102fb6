//! The notifications on connections that were sent before the heal and have not been received.
//!
//! Owns which ones these are, by sender and receiver. Must not influence the run.

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::ServerId;
use zabkeeper_core::peer::Notification;

/// See the module.
#[derive(Debug, Default)]
pub struct Unreceived {
    /// By sender and receiver, oldest first.
    sent: BTreeMap<(ServerId, ServerId), VecDeque<Notification>>,
}

impl Unreceived {
    /// A notification is sent before the heal.
    pub fn sent(&mut self, from: ServerId, to: ServerId, what: Notification) {
        self.sent.entry((from, to)).or_default().push_back(what);
    }

    /// A notification is received. Returns whether it was sent before the heal. Those sent before
    /// the last one that equals it are lost, or replaced by it: a connection keeps their order.
    pub fn received(&mut self, from: ServerId, to: ServerId, what: Notification) -> bool {
        let Some(sent) = self.sent.get_mut(&(from, to)) else { return false };
        let Some(place) = sent.iter().rposition(|other| *other == what) else { return false };
        sent.drain(..=place);
        true
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::peer::{ServerState, Vote};
    use zabkeeper_core::{Epoch, HistoryInfo, HistoryStatus, Zxid};

    use super::*;

    #[test]
    fn received_notification_ends_those_before_it() {
        let (one, other) = (ServerId(1), ServerId(2));
        let vote = Vote { epoch: Epoch(1), zxid: Zxid::ZERO, candidate: one };
        let (server_state, history) =
            (ServerState::Looking, HistoryInfo::new(HistoryStatus::Complete, Epoch(1)));
        let notification = |round| Notification { server_state, round, vote, history, ensemble: 0 };
        let mut unreceived = Unreceived::default();
        for round in 1..=3 {
            unreceived.sent(one, other, notification(round));
        }
        assert!(!unreceived.received(other, one, notification(1)));
        assert!(unreceived.received(one, other, notification(2)));
        assert!(!unreceived.received(one, other, notification(1)));
        assert!(unreceived.received(one, other, notification(3)));
        assert!(!unreceived.received(one, other, notification(3)));
    }
}
