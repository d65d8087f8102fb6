//! One server of an ensemble and its addresses (Java `QuorumServer`).
//!
//! Owns their text, `host:quorumPort:electionPort[:role][;[clientHost:]clientPort]`, as it stands
//! behind `server.N=`. Must not resolve names.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ids::ServerId;

/// The content of a `server.N` line.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Member {
    /// Its number, 0 to 255.
    pub id: ServerId,
    /// Host name or address; an IPv6 address without brackets.
    pub host: String,
    /// Port on which the leader accepts learners.
    pub quorum_port: u16,
    /// Port for election notifications.
    pub election_port: u16,
    /// Is it an observer, which follows without a vote? Otherwise it is a participant.
    pub observes: bool,
    /// Client host, if given, and client port, from the part after the semicolon.
    pub client: Option<(Option<String>, u16)>,
}

const FORM: &str = "write server.N=host:2888:3888, with ;2181 behind it for the client port";

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
        if text.contains('|') {
            return Err("several addresses for a server come with a later version");
        }
        let (server, client) = match text.split_once(';') {
            None => (text, None),
            Some((server, client)) => (server, Some(client.trim())),
        };
        let (host, rest) = split_host(server.trim()).ok_or(FORM)?;
        let mut parts = rest.split(':').map(str::trim);
        let ports = [parts.next(), parts.next()].map(|part| part.and_then(port));
        let [Some(quorum_port), Some(election_port)] = ports else { return Err(FORM) };
        let observes = match (parts.next(), parts.next()) {
            (None, None) => false,
            (Some(role), None) => {
                Member::observes(role).ok_or("the role is participant or observer")?
            }
            _ => return Err(FORM),
        };
        let client = match client {
            None => None,
            Some(text) => {
                Some(client_address(text).ok_or("behind ; stands the client port, as in ;2181")?)
            }
        };
        Ok(Member { id, host: host.to_owned(), quorum_port, election_port, observes, client })
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

    /// Host and quorum port as text.
    pub fn quorum_address(&self) -> String {
        Member::address(&self.host, &self.quorum_port)
    }

    /// Host and election port as text.
    pub fn election_address(&self) -> String {
        Member::address(&self.host, &self.election_port)
    }

    /// Do the two have a port of one host in common (RECONF-05, Java `checkAddressDuplicate`)?
    pub(crate) fn shares_an_address(&self, other: &Member) -> bool {
        let ports = |member: &Member| [member.quorum_port, member.election_port];
        self.host == other.host && ports(self).iter().any(|port| ports(other).contains(port))
            || self.client_address().is_some_and(|own| Some(own) == other.client_address())
    }

    /// Host and port for clients, where the server listens at one address only.
    fn client_address(&self) -> Option<(&str, u16)> {
        let (host, port) = self.client.as_ref()?;
        let host = host.as_deref().filter(|host| !Member::is_everywhere(host))?;
        Some((host, *port))
    }
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
        let ports = format!("{}:{}:{role}", self.quorum_port, self.election_port);
        write!(f, "server.{}={}", self.id, Member::address(&self.host, &ports))?;
        if let Some((host, port)) = &self.client {
            write!(f, ";{}", Member::address(host.as_deref().unwrap_or("0.0.0.0"), port))?;
        }
        Ok(())
    }
}
