//! Plays about sessions and authentication.

use super::Add;
use super::ask::{
    ANN, BOB, OPEN, SUPER, auth, c, create, create_of, delete, exists, get, get_acl, on_path, open,
    set, set_acl,
};
use crate::play::Step;
use crate::request::{PREFIX, Request};
use crate::side::{Password, Which};

pub(super) fn sessions(play: Add<'_>) {
    play(
        "edges 137, 138: handshakes",
        vec![
            open(0, |how| how.timeout_ms = 1),
            open(1, |how| how.timeout_ms = i32::MAX),
            open(2, |how| how.timeout_ms = -1),
            open(3, |how| how.read_only = None),
            open(4, |how| how.read_only = Some(true)),
        ],
    );
    play(
        "edges 139, 140, 141, 142: coming back",
        vec![
            c(0, create("~/e", 1)),
            open(1, |how| how.session = Which::Of(0)),
            Step::HangUp { seat: 1 },
            open(1, |how| {
                how.session = Which::Own;
                how.password = Password::Wrong;
            }),
            open(2, |how| how.session = Which::Unknown),
            open(2, |how| how.seen_behind = Some(-1_000)),
            open(1, |how| how.session = Which::Own),
            c(1, on_path(103, "/")),
        ],
    );
    play("edge 149: ping", vec![c(0, Request::new(11).xid(-2)), c(0, Request::new(11).xid(7))]);
    play(
        "edges 155, 156, 157: frames that are none",
        vec![
            Step::Bytes { seat: 0, bytes: 0x10_0000_i32.to_be_bytes().to_vec() },
            Step::Bytes { seat: 0, bytes: (-1_i32).to_be_bytes().to_vec() },
            Step::Bytes { seat: 0, bytes: b"ruok".to_vec() },
            c(0, set("~", &"m".repeat(0xF_FFFF - 8 - 4 - PREFIX.len() - 4 - 4), -1)),
        ],
    );
}

pub(super) fn access(play: Add<'_>) {
    let lists: &[&[(i32, &str, &str)]] = &[
        &[],
        &[(31, "world", "bob")],
        &[(31, "digest", "a:b:c")],
        &[(31, "digest", "a:")],
        &[(31, "digest", ":b")],
        &[(31, "auth", "")],
        &[(31, "foo", "bar")],
        &[(0, "world", "anyone"), (255, "ip", "127.0.0.1")],
        &[(31, "world", "anyone"), (31, "world", "anyone")],
        &[(31, "ip", "127.0.0.1/33")],
        &[(31, "ip", "127.0.0.0/8")],
        &[(31, "x509", "CN=ann")],
        &[(31, "sasl", "ann")],
        &[(31, "super", "")],
    ];
    let each = |list: &&[(i32, &str, &str)]| {
        [c(0, create_of(1, "~/a", list, 0)), c(0, get_acl("~/a")), c(0, delete("~/a", -1))]
    };
    play("edges 161 to 164, 167, 168, 169: lists", lists.iter().flat_map(each).collect());
    play(
        "edges 165, 166, 170, 172, 173, 174, 175: digest",
        vec![
            c(0, auth("digest", b"ann:one")),
            c(0, auth("digest", b"no colon")),
            c(0, create_of(1, "~/a", &[(31, "auth", "anything")], 0)),
            c(0, get_acl("~/a")),
            c(1, get_acl("~/a")),
            c(1, get("~/a", false)),
            c(0, set_acl("~/a", &[(31, "digest", ANN), (1, "world", "anyone")], -1)),
            c(1, get_acl("~/a")),
            c(1, set("~/a", "1", -1)),
            c(0, set_acl("~/a", &[(31, "digest", BOB)], -1)),
            c(0, get("~/a", false)),
            c(0, auth("digest", b"bob:two")),
            c(0, get("~/a", false)),
            c(0, Request::new(107)),
            c(2, auth("digest", SUPER)),
            c(2, create_of(1, "~/s", &[(31, "auth", "")], 0)),
            c(2, get_acl("~/s")),
        ],
    );
    for scheme in ["foo", "world", "sasl"] {
        let title = match scheme {
            "foo" => "edge 171: authentication by a scheme that there is not",
            "world" => "edge 171: authentication as world",
            _ => "edge 171: authentication as sasl by the wrong operation",
        };
        play(title, vec![c(0, auth(scheme, b"x"))]);
    }
    play(
        "edges 39, 176 to 180: who may what",
        vec![
            c(0, auth("digest", b"ann:one")),
            c(0, create_of(1, "~/a", &[(31, "digest", ANN), (12, "world", "anyone")], 0)),
            c(0, create_of(1, "~/a/b", &[(31, "digest", ANN)], 0)),
            c(1, exists("~/a", true)),
            c(1, on_path(104, "~")),
            c(1, on_path(104, "~/a")),
            c(1, create("~/a/c", 0)),
            c(1, delete("~/a/c", -1)),
            c(1, delete("~/a/none", -1)),
            c(1, set_acl("~/a", OPEN, -1)),
            c(2, auth("digest", SUPER)),
            c(2, get("~/a", false)),
            c(2, set("/zookeeper/config", "", -1)),
            open(0, |how| how.session = Which::Own),
            c(0, get("~/a", false)),
        ],
    );
}
