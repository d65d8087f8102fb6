//! One end of a link between servers: what has been sent and received on it, and what still waits
//! for an answer.
//!
//! Owns the messages under way, and the send times of those that wait. Must not depend on how a
//! leader counts ping rounds: any answer proves that its sender followed this leader when the
//! answered message left. Must not check anything.

use std::collections::{BTreeMap, VecDeque};
use std::mem::{self, Discriminant};

use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::{ConnId, Epoch, HistoryStatus, Instant, LinkId, ServerId, Zxid};

/// One end of a link.
#[derive(Clone, Debug)]
pub(super) struct Link {
    pub(super) peer: ServerId,
    /// The last release is spoken on it.
    pub(super) older: bool,
    /// When its `Up` event was handled.
    pub(super) since: Instant,
    /// When the last message on it was handled.
    pub(super) received: Instant,
    /// The latest send time of the messages handled on it.
    pub(super) spoken: Instant,
    /// The latest time at which the peer was certainly alive, as its answers to pings show.
    pub(super) proven: Instant,
    /// Messages that the peer has not handled yet, in order, with their send times.
    pub(super) underway: VecDeque<(MessageKind, Instant)>,
    /// The epoch in the peer's LEADERINFO.
    pub(super) epoch: Option<Epoch>,
    /// The history status in the peer's FOLLOWERINFO.
    pub(super) history_status: Option<HistoryStatus>,
    /// The peer has acknowledged NEWLEADER.
    pub(super) synced: bool,
    /// This end has closed it.
    pub(super) closed: bool,
    /// The last zxid that the peer has acknowledged on it; zero before the first.
    pub(super) acked: Zxid,
    /// The peer has sent FOLLOWERINFO with an accepted epoch below the last possible one; the
    /// leader rejects any other.
    pub(super) comes: bool,
    /// The snapshot that the peer has begun to send.
    pub(super) snapshot: Option<Zxid>,
    /// The messages on it that still wait for answers.
    pub(super) evidence: SyncEvidence,
    /// What this end has sent.
    pub(super) sent: Sent,
}

impl Link {
    /// The link to this peer is up since `at`.
    pub(super) fn new(peer: ServerId, at: Instant) -> Link {
        Link {
            peer,
            older: false,
            since: at,
            received: at,
            spoken: at,
            proven: at,
            underway: VecDeque::new(),
            epoch: None,
            history_status: None,
            synced: false,
            closed: false,
            acked: Zxid(0),
            comes: false,
            snapshot: None,
            evidence: SyncEvidence::default(),
            sent: Sent::default(),
        }
    }

    /// The peer has the leader's history, and certainly no mark in its state file that it may have
    /// lost data: with the mark it acknowledges no proposal.
    pub(super) fn is_complete(&self) -> bool {
        let came = match self.history_status {
            Some(HistoryStatus::Complete) => true,
            Some(HistoryStatus::Uninitialized) => self.sent.empty,
            Some(HistoryStatus::Lost) | None => false,
        };
        self.synced && (came || self.acked > Zxid::ZERO)
    }

    /// Notes the peer's state from its message.
    pub(super) fn note(&mut self, message: &PeerMessage) {
        if let PeerMessage::Leader(FromLeader::LeaderInfo { epoch, .. }) = message {
            self.epoch = Some(*epoch);
        } else if let PeerMessage::Learner(FromLearner::FollowerInfo {
            accepted, history, ..
        }) = message
        {
            self.history_status = Some(history.history_status);
            self.comes = *accepted < Epoch::END;
        } else if let PeerMessage::Learner(FromLearner::AckNewLeader { .. }) = message {
            self.synced = true;
        } else if let PeerMessage::Learner(FromLearner::Ack { zxid }) = message {
            self.acked = self.acked.max(*zxid);
        } else if let PeerMessage::Leader(FromLeader::Snap { zxid, .. }) = message {
            self.snapshot = Some(*zxid);
        }
    }
}

/// The type of a message, without its contents.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum MessageKind {
    Learner(Discriminant<FromLearner>),
    Leader(Discriminant<FromLeader>),
}

impl MessageKind {
    pub(super) fn of(message: &PeerMessage) -> MessageKind {
        match message {
            PeerMessage::Learner(message) => MessageKind::Learner(mem::discriminant(message)),
            PeerMessage::Leader(message) => MessageKind::Leader(mem::discriminant(message)),
        }
    }
}

/// What a learner has sent to its leader, and LEADERINFO.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Sent {
    /// It has acknowledged NEWLEADER.
    pub(super) entered: bool,
    /// The zxid of its last ACK.
    pub(super) acknowledged: Zxid,
    /// This leader has told the peer that there was no data.
    pub(super) empty: bool,
    /// How many syncs of its clients it has forwarded.
    pub(super) syncs: usize,
}

impl Sent {
    pub(super) fn add(&mut self, message: &PeerMessage) {
        if let PeerMessage::Learner(FromLearner::AckNewLeader { .. }) = message {
            self.entered = true;
        } else if let PeerMessage::Learner(FromLearner::Ack { zxid }) = message {
            self.acknowledged = *zxid;
        } else if let PeerMessage::Leader(FromLeader::LeaderInfo { empty, .. }) = message {
            self.empty = *empty;
        } else if let PeerMessage::Learner(FromLearner::Sync { request: 1.., .. }) = message {
            // Request number 0 belongs to a handshake, which no client request waits for.
            self.syncs += 1;
        }
    }
}

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
    /// The same of clients of observers that the learner feeds: server and link of the observer.
    syncs_behind: BTreeMap<(ServerId, LinkId, ConnId, u64), Instant>,
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
        } else if let PeerMessage::Learner(FromLearner::SyncBehind { behind, conn, request }) =
            message
        {
            let sync = (behind.server, behind.link, *conn, *request);
            self.syncs_behind.entry(sync).or_insert(at);
            None
        } else if let PeerMessage::Learner(FromLearner::RevalidateBehind { behind, conn, .. }) =
            message
        {
            self.syncs_behind.entry((behind.server, behind.link, *conn, 0)).or_insert(at);
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
    pub(super) fn sent(&mut self, message: &PeerMessage, at: Instant) -> Option<Instant> {
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
        } else if let PeerMessage::Leader(FromLeader::SyncedBehind { behind, conn, request }) =
            message
        {
            let sync = (behind.server, behind.link, *conn, *request);
            return self.syncs_behind.remove(&sync);
        }
        None
    }
}
