//! Recording a run and replaying its schedule gives the same run.

use std::path::PathBuf;

use sim::record::trace::TraceSink;
use sim::replay::schedule::Schedule;
use sim::run::job;
use sim::world::options::Profile;

use crate::program::{sim, text};
use crate::{assert_passed, job};

#[test]
fn replay_has_the_hash_of_its_recorded_run() {
    for profile in Profile::ALL {
        // Perf runs have as many calls per second as others per minute or more.
        let (seeds, seconds) = if profile == Profile::Perf { (2, 1) } else { (6, 15) };
        for seed in 1..=seeds {
            let job = job(seed, profile, "", seconds);
            let (report, schedule) = job.record(TraceSink::Off);
            assert_passed(&report);
            assert_eq!(report.outcome.hash, job.run(TraceSink::Off, false).outcome.hash);
            let read: Schedule = schedule.to_string().parse().expect("it was written");
            let replayed = job::replay(&read, TraceSink::Off, false);
            assert_passed(&replayed);
            assert_eq!(replayed.outcome.hash, report.outcome.hash, "{profile} {seed}");
        }
    }
}

fn scratch(name: &str) -> (PathBuf, String) {
    let path = std::env::temp_dir().join(format!("sim-{}-{name}", std::process::id()));
    let text = path.to_string_lossy().into_owned();
    (path, text)
}

#[test]
fn program_saves_runs_and_shrinks_schedules() {
    let ((path, file), (less_path, less)) = (scratch("run.schedule"), scratch("less.schedule"));
    let given = ["--seed", "5", "--duration", "20s", "--faults", "+net.stall"];
    let hash_of = |args: &[&str]| {
        let output = sim(args);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let screen = text(&output.stdout);
        screen.lines().find(|line| line.starts_with("trace")).map(str::to_owned).expect("a hash")
    };
    let recorded = hash_of(&[&given[..], &["--save-schedule", &file]].concat());
    assert_eq!(hash_of(&["--schedule", &file]), recorded);

    let schedule = std::fs::read_to_string(&path).expect("written");
    let trips = schedule.replacen("\n", "\ntrips net.stall\n", 1);
    std::fs::remove_file(&path).expect("there");
    std::fs::File::create_new(&path).expect("free");
    std::fs::OpenOptions::new()
        .write(true)
        .open(&path)
        .and_then(|mut file| std::io::Write::write_all(&mut file, trips.as_bytes()))
        .expect("written");
    let args =
        ["--schedule", &file, "--shrink", "--shrink-budget", "150runs", "--save-schedule", &less];
    let output = sim(&args);
    assert_eq!(output.status.code(), Some(1));
    let last = text(&output.stderr).lines().last().map(str::to_owned).expect("a line");
    assert!(last.starts_with("REPRO: cargo run") && last.contains(&less), "{last}");
    assert!(text(&output.stderr).contains(", of the shrunken schedule\nREPRO: "), "{last}");
    let screen = text(&output.stdout);
    let (_, less_told) = screen.split_once("\nshrunk ").expect("it says what is left");
    assert!(
        less_told.contains("to 1 and 0, in ") && less_told.contains("TRIP, safety"),
        "{screen}"
    );
    let again = sim(&["--schedule", &less]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("TRIP, safety"));
    std::fs::remove_file(&path).expect("there");
    std::fs::remove_file(&less_path).expect("there");
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a schedule is a file; the rule is for simulated worlds"
)]
fn schedule_that_misses_its_mark_has_drifted() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let calm = std::fs::read_to_string(format!("{folder}/boot.schedule")).expect("readable");
    let (path, file) = scratch("drifted.schedule");
    std::fs::write(&path, format!("{calm}reaches ElectionWon\nreaches SyncSnap\n")).expect("room");
    let output = sim(&["--schedule", &file]);
    std::fs::remove_file(&path).expect("there");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("does not reach SyncSnap"), "{}", text(&output.stderr));
    assert!(!text(&output.stderr).contains("ElectionWon"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("drifted"), "{}", text(&output.stdout));
}

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "a schedule is a file; the rule is for simulated worlds"
)]
fn file_error_does_not_hide_a_failure() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scenarios");
    let fails = std::fs::read_to_string(format!("{folder}/failover.schedule")).expect("readable");
    let origin = "violates TRIP\nfound 3c9b35f\nmended a1f62b7\ntrips node.kill-leader";
    let fails = fails.replacen('\n', &format!("\n{origin}\n"), 1);
    let (path, corpus) = scratch("corpus");
    std::fs::create_dir_all(&path).expect("room");
    for (name, text) in [("a", "nonsense"), ("b", &fails), ("c", "zabkeeper schedule 1\n")] {
        std::fs::write(path.join(format!("{name}.schedule")), text).expect("room");
    }
    let all = sim(&["--corpus", &corpus]);
    let one = format!("{corpus}/b.schedule");
    let unwritten = sim(&["--schedule", &one, "--json", "/dev/full"]);
    let nowhere = sim(&["--schedule", &one, "--html", &corpus]);
    std::fs::remove_dir_all(&path).expect("there");

    assert_eq!(all.status.code(), Some(1), "{}", text(&all.stderr));
    assert!(text(&all.stderr).contains("a.schedule: a schedule begins"), "{}", text(&all.stderr));
    assert!(text(&all.stdout).contains("runs      2 "), "{}", text(&all.stdout));
    assert!(text(&all.stderr).contains("passed since a1f62b7, and"), "{}", text(&all.stderr));
    let printed = text(&unwritten.stderr);
    assert_eq!(unwritten.status.code(), Some(1), "{printed}");
    assert!(printed.contains("--json /dev/full: ") && printed.contains("REPRO: "), "{printed}");
    assert_eq!(nowhere.status.code(), Some(2));
    assert!(text(&nowhere.stdout).is_empty(), "nothing is run for what cannot be written");
}

/// Shrunk schedules of mutants and of failures found by seeds: each violated its promise with
/// the bug, and must pass without it.
#[test]
fn corpus_schedules_pass() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let mutants = std::path::Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/mutants"));
    let mut replayed = 0;
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("readable").path();
        let text = std::fs::read_to_string(&path).expect("readable");
        let schedule: Schedule =
            text.parse().unwrap_or_else(|why| panic!("{}: {why}", path.display()));
        let mutant = text.split_whitespace().find(|word| word.ends_with(".patch:"));
        let is_mutant =
            mutant.is_some_and(|name| mutants.join(name.trim_end_matches(':')).exists());
        let is_synced_with = schedule.found.is_some() && schedule.mended.is_some();
        assert!(schedule.violates.is_some() && is_mutant != is_synced_with, "{}", path.display());
        let options = &schedule.options;
        let happens = !schedule.steps.is_empty()
            || options.gone_one_in > 0
            || options.first_voters().is_some();
        assert!(happens, "{}: clients neither call nor vanish, and nobody joins", path.display());
        let report = job::replay(&schedule, TraceSink::Off, false);
        assert_passed(&report);
        let drifted = schedule.reaches.is_empty() || !report.missed.is_empty();
        assert!(!drifted, "{} does not reach {:?}", path.display(), report.missed);
        replayed += 1;
    }
    assert!(replayed > 1);
}
