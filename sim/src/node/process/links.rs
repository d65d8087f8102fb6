//! Links and notifications, as a server process has them: what the shipped driver does with sockets.
//!
//! Owns greetings, frames, what waits to be sent, and the pauses between attempts to dial. Must not judge what is
//! said.

use zabkeeper_core::LinkCloseReason;
use zabkeeper_core::peer::frame::{Bounds, Reader, Writer};
use zabkeeper_core::peer::greeting::{Dialling, Established, Greeting, Local, Nonce, Refusal};
use zabkeeper_core::peer::secret::Secrets;
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage};

use super::*;

/// Pause after the first failed attempt to dial, ns; after each further one it is twice as long.
const BACKOFF_FIRST: u64 = 10_000_000;
/// The longest pause, ns.
const BACKOFF_LONGEST: u64 = 1_000_000_000;

/// Longest message of a learner: as the shipped driver has it.
const LEARNER_BYTES: usize = 8 << 20;

/// A notification: whose, which, and when it was sent.
pub(crate) type Heard = (ServerId, Notification, Instant);

/// What happens to a link.
#[derive(Debug)]
pub(super) enum LinkEvent {
    /// Somebody has dialled; who it is, the greeting will tell.
    Accepted,
    /// This server's own attempt has succeeded.
    Dialled(ServerId),
    /// It has failed.
    Unreachable(ServerId),
    Bytes(Bytes),
    /// It has ended.
    Gone,
    /// This process has closed it, and owes the server the answer.
    Closed,
    /// All that waited has been sent.
    Drained,
}

/// A link, or a connection that may become one.
#[derive(Debug)]
pub(super) struct Link {
    end: End,
    /// Who is at the other end, once it is known; the server knows of the link then.
    peer: Option<ServerId>,
    /// This process has greeted, and waits for the answer.
    dialling: Option<(ServerId, Dialling)>,
    reader: Reader,
    writer: Writer,
    buffer: BytesMut,
    /// What waits for room.
    outbound: Vec<u8>,
}

/// Failed attempts, by whom they were to reach.
#[derive(Debug, Default)]
pub(super) struct Backoff(BTreeMap<ServerId, u32>);

impl Backoff {
    fn pause(&self, peer: ServerId) -> u64 {
        match self.0.get(&peer) {
            None | Some(0) => 0,
            Some(failed) => (BACKOFF_FIRST << (failed - 1).min(7)).min(BACKOFF_LONGEST),
        }
    }

    fn failed(&mut self, peer: ServerId) {
        *self.0.entry(peer).or_default() += 1;
    }

    fn heard(&mut self, peer: ServerId) {
        self.0.remove(&peer);
    }
}

impl Link {
    fn new(end: End) -> Link {
        Link {
            end,
            peer: None,
            dialling: None,
            reader: Reader::default(),
            writer: Writer::default(),
            buffer: BytesMut::new(),
            outbound: Vec::new(),
        }
    }

    /// The next message, if all of it is there.
    fn read(&mut self) -> Result<Option<PeerEvent>, BadFrame> {
        let dialled = self.end == End::Dialler;
        Ok(self.reader.decode_message(dialled, &mut self.buffer)?.map(PeerEvent::Message))
    }

    /// Both ends know each other.
    fn establish(&mut self, established: Established) -> PeerEvent {
        let Established { peer, reader, writer, .. } = established;
        (self.peer, self.reader, self.writer) = (Some(peer), reader, writer);
        let dialled = self.dialling.take().is_some();
        if dialled {
            self.reader.set_bounds(Bounds::LEADER);
        }
        PeerEvent::Up { peer, dialled }
    }

    /// Who is at the other end, once that is known.
    pub(super) fn peer(&self) -> Option<ServerId> {
        self.peer
    }
}

impl Process {
    /// Its links with other servers, for dumps.
    pub(in crate::node) fn links_held(&self) -> String {
        let line = |(link, Link { end, peer, buffer, outbound, .. }): (&LinkId, &Link)| {
            let peer =
                peer.map_or("somebody who has not greeted yet".to_owned(), |id| format!("s{id}"));
            let dialled = if *end == End::Dialler { ", which this server dialled" } else { "" };
            let (read, waiting) = (buffer.len(), outbound.len());
            format!(
                "  {link} with {peer}{dialled}: {waiting} bytes wait to be sent, {read} of an unfinished message have come\n"
            )
        };
        "\nlinks\n".to_owned() + &self.links.iter().map(line).collect::<String>()
    }

    /// An attempt to dial has ended.
    pub(in crate::node) fn dialled(
        &mut self,
        conn: ConnId,
        peer: ServerId,
        stands: bool,
        shared: &mut Shared,
    ) {
        let link = LinkId(conn.0);
        let event = if stands { LinkEvent::Dialled(peer) } else { LinkEvent::Unreachable(peer) };
        shared.tally.counts.links += u64::from(stands);
        shared.tally.counts.links_refused += u64::from(!stands);
        shared.note(Kind::Conn, (self.id.0, conn.0), &[u8::from(stands)], || {
            let how = if stands { "is linked to" } else { "cannot reach" };
            format!("s{} {how} s{peer} by {link}", self.id)
        });
        self.inbox.push_back(Delivered::Link(link, event));
        self.ask_to_run(shared);
    }

    /// A notification has arrived.
    pub(in crate::node) fn notified(&mut self, heard: Heard, shared: &mut Shared) {
        self.inbox.push_back(Delivered::Notified(heard));
        self.ask_to_run(shared);
    }

    pub(super) fn take_notification(&mut self, (from, what, sent): Heard, shared: &mut Shared) {
        let late = shared.healed.is_some_and(|healed| sent <= healed);
        shared.tally.counts.notifications_late += u64::from(late);
        self.backoff.heard(from);
        self.driver.push(Input::Election(from, what));
    }

    pub(super) fn take_link(&mut self, link: LinkId, event: LinkEvent, shared: &mut Shared) {
        match event {
            LinkEvent::Accepted => {
                self.links.insert(link, Link::new(End::Acceptor));
            }
            LinkEvent::Dialled(peer) => {
                let (dialling, bytes) =
                    Dialling::begin(self.local(), Channel::Quorum, peer, nonce(link, 0));
                let dialling = Some((peer, dialling));
                self.links.insert(link, Link { dialling, ..Link::new(End::Dialler) });
                self.put(ConnId(link.0), End::Dialler, bytes.into(), shared);
                shared.schedule_arrivals();
            }
            LinkEvent::Unreachable(peer) => {
                self.backoff.failed(peer);
                let unreachable = PeerEvent::Unreachable { peer };
                self.driver.push(Input::Peer(link, unreachable));
            }
            LinkEvent::Bytes(bytes) => {
                if let Some(state) = self.links.get_mut(&link) {
                    state.buffer.extend_from_slice(&bytes);
                    self.read_link(link, shared);
                }
            }
            LinkEvent::Gone => self.link_gone(link, shared),
            LinkEvent::Closed => self.driver.push(Input::Peer(link, PeerEvent::Down)),
            LinkEvent::Drained => {
                if self.links.get(&link).is_some_and(|state| state.outbound.is_empty()) {
                    self.driver.push(Input::Peer(link, PeerEvent::Drained));
                }
            }
        }
    }

    fn read_link(&mut self, link: LinkId, shared: &mut Shared) {
        loop {
            let Some(state) = self.links.get_mut(&link) else { return };
            let read = match state.peer {
                None => self.greet(link, shared).map_err(|refusal| refusal.to_string()),
                Some(_) => state.read().map_err(|bad| bad.to_string()),
            };
            match read {
                Ok(None) => return,
                Ok(Some(event)) => {
                    if let PeerEvent::Up { peer, .. } = event {
                        self.backoff.heard(peer);
                    } else {
                        shared.tally.counts.peer_messages += 1;
                    }
                    self.driver.push(Input::Peer(link, event));
                }
                Err(bad) => {
                    shared.note(Kind::Conn, (link.0, 0), b"bad frame", || {
                        format!("s{} closes {link}: {bad}", self.id)
                    });
                    return self.link_gone(link, shared);
                }
            }
        }
    }

    /// What this server brings to a greeting.
    fn local(&self) -> Local {
        let (id, ensemble) = (self.id, self.server.ensemble_id());
        Local { id, ensemble, secrets: Secrets::default(), demands_secret: false }
    }

    /// Goes on with the greeting of a link; the server hears of it when both ends know each other.
    fn greet(&mut self, link: LinkId, shared: &mut Shared) -> Result<Option<PeerEvent>, Refusal> {
        let local = self.local();
        let Some(state) = self.links.get_mut(&link) else { return Ok(None) };
        let (established, bytes) = match &state.dialling {
            Some((_, dialling)) => {
                let Some((established, proof)) = dialling.establish(&mut state.buffer)? else {
                    return Ok(None);
                };
                (established, Bytes::from(proof))
            }
            None => {
                let Some(greeting) = Greeting::take(&mut state.buffer)? else {
                    return Ok(None);
                };
                let lists = |id| self.voters.contains(id);
                let (end, nonce) = (state.end, nonce(link, 1));
                if let Err(refusal) = greeting.check(&local, Channel::Quorum, lists) {
                    let bytes = greeting.refuse(&local, &refusal, nonce);
                    self.put(ConnId(link.0), end, bytes.into(), shared);
                    return Err(refusal);
                }
                let (accepting, answer) = greeting.welcome(&local, nonce);
                // Without a secret there is no proof to wait for.
                let Some(established) = accepting.establish(&mut state.buffer)? else {
                    return Ok(None);
                };
                (established, Bytes::from(answer))
            }
        };
        let event = state.establish(established);
        let end = state.end;
        self.put(ConnId(link.0), end, bytes, shared);
        shared.schedule_arrivals();
        Ok(Some(event))
    }

    /// The link is no more: the server is told, if it knew of it.
    fn link_gone(&mut self, link: LinkId, shared: &mut Shared) {
        let Some(state) = self.links.remove(&link) else {
            return;
        };
        shared.net.close(shared.now, ConnId(link.0), state.end);
        shared.schedule_arrivals();
        if state.peer.is_some() {
            self.driver.push(Input::Peer(link, PeerEvent::Down));
        } else if let Some((peer, _)) = state.dialling {
            self.backoff.failed(peer);
            self.driver.push(Input::Peer(link, PeerEvent::Unreachable { peer }));
        }
    }

    /// Carries out what the server asks of its links.
    pub(super) fn send_peers(&mut self, commands: &mut Vec<PeerCommand>, shared: &mut Shared) {
        if commands.is_empty() {
            return;
        }
        let mut touched = BTreeSet::new();
        for command in commands.drain(..) {
            match command {
                PeerCommand::Dial(peer) => self.dial(peer, shared),
                PeerCommand::Send(link, message) => {
                    self.maybe_stall(link, &message, shared);
                    if let Some(state) = self.links.get_mut(&link) {
                        if state.end == End::Acceptor {
                            state.reader.set_bounds(Bounds::learner(LEARNER_BYTES));
                        }
                        state.writer.encode_message(&message, &mut state.outbound);
                        touched.insert(link);
                    }
                }
                PeerCommand::Close(link, why) => {
                    self.turns_away(link, &why, shared);
                    touched.remove(&link);
                    if let Some(state) = self.links.remove(&link) {
                        let conn = ConnId(link.0);
                        self.put(conn, state.end, state.outbound.into(), shared);
                        shared.net.close(shared.now, conn, state.end);
                        self.inbox.push_back(Delivered::Link(link, LinkEvent::Closed));
                    }
                }
            }
        }
        for link in touched {
            self.flush(link, shared);
        }
        shared.schedule_arrivals();
    }

    /// L12: whoever is refused on a link is none of the servers.
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
        let strange = parties.contains(&Party::Stranger);
        let other = parties.into_iter().find(|party| *party != Party::Server(self.id));
        let told = || format!("s{} refuses {} on {link}: {why}", self.id, other.expect("two ends"));
        shared.hold(Check::WELCOME, if strange { Ok(()) } else { Err(told()) });
    }

    /// Some words by which a learner is brought in arrive late, and all behind them, where the run has that.
    fn maybe_stall(&mut self, link: LinkId, message: &PeerMessage, shared: &mut Shared) {
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
        let (conn, Some(state)) = (ConnId(link.0), self.links.get(&link)) else {
            return;
        };
        let Some(dice) = shared.net.dice(conn, state.end) else {
            return;
        };
        if dice.chance(1, FIRES_ONE_IN) {
            let until = Instant(shared.now.0 + dice.range(1, longest) * 1_000_000);
            shared.net.stall(conn, state.end.other(), until);
        }
    }

    fn dial(&mut self, to: ServerId, shared: &mut Shared) {
        let conn = shared.net.deal();
        let pace = shared.options.peers.link;
        let under_way = pace.draw(self.between(Party::Server(to), shared));
        let event = Event::PeerDial { from: self.id, life: self.life, conn, to };
        shared.after(self.backoff.pause(to) + under_way, event);
    }

    /// Links that have had no room may have some now.
    pub(super) fn flush_all(&mut self, shared: &mut Shared) {
        // Most of the time there are none.
        if !self.stuck.is_empty() {
            for link in std::mem::take(&mut self.stuck) {
                self.flush(link, shared);
            }
        }
        shared.schedule_arrivals();
    }

    /// Sends what waits, as far as there is room.
    fn flush(&mut self, link: LinkId, shared: &mut Shared) {
        let Some(state) = self.links.get_mut(&link) else {
            return;
        };
        let (conn, end) = (ConnId(link.0), state.end);
        let window = shared.options.peers.window;
        let room = window.saturating_sub(shared.net.under_way(conn, end.other()));
        let rest = state.outbound.split_off(room.min(state.outbound.len()));
        let bytes = std::mem::replace(&mut state.outbound, rest);
        if state.outbound.is_empty() {
            self.inbox.push_back(Delivered::Link(link, LinkEvent::Drained));
        } else {
            self.stuck.insert(link);
        }
        self.put(conn, end, bytes.into(), shared);
    }

    /// Lets notifications go, through their encoding.
    pub(super) fn send_notifications(
        &mut self,
        notifications: &mut Vec<(ServerId, Notification)>,
        shared: &mut Shared,
    ) {
        for (to, notification) in notifications.drain(..) {
            shared.tally.counts.notifications += 1;
            let outside = [self.id, to].iter().any(|id| shared.outside.contains_key(id));
            shared.tally.counts.notifications_outside += u64::from(outside);
            let mut bytes = Vec::new();
            frame::encode(&notification, &mut bytes);
            shared.note(Kind::Send, (self.id.0, to.0), &bytes, || {
                format!("s{} tells s{to}: {notification}", self.id)
            });
            let what = frame::decode(&mut BytesMut::from(&bytes[..]));
            let same =
                if what == Ok(Some(notification)) { Ok(()) } else { Err(format!("{what:?}")) };
            shared.hold(Check::SIMULATOR, same);
            self.post(to, notification, shared);
        }
    }

    /// A notification is on its way, or its ways.
    fn post(&mut self, to: ServerId, what: Notification, shared: &mut Shared) {
        let PeerOptions { link, votes, .. } = shared.options.peers;
        let from = self.id;
        let dice = self.between(Party::Server(to), shared);
        let mut bad = |one_in| one_in > 0 && dice.chance(1, one_in);
        let (lost, twice, late) =
            (bad(votes.lost_one_in), bad(votes.twice_one_in), bad(votes.late_one_in));
        shared.tally.faults[Fault::NetVotes as usize] += u64::from(lost || twice || late);
        if lost {
            return;
        }
        let event = Event::Notified { from, to, what, sent: shared.now };
        let mut after = link.draw(dice);
        if late {
            after += dice.exponential(VOTE_LATE);
        }
        shared.after(after, event);
        if twice {
            shared.after(after + dice.exponential(VOTE_LATE), event);
        }
    }
}

/// How late a notification may be in the mean, ns.
const VOTE_LATE: u64 = 300_000_000;

/// No number comes twice, as each connection has a number of its own; without a secret nobody needs to be surprised.
fn nonce(link: LinkId, end: u8) -> Nonce {
    let mut nonce = Nonce::default();
    nonce[..8].copy_from_slice(&link.0.to_le_bytes());
    nonce[8] = end;
    nonce
}

#[cfg(test)]
mod tests;
