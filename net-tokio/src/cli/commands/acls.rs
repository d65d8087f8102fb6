//! Commands on access control lists and identities.
//!
//! Owns their requests and outputs. Must not judge a list: the server does.

use futures::{StreamExt, stream};
use serde_json::json;

use super::{acl_of, show_changed, version};
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::Outcome;
use crate::cli::{acl, format, json, walk};

/// CLI-13.
pub(crate) async fn get(context: &mut Context, arguments: &Arguments) -> Outcome {
    let path = &arguments.rest[0];
    let (list, stat) = context.client()?.acl(path).await?;
    if context.json {
        let node = json!({ "path": path, "acl": json::acls(&list), "stat": json::stat(&stat) });
        return Ok(context.output.line(node.to_string())?);
    }
    context.output.raw(acl::lines(&list))?;
    if arguments.has("s") {
        context.output.raw(format::stat(&stat))?;
    }
    Ok(())
}

/// CLI-24.
pub(crate) async fn set(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let list = acl_of(context, &arguments.rest[1])?;
    let version = version(arguments)?;
    if arguments.has("R") {
        let mut progress = context.output.progress("nodes read");
        let found = walk::walk(&client, path, &mut progress, walk::Denied::Fails).await?;
        drop(progress);
        let mut progress = context.output.progress("lists set");
        let calls =
            found.nodes.iter().map(|node| client.set_acl(&node.path, list.clone(), version));
        let mut calls = stream::iter(calls).buffered(walk::AHEAD);
        while let Some(result) = calls.next().await {
            progress.add(1);
            if let Err(error) = result {
                // As with zkCli the other nodes get their list.
                context.output.err(&crate::cli::failure::Failed::from(error).message);
            }
        }
        return Ok(());
    }
    let stat = client.set_acl(path, list, version).await?;
    show_changed(context, arguments, path, &stat)
}

/// CLI-02.
pub(crate) async fn add_auth(context: &mut Context, arguments: &Arguments) -> Outcome {
    let scheme = &arguments.rest[0];
    let auth = arguments.rest.get(1).cloned().unwrap_or_default();
    Ok(context.client()?.add_auth(scheme, auth).await?)
}

/// CLI-28.
pub(crate) async fn who_am_i(context: &mut Context, _: &Arguments) -> Outcome {
    let ids = context.client()?.who_am_i().await?;
    if context.json {
        let ids = json!({ "identities": json::ids(&ids) });
        return Ok(context.output.line(ids.to_string())?);
    }
    context.output.line("Auth scheme: User")?;
    for id in ids {
        context.output.line(format!("{}: {}", id.scheme, id.id))?;
    }
    Ok(())
}
