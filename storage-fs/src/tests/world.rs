//! A seeded random user of the store, with a model of its expected content.
//!
//! Owns the model: which commands were submitted, and which were reported durable. Must not read
//! files.

use bytes::Bytes;
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry, Recovered};
use zabkeeper_core::{Epoch, EpochIndex, LinkId, WriteId, Zxid};

use super::mem::{MemDir, Rng};
use crate::{Inspected, Opened, Options, StoreError, inspect, open};

pub(super) const STORE_ID: u64 = 0x00c0_ffee_0bad_cafe;

/// Small, so that a segment holds only a few batches.
const SEGMENT_BYTES: u64 = 4096 + 2100;

/// Opens the store with log and snapshots in the same directory.
pub(super) fn reopen(dir: &MemDir) -> Result<Opened<MemDir>, StoreError> {
    reopen_both(dir, dir)
}

fn reopen_both(log: &MemDir, snapshots: &MemDir) -> Result<Opened<MemDir>, StoreError> {
    let options = Options { segment_bytes: SEGMENT_BYTES, store_id: STORE_ID };
    open(log.clone(), snapshots.clone(), options)
}

/// The submitted commands, and the state that recovery must find.
#[derive(Clone)]
pub(super) struct Model {
    rng: Rng,
    /// Does the store use a separate directory for snapshots?
    apart: bool,
    epoch: u32,
    next_id: u64,
    pub(super) submitted: Vec<Entry>,
    /// Number of submitted entries that were reported durable.
    pub(super) durable: usize,
    /// The entries before a requested truncation, which may not have happened yet.
    uncut: Option<Vec<Entry>>,
    /// The log holds all transactions after this one, and maybe earlier ones.
    log_start: Zxid,
    /// `submitted` begins after this zxid: that of a leader's snapshot, or zero.
    base: Zxid,
    next_link: u64,
    state: DurableState,
    /// The state of the last requested save.
    state_asked: DurableState,
    /// Snapshots reported durable and not purged.
    snapshots: Vec<Zxid>,
    /// The snapshot whose last chunk was submitted.
    snapshot_asked: Option<Zxid>,
    /// Number of snapshots that failed for lack of disk space.
    pub(super) refused: u32,
    /// Dropped snapshots of the server's own state: a power failure may bring them back.
    dropped: Vec<Zxid>,
    /// Leaders' snapshots that may have their final names: if one is ahead of the log, the next
    /// recovery replaces the log by it.
    of_leaders: Vec<Zxid>,
}

impl Model {
    pub(super) fn new(seed: u64) -> Model {
        Model {
            rng: Rng(seed),
            apart: seed % 2 == 1,
            epoch: 1,
            next_id: 1,
            submitted: Vec::new(),
            durable: 0,
            uncut: None,
            log_start: Zxid::ZERO,
            base: Zxid::ZERO,
            next_link: 1,
            state: DurableState::default(),
            state_asked: DurableState::default(),
            snapshots: Vec::new(),
            snapshot_asked: None,
            refused: 0,
            dropped: Vec::new(),
            of_leaders: Vec::new(),
        }
    }

    /// Opens the store of this model.
    pub(super) fn reopen(&self, dir: &MemDir) -> Result<Opened<MemDir>, StoreError> {
        if self.apart { reopen_both(dir, &dir.for_snapshots()) } else { reopen(dir) }
    }

    /// Inspects the store of this model.
    pub(super) fn inspect(&self, dir: &MemDir) -> Result<Inspected, StoreError> {
        let snapshots = if self.apart { dir.for_snapshots() } else { dir.clone() };
        inspect(dir.clone(), snapshots)
    }

    /// Runs `steps` random steps on the store, some of which reopen it.
    pub(super) fn work(&mut self, dir: &MemDir, steps: u32) -> Result<(), StoreError> {
        let mut store = self.reopen(dir)?;
        self.check(&store.recovered);
        for _ in 0..steps {
            match self.rng.below(21) {
                0 => {
                    drop(store);
                    store = self.reopen(dir)?;
                    self.check(&store.recovered);
                }
                1 => self.epoch(&mut store)?,
                2 | 3 => self.snapshot(&mut store)?,
                4 => self.purge(&mut store)?,
                5 | 6 => self.truncate(&mut store)?,
                7 => self.take_snapshot_of_leader(&mut store)?,
                8 => self.read(&mut store),
                9 => store.log.record_end()?,
                _ => self.append(&mut store)?,
            }
        }
        Ok(())
    }

    fn id(&mut self) -> WriteId {
        self.next_id += 1;
        WriteId(self.next_id)
    }

    pub(super) fn append(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let mut batch = Vec::new();
        for _ in 0..1 + self.rng.below(4) {
            batch.push(self.next_append());
        }
        self.run(store, &batch)?;
        self.durable = self.submitted.len();
        Ok(())
    }

    fn next_append(&mut self) -> DiskCommand {
        let last = self.last();
        let zxid = if last.epoch() == Epoch(self.epoch) {
            last.next().expect("room")
        } else {
            let start = Zxid::start_of(Epoch(self.epoch));
            if self.rng.below(4) == 0 { start } else { start.next().expect("room") }
        };
        // Mostly small, sometimes spanning sectors, rarely larger than a segment.
        let length = match self.rng.below(40) {
            0 => 7000,
            1..10 => self.rng.below(1200),
            _ => self.rng.below(60),
        };
        let bytes: Vec<u8> = (0..length).map(|_| self.rng.next().to_le_bytes()[0]).collect();
        let entry = Entry { zxid, bytes: Bytes::from(bytes) };
        self.submitted.push(entry.clone());
        DiskCommand::Append { id: self.id(), entry }
    }

    /// Starts a new epoch: a state write between appends.
    fn epoch(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let mut batch = vec![self.next_append()];
        self.epoch += 1;
        self.state_asked.accepted_epoch = Epoch(self.epoch);
        self.state_asked.snapshot = self.snapshots.last().copied().unwrap_or_default();
        // The store does not interpret `damaged`.
        self.state_asked.damaged = self.rng.below(4) == 0;
        batch.push(DiskCommand::SaveState { id: self.id(), state: self.state_asked.clone() });
        batch.push(self.next_append());
        self.run(store, &batch)?;
        self.state = self.state_asked.clone();
        self.durable = self.submitted.len();
        Ok(())
    }

    /// The last submitted transaction, or `base` if there is none.
    fn last(&self) -> Zxid {
        self.submitted.last().map_or(self.base, |entry| entry.zxid)
    }

    /// Appends, truncates at any allowed zxid, and appends again, maybe with zxids of removed
    /// transactions.
    fn truncate(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let mut batch = Vec::new();
        for _ in 0..self.rng.below(3) {
            batch.push(self.next_append());
        }
        let snapshot = self.snapshots.last().copied().unwrap_or(self.base);
        let snapshot = self.dropped.iter().copied().fold(snapshot, Zxid::max);
        let mut least = self.submitted.iter().take_while(|entry| entry.zxid <= snapshot).count();
        // The transactions in a leader's snapshot are committed, so once the log has reached it, no
        // truncation goes back before it.
        let last = self.last();
        if let Some(passed) = self.of_leaders.iter().filter(|zxid| **zxid <= last).max() {
            let before = self.submitted.iter().take_while(|entry| entry.zxid < *passed).count();
            least = least.max((before + 1).min(self.submitted.len()));
        }
        let more = (self.submitted.len() - least) as u64;
        let kept = least + usize::try_from(self.rng.below(more + 1)).expect("small");
        self.uncut = Some(self.submitted.clone());
        self.submitted.truncate(kept);
        self.durable = self.durable.min(kept);
        let mut to = self.last();
        if self.submitted.len() < self.uncut.as_ref().map_or(0, Vec::len) && self.rng.below(4) == 0
        {
            // A zxid without a transaction, just before the first removed transaction.
            let gone = self.uncut.as_ref().expect("set above")[kept].zxid;
            to = to.max(Zxid(gone.0 - 1));
        }
        batch.push(DiskCommand::Truncate { id: self.id(), to });
        if self.rng.below(2) == 0 {
            self.epoch += 1;
        } else {
            self.epoch = self.last().epoch().max(Epoch(1)).0;
        }
        for _ in 0..self.rng.below(3) {
            batch.push(self.next_append());
        }
        self.run(store, &batch)?;
        self.uncut = None;
        self.durable = self.submitted.len();
        Ok(())
    }

    /// Installs a leader's snapshot in place of the log, as a learner does that is too far behind.
    fn take_snapshot_of_leader(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let last = self.last();
        let zxid = if self.rng.below(2) == 0 {
            Zxid(last.0 + 1 + self.rng.below(9))
        } else {
            Zxid(Zxid::start_of(Epoch(last.epoch().0.max(self.epoch) + 1)).0 + self.rng.below(9))
        };
        self.of_leaders.push(zxid);
        if self.rng.below(4) == 0 {
            // The leader is lost before the snapshot is reported durable, so the core drops it and
            // keeps the log.
            return self.give_up_snapshot(store, zxid);
        }
        if !self.write_chunks(store, zxid, tree(zxid).len())? {
            return Ok(());
        }
        self.snapshot_asked = None;
        self.replace_log(zxid);
        self.epoch = self.epoch.max(zxid.epoch().0);
        let mut batch = vec![self.save_command()];
        if self.rng.below(2) == 0 {
            // The lanes are independent: the purge may run before the rebase.
            self.run(store, &batch)?;
            batch.clear();
            store.snapshots.run(&DiskCommand::Purge { oldest: zxid })?;
        }
        batch.push(DiskCommand::Rebase { id: self.id(), snapshot: zxid });
        for _ in 0..self.rng.below(3) {
            batch.push(self.next_append());
        }
        self.run(store, &batch)?;
        self.state = self.state_asked.clone();
        self.durable = self.submitted.len();
        if self.rng.below(2) == 0 {
            store.snapshots.run(&DiskCommand::Purge { oldest: zxid })?;
        }
        if self.rng.below(2) == 0 {
            let batch = [self.save_command()];
            self.run(store, &batch)?;
        }
        Ok(())
    }

    /// Updates the model: a leader's snapshot with its final name has replaced the log.
    fn replace_log(&mut self, snapshot: Zxid) {
        self.submitted.clear();
        self.durable = 0;
        self.uncut = None;
        (self.base, self.log_start) = (snapshot, snapshot);
        // Older snapshots may be purged at any time, because the core does not wait for purges.
        self.snapshots = vec![snapshot];
        self.state.snapshot = snapshot;
        self.state_asked.snapshot = snapshot;
    }

    fn save_command(&mut self) -> DiskCommand {
        DiskCommand::SaveState { id: self.id(), state: self.state_asked.clone() }
    }

    /// Reads the log after a random zxid to its end, in small pieces, as for a learner.
    fn read(&mut self, store: &mut Opened<MemDir>) {
        let durable = &self.submitted[..self.durable];
        let start = durable.iter().take_while(|entry| entry.zxid <= self.log_start).count();
        let picked = self.rng.below((durable.len() - start) as u64 + 1);
        let from = start + usize::try_from(picked).expect("small");
        let mut after = if from == start { self.log_start } else { durable[from - 1].zxid };
        let bytes = u32::try_from(self.rng.below(900)).expect("small");
        let link = LinkId(self.next_link);
        self.next_link += 1;
        let mut rest = &durable[from..];
        while !rest.is_empty() {
            let read = DiskCommand::ReadLog { link, after, bytes };
            let DiskEvent::LogRead { link: answered, found: Ok(found) } = store.reader.run(&read)
            else {
                panic!("nothing read after {after}, though there is {}", rest[0].zxid);
            };
            assert_eq!((answered, &found[..]), (link, &rest[..found.len()]));
            let size: usize = found.iter().map(|entry| entry.bytes.len()).sum();
            let without_last = size - found.last().map_or(0, |entry| entry.bytes.len());
            assert!(found.len() == 1 || without_last < bytes as usize, "too much");
            assert!(size >= bytes as usize || found.len() == rest.len(), "too little");
            after = found.last().expect("at least one").zxid;
            rest = &rest[found.len()..];
        }
        let read = DiskCommand::ReadLog { link, after, bytes };
        let DiskEvent::LogRead { found: Err(_), .. } = store.reader.run(&read) else {
            panic!("something was read after the end at {after}");
        };
    }

    fn run(&self, store: &mut Opened<MemDir>, batch: &[DiskCommand]) -> Result<(), StoreError> {
        let done = store.log.run(batch)?;
        assert_eq!(done, WriteId(self.next_id));
        Ok(())
    }

    fn snapshot(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        if self.durable == 0 {
            return Ok(());
        }
        let zxid = self.submitted[self.durable - 1].zxid;
        if self.snapshots.contains(&zxid) {
            return Ok(());
        }
        if self.rng.below(4) == 0 {
            self.dropped.push(zxid);
            return self.give_up_snapshot(store, zxid);
        }
        if self.write_chunks(store, zxid, tree(zxid).len())? {
            self.snapshots.push(zxid);
            self.snapshot_asked = None;
        }
        Ok(())
    }

    /// Writes some or all chunks of a snapshot, then drops it.
    fn give_up_snapshot(
        &mut self,
        store: &mut Opened<MemDir>,
        zxid: Zxid,
    ) -> Result<(), StoreError> {
        let some = 1 + self.rng.below(tree(zxid).len() as u64);
        self.write_chunks(store, zxid, usize::try_from(some).expect("small"))?;
        assert_eq!(store.snapshots.run(&DiskCommand::DropSnapshot { zxid })?, None);
        Ok(())
    }

    /// Writes the first `count` chunks of a snapshot; false if the disk is full.
    fn write_chunks(
        &mut self,
        store: &mut Opened<MemDir>,
        zxid: Zxid,
        count: usize,
    ) -> Result<bool, StoreError> {
        let chunks = tree(zxid);
        for (index, bytes) in (0u32..).zip(&chunks).take(count) {
            let last = index as usize + 1 == chunks.len();
            if last {
                self.snapshot_asked = Some(zxid);
            }
            let chunk = DiskCommand::SnapshotChunk { zxid, index, bytes: bytes.clone(), last };
            let done = store.snapshots.run(&chunk)?;
            if let Some(DiskEvent::SnapshotFailed { zxid: failed, index: at, .. }) = done {
                assert_eq!((failed, at), (zxid, index));
                self.snapshot_asked = None;
                self.refused += 1;
                return Ok(false);
            }
            assert_eq!(done, Some(DiskEvent::ChunkDone { zxid, index }));
        }
        Ok(true)
    }

    fn purge(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let Some(oldest) = self.snapshots.iter().rev().nth(1).copied() else {
            return Ok(());
        };
        self.snapshots.retain(|zxid| *zxid >= oldest);
        self.log_start = self.log_start.max(oldest);
        assert_eq!(store.snapshots.run(&DiskCommand::Purge { oldest })?, None);
        Ok(())
    }

    /// Checks that everything reported durable was recovered, and only submitted entries. Then sets
    /// the model to the recovered state.
    pub(super) fn check(&mut self, found: &Recovered) {
        let base = found.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        let durable = self.submitted[..self.durable].last().map_or(self.base, |entry| entry.zxid);
        let is_after_leader = self.of_leaders.contains(&base) && durable < base;
        if is_after_leader && found.history == EpochIndex::after(base) {
            self.replace_log(base);
        }
        if let Some(image) = &found.snapshot {
            assert_eq!(image.chunks, tree(base), "content of the snapshot at {base}");
            let known = self.snapshots.contains(&base)
                || self.snapshot_asked == Some(base)
                || self.dropped.contains(&base)
                || self.of_leaders.contains(&base);
            assert!(known, "snapshot {base} was never taken");
        }
        assert!(Some(&base) >= self.snapshots.last(), "snapshot {base} is not the newest");
        assert_eq!(found.snapshots.last().copied().unwrap_or_default(), base);
        for zxid in &self.snapshots {
            assert!(found.snapshots.contains(zxid), "snapshot {zxid} is missing");
        }
        let skipped = self.submitted.iter().take_while(|entry| entry.zxid <= base).count();
        let present = skipped + found.entries.len();
        assert!(present >= self.durable, "{} entries are missing", self.durable - present);
        let is_prefix =
            |of: &Vec<Entry>| of.get(skipped..present) == Some(found.entries.as_slice());
        if let Some(uncut) = self.uncut.take().filter(is_prefix) {
            self.submitted = uncut;
        }
        assert_eq!(self.submitted.get(skipped..present), Some(found.entries.as_slice()));
        let start = found.history.start();
        assert!(start <= self.log_start, "the log begins at {start}, not {}", self.log_start);
        assert!(start >= self.base);
        let mut history = EpochIndex::after(start);
        let known = self.submitted[..present].iter().map(|entry| entry.zxid);
        known.filter(|zxid| *zxid > start).for_each(|zxid| history.push(zxid));
        assert_eq!(found.history, history);
        assert!([&self.state, &self.state_asked].contains(&&found.state), "{:?}", found.state);

        self.submitted.truncate(present);
        self.durable = present;
        self.log_start = start;
        self.state = found.state.clone();
        self.state_asked = found.state.clone();
        self.snapshots.clone_from(&found.snapshots);
        self.snapshot_asked = None;
        self.epoch = self.last().epoch().max(Epoch(1)).max(found.state.accepted_epoch).0;
    }
}

impl Model {
    /// Checks that all acknowledged entries were recovered unchanged. Unlike [`Model::check`] it
    /// ignores files that recovery does not need, such as older snapshots.
    pub(super) fn check_acknowledged(&self, found: &Recovered, context: &str) {
        let base = found.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        if let Some(image) = &found.snapshot {
            assert_eq!(image.chunks, tree(base), "{context}: content of the snapshot at {base}");
        }
        let acknowledged = &self.submitted[..self.durable];
        let last = acknowledged.last().map_or(self.base, |entry| entry.zxid);
        let end = found.history.end();
        assert!(end >= last, "{context}: the log ends at {end}, acknowledged was {last}");
        let behind = self.submitted.iter().filter(|entry| entry.zxid > base);
        assert!(base >= self.base, "{context}: the snapshot at {} is needed", self.base);
        let expected: Vec<&Entry> = behind.take(found.entries.len()).collect();
        assert_eq!(found.entries.iter().collect::<Vec<_>>(), expected, "{context}");
    }
}

/// The chunks of the snapshot at this zxid.
fn tree(zxid: Zxid) -> Vec<Bytes> {
    let byte = zxid.0.to_le_bytes()[0];
    [0, 700, 1400]
        .into_iter()
        .take(1 + usize::from(byte % 3))
        .map(|size| Bytes::from(vec![byte; size]))
        .collect()
}
