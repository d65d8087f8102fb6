//! How a node is created.
//!
//! Owns the modes and the list of permissions of a new node, and the request they make.

use std::time::Duration;

use bytes::Bytes;
use zabkeeper_core::wire::{Acl, Request};

use crate::session::path_fault;

/// The kind of a new node.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum CreateMode {
    /// Stays until it is deleted.
    #[default]
    Persistent,
    /// Is deleted when the session of its creator ends. Has no children.
    Ephemeral,
    /// Persistent, and the server appends ten digits that rise with each child of the parent.
    PersistentSequential,
    /// Ephemeral, and the server appends ten digits that rise with each child of the parent.
    EphemeralSequential,
    /// Is deleted some time after its last child was.
    Container,
    /// Is deleted if it has no children and was not written for this time, 1 ms to 2^40 ms. Servers
    /// take it with `zookeeper.extendedTypesEnabled=true` only.
    PersistentTtl(Duration),
    /// The same, and the server appends ten digits.
    PersistentSequentialTtl(Duration),
}

/// The kind of a new node and who may do what with it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CreateOptions {
    /// The kind of the node.
    pub mode: CreateMode,
    /// Who may do what. Default: everybody everything, `world:anyone:cdrwa`.
    pub acl: Vec<Acl>,
}

impl CreateMode {
    /// The same kind, with this list of permissions.
    pub fn with_acl(self, acl: impl Into<Vec<Acl>>) -> CreateOptions {
        CreateOptions { mode: self, acl: acl.into() }
    }

    /// Does the server append ten digits to the name?
    pub(crate) fn is_sequential(self) -> bool {
        matches!(
            self,
            CreateMode::PersistentSequential
                | CreateMode::EphemeralSequential
                | CreateMode::PersistentSequentialTtl(_)
        )
    }

    fn flags(self) -> i32 {
        match self {
            CreateMode::Persistent => 0,
            CreateMode::Ephemeral => 1,
            CreateMode::PersistentSequential => 2,
            CreateMode::EphemeralSequential => 3,
            CreateMode::Container => 4,
            CreateMode::PersistentTtl(_) => 5,
            CreateMode::PersistentSequentialTtl(_) => 6,
        }
    }
}

impl From<CreateMode> for CreateOptions {
    fn from(mode: CreateMode) -> CreateOptions {
        mode.with_acl(Acl::open())
    }
}

impl CreateOptions {
    /// Why ZooKeeper creates no such node; it checks the name with the digits that it appends.
    pub(super) fn path_fault(&self, path: &str) -> Option<&'static str> {
        if self.mode.is_sequential() { path_fault(&format!("{path}0")) } else { path_fault(path) }
    }

    pub(super) fn request(self, path: String, data: Option<Bytes>) -> Request {
        let CreateOptions { mode, acl } = self;
        let flags = mode.flags();
        match mode {
            CreateMode::Container => Request::CreateContainer { path, data, acl, flags },
            CreateMode::PersistentTtl(ttl) | CreateMode::PersistentSequentialTtl(ttl) => {
                let ttl = i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX);
                Request::CreateTtl { path, data, acl, flags, ttl }
            }
            CreateMode::Persistent
            | CreateMode::Ephemeral
            | CreateMode::PersistentSequential
            | CreateMode::EphemeralSequential => {
                Request::Create { path, data, acl, flags, with_stat: true }
            }
        }
    }
}
