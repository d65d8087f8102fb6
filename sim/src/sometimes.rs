//! What must come about now and then, or the oracles look at worlds in which nothing interesting happens.
//!
//! Owns the list. Each is judged by the simulator, from what it alone sees, and is counted like a mark. Must not
//! influence the run.

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "`sentence` is the documentation")]
pub enum Sometimes {
    TwoLeaders,
    NobodyUp,
    UncommittedCut,
    LeaderEndsUncommitted,
    FarBehind,
    RecoveryMended,
    TornWrite,
    PromiseLost,
}

impl Sometimes {
    /// All of them, in order.
    pub const ALL: [Sometimes; 8] = [
        Sometimes::TwoLeaders,
        Sometimes::NobodyUp,
        Sometimes::UncommittedCut,
        Sometimes::LeaderEndsUncommitted,
        Sometimes::FarBehind,
        Sometimes::RecoveryMended,
        Sometimes::TornWrite,
        Sometimes::PromiseLost,
    ];

    /// What happens.
    pub fn sentence(self) -> &'static str {
        match self {
            Sometimes::TwoLeaders => "two servers serve as leaders at once",
            Sometimes::NobodyUp => "no server is up, after some were",
            Sometimes::UncommittedCut => "a follower is told to cut off transactions",
            Sometimes::LeaderEndsUncommitted => {
                "a leader ends with proposals that it has not committed"
            }
            Sometimes::FarBehind => "a client asks a server that is 100 transactions behind",
            Sometimes::RecoveryMended => "recovery mends what a crash has left",
            Sometimes::TornWrite => "a power failure keeps a part of a write",
            Sometimes::PromiseLost => "a server ends before its promise of an epoch is durable",
        }
    }
}
