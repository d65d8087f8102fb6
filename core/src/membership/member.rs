//! One server of an ensemble and its addresses (Java `QuorumServer`, `MultipleAddresses`).
//!
//! Owns their text, `host:quorumPort:electionPort[:role][|...][;[clientHost:]clientPort]`, as it
//! stands behind `server.N=`. Must not resolve names, nor choose among the addresses.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;

/// The content of a `server.N` line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its number, 0 to 255.
    pub id: ServerId,
    /// Where other servers reach it: one address or several, ordered by host, as in ZooKeeper's
    /// text.
    pub addresses: Vec<ServerAddress>,
    /// Is it an observer, which follows without a vote? Otherwise it is a participant.
    pub observes: bool,
    /// Client host, if given, and client port, from the part after the semicolon.
    pub client: Option<(Option<String>, u16)>,
}

/// An address at which other servers reach a server.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Serialize, Deserialize)]
pub struct ServerAddress {
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port on which the leader accepts learners.
    pub quorum_port: u16,
    /// Port for election notifications.
    pub election_port: u16,
}

const FORM: &str = "write server.N=host:2888:3888, with ;2181 behind it for the client port";
const ROLE: &str = "the role is participant or observer";

impl Member {
    /// Parses the number of a server.
    ///
    /// # Errors
    /// Not a number from 0 to 255.
    pub fn parse_id(text: &str) -> Result<ServerId, &'static str> {
        let id = text.parse().ok().filter(|id| *id <= 255);
        id.map(ServerId).ok_or("the number of a server is 0 to 255, as in server.1")
    }

    /// Parses the part of a `server.N` line behind the equals sign.
    ///
    /// # Errors
    /// Text of another form; the error says what is wrong.
    pub fn parse(id: ServerId, text: &str) -> Result<Member, &'static str> {
        let (servers, client) = match text.split_once(';') {
            None => (text, None),
            Some((servers, client)) => (servers, Some(client.trim())),
        };
        let (mut addresses, mut roles) = (Vec::new(), Vec::new());
        for one in servers.split('|') {
            let (address, role) = ServerAddress::parse(one.trim())?;
            addresses.push(address);
            roles.extend(role);
        }
        addresses.sort();
        addresses.dedup();
        let observes = roles.first().copied().unwrap_or(false);
        if roles.contains(&!observes) {
            return Err("the addresses of one server have one role");
        }
        let client = match client {
            None => None,
            Some(text) => {
                Some(client_address(text).ok_or("behind ; stands the client port, as in ;2181")?)
            }
        };
        Ok(Member { id, addresses, observes, client })
    }

    /// Whether a role is that of an observer; `None` for an unknown role.
    pub fn observes(role: &str) -> Option<bool> {
        let is = |name: &str| role.eq_ignore_ascii_case(name);
        if is("observer") { Some(true) } else { is("participant").then_some(false) }
    }

    /// Host and port as text, an IPv6 address in brackets.
    pub fn address(host: &str, port: &dyn fmt::Display) -> String {
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Does this host stand for every address of a machine?
    pub fn is_everywhere(host: &str) -> bool {
        ["0.0.0.0", "::"].contains(&host)
    }

    /// Removes the brackets around an IPv6 address.
    pub fn without_brackets(host: &str) -> &str {
        host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
    }

    /// Hosts and quorum ports as text.
    pub fn quorum_address(&self) -> String {
        self.text_of(ServerAddress::quorum)
    }

    /// Hosts and election ports as text.
    pub fn election_address(&self) -> String {
        self.text_of(ServerAddress::election)
    }

    /// The quorum ports as text, each once.
    pub fn quorum_ports(&self) -> String {
        ports_text(self.addresses.iter().map(|address| address.quorum_port))
    }

    /// The election ports as text, each once.
    pub fn election_ports(&self) -> String {
        ports_text(self.addresses.iter().map(|address| address.election_port))
    }

    fn text_of(&self, part: impl Fn(&ServerAddress) -> String) -> String {
        self.addresses.iter().map(part).collect::<Vec<_>>().join("|")
    }

    /// Do the two have a port of one host in common (RECONF-05, Java `checkAddressDuplicate`)?
    pub(crate) fn shares_an_address(&self, other: &Member) -> bool {
        let shares = |own: &ServerAddress| other.addresses.iter().any(|their| own.shares(their));
        self.addresses.iter().any(shares)
            || self.client_address().is_some_and(|own| Some(own) == other.client_address())
    }

    /// Host and port for clients, where the server listens at one address only.
    fn client_address(&self) -> Option<(&str, u16)> {
        let (host, port) = self.client.as_ref()?;
        let host = host.as_deref().filter(|host| !Member::is_everywhere(host))?;
        Some((host, *port))
    }
}

impl ServerAddress {
    /// Parses one address, and the role behind it, if there is one: does the server observe?
    fn parse(text: &str) -> Result<(ServerAddress, Option<bool>), &'static str> {
        let (host, rest) = split_host(text).ok_or(FORM)?;
        let mut parts = rest.split(':').map(str::trim);
        let ports = [parts.next(), parts.next()].map(|part| part.and_then(port));
        let [Some(quorum_port), Some(election_port)] = ports else { return Err(FORM) };
        let observes = match (parts.next(), parts.next()) {
            (None, None) => None,
            (Some(role), None) => Some(Member::observes(role).ok_or(ROLE)?),
            _ => return Err(FORM),
        };
        Ok((ServerAddress { host: host.to_owned(), quorum_port, election_port }, observes))
    }

    /// Host and quorum port as text.
    pub fn quorum(&self) -> String {
        Member::address(&self.host, &self.quorum_port)
    }

    /// Host and election port as text.
    pub fn election(&self) -> String {
        Member::address(&self.host, &self.election_port)
    }

    fn shares(&self, other: &ServerAddress) -> bool {
        let ports = |address: &ServerAddress| [address.quorum_port, address.election_port];
        self.host == other.host && ports(self).iter().any(|port| ports(other).contains(port))
    }
}

fn ports_text(ports: impl Iterator<Item = u16>) -> String {
    let mut each: Vec<String> = Vec::new();
    for port in ports.map(|port| port.to_string()) {
        if !each.contains(&port) {
            each.push(port);
        }
    }
    each.join("|")
}

/// Splits off the host, which may be an IPv6 address in brackets, from the part after its colon.
fn split_host(text: &str) -> Option<(&str, &str)> {
    let (host, rest) = match text.strip_prefix('[') {
        Some(text) => {
            let (host, rest) = text.split_once(']')?;
            (host, rest.strip_prefix(':')?)
        }
        None => text.split_once(':')?,
    };
    (!host.is_empty()).then_some((host, rest))
}

fn client_address(text: &str) -> Option<(Option<String>, u16)> {
    if text.contains('|') {
        return None;
    }
    match text.rsplit_once(':') {
        Some((host, text)) => {
            let host = Member::without_brackets(host);
            Some(((!host.is_empty()).then(|| host.to_owned()), port(text)?))
        }
        None => Some((None, port(text)?)),
    }
}

fn port(text: &str) -> Option<u16> {
    text.trim().parse().ok().filter(|port| *port > 0)
}

/// The line as in ZooKeeper's configuration node, and in the four-letter command `conf`.
impl fmt::Display for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let role = if self.observes { "observer" } else { "participant" };
        let each = self.text_of(|address| {
            let ports = format!("{}:{}", address.quorum_port, address.election_port);
            Member::address(&address.host, &ports)
        });
        write!(f, "server.{}={each}:{role}", self.id)?;
        if let Some((host, port)) = &self.client {
            write!(f, ";{}", Member::address(host.as_deref().unwrap_or("0.0.0.0"), port))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CONF-20.
    #[test]
    fn several_addresses_have_one_role_and_are_ordered_by_host() {
        let parse = |text: &str| Member::parse(ServerId(1), text);
        let text = "server.1=[::1]:2:3|a:2888:3888|b:2889:3888:observer;0.0.0.0:2181";
        for line in [
            "b:2889:3888:observer|a:2888:3888|[::1]:2:3:observer;2181",
            "b:2889:3888 | a:2888:3888:OBSERVER | [::1]:2:3 | a:2888:3888 ; 2181",
        ] {
            let member = parse(line).expect("valid");
            assert_eq!(member.to_string(), text);
            let again = parse(&text["server.1=".len()..]).map(|member| member.to_string());
            assert_eq!(again.as_deref(), Ok(text));
        }
        let member = parse("b:2889:3888|a:2888:3888").expect("valid");
        assert_eq!(member.quorum_address(), "a:2888|b:2889");
        assert_eq!(member.election_address(), "a:3888|b:3888");
        assert_eq!((&*member.quorum_ports(), &*member.election_ports()), ("2888|2889", "3888"));
        for (line, what) in [
            ("a:1:2:observer|b:1:2:participant", "one role"),
            ("a:1:2|", "write server.N"),
            ("a:1:2|b:1", "write server.N"),
            ("a:1:2;3|b:1:2", "client port"),
        ] {
            assert!(parse(line).expect_err(what).contains(what), "{line}");
        }
        let other = Member::parse(ServerId(2), "c:1:2|b:3888:1").expect("valid");
        assert!(member.shares_an_address(&other) && other.shares_an_address(&member));
        let other = Member::parse(ServerId(2), "c:1:2|b:2888:1").expect("valid");
        assert!(!member.shares_an_address(&other));
    }
}
