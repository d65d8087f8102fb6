//! Metrics of running servers: the page for Prometheus, and `mntr` of an ensemble.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;

use tempfile::tempdir;

use crate::four_letter::{ask, try_ask};
use crate::harness::{PATIENCE, Server, eventually, free_port};
use crate::members::Ensemble;
use crate::raw::{Raw, create, get, set};

const PROMETHEUS: &str = "metricsProvider.className=org.apache.zookeeper.metrics.prometheus.\
                          PrometheusMetricsProvider\nmetricsProvider.httpHost=127.0.0.1\n\
                          metricsProvider.exportJvmInfo=false";

/// Head and body of the answer to a request; the server closes the connection after it.
fn http(port: u16, request: &str) -> (String, String) {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).expect("listens");
    socket.set_read_timeout(Some(PATIENCE)).expect("is set");
    write!(socket, "{request} HTTP/1.1\r\nHost: here\r\nConnection: close\r\n\r\n").expect("sends");
    let mut answer = String::new();
    socket.read_to_string(&mut answer).expect("answers");
    let (head, body) = answer.split_once("\r\n\r\n").expect("has a head");
    (head.to_owned(), body.to_owned())
}

/// Name and labels of each sample, with its value.
fn samples(page: &str) -> BTreeMap<&str, f64> {
    let lines = page.lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.rsplit_once(' ').expect("has a value");
            (name, value.parse().expect("is a number"))
        })
        .collect()
}

/// METRIC-03.
#[test]
fn prometheus_reads_the_metrics_of_a_server() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let settings =
        format!("4lw.commands.whitelist=*\n{PROMETHEUS}\nmetricsProvider.httpPort={port}");
    let server = Server::start(dir.path(), &settings);
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/app", b"12345", 0)).0, 0);
    assert_eq!(client.call(create("/app/node", b"", 0)).0, 0);
    for _ in 0..3 {
        assert_eq!(client.call(get("/app")).0, 0);
    }
    let (head, page) = http(port, "GET /metrics");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    let format = "content-type: text/plain; version=0.0.4; charset=utf-8";
    assert!(head.to_lowercase().contains(format), "{head}");
    let found = samples(&page);
    for (name, value) in [
        ("znode_count", 7.0),
        ("global_sessions", 1.0),
        ("readlatency_count", 3.0),
        // The session, and the two nodes.
        ("updatelatency_count", 3.0),
        ("propagation_latency_count", 3.0),
        ("read_per_namespace_count{key=\"app\"}", 3.0),
        // The path, the data, and what ZooKeeper adds for the Stat.
        ("read_per_namespace_sum{key=\"app\"}", 3.0 * (4.0 + 5.0 + 68.0)),
        ("write_per_namespace_count{key=\"app\"}", 2.0),
        ("write_per_namespace_sum{key=\"app\"}", 9.0 + 9.0),
        ("startup_txns_loaded_count", 1.0),
        ("looking_count", 0.0),
    ] {
        assert_eq!(found.get(name), Some(&value), "{name}: {page}");
    }
    assert!(found["fsynctime_count"] >= 3.0 && found["fsynctime_sum"] > 0.0, "{page}");
    assert!(found["readlatency{quantile=\"0.99\"}"] > 0.0, "{page}");

    assert!(http(port, "GET /").0.starts_with("HTTP/1.1 404 "));
    assert!(http(port, "POST /metrics").0.starts_with("HTTP/1.1 405 "));
    let (head, body) = http(port, "HEAD /metrics");
    assert!(head.starts_with("HTTP/1.1 200 ") && body.is_empty(), "{head}");
    assert!(ask(&server, "mntr").contains("zk_cnt_readlatency\t3\n"));
    let (status, log) = server.terminate();
    assert!(status.success(), "{log}");
    assert!(TcpStream::connect(("127.0.0.1", port)).is_err(), "the port is closed");
}

/// METRIC-06, METRIC-09, METRIC-10, METRIC-12.
#[test]
fn servers_of_an_ensemble_count_what_they_do() {
    let ensemble = Ensemble::start("");
    let leader = ensemble.leader();
    let follower = (0..3).find(|id| *id != leader).expect("there are two");
    let (mut client, _) = Raw::open(ensemble.server(follower).port, 10_000);
    assert_eq!(client.call(create("/app", b"", 0)).0, 0);
    for _ in 0..20 {
        assert_eq!(client.call(set("/app", b"data")).0, 0);
    }
    let figures = |id: usize| -> BTreeMap<String, f64> {
        let text = try_ask(ensemble.server(id).port, "mntr").expect("is answered");
        let pairs = text.lines().filter_map(|line| line.strip_prefix("zk_")?.split_once('\t'));
        pairs.filter_map(|(name, value)| Some((name.to_owned(), value.parse().ok()?))).collect()
    };
    eventually("both followers have acknowledged", || {
        let found = figures(leader);
        (0..3).filter(|id| *id != leader).all(|id| {
            found.get(&format!("cnt_{id}_ack_latency")).is_some_and(|count| *count >= 1.0)
        })
    });
    let (of_leader, of_follower) = (figures(leader), figures(follower));
    for name in ["cnt_election_time", "looking_count", "cnt_unavailable_time"] {
        assert!(of_leader[name] >= 1.0 && of_follower[name] >= 1.0, "{name}");
    }
    // The session, the node, and the changes.
    for name in ["commit_count", "proposal_count", "cnt_quorum_ack_latency"] {
        assert_eq!(of_leader[name], 22.0, "{name}");
        assert_eq!(of_follower[name], 0.0, "{name}");
    }
    assert_eq!(of_leader["diff_count"] + of_leader["snap_count"], 2.0);
    assert_eq!(of_leader["cnt_leader_unavailable_time"], 1.0);
    assert_eq!(of_follower["cnt_follower_sync_time"], 1.0);
    assert_eq!(of_follower["learner_proposal_received_count"], 22.0);
    assert!(of_follower["learner_commit_received_count"] >= 1.0);
    assert_eq!(of_follower["cnt_commit_propagation_latency"], 22.0);
    assert_eq!(of_follower["cnt_proposal_ack_creation_latency"], 22.0);
    assert_eq!(of_follower["cnt_updatelatency"], 22.0);
    assert_eq!(of_follower["cnt_app_write_per_namespace"], 21.0);
    assert_eq!(of_leader["cnt_app_write_per_namespace"], 21.0);
    assert!(of_follower["cnt_fsynctime"] >= 1.0);
}

/// METRIC-03.
#[test]
fn server_does_not_start_without_the_port_for_its_metrics() {
    let (dir, taken) = (tempdir().expect("creates"), std::net::TcpListener::bind("127.0.0.1:0"));
    let taken = taken.expect("binds");
    let port = taken.local_addr().expect("has one").port();
    let settings = format!("{PROMETHEUS}\nmetricsProvider.httpPort={port}");
    let path = crate::harness::configure(free_port(), dir.path(), &settings);
    let (status, log) = crate::harness::refused(&path);
    assert_eq!(status, Some(1), "{log}");
    assert!(log.contains("as metricsProvider.httpPort says"), "{log}");
}
