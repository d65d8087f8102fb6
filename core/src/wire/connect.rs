//! The handshake: the first frame of each side.
//!
//! Owns its two records. Must not validate them: `front/handshake` does.

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::{Reader, put_buffer, put_frame};
use crate::error::Malformed;
use crate::ids::{SessionId, Zxid};

/// Session password: 16 bytes (HS-08).
pub type Password = [u8; 16];

/// First frame of a client (HS-01).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectRequest {
    /// Highest zxid that the client has seen; a server that is behind it refuses the client
    /// (HS-05).
    pub last_zxid_seen: Zxid,
    /// Requested session timeout, ms.
    pub timeout_ms: i32,
    /// Session to resume; zero asks for a new one.
    pub session: SessionId,
    /// Password of the session to resume.
    pub password: Bytes,
    /// Does the client accept a read-only server? Old clients omit the field, and so does the
    /// response to them.
    pub read_only: Option<bool>,
}

/// Answer to [`ConnectRequest`] (HS-02).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectResponse {
    /// Negotiated session timeout, ms; zero refuses the session (HS-10).
    pub timeout_ms: i32,
    /// The session; zero if refused.
    pub session: SessionId,
    /// Password of the session.
    pub password: Password,
    /// Is the server read-only? Sent only to clients that sent the field.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// The response to a wrong password, and to an unknown or expired session (HS-10).
    pub fn refused(read_only: Option<bool>) -> ConnectResponse {
        ConnectResponse {
            timeout_ms: 0,
            session: SessionId(0),
            password: [0; 16],
            read_only: read_only.map(|_| false),
        }
    }
}

impl ConnectRequest {
    /// Decodes the first frame of a connection.
    pub fn decode(frame: Bytes) -> Result<ConnectRequest, Malformed> {
        let mut r = Reader::new(frame);
        r.int("protocolVersion")?;
        Ok(ConnectRequest {
            last_zxid_seen: Zxid::from_wire(r.long("lastZxidSeen")?),
            timeout_ms: r.int("timeOut")?,
            session: SessionId(r.long("sessionId")?),
            password: r.buffer("passwd")?.unwrap_or_default(),
            read_only: if r.is_empty() { None } else { Some(r.boolean("readOnly")?) },
        })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| {
            out.put_i32(0);
            out.put_i64(self.last_zxid_seen.wire());
            out.put_i32(self.timeout_ms);
            out.put_i64(self.session.0);
            put_buffer(out, Some(&self.password));
            if let Some(read_only) = self.read_only {
                out.put_u8(u8::from(read_only));
            }
        });
    }
}

impl ConnectResponse {
    /// Decodes the first frame that a server sends.
    pub fn decode(frame: Bytes) -> Result<ConnectResponse, Malformed> {
        let mut r = Reader::new(frame);
        r.int("protocolVersion")?;
        let timeout_ms = r.int("timeOut")?;
        let session = SessionId(r.long("sessionId")?);
        let password = r.buffer("passwd")?.unwrap_or_default();
        let length = i32::try_from(password.len()).unwrap_or(i32::MAX);
        let password = Password::try_from(&password[..])
            .map_err(|_| Malformed::Length { field: "passwd", length })?;
        let read_only = if r.is_empty() { None } else { Some(r.boolean("readOnly")?) };
        Ok(ConnectResponse { timeout_ms, session, password, read_only })
    }

    /// Appends the response as a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| {
            out.put_i32(0);
            out.put_i32(self.timeout_ms);
            out.put_i64(self.session.0);
            put_buffer(out, Some(&self.password));
            if let Some(read_only) = self.read_only {
                out.put_u8(u8::from(read_only));
            }
        });
    }
}
