//! The answers to four-letter words (FLW): what operators and monitoring read.
//!
//! Owns their text, line for line as ZooKeeper 3.9 prints it, as far as the figures exist here. Must not collect the
//! figures: `report` does.

mod conns;
mod date;

use std::fmt::Write;
use std::time::Duration;

use zabkeeper_core::wire::Word;
use zabkeeper_core::{Config, Mode, Status};

use crate::config::{Ensemble, Settings};
use crate::traffic::Traffic;

pub use conns::{ClientLine, Dump, dump, watch_summary, watches_by_path, watches_by_session};

/// Monitoring reads the first three numbers as the version of ZooKeeper whose behaviour to expect.
const VERSION: &str = concat!("3.9.4-zabkeeper-", env!("CARGO_PKG_VERSION"));

/// What most words are answered with while clients are not served.
pub const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// Everything that answers are made of.
pub struct Figures<'a> {
    /// What the operator has decided.
    pub settings: &'a Settings,
    /// What the core says of itself.
    pub status: &'a Status,
    /// What has been counted.
    pub traffic: Traffic,
    /// Every open connection, handshake or not.
    pub clients: Vec<ClientLine>,
    /// Since the start of the process.
    pub uptime: Duration,
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

fn mode(status: &Status) -> &'static str {
    match status.mode {
        Mode::Looking => "looking",
        Mode::Standalone => "standalone",
        Mode::Leader => "leader",
        Mode::Follower => "follower",
    }
}

fn summary(figures: &Figures<'_>) -> String {
    let Figures { status, traffic, clients, .. } = figures;
    let latency = &traffic.latency;
    let proposals = match status.mode {
        Mode::Leader => format!("Proposal sizes last/min/max: {}\n", traffic.proposals),
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
        traffic.received,
        traffic.sent,
        clients.len(),
        traffic.load.requests,
        status.applied,
        mode(status),
        status.nodes,
    )
}

/// FLW-11. A leader also says how large its proposals are.
pub fn srvr(figures: &Figures<'_>) -> String {
    format!("Zookeeper version: {VERSION}\n{}", summary(figures))
}

/// FLW-12.
pub fn stat(figures: &Figures<'_>) -> String {
    let clients = conns::brief(&figures.clients);
    format!("Zookeeper version: {VERSION}\nClients:\n{clients}\n{}", summary(figures))
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
        settings.backlog.map_or(-1, i64::from),
        core.id(),
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

/// FLW-06. kazoo reads the version from here. Of a Java process' many properties, those that are left without Java.
pub fn envi(env: &Environment) -> String {
    let mut text = format!("Environment:\nzookeeper.version={VERSION}\n");
    let [os, arch] = [std::env::consts::OS, std::env::consts::ARCH];
    for (name, value) in [
        ("host.name", env.host.as_deref()),
        ("os.name", Some(os)),
        ("os.arch", Some(arch)),
        ("os.version", env.os_version.as_deref()),
        ("user.name", env.user.as_deref()),
        ("user.home", env.home.as_deref()),
        ("user.dir", env.folder.as_deref()),
    ] {
        let _infallible = writeln!(text, "{name}={}", value.unwrap_or("<NA>"));
    }
    text
}

/// FLW-16: in ZooKeeper's order, without the metrics that have no meaning here.
pub fn mntr(figures: &Figures<'_>) -> String {
    let Figures { status, traffic, clients, .. } = figures;
    let latency = &traffic.latency;
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn std::fmt::Display| {
        let _infallible = writeln!(text, "zk_{name}\t{value}");
    };
    line("version", &VERSION);
    line("server_state", &mode(status));
    match status.mode {
        Mode::Leader => line("peer_state", &"leading - broadcast"),
        Mode::Follower => line("peer_state", &"following - broadcast"),
        Mode::Looking | Mode::Standalone => {}
    }
    line("ephemerals_count", &status.ephemerals);
    line("num_alive_connections", &clients.len());
    line("avg_latency", &format_args!("{:?}", latency.mean_ms()));
    line("outstanding_requests", &traffic.load.requests);
    line("znode_count", &status.nodes);
    line("global_sessions", &status.sessions);
    line("packets_sent", &traffic.sent);
    line("packets_received", &traffic.received);
    let probability = f64::from(figures.drop_probability) / 1e6;
    line("connection_drop_probability", &format_args!("{probability:?}"));
    line("watch_count", &status.watches);
    line("min_latency", &latency.min_ms());
    if let Some(descriptors) = &figures.descriptors {
        line("max_file_descriptor_count", &descriptors.limit);
    }
    line("approximate_data_size", &status.data_bytes);
    if let Some(descriptors) = &figures.descriptors {
        line("open_file_descriptor_count", &descriptors.open);
    }
    line("local_sessions", &status.local_sessions);
    line("uptime", &figures.uptime.as_millis());
    line("max_latency", &latency.max_ms());
    line("connection_rejected", &traffic.rejected);
    line("sessionless_connections_expired", &traffic.sessionless);
    line("bytes_received_count", &traffic.bytes_received);
    line("large_requests_rejected", &traffic.large_rejected);
    line("connection_request_count", &traffic.handshakes);
    if let Some(ensemble) = &figures.settings.ensemble {
        line("quorum_size", &ensemble.members.len());
    }
    if status.mode == Mode::Leader {
        line("learners", &status.learners);
        line("synced_followers", &status.synced_followers);
    }
    text
}

#[cfg(test)]
mod tests;
