//! The connect string of ZooKeeper's clients (CLIENT-01) and the chroot in it (CLIENT-02).
//!
//! Owns its grammar and the translation of paths. Must not resolve names: the host does, for each
//! [`Effect::Dial`](crate::Effect::Dial).
//!
//! Invariant: the chroot is empty or a valid path other than `/`.

use std::fmt;
use std::str::FromStr;

/// Port of a server without one.
const PORT_DEFAULT: u16 = 2181;

/// What a connect string begins with if DNS names the servers.
pub(crate) const SRV_PREFIX: &str = "dns-srv://";

/// `host:port,host:port,...[/chroot]`. The node of the chroot has to exist: nothing creates it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectString {
    servers: Vec<ServerAddr>,
    chroot: String,
}

/// One server of a connect string.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerAddr {
    /// Host name or address; an IPv6 address without its brackets.
    pub host: String,
    /// Client port, not zero.
    pub port: u16,
}

/// An invalid connect string; the text names the invalid part and what to write instead.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConnectStringError {
    what: String,
}

impl ConnectString {
    /// The servers, at least one, as listed.
    pub fn servers(&self) -> &[ServerAddr] {
        &self.servers
    }

    /// The chroot, the prefix of all paths of the session; empty if there is none.
    pub fn chroot(&self) -> &str {
        &self.chroot
    }

    /// The servers are these from now on; the chroot stays.
    pub(crate) fn replace_servers(&mut self, servers: Vec<ServerAddr>) {
        self.servers = servers;
    }

    /// The path as the server knows it; `None` if it is relative and would leave the chroot.
    pub(crate) fn to_server(&self, path: String) -> Option<String> {
        if self.chroot.is_empty() {
            Some(path)
        } else if path == "/" {
            Some(self.chroot.clone())
        } else {
            path.starts_with('/').then(|| format!("{}{path}", self.chroot))
        }
    }

    /// The path as the caller knows it; a path outside the chroot is unchanged.
    pub(crate) fn to_caller(&self, path: String) -> String {
        match path.strip_prefix(&self.chroot) {
            Some("") if !self.chroot.is_empty() => "/".to_owned(),
            Some(rest) if rest.starts_with('/') => rest.to_owned(),
            Some(_) | None => path,
        }
    }
}

impl FromStr for ConnectString {
    type Err = ConnectStringError;

    fn from_str(text: &str) -> Result<ConnectString, ConnectStringError> {
        if text.starts_with(SRV_PREFIX) {
            return refuse(format!(
                "{text:?} needs a lookup: use Client::connect or Client::resolve, with the feature \
                 dns-srv of zabkeeper-client; or write host:port,host:port"
            ));
        }
        let (list, chroot) = text.split_at(text.find('/').unwrap_or(text.len()));
        let chroot = if chroot == "/" { "" } else { chroot };
        check_chroot(chroot)?;
        let servers = list
            .split(',')
            .map(str::trim)
            .filter(|server| !server.is_empty())
            .map(parse_server)
            .collect::<Result<Vec<_>, _>>()?;
        if servers.is_empty() {
            return refuse(format!("{text:?} names no server; write host:port,host:port"));
        }
        Ok(ConnectString { servers, chroot: chroot.to_owned() })
    }
}

fn refuse<T>(what: String) -> Result<T, ConnectStringError> {
    Err(ConnectStringError { what })
}

fn parse_server(text: &str) -> Result<ServerAddr, ConnectStringError> {
    let (host, port) = if let Some(rest) = text.strip_prefix('[') {
        let Some((host, rest)) = rest.split_once(']') else {
            return refuse(format!("server {text:?} opens a bracket; write [address]:port"));
        };
        match rest.strip_prefix(':') {
            Some(port) => (host, port),
            None if rest.is_empty() => (host, ""),
            None => return refuse(format!("server {text:?}: after ] comes :port or nothing")),
        }
    } else {
        text.rsplit_once(':').unwrap_or((text, ""))
    };
    if host.is_empty() {
        return refuse(format!("server {text:?} has no host; write host:port"));
    }
    if host.contains(':') && !text.starts_with('[') {
        return refuse(format!("server {text:?}: write an IPv6 address in brackets, [::1]:2181"));
    }
    let port = match port {
        "" => PORT_DEFAULT,
        digits => match digits.parse() {
            Ok(port) if port > 0 => port,
            Ok(_) | Err(_) => {
                return refuse(format!("port {digits:?} of server {text:?}: use 1 to 65535"));
            }
        },
    };
    Ok(ServerAddr { host: host.to_owned(), port })
}

/// Checks a chroot, which is empty or begins with a slash.
fn check_chroot(chroot: &str) -> Result<(), ConnectStringError> {
    match path_fault(chroot).filter(|_| !chroot.is_empty()) {
        Some(why) => refuse(format!("chroot {chroot:?} {why}")),
        None => Ok(()),
    }
}

/// Why ZooKeeper accepts no such path (`PathUtils`; CLIENT-15); `None` if it does.
pub(crate) fn path_fault(path: &str) -> Option<&'static str> {
    if path == "/" {
        return None;
    }
    let Some(names) = path.strip_prefix('/') else { return Some(RELATIVE) };
    names.split('/').find_map(|name| match name {
        "" => Some("has an empty name; leave out the double or last slash"),
        "." | ".." => Some("must not be relative; write the whole path"),
        _ if name.contains(is_refused) => {
            Some("has a character that ZooKeeper refuses; leave it out")
        }
        _ => None,
    })
}

/// What is wrong with a path without its first slash.
pub(crate) const RELATIVE: &str = "does not begin with a slash";

/// Java checks UTF-16 units, so a character that needs two units falls into the refused range of
/// surrogates.
fn is_refused(c: char) -> bool {
    matches!(c, '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

impl fmt::Display for ServerAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}

impl fmt::Display for ConnectString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, server) in self.servers.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}{server}")?;
        }
        f.write_str(&self.chroot)
    }
}

impl fmt::Display for ConnectStringError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "connect string: {}", self.what)
    }
}

impl std::error::Error for ConnectStringError {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parsed connect string as text, or the error.
    fn check(text: &str) -> String {
        match text.parse::<ConnectString>() {
            Ok(connect) => connect.to_string(),
            Err(error) => error.to_string(),
        }
    }

    /// CLIENT-01.
    #[test]
    fn connect_string_is_parsed() {
        assert_eq!(check("a"), "a:2181");
        assert_eq!(check("a:1, b ,c:,"), "a:1,b:2181,c:2181");
        assert_eq!(check("[::1]:7,[fe80::2]"), "[::1]:7,[fe80::2]:2181");
        assert_eq!(check("a:1/"), "a:1");
        assert_eq!(check("a:1,b:2/app/x"), "a:1,b:2/app/x");
    }

    /// CLIENT-01.
    #[test]
    fn connect_string_errors_name_the_value_and_a_remedy() {
        let refused = [
            "",
            ",",
            "/x",
            ":1",
            "a:0",
            "a:65536",
            "a:b",
            "::1",
            "[::1",
            "[::1]x",
            "a/x/",
            "a//x",
            "a/./x",
            "a/x\u{7}",
            "a/\u{1f600}",
            "dns-srv://zk.example.org/app",
        ];
        insta::assert_snapshot!(refused.map(check).join("\n"), @r#"
        connect string: "" names no server; write host:port,host:port
        connect string: "," names no server; write host:port,host:port
        connect string: "/x" names no server; write host:port,host:port
        connect string: server ":1" has no host; write host:port
        connect string: port "0" of server "a:0": use 1 to 65535
        connect string: port "65536" of server "a:65536": use 1 to 65535
        connect string: port "b" of server "a:b": use 1 to 65535
        connect string: server "::1": write an IPv6 address in brackets, [::1]:2181
        connect string: server "[::1" opens a bracket; write [address]:port
        connect string: server "[::1]x": after ] comes :port or nothing
        connect string: chroot "/x/" has an empty name; leave out the double or last slash
        connect string: chroot "//x" has an empty name; leave out the double or last slash
        connect string: chroot "/./x" must not be relative; write the whole path
        connect string: chroot "/x\u{7}" has a character that ZooKeeper refuses; leave it out
        connect string: chroot "/😀" has a character that ZooKeeper refuses; leave it out
        connect string: "dns-srv://zk.example.org/app" needs a lookup: use Client::connect or Client::resolve, with the feature dns-srv of zabkeeper-client; or write host:port,host:port
        "#);
    }

    /// CLIENT-02.
    #[test]
    fn chroot_is_added_and_removed() {
        let plain: ConnectString = "a".parse().expect("valid");
        let below: ConnectString = "a/app".parse().expect("valid");
        let on = |c: &ConnectString, path: &str| c.to_server(path.to_owned());
        let off = |c: &ConnectString, path: &str| c.to_caller(path.to_owned());
        assert_eq!(on(&plain, "rel"), Some("rel".into()), "the server refuses it");
        assert_eq!(on(&below, "rel"), None, "it would become /apprel");
        assert_eq!(on(&below, "/"), Some("/app".into()));
        assert_eq!(on(&below, "/x"), Some("/app/x".into()));
        assert_eq!(off(&plain, "/app/x"), "/app/x");
        assert_eq!(off(&plain, ""), "");
        assert_eq!(off(&below, "/app"), "/");
        assert_eq!(off(&below, "/app/x"), "/x");
        assert_eq!(off(&below, "/apple"), "/apple");
    }
}
