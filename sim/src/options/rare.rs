//! Settings that differ from the default in few runs only.
//!
//! Owns their ranges. Each has its own random stream, so a new setting shifts no other. Must not
//! touch settings that determine the cost of a run.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::ServerId;

use super::{PeerOptions, ServerOptions, Throttle, WorkloadOptions};
use crate::seed::Seeds;

/// Maximum bytes of a request besides its data: its longest path, an ACL, the other parts of a
/// multi.
const BESIDES: u64 = 200;

/// Draws them all.
pub(super) fn draw(
    seeds: Seeds,
    servers: u32,
    server: &mut ServerOptions,
    workload: &mut WorkloadOptions,
    peers: &mut PeerOptions,
) {
    let tick_us = u64::from(server.tick_ms) * 1_000;
    let dice = &mut seeds.stream("config/hold", 0);
    if dice.chance(1, 4) {
        let hold_us = *dice.pick(&[0, tick_us / 10, tick_us * 4]);
        server.limits.hold = Duration::from_micros(hold_us);
    }
    draw_bucket(seeds, &mut server.throttle);
    let dice = &mut seeds.stream("config/timeouts", 1);
    if dice.chance(1, 6) {
        let ids = (1..=u64::from(servers)).map(ServerId);
        server.other_sessions = ids.filter(|_| dice.chance(1, 2)).collect::<BTreeSet<_>>();
        server.other_session_ticks = (dice.range_u32(1, 6), dice.range_u32(6, 60));
    }
    let dice = &mut seeds.stream("config/lists", 1);
    server.auth.skip_acl = dice.chance(1, 16);
    server.auth.digest_disabled = dice.chance(1, 16);
    draw_frames(seeds, server, workload);
    let dice = &mut seeds.stream("config/pings", 0);
    if dice.chance(1, 6) {
        workload.late_one_in = *dice.pick(&[1, 2, 4]);
        workload.late_percent = dice.range_u32(50, 97);
    }
    let dice = &mut seeds.stream("config/outbound", 0);
    if dice.chance(1, 6) {
        server.outbound_bytes = usize::try_from(dice.magnitude(1, 8 << 10)).expect("small");
    }
    draw_clients(seeds, server);
    let dice = &mut seeds.stream("config/peers", 1);
    if dice.chance(1, 6) {
        peers.inputs = usize::try_from(dice.magnitude(1, 64)).expect("small");
    }
    let dice = &mut seeds.stream("config/calls", 0);
    if dice.chance(1, 8) {
        workload.calls_max = 1 + dice.upto(workload.depth - 1);
    }
}

/// How the token bucket is filled, and the weights of connections.
fn draw_bucket(seeds: Seeds, throttle: &mut Throttle) {
    if throttle.tokens == 0 {
        return;
    }
    let dice = &mut seeds.stream("config/throttle", 1);
    throttle.fill_count = dice.range_u32(1, 3);
    // With 0, ZooKeeper's default, the drop probability decreases only while the bucket is full.
    throttle.decrease_ratio = *dice.pick(&[0, 0, 0, 0, 100_000, 500_000, 1_000_000]);
    let global = dice.range_u32(1, 5);
    // A connection that costs more than the bucket holds would never be accepted.
    throttle.weights = (global, dice.range_u32(0, global), dice.range_u32(0, global));
}

/// Limits on clients that are low enough to be reached.
fn draw_clients(seeds: Seeds, server: &mut ServerOptions) {
    let ServerOptions { clients, outbound_bytes, .. } = server;
    let dice = &mut seeds.stream("config/clients", 0);
    if dice.chance(1, 12) {
        clients.output_bytes = usize::try_from(dice.magnitude(64, 8 << 10)).expect("small");
        // With a larger window all output would be in flight instead of queued.
        *outbound_bytes = usize::try_from(dice.magnitude(1, 512)).expect("small");
    }
    if dice.chance(1, 12) {
        clients.event_bytes = dice.magnitude(64, 2 << 10);
        *outbound_bytes = usize::try_from(dice.magnitude(1, 256)).expect("small");
    }
    if dice.chance(1, 6) {
        clients.outstanding = dice.range(0, 20);
    }
    if dice.chance(1, 8) {
        clients.throttle_max_requests = dice.range(1, 20);
    }
    if dice.chance(1, 8) {
        clients.sessionless_ms = dice.magnitude(200, 5_000);
    }
}

/// Limits below the length of some requests: of the server's frames, or of the client library's
/// requests.
fn draw_frames(seeds: Seeds, server: &mut ServerOptions, workload: &mut WorkloadOptions) {
    let dice = &mut seeds.stream("config/frames", 0);
    let data_bytes = u64::try_from(workload.data_bytes).unwrap_or(u64::MAX);
    let bytes = |dice: &mut crate::seed::Dice| {
        u32::try_from(dice.range(BESIDES + data_bytes / 2, 2 * (BESIDES + data_bytes))).ok()
    };
    if dice.chance(1, 8)
        && let Some(bytes) = bytes(dice)
    {
        workload.request_bytes = bytes.max(256);
    }
    if dice.chance(1, 8)
        && let Some(bytes) = bytes(dice)
    {
        server.frame_bytes = bytes.max(256);
        // setWatches requests must stay below the server's limit; each path has a length prefix.
        workload.watches_bytes = workload.watches_bytes.min(server.frame_bytes as usize / 8);
    }
}
