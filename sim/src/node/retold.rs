//! What an operator changes between two starts of a server.
//!
//! Owns which settings, and what they become. Must not touch what all servers have to agree about,
//! nor what a promise is measured by: timeouts, what is known of users and nodes, how long an epoch
//! is.

use zabkeeper_core::{Config, Limits, SessionOptions};

use crate::options::{ServerOptions, draw_pace, draw_room};
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
        // What a run can afford in the way of snapshots and segments was drawn; they may only
        // become rarer.
        store.segment_bytes = drawn.segment_bytes.max(*dice.pick(&[64, 64 << 10, 256 << 10]));
        redraw(&mut config.limits, drawn, dice);
        let segment_bytes = store.segment_bytes;
        return format!("{said}, log segment={segment_bytes}B, {:?}", config.limits);
    }
    said
}

fn redraw(limits: &mut Limits, drawn: &ServerOptions, dice: &mut Dice) {
    let usual = ServerOptions::usual().limits;
    let rare = |dice: &mut Dice| dice.chance(1, 3);
    draw_room(limits, &usual, rare, dice);
    limits.snapshot_txns = drawn.limits.snapshot_txns.max(dice.range_u32(2, 300));
    limits.snapshot_slice_bytes =
        if rare(dice) { usual.snapshot_slice_bytes } else { drawn.limits.snapshot_slice_bytes };
    limits.snapshots_kept = dice.range_u32(1, 4);
    draw_pace(limits, &usual, drawn.tick_ms, rare, dice);
}
