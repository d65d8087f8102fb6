//! C11, T8, T10: containers, TTL nodes and quotas.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::txn::{Txn, TxnOp};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ErrorCode, SessionId, WallMs};

use crate::check::oracle::Rules;

use super::history::{
    History, check_pair_under, container, create, create_with, data, delete, everything, get, set,
    timed,
};

/// A server deletes an expired node on its own.
fn lapses(h: &mut History, path: &str, time: i64) {
    let op = TxnOp::Delete { path: path.into() };
    let (zxid, session, time) = (h.next_zxid(), SessionId(0), WallMs(time));
    h.commits(Txn { zxid, session, time, origin: None, op });
}

fn quota(path: &str, limits: &str) -> [Request; 4] {
    let root = format!("/zookeeper/quota{path}");
    [
        create_with(&root, "", 0),
        create_with(&format!("{root}/zookeeper_limits"), limits, 0),
        create_with(&format!("{root}/zookeeper_stats"), "", 0),
        create(path),
    ]
}

/// Edge 194
#[test]
fn c11_never_used_container_is_deleted() {
    check_pair_under(&everything(), "C11", |h, violating| {
        let a = h.client(0);
        h.writes(a, container("/c"));
        if !violating {
            h.writes(a, create("/c/x"));
            h.writes(a, delete("/c/x"));
        }
        lapses(h, "/c", 7);
    });
}

/// Edge 195
#[test]
fn c11_container_with_a_child_is_deleted() {
    check_pair_under(&everything(), "C11", |h, violating| {
        let a = h.client(0);
        h.writes(a, container("/c"));
        h.writes(a, create("/c/x"));
        if !violating {
            h.writes(a, delete("/c/x"));
        }
        lapses(h, "/c", 7);
    });
}

/// Edge 191
#[test]
fn c11_ttl_node_is_deleted_before_its_ttl() {
    check_pair_under(&everything(), "C11", |h, violating| {
        let a = h.client(0);
        // Its mtime is 7.
        h.writes(a, timed("/t", 1_000));
        lapses(h, "/t", if violating { 1_007 } else { 1_008 });
    });
}

#[test]
fn c11_persistent_node_is_deleted_without_a_request() {
    check_pair_under(&everything(), "C11", |h, violating| {
        let a = h.client(0);
        h.writes(a, if violating { create("/t") } else { timed("/t", 1) });
        lapses(h, "/t", 1_000_000);
    });
}

/// Edge 185
#[test]
fn t8_write_beyond_a_hard_limit_succeeds() {
    check_pair_under(&everything(), "T8", |h, violating| {
        let a = h.client(0);
        for request in quota("/q", "count=-1,bytes=-1=;byteHardLimit=-1;countHardLimit=2") {
            h.writes(a, request);
        }
        h.writes(a, create("/q/x"));
        h.asks(a, create("/q/y"));
        h.does_as(a, |txn| {
            let TxnOp::Error { code } = txn.op.clone() else { panic!("{txn}") };
            assert_eq!(code, ErrorCode::QuotaExceeded);
            if violating {
                let (path, acl) = ("/q/y".to_owned(), zabkeeper_core::wire::Acl::open());
                let lifetime = zabkeeper_core::txn::Lifetime::Persistent;
                let data = data("v0");
                txn.op = TxnOp::Create { path, data, acl, lifetime, parent_creates: 2 };
            }
        });
    });
}

#[test]
fn t8_read_shows_an_older_usage() {
    check_pair_under(&everything(), "T8", |h, violating| {
        let a = h.client(0);
        for request in quota("/q", "count=5,bytes=5") {
            h.writes(a, request);
        }
        let before = h.tip();
        h.writes(a, create("/q/x"));
        let stats = "/zookeeper/quota/q/zookeeper_stats";
        let old = h.model.node_at(stats, before).expect("there").data.clone();
        h.asks(a, get(stats));
        h.answers_as(a, |reply| {
            if let (true, Ok(zabkeeper_core::wire::ReplyBody::Data(found, _))) =
                (violating, &mut reply.result)
            {
                *found = old.clone();
            }
        });
    });
}

/// Edges 184 to 190
#[test]
fn quotas_count_usage_and_refuse_beyond_hard_limits() {
    let mut h = History::with(everything());
    let a = h.client(0);
    h.writes(a, create_with("/q", "1234", 0));
    for request in quota("/q", "count=1,bytes=1=;byteHardLimit=8;countHardLimit=3") {
        h.writes(a, request);
    }
    let stats = |h: &History| {
        let node = h.model.node("/zookeeper/quota/q/zookeeper_stats").expect("there");
        (String::from_utf8_lossy(node.data.as_deref().unwrap()).into_owned(), node.version)
    };
    assert_eq!(stats(&h), ("count=1,bytes=4".to_owned(), 0), "edge 184");
    for (request, text) in [
        (create_with("/q/a", "12", 0), "count=2,bytes=6"),
        (set("/q/a", "1234"), "count=2,bytes=8"),
        // Exceeds the hard limit of bytes, and is refused.
        (set("/q/a", "12345"), "count=2,bytes=8"),
        (set("/q/a", "4321"), "count=2,bytes=8"),
        (set("/q", ""), "count=2,bytes=4"),
        (create_with("/q/b", "", 0), "count=3,bytes=4"),
        (create_with("/q/c", "", 0), "count=3,bytes=4"),
        (delete("/q/b"), "count=2,bytes=4"),
    ] {
        h.writes(a, request.clone());
        assert_eq!(stats(&h), (text.to_owned(), 0), "{request}");
    }
    h.passes();
}

/// DATA-32
#[test]
fn concurrent_writes_may_exceed_a_quota_together() {
    let mut h = History::with(everything());
    let a = h.client(0);
    for request in quota("/q", "count=-1,bytes=-1=;countHardLimit=2") {
        h.writes(a, request);
    }
    // The leader proposes both before it applies either.
    h.asks(a, create("/q/x"));
    h.asks(a, create("/q/y"));
    let first = h.decides(a);
    let mut second = h.decides(a);
    second.zxid = first.zxid.next().expect("room");
    let (path, acl) = ("/q/y".to_owned(), zabkeeper_core::wire::Acl::open());
    let lifetime = zabkeeper_core::txn::Lifetime::Persistent;
    second.op = TxnOp::Create { path, data: data("v0"), acl, lifetime, parent_creates: 2 };
    h.proposes(&first.encode());
    h.proposes(&second.encode());
    h.applies(first);
    h.applies(second);
    h.passes();
}

fn looked_for_each_second() -> Rules {
    let mut rules = everything();
    rules.tree.container_check_ms = 1_000;
    rules
}

#[test]
fn t10_ttl_node_outlives_its_ttl() {
    check_pair_under(&looked_for_each_second(), "T10", |h, violating| {
        let a = h.client(0);
        // Its mtime is 7, as of all requests of clients.
        h.writes(a, timed("/t", 100));
        let session = h.session(a);
        h.waits(60_000);
        let (zxid, op) = (h.next_zxid(), TxnOp::CloseSession);
        let time = WallMs(if violating { 108 } else { 107 });
        h.commits(Txn { zxid, session, time, origin: None, op });
        h.waits(60_000);
        h.ends();
    });
}

#[test]
fn t10_empty_container_is_never_deleted() {
    check_pair_under(&looked_for_each_second(), "T10", |h, violating| {
        let a = h.client(0);
        h.writes(a, container("/c"));
        h.writes(a, create("/c/x"));
        h.writes(a, delete("/c/x"));
        h.writes(a, Request::CloseSession);
        if !violating {
            lapses(h, "/c", 7);
        }
        h.waits(60_000);
        h.ends();
    });
}

fn deleted_each_half_minute() -> Rules {
    let mut rules = looked_for_each_second();
    rules.tree.container_max_per_minute = 2;
    rules
}

/// The leader deletes one after the other at its rate; a node deleted earlier took a turn, too.
#[test]
fn t10_container_waits_longer_than_its_turn() {
    check_pair_under(&deleted_each_half_minute(), "T10", |h, violating| {
        let a = h.client(0);
        for path in ["/a", "/b"] {
            h.writes(a, container(path));
            h.writes(a, create(&format!("{path}/x")));
            h.writes(a, delete(&format!("{path}/x")));
        }
        if violating {
            h.writes(a, delete("/a"));
        }
        h.writes(a, Request::CloseSession);
        if !violating {
            lapses(h, "/a", 7);
        }
        h.waits(200_000);
        h.ends();
    });
}
