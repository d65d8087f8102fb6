//! Scheme `ip`: addresses of clients (ACL-10, Java `IPAuthenticationProvider`).
//!
//! Owns the syntax of addresses and networks in lists. The driver passes the addresses of clients.

use super::{Access, AuthOutcome, Facts, Scheme};

/// The scheme `ip`.
#[derive(Debug)]
pub(super) struct Ip;

impl Scheme for Ip {
    fn name(&self) -> &str {
        "ip"
    }

    /// The driver has passed the client's address already, so a packet adds no identity.
    fn authenticate(&self, _auth: Option<&[u8]>, _facts: &Facts<'_>) -> AuthOutcome {
        AuthOutcome::Accepted(Vec::new())
    }

    fn is_valid(&self, id: &str) -> bool {
        Network::parse(id).is_some()
    }

    fn matches(&self, id: &str, entry: &str, _access: &Access<'_>) -> bool {
        match (Network::parse(entry), address(id)) {
            (Some(network), Some(address)) => network.has(&address),
            _ => false,
        }
    }

    fn is_authenticated(&self) -> bool {
        false
    }
}

/// An address, and how many of its leading bits a client's address must share.
#[derive(PartialEq, Eq, Debug)]
struct Network {
    /// 4 bytes for IPv4, 16 for IPv6.
    address: Vec<u8>,
    bits: usize,
}

impl Network {
    fn parse(text: &str) -> Option<Network> {
        let (first, prefix) = match text.split_once('/') {
            Some((first, prefix)) => (first, Some(prefix)),
            None => (text, None),
        };
        let address = address(first)?;
        let all = address.len() * 8;
        let bits = match prefix {
            None => all,
            Some(prefix) => {
                usize::try_from(number(prefix, 10)?).ok().filter(|bits| *bits <= all)?
            }
        };
        Some(Network { address, bits })
    }

    /// A network contains only addresses of its own IP version.
    fn has(&self, address: &[u8]) -> bool {
        let (bytes, bits) = (self.bits / 8, self.bits % 8);
        self.address.len() == address.len()
            && self.address[..bytes] == address[..bytes]
            && (bits == 0 || (self.address[bytes] ^ address[bytes]) >> (8 - bits) == 0)
    }
}

/// Parses an address as ZooKeeper does: text with a colon is IPv6, any other text IPv4.
fn address(text: &str) -> Option<Vec<u8>> {
    if text.contains(':') { v6(text) } else { v4(text) }
}

fn v4(text: &str) -> Option<Vec<u8>> {
    let parts = Vec::from_iter(text.split('.'));
    if parts.len() != 4 {
        return None;
    }
    parts.into_iter().map(|part| u8::try_from(number(part, 10)?).ok()).collect()
}

/// Eight groups, or fewer with one `::`, which stands for at least one group. An IPv4 suffix or a
/// zone is not accepted.
fn v6(text: &str) -> Option<Vec<u8>> {
    let halves = Vec::from_iter(text.split("::"));
    let (first, last) = match halves[..] {
        [all] => {
            let groups = groups(all)?;
            return (groups.len() == 16).then_some(groups);
        }
        [first, last] => (half(first)?, half(last)?),
        _ => return None,
    };
    let zeros = 16_usize.checked_sub(first.len() + last.len()).filter(|zeros| *zeros > 0)?;
    Some([first, vec![0; zeros], last].concat())
}

fn half(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() { Some(Vec::new()) } else { groups(text) }
}

fn groups(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    for group in text.split(':') {
        // ZooKeeper accepts up to four characters, and Java accepts a sign as one of them.
        if group.encode_utf16().count() > 4 {
            return None;
        }
        let [.., high, low] = number(group, 16)?.to_be_bytes();
        bytes.extend([high, low]);
    }
    Some(bytes)
}

/// `Integer.parseInt`: digits with an optional sign. Unlike Java, this accepts ASCII digits only.
fn number(text: &str, radix: u32) -> Option<i32> {
    i32::from_str_radix(text, radix).ok()
}
