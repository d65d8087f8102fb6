//! An end of a connection that reads slowly for a while: small parts, with a pause after each.
//!
//! Owns size and pauses of the parts. Must not hold bytes: the stream does.

use zabkeeper_core::Instant;

use crate::engine::seed::Rng;

const MS: u64 = 1_000_000;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlowReader {
    /// When it reads at full speed again.
    pub until: Instant,
    /// Bytes of a part. Its kernel has room for no more.
    pub part: usize,
    /// Pause after each part, ns.
    pub pause: u64,
}

impl SlowReader {
    /// Up to 20 s, in parts of up to 512 bytes, with pauses of up to 400 ms.
    pub fn draw(now: Instant, rng: &mut Rng) -> SlowReader {
        SlowReader {
            until: Instant(now.0 + rng.magnitude(100, 20_000) * MS),
            part: usize::try_from(rng.magnitude(1, 512)).expect("small"),
            pause: rng.magnitude(1, 400) * MS,
        }
    }
}
