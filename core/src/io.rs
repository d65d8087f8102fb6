//! The interface of the core: every input and every output, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind the core and its host. Must not decide
//! anything. The host keeps some of the rules by calls of [`Driver`](crate::driver::Driver).
//!
//! Rules:
//! 1. Commands within one list of the outbox are ordered; commands of different lists are not. No
//!    code may rely on another list having been executed.
//! 2. A command that depends on durability is emitted only on [`DiskEvent::Done`], so the host
//!    checks no conditions. State writes, truncations, rebases and appends share one
//!    [`WriteId`](crate::WriteId) sequence: the log lane. Snapshot chunks have their own lane; a
//!    server begins its own snapshot only when the durable log has reached the snapshot's zxid.
//!    Proposals leave in the same step as the local append, in parallel.
//! 3. The host may drop `election` messages at any time, `peers` commands only if it reports
//!    `Down`, `clients` commands only if it reports `Closed`, and `disk` commands never.
//!    [`DiskEvent::Failed`] halts the server; a failed sync is never retried. The exception is a
//!    snapshot for which the disk has no room: the core abandons it and begins another one later.
//! 4. The host assigns each [`ConnId`] and [`LinkId`] once and never reuses it, so a late message
//!    of an old connection cannot be mistaken for one of a new connection.
//! 5. There is one command per log entry. The core does not merge appends; the log's worker takes
//!    all queued commands, writes them, syncs once and reports the last id.
//! 6. A transaction is encoded once; the same `Bytes` go to the log and to every live learner.
//! 7. A function without a `Cx` parameter cannot emit commands: `tree`, `watch`,
//!    `membership::quorum`, `log`, `session` and `wire` have none.
//! 8. The host passes received messages before an [`Input::Timeout`] that is due at the same
//!    time, as far as they fit into a turn, so a ping that has arrived counts. Between servers, a
//!    ping counts from the time at which it was sent, and no client is served after a deadline
//!    until a ping that extends the deadline has arrived.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::TooMany;
use crate::ids::{ConnId, Instant, LinkId, ServerId, WallMs};
use crate::measure::Measure;
use crate::notice::Notice;
use crate::peer::{LinkCloseReason, NotedConfigs, Notification, PeerMessage};
use crate::store::{DiskCommand, DiskEvent};
use crate::wire::{
    ConnectRequest, ConnectResponse, Id, Reply, ReplyBody, RequestFrame, WatchEvent,
};

pub use crate::mark::{Mark, Marks};

/// The two clocks, read once per batch of inputs.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Now {
    /// Never goes back; all deadlines are on it.
    pub mono: Instant,
    /// May jump in either direction; used only for the time stamps of transactions.
    pub wall: WallMs,
}

/// Every event that a server reacts to.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Input {
    /// The deadline of [`Server::next_deadline`](crate::Server::next_deadline) has passed. An early
    /// timeout is harmless.
    Timeout,
    /// From a client's connection.
    Client(ConnId, ClientEvent),
    /// From another server's election.
    Election(ServerId, Notification),
    /// From a link with another server.
    Peer(LinkId, PeerEvent),
    /// From the disk.
    Disk(DiskEvent),
    /// The configurations that another server knows. They come with its notifications.
    EnsembleConfig(ServerId, NotedConfigs),
    /// The process is to stop. [`Server::may_exit`](crate::Server::may_exit) returns when the core
    /// needs it no longer; a leader hands leadership over first. A second one ends that wait.
    Stop,
    /// What the oracle says now: whether this server may go on without the other voter. The host
    /// passes each change of the answer; it is no at the start (QV-03).
    Oracle(bool),
}

/// An event of a link. The first event of a [`LinkId`] is `Up` or `Unreachable`, each at most once;
/// no event follows `Down` or `Unreachable`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerEvent {
    /// The link is established; each end has verified the id of the other.
    Up {
        /// The other end.
        peer: ServerId,
        /// Did this server open the link?
        dialled: bool,
    },
    /// The answer to [`PeerCommand::Dial`] when the attempt failed.
    Unreachable {
        /// The server that was dialled.
        peer: ServerId,
    },
    /// A message has been read.
    Message(PeerMessage),
    /// The send queue of the link is empty: there is room for more. Reported each time that the
    /// last queued byte has left the process.
    Drained,
    /// The link is closed. Also the answer to [`PeerCommand::Close`].
    Down,
    /// The highest version of the protocol that the other end speaks, if it is lower than this
    /// server's. Follows `Up` at once.
    Version(u8),
}

/// An event of a client connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientEvent {
    /// The first event of a connection: the driver has read the handshake. The list holds the
    /// identities that the driver assigns itself, such as `ip` (ACL-10).
    Opened(ConnectRequest, Vec<Id>),
    /// The driver has read a whole frame, as decoded by [`RequestFrame::decode`].
    Request(RequestFrame),
    /// The connection is closed; nothing more is sent to it or received from it. Also the answer to
    /// [`ClientCommand::Close`].
    Closed,
    /// The client is alive, although the core receives none of its requests now: it takes output
    /// while its reads are paused, or its input waits for a later turn. Renews the session, and
    /// does nothing else.
    Heartbeat,
}

/// The commands that steps emit. The host empties it before the next batch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// For the three disk workers: each command goes to the worker of its
    /// [`Lane`](crate::store::Lane).
    pub disk: Vec<DiskCommand>,
    /// For client connections. Replies and watch events share one queue, because clients rely on
    /// their order.
    pub clients: Vec<(ConnId, ClientCommand)>,
    /// Votes for other servers. Only the newest one for each server matters.
    pub election: Vec<(ServerId, Notification)>,
    /// For links with other servers: first in, first out on each.
    pub peers: Vec<PeerCommand>,
    /// For the operator's log.
    pub notices: Vec<Notice>,
    /// The code branches that steps have taken, for tests and the simulator.
    pub marks: Marks,
    /// Facts for the metrics, which the driver counts and drops.
    pub measures: Vec<Measure>,
    /// Units of work of the steps so far. One unit is about one node visited, one record made or
    /// sent, one path looked up, or one KiB copied; each step adds one. The driver ends its turn
    /// after a limit, and resets the count.
    pub cost: u64,
}

/// A command for the links.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerCommand {
    /// Try once to establish a link with this server, after a pause if the last attempts failed.
    /// The answer is [`PeerEvent::Up`] or [`PeerEvent::Unreachable`].
    Dial(ServerId),
    /// The same at the port for observers (`observerMasterPort`).
    DialMaster(ServerId),
    /// Send a message.
    Send(LinkId, PeerMessage),
    /// Close a link once all earlier messages are sent, as far as the other end reads them.
    Close(LinkId, LinkCloseReason),
}

/// A command for a client connection.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ClientCommand {
    /// Answer the handshake.
    Connected(ConnectResponse),
    /// Answer a request.
    Reply(Reply),
    /// A watch has fired. All watchers of one change share the record.
    Event(Arc<WatchEvent>),
    /// Close once all earlier output is sent. The driver answers with [`ClientEvent::Closed`].
    Close,
    /// Why the server is about to close the connection: for the operator's log only.
    Complaint(TooMany),
}

/// Whether the driver may read from clients.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Pressure {
    /// It may.
    Accept,
    /// It may not until the disk has caught up. Sessions of connections paused for this reason do
    /// not expire.
    PauseClients,
}

impl Outbox {
    /// Are there no commands?
    pub fn is_empty(&self) -> bool {
        self.disk.is_empty()
            && self.clients.is_empty()
            && self.election.is_empty()
            && self.peers.is_empty()
    }
}

impl fmt::Display for Input {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Input::Timeout => write!(f, "timeout"),
            Input::Stop => write!(f, "stop"),
            Input::Oracle(permits) => {
                write!(f, "the oracle says {}", if *permits { "yes" } else { "no" })
            }
            Input::Client(conn, ClientEvent::Opened(c, _)) => write!(
                f,
                "{conn} opened session={} seen={} timeout={}ms",
                c.session, c.last_zxid_seen, c.timeout_ms
            ),
            Input::Client(conn, ClientEvent::Request(r)) => {
                write!(f, "{conn} request #{} {}", r.xid, r.request)
            }
            Input::Client(conn, ClientEvent::Closed) => write!(f, "{conn} closed"),
            Input::Client(conn, ClientEvent::Heartbeat) => write!(f, "{conn} heartbeat"),
            Input::Election(from, notification) => write!(f, "s{from} is {notification}"),
            Input::EnsembleConfig(from, NotedConfigs { in_force, logged }) => {
                write!(f, "s{from} has configurations:")?;
                for (text, state) in [(in_force, "in force"), (logged, "logged")] {
                    let last = text.as_ref().and_then(|text| text.lines().last());
                    last.map_or(Ok(()), |version| write!(f, " {version} {state}"))?;
                }
                Ok(())
            }
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
            Input::Peer(link, PeerEvent::Version(version)) => {
                write!(f, "{link} speaks version {version}")
            }
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

impl fmt::Display for ClientCommand {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ClientCommand::Connected(c) => {
                write!(f, "connected session={} timeout={}ms", c.session, c.timeout_ms)?;
                if c.read_only == Some(true) { f.write_str(" read-only") } else { Ok(()) }
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
            PeerCommand::DialMaster(peer) => write!(f, "dial s{peer} for observers"),
            PeerCommand::Send(link, message) => write!(f, "{link}: {message}"),
            PeerCommand::Close(link, why) => write!(f, "{link}: close, {why}"),
        }
    }
}

/// One line per command, lists in the order of the struct: the trace that tests compare.
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
