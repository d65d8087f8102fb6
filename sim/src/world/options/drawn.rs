//! Every setting varies between runs, or is listed here with the reason why it does not.
//!
//! Owns the reasons. The tests destructure options completely, or use their serialization, so a new
//! setting must be drawn or listed before they pass.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use zabkeeper_core::SessionId;
use zabkeeper_core::driver::ClientLimits;
use zabkeeper_core::throttle::{ThrottleOptions, Weights};

use super::*;
use crate::clients::client::library_config;
use crate::replay::schedule::{setting, setting_names};

/// Settings that no seed changes, with the reasons.
const FIXED: &[(&str, &str)] = &[
    ("auth.digest_alg", "the model hashes with SHA-1 only; unit tests have the others"),
    ("auth.ensemble_names", "each client draws which of two names, or another one, it says"),
    ("auth.key", "an example scheme that nobody deploys; unit tests have it"),
    ("auth.required_schemes", "no client of this library could serve there; unit tests have it"),
    ("auth.super_digest", "clients draw who they are: one user of several is this one"),
    ("auth.x509_super_user", "the same"),
    ("clients.connections", "the world does not count whom a server refuses; unit tests have it"),
    ("clients.connections_per_ip", "each client has an address of its own; unit tests have it"),
    (
        "clients.drop_stale",
        "nobody but the driver knows how long a request has waited; tests of sockets have it",
    ),
    ("clients.large", "as `clients.drop_stale`"),
    ("clients.op_wait_max", "as `clients.drop_stale`; unit tests have it"),
    ("client.read_only", "each client draws whether it accepts a read-only server"),
    ("client.resume", "a client that goes on with a session says so; see `client.restart`"),
    ("config.map_salt", "must change nothing, which a second run of the seed proves"),
    ("digest_txns", "how often oracles look must change nothing; the shrinker changes it"),
    ("disk.steady", "of schedules only: all that takes time takes the same time always"),
    ("servers.connect_timeout", "as `servers.output_bytes`"),
    ("servers.demands_secret", "no server of a run has a secret; tests of the driver have it"),
    ("servers.ensemble", "what each server has learnt, when its process begins"),
    ("servers.output_bytes", "windows keep less waiting; tests of the driver have it"),
    ("disk_audit_txns", "as `digest_txns`"),
];

type Values = BTreeMap<String, BTreeSet<String>>;

fn note(values: &mut Values, name: &str, value: impl std::fmt::Debug) {
    values.entry(name.to_owned()).or_default().insert(format!("{value:?}"));
}

fn all_runs() -> impl Iterator<Item = Options> {
    let faulty = |profile: &Profile| *profile != Profile::Perf;
    let profiles = Profile::ALL.into_iter().filter(faulty);
    profiles.flat_map(|profile| {
        (0..300).map(move |seed| Options::draw(Seeds::new(seed), profile, &Pinned::default()))
    })
}

/// The settings of a server, grouped as they are serialized: members of a group are named
/// `group.name`.
fn of_server(values: &mut Values, config: &Config) {
    let Ok(Value::Object(fields)) = serde_json::to_value(config) else {
        panic!("a configuration has fields");
    };
    for (name, value) in fields {
        match (&name[..], value) {
            ("limits" | "tree" | "auth" | "sessions", Value::Object(group)) => {
                for (field, value) in group {
                    note(values, &format!("{name}.{field}"), value);
                }
            }
            (_, value) => note(values, &format!("config.{name}"), value),
        }
    }
}

fn of_throttle(values: &mut Values, options: ThrottleOptions) {
    let ThrottleOptions {
        tokens,
        fill_time,
        fill_count,
        freeze_time,
        drop_increase,
        drop_decrease,
        decrease_ratio,
        weights,
    } = options;
    note(values, "throttle.tokens", tokens);
    note(values, "throttle.fill_time", fill_time);
    note(values, "throttle.fill_count", fill_count);
    note(values, "throttle.freeze_time", freeze_time);
    note(values, "throttle.drop_increase", drop_increase);
    note(values, "throttle.drop_decrease", drop_decrease);
    note(values, "throttle.decrease_ratio", decrease_ratio);
    if let Some(Weights { global, local, renew }) = weights {
        note(values, "throttle.weights.global", global);
        note(values, "throttle.weights.local", local);
        note(values, "throttle.weights.renew", renew);
    }
}

fn of_clients(values: &mut Values, limits: ClientLimits) {
    let ClientLimits {
        max_frame,
        connections_per_ip,
        connections,
        sessionless_timeout,
        outstanding,
        throttle_max_requests,
        op_wait_max,
        drop_stale,
        large,
        throttle,
        output_bytes,
        event_bytes,
    } = limits;
    of_throttle(values, throttle);
    note(values, "clients.max_frame", max_frame);
    note(values, "clients.connections_per_ip", connections_per_ip);
    note(values, "clients.connections", connections);
    note(values, "clients.sessionless_timeout", sessionless_timeout);
    note(values, "clients.outstanding", outstanding);
    note(values, "clients.throttle_max_requests", throttle_max_requests);
    note(values, "clients.op_wait_max", op_wait_max);
    note(values, "clients.drop_stale", drop_stale);
    note(values, "clients.large", large);
    note(values, "clients.output_bytes", output_bytes);
    note(values, "clients.event_bytes", event_bytes);
}

fn of_servers(values: &mut Values, options: driver::PeerOptions) {
    let driver::PeerOptions {
        connect_timeout,
        ensemble,
        secrets: _,
        demands_secret,
        output_bytes,
        inputs,
        max_frame,
        version,
    } = options;
    note(values, "servers.version", version);
    note(values, "servers.connect_timeout", connect_timeout);
    note(values, "servers.ensemble", ensemble);
    note(values, "servers.demands_secret", demands_secret);
    note(values, "servers.output_bytes", output_bytes);
    note(values, "servers.inputs", inputs);
    note(values, "servers.max_frame", max_frame);
}

fn of_client(values: &mut Values, options: &Options) {
    let (low, high) = options.workload.session_ms;
    for timeout_ms in [low, high] {
        let timeout_ms = i32::try_from(timeout_ms).expect("small");
        let zabkeeper_client::Config {
            servers,
            session_timeout_ms,
            resume,
            read_only,
            calls_max,
            request_bytes_max,
            reconnect_delay_max,
            round_pause,
            watches_bytes,
        } = library_config(options, timeout_ms, None);
        note(values, "client.servers", servers);
        note(values, "client.session_timeout_ms", session_timeout_ms);
        note(values, "client.resume", resume.map(|(SessionId(id), _)| id));
        note(values, "client.read_only", read_only);
        note(values, "client.calls_max", calls_max);
        note(values, "client.request_bytes_max", request_bytes_max);
        note(values, "client.reconnect_delay_max", reconnect_delay_max);
        note(values, "client.round_pause", round_pause);
        note(values, "client.watches_bytes", watches_bytes);
    }
}

#[test]
fn every_setting_varies_or_has_a_reason() {
    let mut values = Values::new();
    for options in all_runs() {
        for name in setting_names() {
            note(&mut values, name, setting(&options, name));
        }
        options.all_servers().for_each(|id| of_server(&mut values, &options.config(id)));
        of_clients(&mut values, options.server.client_limits());
        for older in [false, !options.older.servers.is_empty()] {
            of_servers(&mut values, options.driver_peers(0, older));
        }
        of_client(&mut values, &options);
        // The seed determines the id.
        let storage_fs::Options { segment_bytes, store_id: _ } = storage_fs::Options {
            segment_bytes: options.server.segment_bytes,
            ..storage_fs::Options::new(0)
        };
        note(&mut values, "store.segment_bytes", segment_bytes);
    }
    let reason = |name: &str| FIXED.iter().find(|(fixed, _)| *fixed == name).map(|(_, why)| *why);
    let single = values.iter().filter(|(_, seen)| seen.len() == 1).map(|(name, _)| &name[..]);
    let silent: Vec<&str> = single.filter(|name| reason(name).is_none()).collect();
    assert_eq!(silent, Vec::<&str>::new(), "have one value in all runs: draw them, or say why not");
    let drawn = |name: &str| values.get(name).is_none_or(|seen| seen.len() > 1);
    let idle: Vec<&str> = FIXED.iter().map(|(name, _)| *name).filter(|name| drawn(name)).collect();
    assert_eq!(idle, Vec::<&str>::new(), "have a reason why they are not drawn, and are");
}

#[test]
fn rare_settings_occur_in_some_but_few_runs() {
    let all: Vec<Options> = all_runs().collect();
    let count = |is: fn(&Options) -> bool| all.iter().filter(|options| is(options)).count();
    for (what, some) in [
        ("other timeouts", count(|o| !o.server.other_sessions.is_empty())),
        ("short frames", count(|o| o.server.frame_bytes < MAX_FRAME_DEFAULT)),
        ("short requests", count(|o| o.workload.request_bytes < MAX_FRAME_DEFAULT)),
        ("few calls", count(|o| o.workload.calls_max < CALLS_MAX)),
        ("skipped lists", count(|o| o.server.auth.skip_acl)),
        ("no digests", count(|o| o.server.auth.digest_disabled)),
        ("bounds on output", count(|o| o.server.clients.output_bytes < 1 << 20)),
        ("bounds on events", count(|o| o.server.clients.event_bytes < 1 << 20)),
        ("bounds on requests", count(|o| o.server.clients.throttle_max_requests > 0)),
        ("little on its way", count(|o| o.server.outbound_bytes < OUTBOUND_BYTES)),
        ("a command refused", count(|o| o.server.refused_command > 0)),
        ("answers in parts", count(|o| o.server.part_lines < PART_LINES)),
        ("other limits of a DIFF", count(|o| o.server.limits.snapshot_size_factor != 330_000)),
        ("other holds", count(|o| o.server.limits.hold != o.server.tick())),
        ("a full bucket only", count(|o| o.server.throttle.decrease_ratio == 0)),
        ("servers of the last release", count(|o| !o.older.servers.is_empty())),
    ] {
        assert!((all.len() / 80..all.len() / 3).contains(&some), "{what}: {some} of {}", all.len());
    }
}
