//! Which operations the core serves, so that the workload asks for no others.
//!
//! Owns one list. An operation stands here from the day on which the core answers it.

use crate::workload::Op;

/// Do clients have identities other than their address, and do lists name them?
pub const IDENTITIES: bool = true;

/// Are there containers, nodes with a time to live, and quotas?
pub const LIFETIMES: bool = true;

/// Does the core serve it?
pub fn serves(op: Op) -> bool {
    match op {
        Op::Create
        | Op::CreateEphemeral
        | Op::CreateSequential
        | Op::Delete
        | Op::SetData
        | Op::GetData
        | Op::Exists
        | Op::GetChildren
        | Op::Sync
        | Op::CheckWatches
        | Op::RemoveWatches
        | Op::Multi
        | Op::GetAcl
        | Op::SetAcl
        | Op::MultiRead
        | Op::GetEphemerals
        | Op::GetAllChildrenNumber
        | Op::WhoAmI
        | Op::AddWatch => true,
        Op::Auth => IDENTITIES,
        Op::Container | Op::Ttl | Op::Quota => LIFETIMES,
    }
}
