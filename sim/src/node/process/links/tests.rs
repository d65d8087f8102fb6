//! Pauses between attempts to dial, and who is let in.

use super::*;
use crate::options::{Pinned, Profile};
use crate::seed::Seeds;

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

#[test]
fn only_another_voter_that_means_this_server_is_let_in() {
    let pinned = Pinned { servers: Some(3), ..Pinned::default() };
    let options = Options::draw(Seeds::new(1), Profile::Calm, &pinned);
    let read = |channel, from, to| {
        let greeting = Greeting { channel, from: ServerId(from), to: ServerId(to) };
        let mut buffer = BytesMut::from(&greeting.encode()[..]);
        buffer.extend_from_slice(b"rest");
        greeted(&mut buffer, ServerId(1), &options).map(|event| (event, buffer))
    };
    let up = PeerEvent::Up { peer: ServerId(3), dialled: false };
    let (event, rest) = read(Channel::Quorum, 3, 1).expect("a peer");
    assert_eq!((event, &rest[..]), (Some(up), &b"rest"[..]));
    assert_eq!(read(Channel::Quorum, 1, 1), Err(BadFrame::Stranger), "itself");
    assert_eq!(read(Channel::Quorum, 4, 1), Err(BadFrame::Stranger), "no voter");
    assert_eq!(read(Channel::Quorum, 3, 2), Err(BadFrame::Stranger), "meant for another");
    assert_eq!(read(Channel::Election, 3, 1), Err(BadFrame::Channel(0)));
    let cut = Greeting { channel: Channel::Quorum, from: ServerId(3), to: ServerId(1) }.encode();
    let mut half = BytesMut::from(&cut[..GREETING_BYTES - 1]);
    assert_eq!(greeted(&mut half, ServerId(1), &options), Ok(None));
}
