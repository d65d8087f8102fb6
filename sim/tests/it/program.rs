//! The program and its command line.

use std::io::Read;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

pub(crate) fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn passing_run_prints_its_report_and_exits_with_0() {
    let output = sim(&["--seed", "0x7", "--duration", "5s"]);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in ["seed      0x7", "faults", "checked", "trace", "verdict   passed"] {
        assert!(screen.contains(part), "{part} is missing in\n{screen}");
    }
}

#[test]
fn failed_write_to_stdout_is_an_error() {
    let full = std::fs::File::options().write(true).open("/dev/full").expect("Linux has it");
    let mut run = Command::new(env!("CARGO_BIN_EXE_sim"));
    let run = run.args(["--seed", "7", "--duration", "1s"]).stdout(full).output().expect("it runs");
    assert_eq!(run.status.code(), Some(2), "{}", text(&run.stderr));
    assert!(text(&run.stderr).contains("standard output: "), "{}", text(&run.stderr));
}

#[test]
fn unexpected_hash_is_a_failure_with_a_repro_line() {
    let output = sim(&["--seed", "7", "--duration", "1s", "--expect-hash", "0"]);
    assert_eq!(output.status.code(), Some(5));
    let last = text(&output.stderr).lines().last().map(str::to_owned).expect("a line");
    assert!(last.starts_with("REPRO: cargo run"), "{last}");
    let format = sim::run::format::current();
    let flags = format!("-p sim -- --seed 0x7 --format {format} --duration 1000ms");
    assert!(last.ends_with(&flags), "{last}");
}

#[test]
fn seed_of_another_format_is_not_run() {
    let output = sim(&["--seed", "7", "--format", "00000000"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--format 00000000"));
    assert!(output.stdout.is_empty());
}

#[test]
fn results_do_not_depend_on_jobs() {
    let batch = |profile, jobs| {
        let length = ["--seeds", "1..30", "--duration", "1s", "--servers", "3"];
        let output = sim(&[&length[..], &["--profile", profile, "--jobs", jobs]].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let screen = text(&output.stdout);
        screen.lines().filter(|line| !line.starts_with("speed")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(batch("default", "1"), batch("default", "2"));
    // Of the 38 runs nine are forks, chosen from the results of the others.
    let swarm = batch("swarm", "1");
    assert!(swarm.contains("runs      38 "), "{swarm}");
    assert_eq!(swarm, batch("swarm", "3"));
}

#[test]
fn operations_and_seeds_are_chosen_by_name() {
    let args =
        ["--seed", "9e5300e1", "--duration", "1s", "--ops", "only=create,+getData", "--counts"];
    let output = sim(&args);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(screen.starts_with("seed      0x9e5300e1:"), "{screen}");
    assert!(screen.contains("create:12 getData:14\n"), "{screen}");
    let output = sim(&["--ops", "only=sync,-sync"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("nothing is left"), "{}", text(&output.stderr));
}

#[test]
fn corpus_folder_is_run() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/corpus");
    let output = sim(&["--corpus", folder]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = text(&output.stdout);
    assert!(
        printed.contains("/corpus/C3-resumed-at-a-leader-that-stood-still.schedule\n"),
        "{printed}"
    );
    let output = sim(&["--corpus", env!("CARGO_MANIFEST_DIR")]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn interrupted_batch_prints_its_results() {
    let mut batch = Command::new(env!("CARGO_BIN_EXE_sim"));
    batch.args(["--for", "10m", "--duration", "1s"]).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut batch = batch.spawn().expect("it runs");
    // Progress output means that runs have begun.
    let mut line = [0; 1];
    batch.stderr.as_mut().expect("piped").read_exact(&mut line).expect("it tells");
    let id = batch.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().expect("kill runs").success());
    let output = batch.wait_with_output().expect("it ends");
    assert_eq!(output.status.code(), Some(130));
    assert!(text(&output.stdout).contains("passed"), "{}", text(&output.stdout));
}

#[test]
fn timed_out_batch_exits_with_7() {
    let output = sim(&["--runs", "1000", "--timeout-wall", "0s"]);
    assert_eq!(output.status.code(), Some(7));
    assert!(text(&output.stderr).contains("given up after 0 runs"), "{}", text(&output.stderr));
}

#[test]
fn lite_runs_end_before_the_heal() {
    let output = sim(&["--profile", "lite", "--runs", "30"]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(printed.contains("passed 30") && printed.contains("after p50 -, "), "{printed}");
}

#[test]
fn json_output_is_complete() {
    let path = std::env::temp_dir().join(format!("sim-{}.json", std::process::id()));
    let file = path.to_str().expect("a plain name");
    let output = sim(&["--runs", "3", "--duration", "5s", "--json", file]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed = std::fs::read_to_string(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it is ours");
    let objects: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert_eq!(objects.len(), 4, "three runs and the batch");
    let keys = |object: &Value| -> Vec<String> {
        object.as_object().expect("an object").keys().cloned().collect()
    };
    insta::assert_snapshot!(format!(
        "{}\n{}",
        keys(&objects[0]).join(" "),
        keys(&objects[3]).join(" ")
    ));
    let (run, batch) = (&objects[0], &objects[3]);
    assert_eq!(run["end_digest"].as_str().map(str::len), Some(16), "{run}");
    assert!(run["marks"]["CommitBatch"].as_u64() > Some(0), "{run}");
    assert!(run["epochs"].as_u64() > Some(0), "{run}");
    assert_eq!(run["settings"]["duration_us"], 5_000_000, "{run}");
    assert_eq!((&batch["runs"], &batch["distinct_end_digests"]), (&3.into(), &3.into()));
    assert!(batch["virtual_s_per_cpu_s"]["p50"].as_u64() > Some(0), "{batch}");
}

#[test]
fn usage_errors_name_the_problem() {
    let output = sim(&["--faults", "+nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--faults list"));
    assert_eq!(sim(&["--seed", "x"]).status.code(), Some(2));
    let profile = text(&sim(&["--profile", "foo"]).stderr);
    assert!(profile.contains("profiles are default, swarm") && profile.len() < 400, "{profile}");
    let mutate = sim(&["mutate", "06-vote", "no-such-mutant"]);
    assert_eq!(mutate.status.code(), Some(2));
    assert!(text(&mutate.stderr).contains("no-such-mutant"), "{}", text(&mutate.stderr));
    let faults = text(&sim(&["--faults", "list"]).stdout);
    assert!(
        faults.contains("disk.torn") && faults.contains("net.partition for net.split, "),
        "{faults}"
    );
}

#[test]
fn run_is_shown_as_state_lines_page_and_dump() {
    let folder = std::env::temp_dir().join(format!("sim-shown-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a scratch folder");
    let (page, dump) = (folder.join("run.html"), folder.join("dump"));
    let [page_arg, dump_arg] = [&page, &dump].map(|path| path.to_str().expect("a plain name"));
    let output = sim(&[
        "--seed",
        "7",
        "--duration",
        "2s",
        "--trace",
        "state",
        "--trace-nodes",
        "1,5",
        "--html",
        page_arg,
        "--at",
        "1.5s",
        "--dump",
        dump_arg,
    ]);
    let printed = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let head = printed.lines().find(|line| line.contains("| what")).expect("a head of columns");
    assert!(head.contains("| s1 ") && head.contains("| s5 ") && !head.contains("| s3 "), "{head}");
    let line = printed.lines().find(|line| line.ends_with("s5 leads")).expect("s5 leads seed 7");
    assert_eq!(line.matches('|').count(), head.matches('|').count(), "{line}");
    assert!(std::fs::read_to_string(&page).is_ok_and(|page| page.starts_with("<!doctype html>")));
    let server = std::fs::read_to_string(dump.join("s5.txt")).expect("a file for each server");
    assert!(server.starts_with("s5 at 1.500000s\nrole         leads"), "{server}");
    let links = server.lines().filter(|line| line.contains(", quorum channel"));
    assert_eq!(links.count(), 4, "a leader has a link with each of the others: {server}");
    assert!(dump.join("clients.txt").exists() && dump.join("messages.txt").exists());
    sim(&["--seed", "7", "--duration", "20s", "--at", "12s", "--dump", dump_arg]);
    let servers = (1..=5).map(|id| std::fs::read_to_string(dump.join(format!("s{id}.txt"))));
    let servers: String = servers.map(|text| text.expect("a file for each server")).collect();
    for kind in ["data", "children", "persistent", "recursive"] {
        assert!(servers.contains(&format!(" {kind} /")), "{kind}: {servers}");
    }
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program reads it from there")]
fn scheduled_fault_without_a_target_is_named() {
    let folder = std::env::temp_dir().join(format!("zabkeeper-idle-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("creates");
    let path = folder.join("idle.schedule");
    let run = |lines: &str| {
        let schedule = format!("zabkeeper schedule 1\nduration_us 3000000\n{lines}\n");
        std::fs::write(&path, schedule).expect("writes");
        let output = sim(&["--schedule", path.to_str().expect("is text")]);
        (output.status.code(), text(&output.stderr))
    };
    // Without choices all servers are on the same side.
    let idle = "1.000s net.split 1 has hit nobody: what it would hit was not there, or its choices \
        name nobody \
                (missing ones are 0)\n";
    assert_eq!(run("1.0s net.split 1"), (Some(0), idle.to_owned()));
    assert_eq!(run("1.0s net.split 1 1"), (Some(0), String::new()));
    let (code, printed) = run("servers 3\nheal.dead 16\n1.0s net.split 1 1");
    assert_eq!(code, Some(2));
    assert!(
        printed.contains("heal.* names server 4, and the last one of the run is 3"),
        "{printed}"
    );
    std::fs::remove_dir_all(&folder).expect("it is ours");
}

#[test]
fn batch_report_fits_a_screen() {
    let output = sim(&["--runs", "2", "--duration", "2s"]);
    let screen = text(&output.stdout);
    let long = screen.lines().find(|line| line.len() > 112);
    assert!(long.is_none() && screen.contains("never hit: "), "{long:?}");
}

#[test]
fn run_stops_at_time_event_mark_or_promise() {
    let stopped = |args: &[&str]| {
        let output = sim(&[&["--seed", "7", "--duration", "5s"], args].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let printed = text(&output.stdout);
        assert!(
            printed.contains("verdict   stopped") && printed.contains("the last events"),
            "{printed}"
        );
        printed
    };
    assert!(stopped(&["--until", "2.5s"]).contains("stopped at 2.500000s (event "));
    let printed = stopped(&["--until-event", "1000"]);
    let (_, rest) = printed.split_once("(event ").expect("a number");
    let number: u64 = rest.split(')').next().and_then(|n| n.parse().ok()).expect("a number");
    assert!((1_000..1_100).contains(&number), "{number}");
    let printed = stopped(&["--break-on", "electionwon"]);
    assert!(printed.contains(": s5 reaches ElectionWon"), "s5 leads seed 7: {printed}");
    let never = sim(&["--seed", "7", "--duration", "1s", "--break-on", "DiskFailed"]);
    assert_eq!(never.status.code(), Some(7));
    assert!(text(&never.stderr).contains("DiskFailed: no server has reached it"));
    let held = sim(&["--seed", "7", "--duration", "1s", "--break-on", "Z10"]);
    assert_eq!(held.status.code(), Some(0));
    assert!(text(&held.stderr).contains("Z10: the run has not broken it"));
    let wrong = sim(&["--break-on", "Z99"]);
    assert_eq!(wrong.status.code(), Some(2));
    let printed = text(&wrong.stderr);
    assert!(
        printed.contains("(Z9?)") && printed.contains("--at-mark list") && printed.len() < 400,
        "{printed}"
    );
}
