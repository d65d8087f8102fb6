//! Reports of runs and batches, for people and programs.
//!
//! Owns wording and layout. Must not decide anything.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::{Value, json};
use zabkeeper_core::io::Mark;

use crate::check::checker::Class;
use crate::clients::workload::Op;
use crate::engine::fork;
use crate::faults::catalog::{Fault, Trigger};
use crate::record::counters::Counters;
use crate::record::coverage::Coverage;
use crate::replay::schedule;
use crate::run::cli::Flags;
use crate::run::evidence_log;
use crate::run::format;
use crate::run::job::{self, Report};
use crate::world::Outcome;
use crate::world::options::Profile;

/// Minimum CPU time for which a speed is computed, ns.
const MEASURABLE: u64 = 1_000_000;

/// Sums over the runs of a batch.
#[derive(Clone, Debug, Default)]
pub struct Totals {
    /// Number of runs.
    pub runs: u64,
    /// Number of runs by verdict, in order of first occurrence.
    pub verdicts: Vec<(&'static str, u64)>,
    /// Counters.
    pub counters: Counters,
    /// The coverage table.
    pub coverage: Coverage,
    /// Number of checks by promise.
    pub checks: Vec<(&'static str, u64)>,
    /// Virtual time, ns.
    pub virtual_ns: u64,
    /// CPU time, ns.
    pub cpu_ns: u64,
    /// Number of trace events.
    pub events: u64,
    /// Recovery time after the heal, ns, of each run that recovered.
    pub recoveries: Vec<u64>,
    /// Virtual seconds per CPU second, of each run.
    pub paces: Vec<u64>,
    /// Digests of the final states.
    pub ends: BTreeSet<u64>,
}

impl Totals {
    /// Adds a run.
    pub fn add(&mut self, report: &Report) {
        self.runs += 1;
        add_to(&mut self.verdicts, verdict(report), 1);
        self.counters.add(&report.outcome.counters);
        self.coverage.add(&report.outcome.counters);
        for (id, count) in &report.outcome.checks {
            add_to(&mut self.checks, id, *count);
        }
        self.virtual_ns += report.outcome.ended.0;
        self.cpu_ns += report.cpu_ns;
        self.events += report.outcome.events;
        if report.outcome.liveness.took > 0 {
            self.recoveries.push(report.outcome.liveness.took);
        }
        self.paces.push(report.outcome.ended.0 / report.cpu_ns);
        self.ends.extend(report.outcome.end_digest);
    }

    /// Sums of one run.
    pub fn of(report: &Report) -> Totals {
        let mut totals = Totals::default();
        totals.add(report);
        totals
    }

    fn checks_made(&self) -> u64 {
        self.checks.iter().map(|(_, count)| count).sum()
    }
}

fn add_to(counts: &mut Vec<(&'static str, u64)>, name: &'static str, more: u64) {
    match counts.iter_mut().find(|(known, _)| *known == name) {
        Some((_, count)) => *count += more,
        None => counts.push((name, more)),
    }
}

/// How a run ended, in one word.
pub fn verdict(report: &Report) -> &'static str {
    match &report.outcome.failure {
        Some(failure) => failure.class.name(),
        None if report.outcome.stopped.is_some() => "stopped",
        None if report.outcome.inconclusive => "inconclusive",
        None if !drifted(report).is_empty() => "drifted",
        None => "passed",
    }
}

/// Marks and forks that a successful run should have reached, and has not: its success then proves
/// nothing about them.
pub fn drifted(report: &Report) -> Vec<String> {
    let Outcome { failure, stopped, inconclusive, unforked, .. } = &report.outcome;
    if failure.is_some() || stopped.is_some() || *inconclusive {
        return Vec::new();
    }
    let marks = report.missed.iter().map(|mark| {
        format!("drifted: the schedule does not reach {mark:?} any more; record it anew")
    });
    // A schedule consists of its steps; the fork that recorded them need not be reached again.
    let is_of_seed = !report.job.pinned.forks.is_empty();
    let fork = unforked.filter(|_| is_of_seed);
    marks.chain(fork.map(|fork| format!("drifted: the run does not get to {fork}"))).collect()
}

/// Whether the verdict leaves open that promises hold.
pub fn is_open(verdict: &str) -> bool {
    matches!(verdict, "inconclusive" | "drifted")
}

/// The settings and counters of one run.
pub fn counts(report: &Report) -> String {
    let totals = Totals::of(report);
    format!("{}\n\n{}\n{}\n", report.options, happened(&totals.counters), checked(&totals))
}

/// The report of a batch.
pub fn batch(totals: &Totals) -> String {
    let at = |share| percentile(&totals.recoveries, share).map_or("-".to_owned(), seconds);
    format!(
        "runs      {} ({})\n{}\nliveness  fresh writes after p50 {}, p99 {}, max {}\n{}\nmarks     \
         never hit: {}\nshapes    {} situations of two servers with each other\nvirtual   {:.2} \
         hours\nspeed     {}\n",
        totals.runs,
        list(&totals.verdicts),
        happened(&totals.counters),
        at(50),
        at(99),
        at(100),
        checked(totals),
        none_or(&totals.coverage.never()),
        totals.counters.shapes.count(),
        hours(totals.virtual_ns),
        speed(totals)
    )
}

/// The value below which `share` percent of the values are.
fn percentile(values: &[u64], share: usize) -> Option<u64> {
    let mut sorted = values.to_vec();
    sorted.sort_unstable();
    let index = (sorted.len() * share / 100).min(sorted.len().saturating_sub(1));
    sorted.get(index).copied()
}

/// Speed, in figures that are comparable only together.
pub fn stats(totals: &Totals) -> String {
    let cpu = totals.cpu_ns.max(1);
    let per_second = |count: u64| u128::from(count) * 1_000_000_000 / u128::from(cpu);
    // Properties are always in force, so they are not counted as injected.
    let faults = Fault::ALL.iter().filter(|fault| fault.trigger() != Trigger::Always);
    let faults: u64 = faults.map(|fault| totals.counters.faults[*fault as usize]).sum();
    let peak = job::peak_memory().map_or("unknown".to_owned(), |n| (n >> 20).to_string());
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    format!(
        "virtual s per CPU s   {}\nevents per CPU s      {}\nsteps per CPU s       {}\nclient \
         calls \
         per CPU s {}\ncommits per CPU s     {}\nelections per CPU s   {}\nfaults per virtual min \
         {:.1}\nchecks per event      \
         {:.1}\npeak memory, MiB      {peak}\ncores of the machine  {cores}\nmore of \
         speed         sim speed\n",
        totals.virtual_ns / cpu,
        per_second(totals.events),
        per_second(totals.counters.counts.steps),
        per_second(totals.counters.calls_ended()),
        per_second(totals.counters.counts.commits),
        per_second(totals.counters.counts.leaderships),
        ratio(faults * 60, totals.virtual_ns / 1_000_000_000),
        ratio(totals.checks_made(), totals.events),
    )
}

/// The end of the output of a failed run; `text` describes the failure.
pub fn failure(text: &str, report: &Report, flags: &Flags) -> String {
    let hint = match (flags.html.is_some(), flags.shrink) {
        _ if differs(report) => "",
        (false, false) => {
            "To see it drawn, add --html run.html; to see the least that fails like this, add \
             --shrink.\n"
        }
        (false, true) => "To see it drawn, add --html run.html.\n",
        (true, false) => "To see the least that fails like this, add --shrink.\n",
        (true, true) => "",
    };
    let (hash, revision) = (report.outcome.hash, evidence_log::revision());
    let repro = repro(report, flags);
    format!("{text}\ntrace hash {hash:032x}, at revision {revision}\n{hint}{repro}\n")
}

/// Whether the failure is that two runs of the seed differ.
fn differs(report: &Report) -> bool {
    report.outcome.failure.as_ref().is_some_and(|failure| failure.class == Class::Determinism)
}

/// The command that reproduces it. A determinism failure needs the check, which a batch makes for
/// some seeds on its own.
fn repro(report: &Report, flags: &Flags) -> String {
    let twice = differs(report) || flags.check_determinism;
    let flags = Flags { check_determinism: twice, ..flags.clone() };
    flags.repro(&report.job)
}

/// One run as JSON.
pub fn json(report: &Report, flags: &Flags) -> Value {
    let totals = Totals::of(report);
    json!({
        "seed": format!("{:#x}", report.job.seed),
        "forks": fork::path(&report.job.pinned.forks),
        "format": format::current(),
        "revision": evidence_log::revision(),
        "profile": report.options.profile.map(Profile::name),
        "options": report.options.to_string(),
        "settings": object(&schedule::settings(&report.options)),
        "verdict": verdict(report),
        "invariant": report.outcome.failure.as_ref().map(|failure| failure.id),
        "evidence": report.outcome.failure.as_ref().map(|failure| &failure.evidence),
        "repro": repro(report, flags),
        "virtual_ns": report.outcome.ended.0,
        "wall_ns": report.wall_ns,
        "cpu_ns": report.cpu_ns,
        "events": report.outcome.events,
        "peak_memory_bytes": job::peak_memory(),
        "trace_hash": format!("{:032x}", report.outcome.hash),
        "end_digest": report.outcome.end_digest.map(|digest| format!("{digest:016x}")),
        "healed": report.outcome.healed,
        "liveness_ns": report.outcome.liveness.took,
        "liveness_bound_ns": report.outcome.liveness.bound,
        "liveness_leaderships": report.outcome.liveness.leaderships,
        "liveness_notifications": report.outcome.liveness.notifications,
        "epochs": report.outcome.roles.epochs().len(),
        "counts": object(&totals.counters.counts.fields()),
        "faults": object(&faults_injected(&totals.counters)),
        "losses": object(&totals.counters.losses.fields()),
        "calls": calls(&totals.counters),
        "checks": object(&totals.checks),
        "marks": marks_hit(&totals.counters).collect::<BTreeMap<_, _>>(),
    })
}

/// A batch as JSON.
pub fn json_batch(totals: &Totals, failures: &[String]) -> Value {
    let pace = |share| percentile(&totals.paces, share);
    json!({
        "format": format::current(),
        "revision": evidence_log::revision(),
        "runs": totals.runs,
        "verdicts": object(&totals.verdicts),
        "failures": failures,
        "virtual_ns": totals.virtual_ns,
        "cpu_ns": totals.cpu_ns,
        "events": totals.events,
        "virtual_s_per_cpu_s": { "p1": pace(1), "p50": pace(50), "p99": pace(99) },
        "peak_memory_bytes": job::peak_memory(),
        "distinct_end_digests": totals.ends.len(),
        "counts": object(&totals.counters.counts.fields()),
        "faults": object(&faults_injected(&totals.counters)),
        "losses": object(&totals.counters.losses.fields()),
        "calls": calls(&totals.counters),
        "checks": object(&totals.checks),
        "marks": marks_hit(&totals.counters).collect::<BTreeMap<_, _>>(),
        "marks_never_hit": totals.coverage.never(),
        "shapes": totals.counters.shapes.count(),
    })
}

/// Hours of virtual time, for the evidence log.
pub fn hours(ns: u64) -> f64 {
    ratio(ns / 1_000_000, 3_600_000)
}

fn ratio(part: u64, whole: u64) -> f64 {
    // Numbers above 2^32 - 1 saturate.
    let float = |n: u64| f64::from(u32::try_from(n.min(u64::from(u32::MAX))).unwrap_or(u32::MAX));
    float(part) / float(whole.max(1))
}

fn happened(counters: &Counters) -> String {
    format!(
        "happened  {}\nfaults    {}\ncrashes   {}\ncalls     {}\nmarks     {}",
        list(&counters.counts.fields()),
        none_or_list(&faults_injected(counters)),
        none_or_list(
            &counters.losses.fields().into_iter().filter(|(_, n)| *n > 0).collect::<Vec<_>>()
        ),
        calls_text(counters),
        marks_hit(counters).map(|(name, _)| name).collect::<Vec<_>>().join(" ")
    )
}

fn checked(totals: &Totals) -> String {
    format!("checked   {}", list(&totals.checks))
}

/// Speed in one line.
pub fn speed(totals: &Totals) -> String {
    let cpu = totals.cpu_ns.max(1);
    if cpu < MEASURABLE {
        return format!("{} of virtual time, too fast to measure", seconds(totals.virtual_ns));
    }
    format!(
        "{} virtual s in {} CPU s: {} to 1, {} events per CPU s",
        totals.virtual_ns / 1_000_000_000,
        seconds(cpu).trim_end_matches('s'),
        totals.virtual_ns / cpu,
        u128::from(totals.events) * 1_000_000_000 / u128::from(cpu)
    )
}

fn faults_injected(counters: &Counters) -> Vec<(&'static str, u64)> {
    let injected = |fault: &Fault| counters.faults[*fault as usize];
    Fault::ALL.iter().filter(|f| injected(f) > 0).map(|f| (f.name(), injected(f))).collect()
}

fn calls_text(counters: &Counters) -> String {
    let mut text = "(done/refused/unknown/over)".to_owned();
    for op in Op::ALL {
        let [done, refused, unknown, over] = counters.calls[op as usize];
        if done + refused + unknown + over > 0 {
            let _infallible = write!(text, " {} {done}/{refused}/{unknown}/{over}", op.name());
        }
    }
    text
}

fn calls(counters: &Counters) -> Value {
    Value::Object(
        Op::ALL
            .iter()
            .map(|op| (op.name().to_owned(), json!(counters.calls[*op as usize])))
            .collect(),
    )
}

/// Marks that were hit, with the number of steps.
fn marks_hit(counters: &Counters) -> impl Iterator<Item = (String, u64)> {
    let hit = Mark::ALL.into_iter().filter(|mark| counters.has_hit(*mark));
    hit.map(|mark| (format!("{mark:?}"), counters.marks[mark as usize]))
}

fn object(counts: &[(&'static str, u64)]) -> Value {
    Value::Object(counts.iter().map(|(name, n)| ((*name).to_owned(), json!(n))).collect())
}

fn list(counts: &[(&'static str, u64)]) -> String {
    let each = |(name, count): &(&str, u64)| format!("{name} {count}");
    counts.iter().map(each).collect::<Vec<_>>().join(", ")
}

fn none_or_list(counts: &[(&'static str, u64)]) -> String {
    if counts.is_empty() { "none".to_owned() } else { list(counts) }
}

fn none_or(names: &[String]) -> String {
    if names.is_empty() { "none".to_owned() } else { names.join(" ") }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:03}s", ns / 1_000_000_000, ns / 1_000_000 % 1_000)
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use zabkeeper_core::Instant;

    use super::*;
    use crate::check::checker::Failure;
    use crate::record::trace::TraceSink;

    #[test]
    fn repro_of_determinism_failure_runs_the_seed_twice() {
        let flags = Flags::try_parse_from(["sim", "--profile", "calm", "--duration", "1s"]);
        let flags = flags.expect("valid");
        let job = flags.job(7, &flags.pinned().expect("valid"));
        let mut report = job.run(TraceSink::Off, false);
        assert!(repro(&report, &flags).ends_with("--profile calm --duration 1000ms"));
        report.outcome.failure = Some(Failure {
            class: Class::Determinism,
            id: "E5",
            sentence: "one seed, one run",
            evidence: Vec::new(),
            at: Instant(0),
            event: 1,
        });
        let text = failure("", &report, &flags);
        assert!(text.ends_with("--profile calm --duration 1000ms --check-determinism\n"), "{text}");
        assert!(!text.contains("--shrink"), "{text}");
    }
}
