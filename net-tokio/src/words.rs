//! The answers to four-letter words (FLW): what operators and monitoring read.
//!
//! Owns their text, line for line as ZooKeeper 3.9 prints it, as far as the figures exist here. Must not collect the
//! figures.

use std::fmt::Write;
use std::net::SocketAddr;
use std::time::Duration;

use zabkeeper_core::wire::Word;
use zabkeeper_core::{Config, Mode, Status};

use crate::config::{Ensemble, Settings};
use crate::traffic::Traffic;

/// Monitoring reads the first three numbers as the version of ZooKeeper whose behaviour to expect.
const VERSION: &str = concat!("3.9.4-zabkeeper-", env!("CARGO_PKG_VERSION"));

const NOT_SERVING: &str = "This ZooKeeper instance is not currently serving requests\n";

/// Everything that answers are made of.
pub(crate) struct Figures<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) status: &'a Status,
    pub(crate) traffic: &'a Traffic,
    /// Every open connection, handshake or not.
    pub(crate) clients: Vec<ClientLine>,
    pub(crate) uptime: Duration,
    pub(crate) disk: DiskUse,
    pub(crate) descriptors: Option<Descriptors>,
}

/// One connection, for `stat`.
pub(crate) struct ClientLine {
    pub(crate) peer: SocketAddr,
    /// Has it shaken hands?
    pub(crate) open: bool,
    /// Requests not answered yet.
    pub(crate) unanswered: u32,
    pub(crate) received: u64,
    pub(crate) sent: u64,
}

/// Bytes in the two folders.
#[derive(Default)]
pub(crate) struct DiskUse {
    pub(crate) snapshots: u64,
    pub(crate) log: u64,
}

/// File descriptors of the process.
pub(crate) struct Descriptors {
    pub(crate) open: usize,
    pub(crate) limit: u64,
}

/// The answer to a word that the whitelist lets through, or to one that it does not.
pub(crate) fn answer(word: &Word, figures: &Figures<'_>) -> String {
    if !figures.settings.words.allows(word) {
        return refused(word);
    }
    match word {
        Word::Ruok => "imok".to_owned(),
        Word::Envi => envi(),
        Word::Isro => if figures.status.serving { "rw" } else { "null" }.to_owned(),
        Word::Other(_) => refused(word),
        Word::Conf | Word::Mntr | Word::Srvr | Word::Stat if !figures.status.serving => {
            NOT_SERVING.to_owned()
        }
        Word::Conf => conf(figures),
        Word::Mntr => mntr(figures),
        Word::Srvr => format!("Zookeeper version: {VERSION}\n{}", summary(figures)),
        Word::Stat => stat(figures),
    }
}

fn refused(word: &Word) -> String {
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

fn outstanding(figures: &Figures<'_>) -> u64 {
    figures.clients.iter().map(|client| u64::from(client.unanswered)).sum()
}

fn summary(figures: &Figures<'_>) -> String {
    let Figures { status, traffic, clients, .. } = figures;
    let latency = &traffic.latency;
    format!(
        "Latency min/avg/max: {}/{:?}/{}\n\
         Received: {}\n\
         Sent: {}\n\
         Connections: {}\n\
         Outstanding: {}\n\
         Zxid: {}\n\
         Mode: {}\n\
         Node count: {}\n",
        latency.min_ms(),
        latency.mean_ms(),
        latency.max_ms(),
        traffic.received,
        traffic.sent,
        clients.len(),
        outstanding(figures),
        status.applied,
        mode(status),
        status.nodes,
    )
}

fn stat(figures: &Figures<'_>) -> String {
    let mut text = format!("Zookeeper version: {VERSION}\nClients:\n");
    for client in &figures.clients {
        // The number in brackets is what the server waits for: 1 is reading.
        let _infallible = writeln!(
            text,
            " /{}[{}](queued={},recved={},sent={})",
            client.peer,
            u8::from(client.open),
            client.unanswered,
            client.received,
            client.sent,
        );
    }
    text + "\n" + &summary(figures)
}

fn conf(figures: &Figures<'_>) -> String {
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
        settings.connections_per_ip.unwrap_or(0),
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

/// kazoo reads the version from here. Of a Java process' many properties, those that are left without Java.
fn envi() -> String {
    let [os, arch] = [std::env::consts::OS, std::env::consts::ARCH];
    format!("Environment:\nzookeeper.version={VERSION}\nos.name={os}\nos.arch={arch}\n")
}

/// In ZooKeeper's order, without the metrics that have no meaning here.
fn mntr(figures: &Figures<'_>) -> String {
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
    line("outstanding_requests", &outstanding(figures));
    line("znode_count", &status.nodes);
    line("global_sessions", &status.sessions);
    line("packets_sent", &traffic.sent);
    line("packets_received", &traffic.received);
    line("connection_drop_probability", &"0.0");
    line("watch_count", &status.watches);
    line("min_latency", &latency.min_ms());
    if let Some(descriptors) = &figures.descriptors {
        line("max_file_descriptor_count", &descriptors.limit);
    }
    line("approximate_data_size", &status.data_bytes);
    if let Some(descriptors) = &figures.descriptors {
        line("open_file_descriptor_count", &descriptors.open);
    }
    line("local_sessions", &0);
    line("uptime", &figures.uptime.as_millis());
    line("max_latency", &latency.max_ms());
    line("connection_rejected", &traffic.rejected);
    line("sessionless_connections_expired", &traffic.sessionless);
    line("bytes_received_count", &traffic.bytes_received);
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
mod tests {
    use zabkeeper_core::{Epoch, ServerId, Zxid};

    use super::*;

    fn check(word: Word, serving: bool) -> String {
        let mode = if serving { Mode::Standalone } else { Mode::Looking };
        check_in(Settings::for_a_try(), &word, &status(mode))
    }

    fn check_in_ensemble(word: Word, mode: Mode) -> String {
        let lines = "dataDir=/d\ntickTime=2000\n4lw.commands.whitelist=*\n\
                     server.1=a:2888:3888;2181\nserver.2=::1:2888:3888;[::1]:2181\n\
                     server.3=c:2888:3888;2181";
        let lines = lines.replace("=::1:", "=[::1]:");
        let (settings, _) = crate::config::parse("zoo.cfg", &lines, &|_| Ok("1\n".to_owned()))
            .expect("is a configuration");
        check_in(settings, &word, &status(mode))
    }

    fn check_in(mut settings: Settings, word: &Word, status: &Status) -> String {
        settings.data_dir = "/data".into();
        settings.log_dir = "/log".into();
        let mut traffic =
            Traffic { received: 4198, sent: 4199, bytes_received: 70_000, ..Traffic::default() };
        traffic.latency.add(Duration::from_micros(450));
        traffic.latency.add(Duration::from_micros(7_100));
        let client = |port, open| ClientLine {
            peer: SocketAddr::from(([127, 0, 0, 1], port)),
            open,
            unanswered: 2 * u32::from(open),
            received: 3,
            sent: 1,
        };
        let figures = Figures {
            settings: &settings,
            status,
            traffic: &traffic,
            clients: vec![client(33170, true), client(33208, false)],
            uptime: Duration::from_millis(22_792),
            disk: DiskUse { snapshots: 478, log: 67_108_880 },
            descriptors: Some(Descriptors { open: 43, limit: 20_000 }),
        };
        answer(word, &figures)
    }

    fn status(mode: Mode) -> Status {
        let serving = mode != Mode::Looking;
        Status {
            id: ServerId(1),
            mode,
            leader: Some(ServerId(1)),
            synced_followers: 2,
            learners: 2,
            serving,
            accepted_epoch: Epoch(1),
            current_epoch: Epoch(1),
            applied: Zxid(0x1_0000_01af),
            committed: Zxid(0x1_0000_01af),
            appended: Zxid(0x1_0000_01af),
            durable: Zxid(0x1_0000_01af),
            snapshot: Zxid::ZERO,
            snapshot_running: false,
            connections: 1,
            sessions: 1,
            outstanding: 0,
            nodes: 13,
            ephemerals: 1,
            data_bytes: 284,
            watches: 1,
            halted: None,
        }
    }

    #[test]
    fn flw_01_conf() {
        insta::assert_snapshot!(check(Word::Conf, true));
    }

    #[test]
    fn flw_01_11_and_16_in_an_ensemble() {
        let conf = check_in_ensemble(Word::Conf, Mode::Follower);
        let ensemble = conf.split_once("serverId=1\n").expect("is there").1;
        assert_eq!(
            ensemble,
            "initLimit=10\nsyncLimit=5\nelectionAlg=3\nelectionPort=3888\nquorumPort=2888\n\
             peerType=0\nmembership: \nserver.1=a:2888:3888:participant;0.0.0.0:2181\n\
             server.2=[::1]:2888:3888:participant;[::1]:2181\n\
             server.3=c:2888:3888:participant;0.0.0.0:2181\nversion=0"
        );
        for (mode, name, state) in [
            (Mode::Leader, "leader", "leading - broadcast"),
            (Mode::Follower, "follower", "following - broadcast"),
        ] {
            let srvr = check_in_ensemble(Word::Srvr, mode);
            assert!(srvr.contains(&format!("\nMode: {name}\n")), "{srvr}");
            let mntr = check_in_ensemble(Word::Mntr, mode);
            let lines = format!("\nzk_server_state\t{name}\nzk_peer_state\t{state}\n");
            assert!(mntr.contains(&lines) && mntr.contains("\nzk_quorum_size\t3\n"), "{mntr}");
            let followers = mntr.ends_with("\nzk_learners\t2\nzk_synced_followers\t2\n");
            assert_eq!(followers, mode == Mode::Leader, "{mntr}");
        }
    }

    #[test]
    fn flw_06_envi() {
        let text = check(Word::Envi, false);
        assert!(text.starts_with("Environment:\nzookeeper.version=3.9.4-zabkeeper-"), "{text}");
        assert!(text.contains(&format!("\nos.name={}\n", std::env::consts::OS)), "{text}");
    }

    #[test]
    fn flw_11_srvr() {
        insta::assert_snapshot!(check(Word::Srvr, true));
    }

    #[test]
    fn flw_12_stat() {
        insta::assert_snapshot!(check(Word::Stat, true));
    }

    #[test]
    fn flw_16_mntr() {
        insta::assert_snapshot!(check(Word::Mntr, true));
    }

    #[test]
    fn flw_09_and_17_ruok_and_isro_have_no_newline() {
        assert_eq!(check(Word::Ruok, false), "imok", "edge 158: also where not serving");
        assert_eq!(check(Word::Isro, true), "rw", "edge 159");
        assert_eq!(check(Word::Isro, false), "null");
    }

    #[test]
    fn wire_13_words_off_the_whitelist_and_words_before_serving() {
        let refusal = "wchs is not executed because it is not in the whitelist.\n";
        assert_eq!(check(Word::Other(*b"wchs"), true), refusal);
        for word in [Word::Conf, Word::Mntr, Word::Srvr, Word::Stat] {
            assert_eq!(check(word, false), NOT_SERVING);
        }
    }
}
