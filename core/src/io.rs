//! The doors and sinks of the core: everything that goes in and everything that comes out, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind both sides. Must not decide anything.
//!
//! Rules:
//! 1. Order holds inside one sink; between sinks there is none. Nothing may rely on another sink having run.
//! 2. What depends on durability is emitted only on [`DiskEvent::Done`], so the driver needs no conditions. State
//!    writes and appends share one [`WriteId`] sequence: the log lane. Snapshot chunks have a lane of their own,
//!    which is begun only when the durable log has reached the snapshot's zxid.
//! 3. The driver may drop `clients` only by reporting `Closed`, `disk` never. [`DiskEvent::Failed`] halts the server;
//!    a failed sync is never retried.
//! 4. [`ConnId`] is dealt by the driver and never dealt again, so a late message of an old connection cannot pass
//!    for a new one.
//! 5. One command per log entry. The core does not merge appends; the disk worker takes all that waits, writes,
//!    syncs once and answers with the last id.
//! 6. A transaction is encoded once, into `Bytes` that can be shared: by the log today, by followers later.
//! 7. A function that takes no `Cx` cannot act: `tree`, `watch`, `quorum` and `wire` never see it.
//! 8. What has been received is handed over before a [`Input::Timeout`] that is due at the same time: a ping that has
//!    arrived counts.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::config::Config;
use crate::ids::{ConnId, Epoch, Instant, WallMs, WriteId, Zxid};
use crate::rng::Rng;
use crate::wire::{ConnectRequest, ConnectResponse, Reply, ReplyBody, RequestFrame, WatchEvent};

/// The two clocks, read once per batch of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// Never goes back; all deadlines are on it.
    pub mono: Instant,
    /// May step either way; only goes into the time stamps of transactions.
    pub wall: WallMs,
}

/// Everything that can happen to a server.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// The deadline has come that [`Server::next_deadline`](crate::Server::next_deadline) gave. Harmless early.
    Timeout,
    /// From a client's connection.
    Client(ConnId, ClientEvent),
    /// From the disk.
    Disk(DiskEvent),
}

/// What a connection does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientEvent {
    /// The handshake has been read. The first event of a connection.
    Opened(ConnectRequest),
    /// A whole frame has been read, as [`RequestFrame::decode`] makes it.
    Request(RequestFrame),
    /// The connection is gone; nothing more is sent to it or comes from it. Also the answer to
    /// [`ClientCommand::Close`].
    Closed,
}

/// What the disk has done.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DiskEvent {
    /// Every command of the log lane up to this one is durable.
    Done(WriteId),
    /// The snapshot of this zxid: chunk number `index` is written; the last one's `Done` means the whole snapshot is
    /// durable under its name.
    ChunkDone {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
    },
    /// A command failed; the worker has stopped. What it said goes to the operator.
    Failed(String),
}

/// Everything that a step asks of the world. The driver empties it before the next batch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// For the disk worker.
    pub disk: Vec<DiskCommand>,
    /// For client connections: replies and events in one queue, because their order is a promise.
    pub clients: Vec<(ConnId, ClientCommand)>,
    /// Which notable branches were taken, for tests and the simulator.
    pub marks: Marks,
}

/// An order to the disk.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum DiskCommand {
    /// Log lane: append a transaction.
    Append {
        /// Number in the lane.
        id: WriteId,
        /// The transaction.
        entry: Entry,
    },
    /// Log lane: replace the state file. A barrier: it follows every append before it to the disk.
    SaveState {
        /// Number in the lane.
        id: WriteId,
        /// The new content.
        state: DurableState,
    },
    /// Snapshot lane: write the next chunk of a snapshot. Chunk 0 begins a new file, dropping an unfinished one.
    SnapshotChunk {
        /// The snapshot's position in the history.
        zxid: Zxid,
        /// Counts from zero.
        index: u32,
        /// The content, opaque to the disk.
        bytes: Bytes,
        /// Is the snapshot complete with it? Then it is made durable and gets its name.
        last: bool,
    },
    /// Snapshot lane: remove snapshots older than this one, and log that lies wholly at or before it.
    Purge {
        /// The oldest snapshot to keep.
        oldest: Zxid,
    },
}

/// The two workers of the disk. Each runs its commands in order; between them there is none.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lane {
    /// Appends and state writes: what clients wait for.
    Log,
    /// Snapshot chunks and purging: nobody waits.
    Snapshot,
}

/// One transaction of the log: its position and its encoding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the history.
    pub zxid: Zxid,
    /// The encoded [`Txn`](crate::txn::Txn).
    pub bytes: Bytes,
}

/// The small file that says what a server has promised. Written whole, checksummed, in two slots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DurableState {
    /// Highest epoch promised to a would-be leader.
    pub accepted_epoch: Epoch,
    /// Epoch of the last leader whose history this server has taken over; never above `accepted_epoch`.
    pub current_epoch: Epoch,
    /// The newest snapshot that is durable under its name; zero where none was taken.
    pub snapshot: Zxid,
}

/// What recovery found on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Recovered {
    /// Content of the state file.
    pub state: DurableState,
    /// The newest usable snapshot.
    pub snapshot: Option<SnapshotImage>,
    /// The log after that snapshot, zxids strictly rising.
    pub entries: Vec<Entry>,
    /// Names of all usable snapshots, oldest first, so that purging can count them.
    pub snapshots: Vec<Zxid>,
}

/// A snapshot as it lies on the disk.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SnapshotImage {
    /// Its position in the history.
    pub zxid: Zxid,
    /// Its chunks in order.
    pub chunks: Vec<Bytes>,
}

/// An order to a client's connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientCommand {
    /// Answer the handshake.
    Connected(ConnectResponse),
    /// Answer a request.
    Reply(Reply),
    /// A watch has fired.
    Event(WatchEvent),
    /// Close, after everything before it is sent. The driver answers with [`ClientEvent::Closed`].
    Close,
}

/// Should clients be read?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Yes.
    Accept,
    /// Not until the disk has caught up. Connections paused for this count as alive; the disk drains the pressure.
    PauseClients,
}

/// A branch that a reviewer would call a case; the simulator counts which ones it reaches.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the documentation: area, then event")]
pub enum Mark {
    ElectionAlone,
    DiscoveryPromised,
    BroadcastBegun,
    HistoryReplayed,
    ConnHeld,
    ConnHeldTooLong,
    SessionNew,
    SessionReattached,
    SessionTakenOver,
    SessionRefused,
    SessionExpired,
    SessionClosed,
    ClientAhead,
    ReadBehindWrite,
    WriteRefused,
    CommitBatch,
    WatchFired,
    SetWatchesFired,
    SnapshotBegun,
    SnapshotSetAside,
    SnapshotDone,
    SnapshotPurged,
    RequestUndecodable,
    RequestUnknown,
    RequestOnClosingSession,
    PressurePaused,
    DiskFailed,
    EpochUsedUp,
}

/// A set of [`Mark`]s.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Marks(pub u64);

/// What a function needs to act: the time, the settings, the dice and the outbox.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    pub(crate) rng: &'a mut Rng,
    pub(crate) out: &'a mut Outbox,
}

impl Outbox {
    /// Is there nothing to do?
    pub fn is_empty(&self) -> bool {
        self.disk.is_empty() && self.clients.is_empty()
    }
}

impl DiskCommand {
    /// Which worker runs it.
    pub fn lane(&self) -> Lane {
        match self {
            DiskCommand::Append { .. } | DiskCommand::SaveState { .. } => Lane::Log,
            DiskCommand::SnapshotChunk { .. } | DiskCommand::Purge { .. } => Lane::Snapshot,
        }
    }
}

impl Marks {
    /// Adds one.
    pub fn hit(&mut self, mark: Mark) {
        self.0 |= 1 << mark as u8;
    }

    /// Is it in the set?
    pub fn contains(self, mark: Mark) -> bool {
        self.0 & (1 << mark as u8) != 0
    }
}

impl Mark {
    /// All of them, in order.
    pub const ALL: [Mark; 28] = [
        Mark::ElectionAlone,
        Mark::DiscoveryPromised,
        Mark::BroadcastBegun,
        Mark::HistoryReplayed,
        Mark::ConnHeld,
        Mark::ConnHeldTooLong,
        Mark::SessionNew,
        Mark::SessionReattached,
        Mark::SessionTakenOver,
        Mark::SessionRefused,
        Mark::SessionExpired,
        Mark::SessionClosed,
        Mark::ClientAhead,
        Mark::ReadBehindWrite,
        Mark::WriteRefused,
        Mark::CommitBatch,
        Mark::WatchFired,
        Mark::SetWatchesFired,
        Mark::SnapshotBegun,
        Mark::SnapshotSetAside,
        Mark::SnapshotDone,
        Mark::SnapshotPurged,
        Mark::RequestUndecodable,
        Mark::RequestUnknown,
        Mark::RequestOnClosingSession,
        Mark::PressurePaused,
        Mark::DiskFailed,
        Mark::EpochUsedUp,
    ];
}

impl Cx<'_> {
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.out.marks.hit(mark);
    }

    pub(crate) fn send(&mut self, conn: ConnId, command: ClientCommand) {
        self.out.clients.push((conn, command));
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Timeout => write!(f, "timeout"),
            Input::Client(conn, ClientEvent::Opened(c)) => write!(
                f,
                "{conn} opened session={} seen={} timeout={}ms",
                c.session, c.last_zxid_seen, c.timeout_ms
            ),
            Input::Client(conn, ClientEvent::Request(r)) => {
                write!(f, "{conn} request #{} {}", r.xid, r.request)
            }
            Input::Client(conn, ClientEvent::Closed) => write!(f, "{conn} closed"),
            Input::Disk(DiskEvent::Done(id)) => write!(f, "disk done {id}"),
            Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
                write!(f, "disk wrote chunk {index} of snapshot {zxid}")
            }
            Input::Disk(DiskEvent::Failed(why)) => write!(f, "disk failed: {why}"),
        }
    }
}

impl fmt::Display for DiskCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskCommand::Append { id, entry } => {
                write!(f, "append {id} {} {}B", entry.zxid, entry.bytes.len())
            }
            DiskCommand::SaveState { id, state } => write!(
                f,
                "state {id} accepted={} current={} snapshot={}",
                state.accepted_epoch, state.current_epoch, state.snapshot
            ),
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                let end = if *last { " last" } else { "" };
                write!(f, "snapshot {zxid} chunk {index} {}B{end}", bytes.len())
            }
            DiskCommand::Purge { oldest } => write!(f, "purge before snapshot {oldest}"),
        }
    }
}

impl fmt::Display for ClientCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientCommand::Connected(c) => {
                write!(f, "connected session={} timeout={}ms", c.session, c.timeout_ms)
            }
            ClientCommand::Reply(r) => match &r.result {
                Ok(ReplyBody::Multi(parts)) => {
                    write!(f, "reply #{} {:#x} {parts:?}", r.xid, r.zxid)
                }
                Ok(_) => write!(f, "reply #{} {:#x} ok", r.xid, r.zxid),
                Err(code) => write!(f, "reply #{} {:#x} {code}", r.xid, r.zxid),
            },
            ClientCommand::Event(e) => write!(f, "event {:?} {}", e.event, e.path),
            ClientCommand::Close => write!(f, "close"),
        }
    }
}

/// One line per command, sinks in the order of the struct: the trace that tests compare.
impl fmt::Display for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for command in &self.disk {
            writeln!(f, "disk: {command}")?;
        }
        for (conn, command) in &self.clients {
            writeln!(f, "{conn}: {command}")?;
        }
        Ok(())
    }
}
