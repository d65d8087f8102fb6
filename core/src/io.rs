//! The doors and sinks of the core: everything that goes in and everything that comes out, as plain data.
//!
//! Owns [`Input`], [`Outbox`] and the rules that bind both sides. Must not decide anything.
//!
//! Rules:
//! 1. Order holds inside one sink; between sinks there is none. Nothing may rely on another sink having run.
//! 2. What depends on durability is emitted only on [`DiskEvent::Done`], so the driver needs no conditions. State
//!    writes, truncations, rebases and appends share one [`WriteId`](crate::WriteId) sequence: the log lane. Snapshot chunks have a
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

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::auth::TooMany;
use crate::ids::{ConnId, Instant, LinkId, ServerId, WallMs};
use crate::notice::Notice;
use crate::peer::{LinkCloseReason, Notification, PeerMessage};
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

/// Everything that a step asks of the world. The driver empties it before the next batch.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Outbox {
    /// For the three workers of the disk, each command for the one of its [`Lane`](crate::store::Lane).
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

/// An order to the links.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum PeerCommand {
    /// Try once to have a link with this server, after a pause if the last attempts failed. Answered with
    /// [`PeerEvent::Up`] or [`PeerEvent::Unreachable`].
    Dial(ServerId),
    /// Send a message.
    Send(LinkId, PeerMessage),
    /// Close a link, after everything before it is sent as far as the other end takes it.
    Close(LinkId, LinkCloseReason),
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

impl Outbox {
    /// Is there nothing to do?
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
