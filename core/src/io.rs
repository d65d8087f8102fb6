//! The doors and sinks of the core: everything that goes in and everything that comes out, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind both sides. Must not decide anything.
//!
//! Rules:
//! 1. Order holds inside one sink; between sinks there is none. Nothing may rely on another sink having run.
//! 2. What depends on durability is emitted only on [`DiskEvent::Done`], so the driver needs no conditions. State
//!    writes, truncations, rebases and appends share one [`WriteId`] sequence: the log lane. Snapshot chunks have a
//!    lane of their own; a server's own snapshot is begun only when the durable log has reached its zxid. Proposals
//!    leave in the same step as the local append, in parallel.
//! 3. The driver may drop `election` any time, `peers` only by reporting `Down`, `clients` only by `Closed`, `disk`
//!    never. [`DiskEvent::Failed`] halts the server; a failed sync is never retried. Only a snapshot for which there is no room
//!    is given up instead, and another one is begun later.
//! 4. [`ConnId`] and [`LinkId`] are dealt by the driver and never dealt again, so a late message of an old connection
//!    cannot pass for a new one.
//! 5. One command per log entry. The core does not merge appends; the log's worker takes all that waits, writes,
//!    syncs once and answers with the last id.
//! 6. A transaction is encoded once; the same `Bytes` go to the log and to every live learner.
//! 7. A function that takes no `Cx` cannot act: `tree`, `watch`, `quorum`, `log`, `session` and `wire` never
//!    see it.
//! 8. What has been received is handed over before a [`Input::Timeout`] that is due at the same time: a ping that has
//!    arrived counts. Among servers it counts from when it was sent, and no client is served between a deadline and the
//!    word that puts it off.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::auth::{Schemes, TooMany};
use crate::config::Config;
use crate::error::Why;
use crate::history::History;
use crate::identity::{EpochNonce, Identity};
use crate::ids::{ConnId, Epoch, Instant, LinkId, ServerId, SessionId, WallMs, WriteId, Zxid};
use crate::peer::{Notification, PeerMessage};
use crate::rng::Rng;
use crate::wire::{
    ConnectRequest, ConnectResponse, Id, Reply, ReplyBody, RequestFrame, WatchEvent,
};

pub use crate::mark::{Mark, Marks};

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
    /// From another server's election.
    Election(ServerId, Notification),
    /// From a link with another server.
    Peer(LinkId, PeerEvent),
    /// From the disk.
    Disk(DiskEvent),
}

/// What a link does. Every [`LinkId`] begins with `Up` or is `Unreachable`, once; after `Down` or `Unreachable` it is
/// never heard of again.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerEvent {
    /// It stands; both ends know who the other is.
    Up {
        /// The other end.
        peer: ServerId,
        /// Was it this server that dialled?
        dialled: bool,
    },
    /// An answer to [`PeerCommand::Dial`]: the attempt failed.
    Unreachable {
        /// Who was dialled.
        peer: ServerId,
    },
    /// A message has been read.
    Message(PeerMessage),
    /// All that was sent has left this process: there is room for more. Told each time the last queued byte leaves.
    Drained,
    /// It is gone. Also the answer to [`PeerCommand::Close`].
    Down,
}

/// What a connection does.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientEvent {
    /// The handshake has been read, from a client with these identities, which the driver knows of itself: its `ip`
    /// (ACL-10). The first event of a connection.
    Opened(ConnectRequest, Vec<Id>),
    /// A whole frame has been read, as [`RequestFrame::decode`] makes it.
    Request(RequestFrame),
    /// The connection is gone; nothing more is sent to it or comes from it. Also the answer to
    /// [`ClientCommand::Close`].
    Closed,
    /// The client has taken output that it was slow to take. Its driver does not read it meanwhile, so its pings go
    /// unheard: this stands for them, and for nothing else.
    Heard,
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
    /// The answer to [`DiskCommand::ReadLog`].
    LogRead {
        /// For which link.
        link: LinkId,
        /// The transactions, at least one; or why there are none.
        found: Result<Vec<Entry>, String>,
    },
    /// The answer to [`DiskCommand::ReadSnapshot`].
    SnapshotRead {
        /// For which link.
        link: LinkId,
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
        /// The chunk, and whether it is the last; or why there is none.
        found: Result<(Bytes, bool), String>,
    },
    /// There is no room for the snapshot of this zxid: chunk number `index` is not written, nor is any that follows it, and
    /// what was written of the snapshot is removed. The worker goes on with the next one.
    SnapshotFailed {
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk.
        index: u32,
        /// What lacks, for the operator.
        why: String,
    },
}

/// Everything that a step asks of the world. The driver empties it before the next batch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// For the three workers of the disk, each command for the one of its [`Lane`].
    pub disk: Vec<DiskCommand>,
    /// For client connections: replies and events in one queue, because their order is a promise.
    pub clients: Vec<(ConnId, ClientCommand)>,
    /// For other servers' elections. Only the newest to each matters.
    pub election: Vec<(ServerId, Notification)>,
    /// For links with other servers: first in, first out on each.
    pub peers: Vec<PeerCommand>,
    /// For the operator's log.
    pub notices: Vec<Notice>,
    /// Which notable branches were taken, for tests and the simulator.
    pub marks: Marks,
    /// Units of work that the steps have taken, as far as they depend on what others ask for: each about a node visited, a
    /// record made or sent, a path looked up, or a KiB copied, and one for the step. The driver ends its turn when they are
    /// many, and counts anew.
    pub cost: u64,
}

/// What an operator wants to read in the log. It has no other effect.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Notice {
    /// This server leaves the leader that it has followed; itself where it has led.
    LeavesLeader {
        /// That leader.
        leader: ServerId,
        /// Why.
        why: Why,
    },
    /// This server ends a session, of which nothing was heard for too long.
    SessionExpires {
        /// Which.
        session: SessionId,
        /// Timeout negotiated last, ms.
        timeout_ms: u32,
        /// How long nothing was heard of it.
        silent: Duration,
        /// How long this server has watched over it.
        watched: Duration,
        /// The server that its client connected to last, as far as it is known.
        server: Option<ServerId>,
    },
    /// A session of which nothing was heard has ended, and this is its client's connection, which is closed.
    SessionExpired {
        /// Which.
        session: SessionId,
        /// The connection.
        conn: ConnId,
    },
    /// This server makes a tree of its leader's snapshot.
    Loading {
        /// The snapshot's position.
        zxid: Zxid,
        /// Parts of the work that are done.
        done: u64,
        /// All of them.
        all: u64,
    },
    /// This server follows a leader whose configuration has other voters.
    VotersDiffer {
        /// The leader.
        leader: ServerId,
        /// The voters there.
        there: BTreeSet<ServerId>,
        /// The voters here.
        here: BTreeSet<ServerId>,
    },
    /// A server that follows this one has another state at this position.
    StatesDiffer {
        /// The server.
        server: ServerId,
        /// The position.
        zxid: Zxid,
    },
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
    /// Log lane: remove every transaction after a position. A barrier.
    Truncate {
        /// Number in the lane.
        id: WriteId,
        /// The position; there may be no transaction at it.
        to: Zxid,
    },
    /// Log lane: remove the whole log, which ends before a snapshot that is durable already and named by the state file;
    /// it goes on after that. A barrier. It may be cut off anywhere: a log that ends before the snapshot counts for
    /// nothing.
    Rebase {
        /// Number in the lane.
        id: WriteId,
        /// The snapshot's position.
        snapshot: Zxid,
    },
    /// Log lane: replace the state file. A barrier: it follows every append before it to the disk.
    SaveState {
        /// Number in the lane.
        id: WriteId,
        /// The new content.
        state: DurableState,
    },
    /// Snapshot lane: write the next chunk of a snapshot. Chunk 0 begins a new file; the last one is finished by then,
    /// dropped, or has failed.
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
    /// Snapshot lane: remove the snapshot whose chunks came last, which was given up. Though some may be under way still,
    /// all of it may be there, and durable.
    DropSnapshot {
        /// Its position in the history.
        zxid: Zxid,
    },
    /// Snapshot lane: remove snapshots older than this one, and log that lies wholly at or before it.
    Purge {
        /// The oldest snapshot to keep.
        oldest: Zxid,
    },
    /// Reader: transactions after a position, durable already, for a learner.
    ReadLog {
        /// For which link.
        link: LinkId,
        /// The position.
        after: Zxid,
        /// About so many bytes; at least one transaction.
        bytes: u32,
    },
    /// Reader: a chunk of a snapshot, durable already, for a learner. Chunks of a link are asked for in order.
    ReadSnapshot {
        /// For which link.
        link: LinkId,
        /// Which snapshot.
        zxid: Zxid,
        /// Which chunk, from zero.
        index: u32,
    },
}

/// An order to the links.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerCommand {
    /// Try once to have a link with this server, after a pause if the last attempts failed. Answered with
    /// [`PeerEvent::Up`] or [`PeerEvent::Unreachable`].
    Dial(ServerId),
    /// Send a message.
    Send(LinkId, PeerMessage),
    /// Close a link, after everything before it is sent as far as the other end takes it.
    Close(LinkId, Why),
}

/// The three workers of the disk. Each runs its commands in order; between them there is no order.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lane {
    /// Appends and state writes: what clients wait for.
    Log,
    /// Snapshot chunks and purging: nobody waits.
    Snapshot,
    /// Reading for learners: changes nothing.
    Reader,
}

/// One transaction of the log: its position and its encoding.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Entry {
    /// Position in the history.
    pub zxid: Zxid,
    /// The encoded [`Txn`](crate::txn::Txn).
    pub bytes: Bytes,
}

/// In the list of voters of a server that is alone: itself, whatever number it will have in an ensemble. It need not have one
/// yet.
pub const THIS_SERVER: ServerId = ServerId(u64::MAX);

/// The small file that says what a server has promised. Written whole, checksummed, in two slots.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct DurableState {
    /// Highest epoch promised to a would-be leader.
    pub accepted_epoch: Epoch,
    /// Epoch of the last leader whose history this server has taken over; never above `accepted_epoch`.
    pub current_epoch: Epoch,
    /// The newest snapshot that is durable under its name; zero where none was taken.
    pub snapshot: Zxid,
    /// The disk was found empty among servers whose disks were not, so what is on it now may lack what this server has
    /// acknowledged before. It has no say until a leader that others elected has filled it.
    pub damaged: bool,
    /// The voters that the last epoch was established under, as far as this server knows; empty where nobody has said so: data
    /// of before format 3. Whoever is none of them has acknowledged nothing so far. A server alone keeps [`THIS_SERVER`].
    pub voters: BTreeSet<ServerId>,
    /// The ensemble; `None` before this server has followed a leader, or led, in a build that knows identities.
    pub identity: Option<Identity>,
    /// The random numbers of the epochs that its log has transactions of, rising, as far as they are known.
    pub nonces: Vec<EpochNonce>,
    /// A leader has found that what is here is not the ensemble's at this position: the next start sets it aside.
    pub differs: Option<Zxid>,
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
    /// The whole log, as far back as it goes: at or before the snapshot. Its end is that of `entries`, or the snapshot.
    pub history: History,
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
    /// A watch has fired. Whoever hears of the same change shares the record.
    Event(Arc<WatchEvent>),
    /// Close, after everything before it is sent. The driver answers with [`ClientEvent::Closed`].
    Close,
    /// For the operator, not for the client: why the connection is about to be closed.
    Complaint(TooMany),
}

/// Should clients be read?
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// Yes.
    Accept,
    /// Not until the disk has caught up. Connections paused for this count as alive; the disk drains the pressure.
    PauseClients,
}

/// What a function needs to act: the time, the settings, the dice and the outbox.
pub(crate) struct Cx<'a> {
    pub(crate) now: Now,
    pub(crate) config: &'a Config,
    pub(crate) schemes: &'a Schemes,
    pub(crate) rng: &'a mut Rng,
    pub(crate) out: &'a mut Outbox,
    /// The cost at which the step stops.
    pub(crate) stop_at: u64,
}

impl Outbox {
    /// Is there nothing to do?
    pub fn is_empty(&self) -> bool {
        self.disk.is_empty()
            && self.clients.is_empty()
            && self.election.is_empty()
            && self.peers.is_empty()
    }
}

impl DiskCommand {
    /// Which worker runs it.
    pub fn lane(&self) -> Lane {
        match self {
            DiskCommand::Append { .. }
            | DiskCommand::Truncate { .. }
            | DiskCommand::Rebase { .. }
            | DiskCommand::SaveState { .. } => Lane::Log,
            DiskCommand::SnapshotChunk { .. }
            | DiskCommand::DropSnapshot { .. }
            | DiskCommand::Purge { .. } => Lane::Snapshot,
            DiskCommand::ReadLog { .. } | DiskCommand::ReadSnapshot { .. } => Lane::Reader,
        }
    }
}

impl Cx<'_> {
    pub(crate) fn mark(&mut self, mark: Mark) {
        self.out.marks.hit(mark);
    }

    /// So much work has been done.
    pub(crate) fn spend(&mut self, units: u64) {
        self.out.cost += units;
    }

    /// Has the step done its share?
    pub(crate) fn is_spent(&self) -> bool {
        self.out.cost >= self.stop_at
    }

    /// From now on it may do its share.
    pub(crate) fn renew(&mut self) {
        self.stop_at = self.out.cost.saturating_add(self.config.limits.step_units.max(1));
    }

    /// From now on it does everything.
    pub(crate) fn spend_freely(&mut self) {
        self.stop_at = u64::MAX;
    }

    pub(crate) fn send(&mut self, conn: ConnId, command: ClientCommand) {
        self.out.clients.push((conn, command));
    }

    pub(crate) fn tell(&mut self, link: LinkId, message: PeerMessage) {
        self.out.peers.push(PeerCommand::Send(link, message));
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Timeout => write!(f, "timeout"),
            Input::Client(conn, ClientEvent::Opened(c, _)) => write!(
                f,
                "{conn} opened session={} seen={} timeout={}ms",
                c.session, c.last_zxid_seen, c.timeout_ms
            ),
            Input::Client(conn, ClientEvent::Request(r)) => {
                write!(f, "{conn} request #{} {}", r.xid, r.request)
            }
            Input::Client(conn, ClientEvent::Closed) => write!(f, "{conn} closed"),
            Input::Client(conn, ClientEvent::Heard) => write!(f, "{conn} heard"),
            Input::Election(from, notification) => write!(f, "s{from} is {notification}"),
            Input::Peer(link, PeerEvent::Up { peer, dialled }) => {
                let how = if *dialled { "to" } else { "from" };
                write!(f, "{link} up {how} s{peer}")
            }
            Input::Peer(link, PeerEvent::Unreachable { peer }) => {
                write!(f, "{link} s{peer} unreachable")
            }
            Input::Peer(link, PeerEvent::Message(message)) => write!(f, "{link} {message}"),
            Input::Peer(link, PeerEvent::Drained) => write!(f, "{link} drained"),
            Input::Peer(link, PeerEvent::Down) => write!(f, "{link} down"),
            Input::Disk(DiskEvent::LogRead { link, found: Ok(entries) }) => {
                let ends = (entries.first(), entries.last());
                match ends {
                    (Some(first), Some(last)) => {
                        write!(f, "disk read {} to {} for {link}", first.zxid, last.zxid)
                    }
                    _ => write!(f, "disk read nothing for {link}"),
                }
            }
            Input::Disk(DiskEvent::SnapshotRead {
                link,
                zxid,
                index,
                found: Ok((bytes, last)),
            }) => {
                let end = if *last { " last" } else { "" };
                let len = bytes.len();
                write!(f, "disk read chunk {index} of snapshot {zxid} {len}B{end} for {link}")
            }
            Input::Disk(
                DiskEvent::LogRead { link, found: Err(why) }
                | DiskEvent::SnapshotRead { link, found: Err(why), .. },
            ) => write!(f, "disk could not read for {link}: {why}"),
            Input::Disk(DiskEvent::Done(id)) => write!(f, "disk done {id}"),
            Input::Disk(DiskEvent::ChunkDone { zxid, index }) => {
                write!(f, "disk wrote chunk {index} of snapshot {zxid}")
            }
            Input::Disk(DiskEvent::Failed(why)) => write!(f, "disk failed: {why}"),
            Input::Disk(DiskEvent::SnapshotFailed { zxid, index, why }) => {
                write!(f, "snapshot {zxid} chunk {index} failed: {why}")
            }
        }
    }
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Notice::LeavesLeader { leader, why } => write!(f, "leaves leader {leader}: {why}"),
            Notice::SessionExpires { session, timeout_ms, silent, watched, server } => {
                let (silent_ms, seconds) = (silent.as_millis(), watched.as_secs());
                write!(
                    f,
                    "session {session} expires: nothing was heard of it for {silent_ms} ms, its timeout is {timeout_ms} ms; "
                )?;
                match server {
                    Some(server) => write!(f, "its client was connected to server {server}, ")?,
                    None => write!(f, "nobody knows where its client was connected, ")?,
                }
                write!(f, "and this server has watched over it for {seconds} s")
            }
            Notice::SessionExpired { session, conn } => {
                write!(f, "session {session} has expired; closed its connection {conn}")
            }
            Notice::Loading { zxid, done, all } => {
                let percent = done * 100 / (*all).max(1);
                write!(f, "loads the leader's snapshot {zxid}: {percent} %")
            }
            Notice::VotersDiffer { leader, there, here } => {
                let list = |ids: &BTreeSet<ServerId>| {
                    let ids: Vec<String> = ids.iter().map(ServerId::to_string).collect();
                    ids.join(", ")
                };
                write!(
                    f,
                    "server {leader} leads the servers {}, and here zoo.cfg has {}: give all of them the same server.N lines",
                    list(there),
                    list(here)
                )
            }
            Notice::StatesDiffer { server, zxid } => write!(
                f,
                "server {server} has another state at {zxid} than this server: whoever differs from a majority sets its \
                 data aside, and names the first node that differs once a leader has filled it"
            ),
        }
    }
}

impl fmt::Display for DurableState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let DurableState { accepted_epoch, current_epoch, snapshot, damaged, differs, .. } = self;
        let damaged = if *damaged { " damaged" } else { "" };
        let differs = differs.map_or_else(String::new, |zxid| format!(" differs={zxid}"));
        write!(
            f,
            "accepted={accepted_epoch} current={current_epoch} snapshot={snapshot}{damaged}{differs}"
        )
    }
}

impl fmt::Display for DiskCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DiskCommand::Append { id, entry } => {
                write!(f, "append {id} {} {}B", entry.zxid, entry.bytes.len())
            }
            DiskCommand::SaveState { id, state } => write!(f, "state {id} {state}"),
            DiskCommand::Truncate { id, to } => write!(f, "truncate {id} to {to}"),
            DiskCommand::Rebase { id, snapshot } => write!(f, "rebase {id} on {snapshot}"),
            DiskCommand::SnapshotChunk { zxid, index, bytes, last } => {
                let end = if *last { " last" } else { "" };
                write!(f, "snapshot {zxid} chunk {index} {}B{end}", bytes.len())
            }
            DiskCommand::DropSnapshot { zxid } => write!(f, "drop snapshot {zxid}"),
            DiskCommand::Purge { oldest } => write!(f, "purge before snapshot {oldest}"),
            DiskCommand::ReadLog { link, after, .. } => write!(f, "read after {after} for {link}"),
            DiskCommand::ReadSnapshot { link, zxid, index } => {
                write!(f, "read chunk {index} of snapshot {zxid} for {link}")
            }
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
                Ok(ReplyBody::Acl(list, _)) => {
                    write!(f, "reply #{} {:#x}", r.xid, r.zxid)?;
                    list.iter()
                        .try_for_each(|acl| write!(f, " {}:{}:{}", acl.perms.0, acl.scheme, acl.id))
                }
                Ok(ReplyBody::Identities(ids)) => {
                    write!(f, "reply #{} {:#x}", r.xid, r.zxid)?;
                    ids.iter().try_for_each(|id| write!(f, " {}:{}", id.scheme, id.id))
                }
                Ok(_) => write!(f, "reply #{} {:#x} ok", r.xid, r.zxid),
                Err(code) => write!(f, "reply #{} {:#x} {code}", r.xid, r.zxid),
            },
            ClientCommand::Event(e) => write!(f, "event {:?} {}", e.event, e.path),
            ClientCommand::Close => write!(f, "close"),
            ClientCommand::Complaint(what) => write!(f, "complaint: {what}"),
        }
    }
}

impl fmt::Display for PeerCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PeerCommand::Dial(peer) => write!(f, "dial s{peer}"),
            PeerCommand::Send(link, message) => write!(f, "{link}: {message}"),
            PeerCommand::Close(link, why) => write!(f, "{link}: close, {why}"),
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
        for (to, notification) in &self.election {
            writeln!(f, "tell s{to}: {notification}")?;
        }
        for command in &self.peers {
            writeln!(f, "{command}")?;
        }
        Ok(())
    }
}
