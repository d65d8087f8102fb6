//! Adds the chroot to the paths of requests and removes it from those of replies (CLIENT-02).
//!
//! Owns which field of which record is a path. Must not validate paths: the server does.

use zabkeeper_core::wire::{MultiResult, ReplyBody, Request};

use super::connect::ConnectString;

/// The request with paths as the server knows them; `None` if a path is relative and would leave
/// the chroot.
pub(crate) fn put_on(connect: &ConnectString, mut request: Request) -> Option<Request> {
    if connect.chroot().is_empty() {
        return Some(request);
    }
    for path in paths_of(&mut request) {
        *path = connect.to_server(std::mem::take(path))?;
    }
    Some(request)
}

/// The reply with paths as the caller knows them. Names of children are not paths.
pub(crate) fn take_off(connect: &ConnectString, body: ReplyBody) -> ReplyBody {
    if connect.chroot().is_empty() {
        return body;
    }
    match body {
        ReplyBody::Path(path) => ReplyBody::Path(connect.to_caller(path)),
        ReplyBody::PathStat(path, stat) => ReplyBody::PathStat(connect.to_caller(path), stat),
        ReplyBody::Multi(results) => {
            let part = |result| take_off_part(connect, result);
            ReplyBody::Multi(results.into_iter().map(part).collect())
        }
        ReplyBody::Empty
        | ReplyBody::Stat(_)
        | ReplyBody::Data(..)
        | ReplyBody::Children(_)
        | ReplyBody::ChildrenStat(..)
        | ReplyBody::Acl(..)
        | ReplyBody::Number(_)
        | ReplyBody::NullPath
        | ReplyBody::BrokenMulti(_)
        | ReplyBody::Token(_)
        | ReplyBody::Identities(_) => body,
    }
}

fn take_off_part(connect: &ConnectString, result: MultiResult) -> MultiResult {
    match result {
        MultiResult::Created(path) => MultiResult::Created(connect.to_caller(path)),
        MultiResult::CreatedStat(path, stat) => {
            MultiResult::CreatedStat(connect.to_caller(path), stat)
        }
        MultiResult::Changed(_)
        | MultiResult::Deleted
        | MultiResult::Checked
        | MultiResult::Failed(_)
        | MultiResult::Data(..)
        | MultiResult::Children(_) => result,
    }
}

fn paths_of(request: &mut Request) -> Vec<&mut String> {
    match request {
        Request::Create { path, .. }
        | Request::Delete { path, .. }
        | Request::Exists { path, .. }
        | Request::GetData { path, .. }
        | Request::SetData { path, .. }
        | Request::GetChildren { path, .. }
        | Request::Check { path, .. }
        | Request::Sync { path }
        | Request::Watches { path, .. }
        | Request::GetAcl { path }
        | Request::SetAcl { path, .. }
        | Request::CreateContainer { path, .. }
        | Request::CreateTtl { path, .. }
        | Request::GetAllChildrenNumber { path }
        | Request::AddWatch { path, .. } => vec![path],
        Request::Multi(requests) | Request::MultiRead(requests) => requests.iter_mut().flat_map(paths_of).collect(),
        Request::Ping
        | Request::Auth { .. }
        | Request::SetWatches(_)
        | Request::WhoAmI
        | Request::NoPath { .. }
        | Request::Reconfig
        | Request::Reconfigure(_)
        | Request::Throttled { .. }
        | Request::Sasl { .. }
        // As in the Java client, the prefix and the paths in the reply are not translated.
        | Request::GetEphemerals { .. }
        | Request::CloseSession
        | Request::Undecodable { .. }
        | Request::Unknown { .. } => Vec::new(),
    }
}
