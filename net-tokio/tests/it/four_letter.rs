//! Four-letter commands over real sockets.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::tempdir;

use zabkeeper_core::wire::{FourLetterCommand, Request};

use crate::harness::{PATIENCE, Server, command, configure, eventually, free_port, nobody_forks};
use crate::members::Ensemble;
use crate::raw::{Raw, create};

pub(crate) fn ask(server: &Server, command: &str) -> String {
    try_ask(server.port, command).expect("is answered")
}

/// `None` if the server does not answer within a second.
pub(crate) fn try_ask(port: u16, command: &str) -> Option<String> {
    try_ask_bytes(port, command.as_bytes(), Duration::from_secs(1))
}

fn try_ask_bytes(port: u16, command: &[u8], patience: Duration) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(patience)).ok()?;
    socket.write_all(command).ok()?;
    let mut text = String::new();
    socket.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn edges_79_159_four_letter_commands_report_the_running_server() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "4lw.commands.whitelist=*");
    assert!(ask(&server, "mntr").contains("\nzk_znode_count\t5\n"), "a new server");
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/a", b"12345", 1)).0, 0);

    assert_eq!(ask(&server, "ruok"), "imok");
    assert_eq!(ask(&server, "isro\n"), "rw");
    assert_eq!(ask(&server, "wchs"), "0 connections watching 0 paths\nTotal watches:0\n");
    let srvr = ask(&server, "srvr");
    assert!(srvr.starts_with("Zookeeper version: 3.9.4-zabkeeper-"), "{srvr}");
    assert!(srvr.ends_with("Mode: standalone\nNode count: 6\n"), "{srvr}");
    assert!(srvr.contains("\nReceived: 7\nSent: 6\nConnections: 2\nOutstanding: 0\n"), "{srvr}");
    let stat = ask(&server, "stat");
    let line = format!(" /{}[1](queued=0,recved=2,sent=2)\n", client.address());
    assert!(stat.contains(&line), "{stat}");
    let mntr = ask(&server, "mntr");
    for line in ["zk_ephemerals_count\t1\n", "zk_global_sessions\t1\n", "zk_znode_count\t6\n"] {
        assert!(mntr.contains(line), "{mntr}");
    }
    let conf = ask(&server, "conf");
    assert!(conf.contains("\ntickTime=2000\nmaxClientCnxns=60\n"), "{conf}");
    assert!(!conf.contains("dataDirSize=0\n"), "{conf}");
    assert!(conf.ends_with("\nclientPortListenBacklog=1024\nserverId=0\n"), "{conf}");
}

/// CONF-27.
#[test]
fn only_srvr_is_answered_by_default() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    assert!(ask(&server, "srvr").contains("Mode: standalone"));
    for command in FourLetterCommand::all().filter(|command| {
        *command != FourLetterCommand::Srvr && *command != FourLetterCommand::TelnetClose
    }) {
        let name = command.name();
        let refusal = format!("{name} is not executed because it is not in the whitelist.\n");
        assert_eq!(ask(&server, name), refusal, "stmk too, without its mask");
    }
    let telnet = try_ask_bytes(server.port, b"\xff\xf4\xff\xfd", PATIENCE).expect("is answered");
    let refusal = "telnet close is not executed because it is not in the whitelist.\n";
    assert_eq!(telnet, refusal, "FLW-19");
}

/// CONF-27.
#[test]
fn whitelist_can_be_a_java_option() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let mut command = command(&configure(port, dir.path(), ""));
    command.env("SERVER_JVMFLAGS", "-Xmx1g '-Dzookeeper.4lw.commands.whitelist=ruok, isro'");
    let server = Server::run(command, port);
    assert_eq!(ask(&server, "ruok"), "imok");
    assert_eq!(ask(&server, "isro"), "rw");
    assert_eq!(ask(&server, "conf"), "conf is not executed because it is not in the whitelist.\n");
}

/// FLW-02 to FLW-05, FLW-07 to FLW-15, FLW-17 to FLW-19: after some requests of two clients, the
/// answers must equal those recorded from ZooKeeper, apart from values that differ in every run.
#[test]
fn four_letter_commands_answer_as_in_zookeeper() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "4lw.commands.whitelist=*");
    let (mut one, _) = Raw::open(server.port, 10_000);
    let (mut two, _) = Raw::open(server.port, 20_000);
    let watch = |path: &str| Request::GetData { path: path.to_owned(), watch: true };
    for (path, flags) in [("/w", 0), ("/w/e", 1), ("/w/f", 1)] {
        assert_eq!(one.call(create(path, b"x", flags)).0, 0);
    }
    assert_eq!(two.call(create("/w/g", b"x", 1)).0, 0);
    one.call(watch("/w"));
    one.call(watch("/w/e"));
    two.call(watch("/w"));
    let children = Request::GetChildren { path: "/w".to_owned(), watch: true, with_stat: false };
    two.call(children);
    one.ping();

    let recorded = include_str!("../golden/four-letter-3.9.4.txt");
    // Each command uses its own connection, which must be gone before the next one counts
    // connections.
    let _alone = nobody_forks();
    let mut asked = 0;
    for section in recorded.split("\n> ").skip(1) {
        let (command, text) = section.split_once('\n').expect("has a text");
        let text = text.trim_end().strip_suffix("<END>").expect("ends");
        let bytes = match command {
            r"stmk\x00\x00\x00\x00\x00\x00\x00\x07" => b"stmk\0\0\0\0\0\0\0\x07",
            r"\xff\xf4\xff\xfd" => &b"\xff\xf4\xff\xfd"[..],
            command => command.as_bytes(),
        };
        let ours = try_ask_bytes(server.port, bytes, PATIENCE).expect("is answered");
        assert_eq!(without_chance(command, &ours), without_chance(command, text), "{command}");
        asked += 1;
    }
    assert_eq!(asked, 18);
}

/// The text without addresses, ids, times and sizes, and with lines of arbitrary order sorted.
fn without_chance(command: &str, text: &str) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    let mut unordered = 0;
    // `dump` groups sessions and connections by expiry time, which depends on the machine's speed.
    for line in text.split('\n').filter(|line| !line.contains(" expire at ")) {
        let line = line_without_chance(command, line);
        if line.starts_with([' ', '\t']) {
            unordered += 1;
        } else {
            unordered = 0;
        }
        lines.push(line);
        let from = lines.len() - unordered;
        lines[from..].sort();
    }
    lines
}

fn line_without_chance(command: &str, line: &str) -> String {
    for label in ["Zookeeper version: ", "datadir_size: ", "logdir_size: ", "Zxid: 0x"] {
        if line.starts_with(label) {
            return label.to_owned();
        }
    }
    let counts = ["Latency min", "Received: ", "Sent: "];
    if command == "stat" && counts.iter().any(|label| line.starts_with(label)) {
        return line[..4].to_owned();
    }
    let line = line.replacen("Sets (2)/", "Sets (1)/", 1);
    let mut kept = String::new();
    for part in line.split_inclusive([',', '(', ')', '[', ' ', '\t']) {
        let (value, end) =
            part.split_at(part.trim_end_matches([',', '(', ')', '[', ' ', '\t']).len());
        let (key, value) = value.split_at(value.find('=').map_or(0, |at| at + 1));
        let chance = match key {
            "sid=" | "est=" | "lresp=" | "llat=" | "minlat=" | "avglat=" | "maxlat=" => true,
            "lzxid=" => value != "0xffffffffffffffff",
            _ => value.starts_with("/127.0.0.1:") || value.starts_with("0x") && value.len() > 10,
        };
        kept = kept + key + if chance { "*" } else { value } + end;
    }
    kept
}

/// FLW-05, FLW-11.
#[test]
fn leaders_and_followers_report_role_specific_values() {
    let ensemble = Ensemble::start("4lw.commands.whitelist=*");
    let leader = ensemble.leader();
    let follower = ensemble.up().into_iter().find(|id| *id != leader).expect("there are three");
    let (leader, follower) = (ensemble.server(leader), ensemble.server(follower));
    assert!(ask(leader, "srvr").contains("\nZxid: 0x100000000\n"), "its epoch, without a write");
    let (mut client, granted) = Raw::open(follower.port, 10_000);
    assert_eq!(client.call(create("/e", b"x", 1)).0, 0);
    let session = granted.session;

    let dump = ask(follower, "dump");
    let sessions = format!("SessionTracker dump:\nGlobal Sessions(1):\n{session}\t10000ms\n");
    let ephemerals = format!("dump:\nSessions with Ephemerals (1):\n{session}:\n\t/e\nConn");
    assert!(dump.starts_with(&sessions) && dump.contains(&ephemerals), "{dump}");
    assert!(!ask(follower, "srvr").contains("Proposal sizes"));

    let dump = ask(leader, "dump");
    assert!(
        dump.starts_with("SessionTracker dump:\nSession Sets (1)/(1):\n1 expire at "),
        "{dump}"
    );
    assert!(dump.contains(&format!(":\n\t{session}\nephemeral nodes dump:\n")), "{dump}");
    let sizes = |server| {
        let srvr = ask(server, "srvr");
        let line = srvr.lines().find_map(|line| line.strip_prefix("Proposal sizes last/min/max: "));
        line.expect("is a leader's").to_owned()
    };
    let [last, min, max] = [0, 1, 2]
        .map(|at| sizes(leader).split('/').nth(at).expect("three").parse::<i64>().unwrap());
    assert!(0 < min && min <= last && last <= max, "{min} {last} {max}");
    let figures = |command: &str| -> BTreeMap<String, String> {
        let text = ask(leader, command);
        let pairs = text.lines().filter_map(|line| line.strip_prefix("zk_")?.split_once('\t'));
        pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
    };
    let mntr = figures("mntr");
    for (name, value) in [
        ("last_proposal_size", last.to_string()),
        ("min_proposal_size", min.to_string()),
        ("max_proposal_size", max.to_string()),
        // The proposals of the session and of the node.
        ("proposal_count", "2".to_owned()),
        ("pending_syncs", "0".to_owned()),
        ("synced_followers", "2".to_owned()),
        ("synced_observers", "0".to_owned()),
        ("synced_non_voting_followers", "0".to_owned()),
    ] {
        assert_eq!(mntr.get(name), Some(&value), "{name}");
    }
    let [leads, runs] = ["leader_uptime", "uptime"].map(|name| mntr[name].parse::<u64>().unwrap());
    assert!(0 < leads && leads <= runs, "{leads} {runs}");
    assert_eq!(ask(leader, "srst"), "Server stats reset.\n");
    assert_eq!(sizes(leader), "-1/-1/-1");
    let mntr = figures("mntr");
    assert_eq!((&*mntr["proposal_count"], &*mntr["last_proposal_size"]), ("0", "-1"));
}

#[test]
fn edge_158_four_letter_commands_are_answered_before_the_server_serves() {
    let dir = tempdir().expect("creates");
    let port = free_port();
    let [a, b, c, d] = [(); 4].map(|()| free_port());
    std::fs::create_dir(dir.path().join("data")).expect("creates");
    std::fs::write(dir.path().join("data/myid"), "1").expect("writes");
    let members =
        format!("4lw.commands.whitelist=*\nserver.1=127.0.0.1:{a}:{b}\nserver.2=127.0.0.1:{c}:{d}");
    let server = Server::spawn(command(&configure(port, dir.path(), &members)), port);
    eventually("an answer", || try_ask(port, "ruok").as_deref() == Some("imok"));
    let not_serving = "This ZooKeeper instance is not currently serving requests";
    for command in FourLetterCommand::all() {
        let name = command.name();
        let expected = match command {
            // FLW-19: `telnet close` has no name that can be sent as text.
            FourLetterCommand::TelnetClose => continue,
            FourLetterCommand::Ruok => "imok".to_owned(),
            FourLetterCommand::Isro => "null".to_owned(),
            FourLetterCommand::Gtmk => "306".to_owned(),
            FourLetterCommand::Stmk => {
                let mask = try_ask_bytes(port, b"stmk\0\0\0\0\0\0\x01\x32", PATIENCE);
                assert_eq!(mask.as_deref(), Some("306"));
                continue;
            }
            FourLetterCommand::Envi => {
                assert!(ask(&server, name).starts_with("Environment:\nzookeeper.version="));
                continue;
            }
            FourLetterCommand::Hash => not_serving.to_owned(),
            FourLetterCommand::Conf
            | FourLetterCommand::Cons
            | FourLetterCommand::Crst
            | FourLetterCommand::Dirs
            | FourLetterCommand::Dump
            | FourLetterCommand::Mntr
            | FourLetterCommand::Srst
            | FourLetterCommand::Srvr
            | FourLetterCommand::Stat
            | FourLetterCommand::Wchc
            | FourLetterCommand::Wchp
            | FourLetterCommand::Wchs => format!("{not_serving}\n"),
        };
        assert_eq!(ask(&server, name), expected, "{name}");
    }
}
