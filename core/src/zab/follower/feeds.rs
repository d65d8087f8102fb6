//! Observers behind followers (ZAB-23): which server an observer dials, and what a follower does
//! for those that it feeds.
//!
//! Owns the choice of the server. Must not synchronise observers: `leader/observer_master` does.

use super::{Follower, ObserverMaster, Phase};
use crate::cx::Cx;
use crate::ids::{LinkId, ServerId, Zxid};
use crate::io::{Mark, PeerCommand};
use crate::peer::LinkCloseReason;
use crate::replica::Replica;

/// The followers that may feed this server: all voters but the leader, if this server observes, in
/// random order.
pub(super) fn masters(leader: ServerId, cx: &mut Cx<'_>) -> Vec<ServerId> {
    if !cx.config.observer_masters || cx.voters.contains(cx.config.id()) {
        return Vec::new();
    }
    let mut masters: Vec<ServerId> = cx.voters.ids().filter(|id| *id != leader).collect();
    for last in (1..masters.len()).rev() {
        let bound = u32::try_from(last + 1).expect("few servers");
        masters.swap(last, cx.rng.below(bound) as usize);
    }
    masters
}

/// Does this server feed observers while it follows a leader?
pub(super) fn feeds(cx: &Cx<'_>) -> bool {
    cx.config.observer_masters && cx.voters.contains(cx.config.id())
}

impl Follower {
    /// Dials the next server that may feed this one, or the leader if there is none left.
    pub(super) fn dial_next(&mut self, cx: &mut Cx<'_>) {
        self.phase = Phase::Dialling;
        self.deadline = cx.now.mono.after(cx.config.discovery_limit() * 2);
        if let Some(master) = self.untried.pop() {
            self.source = master;
            cx.out.peers.push(PeerCommand::DialMaster(master));
        } else {
            self.source = self.leader;
            cx.out.peers.push(PeerCommand::Dial(self.leader));
        }
    }

    /// The server that was to feed this observer cannot be reached, refuses, or is silent: turns to
    /// the next one. Returns whether there was one, or the leader is left.
    pub(crate) fn try_next(&mut self, cx: &mut Cx<'_>) -> bool {
        let begins = matches!(self.phase, Phase::Dialling | Phase::Discovery { .. });
        if self.source == self.leader || !begins {
            return false;
        }
        cx.mark(Mark::ObserverTriesNext);
        if let Some(link) = self.link() {
            cx.out.peers.push(PeerCommand::Close(link, LinkCloseReason::Silent));
        }
        self.dial_next(cx);
        true
    }

    /// The link to the server that was to feed this observer is down: as [`Follower::try_next`].
    pub(crate) fn on_down(&mut self, cx: &mut Cx<'_>) -> bool {
        if matches!(self.phase, Phase::Discovery { .. }) {
            self.phase = Phase::Dialling;
        }
        self.try_next(cx)
    }

    /// The server that this one dials.
    pub(crate) fn source(&self) -> ServerId {
        self.source
    }

    /// Is another server than the leader to feed this one?
    pub(crate) fn is_behind_master(&self) -> bool {
        self.source != self.leader
    }

    /// Its observers, and the link to the leader, if it serves and feeds observers.
    pub(crate) fn feeding(&mut self, cx: &Cx<'_>) -> Option<(&mut ObserverMaster, LinkId)> {
        let link = self.serving().filter(|_| feeds(cx))?;
        Some((&mut self.master, link))
    }

    /// The observers that it feeds.
    pub(crate) fn observers(&self) -> &ObserverMaster {
        &self.master
    }

    /// The same, mutable.
    pub(crate) fn observers_mut(&mut self) -> &mut ObserverMaster {
        &mut self.master
    }

    /// The history is committed up to `zxid`: informs the observers.
    pub(crate) fn on_committed(&mut self, zxid: Zxid, replica: &mut Replica, cx: &mut Cx<'_>) {
        if let Some((master, _)) = self.feeding(cx) {
            master.commit(zxid, replica, cx);
            master.check(replica.log());
            replica.hold_recent(Some(zxid));
        }
    }
}
