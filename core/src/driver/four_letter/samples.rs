//! The list of figures that `mntr`, the admin command `monitor` and Prometheus print.
//!
//! Owns their names and their order, which are ZooKeeper's as far as the figures exist here. Must
//! not collect the figures, nor print them.

use super::super::metrics::{Detail, Metrics, Sample, SampleKey};
use super::text::{Figures, mode};
use crate::ids::Instant;
use crate::progress::{PendingReconfig, ServerProgress};
use crate::status::Mode;

/// All figures. The first ones are texts: the version, the mode and, in an ensemble, the state of
/// this server in it.
pub fn samples(figures: &Figures<'_>) -> Vec<Sample> {
    let Figures { status, metrics, .. } = figures;
    let latency = &metrics.latency;
    let leads = status.mode == Mode::Leader;
    let [last_size, min_size, max_size] = metrics.proposals.last_min_max();
    let [last_answer, min_answer, max_answer] = metrics.traffic.response_sizes.last_min_max();
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
    list.push(Sample::gauge("last_client_response_size", last_answer));
    list.push(Sample::gauge("packets_sent", metrics.sent));
    list.push(Sample::gauge("packets_received", metrics.received));
    if leads {
        list.push(Sample::gauge("max_proposal_size", max_size));
    }
    list.push(Sample::gauge("max_client_response_size", max_answer));
    if leads {
        list.push(Sample::gauge("synced_followers", status.synced_followers));
    }
    let probability = f64::from(figures.drop_probability) / 1e6;
    list.push(Sample::float("connection_drop_probability", probability));
    list.push(Sample::gauge("watch_count", status.watches));
    if leads {
        list.push(Sample::gauge("synced_non_voting_followers", 0));
        list.push(Sample::gauge("synced_observers", status.synced_observers));
    }
    list.push(Sample::gauge("auth_failed_count", metrics.traffic.auth_failed));
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
    list.push(Sample::gauge("min_client_response_size", min_answer));
    if let Some(ensemble) = &figures.options.ensemble {
        list.push(Sample::gauge("quorum_size", ensemble.voters));
    }
    counters(metrics, &mut list);
    summaries(metrics, figures.now, &mut list);
    sets(metrics, figures.now, &mut list);
    own(figures, &mut list);
    if leads {
        progress(figures, &mut list);
    }
    list
}

fn counters(metrics: &Metrics, list: &mut Vec<Sample>) {
    let Metrics { traffic, ensemble, storage, .. } = metrics;
    for (name, value) in [
        ("watch_bytes", traffic.watch_bytes),
        ("stale_requests_dropped", traffic.stale_requests),
        ("throttled_ops", traffic.throttled_ops),
        ("connection_rejected", metrics.rejected),
        ("sessionless_connections_expired", metrics.sessionless),
        ("stale_requests", traffic.stale_requests),
        ("connection_drop_count", traffic.dropped),
        ("bytes_received_count", metrics.bytes_received),
        ("request_throttle_wait_count", traffic.throttle_waits),
        ("stale_replies", traffic.stale_replies),
        ("response_bytes", traffic.response_bytes),
        ("diff_count", ensemble.diffs),
        ("connection_revalidate_count", traffic.revalidations),
        ("commit_count", ensemble.commits),
        ("proposal_count", metrics.proposals.count()),
        ("large_requests_rejected", metrics.large_rejected),
        ("cnxn_closed_without_zk_server_running", traffic.closed_without_leader),
        ("looking_count", ensemble.looking),
        ("learner_proposal_received_count", ensemble.proposals_received),
        ("digest_mismatches_count", ensemble.digest_mismatches),
        ("learner_commit_received_count", ensemble.commits_received),
        ("snapshot_error_count", storage.snapshot_errors),
        ("connection_request_count", metrics.handshakes),
        ("snap_count", ensemble.snaps),
        ("stale_sessions_expired", ensemble.sessions_expired),
        ("sync_processor_request_queued", storage.queued),
        ("revalidate_count", ensemble.revalidations),
    ] {
        list.push(Sample::counter(name, value));
    }
}

fn summaries(metrics: &Metrics, now: Instant, list: &mut Vec<Sample>) {
    let Metrics { traffic, ensemble, storage, .. } = metrics;
    let basic = |name, of| Sample::times(name, Detail::Basic, of, now);
    let numbers = |name, of| Sample::numbers(name, of, now);
    list.extend([
        basic("leader_unavailable_time", &ensemble.leader_unavailable),
        numbers("node_created_watch_count", &traffic.fired.created),
        numbers("connection_token_deficit", &traffic.token_deficit),
        numbers("node_deleted_watch_count", &traffic.fired.deleted),
        basic("follower_sync_time", &ensemble.follower_sync),
        basic("fsynctime", &storage.fsync),
        numbers("inflight_snap_count", &ensemble.inflight_snaps),
        basic("snapshottime", &storage.snapshot),
        basic("unavailable_time", &ensemble.unavailable),
        numbers("startup_txns_loaded", &storage.startup.txns),
        basic("dbinittime", &storage.startup.init),
        numbers("inflight_diff_count", &ensemble.inflight_diffs),
        basic("election_time", &ensemble.election),
        numbers("sync_processor_batch_size", &storage.batch),
        numbers("node_children_watch_count", &traffic.fired.children),
        basic("observer_sync_time", &ensemble.observer_sync),
        numbers("node_changed_watch_count", &traffic.fired.changed),
    ]);
    let advanced = |name, of| Sample::times(name, Detail::Advanced, of, now);
    list.extend([
        advanced("updatelatency", &traffic.updates),
        advanced("request_throttle_queue_time_ms", &traffic.throttle_time),
        advanced("readlatency", &traffic.reads),
        advanced("quorum_ack_latency", &ensemble.quorum_ack),
        advanced("commit_propagation_latency", &ensemble.commit_propagation),
        advanced("proposal_ack_creation_latency", &ensemble.ack_creation),
        advanced("proposal_latency", &ensemble.proposal),
        advanced("sync_processor_queue_and_flush_time_ms", &storage.queue_and_flush),
        advanced("propagation_latency", &ensemble.propagation),
        advanced("sync_processor_queue_flush_time_ms", &storage.fsync),
    ]);
}

fn sets(metrics: &Metrics, now: Instant, list: &mut Vec<Sample>) {
    for (name, namespaces) in
        [("read_per_namespace", &metrics.reads), ("write_per_namespace", &metrics.writes)]
    {
        list.extend(namespaces.iter().map(|(namespace, totals)| {
            Sample::totals(name, totals).with_key(SampleKey::Prefix(namespace.to_owned()))
        }));
    }
    list.extend(metrics.ensemble.ack.iter().map(|(server, summary)| {
        let key = SampleKey::Prefix(server.to_string());
        Sample::times("ack_latency", Detail::Advanced, summary, now).with_key(key)
    }));
}

/// Figures that ZooKeeper does not have.
fn own(figures: &Figures<'_>, list: &mut Vec<Sample>) {
    let Figures { metrics, now, .. } = figures;
    list.push(Sample::counter("trunc_count", metrics.ensemble.truncs));
    let ephemerals = metrics.traffic.ephemerals_deleted;
    list.push(Sample::counter("session_ephemerals_deleted_count", ephemerals));
    list.push(Sample::gauge("pending_event_bytes", figures.event_bytes));
    if let Some(last) = metrics.storage.last_snapshot {
        list.push(Sample::gauge("snapshot_age_ms", now.since(last).as_millis()));
    }
}

/// More of them: how far the other servers are, and what a reconfiguration
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
