//! What the host supplies for answers: settings once, facts of the process on request.
//!
//! Owns these types. Must not read anything from the system: the host does.

use super::date;
use crate::ids::ServerId;
use crate::membership::EnsembleConfig;
use crate::wire::FourLetterCommand;

/// Settings that answers depend on, beside those of the core and of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FourLetterOptions {
    /// `4lw.commands.whitelist`.
    pub whitelist: Whitelist,
    /// Version of the program.
    pub version: String,
    /// When the program was built, in seconds since 1970.
    pub built_at: i64,
    /// Host for clients; `0.0.0.0` for every address.
    pub client_host: String,
    /// Port for clients.
    pub client_port: u16,
    /// Directory of snapshots and state.
    pub data_dir: String,
    /// Directory of the log.
    pub log_dir: String,
    /// `clientPortListenBacklog`, or its default.
    pub backlog: u32,
    /// Lines of a part of a long answer.
    pub part_lines: usize,
    /// The ensemble; `None` for a standalone server.
    pub ensemble: Option<EnsembleInfo>,
}

/// Default of [`FourLetterOptions::part_lines`]: some 100 KiB, within a millisecond.
pub const PART_LINES: usize = 1_000;

/// `4lw.commands.whitelist`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Whitelist {
    /// `*`.
    All,
    /// These names.
    These(Vec<String>),
}

/// The ensemble as `conf` shows it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EnsembleInfo {
    /// This server's ports for election notifications, as text.
    pub election_ports: String,
    /// This server's ports for learners, as text.
    pub quorum_ports: String,
    /// Is this server an observer?
    pub observes: bool,
    /// The number of voters.
    pub voters: usize,
    /// The text of the configuration, which `/zookeeper/config` holds.
    pub membership: String,
}

impl EnsembleInfo {
    /// The ensemble of this configuration, for the server `own`; a server that it does not list
    /// keeps the ports that it had `before`.
    pub(in crate::driver) fn of(
        config: &EnsembleConfig,
        own: ServerId,
        before: Option<&EnsembleInfo>,
    ) -> EnsembleInfo {
        let [election_ports, quorum_ports] = match (config.server(own), before) {
            (Some(own), _) => [own.election_ports(), own.quorum_ports()],
            (None, Some(before)) => [before.election_ports.clone(), before.quorum_ports.clone()],
            (None, None) => Default::default(),
        };
        EnsembleInfo {
            election_ports,
            quorum_ports,
            observes: config.members().is_observer(own),
            voters: config.members().voters().ids().count(),
            membership: config.to_string(),
        }
    }
}

/// A fact that only the process knows and an answer needs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HostQuery {
    /// Answered by [`HostFacts::DiskUse`]. The disk may be slow: other commands do not wait for it.
    DiskUse,
    /// Answered by [`HostFacts::Descriptors`].
    Descriptors,
    /// Answered by [`HostFacts::Environment`].
    Environment,
}

/// The answer to a [`HostQuery`].
#[derive(Clone, Debug)]
pub enum HostFacts {
    /// Bytes in the two directories.
    DiskUse(DiskUse),
    /// File descriptors, where the system shows them.
    Descriptors(Option<Descriptors>),
    /// The environment of the process.
    Environment(Environment),
}

/// Bytes in the two directories.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct DiskUse {
    /// In that of snapshots and state.
    pub snapshots: u64,
    /// In that of the log.
    pub log: u64,
}

/// File descriptors of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Descriptors {
    /// Number of open ones.
    pub open: usize,
    /// Largest allowed number.
    pub limit: u64,
}

/// What the process runs in, as far as the system shows it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Environment {
    /// Name of the machine.
    pub host: Option<String>,
    /// Operating system, as Rust names it.
    pub os: &'static str,
    /// Architecture, as Rust names it.
    pub arch: &'static str,
    /// Release of the kernel.
    pub os_version: Option<String>,
    /// The user of the process.
    pub user: Option<String>,
    /// Home directory of the user.
    pub home: Option<String>,
    /// Current directory of the process.
    pub dir: Option<String>,
    /// Memory of the machine in MiB: available, and total.
    pub memory: Option<[u64; 2]>,
}

/// As in ZooKeeper, only `srvr` is answered without configuration.
impl Default for FourLetterOptions {
    fn default() -> FourLetterOptions {
        FourLetterOptions {
            whitelist: Whitelist::These(vec![FourLetterCommand::Srvr.name().to_owned()]),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            built_at: 0,
            client_host: "0.0.0.0".to_owned(),
            client_port: 2181,
            data_dir: String::new(),
            log_dir: String::new(),
            backlog: 0,
            part_lines: PART_LINES,
            ensemble: None,
        }
    }
}

impl FourLetterOptions {
    /// The version, followed by the date of the build, in the form that monitoring tools parse. The
    /// first three numbers are the version of ZooKeeper whose behaviour this server has.
    pub fn version_text(&self) -> String {
        format!("3.9.4-zabkeeper-{}, built on {}", self.version, date::of_build(self.built_at))
    }
}

impl Whitelist {
    /// Is this command answered?
    pub fn allows(&self, command: FourLetterCommand) -> bool {
        match self {
            Whitelist::All => true,
            Whitelist::These(names) => names.iter().any(|name| name == command.name()),
        }
    }
}
