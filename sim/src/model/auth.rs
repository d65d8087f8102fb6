//! Who a client is, and what a list grants to it (ACL rows).
//!
//! Owns the schemes `world`, `auth`, `digest`, `ip` and `super`. Must not know nodes or connections.

use zabkeeper_core::wire::{Acl, Id, Perms};
use zabkeeper_core::{ErrorCode, SessionId};

use super::Rules;
use super::sha1::{base64, sha1};

/// For which session something is asked, and by whom.
#[derive(Clone, Copy, Debug)]
pub struct Asker<'a> {
    /// The session.
    pub session: SessionId,
    /// Who its client has shown to be.
    pub ids: &'a [Id],
}

/// The identity that every connection has from the start (ACL-10).
pub fn ip(address: &str) -> Id {
    Id { scheme: "ip".into(), id: address.into() }
}

impl Rules {
    /// Adds what a client has shown to who it is (ACL-08, ACL-09, ACL-16, ACL-17).
    ///
    /// # Errors
    /// The scheme is none by which a client can show who it is.
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
            // Every connection has its own address from the start; saying another one proves nothing.
            "ip" => {}
            _ => return Err(ErrorCode::AuthFailed),
        }
        for id in learned {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        Ok(())
    }

    /// Does the list grant one of these to somebody with these identities (ACL-01)?
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
            _ => false,
        };
        list.iter().any(|acl| acl.perms.intersects(wanted) && matches(acl))
    }

    /// The list as it is stored (ACL-04 to ACL-07): repetitions go first, then `auth` is replaced.
    pub(super) fn fix(&self, ids: &[Id], list: &[Acl]) -> Result<Vec<Acl>, ErrorCode> {
        let mut distinct: Vec<&Acl> = Vec::new();
        for acl in list {
            if !distinct.contains(&acl) {
                distinct.push(acl);
            }
        }
        let mut fixed = Vec::new();
        for acl in distinct {
            match acl.scheme.as_str() {
                "world" if acl.id == "anyone" => fixed.push(acl.clone()),
                "auth" => {
                    let before = fixed.len();
                    let mut shown = Vec::from_iter(ids.iter().filter(|id| id.scheme == "digest"));
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
                _ => return Err(ErrorCode::InvalidAcl),
            }
        }
        if fixed.is_empty() { Err(ErrorCode::InvalidAcl) } else { Ok(fixed) }
    }
}

/// Where an identity stands in the set of so many that ZooKeeper has for a connection: a hash map of Java's, of 16
/// places or, once these are three quarters full, 32, and so on.
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

/// An `int` of Java's, without its sign.
const LOW: u64 = 0xffff_ffff;

/// What whoAmI tells of these (OP-107): the part of each that is no secret.
pub(super) fn shown(ids: &[Id]) -> Vec<Id> {
    let show = |id: &Id| {
        let secret = id.scheme == "digest";
        let user = if secret { id.id.split(':').next().unwrap_or("") } else { &id.id };
        Id { scheme: id.scheme.clone(), id: user.to_owned() }
    };
    ids.iter().map(show).collect()
}

/// A list as it is shown to somebody who may not change it: no digests (OP-06).
pub(super) fn redacted(list: &[Acl]) -> Vec<Acl> {
    let hide = |acl: &Acl| match acl.id.split_once(':') {
        Some((user, _)) if acl.scheme == "digest" => Acl { id: format!("{user}:x"), ..acl.clone() },
        Some(_) | None => acl.clone(),
    };
    list.iter().map(hide).collect()
}

/// `user:password` as it stands in lists (ACL-08).
pub fn digest(auth: &[u8]) -> String {
    let text = String::from_utf8_lossy(auth);
    let user = text.split(':').next().unwrap_or("");
    format!("{user}:{}", base64(&sha1(text.as_bytes())))
}

/// Two parts, as Java's `split` counts them: empty ones at the end do not.
fn is_digest(id: &str) -> bool {
    id.trim_end_matches(':').split(':').count() == 2
}

/// Address and length of an entry of the scheme `ip`.
fn mask(entry: &str) -> Option<(u32, u32)> {
    let (address, bits) = match entry.split_once('/') {
        None => (entry, 32),
        Some((address, bits)) => (address, bits.parse().ok().filter(|bits| *bits <= 32)?),
    };
    Some((address.parse::<std::net::Ipv4Addr>().ok()?.to_bits(), bits))
}

fn is_within(address: &str, entry: &str) -> bool {
    let (Some((asked, _)), Some((base, bits))) = (mask(address), mask(entry)) else {
        return false;
    };
    let kept = u32::MAX.checked_shl(32 - bits).unwrap_or(0);
    asked & kept == base & kept
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(scheme: &str, id: &str) -> Acl {
        Acl { perms: Perms::ALL, scheme: scheme.into(), id: id.into() }
    }

    #[test]
    fn acl_08_digests_are_those_of_zookeeper() {
        assert_eq!(digest(b"super:test"), "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(base64(b"ab"), "YWI=");
        assert_eq!(base64(b"a"), "YQ==");
    }

    #[test]
    fn edges_161_to_169_which_lists_are_taken() {
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

    #[test]
    fn acl_01_acl_10_who_is_granted_what() {
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

    #[test]
    fn acl_09_edge_166_super_may_everything_and_is_not_stored() {
        let mut rules = Rules::default();
        rules.auth.super_digest = Some(digest(b"super:test"));
        let mut ids = Vec::new();
        rules.authenticate(&mut ids, "digest", b"super:test").expect("always");
        assert!(rules.may(&ids, &[acl("digest", "a:b")], Perms::ADMIN));
        let stored = acl("digest", "super:D/InIHSb7yEEbrWz8b9l71RjZJU=");
        assert_eq!(rules.fix(&ids, &[acl("auth", "")]), Ok(vec![stored]));
    }

    #[test]
    fn acl_16_other_schemes_prove_nothing() {
        for scheme in ["world", "auth", "sasl", "foo", ""] {
            let found = Rules::default().authenticate(&mut Vec::new(), scheme, b"x");
            assert_eq!(found, Err(ErrorCode::AuthFailed), "{scheme}");
        }
    }

    #[test]
    fn acl_06_identities_stand_for_auth_in_the_order_of_a_real_server() {
        let ids = ["amy:secret", "cat:secret", "bob:secret"]
            .map(|user| Id { scheme: "digest".into(), id: digest(user.as_bytes()) });
        let ids = [&[ip("127.0.0.1")], &ids[..]].concat();
        let auth = Acl { perms: Perms(31), scheme: "auth".into(), id: String::new() };
        let fixed = Rules::default().fix(&ids, &[auth]).expect("somebody is authenticated");
        let users = Vec::from_iter(fixed.iter().map(|acl| &acl.id[..3]));
        assert_eq!(users, ["amy", "bob", "cat"]);
    }
}
