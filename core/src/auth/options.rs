//! Options of authentication and access control.
//!
//! Owns the options and their defaults. Must not know any scheme.

use serde::{Deserialize, Serialize};

/// Which schemes a server offers, and how it checks access.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct AuthOptions {
    /// `user:digest` of the super user, who passes every list
    /// (`DigestAuthenticationProvider.superDigest`). Default: none.
    pub super_digest: Option<String>,
    /// Is the scheme `digest` switched off (`DigestAuthenticationProvider.enabled`)? Default: no.
    pub digest_disabled: bool,
    /// How passwords are hashed (`DigestAuthenticationProvider.digestAlg`).
    pub digest_alg: DigestAlg,
    /// Subject of the super user's certificate (`X509AuthenticationProvider.superUser`). Default:
    /// none.
    pub x509_super_user: Option<String>,
    /// Is the scheme `x509` offered, as it is with `secureClientPort`? Default: no.
    pub x509: bool,
    /// Is the scheme `ensemble` offered (`authProvider.N` names its class)? Default: no.
    pub ensemble: bool,
    /// Names that the scheme `ensemble` accepts (`ensembleAuthName`); empty: every name.
    pub ensemble_names: Vec<String>,
    /// Is every list ignored (`skipACL`)? Default: no.
    pub skip_acl: bool,
    /// A client must have an identity of one of these schemes before its requests are served
    /// (`enforce.auth.schemes`); empty: no requirement.
    pub required_schemes: Vec<String>,
    /// Is the example scheme `key` offered (`authProvider.N` names its class)? Default: no.
    pub key: bool,
}

/// How passwords of the scheme `digest` are hashed. All servers and all lists of an ensemble must
/// agree.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[expect(missing_docs, reason = "the names are the algorithms'")]
pub enum DigestAlg {
    #[default]
    Sha1,
    Sha256,
    Sha512,
    Md5,
}
