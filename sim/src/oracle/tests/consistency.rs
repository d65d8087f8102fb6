//! C: what clients may rely on.

use zabkeeper_core::txn::TxnOp;
use zabkeeper_core::wire::{MultiResult, ReplyBody, Request};
use zabkeeper_core::{ErrorCode, SessionId, Zxid};

use super::history::{
    History, create, create_with, data, delete, everything, get, set, twins, twins_under,
};
use crate::model::Rules;

#[test]
fn c1_a_later_write_takes_an_earlier_place() {
    twins("C1", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        let earlier = h.tip();
        h.writes(a, create("/a"));
        h.asks(b, create("/b"));
        h.does(b);
        h.answers_as(b, |reply| {
            if lie {
                reply.zxid = earlier.wire();
            }
        });
    });
}

#[test]
fn c2_replies_change_places() {
    twins("C2", |h, lie| {
        let a = h.client(0);
        h.asks(a, get("/"));
        h.asks(a, get("/zookeeper"));
        if lie {
            h.answers_as(a, |reply| reply.xid += 1);
        } else {
            h.answers(a);
        }
        h.answers(a);
    });
}

#[test]
fn c2_a_write_is_answered_with_the_next_ones_zxid() {
    twins("C2", |h, lie| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.asks(a, create("/b"));
        h.does(a);
        h.does(a);
        h.answers_as(a, |reply| reply.zxid += i64::from(lie));
        h.answers(a);
    });
}

#[test]
fn c3_a_read_goes_back() {
    twins("C3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.tip();
        h.writes(a, create("/a"));
        h.reads(b, get("/a"));
        h.asks(b, get("/a"));
        h.answers_at(b, if lie { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c3_a_read_is_staler_than_it_says() {
    twins("C3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.writes(a, create("/a"));
        let new = h.writes(a, set("/a", "v1"));
        h.asks(b, get("/a"));
        let at = if lie { old } else { new };
        h.answers_at(b, at, |reply| reply.zxid = new.wire());
    });
}

#[test]
fn c3_a_reply_names_what_nobody_has_committed() {
    twins("C3", |h, lie| {
        let a = h.client(0);
        h.asks(a, get("/"));
        h.answers_as(a, |reply| reply.zxid += i64::from(lie));
    });
}

#[test]
fn c4_a_session_misses_its_own_write() {
    twins("C4", |h, lie| {
        let a = h.client(0);
        let old = h.tip();
        h.writes(a, create("/a"));
        h.asks(a, get("/a"));
        h.answers_at(a, if lie { old } else { h.tip() }, |_| {});
    });
}

/// C6 would be first to see a reply below what a client claims in its handshake; this one claims nothing.
#[test]
fn c4_a_session_misses_its_own_write_on_the_next_connection() {
    twins("C4", |h, lie| {
        let a = h.client(0);
        let old = h.tip();
        h.writes(a, create("/a"));
        h.closes(a);
        let b = h.greets(0, h.session(a), Zxid::ZERO);
        h.welcomes(b, h.session(a));
        h.asks(b, get("/a"));
        h.answers_at(b, if lie { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c5_a_sync_does_not_wait() {
    twins("C5", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        let old = h.tip();
        h.writes(a, create("/a"));
        h.asks(b, Request::Sync { path: "/".into() });
        h.answers_at(b, if lie { old } else { h.tip() }, |_| {});
    });
}

#[test]
fn c6_a_client_is_ahead_of_the_server() {
    twins("C6", |h, lie| {
        let a = h.client(0);
        let ahead = Zxid(h.tip().0 + u64::from(lie));
        h.closes(a);
        let b = h.greets(0, h.session(a), ahead);
        h.welcomes(b, h.session(a));
    });
}

#[test]
fn c7_an_acknowledged_write_is_lost() {
    twins("C7", |h, lie| {
        let a = h.client(0);
        let before = h.tip();
        let zxid = h.writes(a, create("/a"));
        h.closes(a);
        h.restarts(if lie { before } else { zxid });
    });
}

#[test]
fn c7_acknowledged_and_never_committed() {
    twins("C7", |h, lie| {
        let a = h.client(0);
        h.asks(a, create_with("/a", "v0", 0));
        let txn = h.decides(a);
        h.proposes(&txn.encode());
        if lie {
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
fn c8_said_to_have_failed_and_done() {
    twins("C8", |h, lie| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.does(a);
        h.answers_as(a, |reply| {
            if lie {
                reply.result = Err(ErrorCode::NodeExists);
            }
        });
    });
}

#[test]
fn c8_done_twice_on_one_connection() {
    twins("C8", |h, lie| {
        let a = h.client(0);
        h.asks(a, set("/", "once"));
        let mut txn = h.decides(a);
        h.commits(txn.clone());
        if lie {
            txn.zxid = h.next_zxid();
            h.commits(txn);
        }
    });
}

/// What comes after it would not be judged by what there is.
#[test]
fn c8_what_was_done_twice_is_done_where_that_does_not_count() {
    twins("C3", |h, lie| {
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
            if let (true, Ok(ReplyBody::Data(_, stat))) = (lie, &mut reply.result) {
                stat.version -= 1;
            }
        });
    });
}

#[test]
fn c8_sent_again_on_the_next_connection_by_the_client() {
    twins("C8", |h, lie| {
        let a = h.client(0);
        h.asks(a, set("/", "client 0 serial 1"));
        h.does(a);
        let a = h.reconnects(a);
        h.writes(a, set("/", if lie { "client 0 serial 1" } else { "client 0 serial 2" }));
    });
}

#[test]
fn c9_the_wrong_error() {
    twins("C9", |h, lie| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, create("/a"));
        h.does_as(a, |txn| {
            if lie {
                txn.op = TxnOp::Error { code: ErrorCode::NoNode };
            }
        });
        h.answers(a);
    });
}

#[test]
fn c9_the_wrong_stat() {
    twins("C9", |h, lie| {
        let a = h.client(0);
        h.asks(a, create("/a"));
        h.does(a);
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::PathStat(_, stat))) = (lie, &mut reply.result) {
                stat.cversion += 1;
            }
        });
    });
}

#[test]
fn c9_another_connections_write() {
    twins("C9", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.asks(a, create("/a"));
        let session = if lie { h.session(b) } else { h.session(a) };
        h.does_as(a, |txn| txn.session = session);
    });
}

#[test]
fn c9_a_check_that_a_read_forgets() {
    twins("C9", |h, lie| {
        let a = h.client(0);
        h.asks(a, get("/nowhere"));
        h.answers_as(a, |reply| {
            if lie {
                reply.result = Err(ErrorCode::NotEmpty);
            }
        });
    });
}

#[test]
fn c9_edges_1_to_51_are_decided_as_zookeeper_does() {
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
fn c10_a_sequence_number_is_used_again() {
    twins("C10", |h, lie| {
        let a = h.client(0);
        h.writes(a, create_with("/s", "v0", 2));
        h.writes(a, delete("/s0000000001"));
        h.asks(a, create_with("/s", "v0", 2));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Create { path, .. }) = (lie, &mut txn.op) {
                *path = "/s0000000000".into();
            }
        });
        h.answers(a);
    });
}

#[test]
fn c11_a_value_that_nobody_wrote() {
    twins("C11", |h, lie| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, get("/a"));
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Data(value, _))) = (lie, &mut reply.result) {
                *value = data("v9");
            }
        });
    });
}

#[test]
fn c11_a_write_puts_other_data() {
    twins("C11", |h, lie| {
        let a = h.client(0);
        h.asks(a, set("/", "v1"));
        h.does_as(a, |txn| {
            if let (true, TxnOp::SetData { data: value, .. }) = (lie, &mut txn.op) {
                *value = data("v2");
            }
        });
    });
}

#[test]
fn c11_a_server_writes_on_its_own() {
    twins("C11", |h, lie| {
        let a = h.client(0);
        h.asks(a, set("/", "v1"));
        h.does_as(a, |txn| {
            if lie {
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
fn t6_half_of_a_multi_is_done() {
    twins("T6", |h, lie| {
        let a = h.client(0);
        h.asks(a, Request::Multi(vec![create("/a"), create("/a/b")]));
        h.does_as(a, |txn| {
            if let (true, TxnOp::Multi(ops)) = (lie, &mut txn.op) {
                ops.pop();
            }
        });
        h.answers(a);
    });
}

#[test]
fn t6_a_multi_that_must_fail_is_done_up_to_there() {
    twins("T6", |h, lie| {
        let a = h.client(0);
        h.writes(a, create("/a"));
        h.asks(a, Request::Multi(vec![set("/a", "v1"), check("/a", 0)]));
        h.does_as(a, |txn| {
            if lie {
                let (path, data) = ("/a".into(), data("v1"));
                txn.op = TxnOp::Multi(vec![TxnOp::SetData { path, data, version: 1 }]);
            }
        });
        h.answers(a);
    });
}

#[test]
fn c9_the_wrong_operation_of_a_multi_is_said_to_have_failed() {
    twins("C9", |h, lie| {
        let a = h.client(0);
        h.asks(a, Request::Multi(vec![create("/a"), create("/a"), delete("/a")]));
        h.does(a);
        h.answers_as(a, |reply| {
            if let (true, Ok(ReplyBody::Multi(results))) = (lie, &mut reply.result) {
                results.swap(0, 1);
            }
        });
    });
}

fn list() -> Request {
    Request::GetChildren { path: "/p".into(), watch: false, with_stat: false }
}

/// Children of three creations are listed by this read; a lie has the first two the other way round.
fn lists(h: &mut History, read: Request, lie: bool) {
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
        if lie {
            names.swap(0, 1);
        }
    });
}

#[test]
fn c3_op_08_children_are_listed_in_another_order() {
    twins("C3", |h, lie| lists(h, list(), lie));
}

#[test]
fn c3_op_08_a_multi_read_lists_children_in_another_order() {
    twins("C3", |h, lie| lists(h, Request::MultiRead(vec![list()]), lie));
}

#[test]
fn multi_01_edges_81_to_90_each_operation_sees_the_earlier_ones() {
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
    // The first result shows the node before its children came.
    assert_eq!(stat(&made[0]).map(|stat| stat.num_children), Some(0));
    assert_eq!(stat(&made[3]).map(|stat| (stat.num_children, stat.version)), Some((2, 1)));
    assert_eq!(made[4], MultiResult::Checked);

    let codes: Vec<MultiResult> =
        [0, 0, ErrorCode::NodeExists.wire(), -2].into_iter().map(MultiResult::Failed).collect();
    let refused = vec![create_with("/m/s", "", 2), delete("/m/a"), create("/m"), delete("/m")];
    assert_eq!(multi(refused), codes);
    // Its sequence number was given back.
    let next = multi(vec![delete("/m/a"), create("/m/a"), create_with("/m/s", "", 2)]);
    assert!(matches!(&next[2], MultiResult::CreatedStat(path, _) if path == "/m/s0000000003"));
    assert_eq!(multi(Vec::new()), []);
    h.passes();
}

/// Not with a bound for answers and transactions: whatever is larger is refused with -5, wherever it is asked for.
#[test]
fn c9_what_is_too_large_is_done() {
    let rules = Rules { record_bytes: 40, ..everything() };
    let large = create_with("/large", &"v".repeat(40), 0);
    twins_under(&rules, "C9", |h, lie| {
        let a = h.client(0);
        h.asks(a, large.clone());
        h.does_as(a, |txn| {
            assert_eq!(txn.op, TxnOp::Error { code: ErrorCode::Marshalling });
            if lie {
                txn.op = TxnOp::Error { code: ErrorCode::NoNode };
            }
        });
    });
    twins_under(&rules, "C9", |h, lie| {
        let a = h.client(0);
        for name in ["/one-of-them", "/two-of-them", "/three-of-them"] {
            h.writes(a, create(name));
        }
        h.asks(a, Request::GetChildren { path: "/".into(), watch: false, with_stat: false });
        h.answers_as(a, |reply| {
            assert_eq!(reply.result, Err(ErrorCode::Marshalling));
            if lie {
                reply.result = Err(ErrorCode::NoNode);
            }
        });
    });
}
