//! Snapshots: when this server takes its own, and how a leader's snapshot becomes its state.
//!
//! Owns which snapshots exist, which one is being written or received, and when data on the disk is
//! no longer needed. Must not know roles, nor the format of a snapshot: `tree` does.

use std::collections::VecDeque;

use bytes::Bytes;

use super::{Replica, table};
use crate::cx::Cx;
use crate::ids::{Instant, Zxid};
use crate::io::Mark;
use crate::log::epochs::EpochIndex;
use crate::log::tail::LogTail;
use crate::rng::KeyedHash;
use crate::store::DiskCommand;
use crate::tree::{self, Loader, SnapshotHeader};
use crate::watch::Watches;

/// Ticks until the next snapshot after the disk had no room for one. Each further failure doubles
/// the pause, at most `DOUBLINGS` times.
const FIRST_PAUSE: u32 = 4;

const DOUBLINGS: u32 = 6;

/// The limit is lower for a leader's snapshot, because a learner that waits for it does not serve.
const DOUBLINGS_OF_LEARNERS: u32 = 2;

/// When snapshots are taken, and which ones exist.
#[derive(Debug)]
pub(super) struct Snapshots {
    pub(super) running: Option<Running>,
    /// Chunks that the disk has not answered yet, of this server's snapshots and of a leader's.
    pub(super) at_disk: u32,
    /// Must one be taken at once, whether or not it is due? Set when data for a learner is
    /// unreadable.
    pub(super) wanted: bool,
    /// Does the history begin at the next snapshot? Set when older parts of the log are unreadable.
    pub(super) forgets: bool,
    /// Transactions applied since the last one began.
    pub(super) txns: u32,
    /// The value of `txns` at which the next one is due.
    pub(super) due: u32,
    /// Bytes of the transactions logged since the last one began.
    pub(super) bytes: u64,
    /// The value of `bytes` at which the next one is due.
    pub(super) due_bytes: u64,
    /// The number of snapshots begun since this process started.
    pub(super) begun: u32,
    /// The snapshots on the disk, oldest first.
    pub(super) kept: VecDeque<Zxid>,
    /// The last snapshot that was read or written, and its bytes.
    pub(super) size: (Zxid, u64),
    /// The transactions that this process has read at its start or logged since, and their bytes.
    pub(super) logged: (u64, u64),
    /// Does the disk hold older snapshots than `kept` lists, because a leader's snapshot has
    /// replaced them?
    pub(super) replaced: bool,
    /// The number of consecutive snapshots for which the disk had no room.
    pub(super) failures: u32,
    /// After such failures, no snapshot begins before this time.
    pub(super) not_before: Instant,
    /// Was the last failed snapshot a leader's? Then this server follows no leader before
    /// `not_before` either.
    pub(super) rests: bool,
}

#[derive(Debug)]
pub(super) struct Running {
    pub(super) zxid: Zxid,
    /// The chunk that is being written.
    pub(super) index: u32,
    pub(super) last: bool,
    /// Bytes of the chunks so far.
    pub(super) bytes: u64,
}

/// A leader's snapshot that is being received. It becomes the state once the last chunk is durable.
#[derive(Debug)]
pub(super) struct Incoming {
    pub(super) zxid: Zxid,
    /// Chunks received so far.
    pub(super) chunks: u32,
    /// Their bytes.
    pub(super) bytes: u64,
    /// Builds the tree from the chunks.
    pub(super) loader: Box<Loader>,
    pub(super) complete: bool,
    /// Are all chunks durable, so that only building the tree remains?
    pub(super) loading: bool,
}

impl Snapshots {
    /// The snapshots that recovery found, the newest one with its size, and the number and the
    /// bytes of the transactions after it.
    pub(super) fn recovered(
        kept: Vec<Zxid>,
        size: (Zxid, u64),
        (txns, bytes): (u64, u64),
    ) -> Snapshots {
        Snapshots {
            running: None,
            at_disk: 0,
            wanted: false,
            forgets: false,
            txns: 0,
            due: 0,
            bytes,
            due_bytes: 0,
            begun: 0,
            kept: kept.into(),
            size,
            logged: (txns, bytes),
            replaced: false,
            failures: 0,
            not_before: Instant::default(),
            rests: false,
        }
    }
}

impl Replica {
    /// Receives a chunk of a leader's snapshot.
    ///
    /// # Errors
    /// A chunk that is out of order or inconsistent, or a snapshot that is not ahead of the log, or
    /// is of a later epoch than the one that this server has promised to follow.
    pub(crate) fn receive_chunk(
        &mut self,
        zxid: Zxid,
        index: u32,
        bytes: Bytes,
        last: bool,
        cx: &mut Cx<'_>,
    ) -> Result<(), String> {
        if zxid <= self.log.appended() {
            return Err(format!("snapshot {zxid}, at {}", self.log.appended()));
        }
        self.check_promised(zxid)?;
        if index == 0 {
            // The snapshot lane writes one snapshot at a time.
            if let Some(running) = self.snapshots.running.take() {
                cx.mark(Mark::SnapshotReplaced);
                cx.out.disk.push(DiskCommand::DropSnapshot { zxid: running.zxid });
            }
            self.tree.cancel_snapshot();
            self.abandon_incoming(cx);
            let loader = Box::new(Loader::new(KeyedHash::new(cx.rng)));
            self.incoming = Some(Incoming {
                zxid,
                chunks: 0,
                bytes: 0,
                loader,
                complete: false,
                loading: false,
            });
        }
        let incoming = self.incoming.as_mut().filter(|incoming| {
            incoming.zxid == zxid && incoming.chunks == index && !incoming.complete
        });
        let Some(incoming) = incoming else {
            return Err(format!("piece {index} of snapshot {zxid} is out of order"));
        };
        incoming.loader.take(&bytes).map_err(|corrupt| corrupt.to_string())?;
        incoming.chunks += 1;
        incoming.bytes += bytes.len() as u64;
        incoming.complete = last;
        self.snapshots.at_disk += 1;
        cx.out.disk.push(DiskCommand::SnapshotChunk { zxid, index, bytes, last });
        Ok(())
    }

    /// Drops the leader's snapshot: its remaining chunks will not arrive.
    pub(crate) fn abandon_incoming(&mut self, cx: &mut Cx<'_>) {
        if let Some(incoming) = self.incoming.take() {
            cx.mark(Mark::SnapshotAbandoned);
            cx.out.disk.push(DiskCommand::DropSnapshot { zxid: incoming.zxid });
        }
    }

    /// Is a leader's snapshot durable, but not the state yet?
    pub(crate) fn is_loading(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.loading)
    }

    /// Once a leader's snapshot has arrived: its zxid, the parts of its loading that are done, and
    /// all parts. None is done before the disk has the snapshot.
    pub(crate) fn loading_progress(&self) -> Option<(Zxid, u64, u64)> {
        let incoming = self.incoming.as_ref().filter(|incoming| incoming.complete)?;
        let (done, all) = incoming.loader.progress();
        Some((incoming.zxid, done, all))
    }

    /// Continues to load a leader's durable snapshot, as far as the step's budget allows. Returns
    /// whether it has become the state.
    ///
    /// # Errors
    /// A snapshot that is inconsistent.
    pub(crate) fn continue_loading(&mut self, cx: &mut Cx<'_>) -> Result<bool, String> {
        while let Some(incoming) = self.incoming.as_mut().filter(|incoming| incoming.loading) {
            if cx.is_spent() {
                cx.mark(Mark::LoadSliced);
                return Ok(false);
            }
            cx.spend(tree::PART as u64);
            if incoming.loader.go_on().map_err(|corrupt| corrupt.to_string())? {
                return self.install(cx).map(|()| true);
            }
        }
        Ok(false)
    }

    /// Replaces the state with a leader's snapshot, which is durable and loaded.
    fn install(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        let appended = self.log.appended();
        let of_it = |incoming: &mut Incoming| incoming.loader.zxid() == Some(incoming.zxid);
        let sound = |incoming: &mut Incoming| of_it(incoming) && incoming.zxid > appended;
        // A snapshot that stays in `incoming` is dropped when this server leaves the leader.
        let Some(Incoming { zxid, bytes, loader, complete, .. }) = self.incoming.take_if(sound)
        else {
            return Err("the leader's snapshot holds the picture of another position".to_owned());
        };
        let waiting = self.snapshots.at_disk;
        assert!(complete, "snapshot {zxid} is installed before its last chunk");
        assert!(waiting == 0, "{waiting} chunks of snapshot {zxid} are not durable");
        let (tree, header) = loader.finish();
        self.tree = tree;
        let tree = &self.tree;
        self.membership.iter_mut().for_each(|membership| membership.install(tree));
        self.digests.clear();
        self.sessions = table(header);
        self.watches = Watches::new(self.tree.hash());
        self.unapplied.clear();
        self.history = EpochIndex::after(zxid);
        self.recent = LogTail::after(zxid);
        self.snapshots.kept = [zxid].into();
        self.snapshots.size = (zxid, bytes);
        self.snapshots.failures = 0;
        self.snapshots.replaced = true;
        (self.snapshots.txns, self.snapshots.bytes) = (0, 0);
        // This write alone switches to the snapshot: from then on, recovery ignores the old log.
        self.save_state(cx, |state| {
            state.snapshot = zxid;
            // The nonces belong to the replaced log.
            state.nonces.clear();
        });
        cx.out.disk.push(self.log.rebase(zxid));
        self.check_watermarks();
        cx.mark(Mark::SnapshotInstalled);
        Ok(())
    }

    /// Begins a snapshot if one is due and the log is durable up to the applied zxid.
    pub(crate) fn maybe_snapshot(&mut self, cx: &mut Cx<'_>) {
        self.check_watermarks();
        let (applied, committed) = (self.log.applied(), self.log.committed());
        assert!(applied == committed, "a step leaves {committed} committed, {applied} applied");
        let snapshots = &mut self.snapshots;
        if snapshots.due == 0 {
            let half = cx.config.limits.snapshot_txns / 2;
            let more = cx.rng.below(half.max(1));
            snapshots.due = half + 1 + more;
            let half_bytes = cx.config.limits.snapshot_bytes / 2;
            let share = u128::from(half_bytes) * u128::from(more + 1) / u128::from(half.max(1));
            snapshots.due_bytes = half_bytes + u64::try_from(share).expect("at most the half");
        }
        // The disk's answers for an abandoned snapshot must not be mistaken for those of the next
        // one.
        let idle = snapshots.at_disk == 0 && self.incoming.is_none();
        let wanted = snapshots.wanted
            || snapshots.txns >= snapshots.due
            || (snapshots.bytes >= snapshots.due_bytes && snapshots.txns > 0);
        let due = idle && wanted && snapshots.not_before <= cx.now.mono;
        if !due || self.log.durable() < self.log.applied() {
            return;
        }
        cx.mark(Mark::SnapshotBegun);
        if std::mem::take(&mut snapshots.wanted) {
            snapshots.not_before = cx.now.mono.after(cx.config.tick() * FIRST_PAUSE);
        }
        (snapshots.txns, snapshots.bytes) = (0, 0);
        snapshots.due = 0;
        snapshots.begun += 1;
        let zxid = self.log.applied();
        let header = SnapshotHeader {
            zxid,
            sessions: self.sessions.live().collect(),
            owners: self.sessions.owners().collect(),
            last_session_ids: self.sessions.last().collect(),
            keyed: self.sessions.keyed().collect(),
        };
        self.tree.begin_snapshot(header, snapshots.begun);
        self.write_slice(zxid, 0, 0, cx);
    }

    /// A chunk is written: writes the next one, or records the complete snapshot in the state file.
    /// Returns whether a leader's snapshot has become the state.
    ///
    /// # Errors
    /// A leader's snapshot that is inconsistent.
    pub(crate) fn on_chunk_done(
        &mut self,
        zxid: Zxid,
        index: u32,
        cx: &mut Cx<'_>,
    ) -> Result<bool, String> {
        self.snapshots.at_disk -= 1;
        if let Some(incoming) = &mut self.incoming {
            // The disk answers in order. Chunks of an abandoned attempt may have the same numbers,
            // so only the last outstanding answer shows that this snapshot is durable.
            if !incoming.complete || self.snapshots.at_disk > 0 {
                return Ok(false);
            }
            incoming.loading = true;
            return self.continue_loading(cx);
        }
        let Some(running) = self.snapshots.running.take_if(|running| running.zxid == zxid) else {
            // A chunk of an abandoned snapshot.
            return Ok(false);
        };
        assert_eq!(running.index, index, "one chunk at a time");
        let reached = self.log.applied().min(self.log.durable());
        assert!(zxid <= reached, "snapshot {zxid} is ahead of {reached}");
        if running.last {
            cx.mark(Mark::SnapshotDone);
            self.snapshots.failures = 0;
            // An unreadable snapshot may have had the same zxid.
            self.snapshots.kept.retain(|kept| *kept < zxid);
            self.snapshots.kept.push_back(zxid);
            self.snapshots.size = (zxid, running.bytes);
            if std::mem::take(&mut self.snapshots.forgets) {
                self.history.forget(zxid);
            }
            self.save_state(cx, |state| state.snapshot = zxid);
        } else {
            self.write_slice(zxid, index + 1, running.bytes, cx);
        }
        Ok(false)
    }

    /// The disk has no room for a chunk: abandons its snapshot and delays the next one. Returns
    /// whether it is the leader's snapshot that is being received. Chunks of an earlier attempt at
    /// that snapshot count too, because they have the same zxid.
    pub(crate) fn on_snapshot_failed(&mut self, zxid: Zxid, cx: &mut Cx<'_>) -> bool {
        let snapshots = &mut self.snapshots;
        snapshots.at_disk -= 1;
        let is_leaders = self.incoming.as_ref().is_some_and(|incoming| incoming.zxid == zxid);
        if is_leaders {
            cx.mark(Mark::SnapshotRefused);
        } else if snapshots.running.take_if(|running| running.zxid == zxid).is_some() {
            cx.mark(Mark::SnapshotFailed);
            self.tree.cancel_snapshot();
            // At least as many transactions follow the last snapshot as when this one began.
            snapshots.txns = cx.config.limits.snapshot_txns;
        } else {
            return false;
        }
        let most = if is_leaders { DOUBLINGS_OF_LEARNERS } else { DOUBLINGS };
        let pause = cx.config.tick() * (FIRST_PAUSE << snapshots.failures.min(most));
        snapshots.failures += 1;
        snapshots.not_before = cx.now.mono.after(pause);
        snapshots.rests = is_leaders;
        is_leaders
    }

    /// A learner needs this snapshot, but it is unreadable: removes it from `kept` and requests
    /// another one.
    pub(crate) fn on_snapshot_unreadable(&mut self, zxid: Zxid) {
        self.snapshots.kept.retain(|kept| *kept != zxid);
        self.snapshots.wanted = true;
    }

    /// A learner needs an unreadable part of the log: requests a snapshot, which replaces that
    /// part.
    pub(crate) fn on_log_unreadable(&mut self) {
        self.snapshots.wanted = true;
        self.snapshots.forgets = true;
    }

    /// The time before which this server receives no leader's snapshot, because the disk had no
    /// room for the last one.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        let Snapshots { rests, not_before, .. } = self.snapshots;
        (rests && not_before > now).then_some(not_before)
    }

    /// The newest snapshot, if there is one.
    pub(crate) fn newest_snapshot(&self) -> Option<Zxid> {
        self.snapshots.kept.back().copied()
    }

    /// Is the log from `position` to this snapshot larger than `factor` millionths of the snapshot?
    /// The size of the log is estimated: the number of transactions is known, and their mean size
    /// is that of the transactions that this process has read or logged. Without any, or if the
    /// size of the snapshot is unknown, the answer is no; with the factor 0 it is always yes.
    pub(crate) fn is_log_large(&self, position: Zxid, snapshot: Zxid, factor: u64) -> bool {
        let ((sized, size), (txns, bytes)) = (self.snapshots.size, self.snapshots.logged);
        let count = self.history.count(position, snapshot);
        let log = u128::from(count).saturating_mul(bytes.into()).saturating_mul(1_000_000);
        let most = u128::from(txns).saturating_mul(size.into()).saturating_mul(factor.into());
        factor == 0 || (sized == snapshot && log > most)
    }

    /// The state file names the newest snapshot: purges older ones, and the log before them, except
    /// what a learner needs after `needed`.
    pub(crate) fn purge(&mut self, needed: Option<Zxid>, cx: &mut Cx<'_>) {
        let keep = cx.config.limits.snapshots_kept.max(1) as usize;
        let Snapshots { kept, replaced, .. } = &mut self.snapshots;
        let surplus = kept.len().saturating_sub(keep);
        let spared = |oldest: Zxid| needed.is_none_or(|needed| oldest <= needed);
        let dropped = (1..=surplus).rev().find(|dropped| spared(kept[*dropped])).unwrap_or(0);
        if dropped < surplus {
            cx.mark(Mark::PurgeHeld);
        }
        if kept.is_empty() || (dropped == 0 && !*replaced) {
            return;
        }
        cx.mark(Mark::SnapshotPurged);
        *replaced = false;
        kept.drain(..dropped);
        let oldest = *kept.front().expect("at least one is kept");
        self.history.forget(oldest);
        cx.out.disk.push(DiskCommand::Purge { oldest });
    }

    /// Writes chunk `index`, after chunks of `written` bytes.
    fn write_slice(&mut self, zxid: Zxid, index: u32, written: u64, cx: &mut Cx<'_>) {
        if self.tree.set_aside() > 0 {
            cx.mark(Mark::SnapshotSetAside);
        }
        let (bytes, last) =
            self.tree.snapshot_slice(cx.config.limits.snapshot_slice_bytes.max(1) as usize);
        let written = written + bytes.len() as u64;
        self.snapshots.running = Some(Running { zxid, index, last, bytes: written });
        self.snapshots.at_disk += 1;
        cx.out.disk.push(DiskCommand::SnapshotChunk { zxid, index, bytes, last });
    }

    pub(crate) fn snapshots_kept(&self) -> usize {
        self.snapshots.kept.len()
    }

    pub(crate) fn snapshot_running(&self) -> bool {
        self.snapshots.running.is_some()
    }

    pub(super) fn running_snapshot(&self) -> Option<Zxid> {
        self.snapshots.running.as_ref().map(|running| running.zxid)
    }
}
