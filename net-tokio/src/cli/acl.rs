//! Access control lists as zkCli reads and prints them.
//!
//! Owns the text `scheme:id:perms`. Must not judge schemes: the server does.

use std::fmt::Write as _;

use zabkeeper_client::{Acl, Perms};

/// The letters of permissions in the order in which zkCli prints them.
const LETTERS: [(char, Perms); 5] = [
    ('c', Perms::CREATE),
    ('d', Perms::DELETE),
    ('r', Perms::READ),
    ('w', Perms::WRITE),
    ('a', Perms::ADMIN),
];

/// Reads `scheme:id:perms,...`, and adds what is wrong with it to `complaints`: as with zkCli, the
/// rest counts.
pub(crate) fn parse(text: &str, complaints: &mut Vec<String>) -> Vec<Acl> {
    let mut list = Vec::new();
    // Java's `split` leaves empty parts at the end out.
    let parts = text.trim_end_matches(',').split(',');
    for part in parts {
        let fields = part.split_once(':').and_then(|(scheme, rest)| {
            let (id, perms) = rest.rsplit_once(':')?;
            Some((scheme, id, perms))
        });
        let Some((scheme, id, perms)) = fields else {
            complaints.push(format!("{part} does not have the form scheme:id:perm"));
            continue;
        };
        let perms = parse_perms(perms, complaints);
        list.push(Acl { perms, scheme: scheme.to_owned(), id: id.to_owned() });
    }
    list
}

/// Reads the letters of permissions; those that are none are complained of, and left out.
pub(crate) fn parse_perms(letters: &str, complaints: &mut Vec<String>) -> Perms {
    let mut bits = 0;
    for letter in letters.chars() {
        match LETTERS.iter().find(|(known, _)| *known == letter) {
            Some((_, perm)) => bits |= perm.0,
            None => complaints.push(format!("Unknown perm type: {letter}")),
        }
    }
    Perms(bits)
}

/// `cdrwa`, or a part of it.
pub(crate) fn perms(perms: Perms) -> String {
    let set = LETTERS.iter().filter(|(_, perm)| perms.intersects(*perm));
    set.map(|(letter, _)| *letter).collect()
}

/// The lines of `getAcl`.
pub(crate) fn lines(list: &[Acl]) -> String {
    let line = |acl: &Acl| {
        format!("'{},'{}\n: {}\n", escaped(&acl.scheme), escaped(&acl.id), perms(acl.perms))
    };
    list.iter().map(line).collect()
}

/// A field of a record as jute's text form has it.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\0' | '\n' | '\r' | ',' | '}' | '%' => {
                write!(escaped, "%{:02X}", u32::from(c)).expect("a text takes all");
            }
            _ => escaped.push(c),
        }
    }
    escaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_printed() {
        let mut complaints = Vec::new();
        let list = parse("world:anyone:cdrwa,digest:u:p=:rz,foo,ip:::1:c,", &mut complaints);
        assert_eq!(
            complaints,
            ["Unknown perm type: z", "foo does not have the form scheme:id:perm"]
        );
        assert_eq!(lines(&list), "'world,'anyone\n: cdrwa\n'digest,'u:p=\n: r\n'ip,'::1\n: c\n");
        let name = Acl { perms: Perms::ALL, scheme: "x509".into(), id: "CN=a,O=50%".into() };
        assert_eq!(lines(&[name]), "'x509,'CN=a%2CO=50%25\n: cdrwa\n");
    }
}
