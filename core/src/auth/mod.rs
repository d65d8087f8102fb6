//! Who a client is, and what it may do (ACL rows; Java `AuthenticationProvider`, `ProviderRegistry`,
//! `ZooKeeperServer.checkACL`, `PrepRequestProcessor.fixupACL`).
//!
//! Owns the schemes of authentication and the check of access control lists. Must not know nodes or connections: a
//! connection has identities, a node has a list, and this says whether they match.

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

/// Most bytes that the entries `auth` of one list may stand for together: a megabyte of such entries, and a thousand
/// identities, would be gigabytes.
const MOST_FOR_AUTH: usize = 64 << 20;

/// Identities of this scheme pass every list (ACL-01).
const SUPER: &str = "super";

/// A way to show who one is. What it says may depend on nothing but its arguments and how it was made: each server asks
/// its own copy, and all have to find the same.
///
/// The schemes `world` and `auth` are part of the lists themselves and cannot be replaced.
pub trait Scheme: fmt::Debug + Send + Sync {
    /// Its name in identities, lists and auth packets.
    fn name(&self) -> &str;

    /// What an auth packet shows (OP-100). `None` is a packet without data. Never keep or print the data.
    fn authenticate(&self, auth: Option<&[u8]>, facts: &Facts<'_>) -> AuthOutcome;

    /// The path of the node whose data it wants to see when it is asked who a client is. By default: none.
    fn node(&self) -> Option<&str> {
        None
    }

    /// Which further identities those bring that the driver knows of itself, as the subject of a certificate does
    /// (ACL-11). By default: none.
    fn implied(&self, _id: &Id) -> Vec<Id> {
        Vec::new()
    }

    /// May a list have an entry with this id (ACL-07)?
    fn is_valid(&self, id: &str) -> bool;

    /// Does a client with the identity `id` match the entry with the id `entry`?
    fn matches(&self, id: &str, entry: &str, access: &Access<'_>) -> bool;

    /// Do its identities show more than where a client is, so that the entry `auth` stands for them (ACL-06)? By
    /// default: yes.
    fn is_authenticated(&self) -> bool {
        true
    }

    /// The part of an identity that is no secret (OP-107). By default: all of it.
    fn user<'a>(&self, id: &'a str) -> &'a str {
        id
    }
}

/// What a scheme may go by beside the packet.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Facts<'a> {
    /// The identities that the client has already.
    pub known: &'a [Arc<Id>],
    /// What the server that was asked has in the node that [`Scheme::node`] names. `None` is no data, or no node.
    pub data: Option<&'a [u8]>,
}

/// What an auth packet has shown.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuthOutcome {
    /// Who the client is, besides who it was. They may be of other schemes, too: `super` is.
    Accepted(Vec<Id>),
    /// Nothing: the client is told, and the connection is closed.
    Refused,
    /// Nothing, and the connection is closed before the answer.
    Closed,
}

/// What a list is asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Access<'a> {
    /// The permissions, of which one suffices.
    pub perms: Perms,
    /// The node; of a creation and a deletion: the node that comes or goes, while the list is its parent's.
    pub path: &'a str,
    /// The list that the request sets, with the meaning of `auth` put in.
    pub sets: Option<&'a [Acl]>,
}

impl<'a> Access<'a> {
    /// Asks for `perms` on the node at `path`.
    pub fn new(perms: Perms, path: &'a str) -> Access<'a> {
        Access { perms, path, sets: None }
    }

    /// The same, for a request that sets a list.
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
    /// Those that are built in, as far as they are switched on.
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

    /// One more, or another one of the same name.
    pub(crate) fn add(&mut self, scheme: Arc<dyn Scheme>) {
        self.by_name.insert(scheme.name().to_owned(), scheme);
    }

    /// What an auth packet shows. Nobody authenticates by a scheme that is not offered (ACL-16).
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

    /// The node whose data the scheme wants to see.
    pub(crate) fn node(&self, scheme: &str) -> Option<&str> {
        self.get(scheme)?.node()
    }

    /// Who a client is from the start, as its driver knows it.
    pub(crate) fn opened(&self, ids: Vec<Id>) -> Identities {
        let mut known = Identities::default();
        for id in ids {
            let implied = self.get(&id.scheme).map(|scheme| scheme.implied(&id));
            let all = implied.unwrap_or_default().into_iter().chain([id]);
            // What would be too much is not believed.
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

/// Who asks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Who<'a> {
    ids: &'a [Arc<Id>],
    schemes: &'a Schemes,
}

impl<'a> Who<'a> {
    /// Somebody with these identities.
    pub(crate) fn new(ids: &'a [Arc<Id>], schemes: &'a Schemes) -> Who<'a> {
        Who { ids, schemes }
    }

    /// Does the list grant it (ACL-01)? A list without entries grants everything, and so does `super`.
    pub(crate) fn may(&self, list: &[Acl], access: &Access<'_>) -> bool {
        list.is_empty()
            || self.schemes.options.skip_acl
            || self.ids.iter().any(|id| id.scheme == SUPER)
            || list.iter().any(|acl| {
                acl.perms.intersects(access.perms) && (is_world(acl) || self.matches(acl, access))
            })
    }

    fn matches(&self, acl: &Acl, access: &Access<'_>) -> bool {
        self.schemes.get(&acl.scheme).is_some_and(|scheme| {
            let mut own = self.ids.iter().filter(|id| id.scheme == acl.scheme);
            own.any(|id| scheme.matches(&id.id, &acl.id, access))
        })
    }

    /// What whoAmI tells (OP-107): users, no digests. Of a scheme that is not offered, as `super`, nobody.
    pub(crate) fn shown(&self) -> Vec<Id> {
        let show = |id: &Arc<Id>| {
            let user = self.schemes.get(&id.scheme).map_or("", |scheme| scheme.user(&id.id));
            Id { scheme: id.scheme.clone(), id: user.to_owned() }
        };
        self.ids.iter().map(show).collect()
    }

    /// The list to store for one that the client sent (ACL-04 to ACL-07): without the repetitions that it has as it is
    /// sent, and with identities for `auth`, which may repeat others.
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

    /// What the entry `auth` stands for.
    fn authenticated(&self) -> impl Iterator<Item = &'a Arc<Id>> {
        let Who { ids, schemes } = *self;
        ids.iter().filter(|id| schemes.get(&id.scheme).is_some_and(Scheme::is_authenticated))
    }
}

/// A list as it is shown to who may not change it: without digests (OP-06).
pub(crate) fn redact(list: &mut [Acl]) {
    for acl in list.iter_mut().filter(|acl| acl.scheme == "digest") {
        if let Some((user, _)) = acl.id.split_once(':') {
            acl.id = format!("{user}:x");
        }
    }
}

/// Anybody at all (ACL-05)?
fn is_world(acl: &Acl) -> bool {
    acl.scheme == "world" && acl.id == "anyone"
}
