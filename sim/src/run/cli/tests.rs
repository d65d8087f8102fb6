//! Tests of flags: which ones conflict, and that a REPRO line parses to the run that printed it.

use std::path::Path;
use std::time::Duration;

use clap::Parser;
use zabkeeper_core::Instant;

use super::values::{parse_duration, parse_instant, parse_profile, parse_range, parse_seed};
use super::{Flags, repro_of};
use crate::workload::{Custom, Judge, Reported, Truth, User, Workload};
use crate::world::options::Pinned;

#[test]
fn repro_line_parses_to_the_same_run() {
    let given = "sim --seed 0x2a --profile disk --faults -disk.full,+net --without Z1,L2 \
        --servers 3 --clients 3 \
                 --duration 90s --at-mark SyncSnap#2@leading=net.split --crash-at QuorumLost \
                 --buggify only=batch,sync.snap --recipe Lock --fork SyncSnap#2/7,9.500s/1";
    let flags = Flags::try_parse_from(given.split_whitespace()).expect("valid");
    let line = flags.repro(&flags.job(42, &flags.pinned().expect("ok")));
    let (_, args) = line.split_once(" -- ").expect("separated");
    let again =
        Flags::try_parse_from(["sim"].into_iter().chain(args.split_whitespace())).expect("valid");
    let job = |flags: &Flags| flags.job(flags.seed.expect("given"), &flags.pinned().expect("ok"));
    assert_eq!(job(&again), job(&flags));
}

/// A workload without programs.
struct Nothing;

impl Workload for Nothing {
    type Report = ();

    fn command(&self) -> &'static str {
        "cargo run -p mine --example nothing"
    }

    fn promise(&self) -> &'static str {
        "nothing happens"
    }

    fn program(&self, _: User<()>) -> impl Future<Output = ()> + Send + 'static {
        std::future::ready(())
    }

    fn judge(&self) -> impl Judge<()> + 'static {
        NoJudge
    }
}

struct NoJudge;

impl Judge<()> for NoJudge {
    fn hear(&mut self, _: &Reported<'_, ()>, _: &Truth<'_>) -> Result<(), String> {
        Ok(())
    }
}

#[test]
fn repro_line_of_a_workload_has_its_command() {
    let line = |args: &str| {
        let flags = Flags::try_parse_from(args.split_whitespace()).expect("valid");
        let custom = Some(Custom::new(Nothing));
        let pinned = Pinned { custom, ..flags.pinned().expect("ok") };
        flags.repro(&flags.job(42, &pinned)).replace("run --release ", "run ")
    };
    let drawn = line("sim --runs 3 --duration 1s");
    let begin = "REPRO: cargo run -p mine --example nothing -- --seed 0x2a --format ";
    assert!(drawn.starts_with(begin) && drawn.ends_with(" --duration 1000ms"), "{drawn}");
    let replayed = line("sim --schedule a.schedule");
    assert_eq!(replayed, "REPRO: cargo run -p mine --example nothing -- --schedule a.schedule");
}

#[test]
fn flags_without_effect_are_refused() {
    let agree = |args: &str| {
        let words = ["sim"].into_iter().chain(args.split_whitespace());
        Flags::try_parse_from(words).map_err(|error| error.to_string())?.agree()
    };
    for args in [
        "--cpu 1s --html x",
        "--runs 1 --expect-hash 0",
        "--runs 2 --trace all",
        "--fork-at 1s --seed 3 --dump d",
        "--fork 1s/2 --runs 2",
        "--fork 1s/2",
        "--schedule f --fork-at 1s",
        "--schedule f --fork 1s/1",
        "--schedule f --buggify off",
        "--schedule f --recipe Lock",
        "--seed 3 --evidence-log",
        "--corpus d --evidence-log",
        "--seed 3 --jobs 2",
        "--seed 3 --fail-fast",
        "--schedule f --max-failures 2",
        "--check-determinism --trace state",
        "--seed 3 --trace-from 3s",
        "--seed 3 --trace-nodes 1",
        "--seed 3 --forks 2",
        "--seed 3 --base-seed 2",
        "--timeout-wall 3s",
        "--seed 3 --shrink-budget 5s",
        "--at-mark off --crash-at SyncSnap",
        "--html x --json x",
        "--corpus d --expect-hash 0",
        "--runs 3 --max-failures 0",
        "--runs 3 --jobs 0",
    ] {
        assert!(agree(args).is_err(), "{args}");
    }
    for args in [
        "--seed 3 --html x --trace state --expect-hash 0 --fork 1s/2",
        "--seed 3 --fork-at 1s --forks 4 --evidence-log",
        "--seed 3 --shrink --jobs 2",
        "--runs 9 --jobs 2 --max-failures 2",
        "--schedule f --break-on C5 --dump d",
        "--schedule f --shrink --shrink-budget 3s",
        "--at-mark off",
        "--seed 3 --trace state --trace-from 3s --trace-nodes 1",
        "",
    ] {
        assert_eq!(agree(args), Ok(()), "{args}");
    }
}

#[test]
fn repro_line_quotes_file_names_for_a_shell() {
    let line = |name: &str| {
        repro_of(Path::new(name), None).split_once("--schedule").map(|(_, rest)| rest.to_owned())
    };
    assert_eq!(line("corpus/a.schedule").as_deref(), Some(" corpus/a.schedule"));
    assert_eq!(line("--seed").as_deref(), Some("=--seed"));
    assert_eq!(line("x;$(id) 'y").as_deref(), Some(r" 'x;$(id) '\''y'"));
}

#[test]
fn numbers_parse_with_units_and_bounds() {
    assert_eq!(parse_seed("0xffffffffffffffff"), Ok(u64::MAX));
    assert!(parse_seed("18446744073709551616").is_err());
    assert_eq!(parse_duration("3m"), Ok(Duration::from_secs(180)));
    assert_eq!(parse_range("5..9"), Ok((5, 9)));
    assert_eq!(parse_instant("4.46736s"), Ok(Instant(4_467_360_000)));
    assert_eq!(parse_instant("300ms"), Ok(Instant(300_000_000)));
    assert!(parse_instant("4.x").is_err() && parse_instant("now").is_err());
    assert!(parse_range("9..9").is_err() && parse_duration("3x").is_err());
    let profiles = "profiles are default, swarm, calm, crashy, disk, net, session, lite, perf \
                    (see docs/simulator.md)";
    assert_eq!(parse_profile("foo"), Err(profiles.to_owned()));
}
