//! Keys that limit clients: connections, bytes, outstanding requests (THR rows).
//!
//! Owns these keys. Must not enforce anything: the driver in the core does.

use std::time::Duration;

use zabkeeper_core::driver::{ClientLimits, LargeRequests};
use zabkeeper_core::throttle::{ThrottleOptions, Weights};

use super::properties::{BadSetting, Properties};
use super::{TRUE_FALSE, fit};

/// Default of `largeRequestMaxBytes`.
const LARGE_BYTES: i64 = 100 << 20;

const MOST: i64 = i32::MAX as i64;

/// Reads the limits of a server in an ensemble of `voters` voters.
pub(super) fn read(keys: &mut Properties, voters: usize) -> Result<ClientLimits, BadSetting> {
    let mut limits = ClientLimits::default();
    if let Some(bytes) = keys.number("jute.maxbuffer", 100..=128 << 20, "bytes, such as 1048575")? {
        limits.max_frame = fit(bytes);
    }
    let connections = "a number of connections, or 0 for no bound";
    if let Some(bound) = bound(keys, "maxClientCnxns", connections)? {
        limits.connections_per_ip = bound.map(fit);
    }
    limits.connections = bound(keys, "maxCnxns", connections)?.flatten().map(fit);
    let ms = "milliseconds, such as 10000";
    if let Some(time) = keys.number("nio.sessionlessCnxnTimeout", 1..=MOST, ms)? {
        limits.sessionless_timeout = Duration::from_millis(fit(time));
    }
    let requests = "a number of requests, such as 1000";
    let outstanding = keys.number("globalOutstandingLimit", 0..=MOST, requests)?;
    // As in ZooKeeper, the limit is divided by the number of followers, so that all followers
    // together send the leader no more than one server's limit.
    let share = if voters > 2 { voters - 1 } else { 1 };
    limits.outstanding = outstanding.map_or(limits.outstanding, fit) / share as u64;
    let requests = "a number of requests, or 0 for no bound";
    limits.throttle_max_requests =
        bound(keys, "request_throttle_max_requests", requests)?.flatten().map(fit);
    let ms = "milliseconds, or 0 for as long as it takes";
    let op_wait_max = bound(keys, "throttled_op_wait_time", ms)?.flatten();
    limits.op_wait_max = op_wait_max.map(|ms| Duration::from_millis(fit(ms)));
    let drop = keys.switch("request_throttle_drop_stale", TRUE_FALSE)?.unwrap_or(true);
    let check = keys.switch("request_stale_latency_check", TRUE_FALSE)?.unwrap_or(false);
    limits.drop_stale = drop && check;
    limits.large = large(keys)?;
    limits.throttle = throttle(keys)?;
    Ok(limits)
}

/// Reads a bound: `None` if the key is absent, `Some(None)` if 0 disables the bound.
fn bound(keys: &mut Properties, key: &str, hint: &str) -> Result<Option<Option<i64>>, BadSetting> {
    let number = keys.number(key, 0..=MOST, hint)?;
    Ok(number.map(|number| Some(number).filter(|number| *number > 0)))
}

fn large(keys: &mut Properties) -> Result<Option<LargeRequests>, BadSetting> {
    let bytes = keys.number("largeRequestMaxBytes", 1..=MOST, "bytes, such as 104857600")?;
    let entry = keys.entry("largeRequestThreshold").cloned();
    let hint = "bytes, or -1 for no bound";
    let above = keys.number("largeRequestThreshold", -1..=MOST, hint)?;
    match (above, entry) {
        (None | Some(-1), _) | (_, None) => Ok(None),
        (Some(0), Some(entry)) => {
            Err(keys.refuse(&entry, &format!("out of range 1 to {MOST}; use {hint}")))
        }
        (Some(above), Some(_)) => {
            Ok(Some(LargeRequests { above: fit(above), bytes: fit(bytes.unwrap_or(LARGE_BYTES)) }))
        }
    }
}

fn throttle(keys: &mut Properties) -> Result<ThrottleOptions, BadSetting> {
    let mut options = ThrottleOptions::default();
    let mut number = |name: &str, least: i64, hint: &str| {
        keys.number(&format!("connection_throttle_{name}"), least..=MOST, hint)
    };
    let tokens = "a number of connections, or 0 for no bound";
    options.tokens = number("tokens", 0, tokens)?.map_or(options.tokens, fit);
    let ms = "milliseconds, such as 1";
    if let Some(time) = number("fill_time", 1, ms)? {
        options.fill_time = Duration::from_millis(fit(time));
    }
    let count = "a number of tokens, such as 1";
    options.fill_count = number("fill_count", 0, count)?.map_or(options.fill_count, fit);
    let time = number("freeze_time", -1, "milliseconds, or -1 for no random drops")?;
    options.freeze_time = time.filter(|ms| *ms >= 0).map(|ms| Duration::from_millis(fit(ms)));
    let mut weights = Weights::default();
    let weight = "a number of tokens, such as 3";
    for (name, place) in [
        ("global_session_weight", &mut weights.global),
        ("local_session_weight", &mut weights.local),
        ("renew_session_weight", &mut weights.renew),
    ] {
        *place = number(name, 1, weight)?.map_or(*place, fit);
    }
    // As in ZooKeeper, no weight is less than that of a local session.
    weights.global = weights.global.max(weights.local);
    weights.renew = weights.renew.max(weights.local);
    let weighted = keys.switch("connection_throttle_weight_enabled", TRUE_FALSE)?;
    options.weights = weighted.unwrap_or(false).then_some(weights);
    for (name, place) in [
        ("drop_increase", &mut options.drop_increase),
        ("drop_decrease", &mut options.drop_decrease),
        ("decrease_ratio", &mut options.decrease_ratio),
    ] {
        let key = format!("connection_throttle_{name}");
        *place = keys.millionths(&key, 1, "a decimal number from 0 to 1")?.unwrap_or(*place);
    }
    Ok(options)
}
