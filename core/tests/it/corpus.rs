//! The inputs that fuzzing began with or tripped over, replayed without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/client_frames.rs"]
mod client_frames;
#[path = "../../../fuzz/checks/live_server.rs"]
#[allow(dead_code, reason = "what else a check can see is for other targets")]
mod live_server;

/// Every input of a corpus.
#[expect(
    clippy::disallowed_methods,
    reason = "the corpus is files; the rule is for the core itself"
)]
fn corpus(name: &str) -> impl Iterator<Item = Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus").join(name);
    fs::read_dir(folder).unwrap().map(|entry| fs::read(entry.unwrap().path()).unwrap())
}

#[test]
fn client_frames_corpus() {
    let mut opened = 0;
    let mut requests = 0;
    let mut refused = 0;
    for input in corpus("client_frames") {
        let understood = client_frames::check(&input);
        opened += usize::from(understood.first.is_some());
        requests += understood.requests.len();
        refused += usize::from(understood.refused.is_some());
    }
    // A corpus that is not understood would replay nothing.
    assert!(opened > 5 && requests > 50 && refused > 0, "{opened} {requests} {refused}");
}

#[test]
fn live_server_corpus() {
    let (mut sessions, mut answers, mut events) = (0, 0, 0);
    for input in corpus("live_server") {
        let served = live_server::check(&input);
        sessions += served.sessions;
        answers += served.answers;
        events += served.events;
    }
    assert!(sessions > 5 && answers > 50 && events > 0, "{sessions} {answers} {events}");
}
