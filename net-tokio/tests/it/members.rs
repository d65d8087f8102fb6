//! An ensemble of server processes, and clients that fail over between them.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use bytes::BytesMut;
use tempfile::TempDir;

use crate::four_letter::try_ask;
use crate::harness::{Server, comes_true, command, configure, free_port};
use crate::raw::{Raw, create};

/// Number of requests that each writer pipelines.
const PIPELINE: usize = 32;

/// How long a writer waits for a silent server before it leaves the connection, as clients do.
const SILENCE: Duration = Duration::from_secs(1);

/// Three servers with ids from zero, some of which may be down.
pub(crate) struct Ensemble {
    dir: TempDir,
    host: &'static str,
    settings: String,
    /// Client, quorum and election port of each.
    pub(crate) ports: Vec<[u16; 3]>,
    servers: Vec<Option<Server>>,
}

impl Ensemble {
    /// Starts three servers on 127.0.0.1 with these additional lines in their configuration, and
    /// waits until all serve.
    pub(crate) fn start(settings: &str) -> Ensemble {
        let mut ensemble = Ensemble::prepare("127.0.0.1", settings);
        (0..3).for_each(|id| ensemble.boot(id));
        (0..3).for_each(|id| ensemble.await_serving(id));
        ensemble
    }

    /// Prepares three servers with this host name, and starts none.
    pub(crate) fn prepare(host: &'static str, settings: &str) -> Ensemble {
        Ensemble {
            dir: tempfile::tempdir().expect("creates"),
            host,
            settings: settings.to_owned(),
            ports: (0..3).map(|_| [(); 3].map(|()| free_port())).collect(),
            servers: vec![None, None, None],
        }
    }

    /// The expected content of `/zookeeper/config` (DATA-27), as recorded from three ZooKeeper
    /// servers.
    pub(crate) fn members(&self) -> String {
        let line = |(id, [_, quorum, election]): (usize, &[u16; 3])| {
            format!("server.{id}={}:{quorum}:{election}:participant\n", self.host)
        };
        self.ports.iter().enumerate().map(line).collect::<String>() + "version=0"
    }

    /// Starts a server without waiting.
    pub(crate) fn boot(&mut self, id: usize) {
        let folder = self.dir.path().join(format!("s{id}"));
        std::fs::create_dir_all(folder.join("data")).expect("creates");
        std::fs::write(folder.join("data/myid"), format!("{id}\n")).expect("writes");
        let mut lines = format!("4lw.commands.whitelist=*\n{}\n", self.settings);
        for (other, [_, quorum, election]) in self.ports.iter().enumerate() {
            lines += &format!("server.{other}={}:{quorum}:{election}\n", self.host);
        }
        let port = self.ports[id][0];
        let file = configure(port, &folder, &lines);
        self.servers[id] = Some(Server::spawn(command(&file), port));
    }

    /// Sets the additional lines of the configuration for servers started from now on.
    pub(crate) fn configure(&mut self, settings: &str) {
        settings.clone_into(&mut self.settings);
    }

    /// Waits for a server's process to end without a signal.
    pub(crate) fn wait(&mut self, id: usize) -> (ExitStatus, String) {
        self.servers[id].take().expect("is up").wait()
    }

    /// The process of a running server.
    pub(crate) fn server(&self, id: usize) -> &Server {
        self.servers[id].as_ref().expect("is up")
    }

    /// Ids of the running servers.
    pub(crate) fn up(&self) -> Vec<usize> {
        (0..self.servers.len()).filter(|id| self.servers[*id].is_some()).collect()
    }

    pub(crate) fn kill(&mut self, id: usize) {
        self.servers[id].take().expect("is up").kill();
    }

    /// Sends SIGTERM; returns the exit status and the log.
    pub(crate) fn end(&mut self, id: usize) -> (ExitStatus, String) {
        self.servers[id].take().expect("is up").terminate()
    }

    pub(crate) fn terminate(&mut self, id: usize) {
        let (status, log) = self.end(id);
        assert_eq!(status.code(), Some(0), "{log}");
    }

    /// The server's data directory.
    pub(crate) fn folder(&self, id: usize) -> PathBuf {
        self.dir.path().join(format!("s{id}/data/zabkeeper"))
    }

    /// `leader` or `follower`; `None` if the server does not serve.
    pub(crate) fn mode(&self, id: usize) -> Option<String> {
        let text = try_ask(self.ports[id][0], "srvr")?;
        text.lines().find_map(|line| line.strip_prefix("Mode: ")).map(str::to_owned)
    }

    pub(crate) fn await_serving(&self, id: usize) {
        self.eventually(&format!("server {id} to serve"), || self.mode(id).is_some());
    }

    /// Waits for a leader among `ids` and returns its id.
    pub(crate) fn await_leader_among(&self, ids: &[usize]) -> usize {
        let mut leader = None;
        self.eventually(&format!("a leader among {ids:?}"), || {
            leader = ids.iter().copied().find(|id| self.mode(*id).as_deref() == Some("leader"));
            leader.is_some()
        });
        leader.expect("has been waited for")
    }

    pub(crate) fn leader(&self) -> usize {
        self.await_leader_among(&self.up())
    }

    /// Waits until `holds`; the panic shows what the servers have logged.
    pub(crate) fn eventually(&self, what: &str, holds: impl FnMut() -> bool) {
        assert!(comes_true(holds), "waited in vain for {what}\n{}", self.logs());
    }

    /// The logs of all running servers.
    pub(crate) fn logs(&self) -> String {
        let log = |id: &usize| format!("--- server {id}\n{}", self.server(*id).log());
        self.up().iter().map(log).collect()
    }
}

/// Clients that write until stopped, each failing over to the next server.
pub(crate) struct Writers {
    threads: Vec<JoinHandle<Vec<String>>>,
    stop: Arc<AtomicBool>,
    acknowledged: Arc<AtomicUsize>,
}

impl Writers {
    /// Starts `clients` writers, spread over the servers.
    pub(crate) fn start(ensemble: &Ensemble, clients: usize) -> Writers {
        let ports: Vec<u16> = ensemble.ports.iter().map(|ports| ports[0]).collect();
        let (stop, acknowledged) = (Arc::default(), Arc::default());
        let threads = (0..clients)
            .map(|id| {
                let mut ports = ports.clone();
                let first = id % ports.len();
                ports.rotate_left(first);
                let (stop, acknowledged) = (Arc::clone(&stop), Arc::clone(&acknowledged));
                thread::spawn(move || write(&ports, &stop, &acknowledged))
            })
            .collect();
        Writers { threads, stop, acknowledged }
    }

    /// Waits until `writes` more writes are acknowledged.
    pub(crate) fn await_more(&self, ensemble: &Ensemble, writes: usize) {
        let goal = self.acknowledged.load(Ordering::Relaxed) + writes;
        ensemble.eventually(&format!("{writes} more writes"), || {
            self.acknowledged.load(Ordering::Relaxed) >= goal
        });
    }

    /// Stops the writers. Returns the paths of all nodes whose creation was acknowledged; each
    /// node's data is its path.
    pub(crate) fn stop(self) -> Vec<String> {
        self.stop.store(true, Ordering::Relaxed);
        let join = |thread: JoinHandle<Vec<String>>| thread.join().expect("saw what it should");
        self.threads.into_iter().flat_map(join).collect()
    }
}

fn write(ports: &[u16], stop: &AtomicBool, acknowledged: &AtomicUsize) -> Vec<String> {
    let mut paths = Vec::new();
    for port in ports.iter().cycle() {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if write_to_one(*port, stop, acknowledged, &mut paths).is_none() {
            thread::sleep(Duration::from_millis(5));
        }
    }
    paths
}

/// Writes with one session until its connection is lost.
fn write_to_one(
    port: u16,
    stop: &AtomicBool,
    acknowledged: &AtomicUsize,
    paths: &mut Vec<String>,
) -> Option<()> {
    let mut raw = Raw::try_connect(port)?;
    raw.give_up_after(SILENCE);
    let response = raw.shake_hands(10_000)?;
    let directory = format!("/w-{:x}", response.session.0);
    raw.try_send(create(&directory, b"", 0))?;
    assert_eq!(raw.reply()?.1, 0, "{directory}");
    for round in 0.. {
        if stop.load(Ordering::Relaxed) {
            return Some(());
        }
        let batch: Vec<String> =
            (0..PIPELINE).map(|i| format!("{directory}/{round}-{i}")).collect();
        let mut bytes = BytesMut::new();
        for path in &batch {
            raw.encode(create(path, path.as_bytes(), 0), &mut bytes);
        }
        raw.socket.write_all(&bytes).ok()?;
        for path in batch {
            assert_eq!(raw.reply()?.1, 0, "{path}");
            paths.push(path);
            acknowledged.fetch_add(1, Ordering::Relaxed);
        }
    }
    Some(())
}
