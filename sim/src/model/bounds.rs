//! How large answers and transactions are, and whether that is allowed.
//!
//! Owns the sums. Must not know what is in the tree.

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{Acl, MultiResult};

use super::Rules;

/// About as much as the header, the number and the stat of a part take.
const PART: usize = 20;
/// See `PART`.
const PART_WITH_STAT: usize = 90;

impl Rules {
    /// Is something of this size let through?
    pub(super) fn fits(&self, bytes: usize) -> Result<(), ErrorCode> {
        if self.record_bytes == 0 || bytes <= self.record_bytes {
            Ok(())
        } else {
            Err(ErrorCode::Marshalling)
        }
    }
}

/// What clients have put into it.
pub(super) fn of_op(op: &TxnOp) -> usize {
    let list = |acl: &[Acl]| -> usize {
        acl.iter().map(|Acl { scheme, id, .. }| 8 + scheme.len() + id.len()).sum()
    };
    let of = |data: &Option<Bytes>| data.as_ref().map_or(0, Bytes::len);
    match op {
        TxnOp::Create { path, data, acl, .. } => path.len() + of(data) + list(acl),
        TxnOp::SetData { path, data, .. } => path.len() + of(data),
        TxnOp::SetAcl { path, acl, .. } => path.len() + list(acl),
        TxnOp::Delete { path } | TxnOp::Check { path } => path.len(),
        TxnOp::Multi(ops) => ops.iter().map(of_op).sum(),
        TxnOp::CreateSession { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession
        | TxnOp::MultiRefused { .. }
        | TxnOp::Error { .. } => 0,
    }
}

/// A list of names or paths: each has its length before it.
pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| 4 + name.len()).sum()
}

/// A part of a multiRead.
pub(super) fn of_part(part: &MultiResult) -> usize {
    match part {
        MultiResult::Data(data, _) => PART_WITH_STAT + data.as_ref().map_or(0, Bytes::len),
        MultiResult::Children(names) => PART + of_names(names),
        MultiResult::Created(_)
        | MultiResult::CreatedStat(..)
        | MultiResult::Changed(_)
        | MultiResult::Deleted
        | MultiResult::Checked
        | MultiResult::Failed(_) => PART,
    }
}
