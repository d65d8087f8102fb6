//! The operations of the workload, and their weights.
//!
//! Owns their names and weights. Must not know their arguments.

use std::fmt;

use crate::engine::seed::Rng;
use crate::engine::selection::{Selectable, Selection};

/// An operation of the workload.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the names are the operations'")]
pub enum Op {
    Create,
    CreateEphemeral,
    CreateSequential,
    Delete,
    SetData,
    GetData,
    Exists,
    GetChildren,
    Sync,
    CheckWatches,
    RemoveWatches,
    Multi,
    GetAcl,
    SetAcl,
    MultiRead,
    GetEphemerals,
    GetAllChildrenNumber,
    WhoAmI,
    Auth,
    AddWatch,
    Container,
    Ttl,
    Quota,
    Reconfig,
}

/// Relative frequency of each operation.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct OpMix([u64; Op::ALL.len()]);

impl Op {
    /// All operations, in order.
    pub const ALL: [Op; 24] = [
        Op::Create,
        Op::CreateEphemeral,
        Op::CreateSequential,
        Op::Delete,
        Op::SetData,
        Op::GetData,
        Op::Exists,
        Op::GetChildren,
        Op::Sync,
        Op::CheckWatches,
        Op::RemoveWatches,
        Op::Multi,
        Op::GetAcl,
        Op::SetAcl,
        Op::MultiRead,
        Op::GetEphemerals,
        Op::GetAllChildrenNumber,
        Op::WhoAmI,
        Op::Auth,
        Op::AddWatch,
        Op::Container,
        Op::Ttl,
        Op::Quota,
        Op::Reconfig,
    ];

    /// The name that reports use.
    pub fn name(self) -> &'static str {
        match self {
            Op::Create => "create",
            Op::CreateEphemeral => "ephemeral",
            Op::CreateSequential => "sequential",
            Op::Delete => "delete",
            Op::SetData => "setData",
            Op::GetData => "getData",
            Op::Exists => "exists",
            Op::GetChildren => "getChildren",
            Op::Sync => "sync",
            Op::CheckWatches => "checkWatches",
            Op::RemoveWatches => "removeWatches",
            Op::Multi => "multi",
            Op::GetAcl => "getACL",
            Op::SetAcl => "setACL",
            Op::MultiRead => "multiRead",
            Op::GetEphemerals => "getEphemerals",
            Op::GetAllChildrenNumber => "getAllChildrenNumber",
            Op::WhoAmI => "whoAmI",
            Op::Auth => "auth",
            Op::AddWatch => "addWatch",
            Op::Container => "container",
            Op::Ttl => "ttl",
            Op::Quota => "quota",
            Op::Reconfig => "reconfig",
        }
    }
}

impl OpMix {
    /// About as many reads as writes, and no reconfigurations.
    pub fn usual() -> OpMix {
        OpMix([12, 8, 6, 14, 14, 14, 10, 12, 4, 2, 3, 8, 2, 3, 4, 2, 2, 1, 1, 4, 5, 5, 4, 0])
    }

    /// Gives an operation this weight.
    pub fn set(&mut self, op: Op, weight: u64) {
        self.0[op as usize] = weight;
    }

    /// The usual mix, varied; a wide one omits half of the operations. Creates are always included.
    pub fn draw(wide: bool, rng: &mut Rng) -> OpMix {
        let OpMix(mut weights) = OpMix::usual();
        for weight in &mut weights[..Op::Reconfig as usize] {
            let (on, factor) = (!wide || rng.chance(1, 2), rng.range(1, 4));
            *weight = if on { *weight * factor } else { 0 };
        }
        weights[Op::Create as usize] = weights[Op::Create as usize].max(10);
        OpMix(weights)
    }

    /// Applies the command line's selections. If no drawn operation remains, the selections apply
    /// to the usual mix.
    pub fn select(&mut self, selections: &[Selection<Op>]) {
        self.apply(selections);
        if self.is_empty() {
            *self = OpMix::usual();
            self.apply(selections);
        }
    }

    fn apply(&mut self, selections: &[Selection<Op>]) {
        let OpMix(usual) = OpMix::usual();
        for selection in selections {
            let OpMix(before) = *self;
            let (ops, on) = match selection {
                Selection::Add(ops) => (ops, true),
                Selection::Remove(ops) => (ops, false),
                Selection::Only(ops) => {
                    self.0 = [0; Op::ALL.len()];
                    (ops, true)
                }
            };
            for op in ops {
                let op = *op as usize;
                self.0[op] = match before[op] {
                    _ if !on => 0,
                    0 => usual[op].max(1),
                    weight => weight,
                };
            }
        }
    }

    /// Whether this operation is made.
    pub fn has(&self, op: Op) -> bool {
        self.0[op as usize] > 0
    }

    /// Whether no operation is made.
    pub fn is_empty(&self) -> bool {
        self.0.iter().all(|weight| *weight == 0)
    }

    /// The mix without some operations.
    pub fn without(&self, ops: &[Op]) -> OpMix {
        let mut weights = self.0;
        for op in ops {
            weights[*op as usize] = 0;
        }
        OpMix(weights)
    }

    /// The mix of a client that only reads, with many syncs, since reads without a sync may be
    /// stale. `None` if it has no operations.
    pub(super) fn reads(&self) -> Option<OpMix> {
        let weight = |op: Op| match op {
            Op::Sync => self.0[op as usize] * 4,
            Op::GetData
            | Op::Exists
            | Op::GetChildren
            | Op::GetAcl
            | Op::MultiRead
            | Op::GetAllChildrenNumber => self.0[op as usize],
            Op::GetEphemerals
            | Op::WhoAmI
            | Op::Auth
            | Op::AddWatch
            | Op::Container
            | Op::Ttl
            | Op::Quota
            | Op::Reconfig
            | Op::SetAcl
            | Op::Create
            | Op::CreateEphemeral
            | Op::CreateSequential
            | Op::Delete
            | Op::SetData
            | Op::CheckWatches
            | Op::RemoveWatches
            | Op::Multi => 0,
        };
        let weights = Op::ALL.map(weight);
        weights.iter().any(|&weight| weight > 0).then_some(OpMix(weights))
    }

    pub(super) fn pick(&self, rng: &mut Rng) -> Op {
        let mut left = rng.below(self.0.iter().sum());
        for op in Op::ALL {
            let weight = self.0[op as usize];
            if left < weight {
                return op;
            }
            left -= weight;
        }
        unreachable!("the number drawn is below the sum of the weights")
    }
}

impl Selectable for Op {
    const WHAT: &str = "operation";
    const FLAG: &str = "--ops";

    fn matching(name: &str) -> Vec<Op> {
        Op::ALL.into_iter().filter(|op| op.name().eq_ignore_ascii_case(name)).collect()
    }
}

impl fmt::Display for OpMix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for op in Op::ALL {
            if self.0[op as usize] > 0 {
                write!(f, "{separator}{}:{}", op.name(), self.0[op as usize])?;
                separator = " ";
            }
        }
        Ok(())
    }
}
