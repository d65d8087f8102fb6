//! The settings of the workload.
//!
//! Owns what a run may vary in the calls of its clients. Must not draw anything: `world::options`
//! has the ranges.

use super::op::OpMix;

/// Settings of the workload.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct WorkloadOptions {
    /// Mean calls of all clients together per virtual second.
    pub calls_per_second: u64,
    /// Number of paths.
    pub paths: u64,
    /// How many more times the first two paths are listed, in total.
    pub hot: u64,
    /// Maximum number of calls of one client in flight.
    pub depth: usize,
    /// Maximum length of data, bytes.
    pub data_bytes: usize,
    /// Minimum and maximum session timeout requested, ms.
    pub session_ms: (u64, u64),
    /// Weights of the operations.
    pub mix: OpMix,
    /// Maximum delay before a reconnect, ms.
    pub reconnect_ms: u64,
    /// Bytes of paths that a client puts into one setWatches request.
    pub watches_bytes: usize,
    /// Maximum length of a request that the client library sends, bytes.
    pub request_bytes: u32,
    /// Calls that the client library accepts at once; one more fails.
    pub calls_max: usize,
    /// One client in this many pings late, as another library might; zero: none.
    pub late_one_in: u64,
    /// The share of the session timeout after which such a client pings, percent.
    pub late_percent: u32,
    /// The first clients, this many, are programs that use the handle and a recipe.
    pub programs: u64,
    /// The position of that recipe in `Recipe::ALL`.
    pub recipe: u64,
    /// One client in this many accepts a read-only server; zero: none.
    pub read_only_one_in: u64,
    /// One ACL in this many is restricted; zero: all are open.
    pub narrow_one_in: u64,
    /// After one reply in this many a client makes another call at once, and after one event in
    /// this many a read; zero: none.
    pub eager_one_in: u64,
    /// One path in this many is odd; zero: none.
    pub odd_one_in: u64,
    /// After one call in this many a client is idle for longer than its session timeout; zero:
    /// never.
    pub idle_one_in: u64,
    /// Whether multis create ephemeral nodes.
    pub ephemeral_parts: bool,
    /// Whether some connections break right after the reply to the handshake or to setWatches.
    pub hops: bool,
}
