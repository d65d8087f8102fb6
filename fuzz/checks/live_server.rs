//! Checks a running server with any bytes of several clients, and any timing of disk and clocks.
//! The fuzz target and the test that replays its corpus share these checks.
//!
//! An input is the server's settings, followed by actions; see `happens`. Bit 5 of an action joins
//! it with the next one: the server has no turn between them.

mod disk;
mod live;
mod owed;
mod request;
mod settings;
mod source;

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use live::Live;
use source::Source;
use zabkeeper_core::ConnId;

/// Statistics of an input.
pub(crate) struct Served {
    pub(crate) sessions: usize,
    pub(crate) answers: usize,
    pub(crate) events: usize,
    /// How often a client's socket took no output.
    pub(crate) blocked: usize,
    /// Answers to four-letter commands.
    pub(crate) texts: usize,
}

/// Checks one input.
///
/// # Panics
/// If a check fails.
pub(crate) fn check(input: &[u8]) -> Served {
    let mut source = Source(input);
    let mut live = Live::new(settings::any(&mut source), ());
    let mut slots = [None; 4];
    while !source.0.is_empty() {
        let waits = source.0[0] & 0x20 != 0;
        happens(&mut live, &mut slots, &mut source);
        if !waits {
            live.turn();
        }
    }
    live.settle_and_check_idle();
    let before = live.holds();
    live.restart();
    // The restart begins a new epoch, so the zxids differ; digest and sessions must be equal.
    let after = live.holds();
    assert_eq!((before.1, before.2), (after.1, after.2), "all that was served is durable");
    Served {
        sessions: live.sessions.len(),
        answers: live.answers,
        events: live.events,
        blocked: live.blocked,
        texts: live.texts,
    }
}

fn happens(live: &mut Live<()>, slots: &mut [Option<ConnId>; 4], source: &mut Source<'_>) {
    let what = source.byte();
    let slot = &mut slots[usize::from(what >> 6)];
    *slot = slot.filter(|conn| live.is_open(*conn));
    match what & 31 {
        0..=3 => {
            let conn = *slot.get_or_insert_with(|| live.open());
            live.write(conn, source.bytes());
        }
        4 | 5 => {
            let conn = live.open();
            live.greet(conn, 1000 * i32::from(source.byte()), None);
            if let Some(before) = slot.replace(conn) {
                live.drop_conn(before);
            }
        }
        6 | 7 => {
            let known = usize::from(source.byte()) % live.sessions.len().max(1);
            let resume = live.sessions.get(known).cloned();
            let conn = live.open();
            live.greet(conn, 4000, resume);
            *slot = Some(conn);
        }
        8 => {
            if let Some(conn) = slot.take() {
                live.drop_conn(conn);
            }
        }
        9 => live.pass(millis(source)),
        10 => live.stall(millis(source)),
        11..=13 => live.finish_log(usize::from(source.byte())),
        14 => live.finish_other(),
        15 => live.settle(),
        16 => live.restart(),
        17..=19 => {
            // A complete frame with any content.
            let conn = *slot.get_or_insert_with(|| live.open());
            let mut frame = BytesMut::new();
            frame.put_i32(i32::from(source.byte()));
            frame.put_i32(i32::from(source.byte().cast_signed()));
            frame.extend_from_slice(source.bytes());
            live.frame(conn, frame.freeze());
        }
        31 => {
            if let Some(conn) = *slot {
                live.take_output(conn, room(source));
            }
        }
        _ => {
            let Some(conn) = *slot else {
                return;
            };
            let xid = i32::from(source.byte().cast_signed());
            live.ask(conn, xid, request::request(source, false));
        }
    }
}

/// How many bytes of output a client takes: all in one of four cases.
fn room(source: &mut Source<'_>) -> usize {
    let room = source.byte();
    if room & 3 == 3 { usize::MAX } else { usize::from(room) }
}

fn millis(source: &mut Source<'_>) -> Duration {
    let time = u64::from(source.byte());
    Duration::from_millis(time * time)
}
