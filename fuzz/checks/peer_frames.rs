//! Checks a running core, in any role, with any bytes of other servers. The fuzz target and the
//! test that replays its corpus share these checks.
//!
//! An input is a sequence of actions; see `happens`. The server is server 2 of three. Its disk is
//! ideal; its links use the real greetings and frames.

#[allow(clippy::duplicate_mod, reason = "targets are built apart, and tests replay several")]
mod disk;
mod peer_message;
#[allow(clippy::duplicate_mod, reason = "targets are built apart, and tests replay several")]
mod request;
#[allow(clippy::duplicate_mod, reason = "targets are built apart, and tests replay several")]
mod source;

use std::collections::VecDeque;
use std::time::Duration;

use bytes::BytesMut;
use disk::Disk;
use peer_message::Around;
use source::Source;
use zabkeeper_core::driver::PeerOptions;
use zabkeeper_core::io::{Outbox, PeerCommand, PeerEvent};
use zabkeeper_core::peer::frame::{self, Bounds, Reader, Writer};
use zabkeeper_core::peer::greeting::{Accepting, Channel, Dialling, Greeting, Local};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage, ServerState, Vote};
use zabkeeper_core::store::{DiskCommand, DurableState, Lane};
use zabkeeper_core::{
    Config, Epoch, Halted, HistoryInfo, HistoryStatus, Input, Instant, LinkId, Mode, Now, Seed,
    Server, ServerId, Status, Voters, WallMs, Zxid,
};

const HERE: ServerId = ServerId(2);
const BEGIN: WallMs = WallMs(1_795_274_515_500);
/// Longest frame of a learner, as in `core::driver`.
const LEARNER_BYTES: usize = 8 << 20;
/// Maximum buffered bytes of a link that the core has not accepted yet, besides one received piece.
const GREETED_BYTES: usize = (8 << 10) + 64;
/// More rounds than a server needs to become idle without input.
const ROUNDS: usize = 1_000;

/// Statistics of an input.
#[derive(Default, Debug)]
pub(crate) struct Reached {
    /// Has the server led and served?
    pub(crate) led: bool,
    /// Has the server followed and served?
    pub(crate) followed: bool,
    /// Number of decoded messages.
    pub(crate) messages: usize,
    /// Number of connections closed for invalid bytes.
    pub(crate) refused: usize,
    /// Number of logged transactions.
    pub(crate) logged: usize,
}

/// A connection between servers, dialled by either end.
struct Link {
    id: LinkId,
    dialled: bool,
    /// The core has got its `Up` event.
    up: bool,
    /// The core has sent a message on it, or this server has dialled it.
    taken: bool,
    waits: Option<Accepting>,
    reader: Reader,
    buffer: BytesMut,
}

/// A running core, as described in the module.
struct Live {
    config: Config,
    server: Option<Server>,
    now: Instant,
    lives: u64,
    disk: Disk,
    slots: [Option<Link>; 4],
    next_link: u64,
    dials: VecDeque<ServerId>,
    /// The last notification that the server has sent.
    sent: Option<Notification>,
    /// A leader has sent proposals or a snapshot, which need not be applicable.
    trusts: bool,
    reached: Reached,
}

/// Checks one input.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Reached {
    let mut source = Source(input);
    let mut live = Live::new(source.byte());
    while !source.0.is_empty() && live.server.is_some() {
        live.happens(&mut source);
    }
    live.settle();
    live.replay();
    live.reached
}

impl Live {
    fn new(choice: u8) -> Live {
        let voters = Voters::new([1, 2, 3].map(ServerId));
        let mut config =
            Config::new(HERE, voters, Duration::from_secs(2)).expect("a tick, and a voter");
        config.limits.snapshot_txns = if choice & 1 == 0 { 100_000 } else { 4 };
        let state = DurableState {
            accepted_epoch: Epoch(3),
            current_epoch: Epoch(3),
            ..DurableState::default()
        };
        // A server with data may lead; one with an uninitialized history waits for the others.
        let state = if choice & 2 == 0 { state } else { DurableState::default() };
        let mut live = Live {
            config,
            server: None,
            now: Instant(0),
            lives: 0,
            disk: Disk { state, ..Disk::default() },
            slots: [const { None }; 4],
            next_link: 1,
            dials: VecDeque::new(),
            sent: None,
            trusts: false,
            reached: Reached::default(),
        };
        live.boot();
        live
    }

    fn boot(&mut self) {
        self.lives += 1;
        self.slots = [const { None }; 4];
        self.dials.clear();
        let recovered = self.disk.recovered();
        match Server::recover(self.config.clone(), self.lives, recovered) {
            Ok(server) => self.server = Some(server),
            Err(corrupt) => assert!(self.trusts, "its own disk: {corrupt}"),
        }
        self.settle();
    }

    fn happens(&mut self, source: &mut Source<'_>) {
        let what = source.byte();
        let slot = usize::from(what >> 6);
        match what & 31 {
            0..=2 => self.read(slot, source.bytes()),
            3 | 4 => {
                self.greet(slot, if source.byte() & 1 == 0 { ServerId(1) } else { ServerId(3) })
            }
            5..=7 => {
                // A complete frame with any content.
                let content = source.bytes();
                let length = u32::try_from(content.len()).expect("inputs are short");
                let sum = crc32c::crc32c(content).to_le_bytes();
                self.read(slot, &[&length.to_le_bytes()[..], &sum, content].concat());
            }
            8..=14 => {
                let status = self.status().expect("it runs");
                let message = Around { status, now: self.now }.message(source);
                self.send(slot, &message);
            }
            15 | 16 => {
                let notification = peer_message::notification(self.sent, source);
                let from = ServerId(u64::from(source.below(4)));
                self.step(Input::Election(from, notification));
            }
            17 => self.pass(Duration::from_millis(u64::from(source.byte()).pow(2))),
            18 | 19 => self.finish_log(usize::from(source.byte())),
            20 => self.finish_other(),
            21 | 22 => self.settle(),
            23 => self.end(slot),
            24 => self.answer_dial(slot, source.byte() & 3 != 0),
            25 | 26 => self.lead(),
            27 | 28 => self.follow(),
            29 => self.boot(),
            _ => {
                let junk = source.bytes();
                let read = frame::decode::<Notification>(&mut BytesMut::from(junk));
                if let Ok(Some(notification)) = read {
                    self.step(Input::Election(ServerId(3), notification));
                }
            }
        }
    }

    /// The other servers vote for this server, and one of them follows it.
    fn lead(&mut self) {
        self.settle();
        let Some(sent) = self.sent else { return };
        let vote = Vote { candidate: HERE, ..sent.vote };
        for from in [1, 3].map(ServerId) {
            let history = HistoryInfo::new(HistoryStatus::Complete, vote.epoch);
            let said = Notification { server_state: ServerState::Looking, vote, history, ..sent };
            self.step(Input::Election(from, said));
        }
        self.greet(0, ServerId(1));
        let Some(status) = self.status() else { return };
        let accepted = status.accepted_epoch;
        let history = HistoryInfo::new(HistoryStatus::Complete, status.current_epoch);
        self.send(
            0,
            &PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
        self.settle();
        let Some(status) = self.status() else { return };
        let (current, last) = (status.current_epoch, status.appended);
        self.send(
            0,
            &PeerMessage::Learner(FromLearner::AckEpoch { fresh: true, current, last, nonce: 0 }),
        );
        self.settle();
        let Some(status) = self.status() else { return };
        self.send(
            0,
            &PeerMessage::Learner(FromLearner::AckNewLeader { epoch: status.accepted_epoch }),
        );
        self.settle();
    }

    /// Another server leads, and this server follows it.
    fn follow(&mut self) {
        self.settle();
        let Some(sent) = self.sent else { return };
        let vote = Vote { epoch: Epoch(9), zxid: Zxid(9 << 32), candidate: ServerId(3) };
        for (from, server_state) in [(3, ServerState::Leading), (1, ServerState::Following)] {
            let said = Notification {
                server_state,
                vote,
                history: HistoryInfo::new(HistoryStatus::Complete, vote.epoch),
                ..sent
            };
            self.step(Input::Election(ServerId(from), said));
        }
        self.answer_dial(1, true);
        let Some(status) = self.status() else { return };
        let epoch = Epoch(status.accepted_epoch.0.saturating_add(1));
        self.send(
            1,
            &PeerMessage::Leader(FromLeader::LeaderInfo {
                epoch,
                empty: false,
                ensemble: 0,
                blank: false,
            }),
        );
        self.settle();
        let [voters, established] = [(); 2].map(|()| [1, 2].map(ServerId).into());
        let (identity, nonces) = (Seed::from(1).identity(epoch), Vec::new());
        let new_leader = PeerMessage::Leader(FromLeader::NewLeader {
            epoch,
            voters,
            established,
            identity,
            nonces,
        });
        self.send(1, &new_leader);
        self.settle();
        let Some(status) = self.status() else { return };
        self.send(1, &PeerMessage::Leader(FromLeader::UpToDate { committed: status.appended }));
        self.settle();
    }

    fn status(&self) -> Option<Status> {
        self.server.as_ref().map(Server::status)
    }

    /// A peer connects and greets in the name of a server.
    fn greet(&mut self, slot: usize, from: ServerId) {
        self.end(slot);
        let (_, bytes) = Dialling::begin(local(from), Channel::Quorum, HERE, [7; 16]);
        self.read(slot, &bytes);
    }

    /// Completes a dial of this server: the link is established or the peer unreachable.
    fn answer_dial(&mut self, slot: usize, stands: bool) {
        let Some(peer) = self.dials.pop_front() else { return };
        if !stands {
            let id = self.allocate();
            return self.step(Input::Peer(id, PeerEvent::Unreachable { peer }));
        }
        self.end(slot);
        let (dialling, _) = Dialling::begin(local(HERE), Channel::Quorum, peer, [1; 16]);
        // The answer to a greeting has the form of a greeting.
        let (_, answer) = Dialling::begin(local(peer), Channel::Quorum, HERE, [2; 16]);
        let mut buffer = BytesMut::from(&answer[..]);
        let read = dialling.establish(&mut buffer).expect("a good answer").expect("whole");
        let mut reader = read.0.reader;
        reader.set_bounds(Bounds::LEADER);
        let id = self.allocate();
        let link = Link { id, dialled: true, up: true, taken: true, waits: None, reader, buffer };
        self.slots[slot] = Some(link);
        self.step(Input::Peer(id, PeerEvent::Up { peer, dialled: true }));
    }

    fn allocate(&mut self) -> LinkId {
        self.next_link += 1;
        LinkId(self.next_link)
    }

    /// The other end sends a message.
    fn send(&mut self, slot: usize, message: &PeerMessage) {
        let mut bytes = Vec::new();
        Writer::default().encode_message(message, &mut bytes);
        // In two pieces, as TCP may deliver it.
        let (first, second) = bytes.split_at(bytes.len() / 2);
        self.read(slot, first);
        self.read(slot, second);
    }

    /// Bytes arrive; if the slot has no connection, a peer connects first.
    fn read(&mut self, slot: usize, bytes: &[u8]) {
        if self.slots[slot].is_none() {
            let id = self.allocate();
            let (reader, buffer) = (Reader::default(), BytesMut::new());
            let (up, taken, waits) = (false, false, None);
            self.slots[slot] = Some(Link { id, dialled: false, up, taken, waits, reader, buffer });
        }
        let link = self.slots[slot].as_mut().expect("there is one");
        link.buffer.extend_from_slice(bytes);
        let id = link.id;
        while let Some(link) = self.slots[slot].as_mut().filter(|link| link.id == id) {
            match link.next() {
                Err(()) => {
                    self.reached.refused += 1;
                    return self.end(slot);
                }
                Ok(None) => {
                    let bound = if link.taken { frame::CONTENT_MAX } else { GREETED_BYTES };
                    assert!(link.buffer.len() <= bound + bytes.len(), "it holds too much");
                    return;
                }
                Ok(Some(event)) => {
                    if let PeerEvent::Message(message) = &event {
                        self.reached.messages += 1;
                        let of_leader = matches!(
                            message,
                            PeerMessage::Leader(FromLeader::Proposal(_))
                                | PeerMessage::Leader(FromLeader::Snap { .. })
                        );
                        self.trusts |= of_leader && link.dialled;
                    }
                    self.step(Input::Peer(id, event));
                }
            }
        }
    }

    /// Ends a connection.
    fn end(&mut self, slot: usize) {
        if let Some(link) = self.slots[slot].take()
            && link.up
        {
            self.step(Input::Peer(link.id, PeerEvent::Down));
        }
    }

    fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        let mut spins = 0;
        while let Some((deadline, _)) = self.server.as_ref().and_then(Server::next_deadline)
            && deadline <= end
        {
            spins = if deadline > self.now { 0 } else { spins + 1 };
            assert!(spins < 100, "the deadline {deadline} comes again and again");
            self.now = self.now.max(deadline);
            self.step(Input::Timeout);
        }
        self.now = end;
    }

    fn finish_log(&mut self, count: usize) {
        if let Some(done) = self.disk.finish_log(count) {
            self.step(Input::Disk(done));
        }
    }

    fn finish_other(&mut self) {
        if let Some(done) = self.disk.finish_other() {
            self.step(Input::Disk(done));
        }
    }

    /// Runs due timeouts and disk commands until the server is idle.
    fn settle(&mut self) {
        for _ in 0..ROUNDS {
            let due = self.server.as_ref().and_then(Server::next_deadline);
            let due = due.is_some_and(|(at, _)| at <= self.now);
            if due {
                self.step(Input::Timeout);
            }
            self.finish_log(usize::MAX);
            self.finish_other();
            if !due && self.disk.log.is_empty() && self.disk.others.is_empty() {
                return;
            }
        }
        panic!("it is never idle: {:?}", self.status());
    }

    fn step(&mut self, input: Input) {
        let Some(server) = &mut self.server else { return };
        let ms = i64::try_from(self.now.0 / 1_000_000).unwrap_or(i64::MAX >> 1);
        let now = Now { mono: self.now, wall: WallMs(BEGIN.0.saturating_add(ms)) };
        let mut out = Outbox::default();
        server.step(now, input, &mut out);
        let status = server.status();
        self.reached.led |= status.serving && status.mode == Mode::Leader;
        self.reached.followed |= status.serving && status.mode == Mode::Follower;
        for command in out.disk.drain(..) {
            if let DiskCommand::Append { .. } = command {
                self.reached.logged += 1;
            }
            match command.lane() {
                Lane::Log => self.disk.log.push_back(command),
                Lane::Snapshot | Lane::Reader => self.disk.others.push_back(command),
            }
        }
        if let Some((_, notification)) = out.election.last() {
            self.sent = Some(*notification);
        }
        let mut closed = Vec::new();
        for command in out.peers.drain(..) {
            match command {
                PeerCommand::Dial(to) | PeerCommand::DialMaster(to) => self.dials.push_back(to),
                PeerCommand::Send(link, message) => {
                    let mut bytes = Vec::new();
                    Writer::default().encode_message(&message, &mut bytes);
                    let dialled = matches!(message, PeerMessage::Leader(_));
                    let mut reader = Reader::default();
                    reader.set_bounds(Bounds::LONGEST);
                    let read = reader.decode_message(dialled, &mut BytesMut::from(&bytes[..]));
                    assert_eq!(read, Ok(Some(message)), "what it says can be read");
                    let links = self.slots.iter_mut().flatten();
                    links.filter(|other| other.id == link).for_each(Link::take);
                }
                PeerCommand::Close(link, _) => closed.push(link),
            }
        }
        if let Some(halted) = status.halted {
            let asked_for = match halted {
                Halted::Inapplicable { .. } => self.trusts,
                // The next start sets the data aside.
                Halted::Differs { .. } => self.disk.set_aside(),
                Halted::Disk(_) => false,
            };
            assert!(asked_for, "no leader asked for it: {halted:?}");
            self.server = None;
            return;
        }
        for link in closed {
            let slot =
                self.slots.iter().position(|other| other.as_ref().is_some_and(|l| l.id == link));
            if let Some(slot) = slot {
                self.end(slot);
            }
        }
    }

    /// Checks that all logged transactions can be applied, unless they came from a leader.
    fn replay(&mut self) {
        match zabkeeper_core::replay(self.disk.recovered()) {
            Ok(replayed) => assert!(
                self.trusts || replayed.halted.is_none(),
                "it has logged what cannot be applied: {:?}",
                replayed.halted
            ),
            Err(corrupt) => assert!(self.trusts, "its own disk: {corrupt}"),
        }
    }
}

impl Link {
    fn next(&mut self) -> Result<Option<PeerEvent>, ()> {
        if !self.up {
            if self.waits.is_none() {
                let Some(greeting) = Greeting::take(&mut self.buffer).map_err(drop)? else {
                    return Ok(None);
                };
                greeting.check(&local(HERE), Channel::Quorum).map_err(drop)?;
                self.waits = Some(greeting.welcome(&local(HERE), [3; 16]).0);
            }
            let accepting = self.waits.as_ref().expect("set above");
            let established = accepting.establish(&mut self.buffer).map_err(drop)?;
            let Some(established) = established else { return Ok(None) };
            (self.up, self.reader) = (true, established.reader);
            return Ok(Some(PeerEvent::Up { peer: established.peer, dialled: false }));
        }
        let message = self.reader.decode_message(self.dialled, &mut self.buffer).map_err(drop)?;
        Ok(message.map(PeerEvent::Message))
    }

    fn take(&mut self) {
        if !self.dialled {
            self.reader.set_bounds(Bounds::learner(LEARNER_BYTES));
        }
        self.taken = true;
    }
}

fn local(id: ServerId) -> Local {
    PeerOptions::new(0).local(id)
}
