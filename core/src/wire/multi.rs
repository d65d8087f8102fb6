//! The framing of multi: operations and results, each after a small header (MULTI-02, MULTI-03,
//! REC-04).
//!
//! Owns that framing. Must not know what the operations do.

use std::mem;

use bytes::{BufMut, Bytes, BytesMut};
use serde::{Deserialize, Serialize};

use super::request::{changes_or_checks, has_bad_mode};
use super::{OpCode, Reader, Request, Stat, put_buffer, put_text, put_vector};
use crate::error::Malformed;

/// Header type of the end marker and of failed results.
const NONE: i32 = -1;

/// Create flags that a multi may contain; other flags make the whole multi undecodable (edge 91).
const CREATE_FLAGS: std::ops::RangeInclusive<i32> = 0..=4;
/// Flags of TTL nodes, which only createTTL can create.
const TTL_FLAGS: std::ops::RangeInclusive<i32> = 5..=6;
/// Flag of a container. In a multi, it makes a container whatever the create operation (DATA-24).
const CONTAINER: i32 = 4;

/// Result of one operation of a multi.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum MultiResult {
    /// create: the path.
    Created(String),
    /// create2: the path and the new node.
    CreatedStat(String, Stat),
    /// setData.
    Changed(Stat),
    /// delete.
    Deleted,
    /// check.
    Checked,
    /// The multi failed: zero for operations before the failed one, its error code there, -2 after
    /// it. In a multiRead: error code of this operation.
    Failed(i32),
    /// getData.
    Data(Option<Bytes>, Stat),
    /// getChildren.
    Children(Vec<String>),
}

/// Decodes the body of one operation.
type DecodeBody = fn(OpCode, &mut Reader) -> Result<Request, Malformed>;

/// The operations of a multi.
pub(super) fn decode_requests(
    r: &mut Reader,
    decode_body: DecodeBody,
) -> Result<Vec<Request>, Malformed> {
    let (kind, requests) = decode_parts(r, decode_body)?;
    if let Some(read) = kind.filter(|op| !changes_or_checks(*op)) {
        return Err(Malformed::Value { field: "multi operation", value: read.wire().into() });
    }
    if r.null_path {
        // ZooKeeper parses all paths before it decides any operation.
        return Err(Malformed::Length { field: "path", length: -1 });
    }
    Ok(requests)
}

fn is_read(op: OpCode) -> bool {
    matches!(op, OpCode::GetData | OpCode::GetChildren)
}

/// Checks an operation of a multi as ZooKeeper does while it decodes the operation.
fn check_operation(op: OpCode, mut request: Request, r: &mut Reader) -> Result<Request, Malformed> {
    let no_list = mem::take(&mut r.no_list);
    let late_null = mem::take(&mut r.late_null);
    if let Request::Create { flags, .. } | Request::CreateContainer { flags, .. } = &request {
        let bad = Malformed::Value { field: "create flags", value: (*flags).into() };
        if !CREATE_FLAGS.contains(flags) && !TTL_FLAGS.contains(flags) {
            return Err(bad);
        }
        if no_list {
            // Outside a multi, a create with a null list is refused like one with an empty list.
            r.no_list = true;
            return Err(Malformed::Length { field: "acl", length: -1 });
        }
        if TTL_FLAGS.contains(flags) {
            return Err(bad);
        }
    }
    by_mode(&mut request);
    // ZooKeeper detects this null only when it processes the operation.
    Ok(if late_null && !has_bad_mode(&request) {
        Request::NoPath { op, in_list: false }
    } else {
        request
    })
}

/// In a multi, the flags determine the kind of node: createTTL without a TTL flag is a plain create
/// (MULTI-02).
fn by_mode(request: &mut Request) {
    let timed = matches!(request, Request::CreateTtl { .. });
    if let Request::Create { path, data, acl, flags, .. }
    | Request::CreateTtl { path, data, acl, flags, .. } = request
        && (*flags == CONTAINER || timed && !TTL_FLAGS.contains(flags))
    {
        let (path, data, acl, flags) = (mem::take(path), mem::take(data), mem::take(acl), *flags);
        *request = if flags == CONTAINER {
            Request::CreateContainer { path, data, acl, flags }
        } else {
            Request::Create { path, data, acl, flags, with_stat: false }
        };
    }
}

/// The operations of a multiRead (OP-22).
pub(super) fn decode_reads(
    r: &mut Reader,
    decode_body: DecodeBody,
) -> Result<Vec<Request>, Malformed> {
    let (kind, mut reads) = decode_parts(r, decode_body)?;
    if let Some(op) = kind.filter(|op| changes_or_checks(*op)) {
        // ZooKeeper detects this only when it processes the first operation.
        return Ok(vec![Request::NoPath { op, in_list: false }]);
    }
    for read in &mut reads {
        // The record has a watch flag, which ZooKeeper ignores.
        if let Request::GetData { watch, .. } | Request::GetChildren { watch, .. } = read {
            *watch = false;
        }
    }
    Ok(reads)
}

/// All operations, and the opcode of the first one, which decides whether they are writes or reads.
fn decode_parts(
    r: &mut Reader,
    decode_body: DecodeBody,
) -> Result<(Option<OpCode>, Vec<Request>), Malformed> {
    let (mut first, mut requests) = (None, Vec::new());
    while let Some(kind) = header(r)? {
        // MULTI-06: reads among writes, writes among reads, and all other operations are refused.
        let bad = Malformed::Value { field: "multi operation", value: kind.into() };
        let op = OpCode::from_wire(kind).filter(|op| changes_or_checks(*op) || is_read(*op));
        let Some(op) = op else { return Err(bad) };
        let body = decode_body(op, r);
        if body.is_err() {
            // Truncation takes precedence over a null list.
            r.no_list = false;
        }
        requests.push(check_operation(op, body?, r)?);
        if changes_or_checks(*first.get_or_insert(op)) != changes_or_checks(op) {
            return Err(bad);
        }
    }
    Ok((first, requests))
}

pub(super) fn encode_requests(
    requests: &[Request],
    encode_body: fn(&Request, &mut BytesMut),
    out: &mut BytesMut,
) {
    for request in requests {
        if let Request::Create { flags, .. } = request
            && !CREATE_FLAGS.contains(flags)
            && !TTL_FLAGS.contains(flags)
        {
            // As a createTTL, only this operation is refused; as a create, its flags would make the
            // whole multi undecodable.
            put_header(out, OpCode::CreateTtl.wire(), false, -1);
            encode_body(request, out);
            out.put_i64(0);
            continue;
        }
        put_header(out, request.op(), false, -1);
        encode_body(request, out);
    }
    put_header(out, NONE, true, -1);
}

pub(super) fn encode_results(results: &[MultiResult], out: &mut BytesMut) {
    for result in results {
        let op = match result {
            MultiResult::Created(_) => OpCode::Create,
            MultiResult::CreatedStat(..) => OpCode::Create2,
            MultiResult::Changed(_) => OpCode::SetData,
            MultiResult::Deleted => OpCode::Delete,
            MultiResult::Checked => OpCode::Check,
            MultiResult::Data(..) => OpCode::GetData,
            MultiResult::Children(_) => OpCode::GetChildren,
            MultiResult::Failed(code) => {
                put_header(out, NONE, false, *code);
                out.put_i32(*code);
                continue;
            }
        };
        put_header(out, op.wire(), false, 0);
        match result {
            MultiResult::Created(path) => put_text(out, path),
            MultiResult::CreatedStat(path, stat) => {
                put_text(out, path);
                stat.encode(out);
            }
            MultiResult::Changed(stat) => stat.encode(out),
            MultiResult::Data(data, stat) => {
                put_buffer(out, data.as_deref());
                stat.encode(out);
            }
            MultiResult::Children(names) => put_vector(out, names, |out, name| put_text(out, name)),
            MultiResult::Deleted | MultiResult::Checked | MultiResult::Failed(_) => {}
        }
    }
    put_header(out, NONE, true, -1);
}

pub(super) fn decode_results(r: &mut Reader) -> Result<Vec<MultiResult>, Malformed> {
    let mut results = Vec::new();
    while let Some(kind) = header(r)? {
        results.push(match OpCode::from_wire(kind) {
            _ if kind == NONE => MultiResult::Failed(r.int("error")?),
            Some(OpCode::Create) => MultiResult::Created(r.text("path")?),
            Some(OpCode::Create2) => MultiResult::CreatedStat(r.text("path")?, Stat::decode(r)?),
            Some(OpCode::SetData) => MultiResult::Changed(Stat::decode(r)?),
            Some(OpCode::Delete) => MultiResult::Deleted,
            Some(OpCode::Check) => MultiResult::Checked,
            Some(OpCode::GetData) => MultiResult::Data(r.buffer("data")?, Stat::decode(r)?),
            Some(OpCode::GetChildren) => {
                MultiResult::Children(r.vector("children", |r| r.text("child"))?)
            }
            Some(_) | None => {
                return Err(Malformed::Value { field: "multi result", value: kind.into() });
            }
        });
    }
    Ok(results)
}

/// The type of the next entry; `None` at the end marker.
fn header(r: &mut Reader) -> Result<Option<i32>, Malformed> {
    let kind = r.int("multi header")?;
    let done = r.boolean("multi header")?;
    r.int("multi header")?;
    Ok((!done).then_some(kind))
}

fn put_header(out: &mut BytesMut, kind: i32, done: bool, err: i32) {
    out.put_i32(kind);
    out.put_u8(u8::from(done));
    out.put_i32(err);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::RequestFrame;

    /// A multi whose create has a null list, truncated after `length` bytes.
    fn without_a_list(length: usize) -> Request {
        let mut frame = BytesMut::new();
        for number in [1, OpCode::Multi.wire(), OpCode::Create.wire()] {
            frame.put_i32(number);
        }
        frame.put_u8(0);
        for number in [-1, 2] {
            frame.put_i32(number);
        }
        frame.put_slice(b"/a");
        // Null data, null list, flags, and the end marker.
        for number in [-1, -1, 0, -1] {
            frame.put_i32(number);
        }
        frame.put_u8(1);
        frame.put_i32(-1);
        frame.truncate(length);
        RequestFrame::decode(frame.freeze()).expect("has a header").request
    }

    /// MULTI-02.
    #[test]
    fn truncation_takes_precedence_over_null_list_in_multi() {
        // As on a real ZooKeeper: only the first of these takes a zxid.
        assert_eq!(without_a_list(33), Request::Undecodable { op: OpCode::Multi });
        assert_eq!(
            without_a_list(usize::MAX),
            Request::NoPath { op: OpCode::Multi, in_list: false }
        );
    }
}
