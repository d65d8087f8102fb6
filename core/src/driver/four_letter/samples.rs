//! The list of figures that `mntr`, the admin command `monitor` and Prometheus print.
//!
//! Owns their names and their order, which are ZooKeeper's as far as the figures exist here. Must
//! not collect the figures, nor print them.

use super::super::metrics::{Sample, SampleKey};
use super::text::{Figures, mode};
use crate::progress::{PendingReconfig, ServerProgress};
use crate::status::Mode;

/// All figures. The first ones are texts: the version, the mode and, in an ensemble, the state of
/// this server in it.
pub fn samples(figures: &Figures<'_>) -> Vec<Sample> {
    let Figures { status, metrics, .. } = figures;
    let latency = &metrics.latency;
    let leads = status.mode == Mode::Leader;
    let [last_size, min_size, max_size] = metrics.proposals.last_min_max();
    let mut list = vec![
        Sample::text("version", figures.options.version_text()),
        Sample::text("server_state", mode(status)),
    ];
    match status.mode {
        Mode::Leader => list.push(Sample::text("peer_state", "leading - broadcast")),
        Mode::Follower => list.push(Sample::text("peer_state", "following - broadcast")),
        Mode::Observer => list.push(Sample::text("peer_state", "observing - broadcast")),
        Mode::Looking | Mode::ReadOnly | Mode::Standalone => {}
    }
    list.push(Sample::gauge("ephemerals_count", status.ephemerals));
    list.push(Sample::gauge("num_alive_connections", figures.connections));
    list.push(Sample::float("avg_latency", latency.mean_ms()));
    if leads {
        list.push(Sample::gauge("min_proposal_size", min_size));
    }
    list.push(Sample::gauge("outstanding_requests", metrics.load.requests));
    list.push(Sample::gauge("znode_count", status.nodes));
    list.push(Sample::gauge("global_sessions", status.sessions));
    list.push(Sample::gauge("packets_sent", metrics.sent));
    list.push(Sample::gauge("packets_received", metrics.received));
    if leads {
        list.push(Sample::gauge("max_proposal_size", max_size));
        list.push(Sample::gauge("synced_followers", status.synced_followers));
    }
    let probability = f64::from(figures.drop_probability) / 1e6;
    list.push(Sample::float("connection_drop_probability", probability));
    list.push(Sample::gauge("watch_count", status.watches));
    if leads {
        list.push(Sample::gauge("synced_non_voting_followers", 0));
        list.push(Sample::gauge("synced_observers", status.synced_observers));
    }
    list.push(Sample::gauge("min_latency", latency.min_ms()));
    if let Some(descriptors) = &figures.descriptors {
        list.push(Sample::gauge("max_file_descriptor_count", descriptors.limit));
    }
    list.push(Sample::gauge("approximate_data_size", status.data_bytes));
    if let Some(descriptors) = &figures.descriptors {
        list.push(Sample::gauge("open_file_descriptor_count", descriptors.open));
    }
    if leads {
        list.push(Sample::gauge("last_proposal_size", last_size));
        list.push(Sample::gauge("pending_syncs", status.pending_syncs));
        list.push(Sample::gauge("leader_uptime", figures.leader_uptime.as_millis()));
    }
    list.push(Sample::gauge("local_sessions", status.local_sessions));
    list.push(Sample::gauge("uptime", figures.uptime.as_millis()));
    list.push(Sample::gauge("max_latency", latency.max_ms()));
    if leads {
        list.push(Sample::gauge("learners", status.learners));
    }
    if let Some(ensemble) = &figures.options.ensemble {
        list.push(Sample::gauge("quorum_size", ensemble.voters));
    }
    list.push(Sample::counter("connection_rejected", metrics.rejected));
    list.push(Sample::counter("sessionless_connections_expired", metrics.sessionless));
    list.push(Sample::counter("bytes_received_count", metrics.bytes_received));
    list.push(Sample::counter("proposal_count", metrics.proposals.count()));
    list.push(Sample::counter("large_requests_rejected", metrics.large_rejected));
    list.push(Sample::counter("connection_request_count", metrics.handshakes));
    if leads {
        progress(figures, &mut list);
    }
    list
}

/// Figures that ZooKeeper does not have: how far the other servers are, and what a reconfiguration
/// waits for. What the leader does not know is -1.
fn progress(figures: &Figures<'_>, list: &mut Vec<Sample>) {
    let others = figures.progress.iter().filter(|server| server.server != figures.status.id);
    for ServerProgress { server, behind, lag, .. } in others {
        let key = || SampleKey::Suffix(server.to_string());
        let count = behind.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
        list.push(Sample::gauge("learner_lag_txns", count).with_key(key()));
        let lag = behind.map_or(-1, |_| i64::try_from(lag.as_millis()).unwrap_or(i64::MAX));
        list.push(Sample::gauge("learner_lag_ms", lag).with_key(key()));
    }
    if figures.config.reconfig.is_none() {
        return;
    }
    let pending = figures.pending_reconfig.as_ref();
    list.push(Sample::gauge("reconfig_in_progress", u8::from(pending.is_some())));
    if let Some(PendingReconfig { version, waited, missing_old, missing_new }) = pending {
        list.push(Sample::text("reconfig_version", format_args!("{:x}", version.0)));
        list.push(Sample::gauge("reconfig_wait_ms", waited.as_millis()));
        for (name, missing) in [
            ("reconfig_missing_old_voters", missing_old),
            ("reconfig_missing_new_voters", missing_new),
        ] {
            let ids: Vec<String> = missing.iter().map(|of| of.server.to_string()).collect();
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(",") };
            list.push(Sample::text(name, ids));
        }
    }
}
