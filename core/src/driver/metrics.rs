//! Traffic counters: the figures of `srvr`, `mntr` and `cons` that only the driver knows.
//!
//! Owns the counting. Must not take decisions.

mod groups;
mod sample;
mod summary;

use std::fmt;
use std::time::Duration;

use crate::ids::{Instant, SessionId};
use crate::wire::{ConnectResponse, Reply};

pub use groups::{EnsembleMetrics, Fired, LogWrite, Namespaces, Startup, StorageMetrics, Traffic};
pub use sample::{Detail, LineValue, Number, Sample, SampleKey, SampleValue, SummaryValue, Unit};
pub use summary::{QUANTILES, Summary, Totals};

/// Counters since the start of the process, or since `srst`.
#[derive(Clone, Debug, Default)]
pub struct Metrics {
    /// Handshakes, requests and four-letter commands read.
    pub received: u64,
    /// Answers and events queued for sending.
    pub sent: u64,
    /// Bytes read from clients.
    pub bytes_received: u64,
    /// Handshakes among `received`.
    pub handshakes: u64,
    /// Connections closed at once because of a bound.
    pub rejected: u64,
    /// Connections closed because no handshake came in time.
    pub sessionless: u64,
    /// Connections closed because a request exceeded the bound on large requests (THR-04).
    pub large_rejected: u64,
    /// Time from reading a request to queueing its reply.
    pub latency: Latency,
    /// Sizes of answers and events, in bytes.
    pub responses: Sizes,
    /// Of a leader: sizes of its proposals, in bytes.
    pub proposals: Sizes,
    /// More about requests and connections.
    pub traffic: Traffic,
    /// Roles, synchronization, proposals.
    pub ensemble: EnsembleMetrics,
    /// The store.
    pub storage: StorageMetrics,
    /// Bytes that clients of this server have read.
    pub reads: Namespaces,
    /// Bytes that transactions have written.
    pub writes: Namespaces,
    /// Requests that are outstanding now.
    pub load: Load,
}

/// Outstanding requests; no counter, so `srst` leaves it alone.
#[derive(Clone, Copy, Debug, Default)]
pub struct Load {
    /// Requests read and not answered.
    pub requests: u64,
    /// Bytes of the large ones among them (THR-04).
    pub large_bytes: u64,
}

/// Number of sizes, and the last, smallest and largest of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sizes {
    count: u64,
    last_min_max: [usize; 3],
}

/// Shortest, longest and total of measured times.
#[derive(Clone, Copy, Debug, Default)]
pub struct Latency {
    count: u64,
    last: Duration,
    total: Duration,
    min: Duration,
    max: Duration,
    /// The longest since the last sample.
    sampled_max: Duration,
}

/// The counters of one connection, with its last operation (FLW-02).
#[derive(Clone, Copy, Debug, Default)]
pub struct ConnStats {
    /// Requests read.
    pub received: u64,
    /// Answers and events queued for sending.
    pub sent: u64,
    /// Time from reading a request to queueing its reply.
    pub latency: Latency,
    /// Number of the operation read last.
    pub last_op: Option<i32>,
    /// xid answered last, ignoring negative ones.
    pub last_xid: Option<i32>,
    /// zxid in the last reply.
    pub last_zxid: Option<i64>,
    /// When the last reply was queued.
    pub last_response: Option<Instant>,
}

/// The session of a connection.
#[derive(Clone, Copy, Debug)]
pub struct Served {
    /// Its id.
    pub session: SessionId,
    /// Its timeout in ms, as the handshake's answer states it.
    pub timeout_ms: i32,
}

impl Metrics {
    /// Counts an answer to a request that was read at `arrival`; `write`: is it a transaction?
    pub(super) fn answered(&mut self, write: bool, arrival: Instant, now: Instant) {
        let taken = now.since(arrival);
        self.latency.add(taken);
        let traffic = &mut self.traffic;
        let summary = if write { &mut traffic.updates } else { &mut traffic.reads };
        summary.add_time(taken, now);
    }

    /// Resets the counters, for `srst`.
    pub fn reset(&mut self) {
        let last_snapshot = self.storage.last_snapshot;
        let storage = StorageMetrics { last_snapshot, ..StorageMetrics::default() };
        *self = Metrics { load: self.load, storage, ..Metrics::default() };
    }
}

impl ConnStats {
    /// Counts an operation that was read.
    pub fn asked(&mut self, op: i32) {
        if !AUTH.contains(&op) {
            self.last_op = Some(op);
        }
    }

    /// Counts a reply that is sent, to a request that was read at `arrival`.
    pub fn replied(&mut self, reply: &Reply, arrival: Option<Instant>, now: Instant) {
        if reply.xid >= 0 {
            self.last_xid = Some(reply.xid);
        }
        self.last_zxid = Some(reply.zxid);
        self.last_response = Some(now);
        if let Some(arrival) = arrival {
            self.latency.add(now.since(arrival));
        }
    }

    /// Counts the answer to a handshake. ZooKeeper's statistics of a connection count new sessions
    /// only.
    pub fn connected(&mut self, new: bool, arrival: Instant, now: Instant) {
        if new {
            self.last_op = Some(CREATE_SESSION);
            self.last_xid = Some(0);
            self.last_response = Some(now);
            self.latency.add(now.since(arrival));
        }
    }
}

impl Served {
    /// The session that a handshake's answer grants; `None` if it refuses.
    pub fn of(response: &ConnectResponse) -> Option<Served> {
        let served = Served { session: response.session, timeout_ms: response.timeout_ms };
        (response.session != SessionId(0)).then_some(served)
    }
}

/// ZooKeeper's number of the operation that creates a session.
const CREATE_SESSION: i32 = -10;

/// Numbers of the authentication operations: they are answered apart and do not count as `lop`.
const AUTH: [i32; 2] = [100, 102];

/// ZooKeeper's name of an operation in `lop`.
pub fn letters(op: i32) -> &'static str {
    match op {
        1 | 15 | 19 | 21 => "CREA",
        2 | 20 => "DELE",
        3 => "EXIS",
        4 => "GETD",
        5 => "SETD",
        6 => "GETA",
        7 => "SETA",
        8 | 12 => "GETC",
        9 => "SYNC",
        11 => "PING",
        13 => "CHEC",
        14 => "MULT",
        16 => "RECO",
        17 => "CHKW",
        18 => "REMW",
        22 => "MLTR",
        101 => "SETW",
        103 => "GETE",
        104 => "GETACN",
        105 => "STW2",
        106 => "ADDW",
        107 => "HOMI",
        CREATE_SESSION => "SESS",
        -11 => "CLOS",
        _ => "NA",
    }
}

impl Sizes {
    /// Adds one measurement.
    pub fn add(&mut self, size: usize) {
        let [_, min, max] = if self.count == 0 { [size; 3] } else { self.last_min_max };
        self.last_min_max = [size, min.min(size), max.max(size)];
        self.count += 1;
    }

    /// Number of sizes added.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// As ZooKeeper prints them: -1 if there was none.
    pub fn last_min_max(&self) -> [i64; 3] {
        let shown = |size| i64::try_from(size).unwrap_or(i64::MAX);
        if self.count == 0 { [-1; 3] } else { self.last_min_max.map(shown) }
    }
}

/// As ZooKeeper prints them: -1 if there was none.
impl fmt::Display for Sizes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [last, min, max] = self.last_min_max();
        write!(f, "{last}/{min}/{max}")
    }
}

impl Latency {
    /// Adds one measurement.
    pub fn add(&mut self, taken: Duration) {
        self.min = if self.count == 0 { taken } else { self.min.min(taken) };
        self.max = self.max.max(taken);
        self.sampled_max = self.sampled_max.max(taken);
        self.last = taken;
        self.total += taken;
        self.count += 1;
    }

    /// Number of measurements, their sum in us, and the longest since the last sample, in us.
    pub(super) fn take_sample(&mut self) -> (u64, u128, u128) {
        let longest = std::mem::take(&mut self.sampled_max);
        (self.count, self.total.as_micros(), longest.as_micros())
    }

    /// Shortest, in whole ms; zero if nothing was measured.
    pub fn min_ms(&self) -> u128 {
        self.min.as_millis()
    }

    /// Longest, in whole ms.
    pub fn max_ms(&self) -> u128 {
        self.max.as_millis()
    }

    /// The last one, in whole ms.
    pub fn last_ms(&self) -> u128 {
        self.last.as_millis()
    }

    /// Mean in whole ms, for `cons`.
    pub fn mean_whole_ms(&self) -> u128 {
        self.total.as_millis() / u128::from(self.count.max(1))
    }

    /// Mean in ms, rounded to four decimals as in `srvr`.
    pub fn mean_ms(&self) -> f64 {
        if self.count == 0 {
            return 0.0;
        }
        let mean = self.total.as_secs_f64() * 1e3 / self.count as f64;
        (mean * 1e4).round() / 1e4
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latency_keeps_bounds_and_mean() {
        let mut latency = Latency::default();
        assert_eq!((latency.min_ms(), latency.mean_ms(), latency.max_ms()), (0, 0.0, 0));
        for micros in [1500, 2500, 3001] {
            latency.add(Duration::from_micros(micros));
        }
        assert_eq!((latency.min_ms(), latency.mean_ms(), latency.max_ms()), (1, 2.3337, 3));
        assert_eq!((latency.last_ms(), latency.mean_whole_ms()), (3, 2));
    }

    /// FLW-10.
    #[test]
    fn reset_keeps_the_load() {
        let load = Load { requests: 3, large_bytes: 7 };
        let mut metrics = Metrics { received: 5, load, ..Metrics::default() };
        metrics.proposals.add(4);
        metrics.reset();
        assert_eq!((metrics.received, metrics.load.requests), (0, 3));
        assert_eq!(metrics.proposals.to_string(), "-1/-1/-1");
    }

    /// FLW-11.
    #[test]
    fn proposal_sizes_print_last_min_max() {
        let mut sizes = Sizes::default();
        for size in [40, 20, 30] {
            sizes.add(size);
        }
        assert_eq!(sizes.to_string(), "30/20/40");
    }
}
