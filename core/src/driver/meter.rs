//! Counts what passes between host and core: proposals and acknowledgements, elections,
//! synchronization, writes of the log, snapshots.
//!
//! Owns what has begun and whose end is to be measured. Must not change an input or an output, nor
//! read a clock: the times are those of turns.
//!
//! Invariant: everything kept here is bounded by what is under way, or by a constant.

use std::collections::btree_map::Entry as Slot;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use super::metrics::Metrics;
use crate::ids::{Instant, LinkId, ServerId, WallMs, WriteId, Zxid};
use crate::io::{Input, Mark, Now, Outbox, PeerCommand, PeerEvent};
use crate::measure::Measure;
use crate::notice::Notice;
use crate::peer::{FromLeader, FromLearner, PeerMessage};
use crate::status::{Mode, Status};
use crate::store::{DiskCommand, DiskEvent, Entry};
use crate::txn::Txn;

/// Turns with proposals that are remembered for the acknowledgements of slow learners.
const BATCHES_MAX: usize = 4_096;

/// Proposals of a leader that this server has not acknowledged: more are not measured.
const RECEIVED_MAX: usize = 10_000;

/// What has begun.
#[derive(Debug)]
pub(super) struct Meter {
    now: Now,
    /// Time since which clients are not served.
    unserved_since: Option<Instant>,
    looking_since: Option<Instant>,
    /// The mode at the end of the last turn; `None` before the first one and in a standalone
    /// server.
    mode: Option<Mode>,
    links: BTreeMap<LinkId, ServerId>,
    /// Learners that this server synchronizes; `true` if by SNAP.
    syncs: BTreeMap<LinkId, bool>,
    /// Since when this server's leader synchronizes it.
    sync_since: Option<Instant>,
    /// Proposals of this leader, by turn.
    batches: VecDeque<Batch>,
    /// How many of these a quorum has acknowledged.
    agreed: usize,
    /// Proposals received and not acknowledged, with the leader's time stamps.
    received: VecDeque<(Zxid, WallMs)>,
    /// Transactions handed to the log and not durable: the last write of a turn, and how many.
    undurable: VecDeque<(WriteId, u32, Instant)>,
    snapshot: Option<Snapshot>,
}

/// Proposals of one turn.
#[derive(Debug)]
struct Batch {
    last: Zxid,
    proposals: u32,
    at: Instant,
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Snapshot {
    zxid: Zxid,
    began: Instant,
    /// The last chunk, once it is known.
    last: Option<u32>,
}

/// Time since the leader's time stamp, unless the clocks of the two servers differ too much.
fn since(stamp: WallMs, now: WallMs) -> Option<Duration> {
    u64::try_from(now.0.saturating_sub(stamp.0)).ok().map(Duration::from_millis)
}

impl Meter {
    pub(super) fn new(now: Instant) -> Meter {
        Meter {
            now: Now { mono: now, wall: WallMs(0) },
            unserved_since: Some(now),
            looking_since: None,
            mode: None,
            links: BTreeMap::new(),
            syncs: BTreeMap::new(),
            sync_since: None,
            batches: VecDeque::new(),
            agreed: 0,
            received: VecDeque::new(),
            undurable: VecDeque::new(),
            snapshot: None,
        }
    }

    pub(super) fn begin_turn(&mut self, now: Now) {
        self.now = now;
    }

    /// An input is about to reach the core.
    pub(super) fn on_input(&mut self, input: &Input, metrics: &mut Metrics) {
        match input {
            Input::Peer(link, PeerEvent::Up { peer, .. }) => {
                self.links.insert(*link, *peer);
            }
            Input::Peer(link, PeerEvent::Down) => {
                self.links.remove(link);
                self.syncs.remove(link);
            }
            Input::Peer(link, PeerEvent::Message(PeerMessage::Learner(message))) => {
                self.on_learner_message(*link, message, metrics);
            }
            Input::Peer(_, PeerEvent::Message(PeerMessage::Leader(message))) => {
                self.on_leader_message(message, metrics);
            }
            Input::Disk(event) => self.on_disk(event, metrics),
            Input::Peer(
                _,
                PeerEvent::Unreachable { .. } | PeerEvent::Drained | PeerEvent::Version(_),
            )
            | Input::Timeout
            | Input::Client(..)
            | Input::Election(..)
            | Input::EnsembleConfig(..)
            | Input::Stop
            | Input::Oracle(_) => {}
        }
    }

    fn on_learner_message(&self, link: LinkId, message: &FromLearner, metrics: &mut Metrics) {
        let metrics = &mut metrics.ensemble;
        match message {
            FromLearner::Ack { zxid } => {
                let at = self.batches.partition_point(|batch| batch.last < *zxid);
                let (Some(batch), Some(server)) = (self.batches.get(at), self.links.get(&link))
                else {
                    return;
                };
                let took = self.now.mono.since(batch.at);
                metrics.ack.entry(*server).or_default().add_time(took, self.now.mono);
            }
            FromLearner::Revalidate { .. } | FromLearner::RevalidateBehind { .. } => {
                metrics.revalidations += 1;
            }
            FromLearner::FollowerInfo { .. }
            | FromLearner::AckEpoch { .. }
            | FromLearner::SyncAt { .. }
            | FromLearner::AckNewLeader { .. }
            | FromLearner::Pong { .. }
            | FromLearner::Request { .. }
            | FromLearner::CreateSession { .. }
            | FromLearner::Sync { .. }
            | FromLearner::Loading { .. }
            | FromLearner::ObserverInfo { .. }
            | FromLearner::Attach { .. }
            | FromLearner::SyncBehind { .. }
            | FromLearner::TouchedBehind { .. } => {}
        }
    }

    fn on_leader_message(&mut self, message: &FromLeader, metrics: &mut Metrics) {
        let now = self.now.mono;
        match message {
            FromLeader::LeaderInfo { .. } => self.sync_since = Some(now),
            FromLeader::UpToDate { .. } => {
                if let Some(since) = self.sync_since.take() {
                    let ensemble = &mut metrics.ensemble;
                    let summary = match self.mode {
                        Some(Mode::Observer) => &mut ensemble.observer_sync,
                        Some(
                            Mode::Follower
                            | Mode::Looking
                            | Mode::Leader
                            | Mode::Standalone
                            | Mode::ReadOnly,
                        )
                        | None => &mut ensemble.follower_sync,
                    };
                    summary.add_time(now.since(since), now);
                }
            }
            FromLeader::Proposal(entry) => {
                metrics.ensemble.proposals_received += 1;
                self.on_proposal(entry, metrics);
            }
            FromLeader::Inform(_) | FromLeader::Commit { .. } => {
                metrics.ensemble.commits_received += 1;
            }
            FromLeader::Trunc { .. }
            | FromLeader::Snap { .. }
            | FromLeader::NewLeader { .. }
            | FromLeader::Ping { .. }
            | FromLeader::Synced { .. }
            | FromLeader::Differs { .. }
            | FromLeader::TakeOver { .. }
            | FromLeader::Attached { .. }
            | FromLeader::SyncedBehind { .. }
            | FromLeader::DiffersBehind { .. }
            | FromLeader::Detached { .. } => {}
        }
    }

    /// The proposals of a synchronization are old, so their age says nothing.
    fn on_proposal(&mut self, entry: &Entry, metrics: &mut Metrics) {
        if self.sync_since.is_some() {
            return;
        }
        let Some(stamp) = Txn::time_of(entry) else { return };
        if let Some(took) = since(stamp, self.now.wall) {
            metrics.ensemble.proposal.add_time(took, self.now.mono);
        }
        if self.received.len() < RECEIVED_MAX {
            self.received.push_back((entry.zxid, stamp));
        }
    }

    fn on_disk(&mut self, event: &DiskEvent, metrics: &mut Metrics) {
        let (now, metrics) = (self.now.mono, &mut metrics.storage);
        match event {
            DiskEvent::Done(id) => {
                while let Some((_, count, at)) =
                    self.undurable.pop_front_if(|(last, ..)| *last <= *id)
                {
                    metrics.queue_and_flush.add_time_of(now.since(at), count, now);
                }
            }
            DiskEvent::ChunkDone { zxid, index } => {
                let done = self
                    .snapshot
                    .take_if(|snapshot| snapshot.zxid == *zxid && snapshot.last == Some(*index));
                if let Some(snapshot) = done {
                    metrics.snapshot.add_time(now.since(snapshot.began), now);
                    metrics.last_snapshot = Some(now);
                }
            }
            DiskEvent::SnapshotFailed { zxid, .. } => {
                // All further chunks of the snapshot fail, too.
                let failed = self.snapshot.take_if(|snapshot| snapshot.zxid == *zxid);
                metrics.snapshot_errors += u64::from(failed.is_some());
            }
            DiskEvent::Failed(_) | DiskEvent::LogRead { .. } | DiskEvent::SnapshotRead { .. } => {}
        }
    }

    /// The commands of a turn, before the host takes them.
    pub(super) fn on_outbox(&mut self, out: &Outbox, metrics: &mut Metrics) {
        self.on_disk_commands(&out.disk, metrics);
        for command in &out.peers {
            if let PeerCommand::Send(link, message) = command {
                self.on_sent(*link, message, metrics);
            }
        }
        for notice in &out.notices {
            match notice {
                Notice::ExpiryProposed { .. } => metrics.ensemble.sessions_expired += 1,
                Notice::StatesDiffer { .. } => metrics.ensemble.digest_mismatches += 1,
                Notice::LeavesLeader { .. }
                | Notice::ExpiredConnClosed { .. }
                | Notice::Loading { .. }
                | Notice::VotersDiffer { .. }
                | Notice::Reconfigured { .. }
                | Notice::ConfigHeld { .. }
                | Notice::ReconfigRefused { .. }
                | Notice::GoesOnAlone => {}
            }
        }
        let elected = [Mark::ElectionAlone, Mark::ElectionWon, Mark::ElectionJoined];
        if elected.into_iter().any(|mark| out.marks.contains(mark))
            && let Some(since) = self.looking_since.take()
        {
            let now = self.now.mono;
            metrics.ensemble.election.add_time(now.since(since), now);
        }
        for measure in &out.measures {
            self.on_measure(*measure, metrics);
        }
    }

    fn on_disk_commands(&mut self, commands: &[DiskCommand], metrics: &mut Metrics) {
        let leads = self.mode == Some(Mode::Leader);
        let (mut appended, mut last) = (0, None);
        for command in commands {
            match command {
                DiskCommand::Append { id, entry } => {
                    appended += 1;
                    last = Some((*id, entry.zxid));
                    if leads {
                        metrics.proposals.add(entry.bytes.len());
                    }
                }
                DiskCommand::SnapshotChunk { zxid, index, last, .. } => {
                    if *index == 0 {
                        let began = self.now.mono;
                        self.snapshot = Some(Snapshot { zxid: *zxid, began, last: None });
                    }
                    if let Some(snapshot) = self.snapshot.as_mut().filter(|_| *last) {
                        snapshot.last = Some(*index);
                    }
                }
                DiskCommand::DropSnapshot { zxid } => {
                    self.snapshot.take_if(|snapshot| snapshot.zxid == *zxid);
                }
                DiskCommand::SaveState { .. }
                | DiskCommand::Truncate { .. }
                | DiskCommand::Rebase { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {}
            }
        }
        let Some((id, last)) = last else { return };
        let at = self.now.mono;
        metrics.storage.queued += u64::from(appended);
        self.undurable.push_back((id, appended, at));
        if leads {
            if self.batches.len() == BATCHES_MAX {
                self.batches.pop_front();
                self.agreed = self.agreed.saturating_sub(1);
            }
            self.batches.push_back(Batch { last, proposals: appended, at });
        }
    }

    fn on_sent(&mut self, link: LinkId, message: &PeerMessage, metrics: &mut Metrics) {
        let now = self.now;
        let ensemble = &mut metrics.ensemble;
        match message {
            PeerMessage::Leader(FromLeader::Snap { index: 0, .. }) => {
                ensemble.snaps += 1;
                self.syncs.insert(link, true);
                let inflight = self.syncs.values().filter(|is_snap| **is_snap).count();
                ensemble.inflight_snaps.add(inflight as u64, now.mono);
            }
            PeerMessage::Leader(FromLeader::Trunc { .. }) => ensemble.truncs += 1,
            PeerMessage::Leader(FromLeader::NewLeader { .. }) => {
                // After SNAP, and the second one after a change of voters, begin nothing.
                if let Slot::Vacant(slot) = self.syncs.entry(link) {
                    ensemble.diffs += 1;
                    slot.insert(false);
                    let inflight = self.syncs.values().filter(|is_snap| !**is_snap).count();
                    ensemble.inflight_diffs.add(inflight as u64, now.mono);
                }
            }
            PeerMessage::Leader(FromLeader::UpToDate { .. }) => {
                self.syncs.remove(&link);
            }
            PeerMessage::Learner(FromLearner::Ack { zxid }) => {
                while let Some((_, stamp)) = self.received.pop_front_if(|(of, _)| *of <= *zxid) {
                    if let Some(took) = since(stamp, now.wall) {
                        ensemble.ack_creation.add_time(took, now.mono);
                    }
                }
            }
            PeerMessage::Leader(_) | PeerMessage::Learner(_) => {}
        }
    }

    fn on_measure(&self, measure: Measure, metrics: &mut Metrics) {
        let Now { mono, wall } = self.now;
        match measure {
            Measure::Applied(stamp) => {
                let leads = self.mode == Some(Mode::Leader);
                metrics.ensemble.commits += u64::from(leads);
                let Some(took) = since(stamp, wall) else { return };
                metrics.ensemble.propagation.add_time(took, mono);
                if self.mode.is_some() && !leads {
                    metrics.ensemble.commit_propagation.add_time(took, mono);
                }
            }
            Measure::Fired(event, conns) => metrics.traffic.fired.of(event).add(conns as u64, mono),
            Measure::Read(namespace, bytes) => metrics.reads.add(namespace, bytes),
            Measure::Written(namespace, bytes) => metrics.writes.add(namespace, bytes),
            Measure::ClosedWithoutLeader(conns) => {
                metrics.traffic.closed_without_leader += conns as u64;
            }
            Measure::EphemeralsDeleted(nodes) => metrics.traffic.ephemerals_deleted += nodes as u64,
        }
    }

    /// The state of a server of an ensemble at the end of a turn.
    pub(super) fn on_turn_end(&mut self, status: &Status, metrics: &mut Metrics) {
        let now = self.now.mono;
        let ensemble = &mut metrics.ensemble;
        if self.mode != Some(status.mode) {
            let looks = |mode| matches!(mode, Mode::Looking | Mode::ReadOnly);
            if looks(status.mode) && !self.mode.is_some_and(looks) {
                ensemble.looking += 1;
                self.looking_since = Some(now);
                self.sync_since = None;
                self.received.clear();
                self.syncs.clear();
            }
            self.batches.clear();
            self.agreed = 0;
            self.mode = Some(status.mode);
        }
        if !status.serving {
            self.unserved_since.get_or_insert(now);
        } else if let Some(since) = self.unserved_since.take() {
            ensemble.unavailable.add_time(now.since(since), now);
            if status.mode == Mode::Leader {
                ensemble.leader_unavailable.add_time(now.since(since), now);
            }
        }
        while let Some(batch) = self.batches.get(self.agreed)
            && batch.last <= status.committed
        {
            ensemble.quorum_ack.add_time_of(now.since(batch.at), batch.proposals, now);
            self.agreed += 1;
        }
    }
}
