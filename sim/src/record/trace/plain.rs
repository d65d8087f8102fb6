//! Trace text in readable form: zxids as epoch and counter, connections with their other end.
//!
//! Owns that form. Must not know where the text comes from.

use zabkeeper_core::{ConnId, ServerId, Zxid};

use crate::network::stream::{Network, Party};
use crate::record::timeline::position;

/// Splits a text into alphanumeric words and separators.
pub(crate) fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive(|c: char| !c.is_ascii_alphanumeric()).flat_map(|word| {
        let end = word.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(word.len());
        let (word, rest) = word.split_at(end);
        [word, rest]
    })
}

/// Parses a word as a zxid. Session ids are larger, and smaller numbers belong to no transaction.
pub(crate) fn as_position(word: &str) -> Option<Zxid> {
    let number = u64::from_str_radix(word.strip_prefix("0x")?, 16).ok()?;
    (1 << 32..1 << 52).contains(&number).then_some(Zxid(number))
}

/// The text with zxids as epoch and counter.
pub(crate) fn positions_in(text: &str) -> String {
    let plain = |word: &str| as_position(word).map_or(word.to_owned(), position);
    words(text).map(plain).collect()
}

/// An event with zxids as epoch and counter, and with the other end of each connection. The first
/// word names the event's subject.
pub(crate) fn event(text: &str, net: &Network) -> String {
    from_server(text.split(' ').next().and_then(as_server), text, net)
}

/// The same for a text about this server; `None`: about a client.
pub(crate) fn from_server(teller: Option<ServerId>, text: &str, net: &Network) -> String {
    let plain = |word: &str| {
        let ends = as_conn(word).and_then(|conn| net.parties(conn));
        match (as_position(word), ends) {
            (Some(zxid), _) => position(zxid),
            (None, Some(ends)) => format!("{word}({})", others(ends, teller)),
            (None, None) => word.to_owned(),
        }
    };
    words(text).map(plain).collect()
}

fn as_server(word: &str) -> Option<ServerId> {
    word.strip_prefix('s')?.parse().ok().map(ServerId)
}

/// A connection, which has the letter `l` if it is a link between servers.
fn as_conn(word: &str) -> Option<ConnId> {
    word.strip_prefix(['c', 'l'])?.parse().ok().map(ConnId)
}

fn others(ends: [Party; 2], teller: Option<ServerId>) -> String {
    let named = ends.map(|end| end.to_string());
    let is_teller = |end: Party| match end {
        Party::Server(server) => teller == Some(server),
        Party::Client(_) => teller.is_none(),
        Party::BadPeer => false,
    };
    match ends.map(is_teller) {
        [true, false] => named[1].clone(),
        [false, true] => named[0].clone(),
        [true, true] | [false, false] => named.join("-"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::observe::ClientId;
    use crate::engine::seed::Seeds;
    use crate::world::options::{Options, Pinned, Profile};

    #[test]
    fn connection_is_printed_with_its_other_end() {
        let seeds = Seeds::new(1);
        let pace = Options::draw(seeds, Profile::Default, &Pinned::default()).peers.link;
        let mut net = Network::new(70);
        let [client, s1, s3] =
            [Party::Client(ClientId(8)), Party::Server(ServerId(1)), Party::Server(ServerId(3))];
        for parties in [[client, s1], [s3, s1]] {
            let conn = net.allocate();
            let attempt = net.attempt(seeds, parties);
            net.open(conn, attempt, pace);
        }
        for (text, plain) in [
            ("s1 l72 ACK 0x100000011", "s1 l72(s3) ACK 1.17"),
            ("s3 -> c72 14B", "s3 -> c72(s1) 14B"),
            (
                "s1 c71 request #2, session 0x48bcfe5688c0000",
                "s1 c71(client 8) request #2, session 0x48bcfe5688c0000",
            ),
            ("client 8 <- c71 20B", "client 8 <- c71(s1) 20B"),
            ("cut: l72, l73", "cut: l72(s3-s1), l73"),
        ] {
            assert_eq!(event(text, &net), plain);
        }
    }
}
