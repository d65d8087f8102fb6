//! Encoding and decoding of requests.
//!
//! Owns the encoded form of each operation. Must not validate it: `front/read` does for
//! reads, and `zab/propose/prep` for writes.

use bytes::{BufMut, Bytes, BytesMut};

use super::request::has_bad_mode;
use super::{
    Acl, AddWatchMode, OpCode, Reader, ReconfigRequest, Request, RequestFrame, Secret, SetWatches,
    WatcherType, multi, put_buffer, put_frame, put_text, put_vector, text_of,
};
use crate::error::Malformed;
use crate::ids::Zxid;

impl RequestFrame {
    /// Decodes a whole frame. Only a frame too short for its header is malformed: a bad body
    /// becomes a request of its own, so that its reply keeps its place among the replies.
    pub fn decode(frame: Bytes) -> Result<RequestFrame, Malformed> {
        let mut reader = Reader::new(frame);
        let xid = reader.int("request header")?;
        let number = reader.int("request header")?;
        let op = match OpCode::from_wire(number) {
            Some(op) if op != OpCode::Check => op,
            // Check is unknown outside a multi, as in late 3.9 (edge 55).
            Some(_) | None => {
                return Ok(RequestFrame { xid, request: Request::Unknown { op: number } });
            }
        };
        let request = match decode_body(op, &mut reader) {
            // ZooKeeper detects a bad mode before it detects the null.
            Ok(request) if reader.late_null && !has_bad_mode(&request) => {
                Request::NoPath { op, in_list: !reader.null_path }
            }
            Ok(request) => request,
            Err(_) if op == OpCode::Multi && reader.no_list => {
                Request::NoPath { op, in_list: false }
            }
            Err(_) => Request::Undecodable { op },
        };
        Ok(RequestFrame { xid, request })
    }

    /// Appends the request as a frame.
    pub fn encode(&self, out: &mut BytesMut) {
        put_frame(out, |out| {
            out.put_i32(self.xid);
            out.put_i32(self.request.op());
            encode_body(&self.request, out);
        });
    }
}

fn decode_body(op: OpCode, r: &mut Reader) -> Result<Request, Malformed> {
    Ok(match op {
        OpCode::Create | OpCode::Create2 => Request::Create {
            path: r.path()?,
            data: r.buffer("data")?,
            acl: Acl::decode_list(r)?,
            flags: r.int("flags")?,
            with_stat: op == OpCode::Create2,
        },
        OpCode::Delete => Request::Delete { path: r.path()?, version: r.int("version")? },
        OpCode::Exists => Request::Exists { path: r.path()?, watch: r.boolean("watch")? },
        OpCode::GetData => Request::GetData { path: r.path()?, watch: r.boolean("watch")? },
        OpCode::SetData => Request::SetData {
            path: r.path()?,
            data: r.buffer("data")?,
            version: r.int("version")?,
        },
        OpCode::GetChildren | OpCode::GetChildren2 => Request::GetChildren {
            path: r.path()?,
            watch: r.boolean("watch")?,
            with_stat: op == OpCode::GetChildren2,
        },
        OpCode::Sync => Request::Sync { path: r.path()? },
        OpCode::Check => Request::Check { path: r.path()?, version: r.int("version")? },
        OpCode::Multi => Request::Multi(multi::decode_requests(r, decode_body)?),
        OpCode::Ping => Request::Ping,
        OpCode::CheckWatches | OpCode::RemoveWatches => Request::Watches {
            path: r.path()?,
            kind: WatcherType::from_wire(r.int("watcher type")?)?,
            remove: op == OpCode::RemoveWatches,
        },
        OpCode::Auth => {
            r.int("auth type")?;
            let scheme = r.text_or_empty("scheme")?;
            Request::Auth { scheme, auth: Secret(r.buffer("auth")?) }
        }
        OpCode::Sasl => Request::Sasl { token: Secret(Some(r.bytes("token")?)) },
        OpCode::SetWatches => Request::SetWatches(SetWatches {
            relative_zxid: u64::try_from(r.long("relativeZxid")?).ok().map(Zxid),
            data: r.list("dataWatches", |r| r.text("path"))?,
            exist: r.list("existWatches", |r| r.text("path"))?,
            child: r.list("childWatches", |r| r.text("path"))?,
            persistent: Vec::new(),
            recursive: Vec::new(),
        }),
        OpCode::SetWatches2 => Request::SetWatches(SetWatches {
            relative_zxid: u64::try_from(r.long("relativeZxid")?).ok().map(Zxid),
            data: r.list("dataWatches", |r| r.text("path"))?,
            exist: r.list("existWatches", |r| r.text("path"))?,
            child: r.list("childWatches", |r| r.text("path"))?,
            persistent: r.list("persistentWatches", |r| r.text("path"))?,
            recursive: r.list("persistentRecursiveWatches", |r| r.text("path"))?,
        }),
        OpCode::GetAcl => Request::GetAcl { path: r.path()? },
        OpCode::SetAcl => Request::SetAcl {
            path: r.path()?,
            acl: Acl::decode_list(r)?,
            version: r.int("version")?,
        },
        OpCode::CreateContainer => Request::CreateContainer {
            path: r.path()?,
            data: r.buffer("data")?,
            acl: Acl::decode_list(r)?,
            flags: r.int("flags")?,
        },
        OpCode::CreateTtl => Request::CreateTtl {
            path: r.path()?,
            data: r.buffer("data")?,
            acl: Acl::decode_list(r)?,
            flags: r.int("flags")?,
            ttl: r.long("ttl")?,
        },
        OpCode::MultiRead => Request::MultiRead(multi::decode_reads(r, decode_body)?),
        OpCode::GetEphemerals => {
            // A null prefix asks for all ephemeral nodes.
            let prefix = r.buffer("prefixPath")?.unwrap_or_default();
            Request::GetEphemerals { prefix: text_of(&prefix) }
        }
        OpCode::GetAllChildrenNumber => Request::GetAllChildrenNumber { path: r.path()? },
        OpCode::AddWatch => {
            Request::AddWatch { path: r.path()?, mode: AddWatchMode::from_wire(r.int("mode")?)? }
        }
        OpCode::WhoAmI => Request::WhoAmI,
        OpCode::CloseSession => Request::CloseSession,
        OpCode::Reconfig => {
            let mut part = |field| Ok(r.buffer(field)?.map(|bytes| text_of(&bytes)));
            Request::Reconfigure(ReconfigRequest {
                joining: part("joiningServers")?,
                leaving: part("leavingServers")?,
                new_members: part("newMembers")?,
                version: r.long("curConfigId")?,
            })
        }
    })
}

fn encode_body(request: &Request, out: &mut BytesMut) {
    match request {
        Request::Create { path, data, acl, flags, .. } => {
            put_text(out, path);
            put_buffer(out, data.as_deref());
            put_vector(out, acl, |out, acl| acl.encode(out));
            out.put_i32(*flags);
        }
        Request::CreateContainer { path, data, acl, flags } => {
            put_text(out, path);
            put_buffer(out, data.as_deref());
            put_vector(out, acl, |out, acl| acl.encode(out));
            out.put_i32(*flags);
        }
        Request::CreateTtl { path, data, acl, flags, ttl } => {
            put_text(out, path);
            put_buffer(out, data.as_deref());
            put_vector(out, acl, |out, acl| acl.encode(out));
            out.put_i32(*flags);
            out.put_i64(*ttl);
        }
        Request::SetAcl { path, acl, version } => {
            put_text(out, path);
            put_vector(out, acl, |out, acl| acl.encode(out));
            out.put_i32(*version);
        }
        Request::AddWatch { path, mode } => {
            put_text(out, path);
            out.put_i32(*mode as i32);
        }
        Request::Multi(requests) | Request::MultiRead(requests) => {
            multi::encode_requests(requests, encode_body, out);
        }
        Request::Delete { path, version } | Request::Check { path, version } => {
            put_text(out, path);
            out.put_i32(*version);
        }
        Request::Exists { path, watch }
        | Request::GetData { path, watch }
        | Request::GetChildren { path, watch, .. } => {
            put_text(out, path);
            out.put_u8(u8::from(*watch));
        }
        Request::SetData { path, data, version } => {
            put_text(out, path);
            put_buffer(out, data.as_deref());
            out.put_i32(*version);
        }
        Request::Sync { path: text }
        | Request::GetAcl { path: text }
        | Request::GetAllChildrenNumber { path: text }
        | Request::GetEphemerals { prefix: text } => put_text(out, text),
        Request::Watches { path, kind, .. } => {
            put_text(out, path);
            out.put_i32(*kind as i32);
        }
        Request::Auth { scheme, auth } => {
            out.put_i32(0);
            put_text(out, scheme);
            put_buffer(out, auth.0.as_deref());
        }
        Request::Sasl { token } => put_buffer(out, token.0.as_deref()),
        Request::SetWatches(watches) => {
            out.put_i64(watches.relative_zxid.map_or(-1, Zxid::wire));
            for paths in [&watches.data, &watches.exist, &watches.child] {
                put_vector(out, paths, |out, path| put_text(out, path));
            }
            if !watches.is_plain() {
                for paths in [&watches.persistent, &watches.recursive] {
                    put_vector(out, paths, |out, path| put_text(out, path));
                }
            }
        }
        Request::Ping
        | Request::WhoAmI
        | Request::CloseSession
        | Request::Undecodable { .. }
        | Request::NoPath { .. }
        | Request::Throttled { .. }
        | Request::Unknown { .. } => {}
        Request::Reconfig => {
            (0..3).for_each(|_| put_buffer(out, None));
            out.put_i64(-1);
        }
        Request::Reconfigure(request) => {
            for part in [&request.joining, &request.leaving, &request.new_members] {
                put_buffer(out, part.as_ref().map(String::as_bytes));
            }
            out.put_i64(request.version);
        }
    }
}
