//! Replays the fuzzers' corpora, seeds and inputs that once failed, without a fuzzer.

use std::fs;
use std::path::Path;

#[path = "../../../fuzz/checks/client_frames.rs"]
mod client_frames;
#[path = "../../../fuzz/checks/live_server.rs"]
#[allow(dead_code, reason = "what else a check can see is for other targets")]
mod live_server;

#[path = "../../../fuzz/checks/peer_frames.rs"]
#[allow(dead_code, reason = "what else a check can see is for other targets")]
mod peer_frames;

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
    // If the inputs no longer decoded, replaying them would test nothing.
    assert!(opened > 5 && requests > 50 && refused > 0, "{opened} {requests} {refused}");
}

#[test]
fn live_server_corpus() {
    let (mut sessions, mut answers, mut events) = (0, 0, 0);
    let (mut blocked, mut texts) = (0, 0);
    for input in corpus("live_server") {
        let served = live_server::check(&input);
        sessions += served.sessions;
        answers += served.answers;
        events += served.events;
        blocked += served.blocked;
        texts += served.texts;
    }
    assert!(sessions > 5 && answers > 50 && events > 0, "{sessions} {answers} {events}");
    assert!(blocked > 2 && texts > 15, "{blocked} {texts}");
}

#[test]
fn peer_frames_corpus() {
    let (mut led, mut followed, mut messages, mut refused, mut logged) = (0, 0, 0, 0, 0);
    for input in corpus("peer_frames") {
        let reached = peer_frames::check(&input);
        led += usize::from(reached.led);
        followed += usize::from(reached.followed);
        messages += reached.messages;
        refused += reached.refused;
        logged += reached.logged;
    }
    let all = (led, followed, messages, refused, logged);
    assert!(led > 3 && followed > 0 && messages > 50 && refused > 3 && logged > 10, "{all:?}");
}

/// Random inputs from a fixed seed.
#[test]
fn peer_frames_random_inputs() {
    let mut state = 1_u64;
    let mut byte = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    let (mut led, mut logged) = (0, 0);
    for _ in 0..6_000 {
        let mut input = vec![byte() & 1];
        for _ in 0..12 {
            // Random bytes, then a new session of s1, or a write of one of its sessions.
            input.extend((0..byte() % 20).map(|_| byte()));
            input.extend([25, 8, byte()]);
            if byte() & 1 == 0 {
                input.extend([15, 1]);
            } else {
                input.extend([18, byte(), byte(), 1]);
            }
            input.extend((0..byte() % 40).map(|_| byte()));
        }
        let reached = peer_frames::check(&input);
        led += usize::from(reached.led);
        logged += reached.logged;
    }
    assert!(led > 500 && logged > 1_000, "{led} {logged}");
}
