//! Scheme `x509`: subjects of certificates (ACL-11, Java `X509AuthenticationProvider`).
//!
//! Owns the syntax of distinguished names in lists. The host verifies the certificate and passes
//! its subject.

use super::{Access, AuthOutcome, Facts, SUPER, Scheme};
use crate::wire::Id;

/// Attribute types that Java knows by name, in upper case.
const KEYWORDS: [&str; 21] = [
    "CN",
    "C",
    "L",
    "S",
    "ST",
    "O",
    "OU",
    "T",
    "IP",
    "STREET",
    "DC",
    "DNQUALIFIER",
    "DNQ",
    "SURNAME",
    "GIVENNAME",
    "INITIALS",
    "GENERATION",
    "EMAIL",
    "EMAILADDRESS",
    "UID",
    "SERIALNUMBER",
];

/// The scheme `x509`.
#[derive(Debug)]
pub(super) struct X509 {
    /// Subject of the client that gets the identity `super`, too.
    super_user: Option<String>,
}

impl X509 {
    pub(super) fn new(super_user: Option<String>) -> X509 {
        X509 { super_user }
    }

    fn is_super(&self, id: &str) -> bool {
        self.super_user.as_deref() == Some(id)
    }
}

impl Scheme for X509 {
    fn name(&self) -> &str {
        "x509"
    }

    /// A packet proves nothing: the certificate was verified when the client connected.
    fn authenticate(&self, _auth: Option<&[u8]>, facts: &Facts<'_>) -> AuthOutcome {
        if facts.known.iter().any(|id| id.scheme == self.name()) {
            AuthOutcome::Accepted(Vec::new())
        } else {
            AuthOutcome::Refused
        }
    }

    fn implied(&self, id: &Id) -> Vec<Id> {
        if self.is_super(&id.id) {
            vec![Id { scheme: SUPER.into(), id: id.id.clone() }]
        } else {
            Vec::new()
        }
    }

    fn is_valid(&self, id: &str) -> bool {
        is_name(id)
    }

    fn matches(&self, id: &str, entry: &str, _access: &Access<'_>) -> bool {
        self.is_super(id) || id == entry
    }
}

/// Is it a distinguished name of RFC 2253, `CN=Amy,OU=Ops+L=Rome`, with attribute types that Java
/// knows?
fn is_name(text: &str) -> bool {
    text.is_empty() || parts(text).into_iter().all(is_attribute)
}

/// Splits a name at the commas, semicolons and plus signs that are neither quoted nor escaped.
fn parts(text: &str) -> Vec<&str> {
    let (mut parts, mut begin) = (Vec::new(), 0);
    let (mut quoted, mut escaped) = (false, false);
    for (at, char) in text.char_indices() {
        match char {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => quoted = !quoted,
            ',' | ';' | '+' if !quoted => {
                parts.push(&text[begin..at]);
                begin = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[begin..]);
    parts
}

fn is_attribute(text: &str) -> bool {
    let Some((kind, value)) = text.split_once('=') else {
        return false;
    };
    is_kind(kind.trim()) && is_value(value.trim())
}

/// Is it a keyword or an object identifier?
fn is_kind(kind: &str) -> bool {
    let upper = kind.to_ascii_uppercase();
    let oid = upper.strip_prefix("OID.").unwrap_or(&upper);
    let arcs: Option<Vec<u64>> = oid.split('.').map(|arc| arc.parse().ok()).collect();
    KEYWORDS.contains(&upper.as_str())
        || matches!(arcs.as_deref(), Some([0 | 1, 0..40, ..] | [2, _, ..]))
}

/// Is it text with escapes, quoted as a whole or unquoted, or a hash sign and an encoded value in
/// hexadecimal digits?
fn is_value(value: &str) -> bool {
    if let Some(hex) = value.strip_prefix('#') {
        return is_encoded(hex);
    }
    let (text, quoted) = match value.strip_prefix('"') {
        Some(rest) => match rest.strip_suffix('"') {
            Some(inner) => (inner, true),
            None => return false,
        },
        None => (value, false),
    };
    let mut chars = text.chars();
    while let Some(char) = chars.next() {
        let fine = match char {
            '\\' => match chars.next() {
                Some(first) if first.is_ascii_hexdigit() => {
                    chars.next().is_some_and(|second| second.is_ascii_hexdigit())
                }
                Some(special) => " ,=+<>#;\"\\".contains(special),
                None => false,
            },
            '"' => false,
            '<' | '>' => quoted,
            _ => true,
        };
        if !fine {
            return false;
        }
    }
    true
}

/// Is it a type byte, a length byte, and as many bytes?
fn is_encoded(hex: &str) -> bool {
    let pairs = Vec::from_iter(hex.as_bytes().chunks(2));
    let byte = |pair: &&[u8]| match str::from_utf8(pair) {
        Ok(text) if text.len() == 2 => u8::from_str_radix(text, 16).ok(),
        Ok(_) | Err(_) => None,
    };
    match pairs.iter().map(byte).collect::<Option<Vec<u8>>>().as_deref() {
        Some([_, length, rest @ ..]) => usize::from(*length) == rest.len(),
        Some(_) | None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ACL-11.
    #[test]
    fn distinguished_names_are_those_that_java_accepts() {
        let good = [
            "",
            "CN=a",
            "cn=a",
            "CN=a,OU=b",
            "CN=a+OU=b",
            "CN=a;OU=b",
            "CN=",
            "CN=,O=b",
            "1.2=a",
            "OID.1.2=a",
            "2.5.4.3=a",
            "T=a",
            "S=a",
            "CN=#0c0141",
            "CN=\"a,b\"",
            "CN=a\\,b",
            "CN=a b",
            "CN= a",
            "CN =a",
            "CN=a=b",
            "DC=é",
            "CN=\\41",
            "CN=\\ x",
            "CN=a ;O=b",
            "CN=a#b",
        ];
        for name in good {
            assert!(is_name(name), "{name}");
        }
        let bad = [
            "  ",
            "a",
            "CN",
            "=a",
            "FOO=a",
            "1=a",
            "3.2=a",
            "1.40=a",
            "1.2.=a",
            ".1.2=a",
            "TITLE=a",
            "CN=#41",
            "CN=#4",
            "CN=#zz",
            "CN=\"a",
            "CN=a\\",
            "CN=a,",
            "CN=a,,O=b",
            ",CN=a",
            "CN=a<b",
            "CN=a\"b",
            "CN=\"a\"b",
            "CN=\\4",
            "CN=\\zz",
            "CN=a+",
            "CN=a;",
        ];
        for name in bad {
            assert!(!is_name(name), "{name}");
        }
    }
}
