//! dump and load: a subtree as a text, and back.
//!
//! Owns the requests and what happens to nodes that exist. Must not know the text: `dump_format`
//! does.

use std::io::Read;

use futures::{StreamExt, stream};
use zabkeeper_client::{Client, CreateMode, Error, ErrorCode};

use super::create_above;
use super::subtree::is_ephemeral;
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::dump_format::{self, DumpedNode};
use crate::cli::failure::{Failed, Outcome};
use crate::cli::walk::{self, Denied, Node};

/// `dump path`.
pub(crate) async fn dump(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let root = arguments.rest[0].as_str();
    let mut progress = context.output.progress("nodes read");
    let found = walk::walk(&client, root, &mut progress, Denied::Fails).await?;
    drop(progress);
    context.output.raw(dump_format::head(root))?;
    let mut progress = context.output.progress("nodes dumped");
    let is_left_out = |node: &&Node| root == "/" && walk::is_system(&node.path);
    let nodes = found.nodes.iter().filter(|node| !is_left_out(node));
    let reads = nodes.map(|node| {
        let (data, acl) = (client.get_or_none(&node.path), client.acl(&node.path));
        async move { (node, data.await, acl.await) }
    });
    let mut reads = stream::iter(reads).buffered(walk::AHEAD);
    let mut dumped = 0;
    while let Some((node, data, acl)) = reads.next().await {
        progress.add(1);
        if is_ephemeral(node) {
            let note = format!("skipped: {} is ephemeral", node.path);
            context.output.line(dump_format::note(&note))?;
            continue;
        }
        let (data, acl) = match (data, acl) {
            (Ok((data, _)), Ok((acl, _))) => (data, acl),
            (Err(error), _) | (_, Err(error)) if error.is(ErrorCode::NoNode) => {
                let note = format!("skipped: {} was deleted meanwhile", node.path);
                context.output.line(dump_format::note(&note))?;
                continue;
            }
            (Err(error), _) | (_, Err(error)) => return Err(error.into()),
        };
        let below = node.path[root.trim_end_matches('/').len()..].to_owned();
        let path = if below.is_empty() { "/".to_owned() } else { below };
        let data = data.map(|data| data.to_vec());
        context.output.line(dump_format::line(&DumpedNode { path, acl, data }))?;
        dumped += 1;
    }
    if root == "/" {
        context.output.line(dump_format::note("skipped: /zookeeper is ZooKeeper's own"))?;
    }
    Ok(context.output.line(dump_format::end(dumped))?)
}

/// `load [file] [--into path] [--overwrite]`.
pub(crate) async fn load(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let file = arguments.rest.first().map(String::as_str).filter(|file| *file != "-");
    let mut text = String::new();
    let read = match file {
        Some(file) => std::fs::File::open(file).and_then(|mut file| file.read_to_string(&mut text)),
        None => std::io::stdin().read_to_string(&mut text),
    };
    let named = file.unwrap_or("standard input");
    read.map_err(|error| Failed::bad_invocation(format!("{named}: {error}")))?;
    let dump = dump_format::parse(&text)
        .map_err(|what| Failed::bad_invocation(format!("{named}: {what}")))?;
    let into = arguments.value("into").unwrap_or(&dump.root).to_owned();
    let at = |node: &DumpedNode| match node.path.as_str() {
        "/" => into.clone(),
        path => format!("{}{path}", into.trim_end_matches('/')),
    };
    let nodes: Vec<_> = dump.nodes.into_iter().map(|node| (at(&node), node)).collect();

    // What exists is compared before anything is written.
    let mut progress = context.output.progress("nodes compared");
    let checks = nodes.iter().map(|(path, node)| state(&client, path, node));
    let mut checks = stream::iter(checks).buffered(walk::AHEAD).zip(stream::iter(&nodes));
    let (mut absent, mut differing) = (Vec::new(), Vec::new());
    while let Some((found, node)) = checks.next().await {
        progress.add(1);
        match found? {
            Found::Absent => absent.push(node),
            Found::Same => {}
            Found::Differs => differing.push(node),
        }
    }
    drop(checks);
    drop(progress);
    if !arguments.has("overwrite") && !differing.is_empty() {
        for (path, _) in &differing {
            context.output.err(&format!("{path} exists and differs"));
        }
        return Err(Failed::new("nothing is loaded; --overwrite replaces nodes that differ"));
    }

    create_above(&client, &into).await?;
    let mut progress = context.output.progress("nodes loaded");
    let creations = absent.iter().map(|(path, node)| create(&client, path, node));
    let mut creations = stream::iter(creations).buffered(walk::AHEAD);
    while let Some(created) = creations.next().await {
        created?;
        progress.add(1);
    }
    for (path, node) in &differing {
        client.set(path, node.data.clone().unwrap_or_default(), None).await?;
        client.set_acl(path, node.acl.clone(), None).await?;
        progress.add(1);
    }
    drop(progress);
    let (created, replaced) = (absent.len(), differing.len());
    let same = nodes.len() - created - replaced;
    context.output.err(&format!("{created} nodes created, {replaced} replaced, {same} unchanged"));
    Ok(())
}

/// What there is at a path.
enum Found {
    Absent,
    Same,
    Differs,
}

async fn state(client: &Client, path: &str, node: &DumpedNode) -> Result<Found, Error> {
    let (data, acl) = (client.get_or_none(path), client.acl(path));
    match (data.await, acl.await) {
        (Ok((data, _)), Ok((acl, _))) => {
            // `set` cannot make data absent again, so that no data is as good as empty data here.
            let data = data.unwrap_or_default();
            let same = data == node.data.as_deref().unwrap_or_default() && acl == node.acl;
            Ok(if same { Found::Same } else { Found::Differs })
        }
        (Err(error), _) | (_, Err(error)) if error.is(ErrorCode::NoNode) => Ok(Found::Absent),
        (Err(error), _) | (_, Err(error)) => Err(error),
    }
}

/// Creates a node. The session keeps the order, so that a node comes after its parent.
fn create(
    client: &Client,
    path: &str,
    node: &DumpedNode,
) -> impl Future<Output = Result<String, Error>> + use<> {
    let options = CreateMode::Persistent.with_acl(node.acl.clone());
    match &node.data {
        Some(data) => client.create(path, data.clone(), options),
        None => client.create_without_data(path, options),
    }
}
