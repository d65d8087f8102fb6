//! What each command does, with one asynchronous function for each.
//!
//! Owns the requests of commands. Must not write but through `Output`, nor parse words.

pub(super) mod acls;
pub(super) mod dump;
pub(super) mod edit;
pub(super) mod ensemble;
pub(super) mod guarded;
pub(super) mod nodes;
pub(super) mod quotas;
pub(super) mod session;
pub(super) mod subtree;
pub(super) mod watches;

use serde_json::json;
use zabkeeper_client::{Acl, Client, CreateMode, ErrorCode, Stat};

use super::arguments::Arguments;
use super::context::Context;
use super::failure::{Failed, Outcome};
use super::{acl, format, json};

/// Events of zkCli when a watch is removed.
const DATA_REMOVED: &str = "DataWatchRemoved";
const CHILD_REMOVED: &str = "ChildWatchRemoved";

/// The expected version behind `-v`; `None` for any.
fn version(arguments: &Arguments) -> Result<Option<i32>, Failed> {
    let Some(text) = arguments.value("v") else { return Ok(None) };
    Ok(Some(number(text)?).filter(|version| *version != -1))
}

/// The access control list that a word says. What is wrong with it is printed; the rest counts.
fn acl_of(context: &Context, text: &str) -> Result<Vec<Acl>, Failed> {
    let mut complaints = Vec::new();
    let list = acl::parse(text, &mut complaints);
    for complaint in complaints {
        context.output.err(&complaint);
    }
    if list.is_empty() {
        // As with zkCli the server is not asked.
        return Err(Failed::new("Acl is not valid : null"));
    }
    Ok(list)
}

/// The statistics of a node that a command has changed, if they are asked for.
fn show_changed(context: &Context, arguments: &Arguments, path: &str, stat: &Stat) -> Outcome {
    if context.json {
        let changed = json!({ "path": path, "stat": json::stat(stat) });
        context.output.line(changed.to_string())?;
    } else if arguments.has("s") {
        context.output.raw(format::stat(stat))?;
    }
    Ok(())
}

/// Creates the nodes above a path where they are absent.
async fn create_above(client: &Client, path: &str) -> Outcome {
    for (at, _) in path.match_indices('/').skip(1) {
        let above = &path[..at];
        if client.exists(above).await?.is_some() {
            continue;
        }
        match client.create_without_data(above, CreateMode::Persistent).await {
            Err(error) if !error.is(ErrorCode::NodeExists) => return Err(error.into()),
            Ok(_) | Err(_) => {}
        }
    }
    Ok(())
}

/// A number, or what Java's exception says of it.
fn number<T: std::str::FromStr>(text: &str) -> Result<T, Failed> {
    text.parse().map_err(|_| Failed::new(format!("For input string: \"{text}\"")))
}

/// Is `-w` given, or a second word, which had the same meaning long ago?
fn wants_watch(context: &Context, arguments: &Arguments, name: &str, instead: &str) -> bool {
    let is_old = arguments.rest.len() > 1;
    if is_old {
        context.output.err(&format!(
            "'{name} path [watch]' has been deprecated. Please use '{name} {instead} path' \
             instead."
        ));
    }
    is_old || arguments.has("w")
}
