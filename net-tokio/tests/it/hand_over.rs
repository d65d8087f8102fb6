//! Leaders that get SIGTERM, and processes that get it twice.
//!
//! Owns what the signals do to real processes. Plays of the core have the order of the messages.

use std::time::Instant;

use crate::crash::check_all_there;
use crate::members::{Ensemble, Writers};
use crate::raw::{Raw, create};

#[test]
fn leader_that_gets_sigterm_names_the_next_one_and_loses_no_write() {
    let mut ensemble = Ensemble::start("");
    let writers = Writers::start(&ensemble, 6);
    for _ in 0..3 {
        let leader = ensemble.leader();
        writers.await_more(&ensemble, 1_000);
        let (status, log) = ensemble.end(leader);
        assert_eq!(status.code(), Some(0), "{log}");
        assert!(log.contains("it is to stop, and hands leadership over"), "{log}");
        assert!(!log.contains("stopped with requests unanswered"), "{log}");
        let [next, other] = ensemble.up()[..] else { panic!("two are up") };
        let followed = "its leader has handed leadership over";
        ensemble.server(next).await_line(&[&followed]);
        ensemble.server(other).await_line(&[&followed]);
        writers.await_more(&ensemble, 1_000);
        ensemble.boot(leader);
        ensemble.await_serving(leader);
    }
    let acknowledged = writers.stop();
    (0..3).for_each(|id| check_all_there(ensemble.server(id), &acknowledged));
}

#[test]
fn second_signal_ends_a_leader_that_waits_for_followers() {
    let mut ensemble = Ensemble::start("tickTime=6000");
    let leader = ensemble.leader();
    let followers = [(leader + 1) % 3, (leader + 2) % 3];
    let (mut raw, _) = Raw::open(ensemble.server(leader).port, 60_000);
    // Stopped followers acknowledge nothing, so the leader would wait for a tick.
    followers.iter().for_each(|id| ensemble.server(*id).signal("STOP"));
    raw.send(create("/held", b"", 0));
    ensemble.server(leader).signal("TERM");
    ensemble.server(leader).await_line(&[&"stopping"]);
    let began = Instant::now();
    ensemble.server(leader).signal("TERM");
    let (status, log) = ensemble.wait(leader);
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("a second signal: stopping at once"), "{log}");
    assert!(began.elapsed().as_secs() < 4, "{log}");
    followers.iter().for_each(|id| ensemble.server(*id).signal("CONT"));
}
