//! Conditions that must occur in some runs, because the oracles prove nothing in uneventful ones.
//!
//! Owns the list. The simulator detects the conditions from what it alone can observe, and counts
//! them like marks. Must not influence the run.

use storage_fs::Note;

/// A condition that must occur sometimes; see the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "`sentence` is the documentation")]
pub enum Sometimes {
    TwoLeaders,
    NobodyUp,
    UncommittedCut,
    LeaderEndsUncommitted,
    FarBehind,
    TornWrite,
    PromiseLost,
    RecoveredStateSlot,
    RecoveredTornBatch,
    RecoveredOlderSnapshot,
    RecoveredReplacedLog,
    DamageRefused,
    Grown,
    OutputBlocked,
    EventsUntaken,
    RequestsWait,
    HandshakeLate,
    AnswerInParts,
    CommandRefused,
    Reconfigured,
    Upgraded,
    Downgraded,
    OlderServes,
    OlderRefused,
}

impl Sometimes {
    /// All conditions, in order.
    pub const ALL: [Sometimes; 24] = [
        Sometimes::TwoLeaders,
        Sometimes::NobodyUp,
        Sometimes::UncommittedCut,
        Sometimes::LeaderEndsUncommitted,
        Sometimes::FarBehind,
        Sometimes::TornWrite,
        Sometimes::PromiseLost,
        Sometimes::RecoveredStateSlot,
        Sometimes::RecoveredTornBatch,
        Sometimes::RecoveredOlderSnapshot,
        Sometimes::RecoveredReplacedLog,
        Sometimes::DamageRefused,
        Sometimes::Grown,
        Sometimes::OutputBlocked,
        Sometimes::EventsUntaken,
        Sometimes::RequestsWait,
        Sometimes::HandshakeLate,
        Sometimes::AnswerInParts,
        Sometimes::CommandRefused,
        Sometimes::Reconfigured,
        Sometimes::Upgraded,
        Sometimes::Downgraded,
        Sometimes::OlderServes,
        Sometimes::OlderRefused,
    ];

    /// The condition in words.
    pub fn sentence(self) -> &'static str {
        match self {
            Sometimes::TwoLeaders => "two servers serve as leaders at once",
            Sometimes::NobodyUp => "no server is up, after some were",
            Sometimes::UncommittedCut => "a follower receives TRUNC for transactions of its log",
            Sometimes::LeaderEndsUncommitted => {
                "a leader ends with proposals that it has not committed"
            }
            Sometimes::FarBehind => "a client asks a server that is 100 transactions behind",
            Sometimes::TornWrite => "a power failure keeps a part of a write",
            Sometimes::PromiseLost => "a server ends before its promise of an epoch is durable",
            Sometimes::RecoveredStateSlot => "recovery finds one slot of the state file lost",
            Sometimes::RecoveredTornBatch => "recovery cuts off a torn batch",
            Sometimes::RecoveredOlderSnapshot => "recovery sets a damaged snapshot aside",
            Sometimes::RecoveredReplacedLog => {
                "recovery finds a leader's snapshot beside the log that it replaces"
            }
            Sometimes::Grown => "an ensemble has grown, and its new servers serve",
            Sometimes::OutputBlocked => "a socket takes no more of what is queued for its client",
            Sometimes::EventsUntaken => "a client is cut off as it does not take its events",
            Sometimes::RequestsWait => "requests wait because of a bound on those of all clients",
            Sometimes::HandshakeLate => {
                "a client is disconnected because its handshake does not come in time"
            }
            Sometimes::AnswerInParts => "an answer to an operator takes several turns",
            Sometimes::CommandRefused => "the whitelist refuses a command of an operator",
            Sometimes::Reconfigured => "a configuration that a client asked for comes into force",
            Sometimes::Upgraded => "an operator upgrades a server of the last release",
            Sometimes::Downgraded => "an operator returns a server to the last release",
            Sometimes::OlderServes => "a server of the last release begins to serve",
            Sometimes::OlderRefused => {
                "a leader refuses a server that cannot read the configuration in the log"
            }
            Sometimes::DamageRefused => "recovery refuses a disk that is damaged",
        }
    }
}

/// The condition for a recovery note, if it occurs often enough. Old segments set aside are rare:
/// damage hits the newest segment, which counts as old only if an empty later one exists.
pub fn note_of_repair(note: &Note) -> Option<Sometimes> {
    match note {
        Note::StateSlotLost => Some(Sometimes::RecoveredStateSlot),
        Note::TornBatch { .. } => Some(Sometimes::RecoveredTornBatch),
        Note::SnapshotSetAside { .. } => Some(Sometimes::RecoveredOlderSnapshot),
        Note::LogReplaced { .. } => Some(Sometimes::RecoveredReplacedLog),
        Note::OldSegmentSetAside { .. } => None,
    }
}
