//! Coverage marks: one per notable branch of the core, and sets of them.
//!
//! Owns the names and meanings of the marks. Must not influence any behaviour: the simulator counts
//! which marks it reaches, and aims its faults at them.

use serde::{Deserialize, Serialize};

macro_rules! marks {
    ($(#[doc = $sentence:literal] $name:ident,)*) => {
        /// A notable branch of the core. Each name begins with its area.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
        #[repr(u8)]
        pub enum Mark {
            $(#[doc = $sentence] $name,)*
        }

        const COUNT: usize = [$(stringify!($name)),*].len();

        impl Mark {
            /// All marks, in order.
            pub const ALL: [Mark; COUNT] = [$(Mark::$name),*];

            /// What happened when the branch was taken, as text.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Mark::$name => $sentence.trim_ascii_start(),)*
                }
            }
        }
    };
}

marks! {
    /// the only server elects itself
    ElectionAlone,
    /// a leader has the promises of a quorum for its epoch
    DiscoveryPromised,
    /// a leader is established and serves
    BroadcastBegun,
    /// a new leader commits what its initial history had and nobody knew to be committed
    HistoryReplayed,
    /// a client connects while nobody leads, and waits
    ConnHeld,
    /// a client has waited for a leader for too long
    ConnHeldTooLong,
    /// a session is asked for
    SessionNew,
    /// a session goes on over a new connection
    SessionReattached,
    /// a new connection of a session closes the older one
    SessionTakenOver,
    /// a session that has ended, or a wrong password, is refused
    SessionRefused,
    /// a session is ended because its client was silent
    SessionExpired,
    /// a session has ended, by its client or for its silence
    SessionClosed,
    /// a client has seen more than this server, which cannot serve it
    ClientAhead,
    /// a read waits for an earlier write of its connection
    ReadBehindWrite,
    /// a write cannot be done, and becomes an error in the log
    WriteRefused,
    /// several transactions are committed in one step
    CommitBatch,
    /// a watch fires
    WatchFired,
    /// a watch that is set again fires at once
    SetWatchesFired,
    /// a snapshot of the own tree is begun
    SnapshotBegun,
    /// nodes change while a snapshot is written, and their old states are kept for it
    SnapshotSetAside,
    /// a snapshot of the own tree is durable
    SnapshotDone,
    /// snapshots and logs that newer ones replace are removed
    SnapshotPurged,
    /// a request cannot be read
    RequestUndecodable,
    /// a request of no known kind is refused
    RequestUnknown,
    /// a request comes behind the end of its session
    RequestOnClosingSession,
    /// clients are not read because the disk is behind
    PressurePaused,
    /// an error of the disk halts the server
    DiskFailed,
    /// a committed transaction does not fit the state, and halts the server
    Inapplicable,
    /// an epoch has no counters left, and a new one is needed
    EpochUsedUp,
    /// a server finds itself elected
    ElectionWon,
    /// a server finds somebody else elected
    ElectionJoined,
    /// the server sends its vote again, because no leader was elected
    ElectionResent,
    /// a learner asks a server that does not lead yet
    LinkEarly,
    /// a learner has promised a later epoch, so the leader gives up
    LeaderOutrun,
    /// a learner has a later history, so the leader gives up
    LeaderBehind,
    /// no quorum came in time, so the leader gives up
    LeaderNotEstablished,
    /// a follower has received nothing from its leader in time
    LeaderSilent,
    /// what the leader says cannot be followed
    LeaderRefused,
    /// the leader cannot be reached
    LeaderUnreachable,
    /// a learner is in step, and may serve
    LearnerJoined,
    /// a leader has received nothing from a learner in time
    LearnerSilent,
    /// what a learner says cannot be
    LearnerRefused,
    /// a leader has no quorum any more
    QuorumLost,
    /// a learner had promised this epoch before, which proves nothing
    PromiseOld,
    /// a leader asks for an older epoch than was promised
    PromiseRefused,
    /// a server finds its disk empty where others have a history
    FoundEmpty,
    /// a server whose disk was empty has the history again, and may count
    Refilled,
    /// a learner lacks nothing
    SyncDiffEmpty,
    /// a learner gets the transactions that it lacks
    SyncDiff,
    /// what a learner lacks is read from the log on disk
    SyncFromDisk,
    /// a learner must cut its log
    SyncTrunc,
    /// a learner gets a snapshot
    SyncSnap,
    /// something is proposed while a learner is brought into step
    SyncMeanwhile,
    /// the own log is cut as the leader says
    Truncated,
    /// a leader's snapshot is taken over
    SnapshotInstalled,
    /// a follower serves
    FollowingBegun,
    /// a write is forwarded to the leader
    WriteForwarded,
    /// a write of before a change of leaders is found in the log, and is not done again
    WriteFound,
    /// a write that the old leader was asked for is not in the log, and the new one is asked for it
    WriteLost,
    /// a session goes on over another server
    SessionMoved,
    /// a sync waits for the same round of pings as another
    SyncShared,
    /// a sync is answered by a transaction instead of a round of pings
    SyncByWrite,
    /// a write comes from where its session has left
    WriteOfMovedSession,
    /// a credential is believed
    AuthAccepted,
    /// a credential is not believed
    AuthRefused,
    /// a watch fires for somebody who may not read the node
    WatchFiltered,
    /// an empty container, or a node whose time is over, is deleted
    NodeExpired,
    /// a write goes above a quota that only warns
    QuotaSoft,
    /// a session is begun that only this server knows
    SessionLocal,
    /// a local session becomes known to all
    SessionUpgraded,
    /// the upgrade of a local session was lost with the leader
    UpgradeLost,
    /// an answer or a transaction would be larger than is allowed
    RecordTooLarge,
    /// a later round of the election is joined
    ElectionRoundRaised,
    /// a vote of an earlier round is answered, and does not count
    ElectionRoundOld,
    /// a better vote: a later epoch
    ElectionByEpoch,
    /// a better vote: a longer history
    ElectionByZxid,
    /// a better vote: the same history, a larger id
    ElectionById,
    /// a better vote comes while a quorum has already agreed
    ElectionLateVote,
    /// all servers agree, so nobody is waited for
    ElectionComplete,
    /// a quorum agrees, and nothing better has come within the final wait
    ElectionWaited,
    /// others say that they follow somebody already
    ElectionEstablished,
    /// a candidate was given up that others cannot vouch for any more
    ElectionNotCredible,
    /// a server leaves a candidate that has never sent a vote itself
    ElectionHearsay,
    /// votes are repeated as seldom as they ever are
    ElectionRepeatCapped,
    /// others have elected somebody later
    ElectionOvertaken,
    /// a quorum asks to follow a server that has not yet received their votes
    ElectionByLinks,
    /// the own vote waits for the disk
    ElectionVoteHeld,
    /// a server whose disk is damaged votes for others only
    ElectionDamaged,
    /// the new epoch follows the leader's own
    EpochOwn,
    /// the new epoch follows that of a learner, who has promised more than its leader
    EpochOfLearner,
    /// a follower had promised this epoch before
    PromiseRepeated,
    /// a bare majority has promised
    DiscoveryMinimal,
    /// promises of a quorum did not come in time
    DiscoveryTimedOut,
    /// a quorum was not brought into step in time
    SyncTimedOut,
    /// a learner comes over a new link while its older one stands
    LearnerReplaced,
    /// what a learner lacks is still in memory
    SyncFromMemory,
    /// once its log is cut a learner lacks nothing
    SyncTruncOnly,
    /// once its log is cut a learner gets what it lacks
    SyncTruncDiff,
    /// a learner's log, once cut, still differs
    SyncTruncAgain,
    /// a learner gets what was written since its snapshot
    SyncSnapDiff,
    /// a proposal goes to a learner that does not serve yet
    SyncProposalLive,
    /// the link of a learner ends while it is brought into step
    SyncInterrupted,
    /// a follower loses its leader while it is brought into step
    SyncLeaderLost,
    /// a leader loses its quorum while it brings it into step
    SyncQuorumLost,
    /// the own snapshot is given up for that of a leader
    SnapshotReplaced,
    /// the rest of a leader's snapshot will not come
    SnapshotAbandoned,
    /// a transaction is committed by a bare majority
    CommitExact,
    /// the leader's own disk makes the majority
    CommitLeaderLast,
    /// a transaction is committed by more than a bare majority
    CommitAckLate,
    /// a leader ends with transactions in its log that it has not committed
    LeaderLeftUncommitted,
    /// a follower ends with transactions in its log that it does not know to be committed
    FollowerLeftUncommitted,
    /// something comes over a link that was given up
    LinkDead,
    /// a link stands that nobody wants any more
    LinkUnwanted,
    /// the disk ends what an earlier role has begun, or what nobody waits for
    StateDoneStale,
    /// nothing is removed, because a learner is still being sent it
    PurgeHeld,
    /// the own log cannot be read for a learner
    LogReadFailed,
    /// a server stood still, so no client was silent
    SessionsSpared,
    /// a leader did not read its clients because of its disk, so no session expires
    SessionsStalled,
    /// a session is asked for that has ended
    SessionMoveDead,
    /// a session is asked for that is about to end
    SessionMoveClosing,
    /// the node of a watch that is set again is gone
    SetWatchesDeleted,
    /// the node of a watch that is set again is there now
    SetWatchesCreated,
    /// the data of a watch that is set again has changed
    SetWatchesData,
    /// the children of a watch that is set again have changed
    SetWatchesChildren,
    /// a watch that is set again waits on
    SetWatchesKept,
    /// a client removes a watch
    WatchRemoved,
    /// a client removes a watch that it does not have
    WatchMissing,
    /// several clients receive events of one change
    WatchShared,
    /// a learner gets a snapshot although its log could be continued
    SyncSnapPreferred,
    /// there is no room for a snapshot of the own tree: it is given up for now
    SnapshotFailed,
    /// there is no room for a leader's snapshot: the server leaves that leader for now
    SnapshotRefused,
    /// a server of another ensemble is refused
    EnsembleDiffers,
    /// a learner's history has an epoch of another leader with the same number
    HistoryDiffers,
    /// a server sets its data aside, which is not the ensemble's
    SetsAside,
    /// a learner waits for a snapshot, because the last one cannot be read
    SyncAwaitsSnapshot,
    /// two servers have different states at one position
    StateDiffers,
    /// a step has done its share of loading a leader's snapshot
    LoadSliced,
    /// a step has done its share, and committed transactions wait for the next one
    ApplySliced,
    /// a step has done its share, and reads whose turn has come wait for the next one
    ReadsSliced,
    /// a quorum has an epoch's history with other voters, and the leader has a learner keep those
    VotersRenewed,
}

/// A set of [`Mark`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Marks([u64; WORDS]);

/// Number of 64-bit words that hold one bit per mark.
const WORDS: usize = Mark::ALL.len().div_ceil(64);

impl Marks {
    /// Whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == [0; WORDS]
    }

    /// Adds the marks of another set.
    pub fn add(&mut self, other: Marks) {
        self.0.iter_mut().zip(other.0).for_each(|(word, more)| *word |= more);
    }

    /// The marks in the set.
    pub fn iter(self) -> impl Iterator<Item = Mark> {
        let of = |(number, mut left): (usize, u64)| {
            std::iter::from_fn(move || {
                let index = left.checked_ilog2()?;
                left ^= 1 << index;
                Mark::ALL.get(64 * number + index as usize).copied()
            })
        };
        self.0.into_iter().enumerate().flat_map(of)
    }

    /// Adds one mark.
    pub fn hit(&mut self, mark: Mark) {
        self.0[mark as usize / 64] |= 1 << (mark as usize % 64);
    }

    /// Whether the mark is in the set.
    pub fn contains(self, mark: Mark) -> bool {
        self.0[mark as usize / 64] & (1 << (mark as usize % 64)) != 0
    }
}
