//! What has happened in a run, for people: states of servers, messages, calls, faults, in the order of time.
//!
//! Owns the collecting. Must not influence the run: it is shown what the oracles and the trace are shown, and nothing
//! reads it before the run is over. Without it a run pays one branch for each event.

mod lines;
mod strikes;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_core::io::{ClientCommand, Marks, PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{ConnId, Input, Instant, LinkId, ServerId, Status, Zxid};

pub use lines::Lines;
pub use strikes::{Hit, Strike, Strikes, pairs_text};

use crate::observe::{ClientId, Observation};
use crate::roles::Role;
use crate::tally::Outcome;
use crate::trace::Kind;

/// So many inputs of servers, and steps with marks, are kept, the newest: they are what failures are explained with.
const KEPT: usize = 4_000;

/// Everything that was collected.
#[derive(Debug, Default)]
pub struct Chronicle {
    /// Faults, lives, phases, connections: a line each.
    pub told: Vec<Entry>,
    /// The newest inputs of servers.
    pub inputs: VecDeque<Entry>,
    /// The newest marks that steps have hit.
    pub marks: VecDeque<(Place, ServerId, Marks)>,
    /// What servers have said of themselves, whenever it changed.
    pub states: BTreeMap<ServerId, Vec<State>>,
    /// Messages, in the order in which they were sent.
    pub messages: Vec<Message>,
    /// Calls of clients.
    pub calls: Vec<Call>,
    /// Connections of clients.
    pub conns: Vec<Conn>,
    open_calls: BTreeMap<(ClientId, u64), usize>,
    open_conns: BTreeMap<ConnId, usize>,
    /// Who is at the other end.
    links: BTreeMap<(LinkId, ServerId), ServerId>,
    /// Messages that may still arrive, by connection and sender; each connection is first in, first out.
    under_way: BTreeMap<(u64, Lane), VecDeque<usize>>,
    /// The same for notifications, which may be lost and repeated.
    notices: BTreeMap<(ServerId, ServerId), VecDeque<(Notification, usize)>>,
}

/// Somebody who has a row of a drawing.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// Nobody: the world.
    World,
    /// A server.
    Server(ServerId),
    /// A client.
    Client(ClientId),
}

/// Something that happened, in words.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When.
    pub at: Instant,
    /// Number of the event.
    pub event: u64,
    /// What kind of thing.
    pub kind: Kind,
    /// To whom.
    pub who: Lane,
    /// In words.
    pub text: String,
}

/// What a server says of itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Since when.
    pub at: Instant,
    /// What it does.
    pub role: Role,
    /// Whom it follows, or itself.
    pub leader: Option<ServerId>,
    /// Epochs: promised, and of its history.
    pub epochs: [u32; 2],
    /// Positions: appended, durable, committed, applied.
    pub marks: [Zxid; 4],
    /// Live sessions, and watches.
    pub held: [usize; 2],
    /// Proposals not committed yet.
    pub outstanding: usize,
    /// Its disk has failed.
    pub halted: bool,
}

/// A message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Message {
    /// When it was sent.
    pub at: Instant,
    /// When it was taken, if it was.
    pub got: Option<Instant>,
    /// By whom it was sent.
    pub from: Lane,
    /// To whom.
    pub to: Lane,
    /// What it is.
    pub kind: &'static str,
    /// The position or the epoch that it is about, or zero.
    pub number: u64,
}

/// A call of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// When it was made.
    pub at: Instant,
    /// When it ended, and how.
    pub end: Option<(Instant, Outcome, String)>,
    /// By whom.
    pub client: ClientId,
    /// What was asked.
    pub text: String,
}

/// A connection of a client, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conn {
    /// Whose.
    pub client: ClientId,
    /// With whom.
    pub server: ServerId,
    /// Its number.
    pub conn: ConnId,
    /// Since when.
    pub at: Instant,
    /// Until when.
    pub until: Option<Instant>,
    /// The session that was granted there; zero if none was.
    pub session: i64,
    answered: bool,
}

/// An event's place.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Virtual time.
    pub at: Instant,
    /// Number of the event.
    pub event: u64,
}

impl State {
    fn of(at: Instant, status: &Status) -> State {
        let Status { accepted_epoch, current_epoch, leader, .. } = status;
        State {
            at,
            role: Role::of(status),
            leader: *leader,
            epochs: [accepted_epoch.0, current_epoch.0],
            marks: [status.appended, status.durable, status.committed, status.applied],
            held: [status.sessions, status.watches],
            outstanding: status.outstanding,
            halted: status.halted.is_some(),
        }
    }

    /// It does nothing; this is on its disk.
    fn idle(at: Instant, role: Role, epochs: [u32; 2], log: Zxid) -> State {
        State {
            at,
            role,
            leader: None,
            epochs,
            marks: [log, log, Zxid::ZERO, Zxid::ZERO],
            held: [0; 2],
            outstanding: 0,
            halted: false,
        }
    }

    /// What this server does, and with whom.
    pub fn doing(&self, own: ServerId) -> String {
        match (self.role, self.leader.filter(|leader| *leader != own)) {
            // Its disk has failed, and it waits for the end.
            _ if self.halted => Role::HALTED.to_owned(),
            (Role::Joins, Some(leader)) => format!("joins s{leader}"),
            (Role::Follows, Some(leader)) => format!("follows s{leader}"),
            (role, _) => role.name().to_owned(),
        }
    }
}

impl Chronicle {
    /// A line of the trace.
    pub fn note(
        &mut self,
        place: Place,
        kind: Kind,
        ends: (u64, u64),
        payload: &[u8],
        text: String,
    ) {
        let who = match kind {
            Kind::Step | Kind::Life => Lane::Server(ServerId(ends.0)),
            Kind::Fault | Kind::Phase => Lane::World,
            Kind::Call => Lane::Client(ClientId(u32::try_from(ends.0).unwrap_or(u32::MAX))),
            Kind::Conn | Kind::Send | Kind::Receive | Kind::Disk | Kind::Completion => return,
        };
        let text = if kind == Kind::Step { self.taken_from(ends, text) } else { text };
        let entry = Entry { at: place.at, event: place.event, kind, who, text };
        match kind {
            Kind::Step => {
                if matches!(payload, b"opened" | b"request") {
                    let client = self.client_of(ConnId(ends.1));
                    self.arrived(ends.1, client, place.at);
                }
                // Links that come and go are told besides.
                if !matches!(payload, b"timeout" | b"drained" | b"up" | b"down") {
                    keep(&mut self.inputs, entry);
                }
            }
            Kind::Fault | Kind::Life | Kind::Phase => self.told.push(entry),
            // Calls are collected with their ends; what is left are events of watches.
            Kind::Call if ends.1 == 0 => self.told.push(entry),
            Kind::Call
            | Kind::Conn
            | Kind::Send
            | Kind::Receive
            | Kind::Disk
            | Kind::Completion => {}
        }
    }

    /// An input names a link or a connection: people want to know who is at its other end.
    fn taken_from(&self, (server, number): (u64, u64), text: String) -> String {
        let Some((own, rest)) = text.split_once(' ') else {
            return text;
        };
        let Some((by, what)) = rest.split_once(' ') else {
            return text;
        };
        let peer = self.links.get(&(LinkId(number), ServerId(server)));
        let from = if by == LinkId(number).to_string() {
            peer.map(|peer| format!("s{peer}"))
        } else if by == ConnId(number).to_string() {
            match self.client_of(ConnId(number)) {
                Lane::Client(client) => Some(format!("client {}", client.0)),
                Lane::World | Lane::Server(_) => Some("somebody".to_owned()),
            }
        } else {
            by.strip_prefix('s').and_then(|id| id.parse::<u64>().ok()).map(|id| format!("s{id}"))
        };
        from.map_or(text.clone(), |from| format!("{own} <- {from}: {what}"))
    }

    /// What the oracles are shown.
    pub fn observe(&mut self, place: Place, what: &Observation<'_>) {
        let at = place.at;
        match what {
            Observation::ConnOpened { client, conn, server } => {
                self.open_conns.insert(*conn, self.conns.len());
                let (client, server, conn) = (*client, *server, *conn);
                let session = 0;
                let fresh =
                    Conn { client, server, conn, at, until: None, session, answered: false };
                self.conns.push(fresh);
            }
            Observation::ConnClosed { conn } => {
                if let Some(index) = self.open_conns.remove(conn) {
                    self.conns[index].until = Some(at);
                }
            }
            Observation::ToServer { conn, frame } => self.asked(*conn, frame, at),
            Observation::ToClient { conn, frame } => self.heard(*conn, frame, at),
            Observation::Input { server, input } => self.taken(place, *server, input),
            Observation::Output { server, disk, peers, election, status } => {
                self.put_out(at, *server, peers, election);
                self.wrote(place, *server, disk);
                self.is_now(*server, State::of(at, status));
            }
            Observation::Stopped { server } => {
                let (epochs, log) = self.kept(*server);
                self.is_now(*server, State::idle(at, Role::Down, epochs, log));
            }
            Observation::Recovered { server, state, last } => {
                let epochs = [state.accepted_epoch.0, state.current_epoch.0];
                self.is_now(*server, State::idle(at, Role::Looking, epochs, *last));
            }
            Observation::Wiped { server } => {
                self.is_now(*server, State::idle(at, Role::Down, [0; 2], Zxid::ZERO));
            }
            Observation::Started { .. }
            | Observation::Forgotten { .. }
            | Observation::Applied { .. }
            | Observation::DurableTruth { .. }
            | Observation::CachedTruth { .. }
            | Observation::StandsStill { .. }
            | Observation::Unread { .. }
            | Observation::Waits { .. }
            | Observation::Grown { .. }
            | Observation::Struck { .. }
            | Observation::Serves { .. }
            | Observation::Locals { .. }
            | Observation::Reported { .. }
            | Observation::Final { .. } => {}
        }
    }

    /// A server's step has hit these.
    pub fn reached(&mut self, place: Place, server: ServerId, marks: Marks) {
        keep(&mut self.marks, (place, server, marks));
    }

    /// A client makes a call.
    pub fn called(&mut self, at: Instant, client: ClientId, call: u64, text: String) {
        self.open_calls.insert((client, call), self.calls.len());
        self.calls.push(Call { at, end: None, client, text });
    }

    /// A call has ended.
    pub fn ended(
        &mut self,
        at: Instant,
        client: ClientId,
        call: u64,
        outcome: Outcome,
        text: String,
    ) {
        if let Some(index) = self.open_calls.remove(&(client, call)) {
            self.calls[index].end = Some((at, outcome, text));
        }
    }

    /// A server lets an answer go.
    pub fn answered(&mut self, at: Instant, server: ServerId, conn: ConnId, what: &ClientCommand) {
        let (kind, number) = match what {
            ClientCommand::Connected(_) => ("session", 0),
            ClientCommand::Reply(reply) => ("reply", u64::try_from(reply.zxid).unwrap_or(0)),
            ClientCommand::Event(_) => ("watch event", 0),
            ClientCommand::Close | ClientCommand::Complaint(_) => return,
        };
        let to = self.client_of(conn);
        let message = Message { at, got: None, from: Lane::Server(server), to, kind, number };
        self.sent(conn.0, message);
    }

    fn client_of(&self, conn: ConnId) -> Lane {
        self.open_conns
            .get(&conn)
            .map_or(Lane::World, |index| Lane::Client(self.conns[*index].client))
    }

    fn sent(&mut self, conn: u64, message: Message) {
        self.under_way.entry((conn, message.from)).or_default().push_back(self.messages.len());
        self.messages.push(message);
    }

    fn arrived(&mut self, conn: u64, from: Lane, at: Instant) {
        let waiting = self.under_way.get_mut(&(conn, from));
        if let Some(index) = waiting.and_then(VecDeque::pop_front) {
            self.messages[index].got = Some(at);
        }
    }

    fn asked(&mut self, conn: ConnId, frame: &Bytes, at: Instant) {
        let Some(index) = self.open_conns.get(&conn) else {
            return;
        };
        let Conn { client, server, .. } = self.conns[*index];
        let first = !self.under_way.contains_key(&(conn.0, Lane::Client(client)));
        let kind = match frame.first_chunk::<4>().map(|xid| i32::from_be_bytes(*xid)) {
            _ if first => "handshake",
            Some(-2) => "client ping",
            Some(_) | None => "request",
        };
        let (from, to) = (Lane::Client(client), Lane::Server(server));
        self.sent(conn.0, Message { at, got: None, from, to, kind, number: 0 });
    }

    fn heard(&mut self, conn: ConnId, frame: &Bytes, at: Instant) {
        let Some(index) = self.open_conns.get(&conn) else {
            return;
        };
        let state = &mut self.conns[*index];
        let server = state.server;
        if !state.answered {
            state.answered = true;
            // Protocol version, timeout, session.
            let session = frame.get(8..16).and_then(|bytes| <[u8; 8]>::try_from(bytes).ok());
            state.session = session.map_or(0, i64::from_be_bytes);
        }
        self.arrived(conn.0, Lane::Server(server), at);
    }

    fn taken(&mut self, place: Place, server: ServerId, input: &Input) {
        match input {
            Input::Election(from, what) => {
                let waiting = self.notices.entry((*from, server)).or_default();
                let found = waiting.iter().position(|(sent, _)| sent == what);
                if let Some((_, index)) = found.and_then(|position| waiting.remove(position)) {
                    self.messages[index].got = Some(place.at);
                }
            }
            Input::Peer(link, event) => match event {
                PeerEvent::Up { peer, dialled } => {
                    self.links.insert((*link, server), *peer);
                    let how = if *dialled { "has a link to" } else { "has a link from" };
                    self.tell(place, server, format!("s{server} {how} s{peer}"));
                }
                PeerEvent::Down => {
                    if let Some(peer) = self.links.remove(&(*link, server)) {
                        self.tell(place, server, format!("s{server} lost a link with s{peer}"));
                    }
                }
                PeerEvent::Message(_) => {
                    if let Some(peer) = self.links.get(&(*link, server)) {
                        self.arrived(link.0, Lane::Server(*peer), place.at);
                    }
                }
                PeerEvent::Unreachable { .. } | PeerEvent::Drained => {}
            },
            Input::Timeout | Input::Client(..) | Input::Disk(_) => {}
        }
    }

    fn tell(&mut self, place: Place, server: ServerId, text: String) {
        let Place { at, event } = place;
        self.told.push(Entry { at, event, kind: Kind::Conn, who: Lane::Server(server), text });
    }

    fn put_out(
        &mut self,
        at: Instant,
        server: ServerId,
        peers: &[PeerCommand],
        election: &[(ServerId, Notification)],
    ) {
        let from = Lane::Server(server);
        for command in peers {
            let PeerCommand::Send(link, message) = command else {
                continue;
            };
            if let Some(peer) = self.links.get(&(*link, server)) {
                let (kind, number) = name(message);
                let to = Lane::Server(*peer);
                self.sent(link.0, Message { at, got: None, from, to, kind, number });
            }
        }
        for (to, what) in election {
            self.notices.entry((server, *to)).or_default().push_back((*what, self.messages.len()));
            let (to, number) = (Lane::Server(*to), what.vote.candidate.0);
            self.messages.push(Message { at, got: None, from, to, kind: "vote for", number });
        }
    }

    /// What changes more than the end of the log is worth a line.
    fn wrote(&mut self, place: Place, server: ServerId, disk: &[DiskCommand]) {
        for command in disk {
            match command {
                DiskCommand::SaveState { .. }
                | DiskCommand::Truncate { .. }
                | DiskCommand::Rebase { .. } => {
                    self.tell(place, server, format!("s{server} gives its disk: {command}"));
                }
                DiskCommand::Append { .. }
                | DiskCommand::SnapshotChunk { .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {}
            }
        }
    }

    /// What a server that ends leaves on its disk: epochs, and how far the log surely reaches.
    fn kept(&self, server: ServerId) -> ([u32; 2], Zxid) {
        let last = self.states.get(&server).and_then(|states| states.last());
        last.map_or(([0; 2], Zxid::ZERO), |state| (state.epochs, state.marks[1]))
    }

    fn is_now(&mut self, server: ServerId, state: State) {
        let states = self.states.entry(server).or_default();
        let same = |last: &State| State { at: state.at, ..*last } == state;
        if !states.last().is_some_and(same) {
            states.push(state);
        }
    }
}

fn keep<T>(newest: &mut VecDeque<T>, one: T) {
    if newest.len() == KEPT {
        newest.pop_front();
    }
    newest.push_back(one);
}

/// What a message is called, and the position or epoch that it is about.
fn name(message: &PeerMessage) -> (&'static str, u64) {
    match message {
        PeerMessage::Learner(FromLearner::FollowerInfo { accepted, .. }) => {
            ("FOLLOWERINFO", accepted.0.into())
        }
        PeerMessage::Leader(FromLeader::LeaderInfo { epoch, .. }) => ("LEADERINFO", epoch.0.into()),
        PeerMessage::Learner(FromLearner::AckEpoch { last, .. }) => ("ACKEPOCH", last.0),
        PeerMessage::Leader(FromLeader::Trunc { to }) => ("TRUNC", to.0),
        PeerMessage::Leader(FromLeader::Snap { zxid, .. }) => ("SNAP", zxid.0),
        PeerMessage::Learner(FromLearner::SyncAt { last, .. }) => ("SYNC AT", last.0),
        PeerMessage::Leader(FromLeader::Proposal(entry)) => ("PROPOSAL", entry.zxid.0),
        PeerMessage::Leader(FromLeader::NewLeader { epoch, .. }) => ("NEWLEADER", epoch.0.into()),
        PeerMessage::Learner(FromLearner::AckNewLeader { epoch }) => {
            ("ACK NEWLEADER", epoch.0.into())
        }
        PeerMessage::Leader(FromLeader::UpToDate { committed }) => ("UPTODATE", committed.0),
        PeerMessage::Learner(FromLearner::Ack { zxid }) => ("ACK", zxid.0),
        PeerMessage::Leader(FromLeader::Commit { zxid }) => ("COMMIT", zxid.0),
        PeerMessage::Leader(FromLeader::Ping { .. }) => ("PING", 0),
        PeerMessage::Learner(FromLearner::Pong { .. }) => ("PONG", 0),
        PeerMessage::Learner(FromLearner::Request { .. }) => ("REQUEST", 0),
        PeerMessage::Learner(FromLearner::CreateSession { .. }) => ("CREATE SESSION", 0),
        PeerMessage::Learner(FromLearner::Revalidate { .. }) => ("REVALIDATE", 0),
        PeerMessage::Learner(FromLearner::Sync { .. }) => ("SYNC", 0),
        PeerMessage::Leader(FromLeader::Synced { .. }) => ("SYNCED", 0),
        PeerMessage::Learner(FromLearner::Loading { done, .. }) => ("LOADING", *done),
        PeerMessage::Leader(FromLeader::Differs { zxid }) => ("DIFFERS", zxid.0),
    }
}

/// A position for reading: epoch and counter.
pub fn position(zxid: Zxid) -> String {
    if zxid == Zxid::ZERO {
        "-".to_owned()
    } else {
        format!("{}.{}", zxid.epoch().0, zxid.counter())
    }
}
