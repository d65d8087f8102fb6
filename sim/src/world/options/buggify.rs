//! The values that buggify sites set.
//!
//! Owns the unlikely and the usual value of each site. Must not name sites: `faults::buggify` does.

use super::{Options, ServerOptions};
use crate::engine::seed::Rng;
use crate::faults::buggify::{Choice, Site};

impl Site {
    /// Sets the unlikely value.
    fn force(self, options: &mut Options, rng: &mut Rng) {
        let tick_us = u64::from(options.server.tick_ms) * 1_000;
        let ServerOptions { limits, .. } = &mut options.server;
        match self {
            Site::BatchInputs => options.server.batch_inputs = 1,
            Site::BatchCommands => options.server.batch_commands = 1,
            Site::RequestsFew => limits.requests_per_conn = rng.range_u32(1, 8),
            Site::UndurableSmall => limits.undurable_bytes = rng.magnitude(64, 4_096),
            Site::SnapshotOften => limits.snapshot_txns = rng.range_u32(1, 5),
            Site::SnapshotSlices => limits.snapshot_slice_bytes = rng.range_u32(1, 400),
            Site::EpochShort => limits.epoch_txns = rng.range_u32(5, 300),
            Site::RecentSmall => limits.recent_bytes = rng.magnitude(64, 16_384),
            Site::BulkSmall => limits.bulk_bytes = rng.range_u32(1, 2_000),
            Site::WindowSmall => options.peers.window = 1 << 10,
            Site::SegmentSmall => options.server.segment_bytes = 4 << 10,
            Site::SegmentTiny => options.server.segment_bytes = 64,
            Site::SyncSnap => limits.prefer_snapshots = true,
            Site::TimerSlack => options.server.timer_slack_us = rng.range(1, tick_us / 10),
            Site::WordsLate => options.peers.words_late_ms = rng.range(1, tick_us / 250),
            Site::ClientHops => options.workload.hops = true,
            Site::LogSlow => options.server.log_pause_us = rng.magnitude(5_000, tick_us / 4),
            Site::SnapshotSlow => options.server.snapshot_pause_us = rng.magnitude(1_000, 50_000),
            Site::StepSmall => limits.step_units = rng.range(1, 20),
            Site::TurnSmall => options.server.turn_units = rng.range(1, 50),
        }
    }

    /// Sets the usual value.
    fn calm(self, options: &mut Options, usual: &ServerOptions) {
        let ServerOptions { limits, .. } = &mut options.server;
        match self {
            Site::BatchInputs => options.server.batch_inputs = usual.batch_inputs,
            Site::BatchCommands => options.server.batch_commands = usual.batch_commands,
            Site::RequestsFew => limits.requests_per_conn = usual.limits.requests_per_conn,
            Site::UndurableSmall => limits.undurable_bytes = usual.limits.undurable_bytes,
            Site::SnapshotOften => limits.snapshot_txns = usual.limits.snapshot_txns,
            Site::SnapshotSlices => {
                limits.snapshot_slice_bytes = usual.limits.snapshot_slice_bytes;
            }
            Site::EpochShort => limits.epoch_txns = usual.limits.epoch_txns,
            Site::RecentSmall => limits.recent_bytes = usual.limits.recent_bytes,
            Site::BulkSmall => limits.bulk_bytes = usual.limits.bulk_bytes,
            Site::WindowSmall => options.peers.window = 256 << 10,
            Site::SegmentSmall | Site::SegmentTiny => {
                options.server.segment_bytes = usual.segment_bytes;
            }
            Site::SyncSnap => limits.prefer_snapshots = false,
            Site::TimerSlack => options.server.timer_slack_us = 0,
            Site::WordsLate => options.peers.words_late_ms = 0,
            Site::ClientHops => options.workload.hops = false,
            Site::LogSlow => options.server.log_pause_us = 0,
            Site::SnapshotSlow => options.server.snapshot_pause_us = 0,
            Site::StepSmall => limits.step_units = usual.limits.step_units,
            Site::TurnSmall => options.server.turn_units = usual.turn_units,
        }
    }
}

impl Choice {
    /// Applies the sites. `draws`: sites without a draw of their own are drawn here. `carries`: the
    /// disk is fast enough for one more sync per write. A slow log is drawn only if a batch takes
    /// all waiting commands.
    pub(crate) fn apply(
        &self,
        options: &mut Options,
        (draws, carries): (bool, bool),
        rng: &mut Rng,
    ) {
        let usual = ServerOptions::usual();
        for site in Site::ALL {
            let mut own = rng.fork();
            // The upgrade of a local session may return to its server within a snapshot, which
            // needs frequent snapshots.
            let often = site == Site::SyncSnap && !options.local.servers.is_empty();
            let one_in = if often { 2 } else { 4 };
            let quick_enough = carries || site != Site::SegmentTiny;
            let whole = options.server.batch_commands == usize::MAX || site != Site::LogSlow;
            let active = own.chance(1, one_in) && quick_enough && whole;
            match self {
                Choice::Drawn if draws && active && !site.is_drawn() => {
                    site.force(options, &mut own);
                }
                Choice::Drawn => {}
                Choice::Only(_) => site.calm(options, &usual),
            }
        }
        if let Choice::Only(sites) = self {
            sites.iter().for_each(|site| site.force(options, rng));
        }
    }
}
