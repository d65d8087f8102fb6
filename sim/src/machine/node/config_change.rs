//! Changes of an operator's settings between two starts of a server.
//!
//! Owns which settings change, and their new values. Must not change settings that all servers must
//! agree on, nor those on which promises depend: timeouts, users, nodes, the length of an epoch.

use zabkeeper_core::{Config, Limits, SessionOptions};

use crate::engine::seed::Rng;
use crate::world::options::{ServerOptions, draw_pace, draw_room};

/// Draws other settings for the server. Returns the changes as text.
pub(super) fn draw(
    config: &mut Config,
    store: &mut storage_fs::Options,
    drawn: &ServerOptions,
    rng: &mut Rng,
) -> String {
    // A read-only server has no session for a client unless its sessions are local.
    let keeps = config.read_only_mode;
    let SessionOptions { local, upgrade } = &mut config.sessions;
    *local ^= rng.chance(1, 2) && !keeps;
    *upgrade ^= rng.chance(1, 4);
    let text = format!(", local sessions={local}, upgrade={upgrade}");
    if rng.chance(1, 2) {
        // Snapshots and segments may only become rarer than drawn, because of the cost of a run.
        store.segment_bytes = drawn.segment_bytes.max(*rng.pick(&[64, 64 << 10, 256 << 10]));
        redraw(&mut config.limits, drawn, rng);
        let segment_bytes = store.segment_bytes;
        return format!("{text}, log segment={segment_bytes}B, {:?}", config.limits);
    }
    text
}

fn redraw(limits: &mut Limits, drawn: &ServerOptions, rng: &mut Rng) {
    let usual = ServerOptions::usual().limits;
    let rare = |rng: &mut Rng| rng.chance(1, 3);
    draw_room(limits, &usual, rare, rng);
    limits.snapshot_txns = drawn.limits.snapshot_txns.max(rng.range_u32(2, 300));
    limits.snapshot_slice_bytes =
        if rare(rng) { usual.snapshot_slice_bytes } else { drawn.limits.snapshot_slice_bytes };
    limits.snapshots_kept = rng.range_u32(1, 4);
    draw_pace(limits, &usual, drawn.tick_ms, rare, rng);
}
