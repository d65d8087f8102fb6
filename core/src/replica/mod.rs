//! The state that survives a change of role: tree, sessions, watches, the log's watermarks and the
//! durable promises.
//!
//! Owns the replicated state, and that its parts agree. Must not know roles, nor connections except
//! as ids in the watch tables.

mod apply;
mod membership;
mod snapshots;

use std::collections::{BTreeSet, VecDeque};

use crate::config::{Config, ReconfigOptions};
use crate::cx::Cx;
use crate::digest::NodeView;
use crate::error::Corrupt;
use crate::identity::{self, Seed};
use crate::ids::{Epoch, ServerId, SessionId, WriteId, Zxid};
use crate::log::Log;
use crate::log::epochs::EpochIndex;
use crate::log::tail::LogTail;
use crate::membership::{EnsembleConfig, HistoryInfo, HistoryStatus, Voters};
use crate::peer::{FromLeader, Vote};
use crate::rng::{KeyedHash, Rng};
use crate::session::{self, SessionTable};
use crate::status::Backlog;
use crate::store::{DurableState, Entry, Recovered, THIS_SERVER};
use crate::tree::{self, SnapshotHeader, Tree};
use crate::txn::{Origin, Txn, TxnOp};
use crate::watch::Watches;
use crate::wire::Password;
pub(crate) use apply::{Applied, Fired};
pub(crate) use membership::{Membership, kept_list};
use snapshots::{Incoming, Snapshots};

/// One server's copy of the replicated state.
#[derive(Debug)]
pub(crate) struct Replica {
    tree: Tree,
    sessions: SessionTable,
    pub(crate) watches: Watches,
    pub(crate) log: Log,
    /// The spans of the log, for comparison with other servers' logs.
    history: EpochIndex,
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
    /// The replicated configuration; `None` if reconfiguration is disabled.
    membership: Option<Membership>,
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

impl Replica {
    /// The state that recovery found. The log after the snapshot is applied only once a leader has
    /// committed it.
    pub(crate) fn recover(
        reconfig: Option<&ReconfigOptions>,
        recovered: Recovered,
        rng: &mut Rng,
    ) -> Result<Replica, Corrupt> {
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
        let DurableState { accepted_epoch: promised, current_epoch: entered, .. } = recovered.state;
        if entered > promised {
            let what = format!("epoch {entered} is entered, and only epoch {promised} is promised");
            return Err(Corrupt { what });
        }
        if end.epoch() > promised {
            let what = format!("the log ends at {end}, and only epoch {promised} is promised");
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
        let logged = (recovered.entries.len() as u64, bytes);
        let size = recovered.snapshot.map_or((Zxid::ZERO, 0), |image| {
            (image.zxid, image.chunks.iter().map(|chunk| chunk.len() as u64).sum())
        });
        let (entries, voters) = (&recovered.entries, &recovered.state.voters);
        let membership = Membership::recover(reconfig, &tree, entries, voters)?;
        let replica = Replica {
            tree,
            membership,
            sessions: table(header),
            watches: Watches::new(hash),
            log: Log::recovered(applied, last),
            history: recovered.history,
            recent: LogTail::after(last),
            saved: recovered.state.clone(),
            state: recovered.state,
            unapplied: recovered.entries.into_iter().map(Unapplied::Recovered).collect(),
            snapshots: Snapshots::recovered(recovered.snapshots, size, logged),
            incoming: None,
            digests: VecDeque::new(),
        };
        replica.check_watermarks();
        Ok(replica)
    }

    /// Checks that the parts of the replica agree about the positions of the log.
    ///
    /// Each transaction is checked twice: when it has been logged, and before it is applied.
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

    pub(crate) fn tree(&self) -> &Tree {
        &self.tree
    }

    pub(crate) fn sessions(&self) -> &SessionTable {
        &self.sessions
    }

    pub(crate) fn log(&self) -> &Log {
        &self.log
    }

    pub(crate) fn history(&self) -> &EpochIndex {
        &self.history
    }

    pub(crate) fn recent(&self) -> &LogTail {
        &self.recent
    }

    /// Keeps what follows this zxid in memory, for the observers that are to be informed of it.
    pub(crate) fn hold_recent(&mut self, after: Option<Zxid>) {
        self.recent.hold(after);
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
        let list = kept_list(self.voters_to_keep(cx.voters));
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
        self.saved.voters == kept_list(self.voters_to_keep(voters))
            && self.saved.identity.is_some_and(|known| known.established)
    }

    /// May this server lead without the other voter, if the oracle permits it? Only if it lacks
    /// nothing that the two have committed: both were the voters of the last established epoch, so
    /// both have acknowledged whatever was committed in it. A server with an empty or damaged disk
    /// cannot know what it lacks.
    pub(crate) fn may_lead_alone(&self, own: ServerId, voters: &Voters) -> bool {
        let HistoryInfo { history_status, newcomers, .. } = self.history_info(own, voters);
        voters.contains(own)
            && history_status == HistoryStatus::Complete
            && newcomers == 0
            && self.is_established_under(voters)
    }

    /// Records that a quorum has the history and the identity of the ensemble, and the voters. This
    /// must be durable before anything is committed under these voters.
    pub(crate) fn record_establishment(&mut self, cx: &mut Cx<'_>) -> WriteId {
        let (begun, durable) = (self.state.current_epoch, self.saved.current_epoch);
        assert!(begun == durable, "epoch {begun} is established, and {durable} is durable");
        assert!(self.saved.identity.is_some(), "the identity of epoch {begun} is not durable");
        let list = kept_list(self.voters_to_keep(cx.voters));
        self.save_state(cx, |state| {
            state.voters = list;
            state.identity.iter_mut().for_each(|identity| identity.established = true);
        })
    }

    /// The NEWLEADER message for a learner.
    pub(crate) fn new_leader(&self, epoch: Epoch, cx: &Cx<'_>) -> FromLeader {
        let current = self.state.current_epoch;
        assert!(epoch == current, "NEWLEADER of epoch {epoch} in epoch {current}");
        let voters = cx.voters.set().clone();
        let established = match self.established_config() {
            None => self.voters_before(cx.config.id(), cx.voters).set().clone(),
            Some(config) => config.members().voters().set().clone(),
        };
        let identity = self.state.identity.expect("known since the epoch began");
        let nonces = self.state.nonces.clone();
        FromLeader::NewLeader { epoch, voters, established, identity, nonces }
    }

    /// The voters of the last established epoch. If they are unknown, the current voters, so that
    /// none counts as new.
    pub(crate) fn voters_before(&self, own: ServerId, voters: &Voters) -> Voters {
        if self.established_config().is_some() {
            // Configurations in the log replace the list.
            return voters.clone();
        }
        let known = self.state.voters.iter();
        let known = known.map(|id| if *id == THIS_SERVER { own } else { *id });
        voters.or(&known.collect())
    }

    /// What this server reports of its history.
    pub(crate) fn history_info(&self, own: ServerId, voters: &Voters) -> HistoryInfo {
        let newcomers = voters.newcomers(&self.voters_before(own, voters));
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
            chunks: self.incoming.as_ref().map_or(0, |incoming| incoming.chunks as usize),
            chunks_at_disk: self.snapshots.at_disk as usize,
            lists: self.tree.unused_lists(),
            ..Backlog::default()
        }
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
    /// A transaction that does not follow the last one (ZAB-13), is of a later epoch than the one
    /// that this server has promised to follow, or cannot be decoded.
    pub(crate) fn receive(&mut self, entry: Entry, cx: &mut Cx<'_>) -> Result<(), String> {
        self.check_promised(entry.zxid)?;
        if !self.history.may_follow(entry.zxid) {
            return Err(format!("proposal {} after {}", entry.zxid, self.history.end()));
        }
        let txn = Txn::decode(&entry).map_err(|corrupt| corrupt.to_string())?;
        if let TxnOp::Reconfig { config } = &txn.op {
            EnsembleConfig::parse(config)?;
        }
        self.keep(entry, txn, cx);
        Ok(())
    }

    /// A log that is ahead of the promise could not be continued by any leader.
    fn check_promised(&self, zxid: Zxid) -> Result<(), String> {
        let promised = self.state.accepted_epoch;
        if zxid.epoch() > promised {
            return Err(format!("{zxid} is sent, and only epoch {promised} is promised"));
        }
        Ok(())
    }

    fn keep(&mut self, entry: Entry, txn: Txn, cx: &mut Cx<'_>) {
        self.history.push(entry.zxid);
        self.recent.push(entry.clone());
        let bytes = entry.bytes.len() as u64;
        self.snapshots.bytes += bytes;
        let (txns, logged) = self.snapshots.logged;
        self.snapshots.logged = (txns + 1, logged + bytes);
        self.recent.trim(cx.config.limits.recent_bytes, self.log.durable());
        cx.out.disk.push(self.log.append(entry));
        if let TxnOp::Reconfig { config } = &txn.op
            && let Some(membership) = &mut self.membership
        {
            let next = EnsembleConfig::parse(config).expect("checked before it is logged");
            membership.propose(txn.zxid, next);
        }
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
            self.membership.iter_mut().for_each(|membership| membership.truncate(last));
        }
        assert!(last <= to, "the log ends at {last} after a truncation to {to}");
        self.check_watermarks();
        Ok(last)
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

fn table(header: SnapshotHeader) -> SessionTable {
    let SnapshotHeader { zxid: _, sessions, last_session_ids, owners, keyed } = header;
    SessionTable::restore(sessions, owners, last_session_ids, keyed)
}
