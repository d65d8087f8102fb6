//! The answers to four-letter words (FLW): what operators and monitoring read.
//!
//! Owns their text, line for line as ZooKeeper 3.9 prints it, as far as the figures exist here.
//! Must not collect the figures: `report` does.

mod conns;
mod date;

use std::fmt::Write;
use std::time::Duration;

use zabkeeper_core::driver::ClientLine;
use zabkeeper_core::driver::metrics::Metrics;
use zabkeeper_core::wire::Word;
use zabkeeper_core::{Config, Mode, ServerId, Status, Zxid};

use crate::config::{Ensemble, Settings};
use crate::listener::BACKLOG;

pub use conns::{Dump, Pairs, dump_connections, dump_sessions, watch_summary};

/// Monitoring reads the first three numbers as the version of ZooKeeper whose behaviour to expect.
const VERSION: &str = concat!("3.9.4-zabkeeper-", env!("CARGO_PKG_VERSION"));

/// When this server was built, in seconds since 1970.
const BUILT_AT: &str = env!("ZABKEEPER_BUILT_AT");

/// What most words are answered with while clients are not served.
pub const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// Everything that answers are made of.
pub struct Figures<'a> {
    /// What the operator has decided.
    pub settings: &'a Settings,
    /// What the core says of itself.
    pub status: &'a Status,
    /// What has been counted.
    pub metrics: Metrics,
    /// Every open connection, handshake or not.
    pub clients: Vec<ClientLine>,
    /// Since the start of the process.
    pub uptime: Duration,
    /// Of a leader: since it serves.
    pub leader_uptime: Duration,
    /// What is on the disk, for the words that say so.
    pub disk: DiskUse,
    /// Those of the process, for the words that say so and where they can be known.
    pub descriptors: Option<Descriptors>,
    /// How probable it is that a handshake is refused by chance, in millionths.
    pub drop_probability: u32,
}

/// Bytes in the two folders.
#[derive(Default)]
pub struct DiskUse {
    /// In that of snapshots and state.
    pub snapshots: u64,
    /// In that of the log.
    pub log: u64,
}

/// What the process runs in, as far as it can be known.
#[derive(Default)]
pub struct Environment {
    /// Name of the machine.
    pub host: Option<String>,
    /// Release of the kernel.
    pub os_version: Option<String>,
    /// Who runs it.
    pub user: Option<String>,
    /// Their home.
    pub home: Option<String>,
    /// Where it was started.
    pub folder: Option<String>,
    /// Memory of the machine in MiB: what is available, and all.
    pub memory: Option<[u64; 2]>,
}

/// File descriptors of the process.
pub struct Descriptors {
    /// How many are open.
    pub open: usize,
    /// How many may be.
    pub limit: u64,
}

/// The answer to a word that the whitelist does not let through.
pub fn refused(word: Word) -> String {
    format!("{} is not executed because it is not in the whitelist.\n", word.name())
}

/// The version, with the date that parsers of others look for behind it.
pub fn version() -> String {
    let built = date::of_build(BUILT_AT.parse().expect("the build script writes a number"));
    format!("{VERSION}, built on {built}")
}

fn mode(status: &Status) -> &'static str {
    match status.mode {
        Mode::Looking => "looking",
        Mode::Standalone => "standalone",
        Mode::Leader => "leader",
        Mode::Follower => "follower",
    }
}

/// The last transaction that clients see. A leader's epoch shows from the start, before there is
/// one in it.
fn last_zxid(status: &Status) -> Zxid {
    match status.mode {
        Mode::Leader => status.applied.max(Zxid::start_of(status.current_epoch)),
        Mode::Looking | Mode::Standalone | Mode::Follower => status.applied,
    }
}

fn summary(figures: &Figures<'_>) -> String {
    let Figures { status, metrics, clients, .. } = figures;
    let latency = &metrics.latency;
    let proposals = match status.mode {
        Mode::Leader => format!("Proposal sizes last/min/max: {}\n", metrics.proposals),
        Mode::Looking | Mode::Standalone | Mode::Follower => String::new(),
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
        clients.len(),
        metrics.load.requests,
        last_zxid(status),
        mode(status),
        status.nodes,
    )
}

/// FLW-11. A leader also says how large its proposals are.
pub fn srvr(figures: &Figures<'_>) -> String {
    format!("Zookeeper version: {}\n{}", version(), summary(figures))
}

/// FLW-12.
pub fn stat(figures: &Figures<'_>) -> String {
    let clients = conns::brief(&figures.clients);
    format!("Zookeeper version: {}\nClients:\n{clients}\n{}", version(), summary(figures))
}

/// FLW-02.
pub fn cons(figures: &Figures<'_>) -> String {
    conns::full(&figures.clients)
}

/// FLW-04.
pub fn dirs(disk: &DiskUse) -> String {
    format!("datadir_size: {}\nlogdir_size: {}\n", disk.snapshots, disk.log)
}

/// FLW-01.
pub fn conf(figures: &Figures<'_>) -> String {
    let Figures { settings, disk, .. } = figures;
    let core = &settings.core;
    // As in ZooKeeper only servers of an ensemble have a number.
    let server_id = settings.ensemble.as_ref().map_or(ServerId(0), |_| core.id());
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
        settings.port,
        settings.snapshot_folder().display(),
        disk.snapshots,
        settings.log_folder().display(),
        disk.log,
        core.tick().as_millis(),
        settings.limits.connections_per_ip.unwrap_or(0),
        core.session_timeout_min().as_millis(),
        core.session_timeout_max().as_millis(),
        settings.backlog.unwrap_or(BACKLOG),
        server_id,
    );
    if let Some(ensemble) = &settings.ensemble {
        text += &membership(core, ensemble);
    }
    text
}

/// What `conf` says of an ensemble, as ZooKeeper does: without a line's end at the end.
fn membership(core: &Config, ensemble: &Ensemble) -> String {
    let ticks = |limit: Duration| limit.as_millis() / core.tick().as_millis();
    let me = ensemble.member(core.id()).expect("it is one of them");
    let mut text = format!(
        "initLimit={}\nsyncLimit={}\nelectionAlg=3\nelectionPort={}\nquorumPort={}\npeerType=0\n\
         membership: \n",
        ticks(core.init_limit()),
        ticks(core.sync_limit()),
        me.election_port,
        me.quorum_port,
    );
    for member in &ensemble.members {
        let _infallible = writeln!(text, "{member}");
    }
    text + "version=0"
}

/// FLW-06. kazoo reads the version from here. Scripts look for all of ZooKeeper's keys; what Java
/// alone would have is not available, in ZooKeeper's way of saying so.
pub fn envi(env: &Environment) -> String {
    let mut text = format!("Environment:\nzookeeper.version={}\n", version());
    // Java's words for both.
    let os = match std::env::consts::OS {
        "linux" => "Linux",
        "macos" => "Mac OS X",
        other => other,
    };
    let arch = match std::env::consts::ARCH {
        "x86_64" => "amd64",
        other => other,
    };
    let [free, all] = [0, 1].map(|at| env.memory.map(|memory| format!("{}MB", memory[at])));
    for (name, value) in [
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
        ("user.dir", env.folder.as_deref()),
        ("os.memory.free", free.as_deref()),
        ("os.memory.max", all.as_deref()),
        ("os.memory.total", all.as_deref()),
    ] {
        let _infallible = writeln!(text, "{name}={}", value.unwrap_or("<NA>"));
    }
    text
}

/// FLW-16: in ZooKeeper's order, without the metrics that have no meaning here.
pub fn mntr(figures: &Figures<'_>) -> String {
    let Figures { status, metrics, clients, .. } = figures;
    let latency = &metrics.latency;
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _infallible = writeln!(text, "zk_{name}\t{value}");
    };
    let leads = status.mode == Mode::Leader;
    let [last_size, min_size, max_size] = metrics.proposals.last_min_max();
    line("version", &version());
    line("server_state", &mode(status));
    match status.mode {
        Mode::Leader => line("peer_state", &"leading - broadcast"),
        Mode::Follower => line("peer_state", &"following - broadcast"),
        Mode::Looking | Mode::Standalone => {}
    }
    line("ephemerals_count", &status.ephemerals);
    line("num_alive_connections", &clients.len());
    line("avg_latency", &format_args!("{:?}", latency.mean_ms()));
    if leads {
        line("min_proposal_size", &min_size);
    }
    line("outstanding_requests", &metrics.load.requests);
    line("znode_count", &status.nodes);
    line("global_sessions", &status.sessions);
    line("packets_sent", &metrics.sent);
    line("packets_received", &metrics.received);
    if leads {
        line("max_proposal_size", &max_size);
        line("synced_followers", &status.synced_followers);
    }
    let probability = f64::from(figures.drop_probability) / 1e6;
    line("connection_drop_probability", &format_args!("{probability:?}"));
    line("watch_count", &status.watches);
    if leads {
        // There are none yet.
        line("synced_non_voting_followers", &0);
        line("synced_observers", &0);
    }
    line("min_latency", &latency.min_ms());
    if let Some(descriptors) = &figures.descriptors {
        line("max_file_descriptor_count", &descriptors.limit);
    }
    line("approximate_data_size", &status.data_bytes);
    if let Some(descriptors) = &figures.descriptors {
        line("open_file_descriptor_count", &descriptors.open);
    }
    if leads {
        line("last_proposal_size", &last_size);
        line("pending_syncs", &status.pending_syncs);
        line("leader_uptime", &figures.leader_uptime.as_millis());
    }
    line("local_sessions", &status.local_sessions);
    line("uptime", &figures.uptime.as_millis());
    line("max_latency", &latency.max_ms());
    if leads {
        line("learners", &status.learners);
    }
    if let Some(ensemble) = &figures.settings.ensemble {
        line("quorum_size", &ensemble.members.len());
    }
    line("connection_rejected", &metrics.rejected);
    line("sessionless_connections_expired", &metrics.sessionless);
    line("bytes_received_count", &metrics.bytes_received);
    line("proposal_count", &metrics.proposals.count());
    line("large_requests_rejected", &metrics.large_rejected);
    line("connection_request_count", &metrics.handshakes);
    text
}

#[cfg(test)]
mod tests;
