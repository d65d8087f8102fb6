//! Tiny worlds with one event each; snapshots of their traces show changes of behaviour in reviews.
//!
//! Each file of `tests/scenarios` is a schedule; its first comment describes it, and `# shown:`
//! selects the trace instead of `--trace state`.

use crate::program::{sim, text};

#[test]
fn scenario_traces_match_snapshots() {
    insta::glob!("../scenarios", "*.schedule", |path| {
        let schedule = std::fs::read_to_string(path).expect("the schedule is there");
        let shown = schedule.lines().find_map(|line| line.strip_prefix("# shown: "));
        let shown = shown.unwrap_or("--trace state").split(' ');
        let path = path.to_string_lossy();
        let output = sim(&["--schedule", &path].into_iter().chain(shown).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{path}: {}", text(&output.stderr));
        let screen = text(&output.stdout);
        // The last part contains the speed of the machine.
        let (trace, _) = screen.split_once("\nseed ").expect("the trace comes before the rest");
        insta::assert_snapshot!(trace);
    });
}
