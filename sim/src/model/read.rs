//! What a read must answer on the state at one zxid.
//!
//! Owns the results of exists, getData, getChildren and setWatches. Must not change anything.

use zabkeeper_core::wire::{EventType, Perms, ReplyBody, Request, SetWatches};
use zabkeeper_core::{ErrorCode, Zxid};

use super::{Model, Node, Table};

/// What setWatches must do for the paths it names (WATCH-20 to WATCH-22).
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Resumption {
    /// Told at once.
    pub events: Vec<(EventType, String)>,
    /// Registered silently.
    pub registered: Vec<(Table, String)>,
}

impl Model {
    /// The answer to a read right after the transaction `zxid`, children in order; `None` where the tree does not
    /// decide it. The empty path is left open: ZooKeeper takes it for the root by accident.
    pub fn read(&self, request: &Request, zxid: Zxid) -> Option<Result<ReplyBody, ErrorCode>> {
        match request {
            Request::Exists { path, .. }
            | Request::GetData { path, .. }
            | Request::GetChildren { path, .. }
                if path.is_empty() =>
            {
                None
            }
            Request::Exists { path, .. } if path.contains('\0') => {
                Some(Err(ErrorCode::BadArguments))
            }
            Request::Exists { path, .. } => {
                Some(self.readable(path, zxid).map(|node| ReplyBody::Stat(node.stat())))
            }
            Request::GetData { path, .. } => {
                let found = self.readable(path, zxid);
                Some(found.map(|node| ReplyBody::Data(node.data.clone(), node.stat())))
            }
            Request::GetChildren { path, with_stat, .. } => {
                Some(self.readable(path, zxid).map(|node| {
                    let history = self.history(path).expect("it has a node");
                    let children =
                        history.children_at(zxid).into_iter().map(str::to_owned).collect();
                    match with_stat {
                        true => ReplyBody::ChildrenStat(children, node.stat()),
                        false => ReplyBody::Children(children),
                    }
                }))
            }
            Request::Sync { path } => Some(Ok(ReplyBody::Path(path.clone()))),
            Request::Ping | Request::SetWatches(_) => Some(Ok(ReplyBody::Empty)),
            Request::Undecodable { .. } => Some(Err(ErrorCode::Marshalling)),
            Request::Create { .. }
            | Request::Delete { .. }
            | Request::SetData { .. }
            | Request::Watches { .. }
            | Request::Auth { .. }
            | Request::Check { .. }
            | Request::Multi(_)
            | Request::CloseSession
            | Request::Unknown { .. } => None,
        }
    }

    /// Is this the answer to a read right after the transaction `zxid`, children in any order? `None` as for `read`.
    pub fn is_answer(
        &self,
        request: &Request,
        zxid: Zxid,
        found: &Result<ReplyBody, ErrorCode>,
    ) -> Option<bool> {
        // Long lists are the dear ones: they are neither copied nor sorted.
        if let (Request::GetChildren { path, .. }, Ok(body)) = (request, found)
            && let Ok(node) = self.readable(path, zxid)
        {
            let (names, stat) = match body {
                ReplyBody::Children(names) => (names, None),
                ReplyBody::ChildrenStat(names, stat) => (names, Some(*stat)),
                ReplyBody::Empty
                | ReplyBody::Path(_)
                | ReplyBody::PathStat(..)
                | ReplyBody::Stat(_)
                | ReplyBody::Data(..)
                | ReplyBody::Multi(_) => return Some(false),
            };
            let history = self.history(path).expect("it has a node");
            let same_stat = stat.is_none_or(|stat| stat == node.stat());
            return Some(same_stat && history.had_children(zxid, names));
        }
        self.read(request, zxid).map(|right| right == *found)
    }

    fn readable(&self, path: &str, zxid: Zxid) -> Result<&Node, ErrorCode> {
        let node = self.node_at(path, zxid).ok_or(ErrorCode::NoNode)?;
        if node.grants(Perms::READ) { Ok(node) } else { Err(ErrorCode::NoAuth) }
    }

    /// What setWatches must do right after the transaction `zxid`.
    pub fn resume(&self, watches: &SetWatches, zxid: Zxid) -> Resumption {
        let since = watches.relative_zxid;
        let mut out = Resumption::default();
        for path in &watches.data {
            match self.node_at(path, zxid) {
                None => out.events.push((EventType::NodeDeleted, path.clone())),
                Some(node) if node.mzxid > since => {
                    out.events.push((EventType::NodeDataChanged, path.clone()));
                }
                Some(_) => out.registered.push((Table::Data, path.clone())),
            }
        }
        for path in &watches.exist {
            match self.node_at(path, zxid) {
                Some(_) => out.events.push((EventType::NodeCreated, path.clone())),
                None => out.registered.push((Table::Data, path.clone())),
            }
        }
        for path in &watches.child {
            match self.node_at(path, zxid) {
                None => out.events.push((EventType::NodeDeleted, path.clone())),
                Some(node) if node.pzxid > since => {
                    out.events.push((EventType::NodeChildrenChanged, path.clone()));
                }
                Some(_) => out.registered.push((Table::Child, path.clone())),
            }
        }
        out
    }
}
