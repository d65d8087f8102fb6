//! Frames that a server sends, decoded into records. The client library and the simulator's taps
//! use this.
//!
//! Owns the order of frames on a connection as a client sees it. Must not know which request a
//! reply belongs to: the caller does, and passes the expected kind of body.

use bytes::{Bytes, BytesMut};

use super::{
    ConnectResponse, FrameReader, Reader, Reply, ReplyBody, ReplyKind, WatchEvent, XID_EVENT,
};
use crate::error::{ErrorCode, Malformed};

/// Reads a server's side of a connection.
#[derive(Clone, Copy, Debug)]
pub struct ServerFrames {
    frames: FrameReader,
}

/// A frame after the handshake.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FromServer {
    /// A watch has fired.
    Event(WatchEvent),
    /// The answer to a request; [`FromServer::reply`] decodes its body.
    Reply {
        /// xid of the request.
        xid: i32,
        /// Last transaction that the server had applied.
        zxid: i64,
        /// Zero, or an error code.
        err: i32,
        /// What follows the header.
        body: Bytes,
    },
}

impl ServerFrames {
    /// Accepts frames of up to `limit` bytes. ZooKeeper servers do not bound their replies, so the
    /// limit should be generous.
    pub fn new(limit: u32) -> ServerFrames {
        ServerFrames { frames: FrameReader::new(limit) }
    }

    /// The response to the handshake, once it has arrived.
    ///
    /// # Errors
    /// Bytes that are no such record, or a frame length outside the limit.
    pub fn first(&self, buffer: &mut BytesMut) -> Result<Option<ConnectResponse>, Malformed> {
        self.frames.next(buffer)?.map(ConnectResponse::decode).transpose()
    }

    /// The next frame after the handshake.
    ///
    /// # Errors
    /// Bytes that are neither a reply nor an event, or a frame length outside the limit.
    pub fn next(&self, buffer: &mut BytesMut) -> Result<Option<FromServer>, Malformed> {
        self.frames.next(buffer)?.map(FromServer::decode).transpose()
    }
}

impl FromServer {
    /// Decodes a whole frame that came after the handshake.
    ///
    /// # Errors
    /// A frame that is neither a reply nor an event.
    pub fn decode(frame: Bytes) -> Result<FromServer, Malformed> {
        let mut r = Reader::new(frame);
        let xid = r.int("reply header")?;
        let zxid = r.long("reply header")?;
        let err = r.int("reply header")?;
        if xid == XID_EVENT {
            return Ok(FromServer::Event(WatchEvent::decode(zxid, &mut r)?));
        }
        Ok(FromServer::Reply { xid, zxid, err, body: r.rest })
    }

    /// The reply as a record, its body decoded as `kind`.
    ///
    /// # Errors
    /// A body that is not of that kind, or a code that [`ErrorCode`] does not know.
    pub fn reply(
        xid: i32,
        zxid: i64,
        err: i32,
        body: Bytes,
        kind: ReplyKind,
    ) -> Result<Reply, Malformed> {
        let result = match err {
            0 => Ok(ReplyBody::decode(kind, &mut Reader::new(body))?),
            code => Err(ErrorCode::from_wire(code)
                .ok_or(Malformed::Value { field: "error code", value: code.into() })?),
        };
        Ok(Reply { xid, zxid, result })
    }
}
