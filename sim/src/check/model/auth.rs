//! Identities of clients, and what an ACL grants to them (ACL rows).
//!
//! Owns the schemes `world`, `auth`, `digest`, `ip`, `x509`, `ensemble` and `super`. Must not know
//! nodes or connections.

use std::net::IpAddr;

use zabkeeper_core::wire::{Acl, Id, Perms};
use zabkeeper_core::{ErrorCode, SessionId};

use super::Rules;
use super::sha1::{base64, sha1};

/// The session and the identities that a request comes from.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The session.
    pub session: SessionId,
    /// The identities that its client has authenticated.
    pub ids: &'a [Id],
}

/// The identity that every connection has from the start (ACL-10).
pub fn ip(address: &str) -> Id {
    Id { scheme: "ip".into(), id: address.into() }
}

/// Ids of the scheme `x509` that clients put into ACLs, and whether Java accepts them as names
/// (ACL-11).
pub const NAMES: [(&str, bool); 22] = [
    ("CN=ann", true),
    ("CN=bob,OU=ops", true),
    ("CN=root+OU=ops", true),
    ("", true),
    ("cn=ann;O=x", true),
    ("1.2=a", true),
    ("OID.2.5.4.3=a", true),
    ("CN=#0c0141", true),
    ("CN=\"a,b\"", true),
    ("CN=a\\,b", true),
    ("CN=\\41", true),
    ("ann", false),
    ("FOO=a", false),
    ("3.2=a", false),
    ("CN=#0c0241", false),
    ("CN=#4", false),
    ("CN=\"a", false),
    ("CN=a\\", false),
    ("CN=a\"b", false),
    ("CN=a<b", false),
    ("CN=\\4", false),
    ("CN=a,", false),
];
/// Greatest number of identities of one connection, and of bytes in them.
const MOST: (usize, usize) = (1_000, 1 << 20);

impl Rules {
    /// The initial identities of a connection: its address, and the certificate's subject where
    /// servers ask for certificates.
    pub fn opened(&self, address: &str, subject: Option<&str>) -> Vec<Id> {
        let mut ids = vec![ip(address)];
        if let Some(subject) = subject.filter(|_| self.auth.x509) {
            if self.auth.x509_super_user.as_deref() == Some(subject) {
                ids.push(Id { scheme: "super".into(), id: subject.into() });
            }
            ids.push(Id { scheme: "x509".into(), id: subject.into() });
        }
        ids
    }

    /// Whether the server closes the connection on this packet without an answer (ACL-14).
    pub fn hangs_up(&self, scheme: &str, auth: &[u8]) -> bool {
        let names = &self.auth.ensemble_names;
        let ours = auth.is_empty() || names.iter().any(|name| name.as_bytes() == auth);
        scheme == "ensemble" && self.auth.ensemble && !ours && !names.is_empty()
    }

    /// Adds the identities that an auth packet proves (ACL-08, ACL-09, ACL-16, ACL-17).
    ///
    /// # Errors
    /// `AuthFailed`: the scheme does not authenticate clients, or the connection has too many
    /// identities.
    pub fn authenticate(
        &self,
        ids: &mut Vec<Id>,
        scheme: &str,
        auth: &[u8],
    ) -> Result<(), ErrorCode> {
        let mut learned = Vec::new();
        match scheme {
            "digest" if !self.auth.digest_disabled => {
                let id = digest(auth);
                if self.auth.super_digest.as_ref() == Some(&id) {
                    learned.push(Id { scheme: "super".into(), id: String::new() });
                }
                learned.push(Id { scheme: "digest".into(), id });
            }
            // A connection has its own address from the start; the packet's address proves nothing.
            "ip" => {}
            // The certificate has proved the identity already.
            "x509" if ids.iter().any(|id| id.scheme == "x509") => {}
            "ensemble" if self.auth.ensemble => {}
            _ => return Err(ErrorCode::AuthFailed),
        }
        learned.retain(|id| !ids.contains(id));
        let bytes = |id: &Id| id.scheme.len() + id.id.len();
        let all: usize = ids.iter().chain(&learned).map(bytes).sum();
        if ids.len() + learned.len() > MOST.0 || all > MOST.1 {
            return Err(ErrorCode::AuthFailed);
        }
        ids.append(&mut learned);
        Ok(())
    }

    /// Whether the ACL grants one of the permissions `wanted` to these identities (ACL-01).
    pub fn may(&self, ids: &[Id], list: &[Acl], wanted: Perms) -> bool {
        if list.is_empty() || self.auth.skip_acl || ids.iter().any(|id| id.scheme == "super") {
            return true;
        }
        let matches = |acl: &Acl| match acl.scheme.as_str() {
            "world" => acl.id == "anyone",
            "digest" => {
                let same = |id: &Id| id.scheme == "digest" && id.id == acl.id;
                !self.auth.digest_disabled && ids.iter().any(same)
            }
            "ip" => ids.iter().any(|id| id.scheme == "ip" && is_within(&id.id, &acl.id)),
            "x509" => self.auth.x509 && ids.iter().any(|id| id.scheme == "x509" && id.id == acl.id),
            _ => false,
        };
        list.iter().any(|acl| acl.perms.intersects(wanted) && matches(acl))
    }

    /// The ACL as it is stored (ACL-04 to ACL-07): duplicates are removed first, then `auth` is
    /// expanded.
    pub(super) fn fix(&self, ids: &[Id], list: &[Acl]) -> Result<Vec<Acl>, ErrorCode> {
        let mut distinct: Vec<&Acl> = Vec::new();
        for acl in list {
            if !distinct.contains(&acl) {
                distinct.push(acl);
            }
        }
        let proves = |id: &Id| match id.scheme.as_str() {
            "digest" => !self.auth.digest_disabled,
            "x509" => self.auth.x509,
            _ => false,
        };
        let mut fixed = Vec::new();
        for acl in distinct {
            match acl.scheme.as_str() {
                "world" if acl.id == "anyone" => fixed.push(acl.clone()),
                "auth" => {
                    let before = fixed.len();
                    let mut shown = Vec::from_iter(ids.iter().filter(|id| proves(id)));
                    shown.sort_by_key(|id| place(id, ids.len()));
                    fixed.extend(shown.into_iter().map(|id| Acl {
                        perms: acl.perms,
                        scheme: id.scheme.clone(),
                        id: id.id.clone(),
                    }));
                    if fixed.len() == before {
                        return Err(ErrorCode::InvalidAcl);
                    }
                }
                "digest" if !self.auth.digest_disabled && is_digest(&acl.id) => {
                    fixed.push(acl.clone());
                }
                "ip" if mask(&acl.id).is_some() => fixed.push(acl.clone()),
                "x509" if self.auth.x509 && NAMES.contains(&(&*acl.id, true)) => {
                    fixed.push(acl.clone());
                }
                _ => return Err(ErrorCode::InvalidAcl),
            }
        }
        if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed) }
    }
}

/// The bucket of an identity in the hash set that ZooKeeper keeps for a connection: a Java hash
/// table with 16 buckets, doubled while it is three quarters full.
fn place(id: &Id, count: usize) -> u64 {
    let text =
        |text: &str| text.encode_utf16().fold(0u64, |sum, c| (sum * 31 + u64::from(c)) & LOW);
    let hash = (((17 * 37 + text(&id.scheme)) & LOW) * 37 + text(&id.id)) & LOW;
    let mut places = 16;
    while 4 * count >= 3 * places {
        places *= 2;
    }
    (hash ^ (hash >> 16)) % (places as u64)
}

/// Keeps 32 bits, as Java's `int` does.
const LOW: u64 = 0xffff_ffff;

/// What whoAmI shows of these identities (OP-107): no secrets.
pub(super) fn shown(ids: &[Id]) -> Vec<Id> {
    let show = |id: &Id| {
        let secret = id.scheme == "digest";
        let user = match (secret, &*id.scheme) {
            (true, _) => id.id.split(':').next().unwrap_or(""),
            // `super` is no authentication provider in ZooKeeper.
            (false, "super") => "",
            (false, _) => &id.id,
        };
        Id { scheme: id.scheme.clone(), id: user.to_owned() }
    };
    ids.iter().map(show).collect()
}

/// The ACL as it is shown to clients without ADMIN: no digests (OP-06).
pub(super) fn redacted(list: &[Acl]) -> Vec<Acl> {
    let hide = |acl: &Acl| match acl.id.split_once(':') {
        Some((user, _)) if acl.scheme == "digest" => Acl { id: format!("{user}:x"), ..acl.clone() },
        Some(_) | None => acl.clone(),
    };
    list.iter().map(hide).collect()
}

/// The id `user:base64(sha1(user:password))` for `user:password` (ACL-08).
pub fn digest(auth: &[u8]) -> String {
    let text = String::from_utf8_lossy(auth);
    let user = text.split(':').next().unwrap_or("");
    format!("{user}:{}", base64(&sha1(text.as_bytes())))
}

/// Whether the id has two parts, as Java's `split` counts: empty ones at the end do not count.
fn is_digest(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

/// Address and prefix length of an `ip` entry.
fn mask(entry: &str) -> Option<(IpAddr, u32)> {
    let (address, bits) = match entry.split_once('/') {
        None => (entry, None),
        Some((address, bits)) => (address, Some(bits.parse().ok()?)),
    };
    let address: IpAddr = address.parse().ok()?;
    let all = if address.is_ipv4() { 32 } else { 128 };
    let bits = bits.unwrap_or(all);
    (bits <= all).then_some((address, bits))
}

fn is_within(address: &str, entry: &str) -> bool {
    let (Some((asked, _)), Some((base, bits))) = (mask(address), mask(entry)) else {
        return false;
    };
    match (asked, base) {
        (IpAddr::V4(asked), IpAddr::V4(base)) => {
            let differs = asked.to_bits() ^ base.to_bits();
            differs.checked_shr(32 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V6(asked), IpAddr::V6(base)) => {
            let differs = asked.to_bits() ^ base.to_bits();
            differs.checked_shr(128 - bits).unwrap_or(0) == 0
        }
        (IpAddr::V4(_), IpAddr::V6(_)) | (IpAddr::V6(_), IpAddr::V4(_)) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(scheme: &str, id: &str) -> Acl {
        Acl { perms: Perms::ALL, scheme: scheme.into(), id: id.into() }
    }

    /// ACL-08
    #[test]
    fn digests_match_zookeeper() {
        assert_eq!(digest(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"a"), "YQ==");
    }

    /// Edges 161 to 169
    #[test]
    fn invalid_acls_are_refused() {
        let rules = Rules::default();
        let mut ids = vec![ip("10.0.0.7")];
        let refused = Err(ErrorCode::InvalidAcl);
        for (scheme, id) in [
            ("world", "bob"),
            ("digest", "a:b:c"),
            ("digest", "a:"),
            ("digest", "a"),
            ("foo", "x"),
            ("ip", "10.0.0"),
            ("ip", "10.0.0.1/33"),
            ("auth", ""),
        ] {
            assert_eq!(rules.fix(&ids, &[acl(scheme, id)]), refused, "{scheme}:{id}");
        }
        assert_eq!(rules.fix(&ids, &[]), refused);
        for (scheme, id) in [("digest", ":b"), ("digest", "a:b::"), ("ip", "10.0.0.0/8")] {
            assert_eq!(rules.fix(&ids, &[acl(scheme, id)]), Ok(vec![acl(scheme, id)]), "{id}");
        }
        rules.authenticate(&mut ids, "digest", b"u:p").expect("always");
        let stored = acl("digest", &digest(b"u:p"));
        assert_eq!(rules.fix(&ids, &[acl("auth", "x"), acl("auth", "x")]), Ok(vec![stored]));
    }

    /// ACL-01, ACL-10
    #[test]
    fn acl_grants_by_address_and_digest() {
        let rules = Rules::default();
        let mut ids = vec![ip("10.1.2.3")];
        assert!(rules.may(&ids, &[acl("ip", "10.1.0.0/16")], Perms::READ));
        assert!(rules.may(&ids, &[acl("ip", "0.0.0.0/0")], Perms::READ));
        assert!(!rules.may(&ids, &[acl("ip", "10.1.2.4")], Perms::READ));
        let own = [acl("digest", &digest(b"u:p"))];
        assert!(!rules.may(&ids, &own, Perms::READ));
        rules.authenticate(&mut ids, "digest", b"u:p").expect("always");
        assert!(rules.may(&ids, &own, Perms::READ));
    }

    /// ACL-09, edge 166
    #[test]
    fn super_user_has_all_permissions_and_auth_does_not_store_it() {
        let mut rules = Rules::default();
        rules.auth.super_digest = Some(digest(b"super:test"));
        let mut ids = Vec::new();
        rules.authenticate(&mut ids, "digest", b"super:test").expect("always");
        assert!(rules.may(&ids, &[acl("digest", "a:b")], Perms::ADMIN));
        let stored = acl("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(rules.fix(&ids, &[acl("auth", "")]), Ok(vec![stored]));
    }

    /// ACL-10
    #[test]
    fn ipv6_networks_match_only_ipv6_addresses() {
        let rules = Rules::default();
        let ids = vec![ip("fd00::1:203")];
        for (network, has) in [
            ("fd00::/16", true),
            ("fd00::1:0/112", true),
            ("fd00::1:203", true),
            ("::/0", true),
            ("fd00::1:202/127", true),
            ("fd00::1:202", false),
            ("0.0.0.0/0", false),
        ] {
            assert_eq!(rules.may(&ids, &[acl("ip", network)], Perms::READ), has, "{network}");
        }
        assert_eq!(rules.fix(&ids, &[acl("ip", "fd00::/129")]), Err(ErrorCode::InvalidAcl));
    }

    /// ACL-11
    #[test]
    fn certificate_subject_is_an_identity_if_x509_is_enabled() {
        let own = [acl("x509", "CN=ann")];
        let blind = Rules::default();
        assert_eq!(blind.opened("10.0.0.1", Some("CN=ann")), [ip("10.0.0.1")]);
        assert_eq!(blind.fix(&[], &own), Err(ErrorCode::InvalidAcl));
        let mut rules = Rules::default();
        rules.auth.x509 = true;
        rules.auth.x509_super_user = Some("CN=root".into());
        let mut ann = rules.opened("10.0.0.1", Some("CN=ann"));
        assert!(rules.may(&ann, &own, Perms::READ));
        assert_eq!(rules.fix(&ann, &[acl("auth", "")]), Ok(own.to_vec()));
        assert_eq!(rules.authenticate(&mut ann, "x509", b""), Ok(()));
        let root = rules.opened("10.0.0.1", Some("CN=root"));
        assert!(rules.may(&root, &own, Perms::READ));
        assert!(shown(&root).iter().any(|id| (&*id.scheme, &*id.id) == ("super", "")));
        let mut nobody = rules.opened("10.0.0.1", None);
        assert!(!rules.may(&nobody, &own, Perms::READ));
        let refused = rules.authenticate(&mut nobody, "x509", b"");
        assert_eq!(refused, Err(ErrorCode::AuthFailed));
    }

    /// ACL-14
    #[test]
    fn connection_with_wrong_ensemble_name_is_closed() {
        let mut rules = Rules::default();
        assert!(!rules.hangs_up("ensemble", b"other"));
        assert!(rules.authenticate(&mut Vec::new(), "ensemble", b"other").is_err());
        rules.auth.ensemble = true;
        rules.auth.ensemble_names = vec!["ours".into()];
        assert!(rules.hangs_up("ensemble", b"other"));
        assert!(!rules.hangs_up("ensemble", b"ours") && !rules.hangs_up("ensemble", b""));
        assert_eq!(rules.authenticate(&mut Vec::new(), "ensemble", b"ours"), Ok(()));
    }

    /// ACL-17
    #[test]
    fn identities_of_a_connection_are_bounded_to_a_megabyte() {
        let (rules, mut ids) = (Rules::default(), Vec::new());
        let long = |user: u8| [&[user; 400_000][..], b":x"].concat();
        assert_eq!(rules.authenticate(&mut ids, "digest", &long(b'a')), Ok(()));
        assert_eq!(rules.authenticate(&mut ids, "digest", &long(b'b')), Ok(()));
        let refused = rules.authenticate(&mut ids, "digest", &long(b'c'));
        assert_eq!((refused, ids.len()), (Err(ErrorCode::AuthFailed), 2));
    }

    /// ACL-16
    #[test]
    fn unknown_schemes_fail_to_authenticate() {
        for scheme in ["world", "auth", "sasl", "foo", ""] {
            let found = Rules::default().authenticate(&mut Vec::new(), scheme, b"x");
            assert_eq!(found, Err(ErrorCode::AuthFailed), "{scheme}");
        }
    }

    /// ACL-06
    #[test]
    fn auth_expands_in_the_order_of_zookeeper() {
        let ids = ["amy:secret", "cat:secret", "bob:secret"]
            .map(|user| Id { scheme: "digest".into(), id: digest(user.as_bytes()) });
        let ids = [&[ip("127.0.0.1")], &ids[..]].concat();
        let auth = Acl { perms: Perms(31), scheme: "auth".into(), id: String::new() };
        let fixed = Rules::default().fix(&ids, &[auth]).expect("somebody is authenticated");
        let users = Vec::from_iter(fixed.iter().map(|acl| &acl.id[..3]));
        assert_eq!(users, ["amy", "bob", "cat"]);
    }
}
