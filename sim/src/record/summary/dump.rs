//! The state of all servers and clients at one moment, as text files: `--at T --dump DIR`.
//!
//! Owns the files' wording. Most of it is collected during the run; the contents of servers can be
//! read only where a run stops, so the run is repeated up to that moment.

use std::fmt::Write;
use std::io;
use std::path::Path;

use zabkeeper_core::{Instant, ServerId};

use crate::faults::heal;
use crate::record::injection::Injection;
use crate::record::output::write_file;
use crate::record::timeline::{Conn, Entry, Lane, Message, Timeline};
use crate::record::trace::plain::positions_in;
use crate::run::job::Report;
use crate::world::Held;
use crate::world::options::SERVERS_MAX;

/// Number of events before that moment in a server's file.
const EVENTS: usize = 30;

/// Writes a file per server, one for clients, one for messages in flight, and one for future
/// events. `held` has the contents of servers and queue at that moment.
///
/// # Errors
/// The folder or a file cannot be written.
pub fn dump(
    folder: &Path,
    at: Instant,
    report: &Report,
    (timeline, held): (&Timeline, &Held),
) -> io::Result<()> {
    std::fs::create_dir_all(folder)?;
    // Files of an earlier run's servers must not remain.
    for server in 1..=SERVERS_MAX {
        match std::fs::remove_file(folder.join(format!("s{server}.txt"))) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    let write = |name: &str, text: &str| write_file(&folder.join(name), &positions_in(text));
    for server in report.outcome.roles.changes().keys() {
        let mut text = of_server(*server, at, report, timeline);
        if let Some(held) = held.servers.get(server) {
            let _infallible = write!(text, "\n{held}");
        }
        write(&format!("s{server}.txt"), &text)?;
    }
    write("clients.txt", &of_clients(at, timeline))?;
    write("queue.txt", &format!("what will happen after {at}\n\n{}\n", held.queue.join("\n")))?;
    write("messages.txt", &of_messages(at, timeline))
}

fn of_server(server: ServerId, at: Instant, report: &Report, timeline: &Timeline) -> String {
    let mut text = format!("s{server} at {at}\n");
    let states = timeline.states.get(&server).map_or(&[][..], Vec::as_slice);
    let state = states.iter().rfind(|state| state.at <= at);
    match state {
        None => text.push_str("role         is down, and was never up\n"),
        Some(state) => {
            let [appended, durable, committed, applied] = state.marks;
            let [sessions, watches] = state.held;
            let conns =
                timeline.conns.iter().filter(|conn| conn.server == server && stands(conn, at));
            let conns = conns.count();
            let _infallible = write!(
                text,
                "role         {} since at least {}\nepochs       promised {}, of its history \
                 {}\nlog          \
                 appended {appended}, durable {durable}, committed {committed}, applied \
                 {applied}\nclients      {conns} \
                 connections, {sessions} sessions, {watches} watches\nproposals    {} \
                 open\ndisk         {}\n",
                state.doing(server),
                state.at,
                state.epochs[0],
                state.epochs[1],
                state.outstanding,
                if state.halted { "failed, the server has halted" } else { "works" }
            );
        }
    }
    let on = |injection: &&Injection| {
        let lasts = injection.until.is_some_and(|until| until > at);
        injection.at <= at && lasts && injection.servers().contains(&server)
    };
    for injection in report.outcome.injections.list().iter().filter(on) {
        let until = injection.until.unwrap_or(at);
        let _infallible = writeln!(
            text,
            "fault        {} {} from {} {}",
            injection.fault,
            injection.whom(),
            injection.at,
            heal::until(until, until)
        );
    }
    let mine = |entry: &&Entry| entry.at <= at && entry.who == Lane::Server(server);
    let events: Vec<&Entry> = timeline.entries.iter().filter(mine).collect();
    text.push_str("\nlast changes\n");
    for entry in &events[events.len().saturating_sub(EVENTS)..] {
        let _infallible =
            writeln!(text, "{:>14} {:>8}  {}", entry.at.to_string(), entry.event, entry.text);
    }
    text
}

fn stands(conn: &Conn, at: Instant) -> bool {
    conn.at <= at && conn.until.is_none_or(|until| until > at)
}

fn of_clients(at: Instant, timeline: &Timeline) -> String {
    let mut text = format!("clients at {at}\n\nconnections\n");
    for conn in timeline.conns.iter().filter(|conn| stands(conn, at)) {
        let Conn { client, server, conn, at, session, .. } = conn;
        let _infallible = writeln!(
            text,
            "client {} with s{server} by {conn} since {at}, session {session:#x}",
            client.0
        );
    }
    text.push_str("\ncalls under way\n");
    for call in &timeline.calls {
        let ended = call.end.as_ref().is_some_and(|(end, ..)| *end <= at);
        if call.at <= at && !ended {
            let _infallible =
                writeln!(text, "client {} {} since {}", call.client.0, call.text, call.at);
        }
    }
    text
}

fn of_messages(at: Instant, timeline: &Timeline) -> String {
    let mut text = format!("messages under way at {at}; those that nobody will take say so\n\n");
    // Messages in flight for longer, ns, are probably lost, and are not shown.
    const LOST: u64 = 100_000_000;
    let under_way = |message: &&Message| match message.got {
        Some(got) => message.at <= at && got > at,
        None => message.at <= at && at.0 - message.at.0 < LOST,
    };
    for message in timeline.messages.iter().filter(under_way) {
        let Message { at, from, to, kind, number, .. } = message;
        let got = message.got.map_or("never taken".to_owned(), |got| format!("taken at {got}"));
        let number = if *number == 0 { String::new() } else { format!(" {number:#x}") };
        let _infallible =
            writeln!(text, "{} to {}: {kind}{number}, sent at {at}, {got}", lane(*from), lane(*to));
    }
    text
}

fn lane(lane: Lane) -> String {
    match lane {
        Lane::World => "somebody".to_owned(),
        Lane::Server(server) => format!("s{server}"),
        Lane::Client(client) => format!("client {}", client.0),
    }
}
