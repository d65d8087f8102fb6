//! W: watches and their events.

use zabkeeper_core::wire::AddWatchMode::{Persistent, PersistentRecursive};
use zabkeeper_core::wire::EventType::{
    NodeChildrenChanged, NodeCreated, NodeDataChanged, NodeDeleted,
};
use zabkeeper_core::wire::{AddWatchMode, Request, SetWatches, WatcherType};

use super::history::{
    History, create, create_with, delete, get, set, twins, watch_children, watch_data, watch_exists,
};

fn resume(since: zabkeeper_core::Zxid, [data, exist, child]: [&[&str]; 3]) -> Request {
    let relative_zxid = Some(since);
    let paths = |list: &[&str]| list.iter().map(|path| (*path).to_owned()).collect();
    let (data, exist, child) = (paths(data), paths(exist), paths(child));
    Request::SetWatches(SetWatches { relative_zxid, data, exist, child, ..SetWatches::default() })
}

#[test]
fn w1_a_watch_fires_twice() {
    twins("W1", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        for version in ["v1", "v2"] {
            h.asks(a, set("/", version));
            let zxid = h.does(a);
            if version == "v1" || lie {
                h.tells(a, NodeDataChanged, "/", zxid);
            }
            h.answers(a);
        }
    });
}

#[test]
fn w2_set_watches_keeps_quiet_about_a_change() {
    twins("W2", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        h.closes(a);
        h.writes(b, set("/", "v1"));
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if !lie {
            h.retells(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w2_a_client_forgets_its_watch() {
    twins("W2", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        let a = h.reconnects(a);
        if !lie {
            h.reads(a, resume(seen, [&["/"], &[], &[]]));
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w2_a_client_claims_to_have_seen_what_it_was_never_told() {
    twins("W2", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        h.closes(a);
        let change = h.writes(b, set("/", "v1"));
        let a = h.reconnects(a);
        h.asks(a, resume(if lie { change } else { seen }, [&["/"], &[], &[]]));
        if !lie {
            h.retells(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w3_a_reply_shows_a_change_before_its_event() {
    twins("W3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_data("/"));
        let zxid = h.writes(b, set("/", "v1"));
        if !lie {
            h.tells(a, NodeDataChanged, "/", zxid);
        }
        h.reads(a, get("/zookeeper"));
    });
}

#[test]
fn w3_the_reply_to_the_write_itself_overtakes_the_event() {
    twins("W3", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_exists("/a"));
        h.asks(a, create("/a"));
        let zxid = h.does(a);
        if !lie {
            h.tells(a, NodeCreated, "/a", zxid);
        }
        h.answers(a);
    });
}

#[test]
fn w3_events_change_places() {
    twins("W3", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, watch_exists("/a"));
        h.reads(a, watch_children("/"));
        let zxid = h.writes(b, create("/a"));
        if lie {
            h.tells(a, NodeChildrenChanged, "/", zxid);
            h.tells(a, NodeCreated, "/a", zxid);
        } else {
            h.tells(a, NodeCreated, "/a", zxid);
            h.tells(a, NodeChildrenChanged, "/", zxid);
        }
    });
}

#[test]
fn w4_edge_105_a_child_watch_on_a_deleted_node() {
    twins("W4", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, watch_children("/a"));
        let zxid = h.writes(b, delete("/a"));
        h.tells(a, if lie { NodeChildrenChanged } else { NodeDeleted }, "/a", zxid);
    });
}

#[test]
fn w4_edge_131_deleted_and_created_again_is_a_change() {
    twins("W4", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, watch_data("/a"));
        let seen = h.tip();
        h.closes(a);
        h.writes(b, delete("/a"));
        h.writes(b, create("/a"));
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/a"], &[], &[]]));
        h.retells(a, if lie { NodeDeleted } else { NodeDataChanged }, "/a");
        h.answers(a);
    });
}

#[test]
fn w6_a_removed_watch_fires() {
    twins("W6", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let path = "/".to_owned();
        h.reads(a, Request::Watches { path, kind: WatcherType::Data, remove: true });
        h.asks(a, set("/", "v1"));
        let zxid = h.does(a);
        if lie {
            h.tells(a, NodeDataChanged, "/", zxid);
        }
        h.answers(a);
    });
}

#[test]
fn w7_an_event_without_a_watch() {
    twins("W7", |h, lie| {
        let a = h.client(0);
        let zxid = h.writes(a, set("/", "v1"));
        if lie {
            h.tells(a, NodeDataChanged, "/", zxid);
        }
    });
}

#[test]
fn w7_set_watches_tells_what_was_not_missed() {
    twins("W7", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        let seen = h.tip();
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if lie {
            h.retells(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

/// The watch that exists has set there is set again twice: each time as one of a node that is `there`, or is not.
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

#[test]
fn w7_watch_21_a_client_mistakes_one_of_its_watches_for_one_of_no_node() {
    twins("W7", |h, lie| sets_again(h, "/", [true, !lie]));
}

#[test]
fn w7_watch_20_a_client_mistakes_a_watch_of_no_node_for_one_of_a_node() {
    twins("W7", |h, lie| sets_again(h, "/none", [false, lie]));
}

#[test]
fn w8_edge_100_a_failed_read_registers() {
    twins("W8", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/a"));
        h.asks(a, create("/a"));
        let zxid = h.does(a);
        if lie {
            h.tells(a, NodeCreated, "/a", zxid);
        }
        h.answers(a);
    });
}

#[test]
fn edge_104_one_deletion_two_tables_and_the_parent() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create("/a"));
    h.reads(a, watch_data("/a"));
    h.reads(a, watch_children("/a"));
    h.reads(a, watch_children("/"));
    h.asks(a, delete("/a"));
    let zxid = h.does(a);
    h.tells(a, NodeDeleted, "/a", zxid);
    h.tells(a, NodeChildrenChanged, "/", zxid);
    h.answers(a);
    h.passes();
}

#[test]
fn edge_127_to_130_every_outcome_of_set_watches() {
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
    h.retells(a, NodeDeleted, "/gone");
    h.retells(a, NodeCreated, "/new");
    h.retells(a, NodeDeleted, "/gone");
    h.retells(a, NodeChildrenChanged, "/parent");
    h.answers(a);
    // What was registered silently is armed.
    h.asks(a, set("/same", "v1"));
    let zxid = h.does(a);
    h.tells(a, NodeDataChanged, "/same", zxid);
    h.answers(a);
    h.passes();
}

#[test]
fn watch_14_edge_134_a_closing_session_is_told_of_its_own_ephemerals() {
    let mut h = History::new();
    let a = h.client(0);
    h.writes(a, create_with("/e", "v0", 1));
    h.reads(a, watch_data("/e"));
    h.reads(a, watch_children("/"));
    h.asks(a, Request::CloseSession);
    let zxid = h.does(a);
    h.tells(a, NodeDeleted, "/e", zxid);
    h.tells(a, NodeChildrenChanged, "/", zxid);
    h.answers(a);
    h.passes();
}

#[test]
fn edge_97_multi_08_a_multi_fires_in_the_order_of_its_operations() {
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
    h.tells(a, NodeDataChanged, "/a", zxid);
    h.tells(a, NodeCreated, "/b", zxid);
    h.tells(a, NodeChildrenChanged, "/", zxid);
    h.tells(a, NodeDeleted, "/a", zxid);
    h.reads(a, get("/a"));
    h.passes();
}

fn add_watch(path: &str, mode: AddWatchMode) -> Request {
    Request::AddWatch { path: path.into(), mode }
}

#[test]
fn w5_a_persistent_watch_fires_once_and_no_more() {
    twins("W5", |h, lie| {
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
            if !lie || event != NodeDataChanged {
                h.tells(a, event, "/a", zxid);
            }
            h.reads(a, get("/"));
        }
    });
}

#[test]
fn w5_edge_113_a_recursive_watch_tells_of_children() {
    twins("W5", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/r"));
        h.writes(b, create("/rx"));
        h.reads(a, add_watch("/r", PersistentRecursive));
        let zxid = h.writes(b, create("/r/a"));
        h.tells(a, NodeCreated, "/r/a", zxid);
        if lie {
            h.tells(a, NodeChildrenChanged, "/r", zxid);
        }
        h.writes(b, set("/rx", "v1"));
        h.reads(a, get("/"));
    });
}

#[test]
fn w5_edge_114_two_recursive_watches_tell_twice() {
    twins("W5", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/r"));
        h.reads(a, add_watch("/", PersistentRecursive));
        h.reads(a, add_watch("/r", PersistentRecursive));
        let zxid = h.writes(b, set("/r", "v1"));
        h.tells(a, NodeDataChanged, "/r", zxid);
        if lie {
            h.tells(a, NodeDataChanged, "/r", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w5_edge_97_a_multi_tells_of_each_of_its_changes() {
    twins("W5", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.writes(b, create("/a"));
        h.reads(a, add_watch("/a", Persistent));
        let zxid = h.writes(b, Request::Multi(vec![set("/a", "v1"), set("/a", "v2")]));
        h.tells(a, NodeDataChanged, "/a", zxid);
        if !lie {
            h.tells(a, NodeDataChanged, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w2_a_client_forgets_its_persistent_watch() {
    twins("W2", |h, lie| {
        let a = h.client(0);
        h.reads(a, add_watch("/a", PersistentRecursive));
        let seen = h.tip();
        let a = h.reconnects(a);
        if !lie {
            let recursive = vec!["/a".to_owned()];
            let again =
                SetWatches { relative_zxid: Some(seen), recursive, ..SetWatches::default() };
            h.reads(a, Request::SetWatches(again));
        }
        h.reads(a, get("/"));
    });
}

#[test]
fn w6_a_client_sets_a_watch_again_that_has_fired() {
    twins("W6", |h, lie| {
        let a = h.client(0);
        h.reads(a, watch_data("/"));
        h.reads(a, watch_children("/"));
        h.asks(a, set("/", "v1"));
        let zxid = h.does(a);
        h.tells(a, NodeDataChanged, "/", zxid);
        h.answers(a);
        let seen = h.tip();
        let a = h.reconnects(a);
        let data: &[&str] = if lie { &["/"] } else { &[] };
        h.reads(a, resume(seen, [data, &[], &["/"]]));
    });
}

#[test]
fn w7_hs_13_a_client_asks_for_what_it_has_seen() {
    twins("W7", |h, lie| {
        let a = h.client(0);
        h.writes(a, set("/", "v1"));
        h.reads(a, watch_data("/"));
        let seen = if lie { zabkeeper_core::Zxid::ZERO } else { h.tip() };
        let a = h.reconnects(a);
        h.asks(a, resume(seen, [&["/"], &[], &[]]));
        if lie {
            h.retells(a, NodeDataChanged, "/");
        }
        h.answers(a);
    });
}

#[test]
fn w6_a_removed_persistent_watch_fires() {
    twins("W6", |h, lie| {
        let (a, b) = (h.client(0), h.client(1));
        h.reads(a, add_watch("/a", Persistent));
        let (path, kind) = ("/a".to_owned(), WatcherType::Persistent);
        h.asks(a, Request::Watches { path, kind, remove: true });
        h.answers_as(a, |reply| reply.result = Ok(zabkeeper_core::wire::ReplyBody::Empty));
        let zxid = h.writes(b, create("/a"));
        if lie {
            h.tells(a, NodeCreated, "/a", zxid);
        }
        h.reads(a, get("/"));
    });
}

/// Told once, however many watches it concerns; what is used up is used up, the others stand (WATCH-07, WATCH-08).
#[test]
fn watch_07_08_one_event_for_all_watches_of_a_connection() {
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
        h.tells(a, event, "/a", zxid);
        h.reads(a, get("/"));
    }
    h.passes();
}

/// A watch that is removed leaves the others, also where an event is on its way.
#[test]
fn w6_edge_121_removing_one_kind_leaves_the_others() {
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
    h.tells(a, NodeDataChanged, "/a", zxid);
    h.asks(a, remove(WatcherType::Data));
    h.answers_as(a, |reply| reply.result = Err(zabkeeper_core::ErrorCode::NoWatcher));
    h.passes();
}

/// What changed while the client was away is not told (WATCH-23, edge 132).
#[test]
fn edge_132_persistent_watches_are_set_again_in_silence() {
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
    h.tells(a, NodeDeleted, "/a", zxid);
    h.passes();
}
