//! Requests that change nothing, answered from the local tree (Java `FinalRequestProcessor`).
//!
//! Owns what each read returns and which watch it leaves. Must not write or send.

use crate::error::ErrorCode;
use crate::ids::{ConnId, Zxid};
use crate::tree::{NodeId, Tree};
use crate::watch::{Kind, Watches};
use crate::wire::{EventType, Perms, ReplyBody, Request, SetWatches, Stat, WatchEvent};

/// Answers a read of `conn`.
///
/// # Panics
/// On requests that `server` handles itself: writes, auth, and unknown ones.
pub(crate) fn answer(
    tree: &Tree,
    watches: &mut Watches,
    conn: ConnId,
    request: Request,
) -> Result<ReplyBody, ErrorCode> {
    match request {
        Request::Exists { path, watch } => exists(tree, watches, conn, &path, watch),
        Request::GetData { path, watch } => {
            let (id, stat) = readable(tree, &path)?;
            if watch {
                watches.add(Kind::Data, &path, conn);
            }
            Ok(ReplyBody::Data(tree.node(id).data.clone(), stat))
        }
        Request::GetChildren { path, watch, with_stat } => {
            let (id, stat) = readable(tree, &path)?;
            if watch {
                watches.add(Kind::Child, &path, conn);
            }
            let children = tree.children(id);
            Ok(if with_stat {
                ReplyBody::ChildrenStat(children, stat)
            } else {
                ReplyBody::Children(children)
            })
        }
        // The leader is the only voter, so it needs nobody's word that it still leads (CONS-05).
        Request::Sync { path } => Ok(ReplyBody::Path(path)),
        Request::Ping | Request::SetWatches(_) => Ok(ReplyBody::Empty),
        Request::Watches { path, kind, remove } => {
            let found = if remove {
                watches.remove(&path, conn, kind)
            } else {
                watches.contains(&path, conn, kind)
            };
            if found { Ok(ReplyBody::Empty) } else { Err(ErrorCode::NoWatcher) }
        }
        Request::Undecodable { .. } => Err(ErrorCode::Marshalling),
        Request::Create { .. }
        | Request::Delete { .. }
        | Request::SetData { .. }
        | Request::Check { .. }
        | Request::Multi(_)
        | Request::CloseSession
        | Request::Auth { .. }
        | Request::Unknown { .. } => unreachable!("{request} is no read"),
    }
}

/// Sets the watches of an earlier connection again, and returns what has changed meanwhile (WATCH-20 to WATCH-22, 24).
pub(crate) fn set_watches(
    tree: &Tree,
    watches: &mut Watches,
    conn: ConnId,
    request: &SetWatches,
) -> Vec<WatchEvent> {
    let mut events = Vec::new();
    let mut fire = |event, path: &String| {
        events.push(WatchEvent { zxid: None, event, path: path.clone() });
    };
    let newer = |zxid: Zxid| zxid > request.relative_zxid;
    for path in &request.data {
        match tree.find(path) {
            None => fire(EventType::NodeDeleted, path),
            Some(id) if newer(tree.node(id).mzxid) => fire(EventType::NodeDataChanged, path),
            Some(_) => watches.add(Kind::Data, path, conn),
        }
    }
    for path in &request.exist {
        match tree.find(path) {
            Some(_) => fire(EventType::NodeCreated, path),
            None => watches.add(Kind::Data, path, conn),
        }
    }
    for path in &request.child {
        match tree.find(path) {
            None => fire(EventType::NodeDeleted, path),
            Some(id) if newer(tree.node(id).pzxid) => fire(EventType::NodeChildrenChanged, path),
            Some(_) => watches.add(Kind::Child, path, conn),
        }
    }
    events
}

/// A watch is set whether or not the node exists (WATCH-03), but not where it may not be read.
fn exists(
    tree: &Tree,
    watches: &mut Watches,
    conn: ConnId,
    path: &str,
    watch: bool,
) -> Result<ReplyBody, ErrorCode> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    let found = readable(tree, path);
    if watch && found != Err(ErrorCode::NoAuth) {
        watches.add(Kind::Data, path, conn);
    }
    found.map(|(_, stat)| ReplyBody::Stat(stat))
}

fn readable(tree: &Tree, path: &str) -> Result<(NodeId, Stat), ErrorCode> {
    let id = tree.find(path).ok_or(ErrorCode::NoNode)?;
    if !tree.may(id, Perms::READ) {
        return Err(ErrorCode::NoAuth);
    }
    Ok((id, tree.stat(id)))
}
