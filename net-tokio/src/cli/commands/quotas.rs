//! setquota, listquota and delquota: quotas are nodes below `/zookeeper/quota`, which the client
//! writes.
//!
//! Owns the order in which zkCli reads and writes them. Must not know the text of the nodes:
//! `quota` does.

use serde_json::json;
use zabkeeper_client::{Client, CreateMode, ErrorCode};

use super::create_above;
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, Outcome};
use crate::cli::quota::{
    BYTES, COUNT, HARD_BYTES, HARD_COUNT, LIMITS, QUOTA, StatsTrack, limits_path, quota_path,
    usage_path,
};
use crate::cli::table;

/// The options and what they limit.
const LIMITED: [(&str, &str); 4] =
    [("n", COUNT), ("b", BYTES), ("N", HARD_COUNT), ("B", HARD_BYTES)];

/// CLI-25.
pub(crate) async fn set(context: &mut Context, arguments: &Arguments) -> Outcome {
    only_one(arguments)?;
    let Some((option, key)) = LIMITED.into_iter().find(|(option, _)| arguments.has(option)) else {
        let options = "[-n num soft quota, -b bytes soft quota, -N num hard quota, -B bytes hard \
                       quota]";
        return Err(Failed::new(format!("Missing required option: {options}")));
    };
    let Some(path) = arguments.rest.first() else {
        return Err(Failed::new(table::usage("setquota")));
    };
    // As with zkCli, a refused value ends with status 0.
    let refuse = |what: &str| {
        context.output.err(what);
        Ok(())
    };
    if path.starts_with(QUOTA) {
        return refuse(&format!("cannot set a quota under the path: {QUOTA}"));
    }
    let text = arguments.value(option).unwrap_or_default();
    let counts = key == COUNT || key == HARD_COUNT;
    let parsed: Option<i64> =
        if counts { text.parse::<i32>().ok().map(i64::from) } else { text.parse().ok() };
    let limit = match parsed {
        None => return refuse("NumberFormatException happens when parsing the option value"),
        Some(limit) if counts && limit <= 0 => {
            return refuse("the num quota must be greater than zero");
        }
        Some(limit) if limit < 0 => {
            return refuse("the bytes quota must be greater than or equal to zero");
        }
        Some(limit) => limit,
    };
    let client = context.client()?;
    if client.exists(path).await?.is_none() {
        return Err(Failed::new(format!("{path} does not exist.")));
    }
    check_below(&client, path).await?;
    check_above(&client, path).await?;
    let (limits, usage) = write_limits(&client, path, key, limit).await?;
    for warning in limits.warnings(&usage) {
        context.output.line(warning)?;
    }
    Ok(())
}

/// Writes the limit, and the nodes above it where they are absent; returns limits and usage.
async fn write_limits(
    client: &Client,
    path: &str,
    key: &str,
    limit: i64,
) -> Result<(StatsTrack, StatsTrack), Failed> {
    let (limits_path, usage_path) = (limits_path(path), usage_path(path));
    create_above(client, &limits_path).await?;
    if client.exists(&limits_path).await?.is_none() {
        let mut limits = StatsTrack::unlimited();
        limits.set(key, limit);
        client.create(&limits_path, limits.to_string(), CreateMode::Persistent).await?;
        let nothing = StatsTrack::nothing_used().to_string();
        client.create(&usage_path, nothing, CreateMode::Persistent).await?;
        return Ok((limits, read(client, &usage_path).await?));
    }
    let mut limits = read(client, &limits_path).await?;
    limits.set(key, limit);
    let usage = read(client, &usage_path).await?;
    client.set(&limits_path, limits.to_string(), None).await?;
    Ok((limits, usage))
}

async fn read(client: &Client, path: &str) -> Result<StatsTrack, Failed> {
    let (data, _) = client.get(path).await?;
    StatsTrack::parse(&data).map_err(|what| Failed::new(format!("{path}: {what}")))
}

/// Has a node below a quota?
async fn check_below(client: &Client, path: &str) -> Outcome {
    let own = quota_path(path);
    let found = match client.subtree(&own).await {
        Err(error) if error.is(ErrorCode::NoNode) => return Ok(()),
        result => result?,
    };
    let limits = found.iter().filter_map(|found| found.strip_suffix(LIMITS)?.strip_suffix('/'));
    match limits.into_iter().find(|quota| *quota != own) {
        Some(quota) => {
            let below = &quota[QUOTA.len()..];
            Err(Failed::new(format!("{path} has a child {below} which has a quota")))
        }
        None => Ok(()),
    }
}

/// Has a node above a quota?
async fn check_above(client: &Client, path: &str) -> Outcome {
    for (at, _) in path.match_indices('/').skip(1) {
        let above = &path[..at];
        if client.exists(limits_path(above)).await?.is_some() {
            let what = format!("{path} has a parent {above} which has a quota");
            return Err(Failed::new(what));
        }
    }
    Ok(())
}

/// CLI-18.
pub(crate) async fn list(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let limits_path = limits_path(path);
    if !context.json {
        context.output.err(&format!("absolute path is {limits_path}"));
    }
    let read_both = async {
        let limits = read(&client, &limits_path).await?;
        Ok::<_, Failed>((limits, read(&client, &usage_path(path)).await?))
    };
    match read_both.await {
        Err(failed) if failed.is(ErrorCode::NoNode) => {
            context.output.err(&format!("quota for {path} does not exist."));
            Ok(())
        }
        Err(failed) => Err(failed),
        Ok((limits, usage)) if context.json => {
            let quota = json!({ "path": path, "limits": limits.values(), "usage": usage.values() });
            Ok(context.output.line(quota.to_string())?)
        }
        Ok((limits, usage)) => {
            context.output.line(format!("Output quota for {path} {limits}"))?;
            Ok(context.output.line(format!("Output stat for {path} {usage}"))?)
        }
    }
}

/// CLI-10.
pub(crate) async fn delete(context: &mut Context, arguments: &Arguments) -> Outcome {
    only_one(arguments)?;
    let client = context.client()?;
    let path = &arguments.rest[0];
    let limits_path = limits_path(path);
    if client.exists(&limits_path).await?.is_none() {
        return Ok(context.output.line(format!("Quota does not exist for {path}"))?);
    }
    let deleted = match LIMITED.into_iter().find(|(option, _)| arguments.has(option)) {
        Some((_, key)) => {
            let mut limits = read(&client, &limits_path).await?;
            limits.set(key, -1);
            client.set(&limits_path, limits.to_string(), None).await.map(|_| ())
        }
        None => delete_whole(&client, path).await,
    };
    match deleted {
        Err(error) if error.is(ErrorCode::NoNode) => {
            context.output.err(&format!("quota for {path} does not exist."));
            Ok(())
        }
        result => Ok(result?),
    }
}

/// Deletes the nodes of a quota, and those above that have no other child.
async fn delete_whole(client: &Client, path: &str) -> Result<(), zabkeeper_client::Error> {
    let mut quota = quota_path(path);
    let (names, _) = client.children(&quota).await?;
    for name in names {
        client.delete(format!("{quota}/{name}"), None).await?;
    }
    while quota != QUOTA {
        let (names, _) = client.children(&quota).await?;
        if !names.is_empty() {
            break;
        }
        client.delete(&quota, None).await?;
        quota.truncate(quota.rfind('/').unwrap_or_default());
    }
    Ok(())
}

/// The options exclude each other.
fn only_one(arguments: &Arguments) -> Outcome {
    let mut given = arguments.options().filter(|name| *name != "json");
    let (first, other) = (given.next(), given.next());
    match (first, other) {
        (Some(first), Some(other)) if first != other => Err(Failed::new(format!(
            "The option '{other}' was specified but an option from this group has already been \
             selected: '{first}'"
        ))),
        _ => Ok(()),
    }
}
