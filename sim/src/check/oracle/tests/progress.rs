//! L8, L11 and L13: delays, and links closed too early.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage, ServerState};
use zabkeeper_core::store::Entry;
use zabkeeper_core::{ConnId, Input, Instant, LinkCloseReason, LinkId, ServerId, StepDownReason};

use super::cast::link;
use super::history::{History, check_pair_in_time, check_pair_of, check_pair_under, create};
use super::outside::receives_from;
use crate::check::model::Rules;
use crate::check::observe::{Observation, Wait};

const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);

/// A client asks for a create, and the leader sends the proposal to one follower.
fn proposes(h: &mut History) -> Entry {
    let entry = h.wants("/a");
    h.logs(S1, &entry);
    h.sends(S1, S2, PeerMessage::Leader(FromLeader::Proposal(entry.clone())));
    entry
}

/// The leader pings a follower, and gets its answer.
fn pings(h: &mut History, follower: ServerId, round: u64) {
    let (sent, echo) = (Instant(0), Instant(0));
    h.sends(S1, follower, PeerMessage::Leader(FromLeader::Ping { round, sent, echo }));
    let (touched, digests) = (Vec::new(), Vec::new());
    let pong = FromLearner::Pong { round, sent, echo, touched, digests };
    h.sends(follower, S1, PeerMessage::Learner(pong));
}

#[test]
fn l8_leader_keeps_a_learner_that_acknowledges_nothing() {
    check_pair_of(3, "L8", |h, violating| {
        let entry = proposes(h);
        h.waits(6_000);
        pings(h, S2, 1);
        if !violating {
            h.logs(S2, &entry);
            h.confirms(S2);
            h.sends(S2, S1, PeerMessage::Learner(FromLearner::Ack { zxid: entry.zxid }));
        }
        h.waits(7_000);
        h.shows(S1);
    });
}

/// A client asks for two creates at once. The leader sends one proposal to a follower, whose
/// acknowledgement stays under way, and the other one `ms` later.
fn proposes_twice(h: &mut History, follower: ServerId, ms: u64) -> [Entry; 2] {
    let a = h.client(0);
    h.asks(a, create("/a"));
    h.asks(a, create("/b"));
    let [first, mut second] = [h.decides(a), h.decides(a)];
    second.zxid = first.zxid.next().expect("room");
    let entries = [first.encode(), second.encode()];
    h.logs(S1, &entries[0]);
    h.gets(follower, S1, &entries[0]);
    h.confirms(follower);
    h.waits(ms);
    h.logs(S1, &entries[1]);
    h.gets(follower, S1, &entries[1]);
    entries
}

/// The acknowledgement of the first proposal is no reprieve for the second.
#[test]
fn l8_leader_keeps_a_learner_that_only_lags() {
    check_pair_of(3, "L8", |h, violating| {
        let [first, second] = proposes_twice(h, S2, 0);
        h.waits(6_000);
        h.receives(S1, S2, PeerMessage::Learner(FromLearner::Ack { zxid: first.zxid }));
        h.confirms(S2);
        if !violating {
            h.receives(S1, S2, PeerMessage::Learner(FromLearner::Ack { zxid: second.zxid }));
        }
        h.waits(7_000);
        h.shows(S1);
    });
}

#[test]
fn l8_leader_without_followers_does_not_give_up() {
    check_pair_of(3, "L8", |h, violating| {
        h.starts_again(S1);
        h.waits(20_000);
        h.shows(S1);
        if !violating {
            h.starts_again(S1);
        }
        h.waits(6_000);
        h.shows(S1);
    });
}

#[test]
fn l8_quorum_without_faults_does_not_commit() {
    check_pair_in_time("L8", |h, violating| {
        proposes(h);
        if !violating {
            h.sees(Observation::FaultInjected {
                servers: &[S2, S3],
                until: Instant(6_000_000_000),
            });
        }
        h.waits(4_000);
        h.shows(S1);
    });
}

/// A client of this server waits since second 4 of the run, with no faults afterwards.
fn waits_at(h: &mut History, server: ServerId, wait: fn(Instant) -> Wait) {
    let conn = ConnId(77);
    h.waits(4_000);
    h.sees(Observation::Waits { server, conn, wait: wait(Instant(4_000_000_000)) });
}

#[test]
fn l13_follower_without_faults_answers_nobody() {
    check_pair_in_time("L13", |h, violating| {
        if !violating {
            h.sees(Observation::FaultInjected { servers: &[S2], until: Instant(6_000_000_000) });
        }
        waits_at(h, S2, Wait::Answer);
    });
}

/// A fault of another server is no excuse.
#[test]
fn l13_leader_reads_nobody_during_a_peers_fault() {
    check_pair_in_time("L13", |h, violating| {
        let sick: &[ServerId] = if violating { &[S3] } else { &[S2, S3] };
        h.sees(Observation::FaultInjected { servers: sick, until: Instant(60_000_000_000) });
        waits_at(h, S1, Wait::Turn);
    });
}

/// Requests that came before the server served are due from then on.
#[test]
fn l13_request_from_before_the_service_is_not_answered() {
    check_pair_in_time("L13", |h, violating| {
        let asked = Instant(1_000_000_000);
        h.begins_leading(S1, &[S2, S3]);
        h.waits(if violating { 3_100 } else { 2_900 });
        h.sees(Observation::Waits { server: S2, conn: ConnId(77), wait: Wait::Answer(asked) });
    });
}

/// The links of a leader that its followers have left stay open until it handles `Down` of each.
#[test]
fn l8_leader_with_a_quorum_does_not_commit() {
    check_pair_in_time("L8", |h, violating| {
        proposes(h);
        if !violating {
            h.begins_leading(S3, &[S2]);
        }
        h.waits(4_000);
        h.shows(S1);
    });
}

#[test]
fn l8_follower_does_not_ack_a_durable_entry() {
    check_pair_of(3, "L8", |h, violating| {
        let entry = proposes(h);
        h.logs(S2, &entry);
        if violating {
            h.confirms_in_silence(S2);
        } else {
            h.confirms(S2);
        }
        h.receives(
            S2,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
    });
}

#[test]
fn l8_follower_does_not_forward_a_sync_when_it_serves_again() {
    check_pair_of(3, "L8", |h, violating| {
        enters_again(h);
        h.joins(S3, S1);
        if !violating {
            h.whispers(
                S3,
                S1,
                PeerMessage::Learner(FromLearner::Sync { conn: ConnId(7), request: 3 }),
            );
        }
        h.sees(Observation::Serves { server: S3, syncs: 1, held: 0 });
    });
}

#[test]
fn l13_handshake_from_before_the_service_stays_unanswered() {
    check_pair_of(3, "L13", |h, violating| {
        enters_again(h);
        h.joins(S3, S1);
        h.sees(Observation::Serves { server: S3, syncs: 0, held: usize::from(violating) });
    });
}

/// The sessions of others have taken the zxids of the epoch.
#[test]
fn l13_handshake_waits_although_the_epoch_has_room() {
    check_pair_under(&Rules { epoch_txns: 1, ..Rules::default() }, "L13", |h, violating| {
        if !violating {
            let entry = h.wants("/a");
            h.logs(S1, &entry);
        }
        h.sees(Observation::Serves { server: S1, syncs: 0, held: 1 });
    });
}

/// A follower loses its link and gets another one.
fn leaves_and_returns(h: &mut History) {
    h.looks(S3);
    h.takes(S1, &Input::Peer(link(S3, S1), PeerEvent::Down));
    h.turns_to(S3, S1);
}

/// A follower loses its link, gets another one and takes over its leader's history.
fn enters_again(h: &mut History) {
    let epoch = h.epoch;
    leaves_and_returns(h);
    h.promises(S3, S1, epoch);
    h.is_synced_with(S3, S1, epoch);
    h.enters(S3, S1, epoch);
}

fn gives_up(h: &mut History, id: ServerId) {
    h.puts(id, &[], &[PeerCommand::Close(link(S3, S1), LinkCloseReason::Silent)]);
}

#[test]
fn l11_leader_drops_a_new_learner_by_the_limit_for_serving_ones() {
    check_pair_of(3, "L11", |h, violating| {
        leaves_and_returns(h);
        h.waits(if violating { 4_000 } else { 6_000 });
        gives_up(h, S1);
    });
}

/// Since its acknowledgement of NEWLEADER, it had nothing to send.
#[test]
fn l11_leader_drops_a_learner_for_silence_before_uptodate() {
    check_pair_of(3, "L11", |h, violating| {
        enters_again(h);
        h.waits(4_000);
        h.joins(S3, S1);
        if !violating {
            h.waits(3_000);
        }
        gives_up(h, S1);
    });
}

#[test]
fn l11_leader_drops_a_learner_for_a_late_ack_too_early() {
    check_pair_of(3, "L11", |h, violating| {
        let entry = h.wants("/a");
        h.logs(S1, &entry);
        h.sends(S1, S3, PeerMessage::Leader(FromLeader::Proposal(entry)));
        h.waits(if violating { 2_000 } else { 3_000 });
        h.sends(
            S3,
            S1,
            PeerMessage::Learner(FromLearner::Pong {
                round: 0,
                sent: Instant(0),
                echo: Instant(0),
                touched: Vec::new(),
                digests: Vec::new(),
            }),
        );
        gives_up(h, S1);
    });
}

/// The second proposal has its own time, which begins when it is sent.
#[test]
fn l11_leader_drops_a_learner_that_acknowledges_each_mark_in_time() {
    check_pair_of(3, "L11", |h, violating| {
        let [first, _] = proposes_twice(h, S3, 2_000);
        h.receives(S1, S3, PeerMessage::Learner(FromLearner::Ack { zxid: first.zxid }));
        h.waits(if violating { 2_000 } else { 2_600 });
        let sent = Instant(2_000_000_000);
        h.sends(S1, S3, PeerMessage::Leader(FromLeader::Ping { round: 1, sent, echo: Instant(0) }));
        h.sends(
            S3,
            S1,
            PeerMessage::Learner(FromLearner::Pong {
                round: 1,
                sent,
                echo: sent,
                touched: Vec::new(),
                digests: Vec::new(),
            }),
        );
        gives_up(h, S1);
    });
}

/// While the learner is brought up to date, it has nothing to send.
#[test]
fn l11_leader_drops_a_learner_that_accepts_data() {
    check_pair_of(3, "L11", |h, violating| {
        leaves_and_returns(h);
        h.waits(4_000);
        h.takes(S1, &Input::Peer(link(S3, S1), PeerEvent::Drained));
        h.waits(if violating { 4_000 } else { 6_000 });
        gives_up(h, S1);
    });
}

/// The ping's echo names the newest pong that the leader has handled, and so proves that the leader
/// was alive then.
#[test]
fn l11_follower_leaves_a_leader_that_was_just_alive() {
    check_pair_of(3, "L11", |h, violating| {
        let answered = Instant(7);
        h.waits(8_000);
        h.sends(
            S3,
            S1,
            PeerMessage::Learner(FromLearner::Pong {
                round: 0,
                sent: answered,
                echo: Instant(0),
                touched: Vec::new(),
                digests: Vec::new(),
            }),
        );
        h.sends(
            S1,
            S3,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: answered }),
        );
        h.waits(if violating { 2_000 } else { 3_000 });
        gives_up(h, S3);
    });
}

/// The server looks for a leader and closes these links.
fn leaves(h: &mut History, id: ServerId, links: &[LinkId], lost: StepDownReason) {
    let close = |link: &LinkId| PeerCommand::Close(*link, LinkCloseReason::Looks(lost));
    let commands: Vec<PeerCommand> = links.iter().map(close).collect();
    h.looks_and(id, &commands);
}

#[test]
fn l11_follower_leaves_because_another_server_looks() {
    check_pair_of(3, "L11", |h, violating| {
        receives_from(h, S3, if violating { S2 } else { S1 }, ServerState::Looking, 9);
        leaves(h, S3, &[link(S3, S1)], StepDownReason::Overtaken);
    });
}

#[test]
fn l11_follower_leaves_while_its_link_stands() {
    check_pair_of(3, "L11", |h, violating| {
        if !violating {
            h.takes(S3, &Input::Peer(link(S3, S1), PeerEvent::Down));
        }
        leaves(h, S3, &[link(S3, S1)], StepDownReason::Leader);
    });
}

#[test]
fn l11_leader_steps_down_with_a_quorum() {
    check_pair_of(3, "L11", |h, violating| {
        h.takes(S1, &Input::Peer(link(S3, S1), PeerEvent::Down));
        if !violating {
            h.takes(S1, &Input::Peer(link(S2, S1), PeerEvent::Down));
        }
        leaves(h, S1, &[link(S2, S1)], StepDownReason::Quorum);
    });
}

#[test]
fn l11_only_an_exhausted_epoch_ends_with_a_quorum() {
    check_pair_of(3, "L11", |h, violating| {
        leaves(
            h,
            S1,
            &[link(S2, S1)],
            if violating { StepDownReason::NotEstablished } else { StepDownReason::Epoch },
        );
    });
}

/// A leader whose disk is slow goes, and others go on.
#[test]
fn l8_leader_leads_on_though_its_disk_stores_nothing() {
    check_pair_of(3, "L8", |h, violating| {
        let entry = h.wants("/a");
        h.logs(S1, &entry);
        for follower in [S2, S3] {
            h.gets(follower, S1, &entry);
            h.confirms(follower);
            h.receives(S1, follower, PeerMessage::Learner(FromLearner::Ack { zxid: entry.zxid }));
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
        for round in 1..=10 {
            h.waits(4_000);
            pings(h, S2, round);
            pings(h, S3, round);
            if round == 5 && !violating {
                h.confirms(S1);
            }
        }
    });
}

#[test]
fn l11_leader_hands_over_though_its_disk_stores_everything() {
    check_pair_of(3, "L11", |h, violating| {
        let entry = h.wants("/a");
        h.logs(S1, &entry);
        for follower in [S2, S3] {
            h.gets(follower, S1, &entry);
            h.confirms(follower);
        }
        h.member(S1).committed = entry.zxid;
        h.shows(S1);
        if violating {
            h.confirms(S1);
        }
        h.waits(6_000);
        let links = [S2, S3].map(|follower| link(follower, S1));
        leaves(h, S1, &links, StepDownReason::SlowDisk);
    });
}
