//! T7: ACLs of reads, writes and events.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::ErrorCode;
use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::AddWatchMode::PersistentRecursive;
use zabkeeper_core::wire::EventType::{NodeCreated, NodeDataChanged};
use zabkeeper_core::wire::{Acl, Perms, ReplyBody, Request};

use super::history::{
    History, check_pair, create, create_for, delete, get, only, set, watch_data, watch_exists,
};

fn get_acl(path: &str) -> Request {
    Request::GetAcl { path: path.into() }
}

#[test]
fn t7_forbidden_read_is_not_refused_with_no_auth() {
    check_pair("T7", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(a, create_for("/a", &only("u:p")));
        h.asks(b, get("/a"));
        h.answers_as(b, |reply| {
            if violating {
                reply.result = Err(ErrorCode::NoNode);
            }
        });
    });
}

#[test]
fn t7_granted_write_is_refused() {
    check_pair("T7", |h, violating| {
        let a = h.client(0);
        h.writes(a, create_for("/a", &only("u:p")));
        h.shows_user(a, "u:p");
        h.believes(a);
        h.asks(a, set("/a", "v1"));
        h.does_as(a, |txn| {
            if violating {
                txn.op = TxnOp::Error { code: ErrorCode::NoAuth };
            }
        });
    });
}

/// Edge 165
#[test]
fn t7_auth_entry_is_stored_unexpanded() {
    check_pair("T7", |h, violating| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.believes(a);
        let auth = Acl { scheme: "auth".into(), id: "anything".into(), ..only("u:p")[0].clone() };
        h.asks(a, create_for("/a", std::slice::from_ref(&auth)));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Create { acl, .. }) = (violating, &mut txn.op) {
                *acl = vec![auth.clone()];
            }
        });
    });
}

/// Edge 174
#[test]
fn t7_get_acl_shows_a_digest() {
    check_pair("T7", |h, violating| {
        let a = h.client(0);
        let mut list = only("u:p");
        list.push(Acl { perms: Perms::READ, ..Acl::open()[0].clone() });
        h.writes(a, create_for("/a", &list));
        h.asks(a, get_acl("/a"));
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Acl(shown, _))) = (violating, &mut reply.result) {
                *shown = list.clone();
            }
        });
    });
}

/// Edge 123
#[test]
fn t7_event_reaches_a_client_without_read_permission() {
    check_pair("T7", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        let zxid = h.writes(b, create_for("/a", &only("u:p")));
        if violating {
            h.notifies(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn t7_event_of_a_multi_reaches_a_client_that_may_read_neither_node() {
    check_pair("T7", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, Request::AddWatch { path: "/a".into(), mode: PersistentRecursive });
        let second = if violating { create_for("/a", &only("u:q")) } else { create("/a") };
        let parts = vec![create_for("/a", &only("u:p")), delete("/a"), second];
        let zxid = h.writes(b, Request::Multi(parts));
        h.notifies(a, NodeCreated, "/a", zxid);
    });
}

#[test]
fn w3_event_is_withheld_from_a_client_with_read_permission() {
    check_pair("W3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.shows_user(a, "u:p");
        h.believes(a);
        h.writes(b, create_for("/a", &only("u:p")));
        h.reads(a, watch_data("/a"));
        h.shows_user(b, "u:p");
        h.believes(b);
        let zxid = h.writes(b, set("/a", "v1"));
        if !violating {
            h.notifies(a, NodeDataChanged, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

/// ACL-17
#[test]
fn event_may_come_before_or_after_the_auth_reply() {
    for shown in [false, true] {
        let mut h = History::new();
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        h.shows_user(a, "u:p");
        let zxid = h.writes(b, create_for("/a", &only("u:p")));
        h.believes(a);
        if shown {
            h.notifies(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
        h.passes();
    }
}

/// Edge 124
#[test]
fn used_up_watch_sends_no_event() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_exists("/a"));
    h.writes(b, create_for("/a", &only("u:p")));
    h.writes(b, delete("/a"));
    h.reads(a, get("/"));
    h.passes();
}

/// ACL-17
#[test]
fn request_has_the_identities_sent_before_it() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create_for("/a", &only("u:p")));
    h.asks(a, set("/a", "too early"));
    h.does(a);
    h.shows_user(a, "u:p");
    h.asks(a, set("/a", "in time"));
    h.does(a);
    assert_eq!(h.answers(a).result, Err(ErrorCode::NoAuth));
    h.believes(a);
    assert!(h.answers(a).result.is_ok());
    h.passes();
}

/// HS-13
#[test]
fn c13_client_does_not_authenticate_again() {
    check_pair("C13", |h, violating| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.believes(a);
        let a = h.reconnects(a);
        if !violating {
            h.shows_user(a, "u:p");
            h.believes(a);
        }
        h.reads(a, get("/"));
    });
}

/// HS-13. A credential whose auth was not answered need not be sent again.
#[test]
fn c13_client_sends_only_one_of_two_credentials_again() {
    check_pair("C13", |h, violating| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.shows_user(a, "v:p");
        h.believes(a);
        if violating {
            h.believes(a);
        }
        let a = h.reconnects(a);
        h.shows_user(a, "u:p");
        h.reads(a, get("/"));
    });
}
