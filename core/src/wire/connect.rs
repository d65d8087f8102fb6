//! The handshake: the first frame of either side.
//!
//! Owns its two records. Must not judge them: `server` does.

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
    /// Highest zxid that the client has seen; a server behind it refuses (HS-05).
    pub last_zxid_seen: Zxid,
    /// Session timeout asked for, ms.
    pub timeout_ms: i32,
    /// Zero asks for a new session.
    pub session: SessionId,
    /// Password of the session to go on with.
    pub password: Bytes,
    /// Would the client take a read-only server? Old clients do not send the field, and then get none back.
    pub read_only: Option<bool>,
}

/// Answer to [`ConnectRequest`] (HS-02).
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct ConnectResponse {
    /// Negotiated session timeout, ms; zero refuses the session (HS-10).
    pub timeout_ms: i32,
    /// The session, zero where refused.
    pub session: SessionId,
    /// Its password.
    pub password: Password,
    /// Is the server read-only? Sent only to clients that sent the field.
    pub read_only: Option<bool>,
}

impl ConnectResponse {
    /// The answer to a wrong password, an unknown or an expired session (HS-10).
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
