//! Servers that are not among the members: they follow without a vote (RECONF-13, RECONF-15).
//!
//! Owns how many of them are connected, and how they are answered: no address of theirs is known,
//! so they are answered on the connections that they have dialled. Owns also the configurations
//! that servers get with notifications. Must not decide whom the core lets follow.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{Peer, Peers};
use crate::ids::{LinkId, ServerId};
use crate::membership::Members;
use crate::peer::{NotedConfigs, Notification};

/// Servers with connections that are not among the members. Above the bound, another one is refused
/// until one of them has gone.
pub(super) const UNLISTED_MAX: usize = 64;

impl Peers {
    /// Is this server a member, or is there room for another server that is not?
    pub(super) fn admits_unlisted(&mut self, id: ServerId) -> bool {
        if self.members.contains(id) || self.peers.contains_key(&id) {
            return true;
        }
        let connected: BTreeSet<ServerId> =
            self.conns.values().filter_map(|conn| conn.peer).collect();
        let is_needed = |id: &ServerId, peer: &mut Peer| {
            self.members.contains(*id)
                || connected.contains(id)
                || peer.dials + peer.master_dials > 0
        };
        self.peers.retain(|id, peer| is_needed(id, peer));
        let unlisted = self.peers.keys().filter(|id| !self.members.contains(**id)).count();
        unlisted < UNLISTED_MAX
    }

    /// Queues a notification for a server that is not among the members, on its connection, unless
    /// an earlier one has not left yet: the server asks again.
    pub(super) fn answer_unlisted(&mut self, to: ServerId, notification: &Notification) {
        let Some(peer) = self.peers.get(&to) else { return };
        let Some(link) = peer.listeners.last().copied() else { return };
        if self.conns.get(&link).is_some_and(|conn| conn.is_open() && conn.output.is_empty()) {
            self.queue_notification(link, notification);
        }
    }

    /// Queues a notification, with the configurations: the other server may not know the members.
    pub(super) fn queue_notification(&mut self, link: LinkId, notification: &Notification) {
        let configs = self.configs.clone();
        self.queue(link, |writer, out| writer.encode_notification(notification, &configs, out));
    }

    /// Sets the members as the core knows them.
    pub(in crate::driver) fn set_members(&mut self, members: &Arc<Members>) {
        if !Arc::ptr_eq(members, &self.members) {
            self.members = members.clone();
        }
    }

    /// Another configuration is logged or in force.
    pub(in crate::driver) fn set_configs(&mut self, configs: NotedConfigs) {
        self.configs = Arc::new(configs);
    }
}
