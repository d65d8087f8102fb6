//! Ends of connections with other servers: the resulting inputs of the core and notes for the
//! operator.
//!
//! Owns the consequences of the phase in which a connection ends. Must not decide that one ends.

use bytes::BytesMut;

use super::Peers;
use super::close::PeerCloseReason;
use super::conn::Phase;
use super::note::PeerNote;
use crate::ids::{Instant, LinkId};
use crate::io::{Input, PeerEvent};
use crate::peer::greeting::Channel;

impl Peers {
    /// Ends a connection: once its queued output has left if this server decides it or refuses the
    /// greeting, otherwise at once.
    pub(super) fn close(&mut self, link: LinkId, why: PeerCloseReason, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let is_answered = matches!(why, PeerCloseReason::Refused(_)) && !conn.output.is_empty();
        let graceful = why.is_by_server() || is_answered;
        if !graceful {
            conn.output.clear();
        }
        let before = std::mem::replace(&mut conn.phase, Phase::Closed { graceful });
        (conn.deadline, conn.paused_until) = (None, None);
        conn.buffer = BytesMut::new();
        self.changed.push(link);
        match before {
            Phase::Closed { graceful: was } => {
                conn.phase = Phase::Closed { graceful: was && graceful };
            }
            Phase::Accepted | Phase::Queued(..) | Phase::Proof(_) => self.reject(link, why),
            Phase::Dialling | Phase::Answer(_) => self.dial_failed(link, why, now),
            Phase::Open => match conn.channel {
                Channel::Quorum => self.link_down(link, why, now),
                Channel::Election => self.notifications_end(link, why),
            },
        }
    }

    /// Ends an accepted connection that is not established.
    fn reject(&mut self, link: LinkId, why: PeerCloseReason) {
        let Some(conn) = self.conns.get(&link) else { return };
        if matches!(conn.phase, Phase::Closed { graceful: true }) {
            // It occupies a socket until its refusal has left.
            self.ungreeted.retain(|other| *other != link);
            self.ungreeted.push_back(link);
        }
        if let Some(peer) = conn.peer.and_then(|id| self.peers.get_mut(&id)) {
            peer.queued.retain(|other| *other != link);
        }
        // A connection that ends before its greeting is complete is a probe of the port.
        use PeerCloseReason::{Broken, ByPeer, WithinFrame};
        let is_probe =
            matches!(why, ByPeer | Broken(_)) || conn.peer.is_none() && matches!(why, WithinFrame);
        if let Some(from) = conn.from.filter(|_| !is_probe) {
            self.notes.push(PeerNote::Rejected { from, why });
        }
    }

    fn dial_failed(&mut self, link: LinkId, why: PeerCloseReason, now: Instant) {
        let Some(conn) = self.conns.get(&link) else { return };
        let (Some(server), channel) = (conn.peer, conn.channel) else { return };
        let peer = self.peers.entry(server).or_default();
        peer.failure = Some((channel, why.clone()));
        if channel == Channel::Election {
            peer.sender = None;
        }
        let first = peer.pauses.fail(channel, now);
        self.notes.push(PeerNote::DialFailed { server, channel, first, why });
        if channel == Channel::Quorum {
            self.push(Input::Peer(link, PeerEvent::Unreachable { peer: server }));
        }
    }

    /// Reports the end of a link to the core, once.
    fn link_down(&mut self, link: LinkId, why: PeerCloseReason, now: Instant) {
        let Some(conn) = self.conns.get(&link) else { return };
        let Some(server) = conn.peer else { return };
        if conn.is_dialled() {
            let since = conn.up_since;
            self.peers.entry(server).or_default().pauses.on_link_down(since, now);
        }
        self.notes.push(PeerNote::Down { link, server, why });
        self.push(Input::Peer(link, PeerEvent::Down));
        self.link_is_gone(server, now);
    }

    fn notifications_end(&mut self, link: LinkId, why: PeerCloseReason) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let Some(server) = conn.peer else { return };
        let peer = self.peers.entry(server).or_default();
        match conn.from {
            None => {
                peer.sender = None;
                // A notification that has not left is sent again, unless there is a newer one.
                peer.newest = peer.newest.or(conn.sending.take());
            }
            Some(from) => {
                peer.listeners.retain(|other| *other != link);
                use PeerCloseReason::{Malformed, Unfinished};
                if matches!(why, Malformed(_) | Unfinished(_)) {
                    self.notes.push(PeerNote::Rejected { from, why });
                }
            }
        }
    }
}
