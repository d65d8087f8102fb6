//! Connections with other servers: addresses, delays and faults of the network between servers.
//!
//! Owns the delays and faults that a run injects. Must not read connections: the driver does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use zabkeeper_core::LinkCloseReason;
use zabkeeper_core::driver::{PeerDial, PeerLine, SocketId};
use zabkeeper_core::peer::greeting::{Channel, Nonce};
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};

use super::*;

impl Process {
    /// Its connections with other servers, for dumps.
    pub(in crate::machine::node) fn links_held(&self) -> String {
        let mut text = "\nlinks\n".to_owned();
        for line in self.driver.peers.lines() {
            let peer = line.peer;
            let peer =
                peer.map_or("a server that has not greeted yet".to_owned(), |id| format!("s{id}"));
            let dialled = if line.dialled { ", which this server dialled" } else { "" };
            text += &format!(
                "  {} with {peer}, {} channel{dialled}: {} bytes wait to be sent, {} of an \
                 unfinished message have come\n",
                line.link,
                if line.channel == Channel::Quorum { "quorum" } else { "election" },
                line.output_bytes,
                line.unread_bytes
            );
        }
        text
    }

    pub(in crate::machine::node) fn linked_by(&self) -> BTreeSet<ServerId> {
        let lines = self.driver.peers.lines();
        let dials = |line: &&PeerLine| line.channel == Channel::Quorum && !line.dialled;
        lines.iter().filter(dials).filter_map(|line| line.peer).collect()
    }

    /// A server or a bad peer has connected to the port of this channel.
    pub(super) fn accept_peer(
        &mut self,
        now: Instant,
        link: LinkId,
        from: Party,
        channel: Channel,
    ) {
        let host = match from {
            Party::Server(id) => u8::try_from(id.0 & 0xff).expect("a byte"),
            Party::Client(_) | Party::BadPeer => 0,
        };
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), PEER_PORT);
        self.driver.peers.accept(link, channel, address, nonce(link, 1), now);
    }

    /// An attempt to dial has ended.
    pub(in crate::machine::node) fn dialled(
        &mut self,
        dial: PeerDial,
        stands: bool,
        shared: &mut Shared,
    ) {
        let PeerDial { link, to: peer, channel, .. } = dial;
        let counts = &mut shared.recorder.counters.counts;
        match channel {
            Channel::Quorum => {
                counts.links += u64::from(stands);
                counts.links_refused += u64::from(!stands);
            }
            Channel::Election => counts.election_conns += u64::from(stands),
        }
        shared.note(Kind::Conn, (self.id.0, link.0), &[u8::from(stands)], || {
            let how = match (channel, stands) {
                (Channel::Quorum, true) => "is linked to",
                (Channel::Election, true) => "sends notifications to",
                (_, false) => "cannot reach",
            };
            format!("s{} {how} s{peer} by {link}", self.id)
        });
        self.inbox.push_back(Delivered::Dialled(dial, stands));
        self.ask_to_run(shared);
    }

    pub(super) fn take_dialled(
        &mut self,
        now: Now,
        dial: PeerDial,
        stands: bool,
        shared: &mut Shared,
    ) {
        let link = dial.link;
        if stands {
            self.driver.peers.connected(link, nonce(link, 0), now.mono);
            self.enter(now, SocketId::Server(link), End::Dialler, Port::Servers(dial.channel));
            // The driver may have abandoned the attempt.
            self.attend(now, SocketId::Server(link), shared);
        } else {
            self.driver.peers.unreachable(link, "nobody is there".to_owned(), now.mono);
        }
    }

    /// Checks the server's commands for its links, and delays some messages.
    pub(super) fn note_peer_commands(&self, commands: &[PeerCommand], shared: &mut Shared) {
        for command in commands {
            match command {
                PeerCommand::Dial(_) | PeerCommand::DialMaster(_) => {}
                PeerCommand::Send(link, message) => self.maybe_stall(*link, message, shared),
                PeerCommand::Close(link, why) => self.turns_away(*link, why, shared),
            }
        }
    }

    /// L12: a server finds no other server misbehaving, incompatible or unreadable.
    fn turns_away(&self, link: LinkId, why: &LinkCloseReason, shared: &mut Shared) {
        let refuses = matches!(
            why,
            LinkCloseReason::Misbehaved(_)
                | LinkCloseReason::Incompatible(_)
                | LinkCloseReason::Unreadable(_)
        );
        if self.refuses_the_last_release(link, why, shared) {
            return;
        }
        let parties = shared.net.parties(ConnId(link.0)).filter(|_| refuses);
        let Some(parties) = parties else {
            return;
        };
        let strange = parties.contains(&Party::BadPeer);
        let other = parties.into_iter().find(|party| *party != Party::Server(self.id));
        let evidence =
            || format!("s{} refuses {} on {link}: {why}", self.id, other.expect("two ends"));
        shared.check(Check::WELCOME, if strange { Ok(()) } else { Err(evidence()) });
    }

    /// Delays some messages of discovery and synchronization, and all messages behind them, if the
    /// run has that fault.
    fn maybe_stall(&self, link: LinkId, message: &PeerMessage, shared: &mut Shared) {
        let longest = shared.options.peers.words_late_ms;
        let rare = matches!(
            message,
            PeerMessage::Leader(FromLeader::LeaderInfo { .. })
                | PeerMessage::Learner(FromLearner::AckEpoch { .. })
                | PeerMessage::Learner(FromLearner::SyncAt { .. })
                | PeerMessage::Leader(FromLeader::NewLeader { .. })
                | PeerMessage::Learner(FromLearner::AckNewLeader { .. })
                | PeerMessage::Leader(FromLeader::UpToDate { .. })
        );
        if longest == 0 || !rare {
            return;
        }
        let (conn, Some(state)) = (ConnId(link.0), self.sockets.get(&SocketId::Server(link)))
        else {
            return;
        };
        let Some(rng) = shared.net.rng(conn, state.end) else {
            return;
        };
        if rng.chance(1, FIRES_ONE_IN) {
            let until = Instant(shared.now.0 + rng.range(1, longest) * 1_000_000);
            shared.net.stall(conn, state.end.other(), until);
        }
    }

    /// Opens a connection after a delay.
    pub(super) fn dial(&mut self, dial: PeerDial, shared: &mut Shared) {
        let pace = shared.options.peers.link;
        let under_way = pace.draw(self.between(Party::Server(dial.to), shared));
        let (from, incarnation) = (self.id, self.incarnation);
        shared.after(under_way, Event::PeerDial { from, incarnation, dial });
    }
}

/// Port from which every server dials; nothing depends on it.
const PEER_PORT: u16 = 5_000;

/// A nonce that occurs once, because each connection has its own number. Without a secret it need
/// not be unpredictable.
fn nonce(link: LinkId, end: u8) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&link.0.to_le_bytes());
    nonce[8] = end;
    nonce
}
