//! The program: from flags to exit code.
//!
//! Owns what is printed where: results on standard output, failures and progress on standard error.

use std::io::{self, Write};

use clap::Parser;
use serde_json::Value;

use crate::batch::{self, say};
use crate::cli::Flags;
use crate::determinism;
use crate::faults::{Fault, Trigger};
use crate::judge::Class;
use crate::ledger;
use crate::options::Pinned;
use crate::report::{self, Totals};

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
    let report = if flags.check_determinism {
        determinism::check(&job)
    } else {
        job.run(flags.story(), false)
    };
    tell(&report::screen(&report));
    let totals = Totals::of(&report);
    if flags.stats {
        tell(&report::stats(&totals));
    }
    if let Err(why) = write_json(flags, vec![report::json(&report, flags)]) {
        return why;
    }
    if let Some(failure) = &report.outcome.failure {
        say(&report::failure(failure, &report, flags));
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
    let written = std::fs::File::create_new(path)
        .or_else(|_| std::fs::OpenOptions::new().write(true).truncate(true).open(path))
        .and_then(|mut file| file.write_all(lines.as_bytes()));
    written.map_err(|error| {
        say(&format!("--json {}: {error}\n", path.display()));
        BAD_USAGE
    })
}

/// Writes to standard output; a closed pipe is no reason to fail.
fn tell(text: &str) {
    let _closed = io::stdout().lock().write_all(text.as_bytes());
}
