//! The admin server, as tools ask it: over HTTP, of the binary.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use serde_json::Value;
use zabkeeper_core::driver::admin::AdminCommand;
use zabkeeper_core::wire::{Acl, Perms, Request, Secret};

use crate::four_letter;
use crate::harness::{Server, command, configure, eventually, free_port};
use crate::raw::{Raw, create};

/// Sends a request and returns status line with headers, and content.
fn http(port: u16, head: &str) -> (String, String) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is not zero");
    let request = format!("{head} HTTP/1.0\r\nHost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, content) = answer.split_once("\r\n\r\n").expect("has a head");
    (head.to_owned(), content.to_owned())
}

/// The answer to a command as JSON.
fn ask(port: u16, command: &str) -> Value {
    let (head, content) = http(port, &format!("GET /commands/{command}"));
    assert!(head.starts_with("HTTP/1.0 200 "), "{command}: {head}");
    serde_json::from_str(&content).unwrap_or_else(|error| panic!("{command}: {error}: {content}"))
}

/// A server with an admin server, and the port of the latter.
fn start(dir: &Path, settings: &str) -> (Server, u16) {
    let port = free_port();
    let settings = format!(
        "{settings}\nadmin.serverPort={port}\nadmin.serverAddress=127.0.0.1\n4lw.commands.whitelist=*"
    );
    (Server::start(dir, &settings), port)
}

/// ADMIN-01, ADMIN-02.
#[test]
fn every_command_is_linked_and_answers_with_its_name() {
    let dir = tempfile::tempdir().expect("creates");
    let (_server, port) = start(dir.path(), "");
    let (_, links) = http(port, "GET /commands");
    let names: Vec<&str> = links
        .lines()
        .filter_map(|line| line.strip_prefix("<a href=\"/commands/")?.split_once('"'))
        .map(|(name, _)| name)
        .collect();
    assert_eq!(names.len(), AdminCommand::all().count());
    for name in names {
        let answer = ask(port, name);
        assert_eq!(answer["command"], name);
        let expected = match name {
            "leader" => Value::from("server is not initialized"),
            "set_trace_mask" => Value::from("setTraceMask requires long traceMask argument"),
            _ => Value::Null,
        };
        assert_eq!(answer["error"], expected, "{name}");
    }
    assert_eq!(ask(port, "nope")["error"], "Unknown command: nope");
    assert_eq!(
        ask(port, "stmk?traceMask=x")["error"].as_str().map(|what| what.ends_with(", got x")),
        Some(true)
    );
    assert_eq!(ask(port, "stmk?traceMask=12")["tracemask"], 12);
    assert_eq!(ask(port, "gtmk")["tracemask"], 12);
}

/// ADMIN-01.
#[test]
fn methods_other_than_get_are_refused() {
    let dir = tempfile::tempdir().expect("creates");
    let (_server, port) = start(dir.path(), "");
    for (method, status) in
        [("TRACE", "403"), ("PUT", "405"), ("DELETE", "405"), ("POST", "405"), ("OPTIONS", "200")]
    {
        let (head, content) = http(port, &format!("{method} /commands/ruok"));
        assert!(head.starts_with(&format!("HTTP/1.0 {status} ")), "{method}: {head}");
        assert_eq!(content, "");
    }
    let (head, content) = http(port, "HEAD /commands/ruok");
    assert!(head.starts_with("HTTP/1.0 200 ") && content.is_empty(), "{head}");
    assert!(http(port, "GET /nope").0.starts_with("HTTP/1.0 404 "));
}

/// ADMIN-07, ADMIN-10, ADMIN-30: what a client has is in the answers.
#[test]
fn answers_show_connections_watches_and_ephemeral_nodes() {
    let dir = tempfile::tempdir().expect("creates");
    let (server, port) = start(dir.path(), "");
    let (mut client, opened) = Raw::open(server.port, 30_000);
    client.call(create("/e", b"", 1));
    client.call(Request::Exists { path: "/e".into(), watch: true });
    let session = opened.session.0;
    let connections = ask(port, "cons");
    let [connection] = &connections["connections"].as_array().expect("a list")[..] else {
        panic!("{connections}");
    };
    assert_eq!(connection["session_id"], session);
    assert_eq!(connection["last_operation"], "EXIS");
    assert_eq!(connection["remote_socket_address"], client.address().to_string());
    let dump = ask(port, "dump");
    assert_eq!(dump["session_id_to_ephemeral_paths"][session.to_string()][0], "/e");
    let expiries = dump["expiry_time_to_session_ids"].as_object().expect("an object");
    assert_eq!(expiries.values().collect::<Vec<_>>(), [&Value::from(vec![session])]);
    assert_eq!(ask(port, "wchc")["session_id_to_watched_paths"][session.to_string()][0], "/e");
    assert_eq!(ask(port, "wchp")["path_to_session_ids"]["/e"][0], session);
    assert_eq!(ask(port, "wchs")["num_total_watches"], 1);
}

/// ADMIN-17: the metrics are those of `mntr`.
#[test]
fn monitor_has_the_names_of_mntr() {
    let dir = tempfile::tempdir().expect("creates");
    let (server, port) = start(dir.path(), "");
    let mntr = four_letter::ask(&server, "mntr");
    let monitor = ask(port, "monitor");
    for line in mntr.lines() {
        let name = line.split_once('\t').and_then(|(name, _)| name.strip_prefix("zk_"));
        let name = name.unwrap_or_else(|| panic!("{line}"));
        assert!(monitor.get(name).is_some(), "{name}");
    }
    assert!(monitor["znode_count"].is_number() && monitor["server_state"] == "standalone");
}

/// ADMIN-13, ADMIN-28: nobody has to authenticate for them.
#[test]
fn secrets_are_hidden() {
    let dir = tempfile::tempdir().expect("creates");
    let digest = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";
    let settings = format!("DigestAuthenticationProvider.superDigest={digest}");
    let (_server, port) = start(dir.path(), &settings);
    let text = ask(port, "icfg")["initial_configuration"].to_string();
    assert!(text.contains("tickTime=2000") && !text.contains(digest), "{text}");
}

/// Several servers on one machine: the first one has the port, and all serve.
#[test]
fn busy_port_does_not_keep_a_server_from_serving() {
    let holder = std::net::TcpListener::bind(("127.0.0.1", 0)).expect("binds");
    let port = holder.local_addr().expect("is bound").port();
    let dir = tempfile::tempdir().expect("creates");
    let settings = format!("admin.serverPort={port}\nadmin.serverAddress=127.0.0.1");
    let server = Server::start(dir.path(), &settings);
    server.await_line(&[&"the admin server is off", &port]);
    Raw::open(server.port, 30_000);
}

/// A requester that stops reading costs nobody else anything.
#[test]
fn slow_reader_of_a_long_answer_does_not_block_others() {
    let dir = tempfile::tempdir().expect("creates");
    let (server, port) = start(dir.path(), "admin.idleTimeout=60000");
    let (mut client, _) = Raw::open(server.port, 60_000);
    for number in 0..20_000 {
        client.send(Request::Exists { path: format!("/{}{number}", "x".repeat(200)), watch: true });
    }
    for _ in 0..20_000 {
        client.reply().expect("an answer");
    }
    let mut slow = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    slow.write_all(b"GET /commands/watches HTTP/1.1\r\nHost: x\r\n\r\n").expect("it reads");
    for _ in 0..3 {
        assert_eq!(ask(port, "ruok")["error"], Value::Null);
    }
    assert_eq!(ask(port, "wchs")["num_total_watches"], 20_000);
    let watches = ask(port, "wchp");
    assert_eq!(watches["path_to_session_ids"].as_object().map(serde_json::Map::len), Some(20_000));
}

/// A member of an ensemble names its leader and the voters (ADMIN-16, ADMIN-29, ADMIN-33), and
/// one that has no quorum is alive and not ready.
#[test]
fn readiness_follows_the_quorum() {
    let dir = tempfile::tempdir().expect("creates");
    std::fs::create_dir_all(dir.path().join("data")).expect("creates");
    std::fs::write(dir.path().join("data/myid"), "1\n").expect("writes");
    let peers: Vec<u16> = (0..6).map(|_| free_port()).collect();
    let lines: Vec<String> = (0..3)
        .map(|at| format!("server.{}=127.0.0.1:{}:{}", at + 1, peers[2 * at], peers[2 * at + 1]))
        .collect();
    let admin = free_port();
    let settings = format!(
        "initLimit=10\nsyncLimit=5\nadmin.serverPort={admin}\nadmin.serverAddress=127.0.0.1\n{}",
        lines.join("\n")
    );
    let port = free_port();
    let file = configure(port, dir.path(), &settings);
    let _server = Server::spawn(command(&file), port);
    eventually("the admin server answers", || TcpStream::connect(("127.0.0.1", admin)).is_ok());
    assert!(http(admin, "GET /live").0.starts_with("HTTP/1.0 200 "));
    let (head, why) = http(admin, "GET /ready");
    assert!(head.starts_with("HTTP/1.0 503 "), "{head}");
    assert_eq!(why, "This ZooKeeper instance is not currently serving requests\n");
    assert_eq!(ask(admin, "zabstate")["error"], why.trim_end());
    assert_eq!(ask(admin, "env")["error"], Value::Null);
}

/// The answer to what the page asks for, with or without identity.
fn api(port: u16, url: &str, auth: Option<&str>) -> (String, Value) {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(20))).expect("is not zero");
    let auth = auth.map_or_else(String::new, |auth| format!("Authorization: {auth}\r\n"));
    let request = format!("GET /api/{url} HTTP/1.0\r\nHost: localhost\r\n{auth}\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers");
    let (head, content) = answer.split_once("\r\n\r\n").expect("has a head");
    let status = head.split(' ').nth(1).expect("has a status").to_owned();
    (status, serde_json::from_str(content).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

/// `super:secret`.
const SUPER: &str = "DigestAuthenticationProvider.superDigest=super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// ADMIN-03: what clients have is shown to superusers, and to identities to which the list of `/`
/// grants everything; what that list grants to everybody does not count.
#[test]
fn page_shows_nodes_and_sessions_to_operators_only() {
    let dir = tempfile::tempdir().expect("creates");
    let (server, port) = start(dir.path(), SUPER);
    let (mut client, opened) = Raw::open(server.port, 30_000);
    client.call(create("/e", b"data", 1));
    client.call(Request::Exists { path: "/e".into(), watch: true });
    for url in ["sessions", "top", "watches", "tree?path=/"] {
        for (auth, status) in [
            (None, "401"),
            (Some("digest"), "401"),
            (Some("nope x"), "401"),
            (Some("digest nobody:x"), "403"),
            (Some("digest super:wrong"), "403"),
            (Some("ip"), "403"),
            (Some("digest super:secret"), "200"),
        ] {
            let (answered, value) = api(port, url, auth);
            assert_eq!(answered, status, "{url} {auth:?}: {value}");
            assert_eq!(value["what_to_do"].is_string(), status != "200", "{value}");
        }
    }
    let operator = Some("digest super:secret");
    let (_, sessions) = api(port, "sessions", operator);
    assert_eq!(sessions["sessions"][0]["id"], opened.session.to_string());
    assert_eq!(sessions["sessions"][0]["address"], client.address().to_string());
    let (_, watches) = api(port, "watches", operator);
    assert_eq!(watches["watches"][0]["path"], "/e");
    let (_, node) = api(port, "tree?path=%2Fe", operator);
    assert_eq!(node["data_text"], "data");
    assert_eq!(node["stat"]["ephemeral_owner"], opened.session.to_string());
    assert_eq!(api(port, "tree?path=/none", operator).0, "404");
    // An operator by the list of `/`, whom a node's own list may still refuse.
    let acl = |scheme: &str, id: &str, perms| Acl {
        perms: Perms(perms),
        scheme: scheme.to_owned(),
        id: id.to_owned(),
    };
    client.send(Request::Auth { scheme: "digest".to_owned(), auth: Secret(Some("ops:pw".into())) });
    client.reply().expect("an answer");
    let all = vec![acl("world", "anyone", 31), acl("auth", "", 31)];
    let set = |path: &str, list| Request::SetAcl { path: path.to_owned(), acl: list, version: -1 };
    client.call(set("/", all));
    client.call(set("/e", vec![acl("digest", "other:x", 31)]));
    let ops = Some("digest ops:pw");
    assert_eq!(api(port, "tree?path=/", ops).0, "200");
    assert_eq!(api(port, "tree?path=/e", ops).0, "403");
    assert_eq!(api(port, "tree?path=/e", operator).0, "200");
}

#[test]
fn page_shows_the_state_of_the_server_and_its_history() {
    let dir = tempfile::tempdir().expect("creates");
    let (server, port) = start(dir.path(), "");
    let (_client, opened) = Raw::open(server.port, 30_000);
    let (head, page) = http(port, "GET /");
    assert!(head.contains("content-security-policy: default-src 'none'"), "{head}");
    assert!(page.to_ascii_lowercase().starts_with("<!doctype html>"));
    let (status, overview) = api(port, "overview", None);
    assert_eq!((&*status, &overview["mode"]), ("200", &Value::from("standalone")));
    assert_eq!(overview["counts"]["sessions"], 1);
    assert!(overview["disk"]["free_bytes"].as_u64() > Some(0));
    eventually("two samples", || {
        let (_, history) = api(port, "history", None);
        history["time_ms"].as_array().is_some_and(|times| times.len() >= 2)
    });
    let (_, explained) =
        api(port, &format!("explain?question=session&id={}", opened.session), None);
    let answer = explained["answer"].as_str().expect("a text");
    assert!(answer.contains("is alive"), "{answer}");
    assert_eq!(api(port, "explain?question=nothing", None).0, "400");
    let admin = format!("127.0.0.1:{port}");
    let explain = |words: &[&str]| {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_zabkeeper"));
        let output = command.arg("explain").args(words).args(["--admin", &admin]).output();
        let output = output.expect("it runs");
        (output.status.code(), String::from_utf8(output.stdout).expect("text"))
    };
    assert_eq!(explain(&["serving"]), (Some(0), "this server serves clients\n".to_owned()));
    let (status, text) = explain(&["session", &opened.session.to_string()]);
    assert!(status == Some(0) && text.contains("is alive"), "{text}");
    assert_eq!(explain(&["session", "0x1&x=2"]).0, Some(2));
}
