//! Replays the numbered edge cases against our server, and compares with the answers recorded from
//! ZooKeeper 3.9.4.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::edges::plays;
use crate::generate::SUPER;
use crate::play::Players;

const ANSWERS: &str = include_str!("edges.txt");
const SETTINGS: &str = include_str!("zoo.cfg");
const PATIENCE: Duration = Duration::from_secs(60);

/// Records the answers of a newly started server.
pub(crate) fn record(server: &str, path: &str) {
    let mut addresses = server.to_socket_addrs().expect("is HOST:PORT");
    let sections = answers(addresses.next().expect("has an address"));
    let text: String = sections.iter().map(|(_, text)| text.as_str()).collect();
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
    println!("{} plays were recorded in {path}", sections.len());
}

/// Starts our server, and compares its answers with the recorded ones.
pub(crate) fn replay() {
    let Some(binary) = option_env!("CARGO_BIN_EXE_zabkeeper") else {
        println!("differential: built without cargo, so there is no server for the edge cases");
        return;
    };
    let server = Ours::start(binary);
    let mut failed = Vec::new();
    for (title, text) in answers(server.address) {
        if !ANSWERS.contains(&text) {
            println!("{}", first_difference(title, &text));
            failed.push(title);
        }
    }
    assert!(failed.is_empty(), "answered otherwise than by ZooKeeper: {failed:#?}");
}

/// The title of each play, and its text: the title, the steps and the answers.
fn answers(server: SocketAddr) -> Vec<(&'static str, String)> {
    let mut players = Players::new(&[("server", server)], SUPER.as_bytes());
    let mut sections = Vec::new();
    for play in plays() {
        players.begin().expect("one server is like itself");
        players.script = Some(String::new());
        players.play(&play.steps).expect("one server is like itself");
        let script = players.script.take().expect("was put there");
        sections.push((play.title, format!("== {}\n{script}\n", play.title)));
    }
    sections
}

/// The recorded and the actual text, from the first step with a different answer on.
fn first_difference(title: &str, ours: &str) -> String {
    let head = format!("== {title}\n");
    let Some(real) = ANSWERS.split_inclusive("\n\n").find(|section| section.starts_with(&head))
    else {
        return format!("{title}: ZooKeeper's answers are not recorded; see --record");
    };
    let (real, ours): (Vec<&str>, Vec<&str>) = (real.lines().collect(), ours.lines().collect());
    let at = (0..).find(|&at| real.get(at) != ours.get(at)).unwrap_or(0);
    let from = real[..at].iter().rposition(|line| line.starts_with('c')).unwrap_or(0);
    let show = |lines: &[&str]| lines[from.min(lines.len())..(at + 4).min(lines.len())].join("\n");
    format!("{title}\nZooKeeper:\n{}\nours:\n{}\n", show(&real), show(&ours))
}

/// Our server, with a directory of its own.
struct Ours {
    process: Child,
    folder: PathBuf,
    address: SocketAddr,
}

impl Ours {
    fn start(binary: &str) -> Ours {
        let free = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr());
        let address = free.expect("there is a port");
        let folder = std::env::temp_dir().join(format!(
            "differential-{}-{}",
            std::process::id(),
            address.port()
        ));
        fs::create_dir(&folder).expect("is new");
        let config = folder.join("zoo.cfg");
        let place =
            format!("clientPort={}\ndataDir={}\n", address.port(), folder.join("data").display());
        fs::write(&config, format!("{SETTINGS}{place}")).expect("is written");
        let log = fs::File::create(folder.join("log")).expect("is created");
        let mut command = Command::new(binary);
        command.arg(&config).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let process = command.spawn().expect("starts");
        let ours = Ours { process, folder, address };
        ours.wait();
        ours
    }

    fn wait(&self) {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let mut text = String::new();
            let asked = TcpStream::connect(self.address).and_then(|mut socket| {
                socket.write_all(b"srvr")?;
                socket.read_to_string(&mut text)
            });
            if asked.is_ok() && text.contains("Mode: standalone") {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        let log = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        panic!("the server does not serve:\n{log}");
    }
}

impl Drop for Ours {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = fs::remove_dir_all(&self.folder);
    }
}
