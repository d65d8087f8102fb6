//! Reports of a step's effects to oracles, trace and counters.
//!
//! Owns these reports. Must not change what the process does.

use zabkeeper_core::io::{ClientEvent, Mark, PeerEvent};
use zabkeeper_core::peer::{FromLeader, PeerMessage};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{Input, Now, ServerId, SessionId, Status, Zxid};

use super::{FAR_BEHIND, Lengths, Process, notifications};
use crate::check::checker::Check;
use crate::check::observe::{Holder, Observation};
use crate::record::event::RunEvent;
use crate::record::role::Role;
use crate::record::sometimes::Sometimes;
use crate::world::shared::Shared;

/// The parts of a status whose changes are reported. `true` is for a server that has halted: while
/// it is looking for a leader, a failure of its disk has no other effect, and it promises nothing
/// from then on.
pub(super) type ObservedStatus = (Role, Option<ServerId>, [u32; 2], [Zxid; 4], bool);

impl Process {
    /// Records an input, and what the checks of this server need of it.
    pub(super) fn observe_input(&mut self, now: Now, input: &Input, shared: &mut Shared) {
        let completes = &self.orders.done(input);
        shared.record(&RunEvent::Input { server: self.id, input, completes });
        // Its clock may run at half its speed, and it needs half a tick of its own time to notice.
        let tick = shared.options.server.tick();
        let unread = self.reads_paused_since.is_some_and(|since| shared.now.since(since) > tick);
        if unread
            && matches!(
                input,
                Input::Peer(_, PeerEvent::Message(PeerMessage::Leader(FromLeader::Ping { .. })))
            )
        {
            shared.observe(Observation::Unread { server: self.id, open: &self.open_conns() });
        }
        if let Input::Client(_, ClientEvent::Request(_)) = input {
            self.note_lag(shared);
        }
        if let Input::Election(from, what) = input {
            notifications::received((*from, self.id), what, shared);
        }
        self.behind.on_input(input);
        self.releases.stepped(input);
        if let Input::Client(conn, event) = input {
            self.operators.traffic.stepped(*conn, event, now.mono);
            self.heartbeats.stepped(*conn, event, now.mono);
        }
        self.known.stepped(input);
    }

    /// Records the outputs of a step and the status after it, and checks what the marks of the step
    /// imply.
    pub(super) fn observe_outputs(
        &mut self,
        before: Lengths,
        status: &Status,
        shared: &mut Shared,
    ) {
        let role = self.observed.0;
        if self.out.marks.contains(Mark::StateDiffers) {
            let at = format!("s{} leads, and a learner differs at {}", self.id, status.applied);
            shared.check(Check::ALIKE, Err(at));
        }
        if self.out.marks.contains(Mark::PurgeHeld) {
            shared.check(Check::FILES, self.behind.is_somebody(self.id));
        }
        self.behind.on_commands(&self.out.peers[before.peers..]);
        self.observe_step(before, status, shared);
        self.meet(before, [role, Role::of(status)], shared);
        self.orders.are_given(&self.out.disk[before.disk..]);
        self.note_appends(before.disk, shared);
        self.can_read_its_log(&self.out.disk[before.disk..], shared);
        self.apply(status, shared);
        if self.begins_local {
            self.observe_local_sessions(shared);
        }
    }

    /// Counts requests to a server that is far behind, in transactions of one epoch: the number of
    /// transactions in earlier epochs is not known here.
    pub(super) fn note_lag(&self, shared: &mut Shared) {
        let (newest, here) = (shared.newest, self.applied);
        let far = newest.epoch() == here.epoch() && newest.counter() >= here.counter() + FAR_BEHIND;
        if far && matches!(self.observed.0, Role::Leads | Role::Follows) {
            shared.saw(Sometimes::FarBehind);
        }
    }

    /// Does it lead, with transactions that are not applied?
    pub(in crate::machine::node) fn leads_uncommitted(&self) -> bool {
        self.observed.0 == Role::Leads && !self.unapplied.is_empty()
    }

    /// Reports the outputs of a step, and the changes of the status, to the oracles.
    pub(super) fn observe_step(&mut self, before: Lengths, status: &Status, shared: &mut Shared) {
        self.observe_config(shared);
        let disk = &self.out.disk[before.disk..];
        let peers = &self.out.peers[before.peers..];
        let election = &self.out.election[before.election..];
        let now = observed_status(status);
        if disk.is_empty() && peers.is_empty() && election.is_empty() && now == self.observed {
            return;
        }
        let serves = |role| matches!(role, Role::Leads | Role::Follows);
        let begins = serves(now.0) && !serves(self.observed.0);
        let changes = now.0 != self.observed.0;
        self.observed = now;
        shared.observe(Observation::Output { server: self.id, disk, peers, election, status });
        if begins {
            self.note_release(shared);
            let (syncs, held) = (self.server.waiting_syncs(), self.server.held_handshakes());
            shared.observe(Observation::Serves { server: self.id, syncs, held });
        }
        self.record_status(status, changes, shared);
    }

    /// Reports the configuration in force to the oracles when it has changed.
    pub(super) fn observe_config(&mut self, shared: &mut Shared) {
        let active = self.server.ensemble_config().map(|config| config.version);
        let version = active.filter(|version| *version > self.config_version);
        if let Some(version) = version {
            self.config_version = version;
            if version.counter() > 0 {
                // The version of the first one is that of its epoch.
                shared.saw(Sometimes::Reconfigured);
            }
            shared.observe(Observation::InForce { server: self.id, version });
        }
    }

    pub(super) fn observe_local_sessions(&mut self, shared: &mut Shared) {
        let sessions: Vec<SessionId> =
            self.server.local_sessions().iter().map(|session| session.id).collect();
        if sessions != self.locals {
            shared.observe(Observation::Locals { server: self.id, sessions: &sessions });
            self.locals = sessions;
        }
    }

    /// Records the status of the server; `changes`: its role is another one than before.
    pub(super) fn record_status(&self, status: &Status, changes: bool, shared: &mut Shared) {
        let (server, incarnation) = (self.id, self.incarnation);
        shared.recorder.counters.shapes.record(server, status);
        if changes {
            shared.record(&RunEvent::RoleChanged { server, incarnation, status });
        }
    }

    /// E2. The outputs of a step are bounded by their possible causes: requests, watches, sessions,
    /// connections, and the transactions that a learner lacks. Those in `read` count too, because
    /// one piece of the log may have thousands of small ones from earlier incarnations.
    pub(super) fn check_bound(
        &self,
        grown: usize,
        read: usize,
        status: &Status,
        shared: &mut Shared,
    ) {
        let waiting = usize::try_from(self.driver.clients.unanswered()).unwrap_or(usize::MAX);
        let held = status.watches + status.sessions + self.sockets.len();
        let logged =
            usize::try_from(self.audits.commits()).unwrap_or(usize::MAX) + status.outstanding;
        let bound = 1_000 + 4 * held + 4 * waiting + 4 * logged + read;
        let holds = if grown <= bound { Ok(()) } else { Err(format!("{grown} outputs > {bound}")) };
        shared.check(Check::BOUNDED, holds);
    }

    /// Updates the transactions that are logged and not applied.
    pub(super) fn note_appends(&mut self, from: usize, shared: &mut Shared) {
        for command in &self.out.disk[from..] {
            match command {
                DiskCommand::Append { entry, .. } => self.unapplied.push_back(entry.zxid),
                DiskCommand::Truncate { to, .. } => {
                    shared.recorder.counters.counts.truncations += 1;
                    let before = self.unapplied.len();
                    while self.unapplied.back().is_some_and(|last| last > to) {
                        self.unapplied.pop_back();
                    }
                    if self.unapplied.len() < before {
                        shared.saw(Sometimes::UncommittedCut);
                    }
                }
                DiskCommand::Rebase { .. } => shared.recorder.counters.counts.snaps += 1,
                DiskCommand::SaveState { .. }
                | DiskCommand::SnapshotChunk { .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {}
            }
        }
    }

    /// The tree has advanced: makes one observation for each transaction, the last one sometimes
    /// with a digest. A leader's snapshot advances the tree to a zxid that this server never
    /// logged.
    pub(super) fn apply(&mut self, status: &Status, shared: &mut Shared) {
        if self.applied >= status.applied {
            return;
        }
        shared.recorder.roles.applied(status.applied);
        let logged = self.unapplied.binary_search(&status.applied).is_ok();
        while self.applied < status.applied {
            let next = self.unapplied.pop_front().filter(|_| logged);
            let zxid = next.unwrap_or(status.applied);
            self.applied = zxid;
            self.audits.applied();
            shared.newest = shared.newest.max(zxid);
            shared.recorder.counters.counts.commits += 1;
            let least = shared.options.digest_txns;
            let due = self.audits.is_digest_due(least, status.nodes) || !logged;
            let digest = (zxid == status.applied && due).then(|| self.server.digest());
            if digest.is_some() {
                self.audits.digest();
                shared.recorder.counters.counts.digests += 1;
            }
            let (server, holder) = (self.id, Holder(Some(&self.server)));
            shared.observe(Observation::Applied { server, zxid, digest, holder });
        }
        while self.unapplied.front().is_some_and(|first| *first <= self.applied) {
            self.unapplied.pop_front();
        }
    }
}

pub(super) fn observed_status(status: &Status) -> ObservedStatus {
    let Status { accepted_epoch, current_epoch, .. } = status;
    let Status { applied, committed, appended, durable, .. } = status;
    (
        Role::of(status),
        status.leader,
        [accepted_epoch.0, current_epoch.0],
        [*applied, *committed, *appended, *durable],
        status.halted.is_some(),
    )
}
