//! Connections with other servers, and notifications: addresses, delays and faults of the network
//! between servers.
//!
//! Owns the delays and faults that a run injects. Must not read connections: the driver does.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use zabkeeper_core::LinkCloseReason;
use zabkeeper_core::driver::{PeerDial, SocketId};
use zabkeeper_core::peer::greeting::Nonce;
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage};

use super::*;

/// A notification: its sender, its content, and when it was sent.
pub(crate) type ReceivedNotification = (ServerId, Notification, Instant);

impl Process {
    /// Its connections with other servers, for dumps.
    pub(in crate::machine::node) fn links_held(&self) -> String {
        let mut text = "\nlinks\n".to_owned();
        for line in self.driver.peers.lines() {
            let peer = line.peer;
            let peer =
                peer.map_or("somebody who has not greeted yet".to_owned(), |id| format!("s{id}"));
            let dialled = if line.dialled { ", which this server dialled" } else { "" };
            text += &format!(
                "  {} with {peer}{dialled}: {} bytes wait to be sent, {} of an unfinished message \
                 have come\n",
                line.link, line.output_bytes, line.unread_bytes
            );
        }
        text
    }

    pub(in crate::machine::node) fn linked_by(&self) -> BTreeSet<ServerId> {
        let lines = self.driver.peers.lines();
        lines.iter().filter(|line| !line.dialled).filter_map(|line| line.peer).collect()
    }

    /// A server or a bad peer has connected to the quorum port.
    pub(super) fn accept_peer(&mut self, now: Instant, link: LinkId, from: Party) {
        let host = match from {
            Party::Server(id) => u8::try_from(id.0 & 0xff).expect("a byte"),
            Party::Client(_) | Party::BadPeer => 0,
        };
        let address = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, host)), PEER_PORT);
        self.driver.peers.accept(link, Channel::Quorum, address, nonce(link, 1), now);
    }

    /// An attempt to dial has ended.
    pub(in crate::machine::node) fn dialled(
        &mut self,
        conn: ConnId,
        peer: ServerId,
        stands: bool,
        shared: &mut Shared,
    ) {
        let link = LinkId(conn.0);
        shared.recorder.counters.counts.links += u64::from(stands);
        shared.recorder.counters.counts.links_refused += u64::from(!stands);
        shared.note(Kind::Conn, (self.id.0, conn.0), &[u8::from(stands)], || {
            let how = if stands { "is linked to" } else { "cannot reach" };
            format!("s{} {how} s{peer} by {link}", self.id)
        });
        self.inbox.push_back(Delivered::Dialled(link, stands));
        self.ask_to_run(shared);
    }

    /// A notification has arrived.
    pub(in crate::machine::node) fn notified(
        &mut self,
        notified: ReceivedNotification,
        shared: &mut Shared,
    ) {
        self.inbox.push_back(Delivered::Notified(notified));
        self.ask_to_run(shared);
    }

    pub(super) fn take_notification(
        &mut self,
        (from, what, sent): ReceivedNotification,
        shared: &mut Shared,
    ) {
        let late = shared.healed.is_some_and(|healed| sent <= healed);
        shared.recorder.counters.counts.notifications_late += u64::from(late);
        self.driver.push(Input::Election(from, what));
    }

    pub(super) fn take_dialled(&mut self, now: Now, link: LinkId, stands: bool) {
        if stands {
            self.driver.peers.connected(link, nonce(link, 0), now.mono);
            self.enter(now, SocketId::Server(link), End::Dialler);
        } else {
            self.driver.peers.unreachable(link, "nobody is there".to_owned(), now.mono);
        }
    }

    /// Checks the server's commands for its links, and delays some messages.
    pub(super) fn note_peer_commands(&self, commands: &[PeerCommand], shared: &mut Shared) {
        for command in commands {
            match command {
                PeerCommand::Dial(_) => {}
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
    pub(super) fn dial(&mut self, PeerDial { link, to, .. }: PeerDial, shared: &mut Shared) {
        let pace = shared.options.peers.link;
        let under_way = pace.draw(self.between(Party::Server(to), shared));
        let event = Event::PeerDial {
            from: self.id,
            incarnation: self.incarnation,
            conn: ConnId(link.0),
            to,
        };
        shared.after(under_way, event);
    }

    /// Sends notifications, and checks their encoding.
    pub(super) fn send_notifications(
        &mut self,
        notifications: &mut Vec<(ServerId, Notification)>,
        shared: &mut Shared,
    ) {
        for (to, notification) in notifications.drain(..) {
            shared.recorder.counters.counts.notifications += 1;
            let outside = [self.id, to].iter().any(|id| shared.outside.contains_key(id));
            shared.recorder.counters.counts.notifications_outside += u64::from(outside);
            let mut bytes = Vec::new();
            frame::encode(&notification, &mut bytes);
            shared.note(Kind::Send, (self.id.0, to.0), &bytes, || {
                format!("s{} tells s{to}: {notification}", self.id)
            });
            let what = frame::decode(&mut BytesMut::from(&bytes[..]));
            let same =
                if what == Ok(Some(notification)) { Ok(()) } else { Err(format!("{what:?}")) };
            shared.check(Check::SIMULATOR, same);
            self.post(to, notification, shared);
        }
    }

    /// Sends a notification, which may be lost, late or duplicated.
    fn post(&mut self, to: ServerId, what: Notification, shared: &mut Shared) {
        let PeerOptions { link, votes, .. } = shared.options.peers;
        let from = self.id;
        let rng = self.between(Party::Server(to), shared);
        let mut bad = |one_in| one_in > 0 && rng.chance(1, one_in);
        let (lost, twice, late) =
            (bad(votes.lost_one_in), bad(votes.twice_one_in), bad(votes.late_one_in));
        shared.recorder.counters.faults[Fault::NetVotes as usize] +=
            u64::from(lost || twice || late);
        if lost {
            return;
        }
        let event = Event::Notified { from, to, what, sent: shared.now };
        let mut after = link.draw(rng);
        if late {
            after += rng.exponential(VOTE_LATE);
        }
        shared.after(after, event);
        if twice {
            shared.after(after + rng.exponential(VOTE_LATE), event);
        }
    }
}

/// Port from which every server dials; nothing depends on it.
const PEER_PORT: u16 = 5_000;

/// Mean delay of a late notification, ns.
const VOTE_LATE: u64 = 300_000_000;

/// A nonce that occurs once, because each connection has its own number. Without a secret it need
/// not be unpredictable.
fn nonce(link: LinkId, end: u8) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&link.0.to_le_bytes());
    nonce[8] = end;
    nonce
}
