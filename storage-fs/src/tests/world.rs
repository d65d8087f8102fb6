//! A seeded user of the store who remembers what it was promised.
//!
//! Owns the model: what was submitted, what was reported durable. Must not look into files.

use bytes::Bytes;
use zabkeeper_core::io::{DiskCommand, DiskEvent, DurableState, Entry, Recovered};
use zabkeeper_core::{Epoch, WriteId, Zxid};

use super::mem::{MemDir, Rng};
use crate::{Opened, Options, StoreError, open};

pub(super) const CLUSTER: u64 = 0x00c0_ffee_0bad_cafe;

/// Small enough for a segment to take a few batches.
const SEGMENT_BYTES: u64 = 4096 + 2100;

/// Opens the store with log and snapshots in this one directory.
pub(super) fn reopen(dir: &MemDir) -> Result<Opened<MemDir>, StoreError> {
    reopen_both(dir, dir)
}

fn reopen_both(log: &MemDir, snapshots: &MemDir) -> Result<Opened<MemDir>, StoreError> {
    let options = Options { segment_bytes: SEGMENT_BYTES, cluster_id: CLUSTER };
    open(log.clone(), snapshots.clone(), options)
}

/// What was submitted and what must therefore be found.
#[derive(Clone)]
pub(super) struct Model {
    rng: Rng,
    /// Are the snapshots in a directory of their own?
    apart: bool,
    epoch: u32,
    next_id: u64,
    pub(super) submitted: Vec<Entry>,
    /// So many of them were reported durable.
    pub(super) durable: usize,
    state: DurableState,
    /// The state that was being saved.
    state_asked: DurableState,
    /// Snapshots reported durable, and not asked to be purged.
    snapshots: Vec<Zxid>,
    /// The snapshot that was about to be finished.
    snapshot_asked: Option<Zxid>,
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
            state: DurableState::default(),
            state_asked: DurableState::default(),
            snapshots: Vec::new(),
            snapshot_asked: None,
        }
    }

    /// Opens this user's store.
    pub(super) fn reopen(&self, dir: &MemDir) -> Result<Opened<MemDir>, StoreError> {
        if self.apart { reopen_both(dir, &dir.for_snapshots()) } else { reopen(dir) }
    }

    /// Uses the store for so many steps, opening it again now and then.
    pub(super) fn work(&mut self, dir: &MemDir, steps: u32) -> Result<(), StoreError> {
        let mut store = self.reopen(dir)?;
        self.check(&store.recovered);
        for _ in 0..steps {
            match self.rng.below(16) {
                0 => {
                    drop(store);
                    store = self.reopen(dir)?;
                    self.check(&store.recovered);
                }
                1 => self.epoch(&mut store)?,
                2 | 3 => self.snapshot(&mut store)?,
                4 => self.purge(&mut store)?,
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
        let last = self.submitted.last().map_or(Zxid::ZERO, |entry| entry.zxid);
        let zxid = if last.epoch() == Epoch(self.epoch) {
            last.next().expect("room")
        } else {
            Zxid::start_of(Epoch(self.epoch)).next().expect("room")
        };
        // Mostly small, sometimes across sectors, rarely larger than a segment.
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

    /// A new epoch: a state write between appends.
    fn epoch(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let mut batch = vec![self.next_append()];
        self.epoch += 1;
        self.state_asked.accepted_epoch = Epoch(self.epoch);
        self.state_asked.snapshot = self.snapshots.last().copied().unwrap_or_default();
        batch.push(DiskCommand::SaveState { id: self.id(), state: self.state_asked.clone() });
        batch.push(self.next_append());
        self.run(store, &batch)?;
        self.state = self.state_asked.clone();
        self.durable = self.submitted.len();
        Ok(())
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
        let chunks = tree(zxid);
        let given_up = self.rng.below(4) == 0;
        for (index, bytes) in (0u32..).zip(&chunks) {
            let last = index as usize + 1 == chunks.len();
            if last && given_up {
                break;
            }
            if last {
                self.snapshot_asked = Some(zxid);
            }
            let chunk = DiskCommand::SnapshotChunk { zxid, index, bytes: bytes.clone(), last };
            let done = store.snapshots.run(&chunk)?;
            assert_eq!(done, Some(DiskEvent::ChunkDone { zxid, index }));
        }
        if !given_up {
            self.snapshots.retain(|held| *held != zxid);
            self.snapshots.push(zxid);
            self.snapshot_asked = None;
        }
        Ok(())
    }

    fn purge(&mut self, store: &mut Opened<MemDir>) -> Result<(), StoreError> {
        let Some(oldest) = self.snapshots.iter().rev().nth(1).copied() else {
            return Ok(());
        };
        self.snapshots.retain(|zxid| *zxid >= oldest);
        assert_eq!(store.snapshots.run(&DiskCommand::Purge { oldest })?, None);
        Ok(())
    }

    /// Is everything there that was promised, and nothing that was never submitted? Takes over what is there.
    pub(super) fn check(&mut self, found: &Recovered) {
        let base = found.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        if let Some(image) = &found.snapshot {
            assert_eq!(image.chunks, tree(base), "content of the snapshot at {base}");
            let known = self.snapshots.contains(&base) || self.snapshot_asked == Some(base);
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
        assert_eq!(found.entries, self.submitted[skipped..present]);
        assert!([&self.state, &self.state_asked].contains(&&found.state), "{:?}", found.state);

        self.submitted.truncate(present);
        self.durable = present;
        self.state = found.state.clone();
        self.state_asked = found.state.clone();
        self.snapshots.clone_from(&found.snapshots);
        self.snapshot_asked = None;
        let last = self.submitted.last().map_or(Epoch(1), |entry| entry.zxid.epoch());
        self.epoch = last.max(found.state.accepted_epoch).0;
    }
}

/// What a snapshot at this position holds.
fn tree(zxid: Zxid) -> Vec<Bytes> {
    let byte = zxid.0.to_le_bytes()[0];
    [0, 700, 1400]
        .into_iter()
        .take(1 + usize::from(byte % 3))
        .map(|size| Bytes::from(vec![byte; size]))
        .collect()
}
