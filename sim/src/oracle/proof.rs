//! Who has confirmed a leader, and since when: the evidence behind each `sync` that a leader answers (C5).
//!
//! Owns when each question left that is not answered yet. Must not know how a leader counts
//! rounds: an answer proves that its sender followed this leader when the question left, whatever was asked.

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::{ConnId, Instant, LinkId, ServerId, Zxid};

use super::catalog::{Id, Tally, Verdict};
use super::ledger::Ledger;

/// What a leader and one of its learners have asked each other on a link.
#[derive(Clone, Default, Debug)]
pub(super) struct Proof {
    /// When pings, and transactions, have left that are not answered yet.
    pings: VecDeque<(u64, Instant)>,
    proposals: VecDeque<(Zxid, Instant)>,
    /// When answers to pings have left of which the leader has not said yet that it has them, by the learner's clock.
    pongs: VecDeque<(Instant, Instant)>,
    /// When the learner was asked to take over the epoch's history.
    handed_over: Option<Instant>,
    /// When the learner asked for a sync that is not answered yet; the number is zero for whoever goes on with a session.
    syncs: BTreeMap<(ConnId, u64), Instant>,
}

/// When the last of those left that a word answers.
fn answered<T: Copy + PartialOrd>(asked: &mut VecDeque<(T, Instant)>, up_to: T) -> Option<Instant> {
    let mut last = None;
    while let Some((_, at)) = asked.pop_front_if(|(what, _)| *what <= up_to) {
        last = Some(at);
    }
    last
}

impl Proof {
    /// The learner has spoken. Says when the newest question left that this answers.
    pub(super) fn heard(&mut self, message: &PeerMessage, at: Instant) -> Option<Instant> {
        if let PeerMessage::Learner(FromLearner::Pong { round, .. }) = message {
            answered(&mut self.pings, *round)
        } else if let PeerMessage::Learner(FromLearner::Ack { zxid }) = message {
            answered(&mut self.proposals, *zxid)
        } else if let PeerMessage::Learner(FromLearner::AckNewLeader { .. }) = message {
            self.handed_over.take()
        } else if let PeerMessage::Learner(FromLearner::Sync { conn, request }) = message {
            self.syncs.entry((*conn, *request)).or_insert(at);
            None
        } else if let PeerMessage::Learner(FromLearner::Revalidate { conn, .. }) = message {
            self.syncs.entry((*conn, 0)).or_insert(at);
            None
        } else {
            None
        }
    }

    /// The leader says which of the learner's answers it had. Says when that one left.
    pub(super) fn echoed(&mut self, echo: Instant) -> Option<Instant> {
        answered(&mut self.pongs, echo)
    }

    /// One of the two speaks. Says when a sync was asked for that it answers.
    fn said(&mut self, message: &PeerMessage, at: Instant) -> Option<Instant> {
        if let PeerMessage::Leader(FromLeader::Ping { round, .. }) = message {
            self.pings.push_back((*round, at));
        } else if let PeerMessage::Learner(FromLearner::Pong { sent, .. }) = message {
            self.pongs.push_back((*sent, at));
        } else if let PeerMessage::Leader(FromLeader::Proposal(entry)) = message {
            self.proposals.push_back((entry.zxid, at));
        } else if let PeerMessage::Leader(FromLeader::NewLeader { .. }) = message {
            self.handed_over = Some(at);
        } else if let PeerMessage::Leader(FromLeader::Synced { conn, request }) = message {
            return self.syncs.remove(&(*conn, *request));
        }
        None
    }
}

impl Ledger {
    /// CONS-04: a leader answers a sync once a quorum has answered something that left after the sync had come. Until then
    /// there may be another leader.
    pub(super) fn is_confirmed(
        &mut self,
        tally: &mut Tally,
        by: ServerId,
        link: LinkId,
        message: &PeerMessage,
        at: Instant,
    ) -> Verdict {
        let Some(view) = self.server(by).links.get_mut(&link) else {
            return Ok(());
        };
        let Some(since) = view.proof.said(message, at) else {
            return Ok(());
        };
        let confirmed = &self.servers[&by].confirmed;
        let confirms = |id: ServerId| id == by || confirmed.get(&id) >= Some(&since);
        tally.hold(Id::C5, self.voters.most(confirms), || {
            let told = confirmed.iter().map(|(id, at)| format!("server {id} to what left at {at}"));
            let told: Vec<String> = told.collect();
            vec![
                format!("server {by} says at {at} on {link}: {message}; it was asked at {since}"),
                format!("answers that it has had: {}", told.join(", ")),
            ]
        })
    }
}
