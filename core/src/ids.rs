//! Newtypes for everything that is counted or named: no two bare integers stand side by side in this crate.
//!
//! Owns the ordering and printing of identifiers and of time. Must not know any protocol rule.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Transaction id: 32 bits of epoch above 32 bits of counter, totally ordered.
///
/// The epoch stays below 2^31, because Java clients compare zxids as signed numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Zxid(pub u64);

/// The reign of one leader. Rises with every established leader; below 2^31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch(pub u32);

/// A member of the ensemble: the `N` of `server.N`, the content of `myid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServerId(pub u64);

/// A client session; printed in hex as ZooKeeper does. The top byte names the server that created it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SessionId(pub i64);

/// One client connection. Dealt by the driver, rising, never dealt again: also not after a restart
/// (drivers start at a random number), because a transaction in the log remembers the connection it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnId(pub u64);

/// One attempt to have a link with another server, and the link if it succeeds. Dealt by the driver, rising, never
/// dealt again in the life of a [`Server`](crate::Server).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub u64);

/// One command in the log lane of the disk. Rises by one per command over the life of a [`Server`](crate::Server).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct WriteId(pub u64);

/// A point on the monotonic clock, in nanoseconds since an origin that the driver chooses.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Instant(pub u64);

/// Wall-clock time in milliseconds since 1970; only for the time stamps of transactions. May step either way.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct WallMs(pub i64);

impl Zxid {
    /// Before every transaction: the position of an empty history.
    pub const ZERO: Zxid = Zxid(0);

    /// The position at which `epoch` begins: not a transaction, but a valid last zxid.
    pub fn start_of(epoch: Epoch) -> Zxid {
        Zxid(u64::from(epoch.0) << 32)
    }

    /// The epoch in which the transaction was proposed.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> 32) as u32)
    }

    /// Position within the epoch; the first transaction has 1.
    pub fn counter(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// The following transaction of the same epoch, or `None` where the counter is used up and only a new epoch
    /// can go on (ZAB-20).
    pub fn next(self) -> Option<Zxid> {
        (self.counter() < u32::MAX - 1).then(|| Zxid(self.0 + 1))
    }

    /// As the signed number that goes on the wire.
    pub fn wire(self) -> i64 {
        self.0.cast_signed()
    }

    /// From the signed number of a client; negative ones (no client has seen them) count as zero.
    pub fn from_wire(value: i64) -> Zxid {
        Zxid(u64::try_from(value).unwrap_or(0))
    }
}

impl Epoch {
    /// No epoch reaches this one: zxids stay below 2^63. A peer that speaks of it is damaged.
    pub const END: Epoch = Epoch(i32::MAX as u32);

    /// How far one server's word may be ahead of what others know. An honest server runs ahead by the elections that it took
    /// part in and the others did not, each of which fails; a word beyond that would use up the epochs of all.
    pub const LEAD_MAX: u32 = 1 << 16;

    /// The epoch that a new leader proposes when this is the highest that any voter has accepted; `None` where all epochs are
    /// used up.
    pub fn next(self) -> Option<Epoch> {
        self.0.checked_add(1).map(Epoch).filter(|next| *next < Epoch::END)
    }

    /// May a lone word name this epoch, where `known` is known?
    pub(crate) fn is_credible(self, known: Epoch) -> bool {
        self < Epoch::END && self.0 <= known.0.saturating_add(Epoch::LEAD_MAX)
    }
}

impl Instant {
    /// This instant and `duration` more; the end of time where that overflows.
    pub fn after(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time that has passed since `earlier`; zero where it lies ahead.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ServerId {
    /// The byte that names this server in the ids of its sessions.
    pub(crate) fn session_byte(self) -> u8 {
        (self.0 & 0xff) as u8
    }
}

impl SessionId {
    /// The byte that names the server which created the session.
    pub(crate) fn server_byte(self) -> u8 {
        self.0.to_be_bytes()[0]
    }
}

impl WriteId {
    /// The id of the command after this one.
    pub fn next(self) -> WriteId {
        WriteId(self.0 + 1)
    }
}

impl fmt::Display for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for Zxid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Debug for Epoch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "e{}", self.0)
    }
}

impl fmt::Display for ServerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::Display for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl fmt::Debug for ConnId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{}", self.0)
    }
}

impl fmt::Display for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl fmt::Debug for LinkId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "l{}", self.0)
    }
}

impl fmt::Display for WriteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "w{}", self.0)
    }
}

impl fmt::Display for Instant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:06}s", self.0 / 1_000_000_000, self.0 / 1_000 % 1_000_000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zxid_is_epoch_above_counter() {
        let z = Zxid::start_of(Epoch(3)).next().expect("room");
        assert_eq!((z.epoch(), z.counter(), z.to_string().as_str()), (Epoch(3), 1, "0x300000001"));
    }

    #[test]
    fn zxid_209_the_last_counter_value_is_never_dealt() {
        let last = Zxid(0x5_ffff_fffe);
        assert_eq!(Zxid(0x5_ffff_fffd).next(), Some(last));
        assert_eq!(last.next(), None);
    }
}
