//! Plays: each file of `tests/scenarios` is a script, its snapshot the server's trace.
//!
//! A script has one command a line; `#` begins a comment, and the first line says what the play teaches.
//!
//! ```text
//! config KEY=N ...          before `boot`: snapshot_txns, snapshot_slice_bytes, epoch_txns, undurable_bytes, kept
//! boot                      recover from the disk as it is, and begin
//! power off                 the server is gone; what was not done by `disk` is lost
//! disk [N]                  the disk finishes everything (or N commands), in order
//! disk fails                the disk reports a failure
//! wait MS                   time passes; due deadlines fire
//! stall MS                  time passes unnoticed, then the deadline fires late
//! status | digest           what the server says of itself
//! cN open [resume cM] [seen=Z] [timeout=MS] [bad-password]
//! cN OP PATH [..]           create delete set get exists ls check sync ping close auth undecodable unknown setwatches
//! cN multi OP PATH [..] ; OP PATH [..]
//! cN gone                   the connection breaks
//! ```

use std::collections::BTreeMap;
use std::fmt::{Debug, Write as _};
use std::time::Duration;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zabkeeper_core::io::{
    ClientCommand, ClientEvent, DiskCommand, DiskEvent, DurableState, Entry, Recovered,
    SnapshotImage,
};
use zabkeeper_core::wire::{
    Acl, ConnectRequest, ConnectResponse, CreateMode, OpCode, Request, RequestFrame, SetWatches,
    WatcherType,
};
use zabkeeper_core::{
    Config, ConnId, Input, Instant, Now, Outbox, Server, ServerId, SessionId, Voters, WallMs, Zxid,
};

#[test]
fn scenarios() {
    insta::glob!("../scenarios", "*.txt", |path| {
        let script = std::fs::read_to_string(path).expect("the script is there");
        insta::assert_snapshot!(Play::new().run(&script));
    });
}

/// A server, an ideal disk and some hands on the clock.
struct Play {
    server: Option<Server>,
    config: Config,
    now: Now,
    disk: Disk,
    sessions: BTreeMap<ConnId, ConnectResponse>,
    xids: BTreeMap<ConnId, i32>,
    trace: String,
}

/// Content by what was done; commands under way.
#[derive(Default)]
struct Disk {
    state: DurableState,
    entries: Vec<Entry>,
    snapshots: BTreeMap<Zxid, Vec<Bytes>>,
    writing: Vec<Bytes>,
    queue: Vec<DiskCommand>,
}

impl Play {
    fn new() -> Play {
        let id = ServerId(1);
        let config = Config::new(id, Voters::new([id]), Duration::from_millis(1000));
        Play {
            server: None,
            config: config.expect("a fine config"),
            now: Now { mono: Instant(0), wall: WallMs(1_000_000) },
            disk: Disk::default(),
            sessions: BTreeMap::new(),
            xids: BTreeMap::new(),
            trace: String::new(),
        }
    }

    fn run(mut self, script: &str) -> String {
        for line in script.lines() {
            let line = line.split('#').next().unwrap_or_default().trim();
            if !line.is_empty() {
                writeln!(self.trace, "> {line}").unwrap();
                self.command(&Vec::from_iter(line.split_whitespace()));
            }
        }
        self.trace
    }

    fn command(&mut self, words: &[&str]) {
        match words {
            ["config", settings @ ..] => settings.iter().for_each(|s| self.set(s)),
            ["boot"] => self.boot(),
            ["power", "off"] => {
                self.server = None;
                self.disk.queue.clear();
                self.disk.writing.clear();
            }
            ["disk", "fails"] => self.step(Input::Disk(DiskEvent::Failed("no such luck".into()))),
            ["disk", count] => self.finish(count.parse().unwrap()),
            ["disk"] => {
                while !self.disk.queue.is_empty() {
                    self.finish(self.disk.queue.len());
                }
            }
            ["wait", ms] => self.wait(ms.parse().unwrap()),
            ["stall", ms] => {
                self.pass_to(self.now.mono.after(Duration::from_millis(ms.parse().unwrap())));
                self.step(Input::Timeout);
            }
            ["status"] => self.status(),
            ["digest"] => {
                let digest = self.server.as_ref().expect("the server runs").digest();
                writeln!(self.trace, "digest={digest:016x}").unwrap();
            }
            [conn, rest @ ..] => {
                let conn = ConnId(conn.strip_prefix('c').unwrap().parse().unwrap());
                self.client(conn, rest);
            }
            [] => {}
        }
    }

    fn set(&mut self, setting: &str) {
        let (key, value) = setting.split_once('=').unwrap();
        let limits = &mut self.config.limits;
        let n: u32 = value.parse().unwrap();
        match key {
            "snapshot_txns" => limits.snapshot_txns = n,
            "snapshot_slice_bytes" => limits.snapshot_slice_bytes = n,
            "epoch_txns" => limits.epoch_txns = n,
            "undurable_bytes" => limits.undurable_bytes = n.into(),
            "kept" => limits.snapshots_kept = n,
            other => panic!("no setting {other}"),
        }
    }

    fn boot(&mut self) {
        let newest = self.disk.snapshots.last_key_value();
        let after = newest.map_or(Zxid::ZERO, |(zxid, _)| *zxid);
        let recovered = Recovered {
            state: self.disk.state.clone(),
            snapshot: newest
                .map(|(zxid, chunks)| SnapshotImage { zxid: *zxid, chunks: chunks.clone() }),
            entries: self.disk.entries.iter().filter(|e| e.zxid > after).cloned().collect(),
            snapshots: self.disk.snapshots.keys().copied().collect(),
        };
        let server = Server::recover(self.config.clone(), 1, recovered).expect("a sound disk");
        self.server = Some(server);
        self.step(Input::Timeout);
    }

    fn wait(&mut self, ms: u64) {
        let end = self.now.mono.after(Duration::from_millis(ms));
        while let Some(deadline) = self.server.as_ref().and_then(Server::next_deadline)
            && deadline <= end
        {
            self.pass_to(deadline.max(self.now.mono));
            self.step(Input::Timeout);
        }
        self.pass_to(end);
    }

    fn pass_to(&mut self, at: Instant) {
        self.now.wall.0 += i64::try_from(at.since(self.now.mono).as_millis()).unwrap();
        self.now.mono = at;
    }

    fn step(&mut self, input: Input) {
        let mut out = Outbox::default();
        let server = self.server.as_mut().expect("the server runs");
        assert_recordable(&input);
        server.step(self.now, input, &mut out);
        assert_recordable(&out);
        write!(self.trace, "{out}").unwrap();
        for (conn, command) in out.clients {
            if let ClientCommand::Connected(response) = command {
                self.sessions.insert(conn, response);
            }
        }
        self.disk.queue.extend(out.disk);
    }

    /// The first `count` commands finish; one completion for the log lane, one for each chunk.
    fn finish(&mut self, count: usize) {
        let mut done = None;
        let mut chunks = Vec::new();
        for command in Vec::from_iter(self.disk.queue.drain(..count)) {
            match command {
                DiskCommand::Append { id, entry } => {
                    self.disk.entries.push(entry);
                    done = Some(id);
                }
                DiskCommand::SaveState { id, state } => {
                    self.disk.state = state;
                    done = Some(id);
                }
                DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                    self.disk.writing.push(bytes);
                    if last {
                        let chunks = std::mem::take(&mut self.disk.writing);
                        self.disk.snapshots.insert(zxid, chunks);
                    }
                    chunks.push(DiskEvent::ChunkDone { zxid, index });
                }
                DiskCommand::Purge { oldest } => {
                    self.disk.snapshots.retain(|zxid, _| *zxid >= oldest);
                    self.disk.entries.retain(|entry| entry.zxid > oldest);
                }
            }
        }
        if let Some(id) = done {
            self.step(Input::Disk(DiskEvent::Done(id)));
        }
        for chunk in chunks {
            self.step(Input::Disk(chunk));
        }
    }

    fn status(&mut self) {
        let s = self.server.as_ref().expect("the server runs").status();
        writeln!(
            self.trace,
            "{:?} serving={} epochs={}/{} applied={} committed={} durable={} appended={} \
             snapshot={} nodes={} ephemerals={} sessions={} watches={} bytes={}",
            s.mode,
            s.serving,
            s.accepted_epoch,
            s.current_epoch,
            s.applied,
            s.committed,
            s.durable,
            s.appended,
            s.snapshot,
            s.nodes,
            s.ephemerals,
            s.sessions,
            s.watches,
            s.data_bytes
        )
        .unwrap();
    }

    fn client(&mut self, conn: ConnId, words: &[&str]) {
        match words {
            ["open", options @ ..] => {
                let request = self.connect_request(options);
                self.step(Input::Client(conn, ClientEvent::Opened(request)));
            }
            ["gone"] => self.step(Input::Client(conn, ClientEvent::Closed)),
            words => {
                let xid = self.xids.entry(conn).or_default();
                *xid += 1;
                let frame = RequestFrame { xid: *xid, request: request(words) };
                self.step(Input::Client(conn, ClientEvent::Request(frame)));
            }
        }
    }

    fn connect_request(&self, options: &[&str]) -> ConnectRequest {
        let mut request = ConnectRequest {
            last_zxid_seen: Zxid::ZERO,
            timeout_ms: 4000,
            session: SessionId(0),
            password: Bytes::from_static(&[0; 16]),
            read_only: Some(false),
        };
        for option in options {
            if let Some(other) = option.strip_prefix("resume=c") {
                let known = &self.sessions[&ConnId(other.parse().unwrap())];
                request.session = known.session;
                request.password = Bytes::copy_from_slice(&known.password);
            } else if let Some(seen) = option.strip_prefix("seen=0x") {
                request.last_zxid_seen = Zxid(u64::from_str_radix(seen, 16).unwrap());
            } else if let Some(ms) = option.strip_prefix("timeout=") {
                request.timeout_ms = ms.parse().unwrap();
            } else if *option == "bad-password" {
                request.password = Bytes::from_static(&[7; 16]);
            } else {
                panic!("no option {option}");
            }
        }
        request
    }
}

/// Whatever goes in and comes out can be written down and read back.
fn assert_recordable<T>(data: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let bytes = postcard::to_allocvec(data).expect("plain data encodes");
    assert_eq!(&postcard::from_bytes::<T>(&bytes).expect("and decodes"), data);
}

fn request(words: &[&str]) -> Request {
    let path = words.get(1).map(|path| path.to_string()).unwrap_or_default();
    let watch = words.contains(&"watch");
    let version = words
        .iter()
        .find_map(|word| word.strip_prefix("v="))
        .map_or(-1, |version| version.parse().unwrap());
    match words[0] {
        "create" => Request::Create {
            path,
            data: Some(Bytes::from_static(b"data")),
            acl: if words.contains(&"no-acl") { Vec::new() } else { Acl::open() },
            flags: CreateMode {
                ephemeral: words.contains(&"ephemeral"),
                sequential: words.contains(&"sequential"),
            }
            .wire(),
            with_stat: false,
        },
        "delete" => Request::Delete { path, version },
        "set" => Request::SetData { path, data: Some(Bytes::from_static(b"more")), version },
        "get" => Request::GetData { path, watch },
        "exists" => Request::Exists { path, watch },
        "ls" => Request::GetChildren { path, watch, with_stat: false },
        "check" => Request::Check { path, version },
        "multi" => Request::Multi(words[1..].split(|word| *word == ";").map(request).collect()),
        "sync" => Request::Sync { path },
        "ping" => Request::Ping,
        "close" => Request::CloseSession,
        "auth" => Request::Auth { scheme: "digest".into() },
        "undecodable" if words.contains(&"multi") => Request::Undecodable { op: OpCode::Multi },
        "undecodable" => Request::Undecodable { op: OpCode::Create },
        "unknown" => Request::Unknown { op: 55 },
        "unwatch" => Request::Watches { path, kind: WatcherType::Any, remove: true },
        "setwatches" => Request::SetWatches(SetWatches {
            relative_zxid: Zxid::ZERO,
            data: vec![path.clone()],
            exist: vec![path.clone()],
            child: vec![path],
        }),
        other => panic!("no operation {other}"),
    }
}
