//! Scheme `ensemble`: lets clients check which ensemble they are connected to (ACL-14, Java
//! `EnsembleAuthenticationProvider`).
//!
//! Owns the names of the ensemble. Must not create identities: lists do not know the scheme.

use super::{Access, AuthOutcome, Facts, Scheme};

/// The scheme `ensemble`: adds no identity, but closes the connection of a client that names
/// another ensemble.
#[derive(Debug)]
pub(super) struct Ensemble {
    names: Vec<String>,
}

impl Ensemble {
    pub(super) fn new(names: Vec<String>) -> Ensemble {
        Ensemble { names }
    }
}

impl Scheme for Ensemble {
    fn name(&self) -> &str {
        "ensemble"
    }

    fn authenticate(&self, auth: Option<&[u8]>, _facts: &Facts<'_>) -> AuthOutcome {
        let asked = auth.unwrap_or_default();
        let is_ours = |name: &String| name.as_bytes() == asked;
        if asked.is_empty() || self.names.is_empty() || self.names.iter().any(is_ours) {
            AuthOutcome::Accepted(Vec::new())
        } else {
            AuthOutcome::Closed
        }
    }

    fn is_valid(&self, _id: &str) -> bool {
        false
    }

    fn matches(&self, _id: &str, _entry: &str, _access: &Access<'_>) -> bool {
        false
    }

    fn is_authenticated(&self) -> bool {
        false
    }
}
