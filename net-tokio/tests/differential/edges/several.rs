//! Plays about multi requests, and about requests that no client library sends.

use super::Add;
use super::ask::{
    OPEN, acl, c, check, create, create_of, create2, delete, exists, get, list, multi, multi_of,
    on_path, set, with_ttl,
};
use crate::request::Request;

pub(super) fn multis(play: Add<'_>) {
    play(
        "edges 81 to 85, 87, 89: each operation sees those before it",
        vec![
            c(
                0,
                multi(vec![
                    create("~/m", 0),
                    create("~/m/a", 0),
                    create("~/m/s", 2),
                    create2("~/m/s", 2),
                ]),
            ),
            c(0, multi(vec![create2("~/n", 0), set("~/n", "x", 0), check("~/n", 1)])),
            c(0, multi(vec![delete("~/n", 1), create2("~/n", 0)])),
            c(0, multi(vec![create_of(19, "~/c", OPEN, 4), with_ttl("~/t", 5, 100_000)])),
        ],
    );
    play(
        "edges 86, 88, 90: all or nothing",
        vec![
            c(0, create("~/m", 0)),
            c(
                0,
                multi(vec![
                    create("~/m/s", 2),
                    check("~", -1),
                    delete("~/none", -1),
                    create("~/x", 0),
                ]),
            ),
            c(0, create("~/m/s", 2)),
            c(0, multi(vec![])),
            c(0, exists("~/m", false)),
        ],
    );
    play(
        "edges 56, 91 to 94: what a multi may hold",
        vec![
            c(0, create_of(1, "~/p", &[(30, "world", "anyone")], 0)),
            c(0, multi(vec![check("~/p", -1)])),
            c(0, multi(vec![create("~/a", 9)])),
            c(0, multi(vec![get("~", false)])),
            c(0, multi(vec![create("~/a", 0), get("~", false)])),
            c(0, multi_of(22, vec![delete("~/a", -1)])),
            c(0, multi(vec![on_path(55, "~")])),
        ],
    );
    play(
        "edge 95: multiRead",
        vec![c(0, multi_of(22, vec![get("~", false), get("~/none", false), list("~", false)]))],
    );
    play(
        "edge 97: several changes of one node",
        vec![
            c(0, create("~/a", 0)),
            c(0, get("~/a", true)),
            c(1, on_path(106, "~/a").int(0)),
            c(2, multi(vec![set("~/a", "1", -1), set("~/a", "2", -1)])),
        ],
    );
}

/// Nulls: the error of a check that precedes the access to the null takes precedence.
pub(super) fn nulls(play: Add<'_>) {
    let no_path = |op: i32| Request::new(op).buffer(None);
    let create = |flags: i32| acl(no_path(1).buffer(None), OPEN).int(flags);
    let no_list = |op: i32| on_path(op, "~/l").buffer(None).note("no ACL").int(-1).int(0);
    play(
        "nulls where a path is due",
        vec![
            c(0, create(0)),
            c(0, create(9)),
            c(0, no_path(2).int(-1)),
            c(0, no_path(5).buffer(None).int(-1)),
            c(0, acl(no_path(7), OPEN).int(-1)),
            c(0, no_path(3).flag(true)),
            c(0, no_path(6)),
            c(0, no_path(9)),
            c(0, no_path(17).int(1)),
            c(0, no_path(103)),
            c(0, no_path(104)),
        ],
    );
    // A null id of a known scheme: then the entries before it make no difference (WIRE-01).
    let no_id = |request: Request, scheme: &str| {
        request.note("[").int(1).int(31).string(scheme).buffer(None).note("]")
    };
    play(
        "an identity that is null",
        vec![
            c(0, acl(on_path(1, "~/i").buffer(None), OPEN).int(0)),
            c(0, no_id(on_path(7, "~/i"), "world").int(-1)),
            c(0, no_id(on_path(7, "~/i"), "digest").int(-1)),
            c(0, no_id(on_path(7, "~/i"), "ip").int(5)),
            c(0, no_id(on_path(7, "~/nobody"), "world").int(-1)),
            c(0, no_id(no_path(7), "world").int(-1)),
            c(0, no_id(on_path(1, "~/j").buffer(None), "digest").int(0)),
            c(0, on_path(6, "~/i")),
        ],
    );
    // The empty path can be watched; a null path is another path.
    let empty_watched = Request::new(101).xid(-8).zxid_behind(0).strings(&[]).strings(&[]);
    play(
        "no path is not the empty path",
        vec![
            c(0, empty_watched.strings(&[String::new()])),
            c(0, no_path(17).int(1)),
            c(0, no_path(18).int(1)),
            c(0, Request::new(17).string("").int(1)),
            c(0, Request::new(18).string("").int(1)),
        ],
    );
    play(
        "nulls within a multi",
        vec![
            c(0, multi(vec![delete("~/none", -1), create(0)])),
            c(0, multi(vec![create(0), delete("~/none", -1)])),
            c(0, multi(vec![check("~", -1), no_path(5).buffer(None).int(-1)])),
            c(0, multi(vec![check("~", -1), no_path(13).int(-1)])),
            c(0, multi(vec![delete("~/none", -1), no_list(1)])),
            c(0, multi(vec![delete("~/none", -1), no_list(19)])),
            c(0, multi(vec![delete("~/none", -1), no_list(21).long(5)])),
            c(0, no_list(1)),
        ],
    );
}

/// reconfig is disabled by default (`reconfigEnabled`).
pub(super) fn reconfig(play: Add<'_>) {
    let record = Request::new(16).string("server.2=localhost:1:2;3").buffer(None).buffer(None);
    play(
        "OP-16, ERR-29: reconfig while it is switched off",
        vec![
            c(0, record.clone().long(-1)),
            c(0, record.clone()),
            c(0, multi(vec![record.long(-1)])),
            c(0, exists("~", false)),
        ],
    );
}
