//! The texts of answers, except those about connections, sessions and watches.
//!
//! Owns their lines, which are ZooKeeper 3.9's as far as the figures exist here. Must not collect
//! the figures.

use std::fmt::Write;
use std::time::Duration;

use super::super::ClientLine;
use super::super::metrics::{Metrics, Sample};
use super::conns;
use super::options::{Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions};
use crate::config::Config;
use crate::ids::{Instant, ServerId, Zxid};
use crate::progress::{PendingReconfig, ServerProgress};
use crate::status::{Mode, Status};
use crate::wire::FourLetterCommand;

/// The answer to most commands while clients are not served.
pub const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// The data of all answers.
pub struct Figures<'a> {
    /// Settings of the process.
    pub options: &'a FourLetterOptions,
    /// Settings of the core.
    pub config: &'a Config,
    /// `maxClientCnxns`.
    pub connections_per_ip: Option<usize>,
    /// Status that the server reports.
    pub status: &'a Status,
    /// The driver's counters.
    pub metrics: &'a Metrics,
    /// Number of open connections, with or without a session.
    pub connections: usize,
    /// These connections, for the commands that print them.
    pub clients: Vec<ClientLine>,
    /// Bytes of events that have not been sent.
    pub event_bytes: u64,
    /// The monotonic clock.
    pub now: Instant,
    /// Time since the start of the process.
    pub uptime: Duration,
    /// Time since this server serves as a leader; zero if it does not.
    pub leader_uptime: Duration,
    /// How far each server is; empty unless this server leads.
    pub progress: Vec<ServerProgress>,
    /// The reconfiguration that this server has proposed and that is not committed.
    pub pending_reconfig: Option<PendingReconfig>,
    /// Sizes of the directories, for the commands that print them.
    pub disk: DiskUse,
    /// File descriptors of the process, for the commands that print them and if the system shows
    /// them.
    pub descriptors: Option<Descriptors>,
    /// Probability that a handshake is refused by chance, in millionths.
    pub drop_probability: u32,
}

/// The answer to a command that the whitelist does not contain.
pub fn refused(command: FourLetterCommand) -> String {
    format!("{} is not executed because it is not in the whitelist.\n", command.name())
}

impl Figures<'_> {
    /// The role, as `srvr` prints it.
    pub(in crate::driver) fn mode(&self) -> &'static str {
        mode(self.status)
    }

    /// The last applied transaction, as `srvr` prints it.
    pub(in crate::driver) fn last_zxid(&self) -> Zxid {
        last_zxid(self.status)
    }
}

pub(super) fn mode(status: &Status) -> &'static str {
    match status.mode {
        Mode::Looking => "looking",
        Mode::ReadOnly => "read-only",
        Mode::Standalone => "standalone",
        Mode::Leader => "leader",
        Mode::Follower => "follower",
        Mode::Observer => "observer",
    }
}

/// The last applied transaction. A leader whose epoch has no transaction yet prints the first zxid
/// of the epoch.
fn last_zxid(status: &Status) -> Zxid {
    match status.mode {
        Mode::Leader => status.applied.max(Zxid::start_of(status.current_epoch)),
        Mode::Looking | Mode::ReadOnly | Mode::Standalone | Mode::Follower | Mode::Observer => {
            status.applied
        }
    }
}

fn summary(figures: &Figures<'_>) -> String {
    let Figures { status, metrics, .. } = figures;
    let latency = &metrics.latency;
    let proposals = match status.mode {
        Mode::Leader => format!("Proposal sizes last/min/max: {}\n", metrics.proposals),
        Mode::Looking | Mode::ReadOnly | Mode::Standalone | Mode::Follower | Mode::Observer => {
            String::new()
        }
    };
    format!(
        "Latency min/avg/max: {}/{:?}/{}\n\
         Received: {}\n\
         Sent: {}\n\
         Connections: {}\n\
         Outstanding: {}\n\
         Zxid: {}\n\
         Mode: {}\n\
         Node count: {}\n\
         {proposals}",
        latency.min_ms(),
        latency.mean_ms(),
        latency.max_ms(),
        metrics.received,
        metrics.sent,
        figures.connections,
        metrics.load.requests,
        last_zxid(status),
        mode(status),
        status.nodes,
    )
}

/// The answer to `srvr` (FLW-11). A leader also prints the sizes of its proposals.
pub fn srvr(figures: &Figures<'_>) -> String {
    head(figures) + &summary(figures)
}

/// The version, and whether the server is read-only (RO-05).
fn head(figures: &Figures<'_>) -> String {
    let only = match figures.status.mode {
        Mode::ReadOnly => "READ-ONLY mode; serving only read-only clients\n",
        Mode::Looking | Mode::Standalone | Mode::Leader | Mode::Follower | Mode::Observer => "",
    };
    format!("Zookeeper version: {}\n{only}", figures.options.version_text())
}

/// The answer to `stat` (FLW-12).
pub fn stat(figures: &Figures<'_>) -> String {
    let clients = conns::brief(&figures.clients);
    format!("{}Clients:\n{clients}\n{}", head(figures), summary(figures))
}

/// The answer to `cons` (FLW-02).
pub fn cons(figures: &Figures<'_>) -> String {
    conns::full(&figures.clients)
}

/// The answer to `dirs` (FLW-04).
pub fn dirs(disk: &DiskUse) -> String {
    format!("datadir_size: {}\nlogdir_size: {}\n", disk.snapshots, disk.log)
}

/// The answer to `conf` (FLW-01).
pub fn conf(figures: &Figures<'_>) -> String {
    let Figures { options, config, disk, .. } = figures;
    // As in ZooKeeper only servers of an ensemble have a number.
    let server_id = options.ensemble.as_ref().map_or(ServerId(0), |_| config.id());
    let mut text = format!(
        "clientPort={}\n\
         secureClientPort=-1\n\
         dataDir={}\n\
         dataDirSize={}\n\
         dataLogDir={}\n\
         dataLogSize={}\n\
         tickTime={}\n\
         maxClientCnxns={}\n\
         minSessionTimeout={}\n\
         maxSessionTimeout={}\n\
         clientPortListenBacklog={}\n\
         serverId={}\n",
        options.client_port,
        options.data_dir,
        disk.snapshots,
        options.log_dir,
        disk.log,
        config.tick().as_millis(),
        figures.connections_per_ip.unwrap_or(0),
        config.session_timeout_min().as_millis(),
        config.session_timeout_max().as_millis(),
        options.backlog,
        server_id,
    );
    if let Some(ensemble) = &options.ensemble {
        text += &membership(config, ensemble);
    }
    text
}

/// The lines of `conf` about an ensemble. As in ZooKeeper, the last one has no line feed.
fn membership(config: &Config, ensemble: &EnsembleInfo) -> String {
    let ticks = |limit: Duration| limit.as_millis() / config.tick().as_millis();
    format!(
        "initLimit={}\nsyncLimit={}\nelectionAlg=3\nelectionPort={}\nquorumPort={}\npeerType={}\n\
         membership: \n{}",
        ticks(config.init_limit()),
        ticks(config.sync_limit()),
        ensemble.election_ports,
        ensemble.quorum_ports,
        u8::from(ensemble.observes),
        ensemble.membership,
    )
}

/// The answer to `envi` (FLW-06). kazoo reads the version from it. All of ZooKeeper's keys are
/// printed, because scripts look for them; as in ZooKeeper, `<NA>` stands for a value that is not
/// available, such as those of Java.
pub fn envi(options: &FourLetterOptions, env: &Environment) -> String {
    let lines =
        environment(options, env).into_iter().map(|(name, value)| format!("{name}={value}\n"));
    "Environment:\n".to_owned() + &lines.collect::<String>()
}

/// The entries of `envi`, in order.
pub fn environment(options: &FourLetterOptions, env: &Environment) -> Vec<(&'static str, String)> {
    // Java's names of both.
    let os = match env.os {
        "linux" => "Linux",
        "macos" => "Mac OS X",
        other => other,
    };
    let arch = match env.arch {
        "x86_64" => "amd64",
        other => other,
    };
    let [free, all] = [0, 1].map(|at| env.memory.map(|memory| format!("{}MB", memory[at])));
    let version = options.version_text();
    let entries = [
        ("zookeeper.version", Some(&*version)),
        ("host.name", env.host.as_deref()),
        ("java.version", Some("<NA> (this server is not a Java program)")),
        ("java.vendor", None),
        ("java.home", None),
        ("java.class.path", None),
        ("java.library.path", None),
        ("java.io.tmpdir", None),
        ("java.compiler", None),
        ("os.name", Some(os)),
        ("os.arch", Some(arch)),
        ("os.version", env.os_version.as_deref()),
        ("user.name", env.user.as_deref()),
        ("user.home", env.home.as_deref()),
        ("user.dir", env.dir.as_deref()),
        ("os.memory.free", free.as_deref()),
        ("os.memory.max", all.as_deref()),
        ("os.memory.total", all.as_deref()),
    ];
    entries.map(|(name, value)| (name, value.unwrap_or("<NA>").to_owned())).into()
}

/// The answer to `mntr` (FLW-16).
pub fn mntr(samples: &[Sample]) -> String {
    let mut text = String::new();
    for (name, value) in samples.iter().flat_map(Sample::lines) {
        let _infallible = writeln!(text, "zk_{name}\t{value}");
    }
    text
}

#[cfg(test)]
mod tests;
