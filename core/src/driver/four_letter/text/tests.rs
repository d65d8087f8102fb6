//! The texts, with figures that do not occur together in a running server; their form is that of
//! texts recorded from ZooKeeper 3.9.4.

use core::net::SocketAddr;

use super::super::conns::{Dump, Pairs, dump_connections, dump_sessions, watch_summary};
use super::super::options::EnsembleInfo;
use super::super::samples::samples;
use super::*;
use crate::config::ReconfigOptions;
use crate::driver::metrics::{ConnStats, Load, Metrics, Served};
use crate::driver::{ClientLimits, ClientLine};
use crate::error::ErrorCode;
use crate::ids::{ConnId, Epoch, Instant, SessionId, WallMs};
use crate::io::Now;
use crate::measure::Namespace;
use crate::membership::{EnsembleConfig, Voters};
use crate::progress::SyncState;
use crate::status::{SessionInfo, WatchSummary};
use crate::wire::Reply;

const NOW: Now = Now { mono: Instant(5_000_000_000), wall: WallMs(1_795_274_515_500) };

/// The configuration of the first server, and its options.
type Settings = (Config, FourLetterOptions);

fn check(text: fn(&Figures<'_>) -> String) -> String {
    check_in(standalone(), text, &status(Mode::Standalone))
}

fn check_in_ensemble(text: fn(&Figures<'_>) -> String, mode: Mode) -> String {
    check_in(ensemble(), text, &status(mode))
}

fn mntr_text(figures: &Figures<'_>) -> String {
    mntr(&samples(figures))
}

fn standalone() -> Settings {
    let id = ServerId(1);
    let config = Config::new(id, Voters::new([id]), Duration::from_secs(2)).expect("2 s is a tick");
    let options = FourLetterOptions {
        data_dir: "/data/zabkeeper".to_owned(),
        log_dir: "/log/zabkeeper".to_owned(),
        backlog: 1024,
        ..FourLetterOptions::default()
    };
    (config, options)
}

fn ensemble() -> Settings {
    let ids = [1, 2, 3].map(ServerId);
    let tick = Duration::from_secs(2);
    let config = Config::new(ids[0], Voters::new(ids), tick).expect("2 s is a tick");
    let membership = "server.1=a:2888:3888:participant;0.0.0.0:2181\n\
                      server.2=[::1]:2888:3888:participant;[::1]:2181\n\
                      server.3=c:2888:3888:participant;0.0.0.0:2181\nversion=0";
    let ensemble = EnsembleInfo {
        election_ports: "3888".to_owned(),
        quorum_ports: "2888".to_owned(),
        observes: false,
        voters: 3,
        membership: membership.to_owned(),
    };
    let (_, options) = standalone();
    (config, FourLetterOptions { ensemble: Some(ensemble), ..options })
}

fn check_in(
    (config, options): Settings,
    text: fn(&Figures<'_>) -> String,
    status: &Status,
) -> String {
    let load = Load { requests: 2, large_bytes: 0 };
    let mut metrics =
        Metrics { received: 4198, sent: 4199, bytes_received: 70_000, load, ..Metrics::default() };
    metrics.latency.add(Duration::from_micros(450));
    metrics.latency.add(Duration::from_micros(7_100));
    metrics.proposals.add(48);
    metrics.proposals.add(32);
    let namespace = Namespace::of("/zookeeper/config").expect("is one");
    metrics.reads.add(namespace, 85);
    metrics.writes.add(namespace, 17);
    let ack = metrics.ensemble.ack.entry(ServerId(2)).or_default();
    for micros in [800, 1_900, 30_000] {
        ack.add_time(Duration::from_micros(micros), NOW.mono);
        metrics.traffic.updates.add_time(Duration::from_micros(micros), NOW.mono);
    }
    let figures = Figures {
        options: &options,
        config: &config,
        connections_per_ip: ClientLimits::default().connections_per_ip,
        status,
        metrics: &metrics,
        connections: clients().len(),
        clients: clients(),
        event_bytes: 120,
        now: NOW.mono,
        uptime: Duration::from_millis(22_792),
        leader_uptime: Duration::from_millis(1_179),
        progress: progress(),
        pending_reconfig: Some(PendingReconfig {
            version: Zxid(0x2_0000_000a),
            waited: Duration::from_millis(6_500),
            missing_old: Vec::new(),
            missing_new: progress().split_off(1),
        }),
        disk: DiskUse { snapshots: 478, log: 67_108_880 },
        descriptors: Some(Descriptors { open: 43, limit: 20_000 }),
        drop_probability: 20_000,
    };
    // The version changes with each release.
    text(&figures).replace(&options.version_text(), "3.9.4-zabkeeper-VERSION, built on DATE")
}

/// The first server, one that lags, and one that is not connected.
fn progress() -> Vec<ServerProgress> {
    let server = |id, state, behind, ms| {
        let lag = Duration::from_millis(ms);
        ServerProgress { server: ServerId(id), votes: true, state, behind, lag, older: false }
    };
    vec![
        server(1, SyncState::Synced, Some(0), 0),
        server(2, SyncState::Synced, Some(12), 340),
        server(3, SyncState::Absent, None, 0),
    ]
}

/// A busy client with a session, an idle one with reset statistics, and the connection of the
/// command itself.
fn clients() -> Vec<ClientLine> {
    let client = |port, timeout_ms: Option<i32>| ClientLine {
        peer: SocketAddr::from(([127, 0, 0, 1], port)),
        since: WallMs(1_795_274_509_677),
        reading: timeout_ms.is_some(),
        writing: false,
        unanswered: 0,
        served: timeout_ms.map(|timeout_ms| Served {
            session: SessionId(0x0100_00ce_d9a8_0000 + i64::from(port)),
            timeout_ms,
        }),
        heard: Instant(4_000_000_000),
        stats: ConnStats::default(),
    };
    let mut busy = client(33170, Some(10_000));
    busy.unanswered = 2;
    busy.writing = true;
    busy.stats = ConnStats { received: 3, sent: 1, ..ConnStats::default() };
    busy.stats.asked(12);
    let reply = |xid| Reply { xid, zxid: 0x1_0000_01af, result: Err(ErrorCode::NoNode) };
    busy.stats.replied(&reply(26), Some(Instant(1_000_000_000)), Instant(1_004_000_000));
    busy.stats.replied(&reply(-2), Some(Instant(2_000_000_000)), Instant(2_001_500_000));
    busy.stats.asked(100);
    vec![busy, client(33180, Some(20_000)), client(33208, None)]
}

fn status(mode: Mode) -> Status {
    let serving = !matches!(mode, Mode::Looking | Mode::ReadOnly);
    Status {
        id: ServerId(1),
        mode,
        leader: Some(ServerId(1)),
        synced_followers: 2,
        synced_observers: 0,
        learners: 2,
        pending_syncs: 1,
        serving,
        accepted_epoch: Epoch(1),
        current_epoch: Epoch(1),
        applied: Zxid(0x1_0000_01af),
        committed: Zxid(0x1_0000_01af),
        appended: Zxid(0x1_0000_01af),
        durable: Zxid(0x1_0000_01af),
        snapshot: Zxid::ZERO,
        snapshots: 0,
        snapshot_running: false,
        sessions: 1,
        local_sessions: 2,
        outstanding: 0,
        nodes: 13,
        ephemerals: 1,
        data_bytes: 284,
        watches: 1,
        halted: None,
    }
}

fn a_dump(mode: Mode, local: Option<i64>) -> String {
    let session = |id, expires: u64| SessionInfo {
        id: SessionId(id),
        timeout_ms: 10_000,
        expires: (mode != Mode::Follower).then_some(Instant(expires * 1_000_000_000)),
        server: None,
    };
    let owners = 2;
    let dump = Dump {
        mode,
        local_sessions: local
            .map(|id| vec![SessionInfo { expires: Some(NOW.mono), ..session(id, 0) }]),
        sessions: vec![session(0x1_0000, 10), session(0x1_0001, 20), session(-256, 10)],
        owners,
        clients: clients(),
        now: NOW,
        sessionless_timeout: Duration::from_secs(10),
    };
    let mut text = dump_sessions(&dump);
    let mut pairs = Pairs::<SessionId>::default();
    for (session, path) in [(0x1_0000, "/w/f"), (0x1_0000, "/w/e"), (-256, "/w/g")] {
        let session = SessionId(session);
        pairs.add(&mut text, &session, format_args!("{session}:"), path);
    }
    text + &dump_connections(&dump)
}

/// FLW-01.
#[test]
fn conf_prints_the_settings() {
    insta::assert_snapshot!(check(conf));
}

/// FLW-01, FLW-11, FLW-16.
#[test]
fn ensemble_server_prints_its_membership_and_role() {
    let conf = check_in_ensemble(conf, Mode::Follower);
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
        let srvr = check_in_ensemble(srvr, mode);
        assert!(srvr.contains(&format!("\nMode: {name}\n")), "{srvr}");
        let sizes = srvr.ends_with("Node count: 13\nProposal sizes last/min/max: 32/32/48\n");
        assert_eq!(sizes, mode == Mode::Leader, "{srvr}");
        let mntr = check_in_ensemble(mntr_text, mode);
        let lines = format!("\nzk_server_state\t{name}\nzk_peer_state\t{state}\n");
        assert!(mntr.contains(&lines) && mntr.contains("\nzk_quorum_size\t3\n"), "{mntr}");
    }
}

/// RO-05, FLW-11, FLW-12, FLW-16.
#[test]
fn read_only_server_says_so_behind_its_version() {
    let line = "DATE\nREAD-ONLY mode; serving only read-only clients\n";
    let srvr = check_in_ensemble(srvr, Mode::ReadOnly);
    assert!(srvr.contains(&format!("{line}Latency min/avg/max: ")), "{srvr}");
    assert!(srvr.contains("\nMode: read-only\n"), "{srvr}");
    let stat = check_in_ensemble(stat, Mode::ReadOnly);
    assert!(stat.contains(&format!("{line}Clients:\n")), "{stat}");
    let mntr = check_in_ensemble(mntr_text, Mode::ReadOnly);
    let next = "\nzk_server_state\tread-only\nzk_ephemerals_count\t";
    assert!(mntr.contains(next), "no peer state: {mntr}");
}

/// FLW-06, FLW-11, FLW-12, FLW-16.
/// The version ends with the date of the build. go-zookeeper and Metricbeat parse this form.
#[test]
fn version_has_the_form_of_zookeeper() {
    let form = |text: &str| -> String {
        let shape = |c: char| if c.is_ascii_digit() { 'd' } else { c };
        text.chars().map(shape).collect()
    };
    let real = "3.9.4-7246445ec281f3dbf53dc54e970c914f39713903, built on 2025-08-19 19:53 UTC";
    let version = FourLetterOptions::default().version_text();
    let [(ours, our_date), (_, date)] =
        [&version[..], real].map(|text| text.split_once(", built on ").expect("has a date"));
    assert_eq!(form(our_date), form(date));
    assert!(ours.chars().all(|c| c.is_ascii_alphanumeric() || ".-".contains(c)), "{ours}");
    assert!(ours.starts_with("3.9.4-zabkeeper-"), "{ours}");
}

/// FLW-16.
/// The lines of ZooKeeper 3.9.4 in each role, and their order: recorded from a standalone server
/// and from an ensemble of three. Behind them a leader has lines of its own.
#[test]
fn mntr_has_the_lines_of_zookeeper_in_its_order() {
    let recorded = include_str!("../../../../tests/golden/mntr-3.9.4.txt");
    for (mode, state) in
        [(Mode::Leader, "leader"), (Mode::Follower, "follower"), (Mode::Standalone, "standalone")]
    {
        let text = match mode {
            Mode::Standalone => check(mntr_text),
            Mode::Leader | Mode::Follower | Mode::Observer | Mode::Looking | Mode::ReadOnly => {
                check_in_ensemble(mntr_text, mode)
            }
        };
        let mut theirs = recorded.lines().filter(|line| line.split(' ').any(|word| word == state));
        let names = text.lines().map(|line| line.split('\t').next().expect("has a name"));
        let is_own = |name: &str| {
            let own = [
                "zk_learner_lag_",
                "zk_reconfig_",
                "zk_trunc_count",
                "zk_session_ephemerals_deleted_count",
                "zk_pending_event_bytes",
            ];
            // The recorded servers had no clients, so they had no members of these sets.
            let sets = ["_read_per_namespace", "_write_per_namespace", "_ack_latency"];
            own.iter().any(|own| name.starts_with(own))
                || sets.iter().any(|set| name.ends_with(set))
        };
        let (own, theirs_too): (Vec<&str>, Vec<&str>) = names.partition(|name| is_own(name));
        let knows_others = own.iter().any(|name| name.starts_with("zk_learner_lag_"));
        assert_eq!(knows_others, mode == Mode::Leader, "{state}: {own:?}");
        for name in theirs_too {
            let found = theirs.any(|line| line.split(' ').next() == Some(name));
            assert!(found, "{state}: {name} is no line of ZooKeeper's, or not at its place");
        }
    }
}

/// FLW-11, FLW-16.
/// The values are those of a real leader that has just begun to lead, except for the sizes:
/// transactions have another encoding here.
#[test]
fn leader_prints_its_own_figures() {
    let text = check_in_ensemble(mntr_text, Mode::Leader);
    for line in [
        "zk_min_proposal_size\t32",
        "zk_max_proposal_size\t48",
        "zk_synced_followers\t2",
        "zk_synced_non_voting_followers\t0",
        "zk_synced_observers\t0",
        "zk_last_proposal_size\t32",
        "zk_pending_syncs\t1",
        "zk_leader_uptime\t1179",
        "zk_learners\t2",
        "zk_proposal_count\t2",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
    let zxid = |mode, epoch, applied| {
        let mut status = status(mode);
        (status.current_epoch, status.applied) = (Epoch(epoch), Zxid(applied));
        let text = check_in(ensemble(), srvr, &status);
        text.lines().find_map(|line| line.strip_prefix("Zxid: ")).expect("is there").to_owned()
    };
    assert_eq!(zxid(Mode::Leader, 1, 0), "0x100000000", "a new epoch without a transaction");
    assert_eq!(zxid(Mode::Leader, 2, 0x1_0000_01af), "0x200000000");
    assert_eq!(zxid(Mode::Leader, 2, 0x2_0000_0001), "0x200000001");
    assert_eq!(zxid(Mode::Follower, 2, 0x1_0000_01af), "0x1000001af");
    assert_eq!(zxid(Mode::Standalone, 1, 0), "0x0");
}

/// FLW-02.
#[test]
fn cons_prints_all_connections() {
    insta::assert_snapshot!(check(cons));
}

/// FLW-04.
#[test]
fn dirs_prints_the_sizes_of_directories() {
    let disk = DiskUse { snapshots: 478, log: 67_108_880 };
    assert_eq!(dirs(&disk), "datadir_size: 478\nlogdir_size: 67108880\n");
}

/// FLW-05.
#[test]
fn dump_prints_sessions_and_connections() {
    insta::assert_snapshot!(a_dump(Mode::Standalone, None));
}

/// FLW-05.
#[test]
fn dump_of_a_follower_prints_no_expiry_times() {
    let text = a_dump(Mode::Follower, None);
    let sessions = text.split("ephemeral nodes").next().expect("is there");
    assert_eq!(
        sessions,
        "SessionTracker dump:\nGlobal Sessions(3):\n0x10000\t10000ms\n0x10001\t10000ms\n\
         0xffffffffffffff00\t10000ms\n"
    );
}

/// FLW-05.
#[test]
fn dump_prints_local_sessions_first() {
    for (mode, global) in [
        (Mode::Leader, "Global Session Sets (2)/(3):\n"),
        (Mode::Follower, "Global Sessions(3):\n"),
    ] {
        let text = a_dump(mode, Some(7));
        let begins = "SessionTracker dump:\nLocal Session Sets (1)/(1):\n1 expire at ";
        assert!(text.starts_with(begins), "{text}");
        assert!(text.contains(&format!(":\n\t0x7\n{global}")), "{text}");
    }
}

/// FLW-06.
#[test]
fn envi_prints_the_environment() {
    let user = Some("zk".to_owned());
    let env = Environment { user, memory: Some([370, 512]), ..Environment::default() };
    let text = envi(&FourLetterOptions::default(), &env);
    assert!(text.starts_with("Environment:\nzookeeper.version=3.9.4-zabkeeper-"), "{text}");
    let recorded = "zookeeper.version host.name java.version java.vendor java.home java.class.path \
                    java.library.path java.io.tmpdir java.compiler os.name os.arch os.version \
                    user.name \
                    user.home user.dir os.memory.free os.memory.max os.memory.total";
    let lines = text.lines().skip(1);
    let keys: Vec<&str> = lines.map(|line| line.split('=').next().expect("has a key")).collect();
    assert_eq!(keys, Vec::from_iter(recorded.split(' ')), "those of a real server, in its order");
    for line in [
        "host.name=<NA>",
        "java.version=<NA> (this server is not a Java program)",
        "user.name=zk",
        "os.memory.free=370MB",
        "os.memory.total=512MB",
    ] {
        assert!(text.lines().any(|other| other == line), "{line} in {text}");
    }
}

/// FLW-11.
#[test]
fn srvr_prints_the_figures() {
    insta::assert_snapshot!(check(srvr));
}

/// FLW-12.
#[test]
fn stat_prints_the_figures_and_clients() {
    insta::assert_snapshot!(check(stat));
}

/// FLW-13, FLW-14, FLW-15.
#[test]
fn watches_are_listed_by_connection_and_by_path() {
    let summary = WatchSummary { connections: 2, paths: 2, watches: 3 };
    assert_eq!(watch_summary(summary), "2 connections watching 2 paths\nTotal watches:3\n");
    let (a, b) = (ConnId(1), ConnId(2));
    let session = |conn| if conn == a { SessionId(0x10) } else { SessionId(-1) };
    let (mut text, mut pairs) = (String::new(), Pairs::<ConnId>::default());
    for (conn, path) in [(a, "/w"), (a, "/w/e"), (b, "/w")] {
        pairs.add(&mut text, &conn, session(conn), path);
    }
    assert_eq!(text, "0x10\n\t/w\n\t/w/e\n0xffffffffffffffff\n\t/w\n");
    let (mut text, mut pairs) = (String::new(), Pairs::<String>::default());
    for (path, conn) in [("/w", b), ("/w", a), ("/w/e", a)] {
        pairs.add(&mut text, path, path, session(conn));
    }
    assert_eq!(text, "/w\n\t0xffffffffffffffff\n\t0x10\n/w/e\n\t0x10\n");
}

/// FLW-16, METRIC-02.
#[test]
fn mntr_prints_the_metrics() {
    insta::assert_snapshot!(check(mntr_text));
    insta::assert_snapshot!("mntr_of_a_leader", check_in_ensemble(mntr_text, Mode::Leader));
    insta::assert_snapshot!("mntr_of_a_follower", check_in_ensemble(mntr_text, Mode::Follower));
}

/// FLW-16.
#[test]
fn leader_prints_how_far_the_others_are_and_what_a_reconfiguration_waits_for() {
    let text = check_in_ensemble(mntr_text, Mode::Leader);
    let lags = "zk_learner_lag_txns_2\t12\nzk_learner_lag_ms_2\t340\n\
                zk_learner_lag_txns_3\t-1\nzk_learner_lag_ms_3\t-1\n";
    assert!(text.ends_with(lags), "without reconfigEnabled nothing follows: {text}");
    let (mut config, options) = ensemble();
    let lines = "server.1=a:1:2\nserver.2=b:1:2\nserver.3=c:1:2";
    let initial = EnsembleConfig::parse(lines).expect("valid");
    config.reconfig = Some(ReconfigOptions { initial, single_voter: false, multi_address: false });
    let text = check_in((config, options), mntr_text, &status(Mode::Leader));
    let waits = "zk_reconfig_in_progress\t1\nzk_reconfig_version\t20000000a\n\
                 zk_reconfig_wait_ms\t6500\nzk_reconfig_missing_old_voters\tnone\n\
                 zk_reconfig_missing_new_voters\t2,3\n";
    assert!(text.ends_with(&format!("{lags}{waits}")), "{text}");
}

/// WIRE-13.
#[test]
fn command_off_the_whitelist_is_refused() {
    let refusal = "wchs is not executed because it is not in the whitelist.\n";
    assert_eq!(refused(FourLetterCommand::Wchs), refusal);
}
