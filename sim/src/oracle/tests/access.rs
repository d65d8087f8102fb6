//! T7: who may do, read and hear what.

use zabkeeper_core::ErrorCode;
use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::AddWatchMode::PersistentRecursive;
use zabkeeper_core::wire::EventType::{NodeCreated, NodeDataChanged};
use zabkeeper_core::wire::{Acl, Perms, ReplyBody, Request};

use super::history::{
    History, create, create_for, delete, get, only, set, twins, watch_data, watch_exists,
};

fn get_acl(path: &str) -> Request {
    Request::GetAcl { path: path.into() }
}

#[test]
fn t7_a_read_is_answered_that_the_list_forbids() {
    twins("T7", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(a, create_for("/a", &only("u:p")));
        h.asks(b, get("/a"));
        h.answers_as(b, |reply| {
            if lie {
                reply.result = Err(ErrorCode::NoNode);
            }
        });
    });
}

#[test]
fn t7_a_write_is_refused_that_the_list_grants() {
    twins("T7", |h, lie| {
        let a = h.client(0);
        h.writes(a, create_for("/a", &only("u:p")));
        h.shows_user(a, "u:p");
        h.believes(a);
        h.asks(a, set("/a", "v1"));
        h.does_as(a, |txn| {
            if lie {
                txn.op = TxnOp::Error { code: ErrorCode::NoAuth };
            }
        });
    });
}

#[test]
fn t7_edge_165_auth_is_stored_as_it_came() {
    twins("T7", |h, lie| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.believes(a);
        let auth = Acl { scheme: "auth".into(), id: "anything".into(), ..only("u:p")[0].clone() };
        h.asks(a, create_for("/a", std::slice::from_ref(&auth)));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Create { acl, .. }) = (lie, &mut txn.op) {
                *acl = vec![auth.clone()];
            }
        });
    });
}

#[test]
fn t7_edge_174_get_acl_shows_a_digest() {
    twins("T7", |h, lie| {
        let a = h.client(0);
        let mut list = only("u:p");
        list.push(Acl { perms: Perms::READ, ..Acl::open()[0].clone() });
        h.writes(a, create_for("/a", &list));
        h.asks(a, get_acl("/a"));
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Acl(shown, _))) = (lie, &mut reply.result) {
                *shown = list.clone();
            }
        });
    });
}

#[test]
fn t7_edge_123_an_event_is_told_to_who_may_not_read() {
    twins("T7", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        let zxid = h.writes(b, create_for("/a", &only("u:p")));
        if lie {
            h.tells(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn t7_the_same_event_twice_in_a_multi_once_of_a_node_that_one_may_read() {
    twins("T7", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, Request::AddWatch { path: "/a".into(), mode: PersistentRecursive });
        let second = if lie { create_for("/a", &only("u:q")) } else { create("/a") };
        let parts = vec![create_for("/a", &only("u:p")), delete("/a"), second];
        let zxid = h.writes(b, Request::Multi(parts));
        h.tells(a, NodeCreated, "/a", zxid);
    });
}

#[test]
fn w3_an_event_is_kept_from_who_may_read() {
    twins("W3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.shows_user(a, "u:p");
        h.believes(a);
        h.writes(b, create_for("/a", &only("u:p")));
        h.reads(a, watch_data("/a"));
        h.shows_user(b, "u:p");
        h.believes(b);
        let zxid = h.writes(b, set("/a", "v1"));
        if !lie {
            h.tells(a, NodeDataChanged, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn acl_17_an_event_may_come_before_or_after_its_client_is_believed() {
    for told in [false, true] {
        let mut h = History::new();
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        h.shows_user(a, "u:p");
        let zxid = h.writes(b, create_for("/a", &only("u:p")));
        h.believes(a);
        if told {
            h.tells(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
        h.passes();
    }
}

#[test]
fn edge_124_a_consumed_watch_stays_silent() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_exists("/a"));
    h.writes(b, create_for("/a", &only("u:p")));
    h.writes(b, delete("/a"));
    h.reads(a, get("/"));
    h.passes();
}

#[test]
fn acl_17_a_request_counts_what_was_shown_before_it() {
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

#[test]
fn c13_hs_13_a_client_forgets_to_show_who_it_is() {
    twins("C13", |h, lie| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.believes(a);
        let a = h.reconnects(a);
        if !lie {
            h.shows_user(a, "u:p");
            h.believes(a);
        }
        h.reads(a, get("/"));
    });
}

/// What was not answered is not known to have been believed.
#[test]
fn c13_hs_13_a_client_shows_one_of_two() {
    twins("C13", |h, lie| {
        let a = h.client(0);
        h.shows_user(a, "u:p");
        h.shows_user(a, "v:p");
        h.believes(a);
        if lie {
            h.believes(a);
        }
        let a = h.reconnects(a);
        h.shows_user(a, "u:p");
        h.reads(a, get("/"));
    });
}
