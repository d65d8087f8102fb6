//! The program as it is called.

use std::process::{Command, Output};

pub(crate) fn sim(args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_sim")).args(args).output().expect("it runs")
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn a_run_prints_its_screen_and_ends_well() {
    let output = sim(&["--seed", "0x7", "--duration", "5s"]);
    let screen = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    for part in ["seed      0x7", "faults", "checked", "trace", "verdict   passed"] {
        assert!(screen.contains(part), "{part} is missing in\n{screen}");
    }
}

#[test]
fn another_hash_than_expected_is_a_failure_with_the_way_to_repeat_it() {
    let output = sim(&["--seed", "7", "--duration", "1s", "--expect-hash", "0"]);
    assert_eq!(output.status.code(), Some(5));
    let last = text(&output.stderr).lines().last().map(str::to_owned).expect("a line");
    assert!(last.starts_with("REPRO: cargo run"), "{last}");
    assert!(last.ends_with("-p sim -- --seed 0x7 --duration 1000ms"), "{last}");
}

#[test]
fn jobs_change_nothing() {
    let batch = |jobs| {
        let output = sim(&["--seeds", "1..7", "--duration", "3s", "--jobs", jobs]);
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        let screen = text(&output.stdout);
        screen.lines().filter(|line| !line.starts_with("speed")).collect::<Vec<_>>().join("\n")
    };
    assert_eq!(batch("1"), batch("2"));
}

#[test]
fn wrong_usage_says_what_is_wrong() {
    let output = sim(&["--faults", "+nonsense"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("--faults list"));
    assert_eq!(sim(&["--seed", "x"]).status.code(), Some(2));
    assert!(text(&sim(&["--faults", "list"]).stdout).contains("disk.torn"));
}
