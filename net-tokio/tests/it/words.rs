//! Four-letter words over real sockets.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use tempfile::tempdir;

use crate::harness::Server;
use crate::raw::{Raw, create};

pub(crate) fn ask(server: &Server, word: &str) -> String {
    try_ask(server.port, word).expect("is answered")
}

/// None where the server does not answer within a second.
pub(crate) fn try_ask(port: u16, word: &str) -> Option<String> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).ok()?;
    socket.set_read_timeout(Some(Duration::from_secs(1))).ok()?;
    socket.write_all(word.as_bytes()).ok()?;
    let mut text = String::new();
    socket.read_to_string(&mut text).ok()?;
    Some(text)
}

#[test]
fn flw_words_answer_with_figures_of_the_running_server() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "4lw.commands.whitelist=*");
    let (mut client, _) = Raw::open(server.port, 10_000);
    assert_eq!(client.call(create("/a", b"12345", 1)).0, 0);

    assert_eq!(ask(&server, "ruok"), "imok");
    assert_eq!(ask(&server, "isro\n"), "rw");
    assert_eq!(ask(&server, "wchs"), "wchs is not executed because it is not in the whitelist.\n");
    let srvr = ask(&server, "srvr");
    assert!(srvr.starts_with("Zookeeper version: 3.9.4-zabkeeper-"), "{srvr}");
    assert!(srvr.ends_with("Mode: standalone\nNode count: 6\n"), "{srvr}");
    assert!(srvr.contains("\nReceived: 6\nSent: 5\nConnections: 2\nOutstanding: 0\n"), "{srvr}");
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
}

#[test]
fn conf_27_only_srvr_is_answered_by_default() {
    let dir = tempdir().expect("creates");
    let server = Server::start(dir.path(), "");
    assert_eq!(ask(&server, "ruok"), "ruok is not executed because it is not in the whitelist.\n");
    assert!(ask(&server, "srvr").contains("Mode: standalone"));
}
