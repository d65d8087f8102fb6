//! Effects of disk events.
//!
//! Owns their order: a watermark rises first, then the work that waited for it continues. Must not
//! know which commands the disk has: the replica and the roles do.

use super::Server;
use super::role::Role;
use crate::cx::Cx;
use crate::ids::{WriteId, Zxid};
use crate::io::Mark;
use crate::log::Written;
use crate::peer::{LinkCloseReason, PeerMisbehaved};
use crate::status::Halted;
use crate::store::{DiskEvent, DurableState};

impl Server {
    pub(super) fn on_disk(&mut self, event: DiskEvent, cx: &mut Cx<'_>) {
        match event {
            DiskEvent::Done(id) => self.on_done(id, cx),
            DiskEvent::ChunkDone { zxid, index } => self.on_chunk_done(zxid, index, cx),
            DiskEvent::Failed(why) => {
                cx.mark(Mark::DiskFailed);
                self.halt(Halted::Disk(why), cx);
            }
            DiskEvent::SnapshotFailed { zxid, why, .. } => {
                if self.replica.on_snapshot_failed(zxid, cx) {
                    self.look(None, LinkCloseReason::NoRoom(why), cx);
                }
            }
            DiskEvent::LogRead { link, found } => {
                if let Role::Leading(leader) = &mut self.role {
                    let effect = leader.on_log_read(link, found, &mut self.replica, cx);
                    self.apply_leader_effect(effect, cx);
                } else if let Role::Following(follower) = &mut self.role {
                    follower.observers_mut().on_log_read(link, found, &mut self.replica, cx);
                }
            }
            DiskEvent::SnapshotRead { link, zxid, index, found } => {
                if let Role::Leading(leader) = &mut self.role {
                    let replica = &mut self.replica;
                    let effect = leader.on_snapshot_read(link, (zxid, index), found, replica, cx);
                    self.apply_leader_effect(effect, cx);
                } else if let Role::Following(follower) = &mut self.role {
                    let (master, replica) = (follower.observers_mut(), &mut self.replica);
                    master.on_snapshot_read(link, (zxid, index), found, replica, cx);
                }
            }
        }
    }

    /// Every command of the log lane up to `id` is durable: continues what waited for it.
    fn on_done(&mut self, id: WriteId, cx: &mut Cx<'_>) {
        let before = self.replica.log().durable();
        while let Some(written) = self.replica.log.done(id) {
            if let (id, Written::State(state)) = written {
                self.on_state_durable(id, &state, cx);
            }
        }
        let durable = self.replica.log().durable();
        match &mut self.role {
            Role::Looking(_) => self.continue_election(cx),
            Role::Following(follower) if durable > before => {
                follower.on_durable(durable, &self.replica, cx);
            }
            Role::Leading(leader) if durable > before => {
                let effect = leader.on_durable(durable, cx);
                self.apply_leader_effect(effect, cx);
            }
            Role::Following(_) | Role::Leading(_) => {}
        }
    }

    fn on_state_durable(&mut self, id: WriteId, state: &DurableState, cx: &mut Cx<'_>) {
        self.replica.on_saved(state);
        if let Some(zxid) = state.differs {
            return self.halt(Halted::Differs { zxid }, cx);
        }
        // Most state writes satisfy this; only the first one after a snapshot finds something to
        // purge.
        if state.snapshot == self.replica.state().snapshot {
            let needed = match &self.role {
                Role::Leading(leader) => leader.oldest_needed(),
                Role::Following(follower) => follower.observers().oldest_needed(),
                Role::Looking(_) => None,
            };
            self.replica.purge(needed, cx);
        }
        match &mut self.role {
            Role::Looking(_) => {}
            Role::Following(follower) => follower.on_state_durable(id, &self.replica, cx),
            Role::Leading(leader) => {
                let effect = leader.on_state_durable(id, &mut self.replica, cx);
                self.apply_leader_effect(effect, cx);
            }
        }
    }

    fn on_chunk_done(&mut self, zxid: Zxid, index: u32, cx: &mut Cx<'_>) {
        let loaded = self.replica.on_chunk_done(zxid, index, cx);
        self.on_loaded(loaded, cx);
    }

    /// A chunk of a snapshot is durable, or more of a leader's snapshot is loaded. `Ok(true)` means
    /// that the leader's snapshot has become the state.
    pub(super) fn on_loaded(&mut self, loaded: Result<bool, String>, cx: &mut Cx<'_>) {
        match loaded {
            Ok(false) => {
                if let Role::Leading(leader) = &mut self.role {
                    leader.on_snapshot_taken(&self.replica, cx);
                } else if let Role::Following(follower) = &mut self.role
                    && let Some((master, _)) = follower.feeding(cx)
                {
                    master.on_snapshot_taken(&self.replica, cx);
                }
            }
            Ok(true) => {
                self.front.on_installed(&mut self.replica, cx);
                if let Role::Following(follower) = &mut self.role {
                    follower.on_installed(&self.replica, cx);
                }
            }
            Err(what) => {
                cx.mark(Mark::LeaderRefused);
                self.look(None, PeerMisbehaved::History(what).into(), cx);
            }
        }
    }
}
