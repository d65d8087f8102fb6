//! The explanation of a failure: evidence, and the events before it.
//!
//! Owns the choice of events.

use std::collections::BTreeSet;
use std::fmt::Write;

use zabkeeper_core::{Instant, ServerId, Zxid};

use super::events::{Whom, last_events};
use super::short;
use crate::check::checker::{Class, Failure};
use crate::check::observe::ClientId;
use crate::faults::catalog::Fault;
use crate::faults::heal;
use crate::record::injection::Injection;
use crate::record::role::Role;
use crate::record::timeline::{Entry, Lane, State, Timeline, position};
use crate::record::trace::plain::{as_position, positions_in};
use crate::run::job::Report;

/// Number of faults shown that were injected before the failure, and their maximum age, ns.
const FAULTS_SHOWN: usize = 8;
const NEAR: u64 = 30_000_000_000;
/// Number of older faults shown if there are no recent ones.
const LONG_AGO: usize = 3;
/// Promises about the disk of one server, the first that the evidence names: the explanation shows
/// that disk's history, however old, and no other servers.
const ABOUT_DISKS: [&str; 7] = ["T2", "T11", "E4", "Z12", "Z14", "Z17", "Z18"];

/// The head of every explanation: promise, evidence, and time.
pub fn verdict(failure: &Failure) -> String {
    let mut text = format!("{}, {}\n", failure.id, failure.class.name());
    let _infallible = writeln!(text, "  promised  {}", failure.sentence);
    for (index, line) in failure.evidence.iter().enumerate() {
        let word = if index == 0 { "seen" } else { "" };
        let line = positions_in(line).replace('\n', "\n            ");
        let _infallible = writeln!(text, "  {word:<9} {line}");
    }
    let _infallible = writeln!(text, "  when      {} (event {})", failure.at, failure.event);
    text
}

/// The full explanation: head, progress of each server, faults, and the last events.
pub fn explain(failure: &Failure, report: &Report, timeline: &Timeline) -> String {
    let mut text = verdict(failure);
    let about_disk = ABOUT_DISKS.contains(&failure.id);
    let servers = if about_disk {
        servers_in(&failure.evidence.join(" ")).into_iter().take(1).collect()
    } else {
        let mut servers = servers_named(&failure.evidence);
        servers.extend(server_of(failure.event, timeline));
        servers
    };
    if let Some(zxid) = zxid_named(&failure.evidence).filter(|_| !about_disk) {
        text.push_str(&reached(zxid, timeline));
    } else {
        text.push_str(&positions(failure.at, report, timeline));
        if failure.class == Class::Panic {
            text.push_str(
                "  (the step that panicked has shown nothing: it may have changed more)\n",
            );
        }
    }
    text.push_str(&injected(failure.at, &servers, about_disk, report));
    let clients = clients_named(&failure.evidence);
    let place = (failure.at, failure.event);
    let whom = Whom {
        servers: &servers,
        clients: Some(&clients),
        evidence: &failure.evidence,
        about_disk,
    };
    text.push_str(&last_events(place, &whom, report, timeline));
    text
}

/// The explanation of a run that stopped early: progress of servers, active faults, and the last
/// events.
pub fn stopped(why: &str, report: &Report, timeline: &Timeline) -> String {
    let (at, event) = (report.outcome.ended, report.outcome.events);
    let mut text = format!("stopped at {at} (event {event}): {why}\n");
    text.push_str(&positions(at, report, timeline));
    text.push_str(&lasting(at, report));
    let all = BTreeSet::new();
    let whom = Whom { servers: &all, clients: None, evidence: &[], about_disk: false };
    text.push_str(&last_events((at, event), &whom, report, timeline));
    text.push_str(
        "\nTo see more of it, add --dump DIR (a file for each server), --html FILE, or --trace \
         all.\n",
    );
    text
}

/// The last status of each server.
fn positions(at: Instant, report: &Report, timeline: &Timeline) -> String {
    let mut text = "\nwhere servers are\n".to_owned();
    let _infallible = writeln!(
        text,
        "  {:<26}{:<18}{:>9}{:>9}{:>11}{:>9}  proposals",
        "", "epoch", "appended", "durable", "committed", "applied"
    );
    for (server, states) in &timeline.states {
        if let Some(state) = states.last() {
            let still = |injection: &Injection| {
                let goes_on = injection.at <= at && injection.until.is_some_and(|until| until > at);
                injection.fault == Fault::NodePause
                    && goes_on
                    && injection.servers().contains(server)
            };
            let still = report.outcome.injections.list().iter().any(still);
            let still = if still { ", stands still" } else { "" };
            let _infallible = writeln!(text, "  s{:<3}{}{still}", server.0, row(*server, state));
        }
    }
    text
}

fn row(server: ServerId, state: &State) -> String {
    if state.role == Role::Down {
        return state.role.name().to_owned();
    }
    let role = state.doing(server);
    let [promised, own] = state.epochs;
    let epoch =
        if promised == own { own.to_string() } else { format!("{own}, promised {promised}") };
    let [appended, durable, committed, applied] = state.marks.map(position);
    let open = if state.outstanding == 0 { "none" } else { &format!("{} open", state.outstanding) };
    format!("{role:<22}{epoch:<18}{appended:>9}{durable:>9}{committed:>11}{applied:>9}  {open}")
}

/// Faults that are still active.
fn lasting(at: Instant, report: &Report) -> String {
    let mut text = String::new();
    for injection in report.outcome.injections.list() {
        if let Some(until) = injection.until.filter(|until| *until > at) {
            let head = if text.is_empty() { "\nfaults that go on\n" } else { "" };
            let since = injection.at.to_string();
            let (fault, whom) = (injection.fault, injection.whom());
            let _infallible = writeln!(
                text,
                "{head}  {since:>13}  {fault} {whom} {}",
                heal::until(until, short(until))
            );
        }
    }
    text
}

/// Servers that the evidence names.
pub fn servers_named(evidence: &[String]) -> BTreeSet<ServerId> {
    servers_in(&evidence.join(" ")).into_iter().collect()
}

/// Servers that a text names, in order.
fn servers_in(text: &str) -> Vec<ServerId> {
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let first = words.first().and_then(|word| word.strip_prefix('s')?.parse().ok());
    let mut named = Vec::from_iter(first.map(ServerId));
    for pair in words.windows(2) {
        let number = match pair {
            ["server", number] => *number,
            [_, word] => word.strip_prefix('s').unwrap_or(""),
            _ => "",
        };
        named.extend(number.parse().ok().filter(|id| *id < 100).map(ServerId));
    }
    named
}

/// Clients that the evidence names.
pub fn clients_named(evidence: &[String]) -> BTreeSet<ClientId> {
    let numbers = words_after("client", evidence);
    numbers.iter().filter_map(|number| number.parse().ok()).map(ClientId).collect()
}

/// The first session that the evidence names.
pub(super) fn session_named(evidence: &[String]) -> Option<String> {
    words_after("session", evidence).into_iter().find(|word| word.starts_with("0x"))
}

/// The words directly after each occurrence of `what`.
fn words_after(what: &str, evidence: &[String]) -> Vec<String> {
    let text = evidence.join(" ");
    let words: Vec<&str> = text.split(|c: char| !c.is_ascii_alphanumeric()).collect();
    let after = words.windows(2).filter(|pair| pair[0] == what);
    after.map(|pair| pair[1].to_owned()).collect()
}

/// The first zxid that the evidence names.
pub(super) fn zxid_named(evidence: &[String]) -> Option<Zxid> {
    let text = evidence.join(" ");
    let words = text.split(|c: char| !c.is_ascii_alphanumeric());
    words.filter_map(as_position).next()
}

fn server_of(event: u64, timeline: &Timeline) -> Option<ServerId> {
    let of = |entry: &Entry| match entry.who {
        Lane::Server(server) => Some(server),
        Lane::World | Lane::Client(_) => None,
    };
    let near = |entry: &&Entry| entry.event <= event && entry.event + 2 >= event;
    timeline.inputs.iter().rev().chain(timeline.entries.iter().rev()).find(near).and_then(of)
}

/// When each server had appended, made durable, committed and applied this transaction.
fn reached(zxid: Zxid, timeline: &Timeline) -> String {
    let mut text = format!(
        "\nhow far servers got with {} (zxid {zxid})\n  {:<4}{:<28}{:>13}{:>13}{:>13}{:>13}\n",
        position(zxid),
        "",
        "at the end",
        "appended",
        "durable",
        "committed",
        "applied"
    );
    for (server, states) in &timeline.states {
        let Some(last) = states.last() else {
            continue;
        };
        let epoch = last.epochs[1];
        let now = format!("{}, epoch {epoch}", last.doing(*server));
        let _infallible = write!(text, "  s{:<3}{now:<28}", server.0);
        for mark in 0..4 {
            let when = reached_at(states, mark, zxid).map_or("-".to_owned(), |at| at.to_string());
            let _infallible = write!(text, "{when:>13}");
        }
        text.push('\n');
    }
    text
}

/// Since when a server's zxid has been at least this one.
fn reached_at(states: &[State], mark: usize, zxid: Zxid) -> Option<Instant> {
    let behind = states.iter().rposition(|state| state.marks[mark] < zxid);
    states.get(behind.map_or(0, |index| index + 1)).map(|state| state.at)
}

/// The last faults that hit these servers or, for a promise about a disk, the disk and its process.
fn injected(
    at: Instant,
    servers: &BTreeSet<ServerId>,
    about_disk: bool,
    report: &Report,
) -> String {
    let disks = |injection: &&Injection| {
        let name = injection.fault.name();
        !about_disk || name.starts_with("disk.") || name.starts_with("node.")
    };
    let concerns = |injection: &&Injection| {
        let hit = injection.servers();
        injection.at <= at
            && (servers.is_empty() || hit.iter().any(|server| servers.contains(server)))
    };
    let list = report.outcome.injections.list().iter();
    let all: Vec<&Injection> = list.filter(concerns).filter(disks).collect();
    let is_near = |injection: &&Injection| {
        about_disk || injection.until.unwrap_or(injection.at).0 + NEAR >= at.0
    };
    let mut near: Vec<&Injection> = all.iter().copied().filter(is_near).collect();
    if near.is_empty() {
        // An old fault may be the cause.
        near = all[all.len().saturating_sub(LONG_AGO)..].to_vec();
    }
    if near.is_empty() {
        return "\nthese servers had no fault\n".to_owned();
    }
    let mut text = format!("\nfaults of {} before it\n", names(servers));
    for injection in &near[near.len().saturating_sub(FAULTS_SHOWN)..] {
        let until = injection.until.map(|until| {
            let on = if until > at { ", still on" } else { "" };
            format!(" {}{on}", heal::until(until, short(until)))
        });
        let until = until.unwrap_or_default();
        let _infallible = writeln!(
            text,
            "  {:>13}  {} {}{until}",
            injection.at.to_string(),
            injection.fault,
            injection.whom()
        );
    }
    text
}

pub(super) fn names(servers: &BTreeSet<ServerId>) -> String {
    if servers.is_empty() {
        return "all servers".to_owned();
    }
    servers.iter().map(|id| format!("s{id}")).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_and_zxids_are_found_in_evidence() {
        let evidence = ["server 2 commits 0x300000012 as leader of 3", "s14, s5: c9 session 0x1"];
        let evidence = evidence.map(str::to_owned);
        let named: Vec<u64> = servers_named(&evidence).into_iter().map(|id| id.0).collect();
        assert_eq!(named, [2, 5, 14]);
        assert_eq!(zxid_named(&evidence), Some(Zxid(0x3_0000_0012)));
        let message = "server 5 says to server 4 on l7: ACK NEWLEADER 6, s2";
        assert_eq!(servers_in(message), [5, 4, 2].map(ServerId), "who says it comes first");
        assert_eq!(servers_named(&["s3 halts".to_owned()]).len(), 1);
        assert!(servers_named(&["sessions are gone".to_owned()]).is_empty());
        assert_eq!(session_named(&evidence).as_deref(), Some("0x1"));
    }
}
