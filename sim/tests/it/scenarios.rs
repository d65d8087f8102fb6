//! Tiny worlds in which one thing happens: what they say is kept, so that a change of behaviour is seen where it is
//! reviewed.
//!
//! Each file of `tests/scenarios` is a schedule; its first comment says what it shows, and `# shown:` which trace, if not
//! `--trace state`.

use crate::program::{sim, text};

#[test]
fn scenarios_say_what_they_have_said() {
    insta::glob!("../scenarios", "*.schedule", |path| {
        let schedule = std::fs::read_to_string(path).expect("the schedule is there");
        let shown = schedule.lines().find_map(|line| line.strip_prefix("# shown: "));
        let shown = shown.unwrap_or("--trace state").split(' ');
        let path = path.to_string_lossy();
        let output = sim(&["--schedule", &path].into_iter().chain(shown).collect::<Vec<_>>());
        assert_eq!(output.status.code(), Some(0), "{path}: {}", text(&output.stderr));
        let screen = text(&output.stdout);
        // The end of it says how fast the machine is.
        let (trace, _) = screen.split_once("\nseed ").expect("the trace comes before the rest");
        insta::assert_snapshot!(trace);
    });
}
