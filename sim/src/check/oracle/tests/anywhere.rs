//! Clients that move between servers: oracles C, S, W and T1 with followers and changes of leader.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::EventType::NodeDataChanged;
use zabkeeper_core::wire::{Request, SetWatches};
use zabkeeper_core::{Instant, ServerId, SessionId, WallMs, Zxid};

use super::cast::link;
use super::history::{History, check_pair_of, create, create_with, get, set, watch_data};
use crate::check::observe::{Holder, Observation};

const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);

fn sync() -> Request {
    Request::Sync { path: "/".into() }
}

/// The transaction by which a leader expires a session.
fn expiry(h: &History, session: SessionId) -> Txn {
    let op = TxnOp::CloseSession;
    Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op }
}

fn expires(h: &mut History, session: SessionId) {
    let txn = expiry(h, session);
    h.commits(txn);
}

/// A client disconnects and leaves its session behind.
fn leaves(h: &mut History) -> SessionId {
    let a = h.client(0);
    let session = h.session(a);
    h.closes(a);
    session
}

/// A follower reports sessions to its leader in a pong.
fn pongs(h: &mut History, id: ServerId, touched: &[SessionId]) {
    let pong = PeerMessage::Learner(FromLearner::Pong {
        sent: Instant(0),
        echo: Instant(0),
        round: 1,
        touched: touched.iter().map(|session| (*session, 1_000)).collect(),
        digests: Vec::new(),
    });
    h.puts(id, &[], &[PeerCommand::Send(link(id, S1), pong.clone())]);
    h.receives(S1, id, pong);
}

#[test]
fn follower_may_answer_with_an_older_state() {
    let mut h = History::of(3);
    let (a, b) = (h.client(0), h.client_of(S2, 1));
    let before = h.tip();
    h.writes(a, create("/a"));
    h.asks(b, get("/a"));
    h.answers_at(b, before, |_| {});
    h.asks(b, sync());
    h.follows(S2);
    h.answers(b);
    h.reads(b, get("/a"));
    h.passes();
}

#[test]
fn c5_followers_sync_reply_shows_an_older_state() {
    check_pair_of(3, "C5", |h, violating| {
        let (a, b) = (h.client(0), h.client_of(S2, 1));
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.asks(b, sync());
        h.follows(S2);
        h.answers_at(b, if violating { before } else { zxid }, |_| {});
    });
}

#[test]
fn c3_read_goes_back_on_another_server() {
    check_pair_of(3, "C3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.reads(b, get("/a"));
        h.follows(S2);
        let b = h.moves_without_memory(b, S2);
        h.asks(b, get("/a"));
        h.answers_at(b, if violating { before } else { zxid }, |_| {});
    });
}

#[test]
fn c4_session_misses_its_own_write_on_a_follower() {
    check_pair_of(3, "C4", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.follows(S2);
        let a = h.moves_without_memory(a, S2);
        h.asks(a, get("/a"));
        h.answers_at(a, if violating { before } else { zxid }, |_| {});
    });
}

#[test]
fn c6_follower_that_is_behind_accepts_a_client() {
    check_pair_of(3, "C6", |h, violating| {
        let a = h.client(0);
        h.follows(S2);
        h.writes(a, create("/a"));
        if !violating {
            h.follows(S2);
        }
        h.moves(a, S2);
    });
}

#[test]
fn c8_next_leader_executes_a_write_again() {
    check_pair_of(3, "C8", |h, violating| {
        let a = h.client_of(S3, 0);
        h.asks(a, set("/", "once"));
        let mut txn = h.decides(a);
        h.commits(txn.clone());
        h.dies(S1);
        h.begins_leading(S2, &[S3]);
        if violating {
            txn.zxid = h.next_zxid();
            h.commits(txn);
        }
        h.follows(S3);
        h.answers(a);
    });
}

#[test]
fn next_leader_may_execute_a_write_that_was_never_committed() {
    let mut h = History::of(3);
    let a = h.client_of(S3, 0);
    h.asks(a, set("/", "once"));
    let lost = h.decides(a).encode();
    h.logs(S1, &lost);
    h.dies(S1);
    h.begins_leading(S2, &[S3]);
    h.undoes(a);
    h.does(a);
    h.follows(S3);
    h.answers(a);
    h.passes();
}

#[test]
fn w2_watch_is_lost_between_two_servers() {
    check_pair_of(3, "W2", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let relative_zxid = Some(h.tip());
        h.writes(b, set("/", "v1"));
        h.follows(S2);
        let a = h.moves(a, S2);
        let data = vec!["/".to_owned()];
        h.asks(a, Request::SetWatches(SetWatches { relative_zxid, data, ..SetWatches::default() }));
        if !violating {
            h.notifies_without_zxid(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w3_follower_shows_a_change_before_its_event() {
    check_pair_of(3, "W3", |h, violating| {
        let (a, b) = (h.client_of(S2, 0), h.client(1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        h.follows(S2);
        if !violating {
            h.notifies(a, NodeDataChanged, "/", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w1_watch_fires_again_after_a_leader_change() {
    check_pair_of(3, "W1", |h, violating| {
        let (a, b) = (h.client_of(S2, 0), h.client_of(S3, 1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        h.follows(S2);
        h.notifies(a, NodeDataChanged, "/", zxid);
        h.dies(S1);
        h.begins_leading(S2, &[S3]);
        let zxid = h.writes(b, set("/", "v2"));
        if violating {
            h.notifies(a, NodeDataChanged, "/", zxid);
        }
    });
}

#[test]
fn s3_follower_does_not_report_a_session_that_it_answered() {
    check_pair_of(3, "S3", |h, violating| {
        let a = h.client_of(S2, 0);
        h.waits(2_000);
        h.reads(a, get("/"));
        let touched = [h.session(a)];
        pongs(h, S2, if violating { &[] } else { &touched });
    });
}

#[test]
fn s3_follower_that_reads_no_clients_does_not_report_them() {
    check_pair_of(3, "S3", |h, violating| {
        let a = h.client_of(S2, 0);
        let touched = [h.session(a)];
        h.receives(
            S2,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
        h.sees(Observation::Unread { server: S2, open: &[a] });
        pongs(h, S2, if violating { &[] } else { &touched });
    });
}

#[test]
fn s3_leader_ignores_the_report_of_its_follower() {
    check_pair_of(3, "S3", |h, violating| {
        let a = h.client_of(S2, 0);
        let session = h.session(a);
        pongs(h, S2, &[session]);
        h.waits(3_000);
        h.reads(a, get("/"));
        pongs(h, S2, &[session]);
        h.waits(if violating { 2_000 } else { 4_000 });
        expires(h, session);
    });
}

#[test]
fn s3_new_leader_of_three_expires_before_a_full_timeout() {
    check_pair_of(3, "S3", |h, violating| {
        let a = h.client_of(S3, 0);
        let session = h.session(a);
        h.waits(3_000);
        h.dies(S1);
        h.begins_leading(S2, &[S3]);
        h.waits(if violating { 2_000 } else { 4_000 });
        expires(h, session);
    });
}

#[test]
fn s5_old_connection_of_a_moved_session_shows_a_later_state() {
    check_pair_of(3, "S5", |h, violating| {
        let a = h.client_of(S2, 0);
        let (session, before) = (h.session(a), h.tip());
        let conn = h.greets_at(S3, 0, session, Zxid::ZERO);
        let origin = Some(Origin { server: S3, conn, request: 0 });
        let op = TxnOp::MoveSession { server: S3 };
        let moved = h.commits(Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin, op });
        h.asks(a, get("/"));
        h.follows(S2);
        h.answers_at(a, if violating { moved } else { before }, |_| {});
    });
}

#[test]
fn s6_follower_accepts_a_session_whose_end_it_has_not_applied() {
    check_pair_of(3, "S6", |h, violating| {
        let session = leaves(h);
        h.follows(S2);
        h.waits(4_200);
        let early = h.greets_at(S2, 0, session, Zxid::ZERO);
        expires(h, session);
        let late = h.greets_at(S2, 0, session, Zxid::ZERO);
        h.welcomes(if violating { late } else { early }, session);
    });
}

#[test]
fn s6_session_is_accepted_after_its_end_was_proposed() {
    check_pair_of(3, "S6", |h, violating| {
        let session = leaves(h);
        h.waits(4_200);
        let early = h.greets_at(S2, 0, session, Zxid::ZERO);
        let end = expiry(h, session);
        h.proposes(&end.encode());
        let late = h.greets_at(S2, 0, session, Zxid::ZERO);
        h.welcomes(if violating { late } else { early }, session);
        h.settles(end.zxid);
    });
}

#[test]
fn s7_session_without_a_client_never_expires() {
    check_pair_of(3, "S7", |h, violating| {
        let session = leaves(h);
        h.waits(20_000);
        h.receives(
            S2,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
        h.receives(
            S3,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
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
        if !violating {
            expires(h, session);
        }
        h.ends();
    });
}

#[test]
fn s7_unanswered_handshake_may_have_changed_the_timeout() {
    check_pair_of(3, "S7", |h, violating| {
        let session = leaves(h);
        h.greets_in_vain(session, if violating { 4_000 } else { 30_000 });
        h.waits(20_000);
        h.ends();
    });
}

#[test]
fn s7_pause_of_the_leader_extends_the_timeout() {
    check_pair_of(3, "S7", |h, violating| {
        leaves(h);
        // The pause ends before, or after, the leader last touched the session.
        let pause_ms = if violating { 10 } else { 19_000 };
        h.sees(Observation::StandsStill { server: S1, until: Instant(pause_ms * 1_000_000) });
        h.waits(20_000);
        h.ends();
    });
}

#[test]
fn t1_ephemeral_of_an_earlier_epoch_outlives_its_session() {
    check_pair_of(3, "T1", |h, violating| {
        let a = h.client_of(S3, 0);
        let session = h.session(a);
        let without = h.model.digest_at(h.tip());
        let zxid = h.writes(a, create_with("/e", "v0", 1));
        let ephemeral = h.model.digest_at(zxid).wrapping_sub(without);
        h.follows(S3);
        h.dies(S1);
        h.begins_leading(S2, &[S3]);
        h.waits(4_200);
        let op = TxnOp::CloseSession;
        let txn = Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op };
        h.follows(S3);
        let zxid = h.commits(txn);
        let left = if violating { ephemeral } else { 0 };
        h.sends(S2, S3, PeerMessage::Leader(FromLeader::Commit { zxid }));
        h.member(S3).committed = zxid;
        h.shows(S3);
        let digest = Some(h.model.digest_at(zxid).wrapping_add(left));
        h.sees(Observation::Applied { server: S3, zxid, digest, holder: Holder(None) });
    });
}

#[test]
fn t1_follower_holds_another_tree() {
    check_pair_of(3, "T1", |h, violating| {
        let a = h.client(0);
        h.follows(S2);
        let zxid = h.writes(a, create("/a"));
        let digest = Some(h.model.digest_at(zxid) ^ u64::from(violating));
        h.sends(S1, S2, PeerMessage::Leader(FromLeader::Commit { zxid }));
        h.member(S2).committed = zxid;
        h.shows(S2);
        h.sees(Observation::Applied { server: S2, zxid, digest, holder: Holder(None) });
    });
}
