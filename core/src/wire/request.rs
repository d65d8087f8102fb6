//! Requests of clients, as plain data.
//!
//! Owns the operations and the properties that follow from their kind. Must not know their
//! encoding, and must not validate them: `front/read` does for reads, and
//! `zab/propose/prep` for writes.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use super::flat;
use super::{Acl, AddWatchMode, CreateMode, ReplyKind, Secret, WatcherType};
use crate::error::numbered;
use crate::ids::Zxid;

/// xid of a watch event (WIRE-07).
pub const XID_EVENT: i32 = -1;
/// xid of a ping and its reply (WIRE-08).
pub const XID_PING: i32 = -2;
/// xid of an auth packet and its reply (WIRE-09).
pub const XID_AUTH: i32 = -4;
/// xid of setWatches and its reply (WIRE-10).
pub const XID_SET_WATCHES: i32 = -8;

numbered! {
    /// Opcodes of the operations served. Sent to other servers by position: append only.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
    #[expect(missing_docs, reason = "the names are the operations'")]
    pub enum OpCode {
        Create = 1,
        Delete = 2,
        Exists = 3,
        GetData = 4,
        SetData = 5,
        GetAcl = 6,
        SetAcl = 7,
        GetChildren = 8,
        Sync = 9,
        Ping = 11,
        GetChildren2 = 12,
        Check = 13,
        Multi = 14,
        Create2 = 15,
        CheckWatches = 17,
        RemoveWatches = 18,
        CreateContainer = 19,
        CreateTtl = 21,
        MultiRead = 22,
        Auth = 100,
        SetWatches = 101,
        GetEphemerals = 103,
        GetAllChildrenNumber = 104,
        SetWatches2 = 105,
        AddWatch = 106,
        WhoAmI = 107,
        CloseSession = -11,
        Sasl = 102,
        Reconfig = 16,
    }
}

impl OpCode {
    /// Does the operation become a transaction?
    pub fn is_write(self) -> bool {
        match self {
            OpCode::Create
            | OpCode::Create2
            | OpCode::Delete
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::SetData
            | OpCode::SetAcl
            | OpCode::Multi
            | OpCode::CloseSession
            | OpCode::Reconfig => true,
            OpCode::Exists
            | OpCode::GetData
            | OpCode::GetAcl
            | OpCode::GetChildren
            | OpCode::Sync
            | OpCode::Ping
            | OpCode::GetChildren2
            | OpCode::Check
            | OpCode::CheckWatches
            | OpCode::RemoveWatches
            | OpCode::MultiRead
            | OpCode::Auth
            | OpCode::SetWatches
            | OpCode::GetEphemerals
            | OpCode::GetAllChildrenNumber
            | OpCode::SetWatches2
            | OpCode::AddWatch
            | OpCode::WhoAmI
            | OpCode::Sasl => false,
        }
    }

    /// Does a read-only server refuse the operation (RO-03)? closeSession ends a session that only
    /// this server knows, so it needs no leader.
    pub fn needs_leader(self) -> bool {
        let is_write = self.is_write() && self != OpCode::CloseSession;
        is_write || matches!(self, OpCode::Sync | OpCode::Check)
    }
}

/// Watches of an earlier connection, to be set again (OP-101, and OP-105 where there are persistent
/// ones).
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct SetWatches {
    /// Last zxid that the client has seen: later changes fire at once. `None`, a negative number on
    /// the wire, precedes every zxid, even that of the initial root.
    pub relative_zxid: Option<Zxid>,
    /// Paths watched by getData, or by exists that found a node.
    pub data: Vec<String>,
    /// Paths watched by exists that found nothing.
    pub exist: Vec<String>,
    /// Paths watched by getChildren.
    pub child: Vec<String>,
    /// Paths watched by addWatch (WATCH-05).
    pub persistent: Vec<String>,
    /// Paths watched by addWatch together with all their descendants (WATCH-06).
    pub recursive: Vec<String>,
}

/// A change of the ensemble's members (OP-16): either all of them, or which join and leave.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct ReconfigRequest {
    /// Server lines, separated by commas (RECONF-05).
    pub joining: Option<String>,
    /// Ids, separated by commas.
    pub leaving: Option<String>,
    /// The lines of the whole configuration; the others do not count then (RECONF-06).
    pub new_members: Option<String>,
    /// The version that is to be changed; -1 means any (RECONF-04).
    pub version: i64,
}

impl fmt::Display for ReconfigRequest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "reconfig version={:x}", self.version)?;
        let parts = [&self.joining, &self.leaving, &self.new_members];
        for (name, part) in ["joining", "leaving", "members"].into_iter().zip(parts) {
            if let Some(part) = part {
                write!(f, " {name}={}", part.replace('\n', ","))?;
            }
        }
        Ok(())
    }
}

/// A client's request. Sent to other servers by position: append only.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Request {
    /// OP-01, and OP-15 where `with_stat`.
    Create {
        /// Path, without the suffix that a sequential mode adds.
        path: String,
        /// Data; null stays null (DATA-13).
        data: Option<Bytes>,
        /// Access control list; null and empty are both refused.
        acl: Vec<Acl>,
        /// Flags as sent: invalid flags are an error that takes a zxid (edge 15).
        flags: i32,
        /// Is the reply to carry the Stat (create2)?
        with_stat: bool,
    },
    /// OP-02.
    Delete {
        /// Node to delete.
        path: String,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// OP-03.
    Exists {
        /// Node asked for.
        path: String,
        /// Set a watch, whether or not the node exists?
        watch: bool,
    },
    /// OP-04.
    GetData {
        /// Node asked for.
        path: String,
        /// Set a watch if the node exists?
        watch: bool,
    },
    /// OP-05.
    SetData {
        /// Node to change.
        path: String,
        /// New data.
        data: Option<Bytes>,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// OP-08, and OP-12 where `with_stat`.
    GetChildren {
        /// Node asked for.
        path: String,
        /// Set a watch if the node exists?
        watch: bool,
        /// Is the reply to carry the Stat (getChildren2)?
        with_stat: bool,
    },
    /// OP-09: the reply echoes the path, valid or not.
    Sync {
        /// Any text.
        path: String,
    },
    /// OP-13: only as a part of a multi.
    Check {
        /// Node that must exist.
        path: String,
        /// Expected version; -1 matches any.
        version: i32,
    },
    /// OP-14: creations, deletions, changes and checks, all or none.
    Multi(#[serde(deserialize_with = "flat::parts")] Vec<Request>),
    /// OP-11.
    Ping,
    /// OP-17, and OP-18 where `remove`.
    Watches {
        /// The watched path.
        path: String,
        /// Type of the watches.
        kind: WatcherType,
        /// Remove the watches instead of checking for them?
        remove: bool,
    },
    /// OP-100.
    Auth {
        /// Name of the scheme.
        scheme: String,
        /// Credentials, in the scheme's own form.
        auth: Secret,
    },
    /// OP-101 and OP-105.
    SetWatches(SetWatches),
    /// OP-N11.
    CloseSession,
    /// A known operation whose record cannot be decoded (WIRE-15).
    Undecodable {
        /// The operation.
        op: OpCode,
    },
    /// An operation that is not served (WIRE-14).
    Unknown {
        /// Its opcode.
        op: i32,
    },
    /// OP-06.
    GetAcl {
        /// Node asked for.
        path: String,
    },
    /// OP-07.
    SetAcl {
        /// Node to change.
        path: String,
        /// New access control list.
        acl: Vec<Acl>,
        /// Expected version of the list; -1 matches any.
        version: i32,
    },
    /// OP-19: creates a container, which is deleted after its last child.
    CreateContainer {
        /// Path, without the suffix that a sequential mode adds.
        path: String,
        /// Data.
        data: Option<Bytes>,
        /// Access control list.
        acl: Vec<Acl>,
        /// Flags as sent; the node is a container for any flags (DATA-24).
        flags: i32,
    },
    /// OP-21: creates a TTL node, which is deleted if it has no children and was not written for
    /// its time to live.
    CreateTtl {
        /// Path, without the suffix that a sequential mode adds.
        path: String,
        /// Data.
        data: Option<Bytes>,
        /// Access control list.
        acl: Vec<Acl>,
        /// Flags as sent: 5, or 6 for a sequential node.
        flags: i32,
        /// Time to live after the last write, ms, as sent.
        ttl: i64,
    },
    /// OP-22: getData and getChildren operations, each of which may fail alone.
    MultiRead(#[serde(deserialize_with = "flat::parts")] Vec<Request>),
    /// OP-103.
    GetEphemerals {
        /// Prefix of the paths.
        prefix: String,
    },
    /// OP-104.
    GetAllChildrenNumber {
        /// Node whose descendants are counted.
        path: String,
    },
    /// OP-106.
    AddWatch {
        /// Path to watch, whether or not the node exists.
        path: String,
        /// What the watch covers.
        mode: AddWatchMode,
    },
    /// OP-107.
    WhoAmI,
    /// A record that is complete, but contains a null path, or a null id in its list. ZooKeeper
    /// detects the null late: if the operation is a write, its error takes a zxid. Only a null list
    /// in a multi is detected early.
    NoPath {
        /// The operation.
        op: OpCode,
        /// Is the null an id, and the path present?
        in_list: bool,
    },
    /// OP-102.
    Sasl {
        /// The client's SASL token.
        token: Secret,
    },
    /// OP-16 where it is disabled; its parameters are dropped.
    Reconfig,
    /// A request that waited too long before it was processed (THR-07). The driver puts it in place
    /// of the original; no bytes decode to it.
    Throttled {
        /// Opcode of the original request.
        op: i32,
    },
    /// OP-16 where it is enabled.
    Reconfigure(ReconfigRequest),
}

/// A request with its xid.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct RequestFrame {
    /// Chosen by the client, echoed by the server.
    pub xid: i32,
    /// The request.
    pub request: Request,
}

impl Request {
    /// The opcode.
    pub fn op(&self) -> i32 {
        let op = match self {
            Request::Create { with_stat: false, .. } => OpCode::Create,
            Request::Create { with_stat: true, .. } => OpCode::Create2,
            Request::Delete { .. } => OpCode::Delete,
            Request::Exists { .. } => OpCode::Exists,
            Request::GetData { .. } => OpCode::GetData,
            Request::SetData { .. } => OpCode::SetData,
            Request::GetChildren { with_stat: false, .. } => OpCode::GetChildren,
            Request::GetChildren { with_stat: true, .. } => OpCode::GetChildren2,
            Request::Sync { .. } => OpCode::Sync,
            Request::Check { .. } => OpCode::Check,
            Request::Multi(_) => OpCode::Multi,
            Request::Ping => OpCode::Ping,
            Request::Watches { remove: false, .. } => OpCode::CheckWatches,
            Request::Watches { remove: true, .. } => OpCode::RemoveWatches,
            Request::Auth { .. } => OpCode::Auth,
            Request::Sasl { .. } => OpCode::Sasl,
            Request::SetWatches(watches) if watches.is_plain() => OpCode::SetWatches,
            Request::SetWatches(_) => OpCode::SetWatches2,
            Request::GetAcl { .. } => OpCode::GetAcl,
            Request::SetAcl { .. } => OpCode::SetAcl,
            Request::CreateContainer { .. } => OpCode::CreateContainer,
            Request::CreateTtl { .. } => OpCode::CreateTtl,
            Request::MultiRead(_) => OpCode::MultiRead,
            Request::GetEphemerals { .. } => OpCode::GetEphemerals,
            Request::GetAllChildrenNumber { .. } => OpCode::GetAllChildrenNumber,
            Request::AddWatch { .. } => OpCode::AddWatch,
            Request::WhoAmI => OpCode::WhoAmI,
            Request::CloseSession => OpCode::CloseSession,
            Request::Undecodable { op } | Request::NoPath { op, .. } => *op,
            Request::Reconfig | Request::Reconfigure(_) => OpCode::Reconfig,
            Request::Unknown { op } | Request::Throttled { op } => return *op,
        };
        op.wire()
    }

    /// Does the request become a transaction? Of the undecodable ones, only multi does: ZooKeeper
    /// decodes any other record before it assigns a zxid.
    pub fn is_write(&self) -> bool {
        if let Request::Undecodable { op } = self {
            return *op == OpCode::Multi;
        }
        if matches!(self, Request::NoPath { op: OpCode::Multi, .. } | Request::Throttled { .. }) {
            return false;
        }
        OpCode::from_wire(self.op()).is_some_and(OpCode::is_write)
    }

    /// Does a read-only server refuse the request (RO-03)? As in ZooKeeper, the operation decides,
    /// even if its record cannot be decoded.
    pub fn needs_leader(&self) -> bool {
        OpCode::from_wire(self.op()).is_some_and(OpCode::needs_leader)
    }

    /// Is it a write that a client's frame can contain? A request forwarded by another server may
    /// contain anything.
    pub fn is_proper_write(&self) -> bool {
        if let Request::Multi(parts) = self {
            return parts.iter().all(may_be_part);
        }
        self.is_write()
    }

    /// Kind of the body of a successful reply.
    pub fn reply_kind(&self) -> ReplyKind {
        match self {
            Request::Create { with_stat: false, .. } | Request::Sync { .. } => ReplyKind::Path,
            Request::Create { with_stat: true, .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. } => ReplyKind::PathStat,
            Request::Exists { .. } | Request::SetData { .. } | Request::SetAcl { .. } => {
                ReplyKind::Stat
            }
            Request::GetAcl { .. } => ReplyKind::Acl,
            Request::GetEphemerals { .. } => ReplyKind::Children,
            Request::GetAllChildrenNumber { .. } => ReplyKind::Number,
            Request::AddWatch { .. } => ReplyKind::Number,
            Request::WhoAmI => ReplyKind::Identities,
            Request::Sasl { .. } => ReplyKind::Token,
            Request::GetData { .. } | Request::Reconfigure(_) => ReplyKind::Data,
            Request::GetChildren { with_stat: false, .. } => ReplyKind::Children,
            Request::GetChildren { with_stat: true, .. } => ReplyKind::ChildrenStat,
            Request::Multi(_) | Request::MultiRead(_) => ReplyKind::Multi,
            Request::NoPath { op: OpCode::Sync, .. } => ReplyKind::NullPath,
            Request::Delete { .. }
            | Request::Check { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::NoPath { .. }
            | Request::Reconfig
            | Request::Throttled { .. }
            | Request::Unknown { .. } => ReplyKind::Empty,
        }
    }
}

impl SetWatches {
    /// Are there no persistent watches, so that servers before 3.6 accept the request, too?
    pub(super) fn is_plain(&self) -> bool {
        self.persistent.is_empty() && self.recursive.is_empty()
    }
}

/// May the operation be part of a multi of writes?
pub(super) fn changes_or_checks(op: OpCode) -> bool {
    matches!(
        op,
        OpCode::Create
            | OpCode::Create2
            | OpCode::CreateContainer
            | OpCode::CreateTtl
            | OpCode::Delete
            | OpCode::SetData
            | OpCode::Check
    )
}

/// May the request be part of a multi of writes?
fn may_be_part(part: &Request) -> bool {
    let parts_alone = matches!(
        part,
        Request::Create { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Check { .. }
    );
    parts_alone || matches!(part, Request::NoPath { op, .. } if changes_or_checks(*op))
}

/// Does the request create a node with a bad mode, which is refused whatever its other fields are
/// (DATA-05)?
pub(super) fn has_bad_mode(request: &Request) -> bool {
    if let Request::CreateTtl { flags, ttl, .. } = request {
        return !matches!(flags, 5 | 6) || *ttl <= 0;
    }
    if let Request::Create { flags, .. } | Request::CreateContainer { flags, .. } = request {
        return CreateMode::from_wire(*flags).is_none();
    }
    false
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Request::Create { path, flags, .. } => write!(f, "create {path} flags={flags}"),
            Request::Delete { path, version } => write!(f, "delete {path} v={version}"),
            Request::Exists { path, watch } => write!(f, "exists {path}{}", watching(*watch)),
            Request::GetData { path, watch } => write!(f, "getData {path}{}", watching(*watch)),
            Request::SetData { path, version, .. } => write!(f, "setData {path} v={version}"),
            Request::GetChildren { path, watch, .. } => {
                write!(f, "getChildren {path}{}", watching(*watch))
            }
            Request::Sync { path } => write!(f, "sync {path}"),
            Request::Check { path, version } => write!(f, "check {path} v={version}"),
            Request::Multi(requests) | Request::MultiRead(requests) => {
                let what = if matches!(self, Request::Multi(_)) { "multi" } else { "multiRead" };
                write!(f, "{what} [")?;
                for (index, request) in requests.iter().enumerate() {
                    write!(f, "{}{request}", if index == 0 { "" } else { "; " })?;
                }
                write!(f, "]")
            }
            Request::Ping => write!(f, "ping"),
            Request::Watches { path, kind, remove: true } => {
                write!(f, "removeWatches {path} {kind:?}")
            }
            Request::Watches { path, kind, remove: false } => {
                write!(f, "checkWatches {path} {kind:?}")
            }
            // Credentials are never printed.
            Request::Auth { scheme, .. } => write!(f, "auth {scheme}"),
            Request::Sasl { .. } => write!(f, "sasl"),
            Request::SetWatches(w) => {
                let since = w.relative_zxid.map_or_else(|| "ever".into(), |zxid| zxid.to_string());
                write!(
                    f,
                    "setWatches since={since} data={:?} exist={:?} child={:?}",
                    w.data, w.exist, w.child
                )?;
                if !w.is_plain() {
                    write!(f, " persistent={:?} recursive={:?}", w.persistent, w.recursive)?;
                }
                Ok(())
            }
            Request::GetAcl { path } => write!(f, "getACL {path}"),
            Request::SetAcl { path, version, .. } => write!(f, "setACL {path} v={version}"),
            Request::CreateContainer { path, .. } => write!(f, "createContainer {path}"),
            Request::CreateTtl { path, flags, ttl, .. } => {
                write!(f, "createTTL {path} flags={flags} ttl={ttl}ms")
            }
            Request::GetEphemerals { prefix } => write!(f, "getEphemerals {prefix}"),
            Request::GetAllChildrenNumber { path } => write!(f, "getAllChildrenNumber {path}"),
            Request::AddWatch { path, mode } => write!(f, "addWatch {path} {mode:?}"),
            Request::WhoAmI => write!(f, "whoAmI"),
            Request::CloseSession => write!(f, "closeSession"),
            Request::Undecodable { op } => write!(f, "undecodable {op:?}"),
            Request::NoPath { op, .. } => write!(f, "{op:?} with a null"),
            Request::Reconfig => write!(f, "reconfig"),
            Request::Reconfigure(request) => request.fmt(f),
            Request::Throttled { op } => write!(f, "operation {op}, throttled"),
            Request::Unknown { op } => write!(f, "unknown operation {op}"),
        }
    }
}

fn watching(watch: bool) -> &'static str {
    if watch { " watch" } else { "" }
}
