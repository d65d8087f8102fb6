//! The right answer to a read on the state at one zxid.
//!
//! Owns the results of reads and of setWatches. Must not change the model.

use std::borrow::Cow;

use zabkeeper_core::wire::{
    Acl, EventType, Id, MultiResult, OpCode, Perms, ReplyBody, Request, SetWatches,
};
use zabkeeper_core::{ErrorCode, Zxid};

use super::{Asker, CONFIG_NODE, Model, Node, Table, auth, bounds};

/// The effects of setWatches for its paths (WATCH-20 to WATCH-22).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resumption {
    /// Events that are sent at once.
    pub events: Vec<(EventType, String)>,
    /// Watches that are registered without an event.
    pub registered: Vec<(Table, String)>,
}

impl Model {
    /// The answer to a read right after the transaction `zxid`, children oldest first; `None` if
    /// the tree does not determine it.
    pub fn read(
        &self,
        asker: Asker<'_>,
        request: &Request,
        zxid: Zxid,
    ) -> Option<Result<ReplyBody, ErrorCode>> {
        let ids = asker.ids;
        Some(match request {
            Request::Exists { path, .. } if path.contains('\0') => Err(ErrorCode::BadArguments),
            Request::Exists { path, .. } => {
                self.readable(ids, path, zxid).map(|node| ReplyBody::Stat(node.stat()))
            }
            Request::GetData { path, .. } => {
                let found = self.readable(ids, path, zxid);
                found.map(|node| ReplyBody::Data(node.data.clone(), node.stat()))
            }
            Request::GetChildren { path, with_stat, .. } => {
                self.read_children(ids, path, *with_stat, zxid)
            }
            Request::GetAcl { path } => self.read_acl(ids, path, zxid),
            Request::GetAllChildrenNumber { path } => self
                .readable(ids, path, zxid)
                .map(|_| ReplyBody::Number(self.descendants(path, zxid))),
            Request::GetEphemerals { prefix } => {
                let paths = self.read_ephemerals(asker, prefix, zxid);
                let fits = self.rules().fits(bounds::of_names(&paths));
                fits.map(|()| ReplyBody::Children(paths))
            }
            Request::WhoAmI => Ok(ReplyBody::Identities(auth::shown(ids))),
            Request::MultiRead(parts) => self.read_multi(asker, parts, zxid)?,
            Request::Sync { path } => Ok(ReplyBody::Path(path.clone())),
            Request::Ping | Request::SetWatches(_) => Ok(ReplyBody::Empty),
            Request::AddWatch { .. } => Ok(ReplyBody::Number(0)),
            Request::NoPath { op: OpCode::Sync, .. } => Ok(ReplyBody::NullPath),
            Request::NoPath { op: OpCode::CheckWatches | OpCode::RemoveWatches, .. } => {
                Err(ErrorCode::NoWatcher)
            }
            Request::Undecodable { .. } | Request::NoPath { .. } => Err(ErrorCode::Marshalling),
            Request::Throttled { .. } => Err(ErrorCode::Throttled),
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::CloseSession
            | Request::SetAcl { .. }
            | Request::CreateContainer { .. }
            | Request::CreateTtl { .. }
            | Request::Sasl { .. }
            | Request::Reconfig
            | Request::Reconfigure(_)
            | Request::Unknown { .. } => return None,
        })
    }

    fn read_children(
        &self,
        ids: &[Id],
        path: &str,
        with_stat: bool,
        zxid: Zxid,
    ) -> Result<ReplyBody, ErrorCode> {
        let node = self.readable(ids, path, zxid)?;
        let history = self.history(read_as(path)).expect("it has a node");
        let children: Vec<String> = history.children_at(zxid).map(str::to_owned).collect();
        self.rules().fits(bounds::of_names(&children))?;
        Ok(match with_stat {
            true => ReplyBody::ChildrenStat(children, node.stat()),
            false => ReplyBody::Children(children),
        })
    }

    /// The answer to a multiRead with these parts; `None` as for [`Self::read`].
    fn read_multi(
        &self,
        asker: Asker<'_>,
        parts: &[Request],
        zxid: Zxid,
    ) -> Option<Result<ReplyBody, ErrorCode>> {
        let is_null = |part: &&Request| matches!(part, Request::NoPath { .. });
        let sound = parts.iter().take_while(|part| !is_null(part));
        let each = sound.map(|part| self.read(asker, part, zxid));
        let each: Vec<Result<ReplyBody, ErrorCode>> = each.collect::<Option<_>>()?;
        // A part that is too large by itself fails the whole multiRead.
        let room = !each.contains(&Err(ErrorCode::Marshalling));
        let whole = room && each.len() == parts.len();
        let results: Vec<MultiResult> = each.into_iter().map(part_of).collect();
        // The results of the other parts follow the error code; no client reads them.
        let fits = self.rules().fits(results.iter().map(bounds::of_part).sum());
        Some(if whole {
            fits.map(|()| ReplyBody::Multi(results))
        } else {
            Err(ErrorCode::Marshalling)
        })
    }

    /// Whether `found` is the right answer right after the transaction `zxid`. Identities and paths
    /// of ephemeral nodes may have any order. `None` as for [`Self::read`].
    pub fn is_answer(
        &self,
        asker: Asker<'_>,
        request: &Request,
        zxid: Zxid,
        found: &Result<ReplyBody, ErrorCode>,
    ) -> Option<bool> {
        // Lists of children may be long: they are compared without a copy.
        if let (Request::GetChildren { path, .. }, Ok(body)) = (request, found)
            && let Ok(node) = self.readable(asker.ids, path, zxid)
        {
            let (names, stat) = match body {
                ReplyBody::Children(names) => (names, None),
                ReplyBody::ChildrenStat(names, stat) => (names, Some(*stat)),
                ReplyBody::Empty
                | ReplyBody::Path(_)
                | ReplyBody::PathStat(..)
                | ReplyBody::Stat(_)
                | ReplyBody::Data(..)
                | ReplyBody::Multi(_)
                | ReplyBody::Acl(..)
                | ReplyBody::Number(_)
                | ReplyBody::NullPath
                | ReplyBody::BrokenMulti(_)
                | ReplyBody::Token(_)
                | ReplyBody::Identities(_) => return Some(false),
            };
            let history = self.history(read_as(path)).expect("it has a node");
            let same_stat = stat.is_none_or(|stat| stat == node.stat());
            let fits = self.rules().fits(bounds::of_names(names)).is_ok();
            return Some(same_stat && fits && history.children_at(zxid).eq(names));
        }
        let right = self.read(asker, request, zxid)?;
        Some(right == *found || in_order(right) == in_order(found.clone()))
    }

    /// The node as readers see it: `/zookeeper/config` shows the membership, whatever was written
    /// to it (DATA-27).
    fn shown(&self, path: &str, zxid: Zxid) -> Result<Cow<'_, Node>, ErrorCode> {
        let node = self.node_at(read_as(path), zxid).ok_or(ErrorCode::NoNode)?;
        Ok(match &self.rules.membership {
            Some(members) if path == CONFIG_NODE => Cow::Owned(Node {
                data: Some(members.text.clone().into()),
                mtime: members.since.0,
                version: -1,
                ..node.clone()
            }),
            _ => Cow::Borrowed(node),
        })
    }

    fn readable(&self, ids: &[Id], path: &str, zxid: Zxid) -> Result<Cow<'_, Node>, ErrorCode> {
        let node = self.shown(path, zxid)?;
        if self.rules.may(ids, &node.acl, Perms::READ) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    /// getACL (OP-06, edges 174 and 175). An empty ACL is shown as the open one.
    fn read_acl(&self, ids: &[Id], path: &str, zxid: Zxid) -> Result<ReplyBody, ErrorCode> {
        let node = self.shown(path, zxid)?;
        let may = |perms| self.rules.may(ids, &node.acl, perms);
        if !may(Perms::READ) && !may(Perms::ADMIN) {
            return Err(ErrorCode::NoAuth);
        }
        let list = if node.acl.is_empty() { Acl::open() } else { node.acl.to_vec() };
        let shown = if may(Perms::ADMIN) { list } else { auth::redacted(&list) };
        Ok(ReplyBody::Acl(shown, node.stat()))
    }

    /// getAllChildrenNumber (OP-104): all nodes below, readable or not (edge 177). Below the empty
    /// path, the root counts too.
    fn descendants(&self, path: &str, zxid: Zxid) -> i32 {
        let below = if path == "/" { "/".to_owned() } else { format!("{path}/") };
        let histories = self.paths.range(below.clone()..);
        let inside = histories.take_while(|(other, _)| other.starts_with(&below));
        let count =
            inside.filter(|(other, each)| *other != path && each.at(zxid).is_some()).count();
        i32::try_from(count).expect("far fewer nodes than 2^31")
    }

    /// getEphemerals (OP-103, edges 75 and 76). Java's `trim` removes all characters up to the
    /// blank.
    fn read_ephemerals(&self, asker: Asker<'_>, prefix: &str, zxid: Zxid) -> Vec<String> {
        let all = matches!(prefix.trim_matches(|c| c <= ' '), "" | "/");
        let own = self.session(asker.session).map(|session| session.ephemerals_at(zxid));
        let own = own.into_iter().flatten();
        own.filter(|path| all || path.starts_with(prefix)).collect()
    }

    /// The effects of setWatches right after the transaction `zxid`.
    pub fn resume(&self, watches: &SetWatches, zxid: Zxid) -> Resumption {
        let since = watches.relative_zxid;
        let mut out = Resumption::default();
        for path in &watches.data {
            match self.node_at(read_as(path), zxid) {
                None => out.events.push((EventType::NodeDeleted, path.clone())),
                Some(node) if Some(node.mzxid) > since => {
                    out.events.push((EventType::NodeDataChanged, path.clone()));
                }
                Some(_) => out.registered.push((Table::Data, path.clone())),
            }
        }
        for path in &watches.exist {
            match self.node_at(read_as(path), zxid) {
                Some(_) => out.events.push((EventType::NodeCreated, path.clone())),
                None => out.registered.push((Table::Data, path.clone())),
            }
        }
        for path in &watches.child {
            match self.node_at(read_as(path), zxid) {
                None => out.events.push((EventType::NodeDeleted, path.clone())),
                Some(node) if Some(node.pzxid) > since => {
                    out.events.push((EventType::NodeChildrenChanged, path.clone()));
                }
                Some(_) => out.registered.push((Table::Child, path.clone())),
            }
        }
        out
    }
}

/// For reads, the empty path means the root, by an accident of ZooKeeper; for writes it does not.
fn read_as(path: &str) -> &str {
    if path.is_empty() { "/" } else { path }
}

/// The result of one part of a multiRead (MULTI-11).
fn part_of(result: Result<ReplyBody, ErrorCode>) -> MultiResult {
    match result {
        Ok(ReplyBody::Data(data, stat)) => MultiResult::Data(data, stat),
        Ok(ReplyBody::Children(names)) => MultiResult::Children(names),
        Ok(other) => unreachable!("{other:?} is no part of a multiRead"),
        Err(code) => MultiResult::Failed(code.wire()),
    }
}

/// Sorts lists whose order is left open.
fn in_order(answer: Result<ReplyBody, ErrorCode>) -> Result<ReplyBody, ErrorCode> {
    answer.map(|body| match body {
        ReplyBody::Children(mut names) => {
            names.sort();
            ReplyBody::Children(names)
        }
        ReplyBody::Identities(mut ids) => {
            ids.sort();
            ReplyBody::Identities(ids)
        }
        ReplyBody::Empty
        | ReplyBody::Path(_)
        | ReplyBody::PathStat(..)
        | ReplyBody::Stat(_)
        | ReplyBody::Data(..)
        | ReplyBody::ChildrenStat(..)
        | ReplyBody::Acl(..)
        | ReplyBody::Number(_)
        | ReplyBody::NullPath
        | ReplyBody::Multi(_)
        | ReplyBody::BrokenMulti(_)
        | ReplyBody::Token(_) => body,
    })
}
