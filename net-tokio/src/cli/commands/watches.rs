//! addWatch, removewatches, printwatches, and `watch`, which waits for changes.
//!
//! Owns their requests and outputs. Must not keep watches: the client does.

use futures::future::{Either, select};
use futures::{Stream, StreamExt};
use zabkeeper_client::{AddWatchMode, State, WatchEvent, WatcherType};

use crate::cli::arguments::Arguments;
use crate::cli::context::Context;
use crate::cli::failure::{Failed, LOST, Outcome};
use crate::cli::{format, json, table};

/// CLI-03.
pub(crate) async fn add_watch(context: &mut Context, arguments: &Arguments) -> Outcome {
    let mode = match arguments.value("m").map(str::to_uppercase).as_deref() {
        None | Some("PERSISTENT_RECURSIVE") => AddWatchMode::PersistentRecursive,
        Some("PERSISTENT") => AddWatchMode::Persistent,
        Some(_) => {
            return Err(Failed::new(table::usage("addWatch")));
        }
    };
    let events = context.client()?.watch(&arguments.rest[0], mode).await?;
    context.follow_all(events);
    Ok(())
}

/// CLI-22.
pub(crate) async fn remove(context: &mut Context, arguments: &Arguments) -> Outcome {
    let kinds = [
        ("c", WatcherType::Children),
        ("d", WatcherType::Data),
        ("p", WatcherType::Persistent),
        ("r", WatcherType::PersistentRecursive),
    ];
    let kind = kinds.into_iter().find(|(option, _)| arguments.has(option));
    let kind = kind.map_or(WatcherType::Any, |(_, kind)| kind);
    Ok(context.client()?.remove_watches(&arguments.rest[0], kind).await?)
}

/// CLI-20.
pub(crate) async fn print_watches(context: &mut Context, arguments: &Arguments) -> Outcome {
    match arguments.rest.first() {
        None => {
            let state = if context.output.prints_watches() { "on" } else { "off" };
            Ok(context.output.line(format!("printwatches is {state}"))?)
        }
        Some(word) => {
            context.output.set_print_watches(word == "on");
            Ok(())
        }
    }
}

/// `watch [-f] path`: prints the next change of a node or below it, or all until SIGINT.
pub(crate) async fn watch(context: &mut Context, arguments: &Arguments) -> Outcome {
    let client = context.client()?;
    let path = &arguments.rest[0];
    let events = client.watch(path, AddWatchMode::PersistentRecursive).await?;
    let states = client.states();
    let following = follow(context, events, states, arguments.has("f"));
    match select(Box::pin(following), Box::pin(tokio::signal::ctrl_c())).await {
        Either::Left((outcome, _)) => outcome,
        // That is how following ends.
        Either::Right(_) => Ok(()),
    }
}

async fn follow(
    context: &Context,
    mut events: impl Stream<Item = Result<WatchEvent, zabkeeper_client::Error>> + Unpin,
    mut states: impl Stream<Item = State> + Unpin,
    to_the_end: bool,
) -> Outcome {
    loop {
        let event = match select(events.next(), states.next()).await {
            Either::Left((event, _)) => event,
            Either::Right((Some(State::Connecting), _)) => {
                context.output.err("connection lost; changes until the next one may be left out");
                continue;
            }
            Either::Right((Some(_), _)) => continue,
            Either::Right((None, _)) => events.next().await,
        };
        let event = match event {
            Some(Ok(event)) => event,
            Some(Err(error)) => {
                let message = Failed::from(error).message;
                return Err(Failed::with_status(LOST, message));
            }
            None => return Err(Failed::with_status(LOST, "the watch has ended")),
        };
        let line = if context.json {
            json::event(&event).to_string()
        } else {
            let zxid = event.zxid.map_or_else(|| "-".to_owned(), |zxid| zxid.to_string());
            format!("{} {} {zxid}", format::event_name(event.event), event.path)
        };
        context.output.line(line)?;
        context.output.flush()?;
        if !to_the_end {
            return Ok(());
        }
    }
}
