//! Authentication and access control (ACL rows; Java `AuthenticationProvider`, `ProviderRegistry`,
//! `ZooKeeperServer.checkACL`, `PrepRequestProcessor.fixupACL`).
//!
//! Owns the authentication schemes and the check of access control lists. Must not know nodes or
//! connections: it matches the identities of a connection with the list of a node.

mod digest;
mod ensemble;
mod ip;
mod key;
mod known;
mod options;
#[cfg(test)]
mod tests;
mod x509;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use crate::error::ErrorCode;
use crate::wire::{Acl, Id, Perms};
use digest::Digest;
use ensemble::Ensemble;
use ip::Ip;
use key::Key;
use x509::X509;

pub(crate) use known::Identities;
pub use known::{Ids, TooMany};
pub use options::{AuthOptions, DigestAlg};

/// Limit of the bytes that all `auth` entries of one list expand to: a megabyte of such entries,
/// times a thousand identities, would be gigabytes.
const MOST_FOR_AUTH: usize = 64 << 20;

/// An identity of this scheme passes every list (ACL-01).
const SUPER: &str = "super";

/// An authentication scheme. Its results may depend only on its arguments and its construction:
/// each server asks its own instance, and all instances must agree.
///
/// The schemes `world` and `auth` are part of the lists themselves and cannot be replaced.
pub trait Scheme: fmt::Debug + Send + Sync {
    /// Name of the scheme in identities, lists and auth packets.
    fn name(&self) -> &str;

    /// Authenticates a client by an auth packet (OP-100); `None` is a packet without data.
    /// Implementations must not keep or print the data.
    fn authenticate(&self, auth: Option<&[u8]>, facts: &Facts<'_>) -> AuthOutcome;

    /// Path of the node whose data [`Scheme::authenticate`] needs. By default: none.
    fn node(&self) -> Option<&str> {
        None
    }

    /// Further identities implied by one that the host has verified, such as the subject of a
    /// certificate (ACL-11). By default: none.
    fn implied(&self, _id: &Id) -> Vec<Id> {
        Vec::new()
    }

    /// May an entry of a list have this id (ACL-07)?
    fn is_valid(&self, id: &str) -> bool;

    /// Does a client with the identity `id` match the entry with the id `entry`?
    fn matches(&self, id: &str, entry: &str, access: &Access<'_>) -> bool;

    /// Do identities of this scheme prove more than the client's address, so that the entry `auth`
    /// expands to them (ACL-06)? By default: yes.
    fn is_authenticated(&self) -> bool {
        true
    }

    /// The part of an identity that is no secret (OP-107). By default: all of it.
    fn user<'a>(&self, id: &'a str) -> &'a str {
        id
    }
}

/// What a scheme may use besides the packet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The identities that the client already has.
    pub known: &'a [Arc<Id>],
    /// Data of the node that [`Scheme::node`] names, on the server that was asked. `None` if the
    /// node has no data or does not exist.
    pub data: Option<&'a [u8]>,
}

/// Result of an auth packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthOutcome {
    /// New identities of the client, in addition to the earlier ones. They may be of other schemes,
    /// such as `super`.
    Accepted(Vec<Id>),
    /// Authentication failed: the client gets an error, and the connection is closed.
    Refused,
    /// Authentication failed: the connection is closed without a reply.
    Closed,
}

/// The access that a list is checked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Access<'a> {
    /// The permissions, of which one suffices.
    pub perms: Perms,
    /// Path of the node. For a creation or deletion: of the node created or deleted, although the
    /// list is that of its parent.
    pub path: &'a str,
    /// The list that the request sets, with the entries `auth` expanded.
    pub sets: Option<&'a [Acl]>,
}

impl<'a> Access<'a> {
    /// Asks for `perms` on the node at `path`.
    pub fn new(perms: Perms, path: &'a str) -> Access<'a> {
        Access { perms, path, sets: None }
    }

    /// The same access, for a request that sets a list.
    pub(crate) fn setting(self, list: &'a [Acl]) -> Access<'a> {
        Access { sets: Some(list), ..self }
    }
}

/// The schemes that a server offers.
#[derive(Clone, Debug)]
pub(crate) struct Schemes {
    options: AuthOptions,
    by_name: BTreeMap<String, Arc<dyn Scheme>>,
}

impl Schemes {
    /// The built-in schemes that are enabled.
    pub(crate) fn new(options: &AuthOptions) -> Schemes {
        let mut schemes = Schemes { options: options.clone(), by_name: BTreeMap::new() };
        schemes.add(Arc::new(Ip));
        if !options.digest_disabled {
            schemes.add(Arc::new(Digest::new(options.digest_alg, options.super_digest.clone())));
        }
        if options.x509 {
            schemes.add(Arc::new(X509::new(options.x509_super_user.clone())));
        }
        if options.key {
            schemes.add(Arc::new(Key));
        }
        if options.ensemble {
            schemes.add(Arc::new(Ensemble::new(options.ensemble_names.clone())));
        }
        schemes
    }

    /// Adds a scheme, or replaces the one of the same name.
    pub(crate) fn add(&mut self, scheme: Arc<dyn Scheme>) {
        self.by_name.insert(scheme.name().to_owned(), scheme);
    }

    /// Authenticates a client by an auth packet. A scheme that is not offered refuses (ACL-16).
    pub(crate) fn authenticate(
        &self,
        scheme: &str,
        auth: Option<&[u8]>,
        facts: &Facts<'_>,
    ) -> AuthOutcome {
        match self.get(scheme) {
            Some(scheme) => scheme.authenticate(auth, facts),
            None => AuthOutcome::Refused,
        }
    }

    /// Path of the node whose data the scheme needs.
    pub(crate) fn node(&self, scheme: &str) -> Option<&str> {
        self.get(scheme)?.node()
    }

    /// The identities of a new connection: those of host and driver, and those that they imply.
    pub(crate) fn opened(&self, ids: Vec<Id>) -> Identities {
        let mut known = Identities::default();
        for id in ids {
            let implied = self.get(&id.scheme).map(|scheme| scheme.implied(&id));
            let all = implied.unwrap_or_default().into_iter().chain([id]);
            // Identities beyond the limits of a connection are dropped.
            let _believed = known.extend(all);
        }
        known
    }

    /// Is a client with these identities served at all (ACL-19)?
    pub(crate) fn admit(&self, ids: &[Arc<Id>]) -> bool {
        let required = &self.options.required_schemes;
        required.is_empty() || ids.iter().any(|id| required.contains(&id.scheme))
    }

    fn get(&self, name: &str) -> Option<&dyn Scheme> {
        self.by_name.get(name).map(|scheme| &**scheme)
    }
}

/// The identities of a client, and the schemes that interpret them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    ids: &'a [Arc<Id>],
    schemes: &'a Schemes,
}

impl<'a> Who<'a> {
    /// A client with these identities.
    pub(crate) fn new(ids: &'a [Arc<Id>], schemes: &'a Schemes) -> Who<'a> {
        Who { ids, schemes }
    }

    /// Does the list grant the access (ACL-01)? An empty list grants everything, and so do
    /// `skipACL` and an identity `super`.
    pub(crate) fn may(&self, list: &[Acl], access: &Access<'_>) -> bool {
        list.is_empty()
            || self.schemes.options.skip_acl
            || self.ids.iter().any(|id| id.scheme == SUPER)
            || list.iter().any(|acl| {
                acl.perms.intersects(access.perms) && (is_world(acl) || self.matches(acl, access))
            })
    }

    /// Does the list name these identities, and grant them every permission? Unlike in
    /// [`Who::may`], what everybody may do does not count.
    pub(crate) fn may_all(&self, list: &[Acl], path: &str) -> bool {
        let bits = [Perms::READ, Perms::WRITE, Perms::CREATE, Perms::DELETE, Perms::ADMIN];
        let granted = |perms: Perms| {
            let access = Access::new(perms, path);
            list.iter().any(|acl| {
                acl.perms.intersects(perms) && !is_world(acl) && self.matches(acl, &access)
            })
        };
        self.ids.iter().any(|id| id.scheme == SUPER) || bits.into_iter().all(granted)
    }

    fn matches(&self, acl: &Acl, access: &Access<'_>) -> bool {
        self.schemes.get(&acl.scheme).is_some_and(|scheme| {
            let mut own = self.ids.iter().filter(|id| id.scheme == acl.scheme);
            own.any(|id| scheme.matches(&id.id, &acl.id, access))
        })
    }

    /// The reply to whoAmI (OP-107): users, without digests. The user is empty if the scheme is not
    /// offered, as for `super`.
    pub(crate) fn shown(&self) -> Vec<Id> {
        let show = |id: &Arc<Id>| {
            let user = self.schemes.get(&id.scheme).map_or("", |scheme| scheme.user(&id.id));
            Id { scheme: id.scheme.clone(), id: user.to_owned() }
        };
        self.ids.iter().map(show).collect()
    }

    /// The list to store for one that the client sent (ACL-04 to ACL-07). Entries that repeat as
    /// sent are dropped; `auth` expands to identities, which may repeat other entries.
    pub(crate) fn fixup(&self, list: Vec<Acl>) -> Result<Vec<Acl>, ErrorCode> {
        let mut fixed: Vec<Acl> = Vec::with_capacity(list.len());
        let (mut seen, mut room) = (BTreeSet::new(), MOST_FOR_AUTH);
        for acl in &list {
            if !seen.insert(acl) {
                continue;
            }
            if is_world(acl) {
                fixed.push(acl.clone());
            } else if acl.scheme == "auth" {
                let before = fixed.len();
                for id in self.authenticated() {
                    let bytes = size_of::<Acl>() + id.scheme.len() + id.id.len();
                    room = usize::checked_sub(room, bytes).ok_or(ErrorCode::InvalidAcl)?;
                    let (scheme, id) = (id.scheme.clone(), id.id.clone());
                    fixed.push(Acl { perms: acl.perms, scheme, id });
                }
                if fixed.len() == before {
                    return Err(ErrorCode::InvalidAcl);
                }
            } else if self.schemes.get(&acl.scheme).is_some_and(|scheme| scheme.is_valid(&acl.id)) {
                fixed.push(acl.clone());
            } else {
                return Err(ErrorCode::InvalidAcl);
            }
        }
        if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed) }
    }

    /// The identities that an entry `auth` expands to.
    fn authenticated(&self) -> impl Iterator<Item = &'a Arc<Id>> {
        let Who { ids, schemes } = *self;
        ids.iter().filter(|id| schemes.get(&id.scheme).is_some_and(Scheme::is_authenticated))
    }
}

/// Hides the digests of a list from a client that may not change the list (OP-06).
pub(crate) fn redact(list: &mut [Acl]) {
    for acl in list.iter_mut().filter(|acl| acl.scheme == "digest") {
        if let Some((user, _)) = acl.id.split_once(':') {
            acl.id = format!("{user}:x");
        }
    }
}

/// Is the entry `world:anyone` (ACL-05)?
fn is_world(acl: &Acl) -> bool {
    acl.scheme == "world" && acl.id == "anyone"
}
