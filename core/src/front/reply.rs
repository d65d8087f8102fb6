//! Replies to writes, built when their transactions are applied (Java `FinalRequestProcessor`).
//!
//! Owns the conversion of a transaction to the form that the client asked for. Must not look at the
//! tree.

use std::cmp::Ordering;

use bytes::Bytes;

use crate::error::ErrorCode;
use crate::txn::TxnOp;
use crate::wire::{MultiResult, ReplyBody, Request, Stat};

/// The form of the reply to a write: the transaction has the results, the request determines their
/// form.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ReplyShape {
    /// The form of the operation itself.
    Plain,
    /// A create whose reply contains the Stat.
    WithStat,
    /// One form for each operation of a multi.
    Multi(Vec<ReplyShape>),
}

impl ReplyShape {
    pub(crate) fn of(request: &Request) -> ReplyShape {
        match request {
            Request::Multi(requests) => {
                ReplyShape::Multi(requests.iter().map(ReplyShape::of).collect())
            }
            Request::Create { with_stat: true, .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. } => ReplyShape::WithStat,
            Request::Create { with_stat: false, .. }
            | Request::Delete { .. }
            | Request::Exists { .. }
            | Request::GetData { .. }
            | Request::SetData { .. }
            | Request::GetChildren { .. }
            | Request::Sync { .. }
            | Request::Check { .. }
            | Request::Ping
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::SetWatches(_)
            | Request::CloseSession
            | Request::Undecodable { .. }
            | Request::Unknown { .. }
            | Request::GetAcl { .. }
            | Request::SetAcl { .. }
            | Request::MultiRead(_)
            | Request::GetEphemerals { .. }
            | Request::GetAllChildrenNumber { .. }
            | Request::AddWatch { .. }
            | Request::WhoAmI
            | Request::NoPath { .. }
            | Request::Sasl { .. }
            | Request::Reconfig
            | Request::Reconfigure(_)
            | Request::Throttled { .. } => ReplyShape::Plain,
        }
    }
}

/// Error code of the operations after the one that failed a multi (MULTI-03).
const RUNTIME_INCONSISTENCY: i32 = -2;

/// The reply to a write whose transaction is applied; `stats` are those of the nodes that it
/// created and changed, in order. `None` if the transaction is no decision on such a request.
pub(crate) fn of(
    form: &ReplyShape,
    op: &TxnOp,
    stats: &mut impl Iterator<Item = Stat>,
) -> Option<Result<ReplyBody, ErrorCode>> {
    Some(Ok(match op {
        TxnOp::Error { code } => return Some(Err(*code)),
        TxnOp::Create { .. } | TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => {
            match part(form, op, stats)? {
                MultiResult::Created(path) => ReplyBody::Path(path),
                MultiResult::CreatedStat(path, stat) => ReplyBody::PathStat(path, stat),
                MultiResult::Changed(stat) => ReplyBody::Stat(stat),
                MultiResult::Deleted
                | MultiResult::Checked
                | MultiResult::Failed(_)
                | MultiResult::Data(..)
                | MultiResult::Children(_) => return None,
            }
        }
        TxnOp::Reconfig { config } => {
            ReplyBody::Data(Some(Bytes::copy_from_slice(config.as_bytes())), stats.next()?)
        }
        TxnOp::Delete { .. }
        | TxnOp::Check { .. }
        | TxnOp::CreateSession { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession => ReplyBody::Empty,
        TxnOp::Multi(ops) => {
            let ReplyShape::Multi(forms) = form else { return None };
            let parts = ops.iter().zip(forms).map(|(op, form)| part(form, op, stats));
            ReplyBody::Multi(parts.collect::<Option<_>>()?)
        }
        TxnOp::MultiRefused { count, failed, code } => {
            let refusal = |index: u32| match index.cmp(failed) {
                Ordering::Less => MultiResult::Failed(0),
                Ordering::Equal => MultiResult::Failed(code.wire()),
                Ordering::Greater => MultiResult::Failed(RUNTIME_INCONSISTENCY),
            };
            ReplyBody::Multi((0..*count).map(refusal).collect())
        }
    }))
}

/// The result of one operation; `None` if a multi cannot contain the operation.
fn part(
    form: &ReplyShape,
    op: &TxnOp,
    stats: &mut impl Iterator<Item = Stat>,
) -> Option<MultiResult> {
    let mut stat = || stats.next();
    Some(match op {
        TxnOp::Create { path, .. } => {
            let stat = stat()?;
            match form {
                ReplyShape::WithStat => MultiResult::CreatedStat(path.clone(), stat),
                ReplyShape::Plain | ReplyShape::Multi(_) => MultiResult::Created(path.clone()),
            }
        }
        TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => MultiResult::Changed(stat()?),
        TxnOp::Delete { .. } => MultiResult::Deleted,
        TxnOp::Check { .. } => MultiResult::Checked,
        TxnOp::CreateSession { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::Reconfig { .. }
        | TxnOp::CloseSession
        | TxnOp::Multi(_)
        | TxnOp::MultiRefused { .. }
        | TxnOp::Error { .. } => return None,
    })
}
