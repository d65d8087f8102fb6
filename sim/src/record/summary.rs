//! The report of a run for people: one screen with leaderships, faults and checks, and, after a
//! violation, the evidence.
//!
//! Owns wording and layout. Must not decide anything. `report` has the full counters.

mod dump;
mod events;
mod failure;
mod shrunk;

use std::fmt::Write;

use zabkeeper_core::Instant;

use crate::faults::catalog::Fault;
use crate::record::injection::{Hit, Injection};
use crate::record::role::Role;
use crate::record::roles::Leadership;
use crate::run::job::Report;
use crate::run::report::{self, Totals};

pub use dump::dump;
pub use failure::{clients_named, explain, servers_named, stopped, verdict};
pub use shrunk::shrunk;

/// Maximum line length.
const WIDTH: usize = 112;
/// Every line begins with a word of this width.
const HEAD: usize = 10;
/// Leaderships shown; if there are more, those in the middle are omitted.
const LEADERSHIPS: usize = 8;
/// A fault that began at most this long before a leadership's end may have caused it, ns.
const CAUSE: u64 = 12_000_000_000;

/// The report of one run.
pub fn screen(report: &Report) -> String {
    let outcome = &report.outcome;
    let totals = Totals::of(report);
    let mut text = format!("{:<HEAD$}{}\n\n", "seed", opening(report));
    text.push_str(&outcome.roles.draw(outcome.ended, outcome.injections.list()));
    text.push('\n');
    text.push_str(&leaderships(report));
    text.push('\n');
    text.push_str(&injected(report));
    text.push_str(&paragraph("crashes", &losses(report)));
    text.push_str(&paragraph("calls", &calls(report)));
    text.push_str(&paragraph("happened", &happened(report)));
    text.push_str(&paragraph("checked", &checked(report)));
    text.push_str(&paragraph("healed", &healed(report)));
    text.push_str(&paragraph("speed", &report::speed(&totals)));
    let hash = outcome.hash;
    let _infallible = writeln!(text, "{:<HEAD$}{hash:032x} ({} events)", "trace", outcome.events);
    let _infallible = writeln!(text, "{:<HEAD$}{}", "verdict", report::verdict(report));
    text
}

fn opening(report: &Report) -> String {
    let options = &report.options;
    let source = options.profile.map_or("schedule".to_owned(), |name| format!("profile {name}"));
    format!(
        "{:#x}: {} and {}, {} of faults, {} in all ({}; more: --counts)",
        report.job.seed,
        plural(options.servers.into(), "server"),
        plural(options.clients.into(), "client"),
        short(Instant(u64::try_from(options.duration.as_nanos()).unwrap_or(u64::MAX))),
        short(report.outcome.ended),
        source,
    )
}

/// The leaderships, and what preceded the end of each.
fn leaderships(report: &Report) -> String {
    let all = report.outcome.roles.leaderships();
    if all.is_empty() {
        return paragraph("led", "nobody");
    }
    let skipped = all.len().saturating_sub(LEADERSHIPS);
    let head = if skipped == 0 { all.len() } else { LEADERSHIPS / 2 };
    let mut text = String::new();
    for (index, leadership) in all.iter().enumerate() {
        if index == head && skipped > 0 {
            let _infallible = writeln!(text, "{:<HEAD$}... {skipped} more ...", "");
        }
        if index >= head && index < head + skipped {
            continue;
        }
        let word = if index == 0 { "led" } else { "" };
        let until = leadership.until.map_or(report.outcome.ended, |(at, _)| at);
        let _infallible = writeln!(
            text,
            "{word:<HEAD$}epoch {:<4} s{}  {:>8} to {:>8} {:>13}  {}",
            leadership.epoch.0,
            leadership.server,
            short(leadership.from),
            short(until),
            plural(leadership.last.counter().into(), "write"),
            fit(&ending(leadership, report), WIDTH - 60)
        );
    }
    text
}

/// The words that fit into `width`.
fn fit(text: &str, width: usize) -> String {
    let Some((end, _)) = text.char_indices().nth(width) else {
        return text.to_owned();
    };
    let cut = &text[..end.saturating_sub(4)];
    format!("{} ...", cut.rsplit_once(' ').map_or(cut, |(words, _)| words))
}

/// How a leadership ended, and the last fault before that could have caused it.
fn ending(leadership: &Leadership, report: &Report) -> String {
    let Some((end, role)) = leadership.until else {
        return "to the end".to_owned();
    };
    let what = match role {
        Role::Down => "goes down",
        Role::Looking | Role::ReadOnly => "gives up",
        // Its disk has failed.
        Role::Begins => Role::HALTED,
        Role::Joins | Role::Leads | Role::Follows => role.name(),
    };
    let concerns = |injection: &&Injection| {
        let Some(before) = end.0.checked_sub(injection.at.0) else {
            return false;
        };
        let lasts = injection.until.is_none_or(|until| until.0 + 1_000_000_000 >= end.0);
        let fits = if role == Role::Down { fells(injection.fault) } else { tires(injection.fault) };
        let near =
            if ends_at_once(injection.fault) { before < 50_000_000 } else { before <= CAUSE };
        let link = !matches!(injection.hit, Hit::Conn(_)) || injection.servers().len() == 2;
        near && lasts && fits && link && injection.servers().contains(&leadership.server)
    };
    let cause = report.outcome.injections.list().iter().rfind(concerns);
    let down = report.outcome.roles.down(end);
    let few = role == Role::Looking && 2 * down >= report.outcome.roles.changes().len();
    match cause {
        _ if few => format!("{what}, {down} of {} are down", report.outcome.roles.changes().len()),
        Some(injection) if injection.at == end => format!("{what}: {}", injection.fault),
        Some(injection) => {
            let ms = (end.0 - injection.at.0) / 1_000_000;
            let whom = if matches!(injection.hit, Hit::Server(_)) {
                String::new()
            } else {
                injection.whom()
            };
            format!("{what}, {ms} ms after {} {whom}", injection.fault).trim_end().to_owned()
        }
        None => what.to_owned(),
    }
}

/// Whether the fault ends the process immediately.
fn ends_at_once(fault: Fault) -> bool {
    matches!(
        fault,
        Fault::NodeKill
            | Fault::NodePower
            | Fault::NodeKillLeader
            | Fault::NodeBlackout
            | Fault::NodeCrashInStep
            | Fault::DiskWipe
            | Fault::DiskBitRot
            | Fault::NodeStop
    )
}

/// Whether the fault can end a process.
fn fells(fault: Fault) -> bool {
    let disk = matches!(fault, Fault::DiskWriteError | Fault::DiskFull | Fault::DiskFsyncError);
    disk || ends_at_once(fault)
}

/// Whether the fault can cost a leader its quorum.
fn tires(fault: Fault) -> bool {
    const OTHERS: [Fault; 7] = [
        Fault::NodePause,
        Fault::NodeSlow,
        Fault::DiskSlow,
        Fault::DiskStall,
        Fault::NetReset,
        Fault::NetHalfOpen,
        Fault::NetStall,
    ];
    OTHERS.contains(&fault) || Fault::PARTITIONS.contains(&fault)
}

/// The faults with their targets: servers by name, others by number.
fn injected(report: &Report) -> String {
    let counters = &report.outcome.counters;
    let injections = report.outcome.injections.list();
    let mut text = String::new();
    for (family, title) in
        [("node.", "servers"), ("disk.", "disks"), ("net.", "network"), ("client.", "clients")]
    {
        let of_family = |fault: &&Fault| fault.name().starts_with(family);
        let hit = |fault: &&Fault| counters.faults[**fault as usize] > 0;
        let texts = Fault::ALL.iter().filter(of_family).filter(hit).map(|fault| {
            let count = counters.faults[*fault as usize];
            let name = fault.name().trim_start_matches(family);
            let whom =
                if family == "node." { servers_hit(*fault, injections) } else { String::new() };
            format!("{name} {}{whom}", grouped(count))
        });
        let texts: Vec<String> = texts.collect();
        if !texts.is_empty() {
            text.push_str(&paragraph(title, &texts.join(", ")));
        }
    }
    if text.is_empty() {
        text = paragraph("faults", "none");
    }
    text
}

fn servers_hit(fault: Fault, injections: &[Injection]) -> String {
    let mut servers: Vec<u64> = injections
        .iter()
        .filter(|injection| injection.fault == fault && matches!(injection.hit, Hit::Server(_)))
        .flat_map(Injection::servers)
        .map(|server| server.0)
        .collect();
    servers.sort_unstable();
    servers.dedup();
    let names: Vec<String> = servers.iter().map(|id| format!("s{id}")).collect();
    if names.is_empty() { String::new() } else { format!(" ({})", names.join(" ")) }
}

fn losses(report: &Report) -> String {
    let counters = &report.outcome.counters;
    let (kills, power) = (counters.counts.kills, counters.counts.power_failures);
    if kills + power == 0 {
        return "none".to_owned();
    }
    let taken: Vec<String> = counters
        .losses
        .fields()
        .into_iter()
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{} {what}", grouped(count)))
        .collect();
    let taken = if taken.is_empty() { "nothing".to_owned() } else { taken.join(", ") };
    format!("{}, {} took {taken}", plural(kills, "kill"), plural(power, "power failure"))
}

fn calls(report: &Report) -> String {
    let counters = &report.outcome.counters;
    let sum = |how: usize| counters.calls.iter().map(|counts| counts[how]).sum::<u64>();
    format!(
        "{}: {} done, {} refused, {} of which nobody knows, {} after their session's end",
        grouped(counters.calls_ended()),
        grouped(sum(0)),
        grouped(sum(1)),
        grouped(sum(2)),
        grouped(sum(3))
    )
}

fn happened(report: &Report) -> String {
    let counts = &report.outcome.counters.counts;
    let written: u64 = report
        .outcome
        .roles
        .leaderships()
        .iter()
        .map(|leadership| u64::from(leadership.last.counter()))
        .sum();
    format!(
        "{} transactions; {}, {} expired; {}; {} truncated, {} snapshots taken over; {} messages \
         between \
         servers",
        grouped(written),
        plural(counts.sessions, "session"),
        counts.sessions_expired,
        plural(counts.boots, "start"),
        plural(counts.truncations, "log"),
        counts.snaps,
        grouped(counts.peer_messages + counts.notifications)
    )
}

/// By family of promises: their number, and how often they were checked.
fn checked(report: &Report) -> String {
    let families = [
        ("broadcast", "Z"),
        ("state", "T"),
        ("sessions", "S"),
        ("answers", "C"),
        ("watches", "W"),
        ("liveness", "L"),
        ("hygiene", "E"),
    ];
    let checks: Vec<_> = report.outcome.checks.iter().filter(|(_, count)| *count > 0).collect();
    let all: u64 = checks.iter().map(|(_, count)| count).sum();
    let of = |head: &str| {
        let mine = checks.iter().filter(|(id, _)| id.starts_with(head) && !id.starts_with("CL"));
        mine.map(|(_, count)| count).sum::<u64>()
    };
    let texts = families.map(|(name, head)| (name, of(head)));
    let texts: Vec<String> = texts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| format!("{name} {}", grouped(*count)))
        .collect();
    let held = match &report.outcome.failure {
        None => "all held".to_owned(),
        Some(failure) => format!("{} is broken", failure.id),
    };
    format!("{} promises, {} times, {held} ({})", checks.len(), grouped(all), texts.join(", "))
}

fn healed(report: &Report) -> String {
    let liveness = report.outcome.liveness;
    if liveness.took == 0 {
        return "the run ended before".to_owned();
    }
    let who = match &report.outcome.healed {
        all if all.is_empty() => "all serve".to_owned(),
        some => format!("{some}; the healed ones serve"),
    };
    format!(
        "{who}, and every session writes, {} after the last fault ({} allowed); {} by {} \
         notifications",
        short(Instant(liveness.took)),
        short(Instant(liveness.bound)),
        plural(liveness.leaderships, "new leader"),
        grouped(liveness.notifications)
    )
}

/// Wraps lines that exceed the maximum, indenting continuations to the text behind the head word.
pub fn wrapped(text: &str) -> String {
    let wrap = |line: &str| match line.split_at_checked(HEAD) {
        Some((head, rest)) if line.len() > WIDTH => paragraph(head, rest),
        Some(_) | None => format!("{line}\n"),
    };
    text.lines().map(wrap).collect()
}

/// A head word, and text that is wrapped beside it.
fn paragraph(head: &str, text: &str) -> String {
    let mut lines = String::new();
    let mut line = format!("{head:<HEAD$}");
    let mut begun = false;
    for word in text.split(' ') {
        if begun && line.len() + 1 + word.len() > WIDTH {
            lines.push_str(line.trim_end());
            lines.push('\n');
            line = " ".repeat(HEAD);
            begun = false;
        }
        if begun {
            line.push(' ');
        }
        line.push_str(word);
        begun = true;
    }
    lines.push_str(line.trim_end());
    lines.push('\n');
    lines
}

/// Seconds, with milliseconds.
fn short(at: Instant) -> String {
    format!("{}.{:03}s", at.0 / 1_000_000_000, at.0 / 1_000_000 % 1_000)
}

fn plural(count: u64, what: &str) -> String {
    format!("{} {what}{}", grouped(count), if count == 1 { "" } else { "s" })
}

/// The number with thousands separators.
fn grouped(count: u64) -> String {
    let digits = count.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_grouped_and_paragraphs_are_wrapped() {
        assert_eq!([grouped(7), grouped(1_234), grouped(1_234_567)], ["7", "1,234", "1,234,567"]);
        let text = paragraph("calls", &"word ".repeat(40));
        assert!(text.lines().all(|line| line.len() <= WIDTH));
        assert!(text.lines().skip(1).all(|line| line.starts_with("          word")));
        assert_eq!(text.split_whitespace().filter(|word| *word == "word").count(), 40);
        let lines = format!("\nseed      1\n{text}marks     {}\n", "Mark ".repeat(300).trim_end());
        assert!(wrapped(&lines).lines().all(|line| line.len() <= WIDTH));
        assert!(wrapped(&lines).starts_with(&format!("\nseed      1\n{text}marks     Mark Mark")));
        assert_eq!(wrapped(&lines).matches("Mark").count(), 300);
    }
}
