//! Commands on one node: create, delete, get, set, stat, ls, sync and the counts of descendants.
//!
//! Owns their requests and outputs. Must not handle subtrees, except for `ls -R`.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::json;
use zabkeeper_client::{Acl, CreateMode, ErrorCode};

use super::subtree::report_denied;
use super::{CHILD_REMOVED, DATA_REMOVED, acl_of, number, show_changed, version, wants_watch};
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, Outcome, code_name, keeper_error};
use crate::cli::{format, json, table, walk};

/// The longest TTL of ZooKeeper, ms.
const TTL_MAX: i64 = (1 << 40) - 1;

/// How long `sync` waits (CLI-27).
const SYNC_MAX: Duration = Duration::from_secs(30);

/// CLI-07.
pub(crate) async fn create(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let mode = create_mode(arguments)?;
    let path = &arguments.rest[0];
    let acl = match arguments.rest.get(2) {
        Some(text) => acl_of(context, text)?,
        None => Acl::open(),
    };
    let options = mode.with_acl(acl);
    let created = match arguments.rest.get(1) {
        Some(data) => client.create(path, data.clone(), options),
        None => client.create_without_data(path, options),
    };
    match created.await {
        Ok(path) if context.json => Ok(context.output.line(json!({ "path": path }).to_string())?),
        Ok(path) => {
            // zkCli has it on standard error, so that scripts may throw it away.
            context.output.err(&format!("Created {path}"));
            Ok(())
        }
        Err(error) => {
            if error.is(ErrorCode::EphemeralOnLocalSession) {
                context.output.err("Unable to create ephemeral node on a local session");
            } else if error.is(ErrorCode::InvalidAcl) {
                context.output.err(&keeper_error(code_name(ErrorCode::InvalidAcl), path));
            }
            Err(error.into())
        }
    }
}

/// The kind of the node.
fn create_mode(arguments: &Arguments) -> Result<CreateMode, Failed> {
    let [ephemeral, sequential, container] = ["e", "s", "c"].map(|name| arguments.has(name));
    if container && (ephemeral || sequential) {
        return Err(Failed::new(
            "-c cannot be combined with -s or -e. Containers cannot be ephemeral or sequential.",
        ));
    }
    let Some(ttl) = arguments.value("t") else {
        return Ok(match (ephemeral, sequential, container) {
            (_, _, true) => CreateMode::Container,
            (true, true, false) => CreateMode::EphemeralSequential,
            (true, false, false) => CreateMode::Ephemeral,
            (false, true, false) => CreateMode::PersistentSequential,
            (false, false, false) => CreateMode::Persistent,
        });
    };
    let ttl: i64 = ttl.parse().map_err(|_| Failed::new("-t argument must be a long value"))?;
    if ephemeral {
        return Err(Failed::new("TTLs cannot be used with Ephemeral znodes"));
    }
    if container {
        return Err(Failed::new("TTLs cannot be used with Container znodes"));
    }
    let ttl = u64::try_from(ttl).ok().filter(|_| (1..=TTL_MAX).contains(&ttl));
    let ttl = ttl.map(Duration::from_millis).ok_or_else(|| {
        Failed::new(format!("ttl must be positive and cannot be larger than: {TTL_MAX}"))
    })?;
    Ok(if sequential {
        CreateMode::PersistentSequentialTtl(ttl)
    } else {
        CreateMode::PersistentTtl(ttl)
    })
}

/// CLI-08.
pub(crate) async fn delete(context: &mut Context, arguments: &Arguments) -> Outcome {
    if arguments.rest.len() > 1 {
        context.output.err(
            "'delete path [version]' has been deprecated. Please use 'delete [-v version] path' \
             instead.",
        );
    }
    let version = version(arguments)?;
    Ok(context.client()?.delete(&arguments.rest[0], version).await?)
}

/// CLI-12.
pub(crate) async fn get(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    if wants_watch(context, arguments, "get", "[-s] [-w]") {
        let (_, _, watch) = client.get_and_watch(path).await?;
        context.follow(watch, DATA_REMOVED);
    }
    let (data, stat) = client.get_or_none(path).await?;
    if context.json {
        let node = json::node(path, data.as_deref(), &stat);
        return Ok(context.output.line(node.to_string())?);
    }
    let data = data.as_deref().unwrap_or(b"null");
    if arguments.has("x") {
        context.output.line(format::hex_dump(data))?;
    } else if arguments.has("b") {
        context.output.line(STANDARD.encode(data))?;
    } else {
        context.output.line(data)?;
    }
    if arguments.has("s") {
        context.output.raw(format::stat(&stat))?;
    }
    Ok(())
}

/// CLI-23.
pub(crate) async fn set(context: &mut Context, arguments: &Arguments) -> Outcome {
    let (path, text) = (&arguments.rest[0], &arguments.rest[1]);
    let data = if arguments.has("b") {
        STANDARD.decode(text).map_err(|error| Failed::new(format!("no base64: {error}")))?
    } else {
        text.clone().into_bytes()
    };
    let stat = context.client()?.set(path, data, version(arguments)?).await?;
    show_changed(context, arguments, path, &stat)
}

/// CLI-26.
pub(crate) async fn stat(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let stat = if wants_watch(context, arguments, "stat", "[-w]") {
        let (stat, watch) = client.exists_and_watch(path).await?;
        context.follow(watch, DATA_REMOVED);
        stat
    } else {
        client.exists(path).await?
    };
    let stat = stat.ok_or_else(|| Failed::new(format!("Node does not exist: {path}")))?;
    if context.json {
        let node = json!({ "path": path, "stat": json::stat(&stat) });
        return Ok(context.output.line(node.to_string())?);
    }
    Ok(context.output.raw(format::stat(&stat))?)
}

/// CLI-19.
pub(crate) async fn list(context: &mut Context, arguments: &Arguments) -> Outcome {
    if arguments.has("?") {
        let options = table::options_text(table::LS);
        context.output.raw(format!("usage: ls [options] path\n{options}"))?;
    }
    let watches = wants_watch(context, arguments, "ls", "[-w]");
    let client = context.client()?;
    let path = &arguments.rest[0];
    if arguments.has("R") {
        return list_subtree(context, path, watches).await;
    }
    let (mut names, stat) = if watches {
        let (names, stat, watch) = client.children_and_watch(path).await?;
        context.follow(watch, CHILD_REMOVED);
        (names, stat)
    } else {
        client.children(path).await?
    };
    names.sort_unstable();
    if context.json {
        let mut node = json!({ "path": path, "children": names });
        if arguments.has("s") {
            node["stat"] = json::stat(&stat);
        }
        return Ok(context.output.line(node.to_string())?);
    }
    context.output.line(format::list(&names))?;
    if arguments.has("s") {
        context.output.raw(format::stat(&stat))?;
    }
    Ok(())
}

/// Lists a subtree as zkCli does: the children of a node before those of the first child.
async fn list_subtree(context: &mut Context, path: &str, watches: bool) -> Outcome {
    let client = context.client()?;
    if watches {
        let (_, _, watch) = client.get_and_watch(path).await?;
        context.follow(watch, DATA_REMOVED);
    }
    let mut progress = context.output.progress("nodes read");
    let found = walk::walk(&client, path, &mut progress, walk::Denied::IsLeftOut).await?;
    drop(progress);
    let mut paths = vec![path.to_owned()];
    for node in &found.nodes {
        if watches {
            match client.children_and_watch(&node.path).await {
                Ok((_, _, watch)) => context.follow(watch, CHILD_REMOVED),
                Err(error) if error.is(ErrorCode::NoNode) => {}
                Err(error) => return Err(error.into()),
            }
        }
        paths.extend(node.children.iter().map(|name| walk::child(&node.path, name)));
    }
    if context.json {
        let subtree = json!({ "path": path, "nodes": paths });
        context.output.line(subtree.to_string())?;
    } else {
        for path in paths {
            context.output.line(path)?;
        }
    }
    report_denied(context, &found)
}

/// CLI-14.
pub(crate) async fn all_children_number(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &arguments.rest[0];
    let count = context.client()?.all_children_number(path).await?;
    let text = if context.json {
        json!({ "path": path, "count": count }).to_string()
    } else {
        count.to_string()
    };
    Ok(context.output.line(text)?)
}

/// CLI-15.
pub(crate) async fn ephemerals(context: &mut Context, arguments: &Arguments) -> Outcome {
    let prefix = arguments.rest.first().map_or("/", String::as_str);
    let mut paths = context.client()?.ephemerals(prefix).await?;
    paths.sort_unstable();
    let text =
        if context.json { json!({ "paths": paths }).to_string() } else { format::list(&paths) };
    Ok(context.output.line(text)?)
}

/// CLI-27.
pub(crate) async fn sync(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &arguments.rest[0];
    let synced = context.client()?.sync(path);
    match tokio::time::timeout(SYNC_MAX, synced).await {
        Ok(Ok(())) => Ok(context.output.line("Sync is OK")?),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => Err(Failed::new(format!("sync {path}: no answer within {SYNC_MAX:?}"))),
    }
}

/// The number of a level or of milliseconds behind an option of ours.
pub(crate) fn count(arguments: &Arguments, option: &str) -> Result<Option<u64>, Failed> {
    arguments.value(option).map(number).transpose()
}
