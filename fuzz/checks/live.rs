//! A running core with simulated clients, an ideal disk and two clocks.
//!
//! It acts as a host and checks what hosts rely on: every reply decodes as its request expects,
//! replies come in the order of the requests, no command follows the close of a connection, and a
//! server without outstanding work is idle.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use zabkeeper_core::io::{ClientCommand, ClientEvent, Outbox};
use zabkeeper_core::store::{
    DiskCommand, DiskEvent, DurableState, Entry, Lane, Recovered, SnapshotImage,
};
use zabkeeper_core::wire::{
    ClientFrames, ConnectRequest, ConnectResponse, FirstFrame, FromServer, Id, MAX_FRAME_DEFAULT,
    Reply, ReplyKind, Request, RequestFrame, ServerFrames, XID_PING,
};
use zabkeeper_core::{
    Config, ConnId, EpochIndex, ErrorCode, Input, Instant, Now, Pressure, Server, SessionId,
    Status, WallMs, Zxid,
};

/// Wall clock time at the start.
const BEGIN: WallMs = WallMs(1_795_274_515_500);

/// More rounds than any input needs until all its requests are answered.
const ROUNDS: usize = 10_000;

/// An observer of everything that happens.
pub(crate) trait Judge {
    /// The address of a connection's client, as the judge knows it.
    fn address(&self, conn: ConnId) -> String {
        let [.., a, b, c] = conn.0.to_be_bytes();
        format!("10.{a}.{b}.{c}")
    }

    fn see(&mut self, _at: Instant, _what: Seen<'_>) {}
}

/// The observer that ignores everything.
impl Judge for () {}

/// An observation.
pub(crate) enum Seen<'a> {
    /// A client has connected.
    Opened(ConnId),
    /// The client has written a complete frame, here without its length.
    ToServer(ConnId, Bytes),
    /// The client has received a frame, here without its length.
    ToClient(ConnId, Bytes),
    /// The connection is closed.
    Closed(ConnId),
    /// The server has started.
    Started,
    /// The server has recovered this state and this last transaction.
    Recovered(&'a DurableState, Zxid),
    /// The server has stopped.
    Stopped,
    /// The server is about to process this input of its disk.
    Input(&'a Input),
    /// The output of a step, and the server's status after it.
    Output(&'a Outbox, &'a Status),
    /// A transaction was applied; the digest is given for the last one of a step.
    Applied(Zxid, Option<u64>),
}

/// Both ends of a client's connection.
struct Client {
    /// The server's end.
    frames: ClientFrames,
    buffer: BytesMut,
    /// The client's end: has the handshake been answered?
    greeted: bool,
    /// Requests that the server has read and not answered.
    asked: VecDeque<Asked>,
}

/// An outstanding request.
#[derive(Debug)]
struct Asked {
    xid: i32,
    /// The xid as sent: if the client itself is refused, the reply has it even for a ping.
    sent: i32,
    kind: ReplyKind,
    /// The reply may overtake others, as that of auth does.
    aside: bool,
}

/// The durable content, and the outstanding commands of each lane.
#[derive(Default)]
struct Disk {
    state: DurableState,
    log_after: Zxid,
    entries: Vec<Entry>,
    snapshots: BTreeMap<Zxid, Vec<Bytes>>,
    writing: Vec<Bytes>,
    log: VecDeque<DiskCommand>,
    others: VecDeque<DiskCommand>,
}

/// A running core, as described in the module.
pub(crate) struct Live<J> {
    config: Config,
    server: Server,
    out: Outbox,
    now: Instant,
    disk: Disk,
    clients: BTreeMap<ConnId, Client>,
    /// Logged transactions that are not applied yet.
    unapplied: VecDeque<Zxid>,
    next_conn: u64,
    lives: u64,
    /// Sessions created or resumed, in order.
    pub(crate) sessions: Vec<ConnectResponse>,
    /// Number of replies.
    pub(crate) answers: usize,
    /// Number of events.
    pub(crate) events: usize,
    pub(crate) judge: J,
}

impl<J: Judge> Live<J> {
    /// A standalone server on an empty disk, which serves already.
    pub(crate) fn new(config: Config, judge: J) -> Live<J> {
        let server = Server::recover(config.clone(), 0, Recovered::default());
        let mut live = Live {
            config,
            server: server.expect("an empty disk makes sense"),
            out: Outbox::default(),
            now: Instant(0),
            disk: Disk::default(),
            clients: BTreeMap::new(),
            unapplied: VecDeque::new(),
            next_conn: 0,
            lives: 0,
            sessions: Vec::new(),
            answers: 0,
            events: 0,
            judge,
        };
        live.begin(&Recovered::default());
        live.settle();
        live
    }

    /// Opens a connection without a handshake.
    pub(crate) fn open(&mut self) -> ConnId {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let frames = ClientFrames::new(MAX_FRAME_DEFAULT);
        let (buffer, asked) = (BytesMut::new(), VecDeque::new());
        self.clients.insert(conn, Client { frames, buffer, greeted: false, asked });
        self.judge.see(self.now, Seen::Opened(conn));
        conn
    }

    pub(crate) fn is_open(&self, conn: ConnId) -> bool {
        self.clients.contains_key(&conn)
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// The last transaction applied.
    pub(crate) fn applied(&self) -> Zxid {
        self.server.status().applied
    }

    /// The client writes the handshake: for a new session, or to resume one.
    pub(crate) fn greet(&mut self, conn: ConnId, timeout_ms: i32, resume: Option<ConnectResponse>) {
        let (session, password) = match resume {
            None => (SessionId(0), [0; 16]),
            Some(before) => (before.session, before.password),
        };
        let mut out = BytesMut::new();
        let request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms,
            session,
            password: Bytes::copy_from_slice(&password),
            read_only: Some(false),
        };
        request.encode(&mut out);
        self.frame(conn, out.freeze().slice(4..));
    }

    pub(crate) fn ask(&mut self, conn: ConnId, xid: i32, request: Request) {
        let mut out = BytesMut::new();
        RequestFrame { xid, request }.encode(&mut out);
        self.frame(conn, out.freeze().slice(4..));
    }

    /// The client writes a complete frame.
    pub(crate) fn frame(&mut self, conn: ConnId, frame: Bytes) {
        let mut bytes = BytesMut::new();
        bytes.put_i32(i32::try_from(frame.len()).expect("inputs are short"));
        bytes.extend_from_slice(&frame);
        self.judge.see(self.now, Seen::ToServer(conn, frame));
        self.write(conn, &bytes);
    }

    /// The client writes any bytes.
    pub(crate) fn write(&mut self, conn: ConnId, bytes: &[u8]) {
        if let Some(client) = self.clients.get_mut(&conn) {
            client.buffer.extend_from_slice(bytes);
            self.read(conn);
        }
    }

    /// The client or the network closes the connection.
    pub(crate) fn drop_conn(&mut self, conn: ConnId) {
        if let Some(client) = self.clients.remove(&conn) {
            self.judge.see(self.now, Seen::Closed(conn));
            if client.frames.is_open() {
                self.step(Input::Client(conn, ClientEvent::Closed));
            }
        }
    }

    /// The server decodes frames, as far as flow control allows.
    fn read(&mut self, conn: ConnId) {
        while let Some(client) = self.clients.get_mut(&conn) {
            let window = self.config.limits.requests_per_conn as usize;
            if self.server.pressure() == Pressure::PauseClients || client.asked.len() >= window {
                return;
            }
            let event = if client.frames.is_open() {
                client.frames.next(&mut client.buffer).map(|next| next.map(ClientEvent::Request))
            } else {
                let ip = Id { scheme: "ip".into(), id: self.judge.address(conn) };
                client.frames.first(&mut client.buffer).map(|first| match first {
                    None => None,
                    Some(FirstFrame::Connect(request)) => {
                        Some(ClientEvent::Opened(request, vec![ip]))
                    }
                    // A four-letter command: the driver answers it and closes the connection.
                    Some(FirstFrame::Command(_)) => Some(ClientEvent::Closed),
                })
            };
            match event {
                Ok(None) => return,
                Ok(Some(ClientEvent::Closed | ClientEvent::Heartbeat)) | Err(_) => {
                    return self.drop_conn(conn);
                }
                Ok(Some(event @ ClientEvent::Opened(..))) => self.step(Input::Client(conn, event)),
                Ok(Some(ClientEvent::Request(mut frame))) => {
                    client.tell_apart(&mut frame);
                    client.asked.push_back(Asked::new(&frame));
                    self.step(Input::Client(conn, ClientEvent::Request(frame)));
                }
            }
        }
    }

    /// Completes up to `count` commands of the log lane, with one completion.
    pub(crate) fn finish_log(&mut self, count: usize) {
        if let Some(done) = self.disk.finish_log(count) {
            self.step(Input::Disk(done));
        }
    }

    /// Completes the first command of the other lanes.
    pub(crate) fn finish_other(&mut self) {
        if let Some(done) = self.disk.finish_other() {
            self.step(Input::Disk(done));
        }
    }

    /// Time passes, with a timeout at each deadline.
    pub(crate) fn pass(&mut self, time: Duration) {
        let end = self.now.after(time);
        let mut spins = 0;
        while let Some((deadline, _)) = self.server.next_deadline()
            && deadline <= end
        {
            spins = if deadline > self.now { 0 } else { spins + 1 };
            assert!(spins < 100, "the deadline {deadline} comes again and again");
            self.now = self.now.max(deadline);
            self.step(Input::Timeout);
        }
        self.now = end;
    }

    /// Time passes without timeouts, as if the process were suspended.
    pub(crate) fn stall(&mut self, time: Duration) {
        self.now = self.now.after(time);
    }

    /// The power fails: outstanding disk commands are lost. The server restarts.
    pub(crate) fn restart(&mut self) {
        self.judge.see(self.now, Seen::Stopped);
        for conn in Vec::from_iter(self.clients.keys().copied()) {
            self.clients.remove(&conn);
            self.judge.see(self.now, Seen::Closed(conn));
        }
        let recovered = self.disk.recovered();
        self.lives += 1;
        let server = Server::recover(self.config.clone(), self.lives, recovered.clone());
        self.server = server.unwrap_or_else(|corrupt| panic!("its own disk: {corrupt}"));
        self.begin(&recovered);
        self.settle();
    }

    /// Completes all outstanding work.
    ///
    /// # Panics
    /// If a request stays unanswered.
    pub(crate) fn settle(&mut self) {
        for _ in 0..ROUNDS {
            if self.server.next_deadline().is_some_and(|(deadline, _)| deadline <= self.now) {
                self.step(Input::Timeout);
            }
            self.finish_log(usize::MAX);
            self.finish_other();
            for conn in Vec::from_iter(self.clients.keys().copied()) {
                self.read(conn);
            }
            let idle = self.disk.log.is_empty() && self.disk.others.is_empty();
            let due = self.server.next_deadline().is_some_and(|(deadline, _)| deadline <= self.now);
            if idle && !due && self.clients.values().all(Client::is_served) {
                return;
            }
        }
        let status = self.server.status();
        let waiting = |(conn, client): (&ConnId, &Client)| {
            let xids = Vec::from_iter(client.asked.iter().map(|asked| asked.xid));
            format!("{conn}: greeted {}, not answered {xids:?}", client.greeted)
        };
        let waiting = Vec::from_iter(self.clients.iter().map(waiting));
        panic!("never served: {waiting:?}, {status:?}");
    }

    /// Completes all outstanding work, and checks that the server is idle then.
    ///
    /// # Panics
    /// If it is not idle.
    pub(crate) fn settle_and_check_idle(&mut self) {
        self.settle();
        let (answers, events, applied) = (self.answers, self.events, self.applied());
        self.step(Input::Timeout);
        let after = (self.answers, self.events, self.applied());
        assert_eq!((answers, events, applied), after, "a served server is quiet");
        assert!(self.disk.log.is_empty() && self.disk.others.is_empty(), "and its disk idle");
    }

    /// The state of the server: the last applied zxid, the digest and the live sessions.
    pub(crate) fn holds(&self) -> (Zxid, u64, Vec<SessionId>) {
        let sessions = self.server.sessions().into_iter().map(|info| info.id).collect();
        (self.applied(), self.server.digest(), sessions)
    }

    fn begin(&mut self, recovered: &Recovered) {
        self.judge.see(self.now, Seen::Started);
        let snapshot = recovered.snapshot.as_ref().map_or(Zxid::ZERO, |image| image.zxid);
        let last = recovered.entries.last().map_or(snapshot, |entry| entry.zxid);
        self.judge.see(self.now, Seen::Recovered(&recovered.state, last));
        self.unapplied = recovered.entries.iter().map(|entry| entry.zxid).collect();
    }

    fn step(&mut self, input: Input) {
        if let Input::Disk(_) = input {
            self.judge.see(self.now, Seen::Input(&input));
        }
        let ms = i64::try_from(self.now.0 / 1_000_000).expect("far in the future");
        let now = Now { mono: self.now, wall: WallMs(BEGIN.0 + ms) };
        let mut out = std::mem::take(&mut self.out);
        self.server.step(now, input, &mut out);
        let status = self.server.status();
        assert!(status.halted.is_none(), "the disk is ideal");
        self.judge.see(self.now, Seen::Output(&out, &status));
        for command in out.disk.drain(..) {
            if let DiskCommand::Append { entry, .. } = &command {
                self.unapplied.push_back(entry.zxid);
            }
            match command.lane() {
                Lane::Log => self.disk.log.push_back(command),
                Lane::Snapshot | Lane::Reader => self.disk.others.push_back(command),
            }
        }
        self.apply(status.applied);
        assert!(out.peers.is_empty() && out.election.is_empty(), "there is nobody else");
        let commands = std::mem::take(&mut out.clients);
        out.marks = Default::default();
        self.out = out;
        let mut closed = Vec::new();
        for (conn, command) in commands {
            assert!(!closed.contains(&conn), "{conn} is closed, and then: {command}");
            if command == ClientCommand::Close {
                closed.push(conn);
            }
            self.hand_over(conn, &command);
        }
        for conn in closed {
            self.step(Input::Client(conn, ClientEvent::Closed));
        }
    }

    fn apply(&mut self, applied: Zxid) {
        while let Some(zxid) = self.unapplied.pop_front_if(|zxid| *zxid <= applied) {
            let digest = (zxid == applied).then(|| self.server.digest());
            self.judge.see(self.now, Seen::Applied(zxid, digest));
        }
    }

    /// The client receives and checks a command's message.
    fn hand_over(&mut self, conn: ConnId, command: &ClientCommand) {
        let Some(client) = self.clients.get_mut(&conn) else {
            panic!("{conn} is gone, and is told: {command}");
        };
        let mut bytes = BytesMut::new();
        let frames = ServerFrames::new(u32::MAX >> 1);
        match command {
            ClientCommand::Connected(response) => {
                assert!(!client.greeted, "{conn}: a second answer to its handshake");
                client.greeted = true;
                response.encode(&mut bytes);
                let read = frames.first(&mut bytes.clone());
                assert_eq!(read.as_ref(), Ok(&Some(response.clone())));
                if response.session != SessionId(0) {
                    self.sessions.push(response.clone());
                }
            }
            ClientCommand::Reply(reply) => {
                assert!(client.greeted, "{conn}: {command} before the handshake's answer");
                reply.encode(&mut bytes);
                // A client may use the xid of events for a request, so the xid is replaced for
                // decoding.
                let mut read = BytesMut::new();
                let xid = reply.xid;
                Reply { xid: xid.max(0), ..reply.clone() }.encode(&mut read);
                let Ok(Some(FromServer::Reply { zxid, err, body, .. })) = frames.next(&mut read)
                else {
                    panic!("{conn}: {command} cannot be read");
                };
                let is_for = |asked: &Asked| {
                    let read = FromServer::reply(xid, zxid, err, body.clone(), asked.kind);
                    let refused = reply.result == Err(ErrorCode::SchemeRequired);
                    let same = xid == if refused { asked.sent } else { asked.xid };
                    same && read.is_ok_and(|read| read == *reply)
                };
                let place = client.answered(is_for);
                assert!(place.is_some(), "{conn}: {command} answers none of {:?}", client.asked);
                self.answers += 1;
            }
            ClientCommand::Event(event) => {
                event.encode(&mut bytes);
                let read = frames.next(&mut bytes.clone());
                let right = FromServer::Event(event.as_ref().clone());
                assert_eq!(read, Ok(Some(right)), "{conn}");
                self.events += 1;
            }
            ClientCommand::Complaint(_) => return,
            ClientCommand::Close => {
                self.clients.remove(&conn);
                return self.judge.see(self.now, Seen::Closed(conn));
            }
        }
        self.judge.see(self.now, Seen::ToClient(conn, bytes.freeze().slice(4..)));
    }
}

impl Client {
    fn is_served(&self) -> bool {
        self.asked.is_empty() && self.greeted == self.frames.is_open()
    }

    /// Changes the xid of a request if a request of the other kind (in order, or answered aside) is
    /// outstanding with the same xid, so that replies can be matched. The server only echoes xids,
    /// except that every reply to a ping has the same.
    fn tell_apart(&self, frame: &mut RequestFrame) {
        let new = Asked::new(frame);
        let other = |asked: &Asked| asked.xid == new.xid && asked.aside != new.aside;
        if self.asked.iter().any(other) || new.aside && new.xid == XID_PING {
            let taken = |xid: &i32| self.asked.iter().any(|asked| asked.xid == *xid);
            frame.xid = (i32::MIN..).find(|xid| !taken(xid)).expect("few are unanswered");
        }
    }

    /// Removes the answered request: the first in order, or one that is answered aside.
    fn answered(&mut self, is_for: impl Fn(&Asked) -> bool) -> Option<Asked> {
        let first = self.asked.iter().position(|asked| !asked.aside);
        let first = first.filter(|first| is_for(&self.asked[*first]));
        let aside = || self.asked.iter().position(|asked| asked.aside && is_for(asked));
        let place = first.or_else(aside)?;
        self.asked.remove(place)
    }
}

impl Asked {
    fn new(frame: &RequestFrame) -> Asked {
        let aside = matches!(frame.request, Request::Auth { .. } | Request::Sasl { .. });
        // WIRE-08: the reply to a ping has xid -2, whatever xid the ping had.
        let xid = if frame.request == Request::Ping { XID_PING } else { frame.xid };
        Asked { xid, sent: frame.xid, kind: frame.request.reply_kind(), aside }
    }
}

impl Disk {
    fn finish_log(&mut self, count: usize) -> Option<DiskEvent> {
        let mut done = None;
        for _ in 0..count.min(self.log.len()) {
            match self.log.pop_front() {
                Some(DiskCommand::Append { id, entry }) => {
                    self.entries.push(entry);
                    done = Some(id);
                }
                Some(DiskCommand::SaveState { id, state }) => {
                    self.state = state;
                    done = Some(id);
                }
                other => panic!("a server on its own orders {other:?}"),
            }
        }
        done.map(DiskEvent::Done)
    }

    fn finish_other(&mut self) -> Option<DiskEvent> {
        match self.others.pop_front()? {
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                if index == 0 {
                    self.writing.clear();
                }
                self.writing.push(bytes);
                if last {
                    self.snapshots.insert(zxid, std::mem::take(&mut self.writing));
                }
                Some(DiskEvent::ChunkDone { zxid, index })
            }
            DiskCommand::Purge { oldest } => {
                self.snapshots.retain(|zxid, _| *zxid >= oldest);
                self.entries.retain(|entry| entry.zxid > oldest);
                self.log_after = self.log_after.max(oldest);
                None
            }
            other @ (DiskCommand::Append { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. }) => {
                panic!("a server on its own orders {other}")
            }
        }
    }

    /// The content that a server recovers after a power failure.
    fn recovered(&mut self) -> Recovered {
        self.log.clear();
        self.others.clear();
        self.writing.clear();
        let newest = self.snapshots.last_key_value();
        let snapshot =
            newest.map(|(zxid, chunks)| SnapshotImage { zxid: *zxid, chunks: chunks.clone() });
        let after = newest.map_or(Zxid::ZERO, |(zxid, _)| *zxid);
        if self.entries.last().is_none_or(|entry| entry.zxid < after) {
            self.entries.clear();
            self.log_after = after;
        }
        let mut history = EpochIndex::after(self.log_after);
        self.entries.iter().for_each(|entry| history.push(entry.zxid));
        Recovered {
            state: self.state.clone(),
            snapshot,
            entries: self.entries.iter().filter(|entry| entry.zxid > after).cloned().collect(),
            snapshots: self.snapshots.keys().copied().collect(),
            history,
        }
    }
}
