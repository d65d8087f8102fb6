//! Ends of connections with other servers: what the core and the operator get to know of them.
//!
//! Owns what follows from the phase in which a connection ends. Must not decide that one ends.

use bytes::BytesMut;

use super::Peers;
use super::close::PeerCloseReason;
use super::conn::Phase;
use super::note::PeerNote;
use crate::ids::{Instant, LinkId};
use crate::io::{Input, PeerEvent};
use crate::peer::greeting::Channel;

impl Peers {
    /// Ends a connection: at once where the other end is to blame, else once what is queued has
    /// left.
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

    /// Somebody has connected who is not let in.
    fn reject(&mut self, link: LinkId, why: PeerCloseReason) {
        let Some(conn) = self.conns.get(&link) else { return };
        if matches!(conn.phase, Phase::Closed { graceful: true }) {
            // It takes up a socket until it has taken its answer.
            self.ungreeted.retain(|other| *other != link);
            self.ungreeted.push_back(link);
        }
        if let Some(peer) = conn.peer.and_then(|id| self.peers.get_mut(&id)) {
            peer.queued.retain(|other| *other != link);
        }
        // Gone before it said who it is: a probe of the port.
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
        let first = match channel {
            Channel::Quorum => peer.link_backoff.fail(now),
            Channel::Election => {
                peer.sender = None;
                peer.election_backoff.fail(now)
            }
        };
        self.notes.push(PeerNote::DialFailed { server, channel, first, why });
        if channel == Channel::Quorum {
            self.push(Input::Peer(link, PeerEvent::Unreachable { peer: server }));
        }
    }

    /// The core is told, once.
    fn link_down(&mut self, link: LinkId, why: PeerCloseReason, now: Instant) {
        let Some(conn) = self.conns.get(&link) else { return };
        let Some(server) = conn.peer else { return };
        if conn.is_dialled() && !conn.heard && !why.is_by_server() {
            // The other end has refused it. Whoever dials again at once is refused again, as long
            // as nothing changes.
            self.peers.entry(server).or_default().link_backoff.fail(now);
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
                // What has not left gives way to what is newer.
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
