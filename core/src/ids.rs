//! Newtypes for identifiers, counters and times, which the compiler distinguishes.
//!
//! Owns the ordering and printing of identifiers and of time. Must not know any protocol rule.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Transaction id: the epoch in the high 32 bits, a counter in the low 32; totally ordered.
///
/// The epoch stays below 2^31, because Java clients compare zxids as signed numbers.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Zxid(pub u64);

/// Epoch of one leader (ZAB paper). Rises with every established leader; below 2^31.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Epoch(pub u32);

/// A member of the ensemble: the `N` of `server.N`, the content of `myid`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct ServerId(pub u64);

/// A client session, printed in hex as ZooKeeper does. The top byte is the id of the server that
/// created it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct SessionId(pub i64);

/// One client connection. The host assigns rising ids and never reuses one, not even after a
/// restart (hosts start at a random number), because a logged transaction stores the connection
/// it came from.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ConnId(pub u64);

/// One attempt to connect to another server, and the link if the attempt succeeds. The host
/// assigns rising ids and never reuses one during the life of a [`Server`](crate::Server).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct LinkId(pub u64);

/// One command to the log lane of the disk. Rises by one per command over the life of a
/// [`Server`](crate::Server).
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default, Serialize, Deserialize,
)]
pub struct WriteId(pub u64);

/// A point on the monotonic clock, in nanoseconds since an origin that the host chooses.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct Instant(pub u64);

/// Wall-clock time in milliseconds since 1970, for the time stamps of transactions, the lifetimes
/// of TTL nodes and session ids. The clock may step forwards or backwards.
#[derive(
    Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug, Serialize, Deserialize,
)]
pub struct WallMs(pub i64);

impl Zxid {
    /// The zxid of an empty history, below every transaction's.
    pub const ZERO: Zxid = Zxid(0);

    /// The zxid at which `epoch` begins. Only the transaction that puts the first configuration
    /// into the log may have it (RECONF-09), but it is always a valid last zxid.
    pub fn start_of(epoch: Epoch) -> Zxid {
        Zxid(u64::from(epoch.0) << 32)
    }

    /// The epoch in which the transaction was proposed.
    pub fn epoch(self) -> Epoch {
        Epoch((self.0 >> 32) as u32)
    }

    /// Position within the epoch; see [`Zxid::start_of`] for counter 0.
    pub fn counter(self) -> u32 {
        (self.0 & 0xffff_ffff) as u32
    }

    /// The zxid of the next transaction in the same epoch, or `None` where the counter is used up
    /// and the ensemble needs a new epoch (ZAB-20).
    pub fn next(self) -> Option<Zxid> {
        (self.counter() < u32::MAX - 1).then(|| Zxid(self.0 + 1))
    }

    /// The signed number sent on the wire.
    pub fn wire(self) -> i64 {
        self.0.cast_signed()
    }

    /// From the signed number that a client sends. Negative numbers count as zero: no server has
    /// ever sent one.
    pub fn from_wire(value: i64) -> Zxid {
        Zxid(u64::try_from(value).unwrap_or(0))
    }
}

impl Epoch {
    /// Upper bound, never reached: zxids stay below 2^63. A peer that names this epoch is damaged.
    pub const END: Epoch = Epoch(i32::MAX as u32);

    /// How far an epoch named by a single server may be ahead of the epochs that other servers
    /// know. A correct server gets ahead only by failed elections that others did not take part in.
    /// Without this bound one damaged server could use up all epochs of the ensemble.
    pub const LEAD_MAX: u32 = 1 << 16;

    /// The epoch that a new leader proposes if `self` is the highest epoch that any voter has
    /// accepted. `None` where all epochs are used up.
    pub fn next(self) -> Option<Epoch> {
        self.0.checked_add(1).map(Epoch).filter(|next| *next < Epoch::END)
    }

    /// Whether a single server may name this epoch, given the highest epoch `known` otherwise.
    pub(crate) fn is_credible(self, known: Epoch) -> bool {
        self < Epoch::END && self.0 <= known.0.saturating_add(Epoch::LEAD_MAX)
    }
}

impl Instant {
    /// `self + duration`, saturating.
    pub fn after(self, duration: Duration) -> Instant {
        Instant(self.0.saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Time passed since `earlier`; zero if `earlier` is in the future.
    pub fn since(self, earlier: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

impl ServerId {
    /// The top byte of the session ids that this server creates.
    pub(crate) fn session_byte(self) -> u8 {
        (self.0 & 0xff) as u8
    }
}

impl SessionId {
    /// The low byte of the id of the server that created the session.
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

    /// ZXID 209.
    #[test]
    fn last_counter_value_is_not_assigned() {
        let last = Zxid(0x5_ffff_fffe);
        assert_eq!(Zxid(0x5_ffff_fffd).next(), Some(last));
        assert_eq!(last.next(), None);
    }
}
