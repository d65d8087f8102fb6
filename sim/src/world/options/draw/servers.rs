//! The settings of servers.
//!
//! Owns their ranges. Must not know the other settings of the run, except its load.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::driver::four_letter::PART_LINES;
use zabkeeper_core::wire::MAX_FRAME_DEFAULT;
use zabkeeper_core::{Limits, TreeOptions};

use crate::clients::workload;
use crate::engine::seed::{Rng, Seeds};
use crate::world::options::{
    ClientBounds, OUTBOUND_BYTES, Profile, ServerOptions, Throttle, usual_limits,
};

/// About the bytes that a call may add to a snapshot; calls last for `CALLED_FOR` seconds.
const KEPT_PER_CALL: u64 = 50;

/// See `KEPT_PER_CALL`.
const CALLED_FOR: u64 = 60;

/// Bytes of snapshots per second that a swarm server may write, and their slices per second. With
/// more, a run takes a minute of CPU time in which little else happens (seed 0x79a1060: a tree of
/// thousands of nodes every 4 to 7 transactions in slices of 91 bytes, 20 million disk operations
/// and 6 GB).
const SNAPSHOT_BYTES: u64 = 2_000_000;

/// See `SNAPSHOT_BYTES`.
const SLICES: u64 = 1_000;

impl Throttle {
    /// Throttles in few runs, and never so much that many clients need more than seconds to
    /// connect.
    fn draw(rng: &mut Rng) -> Throttle {
        if !rng.chance(1, 8) {
            return Throttle::OPEN;
        }
        let drops = rng.chance(3, 4);
        Throttle {
            tokens: rng.range_u32(1, 6),
            fill: Duration::from_millis(rng.magnitude(1, 150)),
            freeze: Duration::from_millis(if drops { rng.magnitude(1, 50) } else { 0 }),
            drops: (rng.range_u32(20_000, 300_000), rng.range_u32(50_000, 300_000)),
            weighted: rng.chance(1, 2),
            ..Throttle::OPEN
        }
    }
}

impl ServerOptions {
    /// The settings of all servers in runs of this profile.
    pub(super) fn draw_for(profile: Profile, seeds: Seeds) -> ServerOptions {
        if profile == Profile::Perf {
            return ServerOptions { auth: workload::known(), ..ServerOptions::usual() };
        }
        let wide = profile == Profile::Swarm;
        let mut server = ServerOptions::draw(wide, &mut seeds.stream("config/server", 0));
        let rng = &mut seeds.stream("config/auth", 0);
        server.auth.x509 = rng.chance(1, 3);
        server.auth.ensemble = rng.chance(1, 3);
        server.throttle = Throttle::draw(&mut seeds.stream("config/throttle", 0));
        let rng = &mut seeds.stream("config/records", 0);
        if rng.chance(1, 8) {
            let bytes = rng.magnitude(400, 20_000);
            server.limits.record_bytes = usize::try_from(bytes).expect("small");
        }
        let rng = &mut seeds.stream("config/timeouts", 0);
        if rng.chance(1, 4) {
            server.session_ticks = (rng.range_u32(1, 4), rng.range_u32(10, 60));
        }
        server
    }

    /// Frequent snapshots in some runs, within what this load allows.
    pub(super) fn draw_snapshots(&mut self, seeds: Seeds, calls_per_second: u64) {
        if seeds.stream("config/forgetful", 0).chance(1, 3) {
            // Then even a learner that has missed little needs a snapshot.
            let mut rng = seeds.stream("config/forgetful", 1);
            self.limits.snapshots_kept = 1;
            self.limits.snapshot_txns = self.limits.snapshot_txns.min(rng.range_u32(5, 60));
        }
        bound_snapshots(&mut self.limits, calls_per_second);
    }

    fn draw(wide: bool, rng: &mut Rng) -> ServerOptions {
        let tick_ms = rng.magnitude(if wide { 50 } else { 200 }, 2_000);
        let tick_ms = u32::try_from(tick_ms).expect("drawn below 2^32");
        let usual = usual_limits(tick_ms);
        let rare = |rng: &mut Rng| rng.chance(1, if wide { 2 } else { 4 });
        let mut limits = usual.clone();
        draw_room(&mut limits, &usual, rare, rng);
        limits.snapshot_txns = match rng.below(4) {
            0 => usual.snapshot_txns,
            1 => rng.range_u32(1, 8),
            _ => rng.range_u32(9, 300),
        };
        if rare(rng) {
            limits.snapshot_slice_bytes = rng.range_u32(1, 400);
        }
        limits.snapshots_kept = rng.range_u32(1, 4);
        if rare(rng) {
            limits.epoch_txns = rng.range_u32(5, 300);
        }
        draw_pace(&mut limits, &usual, tick_ms, rare, rng);
        let mut options = ServerOptions {
            tick_ms,
            phase_ticks: (rng.range_u32(3, 10), rng.range_u32(2, 5)),
            limits,
            session_ticks: (2, 20),
            other_sessions: BTreeSet::new(),
            other_session_ticks: (2, 20),
            frame_bytes: MAX_FRAME_DEFAULT,
            outbound_bytes: OUTBOUND_BYTES,
            refused_command: 0,
            part_lines: PART_LINES,
            read_only_mode: false,
            leader_serves: true,
            clients: ClientBounds::USUAL,
            throttle: Throttle::OPEN,
            auth: workload::known(),
            tree: draw_tree(rng),
            segment_bytes: *rng.pick(&[4 << 10, 16 << 10, 64 << 10, 256 << 10]),
            batch_inputs: *rng.pick(&[1, 4, 64, 4_096]),
            turn_units: 10_000,
            batch_commands: *rng.pick(&[1, 3, usize::MAX]),
            // The work of one tick must fit into it, since session timeouts may be that short: with
            // 7 servers and a tick of 71 ms, a step of 198 us kept a leader busy for ever with
            // clients whose sessions had just expired (swarm 0xc1070067).
            step_ns: rng.magnitude(200, 200_000).min(u64::from(tick_ms) * 1_000),
            timer_slack_us: 0,
            log_pause_us: 0,
            snapshot_pause_us: 0,
        };
        if rare(rng) {
            options.limits.snapshot_bytes = rng.magnitude(500, 100_000);
        }
        options.limits.compare_txns = *rng.pick(&[1, 7, 50, usual.compare_txns]);
        options
    }
}

/// Limits on queued requests and undurable bytes; mostly the usual ones.
pub(crate) fn draw_room(
    limits: &mut Limits,
    usual: &Limits,
    rare: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) {
    limits.requests_per_conn =
        if rare(rng) { rng.range_u32(1, 8) } else { usual.requests_per_conn };
    limits.undurable_bytes =
        if rare(rng) { rng.magnitude(64, 4_096) } else { usual.undurable_bytes };
}

/// Waits in elections, and the synchronization of learners.
pub(crate) fn draw_pace(
    limits: &mut Limits,
    usual: &Limits,
    tick_ms: u32,
    rare: impl Fn(&mut Rng) -> bool,
    rng: &mut Rng,
) {
    // An elected leader waits one tick for followers. If they wait for longer before they follow,
    // no election ends; a wait nearly as long already does harm.
    let tick = Duration::from_millis(tick_ms.into());
    limits.final_wait = Duration::from_millis(rng.magnitude(1, 50)).min(tick / 8);
    limits.notify_min = Duration::from_millis(rng.magnitude(5, 100));
    limits.notify_max = Duration::from_millis(rng.magnitude(100, 1_000));
    limits.recent_bytes = if rare(rng) { rng.magnitude(64, 16_384) } else { usual.recent_bytes };
    limits.bulk_bytes = if rare(rng) { rng.range_u32(1, 2_000) } else { usual.bulk_bytes };
}

/// Containers are checked often, and deleted fast or slowly.
fn draw_tree(rng: &mut Rng) -> TreeOptions {
    TreeOptions {
        extended_types: rng.chance(3, 4),
        enforce_quota: rng.chance(1, 2),
        container_check_ms: rng.magnitude(200, 10_000),
        container_max_per_minute: *rng.pick(&[60, 600, 10_000]),
        container_never_used_ms: *rng.pick(&[0, 0, 3_000]),
    }
}

/// The fewer calls, the more frequent snapshots may be, and the smaller their slices.
pub(super) fn bound_snapshots(limits: &mut Limits, calls_per_second: u64) {
    let mean_bytes = calls_per_second * CALLED_FOR * KEPT_PER_CALL / 2;
    let bytes = mean_bytes * calls_per_second;
    let least = |enough: u64| u32::try_from(enough).unwrap_or(u32::MAX);
    limits.snapshot_txns = limits.snapshot_txns.max(least(bytes / SNAPSHOT_BYTES));
    let bytes = bytes / u64::from(limits.snapshot_txns);
    limits.snapshot_slice_bytes = limits.snapshot_slice_bytes.max(least(bytes / SLICES));
}
