//! Injection of disk faults: durations and severities.
//!
//! Owns these draws. Must not decide when a fault is injected, nor its effect on operations: `disk`
//! and `ops` do.

use zabkeeper_core::Instant;

use super::{Disk, FsyncFault};
use crate::engine::seed::Rng;
use crate::faults::catalog::Fault;

const MS: u64 = 1_000_000;

/// Injects the fault. Returns whether it is a disk fault.
pub fn disturb(disk: &mut Disk, fault: Fault, rng: &mut Rng, now: Instant) -> bool {
    if fault == Fault::DiskSlow {
        disk.trouble.slowness = rng.range(10, 100);
        disk.trouble.slow_until = Instant(now.0 + rng.range(10, 5_000) * MS);
    } else if fault == Fault::DiskStall {
        disk.trouble.stalled_until = Instant(now.0 + rng.magnitude(50, 8_000) * MS);
    } else if fault == Fault::DiskWriteError {
        disk.trouble.write_error = true;
    } else if fault == Fault::DiskFull {
        disk.trouble.capacity = Some(disk.used() + rng.below(20_000));
    } else if fault == Fault::DiskSnapshotsFull {
        let room = disk.used_by_snapshots() + rng.below(5_000);
        disk.trouble.snapshots_capacity = (!rng.chance(1, 4)).then_some(room);
        disk.trouble.snapshots_full_until = Instant(now.0 + rng.magnitude(200, 20_000) * MS);
    } else if fault == Fault::DiskFsyncError {
        disk.trouble.sync_error = Some(FsyncFault::PagesLost);
    } else {
        return false;
    }
    true
}
