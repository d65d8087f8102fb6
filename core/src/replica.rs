//! What survives a change of role: tree, sessions, watches, the log's watermarks and the durable promises.
//!
//! Owns the replicated state and its snapshots. Must not know roles, nor connections but as names in the watch tables.
//! `apply` is total and deterministic: it asserts what the leader has checked.

use std::collections::{BTreeSet, VecDeque};

use crate::error::Corrupt;
use crate::ids::{ConnId, SessionId, Zxid};
use crate::io::{Cx, DiskCommand, DurableState, Entry, Mark, Recovered};
use crate::log::Log;
use crate::rng::{KeyedHash, Rng};
use crate::session::SessionTable;
use crate::tree::{self, NewNode, SnapshotHeader, Tree};
use crate::txn::{Txn, TxnOp};
use crate::watch::{Kind, Watches};
use crate::wire::{EventType, Perms, Stat};

/// One server's copy.
#[derive(Debug)]
pub(crate) struct Replica {
    tree: Tree,
    sessions: SessionTable,
    pub(crate) watches: Watches,
    pub(crate) log: Log,
    /// As last handed to the disk.
    state: DurableState,
    /// Logged and not yet applied, in order.
    unapplied: VecDeque<Unapplied>,
    snapshots: Snapshots,
}

/// A transaction that waits to be committed.
#[derive(Debug)]
enum Unapplied {
    /// Proposed in this life: no need to decode it again.
    Decided(Txn),
    /// Found in the log.
    Recovered(Entry),
}

/// When snapshots are taken, and which there are.
#[derive(Debug)]
struct Snapshots {
    running: Option<Running>,
    /// Transactions applied since the last one began.
    txns: u32,
    /// How many make the next one due.
    due: u32,
    /// How many were begun in this life.
    begun: u32,
    /// Those on the disk, oldest first.
    kept: VecDeque<Zxid>,
}

#[derive(Debug)]
struct Running {
    zxid: Zxid,
    /// The chunk that is being written.
    index: u32,
    last: bool,
}

/// A transaction that the tree now has.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) txn: Txn,
    pub(crate) effects: Effects,
}

/// What applying a transaction has done, for those who wait for it.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// Of the nodes created and changed, in order.
    pub(crate) stats: Vec<Stat>,
    /// Who is to be told what, in order.
    pub(crate) fired: Vec<Fired>,
}

/// An event and the connections that watch for it.
#[derive(Debug)]
pub(crate) struct Fired {
    pub(crate) event: EventType,
    pub(crate) path: String,
    pub(crate) conns: BTreeSet<ConnId>,
}

impl Replica {
    /// From what was found on the disk. The log's tail is not applied before a leader has committed it.
    pub(crate) fn recover(recovered: Recovered, rng: &mut Rng) -> Result<Replica, Corrupt> {
        let hash = KeyedHash::new(rng);
        let (tree, header) = match &recovered.snapshot {
            None => (Tree::new(hash), SnapshotHeader::empty()),
            Some(image) => {
                let (tree, header) = tree::load(&image.chunks, hash)?;
                if header.zxid != image.zxid {
                    let what =
                        format!("snapshot {} holds the picture of {}", image.zxid, header.zxid);
                    return Err(Corrupt { what });
                }
                (tree, header)
            }
        };
        let applied = header.zxid;
        let mut last = applied;
        for entry in &recovered.entries {
            if entry.zxid <= last {
                let what = format!("log: {} follows {last}", entry.zxid);
                return Err(Corrupt { what });
            }
            last = entry.zxid;
            // Decoded here once for its errors, so that applying it later cannot fail.
            Txn::decode(entry)?;
        }
        Ok(Replica {
            tree,
            sessions: SessionTable::restore(header.sessions, header.last_session_ids),
            watches: Watches::default(),
            log: Log::recovered(applied, last),
            state: recovered.state,
            unapplied: recovered.entries.into_iter().map(Unapplied::Recovered).collect(),
            snapshots: Snapshots {
                running: None,
                txns: 0,
                due: 0,
                begun: 0,
                kept: recovered.snapshots.into(),
            },
        })
    }

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn state(&self) -> &DurableState {
        &self.state
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.unapplied.len()
    }

    pub(crate) fn snapshot_running(&self) -> bool {
        self.snapshots.running.is_some()
    }

    /// Tree and watches side by side, for reads that leave a watch.
    pub(crate) fn reading(&mut self) -> (&Tree, &mut Watches) {
        (&self.tree, &mut self.watches)
    }

    /// Sum over nodes and sessions; see [`crate::digest`].
    pub(crate) fn digest(&self) -> u64 {
        self.tree.digest().wrapping_add(self.sessions.digest())
    }

    /// Changes the durable promises.
    pub(crate) fn save_state(&mut self, cx: &mut Cx<'_>, change: impl FnOnce(&mut DurableState)) {
        change(&mut self.state);
        assert!(self.state.accepted_epoch >= self.state.current_epoch, "promised before entered");
        cx.out.disk.push(self.log.save(self.state.clone()));
    }

    /// Hands a decided transaction to the log.
    pub(crate) fn append(&mut self, txn: Txn, cx: &mut Cx<'_>) {
        cx.out.disk.push(self.log.append(txn.encode()));
        self.unapplied.push_back(Unapplied::Decided(txn));
    }

    /// Applies the next committed transaction, if there is one.
    pub(crate) fn apply_next(&mut self) -> Option<Applied> {
        if self.log.applied() == self.log.committed() {
            return None;
        }
        let txn = match self.unapplied.pop_front().expect("what is committed was logged") {
            Unapplied::Decided(txn) => txn,
            Unapplied::Recovered(entry) => Txn::decode(&entry).expect("checked at recovery"),
        };
        self.log.apply(txn.zxid);
        self.snapshots.txns += 1;
        Some(self.apply(txn))
    }

    fn apply(&mut self, txn: Txn) -> Applied {
        let mut effects = Effects::default();
        self.apply_op(&txn, &txn.op, &mut effects);
        Applied { txn, effects }
    }

    fn apply_op(&mut self, txn: &Txn, op: &TxnOp, effects: &mut Effects) {
        match op {
            TxnOp::Create { path, data, acl, ephemeral, parent_creates } => {
                let owner = if *ephemeral { txn.session } else { SessionId(0) };
                let data = data.as_deref();
                let new = NewNode { path, data, acl, owner, parent_creates: *parent_creates };
                effects.stats.push(self.tree.create(new, txn.zxid, txn.time));
                self.fire(EventType::NodeCreated, Kind::Data, path, effects);
                self.fire_on_parent(path, effects);
            }
            TxnOp::Delete { path } => self.delete(path, txn.zxid, effects),
            TxnOp::SetData { path, data, version } => {
                let data = data.as_deref();
                let stat = self.tree.set_data(path, data, *version, txn.zxid, txn.time);
                effects.stats.push(stat);
                self.fire(EventType::NodeDataChanged, Kind::Data, path, effects);
            }
            TxnOp::Multi(ops) => {
                for op in ops {
                    self.apply_op(txn, op, effects);
                }
            }
            TxnOp::CreateSession { timeout_ms } => self.sessions.create(txn.session, *timeout_ms),
            TxnOp::CloseSession { ephemerals } => {
                for path in ephemerals {
                    self.delete(path, txn.zxid, effects);
                }
                self.sessions.close(txn.session);
            }
            TxnOp::Check { .. } | TxnOp::Error { .. } | TxnOp::MultiRefused { .. } => {}
        }
    }

    /// WATCH-10: whoever watches the node's data or its children hears once that it is gone.
    fn delete(&mut self, path: &str, zxid: Zxid, effects: &mut Effects) {
        let readable = self.tree.delete(path, zxid);
        let mut conns = self.watches.fire(Kind::Data, path);
        conns.append(&mut self.watches.fire(Kind::Child, path));
        if readable && !conns.is_empty() {
            effects.fired.push(Fired { event: EventType::NodeDeleted, path: path.into(), conns });
        }
        self.fire_on_parent(path, effects);
    }

    fn fire_on_parent(&mut self, path: &str, effects: &mut Effects) {
        let (parent, _) = tree::split(path).expect("a node but the root has a parent");
        self.fire(EventType::NodeChildrenChanged, Kind::Child, parent, effects);
    }

    /// A watch that may not read the node is used up all the same (WATCH-17, edge 123).
    fn fire(&mut self, event: EventType, kind: Kind, path: &str, effects: &mut Effects) {
        let conns = self.watches.fire(kind, path);
        if conns.is_empty() {
            return;
        }
        let id = self.tree.find(path).expect("an event is about a node that is there");
        if self.tree.may(id, Perms::READ) {
            effects.fired.push(Fired { event, path: path.into(), conns });
        }
    }

    /// Begins a snapshot if one is due and the log has what it will stand for.
    pub(crate) fn maybe_snapshot(&mut self, cx: &mut Cx<'_>) {
        let snapshots = &mut self.snapshots;
        if snapshots.due == 0 {
            let half = cx.config.limits.snapshot_txns / 2;
            snapshots.due = half + 1 + cx.rng.below(half.max(1));
        }
        let due = snapshots.running.is_none() && snapshots.txns >= snapshots.due;
        if !due || self.log.durable() < self.log.applied() {
            return;
        }
        cx.mark(Mark::SnapshotBegun);
        snapshots.txns = 0;
        snapshots.due = 0;
        snapshots.begun += 1;
        let zxid = self.log.applied();
        let header = SnapshotHeader {
            zxid,
            sessions: self.sessions.live().collect(),
            last_session_ids: self.sessions.last().collect(),
        };
        self.tree.begin_snapshot(header, snapshots.begun);
        self.write_slice(zxid, 0, cx);
    }

    /// A chunk is written: the next one may follow, or the snapshot is complete and becomes a promise.
    pub(crate) fn on_chunk_done(&mut self, zxid: Zxid, index: u32, cx: &mut Cx<'_>) {
        let running = self.snapshots.running.take().expect("a chunk of a running snapshot");
        assert_eq!((running.zxid, running.index), (zxid, index), "one chunk at a time");
        if running.last {
            cx.mark(Mark::SnapshotDone);
            self.snapshots.kept.push_back(zxid);
            self.save_state(cx, |state| state.snapshot = zxid);
        } else {
            self.write_slice(zxid, index + 1, cx);
        }
    }

    /// The state file names this snapshot: older ones may go.
    pub(crate) fn on_snapshot_named(&mut self, cx: &mut Cx<'_>) {
        let keep = cx.config.limits.snapshots_kept.max(1) as usize;
        let kept = &mut self.snapshots.kept;
        if kept.len() > keep {
            cx.mark(Mark::SnapshotPurged);
            kept.drain(..kept.len() - keep);
            let oldest = *kept.front().expect("at least one is kept");
            cx.out.disk.push(DiskCommand::Purge { oldest });
        }
    }

    fn write_slice(&mut self, zxid: Zxid, index: u32, cx: &mut Cx<'_>) {
        if self.tree.set_aside() > 0 {
            cx.mark(Mark::SnapshotSetAside);
        }
        let (bytes, last) =
            self.tree.snapshot_slice(cx.config.limits.snapshot_slice_bytes.max(1) as usize);
        self.snapshots.running = Some(Running { zxid, index, last });
        cx.out.disk.push(DiskCommand::SnapshotChunk { zxid, index, bytes, last });
    }
}

impl SnapshotHeader {
    fn empty() -> SnapshotHeader {
        SnapshotHeader { zxid: Zxid::ZERO, sessions: Vec::new(), last_session_ids: Vec::new() }
    }
}
