//! The program: from flags to exit code.
//!
//! Owns what is printed where: results on standard output, failures and progress on standard error.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use clap::Parser;
use serde_json::Value;

use crate::batch::{self, say};
use crate::cli::{self, Flags};
use crate::determinism;
use crate::faults::{Fault, Trigger};
use crate::judge::Class;
use crate::ledger;
use crate::options::Pinned;
use crate::report::{self, Totals};
use crate::run;
use crate::schedule::Schedule;
use crate::shrink;

const BAD_USAGE: u8 = 2;
const INCONCLUSIVE: u8 = 7;

/// Runs what the command line asks for; gives the exit code.
pub fn main() -> u8 {
    let flags = Flags::parse();
    if flags.faults == "list" {
        return list_faults();
    }
    let pinned = match flags.pinned() {
        Ok(pinned) => pinned,
        Err(why) => {
            say(&format!("--faults: {why}\n"));
            return BAD_USAGE;
        }
    };
    if flags.is_batch() { many(&flags, &pinned) } else { one(&flags, &pinned) }
}

fn one(flags: &Flags, pinned: &Pinned) -> u8 {
    let seed = flags.seed.unwrap_or(flags.base_seed);
    let job = flags.job(seed, pinned);
    let (report, schedule) = if flags.check_determinism {
        (determinism::check(&job), None)
    } else if let Some(path) = &flags.schedule {
        match read_schedule(path) {
            Ok(schedule) => (run::replay(&schedule, flags.story(), false), Some(schedule)),
            Err(why) => {
                say(&format!("--schedule {}: {why}\n", path.display()));
                return BAD_USAGE;
            }
        }
    } else if flags.save_schedule.is_some() || flags.shrink {
        let (report, schedule) = job.record(flags.story());
        (report, Some(schedule))
    } else {
        (job.run(flags.story(), false), None)
    };
    tell(&report::screen(&report));
    let totals = Totals::of(&report);
    if flags.stats {
        tell(&report::stats(&totals));
    }
    if let Err(why) = write_json(flags, vec![report::json(&report, flags)]) {
        return why;
    }
    if let (Some(path), Some(schedule), false) = (&flags.save_schedule, &schedule, flags.shrink)
        && let Err(why) = write_schedule(path, schedule)
    {
        return why;
    }
    if let Some(failure) = &report.outcome.failure {
        say(&report::failure(failure, &report, flags));
        if let Some(schedule) = schedule.filter(|_| flags.shrink)
            && let Err(why) = shrink_it(flags, &schedule, failure.id)
        {
            return why;
        }
        return failure.class.exit_code();
    }
    if let Some(expected) = flags.expect_hash
        && expected != report.outcome.hash
    {
        let got = report.outcome.hash;
        say(&format!("the trace hash is {got:032x}, not {expected:032x}\n{}\n", flags.repro(seed)));
        return Class::Determinism.exit_code();
    }
    if report.outcome.inconclusive { INCONCLUSIVE } else { 0 }
}

/// Looks for less, writes it to a file, and says what it is.
fn shrink_it(flags: &Flags, schedule: &Schedule, id: &str) -> Result<(), u8> {
    let shrunk = shrink::shrink(schedule, flags.shrink_budget, flags.jobs).map_err(|why| {
        say(&format!("--shrink: {why}\n"));
        Class::Simulator.exit_code()
    })?;
    let usual = || PathBuf::from(format!("shrunk-{id}-{:#x}.schedule", schedule.seed));
    let path = flags.save_schedule.clone().unwrap_or_else(usual);
    write_schedule(&path, &shrunk.schedule)?;
    tell(&report::shrunk(&shrunk));
    say(&format!("{}\n", cli::repro_of(&path)));
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "the user's file; the rule is for simulated worlds")]
fn read_schedule(path: &Path) -> Result<Schedule, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())?.parse()
}

fn write_schedule(path: &Path, schedule: &Schedule) -> Result<(), u8> {
    write_file(path, &schedule.to_string()).map_err(|error| {
        say(&format!("{}: {error}\n", path.display()));
        BAD_USAGE
    })
}

fn write_file(path: &Path, text: &str) -> io::Result<()> {
    std::fs::File::create_new(path)
        .or_else(|_| std::fs::OpenOptions::new().write(true).truncate(true).open(path))
        .and_then(|mut file| file.write_all(text.as_bytes()))
}

fn many(flags: &Flags, pinned: &Pinned) -> u8 {
    let mut batch = batch::run(flags, pinned);
    tell(&report::batch(&batch.totals));
    if flags.stats {
        tell(&report::stats(&batch.totals));
    }
    let mut objects = std::mem::take(&mut batch.json);
    objects.push(report::json_batch(&batch.totals, &batch.failures));
    if let Err(why) = write_json(flags, objects) {
        return why;
    }
    if flags.ledger
        && let Err(error) = ledger::append(&batch, flags)
    {
        say(&format!("sim/evidence.jsonl: {error}\n"));
        return BAD_USAGE;
    }
    for text in &batch.failures {
        say(&format!("{text}\n"));
    }
    exit_code(&batch.classes, &batch.totals)
}

/// With several kinds of failures, the gravest for the trust in all others comes first.
fn exit_code(classes: &[Class], totals: &Totals) -> u8 {
    let order =
        [Class::Simulator, Class::Determinism, Class::Panic, Class::Safety, Class::Liveness];
    if let Some(class) = order.into_iter().find(|class| classes.contains(class)) {
        return class.exit_code();
    }
    let inconclusive = totals.verdicts.iter().any(|(name, _)| *name == "inconclusive");
    if inconclusive { INCONCLUSIVE } else { 0 }
}

fn list_faults() -> u8 {
    for fault in Fault::ALL {
        let often = match fault.trigger() {
            Trigger::Every(ms) => format!("every {}s", ms / 1_000),
            Trigger::Always => "property".to_owned(),
        };
        tell(&format!("{fault:<24} {often:<10} {}\n", fault.sentence()));
    }
    0
}

fn write_json(flags: &Flags, objects: Vec<Value>) -> Result<(), u8> {
    let Some(path) = &flags.json else {
        return Ok(());
    };
    let lines: String = objects.iter().map(|object| format!("{object}\n")).collect();
    write_file(path, &lines).map_err(|error| {
        say(&format!("--json {}: {error}\n", path.display()));
        BAD_USAGE
    })
}

/// Writes to standard output; a closed pipe is no reason to fail.
fn tell(text: &str) {
    let _closed = io::stdout().lock().write_all(text.as_bytes());
}
