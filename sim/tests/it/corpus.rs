//! Replays the fuzzing corpus without a fuzzer.
//!
//! Owns how much of a corpus the oracles must have checked. Must not check anything: the check
//! shared with the fuzz target does.

use std::collections::BTreeSet;
use std::path::Path;

#[path = "../../../fuzz/checks/model.rs"]
#[allow(dead_code, reason = "what else an input can choose is for other targets")]
mod model;

#[test]
#[expect(
    clippy::disallowed_methods,
    reason = "the corpus is files; the rule is for simulated worlds"
)]
fn model_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/model");
    let (mut answers, mut events, mut oracles) = (0, 0, BTreeSet::new());
    for entry in std::fs::read_dir(folder).unwrap() {
        let checked = model::check(&std::fs::read(entry.unwrap().path()).unwrap());
        answers += checked.answers;
        events += checked.events;
        oracles.extend(checked.oracles);
    }
    assert!(answers > 200 && events > 5, "{answers} {events}");
    for id in ["C2", "C9", "C10", "S1", "S4", "T1", "T6", "T7", "W1", "Z12"] {
        assert!(oracles.contains(id), "{id} never checked: {oracles:?}");
    }
}
