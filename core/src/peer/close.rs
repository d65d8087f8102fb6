//! Why links between servers are closed, and why servers stop leading or following.
//!
//! Owns the reasons and their sentences. Must not decide what follows.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::{Epoch, Zxid};

/// Why a server ends a link with another: for its log, and of no other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum LinkCloseReason {
    /// The other server has broken the protocol.
    Misbehaved(PeerMisbehaved),
    /// The data here and there do not go together, for the reason given, which an operator has to end.
    Incompatible(String),
    /// This server cannot read what the other one needs.
    Unreadable(String),
    /// The other server is silent, or does not acknowledge.
    Silent,
    /// The other server has dialled again since.
    Replaced,
    /// The other server is this one, or no member.
    Stranger,
    /// This server follows another, so it has no use for learners.
    Follows,
    /// This server does not follow the other one any more.
    Unwanted,
    /// This server looks for a leader.
    Looks(StepDownReason),
    /// This server has no room for the other one's snapshot, for the reason given, and asks for it again later.
    NoRoom(String),
}

/// How the other end of a link has broken the protocol. The link is closed; a learner dials again, a follower looks for a leader.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerMisbehaved {
    /// A learner's first message was this one, and not FOLLOWERINFO.
    FirstMessage(String),
    /// It sent this message in a phase that does not admit it, or with content that only others may send.
    OutOfTurn(String),
    /// A leader proposed an epoch out of turn, or far beyond those that are known.
    Epoch {
        /// The epoch.
        proposed: Epoch,
        /// The highest one that is known here.
        known: Epoch,
    },
    /// A leader began this epoch with more than a state file holds.
    NewLeaderTooLong(Epoch),
    /// A leader committed a position out of turn, or one that the history here does not reach.
    Committed {
        /// The position.
        zxid: Zxid,
        /// What is committed here.
        from: Zxid,
        /// Where the history here ends.
        to: Zxid,
    },
    /// A learner acknowledged a position that it was not sent.
    AckNotSent(Zxid),
    /// A learner answered a ping that was not sent.
    PongNotAsked {
        /// The ping.
        round: u64,
        /// The last one that was sent.
        last: u64,
    },
    /// What a leader sent does not continue the history here, for the reason given.
    History(String),
}

/// Why a server looks for a leader again.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum StepDownReason {
    /// The leader was not reached, or its link has ended.
    Leader,
    /// The leader was in an older epoch than this server has promised.
    Outdated,
    /// No quorum has followed this server in time.
    NotEstablished,
    /// This server has led, and no quorum is connected any more.
    Quorum,
    /// A learner has a newer history, or a higher promise: it should lead.
    Behind,
    /// The numbers of this epoch are used up.
    Epoch,
    /// A later election is under way.
    Overtaken,
    /// All epochs are used up.
    LastEpoch,
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
            LinkCloseReason::Stranger => write!(f, "the other end is no other voter"),
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
            StepDownReason::LastEpoch => {
                "all epochs are used up: move the data directories of all servers away, and import their data anew"
            }
        })
    }
}
