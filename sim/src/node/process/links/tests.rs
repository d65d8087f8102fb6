//! Pauses between attempts to dial.

use super::*;

const MS: u64 = 1_000_000;

#[test]
fn pauses_double_up_to_a_second_and_end_with_a_word_of_the_other() {
    let (peer, other) = (ServerId(2), ServerId(3));
    let mut backoff = Backoff::default();
    let pauses: Vec<u64> = (0..10)
        .map(|_| {
            let pause = backoff.pause(peer) / MS;
            backoff.failed(peer);
            pause
        })
        .collect();
    assert_eq!(pauses, [0, 10, 20, 40, 80, 160, 320, 640, 1_000, 1_000]);
    assert_eq!(backoff.pause(other), 0);
    backoff.heard(peer);
    assert_eq!(backoff.pause(peer), 0);
}
