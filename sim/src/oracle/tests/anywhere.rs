//! Clients that go from server to server: C, S and W where followers answer, and where leaders change.

use zabkeeper_core::io::PeerCommand;
use zabkeeper_core::peer::{FromLeader, FromLearner, PeerMessage};
use zabkeeper_core::txn::{Origin, Txn, TxnOp};
use zabkeeper_core::wire::EventType::NodeDataChanged;
use zabkeeper_core::wire::{Request, SetWatches};
use zabkeeper_core::{Instant, ServerId, SessionId, WallMs, Zxid};

use super::cast::link;
use super::history::{History, create, create_with, get, set, twins_of, watch_data};
use crate::observe::{Holder, Observation};

const S1: ServerId = ServerId(1);
const S2: ServerId = ServerId(2);
const S3: ServerId = ServerId(3);

fn sync() -> Request {
    Request::Sync { path: "/".into() }
}

/// The transaction by which a leader ends a session.
fn expiry(h: &History, session: SessionId) -> Txn {
    let op = TxnOp::CloseSession;
    Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op }
}

fn expires(h: &mut History, session: SessionId) {
    let txn = expiry(h, session);
    h.commits(txn);
}

/// A client goes, and leaves its session behind.
fn leaves(h: &mut History) -> SessionId {
    let a = h.client(0);
    let session = h.session(a);
    h.closes(a);
    session
}

/// A follower tells its leader of sessions.
fn pongs(h: &mut History, id: ServerId, touched: &[SessionId]) {
    let pong = PeerMessage::Learner(FromLearner::Pong {
        sent: Instant(0),
        echo: Instant(0),
        round: 1,
        touched: touched.iter().map(|session| (*session, 1_000)).collect(),
        digests: Vec::new(),
    });
    h.puts(id, &[], &[PeerCommand::Send(link(id, S1), pong.clone())]);
    h.hears(S1, id, pong);
}

#[test]
fn a_follower_may_answer_from_the_past() {
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
fn c5_a_followers_sync_does_not_wait() {
    twins_of(3, "C5", |h, lie| {
        let (a, b) = (h.client(0), h.client_of(S2, 1));
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.asks(b, sync());
        h.follows(S2);
        h.answers_at(b, if lie { before } else { zxid }, |_| {});
    });
}

#[test]
fn c3_a_read_goes_back_on_the_next_server() {
    twins_of(3, "C3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.reads(b, get("/a"));
        h.follows(S2);
        let b = h.moves_without_memory(b, S2);
        h.asks(b, get("/a"));
        h.answers_at(b, if lie { before } else { zxid }, |_| {});
    });
}

#[test]
fn c4_a_session_misses_its_own_write_on_a_follower() {
    twins_of(3, "C4", |h, lie| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.follows(S2);
        let a = h.moves_without_memory(a, S2);
        h.asks(a, get("/a"));
        h.answers_at(a, if lie { before } else { zxid }, |_| {});
    });
}

#[test]
fn c6_a_follower_that_is_behind_takes_a_client() {
    twins_of(3, "C6", |h, lie| {
        let a = h.client(0);
        h.follows(S2);
        h.writes(a, create("/a"));
        if !lie {
            h.follows(S2);
        }
        h.moves(a, S2);
    });
}

#[test]
fn c8_a_write_is_done_again_by_the_next_leader() {
    twins_of(3, "C8", |h, lie| {
        let a = h.client_of(S3, 0);
        h.asks(a, set("/", "once"));
        let mut txn = h.decides(a);
        h.commits(txn.clone());
        h.dies(S1);
        h.reign(S2, &[S3]);
        if lie {
            txn.zxid = h.next_zxid();
            h.commits(txn);
        }
        h.follows(S3);
        h.answers(a);
    });
}

#[test]
fn a_write_that_its_leader_took_along_is_done_by_the_next_one() {
    let mut h = History::of(3);
    let a = h.client_of(S3, 0);
    h.asks(a, set("/", "once"));
    let lost = h.decides(a).encode();
    h.logs(S1, &lost);
    h.dies(S1);
    h.reign(S2, &[S3]);
    h.undoes(a);
    h.does(a);
    h.follows(S3);
    h.answers(a);
    h.passes();
}

#[test]
fn w2_a_watch_is_lost_between_two_servers() {
    twins_of(3, "W2", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let relative_zxid = Some(h.tip());
        h.writes(b, set("/", "v1"));
        h.follows(S2);
        let a = h.moves(a, S2);
        let data = vec!["/".to_owned()];
        h.asks(a, Request::SetWatches(SetWatches { relative_zxid, data, ..SetWatches::default() }));
        if !lie {
            h.retells(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w3_a_follower_shows_a_change_before_its_event() {
    twins_of(3, "W3", |h, lie| {
        let (a, b) = (h.client_of(S2, 0), h.client(1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        h.follows(S2);
        if !lie {
            h.tells(a, NodeDataChanged, "/", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w1_a_watch_fires_again_after_a_change_of_leaders() {
    twins_of(3, "W1", |h, lie| {
        let (a, b) = (h.client_of(S2, 0), h.client_of(S3, 1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        h.follows(S2);
        h.tells(a, NodeDataChanged, "/", zxid);
        h.dies(S1);
        h.reign(S2, &[S3]);
        let zxid = h.writes(b, set("/", "v2"));
        if lie {
            h.tells(a, NodeDataChanged, "/", zxid);
        }
    });
}

#[test]
fn s3_a_follower_keeps_a_session_to_itself() {
    twins_of(3, "S3", |h, lie| {
        let a = h.client_of(S2, 0);
        h.waits(2_000);
        h.reads(a, get("/"));
        let touched = [h.session(a)];
        pongs(h, S2, if lie { &[] } else { &touched });
    });
}

#[test]
fn s3_a_follower_that_reads_nobody_does_not_vouch_for_its_clients() {
    twins_of(3, "S3", |h, lie| {
        let a = h.client_of(S2, 0);
        let touched = [h.session(a)];
        h.hears(
            S2,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
        h.sees(Observation::Unread { server: S2, open: &[a] });
        pongs(h, S2, if lie { &[] } else { &touched });
    });
}

#[test]
fn s3_a_leader_does_not_listen_to_its_follower() {
    twins_of(3, "S3", |h, lie| {
        let a = h.client_of(S2, 0);
        let session = h.session(a);
        pongs(h, S2, &[session]);
        h.waits(3_000);
        h.reads(a, get("/"));
        pongs(h, S2, &[session]);
        h.waits(if lie { 2_000 } else { 4_000 });
        expires(h, session);
    });
}

#[test]
fn s3_a_new_leader_of_three_gives_no_full_timeout() {
    twins_of(3, "S3", |h, lie| {
        let a = h.client_of(S3, 0);
        let session = h.session(a);
        h.waits(3_000);
        h.dies(S1);
        h.reign(S2, &[S3]);
        h.waits(if lie { 2_000 } else { 4_000 });
        expires(h, session);
    });
}

#[test]
fn s5_the_old_connection_of_a_moved_session_shows_what_came_later() {
    twins_of(3, "S5", |h, lie| {
        let a = h.client_of(S2, 0);
        let (session, before) = (h.session(a), h.tip());
        let conn = h.greets_at(S3, 0, session, Zxid::ZERO);
        let origin = Some(Origin { server: S3, conn, request: 0 });
        let op = TxnOp::MoveSession { server: S3 };
        let moved = h.commits(Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin, op });
        h.asks(a, get("/"));
        h.follows(S2);
        h.answers_at(a, if lie { moved } else { before }, |_| {});
    });
}

#[test]
fn s6_a_follower_that_does_not_know_the_end_of_a_session_lets_it_go_on() {
    twins_of(3, "S6", |h, lie| {
        let session = leaves(h);
        h.follows(S2);
        h.waits(4_200);
        let early = h.greets_at(S2, 0, session, Zxid::ZERO);
        expires(h, session);
        let late = h.greets_at(S2, 0, session, Zxid::ZERO);
        h.welcomes(if lie { late } else { early }, session);
    });
}

#[test]
fn s6_a_session_whose_end_is_proposed_goes_on() {
    twins_of(3, "S6", |h, lie| {
        let session = leaves(h);
        h.waits(4_200);
        let early = h.greets_at(S2, 0, session, Zxid::ZERO);
        let end = expiry(h, session);
        h.proposes(&end.encode());
        let late = h.greets_at(S2, 0, session, Zxid::ZERO);
        h.welcomes(if lie { late } else { early }, session);
        h.settles(end.zxid);
    });
}

#[test]
fn s7_a_session_that_nobody_holds_goes_on_for_ever() {
    twins_of(3, "S7", |h, lie| {
        let session = leaves(h);
        h.waits(20_000);
        h.hears(
            S2,
            S1,
            PeerMessage::Leader(FromLeader::Ping { round: 1, sent: Instant(0), echo: Instant(0) }),
        );
        h.hears(
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
        if !lie {
            expires(h, session);
        }
        h.ends();
    });
}

#[test]
fn s7_a_handshake_that_nobody_has_answered_may_have_changed_the_timeout() {
    twins_of(3, "S7", |h, lie| {
        let session = leaves(h);
        h.greets_in_vain(session, if lie { 4_000 } else { 30_000 });
        h.waits(20_000);
        h.ends();
    });
}

#[test]
fn s7_a_leader_that_stood_still_has_heard_nobody() {
    twins_of(3, "S7", |h, lie| {
        leaves(h);
        // Sooner or later than it was heard of last.
        let pause_ms = if lie { 10 } else { 19_000 };
        h.sees(Observation::StandsStill { server: S1, until: Instant(pause_ms * 1_000_000) });
        h.waits(20_000);
        h.ends();
    });
}

#[test]
fn t1_an_ephemeral_of_the_last_reign_outlives_its_session() {
    twins_of(3, "T1", |h, lie| {
        let a = h.client_of(S3, 0);
        let session = h.session(a);
        let without = h.model.digest_at(h.tip());
        let zxid = h.writes(a, create_with("/e", "v0", 1));
        let ephemeral = h.model.digest_at(zxid).wrapping_sub(without);
        h.follows(S3);
        h.dies(S1);
        h.reign(S2, &[S3]);
        h.waits(4_200);
        let op = TxnOp::CloseSession;
        let txn = Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op };
        h.follows(S3);
        let zxid = h.commits(txn);
        let left = if lie { ephemeral } else { 0 };
        h.sends(S2, S3, PeerMessage::Leader(FromLeader::Commit { zxid }));
        h.member(S3).committed = zxid;
        h.shows(S3);
        let digest = Some(h.model.digest_at(zxid).wrapping_add(left));
        h.sees(Observation::Applied { server: S3, zxid, digest, holder: Holder(None) });
    });
}

#[test]
fn t1_a_follower_holds_another_tree() {
    twins_of(3, "T1", |h, lie| {
        let a = h.client(0);
        h.follows(S2);
        let zxid = h.writes(a, create("/a"));
        let digest = Some(h.model.digest_at(zxid) ^ u64::from(lie));
        h.sends(S1, S2, PeerMessage::Leader(FromLeader::Commit { zxid }));
        h.member(S2).committed = zxid;
        h.shows(S2);
        h.sees(Observation::Applied { server: S2, zxid, digest, holder: Holder(None) });
    });
}
