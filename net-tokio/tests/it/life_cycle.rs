//! What a service manager and an operator do with a running server: messages to the manager,
//! SIGHUP, and the file of the log.

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::tempdir;

use crate::four_letter::{ask, try_ask};
use crate::harness::{PATIENCE, Server, command, configure, eventually, free_port, refused};
use crate::raw::{Raw, create};

/// The next message to the service manager that is no sign of life.
fn next_message(manager: &UnixDatagram) -> String {
    let latest = Instant::now() + PATIENCE;
    let mut buffer = [0; 512];
    while Instant::now() < latest {
        let length = manager.recv(&mut buffer).expect("a message comes");
        let text = String::from_utf8(buffer[..length].to_vec()).expect("is text");
        if text != "WATCHDOG=1" {
            return text;
        }
    }
    panic!("only signs of life");
}

/// `sd_notify(3)`.
#[test]
fn service_manager_is_notified() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("binds");
    manager.set_read_timeout(Some(PATIENCE)).expect("is a duration");
    let mut command = command(&configure(port, dir.path(), ""));
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "200000").env_remove("WATCHDOG_PID");
    let server = Server::run(command, port);
    assert_eq!(next_message(&manager), "STATUS=waiting for a leader and a quorum");
    assert_eq!(next_message(&manager), format!("READY=1\nSTATUS=serving 127.0.0.1:{port}"));
    let began = Instant::now();
    let mut buffer = [0; 512];
    for _ in 0..5 {
        let length = manager.recv(&mut buffer).expect("a sign of life comes");
        assert_eq!(&buffer[..length], b"WATCHDOG=1");
    }
    assert!(began.elapsed() >= Duration::from_millis(300), "one each 100 ms");

    server.signal("HUP");
    assert!(next_message(&manager).starts_with("RELOADING=1\nMONOTONIC_USEC="));
    assert_eq!(next_message(&manager), "READY=1");
    server.signal("TERM");
    assert_eq!(next_message(&manager), "STOPPING=1\nSTATUS=stopping");
    let (status, log) = server.terminate();
    assert_eq!(status.code(), Some(0), "{log}");
}

/// A service manager counts a member as started when it serves, not when it waits for the others.
#[test]
fn member_without_a_quorum_is_not_ready() {
    let (dir, ports) = (tempdir().expect("creates"), [free_port(), free_port(), free_port()]);
    let path = dir.path().join("notify");
    let manager = UnixDatagram::bind(&path).expect("binds");
    manager.set_read_timeout(Some(Duration::from_secs(2))).expect("is a duration");
    let [port, quorum, election] = ports;
    let servers = format!(
        "server.1=127.0.0.1:{quorum}:{election}\nserver.2=127.0.0.1:1:2\nserver.3=127.0.0.1:3:4"
    );
    fs::create_dir(dir.path().join("data")).expect("creates");
    fs::write(dir.path().join("data/myid"), "1").expect("writes");
    let mut command = command(&configure(port, dir.path(), &servers));
    command.env("NOTIFY_SOCKET", &path);
    let mut server = Server::spawn(command, port);
    assert_eq!(next_message(&manager), "STATUS=waiting for a leader and a quorum");
    server.signal("HUP");
    server.await_line(&[&"SIGHUP: read "]);
    assert!(manager.recv(&mut [0; 64]).is_err(), "nothing else is sent");
    server.signal("TERM");
    assert_eq!(next_message(&manager), "STOPPING=1\nSTATUS=stopping");
    assert!(server.wait().0.success());
}

#[test]
fn sighup_puts_new_settings_in_force() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let server = Server::start_on(port, dir.path(), "maxClientCnxns=60");
    assert!(ask(&server, "ruok").contains("not in the whitelist"));
    let (mut client, _) = Raw::open(port, 10_000);
    let lines = "maxClientCnxns=2\n4lw.commands.whitelist=ruok, conf\nsnapCount=777\n\
                 zabkeeper.log.level=debug\nnope=1";
    configure(port, dir.path(), lines);
    server.signal("HUP");
    let expected = "in force now: maxClientCnxns=2, 4lw.commands.whitelist=ruok, conf, \
                    zabkeeper.log.level=debug";
    server.await_line(&[&"INFO", &"SIGHUP: read ", &expected]);
    server.await_line(&[&"WARN", &"only a restart puts in force: snapCount=777"]);
    server.await_line(&[&"WARN", &"zoo.cfg:9: nope=1: unknown key"]);
    eventually("an answer", || try_ask(port, "ruok").is_some_and(|text| text == "imok"));
    let conf = ask(&server, "conf");
    assert!(conf.contains("maxClientCnxns=2\n"), "{conf}");
    server.await_line(&[&"DEBUG", &"connection accepted"]);
    let (second, _) = Raw::open(port, 10_000);
    assert!(try_ask(port, "ruok").is_none_or(|text| text.is_empty()), "the third connection");
    drop(second);

    // A file that does not parse changes nothing.
    configure(port, dir.path(), "maxClientCnxns=many\n4lw.commands.whitelist=srvr");
    server.signal("HUP");
    let words: [&dyn std::fmt::Display; 3] =
        [&"WARN", &"zoo.cfg:5: maxClientCnxns=many", &"the settings stay as they were"];
    server.await_line(&words);
    eventually("an answer", || try_ask(port, "ruok").is_some_and(|text| text == "imok"));
    assert_eq!(client.call(create("/served", b"", 0)).0, 0, "no connection was lost");
    assert!(server.terminate().0.success());
}

fn lines_of(path: &Path) -> Vec<String> {
    let text = fs::read_to_string(path).unwrap_or_default();
    text.lines().map(str::to_owned).collect()
}

#[test]
fn log_goes_to_a_file_as_json() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let (log, other) = (dir.path().join("logs/zk.log"), dir.path().join("other.log"));
    let settings = format!("zabkeeper.log.file={}\nzabkeeper.log.format=json", log.display());
    let server = Server::start_on(port, dir.path(), &settings);
    eventually("the line", || lines_of(&log).iter().any(|line| line.contains("serving")));
    let lines = lines_of(&log);
    let line = lines.iter().find(|line| line.contains("serving")).expect("is there");
    let object: serde_json::Value = serde_json::from_str(line).expect("is JSON");
    assert_eq!(object["level"], "INFO", "{line}");
    assert_eq!((&object["message"], &object["nodes"]), (&"serving".into(), &5.into()), "{line}");
    assert!(object["timestamp"].as_str().is_some_and(|time| time.ends_with('Z')), "{line}");

    // A script that rotates renames the file and sends SIGHUP.
    fs::rename(&log, dir.path().join("logs/zk.log.1")).expect("renames");
    server.signal("HUP");
    eventually("a new file", || lines_of(&log).iter().any(|line| line.contains("SIGHUP")));
    configure(port, dir.path(), &format!("zabkeeper.log.file={}", other.display()));
    server.signal("HUP");
    eventually("the other file", || lines_of(&other).iter().any(|line| line.contains("SIGHUP")));
    assert!(lines_of(&other)[0].contains(" INFO "), "text again");
    let (status, stderr) = server.terminate();
    assert!(status.success());
    assert_eq!(stderr, "", "standard error has nothing");
    assert!(lines_of(&other).iter().any(|line| line.contains("stopped")));
}

#[test]
fn environment_names_the_file_of_the_log() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let log = dir.path().join("zk.log");
    let config = configure(port, dir.path(), "tickTimes=1\nzabkeeper.log.file=/nowhere/else");
    let mut command = command(&config);
    command
        .env("ZABKEEPER_LOG_FILE", &log)
        .env("ZABKEEPER_LOG_MAX_FILE_SIZE_IN_MB", "1")
        .env("RUST_LOG", "debug");
    let server = Server::run(command, port);
    eventually("the warning", || lines_of(&log).iter().any(|line| line.contains("tickTimes=1")));
    assert!(server.terminate().0.success());

    let file = format!("zabkeeper.log.file={}/file/log", dir.path().display());
    fs::write(dir.path().join("file"), "").expect("writes");
    let (code, text) = refused(&configure(port, dir.path(), &file));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("zabkeeper: cannot log to "), "{text}");
    let (code, text) = refused(&configure(port, dir.path(), "zabkeeper.log.level=inof"));
    assert_eq!(code, Some(2), "{text}");
    assert!(text.contains("zoo.cfg:5: zabkeeper.log.level=inof: use error, warn"), "{text}");
}
