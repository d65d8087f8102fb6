//! The events of a run, for reports: states of servers, messages, calls, faults, in the order of
//! time.
//!
//! Owns the collection. Must not influence the run: it receives what the oracles and the trace
//! receive, and nothing reads it before the run is over. Without it a run pays one branch per
//! event.

mod injections;
mod lines;

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use zabkeeper_client::CallId;
use zabkeeper_core::io::{ClientCommand, Marks, PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage};
use zabkeeper_core::store::DiskCommand;
use zabkeeper_core::{ConnId, Input, Instant, LinkId, ServerId, Status, Zxid};

pub use injections::Injections;
pub use lines::Lines;

use crate::check::observe::{ClientId, Observation};
use crate::clients::workload::CallOutcome;
use crate::record::event::{ClientRunEvent, RunEvent};
use crate::record::role::Role;
use crate::record::trace::Kind;

/// Number of inputs of servers, and of steps with marks, that are kept, the newest: explanations of
/// failures use them.
const KEPT: usize = 4_000;

/// The collected events.
#[derive(Debug, Default)]
pub struct Timeline {
    /// Faults, starts and ends of servers, phases, connections.
    pub entries: Vec<Entry>,
    /// The newest inputs of servers.
    pub inputs: VecDeque<Entry>,
    /// The newest marks that steps have hit.
    pub marks: VecDeque<(Place, ServerId, Marks)>,
    /// Status changes of servers.
    pub states: BTreeMap<ServerId, Vec<State>>,
    /// Messages, in the order in which they were sent.
    pub messages: Vec<Message>,
    /// Calls of clients.
    pub calls: Vec<Call>,
    /// Connections of clients.
    pub conns: Vec<Conn>,
    open_calls: BTreeMap<(ClientId, CallId), usize>,
    open_conns: BTreeMap<ConnId, usize>,
    /// The server at the other end of a link.
    links: BTreeMap<(LinkId, ServerId), ServerId>,
    /// Messages in flight, by connection and sender; each connection is FIFO.
    under_way: BTreeMap<(u64, Lane), VecDeque<usize>>,
    /// The same for notifications, which may be lost or duplicated.
    notices: BTreeMap<(ServerId, ServerId), VecDeque<(Notification, usize)>>,
}

/// A row of the diagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lane {
    /// The world as a whole.
    World,
    /// A server.
    Server(ServerId),
    /// A client.
    Client(ClientId),
}

/// An event as text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    /// When.
    pub at: Instant,
    /// Number of the event.
    pub event: u64,
    /// Kind of the event.
    pub kind: Kind,
    /// The server or client that it concerns.
    pub who: Lane,
    /// The text.
    pub text: String,
}

/// The status of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct State {
    /// Since when.
    pub at: Instant,
    /// Its role.
    pub role: Role,
    /// Its leader, which may be itself.
    pub leader: Option<ServerId>,
    /// Accepted and current epoch.
    pub epochs: [u32; 2],
    /// Zxids: appended, durable, committed, applied.
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
    /// When it was received, if it was.
    pub got: Option<Instant>,
    /// The sender.
    pub from: Lane,
    /// The receiver.
    pub to: Lane,
    /// The message type.
    pub kind: &'static str,
    /// The zxid or epoch in it, or zero.
    pub number: u64,
}

/// A call of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Call {
    /// When it was made.
    pub at: Instant,
    /// When it completed, and how.
    pub end: Option<(Instant, CallOutcome, String)>,
    /// The client.
    pub client: ClientId,
    /// The request.
    pub text: String,
}

/// A connection of a client, as the client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conn {
    /// The client.
    pub client: ClientId,
    /// The server.
    pub server: ServerId,
    /// Its number.
    pub conn: ConnId,
    /// When it was opened.
    pub at: Instant,
    /// When it was closed.
    pub until: Option<Instant>,
    /// The session that was granted; zero if none was.
    pub session: i64,
    answered: bool,
}

/// The time and number of an event.
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

    /// The state of a server that is down or recovering: only what is on its disk.
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

    /// The role of this server, and its leader.
    pub fn doing(&self, own: ServerId) -> String {
        match (self.role, self.leader.filter(|leader| *leader != own)) {
            // Its disk has failed, and it is about to end.
            _ if self.halted => Role::HALTED.to_owned(),
            (Role::Joins, Some(leader)) => format!("joins s{leader}"),
            (Role::Follows, Some(leader)) => format!("follows s{leader}"),
            (role, _) => role.name().to_owned(),
        }
    }
}

impl Timeline {
    /// Records an event of the trace.
    pub fn note(
        &mut self,
        place: Place,
        kind: Kind,
        ends: (u64, u64),
        payload: &[u8],
        text: String,
    ) {
        let who = match kind {
            Kind::Step | Kind::Process => Lane::Server(ServerId(ends.0)),
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
                // Link events have entries of their own.
                if !matches!(payload, b"timeout" | b"drained" | b"up" | b"down") {
                    keep(&mut self.inputs, entry);
                }
            }
            Kind::Fault | Kind::Process | Kind::Phase => self.entries.push(entry),
            // Completed calls are collected separately; the remaining ones are watch events.
            Kind::Call if ends.1 == 0 => self.entries.push(entry),
            Kind::Call
            | Kind::Conn
            | Kind::Send
            | Kind::Receive
            | Kind::Disk
            | Kind::Completion => {}
        }
    }

    /// Adds the other end of the link or connection that an input names.
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

    /// Records an observation.
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
            Observation::ToClient { conn, frame } => self.received(*conn, frame, at),
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
            | Observation::InForce { .. }
            | Observation::Forgotten { .. }
            | Observation::Told { .. }
            | Observation::Applied { .. }
            | Observation::DurableAudit { .. }
            | Observation::CachedAudit { .. }
            | Observation::StandsStill { .. }
            | Observation::Unread { .. }
            | Observation::Waits { .. }
            | Observation::Grown { .. }
            | Observation::FaultInjected { .. }
            | Observation::Serves { .. }
            | Observation::Locals { .. }
            | Observation::Answered { .. }
            | Observation::AnswerRead { .. }
            | Observation::Reported { .. }
            | Observation::Final { .. } => {}
        }
    }

    /// Reads an event of the run: marks and calls. The rest comes as entries of the trace and as
    /// observations.
    pub fn record(&mut self, place: Place, event: &RunEvent<'_>) {
        match *event {
            RunEvent::MarksHit { server, marks } => keep(&mut self.marks, (place, server, marks)),
            RunEvent::Client(client, ref event) => self.client_event(place.at, client, event),
            RunEvent::Started { .. }
            | RunEvent::Recovered { .. }
            | RunEvent::RoleChanged { .. }
            | RunEvent::Ended { .. }
            | RunEvent::Wiped { .. }
            | RunEvent::Input { .. }
            | RunEvent::FaultHit(_)
            | RunEvent::LateFault { .. }
            | RunEvent::Healed { .. } => {}
        }
    }

    fn client_event(&mut self, at: Instant, client: ClientId, event: &ClientRunEvent<'_>) {
        match *event {
            ClientRunEvent::Called { call, request, .. } => {
                self.open_calls.insert((client, call), self.calls.len());
                self.calls.push(Call { at, end: None, client, text: request.to_string() });
            }
            ClientRunEvent::CallEnded { call, outcome, result, .. } => {
                if let Some(index) = self.open_calls.remove(&(client, call)) {
                    // Without data.
                    let text = match result {
                        Ok(done) => format!("done at {}", done.zxid),
                        Err(why) => why.to_string(),
                    };
                    self.calls[index].end = Some((at, outcome, text));
                }
            }
            ClientRunEvent::Connected { .. }
            | ClientRunEvent::BadClientConnected { .. }
            | ClientRunEvent::HangsUp { .. }
            | ClientRunEvent::ConnLost { .. } => {}
        }
    }

    /// A server sends a reply.
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

    fn received(&mut self, conn: ConnId, frame: &Bytes, at: Instant) {
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
                    self.push_conn(place, server, format!("s{server} {how} s{peer}"));
                }
                PeerEvent::Down => {
                    if let Some(peer) = self.links.remove(&(*link, server)) {
                        self.push_conn(
                            place,
                            server,
                            format!("s{server} lost a link with s{peer}"),
                        );
                    }
                }
                PeerEvent::Message(_) => {
                    if let Some(peer) = self.links.get(&(*link, server)) {
                        self.arrived(link.0, Lane::Server(*peer), place.at);
                    }
                }
                PeerEvent::Unreachable { .. } | PeerEvent::Drained | PeerEvent::Version(_) => {}
            },
            Input::Timeout
            | Input::Client(..)
            | Input::Disk(_)
            | Input::EnsembleConfig(..)
            | Input::Stop
            | Input::Oracle(_) => {}
        }
    }

    fn push_conn(&mut self, place: Place, server: ServerId, text: String) {
        let Place { at, event } = place;
        self.entries.push(Entry { at, event, kind: Kind::Conn, who: Lane::Server(server), text });
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

    /// Records disk commands other than appends.
    fn wrote(&mut self, place: Place, server: ServerId, disk: &[DiskCommand]) {
        for command in disk {
            match command {
                DiskCommand::SaveState { .. }
                | DiskCommand::Truncate { .. }
                | DiskCommand::Rebase { .. } => {
                    self.push_conn(place, server, format!("s{server} gives its disk: {command}"));
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

    /// What a server leaves on its disk when it ends: its epochs, and the durable end of its log.
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

/// The type of a message, and the zxid or epoch in it.
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
        PeerMessage::Leader(FromLeader::TakeOver { vote }) => ("TAKEOVER", vote.candidate.0),
        PeerMessage::Leader(FromLeader::Inform(entry)) => ("INFORM", entry.zxid.0),
        PeerMessage::Learner(FromLearner::ObserverInfo { accepted, .. }) => {
            ("OBSERVERINFO", accepted.0.into())
        }
        PeerMessage::Learner(FromLearner::Attach { .. }) => ("ATTACH", 0),
        PeerMessage::Leader(FromLeader::Attached { logged, .. }) => ("ATTACHED", logged.0),
        PeerMessage::Learner(FromLearner::RevalidateBehind { .. }) => ("REVALIDATE", 0),
        PeerMessage::Learner(FromLearner::SyncBehind { .. }) => ("SYNC", 0),
        PeerMessage::Learner(FromLearner::TouchedBehind { .. }) => ("TOUCHED", 0),
        PeerMessage::Leader(FromLeader::SyncedBehind { .. }) => ("SYNCED", 0),
        PeerMessage::Leader(FromLeader::DiffersBehind { zxid, .. }) => ("DIFFERS", zxid.0),
        PeerMessage::Leader(FromLeader::Detached { .. }) => ("DETACHED", 0),
    }
}

/// A zxid as epoch and counter.
pub fn position(zxid: Zxid) -> String {
    if zxid == Zxid::ZERO {
        "-".to_owned()
    } else {
        format!("{}.{}", zxid.epoch().0, zxid.counter())
    }
}
