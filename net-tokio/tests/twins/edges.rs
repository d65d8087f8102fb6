//! Plays for the numbered edge cases of the protocol, whose answers a real ZooKeeper has given once (`edges.txt`).

use crate::play::Step;
use crate::request::{PREFIX, Request};
use crate::side::{Handshake, Password, Which};

/// Steps that show what some numbers are about.
pub(crate) struct Play {
    /// The numbers, and what is asked.
    pub(crate) title: &'static str,
    pub(crate) steps: Vec<Step>,
}

const OPEN: &[(i32, &str, &str)] = &[(31, "world", "anyone")];
const ANN: &str = "ann:grDcJ7OS1jCu/cG2TyJHw/I9L8o=";
const BOB: &str = "bob:yqVrLFrvoaI9z9fohteaNPJvRu8=";
const SUPER: &[u8] = b"root:super secret";

/// `~` begins the play's own subtree.
fn at(path: &str) -> String {
    path.replace('~', PREFIX)
}

fn c(seat: usize, request: Request) -> Step {
    Step::Send { seat, requests: vec![request] }
}

fn acl(request: Request, list: &[(i32, &str, &str)]) -> Request {
    let request = request.note("[").int(i32::try_from(list.len()).expect("is short"));
    let entry = |request: Request, &(perms, scheme, id): &(i32, &str, &str)| {
        request.int(perms).string(scheme).string(id)
    };
    list.iter().fold(request, entry).note("]")
}

fn create_of(op: i32, path: &str, list: &[(i32, &str, &str)], flags: i32) -> Request {
    acl(Request::new(op).string(&at(path)).buffer(Some(b"d")), list).int(flags)
}

fn create(path: &str, flags: i32) -> Request {
    create_of(1, path, OPEN, flags)
}

fn create2(path: &str, flags: i32) -> Request {
    create_of(15, path, OPEN, flags)
}

fn with_ttl(path: &str, flags: i32, ttl: i64) -> Request {
    create_of(21, path, OPEN, flags).long(ttl)
}

fn delete(path: &str, version: i32) -> Request {
    Request::new(2).string(&at(path)).int(version)
}

fn set(path: &str, data: &str, version: i32) -> Request {
    Request::new(5).string(&at(path)).buffer(Some(data.as_bytes())).int(version)
}

fn check(path: &str, version: i32) -> Request {
    Request::new(13).string(&at(path)).int(version)
}

fn exists(path: &str, watch: bool) -> Request {
    Request::new(3).string(&at(path)).flag(watch)
}

fn get(path: &str, watch: bool) -> Request {
    Request::new(4).string(&at(path)).flag(watch)
}

fn list(path: &str, watch: bool) -> Request {
    Request::new(8).string(&at(path)).flag(watch)
}

fn list2(path: &str, watch: bool) -> Request {
    Request::new(12).string(&at(path)).flag(watch)
}

fn get_acl(path: &str) -> Request {
    Request::new(6).string(&at(path))
}

fn set_acl(path: &str, list: &[(i32, &str, &str)], version: i32) -> Request {
    acl(Request::new(7).string(&at(path)), list).int(version)
}

fn on_path(op: i32, path: &str) -> Request {
    Request::new(op).string(&at(path))
}

fn auth(scheme: &str, data: &[u8]) -> Request {
    Request::new(100).xid(-4).int(0).string(scheme).buffer(Some(data))
}

fn multi_of(op: i32, parts: Vec<Request>) -> Request {
    let part =
        |request: Request, part: Request| request.int(part.op).flag(false).int(-1).record(part);
    parts.into_iter().fold(Request::new(op), part).int(-1).flag(true).int(-1)
}

fn multi(parts: Vec<Request>) -> Request {
    multi_of(14, parts)
}

fn set_watches(behind: i64, lists: [&[&str]; 3]) -> Request {
    let paths = |list: &[&str]| list.iter().map(|path| at(path)).collect::<Vec<_>>();
    let request = Request::new(101).xid(-8).zxid_behind(behind);
    lists.iter().fold(request, |request, list| request.strings(&paths(list)))
}

fn open(seat: usize, change: impl FnOnce(&mut Handshake)) -> Step {
    let mut how = Handshake::plain(Which::New);
    change(&mut how);
    Step::Open { seat, how }
}

/// Each play has a subtree and sessions of its own. Those on a new server are the first.
pub(crate) fn plays() -> Vec<Play> {
    let mut plays = Vec::new();
    let mut play = |title, steps| plays.push(Play { title, steps });
    fresh(&mut play);
    creates(&mut play);
    kinds(&mut play);
    changes(&mut play);
    multis(&mut play);
    watches(&mut play);
    sets_of_watches(&mut play);
    sessions(&mut play);
    access(&mut play);
    quotas(&mut play);
    plays
}

type Add<'a> = &'a mut dyn FnMut(&'static str, Vec<Step>);

fn fresh(play: Add<'_>) {
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

fn creates(play: Add<'_>) {
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
        "edges 27, 28, 29, 65, 66, 67: numbers of sequential nodes, and the counters of their parent",
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

fn kinds(play: Add<'_>) {
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

fn changes(play: Add<'_>) {
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
        "edges 71, 75, 76: lists",
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

fn multis(play: Add<'_>) {
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

fn watches(play: Add<'_>) {
    play(
        "edges 99 to 105, 109: one-shot watches",
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

fn sets_of_watches(play: Add<'_>) {
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

fn sessions(play: Add<'_>) {
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

fn access(play: Add<'_>) {
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

fn quotas(play: Add<'_>) {
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

/// Plays that our server does not answer like ZooKeeper yet.
pub(crate) const PENDING: &[&str] = &[
    "edges 16, 17, 18, 19, 68: containers",
    "edges 20, 21, 22, 68: nodes with a time to live",
    "edges 81 to 85, 87, 89: each operation sees those before it",
    "edges 56, 91 to 94: what a multi may hold",
    "edges 117, 123, 124: watches of those who may not read",
    "edges 161 to 164, 167, 168, 169: lists",
    "edges 165, 166, 170, 172, 173, 174, 175: digest",
    "edges 39, 176 to 180: who may what",
    "edges 80, 184, 185, 96: quota of nodes",
    "edges 186, 187, 188, 190: quota of bytes",
];
