//! Why links between servers are closed, and why servers stop leading or following.
//!
//! Owns the reasons and their texts. Must not decide what a server does then.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Zxid};

/// Why a server closes a link to another one: logged, without any other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LinkCloseReason {
    /// The other server has broken the protocol.
    Misbehaved(PeerMisbehaved),
    /// The data of the two servers are incompatible, for the given reason; an operator must
    /// intervene.
    Incompatible(String),
    /// This server cannot read the log or the snapshot that the other one needs.
    Unreadable(String),
    /// The other server is silent, or does not acknowledge.
    Silent,
    /// The other server has dialled a newer link.
    Replaced,
    /// The other end is this server itself, or not in the configuration.
    NotAMember,
    /// This server is a follower, so it accepts no learners.
    Follows,
    /// This server is an observer, so it never leads.
    HasNoVote,
    /// This server does not follow the other one, or no longer does.
    Unwanted,
    /// This server looks for a leader, for the given reason.
    Looks(StepDownReason),
    /// This server has no room for the other one's snapshot, for the given reason, and will ask
    /// again later.
    NoRoom(String),
}

/// How the other end of a link has broken the protocol. A leader then closes the link of that
/// learner; a follower closes its link and looks for a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMisbehaved {
    /// A learner's first message was this one instead of FOLLOWERINFO.
    FirstMessage(String),
    /// The other end sent this message in a phase that does not admit it, or with content that it
    /// may not send.
    OutOfTurn(String),
    /// A leader proposed an epoch in a phase that does not admit it, or one that is too far above
    /// the known ones.
    Epoch {
        /// The proposed epoch.
        proposed: Epoch,
        /// The highest epoch that this server knows.
        known: Epoch,
    },
    /// A leader's NEWLEADER for this epoch has no ensemble id, or more voters or nonces than a
    /// state file holds.
    NewLeaderTooLong(Epoch),
    /// A leader committed a zxid in a phase that does not admit it, or one outside this server's
    /// log.
    Committed {
        /// The committed zxid.
        zxid: Zxid,
        /// The last zxid that is committed on this server.
        from: Zxid,
        /// The last zxid in this server's log.
        to: Zxid,
    },
    /// A learner acknowledged a zxid that was not sent to it.
    AckNotSent(Zxid),
    /// A learner answered a ping that was not sent.
    PongNotAsked {
        /// The ping round in the answer.
        round: u64,
        /// The round of the last ping that was sent.
        last: u64,
    },
    /// The leader's messages do not continue this server's history, for the given reason.
    History(String),
}

/// Why a server looks for a leader again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StepDownReason {
    /// The leader was not reached, or its link has ended.
    Leader,
    /// The leader's epoch is older than the one that this server has promised.
    Outdated,
    /// No quorum has followed this server in time.
    NotEstablished,
    /// This server has led, but no quorum is connected any more.
    Quorum,
    /// A learner has a newer history or a higher accepted epoch, so it should lead.
    Behind,
    /// All zxids of this epoch are used up.
    Epoch,
    /// A later election is under way.
    Overtaken,
    /// All epochs are used up.
    LastEpoch,
    /// This server has led, and the new configuration gives it no vote.
    Removed,
    /// This server has led, and is to stop.
    Stops,
    /// The leader has handed leadership over.
    HandedOver,
    /// This server has led, and others commit what its disk has not stored for `syncLimit`.
    SlowDisk,
}

impl LinkCloseReason {
    /// A follower's leader belongs to the ensemble `theirs`, and the follower to `ours`.
    pub(crate) fn other_ensemble(theirs: u64, ours: u64) -> LinkCloseReason {
        LinkCloseReason::Incompatible(format!(
            "the leader belongs to ensemble {theirs:#018x}, and this server to {ours:#018x}"
        ))
    }
}

impl From<PeerMisbehaved> for LinkCloseReason {
    fn from(what: PeerMisbehaved) -> LinkCloseReason {
        LinkCloseReason::Misbehaved(what)
    }
}

impl fmt::Display for LinkCloseReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LinkCloseReason::Misbehaved(what) => what.fmt(f),
            LinkCloseReason::Incompatible(what) | LinkCloseReason::Unreadable(what) => {
                f.write_str(what)
            }
            LinkCloseReason::Silent => {
                write!(f, "the other server is silent or does not acknowledge")
            }
            LinkCloseReason::Replaced => write!(f, "the other server has dialled again since"),
            LinkCloseReason::NotAMember => write!(f, "the other end is no other member"),
            LinkCloseReason::HasNoVote => {
                write!(f, "this server is an observer and leads nobody")
            }
            LinkCloseReason::Follows => write!(f, "this server follows another"),
            LinkCloseReason::Unwanted => {
                write!(f, "this server does not follow the other one any more")
            }
            LinkCloseReason::Looks(lost) => write!(f, "this server looks for a leader: {lost}"),
            LinkCloseReason::NoRoom(lacks) => {
                write!(f, "this server has no room for its snapshot: {lacks}")
            }
        }
    }
}

impl fmt::Display for PeerMisbehaved {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerMisbehaved::FirstMessage(message) => write!(f, "its first message is {message}"),
            PeerMisbehaved::OutOfTurn(message) => write!(f, "it sent out of turn: {message}"),
            PeerMisbehaved::Epoch { proposed, known } => {
                write!(f, "it proposed epoch {proposed} out of turn, at {known}")
            }
            PeerMisbehaved::NewLeaderTooLong(epoch) => {
                write!(f, "it began epoch {epoch} with more than a state file holds")
            }
            PeerMisbehaved::Committed { zxid, from, to } => {
                write!(f, "it committed {zxid} out of turn, at {from} to {to}")
            }
            PeerMisbehaved::AckNotSent(zxid) => {
                write!(f, "it acknowledged {zxid}, which it was not sent")
            }
            PeerMisbehaved::PongNotAsked { round, last } => {
                write!(f, "it answered ping {round}, and the last was {last}")
            }
            PeerMisbehaved::History(what) => write!(f, "what it sent does not fit: {what}"),
        }
    }
}

impl fmt::Display for StepDownReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            StepDownReason::Leader => "the link with its leader is gone",
            StepDownReason::Outdated => "the other one's epoch is older than its promise",
            StepDownReason::NotEstablished => "no quorum has followed it in time",
            StepDownReason::Quorum => "it has lost its quorum",
            StepDownReason::Behind => "a learner knows more than it does",
            StepDownReason::Epoch => "its epoch is used up",
            StepDownReason::Overtaken => "a later election is under way",
            StepDownReason::Removed => "the new configuration gives it no vote",
            StepDownReason::Stops => "it is to stop, and hands leadership over",
            StepDownReason::SlowDisk => {
                "its disk is slower than those of a quorum by more than syncLimit, so it hands \
                 leadership over: look at that disk"
            }
            StepDownReason::HandedOver => "its leader has handed leadership over",
            StepDownReason::LastEpoch => {
                "all epochs are used up: move the data directories of all servers away, and import \
                 their data anew"
            }
        })
    }
}
