//! What a server sends, from bytes to records: the client library and the simulator's taps read with this.
//!
//! Owns the order of frames on a connection as a client sees it. Must not know which request a reply belongs to:
//! the caller does, and says what body it expects.

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
    /// The answer to a request; its body waits for [`FromServer::reply`].
    Reply {
        /// Of the request.
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
    /// Accepts frames of up to `limit` bytes; servers put no bound on their answers, so be generous.
    pub fn new(limit: u32) -> ServerFrames {
        ServerFrames { frames: FrameReader::new(limit) }
    }

    /// The handshake's answer, once it has arrived.
    ///
    /// # Errors
    /// Bytes that are no such record.
    pub fn first(&self, buffer: &mut BytesMut) -> Result<Option<ConnectResponse>, Malformed> {
        self.frames.next(buffer)?.map(ConnectResponse::decode).transpose()
    }

    /// The next frame after the handshake.
    ///
    /// # Errors
    /// Bytes that are neither a reply nor an event.
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

    /// The reply as a record, its body read as `kind`. An error code that no server of ours sends is malformed.
    ///
    /// # Errors
    /// A body that is not of that kind.
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
