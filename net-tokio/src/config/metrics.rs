//! Keys of the metrics (CONF-25).
//!
//! Owns these keys. Must not listen.

use super::fit;
use super::properties::{BadSetting, Properties};

/// Where Prometheus reads the metrics.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct MetricsAddress {
    /// `metricsProvider.httpHost`.
    pub(crate) host: String,
    /// `metricsProvider.httpPort`.
    pub(crate) port: u16,
}

/// ZooKeeper's classes: the one that listens, and those that do not.
const PROMETHEUS: &str = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider";
const QUIET: [&str; 2] = [
    "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
    "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
];

/// Reads where Prometheus reads the metrics; `None` if nowhere.
pub(super) fn read(keys: &mut Properties) -> Result<Option<MetricsAddress>, BadSetting> {
    let class = keys.take("metricsProvider.className");
    let listens = match &class {
        None => false,
        Some(entry) if entry.value == PROMETHEUS => true,
        Some(entry) if QUIET.contains(&&*entry.value) => false,
        Some(entry) => {
            let what = format!("there is no such class here; use {PROMETHEUS}, or remove the line");
            return Err(keys.refuse(entry, &what));
        }
    };
    let entries = ["metricsProvider.httpHost", "metricsProvider.httpPort"];
    let entries = entries.map(|key| keys.entry(key).cloned());
    let host = keys.text("metricsProvider.httpHost", "an address of this machine")?;
    let hint = "a port, such as 7000, or 0 for any that is free";
    let port = keys.number("metricsProvider.httpPort", 0..=65_535, hint)?;
    if !listens {
        for entry in entries.iter().flatten() {
            keys.warn(
                entry,
                &format!("has no effect without metricsProvider.className={PROMETHEUS}"),
            );
        }
        return Ok(None);
    }
    let host = host.unwrap_or_else(|| "0.0.0.0".to_owned());
    Ok(Some(MetricsAddress { host, port: port.map_or(7_000, fit) }))
}
