//! config, reconfig and version.
//!
//! Owns the reading of a configuration's text. Must not judge it: the servers do.

use serde_json::json;
use zabkeeper_client::{Reconfig, Zxid};

use super::DATA_REMOVED;
use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, Outcome};
use crate::cli::{format, json, table};

/// CLI-05.
pub(crate) async fn config(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let (data, stat) = if arguments.has("w") {
        let (data, stat, watch) = client.ensemble_config_and_watch().await?;
        context.follow(watch, DATA_REMOVED);
        (data, stat)
    } else {
        client.ensemble_config().await?
    };
    let text = String::from_utf8_lossy(&data).into_owned();
    if context.json {
        let config = json!({ "config": text, "stat": json::stat(&stat) });
        return Ok(context.output.line(config.to_string())?);
    }
    context.output.line(if arguments.has("c") { for_clients(&text) } else { text })?;
    if arguments.has("s") {
        context.output.raw(format::stat(&stat))?;
    }
    Ok(())
}

/// The version and the client addresses of a configuration, as `config -c` prints them.
fn for_clients(text: &str) -> String {
    let pairs: Vec<_> = text.lines().filter_map(|line| line.split_once('=')).collect();
    let version = pairs.iter().find(|(key, _)| key.trim() == "version");
    let servers = pairs.iter().filter(|(key, _)| key.trim().starts_with("server."));
    let address = |(_, server): &(&str, &str)| {
        let (_, address) = server.split_once(';')?;
        let address = address.trim();
        Some(if address.contains(':') { address.to_owned() } else { format!("0.0.0.0:{address}") })
    };
    let addresses: Vec<_> = servers.map(|server| address(server).unwrap_or_default()).collect();
    format!("{} {}", version.map_or("", |(_, version)| version.trim()), addresses.join(","))
}

/// CLI-21.
pub(crate) async fn reconfig(context: &mut Context, arguments: &Arguments) -> Outcome {
    let change = change(arguments)?;
    let (data, stat) = context.client()?.reconfig(change).await?;
    if context.json {
        let text = String::from_utf8_lossy(&data);
        let config = json!({ "config": text, "stat": json::stat(&stat) });
        return Ok(context.output.line(config.to_string())?);
    }
    context.output.raw("Committed new configuration:\n")?;
    context.output.line(data)?;
    if arguments.has("s") {
        context.output.raw(format::stat(&stat))?;
    }
    Ok(())
}

fn change(arguments: &Arguments) -> Result<Reconfig, Failed> {
    let [file, members, add, remove] =
        ["file", "members", "add", "remove"].map(|name| arguments.value(name));
    let replaces = file.is_some() || members.is_some();
    let changes = add.is_some() || remove.is_some();
    if !replaces && !changes {
        return Err(Failed::new(table::usage("reconfig")));
    }
    let mut change = Reconfig::new();
    if let Some(version) = arguments.value("v") {
        let version = u64::from_str_radix(version, 16)
            .map_err(|_| Failed::new("-v must be followed by a long (configuration version)"))?;
        change = change.version(Zxid(version));
    }
    if replaces && changes {
        return Err(Failed::new(
            "Can't use -file or -members together with -add or -remove (mixing incremental and \
             non-incremental modes is not allowed)",
        ));
    }
    if file.is_some() && members.is_some() {
        return Err(Failed::new(
            "Can't use -file and -members together (conflicting non-incremental modes)",
        ));
    }
    if let Some(servers) = add {
        change = change.join(servers.to_lowercase());
    }
    if let Some(ids) = remove {
        change = change.leave(ids.to_lowercase());
    }
    if let Some(servers) = members {
        change = change.member(servers.to_lowercase());
    }
    if let Some(file) = file {
        let text = std::fs::read_to_string(file)
            .map_err(|error| Failed::new(format!("Error processing {file}: {error}")))?;
        let mut servers =
            text.lines().map(str::trim).filter(|line| line.starts_with("server.")).peekable();
        if servers.peek().is_none() {
            return Err(Failed::new(format!("Error processing {file}: it names no server")));
        }
        change = servers.fold(change, Reconfig::member);
    }
    Ok(change)
}

/// CLI-28.
pub(crate) async fn version(context: &mut Context, _: &Arguments) -> Outcome {
    let version = env!("CARGO_PKG_VERSION");
    if context.json {
        return Ok(context.output.line(json!({ "version": version }).to_string())?);
    }
    Ok(context.output.line(format!("Zabkeeper CLI version: {version}"))?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clients_learn_the_version_and_the_client_addresses() {
        let text = "server.1=h1:2888:3888:participant;h1:2181\nserver.2=h2:1:2:observer;2182\n\
                    version=100000002";
        assert_eq!(for_clients(text), "100000002 h1:2181,0.0.0.0:2182");
        assert_eq!(for_clients(""), " ");
    }
}
