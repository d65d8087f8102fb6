//! The parts of scripted tests with one or several servers: an ideal disk, clients, and their
//! commands.
//!
//! Owns the contents of the disk and the state of the clients, but no clock and no trace. Must not
//! know which test uses it.

use std::collections::BTreeMap;
use std::fmt::Debug;

use bytes::Bytes;
use serde::Serialize;
use serde::de::DeserializeOwned;
use zabkeeper_core::io::{ClientCommand, Outbox};
use zabkeeper_core::store::{
    DiskCommand, DiskEvent, DurableState, Entry, Recovered, SnapshotImage,
};
use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::{
    Acl, AddWatchMode, ConnectRequest, ConnectResponse, Id, OpCode, Perms, ReconfigRequest,
    Request, RequestFrame, Secret, SetWatches, WatcherType,
};
use zabkeeper_core::{ConnId, EpochIndex, SessionId, Zxid};

/// The contents after all completed commands, and the commands under way.
#[derive(Clone, Default)]
pub(crate) struct Disk {
    pub(crate) state: DurableState,
    /// The log begins after this position.
    log_after: Zxid,
    entries: Vec<Entry>,
    snapshots: BTreeMap<Zxid, Vec<Bytes>>,
    writing: Vec<Bytes>,
    /// Is there no room for snapshots?
    pub(crate) full: bool,
    pub(crate) queue: Vec<DiskCommand>,
}

impl Disk {
    /// Adds entries to the log directly.
    pub(crate) fn log(&mut self, entries: impl IntoIterator<Item = Entry>) {
        self.entries.extend(entries);
    }

    /// Changes the data of the last node that the log creates.
    pub(crate) fn forge(&mut self) {
        let forged = self.entries.iter_mut().rev().find_map(|entry| {
            let mut txn = Txn::decode(entry).ok()?;
            let TxnOp::Create { data, .. } = &mut txn.op else { return None };
            *data = Some(Bytes::from_static(b"forged"));
            *entry = txn.encode();
            Some(())
        });
        assert!(forged.is_some(), "there is no such node");
    }

    /// Makes all snapshots unreadable.
    pub(crate) fn rot(&mut self) {
        self.snapshots.clear();
    }

    /// Discards all commands under way.
    pub(crate) fn lose_power(&mut self) {
        self.queue.clear();
        self.writing.clear();
    }

    /// Sets aside data that differs from the ensemble's, as a start does first.
    pub(crate) fn set_aside(&mut self) {
        let DurableState { accepted_epoch, identity, .. } = self.state;
        let state =
            DurableState { accepted_epoch, identity, damaged: true, ..DurableState::default() };
        *self = Disk { state, ..Disk::default() };
    }

    /// The data that a starting server recovers.
    pub(crate) fn recovered(&mut self) -> Recovered {
        let newest = self.snapshots.last_key_value();
        let snapshot =
            newest.map(|(zxid, chunks)| SnapshotImage { zxid: *zxid, chunks: chunks.clone() });
        let after = newest.map_or(Zxid::ZERO, |(zxid, _)| *zxid);
        // A log that ends before the snapshot is removed.
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

    /// Moves the commands of the log lane before all others, which are slow. Returns their number.
    pub(crate) fn let_log_overtake(&mut self) -> usize {
        let of_log = |command: &DiskCommand| match command {
            DiskCommand::Append { .. }
            | DiskCommand::SaveState { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. } => true,
            DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. }
            | DiskCommand::ReadLog { .. }
            | DiskCommand::ReadSnapshot { .. } => false,
        };
        self.queue.sort_by_key(|command| !of_log(command));
        self.queue.iter().filter(|command| of_log(command)).count()
    }

    /// Completes the first `count` commands: one event for the log lane, one for each chunk and
    /// read.
    pub(crate) fn finish(&mut self, count: usize) -> Vec<DiskEvent> {
        let mut done = None;
        let mut others = Vec::new();
        for command in Vec::from_iter(self.queue.drain(..count)) {
            match command {
                DiskCommand::Append { id, entry } => {
                    self.entries.push(entry);
                    done = Some(id);
                }
                DiskCommand::SaveState { id, state } => {
                    self.state = state;
                    done = Some(id);
                }
                DiskCommand::SnapshotChunk { zxid, index, .. } if self.full => {
                    self.writing.clear();
                    let why = "disk full".to_owned();
                    others.push(DiskEvent::SnapshotFailed { zxid, index, why });
                }
                DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                    if index == 0 {
                        self.writing.clear();
                    }
                    self.writing.push(bytes);
                    if last {
                        let chunks = std::mem::take(&mut self.writing);
                        self.snapshots.insert(zxid, chunks);
                    }
                    others.push(DiskEvent::ChunkDone { zxid, index });
                }
                DiskCommand::Truncate { id, to } => {
                    self.entries.retain(|entry| entry.zxid <= to);
                    done = Some(id);
                }
                DiskCommand::Rebase { id, snapshot } => {
                    assert!(
                        self.snapshots.contains_key(&snapshot),
                        "a log on {snapshot}, on nothing"
                    );
                    self.entries.clear();
                    self.log_after = snapshot;
                    done = Some(id);
                }
                DiskCommand::ReadLog { link, after, bytes } => {
                    others.push(DiskEvent::LogRead { link, found: self.read_log(after, bytes) });
                }
                DiskCommand::ReadSnapshot { link, zxid, index } => {
                    let found = self.read_snapshot(zxid, index);
                    others.push(DiskEvent::SnapshotRead { link, zxid, index, found });
                }
                DiskCommand::DropSnapshot { zxid } => {
                    self.writing.clear();
                    self.snapshots.remove(&zxid);
                }
                DiskCommand::Purge { oldest } => {
                    self.snapshots.retain(|zxid, _| *zxid >= oldest);
                    self.entries.retain(|entry| entry.zxid > oldest);
                    self.log_after = self.log_after.max(oldest);
                }
            }
        }
        done.map(DiskEvent::Done).into_iter().chain(others).collect()
    }

    fn read_log(&self, after: Zxid, bytes: u32) -> Result<Vec<Entry>, String> {
        if after < self.log_after {
            return Err(format!("the log begins after {}", self.log_after));
        }
        let mut room = i64::from(bytes);
        let fits = |entry: &&Entry| {
            let fits = room > 0;
            room -= i64::try_from(entry.bytes.len()).unwrap();
            fits
        };
        let rest = self.entries.iter().filter(|entry| entry.zxid > after);
        let found: Vec<Entry> = rest.take_while(fits).cloned().collect();
        if found.is_empty() { Err(format!("nothing after {after}")) } else { Ok(found) }
    }

    fn read_snapshot(&self, zxid: Zxid, index: u32) -> Result<(Bytes, bool), String> {
        let chunks = self.snapshots.get(&zxid).ok_or(format!("no snapshot {zxid}"))?;
        let index = usize::try_from(index).unwrap();
        let chunk = chunks.get(index).ok_or(format!("{} chunks", chunks.len()))?;
        Ok((chunk.clone(), index + 1 == chunks.len()))
    }
}

/// What clients remember: their sessions and their last xids.
#[derive(Default)]
pub(crate) struct Clients {
    sessions: BTreeMap<ConnId, ConnectResponse>,
    xids: BTreeMap<ConnId, i32>,
}

impl Clients {
    pub(crate) fn receive(&mut self, out: &Outbox) {
        for (conn, command) in &out.clients {
            if let ClientCommand::Connected(response) = command {
                self.sessions.insert(*conn, response.clone());
            }
        }
    }

    pub(crate) fn request(&mut self, conn: ConnId, words: &[&str]) -> RequestFrame {
        let xid = self.xids.entry(conn).or_default();
        *xid += 1;
        RequestFrame { xid: *xid, request: request(words) }
    }

    pub(crate) fn connect_request(&self, options: &[&str]) -> ConnectRequest {
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
            } else if option.starts_with("as=") {
                // See `identities`.
            } else if *option == "read-only" {
                request.read_only = Some(true);
            } else if *option == "bad-password" {
                request.password = Bytes::from_static(&[7; 16]);
            } else {
                panic!("no option {option}");
            }
        }
        request
    }
}

/// The commands of a script, one a line; `#` begins a comment.
pub(crate) fn commands(script: &str) -> impl Iterator<Item = &str> {
    let commands = script.lines().map(|line| line.split('#').next().unwrap_or_default().trim());
    commands.filter(|command| !command.is_empty())
}

/// Asserts that a value can be encoded and decoded, as recordings of inputs and outputs need.
pub(crate) fn assert_recordable<T>(data: &T)
where
    T: Serialize + DeserializeOwned + PartialEq + Debug,
{
    let bytes = postcard::to_allocvec(data).expect("plain data encodes");
    assert_eq!(&postcard::from_bytes::<T>(&bytes).expect("and decodes"), data);
}

fn request(words: &[&str]) -> Request {
    let path = words.get(1).map(|path| path.to_string()).unwrap_or_default();
    let watch = words.contains(&"watch");
    let text = words.iter().find_map(|word| word.strip_prefix("data="));
    let data =
        |default| Some(text.map_or(Bytes::from_static(default), |text| text.to_owned().into()));
    let acl = list(words);
    let sequential = words.contains(&"sequential");
    let version = words
        .iter()
        .find_map(|word| word.strip_prefix("v="))
        .map_or(-1, |version| version.parse().unwrap());
    match words[0] {
        "create" => Request::Create {
            path,
            data: data(b"data"),
            acl,
            flags: i32::from(words.contains(&"ephemeral")) + 2 * i32::from(sequential),
            with_stat: words.contains(&"stat"),
        },
        "container" => Request::CreateContainer {
            path,
            data: data(b""),
            acl,
            flags: 2 * i32::from(sequential),
        },
        "ttl" => {
            let flags = 5 + i32::from(sequential);
            Request::CreateTtl { path, data: data(b""), acl, flags, ttl: words[2].parse().unwrap() }
        }
        "delete" => Request::Delete { path, version },
        "set" => Request::SetData { path, data: data(b"more"), version },
        "get" => Request::GetData { path, watch },
        "exists" => Request::Exists { path, watch },
        "ls" => Request::GetChildren { path, watch, with_stat: false },
        "check" => Request::Check { path, version },
        "multi" => Request::Multi(words[1..].split(|word| *word == ";").map(request).collect()),
        "sync" => Request::Sync { path },
        "ping" => Request::Ping,
        "reconfig" => {
            let part = |name| {
                let part = words.iter().find_map(|word| word.strip_prefix(name));
                part.map(str::to_owned)
            };
            let version = part("version=").map_or(-1, |version| version.parse().unwrap());
            let (joining, leaving) = (part("joining="), part("leaving="));
            let new_members = part("members=");
            Request::Reconfigure(ReconfigRequest { joining, leaving, new_members, version })
        }
        "close" => Request::CloseSession,
        "auth" => {
            let data = words.get(2).copied().unwrap_or("a:b");
            let scheme = words.get(1).copied().unwrap_or("digest").to_owned();
            Request::Auth { scheme, auth: Secret(Some(Bytes::copy_from_slice(data.as_bytes()))) }
        }
        "sasl" => Request::Sasl { token: Secret::from("") },
        "whoami" => Request::WhoAmI,
        "getacl" => Request::GetAcl { path },
        "setacl" => Request::SetAcl { path, acl, version },
        "undecodable" if words.contains(&"multi") => Request::Undecodable { op: OpCode::Multi },
        "undecodable" => Request::Undecodable { op: OpCode::Create },
        "unknown" => Request::Unknown { op: 55 },
        "addwatch" => Request::AddWatch {
            path,
            mode: if words.contains(&"recursive") {
                AddWatchMode::PersistentRecursive
            } else {
                AddWatchMode::Persistent
            },
        },
        "unwatch" => Request::Watches { path, kind: watcher_type(words), remove: true },
        "watches" => Request::Watches { path, kind: watcher_type(words), remove: false },
        "setwatches" => Request::SetWatches(set_watches(words)),
        other => panic!("no operation {other}"),
    }
}

/// The ACL entries that the `acl=` arguments name, or an open ACL.
fn list(words: &[&str]) -> Vec<Acl> {
    let entry = |word: &&str| {
        let (perms, id) = word.strip_prefix("acl=")?.split_once(':').unwrap();
        let Id { scheme, id } = identity(id);
        Some(Acl { perms: Perms(perms.parse().unwrap()), scheme, id })
    };
    let entries = Vec::from_iter(words.iter().filter_map(entry));
    if entries.is_empty() && !words.contains(&"no-acl") { Acl::open() } else { entries }
}

/// The identities of a client when its connection opens, from its `as=` options.
pub(crate) fn identities(options: &[&str]) -> Vec<Id> {
    options.iter().filter_map(|option| option.strip_prefix("as=")).map(identity).collect()
}

fn identity(text: &str) -> Id {
    let (scheme, id) = text.split_once(':').unwrap();
    Id { scheme: scheme.into(), id: id.into() }
}

/// The watcher type named, or `Any`.
fn watcher_type(words: &[&str]) -> WatcherType {
    match words.get(2) {
        None => WatcherType::Any,
        Some(&"data") => WatcherType::Data,
        Some(&"child") => WatcherType::Children,
        Some(&"persistent") => WatcherType::Persistent,
        Some(&"recursive") => WatcherType::PersistentRecursive,
        Some(other) => panic!("no watcher type {other}"),
    }
}

/// The path in the lists named, or in the three lists of setWatches; `since=0x0` by default.
fn set_watches(words: &[&str]) -> SetWatches {
    let since = words.iter().find_map(|word| word.strip_prefix("since=0x"));
    let lists: Vec<&str> = words[2..].iter().filter(|word| !word.contains('=')).copied().collect();
    let list = |name: &str, plain: bool| {
        let named = if lists.is_empty() { plain } else { lists.contains(&name) };
        if named { vec![words[1].to_owned()] } else { Vec::new() }
    };
    SetWatches {
        relative_zxid: match since {
            Some(since) => Some(Zxid(u64::from_str_radix(since, 16).unwrap())),
            None if words.contains(&"since=ever") => None,
            None => Some(Zxid::ZERO),
        },
        data: list("data", true),
        exist: list("exist", true),
        child: list("child", true),
        persistent: list("persistent", false),
        recursive: list("recursive", false),
    }
}
