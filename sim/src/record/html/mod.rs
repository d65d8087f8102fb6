//! The HTML report of a run, a self-contained page: `--html FILE`.
//!
//! Owns which parts of a timeline go onto the page, and how many. `page/*.js` draws them; it
//! receives columns of numbers, with times in microseconds, as differences to the previous number.

use serde_json::{Value, json};
use zabkeeper_core::{Instant, ServerId, Zxid};

use crate::check::checker::Failure;
use crate::check::observe::ClientId;
use crate::network::stream::Party;
use crate::record::injection::Hit;
use crate::record::role::Role;
use crate::record::summary;
use crate::record::timeline::{Call, Conn, Entry, Lane, Message, State, Timeline};
use crate::record::trace::Kind;
use crate::record::trace::plain::positions_in;
use crate::run::job::Report;
use crate::run::report;

/// Maximum numbers of entries; older ones are omitted, and the page reports this.
const MESSAGES_MAX: usize = 90_000;
const CALLS_MAX: usize = 20_000;
const ENTRIES_MAX: usize = 30_000;
/// Clients beyond this number have no row, except those that a failure names: browsers limit the
/// height of a drawing.
const CLIENTS_MAX: usize = 1_000;
/// If servers have more status changes than this, zxids are sampled at this interval, ns, except
/// within the last part before the end of a failed run, ns.
const STATES_MAX: usize = 40_000;
const SAMPLE: u64 = 20_000_000;
const CLOSE: u64 = 2_000_000_000;
/// Maximum length of a text.
const TEXT_MAX: usize = 160;

const PAGE: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
/// One script: later parts use definitions of earlier ones.
const SCRIPT: &str = concat!(
    include_str!("page/data.js"),
    include_str!("page/view.js"),
    include_str!("page/drawing.js"),
    include_str!("page/lanes.js"),
    include_str!("page/messages.js"),
    include_str!("page/panel.js"),
    include_str!("page/search.js"),
    include_str!("page/input.js"),
);

/// The page. `called`: the run's title, and the command that reproduces it.
pub fn page(report: &Report, timeline: &Timeline, called: (&str, &str)) -> String {
    // Inside a script element only `<` could end it.
    let data = data(report, timeline, called).to_string().replace('<', "\\u003c");
    // Later parts are replaced first, so that no inserted part is searched for placeholders.
    PAGE.replacen("/*STYLE*/", STYLE, 1)
        .replacen("/*SCRIPT*/", SCRIPT, 1)
        .replacen("/*DATA*/", &data, 1)
}

/// The data that the page draws.
pub fn data(report: &Report, timeline: &Timeline, (name, repro): (&str, &str)) -> Value {
    let outcome = &report.outcome;
    let lanes = Lanes::of(report, timeline);
    json!({
        "name": name,
        "options": report.options.to_string(),
        "verdict": report::verdict(report),
        "repro": repro,
        "end": micros(outcome.ended),
        "events": outcome.events,
        "hash": format!("{:032x}", outcome.hash),
        "servers": lanes.servers.iter().map(|id| id.0).collect::<Vec<_>>(),
        "clients": lanes.clients,
        "clients_left_out": lanes.left_out,
        "failure": outcome.failure.as_ref().map(failure),
        "phases": phases(timeline),
        "states": states(report, timeline, &lanes),
        "messages": messages(timeline, &lanes),
        "calls": calls(timeline),
        "conns": conns(timeline),
        "injections": injections(report),
        "entries": entries(timeline, &lanes),
    })
}

/// The rows: servers first, then clients.
struct Lanes {
    servers: Vec<ServerId>,
    clients: Vec<u32>,
    left_out: usize,
}

impl Lanes {
    fn of(report: &Report, timeline: &Timeline) -> Lanes {
        let servers: Vec<ServerId> = report.outcome.roles.changes().keys().copied().collect();
        // A client without calls and sessions is a bad client.
        let sessions = timeline.conns.iter().filter(|conn| conn.session != 0);
        let callers = timeline.calls.iter().map(|call| call.client.0);
        let mut clients: Vec<u32> = callers.chain(sessions.map(|conn| conn.client.0)).collect();
        clients.sort_unstable();
        clients.dedup();
        let all = clients.len();
        let failure = report.outcome.failure.as_ref();
        let named = failure.map(|failure| summary::clients_named(&failure.evidence));
        let named = named.unwrap_or_default();
        let mut place = 0..;
        clients.retain(|client| {
            place.next() < Some(CLIENTS_MAX) || named.contains(&ClientId(*client))
        });
        Lanes { servers, left_out: all - clients.len(), clients }
    }

    /// The index of a row; -1 if there is none.
    fn index(&self, lane: Lane) -> i64 {
        let place = match lane {
            Lane::World => None,
            Lane::Server(id) => self.servers.iter().position(|known| *known == id),
            Lane::Client(id) => {
                let place = self.clients.binary_search(&id.0).ok();
                place.map(|place| place + self.servers.len())
            }
        };
        place.and_then(|place| i64::try_from(place).ok()).unwrap_or(-1)
    }
}

fn failure(failure: &Failure) -> Value {
    json!({
        "id": failure.id,
        "class": failure.class.name(),
        "sentence": failure.sentence,
        "evidence": failure.evidence,
        "at": micros(failure.at),
        "event": failure.event,
        "servers": summary::servers_named(&failure.evidence).iter().map(|id| id.0).collect::<Vec<_>>(),
    })
}

fn phases(timeline: &Timeline) -> Value {
    let phases = timeline.entries.iter().filter(|entry| entry.kind == Kind::Phase);
    phases.map(|entry| json!([micros(entry.at), entry.text])).collect()
}

fn states(report: &Report, timeline: &Timeline, lanes: &Lanes) -> Value {
    let failed = report.outcome.failure.is_some();
    let all: usize = timeline.states.values().map(Vec::len).sum();
    let close = if all <= STATES_MAX {
        0
    } else if failed {
        report.outcome.ended.0.saturating_sub(CLOSE)
    } else {
        u64::MAX
    };
    let of = |id: &ServerId| {
        let all = timeline.states.get(id).map_or(&[][..], Vec::as_slice);
        columns_of_states(&sampled(all, close))
    };
    lanes.servers.iter().map(of).collect()
}

/// Drops statuses in which only zxids changed, if they are too frequent.
fn sampled(all: &[State], close: u64) -> Vec<State> {
    let mut kept: Vec<State> = Vec::new();
    for (index, state) in all.iter().enumerate() {
        let shape = |s: &State| (s.role, s.leader, s.epochs, s.halted);
        let same = kept.last().is_some_and(|last| shape(last) == shape(state));
        let soon = kept.last().is_some_and(|last| state.at.0 - last.at.0 < SAMPLE);
        // The last status before another change shows the final zxids.
        let ends = all.get(index + 1).is_none_or(|next| shape(next) != shape(state));
        if !(same && soon) || ends || state.at.0 >= close {
            kept.push(*state);
        }
    }
    kept
}

fn columns_of_states(states: &[State]) -> Value {
    let column = |of: &dyn Fn(&State) -> u64| differences(states.iter().map(of));
    let plain = |of: &dyn Fn(&State) -> u64| states.iter().map(of).collect::<Vec<_>>();
    let mark = |n: usize| differences(states.iter().map(|state| number(state.marks[n])));
    json!({
        "t": column(&|s| micros(s.at)),
        "role": plain(&|s| role(s.role)),
        "leader": plain(&|s| s.leader.map_or(0, |leader| leader.0)),
        "accepted": plain(&|s| s.epochs[0].into()),
        "current": plain(&|s| s.epochs[1].into()),
        "appended": mark(0),
        "durable": mark(1),
        "committed": mark(2),
        "applied": mark(3),
        "sessions": plain(&|s| s.held[0] as u64),
        "watches": plain(&|s| s.held[1] as u64),
        "outstanding": plain(&|s| s.outstanding as u64),
        "halted": plain(&|s| u64::from(s.halted)),
    })
}

fn role(role: Role) -> u64 {
    match role {
        Role::Down => 0,
        Role::Looking | Role::ReadOnly => 1,
        Role::Begins => 2,
        Role::Joins => 3,
        Role::Leads => 4,
        Role::Follows => 5,
    }
}

fn messages(timeline: &Timeline, lanes: &Lanes) -> Value {
    let skipped = timeline.messages.len().saturating_sub(MESSAGES_MAX);
    let mut kinds: Vec<&'static str> = Vec::new();
    let list: Vec<(&Message, i64, i64)> = timeline.messages[skipped..]
        .iter()
        .map(|message| (message, lanes.index(message.from), lanes.index(message.to)))
        .filter(|(_, from, to)| *from >= 0 && *to >= 0)
        .collect();
    let mut kind_of = |name: &'static str| {
        kinds.iter().position(|known| *known == name).unwrap_or_else(|| {
            kinds.push(name);
            kinds.len() - 1
        })
    };
    let kind: Vec<usize> = list.iter().map(|(message, ..)| kind_of(message.kind)).collect();
    let took = |message: &Message| match message.got {
        Some(got) => i64::try_from(micros(got) - micros(message.at)).unwrap_or(i64::MAX),
        None => -1,
    };
    json!({
        "since": if skipped == 0 { 0 } else { list.first().map_or(0, |(m, ..)| micros(m.at)) },
        "skipped": skipped,
        "kinds": kinds,
        "t": differences(list.iter().map(|(message, ..)| micros(message.at))),
        "took": list.iter().map(|(message, ..)| took(message)).collect::<Vec<_>>(),
        "from": list.iter().map(|(_, from, _)| from).collect::<Vec<_>>(),
        "to": list.iter().map(|(_, _, to)| to).collect::<Vec<_>>(),
        "kind": kind,
        "number": list.iter().map(|(message, ..)| message.number).collect::<Vec<_>>(),
    })
}

fn calls(timeline: &Timeline) -> Value {
    let skipped = timeline.calls.len().saturating_sub(CALLS_MAX);
    let list = &timeline.calls[skipped..];
    let took = |call: &Call| match &call.end {
        Some((end, ..)) => i64::try_from(micros(*end) - micros(call.at)).unwrap_or(i64::MAX),
        None => -1,
    };
    let how = |call: &Call| call.end.as_ref().map_or(4, |(_, outcome, _)| *outcome as u64);
    let answer = |call: &Call| {
        let text = call.end.as_ref().map_or("", |(_, _, text)| text);
        cut(&positions_in(text))
    };
    json!({
        "skipped": skipped,
        "t": differences(list.iter().map(|call| micros(call.at))),
        "took": list.iter().map(took).collect::<Vec<_>>(),
        "client": list.iter().map(|call| call.client.0).collect::<Vec<_>>(),
        "how": list.iter().map(how).collect::<Vec<_>>(),
        "text": list.iter().map(|call| cut(&call.text)).collect::<Vec<_>>(),
        "answer": list.iter().map(answer).collect::<Vec<_>>(),
    })
}

fn conns(timeline: &Timeline) -> Value {
    let row = |conn: &Conn| {
        let until = conn.until.map_or(-1, |at| i64::try_from(micros(at)).unwrap_or(i64::MAX));
        let session =
            if conn.session == 0 { String::new() } else { format!("{:#x}", conn.session) };
        json!([conn.client.0, conn.server.0, micros(conn.at), until, session])
    };
    timeline.conns.iter().map(row).collect()
}

fn injections(report: &Report) -> Value {
    let mut rows = Vec::new();
    for injection in report.outcome.injections.list() {
        let until = injection.until.map_or(-1, |at| i64::try_from(micros(at)).unwrap_or(i64::MAX));
        let servers: Vec<u64> = injection.servers().iter().map(|id| id.0).collect();
        let client = match &injection.hit {
            Hit::Client(client) => i64::from(client.0),
            Hit::Conn(ends) => ends.iter().find_map(client_of).unwrap_or(-1),
            Hit::Server(_) | Hit::Pairs(_) | Hit::Clients => -1,
        };
        let whom = injection.whom();
        rows.push(json!([
            micros(injection.at),
            until,
            injection.fault.name(),
            servers,
            client,
            whom
        ]));
    }
    Value::Array(rows)
}

fn client_of(party: &Party) -> Option<i64> {
    match party {
        Party::Client(client) => Some(i64::from(client.0)),
        Party::Server(_) | Party::BadPeer => None,
    }
}

fn entries(timeline: &Timeline, lanes: &Lanes) -> Value {
    let skipped = timeline.entries.len().saturating_sub(ENTRIES_MAX);
    // Faults are drawn with their targets, and phases separately.
    let drawn = |entry: &&Entry| !matches!(entry.kind, Kind::Fault | Kind::Phase);
    let list: Vec<&Entry> = timeline.entries[skipped..].iter().filter(drawn).collect();
    let plain =
        |of: &dyn Fn(&Entry) -> Value| list.iter().map(|entry| of(entry)).collect::<Vec<_>>();
    json!({
        "skipped": skipped,
        "t": differences(list.iter().map(|entry| micros(entry.at))),
        "event": differences(list.iter().map(|entry| entry.event)),
        "lane": plain(&|entry| json!(lanes.index(entry.who))),
        "kind": plain(&|entry| json!(entry.kind.to_string())),
        "text": plain(&|entry| json!(cut(&entry.text))),
    })
}

/// Numbers as differences to the previous one: shorter, and JavaScript sums them exactly.
fn differences(numbers: impl Iterator<Item = u64>) -> Vec<i64> {
    let signed = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let mut last = 0;
    numbers.map(|n| signed(n) - std::mem::replace(&mut last, signed(n))).collect()
}

/// Exact in a 64-bit float while the epoch is below 2^21.
fn number(zxid: Zxid) -> u64 {
    zxid.0
}

fn micros(at: Instant) -> u64 {
    at.0 / 1_000
}

fn cut(text: &str) -> String {
    if text.len() <= TEXT_MAX {
        return text.to_owned();
    }
    let mut end = TEXT_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}...", &text[..end])
}
