//! Whether a quorum has confirmed a leader since a sync was requested: the evidence for each sync
//! that a leader answers (C5).
//!
//! Owns the send times of messages that still wait for an answer. Must not depend on how a leader
//! counts ping rounds: any answer proves that its sender followed this leader when the answered
//! message left.

use std::collections::{BTreeMap, VecDeque};

use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::{ConnId, Instant, LinkId, ServerId, Zxid};

use super::catalog::{Checks, Id, Verdict};
use super::zab::Zab;

/// The messages between a leader and one of its learners that wait for answers.
#[derive(Clone, Default, Debug)]
pub(super) struct SyncEvidence {
    /// Send times of unanswered pings and proposals.
    pings: VecDeque<(u64, Instant)>,
    proposals: VecDeque<(Zxid, Instant)>,
    /// Pongs that no ping has echoed yet: send time by the learner's clock, and by the world's.
    pongs: VecDeque<(Instant, Instant)>,
    /// When NEWLEADER was sent, if it is not acknowledged.
    handed_over: Option<Instant>,
    /// When the learner sent each sync request that is not answered; request number 0 belongs to a
    /// revalidation.
    syncs: BTreeMap<(ConnId, u64), Instant>,
}

/// Removes the messages that an answer up to `up_to` covers; returns the send time of the last one.
fn answered<T: Copy + PartialOrd>(asked: &mut VecDeque<(T, Instant)>, up_to: T) -> Option<Instant> {
    let mut last = None;
    while let Some((_, at)) = asked.pop_front_if(|(what, _)| *what <= up_to) {
        last = Some(at);
    }
    last
}

impl SyncEvidence {
    /// Handles a message of the learner; returns the send time of the newest message that it
    /// answers.
    pub(super) fn received(&mut self, message: &PeerMessage, at: Instant) -> Option<Instant> {
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

    /// Handles the echo in the leader's ping; returns the send time of the pong that it names.
    pub(super) fn echoed(&mut self, echo: Instant) -> Option<Instant> {
        answered(&mut self.pongs, echo)
    }

    /// Notes a message that one of the two sends. If it answers a sync, returns when that was
    /// requested.
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
        let Some(since) = view.evidence.said(message, at) else {
            return Ok(());
        };
        let confirmed = &self.servers[&by].confirmed;
        let confirms = |id: ServerId| id == by || confirmed.get(&id) >= Some(&since);
        checks.check(Id::C5, self.voters.most(confirms), || {
            let told = confirmed.iter().map(|(id, at)| format!("server {id} to what left at {at}"));
            let told: Vec<String> = told.collect();
            vec![
                format!("server {by} says at {at} on {link}: {message}; it was asked at {since}"),
                format!("answers that it has had: {}", told.join(", ")),
            ]
        })
    }
}
