//! What an operator changes between two starts of a server.
//!
//! Owns which settings, and what they become. Must not touch what all servers have to agree about, nor what a promise is
//! measured by: timeouts, what is known of users and nodes, how long an epoch is.

use std::time::Duration;

use zabkeeper_core::{Config, Limits, SessionOptions};

use crate::options::ServerOptions;
use crate::seed::Dice;

/// Gives the server other settings. Returns what is changed, for people.
pub(super) fn draw(
    config: &mut Config,
    store: &mut storage_fs::Options,
    drawn: &ServerOptions,
    dice: &mut Dice,
) -> String {
    let SessionOptions { local, upgrade } = &mut config.sessions;
    *local ^= dice.chance(1, 2);
    *upgrade ^= dice.chance(1, 4);
    let said = format!(", local sessions={local}, upgrade={upgrade}");
    if dice.chance(1, 2) {
        // What a run can afford in the way of snapshots and segments was drawn; they may only become rarer.
        store.segment_bytes = drawn.segment_bytes.max(*dice.pick(&[64, 64 << 10, 256 << 10]));
        redraw(&mut config.limits, &drawn.limits, dice);
        let segment_bytes = store.segment_bytes;
        return format!("{said}, log segment={segment_bytes}B, {:?}", config.limits);
    }
    said
}

fn redraw(limits: &mut Limits, drawn: &Limits, dice: &mut Dice) {
    let usual = ServerOptions::usual().limits;
    let rare = |dice: &mut Dice| dice.chance(1, 3);
    limits.requests_per_conn =
        if rare(dice) { dice.range_u32(1, 8) } else { usual.requests_per_conn };
    limits.undurable_bytes =
        if rare(dice) { dice.magnitude(64, 4_096) } else { usual.undurable_bytes };
    limits.snapshot_txns = drawn.snapshot_txns.max(dice.range_u32(2, 300));
    limits.snapshot_slice_bytes =
        if rare(dice) { usual.snapshot_slice_bytes } else { drawn.snapshot_slice_bytes };
    limits.snapshots_kept = dice.range_u32(1, 4);
    limits.final_wait = Duration::from_millis(dice.magnitude(1, 50));
    limits.notify_min = Duration::from_millis(dice.magnitude(5, 100));
    limits.notify_max = Duration::from_millis(dice.magnitude(100, 1_000));
    limits.recent_bytes = if rare(dice) { dice.magnitude(64, 16_384) } else { usual.recent_bytes };
    limits.bulk_bytes = if rare(dice) { dice.range_u32(1, 2_000) } else { usual.bulk_bytes };
}
