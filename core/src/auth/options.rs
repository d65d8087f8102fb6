//! Which schemes a server offers, and how they are set.
//!
//! Owns the options and their defaults. Must not know any scheme.

use serde::{Deserialize, Serialize};

/// Who is believed, and what that is worth.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuthOptions {
    /// `user:digest` of who may do everything (`DigestAuthenticationProvider.superDigest`). Default: nobody.
    pub super_digest: Option<String>,
    /// Is the scheme `digest` switched off (`DigestAuthenticationProvider.enabled`)? Default: no.
    pub digest_disabled: bool,
    /// How passwords are hashed (`DigestAuthenticationProvider.digestAlg`).
    pub digest_alg: DigestAlg,
    /// Subject of the certificate of who may do everything (`X509AuthenticationProvider.superUser`). Default: nobody.
    pub x509_super_user: Option<String>,
    /// Is the scheme `x509` offered, as it is with `secureClientPort`? Default: no.
    pub x509: bool,
    /// Is the scheme `ensemble` offered (`authProvider.N` names its class)? Default: no.
    pub ensemble: bool,
    /// Names that the scheme `ensemble` accepts (`ensembleAuthName`); none: all.
    pub ensemble_names: Vec<String>,
    /// Is every list ignored (`skipACL`)? Default: no.
    pub skip_acl: bool,
    /// One of these schemes must have been shown before anything is asked (`enforce.auth.schemes`); none: not needed.
    pub required_schemes: Vec<String>,
    /// Is the example scheme `key` offered (`authProvider.N` names its class)? Default: no.
    pub key: bool,
}

/// How passwords of the scheme `digest` are hashed. All servers and all lists of an ensemble must agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the algorithms'")]
pub enum DigestAlg {
    #[default]
    Sha1,
    Sha256,
    Sha512,
    Md5,
}
