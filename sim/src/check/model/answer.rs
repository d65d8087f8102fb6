//! The right answer to a write, after it has become a transaction.
//!
//! Owns the results of transactions, operation by operation. Must not read the present state: stats
//! were noted when the transaction was applied, because later operations of a multi may have
//! changed the nodes again.

use std::cmp::Ordering;

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{MultiResult, ReplyBody, ReplyKind, Request, Stat};

use super::Logged;

/// ZooKeeper's `RUNTIMEINCONSISTENCY`: the result of operations behind the failed one of a multi
/// (MULTI-03).
const AFTER_THE_FAILURE: i32 = -2;

impl Logged {
    /// The answer to the request that became this transaction.
    pub fn answer(&self, request: &Request) -> Result<ReplyBody, ErrorCode> {
        let stat = || *self.stats.first().expect("noted for each creation and change of data");
        Ok(match &self.txn.op {
            TxnOp::Error { code } => return Err(*code),
            TxnOp::Create { path, .. } if request.reply_kind() == ReplyKind::PathStat => {
                ReplyBody::PathStat(path.clone(), stat())
            }
            TxnOp::Create { path, .. } => ReplyBody::Path(path.clone()),
            TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => ReplyBody::Stat(stat()),
            TxnOp::Multi(ops) => ReplyBody::Multi(done(request, ops, &self.stats)),
            TxnOp::MultiRefused { count, failed, code } => {
                ReplyBody::Multi((0..*count).map(|index| refused(index, *failed, *code)).collect())
            }
            TxnOp::Reconfig { config } => {
                ReplyBody::Data(Some(Bytes::copy_from_slice(config.as_bytes())), stat())
            }
            TxnOp::Delete { .. }
            | TxnOp::Check { .. }
            | TxnOp::CreateSession { .. }
            | TxnOp::UpgradeSession { .. }
            | TxnOp::MoveSession { .. }
            | TxnOp::CloseSession => ReplyBody::Empty,
        })
    }
}

/// The results of a successful multi (MULTI-02): each shows its node right after its operation.
fn done(request: &Request, ops: &[TxnOp], stats: &[Stat]) -> Vec<MultiResult> {
    let Request::Multi(requests) = request else {
        return Vec::new();
    };
    let mut stats = stats.iter().copied();
    let mut stat = || stats.next().expect("noted for each creation and change of data");
    let result = |(request, op): (&Request, &TxnOp)| match op {
        TxnOp::Create { path, .. } => match (request.reply_kind() == ReplyKind::PathStat, stat()) {
            (true, stat) => MultiResult::CreatedStat(path.clone(), stat),
            (false, _) => MultiResult::Created(path.clone()),
        },
        TxnOp::SetData { .. } | TxnOp::SetAcl { .. } => MultiResult::Changed(stat()),
        TxnOp::Delete { .. } => MultiResult::Deleted,
        TxnOp::Check { .. }
        | TxnOp::Multi(_)
        | TxnOp::MultiRefused { .. }
        | TxnOp::CreateSession { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession
        | TxnOp::Reconfig { .. }
        | TxnOp::Error { .. } => MultiResult::Checked,
    };
    requests.iter().zip(ops).map(result).collect()
}

fn refused(index: u32, failed: u32, code: ErrorCode) -> MultiResult {
    MultiResult::Failed(match index.cmp(&failed) {
        Ordering::Less => 0,
        Ordering::Equal => code.wire(),
        Ordering::Greater => AFTER_THE_FAILURE,
    })
}
