//! The real server with random clients and a disk that may lose unsynced data, without the world:
//! no oracle may report it.
//!
//! Deliberately small: no network faults except broken connections, no torn writes, no snapshots.
//! It checks the oracles against the real server where the world is not available, and measures
//! what an observation costs.

use std::collections::{BTreeSet, VecDeque};
use std::mem;

use bytes::{Bytes, BytesMut};
use zabkeeper_core::io::{ClientCommand, ClientEvent};
use zabkeeper_core::store::{DiskCommand, DiskEvent, DurableState, Entry, Recovered};
use zabkeeper_core::wire::{
    Acl, ConnectRequest, ConnectResponse, EventType, FromServer, Perms, Request, RequestFrame,
    SetWatches, WatcherType, XID_SET_WATCHES,
};
use zabkeeper_core::{
    Config, ConnId, EpochIndex, ErrorCode, Input, Instant, Now, Outbox, Server, SessionId,
    SessionOptions, Voters, WallMs, WriteId, Zxid,
};

use super::history::SERVER;
use crate::check::model::Rules;
use crate::check::observe::{ClientId, Holder, Observation, Observed};
use crate::check::oracle::{Oracles, Violation};

/// A client that speaks raw frames and keeps its watches.
#[derive(Default)]
struct Client {
    conn: Option<ConnId>,
    session: SessionId,
    password: Bytes,
    seen: Zxid,
    xid: i32,
    serial: u32,
    /// The next frame that arrives is the connect response.
    greets: bool,
    open: bool,
    asked: VecDeque<Request>,
    up: VecDeque<Bytes>,
    down: VecDeque<Bytes>,
    data: BTreeSet<String>,
    exist: BTreeSet<String>,
    child: BTreeSet<String>,
}

struct Play {
    oracles: Oracles,
    verdict: Result<(), Violation>,
    now: u64,
    rng: u64,
    server: Server,
    out: Outbox,
    /// Commands that the disk has not executed.
    lane: VecDeque<DiskCommand>,
    log: Vec<Entry>,
    state: DurableState,
    clients: Vec<Client>,
    next_conn: u64,
    observed: u64,
}

fn config() -> Config {
    let voters = Voters::new([SERVER]);
    Config::new(SERVER, voters, std::time::Duration::from_millis(500)).unwrap()
}

fn cut(out: BytesMut) -> Bytes {
    out.freeze().slice(4..)
}

impl Play {
    fn new(seed: u64, clients: usize) -> Play {
        let server = Server::recover(config(), seed, Recovered::default()).unwrap();
        let mut play = Play {
            oracles: Oracles::new(&[SERVER], Rules::default()),
            verdict: Ok(()),
            now: 1,
            rng: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            server,
            out: Outbox::default(),
            lane: VecDeque::new(),
            log: Vec::new(),
            state: DurableState::default(),
            clients: (0..clients).map(|_| Client::default()).collect(),
            next_conn: 1,
            observed: 0,
        };
        play.observe(Observation::Started { server: SERVER, sessions: SessionOptions::default() });
        play.recovered();
        play
    }

    fn below(&mut self, bound: usize) -> usize {
        self.rng ^= self.rng << 13;
        self.rng ^= self.rng >> 7;
        self.rng ^= self.rng << 17;
        usize::try_from((self.rng >> 11) % bound as u64).unwrap()
    }

    fn observe(&mut self, what: Observation<'_>) {
        self.observed += 1;
        if self.verdict.is_ok() {
            let at = Instant(self.now);
            self.verdict = self.oracles.observe(&Observed { at, what });
        }
    }

    fn recovered(&mut self) {
        let last = self.log.last().map_or(Zxid::ZERO, |entry| entry.zxid);
        let state = self.state.clone();
        self.observe(Observation::Recovered { server: SERVER, state, last });
        self.step(Input::Timeout);
    }

    fn step(&mut self, input: Input) {
        self.now += 1_000;
        let wall = WallMs(i64::try_from(self.now / 1_000_000).unwrap());
        let now = Now { mono: Instant(self.now), wall };
        let before = self.server.status().applied;
        self.observe(Observation::Input { server: SERVER, input: &input });
        self.server.step(now, input, &mut self.out);
        let (disk, status) = (mem::take(&mut self.out.disk), self.server.status());
        let (peers, election) = (&[], &[]);
        let output =
            Observation::Output { server: SERVER, disk: &disk, peers, election, status: &status };
        self.observe(output);
        self.lane.extend(disk);
        let after = self.server.status().applied;
        let moved: Vec<Zxid> = self
            .log
            .iter()
            .map(|e| e.zxid)
            .filter(|z| (before.0 + 1..=after.0).contains(&z.0))
            .collect();
        for zxid in moved {
            let digest = (zxid == after).then(|| self.server.digest());
            self.observe(Observation::Applied {
                server: SERVER,
                zxid,
                digest,
                holder: Holder(None),
            });
        }
        for (conn, command) in mem::take(&mut self.out.clients) {
            let Some(client) = self.clients.iter_mut().find(|c| c.conn == Some(conn)) else {
                continue;
            };
            let mut frame = BytesMut::new();
            match command {
                ClientCommand::Connected(response) => response.encode(&mut frame),
                ClientCommand::Reply(reply) => reply.encode(&mut frame),
                ClientCommand::Event(event) => event.encode(&mut frame),
                ClientCommand::Complaint(_) => continue,
                // The client sees the close after it has read everything before it.
                ClientCommand::Close => {
                    client.down.push_back(Bytes::new());
                    continue;
                }
            }
            client.down.push_back(cut(frame));
        }
    }

    /// The disk executes some of the pending commands.
    fn sync(&mut self) {
        let count = self.below(self.lane.len() + 1);
        let mut done: Option<WriteId> = None;
        for command in self.lane.drain(..count) {
            match command {
                DiskCommand::Append { id, entry } => {
                    self.log.push(entry);
                    done = Some(id);
                }
                DiskCommand::SaveState { id, state } => {
                    self.state = state;
                    done = Some(id);
                }
                DiskCommand::Truncate { .. }
                | DiskCommand::Rebase { .. }
                | DiskCommand::SnapshotChunk { .. }
                | DiskCommand::DropSnapshot { .. }
                | DiskCommand::Purge { .. }
                | DiskCommand::ReadLog { .. }
                | DiskCommand::ReadSnapshot { .. } => {}
            }
        }
        if let Some(id) = done {
            self.step(Input::Disk(DiskEvent::Done(id)));
        }
        if self.below(8) == 0 {
            self.look_at_the_disk();
        }
    }

    fn look_at_the_disk(&mut self) {
        let mut fresh = Server::recover(config(), 1, self.found()).unwrap();
        let mut out = Outbox::default();
        fresh.step(Now::default(), Input::Timeout, &mut out);
        let id = |command: &DiskCommand| match command {
            DiskCommand::Append { id, .. } | DiskCommand::SaveState { id, .. } => Some(*id),
            DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. } => None,
        };
        while let Some(id) = out.disk.iter().rev().find_map(id) {
            out.disk.clear();
            fresh.step(Now::default(), Input::Disk(DiskEvent::Done(id)), &mut out);
        }
        let last = self.log.last().map_or(Zxid::ZERO, |entry| entry.zxid);
        let (state, digest) = (self.state.clone(), fresh.digest());
        self.observe(Observation::DurableAudit {
            server: SERVER,
            state,
            last,
            digest,
            holder: Holder(None),
        });
    }

    fn found(&self) -> Recovered {
        let (state, entries) = (self.state.clone(), self.log.clone());
        let mut history = EpochIndex::default();
        entries.iter().for_each(|entry| history.push(entry.zxid));
        Recovered { state, entries, history, ..Recovered::default() }
    }

    fn crash(&mut self, seed: u64) {
        self.observe(Observation::Stopped { server: SERVER });
        self.lane.clear();
        self.out = Outbox::default();
        for client in 0..self.clients.len() {
            self.clients[client].up.clear();
            if self.below(2) == 0 {
                self.lose(client);
            } else {
                self.clients[client].down.push_back(Bytes::new());
            }
        }
        self.observe(Observation::Started { server: SERVER, sessions: SessionOptions::default() });
        self.server = Server::recover(config(), seed, self.found()).unwrap();
        self.recovered();
    }

    fn connect(&mut self, index: usize) {
        let conn = ConnId(self.next_conn);
        self.next_conn += 1;
        let client = ClientId(u32::try_from(index).unwrap());
        self.observe(Observation::ConnOpened { client, conn, server: SERVER });
        let client = &mut self.clients[index];
        client.conn = Some(conn);
        client.open = false;
        client.greets = true;
        client.asked.clear();
        let mut out = BytesMut::new();
        ConnectRequest {
            last_zxid_seen: client.seen,
            timeout_ms: 2_000,
            session: client.session,
            password: client.password.clone(),
            read_only: Some(false),
        }
        .encode(&mut out);
        let frame = cut(out);
        client.up.push_back(frame.clone());
        self.observe(Observation::ToServer { conn, frame });
    }

    /// The client closes its end. Frames that it has sent are lost or still arrive.
    fn lose(&mut self, index: usize) {
        let Some(conn) = self.clients[index].conn else { return };
        self.observe(Observation::ConnClosed { conn });
        let arrives = self.below(self.clients[index].up.len() + 1);
        for _ in 0..arrives {
            self.deliver_up(index);
        }
        let client = &mut self.clients[index];
        client.conn = None;
        client.up.clear();
        client.down.clear();
        self.step(Input::Client(conn, ClientEvent::Closed));
    }

    fn ask(&mut self, index: usize, request: Request) {
        let client = &mut self.clients[index];
        let conn = client.conn.unwrap();
        let xid = if matches!(request, Request::SetWatches(_)) {
            XID_SET_WATCHES
        } else {
            client.xid += 1;
            client.xid
        };
        let mut out = BytesMut::new();
        RequestFrame { xid, request: request.clone() }.encode(&mut out);
        let frame = cut(out);
        client.asked.push_back(request);
        client.up.push_back(frame.clone());
        self.observe(Observation::ToServer { conn, frame });
    }

    fn random_request(&mut self, index: usize) -> Request {
        let path = self.path();
        let (watch, with_stat) = (self.below(2) == 0, self.below(2) == 0);
        let kind = [WatcherType::Data, WatcherType::Children, WatcherType::Any][self.below(3)];
        match self.below(18) {
            0..8 => self.random_change(index, false),
            8..10 => Request::GetData { path, watch },
            10 => Request::Exists { path, watch },
            11..13 => Request::GetChildren { path, watch, with_stat },
            13 => Request::Sync { path },
            14 => Request::Watches { path, kind, remove: with_stat },
            15 | 16 => {
                let count = self.below(5);
                Request::Multi((0..count).map(|_| self.random_change(index, true)).collect())
            }
            _ if self.below(20) == 0 => Request::CloseSession,
            _ => Request::Ping,
        }
    }

    fn path(&mut self) -> String {
        let paths = ["/a", "/b", "/a/x", "/a/y", "/b/z", "/a/x/p", "/", "/a/", "/zookeeper"];
        paths[self.below(paths.len())].to_owned()
    }

    fn random_change(&mut self, index: usize, in_multi: bool) -> Request {
        let path = self.path();
        let with_stat = self.below(2) == 0;
        let version = if self.below(3) == 0 { 1 } else { -1 };
        self.clients[index].serial += 1;
        let data = Some(Bytes::from(format!("{index:03}/{:06}", self.clients[index].serial)));
        let flags = [0, 0, 0, 0, 1, 1, 1, 2, 3, 4, 5, 9][self.below(12)];
        let acl = if self.below(10) == 0 {
            let perms = Perms(i32::try_from(self.below(32)).unwrap());
            vec![Acl { perms, scheme: "world".into(), id: "anyone".into() }]
        } else {
            Acl::open()
        };
        match self.below(9) {
            0..4 => Request::Create { path, data, acl, flags, with_stat },
            4..6 => Request::SetData { path, data, version },
            8 if in_multi => Request::Check { path, version },
            _ => Request::Delete { path, version },
        }
    }

    fn deliver_up(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let (Some(conn), Some(frame)) = (client.conn, client.up.pop_front()) else { return };
        let event = match mem::take(&mut client.greets) {
            true => ClientEvent::Opened(ConnectRequest::decode(frame).unwrap(), Vec::new()),
            false => ClientEvent::Request(RequestFrame::decode(frame).unwrap()),
        };
        self.step(Input::Client(conn, event));
    }

    fn deliver_down(&mut self, index: usize) {
        let client = &mut self.clients[index];
        let (Some(conn), Some(frame)) = (client.conn, client.down.pop_front()) else { return };
        if frame.is_empty() {
            return self.lose(index);
        }
        self.observe(Observation::ToClient { conn, frame: frame.clone() });
        let client = &mut self.clients[index];
        if !client.open {
            let response = ConnectResponse::decode(frame).unwrap();
            client.open = response.session != SessionId(0);
            if !client.open {
                let (xid, serial) = (client.xid, client.serial);
                let conn = client.conn;
                *client = Client { xid, serial, conn, ..Client::default() };
                return self.lose(index);
            }
            client.session = response.session;
            client.password = Bytes::copy_from_slice(&response.password);
            let list = |set: &BTreeSet<String>| set.iter().cloned().collect::<Vec<_>>();
            let (data, exist, child) =
                (list(&client.data), list(&client.exist), list(&client.child));
            if !(data.is_empty() && exist.is_empty() && child.is_empty()) {
                let relative_zxid = Some(client.seen);
                self.ask(
                    index,
                    Request::SetWatches(SetWatches {
                        relative_zxid,
                        data,
                        exist,
                        child,
                        ..SetWatches::default()
                    }),
                );
            }
            return;
        }
        match FromServer::decode(frame).unwrap() {
            FromServer::Event(event) => {
                if event.event != EventType::NodeChildrenChanged {
                    client.data.remove(&event.path);
                    client.exist.remove(&event.path);
                }
                if matches!(event.event, EventType::NodeChildrenChanged | EventType::NodeDeleted) {
                    client.child.remove(&event.path);
                }
            }
            FromServer::Reply { zxid, err, .. } => {
                client.seen = client.seen.max(Zxid::from_wire(zxid));
                client.learn(err);
                if self.clients[index].session == SessionId(0) {
                    self.lose(index);
                }
            }
        }
    }

    fn act(&mut self, crashes: bool) {
        let index = self.below(self.clients.len());
        match self.below(1_000) {
            0..250 => self.deliver_up(index),
            250..550 => self.deliver_down(index),
            550..750 => match self.clients[index].conn {
                None => self.connect(index),
                Some(_) if self.clients[index].open && self.clients[index].asked.len() < 10 => {
                    let request = self.random_request(index);
                    self.ask(index, request);
                }
                Some(_) => {}
            },
            750..950 => self.sync(),
            950..955 => self.lose(index),
            955..957 if crashes => {
                let seed = self.below(1 << 30) as u64;
                self.crash(seed);
            }
            _ => {
                self.now += 20_000_000;
                if self.server.next_deadline().is_some_and(|(due, _)| due.0 <= self.now) {
                    self.step(Input::Timeout);
                }
            }
        }
    }

    /// Everything pending is executed, and the audit follows.
    fn ends(&mut self) {
        self.step(Input::Timeout);
        while !self.lane.is_empty() {
            self.sync();
        }
        let (digest, applied) = (self.server.digest(), self.server.status().applied);
        let sessions = self.server.sessions().iter().map(|session| session.id).collect();
        self.observe(Observation::Final {
            server: SERVER,
            applied,
            digest,
            holder: Holder(None),
            sessions,
        });
        if self.verdict.is_ok() {
            self.verdict = self.oracles.finish();
        }
    }
}

impl Client {
    /// A reply to the first unanswered request has arrived.
    fn learn(&mut self, err: i32) {
        match (self.asked.pop_front().unwrap(), err) {
            (Request::GetData { path, watch: true }, 0)
            | (Request::Exists { path, watch: true }, 0) => {
                self.data.insert(path);
            }
            (Request::Exists { path, watch: true }, err) if err == ErrorCode::NoNode.wire() => {
                self.exist.insert(path);
            }
            (Request::GetChildren { path, watch: true, .. }, 0) => {
                self.child.insert(path);
            }
            (Request::Watches { path, kind, remove: true }, 0) => {
                if kind != WatcherType::Children {
                    self.data.remove(&path);
                    self.exist.remove(&path);
                }
                if kind != WatcherType::Data {
                    self.child.remove(&path);
                }
            }
            (Request::CloseSession, _) => {
                let (xid, serial) = (self.xid, self.serial);
                let conn = self.conn;
                *self = Client { xid, serial, conn, ..Client::default() };
            }
            _ => {}
        }
    }
}

fn plays(seeds: std::ops::Range<u64>, steps: usize) {
    for seed in seeds {
        let mut play = Play::new(seed, 6);
        for _ in 0..steps {
            play.act(seed % 4 != 0);
            if play.verdict.is_err() {
                break;
            }
        }
        play.ends();
        if let Err(violation) = &play.verdict {
            panic!("seed {seed}: {violation}");
        }
    }
}

#[test]
fn real_server_violates_no_oracle() {
    plays(0..20, 20_000);
}
