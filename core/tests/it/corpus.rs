//! The inputs that fuzzing began with or tripped over, replayed without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/client_frames.rs"]
mod client_frames;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the corpus is files; the rule is for the core itself"
)]
fn client_frames_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/client_frames");
    let mut opened = 0;
    let mut requests = 0;
    let mut refused = 0;
    for entry in fs::read_dir(folder).unwrap() {
        let input = fs::read(entry.unwrap().path()).unwrap();
        let understood = client_frames::check(&input);
        opened += usize::from(understood.first.is_some());
        requests += understood.requests.len();
        refused += usize::from(understood.refused.is_some());
    }
    // A corpus that is not understood would replay nothing.
    assert!(opened > 5 && requests > 50 && refused > 0, "{opened} {requests} {refused}");
}
