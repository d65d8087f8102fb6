//! The checks that the world itself makes must fail in worlds sabotaged in ways that no server can
//! survive.

use std::time::Duration;

use zabkeeper_core::peer::{FromLearner, frame};
use zabkeeper_core::{Epoch, HistoryInfo, HistoryStatus, ServerId, Zxid};

use super::*;
use crate::engine::seed::Seeds;
use crate::engine::selection::Selection;
use crate::faults::catalog::Fault;
use crate::faults::heal::Fate;
use crate::network::stream::{End, Party};
use crate::record::trace::TraceSink;
use crate::world::options::{Options, Pinned, Profile, ServerOptions};

const HOUR: u64 = 3_600_000_000_000;

fn calm_world() -> World {
    calm_world_of(1)
}

fn calm_world_of(servers: u32) -> World {
    let seeds = Seeds::new(7);
    let faults = Selection::parse("").expect("nothing is a valid selection");
    let pinned = Pinned {
        duration: Some(Duration::from_secs(1)),
        servers: Some(servers),
        clients: Some(3),
        faults,
        ..Pinned::default()
    };
    let options = Options::draw(seeds, Profile::Calm, &pinned);
    World::new(seeds, options, TraceSink::Off, false)
}

fn broken(world: &World) -> &'static str {
    world.shared.checker.failure().expect("the sabotage is noticed").id
}

/// The failure contains these parts of the wait-for relation.
fn reports(world: &World, parts: &[&str]) {
    let failure = world.shared.checker.failure().expect("the sabotage is noticed").to_string();
    for part in parts {
        assert!(failure.contains(part), "{part:?} is missing in\n{failure}");
    }
}

/// Pauses all servers for an hour.
fn hang(world: &mut World) {
    let never = Instant(world.shared.now.0 + HOUR);
    for node in world.nodes.values_mut() {
        node.pause(never);
    }
}

/// Forks of the swarm's seed 0x2d0001001b6b at such places counted as drifted once.
#[test]
fn fork_at_last_event_before_heal_is_taken() {
    for fork in ["SessionNew#1/1", "0.400s/1"] {
        let mut world = calm_world();
        world.forks = crate::engine::fork::parse_path(fork).expect("valid");
        world.await_fork();
        while !world.forks_before(world.shared.now) {
            assert!(world.run_until(Instant(world.shared.now.0 + 1_000)));
            assert_eq!(world.forks.len(), 1, "{fork}: nothing else happens in that microsecond");
        }
        world.ends = world.shared.now;
        assert!(world.faults_phase());
        assert!(world.forks.is_empty(), "{fork}");
        assert_eq!(world.shared.now, world.ends, "{fork}: the end has moved");
    }
}

/// L2.
#[test]
fn hanging_servers_fail_writes() {
    let mut world = calm_world();
    assert!(world.run_until(Instant(1_000_000_000)));
    world.heal();
    hang(&mut world);
    assert!(!world.prove_liveness());
    assert_eq!(broken(&world), "L2");
    reports(&world, &["client 0 waits for s"]);
}

/// A healed world of three servers with only these cuts, which never end.
fn cut_world(cuts: &[(u64, u64)]) -> World {
    let mut world = calm_world_of(3);
    assert!(world.run_until(Instant(5_000_000_000)));
    world.heal();
    for (one, other) in cuts {
        let never = Instant(world.shared.now.0 + HOUR);
        world.cut_off(Fault::NetSplit, ServerId(*one), ServerId(*other), never);
        world.cut_off(Fault::NetSplit, ServerId(*other), ServerId(*one), never);
    }
    world
}

/// L1.
#[test]
fn isolated_servers_elect_no_leader() {
    let mut world = cut_world(&[(1, 2), (1, 3), (2, 3)]);
    assert!(!world.prove_liveness());
    assert_eq!(broken(&world), "L1");
    reports(
        &world,
        &["s1 waits for s2", ": a ring", "looks for a leader", "does not reach s2, s3"],
    );
}

/// L5.
#[test]
fn isolated_server_does_not_join() {
    let mut world = cut_world(&[(1, 2), (1, 3)]);
    assert!(!world.prove_liveness());
    assert_eq!(broken(&world), "L5");
    reports(
        &world,
        &["which waits for nobody: it leads", "s1 waits for s3: it looks for a leader"],
    );
}

/// A follower sends FOLLOWERINFO a second time, which is legal only as its first message (L12).
#[test]
fn world_fails_when_a_server_refuses_a_real_servers_message() {
    let mut world = calm_world_of(3);
    assert!(world.run_until(Instant(5_000_000_000)));
    let is_link = |parties: &[Party; 2]| parties.iter().all(|p| matches!(p, Party::Server(_)));
    // Connections for notifications are dialled before a leader is known.
    let link = world.shared.net.list().filter(|(_, parties)| is_link(parties)).last();
    let (conn, _) = link.expect("a follower has dialled its leader");
    let mut bytes = Vec::new();
    let (accepted, history) = (Epoch(0), HistoryInfo::new(HistoryStatus::Complete, Epoch(0)));
    frame::encode(&FromLearner::FollowerInfo { accepted, history, ensemble: 0 }, &mut bytes);
    let now = world.shared.now;
    world.shared.net.send(now, conn, End::Dialler, bytes.into());
    world.shared.schedule_arrivals();
    assert!(!world.run_until(Instant(6_000_000_000)));
    assert_eq!(broken(&world), "L12");
    reports(&world, &["refuses s", "it sent out of turn: FOLLOWERINFO"]);
}

/// L6.
#[test]
fn needless_elections_fail_the_run() {
    let mut world = calm_world_of(3);
    assert!(world.run_until(Instant(5_000_000_000)) && world.liveness_phase());
    world.shared.recorder.counters.counts.leaderships += 10;
    assert!(!world.settle());
    assert_eq!(broken(&world), "L6");
}

/// L6.
#[test]
fn notification_storm_fails_the_run_unless_late() {
    // Each late notification may be repeated to the two other servers, which may answer.
    for (late, held) in [(0, false), (2_000, false), (2_500, true)] {
        let mut world = calm_world_of(3);
        assert!(world.run_until(Instant(5_000_000_000)) && world.liveness_phase());
        world.shared.recorder.counters.counts.notifications += 10_000;
        world.shared.recorder.counters.counts.notifications_late += late;
        assert_eq!(world.settle(), held, "{late}");
        assert!(held || broken(&world) == "L6", "{late}");
    }
}

/// L6.
#[test]
fn notifications_count_once_no_attempt_to_connect_from_before_the_heal_is_outstanding() {
    // The connections of the attempts that fail: the last one before the heal, the first one after.
    for (after_heal, held) in [(0, true), (1, false)] {
        let mut world = calm_world_of(3);
        assert!(world.run_until(Instant(5_000_000_000)) && world.liveness_phase());
        world.shared.recorder.counters.counts.notifications += 10_000;
        world.election_dial_failed(ConnId(world.last_unhealed.0 + after_heal));
        assert_eq!(world.settle(), held, "{after_heal}");
        assert!(held || broken(&world) == "L6", "{after_heal}");
    }
}

/// E3.
#[test]
fn queues_of_hanging_servers_do_not_drain() {
    let mut world = calm_world();
    assert!(world.run_until(Instant(1_000_000_000)) && world.liveness_phase());
    hang(&mut world);
    for client in world.clients.values_mut() {
        client.ask_for_probe(&mut world.shared);
    }
    assert!(!world.settle());
    assert_eq!(broken(&world), "E3");
}

/// E4.
#[test]
fn leftover_files_and_missing_snapshots_are_reported() {
    let limits = Limits { snapshots_kept: 2, snapshot_txns: 9, ..ServerOptions::usual().limits };
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    let fine = ["state", "log.1", "log.2", "log.3", "snapshot.1", "snapshot.2", "snapshot.3"];
    let fine = names(&[&fine[..], &["snapshot.0.damaged"]].concat());
    let most = 3;
    assert_eq!(left_over(&fine, most), Ok(()));
    let with = |name: &str| [&fine[..], &names(&[name])].concat();
    let more = left_over(&with("snapshot.5.tmp"), most).unwrap_err();
    assert!(more.contains("snapshot.5.tmp"), "{more}");
    let more = left_over(&with("snapshot.0"), most).unwrap_err();
    assert!(more.contains("3 are kept"), "{more}");
    assert_eq!(left_over(&with("snapshot.0"), usize::MAX), Ok(()), "a learner needed it");

    let z = |epoch: u64, counter: u64| Zxid(epoch << 32 | counter);
    for (snapshot, applied, right) in [
        (z(2, 7), z(2, 47), true),
        (z(2, 7), z(2, 48), false),
        (z(1, 7), z(2, 40), true),
        (z(1, 7), z(2, 41), false),
    ] {
        let goes_on = |waits| goes_on((snapshot, applied), &limits, waits).is_ok();
        assert_eq!((goes_on(false), goes_on(true)), (right, true), "{snapshot} {applied}");
    }
}

/// C6.
#[test]
fn client_ahead_of_the_server_is_refused() {
    // The oracle of C6 checks the answers; this test checks that a server was asked at all.
    let asked = (11..31).any(|seed| {
        let seeds = Seeds::new(seed);
        let faults = Selection::parse("only=client.garbage").expect("a valid selection");
        let duration = Some(Duration::from_secs(60));
        let pinned =
            Pinned { duration, servers: None, clients: Some(2), faults, ..Pinned::default() };
        let options = Options::draw(seeds, Profile::Session, &pinned);
        let outcome = World::new(seeds, options, TraceSink::Off, false).run();
        assert!(outcome.failure.is_none(), "{:?}", outcome.failure);
        outcome.counters.has_hit(Mark::ClientAhead)
    });
    assert!(asked);
}

/// A world of five servers; the heal will leave out two with this fate.
fn world_without_two(fate: Fate) -> World {
    let mut world = calm_world_of(5);
    let two = [2, 4].map(ServerId);
    world.shared.options.left_out.set(fate).extend(two);
    world
}

#[test]
fn quorum_recovers_with_two_servers_left_out() {
    for fate in Fate::ALL {
        let mut world = world_without_two(fate);
        assert!(world.run_until(Instant(5_000_000_000)));
        let done = world.liveness_phase() && world.settle() && world.audit();
        assert!(done, "{fate}: {:?}", world.shared.checker.failure());
        assert_eq!(world.shared.outside.len(), 2);
        let serves = |id| world.nodes[&ServerId(id)].status().is_some_and(|s| s.serving);
        assert!([1, 3, 5].into_iter().all(serves), "{fate}");
        // A paused server keeps its serving status, and so does one with a stuck disk until its
        // leader gives it up.
        let serve_on = matches!(fate, Fate::Hung | Fate::Stuck);
        assert!(serve_on || ![2, 4].into_iter().any(serves), "{fate}");
    }
}

/// L2.
#[test]
fn client_that_reaches_only_left_out_servers_fails_writes() {
    let mut world = world_without_two(Fate::Alone);
    assert!(world.run_until(Instant(5_000_000_000)));
    world.heal();
    world.shared.outside.extend([1, 3, 5].map(|id| (ServerId(id), Fate::Alone)));
    let conns: Vec<_> =
        world.clients.values().flat_map(crate::clients::client::Client::conns).collect();
    for conn in conns {
        world.shared.net.break_off(world.shared.now, conn, crate::network::stream::Break::Both);
    }
    world.shared.schedule_arrivals();
    assert!(!world.prove_liveness());
    assert_eq!(broken(&world), "L2");
    reports(&world, &["s2 is left out of the heal: it stays cut off from everybody"]);
}

#[test]
fn heal_includes_all_servers_if_none_has_a_history() {
    let mut world = world_without_two(Fate::Dead);
    world.heal();
    assert!(world.shared.outside.is_empty(), "no server has begun");
}
