//! Approximate sizes of answers and transactions, and their bound.
//!
//! Owns the sizes. Must not know the tree.

use bytes::Bytes;
use zabkeeper_core::ErrorCode;
use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{Acl, MultiResult};

use super::Rules;

/// Approximate bytes of a part's header and number.
const PART: usize = 20;
/// Approximate bytes of a part's header, number and stat.
const PART_WITH_STAT: usize = 90;

impl Rules {
    /// Whether a record of this size is allowed; `Marshalling` if not.
    pub(super) fn fits(&self, bytes: usize) -> Result<(), ErrorCode> {
        if self.record_bytes == 0 || bytes <= self.record_bytes {
            Ok(())
        } else {
            Err(ErrorCode::Marshalling)
        }
    }
}

/// Bytes in an operation that come from its request.
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
        TxnOp::Reconfig { config } => config.len(),
        TxnOp::Multi(ops) => ops.iter().map(of_op).sum(),
        TxnOp::CreateSession { .. }
        | TxnOp::UpgradeSession { .. }
        | TxnOp::MoveSession { .. }
        | TxnOp::CloseSession
        | TxnOp::MultiRefused { .. }
        | TxnOp::Error { .. } => 0,
    }
}

/// Bytes of a list of names or paths, each with its length prefix.
pub(super) fn of_names<'a>(names: impl IntoIterator<Item = &'a String>) -> usize {
    names.into_iter().map(|name| 4 + name.len()).sum()
}

/// Bytes of a part of a multiRead.
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
