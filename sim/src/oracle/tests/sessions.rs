//! S: sessions, their ids, passwords and ephemeral nodes.

use std::time::Duration;

use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::ConnectResponse;
use zabkeeper_core::{Instant, ServerId, SessionId, WallMs, Zxid};

use super::history::{History, create, create_with, get, password, twins, twins_under};
use crate::model::{Rules, TimeoutBounds};
use crate::observe::Observation;
use crate::oracle::handshake::zookeeper_password;

/// The session ends on the server's own decision, after more than its timeout.
fn expires(h: &mut History, session: SessionId) -> Zxid {
    h.waits(4_200);
    ends(h, session)
}

fn ends(h: &mut History, session: SessionId) -> Zxid {
    let op = TxnOp::CloseSession;
    let txn = Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op };
    h.commits(txn)
}

#[test]
fn hs_08_passwords_are_those_that_java_makes() {
    // new java.util.Random(id ^ 0xB3415C00L).nextBytes(new byte[16])
    for (id, bytes) in [
        (0x1_0000_0001, 0x054c_5a64_3732_14a8_15e7_4d1d_0c73_dfa6_u128),
        (0x0770_1a2b_3c4d_5e6f, 0x72d7_5eb8_13db_5957_f5c8_6648_a876_2869_u128),
    ] {
        assert_eq!(zookeeper_password(SessionId(id)), bytes.to_be_bytes());
    }
}

#[test]
fn s1_a_dead_session_creates() {
    twins("S1", |h, lie| {
        let a = h.client(0);
        h.asks(a, create_with("/e", "v0", 1));
        if lie {
            expires(h, h.session(a));
        }
        h.does(a);
    });
}

#[test]
fn s2_a_server_forgets_a_session() {
    twins("S2", |h, lie| {
        let a = h.client(0);
        let digest = h.model.digest_at(h.tip());
        let sessions = if lie { Vec::new() } else { vec![h.session(a)] };
        h.ends_with(digest, sessions);
    });
}

#[test]
fn s2_a_living_session_is_refused() {
    twins("S2", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        if !lie {
            expires(h, session);
        }
        h.refuses(b);
    });
}

#[test]
fn s3_a_session_expires_although_it_was_heard() {
    twins("S3", |h, lie| {
        let a = h.client(0);
        h.waits(2_000);
        h.reads(a, get("/"));
        h.waits(if lie { 3_000 } else { 4_000 });
        ends(h, h.session(a));
    });
}

#[test]
fn s3_a_new_leader_gives_no_full_timeout() {
    twins("S3", |h, lie| {
        let a = h.client(0);
        h.closes(a);
        h.waits(3_000);
        h.restarts(h.tip());
        h.waits(if lie { 3_000 } else { 4_000 });
        ends(h, h.session(a));
    });
}

#[test]
fn s3_sess_16_a_session_goes_by_the_timeout_of_before() {
    twins("S3", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        let password = password(session);
        let longer = ConnectResponse { timeout_ms: 8_000, session, password, read_only: None };
        h.welcomes_as(b, longer);
        h.waits(if lie { 5_000 } else { 8_000 });
        ends(h, session);
    });
}

fn timeouts_of_400_to_4000_ms() -> Rules {
    let tick = Duration::from_millis(200);
    let timeouts = TimeoutBounds { usual_ms: (400, 4_000), ..TimeoutBounds::default() };
    Rules { tick, timeouts, ..Rules::default() }
}

#[test]
fn s3_a_leader_that_stood_still_gives_nobody_time() {
    twins_under(&timeouts_of_400_to_4000_ms(), "S3", |h, lie| {
        let a = h.client(0);
        h.waits(10);
        h.sees(Observation::StandsStill { server: ServerId(1), until: Instant(7_000_000_000) });
        h.waits(7_000 + if lie { 500 } else { 4_000 });
        ends(h, h.session(a));
    });
}

#[test]
fn s6_hs_06_a_server_grants_more_than_it_may() {
    twins_under(&timeouts_of_400_to_4000_ms(), "S6", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        let (timeout_ms, password) = (if lie { 4_200 } else { 4_000 }, password(session));
        h.welcomes_as(b, ConnectResponse { timeout_ms, session, password, read_only: None });
    });
}

#[test]
fn s6_a_session_that_nobody_asked_for() {
    twins("S6", |h, lie| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let mut txn = h.session_txn(a, SessionId(0x77));
        if lie {
            txn.origin = None;
        }
        h.commits(txn);
    });
}

#[test]
fn s4_an_id_is_used_twice() {
    twins("S4", |h, lie| {
        let a = h.client(0);
        let b = h.greets(1, SessionId(0), Zxid::ZERO);
        let id = if lie { h.session(a) } else { SessionId(0x77) };
        let txn = h.session_txn(b, id);
        h.commits(txn);
        h.welcomes(b, id);
    });
}

#[test]
fn s4_a_wrong_password_is_accepted() {
    twins("S4", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        let b = h.greets_with(1, session, Zxid::ZERO, &[7; 16]);
        if lie {
            h.welcomes(b, session);
        } else {
            h.refuses(b);
        }
    });
}

#[test]
fn s4_a_wrong_password_is_given() {
    twins("S4", |h, lie| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(a, session);
        h.commits(txn);
        h.welcomes(a, session);
        h.closes(a);
        let a = h.greets(0, session, Zxid::ZERO);
        let mut password = password(session);
        password[3] ^= u8::from(lie);
        let read_only = None;
        h.welcomes_as(a, ConnectResponse { timeout_ms: 4_000, session, password, read_only });
    });
}

#[test]
fn s4_a_password_follows_from_the_id() {
    twins("S4", |h, lie| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(a, session);
        h.commits(txn);
        let (timeout_ms, read_only) = (4_000, None);
        let password = if lie { zookeeper_password(session) } else { password(session) };
        h.welcomes_as(a, ConnectResponse { timeout_ms, session, password, read_only });
    });
}

#[test]
fn s4_two_sessions_have_one_password() {
    twins("S4", |h, lie| {
        let a = h.client(0);
        let b = h.greets(1, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(b, session);
        h.commits(txn);
        let (timeout_ms, read_only) = (4_000, None);
        let password = password(if lie { h.session(a) } else { session });
        h.welcomes_as(b, ConnectResponse { timeout_ms, session, password, read_only });
    });
}

#[test]
fn s5_the_old_connection_of_a_moved_session_writes() {
    twins("S5", |h, lie| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        // What was under way when the connection broke arrives after the session has moved.
        h.closes(a);
        let b = h.greets(0, h.session(a), Zxid::ZERO);
        if !lie {
            h.does(a);
        }
        h.welcomes(b, h.session(a));
        if lie {
            h.does(a);
        }
    });
}

#[test]
fn s6_a_new_session_instead_of_the_expired_one() {
    twins("S6", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        expires(h, session);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        if lie {
            h.welcomes(b, SessionId(0x77));
        } else {
            h.refuses(b);
        }
    });
}

#[test]
fn s6_an_expired_session_goes_on() {
    twins("S6", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        if lie {
            expires(h, session);
        }
        let b = h.greets(0, session, Zxid::ZERO);
        h.welcomes(b, session);
    });
}

#[test]
fn s6_answered_before_the_session_is_committed() {
    twins("S6", |h, lie| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        if !lie {
            let txn = h.session_txn(a, session);
            h.commits(txn);
        }
        h.welcomes(a, session);
    });
}

#[test]
fn c12_a_server_says_that_it_is_read_only() {
    twins("C12", |h, lie| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let a = h.greets(0, session, h.tip());
        let password = password(session);
        let read_only = lie.then_some(true);
        let response = ConnectResponse { timeout_ms: 4_000, session, password, read_only };
        h.welcomes_as(a, response);
    });
}

/// Somebody else goes on with a session, and what its client has seen binds nobody to that.
#[test]
fn a_session_has_two_clients_and_neither_knows_of_the_other() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    let (session, seen) = (h.session(a), h.tip());
    h.writes(b, create("/x"));
    h.reads(a, get("/x"));
    let twin = h.greets(7, session, seen);
    h.welcomes(twin, session);
    h.asks(twin, get("/"));
    h.answers_at(twin, seen, |_| {});
    h.closes(a);
    let a = h.greets(0, session, h.tip());
    h.welcomes(a, session);
    h.closes(twin);
    h.reads(a, get("/x"));
    h.passes();
}
