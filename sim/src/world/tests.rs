//! Faults have the effects on servers that they are supposed to have.

use std::time::Duration;

use zabkeeper_core::driver::PeerDial;
use zabkeeper_core::peer::greeting::Channel;
use zabkeeper_core::{LinkId, Zxid};

use super::*;
use crate::clients::workload::Op;
use crate::engine::decisions::Act;
use crate::engine::seed::Seeds;
use crate::engine::selection::Selection;
use crate::machine::fs::Crash;
use crate::network::stream::Party;
use crate::record::trace::TraceSink;
use crate::world::options::{Options, Pinned, Profile};

const MS: u64 = 1_000_000;
const POWER: Crash = Crash::Power { torn: false, garbage: false, names: false };

/// A world without faults that has run for three seconds and has a leader.
fn settled_world(servers: u32) -> World {
    let pinned = Pinned {
        duration: Some(Duration::from_secs(3)),
        servers: Some(servers),
        clients: Some(3),
        faults: Selection::parse("").expect("nothing is a valid selection"),
        ..Pinned::default()
    };
    let seeds = Seeds::new(7);
    let options = Options::draw(seeds, Profile::Calm, &pinned);
    let mut world = World::new(seeds, options, TraceSink::Off, false);
    run_for(&mut world, 3_000);
    assert_eq!(world.leaders().len(), 1);
    world
}

impl World {
    /// Crashes a server now.
    fn end(&mut self, server: ServerId, how: Crash) {
        let incarnation = self.nodes[&server].incarnation();
        self.crash(server, incarnation, how);
    }
}

fn run_for(world: &mut World, ms: u64) {
    let until = Instant(world.shared.now.0 + ms * MS);
    assert!(world.run_until(until), "{:?}", world.shared.checker.failure());
}

/// Cuts a server off from all others for a minute.
fn isolate(world: &mut World, one: ServerId) -> Instant {
    let until = Instant(world.shared.now.0 + 60_000 * MS);
    for (from, to) in world.all_around(one) {
        world.cut_off(Fault::NetSplit, from, to, until);
    }
    until
}

fn finish(mut world: World) {
    assert!(world.liveness_phase() && world.settle() && world.audit());
}

fn applied(world: &World, server: ServerId) -> Zxid {
    world.nodes[&server].status().expect("it is up").applied
}

/// How long the dialler waits for the result of a link attempt, ns, and whether the link was made.
fn attempt(world: &mut World, from: ServerId, to: ServerId) -> (u64, bool) {
    let (incarnation, conn) = (world.nodes[&from].incarnation(), world.shared.net.allocate());
    let (channel, for_observers, first) = (Channel::Quorum, false, 0);
    let dial = PeerDial { link: LinkId(conn.0), to, channel, for_observers, first };
    let asked = world.shared.now;
    world.dial_peer(from, incarnation, dial);
    while let Some((at, event)) = world.shared.queue.pop() {
        if let Event::PeerDialled { dial: of, stands, .. } = event
            && of == dial
        {
            return (at.0 - asked.0, stands);
        }
    }
    unreachable!("every attempt is answered");
}

#[test]
fn dead_process_refuses_at_once_and_powerless_machine_times_out() {
    let (one, two) = (ServerId(1), ServerId(2));
    let mut ends = [Crash::Kill, POWER].into_iter().map(|how| {
        let mut world = settled_world(3);
        let (node, shared) = split(&mut world.nodes, &mut world.shared, two);
        node.crash(how, Rng::scripted(Vec::new()), shared);
        let waits = world.shared.options.peers.dial_timeout_ms * MS;
        (attempt(&mut world, one, two), waits)
    });
    let ((took, stands), waits) = ends.next().expect("killed");
    assert!(!stands && took < waits);
    let ((took, stands), waits) = ends.next().expect("dark");
    assert_eq!((took, stands), (waits, false));
}

#[test]
fn partition_in_either_direction_prevents_new_links() {
    let (one, two, three) = (ServerId(1), ServerId(2), ServerId(3));
    let mut world = settled_world(3);
    let waits = world.shared.options.peers.dial_timeout_ms * MS;
    world.shared.reach.cut(two, one, Instant(u64::MAX));
    assert_eq!(attempt(&mut world, one, two), (waits, false));
    let mut world = settled_world(3);
    world.shared.reach.cut(two, one, Instant(u64::MAX));
    assert!(attempt(&mut world, one, three).1);
}

#[test]
fn links_reset_after_kill_and_stay_half_open_after_power_failure() {
    for (how, silent) in [(Crash::Kill, false), (POWER, true)] {
        let mut world = settled_world(3);
        let leader = world.leaders()[0];
        let follower = world.nodes.keys().copied().find(|id| *id != leader).expect("another");
        world.end(follower, how);
        let peers = |world: &World| {
            let of = |[a, b]: [Party; 2]| [a, b].contains(&Party::Server(follower));
            world.shared.net.list().filter(|(_, parties)| of(*parties)).count()
        };
        run_for(&mut world, 5);
        assert_eq!(peers(&world) > 0, silent, "{how:?}");
        finish(world);
    }
}

#[test]
fn isolated_leader_is_replaced_and_returns_as_follower() {
    let mut world = settled_world(5);
    let old = world.leaders()[0];
    isolate(&mut world, old);
    run_for(&mut world, 40_000);
    let leaders = world.leaders();
    assert!(leaders.len() == 1 && leaders[0] != old, "{leaders:?} instead of {old}");
    assert!(applied(&world, leaders[0]) > applied(&world, old));
    finish(world);
}

#[test]
fn unaware_leader_still_leads_beside_its_successor() {
    let mut world = settled_world(5);
    let old = world.leaders()[0];
    let until = isolate(&mut world, old);
    world.leave_unaware(old, until);
    let both = (0..100).any(|_| {
        run_for(&mut world, 50);
        let leaders = world.leaders();
        leaders.len() == 2 && leaders.contains(&old)
    });
    assert!(both, "{:?} lead", world.leaders());
    finish(world);
}

#[test]
fn unaware_leader_receives_syncs_once_it_has_a_successor() {
    let mut world = settled_world(5);
    let old = world.leaders()[0];
    let syncs = |world: &mut World| {
        world.shared.decisions.keep_record(false);
        run_for(world, 50);
        let steps = world.shared.decisions.take_record().expect("it is kept");
        steps.iter().filter(|step| matches!(step.act, Act::Call(_, Op::Sync))).count()
    };
    let before: usize = (0..100).map(|_| syncs(&mut world)).sum();
    let until = isolate(&mut world, old);
    world.leave_unaware(old, until);
    let (mut asked, mut pieces) = (0, 0);
    while world.leaders().contains(&old) {
        if world.leaders().len() > 1 {
            asked += syncs(&mut world);
            pieces += 1;
        } else {
            run_for(&mut world, 50);
        }
    }
    assert!(asked * 100 > 2 * before * pieces, "{asked} in {pieces}, {before} in 100 before");
    finish(world);
}

#[test]
fn abandoning_client_reconnects_once_and_leaves_its_session() {
    let mut world = settled_world(3);
    let id = *world.clients.keys().next().expect("a client");
    let session = |world: &World| world.clients[&id].memory().map(|(session, ..)| session);
    let before = session(&world).expect("it has a session");
    let connections = world.shared.recorder.counters.counts.connections;
    world.clients.get_mut(&id).expect("it is there").abandon_later(&mut world.shared);
    run_for(&mut world, 60_000);
    assert!(
        world.shared.recorder.counters.counts.connections >= connections + 2,
        "it has been back"
    );
    assert_ne!(session(&world), Some(before), "another one has taken its place");
    finish(world);
}

#[test]
fn stragglers_are_a_minority_and_return_one_by_one_under_other_leaders() {
    let mut world = settled_world(7);
    let (old, begins) = (world.leaders()[0], world.shared.now);
    assert!(world.leave_behind());
    let leaderships = |world: &World| {
        world.nodes.values().filter_map(Node::status).map(|s| s.current_epoch).max()
    };
    let before = leaderships(&world);
    let ids: Vec<ServerId> = world.nodes.keys().copied().collect();
    // Servers left behind still reach each other, so each is cut off from exactly all the others.
    let apart = |world: &World, one: &ServerId| {
        ids.iter()
            .filter(|other| !world.shared.reach.connects(world.shared.now, *one, **other))
            .count()
    };
    let behind: Vec<ServerId> = ids.iter().copied().filter(|id| apart(&world, id) > 3).collect();
    assert!(behind.contains(&old) && behind.len() <= 3, "{behind:?}");
    assert!(behind.iter().all(|id| apart(&world, id) == ids.len() - behind.len()));
    let mut returned = Vec::new();
    while world.shared.reach.count(world.shared.now) > 0 || returned.len() < behind.len() {
        run_for(&mut world, 50);
        let back = behind.iter().filter(|id| apart(&world, id) < 4 && !returned.contains(*id));
        let back: Vec<ServerId> = back.copied().collect();
        assert!(back.len() <= 1, "{back:?} at once");
        returned.extend(back);
        assert!(world.shared.now.0 - begins.0 < 600_000 * MS, "{returned:?} of {behind:?}");
    }
    run_for(&mut world, 20_000);
    assert!(leaderships(&world) > before);
    finish(world);
}

#[test]
fn no_server_leads_without_a_majority() {
    let mut world = settled_world(3);
    let leader = world.leaders()[0];
    for other in world.nodes.keys().copied().filter(|id| *id != leader).collect::<Vec<_>>() {
        let (node, shared) = split(&mut world.nodes, &mut world.shared, other);
        node.crash(Crash::Kill, Rng::scripted(Vec::new()), shared);
    }
    run_for(&mut world, 30_000);
    assert_eq!(world.leaders(), []);
    finish(world);
}

#[test]
fn wiped_server_recovers_all_data() {
    let mut world = settled_world(3);
    let leader = world.leaders()[0];
    let server = world.nodes.keys().copied().find(|id| *id != leader).expect("another");
    assert!(world.wipe_disk(server));
    run_for(&mut world, 20_000);
    assert!(world.nodes[&server].is_up());
    finish(world);
}

#[test]
fn server_with_damaged_disk_restarts_complete_or_empty() {
    let (mut same, mut empty) = (0, 0);
    for seed in 0..48 {
        let mut world = settled_world(3);
        world.fault_rng[Fault::DiskBitRot as usize] = Seeds::new(seed).stream("test", 0);
        let leader = world.leaders()[0];
        let server = world.nodes.keys().copied().find(|id| *id != leader).expect("another");
        let before = applied(&world, server);
        assert!(world.damage_disk(server));
        let deadline = Instant(world.shared.now.0 + 10_000 * MS);
        while world.nodes[&server].status().is_none() {
            run_for(&mut world, 1);
            assert!(world.shared.now < deadline, "it starts");
        }
        let found = world.nodes[&server].status().expect("it is up").appended;
        assert!(found == Zxid::ZERO || found >= before, "{found} of {before}");
        if found == Zxid::ZERO {
            empty += 1
        } else {
            same += 1
        }
        run_for(&mut world, 20_000);
        finish(world);
    }
    assert!(same > 3 && empty > 3, "{same} {empty}");
}

#[test]
fn indispensable_server_is_not_wiped() {
    let mut alone = settled_world(1);
    assert!(!alone.wipe_disk(ServerId(1)));
    let mut pair = settled_world(2);
    assert!(!pair.wipe_disk(ServerId(1)) && !pair.wipe_disk(ServerId(2)));
    let mut three = settled_world(3);
    let down = ServerId(3);
    three.end(down, Crash::Kill);
    assert!(!three.wipe_disk(ServerId(1)), "a third server is down");
    let mut again = settled_world(3);
    assert!(again.wipe_disk(ServerId(1)));
    assert!(!again.wipe_disk(ServerId(2)), "the first one has nothing yet");
}

#[test]
fn servers_recover_from_a_blackout() {
    let mut world = settled_world(5);
    while !world.black_out() {}
    run_for(&mut world, 50);
    finish(world);
}
