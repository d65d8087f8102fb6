//! The texts of answers, except those about connections, sessions and watches.
//!
//! Owns their lines, which are ZooKeeper 3.9's as far as the figures exist here. Must not collect
//! the figures.

use std::fmt::{Display, Write};
use std::time::Duration;

use super::super::ClientLine;
use super::super::metrics::Metrics;
use super::conns;
use super::options::{Descriptors, DiskUse, EnsembleInfo, Environment, FourLetterOptions};
use crate::config::Config;
use crate::ids::{ServerId, Zxid};
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

fn mode(status: &Status) -> &'static str {
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

/// The answer to `mntr` (FLW-16): in ZooKeeper's order, without the metrics that have no meaning
/// here.
pub fn mntr(figures: &Figures<'_>) -> String {
    let Figures { status, metrics, .. } = figures;
    let latency = &metrics.latency;
    let mut text = String::new();
    let mut line = |name: &str, value: &dyn Display| {
        let _infallible = writeln!(text, "zk_{name}\t{value}");
    };
    let leads = status.mode == Mode::Leader;
    let [last_size, min_size, max_size] = metrics.proposals.last_min_max();
    line("version", &figures.options.version_text());
    line("server_state", &mode(status));
    match status.mode {
        Mode::Leader => line("peer_state", &"leading - broadcast"),
        Mode::Follower => line("peer_state", &"following - broadcast"),
        Mode::Observer => line("peer_state", &"observing - broadcast"),
        Mode::Looking | Mode::ReadOnly | Mode::Standalone => {}
    }
    line("ephemerals_count", &status.ephemerals);
    line("num_alive_connections", &figures.connections);
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
        line("synced_non_voting_followers", &0);
        line("synced_observers", &status.synced_observers);
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
    if let Some(ensemble) = &figures.options.ensemble {
        line("quorum_size", &ensemble.voters);
    }
    line("connection_rejected", &metrics.rejected);
    line("sessionless_connections_expired", &metrics.sessionless);
    line("bytes_received_count", &metrics.bytes_received);
    line("proposal_count", &metrics.proposals.count());
    line("large_requests_rejected", &metrics.large_rejected);
    line("connection_request_count", &metrics.handshakes);
    if leads {
        text += &progress(figures);
    }
    text
}

/// The lines of `mntr` that ZooKeeper does not have: how far the other servers are, and what a
/// reconfiguration waits for. What the leader does not know is -1.
fn progress(figures: &Figures<'_>) -> String {
    let mut text = String::new();
    let mut line = |name: &dyn Display, value: &dyn Display| {
        let _infallible = writeln!(text, "zk_{name}\t{value}");
    };
    let others = figures.progress.iter().filter(|server| server.server != figures.status.id);
    for ServerProgress { server, behind, lag, .. } in others {
        let count = behind.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX));
        line(&format_args!("learner_lag_txns_{server}"), &count);
        let lag = if behind.is_some() { lag.as_millis().to_string() } else { "-1".to_owned() };
        line(&format_args!("learner_lag_ms_{server}"), &lag);
    }
    if figures.config.reconfig.is_none() {
        return text;
    }
    let pending = figures.pending_reconfig.as_ref();
    line(&"reconfig_in_progress", &u8::from(pending.is_some()));
    if let Some(PendingReconfig { version, waited, missing_old, missing_new }) = pending {
        line(&"reconfig_version", &format_args!("{:x}", version.0));
        line(&"reconfig_wait_ms", &waited.as_millis());
        for (name, missing) in [("old", missing_old), ("new", missing_new)] {
            let ids: Vec<String> = missing.iter().map(|of| of.server.to_string()).collect();
            let ids = if ids.is_empty() { "none".to_owned() } else { ids.join(",") };
            line(&format_args!("reconfig_missing_{name}_voters"), &ids);
        }
    }
    text
}

#[cfg(test)]
mod tests;
