//! C and T6: the consistency that clients rely on, and multis.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{MultiResult, ReplyBody, Request};
use zabkeeper_core::{ErrorCode, SessionId, Zxid};

use super::history::{
    History, check_pair, check_pair_under, create, create_with, data, delete, everything, get, set,
};
use crate::check::model::Rules;

#[test]
fn c1_later_write_gets_an_earlier_zxid() {
    check_pair("C1", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        let earlier = h.tip();
        h.writes(a, create("/a"));
        h.asks(b, create("/b"));
        h.does(b);
        h.answers_as(b, |reply| {
            if violating {
                reply.zxid = earlier.wire();
            }
        });
    });
}

#[test]
fn c2_replies_are_swapped() {
    check_pair("C2", |h, violating| {
        let a = h.client(0);
        h.asks(a, get("/"));
        h.asks(a, get("/zookeeper"));
        if violating {
            h.answers_as(a, |reply| reply.xid += 1);
        } else {
            h.answers(a);
        }
        h.answers(a);
    });
}

#[test]
fn c2_write_is_answered_with_the_next_writes_zxid() {
    check_pair("C2", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.asks(a, create("/b"));
        h.does(a);
        h.does(a);
        h.answers_as(a, |reply| reply.zxid += i64::from(violating));
        h.answers(a);
    });
}

#[test]
fn c3_read_goes_back() {
    check_pair("C3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.tip();
        h.writes(a, create("/a"));
        h.reads(b, get("/a"));
        h.asks(b, get("/a"));
        h.answers_at(b, if violating { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c3_read_is_older_than_its_zxid() {
    check_pair("C3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.writes(a, create("/a"));
        let new = h.writes(a, set("/a", "v1"));
        h.asks(b, get("/a"));
        let at = if violating { old } else { new };
        h.answers_at(b, at, |reply| reply.zxid = new.wire());
    });
}

#[test]
fn c3_reply_names_an_uncommitted_zxid() {
    check_pair("C3", |h, violating| {
        let a = h.client(0);
        h.asks(a, get("/"));
        h.answers_as(a, |reply| reply.zxid += i64::from(violating));
    });
}

#[test]
fn c4_session_misses_its_own_write() {
    check_pair("C4", |h, violating| {
        let a = h.client(0);
        let old = h.tip();
        h.writes(a, create("/a"));
        h.asks(a, get("/a"));
        h.answers_at(a, if violating { old } else { h.tip() }, |_| {});
    });
}

/// The connect request claims no zxid, so that C6 does not report the reply first.
#[test]
fn c4_session_misses_its_own_write_on_the_next_connection() {
    check_pair("C4", |h, violating| {
        let a = h.client(0);
        let old = h.tip();
        h.writes(a, create("/a"));
        h.closes(a);
        let b = h.greets(0, h.session(a), Zxid::ZERO);
        h.welcomes(b, h.session(a));
        h.asks(b, get("/a"));
        h.answers_at(b, if violating { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c5_sync_reply_shows_an_older_state() {
    check_pair("C5", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.tip();
        h.writes(a, create("/a"));
        h.asks(b, Request::Sync { path: "/".into() });
        h.answers_at(b, if violating { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c6_client_ahead_of_the_server_is_accepted() {
    check_pair("C6", |h, violating| {
        let a = h.client(0);
        let ahead = Zxid(h.tip().0 + u64::from(violating));
        h.closes(a);
        let b = h.greets(0, h.session(a), ahead);
        h.welcomes(b, h.session(a));
    });
}

#[test]
fn c7_acknowledged_write_is_lost() {
    check_pair("C7", |h, violating| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.closes(a);
        h.restarts(if violating { before } else { zxid });
    });
}

#[test]
fn c7_acknowledged_write_was_never_committed() {
    check_pair("C7", |h, violating| {
        let a = h.client(0);
        h.asks(a, create_with("/a", "v0", 0));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        if violating {
            let zxid = txn.zxid;
            h.model.apply(txn).unwrap();
            assert_eq!(h.tip(), zxid);
        } else {
            h.applies(txn);
        }
        h.answers(a);
    });
}

#[test]
fn c8_executed_write_is_reported_as_failed() {
    check_pair("C8", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.does(a);
        h.answers_as(a, |reply| {
            if violating {
                reply.result = Err(ErrorCode::NodeExists);
            }
        });
    });
}

#[test]
fn c8_write_executes_twice_on_one_connection() {
    check_pair("C8", |h, violating| {
        let a = h.client(0);
        h.asks(a, set("/", "once"));
        let mut txn = h.decides(a);
        h.commits(txn.clone());
        if violating {
            txn.zxid = h.next_zxid();
            h.commits(txn);
        }
    });
}

/// The model applies the second transaction, so that the next read is checked on the real state.
#[test]
fn c3_checks_the_state_after_a_muted_violation() {
    check_pair("C3", |h, violating| {
        h.oracles.mute("C8");
        let a = h.client(0);
        h.asks(a, set("/", "once"));
        let mut txn = h.decides(a);
        h.commits(txn.clone());
        h.answers(a);
        txn.zxid = h.next_zxid();
        if let TxnOp::SetData { version, .. } = &mut txn.op {
            *version += 1;
        }
        h.commits(txn);
        h.asks(a, get("/"));
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Data(_, stat))) = (violating, &mut reply.result) {
                stat.version -= 1;
            }
        });
    });
}

#[test]
fn c8_client_sends_a_write_again_on_the_next_connection() {
    check_pair("C8", |h, violating| {
        let a = h.client(0);
        h.asks(a, set("/", "client 0 serial 1"));
        h.does(a);
        let a = h.reconnects(a);
        h.writes(a, set("/", if violating { "client 0 serial 1" } else { "client 0 serial 2" }));
    });
}

#[test]
fn c9_write_gets_a_wrong_error() {
    check_pair("C9", |h, violating| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, create("/a"));
        h.does_as(a, |txn| {
            if violating {
                txn.op = TxnOp::Error { code: ErrorCode::NoNode };
            }
        });
        h.answers(a);
    });
}

#[test]
fn c9_write_gets_a_wrong_stat() {
    check_pair("C9", |h, violating| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.does(a);
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::PathStat(_, stat))) = (violating, &mut reply.result) {
                stat.cversion += 1;
            }
        });
    });
}

#[test]
fn c9_write_becomes_a_transaction_of_another_session() {
    check_pair("C9", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.asks(a, create("/a"));
        let session = if violating { h.session(b) } else { h.session(a) };
        h.does_as(a, |txn| txn.session = session);
    });
}

#[test]
fn c9_read_gets_a_wrong_error() {
    check_pair("C9", |h, violating| {
        let a = h.client(0);
        h.asks(a, get("/nowhere"));
        h.answers_as(a, |reply| {
            if violating {
                reply.result = Err(ErrorCode::NotEmpty);
            }
        });
    });
}

/// Edges 1 to 51
#[test]
fn refused_writes_get_zookeepers_error_codes() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create("/a"));
    h.writes(a, create_with("/e", "v0", 1));
    for (request, code) in [
        (create("/"), ErrorCode::NodeExists),
        (create("abc"), ErrorCode::BadArguments),
        (create("//a"), ErrorCode::BadArguments),
        (create("/m/"), ErrorCode::NoNode),
        (create("/a/"), ErrorCode::BadArguments),
        (create("/a/.."), ErrorCode::BadArguments),
        (create("/\u{1f600}"), ErrorCode::BadArguments),
        (create("/e/child"), ErrorCode::NoChildrenForEphemerals),
        (create_with("/x", "", 9), ErrorCode::BadArguments),
        (create_with("bad", "", 5), ErrorCode::Unimplemented),
        (delete("/zookeeper/quota"), ErrorCode::BadArguments),
        (delete("/nowhere"), ErrorCode::NoNode),
        (set("/a/", ""), ErrorCode::BadArguments),
        (set("/zookeeper/config", ""), ErrorCode::NoAuth),
        (Request::Delete { path: "/a".into(), version: 7 }, ErrorCode::BadVersion),
    ] {
        let shown = request.to_string();
        h.asks(a, request);
        h.does(a);
        assert_eq!(h.answers(a).result, Err(code), "{shown}");
    }
    h.passes();
}

#[test]
fn c10_sequence_number_is_used_again() {
    check_pair("C10", |h, violating| {
        let a = h.client(0);
        h.writes(a, create_with("/s", "v0", 2));
        h.writes(a, delete("/s0000000001"));
        h.asks(a, create_with("/s", "v0", 2));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Create { path, .. }) = (violating, &mut txn.op) {
                *path = "/s0000000000".into();
            }
        });
        h.answers(a);
    });
}

#[test]
fn c11_read_shows_data_that_was_never_written() {
    check_pair("C11", |h, violating| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, get("/a"));
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Data(value, _))) = (violating, &mut reply.result) {
                *value = data("v9");
            }
        });
    });
}

#[test]
fn c11_write_stores_other_data() {
    check_pair("C11", |h, violating| {
        let a = h.client(0);
        h.asks(a, set("/", "v1"));
        h.does_as(a, |txn| {
            if let (true, TxnOp::SetData { data: value, .. }) = (violating, &mut txn.op) {
                *value = data("v2");
            }
        });
    });
}

#[test]
fn c11_server_writes_without_a_request() {
    check_pair("C11", |h, violating| {
        let a = h.client(0);
        h.asks(a, set("/", "v1"));
        h.does_as(a, |txn| {
            if violating {
                txn.origin = None;
                txn.session = SessionId(0);
            }
        });
    });
}

fn check(path: &str, version: i32) -> Request {
    Request::Check { path: path.into(), version }
}

#[test]
fn t6_half_of_a_multi_executes() {
    check_pair("T6", |h, violating| {
        let a = h.client(0);
        h.asks(a, Request::Multi(vec![create("/a"), create("/a/b")]));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Multi(ops)) = (violating, &mut txn.op) {
                ops.pop();
            }
        });
        h.answers(a);
    });
}

#[test]
fn t6_failing_multi_executes_up_to_the_failure() {
    check_pair("T6", |h, violating| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, Request::Multi(vec![set("/a", "v1"), check("/a", 0)]));
        h.does_as(a, |txn| {
            if violating {
                let (path, data) = ("/a".into(), data("v1"));
                txn.op = TxnOp::Multi(vec![TxnOp::SetData { path, data, version: 1 }]);
            }
        });
        h.answers(a);
    });
}

#[test]
fn c9_wrong_operation_of_a_multi_is_reported_as_failed() {
    check_pair("C9", |h, violating| {
        let a = h.client(0);
        h.asks(a, Request::Multi(vec![create("/a"), create("/a"), delete("/a")]));
        h.does(a);
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Multi(results))) = (violating, &mut reply.result) {
                results.swap(0, 1);
            }
        });
    });
}

fn list() -> Request {
    Request::GetChildren { path: "/p".into(), watch: false, with_stat: false }
}

/// The read lists children of three creates; with the fault, the first two are swapped.
fn lists(h: &mut History, read: Request, violating: bool) {
    let a = h.client(0);
    h.writes(a, create("/p"));
    h.asks(a, Request::Multi(vec![create("/p/b"), create("/p/a")]));
    h.does(a);
    h.answers(a);
    h.writes(a, create("/p/0"));
    h.asks(a, read);
    h.answers_as(a, |reply| {
        let names = if let Ok(ReplyBody::Children(names)) = &mut reply.result {
            names
        } else if let Ok(ReplyBody::Multi(results)) = &mut reply.result
            && let [MultiResult::Children(names)] = &mut results[..]
        {
            names
        } else {
            panic!("no children: {reply:?}")
        };
        assert_eq!(*names, ["b", "a", "0"]);
        if violating {
            names.swap(0, 1);
        }
    });
}

/// OP-08
#[test]
fn c3_children_are_listed_in_another_order() {
    check_pair("C3", |h, violating| lists(h, list(), violating));
}

/// OP-08
#[test]
fn c3_multi_read_lists_children_in_another_order() {
    check_pair("C3", |h, violating| lists(h, Request::MultiRead(vec![list()]), violating));
}

/// MULTI-01, edges 81 to 90
#[test]
fn multi_operations_see_the_earlier_ones() {
    let mut h = History::new();
    let a = h.client(0);
    let stat = |reply: &MultiResult| match reply {
        MultiResult::CreatedStat(_, stat) | MultiResult::Changed(stat) => Some(*stat),
        MultiResult::Created(_)
        | MultiResult::Deleted
        | MultiResult::Checked
        | MultiResult::Failed(_)
        | MultiResult::Data(..)
        | MultiResult::Children(_) => None,
    };
    let mut multi = |requests: Vec<Request>| {
        h.asks(a, Request::Multi(requests));
        h.does(a);
        match h.answers(a).result {
            Ok(ReplyBody::Multi(results)) => results,
            other => panic!("{other:?}"),
        }
    };
    let made = multi(vec![
        create("/m"),
        create("/m/a"),
        create_with("/m/s", "v0", 2),
        set("/m", "v1"),
        check("/m", 1),
    ]);
    let names = ["/m", "/m/a", "/m/s0000000001"];
    for (result, name) in made.iter().zip(names) {
        assert!(matches!(result, MultiResult::CreatedStat(path, _) if path == name), "{result:?}");
    }
    // The first result shows the node before its children were created.
    assert_eq!(stat(&made[0]).map(|stat| stat.num_children), Some(0));
    assert_eq!(stat(&made[3]).map(|stat| (stat.num_children, stat.version)), Some((2, 1)));
    assert_eq!(made[4], MultiResult::Checked);

    let codes: Vec<MultiResult> =
        [0, 0, ErrorCode::NodeExists.wire(), -2].into_iter().map(MultiResult::Failed).collect();
    let refused = vec![create_with("/m/s", "", 2), delete("/m/a"), create("/m"), delete("/m")];
    assert_eq!(multi(refused), codes);
    // The refused multi used no sequence number.
    let next = multi(vec![delete("/m/a"), create("/m/a"), create_with("/m/s", "", 2)]);
    assert!(matches!(&next[2], MultiResult::CreatedStat(path, _) if path == "/m/s0000000003"));
    assert_eq!(multi(Vec::new()), []);
    h.passes();
}

/// C9, with a bound for answers and transactions: larger ones are refused with -5, in reads and
/// writes.
#[test]
fn c9_oversized_request_gets_another_error() {
    let rules = Rules { record_bytes: 40, ..everything() };
    let large = create_with("/large", &"v".repeat(40), 0);
    check_pair_under(&rules, "C9", |h, violating| {
        let a = h.client(0);
        h.asks(a, large.clone());
        h.does_as(a, |txn| {
            assert_eq!(txn.op, TxnOp::Error { code: ErrorCode::Marshalling });
            if violating {
                txn.op = TxnOp::Error { code: ErrorCode::NoNode };
            }
        });
    });
    check_pair_under(&rules, "C9", |h, violating| {
        let a = h.client(0);
        for name in ["/one-of-them", "/two-of-them", "/three-of-them"] {
            h.writes(a, create(name));
        }
        h.asks(a, Request::GetChildren { path: "/".into(), watch: false, with_stat: false });
        h.answers_as(a, |reply| {
            assert_eq!(reply.result, Err(ErrorCode::Marshalling));
            if violating {
                reply.result = Err(ErrorCode::NoNode);
            }
        });
    });
}
