//! What operators may see of a server, and who is one.
//!
//! Owns the check of a requester's identities, and the view of a node. Must not change anything.

use core::net::IpAddr;

use super::Server;
use crate::auth::{self, Access, AuthOutcome, Facts, Ids, Who};
use crate::error::ErrorCode;
use crate::tree::CONFIG_NODE;
use crate::wire::{Acl, Id, Perms, Stat};

/// Who asks: what the header `Authorization` has, and the address of the other end.
#[derive(Clone, Debug)]
pub struct Requester {
    /// The scheme and its data; `None` without a header.
    pub shown: Option<(String, Option<Vec<u8>>)>,
    /// The address, which is an identity of the scheme `ip`.
    pub address: IpAddr,
}

/// Why a requester is refused (ADMIN-02).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// It has shown nothing.
    NothingShown,
    /// The scheme does not accept what it has shown.
    NotAuthenticated,
    /// The list of `/` does not grant it every permission.
    NotAuthorized,
}

/// A node, as an operator sees it.
#[derive(Clone, Debug)]
pub struct NodeShown {
    /// The beginning of its data; `None` for a node without data.
    pub data: Option<Vec<u8>>,
    /// Its Stat.
    pub stat: Stat,
    /// Its list. Without the permission to change it, digests are hidden.
    pub acl: Vec<Acl>,
    /// Names of children in the order of their creation.
    pub children: Vec<String>,
}

impl Server {
    /// The identities of a requester to whom everything may be shown: one that the list of `/`
    /// grants every permission, or a superuser.
    ///
    /// # Errors
    /// It is not one.
    pub fn authorize(&self, requester: &Requester) -> Result<Ids, Refused> {
        let (scheme, data) = requester.shown.as_ref().ok_or(Refused::NothingShown)?;
        let address = Id { scheme: "ip".to_owned(), id: requester.address.to_string() };
        let known = if *scheme == address.scheme { vec![address] } else { Vec::new() };
        let mut known = self.schemes.opened(known);
        let tree = self.replica.tree();
        let node = self.schemes.node(scheme).and_then(|path| tree.find(path));
        let facts = Facts {
            known: &known.ids().clone(),
            data: node.and_then(|id| tree.node(id).data.as_deref()),
        };
        match self.schemes.authenticate(scheme, data.as_deref(), &facts) {
            AuthOutcome::Accepted(ids) => {
                known.extend(ids).map_err(|_too_many| Refused::NotAuthenticated)?;
            }
            AuthOutcome::Refused | AuthOutcome::Closed => return Err(Refused::NotAuthenticated),
        }
        if known.ids().is_empty() {
            return Err(Refused::NotAuthenticated);
        }
        let root = tree.find("/").expect("every tree has a root");
        if Who::new(known.ids(), &self.schemes).may_all(tree.acl(root), "/") {
            Ok(known.ids().clone())
        } else {
            Err(Refused::NotAuthorized)
        }
    }

    /// A node with up to `bytes` of its data and up to `children` names of children, which start
    /// after the child `last`.
    ///
    /// # Errors
    /// There is no such node, or its list does not grant READ.
    pub fn show_node(
        &self,
        path: &str,
        ids: &Ids,
        bytes: usize,
        last: Option<&str>,
        children: usize,
    ) -> Result<NodeShown, ErrorCode> {
        let who = Who::new(ids, &self.schemes);
        let tree = self.replica.tree();
        let id = tree.find(path).ok_or(ErrorCode::NoNode)?;
        let list = tree.acl(id);
        if !who.may(list, &Access::new(Perms::READ, path)) {
            return Err(ErrorCode::NoAuth);
        }
        let is_static = self.config.reconfig.is_none() && path == CONFIG_NODE;
        let config = self.config.membership.as_ref().filter(|_| is_static);
        let data = match config {
            Some(membership) => Some(membership.text.as_bytes()),
            None => tree.node(id).data.as_deref(),
        };
        let mut acl = if list.is_empty() { Acl::open() } else { list.to_vec() };
        if !who.may(list, &Access::new(Perms::ADMIN, path)) {
            auth::redact(&mut acl);
        }
        Ok(NodeShown {
            data: data.map(|data| data[..data.len().min(bytes)].to_vec()),
            stat: tree.stat(id),
            acl,
            children: tree.children_behind(id, last).take(children).map(str::to_owned).collect(),
        })
    }
}
