//! What has gone over the wire: the figures of `srvr` and `mntr` that only the driver knows.
//!
//! Owns the counting. Must not decide anything.

use std::time::Duration;

/// Counters since the start of the process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Traffic {
    /// Handshakes, requests and four-letter words read.
    pub(crate) received: u64,
    /// Answers and events queued for sending.
    pub(crate) sent: u64,
    /// Bytes read from clients.
    pub(crate) bytes_received: u64,
    /// Handshakes among `received`.
    pub(crate) handshakes: u64,
    /// Connections closed at once because of a bound.
    pub(crate) rejected: u64,
    /// Connections closed because no handshake came in time.
    pub(crate) sessionless: u64,
    /// From the reading of a request to the queueing of its reply.
    pub(crate) latency: Latency,
}

/// Shortest, longest and total time of what has been measured.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Latency {
    count: u64,
    total: Duration,
    min: Duration,
    max: Duration,
}

impl Latency {
    /// Adds one measurement.
    pub(crate) fn add(&mut self, taken: Duration) {
        self.min = if self.count == 0 { taken } else { self.min.min(taken) };
        self.max = self.max.max(taken);
        self.total += taken;
        self.count += 1;
    }

    /// Shortest, in whole ms; zero where nothing was measured.
    pub(crate) fn min_ms(&self) -> u128 {
        self.min.as_millis()
    }

    /// Longest, in whole ms.
    pub(crate) fn max_ms(&self) -> u128 {
        self.max.as_millis()
    }

    /// Mean in ms, to four decimals as ZooKeeper prints it.
    pub(crate) fn mean_ms(&self) -> f64 {
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
    }
}
