//! Scheme `digest`: users and passwords (ACL-08, ACL-09, Java `DigestAuthenticationProvider`).
//!
//! Owns the form of the identities: user, colon, digest of user and password. Must not keep
//! passwords.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use md5::Md5;
use sha1::Sha1;
use sha2::{Digest as _, Sha256, Sha512};

use super::DigestAlg;
use super::{Access, AuthOutcome, Facts, SUPER, Scheme};
use crate::wire::Id;

/// The scheme `digest`.
#[derive(Debug)]
pub(super) struct Digest {
    alg: DigestAlg,
    /// Identity of the client that gets the identity `super`, too.
    super_digest: Option<String>,
}

impl Digest {
    pub(super) fn new(alg: DigestAlg, super_digest: Option<String>) -> Digest {
        Digest { alg, super_digest }
    }

    /// The identity for the credentials `user:password`. Without a colon, the whole text is the
    /// user, and there is no password (edge 170).
    fn id(&self, credentials: &str) -> String {
        let digest = match self.alg {
            DigestAlg::Sha1 => STANDARD.encode(Sha1::digest(credentials)),
            DigestAlg::Sha256 => STANDARD.encode(Sha256::digest(credentials)),
            DigestAlg::Sha512 => STANDARD.encode(Sha512::digest(credentials)),
            DigestAlg::Md5 => STANDARD.encode(Md5::digest(credentials)),
        };
        format!("{}:{digest}", user(credentials))
    }
}

impl Scheme for Digest {
    fn name(&self) -> &str {
        "digest"
    }

    fn authenticate(&self, auth: Option<&[u8]>, _facts: &Facts<'_>) -> AuthOutcome {
        let Some(auth) = auth else {
            return AuthOutcome::Refused;
        };
        let id = self.id(&java_text(auth));
        let mut ids = Vec::new();
        if self.super_digest.as_ref() == Some(&id) {
            ids.push(Id { scheme: SUPER.into(), id: String::new() });
        }
        ids.push(Id { scheme: self.name().into(), id });
        AuthOutcome::Accepted(ids)
    }

    /// Two parts, of which the second is not empty; Java's `split` drops empty parts at the end
    /// (edge 163).
    fn is_valid(&self, id: &str) -> bool {
        id.trim_end_matches(':').split(':').count() == 2
    }

    fn matches(&self, id: &str, entry: &str, _access: &Access<'_>) -> bool {
        id == entry
    }

    fn user<'a>(&self, id: &'a str) -> &'a str {
        user(id)
    }
}

fn user(id: &str) -> &str {
    id.split_once(':').map_or(id, |(user, _)| user)
}

/// Decodes bytes as Java decodes UTF-8: invalid bytes become U+FFFD, and an encoded surrogate
/// becomes a single one. Digests of such passwords then agree with those that ZooKeeper has stored.
fn java_text(mut bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    while let Some(at) = bytes.windows(2).position(|two| matches!(two, [0xed, 0xa0..=0xbf])) {
        text.push_str(&String::from_utf8_lossy(&bytes[..at]));
        text.push(char::REPLACEMENT_CHARACTER);
        let third = bytes.get(at + 2).is_some_and(|byte| matches!(byte, 0x80..=0xbf));
        bytes = &bytes[at + if third { 3 } else { 2 }..];
    }
    text.push_str(&String::from_utf8_lossy(bytes));
    text
}
