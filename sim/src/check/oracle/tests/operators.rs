//! O1: answers to operators.
//!
//! A name that begins with an id is the violation that must be reported.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::peer::{FromLearner, PeerMessage};
use zabkeeper_core::{
    ConnId, Instant, Mode, PendingReconfig, ServerId, ServerProgress, SessionId, SessionInfo,
    Status, SyncState, WatchSummary, Zxid,
};

use super::history::{History, SERVER, check_pair, check_pair_of, create, create_with};
use crate::check::observe::{Observation, SelfReport};

const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);
const A: ConnId = ConnId(1);
const B: ConnId = ConnId(2);

/// The right answer of the server to an operator: two of its connections watch three paths.
pub(super) fn report(h: &mut History) -> SelfReport {
    let reported = h.member(SERVER).status();
    let followers = h.members.len() - 1;
    let counts = h.model.counts_at(reported.applied);
    let status = Status {
        sessions: counts.sessions,
        nodes: counts.nodes + 1,
        ephemerals: counts.ephemerals,
        data_bytes: counts.bytes,
        watches: 5,
        synced_followers: followers,
        synced_observers: 0,
        learners: followers,
        ..reported
    };
    let server = Some(SERVER);
    let info = |id| SessionInfo { id, timeout_ms: 4_000, expires: Some(Instant(1)), server };
    let watches = [(A, "/a"), (A, "/b"), (B, "/b"), (B, "/c")];
    let watches = Vec::from(watches.map(|(conn, path)| (conn, path.to_owned())));
    let has_all = |server| ServerProgress {
        server,
        votes: true,
        state: SyncState::Synced,
        behind: Some(0),
        lag: Duration::ZERO,
        older: false,
    };
    let progress = h.members.keys().map(|id| has_all(*id)).collect();
    let owners = h.model.owners_at(status.applied);
    SelfReport {
        sessions: h.model.sessions_at(status.applied).into_iter().map(info).collect(),
        local_sessions: Vec::new(),
        unapplied: status.outstanding,
        progress,
        pending_reconfig: None,
        ephemerals: owners.into_iter().map(|(id, paths)| (id, Vec::from_iter(paths))).collect(),
        watched: WatchSummary { connections: 2, paths: 3, watches: 4 },
        by_conn: watches.clone(),
        by_path: watches,
        status,
    }
}

pub(super) fn reports(h: &mut History, report: &SelfReport) {
    let open = BTreeSet::from([A, B]);
    h.sees(Observation::Reported { server: SERVER, report, open: &open });
}

/// A client owns an ephemeral node, and an operator asks the server; `change` is the fault.
fn asks(h: &mut History, violating: bool, change: impl FnOnce(&mut SelfReport)) {
    let a = h.client(0);
    h.writes(a, create("/p"));
    h.writes(a, create_with("/e", "v0", 1));
    let mut reported = report(h);
    if violating {
        change(&mut reported);
    }
    reports(h, &reported);
}

#[test]
fn o1_node_is_not_counted() {
    check_pair("O1", |h, violating| asks(h, violating, |reported| reported.status.nodes -= 1));
}

#[test]
fn o1_too_many_bytes_are_counted() {
    check_pair("O1", |h, violating| asks(h, violating, |reported| reported.status.data_bytes += 2));
}

#[test]
fn o1_session_is_left_out() {
    check_pair("O1", |h, violating| asks(h, violating, |reported| reported.sessions.truncate(0)));
}

#[test]
fn o1_ephemeral_node_has_another_owner() {
    check_pair("O1", |h, violating| {
        asks(h, violating, |reported| reported.ephemerals[0].0 = SessionId(7))
    });
}

#[test]
fn o1_watch_is_listed_by_connection_only() {
    check_pair("O1", |h, violating| asks(h, violating, |reported| drop(reported.by_path.pop())));
}

#[test]
fn o1_watch_of_a_closed_connection_is_listed() {
    check_pair("O1", |h, violating| {
        asks(h, violating, |reported| {
            reported.by_conn[3].0 = ConnId(9);
            reported.by_path[3].0 = ConnId(9);
            reported.watched.connections = 3;
        });
    });
}

#[test]
fn o1_watch_summary_counts_a_path_twice() {
    check_pair("O1", |h, violating| asks(h, violating, |reported| reported.watched.paths = 4));
}

/// SESS-16
#[test]
fn o1_session_is_shown_with_a_wrong_timeout() {
    check_pair("O1", |h, violating| {
        asks(h, violating, |reported| reported.sessions[0].timeout_ms += 1)
    });
}

/// SESS-16. A new leader knows only the timeout that a session was created with, until the server
/// that the client is connected to reports the session (seed 0xff36aa8810fc: the client had sent a
/// connect request to another server, which did not answer).
#[test]
fn o1_new_leader_shows_the_first_timeout_after_a_report() {
    check_pair_of(3, "O1", |h, violating| {
        let a = h.client_of(S3, 0);
        let session = h.session(a);
        h.is_granted(a, 6_000);
        h.dies(SERVER);
        h.returns(SERVER);
        h.begins_leading(SERVER, &[S2, S3]);
        h.waits(10);
        let touched = vec![(session, 6_000)];
        h.sends(
            if violating { S3 } else { S2 },
            SERVER,
            PeerMessage::Learner(FromLearner::Pong {
                round: 1,
                sent: Instant(0),
                echo: Instant(0),
                touched,
                digests: Vec::new(),
            }),
        );
        let mut reported = report(h);
        reported.sessions[0].server = Some(S3);
        reports(h, &reported);
    });
}

#[test]
fn o1_session_is_shown_at_another_server() {
    check_pair("O1", |h, violating| {
        asks(h, violating, |reported| reported.sessions[0].server = Some(ServerId(9)));
    });
}

#[test]
fn o1_leader_shows_a_session_at_no_server() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.sessions[0].server = None)
    });
}

#[test]
fn o1_too_many_learners_are_counted_as_synced() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.status.synced_followers += 1)
    });
}

#[test]
fn o1_learner_is_not_counted() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.status.learners -= 1)
    });
}

#[test]
fn o1_learner_lags_by_another_number_of_transactions() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.progress[1].behind = Some(9))
    });
}

#[test]
fn o1_learner_is_shown_with_the_last_release() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.progress[1].older = true)
    });
}

#[test]
fn o1_learner_is_shown_without_a_link() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.progress[2].state = SyncState::Absent)
    });
}

#[test]
fn o1_reconfiguration_is_shown_that_nobody_has_logged() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| {
            reported.pending_reconfig = Some(PendingReconfig {
                version: Zxid(1),
                waited: Duration::ZERO,
                missing_old: Vec::new(),
                missing_new: Vec::new(),
            });
        });
    });
}

#[test]
fn o1_outstanding_transactions_are_miscounted() {
    check_pair("O1", |h, violating| {
        asks(h, violating, |reported| reported.status.outstanding += 1)
    });
}

#[test]
fn o1_leader_reports_to_be_a_follower() {
    check_pair_of(3, "O1", |h, violating| {
        asks(h, violating, |reported| reported.status.mode = Mode::Follower)
    });
}
