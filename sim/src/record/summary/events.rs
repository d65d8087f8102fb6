//! The last events before the end of a run, selected for its explanation.
//!
//! Owns the selection. Must not check anything.

use std::collections::BTreeSet;
use std::fmt::Write;

use zabkeeper_core::{Instant, ServerId, Zxid};

use super::failure::{names, session_named, zxid_named};
use super::fit;
use crate::check::observe::ClientId;
use crate::record::timeline::{Entry, Lane, Message, Timeline, position};
use crate::record::trace::Kind;
use crate::record::trace::plain::{as_position, positions_in, words};
use crate::run::job::Report;

/// Number of events shown.
const EVENTS: usize = 20;
/// Number of earlier events shown that name the subject of the failure.
const NAMED: usize = 6;
/// An event is merged with a similar one among this many later ones.
const NEAR: usize = 4;
/// Maximum line length; longer lines are cut.
const LINE: usize = 150;
/// Marks with at most this many hits in the run are shown wherever they occur; others only in the
/// failing step.
const RARE: u64 = 3;

/// An event that may be shown.
struct Event {
    at: Instant,
    event: Option<u64>,
    /// It is never merged with similar ones, since its order matters.
    alone: bool,
    /// It names the subject of the failure, so an older one is shown as well.
    named: bool,
    text: String,
}

impl Event {
    /// An event that may be merged with similar ones.
    fn daily(at: Instant, event: Option<u64>, text: String) -> Event {
        Event { at, event, alone: false, named: false, text }
    }
}

/// The subjects of interest.
pub(super) struct Whom<'a> {
    /// Empty: all servers.
    pub(super) servers: &'a BTreeSet<ServerId>,
    /// `None`: messages of clients to servers are omitted.
    pub(super) clients: Option<&'a BTreeSet<ClientId>>,
    /// The evidence; empty if the run was only stopped.
    pub(super) evidence: &'a [String],
    /// Only disk commands, disk events and disk faults, and messages that depend on them.
    pub(super) about_disk: bool,
}

/// The last events of these servers, and of clients that the evidence names.
pub(super) fn last_events(
    (at, event): (Instant, u64),
    whom: &Whom<'_>,
    report: &Report,
    timeline: &Timeline,
) -> String {
    let &Whom { servers, clients, evidence, about_disk } = whom;
    let (session, zxid) = (session_named(evidence), zxid_named(evidence));
    let about_clients = clients.is_some_and(|clients| !clients.is_empty());
    let of_client = |entry: &Entry| match clients {
        None => false,
        Some(wanted) => {
            let named =
                entry.text.split_once(" <- client ").and_then(|(_, rest)| rest.split_once(':'));
            let named = named.and_then(|(id, _)| id.parse().ok()).map(ClientId);
            let bad_peer = entry.text.contains(" <- somebody:");
            bad_peer || named.is_some_and(|id| !wanted.contains(&id))
        }
    };
    let concerns = |entry: &&Entry| {
        let who = match entry.who {
            Lane::Server(server) => servers.is_empty() || servers.contains(&server),
            Lane::World => true,
            Lane::Client(_) => servers.is_empty(),
        };
        who && entry.event <= event
            && !of_client(entry)
            && !daily(entry, about_clients)
            && (!about_disk || is_about_disk(entry))
    };
    let events = timeline.inputs.iter().chain(&timeline.entries).filter(concerns);
    let line = |entry: &Entry| {
        let names = |what: &dyn Fn(&str) -> bool| words(&entry.text).any(what);
        let of_session = session.as_deref().is_some_and(|session| names(&|word| word == session));
        let of_zxid = zxid.is_some_and(|zxid| names(&|word| as_position(word) == Some(zxid)));
        let alone = of_session || entry.kind == Kind::Process;
        let (at, event, text) = (entry.at, Some(entry.event), entry.text.clone());
        Event { at, event, alone, named: of_session || of_zxid, text }
    };
    let mut events: Vec<Event> = events.map(line).collect();
    events.extend(marks((at, event), servers, report, timeline));
    if !about_clients {
        let sent = timeline.messages.iter().filter(|message| message.at <= at);
        let sent = sent.filter_map(|message| send(message, servers));
        events.extend(sent.filter(|event| !about_disk || vouches(&event.text)));
    }
    let incarnations = |clients| incarnations_of(clients, at, evidence, timeline);
    events.extend(clients.into_iter().flat_map(incarnations));
    events.sort_by_key(|line| (line.at, line.event.unwrap_or(u64::MAX)));
    let mut whom = names(servers);
    for client in clients.into_iter().flatten() {
        let _infallible = write!(whom, ", client {}", client.0);
    }
    format!("\nthe last events at {whom} (everything: --trace all)\n{}", listing(&events))
}

/// The last events, each merged with similar ones before it.
fn listing(events: &[Event]) -> String {
    struct Line<'a> {
        newest: &'a Event,
        oldest: Instant,
        count: usize,
        shape: String,
    }
    let mut kept: Vec<Line<'_>> = Vec::new();
    let mut earlier = 0;
    for (index, event) in events.iter().enumerate().rev() {
        let shape = shape(&event.text);
        let like = |line: &&mut Line<'_>| !event.alone && line.shape == shape;
        let near = kept.iter_mut().rev().take(NEAR).find(like);
        if let Some(line) = near {
            (line.oldest, line.count) = (event.at, line.count + 1);
        } else if kept.len() < EVENTS {
            kept.push(Line { newest: event, oldest: event.at, count: 1, shape });
        } else {
            earlier = index + 1;
            break;
        }
    }
    let named = events[..earlier].iter().rev().filter(|event| event.named);
    kept.extend(named.take(NAMED).map(|event| Line {
        newest: event,
        oldest: event.at,
        count: 1,
        shape: String::new(),
    }));
    let mut text = String::new();
    for Line { newest, oldest, count, .. } in kept.iter().rev() {
        let number = newest.event.map_or(String::new(), |event| event.to_string());
        let what = positions_in(&newest.text);
        let again = match count {
            1 => String::new(),
            _ => format!(" (and {} like it since {oldest})", count - 1),
        };
        let line = format!("  {:>13} {number:>8}  {what}{again}", newest.at.to_string());
        let _infallible = writeln!(text, "{}", fit(&line, LINE));
    }
    text
}

/// The text without numbers, except those of servers: events with equal shapes are similar.
fn shape(text: &str) -> String {
    let plain = |word: &str| {
        let server = word.strip_prefix('s').is_some_and(|id| id.parse::<u32>().is_ok());
        let number = word.contains(|c: char| c.is_ascii_digit());
        if number && !server { "#".to_owned() } else { word.to_owned() }
    };
    words(text).map(plain).collect()
}

/// The marks of the failing step, and rare marks.
fn marks(
    (at, event): (Instant, u64),
    servers: &BTreeSet<ServerId>,
    report: &Report,
    timeline: &Timeline,
) -> Vec<Event> {
    let hits = &report.outcome.counters.marks;
    let mut events = Vec::new();
    for (place, server, marks) in &timeline.marks {
        if place.at > at || !(servers.is_empty() || servers.contains(server)) {
            continue;
        }
        let shown = marks.iter().filter(|m| place.event == event || hits[*m as usize] <= RARE);
        for mark in shown {
            let text = format!("s{server}: {} ({mark:?})", mark.sentence());
            events.push(Event::daily(place.at, Some(place.event), text));
        }
    }
    events
}

/// What one of these servers sends, except routine messages.
fn send(message: &Message, servers: &BTreeSet<ServerId>) -> Option<Event> {
    let (Lane::Server(from), Lane::Server(to)) = (message.from, message.to) else {
        return None;
    };
    if !servers.contains(&from) || matches!(message.kind, "PING" | "PONG") {
        return None;
    }
    let what = match message.kind {
        "vote for" => format!("votes for s{}", message.number),
        kind if message.number == 0 => kind.to_owned(),
        kind if message.number < 1 << 32 => format!("{kind} {}", message.number),
        kind => format!("{kind} {}", position(Zxid(message.number))),
    };
    let text = format!("s{from} -> s{to}: {what}");
    Some(Event::daily(message.at, None, text))
}

/// Entries to omit: faults without a target, which are listed elsewhere, and routine messages of
/// servers.
fn daily(entry: &Entry, about_clients: bool) -> bool {
    let round = |parts: &[&str]| parts.iter().any(|part| entry.text.contains(part));
    let bare = entry.kind == Kind::Fault && !entry.text.contains(' ');
    bare || round(&[": PING", ": PONG"]) || (about_clients && round(&[": ACK ", " disk done "]))
}

/// Whether it concerns what a server stores: its disk, its start and end, and its leader.
fn is_about_disk(entry: &Entry) -> bool {
    const WORDS: [&str; 8] =
        [" disk ", "state w", "rebase", "truncate", "NEWLEADER", "SNAP", "TRUNC", "UPTODATE"];
    matches!(entry.kind, Kind::Process | Kind::Fault)
        || WORDS.iter().any(|word| entry.text.contains(word))
}

/// Whether it is a message in which a server reports what it has stored.
fn vouches(text: &str) -> bool {
    [": ACK", ": FOLLOWERINFO ", ": SYNC AT "].iter().any(|word| text.contains(word))
}

/// Connections and calls of these clients, as the clients see them.
fn incarnations_of(
    clients: &BTreeSet<ClientId>,
    until: Instant,
    evidence: &[String],
    timeline: &Timeline,
) -> Vec<Event> {
    let mut lines = Vec::new();
    let mut line = |at: Instant, named: bool, text: String| {
        if at <= until {
            lines.push(Event { at, event: None, alone: named, named, text });
        }
    };
    for conn in timeline.conns.iter().filter(|conn| clients.contains(&conn.client)) {
        let (client, server) = (conn.client.0, conn.server);
        line(
            conn.at,
            false,
            format!("client {client} is connected with s{server} by {}", conn.conn),
        );
        if let Some(at) = conn.until {
            line(at, false, format!("client {client} has lost its connection with s{server}"));
        }
    }
    for call in timeline.calls.iter().filter(|call| clients.contains(&call.client)) {
        let (client, what) = (call.client.0, &call.text);
        let named = evidence.iter().any(|line| line.contains(what.as_str()));
        line(call.at, named, format!("client {client} calls {what}"));
        if let Some((at, _, answer)) = &call.end {
            line(*at, named, format!("client {client}: {what} ends with {answer}"));
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::timeline::Call;

    fn line(ms: u64, text: &str, alone: bool, named: bool) -> Event {
        let (at, event, text) = (Instant(ms * 1_000_000), Some(ms), text.to_owned());
        Event { at, event, alone, named, text }
    }

    #[test]
    fn disk_explanation_shows_disk_events_and_acknowledgements() {
        let input = |kind: Kind, text: &str| {
            let (at, who) = (Instant(1), Lane::Server(ServerId(4)));
            is_about_disk(&Entry { at, event: 1, kind, who, text: text.to_owned() })
        };
        assert!(input(Kind::Step, "s4 disk failed: disk full"));
        assert!(input(Kind::Step, "s4 gives its disk: state w394 accepted=6 current=5"));
        assert!(
            input(Kind::Step, "s4 <- s5: NEWLEADER 6") && input(Kind::Process, "s4 loses power")
        );
        assert!(!input(Kind::Step, "s4 <- s5: PROPOSAL 6.1"));
        assert!(vouches("s4 -> s5: ACK NEWLEADER 6") && vouches("s4 -> s5: ACKEPOCH 5.75"));
        assert!(!vouches("s4 -> s1: COMMIT 6.1") && !vouches("s4 -> s1: votes for s5"));
    }

    #[test]
    fn similar_events_are_merged() {
        let event = |ms: u64, text: &str| line(ms, text, false, false);
        let mut events = vec![event(1, "s1 <- s2: COMMIT 0x100000003")];
        events.extend((2..5).map(|ms| event(ms, &format!("s1 <- s2: is looking round {ms}"))));
        events.push(event(5, "s1 <- s3: is looking round 5"));
        assert_eq!(
            listing(&events),
            "      0.001000s        1  s1 <- s2: COMMIT 1.3\n      \
             0.004000s        4  s1 <- s2: is looking round 4 (and 2 like it since \
             0.002000s)\n      \
             0.005000s        5  s1 <- s3: is looking round 5\n"
        );
    }

    #[test]
    fn older_events_about_the_subject_are_shown() {
        let named = |ms: u64| line(ms, "s1 <- client 1: create /a for session 0x1", true, true);
        let other = |ms: u64| line(ms, "s1 ticks", true, false);
        let many = EVENTS as u64;
        let events = [other(1), named(2), other(3), named(4)];
        let events: Vec<Event> = events.into_iter().chain((5..5 + many).map(other)).collect();
        let text = listing(&events);
        let numbers: Vec<u64> = text
            .lines()
            .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u64> = [2, 4].into_iter().chain(5..5 + many).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn older_call_quoted_by_the_evidence_is_shown() {
        let call = |ms: u64, text: &str| Call {
            at: Instant(ms * 1_000_000),
            end: None,
            client: ClientId(4),
            text: text.to_owned(),
        };
        let mut timeline = Timeline::default();
        timeline.calls.extend([call(1, "create /a"), call(2, "getData /b")]);
        let evidence = ["client 4: create /a must become NoNode".to_owned()];
        let (clients, until) = (BTreeSet::from([ClientId(4)]), Instant(u64::MAX));
        let lines = incarnations_of(&clients, until, &evidence, &timeline);
        let named: Vec<bool> = lines.iter().map(|line| line.named).collect();
        assert_eq!(named, [true, false]);
    }
}
