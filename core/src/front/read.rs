//! Reads, answered from the local tree (Java `FinalRequestProcessor`).
//!
//! Owns what each read returns and which watch it sets. Must not write or send.

use bytes::Bytes;

use crate::auth::{self, Access, Who};
use crate::config::Membership;
use crate::error::ErrorCode;
use crate::ids::{ConnId, SessionId, Zxid};
use crate::tree::{CONFIG_NODE, NodeId, Tree};
use crate::watch::{Kind, Watches};
use crate::wire::{
    Acl, EventType, MultiResult, OpCode, Perms, ReplyBody, Request, SetWatches, Stat, WatchEvent,
};

/// The client that reads.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadContext<'a> {
    /// Its connection, which its watches belong to.
    pub(crate) conn: ConnId,
    /// Its session.
    pub(crate) session: SessionId,
    /// Its identities.
    pub(crate) who: Who<'a>,
    /// Approximate limit of a reply, bytes.
    pub(crate) room: usize,
    /// What [`CONFIG_NODE`] shows in place of its data in the tree.
    pub(crate) membership: Option<&'a Membership>,
}

impl<'a> ReadContext<'a> {
    /// The membership to show, if `path` is [`CONFIG_NODE`].
    fn members_at(&self, path: &str) -> Option<&'a Membership> {
        self.membership.filter(|_| path == CONFIG_NODE)
    }
}

/// Answers a read, and sets its watch.
///
/// # Panics
/// On requests that `front/requests` answers itself (auth, unknown ones), and on writes, which
/// `zab/propose/prep` decides.
pub(crate) fn answer(
    tree: &Tree,
    watches: &mut Watches,
    context: &ReadContext<'_>,
    request: Request,
) -> Result<ReplyBody, ErrorCode> {
    let ReadContext { conn, who, .. } = *context;
    match request {
        Request::Exists { path, watch } => exists(tree, watches, context, &path, watch),
        Request::GetData { path, watch } => get_data(tree, watches, context, &path, watch),
        Request::GetChildren { path, watch, with_stat } => {
            get_children(tree, watches, context, &path, (watch, with_stat))
        }
        // The leader's confirmation of the sync has arrived: the tree has every write that was
        // committed before the sync (CONS-05).
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
        Request::GetAcl { path } => get_acl(tree, context, &path),
        Request::GetEphemerals { prefix } => {
            Ok(ReplyBody::Children(ephemerals(tree, context, &prefix)?))
        }
        Request::GetAllChildrenNumber { path } => {
            let (id, _) = readable(tree, context, &path)?;
            // For the empty path, ZooKeeper counts `/` as a descendant.
            Ok(ReplyBody::Number(tree.descendants(id) + i32::from(path.is_empty())))
        }
        Request::WhoAmI => Ok(ReplyBody::Identities(who.shown())),
        Request::MultiRead(requests) => multi_read(tree, watches, context, requests),
        Request::AddWatch { path, mode } => {
            // OP-106: set even if the node does not exist or may not be read.
            watches.add(Kind::from(mode), &path, conn);
            Ok(ReplyBody::Number(0))
        }
        Request::NoPath { op: OpCode::Sync, .. } => Ok(ReplyBody::NullPath),
        // No watch is on a null path, which differs from the empty path.
        Request::NoPath { op: OpCode::CheckWatches | OpCode::RemoveWatches, .. } => {
            Err(ErrorCode::NoWatcher)
        }
        Request::Undecodable { .. } | Request::NoPath { .. } => Err(ErrorCode::Marshalling),
        Request::Throttled { .. } => Err(ErrorCode::Throttled),
        Request::Create { .. }
        | Request::Delete { .. }
        | Request::SetData { .. }
        | Request::Check { .. }
        | Request::Multi(_)
        | Request::CloseSession
        | Request::SetAcl { .. }
        | Request::CreateContainer { .. }
        | Request::CreateTtl { .. }
        | Request::Auth { .. }
        | Request::Sasl { .. }
        | Request::Reconfig
        | Request::Reconfigure(_)
        | Request::Unknown { .. } => unreachable!("{request} is no read"),
    }
}

fn get_data(
    tree: &Tree,
    watches: &mut Watches,
    context: &ReadContext<'_>,
    path: &str,
    watch: bool,
) -> Result<ReplyBody, ErrorCode> {
    let (id, stat) = readable(tree, context, path)?;
    if watch {
        watches.add(Kind::Data, path, context.conn);
    }
    let data = match context.members_at(path) {
        None => tree.node(id).data.clone(),
        Some(members) => Some(Bytes::copy_from_slice(members.text.as_bytes())),
    };
    Ok(ReplyBody::Data(data, stat))
}

fn get_children(
    tree: &Tree,
    watches: &mut Watches,
    context: &ReadContext<'_>,
    path: &str,
    (watch, with_stat): (bool, bool),
) -> Result<ReplyBody, ErrorCode> {
    let (id, stat) = readable(tree, context, path)?;
    // A refused request sets no watch.
    fit(tree.names_size(id, context.room), context.room)?;
    if watch {
        watches.add(Kind::Child, path, context.conn);
    }
    let children = tree.children(id);
    Ok(if with_stat {
        ReplyBody::ChildrenStat(children, stat)
    } else {
        ReplyBody::Children(children)
    })
}

fn multi_read(
    tree: &Tree,
    watches: &mut Watches,
    context: &ReadContext<'_>,
    requests: Vec<Request>,
) -> Result<ReplyBody, ErrorCode> {
    let mut results = Vec::with_capacity(requests.len());
    let mut size = 0;
    for request in requests {
        if let Request::NoPath { .. } = request {
            return Ok(ReplyBody::BrokenMulti(results));
        }
        let result = answer(tree, watches, context, request);
        if result == Err(ErrorCode::Marshalling) {
            // A part that is too large alone makes the whole too large. Continuing could scan such
            // a node thousands of times.
            return Err(ErrorCode::Marshalling);
        }
        let result = multi_part(result);
        // A few bytes can request a node of a megabyte thousands of times.
        size += part_size(&result);
        fit(size, context.room)?;
        results.push(result);
    }
    Ok(ReplyBody::Multi(results))
}

/// Sets the watches of an earlier connection again, and returns events for the changes since
/// (WATCH-20 to WATCH-24). Persistent watches report only later changes.
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
    let newer = |zxid: Zxid| Some(zxid) > request.relative_zxid;
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
    for path in &request.persistent {
        watches.add(Kind::Persistent, path, conn);
    }
    for path in &request.recursive {
        watches.add(Kind::Recursive, path, conn);
    }
    events
}

/// Sets the watch even if the node does not exist (WATCH-03), but not if it may not be read.
fn exists(
    tree: &Tree,
    watches: &mut Watches,
    context: &ReadContext<'_>,
    path: &str,
    watch: bool,
) -> Result<ReplyBody, ErrorCode> {
    if path.contains('\0') {
        return Err(ErrorCode::BadArguments);
    }
    let found = readable(tree, context, path);
    if watch && found != Err(ErrorCode::NoAuth) {
        watches.add(Kind::Data, path, context.conn);
    }
    found.map(|(_, stat)| ReplyBody::Stat(stat))
}

/// OP-06: hides the digests from a client that may not change the list.
fn get_acl(tree: &Tree, context: &ReadContext<'_>, path: &str) -> Result<ReplyBody, ErrorCode> {
    let who = context.who;
    let id = tree.find(path).ok_or(ErrorCode::NoNode)?;
    let list = tree.acl(id);
    let either = Perms(Perms::READ.0 | Perms::ADMIN.0);
    if !who.may(list, &Access::new(either, path)) {
        return Err(ErrorCode::NoAuth);
    }
    let mut list = if list.is_empty() { Acl::open() } else { list.to_vec() };
    if !who.may(tree.acl(id), &Access::new(Perms::ADMIN, path)) {
        auth::redact(&mut list);
    }
    Ok(ReplyBody::Acl(list, stat(tree, context, id, path)))
}

/// OP-103: paths that start with `prefix`; an empty or blank prefix and `/` ask for all.
fn ephemerals(
    tree: &Tree,
    context: &ReadContext<'_>,
    prefix: &str,
) -> Result<Vec<String>, ErrorCode> {
    let all = matches!(prefix.trim_matches(|c| c <= ' '), "" | "/");
    let mut size = 0;
    let found = tree.ephemerals(context.session, if all { "" } else { prefix });
    found
        .map(|path| {
            size += text_size(path);
            fit(size, context.room).map(|()| path.to_owned())
        })
        .collect()
}

/// A reply has to fit into a frame and into memory; ZooKeeper would run out of memory.
fn fit(size: usize, room: usize) -> Result<(), ErrorCode> {
    if size <= room { Ok(()) } else { Err(ErrorCode::Marshalling) }
}

fn text_size(text: &str) -> usize {
    4 + text.len()
}

fn part_size(part: &MultiResult) -> usize {
    match part {
        MultiResult::Data(data, _) => 90 + data.as_ref().map_or(0, Bytes::len),
        MultiResult::Children(names) => {
            names.iter().map(|name| text_size(name)).sum::<usize>() + 20
        }
        MultiResult::Created(_)
        | MultiResult::CreatedStat(..)
        | MultiResult::Changed(_)
        | MultiResult::Deleted
        | MultiResult::Checked
        | MultiResult::Failed(_) => 20,
    }
}

/// Result of an operation of a multiRead (MULTI-11).
fn multi_part(result: Result<ReplyBody, ErrorCode>) -> MultiResult {
    match result {
        Ok(ReplyBody::Data(data, stat)) => MultiResult::Data(data, stat),
        Ok(ReplyBody::Children(names)) => MultiResult::Children(names),
        Ok(other) => unreachable!("{other:?} is no part of a multiRead"),
        Err(code) => MultiResult::Failed(code.wire()),
    }
}

fn readable(
    tree: &Tree,
    context: &ReadContext<'_>,
    path: &str,
) -> Result<(NodeId, Stat), ErrorCode> {
    let id = tree.find(path).ok_or(ErrorCode::NoNode)?;
    if !context.who.may(tree.acl(id), &Access::new(Perms::READ, path)) {
        return Err(ErrorCode::NoAuth);
    }
    Ok((id, stat(tree, context, id, path)))
}

/// The Stat of a node as clients see it.
fn stat(tree: &Tree, context: &ReadContext<'_>, id: NodeId, path: &str) -> Stat {
    let stat = tree.stat(id);
    match context.members_at(path) {
        None => stat,
        Some(Membership { text, since }) => Stat {
            mtime: since.0,
            version: -1,
            data_length: i32::try_from(text.len()).unwrap_or(i32::MAX),
            ..stat
        },
    }
}
