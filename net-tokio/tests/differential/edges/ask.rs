//! Short names for the requests of the plays.

use crate::play::Step;
use crate::request::{PREFIX, Request};
use crate::side::{Handshake, Which};

pub(super) const OPEN: &[(i32, &str, &str)] = &[(31, "world", "anyone")];
pub(super) const ANN: &str = "ann:grDcJ7OS1jCu/cG2TyJHw/I9L8o=";
pub(super) const BOB: &str = "bob:yqVrLFrvoaI9z9fohteaNPJvRu8=";
pub(super) const SUPER: &[u8] = b"root:super secret";

/// Replaces `~` by the play's own subtree.
pub(super) fn at(path: &str) -> String {
    path.replace('~', PREFIX)
}

pub(super) fn c(seat: usize, request: Request) -> Step {
    Step::Send { seat, requests: vec![request] }
}

pub(super) fn acl(request: Request, list: &[(i32, &str, &str)]) -> Request {
    let request = request.note("[").int(i32::try_from(list.len()).expect("is short"));
    let entry = |request: Request, &(perms, scheme, id): &(i32, &str, &str)| {
        request.int(perms).string(scheme).string(id)
    };
    list.iter().fold(request, entry).note("]")
}

pub(super) fn create_of(op: i32, path: &str, list: &[(i32, &str, &str)], flags: i32) -> Request {
    acl(Request::new(op).string(&at(path)).buffer(Some(b"d")), list).int(flags)
}

pub(super) fn create(path: &str, flags: i32) -> Request {
    create_of(1, path, OPEN, flags)
}

pub(super) fn create2(path: &str, flags: i32) -> Request {
    create_of(15, path, OPEN, flags)
}

pub(super) fn with_ttl(path: &str, flags: i32, ttl: i64) -> Request {
    create_of(21, path, OPEN, flags).long(ttl)
}

pub(super) fn delete(path: &str, version: i32) -> Request {
    Request::new(2).string(&at(path)).int(version)
}

pub(super) fn set(path: &str, data: &str, version: i32) -> Request {
    Request::new(5).string(&at(path)).buffer(Some(data.as_bytes())).int(version)
}

pub(super) fn check(path: &str, version: i32) -> Request {
    Request::new(13).string(&at(path)).int(version)
}

pub(super) fn exists(path: &str, watch: bool) -> Request {
    Request::new(3).string(&at(path)).flag(watch)
}

pub(super) fn get(path: &str, watch: bool) -> Request {
    Request::new(4).string(&at(path)).flag(watch)
}

pub(super) fn list(path: &str, watch: bool) -> Request {
    Request::new(8).string(&at(path)).flag(watch)
}

pub(super) fn list2(path: &str, watch: bool) -> Request {
    Request::new(12).string(&at(path)).flag(watch)
}

pub(super) fn get_acl(path: &str) -> Request {
    Request::new(6).string(&at(path))
}

pub(super) fn set_acl(path: &str, list: &[(i32, &str, &str)], version: i32) -> Request {
    acl(Request::new(7).string(&at(path)), list).int(version)
}

pub(super) fn on_path(op: i32, path: &str) -> Request {
    Request::new(op).string(&at(path))
}

pub(super) fn auth(scheme: &str, data: &[u8]) -> Request {
    Request::new(100).xid(-4).int(0).string(scheme).buffer(Some(data))
}

pub(super) fn multi_of(op: i32, parts: Vec<Request>) -> Request {
    let part =
        |request: Request, part: Request| request.int(part.op).flag(false).int(-1).record(part);
    parts.into_iter().fold(Request::new(op), part).int(-1).flag(true).int(-1)
}

pub(super) fn multi(parts: Vec<Request>) -> Request {
    multi_of(14, parts)
}

pub(super) fn set_watches(behind: i64, lists: [&[&str]; 3]) -> Request {
    let paths = |list: &[&str]| list.iter().map(|path| at(path)).collect::<Vec<_>>();
    let request = Request::new(101).xid(-8).zxid_behind(behind);
    lists.iter().fold(request, |request, list| request.strings(&paths(list)))
}

pub(super) fn open(seat: usize, change: impl FnOnce(&mut Handshake)) -> Step {
    let mut how = Handshake::plain(Which::New);
    change(&mut how);
    Step::Open { seat, how }
}
