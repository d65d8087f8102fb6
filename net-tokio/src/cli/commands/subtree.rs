//! Commands on subtrees: deleteall, tree, find, du.
//!
//! Owns their outputs and the batches of a deletion. Must not read the tree itself: `walk` does.

use std::collections::BTreeMap;

use futures::{StreamExt, stream};
use serde_json::{Value, json};
use zabkeeper_client::{Client, ErrorCode, Multi};

use super::nodes::count;
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, Outcome};
use crate::cli::walk::{self, Denied, Node, Subtree};
use crate::cli::{glob, json};

/// Nodes that one transaction of `deleteall` deletes.
const BATCH: usize = 1000;

/// Transactions of `deleteall` that are under way at a time, as with zkCli.
const BATCHES_AHEAD: usize = 10;

/// CLI-09.
pub(crate) async fn delete_all(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let batch = match arguments.value("b") {
        None => BATCH,
        Some(text) => {
            let batch: i32 =
                text.parse().map_err(|_| Failed::new("-b argument must be an int value"))?;
            usize::try_from(batch).unwrap_or_default().max(1)
        }
    };
    let mut progress = context.output.progress("nodes read");
    let found = walk::walk(&client, path, &mut progress, Denied::Fails).await?;
    drop(progress);
    let mut paths: Vec<&str> = found.nodes.iter().rev().map(|node| node.path.as_str()).collect();
    if path == "/" {
        paths.retain(|path| *path != "/" && !walk::is_system(path));
    }
    let mut progress = context.output.progress("nodes deleted");
    let batches = paths.chunks(batch).map(|paths| delete_batch(&client, paths));
    let mut batches =
        stream::iter(batches).buffered(BATCHES_AHEAD).zip(stream::iter(paths.chunks(batch)));
    while let Some((deleted, paths)) = batches.next().await {
        progress.add(paths.len());
        if !deleted? {
            drop(progress);
            context.output.err("Failed to delete some node(s) in the subtree!");
            return Ok(());
        }
    }
    Ok(())
}

/// Deletes the nodes as one transaction; one by one if others delete some of them meanwhile.
/// Returns whether all are gone.
async fn delete_batch(client: &Client, paths: &[&str]) -> Result<bool, Failed> {
    let multi = paths.iter().fold(Multi::new(), |multi, path| multi.delete(*path, None));
    match client.multi(multi).await? {
        Ok(_) => return Ok(true),
        Err(error) if error.code != ErrorCode::NoNode => return Ok(false),
        Err(_) => {}
    }
    for path in paths {
        match client.delete(*path, None).await {
            Err(error) if error.is(ErrorCode::NoNode) => {}
            Err(error) if error.is_fatal() => return Err(error.into()),
            Err(_) => return Ok(false),
            Ok(()) => {}
        }
    }
    Ok(true)
}

/// `tree [path] [-d depth]`: draws a subtree.
pub(crate) async fn tree(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = first_path(arguments);
    let levels = count(arguments, "d")?.map(|levels| usize::try_from(levels).unwrap_or(usize::MAX));
    let levels = levels.unwrap_or(usize::MAX);
    let found = read(context, root).await?;
    if context.json {
        let shown = found.nodes.iter().filter(|node| node.depth <= levels);
        let nodes: Vec<Value> = shown
            .map(|node| json!({ "path": node.path, "stat": json::stat(&node.stat) }))
            .collect();
        let subtree = json!({ "path": root, "nodes": nodes });
        context.output.line(subtree.to_string())?;
        return report_denied(context, &found);
    }
    // For each level: is there another node to come?
    let mut open: Vec<bool> = Vec::new();
    let mut left: Vec<usize> = Vec::new();
    for node in &found.nodes {
        left.truncate(node.depth);
        open.truncate(node.depth.saturating_sub(1));
        if let Some(left) = left.last_mut() {
            *left = left.saturating_sub(1);
            open.push(*left > 0);
        }
        left.push(node.children.len());
        if node.depth <= levels {
            context.output.line(drawn(node, &open))?;
        }
    }
    report_denied(context, &found)
}

/// A line of the drawing.
fn drawn(node: &Node, open: &[bool]) -> String {
    let mark = if is_ephemeral(node) { " (ephemeral)" } else { "" };
    let Some((last, above)) = open.split_last() else {
        return format!("{}{mark}", node.path);
    };
    let above: String = above.iter().map(|open| if *open { "│   " } else { "    " }).collect();
    let branch = if *last { "├── " } else { "└── " };
    format!("{above}{branch}{}{mark}", walk::name(&node.path))
}

/// Does a session own the node?
pub(crate) fn is_ephemeral(node: &Node) -> bool {
    node.stat.ephemeral_owner.0 != 0
}

/// `find path [-name glob]`: the paths of a subtree.
pub(crate) async fn find(context: &mut Context, arguments: &Arguments) -> Outcome {
    let pattern = arguments.value("name").unwrap_or("*");
    let found = read(context, &arguments.rest[0]).await?;
    let paths = found.nodes.iter().map(|node| node.path.as_str());
    let paths: Vec<&str> = paths.filter(|path| glob::matches(pattern, walk::name(path))).collect();
    if context.json {
        let paths = json!({ "paths": paths });
        context.output.line(paths.to_string())?;
    } else {
        for path in paths {
            context.output.line(path)?;
        }
    }
    report_denied(context, &found)
}

/// `du [path]`: bytes of data and nodes, for each child and in all.
pub(crate) async fn usage(context: &mut Context, arguments: &Arguments) -> Outcome {
    let root = first_path(arguments);
    let found = read(context, root).await?;
    let mut children: BTreeMap<String, (u64, u64)> = BTreeMap::new();
    let mut all = (0, 0);
    for node in &found.nodes {
        let bytes = u64::try_from(node.stat.data_length).unwrap_or_default();
        all = (all.0 + bytes, all.1 + 1);
        let below = node.path[root.len()..].trim_start_matches('/');
        if let Some(name) = below.split('/').next().filter(|name| !name.is_empty()) {
            let usage = children.entry(walk::child(root, name)).or_default();
            *usage = (usage.0 + bytes, usage.1 + 1);
        }
    }
    let mut lines: Vec<_> = children.into_iter().collect();
    // The largest first.
    lines.sort_by(|(a, (a_bytes, _)), (b, (b_bytes, _))| b_bytes.cmp(a_bytes).then(a.cmp(b)));
    lines.push((root.to_owned(), all));
    if context.json {
        let entry = |(path, (bytes, nodes)): &(String, (u64, u64))| json!({ "path": path, "bytes": bytes, "nodes": nodes });
        let usage: Value = lines.iter().map(entry).collect();
        context.output.line(usage.to_string())?;
    } else {
        for (path, (bytes, nodes)) in lines {
            context.output.line(format!("{bytes:>12} {nodes:>9} {path}"))?;
        }
    }
    report_denied(context, &found)
}

fn first_path(arguments: &Arguments) -> &str {
    arguments.rest.first().map_or("/", String::as_str)
}

async fn read(context: &Context, root: &str) -> Result<Subtree, Failed> {
    let mut progress = context.output.progress("nodes read");
    walk::walk(&context.client()?, root, &mut progress, Denied::IsLeftOut).await
}

/// The command fails if a part of the subtree is hidden.
pub(crate) fn report_denied(context: &Context, found: &Subtree) -> Outcome {
    for path in &found.denied {
        context.output.err(&format!("Insufficient permission : {path}"));
    }
    if found.denied.is_empty() { Ok(()) } else { Err(Failed::new("")) }
}
