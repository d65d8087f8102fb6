//! The state that survives a change of role: tree, sessions, watches, the log's watermarks and the
//! durable promises.
//!
//! Owns the replicated state, its snapshots, and a leader's snapshot that is being received. Must
//! not know roles, nor connections except as ids in the watch tables. `apply` is deterministic and
//! executes what the leader has decided: a transaction that does not fit the state is an error,
//! which halts the server.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;

use crate::config::Config;
use crate::cx::Cx;
use crate::digest::NodeView;
use crate::error::{Corrupt, Inapplicable};
use crate::identity::{self, Seed};
use crate::ids::{ConnId, Epoch, Instant, ServerId, SessionId, WriteId, Zxid};
use crate::io::Mark;
use crate::log::Log;
use crate::log::epochs::History;
use crate::log::tail::LogTail;
use crate::peer::{FromLeader, Vote};
use crate::quorum::{HistoryInfo, HistoryStatus, Voters};
use crate::rng::{KeyedHash, Rng};
use crate::session::{self, SessionTable};
use crate::status::{Backlog, Halted};
use crate::store::{DiskCommand, DurableState, Entry, Recovered, THIS_SERVER};
use crate::tree::{self, Loader, NewNode, SnapshotHeader, Tree};
use crate::txn::{Origin, Txn, TxnOp};
use crate::watch::Watches;
use crate::wire::{Acl, EventType, Password, Stat};

/// Ticks until the next snapshot after the disk had no room for one. Each further failure doubles
/// the pause, at most `DOUBLINGS` times.
const FIRST_PAUSE: u32 = 4;
const DOUBLINGS: u32 = 6;
/// The limit is lower for a leader's snapshot, because a learner that waits for it does not serve.
const DOUBLINGS_OF_LEARNERS: u32 = 2;

/// One server's copy of the replicated state.
#[derive(Debug)]
pub(crate) struct Replica {
    tree: Tree,
    sessions: SessionTable,
    pub(crate) watches: Watches,
    pub(crate) log: Log,
    /// The spans of the log, for comparison with other servers' logs.
    history: History,
    recent: LogTail,
    /// The state as last handed to the disk.
    state: DurableState,
    /// The state that is durable.
    saved: DurableState,
    /// Transactions that are logged and not yet applied, in order.
    unapplied: VecDeque<Unapplied>,
    snapshots: Snapshots,
    /// A leader's snapshot that is being received.
    incoming: Option<Incoming>,
    /// Digests of the state at the last zxids at which servers compare them, oldest first.
    digests: VecDeque<(Zxid, u64)>,
}

/// Digests that are kept: as many comparisons may be under way.
const DIGESTS: usize = 64;

/// A logged transaction that is not applied yet.
#[derive(Debug)]
enum Unapplied {
    /// Logged since this process started, and already decoded.
    Decided(Txn),
    /// Recovered from the log, and still encoded.
    Recovered(Entry),
}

/// When snapshots are taken, and which ones exist.
#[derive(Debug)]
struct Snapshots {
    running: Option<Running>,
    /// Chunks that the disk has not answered yet, of this server's snapshots and of a leader's.
    at_disk: u32,
    /// Must one be taken at once, whether or not it is due? Set when data for a learner is
    /// unreadable.
    wanted: bool,
    /// Does the history begin at the next snapshot? Set when older parts of the log are unreadable.
    forgets: bool,
    /// Transactions applied since the last one began.
    txns: u32,
    /// The value of `txns` at which the next one is due.
    due: u32,
    /// Bytes of the transactions logged since the last one began.
    bytes: u64,
    /// The value of `bytes` at which the next one is due.
    due_bytes: u64,
    /// The number of snapshots begun since this process started.
    begun: u32,
    /// The snapshots on the disk, oldest first.
    kept: VecDeque<Zxid>,
    /// Does the disk hold older snapshots than `kept` lists, because a leader's snapshot has
    /// replaced them?
    replaced: bool,
    /// The number of consecutive snapshots for which the disk had no room.
    failures: u32,
    /// After such failures, no snapshot begins before this time.
    not_before: Instant,
    /// Was the last failed snapshot a leader's? Then this server follows no leader before
    /// `not_before` either.
    rests: bool,
}

#[derive(Debug)]
struct Running {
    zxid: Zxid,
    /// The chunk that is being written.
    index: u32,
    last: bool,
}

/// A leader's snapshot that is being received. It becomes the state once the last chunk is durable.
#[derive(Debug)]
struct Incoming {
    zxid: Zxid,
    /// Chunks received so far.
    pieces: u32,
    /// Builds the tree from the chunks.
    loader: Box<Loader>,
    complete: bool,
    /// Are all chunks durable, so that only building the tree remains?
    loading: bool,
}

/// A transaction that was just applied.
#[derive(Debug)]
pub(crate) struct Applied {
    pub(crate) txn: Txn,
    pub(crate) effects: Effects,
}

/// The effects of applying a transaction.
#[derive(Debug, Default)]
pub(crate) struct Effects {
    /// The stats of the nodes created and changed, in order.
    pub(crate) stats: Vec<Stat>,
    /// The watch events to send, in order.
    pub(crate) fired: Vec<Fired>,
    /// Units of work spent; see [`Outbox`](crate::Outbox).
    pub(crate) units: u64,
}

/// A watch event and the connections that receive it.
#[derive(Debug)]
pub(crate) struct Fired {
    pub(crate) event: EventType,
    pub(crate) path: String,
    /// Ascending, without duplicates.
    pub(crate) conns: Vec<ConnId>,
    /// The ACL of the node: only clients that may read the node receive the event (WATCH-17).
    pub(crate) acl: Arc<[Acl]>,
}

/// Units of work for copying data.
fn kib(data: Option<&[u8]>) -> u64 {
    data.map_or(0, |data| data.len() as u64 >> 10)
}

impl Replica {
    /// The state that recovery found. The log after the snapshot is applied only once a leader has
    /// committed it.
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
            // Decoding is checked here, so that it cannot fail when the entry is applied.
            Txn::decode(entry)?;
        }
        let bytes = recovered.entries.iter().map(|entry| entry.bytes.len() as u64).sum();
        let replica = Replica {
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
        };
        replica.check_watermarks();
        Ok(replica)
    }

    /// Checks that the parts of the replica agree about the positions of the log.
    fn check_watermarks(&self) {
        let (applied, appended) = (self.log.applied(), self.log.appended());
        let (start, end) = (self.history.start(), self.history.end());
        assert!(end == appended, "the spans end at {end}, and the log at {appended}");
        assert!(start <= applied, "the spans begin after {start}, ahead of applied {applied}");
        let (first, last) = (self.unapplied.front(), self.unapplied.back());
        let last = last.map_or(applied, Unapplied::zxid);
        assert!(last == appended, "unapplied transactions end at {last}, the log at {appended}");
        let first = first.map(Unapplied::zxid);
        assert!(first.is_none_or(|first| first > applied), "{first:?} is applied: {applied}");
        let (start, end) = (self.recent.start(), self.recent.end());
        let durable = self.log.durable();
        assert!(end == appended, "the tail ends at {end}, and the log at {appended}");
        assert!(start <= durable, "the tail lacks {start}, and the log is durable to {durable}");
        // A learner that has received a snapshot continues with durable transactions after it.
        let reached = applied.min(durable);
        for snapshot in [self.newest_snapshot(), self.running_snapshot()].into_iter().flatten() {
            assert!(snapshot <= reached, "snapshot {snapshot} is ahead of {reached}");
        }
        let two = self.incoming.is_some() && self.snapshots.running.is_some();
        assert!(!two, "the snapshot lane writes one snapshot at a time");
    }

    fn running_snapshot(&self) -> Option<Zxid> {
        self.snapshots.running.as_ref().map(|running| running.zxid)
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

    /// The state that is durable.
    pub(crate) fn saved(&self) -> &DurableState {
        &self.saved
    }

    /// The vote of this server for itself, with the history that it has logged.
    pub(crate) fn vote(&self, candidate: ServerId) -> Vote {
        Vote { epoch: self.state.current_epoch, zxid: self.log.appended(), candidate }
    }

    /// How this server's history counts towards a quorum, according to its durable state.
    pub(crate) fn history_status(&self) -> HistoryStatus {
        if self.saved.damaged {
            HistoryStatus::Lost
        } else if self.saved.current_epoch == Epoch(0) {
            HistoryStatus::Uninitialized
        } else {
            HistoryStatus::Complete
        }
    }

    /// The id of the established ensemble; 0 if it is unknown or this server has no data.
    pub(crate) fn ensemble_id(&self) -> u64 {
        if self.has_nothing_to_lose() { 0 } else { self.last_ensemble_id() }
    }

    /// The id of the established ensemble, also if this server has no data; 0 if it is unknown.
    pub(crate) fn last_ensemble_id(&self) -> u64 {
        self.saved.identity.filter(|identity| identity.established).map_or(0, |known| known.id)
    }

    /// Has this server never logged anything? It may then leave its ensemble for another one: new
    /// servers that start before one with data have formed an ensemble of their own.
    pub(crate) fn has_nothing_to_lose(&self) -> bool {
        self.log.is_empty() && !self.state.damaged
    }

    /// The password of a session (HS-08).
    ///
    /// # Panics
    /// Before this server has followed a leader or led: no caller needs a password then.
    pub(crate) fn password(&self, session: SessionId) -> Password {
        if self.sessions.has_zookeeper_password(session) {
            return session::zookeeper_password(session);
        }
        self.state.identity.expect("known before service").secret.password(session)
    }

    /// Does `claimed` match the password of the session?
    pub(crate) fn is_password(&self, session: SessionId, claimed: &[u8]) -> bool {
        if self.sessions.has_zookeeper_password(session) {
            return claimed == session::zookeeper_password(session);
        }
        let identity = self.state.identity.expect("known before service");
        identity.secret.is_password(session, claimed)
    }

    /// The nonce of the epoch of `zxid`; 0 if it is unknown.
    pub(crate) fn nonce_at(&self, zxid: Zxid) -> u64 {
        identity::nonce_of(&self.state.nonces, zxid.epoch()).unwrap_or(0)
    }

    /// Begins an epoch as its leader. The history is durable already, so the epoch may be recorded
    /// after it (Z18).
    pub(crate) fn begin_epoch(&mut self, epoch: Epoch, seed: &Seed, cx: &mut Cx<'_>) -> WriteId {
        let promised = self.saved.accepted_epoch;
        assert!(promised == epoch, "epoch {epoch} begins, and the durable promise is {promised}");
        let (durable, appended) = (self.log.durable(), self.log.appended());
        assert!(durable == appended, "the history to {appended} is durable to {durable} only");
        let mut nonces = self.state.nonces.clone();
        let needed = |epoch| self.history.holds(epoch);
        identity::note_epoch(&mut nonces, seed.epoch_nonce(epoch), needed);
        let list = kept_list(cx.config.voters());
        self.save_state(cx, |state| {
            state.current_epoch = epoch;
            state.nonces = nonces;
            if state.voters.is_empty() {
                // `voters_before` has returned this list so far.
                state.voters = list;
            }
            state.identity.get_or_insert_with(|| seed.identity(epoch));
        })
    }

    /// Is it durable that the ensemble is established, with these voters?
    pub(crate) fn is_established_under(&self, voters: &Voters) -> bool {
        self.saved.voters == kept_list(voters)
            && self.saved.identity.is_some_and(|known| known.established)
    }

    /// Records that a quorum has the history and the identity of the ensemble, and the voters. This
    /// must be durable before anything is committed under these voters.
    pub(crate) fn record_establishment(&mut self, cx: &mut Cx<'_>) -> WriteId {
        let (begun, durable) = (self.state.current_epoch, self.saved.current_epoch);
        assert!(begun == durable, "epoch {begun} is established, and {durable} is durable");
        assert!(self.saved.identity.is_some(), "the identity of epoch {begun} is not durable");
        let list = kept_list(cx.config.voters());
        self.save_state(cx, |state| {
            state.voters = list;
            state.identity.iter_mut().for_each(|identity| identity.established = true);
        })
    }

    /// The NEWLEADER message for a learner.
    pub(crate) fn new_leader(&self, epoch: Epoch, config: &Config) -> FromLeader {
        let current = self.state.current_epoch;
        assert!(epoch == current, "NEWLEADER of epoch {epoch} in epoch {current}");
        let voters = config.voters().set().clone();
        let established = self.voters_before(config).set().clone();
        let identity = self.state.identity.expect("known since the epoch began");
        let nonces = self.state.nonces.clone();
        FromLeader::NewLeader { epoch, voters, established, identity, nonces }
    }

    /// The voters of the last established epoch. If they are unknown, the current voters, so that
    /// none counts as new.
    pub(crate) fn voters_before(&self, config: &Config) -> Voters {
        let known = self.state.voters.iter();
        let known = known.map(|id| if *id == THIS_SERVER { config.id() } else { *id });
        config.voters().or(&known.collect())
    }

    /// What this server reports of its history.
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

    /// The part of [`Backlog`] that the replica knows.
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

    /// Tree and watches together, for reads that set a watch.
    pub(crate) fn reading(&mut self) -> (&Tree, &mut Watches) {
        (&self.tree, &mut self.watches)
    }

    /// Passes each node of the tree to `visit`, in no particular order.
    pub(crate) fn visit_nodes(&self, visit: &mut dyn FnMut(&NodeView<'_>)) {
        self.tree.visit(visit);
    }

    /// Digest of tree and sessions; see [`crate::digest`].
    pub(crate) fn digest(&self) -> u64 {
        self.tree.digest().wrapping_add(self.sessions.digest())
    }

    /// A transaction is applied: keeps the digest if servers compare their state at its zxid.
    pub(crate) fn note_digest(&mut self, config: &Config) {
        let at = self.log.applied();
        if at.counter().is_multiple_of(config.limits.compare_txns.max(1)) {
            let last = self.digests.back().map(|(last, _)| *last);
            assert!(last.is_none_or(|last| last < at), "the digest at {at} follows {last:?}");
            self.digests.push_back((at, self.digest()));
            let surplus = self.digests.len().saturating_sub(DIGESTS);
            self.digests.drain(..surplus);
        }
    }

    /// The newest digests after `zxid`, at most `most` of them.
    pub(crate) fn digests_after(&self, zxid: Zxid, most: usize) -> Vec<(Zxid, u64)> {
        let first = self.digests.partition_point(|(at, _)| *at <= zxid);
        let first = first.max(self.digests.len().saturating_sub(most));
        self.digests.range(first..).copied().collect()
    }

    /// The digest of this server at `zxid`, if it is still kept.
    pub(crate) fn digest_at(&self, zxid: Zxid) -> Option<u64> {
        self.digests.iter().find(|(at, _)| *at == zxid).map(|(_, digest)| *digest)
    }

    /// Changes the durable state. The caller must wait for the returned write: an earlier write
    /// under way may have the same content, but does not cover what was logged between the two.
    pub(crate) fn save_state(
        &mut self,
        cx: &mut Cx<'_>,
        change: impl FnOnce(&mut DurableState),
    ) -> WriteId {
        let before = (self.state.accepted_epoch, self.state.current_epoch);
        change(&mut self.state);
        let (accepted, current) = (self.state.accepted_epoch, self.state.current_epoch);
        assert!(accepted >= current, "epoch {current} is entered, and {accepted} is promised");
        assert!(accepted >= before.0, "the promise goes back from {} to {accepted}", before.0);
        assert!(current >= before.1, "the epoch goes back from {} to {current}", before.1);
        let (id, command) = self.log.save(self.state.clone());
        cx.out.disk.push(command);
        id
    }

    /// The state file with this content is durable.
    pub(crate) fn on_saved(&mut self, state: &DurableState) {
        let epochs = |state: &DurableState| [state.accepted_epoch, state.current_epoch];
        let [before, durable, latest] = [&self.saved, state, &self.state].map(epochs);
        for ((before, durable), latest) in before.into_iter().zip(durable).zip(latest) {
            assert!(before <= durable, "a durable epoch goes back from {before} to {durable}");
            assert!(durable <= latest, "epoch {durable} is durable, ahead of {latest}");
        }
        self.saved = state.clone();
    }

    /// Logs a transaction that this leader has decided. Returns the entry to send to learners.
    pub(crate) fn append(&mut self, txn: Txn, cx: &mut Cx<'_>) -> Entry {
        let entry = txn.encode();
        self.keep(entry.clone(), txn, cx);
        entry
    }

    /// Logs a transaction that the leader has proposed.
    ///
    /// # Errors
    /// A transaction that does not follow the last one (ZAB-13), or cannot be decoded.
    pub(crate) fn receive(&mut self, entry: Entry, cx: &mut Cx<'_>) -> Result<(), String> {
        if !self.history.may_follow(entry.zxid) {
            return Err(format!("proposal {} after {}", entry.zxid, self.history.end()));
        }
        let txn = Txn::decode(&entry).map_err(|corrupt| corrupt.to_string())?;
        self.keep(entry, txn, cx);
        Ok(())
    }

    fn keep(&mut self, entry: Entry, txn: Txn, cx: &mut Cx<'_>) {
        self.check_watermarks();
        self.history.push(entry.zxid);
        self.recent.push(entry.clone());
        self.snapshots.bytes += entry.bytes.len() as u64;
        self.recent.trim(cx.config.limits.recent_bytes, self.log.durable());
        cx.out.disk.push(self.log.append(entry));
        self.unapplied.push_back(Unapplied::Decided(txn));
        self.check_watermarks();
    }

    /// Removes everything after `to`. Returns the new end of the log, at or before `to`.
    ///
    /// # Errors
    /// `to` lies before a committed transaction.
    pub(crate) fn truncate(&mut self, to: Zxid, cx: &mut Cx<'_>) -> Result<Zxid, String> {
        self.check_watermarks();
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
        assert!(last <= to, "the log ends at {last} after a truncation to {to}");
        self.check_watermarks();
        Ok(last)
    }

    /// Receives a chunk of a leader's snapshot.
    ///
    /// # Errors
    /// A chunk that is out of order or inconsistent, or a snapshot that is not ahead of the log.
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
            // The snapshot lane writes one snapshot at a time.
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

    /// Drops the leader's snapshot: its remaining chunks will not arrive.
    pub(crate) fn abandon_incoming(&mut self, cx: &mut Cx<'_>) {
        if let Some(incoming) = self.incoming.take() {
            cx.mark(Mark::SnapshotAbandoned);
            cx.out.disk.push(DiskCommand::DropSnapshot { zxid: incoming.zxid });
        }
    }

    /// The origins of unapplied transactions that were logged since this process started and
    /// requested by clients of `server`.
    pub(crate) fn unapplied_origins(&self, server: ServerId) -> BTreeSet<Origin> {
        let origin = |unapplied: &Unapplied| match unapplied {
            Unapplied::Decided(txn) => txn.origin,
            // The connection ended with the process that logged it.
            Unapplied::Recovered(_) => None,
        };
        let here = |origin: &Origin| origin.server == server;
        self.unapplied.iter().filter_map(origin).filter(here).collect()
    }

    /// The sessions that will be global once everything is applied that was logged since this
    /// process started.
    pub(crate) fn unapplied_upgrades(&self) -> BTreeSet<SessionId> {
        let upgrade = |unapplied: &Unapplied| match unapplied {
            Unapplied::Decided(Txn { session, op: TxnOp::UpgradeSession { .. }, .. }) => {
                Some(*session)
            }
            // Local sessions ended with the previous process.
            Unapplied::Decided(_) | Unapplied::Recovered(_) => None,
        };
        self.unapplied.iter().filter_map(upgrade).collect()
    }

    /// The zxid of the next transaction to apply, and its origin if it was logged since this
    /// process started.
    pub(crate) fn next_unapplied(&self) -> Option<(Zxid, Option<Origin>)> {
        match self.unapplied.front()? {
            Unapplied::Decided(txn) => Some((txn.zxid, txn.origin)),
            Unapplied::Recovered(entry) => Some((entry.zxid, None)),
        }
    }

    /// Applies the next committed transaction, if there is one.
    ///
    /// # Errors
    /// A transaction that does not fit the state. The state is unusable afterwards.
    pub(crate) fn apply_next(&mut self) -> Result<Option<Applied>, Halted> {
        self.check_watermarks();
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
        self.check_watermarks();
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

    /// WATCH-10: each connection that watches the node's data or children gets one deletion event.
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

    /// A watch is removed even if its client may not read the node (WATCH-17, edge 123).
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

    /// Is a leader's snapshot durable, but not the state yet?
    pub(crate) fn is_loading(&self) -> bool {
        self.incoming.as_ref().is_some_and(|incoming| incoming.loading)
    }

    /// The zxid of that snapshot, the parts of its loading that are done, and all parts.
    pub(crate) fn loading_progress(&self) -> Option<(Zxid, u64, u64)> {
        let incoming = self.incoming.as_ref().filter(|incoming| incoming.loading)?;
        let (done, all) = incoming.loader.progress();
        Some((incoming.zxid, done, all))
    }

    /// Continues to load a leader's durable snapshot, as far as the step's budget allows. Returns
    /// whether it has become the state.
    ///
    /// # Errors
    /// A snapshot that is inconsistent.
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

    /// Replaces the state with a leader's snapshot, which is durable and loaded.
    fn install(&mut self, cx: &mut Cx<'_>) -> Result<(), String> {
        let appended = self.log.appended();
        let of_it = |incoming: &mut Incoming| incoming.loader.zxid() == Some(incoming.zxid);
        let sound = |incoming: &mut Incoming| of_it(incoming) && incoming.zxid > appended;
        // A snapshot that stays in `incoming` is dropped when this server leaves the leader.
        let Some(Incoming { zxid, loader, complete, .. }) = self.incoming.take_if(sound) else {
            return Err("the leader's snapshot holds the picture of another position".to_owned());
        };
        let waiting = self.snapshots.at_disk;
        assert!(complete, "snapshot {zxid} is installed before its last chunk");
        assert!(waiting == 0, "{waiting} chunks of snapshot {zxid} are not durable");
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
        self.write_slice(zxid, 0, cx);
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
            return self.go_on_loading(cx);
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
            if std::mem::take(&mut self.snapshots.forgets) {
                self.history.forget(zxid);
            }
            self.save_state(cx, |state| state.snapshot = zxid);
        } else {
            self.write_slice(zxid, index + 1, cx);
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

/// The voter list in the form of the state file.
fn kept_list(voters: &Voters) -> BTreeSet<ServerId> {
    if voters.alone() { [THIS_SERVER].into() } else { voters.set().clone() }
}

fn table(header: SnapshotHeader) -> SessionTable {
    let SnapshotHeader { zxid: _, sessions, last_session_ids, owners, keyed } = header;
    SessionTable::restore(sessions, owners, last_session_ids, keyed)
}
