//! What is on the servers' disks: confirmed writes, sampled durable state and recovery, compared
//! with what was commanded.
//!
//! Owns the comparison of disks with their disk models. Must not decode transactions.

use std::iter;

use zabkeeper_core::io::Input;
use zabkeeper_core::store::{DiskEvent, DurableState};
use zabkeeper_core::{Epoch, Instant, ServerId, Zxid};

use super::catalog::{Broken, Checks, Id, Verdict};
use super::difference::Nodes;
use super::disk_model::{DiskDigest, Held};
use super::history::Path;
use super::text::{kept, maybe};
use super::zab::Zab;
use crate::check::model::Model;
use crate::check::observe::Holder;

/// The contents of a disk, as sampled or as found by recovery.
pub(super) struct Disk<'a> {
    pub(super) server: ServerId,
    pub(super) state: &'a DurableState,
    pub(super) last: Zxid,
}

impl Zab {
    /// The server is about to handle this input.
    pub(super) fn entered(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        input: &Input,
        at: Instant,
    ) -> Verdict {
        self.has_acknowledged_all(checks, id)?;
        let server = self.server(id);
        server.cause = None;
        server.catches_up = true;
        match input {
            Input::Disk(DiskEvent::Done(write)) => {
                let disk_model = &mut self.server(id).disk_model;
                let before = disk_model.durable().state.current_epoch;
                let stored = disk_model.done(*write);
                self.confirmed(checks, id, stored, before)
            }
            Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
                let server = self.servers.entry(id).or_default();
                server.disk_model.chunk_done(*zxid, *index, &self.committed);
                Ok(())
            }
            Input::Peer(link, event) => {
                self.received(id, *link, event, at);
                Ok(())
            }
            Input::Disk(
                DiskEvent::Failed(_)
                | DiskEvent::LogRead { .. }
                | DiskEvent::SnapshotRead { .. }
                | DiskEvent::SnapshotFailed { .. },
            )
            | Input::Election(..)
            | Input::EnsembleConfig(..)
            | Input::Timeout
            | Input::Stop
            | Input::Oracle(_)
            | Input::Client(..) => Ok(()),
        }
    }

    /// The disk has confirmed writes; `stored`: were state files among them?
    fn confirmed(
        &mut self,
        checks: &mut Checks,
        id: ServerId,
        stored: bool,
        before: Epoch,
    ) -> Verdict {
        if stored {
            let held = self.servers[&id].disk_model.durable().clone();
            let disk = Disk { server: id, state: &held.state, last: held.path.end() };
            if !self.is_late(&disk) {
                self.keeps_epochs(checks, &disk)?;
            }
            let epoch = held.state.current_epoch;
            // Checked only when the epoch is entered: if the epoch was never established, a later
            // leader may truncate its initial history before the server enters the later epoch.
            if epoch > before {
                self.has_initial(checks, id, epoch, &held.path, "has stored")?;
            }
            self.renews_voters(checks, id, epoch)?;
            self.note_voters(id);
        }
        self.vouch(id);
        Ok(())
    }

    /// Whether a sample or recovery has already found a later state that was commanded since: this
    /// confirmation is merely late.
    fn is_late(&self, disk: &Disk<'_>) -> bool {
        let server = &self.servers[&disk.server];
        let epochs = |state: &DurableState| [state.accepted_epoch, state.current_epoch];
        let (reported, issued) = (epochs(disk.state), epochs(&server.disk_model.issued().state));
        let found = [server.accepted, server.current];
        let all = |a: [Epoch; 2], b: [Epoch; 2]| a[0] <= b[0] && a[1] <= b[1];
        reported != found && all(reported, found) && all(found, issued)
    }

    /// Z1: when the first server stores the present voters in place of others, a quorum has the
    /// epoch's history. Otherwise, if the epoch failed, the next one would take a joining voter for
    /// one that has lost its history.
    fn renews_voters(&mut self, checks: &mut Checks, id: ServerId, epoch: Epoch) -> Verdict {
        let renews =
            self.servers[&id].names_all == Some(false) && self.voters_before(id) == self.voters;
        if !renews || self.renewed {
            return Ok(());
        }
        self.renewed = true;
        let end = self.epochs.initial(epoch).map(Path::end);
        let has_quorum = end.is_some_and(|end| self.has_evidence(id, epoch, end));
        checks.check(Id::Z1, has_quorum, || {
            let what = format!(
                "server {id} keeps the voters of epoch {epoch}, begun after {}",
                maybe(end)
            );
            iter::once(what).chain(self.evidence(epoch)).collect()
        })
    }

    /// Notes what is durable while the accepted and the current epoch agree. It stays evidence for
    /// that epoch: any later leader finds it.
    fn vouch(&mut self, id: ServerId) {
        let server = self.server(id);
        let (state, end) = (&server.disk_model.durable().state, server.disk_model.kept().end());
        let epoch = state.current_epoch;
        if epoch.0 > 0 && state.accepted_epoch == epoch {
            if server.names_all == Some(true) {
                server.named.insert(epoch);
            }
            let synced = server.synced.entry(epoch).or_default();
            *synced = (*synced).max(end);
        }
    }

    /// A disk, sampled while its server runs.
    pub(super) fn sampled(
        &mut self,
        checks: &mut Checks,
        model: &Model,
        disk: &Disk<'_>,
        (digest, holder): (u64, Holder<'_>),
    ) -> Verdict {
        self.keeps_epochs(checks, disk)?;
        let explained = self.explain(checks, disk, Id::Z17)?;
        if explained.is_some() {
            let (server, zxid) = (disk.server, disk.last);
            // Keeps the nodes of a digest that is wrong or not yet comparable: the server may not
            // hold them later.
            let right = zxid <= self.committed.end() && model.digest_at(zxid) == digest;
            let nodes = if right { None } else { holder.0.map(Nodes::of) };
            self.waiting.push(DiskDigest { server, zxid, digest, nodes });
        }
        self.compare_disks(checks, model)
    }

    /// The disk as it would be if all that was written but not synced survived.
    pub(super) fn cached(&mut self, checks: &mut Checks, disk: &Disk<'_>) -> Verdict {
        self.explain(checks, disk, Id::T2).map(drop)
    }

    /// A server has started and recovered this from its disk.
    pub(super) fn recovered(
        &mut self,
        checks: &mut Checks,
        disk: &Disk<'_>,
        acknowledged: Zxid,
    ) -> Verdict {
        let &Disk { server: id, state, last } = disk;
        self.keeps_epochs(checks, disk)?;
        if self.is_alone() {
            let is_kept = |zxid: Zxid| self.committed.at_or_before(zxid) <= last;
            checks.check(Id::C7, is_kept(acknowledged), || {
                vec![format!(
                    "server {id} recovers {last}; writes up to {acknowledged} are acknowledged"
                )]
            })?;
            let answered = self.servers.get(&id).map_or(Zxid::ZERO, |server| server.answered);
            checks.check(Id::Z17, is_kept(answered), || {
                vec![format!("server {id} recovers {last}; it has named {answered} to a client")]
            })?;
            checks.check(Id::Z12, is_kept(self.committed.end()), || {
                let tip = self.committed.end();
                vec![format!("server {id} recovers {last}; {tip} was committed")]
            })?;
        }
        let held = self.explain(checks, disk, Id::T2)?;
        let server = self.server(id);
        let held = held.unwrap_or_else(|| {
            let mut path = server.disk_model.issued().path.clone();
            path.cut(last);
            Held { path, state: state.clone() }
        });
        server.disk_model.reset(held);
        server.applied = None;
        self.note_voters(id);
        self.vouch(id);
        Ok(())
    }

    /// Finds the prefix of the commands that leads to this disk; `None` where the disk itself
    /// reports damage, which is allowed.
    fn explain(
        &mut self,
        checks: &mut Checks,
        disk: &Disk<'_>,
        otherwise: Id,
    ) -> Result<Option<Held>, Broken> {
        let &Disk { server: id, state, last } = disk;
        let server = self.servers.entry(id).or_default();
        let (durable, issued) = (server.disk_model.durable(), server.disk_model.issued());
        if state.damaged && !durable.state.damaged && !issued.state.damaged {
            return Ok(None);
        }
        if let Some(held) = server.disk_model.explain(state, last, &self.committed) {
            for id in [Id::Z12, Id::Z17, Id::Z18, Id::T2] {
                checks.check(id, true, Vec::new)?;
            }
            return Ok(Some(held));
        }
        let shared = |path: &Path| path.at_or_before(self.committed.end());
        let lost = self.committed.contains(shared(&durable.path)) && last < shared(&durable.path);
        let behind = self.epochs.initial(state.current_epoch);
        let early = state.current_epoch > durable.state.current_epoch
            && behind.is_some_and(|initial| last < initial.end());
        let kind = match (lost, early) {
            (true, _) => Id::Z12,
            (_, true) => Id::Z18,
            (false, false) => otherwise,
        };
        let evidence = vec![
            format!("the disk of server {id} holds a log up to {last}; {}", kept(state)),
            format!("confirmed was a log up to {}; {}", durable.path.end(), kept(&durable.state)),
            format!("commanded was a log up to {}; {}", issued.path.end(), kept(&issued.state)),
        ];
        Err(Broken::new(kind, evidence))
    }

    fn keeps_epochs(&mut self, checks: &mut Checks, disk: &Disk<'_>) -> Verdict {
        let (id, state, last) = (disk.server, disk.state, disk.last);
        let server = self.server(id);
        let (accepted, current) = (state.accepted_epoch, state.current_epoch);
        let holds = accepted >= current
            && accepted >= server.accepted
            && current >= server.current
            && accepted >= last.epoch();
        checks.check(Id::Z14, holds, || {
            vec![format!(
                "server {id} has on disk: accepted {accepted}, current {current}, last {last}; \
                 before: accepted {}, current {}",
                server.accepted, server.current
            )]
        })?;
        server.accepted = accepted;
        server.current = current;
        Ok(())
    }

    /// The disk has been replaced by an empty one.
    pub(super) fn wiped(&mut self, id: ServerId) {
        let server = self.server(id);
        server.disk_model.wipe();
        server.promised.clear();
        (server.accepted, server.current) = Default::default();
        server.answered = Zxid::ZERO;
    }

    /// Compares the digests of disks whose zxid the committed history has reached. Those that were
    /// not committed are dropped.
    pub(super) fn compare_disks(&mut self, checks: &mut Checks, model: &Model) -> Verdict {
        let tip = self.committed.end();
        for disk in self.waiting.extract_if(.., |disk| disk.zxid <= tip) {
            let DiskDigest { server, zxid, digest, nodes } = disk;
            if !self.committed.contains(zxid) {
                continue;
            }
            let right = model.digest_at(zxid);
            checks.check(Id::T2, digest == right, || {
                let mut evidence = vec![format!(
                    "the disk of server {server} holds {digest:#x} at {zxid}; the model {right:#x}"
                )];
                evidence.extend(nodes.map(|nodes| nodes.differ_from(model, zxid)));
                evidence
            })?;
        }
        Ok(())
    }
}
