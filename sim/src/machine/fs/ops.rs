//! Operations of a simulated disk: kinds, durations, and records.
//!
//! Owns the latency model. Must not change any file.

use std::fmt;
use std::rc::Rc;

use super::content::Span;
use crate::engine::seed::Rng;
use crate::record::trace::Fingerprint;

/// The kind of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[expect(missing_docs, reason = "the methods of `Vfs`")]
pub enum OpKind {
    List = 1,
    Create = 2,
    Open = 3,
    Rename = 4,
    Remove = 5,
    SyncDir = 6,
    Read = 7,
    Write = 8,
    Preallocate = 9,
    Truncate = 10,
    Sync = 11,
}

impl OpKind {
    /// Whether it changes what later operations find.
    pub fn changes(self) -> bool {
        match self {
            OpKind::List | OpKind::Open | OpKind::Read => false,
            OpKind::Create
            | OpKind::Rename
            | OpKind::Remove
            | OpKind::SyncDir
            | OpKind::Write
            | OpKind::Preallocate
            | OpKind::Truncate
            | OpKind::Sync => true,
        }
    }
}

/// A recorded operation, for the trace and for choosing crash points.
#[derive(Clone, Debug)]
pub struct Op {
    /// The kind.
    pub kind: OpKind,
    /// The file's name.
    pub name: Rc<str>,
    /// The offset, or the new size.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// Digest of the bytes written.
    pub digest: u64,
    /// When.
    pub span: Span,
}

/// How a sync fails.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FsyncFault {
    /// One error; the pages are clean afterwards, so later syncs succeed without making them
    /// durable.
    PagesLost,
}

/// Durations of operations, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pace {
    /// Mean duration of a sync; one in a thousand takes a hundred times as long.
    pub sync_mean: u64,
    /// Mean duration of every other operation.
    pub op_mean: u64,
    /// Additional duration per KiB written or read.
    pub per_kib: u64,
    /// Every operation takes exactly the mean.
    pub steady: bool,
}

impl Pace {
    /// Every operation takes 1 us.
    pub const STEADY: Pace = Pace { sync_mean: 1_000, op_mean: 1_000, per_kib: 0, steady: true };

    /// Operations take no time.
    pub const INSTANT: Pace = Pace { sync_mean: 0, op_mean: 0, per_kib: 0, steady: true };

    /// The pace of a usual disk, or its own if that is faster: the healed disk must carry the load
    /// that was drawn for it (seed 0x1c0000000133 of the swarm: syncs of 58 us became syncs of 1
    /// ms, too slow without group commit).
    pub(super) fn calm(self) -> Pace {
        Pace {
            sync_mean: self.sync_mean.min(1_000_000),
            op_mean: self.op_mean.min(10_000),
            per_kib: self.per_kib.min(500),
            steady: self.steady,
        }
    }

    pub(super) fn draw(self, kind: OpKind, length: u64, rng: &mut Rng) -> u64 {
        if self.op_mean == 0 {
            return 0;
        }
        let mut spread = |mean| if self.steady { mean } else { rng.exponential(mean) };
        match kind {
            OpKind::Sync | OpKind::SyncDir => {
                let took = spread(self.sync_mean);
                let tail = if !self.steady && rng.chance(1, 1_000) { 100 } else { 1 };
                1 + took * tail
            }
            OpKind::List
            | OpKind::Create
            | OpKind::Open
            | OpKind::Rename
            | OpKind::Remove
            | OpKind::Read
            | OpKind::Write
            | OpKind::Preallocate
            | OpKind::Truncate => 1 + spread(self.op_mean) + length / 1024 * self.per_kib,
        }
    }
}

/// Fingerprint of written bytes.
pub(super) fn digest(bytes: &[u8]) -> u64 {
    let mut print = Fingerprint::default();
    print.bytes(bytes);
    print.short()
}

impl Op {
    /// The operation as numbers, for the trace's hash.
    pub fn words(&self) -> [u64; 6] {
        [
            self.kind as u64,
            self.offset,
            self.length,
            self.digest ^ digest(self.name.as_bytes()),
            self.span.begin.0,
            self.span.end.0,
        ]
    }
}

impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Op { kind, name, offset, length, span, .. } = self;
        let kind = format!("{kind:?}").to_lowercase();
        write!(f, "{kind:<11} {name:<24} @{offset} {length}B until {}", span.end)
    }
}
