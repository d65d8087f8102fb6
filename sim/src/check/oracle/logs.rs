//! Commands of servers to their disks: appends as leader or learner, truncations, snapshots and
//! state files.
//!
//! Owns the check of each command when it is given. Must not wait for the disk: `disks` checks
//! whether the disk carries the command out.

use zabkeeper_core::store::{DiskCommand, DurableState, Entry};
use zabkeeper_core::{Instant, ServerId, WriteId, Zxid};

use super::catalog::{Broken, Checks, Id, Verdict};
use super::disk_model::Order;
use super::epochs::Proposed;
use super::history::Path;
use super::text::{kept, maybe};
use super::zab::Zab;

impl Zab {
    /// Checks the commands of a step, in order.
    pub(super) fn commanded(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        commands: &[DiskCommand],
        (order, at): (u64, Instant),
    ) -> Verdict {
        for command in commands {
            match command {
                DiskCommand::Append { id: write, entry } => {
                    match self.server(id).acts_as_leader() {
                        true => self.proposes(checks, id, entry, (order, at))?,
                        false => self.logs(checks, id, entry)?,
                    }
                    self.server(id).disk_model.command(*write, Order::Append(entry.zxid));
                }
                DiskCommand::Truncate { id: write, to } => {
                    self.cuts(checks, id, *to)?;
                    self.server(id).disk_model.command(*write, Order::Truncate(*to));
                }
                DiskCommand::Rebase { id: write, snapshot } => {
                    self.rebases(checks, id, *write, *snapshot)?;
                }
                DiskCommand::SaveState { id: write, state } => {
                    self.saves(checks, id, state, at)?;
                    let ahead = self.history_ahead(checks, id, state.snapshot)?;
                    self.server(id).disk_model.command(*write, Order::State(state.clone(), ahead));
                }
                DiskCommand::SnapshotChunk { zxid, index, last: true, .. } => {
                    let server = self.server(id);
                    if *zxid > server.path().end() {
                        server.jump = Some(*zxid);
                    }
                    server.disk_model.snapshot(*zxid, *index);
                }
                DiskCommand::SnapshotChunk { last: false, .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {}
            }
        }
        Ok(())
    }

    /// A leader appends a new transaction: a proposal.
    fn proposes(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        entry: &Entry,
        (order, at): (u64, Instant),
    ) -> Verdict {
        let (zxid, epoch) = (entry.zxid, entry.zxid.epoch());
        let earlier = self.epochs.proposal(zxid);
        checks.check(Id::Z15, earlier.is_none(), || {
            let same = earlier.is_some_and(|proposal| proposal.bytes == entry.bytes);
            let bytes = if same { "the same bytes" } else { "other bytes" };
            vec![format!("server {id} proposes {zxid}, which was dealt before with {bytes}")]
        })?;
        self.was_received_last(checks, id, zxid)?;
        let begun = self.epochs.of(epoch).and_then(|view| view.begun.as_ref());
        let leader = begun.map(|begun| begun.leader);
        checks.check(Id::Z1, leader == Some(id), || {
            vec![format!("server {id} proposes {zxid}; who leads epoch {epoch}: {}", maybe(leader))]
        })?;
        let server = &self.servers[&id];
        let end = server.path().end();
        checks.check(Id::Z5, server.path().may_follow(zxid), || {
            vec![format!("server {id} proposes {zxid} after {end}")]
        })?;
        let committed = self.committed.before_epoch(epoch);
        let first = end.epoch() < epoch;
        checks.check(Id::Z7, !first || server.path().contains(committed), || {
            vec![format!("server {id} proposes {zxid} after {end}, and lacks {committed}")]
        })?;
        let view = self.epochs.of(epoch).expect("it has a leader");
        let leads_since = view.established.unwrap_or(server.leads_since);
        let applied = self.applied_by(id).unwrap_or_default();
        let synced = self.notes_config(checks, id, entry)?;
        let older = self.has_older_learners(id);
        let when = Proposed { order, at, by: id, leads_since, applied, synced, older };
        self.epochs.propose(entry, when);
        Ok(())
    }

    /// A learner appends a transaction of its leader.
    fn logs(&mut self, checks: &mut Checks, id: ServerId, entry: &Entry) -> Verdict {
        let zxid = entry.zxid;
        let proposal = self.epochs.proposal(zxid);
        checks.check(Id::Z2, proposal.is_some(), || {
            vec![format!("server {id} logs {zxid}, and nobody has proposed it")]
        })?;
        let kind = if self.committed.contains(zxid) { Id::Z12 } else { Id::Z2 };
        let same = proposal.is_some_and(|proposal| proposal.bytes == entry.bytes);
        checks.check(kind, same, || {
            vec![format!("server {id} logs {zxid} with other bytes than were proposed")]
        })?;
        let server = &self.servers[&id];
        let path = server.path();
        let end = path.end();
        self.is_present(checks, id, || format!("logs {zxid}"))?;
        checks.check(Id::Z5, path.may_follow(zxid), || {
            vec![format!("server {id} logs {zxid} after {end}")]
        })?;
        let initial = self.epochs.initial(zxid.epoch()).map(Path::end);
        let follows = end.epoch() == zxid.epoch() || initial == Some(end);
        checks.check(Id::Z10, follows, || {
            vec![format!(
                "server {id} logs {zxid} after {end}; epoch {} began after {}, and all its \
                 followers with it",
                zxid.epoch(),
                maybe(initial)
            )]
        })
    }

    /// Z23: a disk command caused by a message must come from a link whose leader named the epoch
    /// that the server has promised.
    fn is_present(
        &self,
        checks: &mut Checks,
        id: ServerId,
        does: impl FnOnce() -> String,
    ) -> Verdict {
        let server = &self.servers[&id];
        let Some(cause) = server.cause else {
            return Ok(());
        };
        let promised = server.disk_model.issued().state.accepted_epoch;
        let link = server.links.get(&cause);
        let epoch = link.and_then(|link| link.epoch);
        checks.check(Id::Z23, epoch == Some(promised), || {
            vec![format!(
                "server {id} {} on a message of {cause}, which names epoch {}; it has promised \
                 epoch {promised}",
                does(),
                maybe(epoch)
            )]
        })
    }

    /// Z23: a leader's proposal is not caused by a message on a link that the same peer has
    /// replaced by a later one.
    fn was_received_last(&self, checks: &mut Checks, id: ServerId, zxid: Zxid) -> Verdict {
        let server = &self.servers[&id];
        let cause = server.cause.and_then(|cause| server.links.get(&cause));
        let replaced = cause.is_some_and(|older| {
            let mut others = server.links.values().filter(|link| link.peer == older.peer);
            others.any(|newer| newer.comes && newer.since > older.since)
        });
        checks.check(Id::Z23, !replaced, || {
            let peer = maybe(cause.map(|link| link.peer));
            vec![format!(
                "server {id} proposes {zxid} on a message of server {peer}, which has come again \
                 on a later link"
            )]
        })
    }

    /// Z19: a learner truncates its log to what its leader has.
    fn cuts(&mut self, checks: &mut Checks, id: ServerId, to: Zxid) -> Verdict {
        self.is_present(checks, id, || format!("cuts its log to {to}"))?;
        let server = &self.servers[&id];
        let path = server.path();
        let kept = path.at_or_before(to);
        let lost = path.between(kept, path.end()).first().copied();
        let lost = lost.filter(|lost| self.committed.contains(*lost));
        checks.check(Id::Z19, lost.is_none(), || {
            vec![format!("server {id} cuts its log to {to}, and {} is committed", maybe(lost))]
        })?;
        let applied = server.applied.unwrap_or(Zxid::ZERO);
        checks.check(Id::Z19, applied <= kept, || {
            vec![format!("server {id} cuts its log to {to}, and has applied {applied}")]
        })?;
        let snapshot = server.disk_model.issued().state.snapshot;
        checks.check(Id::Z19, snapshot <= kept, || {
            vec![format!("server {id} cuts its log to {to}, and keeps the snapshot {snapshot}")]
        })
    }

    /// A learner replaces its log by a snapshot of its leader.
    fn rebases(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        write: WriteId,
        snapshot: Zxid,
    ) -> Verdict {
        let path = self.history_of(checks, id, snapshot)?;
        let sent = self.servers[&id].links.values().any(|link| link.snapshot == Some(snapshot));
        checks.check(Id::Z23, sent, || {
            vec![format!(
                "server {id} takes over the snapshot of {snapshot}, and nobody at the other end of \
                 its links has sent it"
            )]
        })?;
        let server = self.server(id);
        server.jump = (server.applied < Some(snapshot)).then_some(snapshot);
        server.disk_model.command(write, Order::Rebase(path));
        Ok(())
    }

    /// The history that a leader's snapshot contains: it must be committed (Z3).
    fn history_of(
        &self,
        checks: &mut Checks,
        id: ServerId,
        snapshot: Zxid,
    ) -> Result<Path, Broken> {
        checks.check(Id::Z3, self.committed.contains(snapshot), || {
            vec![format!("server {id} takes over a snapshot of {snapshot}, which is not committed")]
        })?;
        let mut path = self.committed.clone();
        path.cut(snapshot);
        Ok(path)
    }

    /// The history of the snapshot that a state file names, if it is ahead of the log.
    fn history_ahead(
        &self,
        checks: &mut Checks,
        id: ServerId,
        snapshot: Zxid,
    ) -> Result<Option<Path>, Broken> {
        if snapshot <= self.servers[&id].path().end() {
            return Ok(None);
        }
        self.history_of(checks, id, snapshot).map(Some)
    }

    /// Checks a new state file.
    fn saves(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        state: &DurableState,
        at: Instant,
    ) -> Verdict {
        let server = &self.servers[&id];
        let before = &server.disk_model.issued().state;
        let (accepted, epoch) = (state.accepted_epoch, state.current_epoch);
        let rises =
            accepted >= before.accepted_epoch && epoch >= before.current_epoch && accepted >= epoch;
        checks.check(Id::Z14, rises, || {
            vec![format!("server {id} is to store: {}; over: {}", kept(state), kept(before))]
        })?;
        if epoch == before.current_epoch {
            return Ok(());
        }
        if server.acts_as_leader() {
            return self.begins(checks, id, epoch, at);
        }
        self.is_present(checks, id, || format!("enters epoch {epoch}"))?;
        self.has_initial(checks, id, epoch, &server.disk_model.issued().path, "is to store")
    }
}
