//! What survives a change of role: tree, sessions, watches, the log's watermarks and the durable promises.
//!
//! Owns the replicated state, its snapshots, and a leader's that arrives to replace it. Must not know roles, nor
//! connections but as names in the watch tables. `apply` is deterministic, and executes what the leader
//! has decided: a transaction that does not fit the state is an error, on which the server stops.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::config::Config;
use crate::cx::Cx;
use crate::digest::NodeView;
use crate::error::{Corrupt, Inapplicable};
use crate::history::History;
use crate::identity::{self, Seed};
use crate::ids::{ConnId, Epoch, Instant, ServerId, SessionId, WriteId, Zxid};
use crate::io::Mark;
use crate::log::Log;
use crate::peer::{FromLeader, Vote};
use crate::quorum::{HistoryInfo, HistoryStatus, Voters};
use crate::recent::LogTail;
use crate::rng::{KeyedHash, Rng};
use crate::session::{self, SessionTable};
use crate::status::{Backlog, Halted};
use crate::store::{DiskCommand, DurableState, Entry, Recovered, THIS_SERVER};
use crate::tree::{self, Loader, NewNode, SnapshotHeader, Tree};
use crate::txn::{Origin, Txn, TxnOp};
use crate::watch::Watches;
use crate::wire::{Acl, EventType, Password, Stat};

/// Ticks until a snapshot is tried again for which there was no room; each further time it is twice as long, so often.
const FIRST_PAUSE: u32 = 4;
const DOUBLINGS: u32 = 6;
/// A learner that waits for a leader's snapshot does not serve.
const DOUBLINGS_OF_LEARNERS: u32 = 2;

/// One server's copy.
#[derive(Debug)]
pub(crate) struct Replica {
    tree: Tree,
    sessions: SessionTable,
    pub(crate) watches: Watches,
    pub(crate) log: Log,
    /// What the log holds, for comparison with others.
    history: History,
    recent: LogTail,
    /// As last handed to the disk.
    state: DurableState,
    /// As it is on the disk.
    saved: DurableState,
    /// Logged and not yet applied, in order.
    unapplied: VecDeque<Unapplied>,
    snapshots: Snapshots,
    /// A leader's snapshot that is arriving.
    incoming: Option<Incoming>,
    /// Fingerprints of the state at the last positions at which servers compare them, oldest first.
    digests: VecDeque<(Zxid, u64)>,
}

/// Fingerprints that are kept: as many comparisons may be under way.
const DIGESTS: usize = 64;

/// A transaction that waits to be committed.
#[derive(Debug)]
enum Unapplied {
    /// Logged in this life: no need to decode it again.
    Decided(Txn),
    /// Found in the log.
    Recovered(Entry),
}

/// When snapshots are taken, and which there are.
#[derive(Debug)]
struct Snapshots {
    running: Option<Running>,
    /// Chunks at the disk, of this server's snapshots and of a leader's.
    at_disk: u32,
    /// Is one to be taken at once, whatever is due? Learners need what could not be read.
    wanted: bool,
    /// Does the history begin after it, once it is taken? Older parts of the log cannot be read.
    forgets: bool,
    /// Transactions applied since the last one began.
    txns: u32,
    /// How many make the next one due.
    due: u32,
    /// Bytes of the transactions logged since the last one began.
    bytes: u64,
    /// How many make the next one due.
    due_bytes: u64,
    /// How many were begun in this life.
    begun: u32,
    /// Those on the disk, oldest first.
    kept: VecDeque<Zxid>,
    /// Are there older ones on the disk than `kept` says, which a leader's snapshot has replaced?
    replaced: bool,
    /// How many in a row had no room on the disk.
    failures: u32,
    /// After those none is begun before.
    not_before: Instant,
    /// The last of them was a leader's: it is not to be sent again before, either.
    rests: bool,
}

#[derive(Debug)]
struct Running {
    zxid: Zxid,
    /// The chunk that is being written.
    index: u32,
    last: bool,
}

/// A snapshot whose pieces come. Once the last one is durable, it becomes the tree.
#[derive(Debug)]
struct Incoming {
    zxid: Zxid,
    /// Pieces so far.
    pieces: u32,
    /// What they become.
    loader: Box<Loader>,
    complete: bool,
    /// Are all of them durable, so that what is left is to make a tree of them?
    loading: bool,
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
    /// Units of work that it took; see [`Outbox`](crate::Outbox).
    pub(crate) units: u64,
}

/// An event and the connections that watch for it.
#[derive(Debug)]
pub(crate) struct Fired {
    pub(crate) event: EventType,
    pub(crate) path: String,
    /// In their order, each once.
    pub(crate) conns: Vec<ConnId>,
    /// Who may hear of it: who may read the node (WATCH-17).
    pub(crate) acl: Arc<[Acl]>,
}

/// Units that copying a payload takes.
fn kib(data: Option<&[u8]>) -> u64 {
    data.map_or(0, |data| data.len() as u64 >> 10)
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
        let end = recovered.entries.last().map_or(applied, |entry| entry.zxid);
        if recovered.history.end() != end || recovered.history.start() > applied {
            let what = format!(
                "the log is said to go from {} to {}, and goes on to {end} after {applied}",
                recovered.history.start(),
                recovered.history.end()
            );
            return Err(Corrupt { what });
        }
        for entry in &recovered.entries {
            if entry.zxid <= last {
                let what = format!("log: {} follows {last}", entry.zxid);
                return Err(Corrupt { what });
            }
            last = entry.zxid;
            // Decoded here once for its errors, so that it need not be looked at again before it is applied.
            Txn::decode(entry)?;
        }
        let bytes = recovered.entries.iter().map(|entry| entry.bytes.len() as u64).sum();
        Ok(Replica {
            tree,
            sessions: table(header),
            watches: Watches::new(hash),
            log: Log::recovered(applied, last),
            history: recovered.history,
            recent: LogTail::after(last),
            saved: recovered.state.clone(),
            state: recovered.state,
            unapplied: recovered.entries.into_iter().map(Unapplied::Recovered).collect(),
            snapshots: Snapshots {
                running: None,
                at_disk: 0,
                wanted: false,
                forgets: false,
                txns: 0,
                due: 0,
                bytes,
                due_bytes: 0,
                begun: 0,
                kept: recovered.snapshots.into(),
                replaced: false,
                failures: 0,
                not_before: Instant::default(),
                rests: false,
            },
            incoming: None,
            digests: VecDeque::new(),
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

    pub(crate) fn history(&self) -> &History {
        &self.history
    }

    pub(crate) fn recent(&self) -> &LogTail {
        &self.recent
    }

    pub(crate) fn state(&self) -> &DurableState {
        &self.state
    }

    /// The vote for this server, of this id, with the history that it has logged.
    pub(crate) fn vote(&self, candidate: ServerId) -> Vote {
        Vote { epoch: self.state.current_epoch, zxid: self.log.appended(), candidate }
    }

    /// What the word of this server is worth: as much as its disk remembers.
    pub(crate) fn history_status(&self) -> HistoryStatus {
        if self.saved.damaged {
            HistoryStatus::Lost
        } else if self.saved.current_epoch == Epoch(0) {
            HistoryStatus::Uninitialized
        } else {
            HistoryStatus::Complete
        }
    }

    /// The ensemble that it belongs to, once it is known to be a quorum's; 0 before.
    pub(crate) fn ensemble_id(&self) -> u64 {
        if self.has_nothing_to_lose() { 0 } else { self.last_ensemble_id() }
    }

    /// The same, also where nothing was ever logged here.
    pub(crate) fn last_ensemble_id(&self) -> u64 {
        self.saved.identity.filter(|identity| identity.established).map_or(0, |known| known.id)
    }

    /// Nothing was ever logged here: whatever ensemble it belonged to, it may become part of another one. New servers that were
    /// started before one that has data have begun an ensemble of their own.
    pub(crate) fn has_nothing_to_lose(&self) -> bool {
        self.log.is_empty() && !self.state.damaged
    }

    /// The password of a session (HS-08).
    ///
    /// # Panics
    /// Before this server has followed a leader or led: nobody asks for passwords then.
    pub(crate) fn password(&self, session: SessionId) -> Password {
        if self.sessions.has_zookeeper_password(session) {
            return session::zookeeper_password(session);
        }
        self.state.identity.expect("known before service").secret.password(session)
    }

    /// Is this the password of the session?
    pub(crate) fn is_password(&self, session: SessionId, claimed: &[u8]) -> bool {
        if self.sessions.has_zookeeper_password(session) {
            return claimed == session::zookeeper_password(session);
        }
        let identity = self.state.identity.expect("known before service");
        identity.secret.is_password(session, claimed)
    }

    /// The random number of the epoch that this transaction is of; 0 where it is not known.
    pub(crate) fn nonce_at(&self, zxid: Zxid) -> u64 {
        identity::nonce_of(&self.state.nonces, zxid.epoch()).unwrap_or(0)
    }

    /// Enters an epoch that this server begins. The history is on the disk already, so the epoch may follow it (Z18).
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch, seed: &Seed, cx: &mut Cx<'_>) -> WriteId {
        let mut nonces = self.state.nonces.clone();
        let needed = |epoch| self.history.holds(epoch);
        identity::note_epoch(&mut nonces, seed.epoch_nonce(epoch), needed);
        let list = kept_list(cx.config.voters());
        self.save_state(cx, |state| {
            state.current_epoch = epoch;
            state.nonces = nonces;
            if state.voters.is_empty() {
                // As they were taken for until now.
                state.voters = list;
            }
            state.identity.get_or_insert_with(|| seed.identity(epoch));
        })
    }

    /// Is it durable that the ensemble, as this server knows it, is a quorum's, and that these are its voters?
    pub(crate) fn is_established_under(&self, voters: &Voters) -> bool {
        self.saved.voters == kept_list(voters)
            && self.saved.identity.is_some_and(|known| known.established)
    }

    /// A quorum has the history, and the identity of the ensemble: before anything is committed under these voters, that is
    /// durable, and so are they.
    pub(crate) fn record_establishment(&mut self, cx: &mut Cx<'_>) -> WriteId {
        let list = kept_list(cx.config.voters());
        self.save_state(cx, |state| {
            state.voters = list;
            state.identity.iter_mut().for_each(|identity| identity.established = true);
        })
    }

    /// What a learner of this server enters the epoch with.
    pub(crate) fn new_leader(&self, epoch: Epoch, config: &Config) -> FromLeader {
        let voters = config.voters().set().clone();
        let established = self.voters_before(config).set().clone();
        let identity = self.state.identity.expect("known since the epoch began");
        let nonces = self.state.nonces.clone();
        FromLeader::NewLeader { epoch, voters, established, identity, nonces }
    }

    /// The voters that the last epoch was established under. Where nobody knows, they are taken for those of now, of whom
    /// none is new.
    pub(crate) fn voters_before(&self, config: &Config) -> Voters {
        let known = self.state.voters.iter();
        let known = known.map(|id| if *id == THIS_SERVER { config.id() } else { *id });
        config.voters().or(&known.collect())
    }

    /// What this server says of its history.
    pub(crate) fn history_info(&self, config: &Config) -> HistoryInfo {
        let newcomers = config.voters().newcomers(&self.voters_before(config));
        HistoryInfo {
            history_status: self.history_status(),
            epoch: self.state.current_epoch,
            newcomers,
        }
    }

    pub(crate) fn outstanding(&self) -> usize {
        self.unapplied.len()
    }

    /// As much of a [`Backlog`] as is here.
    pub(crate) fn backlog(&self) -> Backlog {
        Backlog {
            undurable_bytes: self.log.undurable_bytes(),
            tail_faults: self.recent.faults(self.log.appended()),
            walks: usize::from(self.tree.is_walked() && self.snapshots.running.is_none()),
            pieces: self.incoming.as_ref().map_or(0, |incoming| incoming.pieces as usize),
            pieces_at_disk: self.snapshots.at_disk as usize,
            lists: self.tree.unused_lists(),
            ..Backlog::default()
        }
    }

    pub(crate) fn snapshots_kept(&self) -> usize {
        self.snapshots.kept.len()
    }

    pub(crate) fn snapshot_running(&self) -> bool {
        self.snapshots.running.is_some()
    }

    /// Tree and watches side by side, for reads that leave a watch.
    pub(crate) fn reading(&mut self) -> (&Tree, &mut Watches) {
        (&self.tree, &mut self.watches)
    }

    /// Shows each node of the tree, in no particular order.
    pub(crate) fn visit_nodes(&self, visit: &mut dyn FnMut(&NodeView<'_>)) {
        self.tree.visit(visit);
    }

    /// Sum over nodes and sessions; see [`crate::digest`].
    pub(crate) fn digest(&self) -> u64 {
        self.tree.digest().wrapping_add(self.sessions.digest())
    }

    /// A transaction is applied: keeps the fingerprint where servers compare theirs.
    pub(crate) fn note_digest(&mut self, config: &Config) {
        let at = self.log.applied();
        if at.counter().is_multiple_of(config.limits.compare_txns.max(1)) {
            self.digests.push_back((at, self.digest()));
            let surplus = self.digests.len().saturating_sub(DIGESTS);
            self.digests.drain(..surplus);
        }
    }

    /// The newest fingerprints after this position, at most so many of them.
    pub(crate) fn digests_after(&self, zxid: Zxid, most: usize) -> Vec<(Zxid, u64)> {
        let first = self.digests.partition_point(|(at, _)| *at <= zxid);
        let first = first.max(self.digests.len().saturating_sub(most));
        self.digests.range(first..).copied().collect()
    }

    /// The own fingerprint at such a position, if it is still known.
    pub(crate) fn digest_at(&self, zxid: Zxid) -> Option<u64> {
        self.digests.iter().find(|(at, _)| *at == zxid).map(|(_, digest)| *digest)
    }

    /// Changes the durable promises. What depends on that waits for this very write: an earlier one that is still under
    /// way may say the same, and what was logged between the two is not durable with it.
    pub(crate) fn save_state(
        &mut self,
        cx: &mut Cx<'_>,
        change: impl FnOnce(&mut DurableState),
    ) -> WriteId {
        change(&mut self.state);
        assert!(self.state.accepted_epoch >= self.state.current_epoch, "promised before entered");
        let (id, command) = self.log.save(self.state.clone());
        cx.out.disk.push(command);
        id
    }

    /// A state file is durable.
    pub(crate) fn on_saved(&mut self, state: &DurableState) {
        self.saved = state.clone();
    }

    /// Hands a decided transaction to the log. Returns it as it is sent to learners.
    pub(crate) fn append(&mut self, txn: Txn, cx: &mut Cx<'_>) -> Entry {
        let entry = txn.encode();
        self.keep(entry.clone(), txn, cx);
        entry
    }

    /// Hands a leader's transaction to the log.
    ///
    /// # Errors
    /// One that does not follow the last (ZAB-13), or cannot be decoded.
    pub(crate) fn receive(&mut self, entry: Entry, cx: &mut Cx<'_>) -> Result<(), String> {
        if !self.history.may_follow(entry.zxid) {
            return Err(format!("proposal {} after {}", entry.zxid, self.history.end()));
        }
        let txn = Txn::decode(&entry).map_err(|corrupt| corrupt.to_string())?;
        self.keep(entry, txn, cx);
        Ok(())
    }

    fn keep(&mut self, entry: Entry, txn: Txn, cx: &mut Cx<'_>) {
        self.history.push(entry.zxid);
        self.recent.push(entry.clone());
        self.snapshots.bytes += entry.bytes.len() as u64;
        self.recent.trim(cx.config.limits.recent_bytes, self.log.durable());
        cx.out.disk.push(self.log.append(entry));
        self.unapplied.push_back(Unapplied::Decided(txn));
    }

    /// Forgets what comes after `to`. Returns where the log then ends: at or before that.
    ///
    /// # Errors
    /// A position before what is committed.
    pub(crate) fn truncate(&mut self, to: Zxid, cx: &mut Cx<'_>) -> Result<Zxid, String> {
        let committed = self.log.committed();
        let last = self.history.last_at_or_before(to).filter(|last| *last >= committed);
        let Some(last) = last else {
            return Err(format!("truncation to {to} would undo {committed}, which is committed"));
        };
        if last < self.log.appended() {
            cx.out.disk.push(self.log.truncate(last));
            self.history.truncate(last);
            self.recent.truncate(last);
            while self.unapplied.pop_back_if(|unapplied| unapplied.zxid() > last).is_some() {}
        }
        Ok(last)
    }

    /// Takes a piece of a leader's snapshot.
    ///
    /// # Errors
    /// A piece out of order, or of a snapshot that this server is ahead of.
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
        if index == 0 {
            // The lane writes one snapshot at a time.
            if let Some(running) = self.snapshots.running.take() {
                cx.mark(Mark::SnapshotReplaced);
                cx.out.disk.push(DiskCommand::DropSnapshot { zxid: running.zxid });
            }
            self.tree.cancel_snapshot();
            self.abandon_incoming(cx);
            let loader = Box::new(Loader::new(KeyedHash::new(cx.rng)));
            self.incoming =
                Some(Incoming { zxid, pieces: 0, loader, complete: false, loading: false });
        }
        let incoming = self.incoming.as_mut().filter(|incoming| {
            incoming.zxid == zxid && incoming.pieces == index && !incoming.complete
        });
        let Some(incoming) = incoming else {
            return Err(format!("piece {index} of snapshot {zxid} is out of order"));
        };
        incoming.loader.take(&bytes).map_err(|corrupt| corrupt.to_string())?;
        incoming.pieces += 1;
        incoming.complete = last;
        self.snapshots.at_disk += 1;
        cx.out.disk.push(DiskCommand::SnapshotChunk { zxid, index, bytes, last });
        Ok(())
    }

    /// The rest of a snapshot will not come.
    pub(crate) fn abandon_incoming(&mut self, cx: &mut Cx<'_>) {
        if let Some(incoming) = self.incoming.take() {
            cx.mark(Mark::SnapshotAbandoned);
            cx.out.disk.push(DiskCommand::DropSnapshot { zxid: incoming.zxid });
        }
    }

    /// The transactions that are logged here in this life and not yet applied, and were asked for on this server.
    pub(crate) fn unapplied_origins(&self, server: ServerId) -> BTreeSet<Origin> {
        let origin = |unapplied: &Unapplied| match unapplied {
            Unapplied::Decided(txn) => txn.origin,
            // Its connection is gone: connections do not outlive a process.
            Unapplied::Recovered(_) => None,
        };
        let here = |origin: &Origin| origin.server == server;
        self.unapplied.iter().filter_map(origin).filter(here).collect()
    }

    /// The sessions that will be known to all once everything is applied that is logged in this life.
    pub(crate) fn unapplied_upgrades(&self) -> BTreeSet<SessionId> {
        let upgrade = |unapplied: &Unapplied| match unapplied {
            Unapplied::Decided(Txn { session, op: TxnOp::UpgradeSession { .. }, .. }) => {
                Some(*session)
            }
            // Sessions that only this server knew have died with the process before this one.
            Unapplied::Decided(_) | Unapplied::Recovered(_) => None,
        };
        self.unapplied.iter().filter_map(upgrade).collect()
    }

    /// The position of the next transaction to apply, and who asked for it in this life.
    pub(crate) fn next_unapplied(&self) -> Option<(Zxid, Option<Origin>)> {
        match self.unapplied.front()? {
            Unapplied::Decided(txn) => Some((txn.zxid, txn.origin)),
            Unapplied::Recovered(entry) => Some((entry.zxid, None)),
        }
    }

    /// Applies the next committed transaction, if there is one.
    ///
    /// # Errors
    /// A transaction that the state does not admit. The state is of no use any more.
    pub(crate) fn apply_next(&mut self) -> Result<Option<Applied>, Halted> {
        if self.log.applied() == self.log.committed() {
            return Ok(None);
        }
        let txn = match self.unapplied.pop_front().expect("what is committed was logged") {
            Unapplied::Decided(txn) => txn,
            Unapplied::Recovered(entry) => Txn::decode(&entry).expect("checked at recovery"),
        };
        let mut effects = Effects::default();
        if let Err(error) = self.apply_op(&txn, &txn.op, &mut effects) {
            let (zxid, record) = (txn.zxid, txn.op.to_string());
            return Err(Halted::Inapplicable {
                zxid,
                session: txn.session,
                record,
                what: error.what,
            });
        }
        self.log.apply(txn.zxid);
        self.tree.settle_digest();
        self.snapshots.txns = self.snapshots.txns.saturating_add(1);
        Ok(Some(Applied { txn, effects }))
    }

    fn apply_op(
        &mut self,
        txn: &Txn,
        op: &TxnOp,
        effects: &mut Effects,
    ) -> Result<(), Inapplicable> {
        effects.units += 1;
        match op {
            TxnOp::Create { path, data, acl, lifetime, parent_creates } => {
                effects.units += kib(data.as_deref());
                if !lifetime.is_possible() {
                    return Err(Inapplicable::new(format!(
                        "{lifetime:?} of {path} is out of range"
                    )));
                }
                let owner = lifetime.owner(txn.session);
                let data = data.as_deref();
                let new = NewNode { path, data, acl, owner, parent_creates: *parent_creates };
                effects.stats.push(self.tree.create(new, txn.zxid, txn.time)?);
                self.fire(EventType::NodeCreated, path, effects);
                self.fire_on_parent(path, effects);
            }
            TxnOp::Delete { path } => self.delete(path, txn.zxid, effects)?,
            TxnOp::SetData { path, data, version } => {
                let data = data.as_deref();
                effects.units += kib(data);
                let stat = self.tree.set_data(path, data, *version, txn.zxid, txn.time)?;
                effects.stats.push(stat);
                self.fire(EventType::NodeDataChanged, path, effects);
            }
            TxnOp::SetAcl { path, acl, version } => {
                effects.stats.push(self.tree.set_acl(path, acl, *version)?);
            }
            TxnOp::Multi(ops) => {
                for op in ops {
                    self.apply_op(txn, op, effects)?;
                }
            }
            TxnOp::CreateSession { timeout_ms } => {
                let owner = txn.origin.map(|origin| origin.server);
                self.create_session(txn, *timeout_ms, owner)?;
            }
            TxnOp::UpgradeSession { timeout_ms, server } => {
                self.create_session(txn, *timeout_ms, Some(*server))?;
            }
            TxnOp::MoveSession { server } => self.sessions.move_to(txn.session, *server)?,
            TxnOp::CloseSession => {
                let ephemerals = self.tree.ephemerals(txn.session, "").map(str::to_owned);
                for path in Vec::from_iter(ephemerals) {
                    self.delete(&path, txn.zxid, effects)?;
                }
                self.sessions.close(txn.session)?;
            }
            TxnOp::Check { .. } | TxnOp::Error { .. } | TxnOp::MultiRefused { .. } => {}
        }
        Ok(())
    }

    fn create_session(
        &mut self,
        txn: &Txn,
        timeout_ms: u32,
        owner: Option<ServerId>,
    ) -> Result<(), Inapplicable> {
        let identity = self.state.identity;
        let keyed = identity.is_some_and(|identity| identity.covers(txn.zxid.epoch()));
        self.sessions.create(txn.session, timeout_ms, owner, keyed)
    }

    /// WATCH-10: whoever watches the node's data or its children hears once that it is gone.
    fn delete(
        &mut self,
        path: &str,
        zxid: Zxid,
        effects: &mut Effects,
    ) -> Result<(), Inapplicable> {
        let acl = self.tree.delete(path, zxid)?;
        let event = EventType::NodeDeleted;
        let conns = self.watches.fire(event, path);
        effects.units += 1 + conns.len() as u64;
        if !conns.is_empty() {
            effects.fired.push(Fired { event, path: path.into(), conns, acl });
        }
        self.fire_on_parent(path, effects);
        Ok(())
    }

    fn fire_on_parent(&mut self, path: &str, effects: &mut Effects) {
        let (parent, _) = tree::split(path).expect("a node but the root has a parent");
        self.fire(EventType::NodeChildrenChanged, parent, effects);
    }

    /// A watch that may not read the node is used up all the same (WATCH-17, edge 123).
    fn fire(&mut self, event: EventType, path: &str, effects: &mut Effects) {
        let conns = self.watches.fire(event, path);
        if conns.is_empty() {
            return;
        }
        effects.units += conns.len() as u64;
        let id = self.tree.find(path).expect("an event is about a node that is there");
        let acl = self.tree.share_acl(id);
        effects.fired.push(Fired { event, path: path.into(), conns, acl });
    }

    /// Is a leader's snapshot durable, and not the state yet?
    pub(crate) fn is_loading(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.loading)
    }

    /// How far that is: parts of the work, of so many.
    pub(crate) fn loading_progress(&self) -> Option<(Zxid, u64, u64)> {
        let incoming = self.incoming.as_ref().filter(|incoming| incoming.loading)?;
        let (done, all) = incoming.loader.progress();
        Some((incoming.zxid, done, all))
    }

    /// Makes more of the tree of a leader's snapshot that is durable, as far as this step may. Is it the state now?
    ///
    /// # Errors
    /// A snapshot that makes no sense.
    pub(crate) fn go_on_loading(&mut self, cx: &mut Cx<'_>) -> Result<bool, String> {
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

    /// A leader's snapshot is durable, and a tree: it becomes the state.
    fn install(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        let appended = self.log.appended();
        let of_it = |incoming: &mut Incoming| incoming.loader.zxid() == Some(incoming.zxid);
        let sound = |incoming: &mut Incoming| of_it(incoming) && incoming.zxid > appended;
        // One that is left is dropped with the leader.
        let Some(Incoming { zxid, loader, .. }) = self.incoming.take_if(sound) else {
            return Err("the leader's snapshot holds the picture of another position".to_owned());
        };
        let (tree, header) = loader.finish();
        self.tree = tree;
        self.digests.clear();
        self.sessions = table(header);
        self.watches = Watches::new(self.tree.hash());
        self.unapplied.clear();
        self.history = History::after(zxid);
        self.recent = LogTail::after(zxid);
        self.snapshots.kept = [zxid].into();
        self.snapshots.failures = 0;
        self.snapshots.replaced = true;
        (self.snapshots.txns, self.snapshots.bytes) = (0, 0);
        // The one write that switches: whatever the log holds then counts for nothing any more.
        self.save_state(cx, |state| {
            state.snapshot = zxid;
            // What was known of the log that it replaces.
            state.nonces.clear();
        });
        cx.out.disk.push(self.log.rebase(zxid));
        cx.mark(Mark::SnapshotInstalled);
        Ok(())
    }

    /// Begins a snapshot if one is due and the log has what it will stand for.
    pub(crate) fn maybe_snapshot(&mut self, cx: &mut Cx<'_>) {
        let snapshots = &mut self.snapshots;
        if snapshots.due == 0 {
            let half = cx.config.limits.snapshot_txns / 2;
            let more = cx.rng.below(half.max(1));
            snapshots.due = half + 1 + more;
            let half_bytes = cx.config.limits.snapshot_bytes / 2;
            let share = u128::from(half_bytes) * u128::from(more + 1) / u128::from(half.max(1));
            snapshots.due_bytes = half_bytes + u64::try_from(share).expect("at most the half");
        }
        // Chunks of a snapshot that was given up must not be taken for those of the next one.
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
        self.write_slice(zxid, 0, cx);
    }

    /// A chunk is written: the next one may follow, or the snapshot is complete and becomes a promise. Was it a leader's
    /// snapshot that is complete now, and is the state?
    ///
    /// # Errors
    /// A leader's snapshot that makes no sense.
    pub(crate) fn on_chunk_done(
        &mut self,
        zxid: Zxid,
        index: u32,
        cx: &mut Cx<'_>,
    ) -> Result<bool, String> {
        self.snapshots.at_disk -= 1;
        if let Some(incoming) = &mut self.incoming {
            // The disk answers in order. Pieces of an attempt that was given up may bear the same numbers as these, so only
            // the last of all answers says that this snapshot is durable.
            if !incoming.complete || self.snapshots.at_disk > 0 {
                return Ok(false);
            }
            incoming.loading = true;
            return self.go_on_loading(cx);
        }
        let Some(running) = self.snapshots.running.take_if(|running| running.zxid == zxid) else {
            // Of a snapshot that was given up.
            return Ok(false);
        };
        assert_eq!(running.index, index, "one chunk at a time");
        if running.last {
            cx.mark(Mark::SnapshotDone);
            self.snapshots.failures = 0;
            // One that could not be read may have been of the same position.
            self.snapshots.kept.retain(|kept| *kept < zxid);
            self.snapshots.kept.push_back(zxid);
            if std::mem::take(&mut self.snapshots.forgets) {
                self.history.forget(zxid);
            }
            self.save_state(cx, |state| state.snapshot = zxid);
        } else {
            self.write_slice(zxid, index + 1, cx);
        }
        Ok(false)
    }

    /// There is no room for a chunk, nor for what follows it: its snapshot is given up, and the next one waits. Was it a
    /// leader's that arrives? Pieces of an earlier attempt at the same one count, too, as they bear the same numbers.
    pub(crate) fn on_snapshot_failed(&mut self, zxid: Zxid, cx: &mut Cx<'_>) -> bool {
        let snapshots = &mut self.snapshots;
        snapshots.at_disk -= 1;
        let is_leaders = self.incoming.as_ref().is_some_and(|incoming| incoming.zxid == zxid);
        if is_leaders {
            cx.mark(Mark::SnapshotRefused);
        } else if snapshots.running.take_if(|running| running.zxid == zxid).is_some() {
            cx.mark(Mark::SnapshotFailed);
            self.tree.cancel_snapshot();
            // As many transactions lie behind the last one as when this one began, at least.
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

    /// A learner needs this snapshot, and it cannot be read: it counts no more, and another one is taken at once.
    pub(crate) fn on_snapshot_unreadable(&mut self, zxid: Zxid) {
        self.snapshots.kept.retain(|kept| *kept != zxid);
        self.snapshots.wanted = true;
    }

    /// A learner needs a part of the log that cannot be read: a snapshot is taken that makes it needless.
    pub(crate) fn on_log_unreadable(&mut self) {
        self.snapshots.wanted = true;
        self.snapshots.forgets = true;
    }

    /// Until when no leader's snapshot is to come, because there was no room for the last one.
    pub(crate) fn rests_until(&self, now: Instant) -> Option<Instant> {
        let Snapshots { rests, not_before, .. } = self.snapshots;
        (rests && not_before > now).then_some(not_before)
    }

    /// The newest snapshot, if there is one.
    pub(crate) fn newest_snapshot(&self) -> Option<Zxid> {
        self.snapshots.kept.back().copied()
    }

    /// The state file names the newest snapshot: older ones may go, and the log before them, as far as no learner needs
    /// what comes after `needed`.
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

    fn write_slice(&mut self, zxid: Zxid, index: u32, cx: &mut Cx<'_>) {
        if self.tree.set_aside() > 0 {
            cx.mark(Mark::SnapshotSetAside);
        }
        let (bytes, last) =
            self.tree.snapshot_slice(cx.config.limits.snapshot_slice_bytes.max(1) as usize);
        self.snapshots.running = Some(Running { zxid, index, last });
        self.snapshots.at_disk += 1;
        cx.out.disk.push(DiskCommand::SnapshotChunk { zxid, index, bytes, last });
    }
}

impl Unapplied {
    fn zxid(&self) -> Zxid {
        match self {
            Unapplied::Decided(txn) => txn.zxid,
            Unapplied::Recovered(entry) => entry.zxid,
        }
    }
}

impl SnapshotHeader {
    fn empty() -> SnapshotHeader {
        SnapshotHeader {
            zxid: Zxid::ZERO,
            sessions: Vec::new(),
            owners: Vec::new(),
            last_session_ids: Vec::new(),
            keyed: Vec::new(),
        }
    }
}

/// The list of voters as the state file keeps it.
fn kept_list(voters: &Voters) -> BTreeSet<ServerId> {
    if voters.alone() { [THIS_SERVER].into() } else { voters.set().clone() }
}

fn table(header: SnapshotHeader) -> SessionTable {
    let SnapshotHeader { zxid: _, sessions, last_session_ids, owners, keyed } = header;
    SessionTable::restore(sessions, owners, last_session_ids, keyed)
}
