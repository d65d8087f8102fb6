//! Plays about watches of all kinds.

use super::Add;
use super::ask::{
    ANN, at, auth, c, create, create_of, delete, exists, get, list, on_path, open, set, set_watches,
};
use crate::play::Step;
use crate::request::Request;
use crate::side::Which;

pub(super) fn watches(play: Add<'_>) {
    play(
        "edges 99 to 105, 109, 125, 126: one-shot watches",
        vec![
            c(0, exists("~/a", true)),
            c(1, get("~/a", true)),
            c(1, list("~/a", true)),
            c(2, list("~", true)),
            c(0, create("~/a", 0)),
            c(0, exists("~/a", true)),
            c(0, get("~/a", true)),
            c(0, set("~/a", "1", -1)),
            c(0, set("~/a", "2", -1)),
            c(0, get("~/a", true)),
            c(0, list("~/a", true)),
            c(0, list("~", true)),
            c(0, delete("~/a", -1)),
        ],
    );
    play(
        "edges 106, 107, 108: what a watch does not see",
        vec![
            c(0, get("~", true)),
            c(0, create("~/a", 0)),
            c(1, list("~", true)),
            c(0, set("~/a", "1", -1)),
            c(0, create("~/a/b", 0)),
        ],
    );
    play(
        "edges 110 to 116: persistent and recursive watches",
        vec![
            c(0, on_path(106, "~/p").int(0)),
            c(1, on_path(106, "~/r").int(1)),
            c(2, on_path(106, "/").int(1)),
            c(2, on_path(106, "~/r").int(1)),
            c(3, create("~/p", 0)),
            c(3, create("~/p/a", 0)),
            c(3, delete("~/p/a", -1)),
            c(3, delete("~/p", -1)),
            c(3, create("~/r", 0)),
            c(3, create("~/rx", 0)),
            c(3, create("~/r/a", 0)),
            c(3, create("~/r/a/b", 0)),
            c(3, set("~/r", "1", -1)),
            c(3, on_path(106, "~").int(7)),
        ],
    );
    play(
        "edges 118 to 122: checkWatches and removeWatches",
        vec![
            c(0, on_path(17, "~").int(3)),
            c(0, on_path(18, "~").int(9)),
            c(0, get("~", true)),
            c(0, on_path(17, "~").int(2)),
            c(0, on_path(17, "~").int(1)),
            c(0, on_path(18, "~").int(3)),
            c(0, on_path(18, "~").int(3)),
            c(0, on_path(106, "~").int(0)),
            c(0, on_path(18, "~").int(2)),
            c(0, on_path(17, "~").int(4)),
            c(0, on_path(17, "~").int(5)),
            c(0, on_path(18, "~").int(4)),
            c(0, on_path(18, "~").int(4)),
        ],
    );
    play(
        "edges 117, 123, 124: watches of those who may not read",
        vec![
            c(0, auth("digest", b"ann:one")),
            c(0, create_of(1, "~/mine", &[(31, "digest", ANN)], 0)),
            c(1, on_path(106, "~/mine").int(0)),
            c(2, exists("~/next", true)),
            c(0, set("~/mine", "1", -1)),
            c(0, create_of(1, "~/next", &[(31, "digest", ANN)], 0)),
            c(0, delete("~/next", -1)),
            c(0, create("~/next", 0)),
        ],
    );
}

pub(super) fn sets_of_watches(play: Add<'_>) {
    play(
        "edges 127 to 131, 133: setWatches",
        vec![
            c(0, create("~/a", 0)),
            c(0, create("~/b", 0)),
            c(0, set("~/a", "1", -1)),
            c(0, create("~/b/c", 0)),
            c(0, delete("~/b/c", -1)),
            c(1, set_watches(10, [&["~/none", "~/a"], &["~/a", "~/none"], &["~/b", "~/none"]])),
            c(2, set_watches(0, [&["~/a"], &[], &["~/b"]])),
            c(0, set("~/a", "2", -1)),
            c(0, create("~/b/c", 0)),
            c(0, create("~/none", 0)),
        ],
    );
    play(
        "edge 132: setWatches2",
        vec![
            c(0, create("~/a", 0)),
            c(
                1,
                Request::new(105)
                    .xid(-8)
                    .zxid_behind(5)
                    .strings(&[])
                    .strings(&[])
                    .strings(&[])
                    .strings(&[at("~/a")])
                    .strings(&[at("~")]),
            ),
            c(0, set("~/a", "1", -1)),
            c(0, create("~/a/b", 0)),
        ],
    );
    play(
        "edges 134, 136, 147, 148: the end of a session and of a connection",
        vec![
            c(0, create("~/e", 1)),
            c(0, exists("~/e", true)),
            c(1, list("~", true)),
            c(0, Request::new(-11)),
            c(2, create("~/f", 1)),
            c(2, exists("~/f", true)),
            Step::HangUp { seat: 2 },
            c(1, exists("~/f", false)),
            open(2, |how| how.session = Which::Own),
            c(1, set("~/f", "1", -1)),
        ],
    );
}
