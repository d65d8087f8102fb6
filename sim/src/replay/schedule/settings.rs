//! Settings of a run by name.
//!
//! Owns the names, and the default values. Every number among the options has a name; structures
//! are destructured completely, so that a new setting does not compile until it is listed here.

use std::collections::BTreeSet;
use std::ops::RangeInclusive;
use std::time::Duration;

use zabkeeper_core::wire::MAX_FRAME_DEFAULT;
use zabkeeper_core::{Limits, ServerId, TreeOptions};

use crate::check::model::LocalRules;
use crate::clients::workload::WorkloadOptions;
use crate::clients::workload::{self, OpMix};
use crate::faults::catalog::FaultPlan;
use crate::faults::heal::LeftOut;
use crate::machine::fs::Pace;
use crate::network::stream::LinkPace;
use crate::world::options::{
    CALLS_MAX, CLIENTS_MAX, ClientBounds, DIGEST_TXNS, DISK_AUDIT_TXNS, Groups, Older, Options,
    PING_PERCENT, PeerOptions, SERVERS_MAX, ServerOptions, Throttle, VotePace,
};

/// Minimum limit of a frame, bytes.
const FRAME_LEAST: u64 = 256;
/// Maximum of any duration, ms.
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;

/// A setting that is written as a number.
trait Number {
    fn get(&self) -> u64;
    fn set(&mut self, number: u64);
}

impl Number for u64 {
    fn get(&self) -> u64 {
        *self
    }

    fn set(&mut self, number: u64) {
        *self = number;
    }
}

impl Number for u32 {
    fn get(&self) -> u64 {
        (*self).into()
    }

    fn set(&mut self, number: u64) {
        *self = u32::try_from(number).unwrap_or(u32::MAX);
    }
}

impl Number for usize {
    fn get(&self) -> u64 {
        *self as u64
    }

    fn set(&mut self, number: u64) {
        *self = usize::try_from(number).unwrap_or(usize::MAX);
    }
}

impl Number for bool {
    fn get(&self) -> u64 {
        (*self).into()
    }

    fn set(&mut self, number: u64) {
        *self = number != 0;
    }
}

impl Number for Duration {
    fn get(&self) -> u64 {
        u64::try_from(self.as_micros()).unwrap_or(u64::MAX)
    }

    fn set(&mut self, number: u64) {
        *self = Duration::from_micros(number);
    }
}

/// Servers as bits: server N is the bit `1 << N`.
impl Number for BTreeSet<ServerId> {
    fn get(&self) -> u64 {
        self.iter().map(|id| 1 << id.0).sum()
    }

    fn set(&mut self, number: u64) {
        *self = (1..64).filter(|id| number & (1 << id) != 0).map(ServerId).collect();
    }
}

/// All settings by name, in the order in which they are written.
pub fn values(options: &Options) -> Vec<(&'static str, u64)> {
    let mut values = Vec::new();
    each(&mut options.clone(), &mut |name, number| values.push((name, number.get())));
    values
}

/// Names of all settings, in the same order.
pub fn names() -> Vec<&'static str> {
    values(&plain()).into_iter().map(|(name, _)| name).collect()
}

/// The value of a setting.
pub fn value(options: &Options, wanted: &str) -> Option<u64> {
    values(options).into_iter().find(|(name, _)| *name == wanted).map(|(_, value)| value)
}

/// The valid range of a setting: all values that are drawn, up to about what a run can handle.
pub(super) fn bounds(name: &str) -> RangeInclusive<u64> {
    let least = match name {
        "servers"
        | "paths"
        | "tick_ms"
        | "init_ticks"
        | "sync_ticks"
        | "container_check_ms"
        | "container_max_per_minute"
        | "compare_txns"
        | "batch_inputs"
        | "batch_commands"
        | "step_units"
        | "turn_units"
        | "notify_min_us"
        | "notify_max_us"
        | "epoch_txns"
        | "throttle.fill_count"
        | "throttle.new_costs"
        | "outbound_bytes"
        | "operators.part_lines"
        | "clients.output_bytes"
        | "clients.event_bytes"
        | "clients.sessionless_ms"
        | "calls_max"
        | "late_percent"
        | "requests_per_conn"
        | "peers.window_bytes"
        | "peers.inputs"
        | "digest_txns"
        | "disk_audit_txns" => 1,
        // A reply header must fit.
        "record_bytes" => 100,
        // A handshake and the probe write must fit.
        "frame_bytes" | "request_bytes" => FRAME_LEAST,
        _ => 0,
    };
    let most = match name.rsplit_once(['.', '_']).map_or(name, |(_, unit)| unit) {
        _ if name == "servers" => SERVERS_MAX.into(),
        "clients" => CLIENTS_MAX.into(),
        _ if name == "snapshot_bytes" => 1 << 40,
        "us" => DAY_MS * 1_000,
        "ms" => DAY_MS,
        "ns" => 1_000_000_000,
        "bytes" => 1 << 30,
        "ticks" => 10_000,
        "paths" | "hot" | "depth" => 10_000,
        "from" | "observers" => SERVERS_MAX.into(),
        "oracle" => 2,
        "ratio" => 1_000_000,
        "percent" => 100,
        "costs" | "count" => 1_000,
        _ => u64::MAX,
    };
    least..=most
}

/// Whether the setting is a set of servers.
pub(super) fn holds_servers(name: &str) -> bool {
    name.ends_with(".servers") || name.starts_with("heal.")
}

/// A copy of the options with one setting changed. `None` if there is no setting of this name.
pub fn with(options: &Options, wanted: &str, value: u64) -> Option<Options> {
    let (mut options, mut found) = (options.clone(), false);
    each(&mut options, &mut |name, number| {
        if name == wanted {
            number.set(value);
            found = true;
        }
    });
    found.then_some(options)
}

/// The defaults of schedules: the usual server configuration, constant durations, and no faults.
pub fn plain() -> Options {
    let link = LinkPace { min: 200_000, mean: 0, tail_one_in: 0, cut_one_in: 0 };
    let mut server = ServerOptions::usual();
    server.tick_ms = 200;
    server.auth = workload::known();
    Options {
        profile: None,
        duration: Duration::from_secs(60),
        servers: 3,
        observers: 0,
        observer_masters: false,
        clients: 1,
        faults: FaultPlan::none(),
        rules: Vec::new(),
        at_marks: None,
        forks: Vec::new(),
        server,
        local: LocalRules::default(),
        config_change_one_in: 0,
        workload: WorkloadOptions {
            calls_per_second: 50,
            paths: 5,
            hot: 0,
            depth: 16,
            data_bytes: 100,
            session_ms: (2_000, 2_000),
            mix: OpMix::usual(),
            reconnect_ms: 0,
            watches_bytes: 128 << 10,
            request_bytes: MAX_FRAME_DEFAULT,
            calls_max: CALLS_MAX,
            late_one_in: 0,
            read_only_one_in: 0,
            programs: 0,
            recipe: 0,
            late_percent: PING_PERCENT,
            narrow_one_in: 0,
            eager_one_in: 0,
            odd_one_in: 0,
            idle_one_in: 0,
            ephemeral_parts: false,
            hops: false,
        },
        disk: Pace { sync_mean: 1_000_000, op_mean: 10_000, per_kib: 500, steady: true },
        link,
        peers: PeerOptions {
            link,
            window: 256 << 10,
            inputs: 8192,
            dial_timeout_ms: 1_000,
            votes: VotePace::WELL,
            election_conns: false,
            words_late_ms: 0,
        },
        grows_from: 0,
        grows_at: Duration::ZERO,
        reconfig_from: 0,
        groups: Groups::default(),
        oracle: 0,
        older: Older::default(),
        members: None,
        map_salt: 0,
        fault_events: 0,
        unhealed: false,
        digest_txns: DIGEST_TXNS,
        disk_audit_txns: DISK_AUDIT_TXNS,
        rest: Duration::ZERO,
        gone_one_in: 0,
        left_out: LeftOut::default(),
        without: Vec::new(),
        custom: None,
    }
}

type Visit<'a> = &'a mut dyn FnMut(&'static str, &mut dyn Number);

fn each(options: &mut Options, visit: Visit<'_>) {
    let Options {
        profile: _,
        faults: _,
        members: _,
        map_salt: _,
        rules: _,
        without: _,
        custom: _,
        at_marks: _,
        forks: _,
        duration,
        fault_events,
        unhealed,
        digest_txns,
        disk_audit_txns,
        rest,
        gone_one_in,
        servers,
        observers,
        observer_masters,
        clients,
        server,
        workload,
        disk,
        link,
        peers,
        grows_from,
        grows_at,
        reconfig_from,
        groups: Groups { count: groups, weightless, heavy },
        oracle,
        older: Older { servers: older, upgrade_at, downgrade_at, pause },
        local: LocalRules { servers: local_servers, upgrade },
        config_change_one_in,
        left_out: LeftOut { dead, hung, stuck, alone, apart },
    } = options;
    visit("duration_us", duration);
    visit("fault_events", fault_events);
    visit("unhealed", unhealed);
    visit("digest_txns", digest_txns);
    visit("disk_audit_txns", disk_audit_txns);
    visit("rest_us", rest);
    visit("gone_one_in", gone_one_in);
    visit("servers", servers);
    visit("observers", observers);
    visit("observer_masters", observer_masters);
    visit("clients", clients);
    each_of_server(server, visit);
    each_of_workload(workload, visit);
    let Pace { sync_mean, op_mean, per_kib, steady } = disk;
    visit("disk.sync_ns", sync_mean);
    visit("disk.op_ns", op_mean);
    visit("disk.kib_ns", per_kib);
    visit("disk.steady", steady);
    let names = ["link.min_ns", "link.mean_ns", "link.tail_one_in", "link.cut_one_in"];
    each_of_link(link, names, visit);
    visit("local.servers", local_servers);
    visit("local.upgrade", upgrade);
    visit("config_change_one_in", config_change_one_in);
    visit("grows_from", grows_from);
    visit("grows_at_us", grows_at);
    visit("reconfig_from", reconfig_from);
    visit("groups.count", groups);
    visit("groups.weightless", weightless);
    visit("groups.heavy", heavy);
    visit("oracle", oracle);
    visit("heal.dead", dead);
    visit("heal.hung", hung);
    visit("heal.stuck", stuck);
    visit("heal.alone", alone);
    visit("heal.apart", apart);
    let PeerOptions { link, window, inputs, dial_timeout_ms, votes, election_conns, words_late_ms } =
        peers;
    visit("words_late_ms", words_late_ms);
    let names = ["peers.min_ns", "peers.mean_ns", "peers.tail_one_in", "peers.cut_one_in"];
    each_of_link(link, names, visit);
    visit("peers.window_bytes", window);
    visit("peers.inputs", inputs);
    visit("peers.dial_timeout_ms", dial_timeout_ms);
    let VotePace { lost_one_in, twice_one_in, late_one_in } = votes;
    visit("votes.lost_one_in", lost_one_in);
    visit("votes.twice_one_in", twice_one_in);
    visit("votes.late_one_in", late_one_in);
    visit("peers.election_conns", election_conns);
    visit("older.servers", older);
    visit("older.upgrade_at_us", upgrade_at);
    visit("older.downgrade_at_us", downgrade_at);
    visit("older.pause_us", pause);
}

fn each_of_link(link: &mut LinkPace, names: [&'static str; 4], visit: Visit<'_>) {
    let LinkPace { min, mean, tail_one_in, cut_one_in } = link;
    visit(names[0], min);
    visit(names[1], mean);
    visit(names[2], tail_one_in);
    visit(names[3], cut_one_in);
}

fn each_of_server(server: &mut ServerOptions, visit: Visit<'_>) {
    let ServerOptions {
        tick_ms,
        phase_ticks,
        limits,
        session_ticks,
        other_sessions,
        other_session_ticks,
        frame_bytes,
        outbound_bytes,
        refused_command,
        part_lines,
        read_only_mode,
        leader_serves,
        clients,
        throttle,
        auth,
        tree,
        segment_bytes,
        batch_inputs,
        turn_units,
        batch_commands,
        step_ns,
        timer_slack_us,
        log_pause_us,
        snapshot_pause_us,
    } = server;
    visit("tick_ms", tick_ms);
    visit("init_ticks", &mut phase_ticks.0);
    visit("sync_ticks", &mut phase_ticks.1);
    visit("session_min_ticks", &mut session_ticks.0);
    visit("session_max_ticks", &mut session_ticks.1);
    visit("other_sessions.servers", other_sessions);
    visit("other_sessions.min_ticks", &mut other_session_ticks.0);
    visit("other_sessions.max_ticks", &mut other_session_ticks.1);
    visit("frame_bytes", frame_bytes);
    visit("outbound_bytes", outbound_bytes);
    visit("operators.refused", refused_command);
    visit("operators.part_lines", part_lines);
    visit("read_only_mode", read_only_mode);
    each_of_client_bounds(clients, visit);
    each_of_throttle(throttle, visit);
    // The other authentication options are never drawn.
    visit("auth.x509", &mut auth.x509);
    visit("auth.ensemble", &mut auth.ensemble);
    visit("auth.skip_lists", &mut auth.skip_acl);
    visit("auth.no_digest", &mut auth.digest_disabled);
    each_of_limits(limits, visit);
    each_of_tree(tree, visit);
    visit("segment_bytes", segment_bytes);
    visit("batch_inputs", batch_inputs);
    visit("batch_commands", batch_commands);
    visit("step_ns", step_ns);
    visit("timer_slack_us", timer_slack_us);
    visit("log_pause_us", log_pause_us);
    visit("snapshot_pause_us", snapshot_pause_us);
    visit("prefer_snapshots", &mut limits.prefer_snapshots);
    visit("step_units", &mut limits.step_units);
    visit("turn_units", turn_units);
    visit("snapshot_size_factor", &mut limits.snapshot_size_factor);
    visit("leader_serves", leader_serves);
}

fn each_of_client_bounds(bounds: &mut ClientBounds, visit: Visit<'_>) {
    let ClientBounds {
        output_bytes,
        event_bytes,
        outstanding,
        throttle_max_requests,
        sessionless_ms,
    } = bounds;
    visit("clients.output_bytes", output_bytes);
    visit("clients.event_bytes", event_bytes);
    visit("clients.outstanding", outstanding);
    visit("clients.throttle_max_requests", throttle_max_requests);
    visit("clients.sessionless_ms", sessionless_ms);
}

fn each_of_throttle(throttle: &mut Throttle, visit: Visit<'_>) {
    let Throttle { tokens, fill, fill_count, freeze, drops, decrease_ratio, weighted, weights } =
        throttle;
    visit("throttle.tokens", tokens);
    visit("throttle.fill_us", fill);
    visit("throttle.fill_count", fill_count);
    visit("throttle.freeze_us", freeze);
    visit("throttle.more_drops", &mut drops.0);
    visit("throttle.fewer_drops", &mut drops.1);
    visit("throttle.decrease_ratio", decrease_ratio);
    visit("throttle.weighted", weighted);
    visit("throttle.new_costs", &mut weights.0);
    visit("throttle.local_costs", &mut weights.1);
    visit("throttle.renewal_costs", &mut weights.2);
}

fn each_of_limits(limits: &mut Limits, visit: Visit<'_>) {
    let Limits {
        requests_per_conn,
        undurable_bytes,
        snapshot_txns,
        snapshot_slice_bytes,
        compare_txns,
        snapshot_bytes,
        snapshots_kept,
        epoch_txns,
        hold,
        final_wait,
        notify_min,
        notify_max,
        recent_bytes,
        bulk_bytes,
        record_bytes,
        // Later additions, at the end of a schedule.
        prefer_snapshots: _,
        step_units: _,
        snapshot_size_factor: _,
    } = limits;
    visit("requests_per_conn", requests_per_conn);
    visit("undurable_bytes", undurable_bytes);
    visit("snapshot_txns", snapshot_txns);
    visit("snapshot_slice_bytes", snapshot_slice_bytes);
    visit("compare_txns", compare_txns);
    visit("snapshot_bytes", snapshot_bytes);
    visit("snapshots_kept", snapshots_kept);
    visit("epoch_txns", epoch_txns);
    visit("hold_us", hold);
    visit("final_wait_us", final_wait);
    visit("notify_min_us", notify_min);
    visit("notify_max_us", notify_max);
    visit("recent_bytes", recent_bytes);
    visit("bulk_bytes", bulk_bytes);
    visit("record_bytes", record_bytes);
}

fn each_of_tree(tree: &mut TreeOptions, visit: Visit<'_>) {
    let TreeOptions {
        extended_types,
        enforce_quota,
        container_check_ms,
        container_max_per_minute,
        container_never_used_ms,
    } = tree;
    visit("extended_types", extended_types);
    visit("enforce_quota", enforce_quota);
    visit("container_check_ms", container_check_ms);
    visit("container_max_per_minute", container_max_per_minute);
    visit("container_never_used_ms", container_never_used_ms);
}

fn each_of_workload(workload: &mut WorkloadOptions, visit: Visit<'_>) {
    let WorkloadOptions {
        // The steps of a schedule determine the number and kind of calls.
        calls_per_second: _,
        mix: _,
        idle_one_in: _,
        eager_one_in: _,
        paths,
        hot,
        depth,
        data_bytes,
        session_ms,
        reconnect_ms,
        watches_bytes,
        request_bytes,
        calls_max,
        late_one_in,
        read_only_one_in,
        programs,
        recipe,
        late_percent,
        narrow_one_in,
        odd_one_in,
        ephemeral_parts,
        hops,
    } = workload;
    visit("paths", paths);
    visit("hot", hot);
    visit("depth", depth);
    visit("data_bytes", data_bytes);
    visit("session_min_ms", &mut session_ms.0);
    visit("session_max_ms", &mut session_ms.1);
    visit("reconnect_ms", reconnect_ms);
    visit("watches_bytes", watches_bytes);
    visit("request_bytes", request_bytes);
    visit("calls_max", calls_max);
    visit("late_one_in", late_one_in);
    visit("read_only_one_in", read_only_one_in);
    visit("late_percent", late_percent);
    visit("narrow_one_in", narrow_one_in);
    visit("odd_one_in", odd_one_in);
    visit("ephemeral_parts", ephemeral_parts);
    visit("hops", hops);
    visit("programs", programs);
    visit("recipe", recipe);
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::seed::Seeds;
    use crate::replay::schedule::Schedule;
    use crate::world::options::{Pinned, Profile};

    #[test]
    fn drawn_settings_are_within_bounds() {
        let mut all = vec![plain()];
        for profile in Profile::ALL {
            let drawn = |seed| Options::draw(Seeds::new(seed), profile, &Pinned::default());
            all.extend((0..200).map(drawn));
        }
        for options in &all {
            for name in names() {
                let value = value(options, name).expect("it has a name");
                assert!(bounds(name).contains(&value), "{name} {value}");
            }
            assert_eq!(Schedule::of_run(0, options, Vec::new()).check(), Ok(()));
        }
    }
}
