//! The commands that replace ZooKeeper's scripts: `server`, `initialize`, `cleanup`, `check` and
//! `container` (TOOL-01 to TOOL-03, TOOL-08).

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use tempfile::{TempDir, tempdir};

use crate::four_letter::{ask, try_ask};
use crate::harness::{Server, command, configure, free_port, started};
use crate::raw::{Raw, create, get};

/// Variables of a user's environment that the commands read.
const VARIABLES: [&str; 4] = ["ZOOCFGDIR", "ZOOCFG", "ZOOPIDFILE", "ZOO_LOG_DIR"];

/// Exit status, standard output and standard error of a command.
#[derive(Debug)]
struct Ended {
    code: Option<i32>,
    out: String,
    err: String,
}

fn end(command: &mut Command) -> Ended {
    let child = started(command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()));
    let output = child.wait_with_output().expect("ends");
    let text = |bytes| String::from_utf8(bytes).expect("is text");
    Ended { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
}

fn zabkeeper(args: &[&str]) -> Command {
    let mut command = command(args[0]);
    command.args(&args[1..]);
    for variable in VARIABLES {
        command.env_remove(variable);
    }
    command
}

fn run(args: &[&str]) -> Ended {
    end(&mut zabkeeper(args))
}

/// A server that `server start` leaves behind; dropping it stops it.
struct Background {
    dir: TempDir,
    config: String,
    port: u16,
}

impl Background {
    fn new(settings: &str) -> Background {
        let (dir, port) = (tempdir().expect("creates"), free_port());
        let config = configure(port, dir.path(), settings);
        Background { dir, config, port }
    }

    fn control(&self, action: &str) -> Ended {
        run(&["server", action, "--config", &self.config])
    }

    fn pid_file(&self) -> PathBuf {
        self.dir.path().join("data/zookeeper_server.pid")
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        // Most tests have stopped it.
        let _stopped = self.control("stop");
    }
}

/// The words and the statuses are those of `zkServer.sh`.
#[test]
fn server_starts_in_the_background_and_stops() {
    let server = Background::new("");
    let stopped = server.control("status");
    assert_eq!(stopped.code, Some(1), "{stopped:?}");
    assert_eq!(stopped.err, format!("Using config: {}\n", server.config));
    let port = server.port;
    let expected = format!(
        "Client port found: {port}. Client address: 127.0.0.1. Client SSL: false.\nError \
         contacting service. It is probably not running.\n"
    );
    assert_eq!(stopped.out, expected);

    let first = server.control("start");
    assert_eq!((first.code, &*first.out), (Some(0), "Starting zookeeper ... STARTED\n"));
    let pid = fs::read_to_string(server.pid_file()).expect("is there");
    let again = server.control("start");
    let expected = format!("Starting zookeeper ... already running as process {pid}.\n");
    assert_eq!((again.code, again.out), (Some(1), expected));
    let status = server.control("status");
    assert_eq!(status.code, Some(0), "{status:?}");
    assert!(status.out.ends_with("Client SSL: false.\nMode: standalone\n"), "{status:?}");

    let (mut client, _) = Raw::open(port, 10_000);
    assert_eq!(client.call(create("/kept", b"value", 0)).0, 0);
    let restarted = server.control("restart");
    let expected = "Stopping zookeeper ... STOPPED\nStarting zookeeper ... STARTED\n";
    assert_eq!((restarted.code, &*restarted.out), (Some(0), expected), "{restarted:?}");
    let (mut client, _) = Raw::open(port, 10_000);
    assert_eq!(client.call(get("/kept")).0, 0);

    let last = server.control("stop");
    assert_eq!((last.code, &*last.out), (Some(0), "Stopping zookeeper ... STOPPED\n"));
    assert!(!server.pid_file().exists());
    assert!(try_ask(port, "srvr").is_none(), "it has ended when `stop` returns");
    let none = server.control("stop");
    let expected = format!(
        "Stopping zookeeper ... no zookeeper to stop (could not find file {})\n",
        server.pid_file().display()
    );
    assert_eq!((none.code, none.out), (Some(0), expected));
    let log = fs::read_to_string(server.dir.path().join("data/zabkeeper.out")).expect("is there");
    assert_eq!(log.matches("Zabkeeper listens on ").count(), 2, "{log}");
}

#[test]
fn failed_start_is_status_1_and_shows_the_reason() {
    let dir = tempdir().expect("creates");
    let config = configure(free_port(), dir.path(), "snapCount=many");
    let refused = run(&["server", "start", "--config", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("zoo.cfg:5: snapCount=many: not a whole number"), "{refused:?}");

    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("loopback has ports");
    let port = taken.local_addr().expect("is bound").port();
    let config = configure(port, dir.path(), "");
    let refused = run(&["server", "start", "--config", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert_eq!(refused.out, "Starting zookeeper ... FAILED TO START\n");
    assert!(refused.err.contains("Address already in use"), "{refused:?}");
    assert!(!dir.path().join("data/zookeeper_server.pid").exists());
}

/// After a reboot the number in the file may be that of any process.
#[cfg(target_os = "linux")]
#[test]
fn stop_ends_no_other_program() {
    let server = Background::new("");
    fs::create_dir(server.dir.path().join("data")).expect("creates");
    let mut other = started(Command::new("sleep").arg("60"));
    fs::write(server.pid_file(), other.id().to_string()).expect("writes");
    let stopped = server.control("stop");
    assert_eq!(stopped.code, Some(0), "{stopped:?}");
    assert!(stopped.out.contains("named none that runs"), "{stopped:?}");
    assert!(other.try_wait().expect("can be asked").is_none(), "it runs");
    other.kill().expect("is there");
    other.wait().expect("ends");
}

#[test]
fn variables_name_the_folders() {
    let server = Background::new("");
    let (logs, pid_file) = (server.dir.path().join("logs"), server.dir.path().join("run/pid"));
    fs::create_dir(server.dir.path().join("run")).expect("creates");
    let with = |action: &str| {
        let mut command = zabkeeper(&["server", action]);
        command.env("ZOOCFGDIR", server.dir.path()).env("ZOO_LOG_DIR", &logs);
        end(command.env("ZOOPIDFILE", &pid_file))
    };
    let begun = with("start");
    assert_eq!(begun.code, Some(0), "{begun:?}");
    assert!(pid_file.exists() && logs.join("zabkeeper.out").exists());
    let stopped = with("stop");
    assert_eq!(stopped.out, "Stopping zookeeper ... STOPPED\n", "{stopped:?}");
    let printed = with("print-cmd");
    let expected = format!("\"--config\" \"{}\" >> \"{}", server.config, logs.display());
    assert!(printed.out.contains(&expected), "{printed:?}");
    assert!(with("version").out.starts_with("Zabkeeper, version "));
}

#[test]
fn initialize_makes_folders_and_id() {
    let dir = tempdir().expect("creates");
    let settings = format!("dataLogDir={}", dir.path().join("log").display());
    let port = free_port();
    let config = configure(port, dir.path(), &format!("{settings}\ndatadir.autocreate=false"));
    let made = run(&["initialize", "--configfile", &config, "--myid", "3"]);
    assert_eq!((made.code, &*made.out), (Some(0), "Using myid of 3\n"), "{made:?}");
    let id = fs::read_to_string(dir.path().join("data/myid"));
    assert_eq!(id.expect("is there"), "3\n");
    let server = Server::run(command(&config), port);
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/lost", b"", 0)).0, 0);

    let forced = ["initialize", "--configfile", &config, "--force"];
    let in_use = run(&forced);
    assert_eq!(in_use.code, Some(1), "{in_use:?}");
    assert!(in_use.err.contains("in use by another process"), "{in_use:?}");
    assert!(server.terminate().0.success());
    let refused = run(&["initialize", "--configfile", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.err.contains("data directory already exists at"), "{refused:?}");
    let forced = run(&forced);
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert!(forced.out.contains("Force enabled") && forced.out.contains("No myid provided"));
    let server = Server::run(command(&config), port);
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_ne!(client.call(get("/lost")).0, 0);

    fs::create_dir_all(dir.path().join("data/version-2/log.1")).expect("creates");
    drop(server);
    let refused = run(&["initialize", "--configfile", &config, "--force"]);
    assert!(refused.err.contains("holds data of Apache ZooKeeper"), "{refused:?}");
    assert_eq!(run(&["initialize", "--configfile", "/nowhere"]).code, Some(1));
}

/// The snapshots in this folder, by name.
fn snapshots(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir.join("data/zabkeeper")).expect("is there").flatten();
    let names = entries.map(|entry| entry.file_name().into_string().expect("is text"));
    let mut names: Vec<String> = names.filter(|name| name.starts_with("snapshot.")).collect();
    names.sort();
    names
}

#[test]
fn cleanup_keeps_the_newest_snapshots() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let settings = "snapCount=20\nautopurge.snapRetainCount=9\npreAllocSize=1";
    let server = Server::start_on(port, dir.path(), settings);
    let (mut client, _) = Raw::open(port, 10_000);
    let mut nodes = 0;
    while snapshots(dir.path()).len() < 6 {
        nodes += 1;
        client.send(create(&format!("/{nodes}"), &[b'x'; 100], 0));
        let reply = client.reply().unwrap_or_else(|| panic!("no reply:\n{}", server.log()));
        assert_eq!(reply.1, 0);
    }
    let config = dir.path().join("zoo.cfg").display().to_string();
    let cleanup = ["cleanup", "--config", &config, "-n", "3"];
    let in_use = run(&cleanup);
    assert_eq!(in_use.code, Some(3), "{in_use:?}");
    assert!(in_use.err.contains("in use by another process"), "{in_use:?}");
    assert!(server.terminate().0.success());

    let before = snapshots(dir.path());
    let cleaned = run(&cleanup);
    assert_eq!(cleaned.code, Some(0), "{cleaned:?}");
    assert_eq!(snapshots(dir.path()), before[before.len() - 3..]);
    let removed = |name: &str| cleaned.out.lines().filter(|line| line.contains(name)).count();
    assert_eq!(removed("Removing file: "), cleaned.out.lines().count(), "{cleaned:?}");
    assert_eq!(removed("/snapshot."), before.len() - 3, "{cleaned:?}");
    assert!(removed("/log.") > 0, "{cleaned:?}");
    assert_eq!(run(&cleanup).out, "", "nothing is left to remove");

    let server = Server::start_on(port, dir.path(), settings);
    assert!(ask(&server, "srvr").contains(&format!("Node count: {}\n", nodes + 5)));
    drop(server);
    let few = run(&["cleanup", "--config", &config, "-n", "2"]);
    assert_eq!(few.code, Some(2), "{few:?}");
    assert!(few.err.contains("count should be greater than or equal to 3"), "{few:?}");
}

#[test]
fn check_says_what_each_line_does() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let lines = "flushDelay=3\ntickTimes=1\nsnapCount=0x10";
    let config = configure(port, dir.path(), lines);
    let checked = run(&["check", &config]);
    assert_eq!(checked.code, Some(0), "{checked:?}");
    let expected = format!(
        "{config}:1: clientPort={port}: in force: {port}\n\
         {config}:2: clientPortAddress=127.0.0.1: in force: 127.0.0.1\n\
         {config}:3: dataDir={data}: in force: {data}\n\
         {config}:4: tickTime=2000: in force: 2000\n\
         {config}:5: flushDelay=3: no effect: writes are synced together as they come\n\
         {config}:6: tickTimes=1: UNKNOWN: unknown key, ignored; is it spelt right?\n\
         {config}:7: snapCount=0x10: in force: 16\n\
         {config}:8: admin.enableServer=false: in force: false\n\
         {config}: a server starts with it, without the 1 unknown\n",
        data = dir.path().join("data").display()
    );
    assert_eq!(checked.out, expected);
    assert!(!dir.path().join("data").exists(), "nothing was made");

    let config = configure(port, dir.path(), "snapCount=many\nmaxCnxns=-2");
    let refused = run(&["check", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.out.contains("zoo.cfg:5: snapCount=many: REFUSED: not a whole number"));
    assert!(refused.out.contains("zoo.cfg:6: maxCnxns=-2: REFUSED: out of range"), "{refused:?}");
    assert!(refused.out.ends_with("2 of the above are refused\n"), "{refused:?}");

    let config = configure(port, dir.path(), "datadir.autocreate=false");
    let refused = run(&["check", &config]);
    assert_eq!(refused.code, Some(1), "{refused:?}");
    assert!(refused.out.contains("REFUSED: there is no folder "), "{refused:?}");
    assert_eq!(run(&["check", "/nowhere"]).code, Some(1));
}

/// The variables are those of the image `zookeeper`.
#[test]
fn container_serves_with_the_variables_of_the_image() {
    let (dir, port) = (tempdir().expect("creates"), free_port());
    let place = |name: &str| dir.path().join(name);
    let start = |tick: &str| {
        let mut command = zabkeeper(&["container"]);
        command
            .env("ZOO_CONF_DIR", place("conf"))
            .env("ZOO_DATA_DIR", place("data"))
            .env("ZOO_DATA_LOG_DIR", place("datalog"))
            .env("ZOO_TICK_TIME", tick)
            .env("ZOO_4LW_COMMANDS_WHITELIST", "conf")
            .env("ZOO_SERVERS", format!("server.1=localhost:2888:3888;{port}"))
            .env("ZOO_CFG_EXTRA", "clientPortAddress=127.0.0.1 snapCount=77");
        Server::run(command, port)
    };
    let server = start("2500");
    let conf = ask(&server, "conf");
    assert!(conf.contains("tickTime=2500\n"), "{conf}");
    assert!(conf.contains(&format!("dataLogDir={}", place("datalog").display())), "{conf}");
    assert_eq!(fs::read_to_string(place("data/myid")).expect("is there"), "1\n");
    assert!(server.terminate().0.success());
    let server = start("9000");
    assert!(ask(&server, "conf").contains("tickTime=2500\n"), "the file that is there counts");
}
