//! W: watches and their events.
//!
//! A name that begins with an id is the violation that must be reported.

use zabkeeper_core::wire::AddWatchMode::{Persistent, PersistentRecursive};
use zabkeeper_core::wire::EventType::{
    NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted,
};
use zabkeeper_core::wire::{AddWatchMode, Request, SetWatches, WatcherType};

use super::history::{
    History, check_pair, create, create_with, delete, get, set, watch_children, watch_data,
    watch_exists,
};

fn resume(since: zabkeeper_core::Zxid, [data, exist, child]: [&[&str]; 3]) -> Request {
    let relative_zxid = Some(since);
    let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
    let (data, exist, child) = (paths(data), paths(exist), paths(child));
    Request::SetWatches(SetWatches { relative_zxid, data, exist, child, ..SetWatches::default() })
}

#[test]
fn w1_one_shot_watch_fires_twice() {
    check_pair("W1", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        for version in ["v1", "v2"] {
            h.asks(a, set("/", version));
            let zxid = h.does(a);
            if version == "v1" || violating {
                h.notifies(a, NodeDataChanged, "/", zxid);
            }
            h.answers(a);
        }
    });
}

#[test]
fn w2_set_watches_does_not_report_a_change() {
    check_pair("W2", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        h.closes(a);
        h.writes(b, set("/", "v1"));
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if !violating {
            h.notifies_without_zxid(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w2_client_forgets_its_watch() {
    check_pair("W2", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        let a = h.reconnects(a);
        if !violating {
            h.reads(a, resume(seen, [&["/"], &[], &[]]));
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w2_client_claims_a_zxid_beyond_an_unread_event() {
    check_pair("W2", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        h.closes(a);
        let change = h.writes(b, set("/", "v1"));
        let a = h.reconnects(a);
        h.asks(a, resume(if violating { change } else { seen }, [&["/"], &[], &[]]));
        if !violating {
            h.notifies_without_zxid(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w3_reply_shows_a_change_before_its_event() {
    check_pair("W3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        if !violating {
            h.notifies(a, NodeDataChanged, "/", zxid);
        }
        h.reads(a, get("/zookeeper"));
    });
}

#[test]
fn w3_write_reply_comes_before_the_event() {
    check_pair("W3", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_exists("/a"));
        h.asks(a, create("/a"));
        let zxid = h.does(a);
        if !violating {
            h.notifies(a, NodeCreated, "/a", zxid);
        }
        h.answers(a);
    });
}

#[test]
fn w3_events_are_swapped() {
    check_pair("W3", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        h.reads(a, watch_children("/"));
        let zxid = h.writes(b, create("/a"));
        if violating {
            h.notifies(a, NodeChildrenChanged, "/", zxid);
            h.notifies(a, NodeCreated, "/a", zxid);
        } else {
            h.notifies(a, NodeCreated, "/a", zxid);
            h.notifies(a, NodeChildrenChanged, "/", zxid);
        }
    });
}

/// Edge 105
#[test]
fn w4_child_watch_reports_a_deletion_as_a_children_change() {
    check_pair("W4", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, watch_children("/a"));
        let zxid = h.writes(b, delete("/a"));
        h.notifies(a, if violating { NodeChildrenChanged } else { NodeDeleted }, "/a", zxid);
    });
}

/// Edge 131
#[test]
fn w4_set_watches_reports_a_recreated_node_as_deleted() {
    check_pair("W4", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, watch_data("/a"));
        let seen = h.tip();
        h.closes(a);
        h.writes(b, delete("/a"));
        h.writes(b, create("/a"));
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/a"], &[], &[]]));
        h.notifies_without_zxid(a, if violating { NodeDeleted } else { NodeDataChanged }, "/a");
        h.answers(a);
    });
}

#[test]
fn w6_removed_watch_fires() {
    check_pair("W6", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let path = "/".to_owned();
        h.reads(a, Request::Watches { path, kind: WatcherType::Data, remove: true });
        h.asks(a, set("/", "v1"));
        let zxid = h.does(a);
        if violating {
            h.notifies(a, NodeDataChanged, "/", zxid);
        }
        h.answers(a);
    });
}

#[test]
fn w7_event_without_a_watch() {
    check_pair("W7", |h, violating| {
        let a = h.client(0);
        let zxid = h.writes(a, set("/", "v1"));
        if violating {
            h.notifies(a, NodeDataChanged, "/", zxid);
        }
    });
}

#[test]
fn w7_set_watches_reports_a_change_that_never_happened() {
    check_pair("W7", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if violating {
            h.notifies_without_zxid(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

/// An exists watch on the path is set again twice by setWatches, in the `data` list where `there`
/// is true, else in `exist`.
fn sets_again(h: &mut History, path: &str, there: [bool; 2]) {
    let (path, none): (&[&str], &[&str]) = (&[path], &[]);
    let lists = |there| if there { [path, none, none] } else { [none, path, none] };
    let a = h.client(0);
    h.reads(a, watch_exists(path[0]));
    let seen = h.tip();
    let a = h.reconnects(a);
    h.reads(a, resume(seen, lists(there[0])));
    let a = h.reconnects(a);
    h.asks(a, resume(seen, lists(there[1])));
}

/// WATCH-21
#[test]
fn w7_client_lists_a_data_watch_as_an_exist_watch() {
    check_pair("W7", |h, violating| sets_again(h, "/", [true, !violating]));
}

/// WATCH-20
#[test]
fn w7_client_lists_an_exist_watch_as_a_data_watch() {
    check_pair("W7", |h, violating| sets_again(h, "/none", [false, violating]));
}

/// Edge 100
#[test]
fn w8_failed_read_registers_a_watch() {
    check_pair("W8", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/a"));
        h.asks(a, create("/a"));
        let zxid = h.does(a);
        if violating {
            h.notifies(a, NodeCreated, "/a", zxid);
        }
        h.answers(a);
    });
}

/// Edge 104
#[test]
fn deletion_sends_one_event_for_the_node_and_one_for_its_parent() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create("/a"));
    h.reads(a, watch_data("/a"));
    h.reads(a, watch_children("/a"));
    h.reads(a, watch_children("/"));
    h.asks(a, delete("/a"));
    let zxid = h.does(a);
    h.notifies(a, NodeDeleted, "/a", zxid);
    h.notifies(a, NodeChildrenChanged, "/", zxid);
    h.answers(a);
    h.passes();
}

/// Edges 127 to 130
#[test]
fn set_watches_reports_missed_changes_and_registers_the_rest() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    for path in ["/gone", "/same", "/parent"] {
        h.writes(b, create(path));
        h.reads(a, watch_data(path));
        h.reads(a, watch_children(path));
    }
    h.reads(a, watch_exists("/new"));
    h.reads(a, watch_exists("/never"));
    let seen = h.tip();
    h.closes(a);
    h.writes(b, delete("/gone"));
    h.writes(b, create("/new"));
    h.writes(b, create("/parent/child"));
    let a = h.reconnects(a);
    let paths: &[&str] = &["/gone", "/same", "/parent"];
    h.asks(a, resume(seen, [paths, &["/new", "/never"], paths]));
    h.notifies_without_zxid(a, NodeDeleted, "/gone");
    h.notifies_without_zxid(a, NodeCreated, "/new");
    h.notifies_without_zxid(a, NodeDeleted, "/gone");
    h.notifies_without_zxid(a, NodeChildrenChanged, "/parent");
    h.answers(a);
    // The watches that were registered without an event fire.
    h.asks(a, set("/same", "v1"));
    let zxid = h.does(a);
    h.notifies(a, NodeDataChanged, "/same", zxid);
    h.answers(a);
    h.passes();
}

/// WATCH-14, edge 134
#[test]
fn closing_session_gets_events_of_its_own_ephemerals() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create_with("/e", "v0", 1));
    h.reads(a, watch_data("/e"));
    h.reads(a, watch_children("/"));
    h.asks(a, Request::CloseSession);
    let zxid = h.does(a);
    h.notifies(a, NodeDeleted, "/e", zxid);
    h.notifies(a, NodeChildrenChanged, "/", zxid);
    h.answers(a);
    h.passes();
}

/// MULTI-08, edge 97
#[test]
fn multi_fires_in_the_order_of_its_operations() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.writes(b, create("/a"));
    h.reads(a, watch_data("/a"));
    h.reads(a, watch_children("/a"));
    h.reads(a, watch_exists("/b"));
    h.reads(a, watch_children("/"));
    let ops = vec![
        set("/a", "v1"),
        set("/a", "v2"),
        create("/b"),
        delete("/a"),
        create("/a"),
        delete("/b"),
    ];
    let zxid = h.writes(b, Request::Multi(ops));
    h.notifies(a, NodeDataChanged, "/a", zxid);
    h.notifies(a, NodeCreated, "/b", zxid);
    h.notifies(a, NodeChildrenChanged, "/", zxid);
    h.notifies(a, NodeDeleted, "/a", zxid);
    h.reads(a, get("/a"));
    h.passes();
}

fn add_watch(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch { path: path.into(), mode }
}

#[test]
fn w5_persistent_watch_misses_a_change() {
    check_pair("W5", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, add_watch("/a", Persistent));
        for (request, event) in [
            (create("/a"), NodeCreated),
            (set("/a", "v1"), NodeDataChanged),
            (create("/a/b"), NodeChildrenChanged),
            (delete("/a/b"), NodeChildrenChanged),
            (delete("/a"), NodeDeleted),
        ] {
            let zxid = h.writes(b, request);
            if !violating || event != NodeDataChanged {
                h.notifies(a, event, "/a", zxid);
            }
            h.reads(a, get("/"));
        }
    });
}

/// Edge 113
#[test]
fn w5_recursive_watch_reports_a_children_change() {
    check_pair("W5", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/r"));
        h.writes(b, create("/rx"));
        h.reads(a, add_watch("/r", PersistentRecursive));
        let zxid = h.writes(b, create("/r/a"));
        h.notifies(a, NodeCreated, "/r/a", zxid);
        if violating {
            h.notifies(a, NodeChildrenChanged, "/r", zxid);
        }
        h.writes(b, set("/rx", "v1"));
        h.reads(a, get("/"));
    });
}

/// Edge 114
#[test]
fn w5_two_recursive_watches_report_a_change_twice() {
    check_pair("W5", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/r"));
        h.reads(a, add_watch("/", PersistentRecursive));
        h.reads(a, add_watch("/r", PersistentRecursive));
        let zxid = h.writes(b, set("/r", "v1"));
        h.notifies(a, NodeDataChanged, "/r", zxid);
        if violating {
            h.notifies(a, NodeDataChanged, "/r", zxid);
        }
        h.reads(a, get("/"));
    });
}

/// Edge 97
#[test]
fn w5_persistent_watch_misses_a_change_of_a_multi() {
    check_pair("W5", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, add_watch("/a", Persistent));
        let zxid = h.writes(b, Request::Multi(vec![set("/a", "v1"), set("/a", "v2")]));
        h.notifies(a, NodeDataChanged, "/a", zxid);
        if !violating {
            h.notifies(a, NodeDataChanged, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w2_client_forgets_its_recursive_watch() {
    check_pair("W2", |h, violating| {
        let a = h.client(0);
        h.reads(a, add_watch("/a", PersistentRecursive));
        let seen = h.tip();
        let a = h.reconnects(a);
        if !violating {
            let recursive = vec!["/a".to_owned()];
            let again =
                SetWatches { relative_zxid: Some(seen), recursive, ..SetWatches::default() };
            h.reads(a, Request::SetWatches(again));
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w6_client_sets_a_used_up_watch_again() {
    check_pair("W6", |h, violating| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        h.reads(a, watch_children("/"));
        h.asks(a, set("/", "v1"));
        let zxid = h.does(a);
        h.notifies(a, NodeDataChanged, "/", zxid);
        h.answers(a);
        let seen = h.tip();
        let a = h.reconnects(a);
        let data: &[&str] = if violating { &["/"] } else { &[] };
        h.reads(a, resume(seen, [data, &[], &["/"]]));
    });
}

/// HS-13
#[test]
fn w7_client_claims_an_older_zxid_than_it_has_seen() {
    check_pair("W7", |h, violating| {
        let a = h.client(0);
        h.writes(a, set("/", "v1"));
        h.reads(a, watch_data("/"));
        let seen = if violating { zabkeeper_core::Zxid::ZERO } else { h.tip() };
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if violating {
            h.notifies_without_zxid(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w6_removed_persistent_watch_fires() {
    check_pair("W6", |h, violating| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, add_watch("/a", Persistent));
        let (path, kind) = ("/a".to_owned(), WatcherType::Persistent);
        h.asks(a, Request::Watches { path, kind, remove: true });
        h.answers_as(a, |reply| reply.result = Ok(zabkeeper_core::wire::ReplyBody::Empty));
        let zxid = h.writes(b, create("/a"));
        if violating {
            h.notifies(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

/// WATCH-07, WATCH-08. The connection gets one event; one-shot watches are used up, the others
/// stay.
#[test]
fn connection_gets_one_event_for_all_its_watches() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, watch_exists("/a"));
    h.reads(a, add_watch("/a", Persistent));
    h.reads(a, add_watch("/", PersistentRecursive));
    for (request, event) in [
        (create("/a"), NodeCreated),
        (set("/a", "v1"), NodeDataChanged),
        (delete("/a"), NodeDeleted),
    ] {
        let zxid = h.writes(b, request);
        h.notifies(a, event, "/a", zxid);
        h.reads(a, get("/"));
    }
    h.passes();
}

/// Edge 121. Removing one watch keeps the others, even while an event is on its way.
#[test]
fn removing_one_kind_of_watch_keeps_the_others() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.writes(b, create("/a"));
    h.reads(a, watch_data("/a"));
    h.reads(a, add_watch("/a", Persistent));
    let remove = |kind| Request::Watches { path: "/a".into(), kind, remove: true };
    let before = h.tip();
    h.asks(a, remove(WatcherType::Data));
    let zxid = h.writes(b, set("/a", "v1"));
    h.answers_at(a, before, |reply| reply.result = Ok(zabkeeper_core::wire::ReplyBody::Empty));
    h.notifies(a, NodeDataChanged, "/a", zxid);
    h.asks(a, remove(WatcherType::Data));
    h.answers_as(a, |reply| reply.result = Err(zabkeeper_core::ErrorCode::NoWatcher));
    h.passes();
}

/// WATCH-23, edge 132. Changes while the client was away are not reported.
#[test]
fn set_watches_registers_persistent_watches_without_events() {
    let mut h = History::new();
    let (a, b) = (h.client(0), h.client(1));
    h.reads(a, add_watch("/a", Persistent));
    let relative_zxid = Some(h.tip());
    h.closes(a);
    h.writes(b, create("/a"));
    let a = h.reconnects(a);
    let persistent = vec!["/a".to_owned()];
    h.reads(
        a,
        Request::SetWatches(SetWatches { relative_zxid, persistent, ..SetWatches::default() }),
    );
    let zxid = h.writes(b, delete("/a"));
    h.notifies(a, NodeDeleted, "/a", zxid);
    h.passes();
}
