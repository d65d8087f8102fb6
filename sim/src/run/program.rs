//! The program: from flags to exit code.
//!
//! Owns the output channels: results go to standard output, failures and progress to standard
//! error.

use std::io::{self, Read};
use std::num::NonZero;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use serde_json::Value;
use zabkeeper_core::io::Mark;

use crate::check::checker::{Class, Failure};
use crate::clients::workload::Op;
use crate::engine::decisions::Step;
use crate::faults::buggify::Site;
use crate::faults::catalog::{Fault, Trigger};
use crate::mutate;
use crate::record::coverage::Coverage;
use crate::record::html;
use crate::record::output::{self, may_write, print, print_error, write_file};
use crate::record::summary;
use crate::record::timeline::Timeline;
use crate::record::trace::TraceSink;
use crate::replay::schedule::Schedule;
use crate::replay::shrink;
use crate::run::batch::{self, Batch};
use crate::run::cli::{self, Command, Flags};
use crate::run::determinism;
use crate::run::evidence_log;
use crate::run::format;
use crate::run::job::{self, Job, Report};
use crate::run::report::{self, Totals};
use crate::run::speed;
use crate::workload::{Custom, Workload};
use crate::world::options::Pinned;
use crate::world::stop::{Break, Stop};

const BAD_USAGE: u8 = 2;
const INCONCLUSIVE: u8 = 7;
/// Maximum size of a schedule, bytes. That of a swarm run has about a hundred thousand.
const SCHEDULE_MAX: u64 = 256 << 20;

/// Runs the command line. Returns the exit code.
pub fn main() -> u8 {
    code_of(None)
}

/// The `main` of a program that runs a user's workload: it has the simulator's command line, but
/// for `mutate`, `speed`, `--evidence-log` and `--recipe`, and its exit codes (`--help` has both).
pub fn main_with(workload: impl Workload) -> ExitCode {
    ExitCode::from(code_of(Some(Custom::new(workload))))
}

fn code_of(custom: Option<Custom>) -> u8 {
    match asked(custom) {
        0 if output::is_lost() => BAD_USAGE,
        code => code,
    }
}

fn asked(custom: Option<Custom>) -> u8 {
    let flags = Flags::parse();
    if let (Some(what), Some(custom)) = (flags.not_of_a_workload(), &custom) {
        print_error(&format!(
            "{what} is not for `{}`, but for `cargo run -p sim`\n",
            custom.command()
        ));
        return BAD_USAGE;
    }
    match &flags.command {
        Some(Command::Mutate(flags)) => return mutate::main(flags),
        Some(Command::Speed(flags)) => return speed::main(flags),
        None => {}
    }
    if flags.faults == "list" {
        return list_faults();
    }
    if flags.buggify == "list" {
        return list_sites();
    }
    if flags.ops == "list" {
        return list_ops();
    }
    if flags.at_mark.iter().any(|text| text == "list") {
        return list_marks();
    }
    if let Some(Err(why)) = flags.format.as_deref().map(format::check) {
        print_error(&format!("{why}\n"));
        return BAD_USAGE;
    }
    let checked = flags.agree().and_then(|()| may_write_all(&flags)).and_then(|()| flags.pinned());
    let pinned = match checked {
        Ok(pinned) => Pinned { custom, ..pinned },
        Err(why) => {
            print_error(&format!("{why}\n"));
            return BAD_USAGE;
        }
    };
    if let Some(folder) = &flags.corpus {
        return corpus(&flags, &pinned, folder).unwrap_or_else(|code| code);
    }
    if flags.is_batch() {
        return many(&flags, &pinned);
    }
    one(&flags, &pinned).unwrap_or_else(|code| code)
}

fn one(flags: &Flags, pinned: &Pinned) -> Result<u8, u8> {
    let source = Source::of(flags, pinned)?;
    let (mut report, schedule) = source.run(flags);
    print(&summary::screen(&report));
    if flags.counts {
        print(&summary::wrapped(&format!("\n{}", report::counts(&report))));
    }
    if flags.stats {
        print(&report::stats(&Totals::of(&report)));
    }
    // Results are printed even if a file cannot be written.
    let json = write_json(flags, vec![report::json(&report, flags)]);
    let mut written = json.and(write_coverage(flags, &Totals::of(&report)));
    if let (Some(path), Some(schedule), false) = (&flags.save_schedule, &schedule, flags.shrink) {
        written = written.and(write_schedule(path, schedule));
    }
    let shrinks = flags.shrink && report.outcome.failure.is_some();
    let timeline = if shrinks { None } else { source.timeline(&mut report, flags) };
    if let Some(timeline) = &timeline {
        let seed = format!("seed {:#x}", report.job.seed);
        let name = flags.schedule.as_ref().map_or(seed, |path| schedule_name(path));
        let repro = flags.repro(&report.job);
        written = written.and(write_pictures(flags, &source, (&report, timeline), (&name, &repro)));
    }
    if let Some(failure) = &report.outcome.failure {
        explain(failure, &report, timeline.as_deref(), flags);
        if let Some(schedule) = schedule.filter(|_| shrinks) {
            let drawn = matches!(source, Source::Seed(_)).then_some(&report.job);
            shrink_it(flags, &schedule, drawn, failure.id)?;
        }
        return Ok(failure.class.exit_code());
    }
    if flags.shrink {
        print_error("--shrink: the run has not failed, so there is nothing to shrink\n");
    }
    written?;
    if let (Some(why), Some(timeline)) = (&report.outcome.stopped, &timeline) {
        print(&format!("\n{}", summary::stopped(why, &report, timeline)));
    } else if let Some(wanted) = flags.break_on {
        let never = match wanted {
            Break::Mark(..) => "no server has reached it",
            Break::Promise(_) => "the run has not broken it",
        };
        print_error(&format!("\n--break-on {wanted}: {never}\n"));
    }
    // A promise that holds is a verdict; a mark that was not hit is none.
    let in_vain =
        matches!(flags.break_on, Some(Break::Mark(..))) && report.outcome.stopped.is_none();
    if let Some(expected) = flags.expect_hash
        && expected != report.outcome.hash
    {
        let (got, repro) = (report.outcome.hash, flags.repro(&report.job));
        print_error(&format!("the trace hash is {got:032x}, not {expected:032x}\n{repro}\n"));
        return Ok(Class::Determinism.exit_code());
    }
    if flags.check_determinism {
        print(&format!("{:<10}a second run was the same, event by event\n", "again"));
    }
    say_drifted(&report);
    if let (Source::Schedule(_), Some(schedule)) = (&source, &schedule) {
        say_idle(schedule);
    }
    let is_open = in_vain || report::is_open(report::verdict(&report));
    Ok(if is_open { INCONCLUSIVE } else { 0 })
}

fn say_drifted(report: &Report) {
    for why in report::drifted(report) {
        print_error(&format!("{why}\n"));
    }
}

/// Names the faults of a schedule that had no target.
fn say_idle(schedule: &Schedule) {
    /// Maximum number of faults named.
    const NAMED: usize = 5;
    let idle: Vec<&Step> =
        schedule.steps.iter().filter(|step| !step.hit && step.act.fault().is_some()).collect();
    for step in idle.iter().take(NAMED) {
        let line = step.line();
        print_error(&format!(
            "{line} has hit nobody: what it would hit was not there, or its choices name nobody \
             (missing ones are 0)\n"
        ));
    }
    if idle.len() > NAMED {
        print_error(&format!("{} more faults had no target\n", idle.len() - NAMED));
    }
}

/// Prints a failure with the command that reproduces it. If the run is shrunk afterwards, only the
/// shrunk run gets the full explanation.
fn explain(failure: &Failure, report: &Report, timeline: Option<&Timeline>, flags: &Flags) {
    let text = if flags.shrink {
        summary::verdict(failure)
    } else {
        explanation(failure, report, timeline)
    };
    print_error(&format!("\n{}", report::failure(&text, report, flags)));
}

/// The evidence of a failure, and the events before it. After a panic in the simulator there are no
/// events.
fn explanation(failure: &Failure, report: &Report, timeline: Option<&Timeline>) -> String {
    match timeline {
        Some(timeline) => summary::explain(failure, report, timeline),
        None => failure.to_string(),
    }
}

/// The source of a single run, from which it can be repeated exactly.
enum Source {
    Seed(Box<Job>),
    Schedule(Box<Schedule>),
}

impl Source {
    fn of(flags: &Flags, pinned: &Pinned) -> Result<Source, u8> {
        let Some(path) = &flags.schedule else {
            let job = flags.job(flags.seed.unwrap_or(flags.base_seed), pinned);
            return Ok(Source::Seed(Box::new(job)));
        };
        let mut schedule = read_schedule(path).map_err(|why| {
            print_error(&format!("--schedule {}: {why}\n", path.display()));
            BAD_USAGE
        })?;
        schedule.options.without.clone_from(&pinned.without);
        schedule.options.custom.clone_from(&pinned.custom);
        Ok(Source::Schedule(Box::new(schedule)))
    }

    /// Runs as the flags demand; also returns the schedule if it is needed.
    fn run(&self, flags: &Flags) -> (Report, Option<Schedule>) {
        let mut sink = flags.sink();
        let stop = flags.stop();
        if sink == TraceSink::Off && (draws(flags) || stop != Stop::default()) {
            sink = TraceSink::Collect;
        }
        if stop != Stop::default() {
            return (self.run_to(stop, sink), None);
        }
        match self {
            Source::Seed(job) if flags.check_determinism => (determinism::check(job), None),
            Source::Seed(job) if flags.save_schedule.is_some() || flags.shrink => {
                let (report, schedule) = job.record(sink);
                (report, Some(schedule))
            }
            Source::Seed(job) => (job.run(sink, false), None),
            Source::Schedule(schedule) => {
                let report = job::replay(schedule, sink, false);
                let found = schedule.with_outcome(&report.outcome);
                (report, Some(found))
            }
        }
    }

    /// The collected events if they are needed; if the run did not collect them, it is repeated.
    fn timeline(&self, report: &mut Report, flags: &Flags) -> Option<Box<Timeline>> {
        if let Some(collected) = report.outcome.timeline.take() {
            return Some(collected);
        }
        let failed = report.outcome.failure.as_ref();
        let explained = failed.is_some_and(|failure| failure.class != Class::Determinism);
        if !explained && report.outcome.stopped.is_none() && !draws(flags) {
            return None;
        }
        self.run_to(flags.stop(), TraceSink::Collect).outcome.timeline
    }

    fn run_to(&self, stop: Stop, sink: TraceSink) -> Report {
        match self {
            Source::Seed(job) => job.run_to(stop, sink),
            Source::Schedule(schedule) => job::replay_to(schedule, stop, sink),
        }
    }
}

/// Whether a page or a dump is requested.
fn draws(flags: &Flags) -> bool {
    flags.html.is_some() || flags.dump.is_some()
}

/// Shrinks the run, writes and prints the result; a page or a dump then shows the shrunk run.
fn shrink_it(flags: &Flags, schedule: &Schedule, drawn: Option<&Job>, id: &str) -> Result<(), u8> {
    let cores = || std::thread::available_parallelism().map_or(1, NonZero::get);
    let jobs = flags.jobs.unwrap_or_else(cores);
    let mut shrunk = shrink::shrink(schedule, drawn, flags.shrink_budget, jobs).map_err(|why| {
        print_error(&format!("--shrink: {why}\n"));
        Class::Simulator.exit_code()
    })?;
    let usual = || PathBuf::from(format!("shrunk-{id}-{:#x}.schedule", schedule.seed));
    let path = flags.save_schedule.clone().unwrap_or_else(usual);
    print(&summary::shrunk(&shrunk));
    // A file that cannot be written is reported, but does not determine the exit code.
    let mut written = write_schedule(&path, &shrunk.schedule);
    let repro = cli::repro_of(&path, schedule.options.custom.as_ref());
    let report = &mut shrunk.report;
    let hash = report.outcome.hash;
    let timeline = report.outcome.timeline.take();
    if let Some(failure) = &report.outcome.failure {
        print(&format!("\n{}\n", explanation(failure, report, timeline.as_deref())));
    }
    if let Some(timeline) = timeline {
        let name = schedule_name(&path);
        let source = Source::Schedule(Box::new(shrunk.schedule));
        written = written.and(write_pictures(flags, &source, (report, &timeline), (&name, &repro)));
    }
    if written.is_ok() {
        print_error(&format!("trace hash {hash:032x}, of the shrunken schedule\n{repro}\n"));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the user's file; the rule is for simulated worlds")]
fn read_schedule(path: &Path) -> Result<Schedule, String> {
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| error.to_string())?;
    file.take(SCHEDULE_MAX).read_to_string(&mut text).map_err(|error| error.to_string())?;
    if text.len() as u64 == SCHEDULE_MAX {
        return Err(format!("it is longer than {SCHEDULE_MAX} bytes"));
    }
    text.parse()
}

fn write_schedule(path: &Path, schedule: &Schedule) -> Result<(), u8> {
    write_file(path, &schedule.to_string()).map_err(|error| {
        print_error(&format!("{}: {error}\n", path.display()));
        BAD_USAGE
    })
}

fn schedule_name(path: &Path) -> String {
    format!("schedule {}", path.display())
}

/// `called`: the run's title, and the command that reproduces it.
fn write_pictures(
    flags: &Flags,
    source: &Source,
    (report, timeline): (&Report, &Timeline),
    called: (&str, &str),
) -> Result<(), u8> {
    let failed = |flag: &str, path: &Path, error: io::Error| {
        print_error(&format!("--{flag} {}: {error}\n", path.display()));
        BAD_USAGE
    };
    if let Some(path) = &flags.html {
        let page = html::page(report, timeline, called);
        write_file(path, &page).map_err(|error| failed("html", path, error))?;
    }
    if let Some(path) = &flags.dump {
        let ended = report.outcome.ended;
        let at = flags.at.map_or(ended, |at| at.min(ended));
        let stop = Stop { until: Some(at), ..flags.stop() };
        let held = source.run_to(stop, TraceSink::Collect).outcome.held;
        summary::dump(path, at, report, (timeline, &held))
            .map_err(|error| failed("dump", path, error))?;
    }
    Ok(())
}

fn many(flags: &Flags, pinned: &Pinned) -> u8 {
    let mut batch = batch::run(flags, pinned);
    print(&summary::wrapped(&report::batch(&batch.totals)));
    if flags.stats {
        print(&report::stats(&batch.totals));
    }
    let mut objects = std::mem::take(&mut batch.json);
    objects.push(report::json_batch(&batch.totals, &batch.failures));
    // Failures are printed even if a file cannot be written.
    let json = write_json(flags, objects);
    let written =
        json.and(write_coverage(flags, &batch.totals)).and(write_evidence_log(flags, &batch));
    let runs = batch.totals.runs;
    if batch.timed_out {
        print_error(&format!("given up after {runs} runs, as --timeout-wall says\n"));
    } else if runs == 0 {
        print_error("no run was made: there was no time, or no seed, for one\n");
    }
    for text in &batch.failures {
        print_error(&format!("{text}\n"));
    }
    match (exit_code(&batch.classes, &batch.totals), written) {
        (0, Err(code)) => code,
        (0, Ok(())) if batch.interrupted => batch::INTERRUPTED,
        (0, Ok(())) if batch.timed_out || runs == 0 => INCONCLUSIVE,
        (code, _) => code,
    }
}

/// Runs the schedules of a folder, and prints the result of each.
fn corpus(flags: &Flags, pinned: &Pinned, folder: &Path) -> Result<u8, u8> {
    let usage = |why: String| {
        print_error(&format!("--corpus {}: {why}\n", folder.display()));
        BAD_USAGE
    };
    let found = std::fs::read_dir(folder).and_then(Iterator::collect::<io::Result<Vec<_>>>);
    let found = found.map_err(|error| usage(error.to_string()))?;
    let mut paths: Vec<PathBuf> = found.into_iter().map(|entry| entry.path()).collect();
    paths.retain(|path| path.extension().is_some_and(|end| end == "schedule"));
    paths.sort();
    if paths.is_empty() {
        return Err(usage("no file in it is called NAME.schedule".to_owned()));
    }
    let (mut totals, mut classes, mut all_read) = (Totals::default(), Vec::new(), Ok(0));
    for path in paths {
        let one = Flags { schedule: Some(path.clone()), ..flags.clone() };
        let source = match Source::of(&one, pinned) {
            Ok(source) => source,
            Err(code) => {
                all_read = Err(code);
                continue;
            }
        };
        let (mut report, _) = source.run(&one);
        totals.add(&report);
        print(&format!("{:<28} {}\n", report::verdict(&report), path.display()));
        say_drifted(&report);
        let timeline = source.timeline(&mut report, &one);
        if let Some(failure) = &report.outcome.failure {
            explain(failure, &report, timeline.as_deref(), &one);
            classes.push(failure.class);
            if let Source::Schedule(schedule) = &source
                && let Some(mended) = &schedule.mended
                && schedule.violates.as_deref() == Some(failure.id)
            {
                print_error(&format!("It has passed since {mended}, and fails again.\n"));
            }
        }
    }
    print(&summary::wrapped(&report::batch(&totals)));
    match exit_code(&classes, &totals) {
        0 => all_read,
        code => Ok(code),
    }
}

/// If there are several classes of failures, the one that makes the other results least trustworthy
/// comes first.
fn exit_code(classes: &[Class], totals: &Totals) -> u8 {
    let order =
        [Class::Simulator, Class::Determinism, Class::Panic, Class::Safety, Class::Liveness];
    if let Some(class) = order.into_iter().find(|class| classes.contains(class)) {
        return class.exit_code();
    }
    let open = totals.verdicts.iter().any(|(verdict, _)| report::is_open(verdict));
    if open { INCONCLUSIVE } else { 0 }
}

fn list_faults() -> u8 {
    for fault in Fault::ALL {
        let often = match fault.trigger() {
            Trigger::Every(ms) => format!("every {}s", ms / 1_000),
            Trigger::Always => "property".to_owned(),
        };
        print(&format!("{fault:<24} {often:<10} {}\n", fault.sentence()));
    }
    let cuts = Fault::PARTITIONS.map(Fault::name).join(", ");
    print(&format!("\nGroups: what stands before a dot; and {} for {cuts}.\n", Fault::PARTITION));
    0
}

fn list_ops() -> u8 {
    for op in Op::ALL {
        print(&format!("{}\n", op.name()));
    }
    0
}

fn list_sites() -> u8 {
    for site in Site::ALL {
        print(&format!("{:<18} {}\n", site.name(), site.sentence()));
    }
    0
}

fn list_marks() -> u8 {
    for mark in Mark::ALL {
        print(&format!("{:<24} {}\n", format!("{mark:?}"), mark.sentence()));
    }
    0
}

fn write_json(flags: &Flags, objects: Vec<Value>) -> Result<(), u8> {
    let Some(path) = &flags.json else {
        return Ok(());
    };
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    write_file(path, &lines).map_err(|error| {
        print_error(&format!("--json {}: {error}\n", path.display()));
        BAD_USAGE
    })
}

fn write_coverage(flags: &Flags, totals: &Totals) -> Result<(), u8> {
    let Some(path) = &flags.coverage else {
        return Ok(());
    };
    let mut coverage = totals.coverage.clone();
    merge_coverage(path, &mut coverage)
        .and_then(|()| write_file(path, &coverage.table()).map_err(|error| error.to_string()))
        .map_err(|why| {
            print_error(&format!("--coverage {}: {why}\n", path.display()));
            BAD_USAGE
        })
}

fn write_evidence_log(flags: &Flags, batch: &Batch) -> Result<(), u8> {
    if !flags.evidence_log || batch.totals.runs == 0 {
        return Ok(());
    }
    evidence_log::append(batch, flags).map_err(|error| {
        print_error(&format!("sim/evidence.jsonl: {error}\n"));
        BAD_USAGE
    })
}

/// Adds the table of earlier batches.
fn merge_coverage(path: &Path, coverage: &mut Coverage) -> Result<(), String> {
    // Devices have no earlier table, and some of them never end.
    if std::fs::metadata(path).is_ok_and(|found| !found.is_file()) {
        return Ok(());
    }
    match std::fs::read_to_string(path) {
        Ok(text) => coverage.merge(&text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks before a long batch that the requested files can be written afterwards, as far as
/// possible.
fn may_write_all(flags: &Flags) -> Result<(), String> {
    let Flags { html, json, coverage, save_schedule, .. } = flags;
    let files =
        [("html", html), ("json", json), ("coverage", coverage), ("save-schedule", save_schedule)];
    files.into_iter().try_for_each(|(flag, path)| may_write(flag, path.as_ref()))?;
    coverage.as_ref().map_or(Ok(()), |path| {
        let readable = merge_coverage(path, &mut Coverage::default());
        readable.map_err(|why| format!("--coverage {}: {why}", path.display()))
    })
}
