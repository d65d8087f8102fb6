//! Ensembles of three server processes.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::BytesMut;
use zabkeeper_core::driver::PeerOptions;
use zabkeeper_core::peer::greeting::{Channel, Dialling};
use zabkeeper_core::wire::Request;
use zabkeeper_core::{ServerId, SessionId};

use crate::crash::{change_last_batch, check_all_there};
use crate::four_letter::ask;
use crate::harness::eventually;
use crate::members::{Ensemble, Writers};
use crate::raw::{Raw, create, exists, get, set, sync};

/// A tick short enough for tests that wait for `syncLimit`, long enough for a loaded machine.
const SHORT_TICK: &str = "tickTime=300\ninitLimit=20\nsyncLimit=5";

/// Checks that a write on each server can be read on all.
fn check_replicated(ensemble: &Ensemble) {
    for id in ensemble.up() {
        let (mut writer, _) = Raw::open(ensemble.server(id).port, 10_000);
        let path = format!("/by{id}");
        assert_eq!(writer.call(create(&path, path.as_bytes(), 0)).0, 0, "{}", ensemble.logs());
        for reader in ensemble.up() {
            let (mut reader, _) = Raw::open(ensemble.server(reader).port, 10_000);
            assert_eq!(reader.call(sync()).0, 0);
            let (err, body) = reader.call(get(&path));
            assert_eq!((err, &body[4..4 + path.len()]), (0, path.as_bytes()), "{path}");
        }
    }
}

#[test]
fn three_processes_elect_a_leader_and_replicate_writes() {
    let ensemble = Ensemble::start("");
    let mut modes: Vec<String> = (0..3).filter_map(|id| ensemble.mode(id)).collect();
    modes.sort();
    assert_eq!(modes, ["follower", "follower", "leader"]);
    check_replicated(&ensemble);
    for id in 0..3 {
        assert_eq!(ask(ensemble.server(id), "isro"), "rw");
        let conf = ask(ensemble.server(id), "conf");
        assert!(conf.contains(&format!("serverId={id}\ninitLimit=10\nsyncLimit=5\n")), "{conf}");
        let mntr = ask(ensemble.server(id), "mntr");
        assert!(mntr.contains("zk_quorum_size\t3\n"), "{mntr}");
    }
}

#[test]
fn log_lines_name_the_server() {
    let ensemble = Ensemble::start("unknown=1");
    for id in 0..3 {
        let log = ensemble.server(id).log();
        let mark = format!("Z [myid:{id}] ");
        assert!(log.contains("unknown key") && log.contains(": serving "), "{log}");
        assert!(log.lines().all(|line| line.contains(&mark)), "{log}");
    }
}

#[test]
fn server_waits_until_its_host_name_resolves() {
    for settings in ["", "quorumListenOnAllIPs=true\nclientPortAddress=not-yet.invalid"] {
        let mut ensemble = Ensemble::prepare("not-yet.invalid", settings);
        ensemble.boot(0);
        let server = ensemble.server(0);
        server
            .await_line(&[&"WARN", &"cannot listen on not-yet.invalid yet, a name of this server"]);
        // If the server treated that as an error, it would have exited by now.
        std::thread::sleep(Duration::from_millis(1_500));
        let (status, log) = ensemble.end(0);
        assert_eq!(status.signal(), Some(15), "{log}");
    }
}

/// Any host that reaches the quorum and election ports can send greetings in any server's name.
#[test]
fn unauthorized_peers_cause_few_log_lines() {
    let mut ensemble = Ensemble::prepare("127.0.0.1", "");
    ensemble.boot(0);
    let [_, quorum, election] = ensemble.ports[0];
    ensemble.server(0).await_line(&[&"looks for a leader"]);
    let greeting = |channel, from| {
        let local = PeerOptions::new(0).local(ServerId(from));
        Dialling::begin(local, channel, ServerId(0), [0; 16]).1
    };
    for (port, bytes) in [
        (quorum, greeting(Channel::Quorum, 1)),
        (quorum, greeting(Channel::Quorum, 0)),
        (quorum, greeting(Channel::Quorum, 7)),
        (quorum, greeting(Channel::Election, 1)),
        (quorum, b"GET / HTTP/1.1\r\nHost: there\r\n\r\n".to_vec()),
        (election, [greeting(Channel::Election, 2), vec![0xff; 2000]].concat()),
    ] {
        for _ in 0..100 {
            let mut stranger = TcpStream::connect(("127.0.0.1", port)).expect("listens");
            // The server may have closed the connection already.
            let _refused = stranger.write_all(&bytes);
        }
    }
    let server = ensemble.server(0);
    server.await_line(&[
        &"suppressed ",
        &" like: closed the connection from ",
        &"which is this one",
    ]);
    let log = server.log();
    // The server may refuse connections in the name of a member before they become links, so
    // only an upper bound is certain.
    let up_and_down = |id: u64| ["up", "down"].map(|how| format!("link with server {id} is {how}"));
    for line in up_and_down(1).into_iter().chain(up_and_down(7)) {
        let lines = log.lines().filter(|logged| logged.contains(&line)).count();
        assert!((1..=21).contains(&lines), "{lines} lines of {line:?}: {log}");
    }
    assert!(log.lines().count() < 120, "{log}");
}

/// DATA-27.
#[test]
fn edge_64_config_node_lists_the_members() {
    let ensemble = Ensemble::start("");
    let text = ensemble.members();
    for id in 0..3 {
        let (mut raw, _) = Raw::open(ensemble.server(id).port, 10_000);
        let (err, body) = raw.call(get("/zookeeper/config"));
        assert_eq!(err, 0);
        let (data, stat) = body[4..].split_at(text.len());
        assert_eq!(String::from_utf8_lossy(data), text);
        let long = |at: usize| i64::from_be_bytes(stat[at..at + 8].try_into().expect("8 bytes"));
        let int = |at: usize| i32::from_be_bytes(stat[at..at + 4].try_into().expect("4 bytes"));
        assert_eq!([long(0), long(8), long(16)], [0, 0, 0], "czxid, mzxid, ctime");
        assert!(long(24) > 1_700_000_000_000, "mtime: when the server was started");
        assert_eq!([int(32), int(36), int(40)], [-1, 0, -1], "versions");
        assert_eq!(int(52), i32::try_from(text.len()).expect("short"), "length of the data");
        assert_eq!(raw.call(exists("/zookeeper/config")), (0, stat.to_vec().into()));
        assert_eq!(raw.call(set("/zookeeper/config", b"x")).0, -102);
    }
}

#[test]
fn edge_153_local_session_without_upgrading_cannot_own_ephemerals() {
    let ensemble = Ensemble::start("localSessionsEnabled=true");
    for id in 0..3 {
        let (mut raw, _) = Raw::open(ensemble.server(id).port, 10_000);
        let (mine, plain) = (format!("/mine{id}"), format!("/plain{id}"));
        assert_eq!(raw.call(create(&mine, b"", 1)).0, -120, "{}", ensemble.logs());
        assert_eq!(raw.call(exists(&mine)).0, -101);
        assert_eq!(raw.call(create(&plain, b"", 0)).0, 0, "all else goes on");
    }
}

/// SESS-14, SESS-15.
#[test]
fn edge_154_local_session_is_upgraded_by_its_first_ephemeral() {
    let ensemble = Ensemble::start("localSessionsEnabled=true\nlocalSessionsUpgradingEnabled=true");
    let count = |id, kind: &str| {
        let mntr = ask(ensemble.server(id), "mntr");
        let line =
            mntr.lines().find_map(|line| line.strip_prefix(&format!("zk_{kind}_sessions\t")));
        line.expect("is there").to_owned()
    };
    for id in 0..3 {
        let (here, there) = (ensemble.server(id), ensemble.server((id + 1) % 3));
        let (mut raw, known) = Raw::open(here.port, 10_000);
        assert_eq!(raw.call(create(&format!("/plain{id}"), b"", 0)).0, 0);
        assert_eq!([count(id, "local"), count(id, "global")], ["1", "0"]);
        let dump = ask(here, "dump");
        assert!(dump.contains("\nLocal Session Sets (1)/(1):\n"), "{dump}");
        let (_, elsewhere) = Raw::resume(there.port, &known);
        assert_eq!(elsewhere.session, SessionId(0), "edge 154");
        let (mut raw, same) = Raw::resume(here.port, &known);
        assert_eq!(same.session, known.session);
        assert_eq!(raw.call(create(&format!("/mine{id}"), b"", 1)).0, 0, "{}", ensemble.logs());
        assert_eq!([count(id, "local"), count(id, "global")], ["0", "1"]);
        let (mut raw, elsewhere) = Raw::resume(there.port, &known);
        assert_eq!(elsewhere.session, known.session);
        assert_eq!(raw.call(Request::CloseSession).0, 0);
        ensemble.eventually("the end of the session", || count(id, "global") == "0");
    }
}

#[test]
fn ensemble_works_on_ipv6() {
    let mut ensemble = Ensemble::prepare("[::1]", "");
    (0..3).for_each(|id| ensemble.boot(id));
    (0..3).for_each(|id| ensemble.await_serving(id));
    check_replicated(&ensemble);
}

#[test]
fn every_acknowledged_write_survives_kill_9_of_the_leader_under_load() {
    let mut ensemble = Ensemble::start("snapCount=20000\npreAllocSize=1024");
    let mut acknowledged = Vec::new();
    for _ in 0..3 {
        let writers = Writers::start(&ensemble, 6);
        writers.await_more(&ensemble, 3_000);
        let leader = ensemble.leader();
        ensemble.kill(leader);
        writers.await_more(&ensemble, 3_000);
        acknowledged.extend(writers.stop());
        for survivor in ensemble.up() {
            check_all_there(ensemble.server(survivor), &acknowledged);
        }
        ensemble.boot(leader);
        ensemble.await_serving(leader);
        check_all_there(ensemble.server(leader), &acknowledged);
    }
}

#[test]
fn writes_continue_after_kill_9_of_a_follower() {
    let mut ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let follower = (leader + 1) % 3;
    let writers = Writers::start(&ensemble, 6);
    writers.await_more(&ensemble, 2_000);
    ensemble.kill(follower);
    writers.await_more(&ensemble, 5_000);
    assert_eq!(ensemble.leader(), leader, "its leader and the other one are a quorum");
    ensemble.boot(follower);
    ensemble.await_serving(follower);
    let acknowledged = writers.stop();
    (0..3).for_each(|id| check_all_there(ensemble.server(id), &acknowledged));
}

#[test]
fn rolling_restart_under_load_loses_no_acknowledged_write() {
    let mut ensemble = Ensemble::start("");
    let writers = Writers::start(&ensemble, 6);
    for id in 0..3 {
        writers.await_more(&ensemble, 1_000);
        ensemble.terminate(id);
        writers.await_more(&ensemble, 1_000);
        ensemble.boot(id);
        ensemble.await_serving(id);
    }
    writers.await_more(&ensemble, 1_000);
    let acknowledged = writers.stop();
    (0..3).for_each(|id| check_all_there(ensemble.server(id), &acknowledged));
}

/// Creates `count` nodes with one client.
fn create_many(port: u16, directory: &str, count: usize) -> Vec<String> {
    let (mut raw, _) = Raw::open(port, 10_000);
    assert_eq!(raw.call(create(directory, b"", 0)).0, 0);
    let paths: Vec<String> = (0..count).map(|i| format!("{directory}/{i}")).collect();
    for chunk in paths.chunks(500) {
        let mut bytes = BytesMut::new();
        for path in chunk {
            raw.encode(create(path, path.as_bytes(), 0), &mut bytes);
        }
        raw.socket.write_all(&bytes).expect("writes");
        for path in chunk {
            assert_eq!(raw.reply().expect("is answered").1, 0, "{path}");
        }
    }
    paths
}

#[test]
fn server_catches_up_after_100_000_missed_writes() {
    let mut ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let away = (leader + 1) % 3;
    ensemble.kill(away);
    let paths = create_many(ensemble.server(leader).port, "/many", 100_000);
    ensemble.boot(away);
    ensemble.await_serving(away);
    check_all_there(ensemble.server(away), &paths);
    check_replicated(&ensemble);
}

/// The oldest log segment; names sort in the order of their transactions.
fn oldest_log(folder: &Path) -> Option<String> {
    let names = std::fs::read_dir(folder)
        .expect("is there")
        .map(|entry| entry.expect("can be read").file_name().into_string().expect("is text"));
    names.filter(|name| name.starts_with("log")).min()
}

#[test]
fn wiped_server_is_synchronized_by_snapshot_under_load() {
    let mut ensemble = Ensemble::start("snapCount=2000\npreAllocSize=64");
    let leader = ensemble.leader();
    let oldest = || oldest_log(&ensemble.folder(leader));
    let first = oldest();
    let mut paths = create_many(ensemble.server(leader).port, "/many", 20_000);
    // Once the first segment is purged, a server with an erased disk needs a snapshot.
    eventually("the first log to be purged", || oldest() > first);
    let wiped = (leader + 1) % 3;
    ensemble.kill(wiped);
    std::fs::remove_dir_all(ensemble.folder(wiped)).expect("was there");
    let writers = Writers::start(&ensemble, 3);
    writers.await_more(&ensemble, 500);
    ensemble.boot(wiped);
    ensemble.await_serving(wiped);
    writers.await_more(&ensemble, 500);
    paths.extend(writers.stop());
    check_all_there(ensemble.server(wiped), &paths);
    // The received data must be durable.
    ensemble.kill(wiped);
    ensemble.boot(wiped);
    ensemble.await_serving(wiped);
    check_all_there(ensemble.server(wiped), &paths);
}

/// The other members have its acknowledged writes; its damaged files are kept under other names.
#[test]
fn member_with_damaged_log_sets_it_aside_and_is_synchronized() {
    let mut ensemble = Ensemble::start("");
    let victim = (ensemble.leader() + 1) % 3;
    let (mut raw, _) = Raw::open(ensemble.server(victim).port, 10_000);
    let paths: Vec<String> = (0..20).map(|number| format!("/kept{number}")).collect();
    for path in &paths {
        assert_eq!(raw.call(create(path, path.as_bytes(), 0)).0, 0);
    }
    ensemble.terminate(victim);
    let folder = ensemble.folder(victim);
    change_last_batch(&folder, |bytes, batch| bytes[batch + 60] ^= 1);
    ensemble.boot(victim);
    ensemble.await_serving(victim);
    check_all_there(ensemble.server(victim), &paths);
    ensemble.server(victim).await_line(&[&"ERROR", &" is damaged: "]);
    ensemble.server(victim).await_line(&[&"WARN", &"set aside as state.damaged, log."]);
    assert!(folder.join("state.damaged").exists());
    // After its synchronization the server counts for a quorum with one other server.
    ensemble.kill((victim + 1) % 3);
    ensemble.await_serving(victim);
    check_all_there(ensemble.server(victim), &paths);
}

#[test]
fn wiped_server_does_not_vote_with_its_empty_log() {
    let mut ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let (wiped, without_news) = ((leader + 1) % 3, (leader + 2) % 3);
    ensemble.kill(without_news);
    // The leader and the server whose disk is erased next acknowledge these writes.
    let paths = create_many(ensemble.server(leader).port, "/kept", 100);
    ensemble.kill(wiped);
    ensemble.kill(leader);
    std::fs::remove_dir_all(ensemble.folder(wiped)).expect("was there");
    ensemble.boot(wiped);
    ensemble.boot(without_news);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(4) {
        for id in ensemble.up() {
            assert_eq!(
                ensemble.mode(id),
                None,
                "nobody knows the newest writes: {}",
                ensemble.logs()
            );
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    ensemble.boot(leader);
    (0..3).for_each(|id| ensemble.await_serving(id));
    (0..3).for_each(|id| check_all_there(ensemble.server(id), &paths));
}

#[test]
fn suspended_leader_is_replaced_within_sync_limit_and_then_follows() {
    let ensemble = Ensemble::start(SHORT_TICK);
    let stopped = ensemble.leader();
    let others: Vec<usize> = (0..3).filter(|id| *id != stopped).collect();
    let paths = create_many(ensemble.server(stopped).port, "/before", 100);
    ensemble.server(stopped).signal("STOP");
    let began = Instant::now();
    // One of the two may follow the old leader for a while.
    let leader = ensemble.await_leader_among(&others);
    let taken = began.elapsed();
    // `syncLimit` is 1.5 s; the rest allows for the election and a loaded machine.
    assert!(taken < Duration::from_secs(6), "{taken:?}\n{}", ensemble.logs());
    let (mut client, _) = Raw::open(ensemble.server(leader).port, 10_000);
    assert_eq!(client.call(set("/before/0", b"/before/0")).0, 0);
    let later = create_many(ensemble.server(leader).port, "/later", 100);
    ensemble.server(stopped).signal("CONT");
    ensemble.eventually("the old leader to follow", || {
        ensemble.mode(stopped).as_deref() == Some("follower")
    });
    for id in 0..3 {
        check_all_there(ensemble.server(id), &paths);
        check_all_there(ensemble.server(id), &later);
    }
    assert_eq!(ensemble.leader(), leader, "nobody is disturbed by its return");
}

#[test]
fn invalid_bytes_on_peer_ports_do_not_disturb_the_ensemble() {
    let ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let elections = |id| ensemble.server(id).log().matches("looks for a leader").count();
    let before: Vec<usize> = (0..3).map(elections).collect();
    let (mut client, _) = Raw::open(ensemble.server((leader + 1) % 3).port, 4_000);
    let mut silent = Vec::new();
    for round in 0..20 {
        for [_, quorum, election] in &ensemble.ports {
            for port in [*quorum, *election] {
                let connect = || TcpStream::connect(("127.0.0.1", port)).expect("connects");
                silent.push(connect());
                let mut garbage = connect();
                garbage.write_all(&[round; 64]).expect("writes");
                let mut client_at_the_wrong_port = connect();
                client_at_the_wrong_port.write_all(b"srvr").expect("writes");
                silent.push(client_at_the_wrong_port);
                let mut end = Vec::new();
                garbage.set_read_timeout(Some(Duration::from_secs(10))).expect("is a duration");
                // The end of the connection is a close, or a reset because of unread bytes.
                let _closed = garbage.read_to_end(&mut end);
                assert!(end.is_empty(), "strangers are told nothing");
            }
        }
        let path = format!("/r{round}");
        assert_eq!(client.call(create(&path, b"", 0)).0, 0);
    }
    ensemble.server(leader).await_line(&[
        &"WARN",
        &"closed the connection from",
        &"not a Zabkeeper server",
    ]);
    assert_eq!((0..3).map(elections).collect::<Vec<_>>(), before, "{}", ensemble.logs());
    assert_eq!(ensemble.leader(), leader);
}

/// Kills, stops, suspends or wipes one server at a time, under load.
#[test]
fn repeated_faults_under_load_lose_no_acknowledged_write_of_ensemble() {
    let mut ensemble = Ensemble::start(&format!("snapCount=3000\npreAllocSize=64\n{SHORT_TICK}"));
    let writers = Writers::start(&ensemble, 6);
    for round in 0..9 {
        writers.await_more(&ensemble, 300);
        let leader = ensemble.leader();
        // The leader in every second round, otherwise each of the others in turn.
        let victim = if round % 2 == 0 { leader } else { (leader + 1 + round / 2 % 2) % 3 };
        match round % 3 {
            0 => ensemble.kill(victim),
            1 => ensemble.terminate(victim),
            _ => {
                ensemble.server(victim).signal("STOP");
                writers.await_more(&ensemble, 300);
                ensemble.server(victim).signal("CONT");
                ensemble.await_serving(victim);
                continue;
            }
        }
        if round % 4 == 3 {
            std::fs::remove_dir_all(ensemble.folder(victim)).expect("was there");
        }
        writers.await_more(&ensemble, 300);
        ensemble.boot(victim);
        ensemble.await_serving(victim);
    }
    let acknowledged = writers.stop();
    for id in 0..3 {
        ensemble.await_serving(id);
        check_all_there(ensemble.server(id), &acknowledged);
    }
}

/// The log lines that explain a lost lock or a pause in service.
#[test]
fn expired_sessions_and_lost_leaders_are_logged_with_reason() {
    let mut ensemble = Ensemble::start("tickTime=300\ninitLimit=20\nsyncLimit=10");
    let leader = ensemble.leader();
    let elsewhere = (0..3).find(|id| *id != leader).expect("there are three");
    let (silent, session) = Raw::open(ensemble.ports[elsewhere][0], 1_000);
    let id = session.session;
    ensemble.server(leader).await_line(&[
        &format!("session {id} expires: it sent nothing for "),
        &"its timeout is 1000 ms; its client was connected to server ",
    ]);
    let address = silent.address();
    ensemble
        .server(elsewhere)
        .await_line(&[&format!("session {id} has expired"), &format!(" from {address}")]);
    ensemble.kill(leader);
    for id in ensemble.up() {
        ensemble.server(id).await_line(&[&format!("leaves leader {leader}: ")]);
    }
}
