//! The last events before the end of a run, chosen and worded for whoever has to understand it.
//!
//! Owns the choice. Must not judge.

use std::collections::BTreeSet;
use std::fmt::Write;

use zabkeeper_core::{Instant, ServerId, Zxid};

use super::failure::{names, session_named, zxid_named};
use super::fit;
use crate::chronicle::{Chronicle, Entry, Lane, Message, position};
use crate::observe::ClientId;
use crate::run::Report;
use crate::trace::Kind;
use crate::trace::plain::{as_position, positions_in, words};

/// So many are shown.
const EVENTS: usize = 20;
/// And so many earlier ones that name what it is about.
const NAMED: usize = 6;
/// What is like one of so many events that came after it is told with that one.
const NEAR: usize = 4;
/// A longer line is cut.
const LINE: usize = 150;
/// Marks that a run has hit so often or less often are told wherever they are, others only where the failing step hit
/// them.
const RARE: u64 = 3;

/// A line to be.
struct Event {
    at: Instant,
    event: Option<u64>,
    /// It is told by itself, whatever it is like: the order of such lines matters.
    alone: bool,
    /// It names what it is about, and is told from further back.
    named: bool,
    text: String,
}

impl Event {
    /// What may stand for others like it.
    fn daily(at: Instant, event: Option<u64>, text: String) -> Event {
        Event { at, event, alone: false, named: false, text }
    }
}

/// Who is of interest.
pub(super) struct Whom<'a> {
    /// None: all.
    pub(super) servers: &'a BTreeSet<ServerId>,
    /// None: what they say to servers is left out.
    pub(super) clients: Option<&'a BTreeSet<ClientId>>,
    /// What was seen that should not be; of none, where a run was only stopped.
    pub(super) evidence: &'a [String],
    /// Only what a disk is told, does and suffers, and what servers say that depends on it.
    pub(super) about_disk: bool,
}

/// What happened last to these servers, and to clients that the evidence names.
pub(super) fn last_events(
    (at, event): (Instant, u64),
    whom: &Whom<'_>,
    report: &Report,
    chronicle: &Chronicle,
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
            let stranger = entry.text.contains(" <- somebody:");
            stranger || named.is_some_and(|id| !wanted.contains(&id))
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
    let events = chronicle.inputs.iter().chain(&chronicle.told).filter(concerns);
    let line = |entry: &Entry| {
        let names = |what: &dyn Fn(&str) -> bool| words(&entry.text).any(what);
        let of_session = session.as_deref().is_some_and(|session| names(&|word| word == session));
        let of_zxid = zxid.is_some_and(|zxid| names(&|word| as_position(word) == Some(zxid)));
        let alone = of_session || entry.kind == Kind::Life;
        let (at, event, text) = (entry.at, Some(entry.event), entry.text.clone());
        Event { at, event, alone, named: of_session || of_zxid, text }
    };
    let mut events: Vec<Event> = events.map(line).collect();
    events.extend(marks((at, event), servers, report, chronicle));
    if !about_clients {
        let sent = chronicle.messages.iter().filter(|message| message.at <= at);
        let sent = sent.filter_map(|message| send(message, servers));
        events.extend(sent.filter(|event| !about_disk || vouches(&event.text)));
    }
    let lives = |clients| lives_of(clients, at, evidence, chronicle);
    events.extend(clients.into_iter().flat_map(lives));
    events.sort_by_key(|line| (line.at, line.event.unwrap_or(u64::MAX)));
    let mut whom = names(servers);
    for client in clients.into_iter().flatten() {
        let _infallible = write!(whom, ", client {}", client.0);
    }
    format!("\nthe last events at {whom} (everything: --trace all)\n{}", told(&events))
}

/// The last of these, each with those before it that are like it.
fn told(events: &[Event]) -> String {
    struct Told<'a> {
        newest: &'a Event,
        oldest: Instant,
        count: usize,
        shape: String,
    }
    let mut kept: Vec<Told<'_>> = Vec::new();
    let mut earlier = 0;
    for (index, event) in events.iter().enumerate().rev() {
        let shape = shape(&event.text);
        let like = |told: &&mut Told<'_>| !event.alone && told.shape == shape;
        let near = kept.iter_mut().rev().take(NEAR).find(like);
        if let Some(told) = near {
            (told.oldest, told.count) = (event.at, told.count + 1);
        } else if kept.len() < EVENTS {
            kept.push(Told { newest: event, oldest: event.at, count: 1, shape });
        } else {
            earlier = index + 1;
            break;
        }
    }
    let named = events[..earlier].iter().rev().filter(|event| event.named);
    kept.extend(named.take(NAMED).map(|event| Told {
        newest: event,
        oldest: event.at,
        count: 1,
        shape: String::new(),
    }));
    let mut text = String::new();
    for Told { newest, oldest, count, .. } in kept.iter().rev() {
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

/// The text without its numbers, but for those of servers: what has the same shape says the same.
fn shape(text: &str) -> String {
    let plain = |word: &str| {
        let server = word.strip_prefix('s').is_some_and(|id| id.parse::<u32>().is_ok());
        let number = word.contains(|c: char| c.is_ascii_digit());
        if number && !server { "#".to_owned() } else { word.to_owned() }
    };
    words(text).map(plain).collect()
}

/// The marks of the failing step, and those that were hit rarely.
fn marks(
    (at, event): (Instant, u64),
    servers: &BTreeSet<ServerId>,
    report: &Report,
    chronicle: &Chronicle,
) -> Vec<Event> {
    let hits = &report.outcome.tally.marks;
    let mut events = Vec::new();
    for (place, server, marks) in &chronicle.marks {
        if place.at > at || !(servers.is_empty() || servers.contains(server)) {
            continue;
        }
        let told = marks.iter().filter(|m| place.event == event || hits[*m as usize] <= RARE);
        for mark in told {
            let text = format!("s{server}: {} ({mark:?})", mark.sentence());
            events.push(Event::daily(place.at, Some(place.event), text));
        }
    }
    events
}

/// What one of these servers sends, but for the daily round.
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

/// What says nothing here: faults without whom they hit, which stand above, and the daily round of servers.
fn daily(entry: &Entry, about_clients: bool) -> bool {
    let round = |parts: &[&str]| parts.iter().any(|part| entry.text.contains(part));
    let bare = entry.kind == Kind::Fault && !entry.text.contains(' ');
    bare || round(&[": PING", ": PONG"]) || (about_clients && round(&[": ACK ", " disk done "]))
}

/// Has it to do with what a server keeps: what its disk is given and does, how it ends and begins, and whom it follows?
fn is_about_disk(entry: &Entry) -> bool {
    const WORDS: [&str; 8] =
        [" disk ", "state w", "rebase", "truncate", "NEWLEADER", "SNAP", "TRUNC", "UPTODATE"];
    matches!(entry.kind, Kind::Life | Kind::Fault)
        || WORDS.iter().any(|word| entry.text.contains(word))
}

/// Is it a message by which a server says what it keeps?
fn vouches(text: &str) -> bool {
    [": ACK", ": FOLLOWERINFO ", ": SYNC AT "].iter().any(|word| text.contains(word))
}

/// Connections and calls of these clients, as they know of them.
fn lives_of(
    clients: &BTreeSet<ClientId>,
    until: Instant,
    evidence: &[String],
    chronicle: &Chronicle,
) -> Vec<Event> {
    let mut lines = Vec::new();
    let mut line = |at: Instant, named: bool, text: String| {
        if at <= until {
            lines.push(Event { at, event: None, alone: named, named, text });
        }
    };
    for conn in chronicle.conns.iter().filter(|conn| clients.contains(&conn.client)) {
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
    for call in chronicle.calls.iter().filter(|call| clients.contains(&call.client)) {
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
    use crate::chronicle::Call;

    fn line(ms: u64, text: &str, alone: bool, named: bool) -> Event {
        let (at, event, text) = (Instant(ms * 1_000_000), Some(ms), text.to_owned());
        Event { at, event, alone, named, text }
    }

    #[test]
    fn of_a_disk_is_told_what_it_was_given_and_what_it_is_trusted_for() {
        let input = |kind: Kind, text: &str| {
            let (at, who) = (Instant(1), Lane::Server(ServerId(4)));
            is_about_disk(&Entry { at, event: 1, kind, who, text: text.to_owned() })
        };
        assert!(input(Kind::Step, "s4 disk failed: disk full"));
        assert!(input(Kind::Step, "s4 gives its disk: state w394 accepted=6 current=5"));
        assert!(input(Kind::Step, "s4 <- s5: NEWLEADER 6") && input(Kind::Life, "s4 loses power"));
        assert!(!input(Kind::Step, "s4 <- s5: PROPOSAL 6.1"));
        assert!(vouches("s4 -> s5: ACK NEWLEADER 6") && vouches("s4 -> s5: ACKEPOCH 5.75"));
        assert!(!vouches("s4 -> s1: COMMIT 6.1") && !vouches("s4 -> s1: votes for s5"));
    }

    #[test]
    fn what_is_alike_is_told_once() {
        let event = |ms: u64, text: &str| line(ms, text, false, false);
        let mut events = vec![event(1, "s1 <- s2: COMMIT 0x100000003")];
        events.extend((2..5).map(|ms| event(ms, &format!("s1 <- s2: is looking round {ms}"))));
        events.push(event(5, "s1 <- s3: is looking round 5"));
        assert_eq!(
            told(&events),
            "      0.001000s        1  s1 <- s2: COMMIT 1.3\n      \
             0.004000s        4  s1 <- s2: is looking round 4 (and 2 like it since 0.002000s)\n      \
             0.005000s        5  s1 <- s3: is looking round 5\n"
        );
    }

    #[test]
    fn what_names_the_matter_is_told_from_further_back() {
        let named = |ms: u64| line(ms, "s1 <- client 1: create /a for session 0x1", true, true);
        let other = |ms: u64| line(ms, "s1 ticks", true, false);
        let many = EVENTS as u64;
        let events = [other(1), named(2), other(3), named(4)];
        let events: Vec<Event> = events.into_iter().chain((5..5 + many).map(other)).collect();
        let told = told(&events);
        let numbers: Vec<u64> = told
            .lines()
            .map(|line| line.split_whitespace().nth(1).unwrap().parse().unwrap())
            .collect();
        let expected: Vec<u64> = [2, 4].into_iter().chain(5..5 + many).collect();
        assert_eq!(numbers, expected);
    }

    #[test]
    fn the_call_that_the_evidence_quotes_is_told_from_further_back() {
        let call = |ms: u64, text: &str| Call {
            at: Instant(ms * 1_000_000),
            end: None,
            client: ClientId(4),
            text: text.to_owned(),
        };
        let mut chronicle = Chronicle::default();
        chronicle.calls.extend([call(1, "create /a"), call(2, "getData /b")]);
        let evidence = ["client 4: create /a must become NoNode".to_owned()];
        let (clients, until) = (BTreeSet::from([ClientId(4)]), Instant(u64::MAX));
        let lines = lives_of(&clients, until, &evidence, &chronicle);
        let named: Vec<bool> = lines.iter().map(|line| line.named).collect();
        assert_eq!(named, [true, false]);
    }
}
