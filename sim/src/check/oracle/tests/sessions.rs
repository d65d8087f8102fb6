//! S and C12: sessions, their ids, passwords and ephemeral nodes.
//!
//! A name that begins with an id is the violation that must be reported.

use std::time::Duration;

use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::ConnectResponse;
use zabkeeper_core::{Instant, ServerId, SessionId, WallMs, Zxid};

use super::history::{History, check_pair, check_pair_under, create, create_with, get, password};
use crate::check::model::{Rules, TimeoutBounds};
use crate::check::observe::Observation;
use crate::check::oracle::handshake::zookeeper_password;

/// The server expires the session after more than its timeout.
fn expires(h: &mut History, session: SessionId) -> Zxid {
    h.waits(4_200);
    ends(h, session)
}

fn ends(h: &mut History, session: SessionId) -> Zxid {
    let op = TxnOp::CloseSession;
    let txn = Txn { zxid: h.next_zxid(), session, time: WallMs(9), origin: None, op };
    h.commits(txn)
}

/// HS-08
#[test]
fn zookeeper_passwords_match_java() {
    // `new java.util.Random(id ^ 0xB3415C00L).nextBytes(new byte[16])`
    for (id, bytes) in [
        (0x1_0000_0001, 0x054c_5a64_3732_14a8_15e7_4d1d_0c73_dfa6_u128),
        (0x0770_1a2b_3c4d_5e6f, 0x72d7_5eb8_13db_5957_f5c8_6648_a876_2869_u128),
    ] {
        assert_eq!(zookeeper_password(SessionId(id)), bytes.to_be_bytes());
    }
}

#[test]
fn s1_dead_session_creates_an_ephemeral() {
    check_pair("S1", |h, violating| {
        let a = h.client(0);
        h.asks(a, create_with("/e", "v0", 1));
        if violating {
            expires(h, h.session(a));
        }
        h.does(a);
    });
}

#[test]
fn s2_server_forgets_a_session() {
    check_pair("S2", |h, violating| {
        let a = h.client(0);
        let digest = h.model.digest_at(h.tip());
        let sessions = if violating { Vec::new() } else { vec![h.session(a)] };
        h.ends_with(digest, sessions);
    });
}

#[test]
fn s2_living_session_is_refused() {
    check_pair("S2", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        if !violating {
            expires(h, session);
        }
        h.refuses(b);
    });
}

#[test]
fn s3_session_expires_within_its_timeout() {
    check_pair("S3", |h, violating| {
        let a = h.client(0);
        h.waits(2_000);
        h.reads(a, get("/"));
        h.waits(if violating { 3_000 } else { 4_000 });
        ends(h, h.session(a));
    });
}

#[test]
fn s3_new_leader_expires_before_a_full_timeout() {
    check_pair("S3", |h, violating| {
        let a = h.client(0);
        h.closes(a);
        h.waits(3_000);
        h.restarts(h.tip());
        h.waits(if violating { 3_000 } else { 4_000 });
        ends(h, h.session(a));
    });
}

/// SESS-16
#[test]
fn s3_session_expires_by_an_older_timeout() {
    check_pair("S3", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        let password = password(session);
        let longer = ConnectResponse { timeout_ms: 8_000, session, password, read_only: None };
        h.welcomes_as(b, longer);
        h.waits(if violating { 5_000 } else { 8_000 });
        ends(h, session);
    });
}

fn timeouts_of_400_to_4000_ms() -> Rules {
    let tick = Duration::from_millis(200);
    let timeouts = TimeoutBounds { usual_ms: (400, 4_000), ..TimeoutBounds::default() };
    Rules { tick, timeouts, ..Rules::default() }
}

#[test]
fn s3_session_expires_right_after_a_pause_of_the_leader() {
    check_pair_under(&timeouts_of_400_to_4000_ms(), "S3", |h, violating| {
        let a = h.client(0);
        h.waits(10);
        h.sees(Observation::StandsStill { server: ServerId(1), until: Instant(7_000_000_000) });
        h.waits(7_000 + if violating { 500 } else { 4_000 });
        ends(h, h.session(a));
    });
}

/// HS-06
#[test]
fn s6_server_grants_more_than_its_greatest_timeout() {
    check_pair_under(&timeouts_of_400_to_4000_ms(), "S6", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        let (timeout_ms, password) = (if violating { 4_200 } else { 4_000 }, password(session));
        h.welcomes_as(b, ConnectResponse { timeout_ms, session, password, read_only: None });
    });
}

#[test]
fn s6_session_is_created_without_a_request() {
    check_pair("S6", |h, violating| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let mut txn = h.session_txn(a, SessionId(0x77));
        if violating {
            txn.origin = None;
        }
        h.commits(txn);
    });
}

#[test]
fn s4_session_id_is_used_twice() {
    check_pair("S4", |h, violating| {
        let a = h.client(0);
        let b = h.greets(1, SessionId(0), Zxid::ZERO);
        let id = if violating { h.session(a) } else { SessionId(0x77) };
        let txn = h.session_txn(b, id);
        h.commits(txn);
        h.welcomes(b, id);
    });
}

#[test]
fn s4_wrong_password_is_accepted() {
    check_pair("S4", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        let b = h.greets_with(1, session, Zxid::ZERO, &[7; 16]);
        if violating {
            h.welcomes(b, session);
        } else {
            h.refuses(b);
        }
    });
}

#[test]
fn s4_response_has_another_password_than_before() {
    check_pair("S4", |h, violating| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(a, session);
        h.commits(txn);
        h.welcomes(a, session);
        h.closes(a);
        let a = h.greets(0, session, Zxid::ZERO);
        let mut password = password(session);
        password[3] ^= u8::from(violating);
        let read_only = None;
        h.welcomes_as(a, ConnectResponse { timeout_ms: 4_000, session, password, read_only });
    });
}

#[test]
fn s4_password_follows_from_the_session_id() {
    check_pair("S4", |h, violating| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(a, session);
        h.commits(txn);
        let (timeout_ms, read_only) = (4_000, None);
        let password = if violating { zookeeper_password(session) } else { password(session) };
        h.welcomes_as(a, ConnectResponse { timeout_ms, session, password, read_only });
    });
}

#[test]
fn s4_two_sessions_have_the_same_password() {
    check_pair("S4", |h, violating| {
        let a = h.client(0);
        let b = h.greets(1, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        let txn = h.session_txn(b, session);
        h.commits(txn);
        let (timeout_ms, read_only) = (4_000, None);
        let password = password(if violating { h.session(a) } else { session });
        h.welcomes_as(b, ConnectResponse { timeout_ms, session, password, read_only });
    });
}

#[test]
fn s5_old_connection_of_a_moved_session_writes() {
    check_pair("S5", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        // The write executes after the session has moved to another connection.
        h.closes(a);
        let b = h.greets(0, h.session(a), Zxid::ZERO);
        if !violating {
            h.does(a);
        }
        h.welcomes(b, h.session(a));
        if violating {
            h.does(a);
        }
    });
}

#[test]
fn s6_new_session_replaces_an_expired_one() {
    check_pair("S6", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        expires(h, session);
        h.closes(a);
        let b = h.greets(0, session, Zxid::ZERO);
        if violating {
            h.welcomes(b, SessionId(0x77));
        } else {
            h.refuses(b);
        }
    });
}

#[test]
fn s6_expired_session_is_accepted() {
    check_pair("S6", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        if violating {
            expires(h, session);
        }
        let b = h.greets(0, session, Zxid::ZERO);
        h.welcomes(b, session);
    });
}

#[test]
fn s6_session_is_accepted_before_it_is_committed() {
    check_pair("S6", |h, violating| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        let session = SessionId(0x77);
        if !violating {
            let txn = h.session_txn(a, session);
            h.commits(txn);
        }
        h.welcomes(a, session);
    });
}

#[test]
fn c12_server_claims_to_be_read_only() {
    check_pair("C12", |h, violating| {
        let a = h.client(0);
        let session = h.session(a);
        h.closes(a);
        let a = h.greets(0, session, h.tip());
        let password = password(session);
        let read_only = violating.then_some(true);
        let response = ConnectResponse { timeout_ms: 4_000, session, password, read_only };
        h.welcomes_as(a, response);
    });
}

/// Another client resumes the session: neither is bound by what the other has seen.
#[test]
fn two_clients_of_a_session_do_not_bind_each_other() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    let (session, seen) = (h.session(a), h.tip());
    h.writes(b, create("/x"));
    h.reads(a, get("/x"));
    let duplicate = h.greets(7, session, seen);
    h.welcomes(duplicate, session);
    h.asks(duplicate, get("/"));
    h.answers_at(duplicate, seen, |_| {});
    h.closes(a);
    let a = h.greets(0, session, h.tip());
    h.welcomes(a, session);
    h.closes(duplicate);
    h.reads(a, get("/x"));
    h.passes();
}
