//! Transactions: requests after the leader has resolved them (Java `TxnHeader` and its records).
//!
//! Owns their content and encoding (postcard; the log's format version covers it). Must hold
//! nothing that replicas could interpret differently: the leader resolves every value, so `apply`
//! fails only on a transaction that no leader produced.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Corrupt, ErrorCode};
use crate::ids::{ConnId, ServerId, SessionId, WallMs, Zxid};
use crate::store::Entry;
use crate::wire::{Acl, flat};

/// One transaction.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Txn {
    /// Its position in the history.
    pub zxid: Zxid,
    /// The session that made the request; for an expiry, the session that expired.
    pub session: SessionId,
    /// The leader's wall clock: the only source of ctime and mtime (STAT-09).
    pub time: WallMs,
    /// The request behind it. The server that holds that connection answers when it applies this.
    pub origin: Option<Origin>,
    /// The change.
    pub op: TxnOp,
}

/// The request behind a transaction. Session and xid do not identify it: a client may reuse an xid.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct Origin {
    /// The server that holds the connection.
    pub server: ServerId,
    /// The connection.
    pub conn: ConnId,
    /// Number of the write on that connection, counted by that server.
    pub request: u64,
}

/// The change that a transaction makes. Stored by variant index: append new variants only.
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
        /// When the server deletes it without a request.
        lifetime: Lifetime,
        /// Children that the parent has ever had, including this one (the stored cversion).
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
        /// The node's version after the change.
        version: i32,
    },
    /// A version check that succeeded.
    Check {
        /// Full path.
        path: String,
    },
    /// Several operations, applied atomically in this order.
    Multi(#[serde(deserialize_with = "flat::parts")] Vec<TxnOp>),
    /// A multi request failed and changes nothing.
    MultiRefused {
        /// How many operations the request had.
        count: u32,
        /// Index of the operation that failed, from zero.
        failed: u32,
        /// Why it failed.
        code: ErrorCode,
    },
    /// Creates the session of the header.
    CreateSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
    },
    /// Closes the session of the header and deletes all ephemeral nodes that it has at this point,
    /// in the order of their paths. The record does not list them: they may exceed the size of a
    /// transaction.
    CloseSession,
    /// A request failed. The failure has a place in the order, too (CONS-08).
    Error {
        /// Why it failed.
        code: ErrorCode,
    },
    /// The client of the header's session has connected to another server. Every other server with
    /// a connection of that session closes it (SESS-09).
    MoveSession {
        /// The server that the client is connected to now.
        server: ServerId,
    },
    /// Replaces a node's access control list.
    SetAcl {
        /// Node to change.
        path: String,
        /// The list to store.
        acl: Vec<Acl>,
        /// The list's version (aversion) after the change.
        version: i32,
    },
    /// Makes the header's session, so far local to one server, a global one (SESS-15).
    UpgradeSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
        /// The server that the client is connected to.
        server: ServerId,
    },
    /// The ensemble has this configuration from here on (RECONF-09).
    Reconfig {
        /// The text of an [`EnsembleConfig`](crate::EnsembleConfig), its version included.
        config: String,
    },
}

/// How long a node lives unless a client deletes it. Stored by variant index: append new variants
/// only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lifetime {
    /// Until a client deletes it.
    Persistent,
    /// As long as the session that created it.
    Ephemeral,
    /// Until its last child is deleted (DATA-18).
    Container,
    /// Until it has no children and no client has written it for `ms` (DATA-19).
    Ttl {
        /// Time to live in ms, from 1 to 2^40-1.
        ms: u64,
    },
}

impl Lifetime {
    /// The owner field of a container, as in ZooKeeper.
    const CONTAINER: SessionId = SessionId(i64::MIN);
    /// Top byte of the owner field of a TTL node. The two bytes after it are zero, the remaining
    /// five are the time to live.
    const EXTENDED: i64 = 0xff << 56;
    /// The longest time to live, ms.
    pub const TTL_MS_MAX: u64 = (1 << 40) - 1;

    /// The owner field of a node that `session` creates (DATA-18, DATA-19). Session ids never have
    /// the values of other kinds: [`Config::with_tree`](crate::Config::with_tree) ensures this.
    ///
    /// # Panics
    /// If the time to live is out of range; the leader refuses such requests.
    pub fn owner(self, session: SessionId) -> SessionId {
        match self {
            Lifetime::Persistent => SessionId(0),
            Lifetime::Ephemeral => session,
            Lifetime::Container => Lifetime::CONTAINER,
            Lifetime::Ttl { ms } => {
                assert!(self.is_possible(), "{ms} ms is no time to live");
                SessionId(Lifetime::EXTENDED | ms.cast_signed())
            }
        }
    }

    /// Whether the time to live, if any, is in range.
    pub(crate) fn is_possible(self) -> bool {
        match self {
            Lifetime::Ttl { ms } => (1..=Lifetime::TTL_MS_MAX).contains(&ms),
            Lifetime::Persistent | Lifetime::Ephemeral | Lifetime::Container => true,
        }
    }

    /// The lifetime of a node with this owner field.
    pub fn of(owner: SessionId) -> Lifetime {
        let ms = owner.0.wrapping_sub(Lifetime::EXTENDED).cast_unsigned();
        match owner {
            SessionId(0) => Lifetime::Persistent,
            Lifetime::CONTAINER => Lifetime::Container,
            _ if (1..=Lifetime::TTL_MS_MAX).contains(&ms) => Lifetime::Ttl { ms },
            _ => Lifetime::Ephemeral,
        }
    }
}

impl Origin {
    /// Number of the handshake among a connection's writes; requests count from one.
    pub(crate) const HANDSHAKE: u64 = 0;

    /// The handshake of a connection, which creates or moves a session.
    pub fn handshake(server: ServerId, conn: ConnId) -> Origin {
        Origin { server, conn, request: Origin::HANDSHAKE }
    }
}

impl Txn {
    /// Encodes the transaction as an entry of the log.
    pub fn encode(&self) -> Entry {
        let bytes = postcard::to_allocvec(self).expect("plain data encodes");
        Entry { zxid: self.zxid, bytes: Bytes::from(bytes) }
    }

    /// Decodes an entry of the log.
    ///
    /// # Errors
    /// If the bytes are no transaction, or belong to another zxid.
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

impl Txn {
    /// The time of an encoded transaction; `None` if it is not one.
    pub(crate) fn time_of(entry: &Entry) -> Option<WallMs> {
        let head = postcard::take_from_bytes::<(Zxid, SessionId, WallMs)>(&entry.bytes);
        head.ok().map(|((_, _, time), _)| time)
    }
}

impl fmt::Display for Txn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.zxid, self.session, self.op)
    }
}

impl TxnOp {
    /// Bytes that come from clients: paths, data and access control lists.
    pub(crate) fn size(&self) -> usize {
        let list = |acl: &[Acl]| -> usize {
            acl.iter().map(|entry| 8 + entry.scheme.len() + entry.id.len()).sum()
        };
        match self {
            TxnOp::Create { path, data, acl, .. } => {
                path.len() + data.as_ref().map_or(0, Bytes::len) + list(acl)
            }
            TxnOp::SetData { path, data, .. } => path.len() + data.as_ref().map_or(0, Bytes::len),
            TxnOp::SetAcl { path, acl, .. } => path.len() + list(acl),
            TxnOp::Delete { path } | TxnOp::Check { path } => path.len(),
            TxnOp::Reconfig { config } => config.len(),
            TxnOp::Multi(ops) => ops.iter().map(TxnOp::size).sum(),
            TxnOp::CreateSession { .. }
            | TxnOp::UpgradeSession { .. }
            | TxnOp::MoveSession { .. }
            | TxnOp::CloseSession
            | TxnOp::MultiRefused { .. }
            | TxnOp::Error { .. } => 0,
        }
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
            TxnOp::Create { path, lifetime: Lifetime::Persistent, .. } => {
                write!(f, "create {path}")
            }
            TxnOp::Create { path, lifetime: Lifetime::Ephemeral, .. } => {
                write!(f, "create ephemeral {path}")
            }
            TxnOp::Create { path, lifetime: Lifetime::Container, .. } => {
                write!(f, "create container {path}")
            }
            TxnOp::Create { path, lifetime: Lifetime::Ttl { ms }, .. } => {
                write!(f, "create ttl={ms}ms {path}")
            }
            TxnOp::Delete { path } => write!(f, "delete {path}"),
            TxnOp::SetAcl { path, version, .. } => write!(f, "setACL {path} v={version}"),
            TxnOp::SetData { path, version, .. } => write!(f, "setData {path} v={version}"),
            TxnOp::CreateSession { timeout_ms } => write!(f, "createSession {timeout_ms}ms"),
            TxnOp::CloseSession => write!(f, "closeSession"),
            TxnOp::Reconfig { config } => write!(f, "reconfig {}", config.replace('\n', ",")),
            TxnOp::Error { code } => write!(f, "error {code}"),
            TxnOp::MoveSession { server } => write!(f, "moveSession s{server}"),
            TxnOp::UpgradeSession { timeout_ms, server } => {
                write!(f, "upgradeSession {timeout_ms}ms s{server}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nested_multi_is_rejected_without_recursion() {
        let flat = TxnOp::Multi(vec![TxnOp::Delete { path: "/n".into() }, TxnOp::CloseSession]);
        let bytes = postcard::to_allocvec(&flat).expect("plain data encodes");
        assert_eq!(postcard::from_bytes(&bytes), Ok(flat.clone()));
        let bytes = postcard::to_allocvec(&TxnOp::Multi(vec![flat])).expect("plain data encodes");
        assert!(postcard::from_bytes::<TxnOp>(&bytes).is_err());
        assert!(postcard::from_bytes::<TxnOp>(&[bytes[0], 1].repeat(200_000)).is_err());
    }

    /// DATA-18, DATA-19.
    #[test]
    fn owner_field_identifies_the_lifetime() {
        let session = SessionId(0x0100_0000_0000_0007);
        for (lifetime, owner) in [
            (Lifetime::Persistent, 0),
            (Lifetime::Ephemeral, session.0),
            (Lifetime::Container, i64::MIN),
            (Lifetime::Ttl { ms: 1 }, -0x00ff_ffff_ffff_ffff),
            (Lifetime::Ttl { ms: Lifetime::TTL_MS_MAX }, -0x00ff_ff00_0000_0001),
        ] {
            assert_eq!(lifetime.owner(session), SessionId(owner), "{lifetime:?}");
            assert_eq!(Lifetime::of(SessionId(owner)), lifetime, "{owner:#x}");
        }
        // Session ids of server 254, and of any server when the clock has high bits set.
        for session in [0xfe00_0000_0000_0001_u64, 0xff00_0100_0000_0001, 0x8000_0000_0000_0001] {
            assert_eq!(Lifetime::of(SessionId(session.cast_signed())), Lifetime::Ephemeral);
        }
    }
}
