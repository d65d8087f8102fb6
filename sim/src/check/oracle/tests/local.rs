//! S8, and what other oracles check of local sessions.
//!
//! A name that begins with an id is the violation that must be reported.

use std::collections::BTreeSet;
use std::time::Duration;

use zabkeeper_core::txn::{Lifetime, Txn, TxnOp};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{
    ConnId, Instant, ServerId, SessionId, SessionInfo, SessionOptions, WallMs, Zxid,
};

use super::history::{History, SERVER, check_pair, check_pair_under, create, create_with, get};
use super::operators::{report, reports};
use crate::check::model::{LocalRules, Rules};
use crate::check::observe::{Holder, Observation};

const LOCAL: SessionId = SessionId(0x900);

fn rules(upgrade: bool) -> Rules {
    let local = LocalRules { servers: BTreeSet::from([SERVER]), upgrade };
    Rules { local, ..Rules::default() }
}

/// The server lists these local sessions.
fn keeps(h: &mut History, sessions: &[SessionId]) {
    h.sees(Observation::Locals { server: SERVER, sessions });
}

/// A client gets a local session.
fn client(h: &mut History) -> ConnId {
    let conn = h.greets(0, SessionId(0), Zxid::ZERO);
    keeps(h, &[LOCAL]);
    h.welcomes(conn, LOCAL);
    conn
}

fn upgrades(h: &mut History) {
    let op = TxnOp::UpgradeSession { timeout_ms: 4_000, server: SERVER };
    let zxid = h.next_zxid();
    h.commits(Txn { zxid, session: LOCAL, time: WallMs(9), origin: None, op });
}

#[test]
fn s8_local_session_owns_an_ephemeral() {
    check_pair_under(&rules(false), "S8", |h, violating| {
        let a = client(h);
        h.writes(a, create("/p"));
        h.asks(a, create_with("/e", "v0", 1));
        h.does_as(a, |txn| {
            if violating {
                txn.op = TxnOp::Create {
                    path: "/e".into(),
                    data: super::history::data("v0"),
                    acl: zabkeeper_core::wire::Acl::open(),
                    lifetime: Lifetime::Ephemeral,
                    parent_creates: 3,
                };
            }
        });
        h.answers(a);
    });
}

#[test]
fn s8_ephemeral_create_is_decided_before_the_upgrade() {
    check_pair_under(&rules(true), "S8", |h, violating| {
        let a = client(h);
        h.asks(a, create_with("/e", "v0", 1));
        if !violating {
            upgrades(h);
            keeps(h, &[]);
        }
        h.does(a);
        h.answers(a);
        if !violating {
            let a = h.reconnects(a);
            h.writes(a, Request::CloseSession);
        }
    });
}

#[test]
fn s8_session_is_upgraded_without_need() {
    check_pair_under(&rules(true), "S8", |h, violating| {
        let a = client(h);
        h.asks(a, create_with("/e", "v0", if violating { 0 } else { 1 }));
        upgrades(h);
        keeps(h, &[]);
        h.does(a);
        h.answers(a);
    });
}

#[test]
fn s8_upgraded_session_stays_on_the_local_list() {
    check_pair_under(&rules(true), "S8", |h, violating| {
        let a = client(h);
        h.asks(a, create_with("/e", "v0", 1));
        upgrades(h);
        if !violating {
            keeps(h, &[]);
        }
        h.shows(SERVER);
        h.does(a);
        h.answers(a);
    });
}

#[test]
fn s8_server_without_local_sessions_lists_one() {
    check_pair("S8", |h, violating| {
        h.client(0);
        if violating {
            keeps(h, &[LOCAL]);
        }
    });
}

#[test]
fn s8_server_with_local_sessions_creates_a_global_one() {
    check_pair_under(&rules(true), "S8", |h, violating| {
        if violating {
            h.client(0);
        } else {
            client(h);
        }
    });
}

/// A delayed handshake and closeSession in one step create and close the session unseen; without
/// closeSession, the session would be on a list.
#[test]
fn s6_local_session_was_on_no_list() {
    check_pair_under(&rules(false), "S6", |h, violating| {
        let a = h.greets(0, SessionId(0), Zxid::ZERO);
        if !violating {
            h.asks(a, Request::CloseSession);
        }
        h.welcomes(a, LOCAL);
    });
}

/// S2. The session's own server upgrades it after the other server's handshake, which may refuse
/// it, or before, when it may not.
#[test]
fn s2_session_upgraded_before_the_handshake_is_refused() {
    check_pair_under(&rules(true), "S2", |h, violating| {
        let a = client(h);
        h.asks(a, create_with("/e", "v0", 1));
        if violating {
            upgrades(h);
        }
        let server = ServerId(2);
        let b = h.greets_at(server, 1, LOCAL, Zxid::ZERO);
        if !violating {
            upgrades(h);
        }
        keeps(h, &[]);
        h.does(a);
        h.answers(a);
        h.refuses(b);
        h.waits(31_000);
        let (applied, digest) = (h.tip(), h.model.digest_at(h.tip()));
        h.sees(Observation::Final {
            server,
            applied,
            digest,
            holder: Holder(None),
            sessions: vec![LOCAL],
        });
        h.ends();
    });
}

/// Edge 154
#[test]
fn s2_local_session_is_refused_by_its_own_server() {
    check_pair_under(&rules(false), "S2", |h, violating| {
        let a = client(h);
        h.closes(a);
        if !violating {
            h.waits(4_100);
            keeps(h, &[]);
        }
        let b = h.greets(0, LOCAL, Zxid::ZERO);
        h.refuses(b);
    });
}

#[test]
fn s3_local_session_expires_within_its_timeout() {
    check_pair_under(&rules(false), "S3", |h, violating| {
        let a = client(h);
        h.waits(2_000);
        h.reads(a, get("/"));
        h.waits(if violating { 3_000 } else { 4_000 });
        keeps(h, &[]);
    });
}

fn rules_with_a_tick() -> Rules {
    Rules { tick: Duration::from_millis(200), ..rules(false) }
}

#[test]
fn s3_local_session_expires_right_after_a_pause() {
    check_pair_under(&rules_with_a_tick(), "S3", |h, violating| {
        let _a = client(h);
        h.waits(10);
        h.sees(Observation::StandsStill { server: SERVER, until: Instant(7_000_000_000) });
        h.waits(7_000 + if violating { 500 } else { 4_000 });
        keeps(h, &[]);
    });
}

#[test]
fn s4_id_of_a_local_session_is_used_twice() {
    check_pair_under(&rules(false), "S4", |h, violating| {
        let a = client(h);
        h.asks(a, Request::CloseSession);
        keeps(h, &[]);
        h.answers(a);
        keeps(h, &[if violating { LOCAL } else { SessionId(LOCAL.0 + 1) }]);
    });
}

/// Edge 154
#[test]
fn s6_local_session_goes_on_after_a_restart() {
    check_pair_under(&rules(false), "S6", |h, violating| {
        let a = client(h);
        h.writes(a, create("/p"));
        h.closes(a);
        h.restarts(h.tip());
        let b = h.greets(0, LOCAL, Zxid::ZERO);
        if violating {
            h.welcomes(b, LOCAL);
        } else {
            h.refuses(b);
        }
    });
}

#[test]
fn s7_local_session_without_a_client_never_expires() {
    check_pair_under(&rules(false), "S7", |h, violating| {
        let a = client(h);
        h.closes(a);
        h.waits(60_000);
        if !violating {
            keeps(h, &[]);
        }
        h.ends();
    });
}

#[test]
fn s7_unanswered_handshake_may_have_changed_a_local_sessions_timeout() {
    check_pair_under(&rules(false), "S7", |h, violating| {
        let a = client(h);
        h.closes(a);
        h.greets_in_vain(LOCAL, if violating { 4_000 } else { 60_000 });
        h.waits(60_000);
        h.ends();
    });
}

/// The server restarts with this option for new sessions.
fn restarts_with(h: &mut History, local: bool) {
    h.dies(SERVER);
    h.returns_with(SERVER, SessionOptions { local, upgrade: true });
    h.begins_leading(SERVER, &[]);
}

#[test]
fn s8_server_creates_a_global_session_though_restarted_with_local_ones() {
    check_pair_under(&rules(true), "S8", |h, violating| {
        let a = client(h);
        h.closes(a);
        restarts_with(h, violating);
        h.client(1);
    });
}

#[test]
fn s8_server_creates_a_local_session_though_restarted_without() {
    check_pair_under(&Rules::default(), "S8", |h, violating| {
        restarts_with(h, !violating);
        client(h);
    });
}

/// S4. The session ended with its server's process, and its id must not be used again.
#[test]
fn s4_global_session_gets_the_id_of_an_ended_local_one() {
    check_pair_under(&rules(true), "S4", |h, violating| {
        let a = client(h);
        h.closes(a);
        restarts_with(h, false);
        let b = h.greets(1, SessionId(0), Zxid::ZERO);
        let session = if violating { LOCAL } else { SessionId(LOCAL.0 + 1) };
        let txn = h.session_txn(b, session);
        h.commits(txn);
        h.welcomes(b, session);
    });
}

/// O1. A server must show the timeout granted last. Once the session is global, another server may
/// have granted a timeout that the first one does not know.
#[test]
fn o1_local_session_is_shown_with_an_older_timeout() {
    check_pair_under(&rules(true), "O1", |h, violating| {
        let a = client(h);
        h.asks(a, create_with("/e", "v0", 1));
        if !violating {
            upgrades(h);
        }
        h.is_granted(a, 6_000);
        let mut reported = report(h);
        reported.sessions.iter_mut().for_each(|session| session.timeout_ms = 6_000);
        let server = Some(SERVER);
        let before = SessionInfo { id: LOCAL, timeout_ms: 4_000, expires: None, server };
        reported.local_sessions = vec![before];
        reported.status.local_sessions = 1;
        reports(h, &reported);
    });
}
