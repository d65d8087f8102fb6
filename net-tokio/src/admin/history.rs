//! What the charts of the page show: counters once a second, over the last hour.
//!
//! Owns the samples, whose number is bounded. Must not keep more of the server than that.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Mutex;
use std::time::Duration;

use serde::Serialize;
use zabkeeper_core::driver::admin::{AdminQuestion, AdminReply, Sample};

use super::ask::Asker;

/// Time between two samples.
const INTERVAL: Duration = Duration::from_secs(1);

/// Samples of an hour.
const POINTS: usize = 3_600;

/// The samples of the last hour.
#[derive(Default)]
pub(super) struct History {
    points: Mutex<VecDeque<Point>>,
}

/// What has happened within one interval; rates are per second.
#[derive(Clone, Debug, PartialEq)]
struct Point {
    at_ms: i64,
    received: Option<f64>,
    sent: Option<f64>,
    writes: Option<f64>,
    latency_ms: Option<f64>,
    latency_max_ms: Option<f64>,
    outstanding: u64,
    connections: usize,
    lag_ms: BTreeMap<u64, u128>,
}

/// The history as columns of equal length.
#[derive(Default, Serialize)]
pub(super) struct Columns {
    interval_ms: u128,
    time_ms: Vec<i64>,
    received: Vec<Option<f64>>,
    sent: Vec<Option<f64>>,
    writes: Vec<Option<f64>>,
    latency_ms: Vec<Option<f64>>,
    latency_max_ms: Vec<Option<f64>>,
    outstanding: Vec<u64>,
    connections: Vec<usize>,
    lag_ms: BTreeMap<u64, Vec<Option<u128>>>,
}

impl History {
    /// Takes a sample each second, for ever.
    pub(super) async fn record(&self, asker: &Asker) {
        let mut timer = tokio::time::interval(INTERVAL);
        timer.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        let mut last = None;
        loop {
            timer.tick().await;
            let Some(AdminReply::Sample(sample)) = asker.ask(AdminQuestion::Sample).await else {
                continue;
            };
            if let Some(last) = &last {
                self.add(Point::between(last, &sample));
            }
            last = Some(sample);
        }
    }

    fn add(&self, point: Point) {
        let mut points = self.points.lock().expect("nobody panics with it");
        if points.len() == POINTS {
            points.pop_front();
        }
        points.push_back(point);
    }

    /// The samples after this time, ms since 1970.
    pub(super) fn after(&self, at_ms: i64) -> Columns {
        let points = self.points.lock().expect("nobody panics with it");
        let points: Vec<&Point> = points.iter().filter(|point| point.at_ms > at_ms).collect();
        let servers: BTreeSet<u64> =
            points.iter().flat_map(|point| point.lag_ms.keys().copied()).collect();
        let lag = |server: u64| points.iter().map(move |of| of.lag_ms.get(&server).copied());
        Columns {
            interval_ms: INTERVAL.as_millis(),
            time_ms: points.iter().map(|point| point.at_ms).collect(),
            received: points.iter().map(|point| point.received).collect(),
            sent: points.iter().map(|point| point.sent).collect(),
            writes: points.iter().map(|point| point.writes).collect(),
            latency_ms: points.iter().map(|point| point.latency_ms).collect(),
            latency_max_ms: points.iter().map(|point| point.latency_max_ms).collect(),
            outstanding: points.iter().map(|point| point.outstanding).collect(),
            connections: points.iter().map(|point| point.connections).collect(),
            lag_ms: servers.iter().map(|server| (*server, lag(*server).collect())).collect(),
        }
    }
}

impl Point {
    fn between(last: &Sample, sample: &Sample) -> Point {
        let seconds = sample.at.mono.since(last.at.mono).as_secs_f64().max(1e-3);
        // A counter that has been reset gives no rate.
        let rate = |from: u64, to: u64| to.checked_sub(from).map(|by| by as f64 / seconds);
        let count = sample.latency.0.checked_sub(last.latency.0).filter(|count| *count > 0);
        let total = sample.latency.1.checked_sub(last.latency.1);
        let mean = count.zip(total).map(|(count, total)| total as f64 / count as f64 / 1e3);
        // zxids of different epochs do not count transactions.
        let same_epoch = last.zxid.epoch() == sample.zxid.epoch();
        let writes = rate(last.zxid.counter().into(), sample.zxid.counter().into());
        Point {
            at_ms: sample.at.wall.0,
            received: rate(last.received, sample.received),
            sent: rate(last.sent, sample.sent),
            writes: writes.filter(|_| same_epoch),
            latency_ms: mean,
            latency_max_ms: count.map(|_| sample.latency.2 as f64 / 1e3),
            outstanding: sample.outstanding,
            connections: sample.connections,
            lag_ms: sample.lag_ms.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use zabkeeper_core::{Instant, Now, WallMs, Zxid};

    use super::*;

    fn sample(second: u64, received: u64, zxid: u64, latency: (u64, u128, u128)) -> Sample {
        let wall = WallMs(i64::try_from(second * 1_000).expect("small"));
        Sample {
            at: Now { mono: Instant(second * 1_000_000_000), wall },
            received,
            sent: received,
            zxid: Zxid(zxid),
            latency,
            outstanding: 0,
            connections: 1,
            lag_ms: BTreeMap::from([(2, u128::from(second))]),
        }
    }

    #[test]
    fn rates_are_per_second_and_a_reset_gives_none() {
        let (first, next) = (
            sample(1, 10, 0x1_0000_0001, (0, 0, 0)),
            sample(3, 30, 0x1_0000_0007, (4, 8_000, 5_000)),
        );
        let point = Point::between(&first, &next);
        assert_eq!((point.received, point.writes), (Some(10.0), Some(3.0)));
        assert_eq!((point.latency_ms, point.latency_max_ms), (Some(2.0), Some(5.0)));
        let reset = Point::between(&next, &sample(4, 1, 0x2_0000_0000, (0, 0, 0)));
        assert_eq!((reset.received, reset.writes, reset.latency_ms), (None, None, None));
    }

    #[test]
    fn an_hour_is_kept_and_asked_for_from_a_time_on() {
        let history = History::default();
        for second in 0..4_000 {
            let (one, other) =
                (sample(second, 0, 0, (0, 0, 0)), sample(second + 1, 0, 0, (0, 0, 0)));
            history.add(Point::between(&one, &other));
        }
        let all = history.after(0);
        assert_eq!((all.time_ms.len(), all.time_ms[0]), (POINTS, 401_000));
        let newer = history.after(3_998_000);
        assert_eq!(newer.time_ms, [3_999_000, 4_000_000]);
        assert_eq!(newer.lag_ms[&2], [Some(3_999), Some(4_000)]);
    }
}
