//! Transactions: what a request has become once the leader has decided it (the Java `TxnHeader` and its records).
//!
//! Owns their content and encoding (postcard; the log's format version covers it). Must hold nothing
//! that a replica could read differently: every value is resolved, so that `apply` fails only on what no
//! leader has decided.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use crate::error::{Corrupt, ErrorCode};
use crate::ids::{ConnId, ServerId, SessionId, WallMs, Zxid};
use crate::store::Entry;
use crate::wire::{Acl, flat};

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

/// What changes. Stored by position: append only.
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
        /// When it goes by itself.
        lifetime: Lifetime,
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
    Multi(#[serde(deserialize_with = "flat::parts")] Vec<TxnOp>),
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
    /// The session of the header ends, and with it the ephemeral nodes that it has by then, in the order of their paths.
    /// They are not listed: a session may have more of them than a transaction has room for.
    CloseSession,
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
    /// A node gets another access control list.
    SetAcl {
        /// Node to change.
        path: String,
        /// The list to store.
        acl: Vec<Acl>,
        /// The version that the list gets.
        version: i32,
    },
    /// The session of the header, which one server has known for a while, is known to all from now on (SESS-15).
    UpgradeSession {
        /// Negotiated timeout, ms.
        timeout_ms: u32,
        /// The server that has it.
        server: ServerId,
    },
}

/// How long a node lives, unless somebody deletes it. Stored by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Lifetime {
    /// For ever.
    Persistent,
    /// As long as the session that creates it.
    Ephemeral,
    /// Until it has had children and has none any more (DATA-18).
    Container,
    /// Until it has no children and was not written for a while (DATA-19).
    Ttl {
        /// That while, ms, from 1 to 2^40-1.
        ms: u64,
    },
}

impl Lifetime {
    /// What a container's owner field holds, as in ZooKeeper.
    const CONTAINER: SessionId = SessionId(i64::MIN);
    /// Top byte of the owner field of nodes with a time to live. The two bytes behind it are zero, the rest is that time.
    const EXTENDED: i64 = 0xff << 56;
    /// The longest time to live, ms.
    pub const TTL_MS_MAX: u64 = (1 << 40) - 1;

    /// What the owner field of a node holds that `session` creates (DATA-18, DATA-19). Sessions have other numbers:
    /// [`Config::with_tree`](crate::Config::with_tree) sees to it.
    ///
    /// # Panics
    /// On a time to live out of its range, which the leader has refused.
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

    /// Is the time to live, if it has one, within its range?
    pub(crate) fn is_possible(self) -> bool {
        match self {
            Lifetime::Ttl { ms } => (1..=Lifetime::TTL_MS_MAX).contains(&ms),
            Lifetime::Persistent | Lifetime::Ephemeral | Lifetime::Container => true,
        }
    }

    /// How long a node lives whose owner field holds this.
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
    /// Number of the handshake among the writes of a connection; requests count from one.
    pub(crate) const HANDSHAKE: u64 = 0;

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

impl TxnOp {
    /// Bytes of what clients have put into it: paths, data and lists.
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
    fn depth_is_refused_before_it_is_read() {
        let flat = TxnOp::Multi(vec![TxnOp::Delete { path: "/n".into() }, TxnOp::CloseSession]);
        let bytes = postcard::to_allocvec(&flat).expect("plain data encodes");
        assert_eq!(postcard::from_bytes(&bytes), Ok(flat.clone()));
        let bytes = postcard::to_allocvec(&TxnOp::Multi(vec![flat])).expect("plain data encodes");
        assert!(postcard::from_bytes::<TxnOp>(&bytes).is_err());
        assert!(postcard::from_bytes::<TxnOp>(&[bytes[0], 1].repeat(200_000)).is_err());
    }

    #[test]
    fn data_18_19_the_owner_field_tells_the_kinds_apart() {
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
        // Of server 254, and of any server at a time with high bits.
        for session in [0xfe00_0000_0000_0001_u64, 0xff00_0100_0000_0001, 0x8000_0000_0000_0001] {
            assert_eq!(Lifetime::of(SessionId(session.cast_signed())), Lifetime::Ephemeral);
        }
    }
}
