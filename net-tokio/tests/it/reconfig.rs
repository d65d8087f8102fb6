//! Reconfiguration: the files of the servers, and ports that change while they run.

use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use zabkeeper_core::wire::{ReconfigRequest, Request};

use crate::four_letter::try_ask;
use crate::harness::{Server, command, eventually, free_port};
use crate::raw::{Raw, create, exists, sync};

pub(crate) const SETTINGS: &str = "# kept\ntickTime=300\ninitLimit=20\nsyncLimit=10\nreconfigEnabled=true\n\
                        skipACL=yes\n4lw.commands.whitelist=*\nadmin.enableServer=false\n\
                        clientPortListenBacklog=77\n";

/// A server whose files stay as the server leaves them.
pub(crate) struct Node {
    pub(crate) id: u64,
    pub(crate) folder: PathBuf,
    pub(crate) client: u16,
    pub(crate) quorum: u16,
    pub(crate) election: u16,
    server: Option<Server>,
}

impl Node {
    pub(crate) fn new(dir: &TempDir, id: u64) -> Node {
        let folder = dir.path().join(format!("s{id}"));
        fs::create_dir_all(folder.join("data")).expect("creates");
        fs::write(folder.join("data/myid"), format!("{id}\n")).expect("writes");
        let [client, quorum, election] = [(); 3].map(|()| free_port());
        Node { id, folder, client, quorum, election, server: None }
    }

    /// Its server line without a client address.
    fn line(&self) -> String {
        let Node { id, quorum, election, .. } = self;
        format!("server.{id}=127.0.0.1:{quorum}:{election}:participant")
    }

    fn line_with_client(&self) -> String {
        format!("{};127.0.0.1:{}", self.line(), self.client)
    }

    fn zoo_cfg(&self) -> PathBuf {
        self.folder.join("zoo.cfg")
    }

    /// Writes `zoo.cfg` with these settings and lines.
    pub(crate) fn configure(&self, settings: &str, lines: &[String]) {
        let data = self.folder.join("data");
        let text = format!("{settings}dataDir={}\n{}\n", data.display(), lines.join("\n"));
        fs::write(self.zoo_cfg(), text).expect("writes");
    }

    pub(crate) fn client_lines(&self) -> String {
        format!("clientPort={}\nclientPortAddress=127.0.0.1\n", self.client)
    }

    pub(crate) fn boot(&mut self) {
        let file = self.zoo_cfg();
        let command = command(file.to_str().expect("is text"));
        self.server = Some(Server::spawn(command, self.client));
    }

    pub(crate) fn stop(&mut self) {
        let (status, log) = self.server.take().expect("is up").terminate();
        assert_eq!(status.code(), Some(0), "{log}");
    }

    pub(crate) fn log(&self) -> String {
        self.server.as_ref().map(Server::log).unwrap_or_default()
    }

    pub(crate) fn mode(&self) -> Option<String> {
        let text = try_ask(self.client, "srvr")?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    pub(crate) fn await_serving(&self) {
        eventually(&format!("server {} to serve: {}", self.id, self.log()), || {
            self.mode().is_some()
        });
    }

    /// The path and the content of the dynamic file that `zoo.cfg` names.
    fn dynamic(&self) -> Option<(PathBuf, String)> {
        let text = fs::read_to_string(self.zoo_cfg()).expect("is there");
        let path = text.lines().find_map(|line| line.strip_prefix("dynamicConfigFile="))?;
        Some((path.into(), fs::read_to_string(path).expect("is complete")))
    }

    /// Waits until the files have this configuration.
    fn await_files(&self, config: &str) {
        let (members, version) = config.rsplit_once("\nversion=").expect("has a version");
        let path = self.folder.join(format!("zoo.cfg.dynamic.{version}"));
        let expected = Some((path, members.to_owned()));
        let what = format!("{expected:?} on server {}", self.id);
        eventually(&what, || self.dynamic() == expected);
    }

    /// Waits until `conf` has this configuration.
    pub(crate) fn await_config(&self, config: &str) {
        eventually(&format!("{config:?} on server {}", self.id), || {
            try_ask(self.client, "conf").is_some_and(|conf| conf.ends_with(config))
        });
    }
}

fn listens(port: u16) -> bool {
    TcpStream::connect(("127.0.0.1", port)).is_ok()
}

/// Starts servers of an ensemble of three with one file each.
fn three(dir: &TempDir) -> Vec<Node> {
    let mut nodes: Vec<Node> = (1..=3).map(|id| Node::new(dir, id)).collect();
    let lines: Vec<String> = nodes.iter().map(Node::line).collect();
    for node in &mut nodes {
        node.configure(&(SETTINGS.to_owned() + &node.client_lines()), &lines);
        node.boot();
    }
    nodes.iter().for_each(Node::await_serving);
    nodes
}

/// Reconfigures, and returns the new configuration.
pub(crate) fn reconfigure(node: &Node, joining: &str, leaving: &str) -> String {
    let (mut raw, _) = Raw::open(node.client, 10_000);
    let [joining, leaving] = [joining, leaving].map(|text| Some(text.to_owned()));
    let request = ReconfigRequest { joining, leaving, new_members: None, version: -1 };
    let (err, body) = raw.call(Request::Reconfigure(request));
    assert_eq!(err, 0, "{}", node.log());
    let length = i32::from_be_bytes(body[..4].try_into().expect("4 bytes"));
    let text = &body[4..][..usize::try_from(length).expect("is a length")];
    String::from_utf8(text.to_vec()).expect("is text")
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).expect("is there");
    let mut names: Vec<String> = entries
        .map(|entry| entry.expect("can be read").file_name().into_string().expect("is text"))
        .collect();
    names.sort();
    names
}

/// RECONF-13, RECONF-14, RECONF-15: CONF-14.
#[test]
fn files_follow_the_configuration_in_force() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes = three(&dir);
    let lines: Vec<String> = nodes.iter().map(Node::line).collect();
    for node in &nodes {
        eventually("a dynamic file", || node.dynamic().is_some());
        let (path, text) = node.dynamic().expect("is there");
        assert_eq!(text, lines.join("\n"));
        let backup = fs::read_to_string(node.folder.join("zoo.cfg.bak")).expect("is there");
        assert!(backup.ends_with(&(lines.join("\n") + "\n")), "{backup}");
        let kept = fs::read_to_string(node.zoo_cfg()).expect("is there");
        let data = node.folder.join("data");
        let expected = format!(
            "{SETTINGS}{}dataDir={}\ndynamicConfigFile={}\n",
            node.client_lines(),
            data.display(),
            path.display()
        );
        assert_eq!(kept, expected);
    }
    let mut four = Node::new(&dir, 4);
    four.configure(SETTINGS, &[lines, vec![four.line_with_client()]].concat());
    four.boot();
    four.await_serving();
    assert_eq!(names(&four.folder), ["data", "zoo.cfg"], "it may be restarted before it joins");
    let config = reconfigure(&nodes[0], &four.line_with_client(), "");
    nodes.push(four);
    for node in &nodes {
        node.await_files(&config);
        node.await_config(&config);
    }
    nodes.iter_mut().for_each(Node::stop);
    nodes.iter_mut().for_each(Node::boot);
    for node in &nodes {
        node.await_serving();
        node.await_config(&config);
    }
    let removed = reconfigure(&nodes[3], "", "4");
    for node in &nodes {
        node.await_config(&removed);
    }
    nodes[..3].iter().for_each(|node| node.await_files(&removed));
    nodes[3].await_files(&config);
    nodes[3].stop();
    nodes[3].boot();
    nodes[3].await_serving();
    assert_eq!(nodes[3].mode().as_deref(), Some("follower"), "a follower without a vote");
}

/// RECONF-12.
#[test]
fn client_port_changes_while_clients_stay_connected() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes = three(&dir);
    let before = nodes[1].client;
    let (mut client, _) = Raw::open(before, 10_000);
    let (mut watching, _) = Raw::open(nodes[0].client, 10_000);
    nodes[1].client = free_port();
    let config = reconfigure(&nodes[0], &nodes[1].line_with_client(), "");
    nodes[1].await_serving();
    eventually("the old port to be closed", || !listens(before));
    assert_eq!(client.call(create("/stays", b"", 1)).0, 0, "the connection has stayed");
    assert_eq!(watching.call(sync()).0, 0);
    assert_eq!(watching.call(exists("/stays")).0, 0);
    for node in &nodes {
        node.await_files(&config);
        node.await_config(&config);
    }
    let conf = try_ask(nodes[1].client, "conf").expect("is answered");
    assert!(conf.starts_with(&format!("clientPort={}\n", nodes[1].client)), "{conf}");
    let kept = fs::read_to_string(nodes[1].zoo_cfg()).expect("is there");
    assert!(!kept.contains("clientPort=") && kept.contains("clientPortListenBacklog=77"), "{kept}");
    nodes[1].stop();
    nodes[1].boot();
    nodes[1].await_serving();
    // A port that another process holds: clients keep the one before.
    let holder = std::net::TcpListener::bind("127.0.0.1:0").expect("binds");
    let taken = holder.local_addr().expect("is bound").port();
    let (line, served) = (nodes[1].line(), nodes[1].client);
    reconfigure(&nodes[0], &format!("{line};127.0.0.1:{taken}"), "");
    let server = nodes[1].server.as_ref().expect("is up");
    server.await_line(&[&"WARN", &"cannot listen on ", &taken, &"clients still reach", &served]);
    nodes[1].await_serving();
    drop(holder);
    nodes[1].client = taken;
    nodes[1].await_serving();
    eventually("the port before to be closed", || !listens(served));
}

/// RECONF-12: the other servers dial the addresses in force.
#[test]
fn ports_for_servers_change_while_they_run() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes = three(&dir);
    let mut config = String::new();
    for node in &mut nodes {
        let before = [node.quorum, node.election];
        let now = [(); 2].map(|()| free_port());
        [node.quorum, node.election] = now;
        config = reconfigure(node, &node.line_with_client(), "");
        eventually("the new ports to be open", || now.into_iter().all(listens));
        eventually("the old ports to be closed", || !before.into_iter().any(listens));
    }
    for node in &nodes {
        node.await_files(&config);
    }
    // Whoever leads, each server in turn is the one that the others have to find again.
    for at in 0..3 {
        nodes[at].stop();
        let others = || (0..3).filter(|other| *other != at).map(|other| &nodes[other]);
        eventually("a leader", || others().any(|node| node.mode().as_deref() == Some("leader")));
        nodes[at].boot();
        nodes[at].await_serving();
        nodes[at].await_config(&config);
    }
}

/// RECONF-14: the files are for operators; what counts is in the data directory.
#[test]
fn server_goes_on_if_its_files_cannot_be_written() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes = three(&dir);
    eventually("a dynamic file", || nodes[2].dynamic().is_some());
    let (old, lines) = nodes[2].dynamic().expect("is there");
    // A folder in the place of a file that is written first keeps even root from writing.
    fs::create_dir_all(nodes[2].folder.join("zoo.cfg.tmp/x")).expect("creates");
    nodes[0].client = free_port();
    let config = reconfigure(&nodes[1], &nodes[0].line_with_client(), "");
    nodes[0].await_files(&config);
    let server = nodes[2].server.as_ref().expect("is up");
    server.await_line(&[&"ERROR", &"zoo.cfg: cannot be written", &"is out of date"]);
    assert_eq!(nodes[2].dynamic(), Some((old, lines)));
    nodes[2].await_config(&config);
    fs::remove_dir_all(nodes[2].folder.join("zoo.cfg.tmp")).expect("removes");
    nodes[2].stop();
    nodes[2].boot();
    nodes[2].await_serving();
    nodes[2].await_config(&config);
    nodes[2].await_files(&config);
}

/// RECONF-13, RECONF-15 without `reconfigEnabled`: three servers become five by restarts with
/// longer lists, and each one serves when it has started.
#[test]
fn three_servers_grow_to_five_by_rolling_restart() {
    let dir = tempfile::tempdir().expect("creates");
    let mut nodes: Vec<Node> = (1..=5).map(|id| Node::new(&dir, id)).collect();
    let lines: Vec<String> = nodes.iter().map(Node::line).collect();
    let settings = SETTINGS.replace("reconfigEnabled=true\n", "");
    let configure = |node: &Node, lines: &[String]| {
        node.configure(&(settings.clone() + &node.client_lines()), lines);
    };
    for node in &mut nodes[..3] {
        configure(node, &lines[..3]);
        node.boot();
    }
    nodes[..3].iter().for_each(Node::await_serving);
    let (mut client, _) = Raw::open(nodes[0].client, 10_000);
    assert_eq!(client.call(create("/kept", b"", 0)).0, 0);
    for at in [3, 4, 0, 1, 2] {
        if nodes[at].server.is_some() {
            nodes[at].stop();
        }
        configure(&nodes[at], &lines);
        nodes[at].boot();
        nodes[at].await_serving();
        let (mut client, _) = Raw::open(nodes[at].client, 10_000);
        assert_eq!(client.call(sync()).0, 0, "{}", nodes[at].log());
        assert_eq!(client.call(exists("/kept")).0, 0);
        assert_eq!(client.call(create(&format!("/by{at}"), b"", 0)).0, 0);
    }
    let mntr = try_ask(nodes[0].client, "mntr").expect("is answered");
    assert!(mntr.contains("zk_quorum_size\t5\n"), "{mntr}");
    assert_eq!(names(&nodes[0].folder), ["data", "zoo.cfg"], "no file is written");
}
