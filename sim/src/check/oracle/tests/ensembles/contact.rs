//! Z24, Z25: servers that serve without contact to a quorum.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::Instant;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};

use super::{S1, S2};
use crate::check::oracle::tests::history::check_pair_of;

#[test]
fn z24_leader_goes_on_without_followers() {
    check_pair_of(3, "Z24", |h, violating| {
        h.member(S1).followers = 0;
        h.shows(S1);
        h.waits(9_000);
        h.shows(S1);
        if !violating {
            h.member(S1).followers = 1;
            h.shows(S1);
            h.member(S1).followers = 0;
        }
        h.waits(2_000);
        h.shows(S1);
    });
}

#[test]
fn z25_leader_receives_nothing_from_a_majority() {
    check_pair_of(3, "Z25", |h, violating| {
        h.waits(11_000);
        if !violating {
            h.sends(
                S2,
                S1,
                PeerMessage::Learner(FromLearner::Pong {
                    round: 1,
                    sent: Instant(0),
                    echo: Instant(0),
                    touched: Vec::new(),
                    digests: Vec::new(),
                }),
            );
        }
        h.waits(2_000);
        h.shows(S1);
    });
}

#[test]
fn z25_follower_receives_nothing_from_its_leader() {
    check_pair_of(3, "Z25", |h, violating| {
        h.waits(11_000);
        if !violating {
            h.sends(
                S1,
                S2,
                PeerMessage::Leader(FromLeader::Ping {
                    round: 1,
                    sent: Instant(0),
                    echo: Instant(0),
                }),
            );
        }
        h.waits(2_000);
        h.shows(S2);
    });
}
