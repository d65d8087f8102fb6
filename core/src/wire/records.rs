//! Records that requests and replies share, as plain data.
//!
//! Owns their fields and the meaning of their numbers. Must not validate them:
//! `front/read` does for reads, and `zab/propose/prep` for writes.

use std::fmt;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::{Reader, put_text};
use crate::error::Malformed;
use crate::ids::{SessionId, Zxid};

/// Permission bits of an access control list (REC-06).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Perms(pub i32);

impl Perms {
    /// Read data and list children.
    pub const READ: Perms = Perms(1);
    /// Set data.
    pub const WRITE: Perms = Perms(2);
    /// Create children.
    pub const CREATE: Perms = Perms(4);
    /// Delete children.
    pub const DELETE: Perms = Perms(8);
    /// Change the list itself.
    pub const ADMIN: Perms = Perms(16);
    /// All bits that have a meaning.
    pub const ALL: Perms = Perms(31);

    /// Do the two share a bit? ZooKeeper checks permissions this way (ACL-01).
    pub fn intersects(self, other: Perms) -> bool {
        self.0 & other.0 != 0
    }
}

/// One entry of an access control list (REC-02).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Acl {
    /// Permissions granted; not validated, as in ZooKeeper (ACL-04).
    pub perms: Perms,
    /// Authentication scheme of `id`: `world`, `digest`, ...
    pub scheme: String,
    /// The identity that gets the permissions, in the scheme's own form.
    pub id: String,
}

impl Acl {
    /// `world:anyone` with every permission: `OPEN_ACL_UNSAFE` of ZooKeeper's clients.
    pub fn open() -> Vec<Acl> {
        vec![Acl { perms: Perms::ALL, scheme: "world".into(), id: "anyone".into() }]
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        out.put_i32(self.perms.0);
        put_text(out, &self.scheme);
        put_text(out, &self.id);
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Acl, Malformed> {
        let (perms, scheme) = (Perms(r.int("perms")?), r.text_or_empty("scheme")?);
        // ZooKeeper fails on a null id only where it looks at the id; for `auth` and unknown
        // schemes it does not.
        let id = match scheme.as_str() {
            "world" | "ip" | "digest" | "x509" => r.late_text("id")?,
            _ => r.text_or_empty("id")?,
        };
        Ok(Acl { perms, scheme, id })
    }

    /// A list; null reads as empty and is recorded.
    pub(super) fn decode_list(r: &mut Reader) -> Result<Vec<Acl>, Malformed> {
        r.no_list |= r.rest.starts_with(&(-1_i32).to_be_bytes());
        r.vector("acl", Acl::decode)
    }
}

/// An identity that a client has authenticated (REC-01). In the reply to whoAmI: only the part that
/// is no secret (REC-05).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Id {
    /// Authentication scheme: `ip`, `digest`, `x509`, `super`, ...
    pub scheme: String,
    /// The identity in the scheme's own form.
    pub id: String,
}

impl Id {
    pub(super) fn encode(&self, out: &mut BytesMut) {
        put_text(out, &self.scheme);
        put_text(out, &self.id);
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Id, Malformed> {
        Ok(Id { scheme: r.text("scheme")?, id: r.text("id")? })
    }
}

/// Credentials of a client, usually a password. They are never printed.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Secret(pub Option<Bytes>);

impl From<&'static str> for Secret {
    fn from(text: &'static str) -> Secret {
        Secret(Some(Bytes::from_static(text.as_bytes())))
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Statistics of a node, as clients see them (REC-03).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Stat {
    /// Transaction that created the node.
    pub czxid: Zxid,
    /// Transaction that last set its data.
    pub mzxid: Zxid,
    /// Wall clock of the creation, ms since 1970.
    pub ctime: i64,
    /// Wall clock of the last change of data, ms since 1970.
    pub mtime: i64,
    /// Number of changes of the data.
    pub version: i32,
    /// Number of creations and deletions of children.
    pub cversion: i32,
    /// Number of changes of the access control list.
    pub aversion: i32,
    /// Session that owns the node if it is ephemeral, else zero.
    pub ephemeral_owner: SessionId,
    /// Bytes of data.
    pub data_length: i32,
    /// Number of children.
    pub num_children: i32,
    /// Transaction that last created or deleted a child.
    pub pzxid: Zxid,
}

/// How a node is created (REC-07).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct CreateMode {
    /// Deleted with the session that created it.
    pub ephemeral: bool,
    /// A counter of the parent is appended to the name.
    pub sequential: bool,
}

impl CreateMode {
    /// An ordinary node.
    pub const PERSISTENT: CreateMode = CreateMode { ephemeral: false, sequential: false };
    /// A node that is deleted with its session.
    pub const EPHEMERAL: CreateMode = CreateMode { ephemeral: true, sequential: false };

    /// From the flags of a request. Flag 4 (container) in a create makes an ordinary node, as in
    /// ZooKeeper (DATA-24). The TTL flags 5 and 6 belong to createTTL; they and unknown flags give
    /// `None`.
    pub fn from_wire(flags: i32) -> Option<CreateMode> {
        match flags {
            0 | 4 => Some(Self::PERSISTENT),
            1 => Some(Self::EPHEMERAL),
            2 => Some(CreateMode { ephemeral: false, sequential: true }),
            3 => Some(CreateMode { ephemeral: true, sequential: true }),
            _ => None,
        }
    }
}

/// Type of watches in checkWatches and removeWatches (REC-08). Sent to other servers by position:
/// append only.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[repr(i32)]
pub enum WatcherType {
    /// Set by getChildren.
    Children = 1,
    /// Set by getData and exists.
    Data = 2,
    /// Either.
    Any = 3,
    /// Set by addWatch.
    Persistent = 4,
    /// Set by addWatch, for a node and all its descendants.
    PersistentRecursive = 5,
}

/// What a watch set by addWatch covers (REC-09). Sent to other servers by position: append only.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(i32)]
pub enum AddWatchMode {
    /// The node itself and its child list.
    Persistent = 0,
    /// The node and all its descendants.
    PersistentRecursive = 1,
}

impl AddWatchMode {
    pub(super) fn from_wire(value: i32) -> Result<AddWatchMode, Malformed> {
        match value {
            0 => Ok(AddWatchMode::Persistent),
            1 => Ok(AddWatchMode::PersistentRecursive),
            _ => Err(Malformed::Value { field: "addWatch mode", value: value.into() }),
        }
    }
}

impl WatcherType {
    pub(super) fn from_wire(value: i32) -> Result<WatcherType, Malformed> {
        match value {
            1 => Ok(WatcherType::Children),
            2 => Ok(WatcherType::Data),
            3 => Ok(WatcherType::Any),
            4 => Ok(WatcherType::Persistent),
            5 => Ok(WatcherType::PersistentRecursive),
            _ => Err(Malformed::Value { field: "watcher type", value: value.into() }),
        }
    }
}

/// What has happened to a watched node (WIRE-20).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
#[repr(i32)]
#[expect(missing_docs, reason = "the names are ZooKeeper's")]
pub enum EventType {
    NodeCreated = 1,
    NodeDeleted = 2,
    NodeDataChanged = 3,
    NodeChildrenChanged = 4,
}

impl EventType {
    pub(super) fn from_wire(value: i32) -> Result<EventType, Malformed> {
        match value {
            1 => Ok(EventType::NodeCreated),
            2 => Ok(EventType::NodeDeleted),
            3 => Ok(EventType::NodeDataChanged),
            4 => Ok(EventType::NodeChildrenChanged),
            _ => Err(Malformed::Value { field: "event type", value: value.into() }),
        }
    }
}

impl Stat {
    /// Encoded size, bytes.
    const BYTES: usize = 68;

    pub(super) fn encode(&self, out: &mut BytesMut) {
        // Most replies end in a Stat, so it is assembled first and appended at once.
        let mut bytes = [0; Stat::BYTES];
        let mut rest = &mut bytes[..];
        rest.put_i64(self.czxid.wire());
        rest.put_i64(self.mzxid.wire());
        rest.put_i64(self.ctime);
        rest.put_i64(self.mtime);
        rest.put_i32(self.version);
        rest.put_i32(self.cversion);
        rest.put_i32(self.aversion);
        rest.put_i64(self.ephemeral_owner.0);
        rest.put_i32(self.data_length);
        rest.put_i32(self.num_children);
        rest.put_i64(self.pzxid.wire());
        debug_assert!(rest.is_empty(), "all of it is said");
        out.put_slice(&bytes);
    }

    pub(super) fn decode(r: &mut Reader) -> Result<Stat, Malformed> {
        Ok(Stat {
            czxid: Zxid::from_wire(r.long("czxid")?),
            mzxid: Zxid::from_wire(r.long("mzxid")?),
            ctime: r.long("ctime")?,
            mtime: r.long("mtime")?,
            version: r.int("version")?,
            cversion: r.int("cversion")?,
            aversion: r.int("aversion")?,
            ephemeral_owner: SessionId(r.long("ephemeralOwner")?),
            data_length: r.int("dataLength")?,
            num_children: r.int("numChildren")?,
            pzxid: Zxid::from_wire(r.long("pzxid")?),
        })
    }
}
