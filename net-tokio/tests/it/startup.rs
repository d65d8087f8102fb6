//! Start, refused starts, and stop of a server.

use std::net::TcpListener;
use std::thread;
use std::time::Duration;

use tempfile::tempdir;

use crate::four_letter::{ask, try_ask};
use crate::harness::{Server, command, configure, free_port, refused};
use crate::raw::{Raw, create, get};

#[test]
fn sigterm_exits_with_0_and_data_survives() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/kept", b"value", 0)).0, 0);
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("stopped"), "{log}");
    assert!(client.is_closed());

    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 10_000);
    let (err, body) = client.call(get("/kept"));
    assert_eq!((err, &body[4..9]), (0, &b"value"[..]));
}

#[test]
fn acknowledged_writes_survive_sigterm_under_load() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let acknowledged = crate::crash::write_until_the_end(&server, 4, || {});
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
    let acknowledged = acknowledged.join();
    let server = Server::start(dir.path(), "");
    crate::crash::check_all_there(&server, &acknowledged);
}

#[test]
fn port_in_use_is_status_1() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = taken.local_addr().expect("is bound").port();
    let dir = tempdir().expect("creates");
    let (code, text) = refused(&configure(port, dir.path(), ""));
    assert_eq!(code, Some(1));
    let expected =
        format!("cannot listen on 127.0.0.1:{port}, as clientPort says: Address already in use");
    assert!(text.contains(&expected), "{text}");
}

#[test]
fn server_waits_for_a_port_that_is_briefly_in_use() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = taken.local_addr().expect("is bound").port();
    let freed = thread::spawn(move || {
        thread::sleep(Duration::from_millis(300));
        drop(taken);
    });
    let dir = tempdir().expect("creates");
    let server = Server::start_on(port, dir.path(), "");
    assert!(ask(&server, "srvr").contains("Mode: standalone"));
    freed.join().expect("sleeps only");
}

#[test]
fn port_0_selects_a_free_port_that_first_line_names() {
    let dir = tempdir().expect("creates");
    let file = configure(0, dir.path(), "4lw.commands.whitelist=*");
    let mut server = Server::spawn(command(&file), 0);
    let line = server.first_line();
    let address =
        line.strip_prefix("Zabkeeper listens on ").and_then(|line| line.split_once(": try "));
    let address = address.expect("says where").0;
    let port: u16 =
        address.strip_prefix("127.0.0.1:").expect("on loopback").parse().expect("a port");
    let conf = try_ask(port, "conf").expect("is answered");
    assert!(conf.starts_with(&format!("clientPort={port}\n")), "{conf}");
}

/// CONF-02: Does nothing on machines without an IPv6 loopback address.
#[test]
fn ipv6_client_address_may_have_brackets() {
    if TcpListener::bind("[::1]:0").is_err() {
        return;
    }
    let dir = tempdir().expect("creates");
    let port = free_port();
    let file = configure(port, dir.path(), "clientPortAddress=[::1]");
    let mut server = Server::spawn(command(&file), port);
    let expected = format!(
        "Zabkeeper listens on [::1]:{port}: try `echo srvr | nc ::1 {port}` or `zkCli.sh -server \
         [::1]:{port}`\n"
    );
    assert_eq!(server.first_line(), expected);
}

#[test]
fn invalid_settings_are_status_2_and_name_the_line() {
    let dir = tempdir().expect("creates");
    for (line, expected) in [
        ("snapCount=many", "zoo.cfg:5: snapCount=many: not a whole number; use transactions"),
        ("maxCnxns=-2", "zoo.cfg:5: maxCnxns=-2: out of range 0 to 2147483647; use a"),
        ("server.1=a:1:2\nserver.2=b:1", "zoo.cfg:6: server.2=b:1: write server.N=host:2888:3888"),
    ] {
        let (code, text) = refused(&configure(free_port(), dir.path(), line));
        assert_eq!(code, Some(2), "{text}");
        assert!(text.contains(expected), "{text}");
    }
    let (code, text) = refused("/nowhere/zoo.cfg");
    assert_eq!(code, Some(2));
    assert!(text.contains("/nowhere/zoo.cfg: cannot be read"), "{text}");
    let (code, text) = refused("--prot");
    assert_eq!(code, Some(2));
    assert!(text.contains("unknown option --prot"), "{text}");
}

#[test]
fn settings_without_effect_are_warnings() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "secureClientPort=2281\ntickTimes=1");
    server.await_line(&[&"WARN", &"zoo.cfg:5: secureClientPort=2281: has no effect yet"]);
    server.await_line(&[&"WARN", &"zoo.cfg:6: tickTimes=1: unknown key"]);
}

#[test]
fn data_directory_in_use_or_of_zookeeper_is_status_3() {
    let dir = tempdir().expect("creates");
    let _server = Server::start(dir.path(), "");
    let (code, text) = refused(&configure(free_port(), dir.path(), ""));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("in use by another process"), "{text}");

    let dir = tempdir().expect("creates");
    std::fs::create_dir_all(dir.path().join("data/version-2/log.1")).expect("creates");
    let (code, text) = refused(&configure(free_port(), dir.path(), ""));
    assert_eq!(code, Some(3), "{text}");
    assert!(text.contains("holds data of Apache ZooKeeper"), "{text}");
}

/// `zkServer-initialize.sh` creates this directory, and so do some operators.
#[test]
fn empty_version_2_directory_is_accepted() {
    let dir = tempdir().expect("creates");
    std::fs::create_dir_all(dir.path().join("data/version-2")).expect("creates");
    let server = Server::start(dir.path(), "datadir.autocreate=false");
    assert!(ask(&server, "srvr").contains("Mode: standalone"));
}

/// CONF-33: an unmounted disk must not become an empty server.
#[test]
fn missing_directory_without_autocreate_is_status_3() {
    let dir = tempdir().expect("creates");
    let (data, port) = (dir.path().join("data"), free_port());
    let file = configure(port, dir.path(), "datadir.autocreate=false");
    for exists in [false, true] {
        if exists {
            std::fs::create_dir(&data).expect("creates");
        }
        let (code, text) = refused(&file);
        assert_eq!(code, Some(3), "{text}");
        let expected = format!(
            "there is no folder {}, and datadir.autocreate=false keeps a server from starting \
             empty: mount the \
             disk of dataDir, or create that folder",
            data.join("zabkeeper").display()
        );
        assert!(text.contains(&expected), "{text}");
        assert_eq!(data.exists(), exists, "nothing was made");
    }
    std::fs::create_dir(data.join("zabkeeper")).expect("creates");
    for _ in 0..2 {
        let server = Server::start_on(port, dir.path(), "datadir.autocreate=false");
        assert!(server.terminate().0.success());
    }
}

#[test]
fn directory_that_cannot_be_created_is_status_3_and_names_the_key() {
    let dir = tempdir().expect("creates");
    std::fs::write(dir.path().join("file"), "").expect("writes");
    let line = format!("dataLogDir={}", dir.path().join("file/log").display());
    let (code, text) = refused(&configure(free_port(), dir.path(), &line));
    assert_eq!(code, Some(3), "{text}");
    let expected =
        format!("cannot create or open the folder {}/file/log/zabkeeper: ", dir.path().display());
    assert!(text.contains(&expected), "{text}");
    assert!(
        text.contains("; dataLogDir has to be a folder that this server may write to"),
        "{text}"
    );
}

#[test]
fn help_and_version_are_printed() {
    let (code, text) = refused("--help");
    assert_eq!(code, Some(0));
    assert!(text.contains("Usage: zabkeeper [zoo.cfg]"), "{text}");
    let (code, text) = refused("--version");
    assert_eq!((code, text), (Some(0), format!("zabkeeper {}\n", env!("CARGO_PKG_VERSION"))));
}

/// CONF-30.
#[test]
fn slow_log_writes_are_logged() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "fsync.warningthresholdms=0");
    let (mut client, _) = Raw::open(server.port, 10_000);
    // Every write takes longer than 0 ms.
    for i in 0..50 {
        assert_eq!(client.call(create(&format!("/{i}"), b"", 0)).0, 0);
    }
    let line = "commands to the log (fsync.warningthresholdms=0); whoever writes waits for it";
    server.await_line(&[&"WARN", &"the disk took ", &line]);
    assert!(server.log().lines().count() < 20, "{}", server.log());
}

#[test]
fn pause_of_the_process_is_logged() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    server.signal("STOP");
    thread::sleep(Duration::from_millis(2_600));
    server.signal("CONT");
    server.await_line(&[&"WARN", &"this process stood still for 2"]);
}

#[test]
fn sighup_does_not_stop_the_server() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    let (mut client, _) = Raw::open(server.port, 10_000);
    for _ in 0..2 {
        server.signal("HUP");
    }
    server.await_line(&[&"INFO", &"SIGHUP: read ", &" anew: nothing has changed"]);
    assert_eq!(client.call(create("/after", b"", 0)).0, 0);
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}
