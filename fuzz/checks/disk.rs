//! An ideal disk: it completes commands in order, when asked to.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::store::{
    DiskCommand, DiskEvent, DurableState, Entry, Recovered, SnapshotImage,
};
use zabkeeper_core::{EpochIndex, Zxid};

/// The durable content, and the outstanding commands of each lane.
#[derive(Default)]
pub(super) struct Disk {
    pub(super) state: DurableState,
    pub(super) entries: Vec<Entry>,
    pub(super) log_after: Zxid,
    pub(super) snapshots: BTreeMap<Zxid, Vec<Bytes>>,
    pub(super) writing: Vec<Bytes>,
    pub(super) log: VecDeque<DiskCommand>,
    pub(super) others: VecDeque<DiskCommand>,
}

impl Disk {
    /// Sets the data aside, as the next start does if its history is not the ensemble's. Returns
    /// whether the state says so.
    pub(super) fn set_aside(&mut self) -> bool {
        let DurableState { accepted_epoch, identity, differs, .. } = self.state;
        let state =
            DurableState { accepted_epoch, identity, damaged: true, ..DurableState::default() };
        *self = Disk { state, ..Disk::default() };
        differs.is_some()
    }

    pub(super) fn finish_log(&mut self, count: usize) -> Option<DiskEvent> {
        let mut done = None;
        for _ in 0..count.min(self.log.len()) {
            match self.log.pop_front().expect("counted") {
                DiskCommand::Append { id, entry } => {
                    self.entries.push(entry);
                    done = Some(id);
                }
                DiskCommand::SaveState { id, state } => {
                    self.state = state;
                    done = Some(id);
                }
                DiskCommand::Truncate { id, to } => {
                    self.entries.retain(|entry| entry.zxid <= to);
                    done = Some(id);
                }
                DiskCommand::Rebase { id, snapshot } => {
                    self.entries.clear();
                    self.log_after = snapshot;
                    done = Some(id);
                }
                other @ (DiskCommand::SnapshotChunk { .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. }) => panic!("not of the log's lane: {other}"),
            }
        }
        done.map(DiskEvent::Done)
    }

    pub(super) fn finish_other(&mut self) -> Option<DiskEvent> {
        match self.others.pop_front()? {
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                if index == 0 {
                    self.writing.clear();
                }
                self.writing.push(bytes);
                if last {
                    self.snapshots.insert(zxid, std::mem::take(&mut self.writing));
                }
                Some(DiskEvent::ChunkDone { zxid, index })
            }
            DiskCommand::DropSnapshot { zxid } => {
                self.writing.clear();
                self.snapshots.remove(&zxid);
                None
            }
            DiskCommand::Purge { oldest } => {
                self.snapshots.retain(|zxid, _| *zxid >= oldest);
                self.entries.retain(|entry| entry.zxid > oldest);
                self.log_after = self.log_after.max(oldest);
                None
            }
            DiskCommand::ReadLog { link, after, .. } => {
                let found: Vec<Entry> =
                    self.entries.iter().filter(|entry| entry.zxid > after).cloned().collect();
                let found =
                    if found.is_empty() { Err("nothing there".to_owned()) } else { Ok(found) };
                Some(DiskEvent::LogRead { link, found })
            }
            DiskCommand::ReadSnapshot { link, zxid, index } => {
                let chunks = self.snapshots.get(&zxid);
                let at = usize::try_from(index).expect("few");
                let found = chunks
                    .and_then(|chunks| Some((chunks.get(at)?.clone(), at + 1 == chunks.len())))
                    .ok_or_else(|| "no such snapshot".to_owned());
                Some(DiskEvent::SnapshotRead { link, zxid, index, found })
            }
            other @ (DiskCommand::Append { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. }) => panic!("of the log's lane: {other}"),
        }
    }

    /// The content that a server recovers after a power failure.
    pub(super) fn recovered(&mut self) -> Recovered {
        self.log.clear();
        self.others.clear();
        self.writing.clear();
        // The snapshot to load is the one that the state file names.
        let named = self.snapshots.get_key_value(&self.state.snapshot);
        let snapshot =
            named.map(|(zxid, chunks)| SnapshotImage { zxid: *zxid, chunks: chunks.clone() });
        let after = snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        if self.entries.last().is_none_or(|entry| entry.zxid < after) {
            self.entries.clear();
            self.log_after = after;
        }
        let mut history = EpochIndex::after(self.log_after);
        self.entries.iter().for_each(|entry| history.push(entry.zxid));
        Recovered {
            state: self.state.clone(),
            snapshot,
            entries: self.entries.iter().filter(|entry| entry.zxid > after).cloned().collect(),
            snapshots: self.snapshots.keys().copied().filter(|zxid| *zxid <= after).collect(),
            history,
        }
    }
}
