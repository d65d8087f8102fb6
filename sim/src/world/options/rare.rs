//! Settings that differ from the default in few runs only.
//!
//! Owns their ranges. Each has its own random stream, so a new setting shifts no other. Must not
//! touch settings that determine the cost of a run.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::ServerId;
use zabkeeper_core::wire::FourLetterCommand;

use super::{PeerOptions, ServerOptions, Throttle, WorkloadOptions};
use crate::check::model::LocalRules;
use crate::clients::program::Recipe;
use crate::engine::seed::Seeds;

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
    let rng = &mut seeds.stream("config/hold", 0);
    if rng.chance(1, 4) {
        let hold_us = *rng.pick(&[0, tick_us / 10, tick_us * 4]);
        server.limits.hold = Duration::from_micros(hold_us);
    }
    draw_bucket(seeds, &mut server.throttle);
    let rng = &mut seeds.stream("config/timeouts", 1);
    if rng.chance(1, 6) {
        let ids = (1..=u64::from(servers)).map(ServerId);
        server.other_sessions = ids.filter(|_| rng.chance(1, 2)).collect::<BTreeSet<_>>();
        server.other_session_ticks = (rng.range_u32(1, 6), rng.range_u32(6, 60));
    }
    let rng = &mut seeds.stream("config/lists", 1);
    server.auth.skip_acl = rng.chance(1, 16);
    server.auth.digest_disabled = rng.chance(1, 16);
    draw_frames(seeds, server, workload);
    let rng = &mut seeds.stream("config/pings", 0);
    if rng.chance(1, 6) {
        workload.late_one_in = *rng.pick(&[1, 2, 4]);
        workload.late_percent = rng.range_u32(50, 97);
    }
    let rng = &mut seeds.stream("config/outbound", 0);
    if rng.chance(1, 6) {
        server.outbound_bytes = usize::try_from(rng.magnitude(1, 8 << 10)).expect("small");
    }
    draw_clients(seeds, server);
    let rng = &mut seeds.stream("config/peers", 1);
    if rng.chance(1, 6) {
        peers.inputs = usize::try_from(rng.magnitude(1, 64)).expect("small");
    }
    let rng = &mut seeds.stream("config/four-letter", 0);
    if rng.chance(1, 8) {
        let all = u64::try_from(FourLetterCommand::all().count()).expect("few");
        server.refused_command = u32::try_from(rng.range(1, all)).expect("few");
    }
    if rng.chance(1, 4) {
        server.part_lines = usize::try_from(rng.range(1, 6)).expect("small");
    }
    let rng = &mut seeds.stream("config/calls", 0);
    if rng.chance(1, 8) {
        workload.calls_max = 1 + rng.upto(workload.depth - 1);
    }
    let rng = &mut seeds.stream("config/diff", 0);
    if rng.chance(1, 4) {
        server.limits.snapshot_size_factor = *rng.pick(&[0, 10_000, 3_000_000, u64::MAX]);
    }
}

/// Read-only mode, where all sessions are local: without that, a read-only server has no session
/// for a client, and its answer is none that a client library expects.
pub(super) fn draw_read_only(
    seeds: Seeds,
    (servers, local): (u32, &LocalRules),
    server: &mut ServerOptions,
    workload: &mut WorkloadOptions,
) {
    let rng = &mut seeds.stream("config/read-only", 0);
    let all_local = u64::from(servers) == local.servers.len() as u64;
    if rng.chance(2, 3) && all_local && servers > 1 {
        server.read_only_mode = true;
        workload.read_only_one_in = *rng.pick(&[0, 1, 2, 4]);
    }
}

/// Bytes of a reply that lists all who wait for a lock, with nodes that lost replies have left.
const LISTED_BYTES: usize = 16 << 10;

/// Some clients are programs that use a recipe. Their nodes are ephemeral, which a local session
/// that is not upgraded cannot have; a server that restarts with other settings may have such
/// sessions. And they list who waits: where such a list is too long for a reply, nobody gets on
/// (seed 0x7948b17bc74a at 7948b17).
pub(super) fn draw_programs(
    seeds: Seeds,
    (clients, recipe): (u32, Option<Recipe>),
    (local, config_change_one_in): (&LocalRules, u64),
    server: &ServerOptions,
    workload: &mut WorkloadOptions,
) {
    let rng = &mut seeds.stream("config/programs", 0);
    let all_ephemeral = config_change_one_in == 0 && (local.servers.is_empty() || local.upgrade);
    let all_listed = server.limits.record_bytes >= LISTED_BYTES;
    let are_drawn = rng.chance(1, 4);
    if (are_drawn || recipe.is_some()) && all_ephemeral && all_listed {
        workload.programs = rng.range(1, 4).min(clients.into());
        let drawn = seeds.stream("config/programs", 1).below(Recipe::ALL.len() as u64);
        workload.recipe = recipe.map_or(drawn, |recipe| recipe as u64);
    }
}

/// In some ensembles the leader serves nobody. Two servers would be one server for clients.
pub(super) fn draw_leader_serves(seeds: Seeds, servers: u32, server: &mut ServerOptions) {
    server.leader_serves = servers < 3 || !seeds.stream("config/leader-serves", 0).chance(1, 16);
}

/// How the token bucket is filled, and the weights of connections.
fn draw_bucket(seeds: Seeds, throttle: &mut Throttle) {
    if throttle.tokens == 0 {
        return;
    }
    let rng = &mut seeds.stream("config/throttle", 1);
    throttle.fill_count = rng.range_u32(1, 3);
    // With 0, ZooKeeper's default, the drop probability decreases only while the bucket is full.
    throttle.decrease_ratio = *rng.pick(&[0, 0, 0, 0, 100_000, 500_000, 1_000_000]);
    let global = rng.range_u32(1, 5);
    // A connection that costs more than the bucket holds would never be accepted.
    throttle.weights = (global, rng.range_u32(0, global), rng.range_u32(0, global));
}

/// Limits on clients that are low enough to be reached.
fn draw_clients(seeds: Seeds, server: &mut ServerOptions) {
    let ServerOptions { clients, outbound_bytes, .. } = server;
    let rng = &mut seeds.stream("config/clients", 0);
    if rng.chance(1, 12) {
        clients.output_bytes = usize::try_from(rng.magnitude(64, 8 << 10)).expect("small");
        // With a larger window all output would be in flight instead of queued.
        *outbound_bytes = usize::try_from(rng.magnitude(1, 512)).expect("small");
    }
    if rng.chance(1, 12) {
        // A client's own write may fire several of its watches, and a window may be a single byte:
        // with less room, each of its writes would end its connection.
        clients.event_bytes = rng.magnitude(64, 2 << 10).max(512);
        *outbound_bytes = usize::try_from(rng.magnitude(1, 256)).expect("small");
    }
    if rng.chance(1, 6) {
        clients.outstanding = rng.range(0, 20);
    }
    if rng.chance(1, 8) {
        clients.throttle_max_requests = rng.range(1, 20);
    }
    if rng.chance(1, 8) {
        clients.sessionless_ms = rng.magnitude(200, 5_000);
    }
}

/// A bound on output that the answers to one slow client exceed.
pub(super) fn draw_small_output(seeds: Seeds, server: &mut ServerOptions) {
    let rng = &mut seeds.stream("config/slow", 0);
    if rng.chance(1, 4) {
        server.clients.output_bytes = usize::try_from(rng.magnitude(64, 2 << 10)).expect("small");
    }
}

/// Limits below the length of some requests: of the server's frames, or of the client library's
/// requests.
fn draw_frames(seeds: Seeds, server: &mut ServerOptions, workload: &mut WorkloadOptions) {
    let rng = &mut seeds.stream("config/frames", 0);
    let data_bytes = u64::try_from(workload.data_bytes).unwrap_or(u64::MAX);
    let bytes = |rng: &mut crate::engine::seed::Rng| {
        u32::try_from(rng.range(BESIDES + data_bytes / 2, 2 * (BESIDES + data_bytes))).ok()
    };
    if rng.chance(1, 8)
        && let Some(bytes) = bytes(rng)
    {
        workload.request_bytes = bytes.max(256);
    }
    if rng.chance(1, 8)
        && let Some(bytes) = bytes(rng)
    {
        server.frame_bytes = bytes.max(256);
        // setWatches requests must stay below the server's limit; each path has a length prefix.
        workload.watches_bytes = workload.watches_bytes.min(server.frame_bytes as usize / 8);
    }
}
