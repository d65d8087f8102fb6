//! Greetings of connections with other servers: which connection is accepted in the name of which
//! server, and which others it replaces.
//!
//! Owns a connection from its first byte until it is established. Must not read what follows.
//!
//! A connection with a proof of the secret replaces those of the same server. One without waits
//! until the present link of the server is silent or closed: a correct server closes a link before
//! it dials another one.

use std::time::Duration;

use super::close::PeerCloseReason;
use super::conn::{PeerConn, Phase};
use super::note::PeerNote;
use super::{GREETING_TIME, LISTENERS_MAX, Peers, QUEUED_MAX};
use crate::ids::{Instant, LinkId, ServerId};
use crate::io::{Input, PeerEvent};
use crate::peer::frame::Bounds;
use crate::peer::greeting::{Channel, Established, Greeting, Refusal, VERSION};

/// Least time between two abandoned attempts to dial one server.
const ABANDON_INTERVAL: Duration = Duration::from_secs(1);

impl Peers {
    /// Continues a greeting. Returns whether the phase has changed.
    pub(super) fn greet(&mut self, link: LinkId, now: Instant) -> bool {
        let Some(conn) = self.conns.get_mut(&link) else { return false };
        let established = match &conn.phase {
            Phase::Accepted => match Greeting::take(&mut conn.buffer) {
                Ok(None) => return false,
                Ok(Some(greeting)) => {
                    self.greeted(link, greeting, now);
                    return true;
                }
                Err(refusal) => {
                    self.close(link, PeerCloseReason::Refused(refusal), now);
                    return false;
                }
            },
            Phase::Proof(accepting) => {
                let established = accepting.establish(&mut conn.buffer);
                established.map(|established| established.map(|it| (it, Vec::new())))
            }
            Phase::Answer(dialling) => dialling.establish(&mut conn.buffer),
            Phase::Dialling | Phase::Queued(..) | Phase::Open | Phase::Closed { .. } => {
                return false;
            }
        };
        match established {
            Ok(None) => false,
            Ok(Some((established, proof))) => {
                self.queue(link, |_, out| out.extend_from_slice(&proof));
                self.establish(link, established, now);
                true
            }
            Err(refusal) => {
                self.close(link, PeerCloseReason::Refused(refusal), now);
                false
            }
        }
    }

    /// Checks a complete greeting of a connection that was accepted.
    fn greeted(&mut self, link: LinkId, greeting: Greeting, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let (channel, id) = (conn.channel, greeting.from());
        let Some(from) = conn.from else { return };
        conn.peer = Some(id);
        if let Err(refusal) = greeting.check(&self.local, channel) {
            return self.refuse(link, &greeting, refusal, now);
        }
        if !self.admits_unlisted(id) {
            return self.refuse(link, &greeting, Refusal::Busy(id), now);
        }
        let Some(conn) = self.conns.get_mut(&link) else { return };
        if greeting.proves_to(&self.local) {
            return self.answer(link, greeting, now);
        }
        let peer = self.peers.entry(id).or_default();
        if !peer.admission.admits(from.ip(), now) {
            return self.refuse(link, &greeting, Refusal::Busy(id), now);
        }
        if channel == Channel::Election {
            return self.answer(link, greeting, now);
        }
        if peer.queued.len() >= QUEUED_MAX {
            return self.refuse(link, &greeting, Refusal::Busy(id), now);
        }
        peer.queued.push(link);
        self.ungreeted.retain(|other| *other != link);
        conn.phase = Phase::Queued(Box::new(greeting), now);
        self.try_place(link, now);
    }

    /// Answers a queued connection if the link of the same server is silent or closed; refuses it
    /// after [`GREETING_TIME`].
    pub(super) fn try_place(&mut self, link: LinkId, now: Instant) {
        let Some(conn) = self.conns.get(&link) else { return };
        let (Phase::Queued(greeting, since), Some(id)) = (&conn.phase, conn.peer) else { return };
        let (greeting, latest) = (greeting.clone(), since.after(GREETING_TIME));
        let silent = self.silent_from(id).filter(|silent| *silent > now);
        if let Some(silent) = silent
            && latest > now
        {
            if let Some(conn) = self.conns.get_mut(&link) {
                conn.deadline = Some(silent.min(latest));
            }
            return;
        }
        if let Some(peer) = self.peers.get_mut(&id) {
            peer.queued.retain(|other| *other != link);
        }
        if silent.is_some() {
            return self.refuse(link, &greeting, Refusal::Busy(id), now);
        }
        self.answer(link, *greeting, now);
        self.changed.push(link);
        self.read(link, now);
    }

    /// Places queued connections of this server, because one of its links is closed.
    pub(super) fn link_is_gone(&mut self, id: ServerId, now: Instant) {
        let queued = self.peers.get(&id).map(|peer| peer.queued.clone()).unwrap_or_default();
        for link in queued {
            self.try_place(link, now);
        }
    }

    fn answer(&mut self, link: LinkId, greeting: Greeting, now: Instant) {
        let Some(conn) = self.conns.get_mut(&link) else { return };
        let (accepting, bytes) = greeting.welcome(&self.local, conn.nonce);
        conn.phase = Phase::Proof(Box::new(accepting));
        conn.deadline = Some(now.after(GREETING_TIME));
        self.queue(link, |_, out| out.extend_from_slice(&bytes));
    }

    fn refuse(&mut self, link: LinkId, greeting: &Greeting, refusal: Refusal, now: Instant) {
        let Some(conn) = self.conns.get(&link) else { return };
        let bytes = greeting.refuse(&self.local, &refusal, conn.nonce);
        self.queue(link, |_, out| out.extend_from_slice(&bytes));
        self.close(link, PeerCloseReason::Refused(refusal), now);
    }

    /// Completes the establishment of a connection.
    fn establish(&mut self, link: LinkId, established: Established, now: Instant) {
        let Established { peer: id, proven, version, reader, writer } = established;
        let silent_from = self.silent_from(id);
        let Some(conn) = self.conns.get_mut(&link) else { return };
        (conn.reader, conn.writer) = (reader, writer);
        let (channel, dialled) = (conn.channel, conn.is_dialled());
        if channel == Channel::Quorum
            && !dialled
            && !proven
            && silent_from.is_some_and(|at| at > now)
        {
            // Another connection was established in the meantime.
            return self.close(link, PeerCloseReason::Refused(Refusal::Busy(id)), now);
        }
        match (channel, dialled) {
            (Channel::Quorum, true) => conn.reader.set_bounds(Bounds::LEADER),
            (Channel::Quorum, false) => {}
            (Channel::Election, _) => conn.reader.set_bounds(Bounds::NOTIFICATION),
        }
        let before = self.accepted_links(id);
        if let Some(conn) = self.conns.get_mut(&link) {
            (conn.phase, conn.deadline) = (Phase::Open, None);
            (conn.peer, conn.up_since, conn.heard_at) = (Some(id), now, now);
        }
        self.changed.push(link);
        self.ungreeted.retain(|other| *other != link);
        if !dialled && (proven || self.local.secrets.is_empty()) {
            self.abandon_dial(id, now);
        }
        let peer = self.peers.entry(id).or_default();
        if dialled {
            peer.failure = None;
        } else {
            peer.pauses.on_message();
        }
        match channel {
            Channel::Quorum => {
                for other in before.into_iter().filter(|_| !dialled) {
                    let replaced = PeerCloseReason::Replaced;
                    let why = if proven { replaced } else { PeerCloseReason::SilentLink };
                    self.close(other, why, now);
                }
                self.notes.push(PeerNote::Up { link, server: id, dialled });
                self.push(Input::Peer(link, PeerEvent::Up { peer: id, dialled }));
                if version < VERSION {
                    self.push(Input::Peer(link, PeerEvent::Version(version)));
                }
            }
            Channel::Election if dialled => {
                peer.pauses.on_election_up();
                self.send_newest(id, now);
            }
            Channel::Election => self.listen(id, link, proven, now),
        }
    }

    /// Abandons an attempt to reach the election port of a server that has connected meanwhile: the
    /// attempt may have begun when its machine was off, and would end with `connect_timeout` only.
    /// The next attempt is made at once; the host closes the abandoned one if it succeeds. As the
    /// host keeps a descriptor for it until then, a server's attempts are abandoned at most once in
    /// [`ABANDON_INTERVAL`].
    fn abandon_dial(&mut self, id: ServerId, now: Instant) {
        let Some(peer) = self.peers.get_mut(&id) else { return };
        if peer.abandoned_at.is_some_and(|at| now.since(at) < ABANDON_INTERVAL) {
            return;
        }
        let is_dialling = |link: &LinkId| {
            self.conns.get(link).is_some_and(|conn| matches!(conn.phase, Phase::Dialling))
        };
        if let Some(link) = peer.sender.take_if(|link| is_dialling(&*link)) {
            self.conns.remove(&link);
            peer.abandoned_at = Some(now);
        }
    }

    /// Adds a connection on which a server sends notifications. If it proves the secret, it
    /// replaces the others: they are broken, or not of this server. Without a proof, above the
    /// bound, it replaces one without messages, or the oldest.
    fn listen(&mut self, id: ServerId, link: LinkId, proven: bool, now: Instant) {
        let peer = self.peers.entry(id).or_default();
        let before = peer.listeners.clone();
        peer.listeners.push(link);
        let superseded = if proven {
            before
        } else if before.len() >= LISTENERS_MAX {
            let is_silent = |link: &&LinkId| self.conns.get(link).is_some_and(|conn| !conn.heard);
            before.iter().find(is_silent).or(before.first()).copied().into_iter().collect()
        } else {
            Vec::new()
        };
        for other in superseded {
            self.close(other, PeerCloseReason::Superseded, now);
        }
    }

    /// The established links that a server has dialled.
    fn accepted_links(&self, id: ServerId) -> Vec<LinkId> {
        let is = |conn: &PeerConn| conn.is_link() && !conn.is_dialled() && conn.peer == Some(id);
        self.conns.iter().filter(|(_, conn)| is(conn)).map(|(link, _)| *link).collect()
    }

    /// When the link that a server has dialled becomes silent, if there is one. A correct learner
    /// answers the leader's pings more often.
    fn silent_from(&self, id: ServerId) -> Option<Instant> {
        let links = self.accepted_links(id);
        let received =
            links.iter().filter_map(|link| self.conns.get(link)).map(|conn| conn.heard_at);
        received.max().map(|last| last.after(self.config.sync_limit() / 2))
    }
}
