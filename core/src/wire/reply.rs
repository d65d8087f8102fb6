//! Frames that a server sends after the handshake: replies and watch events.
//!
//! Owns their records. Must not know which request a reply answers: the reader passes the kind that
//! it expects.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::multi::{self, MultiResult};
use super::{
    Acl, EventType, Id, Reader, Stat, XID_EVENT, put_buffer, put_frame, put_text, put_vector,
};
use crate::error::{ErrorCode, Malformed};
use crate::ids::Zxid;

/// A watch has fired (WIRE-07).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct WatchEvent {
    /// The transaction that caused the event; `None` (-1 on the wire) if setWatches detected the
    /// change.
    pub zxid: Option<Zxid>,
    /// What happened to the node.
    pub event: EventType,
    /// Path of the node.
    pub path: String,
}

/// Answer to a request.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Reply {
    /// xid of the request.
    pub xid: i32,
    /// Last transaction applied when the reply was built, also on errors (WIRE-06). -1 for an
    /// unknown operation (WIRE-14), which is why this is no `Zxid`.
    pub zxid: i64,
    /// The body of the reply, or the error code.
    pub result: Result<ReplyBody, ErrorCode>,
}

/// What a successful reply carries after its header.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ReplyBody {
    /// No body.
    Empty,
    /// The path created, or the path of a sync.
    Path(String),
    /// create2.
    PathStat(String, Stat),
    /// exists, setData.
    Stat(Stat),
    /// getData.
    Data(Option<Bytes>, Stat),
    /// getChildren.
    Children(Vec<String>),
    /// getChildren2.
    ChildrenStat(Vec<String>, Stat),
    /// multi: the result of each operation. A failed operation is no error of the reply (MULTI-03).
    Multi(Vec<MultiResult>),
    /// getACL.
    Acl(Vec<Acl>, Stat),
    /// getAllChildrenNumber: how many; addWatch: zero.
    Number(i32),
    /// whoAmI: each identity without its secret part.
    Identities(Vec<Id>),
    /// sasl: the token that the client has to answer, if any.
    Token(Option<Bytes>),
    /// sync with a null path.
    NullPath,
    /// A multiRead that contains a null or begins with a write: error -5, with the results of the
    /// operations before it.
    BrokenMulti(Vec<MultiResult>),
}

/// The [`ReplyBody`] that a reader has to expect: replies have no tag, the request determines the
/// body.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the variants of `ReplyBody`")]
pub enum ReplyKind {
    Empty,
    Path,
    PathStat,
    Stat,
    Data,
    Children,
    ChildrenStat,
    Multi,
    Acl,
    Number,
    Identities,
    Token,
    NullPath,
}

impl Reply {
    /// Appends the reply as a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        let error = match &self.result {
            Ok(ReplyBody::BrokenMulti(_)) => ErrorCode::Marshalling.wire(),
            Ok(_) => 0,
            Err(code) => code.wire(),
        };
        put_frame(out, |out| {
            let mut header = [0; 16];
            header[..4].copy_from_slice(&self.xid.to_be_bytes());
            header[4..12].copy_from_slice(&self.zxid.to_be_bytes());
            header[12..].copy_from_slice(&error.to_be_bytes());
            out.put_slice(&header);
            if let Ok(body) = &self.result {
                body.encode(out);
            }
        });
    }
}

impl ReplyBody {
    fn encode(&self, out: &mut BytesMut) {
        match self {
            ReplyBody::Empty => {}
            ReplyBody::Path(path) => put_text(out, path),
            ReplyBody::PathStat(path, stat) => {
                put_text(out, path);
                stat.encode(out);
            }
            ReplyBody::Stat(stat) => stat.encode(out),
            ReplyBody::Data(data, stat) => {
                put_buffer(out, data.as_deref());
                stat.encode(out);
            }
            ReplyBody::Children(children) => {
                put_vector(out, children, |out, child| put_text(out, child));
            }
            ReplyBody::ChildrenStat(children, stat) => {
                put_vector(out, children, |out, child| put_text(out, child));
                stat.encode(out);
            }
            ReplyBody::Multi(results) | ReplyBody::BrokenMulti(results) => {
                multi::encode_results(results, out);
            }
            ReplyBody::NullPath => put_buffer(out, None),
            ReplyBody::Acl(list, stat) => {
                put_vector(out, list, |out, acl| acl.encode(out));
                stat.encode(out);
            }
            ReplyBody::Number(number) => out.put_i32(*number),
            ReplyBody::Token(token) => put_buffer(out, token.as_deref()),
            ReplyBody::Identities(ids) => put_vector(out, ids, |out, id| id.encode(out)),
        }
    }

    pub(super) fn decode(kind: ReplyKind, r: &mut Reader) -> Result<ReplyBody, Malformed> {
        let children = |r: &mut Reader| r.vector("children", |r| r.text("child"));
        Ok(match kind {
            ReplyKind::Empty => ReplyBody::Empty,
            ReplyKind::Path => ReplyBody::Path(r.text("path")?),
            ReplyKind::PathStat => ReplyBody::PathStat(r.text("path")?, Stat::decode(r)?),
            ReplyKind::Stat => ReplyBody::Stat(Stat::decode(r)?),
            ReplyKind::Data => ReplyBody::Data(r.buffer("data")?, Stat::decode(r)?),
            ReplyKind::Children => ReplyBody::Children(children(r)?),
            ReplyKind::Multi => ReplyBody::Multi(multi::decode_results(r)?),
            ReplyKind::Acl => ReplyBody::Acl(r.vector("acl", Acl::decode)?, Stat::decode(r)?),
            ReplyKind::Token => ReplyBody::Token(r.buffer("token")?),
            ReplyKind::NullPath => match r.int("null path")? {
                -1 => ReplyBody::NullPath,
                length => return Err(Malformed::Length { field: "null path", length }),
            },
            ReplyKind::Number => ReplyBody::Number(r.int("number")?),
            ReplyKind::Identities => ReplyBody::Identities(r.vector("clientInfo", Id::decode)?),
            ReplyKind::ChildrenStat => ReplyBody::ChildrenStat(children(r)?, Stat::decode(r)?),
        })
    }
}

impl WatchEvent {
    /// Appends the event as a frame; the state sent is always 3, SyncConnected (WIRE-07).
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| {
            out.put_i32(XID_EVENT);
            out.put_i64(self.zxid.map_or(-1, Zxid::wire));
            out.put_i32(0);
            out.put_i32(self.event as i32);
            out.put_i32(3);
            put_text(out, &self.path);
        });
    }

    pub(super) fn decode(zxid: i64, r: &mut Reader) -> Result<WatchEvent, Malformed> {
        let event = EventType::from_wire(r.int("event type")?)?;
        r.int("event state")?;
        let path = r.text("path")?;
        Ok(WatchEvent { zxid: u64::try_from(zxid).ok().map(Zxid), event, path })
    }
}
