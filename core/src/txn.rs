//! Transactions: what a request has become once the leader has decided it (the Java `TxnHeader` and its records).
//!
//! Owns their content and encoding (postcard; the log's format version covers it). Must hold nothing
//! that a replica could read differently: every value is resolved, so that `apply` cannot fail.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Corrupt, ErrorCode};
use crate::ids::{ConnId, ServerId, SessionId, WallMs, Zxid};
use crate::io::Entry;
use crate::wire::Acl;

/// One decided change.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Txn {
    /// Position in the history.
    pub zxid: Zxid,
    /// The session it is done for; expiry carries the one that expired.
    pub session: SessionId,
    /// The leader's wall clock: the only source of ctime and mtime (STAT-09).
    pub time: WallMs,
    /// The request that asked for it: whoever holds that connection answers on apply.
    pub origin: Option<Origin>,
    /// The change.
    pub op: TxnOp,
}

/// Where a transaction came from. (session, xid) would not do: a client may use an xid twice.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The server that holds the connection.
    pub server: ServerId,
    /// The connection.
    pub conn: ConnId,
    /// Number of the write on that connection, counted by the server.
    pub request: u64,
}

/// What changes.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum TxnOp {
    /// A node is created.
    Create {
        /// Full path, sequence suffix included.
        path: String,
        /// Its data.
        data: Option<Bytes>,
        /// Its access control list.
        acl: Vec<Acl>,
        /// Does it go with the session?
        ephemeral: bool,
        /// Children that the parent has ever had, this one included (the stored cversion).
        parent_creates: i32,
    },
    /// A node is deleted.
    Delete {
        /// Full path.
        path: String,
    },
    /// A node's data is replaced.
    SetData {
        /// Full path.
        path: String,
        /// New data.
        data: Option<Bytes>,
        /// Version that the node then has.
        version: i32,
    },
    /// A version was checked, and found right.
    Check {
        /// Full path.
        path: String,
    },
    /// Several changes at once, in this order.
    Multi(Vec<TxnOp>),
    /// A multi was refused: nothing changes.
    MultiRefused {
        /// How many operations it had.
        count: u32,
        /// Which of them failed, counted from zero.
        failed: u32,
        /// Why.
        code: ErrorCode,
    },
    /// The session of the header begins.
    CreateSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// The session of the header ends, and its ephemeral nodes with it.
    CloseSession {
        /// Paths to delete, in this order.
        ephemerals: Vec<String>,
    },
    /// A request was refused; its refusal takes a place in the order, too (CONS-08).
    Error {
        /// Why.
        code: ErrorCode,
    },
    /// The client of the session of the header has connected to another server; whoever else has a connection of it
    /// closes that one (SESS-09).
    MoveSession {
        /// Where it is now.
        server: ServerId,
    },
}

impl Origin {
    /// Number of the handshake among the writes of a connection; requests count from one.
    const HANDSHAKE: u64 = 0;

    /// The handshake of a connection, which creates or moves a session.
    pub fn handshake(server: ServerId, conn: ConnId) -> Origin {
        Origin { server, conn, request: Origin::HANDSHAKE }
    }
}

impl Txn {
    /// As an entry of the log.
    pub fn encode(&self) -> Entry {
        let bytes = postcard::to_allocvec(self).expect("plain data encodes");
        Entry { zxid: self.zxid, bytes: Bytes::from(bytes) }
    }

    /// From an entry of the log.
    ///
    /// # Errors
    /// Bytes that are no transaction, or another one's.
    pub fn decode(entry: &Entry) -> Result<Txn, Corrupt> {
        let txn: Txn = postcard::from_bytes(&entry.bytes).map_err(|error| Corrupt {
            what: format!("transaction {} cannot be decoded: {error}", entry.zxid),
        })?;
        if txn.zxid != entry.zxid {
            let what = format!("transaction {} stands at {} in the log", txn.zxid, entry.zxid);
            return Err(Corrupt { what });
        }
        Ok(txn)
    }
}

impl fmt::Display for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.zxid, self.session, self.op)
    }
}

impl fmt::Display for TxnOp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TxnOp::Check { path } => write!(f, "check {path}"),
            TxnOp::Multi(ops) => {
                write!(f, "multi [")?;
                for (index, op) in ops.iter().enumerate() {
                    write!(f, "{}{op}", if index == 0 { "" } else { "; " })?;
                }
                write!(f, "]")
            }
            TxnOp::MultiRefused { count, failed, code } => {
                write!(f, "multi of {count} refused at {failed}: {code}")
            }
            TxnOp::Create { path, ephemeral: false, .. } => write!(f, "create {path}"),
            TxnOp::Create { path, ephemeral: true, .. } => write!(f, "create ephemeral {path}"),
            TxnOp::Delete { path } => write!(f, "delete {path}"),
            TxnOp::SetData { path, version, .. } => write!(f, "setData {path} v={version}"),
            TxnOp::CreateSession { timeout_ms } => write!(f, "createSession {timeout_ms}ms"),
            TxnOp::CloseSession { ephemerals } => write!(f, "closeSession {ephemerals:?}"),
            TxnOp::Error { code } => write!(f, "error {code}"),
            TxnOp::MoveSession { server } => write!(f, "moveSession s{server}"),
        }
    }
}
