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
pub fn inject(disk: &mut Disk, fault: Fault, rng: &mut Rng, now: Instant) -> bool {
    if fault == Fault::DiskSlow {
        disk.faults.slowness = rng.range(10, 100);
        disk.faults.slow_until = Instant(now.0 + rng.range(10, 5_000) * MS);
    } else if fault == Fault::DiskStall {
        disk.faults.stalled_until = Instant(now.0 + rng.magnitude(50, 8_000) * MS);
    } else if fault == Fault::DiskWriteError {
        disk.faults.write_error = true;
    } else if fault == Fault::DiskFull {
        disk.faults.capacity = Some(disk.used() + rng.below(20_000));
    } else if fault == Fault::DiskSnapshotsFull {
        let room = disk.used_by_snapshots() + rng.below(5_000);
        disk.faults.snapshots_capacity = (!rng.chance(1, 4)).then_some(room);
        disk.faults.snapshots_full_until = Instant(now.0 + rng.magnitude(200, 20_000) * MS);
    } else if fault == Fault::DiskFsyncError {
        disk.faults.sync_error = Some(FsyncFault::PagesLost);
    } else {
        return false;
    }
    true
}
