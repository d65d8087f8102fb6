//! Requests of scenarios, in the words of ZooKeeper's command line.
//!
//! Owns their defaults.

use bytes::Bytes;
use zabkeeper_core::wire::{Acl, Perms, Request};

use crate::check::model;

pub(in crate::check::oracle::tests) fn data(text: &str) -> Option<Bytes> {
    Some(Bytes::copy_from_slice(text.as_bytes()))
}

pub(in crate::check::oracle::tests) fn create_with(path: &str, text: &str, flags: i32) -> Request {
    let (path, data, acl) = (path.into(), data(text), Acl::open());
    Request::Create { path, data, acl, flags, with_stat: true }
}

pub(in crate::check::oracle::tests) fn create(path: &str) -> Request {
    create_with(path, "v0", 0)
}

pub(in crate::check::oracle::tests) fn set(path: &str, text: &str) -> Request {
    Request::SetData { path: path.into(), data: data(text), version: -1 }
}

pub(in crate::check::oracle::tests) fn delete(path: &str) -> Request {
    Request::Delete { path: path.into(), version: -1 }
}

pub(in crate::check::oracle::tests) fn get(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: false }
}

pub(in crate::check::oracle::tests) fn watch_data(path: &str) -> Request {
    Request::GetData { path: path.into(), watch: true }
}

pub(in crate::check::oracle::tests) fn watch_exists(path: &str) -> Request {
    Request::Exists { path: path.into(), watch: true }
}

pub(in crate::check::oracle::tests) fn watch_children(path: &str) -> Request {
    Request::GetChildren { path: path.into(), watch: true, with_stat: false }
}

/// A create with this ACL.
pub(in crate::check::oracle::tests) fn create_for(path: &str, acl: &[Acl]) -> Request {
    let (path, data, acl) = (path.into(), data("v0"), acl.to_vec());
    Request::Create { path, data, acl, flags: 0, with_stat: false }
}

/// An ACL that grants everything to this user and nothing to others.
pub(in crate::check::oracle::tests) fn only(user: &str) -> Vec<Acl> {
    let id = model::digest_of(user.as_bytes());
    vec![Acl { perms: Perms::ALL, scheme: "digest".into(), id }]
}

pub(in crate::check::oracle::tests) fn container(path: &str) -> Request {
    let (path, acl) = (path.into(), Acl::open());
    Request::CreateContainer { path, data: None, acl, flags: 4 }
}

pub(in crate::check::oracle::tests) fn timed(path: &str, ttl: i64) -> Request {
    let (path, acl) = (path.into(), Acl::open());
    Request::CreateTtl { path, data: None, acl, flags: 5, ttl }
}
