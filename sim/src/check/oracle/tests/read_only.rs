//! C12: read-only servers and their clients.
//!
//! A name that begins with an id is the violation that must be reported.

use std::collections::BTreeSet;

use zabkeeper_core::wire::{ConnectResponse, ReplyBody, Request};
use zabkeeper_core::{ConnId, ErrorCode, SessionId, Zxid};

use super::history::{History, SERVER, check_pair_under, create, get, password};
use crate::check::model::{LocalRules, Rules};
use crate::check::observe::Observation;

const LOCAL: SessionId = SessionId(0x900);

fn rules() -> Rules {
    let local = LocalRules { servers: BTreeSet::from([SERVER]), upgrade: false };
    Rules { local, ..Rules::default() }
}

/// A client connects with this field `readOnly`, and gets a response with that one.
fn client_with(h: &mut History, accepts: Option<bool>, told: Option<bool>) -> ConnId {
    h.accepts_read_only = accepts;
    let conn = h.greets(0, SessionId(0), Zxid::ZERO);
    h.sees(Observation::Locals { server: SERVER, sessions: &[LOCAL] });
    let (timeout_ms, password) = (4_000, password(LOCAL));
    h.welcomes_as(conn, ConnectResponse { timeout_ms, session: LOCAL, password, read_only: told });
    conn
}

fn client(h: &mut History) -> ConnId {
    client_with(h, Some(true), Some(true))
}

/// HS-04.
#[test]
fn c12_client_that_accepts_no_read_only_server_is_served() {
    check_pair_under(&rules(), "C12", |h, violating| {
        h.becomes_read_only(SERVER, None);
        client_with(h, Some(!violating), Some(true));
    });
}

/// HS-03.
#[test]
fn c12_read_only_server_looks_like_any_other() {
    check_pair_under(&rules(), "C12", |h, violating| {
        h.becomes_read_only(SERVER, None);
        client_with(h, Some(true), Some(!violating));
    });
}

/// ERR-25, RO-03.
#[test]
fn c12_read_only_server_answers_a_write() {
    check_pair_under(&rules(), "C12", |h, violating| {
        let refused = if violating { ErrorCode::NoNode } else { ErrorCode::NotReadOnly };
        h.becomes_read_only(SERVER, None);
        let a = client(h);
        h.reads(a, get("/"));
        h.asks(a, create("/x"));
        h.answers_as(a, |reply| reply.result = Err(refused));
    });
}

/// ERR-25, RO-03.
#[test]
fn c12_read_only_server_answers_a_sync() {
    check_pair_under(&rules(), "C12", |h, violating| {
        h.becomes_read_only(SERVER, None);
        let a = client(h);
        h.asks(a, Request::Sync { path: "/".into() });
        let answer = || {
            if violating { Ok(ReplyBody::Path("/".into())) } else { Err(ErrorCode::NotReadOnly) }
        };
        h.answers_as(a, |reply| reply.result = answer());
    });
}

/// RO-03.
#[test]
fn c12_usual_server_refuses_as_a_read_only_one() {
    check_pair_under(&rules(), "C12", |h, violating| {
        let a = client_with(h, Some(true), Some(false));
        h.asks(a, get("/"));
        h.answers_as(a, |reply| {
            if violating {
                reply.result = Err(ErrorCode::NotReadOnly);
            }
        });
    });
}

/// RO-01: what was asked before the end may be answered, and read later.
#[test]
fn c12_connection_to_a_read_only_server_outlives_the_election() {
    check_pair_under(&rules(), "C12", |h, violating| {
        h.becomes_read_only(SERVER, None);
        let a = client(h);
        if !violating {
            h.asks(a, get("/"));
        }
        h.looks(SERVER);
        h.waits(10);
        if violating {
            h.asks(a, get("/"));
        }
        h.answers(a);
    });
}

#[test]
fn c12_read_only_server_has_a_leader() {
    check_pair_under(&rules(), "C12", |h, violating| {
        h.becomes_read_only(SERVER, None);
        h.becomes_read_only(SERVER, violating.then_some(SERVER));
    });
}
