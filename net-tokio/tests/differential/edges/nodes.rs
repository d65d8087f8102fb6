//! Plays that create, change and count nodes.

use super::Add;
use super::ask::{
    OPEN, acl, c, check, create, create_of, create2, delete, exists, get, get_acl, list2, multi,
    on_path, set, set_acl, with_ttl,
};
use crate::play::Step;
use crate::request::Request;

pub(super) fn fresh(play: Add<'_>) {
    play(
        "edges 61, 62, 63, 74: what a new server holds, the play's subtree included",
        ["/", "/zookeeper", "/zookeeper/quota", "/zookeeper/config"]
            .iter()
            .flat_map(|path| {
                [c(0, get(path, false)), c(0, get_acl(path)), c(0, list2(path, false))]
            })
            .chain([c(0, on_path(104, "/"))])
            .collect(),
    );
}

pub(super) fn creates(play: Add<'_>) {
    let bad =
        ["/", "abc", "//a", "~/none/a/", "~/.", "~/..", "~/a/./b", "~//b", "~/\u{1}", "~/\u{1f}"];
    let worse = [
        "~/\u{7f}",
        "~/\u{9f}",
        "~/\u{e000}",
        "~/\u{f8ff}",
        "~/\u{fff0}",
        "~/\u{ffff}",
        "~/\u{1f600}",
    ];
    play(
        "edges 1, 2, 3, 4, 7, 9, 11: create of what is there, or is no path",
        bad.iter().chain(&worse).map(|path| c(0, create(path, 0))).collect(),
    );
    play(
        "edges 5, 6, 8, 10: paths that look bad",
        vec![
            c(0, create("~/s", 0)),
            c(0, create("~/s/", 0)),
            c(0, create("~/s/", 2)),
            c(0, create("~/a..b", 0)),
            c(0, create("~/.a", 0)),
            c(0, create("~/...", 0)),
            c(0, create("~/\u{a0}", 0)),
            c(0, list2("~", false)),
        ],
    );
    play(
        "edges 12, 13, 14: which check comes first",
        vec![
            c(0, create_of(1, "~/none/a", &[], 0)),
            c(0, create_of(1, "~/p", &[(31 - 4, "world", "anyone")], 0)),
            c(0, create("~/p", 0)),
            c(0, create("~/p/a", 0)),
            c(0, create("~/e", 1)),
            c(0, create("~/e/a", 0)),
        ],
    );
    play(
        "edges 15, 25, 26, 77, 78: flags, null data, replies, zxids",
        vec![
            c(0, create("~/a", 9)),
            c(0, create("~/a", -1)),
            c(0, acl(on_path(15, "~/n").buffer(None), OPEN).int(0)),
            c(0, get("~/n", false)),
            c(0, create("~/m", 0)),
            c(0, create2("~/o", 1)),
            c(0, get("~/none", false)),
            c(0, on_path(9, "~/none")),
        ],
    );
    play(
        "edges 27, 28, 29, 65, 66, 67: numbers of sequential nodes, and the counters of their \
         parent",
        vec![
            c(0, create("~/q", 0)),
            c(0, create2("~/q/s", 2)),
            c(0, create2("~/q/s", 2)),
            c(0, exists("~/q", false)),
            c(0, delete("~/q/s0000000000", -1)),
            c(0, exists("~/q", false)),
            c(0, create2("~/q/s", 2)),
            c(0, create("~/q/s0000000002", 0)),
            c(0, create("~/q/x", 0)),
            c(0, create2("~/q/s", 3)),
            c(0, exists("~/q", false)),
        ],
    );
    play(
        "edges 32, 33, 201: pipelined",
        vec![Step::Send {
            seat: 0,
            requests: [
                create("~/w", 0),
                create2("~/w/s", 2),
                create2("~/w/s", 2),
                get("~/w", false),
                delete("~/w/s0000000000", -1),
                create("~/w/s0000000000", 0),
                list2("~/w", false),
            ]
            .into_iter()
            .zip(1..)
            .map(|(request, xid)| request.xid(xid))
            .collect(),
        }],
    );
    play(
        "edge 35: /zookeeper is no place apart",
        vec![c(0, create("/zookeeper/twins", 0)), c(0, delete("/zookeeper/twins", -1))],
    );
}

pub(super) fn kinds(play: Add<'_>) {
    play(
        "edges 16, 17, 18, 19, 68: containers",
        vec![
            c(0, create2("~/plain", 4)),
            c(0, create2("~/ttl", 5)),
            c(0, create2("~/ttl", 6)),
            c(0, create_of(19, "~/c", OPEN, 0)),
            c(0, create_of(19, "~/c", OPEN, 2)),
            c(0, create_of(19, "~/d", OPEN, 4)),
            c(0, create_of(19, "~/e", OPEN, 1)),
            c(0, create_of(19, "~/f", OPEN, 9)),
            c(0, create("~/c/a", 0)),
            c(0, get("~/c", false)),
        ],
    );
    play(
        "edges 20, 21, 22, 68: nodes with a time to live",
        vec![
            c(0, with_ttl("~/a", 5, 0)),
            c(0, with_ttl("~/a", 5, -1)),
            c(0, with_ttl("~/a", 5, 1 << 40)),
            c(0, with_ttl("~/a", 0, 5)),
            c(0, with_ttl("~/a", 1, 0)),
            c(0, with_ttl("~/a", 9, 5)),
            c(0, with_ttl("~/a", 5, (1 << 40) - 1)),
            c(0, with_ttl("~/s", 6, 100_000)),
            c(0, get("~/a", false)),
        ],
    );
}

pub(super) fn changes(play: Add<'_>) {
    play(
        "edges 37 to 42: delete",
        vec![
            c(0, delete("/", -1)),
            c(0, delete("/zookeeper", -1)),
            c(0, delete("/zookeeper/quota", -1)),
            c(0, delete("/zookeeper/config", -1)),
            c(0, delete("~/none", -1)),
            c(0, create_of(1, "~/p", &[(31 - 8, "world", "anyone")], 0)),
            c(0, delete("~/p/none", -1)),
            c(0, create("~/a", 0)),
            c(0, create("~/a/b", 0)),
            c(0, delete("~/a", 7)),
            c(0, delete("~/a", -1)),
            c(0, create_of(1, "~/a/mute", &[(0, "world", "anyone")], 0)),
            c(0, delete("~/a/mute", -1)),
        ],
    );
    play(
        "edges 43, 46 to 50: setData",
        vec![
            c(0, create("~/a", 0)),
            c(0, set("~/a", "d", -1)),
            c(0, set("~/a", "e", 0)),
            c(0, set("~/a", "e", 1)),
            c(0, set("/", "", 1 << 30)),
            c(0, set("", "x", -1)),
            c(0, set("~/a/", "x", -1)),
            c(0, set("/zookeeper/config", "x", -1)),
            c(0, set("~/none", "x", 3)),
        ],
    );
    play(
        "edges 51 to 54: setACL",
        vec![
            c(0, create("~/a", 0)),
            c(0, get("~/a", true)),
            c(0, set_acl("~/none", &[], -1)),
            c(0, set_acl("~/a", OPEN, 0)),
            c(0, set_acl("~/a", OPEN, 0)),
            c(0, set_acl("~/a", &[(1, "world", "anyone")], 1)),
            c(0, set_acl("~/a", OPEN, -1)),
            c(0, get_acl("~/a")),
        ],
    );
    play("edge 55: check alone", vec![c(0, check("/", -1))]);
    play(
        "edges 59, 60: bodies that cannot be read, operations that are none",
        vec![
            c(0, create("~/a", 0).cut(6)),
            c(0, get("~", false).cut(4)),
            c(0, multi(vec![delete("~/a", -1)]).cut(12)),
            c(0, delete("~", -1).cut(0)),
            c(0, Request::new(55)),
            c(0, Request::new(0)),
        ],
    );
    play(
        "edges 72, 73, 198: paths that reads do not look at",
        vec![
            c(0, get("~//a", false)),
            c(0, get("~/", false)),
            c(0, exists("~/\u{0}", false)),
            c(0, get("~/\u{0}", false)),
            c(0, on_path(9, "no path")),
            c(0, on_path(9, "")),
        ],
    );
    play(
        "edges 70, 71, 75, 76: lists",
        vec![
            c(0, create("~/ge", 1)),
            c(0, create("~/gex", 1)),
            c(1, create("~/other", 1)),
            c(0, on_path(103, "~/ge")),
            c(0, on_path(103, "/")),
            c(0, on_path(103, " ")),
            c(0, Request::new(103).buffer(None)),
            c(0, on_path(104, "~")),
            c(0, on_path(104, "~/none")),
            c(0, list2("~", false)),
        ],
    );
}

pub(super) fn quotas(play: Add<'_>) {
    let limits = |text: &'static str| {
        acl(on_path(1, "/zookeeper/quota~/zookeeper_limits").buffer(Some(text.as_bytes())), OPEN)
            .int(0)
    };
    let stats = || create("/zookeeper/quota~/zookeeper_stats", 0);
    let usage = || c(0, get("/zookeeper/quota~/zookeeper_stats", false));
    play(
        "edges 80, 184, 185, 96: quota of nodes",
        vec![
            c(0, create("~/a", 0)),
            c(0, create("/zookeeper/quota~", 0)),
            c(0, limits("count=1,bytes=-1=;byteHardLimit=-1;countHardLimit=3")),
            c(0, stats()),
            c(0, get("/zookeeper/quota~/zookeeper_stats", true)),
            c(0, create("~/b", 0)),
            usage(),
            c(0, create("~/c", 0)),
            c(0, multi(vec![check("~", -1), create("~/c", 0), check("~", -1)])),
            c(0, delete("~/b", -1)),
            usage(),
        ],
    );
    play(
        "edges 186, 187, 188, 190: quota of bytes",
        vec![
            c(0, create("/zookeeper/quota~", 0)),
            c(0, limits("count=-1,bytes=1=;byteHardLimit=4;countHardLimit=-1")),
            c(0, stats()),
            c(0, set("~", "1234", -1)),
            usage(),
            c(0, set("~", "12345", -1)),
            c(
                0,
                set(
                    "/zookeeper/quota~/zookeeper_limits",
                    "count=-1,bytes=-1=;byteHardLimit=2;countHardLimit=-1",
                    -1,
                ),
            ),
            c(0, set("~", "123", -1)),
            c(0, set("~", "5678", -1)),
            c(0, set("~", "12", -1)),
            usage(),
            c(0, delete("/zookeeper/quota~/zookeeper_limits", -1)),
            c(0, set("~", "123456", -1)),
        ],
    );
}
