//! Servers that an epoch leaves out (Z26), messages on replaced links (Z23), initial histories
//! (Z27), confirmations of a leader (C5), and the number of notifications (L14).
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::io::{PeerCommand, PeerEvent};
use zabkeeper_core::peer::{FromLeader, FromLearner, Notification, PeerMessage, ServerState, Vote};
use zabkeeper_core::{
    ConnId, Epoch, HistoryInfo, HistoryStatus, Input, Instant, LinkCloseReason, LinkId, ServerId,
    Zxid,
};

use super::cast::link;
use super::ensembles::only_the_leader_logs;
use super::history::{History, check_pair_of};

const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);

/// A server looks for a leader, and sends its notification.
pub(super) fn looks(h: &mut History, id: ServerId) {
    h.looks(id);
    let vote = h.own_vote(id);
    h.votes(id, vote, HistoryStatus::Complete);
}

/// The server `id` gets a notification of `from` with a vote for server 1.
pub(super) fn receives_from(
    h: &mut History,
    id: ServerId,
    from: ServerId,
    server_state: ServerState,
    round: u64,
) {
    let vote = Vote { epoch: Epoch(1), zxid: Zxid::ZERO, candidate: S1 };
    let history = HistoryInfo::new(HistoryStatus::Complete, Epoch(1));
    let notification = Notification { server_state, round, vote, history, ensemble: 0 };
    h.takes(id, &Input::Election(from, notification));
    h.shows(id);
}

/// L14. A sender that is behind may get an answer each time.
#[test]
fn l14_server_repeats_a_notification_too_often() {
    check_pair_of(3, "L14", |h, violating| {
        let vote = h.own_vote(S3);
        for _ in 0..200 {
            if !violating {
                let less = Vote { epoch: Epoch(0), zxid: Zxid::ZERO, candidate: S1 };
                let (server_state, history) =
                    (ServerState::Looking, HistoryInfo::new(HistoryStatus::Complete, Epoch(0)));
                let notification =
                    Notification { server_state, round: 1, vote: less, history, ensemble: 0 };
                h.takes(S3, &Input::Election(ServerId(9), notification));
            }
            h.looks(S3);
            h.votes(S3, vote, HistoryStatus::Complete);
        }
    });
}

/// The rounds of the notifications may differ.
#[test]
fn z26_looking_server_does_not_join_an_established_leader() {
    check_pair_of(3, "Z26", |h, violating| {
        looks(h, S3);
        receives_from(h, S3, S2, ServerState::Following, 1);
        receives_from(h, S3, S1, ServerState::Leading, 7);
        h.waits(1_100);
        if violating { looks(h, S3) } else { h.turns_to(S3, S1) }
    });
}

/// A server without room for a leader's snapshot may stay away from the leader, but not for longer
/// than that.
#[test]
fn z26_server_without_room_stays_away_too_long() {
    check_pair_of(3, "Z26", |h, violating| {
        let close =
            PeerCommand::Close(link(S3, S1), LinkCloseReason::NoRoom("disk full".to_owned()));
        h.looks(S3);
        h.puts(S3, &[], &[close]);
        let vote = h.own_vote(S3);
        h.votes(S3, vote, HistoryStatus::Complete);
        receives_from(h, S3, S2, ServerState::Following, 1);
        receives_from(h, S3, S1, ServerState::Leading, 7);
        h.waits(if violating { 33_000 } else { 15_000 });
        h.shows(S3);
    });
}

/// The candidate itself must report that it leads.
#[test]
fn z26_leader_counts_only_if_it_reports_to_lead() {
    check_pair_of(3, "Z26", |h, violating| {
        looks(h, S3);
        receives_from(h, S3, S2, ServerState::Following, 1);
        receives_from(
            h,
            S3,
            S1,
            if violating { ServerState::Leading } else { ServerState::Looking },
            1,
        );
        h.waits(1_100);
        looks(h, S3);
    });
}

#[test]
fn z26_leader_goes_on_after_a_later_promise() {
    check_pair_of(3, "Z26", |h, violating| {
        let accepted = h.member(S1).state.accepted_epoch.next().expect("room");
        let history = HistoryInfo::new(HistoryStatus::Complete, Epoch(1));
        h.receives_on(
            S1,
            link(S3, S1),
            PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
        if !violating {
            looks(h, S1);
        }
        h.waits(1_100);
        h.shows(S1);
    });
}

/// The LEADERINFO by which a leader turns a learner away names an epoch, and proposes none (seed
/// 0x5e5889f90014 at 5e5889f).
#[test]
fn z26_leader_that_turned_a_learner_away_counts_as_leader_of_the_named_epoch() {
    check_pair_of(3, "Z26", |h, violating| {
        h.looks(S1);
        h.rises(S1);
        let [away, comes] = [LinkId(998), LinkId(999)];
        h.is_linked(S1, away, S2, false);
        h.is_linked(S1, comes, S3, false);
        let epoch = h.member(S1).state.accepted_epoch;
        let info = FromLeader::LeaderInfo { epoch, empty: false, ensemble: 0, blank: false };
        let mut commands = vec![PeerCommand::Send(away, PeerMessage::Leader(info))];
        if !violating {
            commands.push(PeerCommand::Close(away, LinkCloseReason::Unwanted));
        }
        h.puts(S1, &[], &commands);
        let accepted = epoch.next().expect("room");
        let history = HistoryInfo::new(HistoryStatus::Complete, Epoch(1));
        h.receives_on(
            S1,
            comes,
            PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
        h.waits(1_100);
        h.shows(S1);
    });
}

/// A message on the older link may arrive after one on the newer link, and does not replace the
/// newer link (seed 0x210000000075). A newer link that is down no longer replaces an older one (a
/// fork of seed 0x220000000201).
#[test]
fn z23_leader_proposes_for_a_replaced_link() {
    check_pair_of(3, "Z23", |h, violating| {
        let entry = h.wants("/a");
        let (older, newer) = (LinkId(998), LinkId(999));
        for link in [older, newer] {
            h.is_linked(S1, link, S2, false);
        }
        let (first, second) = if violating { (older, newer) } else { (newer, older) };
        let accepted = h.member(S2).state.accepted_epoch;
        let history = HistoryInfo::new(HistoryStatus::Complete, accepted);
        h.receives_on(
            S1,
            first,
            PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
        h.receives_on(
            S1,
            second,
            PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
        );
        if !violating {
            let newest = LinkId(1_000);
            h.is_linked(S1, newest, S2, false);
            h.receives_on(
                S1,
                newest,
                PeerMessage::Learner(FromLearner::FollowerInfo { accepted, history, ensemble: 0 }),
            );
            h.takes(S1, &Input::Peer(newest, PeerEvent::Down));
        }
        h.receives_on(
            S1,
            first,
            PeerMessage::Learner(FromLearner::Pong {
                round: 1,
                sent: Instant(0),
                echo: Instant(0),
                touched: Vec::new(),
                digests: Vec::new(),
            }),
        );
        h.logs(S1, &entry);
    });
}

#[test]
fn z27_leader_begins_with_a_worse_history_than_a_promisers() {
    check_pair_of(3, "Z27", |h, violating| {
        let entry = only_the_leader_logs(h);
        if !violating {
            h.gets(S2, S1, &entry);
            h.confirms(S2);
        }
        let epoch = h.member(S1).state.accepted_epoch.next().expect("room");
        h.looks(S1);
        h.rises(S2);
        h.turns_to(S1, S2);
        h.promises(S1, S2, epoch);
        h.promises_itself(S2, epoch);
        h.begins(S2, epoch);
        h.is_synced_with(S1, S2, epoch);
    });
}

#[test]
fn c5_answer_to_a_ping_before_the_sync_confirms_it() {
    check_pair_of(3, "C5", |h, violating| {
        let (conn, request) = (ConnId(7), 1);
        let asks = |h: &mut History| {
            h.sends(S2, S1, PeerMessage::Learner(FromLearner::Sync { conn, request }))
        };
        if !violating {
            asks(h);
        }
        h.sends(
            S1,
            S2,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
        if violating {
            asks(h);
        }
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
        h.whispers(S1, S2, PeerMessage::Leader(FromLeader::Synced { conn, request }));
    });
}
