//! The settings of an ensemble inside a test.
//!
//! Owns their defaults and the text of `zoo.cfg`. Must not start servers.

use std::fmt::Write;
use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

use super::files::Folder;
use super::ports::Ports;
use super::server::Server;
use super::{Ensemble, Error};

/// Default tick: elections, expiry and hand-over take little more than this.
const TICK: Duration = Duration::from_millis(100);

/// Longest session timeout by default. Clients ask for 30 s by default, and a shorter session could
/// expire on a busy machine.
const LONGEST_SESSION: Duration = Duration::from_secs(60);

/// Default of [`EnsembleBuilder::timeout`].
const TIMEOUT: Duration = Duration::from_secs(30);

/// Ticks for learners to synchronize and to answer. Many, because a busy machine pauses for several
/// of the short ticks; servers that stop are noticed at once, by their connections.
const LIMITS: &str = "initLimit=100\nsyncLimit=50";

/// What every server of a test has: small files, any number of clients from 127.0.0.1, and answers
/// to all four-letter commands.
const COMMON: &str = "preAllocSize=1024\nmaxClientCnxns=0\n4lw.commands.whitelist=*\n\
                      admin.enableServer=false";

/// The highest id of a server.
const MOST_SERVERS: usize = 255;

/// The settings of an ensemble; see [`Ensemble::builder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnsembleBuilder {
    pub(super) servers: usize,
    tick: Duration,
    session_timeouts: Option<RangeInclusive<Duration>>,
    lines: String,
    pub(super) timeout: Duration,
}

/// What the `zoo.cfg` of a server says beside the settings.
pub(super) struct Place<'a> {
    pub(super) id: u64,
    /// The address for clients.
    pub(super) host: &'a str,
    pub(super) port: u16,
    /// The folder with the data.
    pub(super) data: String,
    /// The lines about the ensemble; none for a standalone server.
    pub(super) members: String,
    /// The lines about the time limits of learners.
    pub(super) limits: &'a str,
}

impl EnsembleBuilder {
    pub(super) fn new() -> EnsembleBuilder {
        let (lines, timeout) = (String::new(), TIMEOUT);
        EnsembleBuilder { servers: 1, tick: TICK, session_timeouts: None, lines, timeout }
    }

    /// The number of servers; default 1. One server is a standalone server, as in ZooKeeper.
    pub fn servers(mut self, servers: usize) -> EnsembleBuilder {
        self.servers = servers;
        self
    }

    /// `tickTime`; default 100 ms. It is the unit of all times in `zoo.cfg`.
    pub fn tick(mut self, tick: Duration) -> EnsembleBuilder {
        self.tick = tick;
        self
    }

    /// The session timeouts that the servers grant; default 2 ticks to 60 s. A client that asks for
    /// less or more gets the nearest one.
    pub fn session_timeouts(mut self, timeouts: RangeInclusive<Duration>) -> EnsembleBuilder {
        self.session_timeouts = Some(timeouts);
        self
    }

    /// More lines for the `zoo.cfg` of each server, such as `snapCount=1000`. They override the
    /// other settings; a further call adds lines.
    pub fn zoo_cfg(mut self, lines: &str) -> EnsembleBuilder {
        self.lines += lines;
        self.lines += "\n";
        self
    }

    /// How long [`EnsembleBuilder::start`] and [`Ensemble::start_server`] wait for a server to be
    /// ready; default 30 s.
    pub fn timeout(mut self, timeout: Duration) -> EnsembleBuilder {
        self.timeout = timeout;
        self
    }

    /// Starts the servers; returns when each of them serves clients.
    ///
    /// # Errors
    /// A setting is invalid, the system has no folder, port or thread, or a server ends or does not
    /// serve in time. No server runs then.
    ///
    /// # Panics
    /// If the operating system has no random bytes.
    pub fn start(&self) -> Result<Ensemble, Error> {
        let ids = 1..=self.checked_servers()? as u64;
        let folder = Folder::create()?;
        folder.write_secret()?;
        let ports: Vec<Ports> = ids.clone().map(|_| Ports::reserve()).collect::<Result<_, _>>()?;
        let mut server_lines = String::new();
        for (id, ports) in ids.clone().zip(&ports) {
            server_lines += &format!("{}\n", ports.server_line(id));
        }
        let mut servers = Vec::new();
        for (id, mut ports) in ids.zip(ports) {
            ports.open();
            folder
                .write_server(id, &self.text(&self.place(&folder, id, &ports, &server_lines)?))?;
            servers.push(Server::new(id, folder.zoo_cfg(id), ports));
        }
        let mut ensemble = Ensemble { servers, timeout: self.timeout, folder };
        ensemble.start_all()?;
        Ok(ensemble)
    }

    /// The number of servers.
    ///
    /// # Errors
    /// No ensemble has that many.
    pub(super) fn checked_servers(&self) -> Result<usize, Error> {
        if (1..=MOST_SERVERS).contains(&self.servers) {
            return Ok(self.servers);
        }
        Err(Error::Invalid(format!(
            "an ensemble of {} servers is not possible: use 1 to {MOST_SERVERS}, such as 3",
            self.servers
        )))
    }

    /// What the `zoo.cfg` of a server on a port of this machine says.
    fn place(
        &self,
        folder: &Folder,
        id: u64,
        ports: &Ports,
        server_lines: &str,
    ) -> Result<Place<'static>, Error> {
        let mut members = String::new();
        if self.servers > 1 {
            members = format!("quorum.secretFile={}\n{server_lines}", path(&folder.secret())?);
        }
        let (host, port, data) = ("127.0.0.1", ports.client(), path(&folder.data(id))?);
        Ok(Place { id, host, port, data, members, limits: LIMITS })
    }

    /// The text of `zoo.cfg` of a server.
    pub(super) fn text(&self, place: &Place<'_>) -> String {
        let Place { id, host, port, data, members, limits } = place;
        let mut text = format!("# Server {id} of a test.\n");
        let mut add = |key: &str, value: String| {
            writeln!(text, "{key}={value}").expect("a text takes all bytes");
        };
        add("clientPortAddress", (*host).to_owned());
        add("clientPort", port.to_string());
        add("dataDir", data.clone());
        add("tickTime", self.tick.as_millis().to_string());
        match &self.session_timeouts {
            Some(timeouts) => {
                add("minSessionTimeout", timeouts.start().as_millis().to_string());
                add("maxSessionTimeout", timeouts.end().as_millis().to_string());
            }
            None => {
                let longest = LONGEST_SESSION.max(self.tick * 20);
                add("maxSessionTimeout", longest.as_millis().to_string());
            }
        }
        format!("{text}{members}{limits}\n{COMMON}\n{}", self.lines)
    }
}

/// A path as a value of a properties file.
fn path(path: &Path) -> Result<String, Error> {
    match path.to_str() {
        Some(text) => Ok(text.replace('\\', "\\\\")),
        None => Err(Error::Invalid(format!(
            "{}: zoo.cfg can only name paths in UTF-8; name such a folder as TMPDIR",
            path.display()
        ))),
    }
}
