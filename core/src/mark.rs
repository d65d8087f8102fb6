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
    /// the only voter elects itself
    ElectionAlone,
    /// a leader has the promises of a quorum for its epoch
    DiscoveryPromised,
    /// a leader is established and serves
    BroadcastBegun,
    /// a new leader commits and applies the part of its initial history that it had not applied
    HistoryReplayed,
    /// a client connects while no leader serves, and its handshake waits
    ConnHeld,
    /// a client has waited too long for a leader, and its connection is closed
    ConnHeldTooLong,
    /// a client requests a new session
    SessionNew,
    /// a client resumes its session over a new connection to the same server
    SessionReattached,
    /// a new connection of a session closes the older one
    SessionTakenOver,
    /// a handshake is refused: the session has ended, or the password is wrong
    SessionRefused,
    /// a session expires
    SessionExpired,
    /// a session ends, closed by its client or expired
    SessionClosed,
    /// a client has seen a later zxid than this server has applied, so its connection is closed
    ClientAhead,
    /// a read waits for an earlier write of its connection
    ReadBehindWrite,
    /// a write fails, and its transaction records the error
    WriteRefused,
    /// several transactions are committed in one step
    CommitBatch,
    /// a watch fires
    WatchFired,
    /// SetWatches sends an event that the client has missed
    SetWatchesFired,
    /// a server begins a snapshot of its tree
    SnapshotBegun,
    /// nodes change during a snapshot, which keeps their old content
    SnapshotSetAside,
    /// a server's snapshot of its tree is durable
    SnapshotDone,
    /// the server purges snapshots and log segments that it no longer needs
    SnapshotPurged,
    /// a request cannot be decoded
    RequestUndecodable,
    /// a request of an unknown type is refused
    RequestUnknown,
    /// a request arrives on a session that is closing
    RequestOnClosingSession,
    /// clients are not read, because the disk is behind
    PressurePaused,
    /// a disk error halts the server
    DiskFailed,
    /// a committed transaction does not fit the state, and halts the server
    Inapplicable,
    /// the epoch has no zxid left, and a new epoch is needed
    EpochUsedUp,
    /// a server's election ends, and it leads
    ElectionWon,
    /// a server's election ends, and it follows another server
    ElectionJoined,
    /// the server sends its vote again, because no leader was elected
    ElectionResent,
    /// a learner sends FOLLOWERINFO to a server that does not lead yet
    LinkEarly,
    /// a learner has promised a later epoch, so the leader steps down
    LeaderOutrun,
    /// a learner has a later history, so the leader steps down
    LeaderBehind,
    /// no quorum has followed the leader in time, so the leader steps down
    LeaderNotEstablished,
    /// a follower has received nothing from its leader in time
    LeaderSilent,
    /// the leader's message breaks the protocol
    LeaderRefused,
    /// a follower cannot connect to its leader
    LeaderUnreachable,
    /// a learner that a serving leader has synchronized begins to serve
    LearnerJoined,
    /// a leader has received nothing from a learner in time
    LearnerSilent,
    /// a learner's message breaks the protocol
    LearnerRefused,
    /// a serving leader has lost its quorum, and steps down
    QuorumLost,
    /// a learner had promised this epoch before, so its promise does not count
    PromiseOld,
    /// a leader proposes an older epoch than the server has promised
    PromiseRefused,
    /// a server with an empty disk follows a leader that has a history
    FoundEmpty,
    /// a server whose disk was empty or damaged has the history, and its votes count again
    Refilled,
    /// a learner needs no transactions
    SyncDiffEmpty,
    /// a learner gets the transactions that it lacks by DIFF
    SyncDiff,
    /// the transactions for a learner are read from the log on disk
    SyncFromDisk,
    /// the leader sends TRUNC to a learner
    SyncTrunc,
    /// a learner gets a snapshot
    SyncSnap,
    /// the leader proposes a transaction while a learner is not caught up
    SyncMeanwhile,
    /// a follower truncates its log by TRUNC
    Truncated,
    /// a follower installs its leader's snapshot
    SnapshotInstalled,
    /// a follower begins to serve
    FollowingBegun,
    /// a follower forwards a write to the leader
    WriteForwarded,
    /// after a change of leader, a pending write is in the log, and is not submitted again
    WriteFound,
    /// after a change of leader, a pending write is not in the log, and is submitted again
    WriteLost,
    /// the leader proposes to move a session to another server
    SessionMoved,
    /// a sync waits for the same ping round as another
    SyncShared,
    /// a committed write of the connection confirms a sync, before any ping round does
    SyncByWrite,
    /// a write comes from a server that its session has left
    WriteOfMovedSession,
    /// a credential is accepted
    AuthAccepted,
    /// a credential is refused, is missing, or exceeds the bound on identities
    AuthRefused,
    /// a watch fires, and its client may not read the node
    WatchFiltered,
    /// the leader deletes an empty container or an expired TTL node
    NodeExpired,
    /// a write exceeds a soft quota
    QuotaSoft,
    /// a local session is created
    SessionLocal,
    /// a local session becomes global
    SessionUpgraded,
    /// the upgrade of a local session is lost with its leader
    UpgradeLost,
    /// a reply or a transaction would exceed the size limit
    RecordTooLarge,
    /// a server enters a later round of the election
    ElectionRoundRaised,
    /// a vote of an earlier round is answered, and does not count
    ElectionRoundOld,
    /// a server adopts a better vote: a later epoch
    ElectionByEpoch,
    /// a server adopts a better vote: a later zxid in the same epoch
    ElectionByZxid,
    /// a server adopts a better vote: the same epoch and zxid, a larger id
    ElectionById,
    /// a better vote arrives after a quorum has agreed
    ElectionLateVote,
    /// all voters agree, so the election ends at once
    ElectionComplete,
    /// a quorum agrees, and no better vote has come within `final_wait`
    ElectionWaited,
    /// notifications show that a quorum follows a leader
    ElectionEstablished,
    /// a server drops a candidate whose history no voter confirms any more
    ElectionNotCredible,
    /// a server drops a candidate that has sent it no vote in this round
    ElectionHearsay,
    /// a vote is sent again after the longest pause
    ElectionRepeatCapped,
    /// a later election has begun, and a server joins it
    ElectionOvertaken,
    /// a quorum has sent FOLLOWERINFO to a server that still lacks their votes
    ElectionByLinks,
    /// a server's vote waits until its log is durable
    ElectionVoteHeld,
    /// a server whose data is lost votes for others only
    ElectionDamaged,
    /// the new epoch follows the leader's accepted epoch
    EpochOwn,
    /// the new epoch follows that of a learner, which has promised more than its leader
    EpochOfLearner,
    /// a follower had promised this epoch before
    PromiseRepeated,
    /// exactly a quorum has promised the epoch
    DiscoveryMinimal,
    /// a quorum's promises did not come in time
    DiscoveryTimedOut,
    /// a quorum was not synchronized in time
    SyncTimedOut,
    /// a learner connects again while its older link is open
    LearnerReplaced,
    /// the transactions for a learner come from memory
    SyncFromMemory,
    /// after TRUNC, a learner needs no transactions
    SyncTruncOnly,
    /// after TRUNC, a learner gets the transactions that it lacks
    SyncTruncDiff,
    /// after TRUNC, a learner's history still differs
    SyncTruncAgain,
    /// after a snapshot, a learner gets the transactions that follow it
    SyncSnapDiff,
    /// a proposal goes to a learner that does not serve yet
    SyncProposalLive,
    /// the link of a learner closes during its synchronization
    SyncInterrupted,
    /// a follower loses its leader during its synchronization
    SyncLeaderLost,
    /// a leader loses its quorum during synchronization
    SyncQuorumLost,
    /// a server drops its own unfinished snapshot for its leader's
    SnapshotReplaced,
    /// a follower drops an incomplete snapshot of its leader
    SnapshotAbandoned,
    /// an acknowledgement completes the quorum for a transaction
    CommitExact,
    /// the leader's own disk completes the quorum for a transaction
    CommitLeaderLast,
    /// an acknowledgement arrives for a transaction that a quorum already has
    CommitAckLate,
    /// a leader's role ends with uncommitted transactions in its log
    LeaderLeftUncommitted,
    /// a follower's role ends with transactions that it does not know to be committed
    FollowerLeftUncommitted,
    /// a message arrives on a link that this server has closed
    LinkDead,
    /// a link comes up that the server no longer needs
    LinkUnwanted,
    /// a write of the state file completes, and the follower does not wait for it
    StateDoneStale,
    /// files are not purged, because a learner still needs them
    PurgeHeld,
    /// the log or a snapshot cannot be read for a learner
    LogReadFailed,
    /// the disk has kept clients unread for more than half a tick, so all sessions are renewed
    SessionsSpared,
    /// the leader has stalled for more than a tick, so it renews all sessions and expires none
    SessionsStalled,
    /// a client resumes a session that has ended
    SessionMoveDead,
    /// a client resumes a session that is closing
    SessionMoveClosing,
    /// SetWatches finds that the node was deleted
    SetWatchesDeleted,
    /// SetWatches finds that the node was created
    SetWatchesCreated,
    /// SetWatches finds that the data has changed
    SetWatchesData,
    /// SetWatches finds that the children have changed
    SetWatchesChildren,
    /// SetWatches sets a watch again whose node has not changed
    SetWatchesKept,
    /// a client removes a watch
    WatchRemoved,
    /// a client removes a watch that it has not set
    WatchMissing,
    /// several clients have watches that one change fires
    WatchShared,
    /// a learner gets a snapshot although the log would suffice
    SyncSnapPreferred,
    /// the disk has no room for a server's own snapshot, which is dropped
    SnapshotFailed,
    /// the disk has no room for a leader's snapshot, so the server leaves that leader
    SnapshotRefused,
    /// a server of another ensemble, or its data, is refused
    EnsembleDiffers,
    /// the state or the history of a learner differs from the leader's
    HistoryDiffers,
    /// a server is to set its data aside, because it differs from the ensemble's
    SetsAside,
    /// a learner waits for a new snapshot, because the last one is unreadable
    SyncAwaitsSnapshot,
    /// two servers have different states at one zxid
    StateDiffers,
    /// the budget of a step is spent, and the rest of a leader's snapshot is loaded later
    LoadSliced,
    /// the budget of a step is spent, and committed transactions wait for the next one
    ApplySliced,
    /// the budget of a step is spent, and reads that may be answered wait for the next one
    ReadsSliced,
    /// a quorum has the history, and NEWLEADER names the current voters to a learner
    VotersRenewed,
    /// a learner gets a snapshot, because it is smaller than the log that the learner lacks
    SyncSnapSmaller,
    /// a server that finds no leader begins to serve read-only clients
    ReadOnlyBegun,
    /// an election ends, and with it the connections of read-only clients
    ReadOnlyEnded,
    /// a client that accepts no read-only server, or resumes a global session, finds one
    ReadOnlyRefused,
    /// a read-only server is asked for a session, and may not create one
    ReadOnlyNoSession,
    /// a read-only server serves a client
    ReadOnlyServed,
    /// a read-only server refuses a request that needs a leader
    ReadOnlyRequestRefused,
    /// a looking server takes over a newer configuration that another server has in force
    ConfigAdopted,
    /// a leader that is to stop takes no more writes
    HandOverBegun,
    /// a write, a new session or a session that moves waits for the next leader
    HandOverHeld,
    /// a leader steps down and names the server that is to lead next
    HandOverNamed,
    /// a leader steps down before its proposals are committed, or a voter has them all
    HandOverLate,
    /// a leader steps down and names nobody
    HandOverToNobody,
    /// a follower gets from its leader the name of the next one
    TakeOverReceived,
    /// an election ends without the votes of all, because its winner was named
    ElectionNamed,
    /// a looking server learns of a newer configuration that another server has logged
    ConfigSeen,
    /// a leader that serves no clients closes a connection
    LeaderServesNobody,
    /// an observer that serves is sent a transaction that has just been committed
    Informed,
    /// the same for an observer that does not serve yet
    InformedEarly,
    /// an observer has the history, and waits until what was logged before it came is committed
    ObserverHeld,
    /// an observer that becomes a voter is sent what is not committed yet
    ObserverVotes,
    /// a follower begins to feed an observer
    ObserverAdopted,
    /// an observer has committed more than the follower that is to feed it
    ObserverAhead,
    /// a follower relays a write of an observer's client to the leader
    ObserverRelayed,
    /// a leader learns that a follower feeds an observer
    ObserverAttached,
    /// a leader ignores what a follower relays for an observer that another server feeds
    ObserverMoved,
    /// an observer turns to the next server, because the one that was to feed it does not
    ObserverTriesNext,
    /// a leader hands over because its disk is slower than those of a quorum
    HandOverSlowDisk,
    /// one of two voters, silent for long enough, is not waited for, because the oracle permits it
    ElectionByOracle,
    /// one of two voters follows the other on its word, because the oracle gives this one none
    ElectionOracleRefuses,
    /// a leader goes on without the other voter, because the oracle permits it
    OracleAlone,
    /// a leader that has gone on alone steps down, because the oracle permits it no longer
    OracleTakenBack,
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
