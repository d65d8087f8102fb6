//! Cost of requests, in the units of work that [`Outbox`](crate::Outbox) counts.
//!
//! Owns the estimates. They depend only on requests and replies, so all servers count alike. Must
//! not refuse anything.

use bytes::Bytes;

use crate::txn::TxnOp;
use crate::wire::{MultiResult, ReplyBody, Request, SetWatches};

/// Cost of the paths or operations that a request names, beyond the step that processes it.
pub(crate) fn of_request(request: &Request) -> u64 {
    if let Request::SetWatches(request) = request {
        let SetWatches { data, exist, child, persistent, recursive, .. } = request;
        return [data, exist, child, persistent, recursive]
            .map(|paths| paths.len() as u64)
            .iter()
            .sum();
    }
    if let Request::MultiRead(requests) = request {
        return requests.len() as u64;
    }
    0
}

/// Cost of the reply to a read.
pub(crate) fn of_answer(body: &ReplyBody) -> u64 {
    match body {
        ReplyBody::Data(data, _) | ReplyBody::Token(data) => payload(data.as_ref()),
        ReplyBody::Children(names) | ReplyBody::ChildrenStat(names, _) => of_names(names),
        ReplyBody::Multi(parts) | ReplyBody::BrokenMulti(parts) => parts.iter().map(of_part).sum(),
        ReplyBody::Acl(list, _) => list.len() as u64,
        ReplyBody::Identities(ids) => ids.len() as u64,
        ReplyBody::Empty
        | ReplyBody::Path(_)
        | ReplyBody::PathStat(..)
        | ReplyBody::Stat(_)
        | ReplyBody::Number(_)
        | ReplyBody::NullPath => 0,
    }
}

/// Cost of deciding a write and appending it to the log.
pub(crate) fn of_decision(op: &TxnOp) -> u64 {
    let operations = if let TxnOp::Multi(ops) = op { ops.len() as u64 } else { 1 };
    operations + of_bytes(op.size())
}

fn of_part(part: &MultiResult) -> u64 {
    match part {
        MultiResult::Data(data, _) => payload(data.as_ref()),
        MultiResult::Children(names) => of_names(names),
        MultiResult::Created(_)
        | MultiResult::CreatedStat(..)
        | MultiResult::Changed(_)
        | MultiResult::Deleted
        | MultiResult::Checked
        | MultiResult::Failed(_) => 0,
    }
}

fn of_names(names: &[String]) -> u64 {
    names.len() as u64 + of_bytes(names.iter().map(String::len).sum())
}

fn payload(data: Option<&Bytes>) -> u64 {
    of_bytes(data.map_or(0, Bytes::len))
}

/// Cost of copying or scanning bytes: one unit per KiB.
pub(crate) fn of_bytes(bytes: usize) -> u64 {
    bytes as u64 >> 10
}
