//! Server processes in the namespaces of a network, and their configuration.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::PathBuf;
use std::time::Duration;

use sim::check::ensemble::{PARTICIPANT, line};
use tempfile::TempDir;
use zabkeeper_core::ServerId;

use crate::harness::{Server, comes_true};
use crate::network::{Network, client_address};

/// ms.
pub(crate) const TICK_MS: u32 = 300;
const ASK: Duration = Duration::from_secs(1);

pub(crate) struct Ensemble {
    /// Processes end before their namespaces.
    up: BTreeMap<u64, Server>,
    pub(crate) network: Network,
    dir: TempDir,
    /// The logs of processes that have ended.
    past: BTreeMap<u64, String>,
}

impl Ensemble {
    /// Starts all servers of the network, and waits until they serve.
    pub(crate) fn start(network: Network) -> Ensemble {
        let dir = tempfile::tempdir().expect("creates");
        let mut ensemble = Ensemble { up: BTreeMap::new(), network, dir, past: BTreeMap::new() };
        for id in ensemble.ids() {
            ensemble.configure(id);
            ensemble.boot(id);
        }
        ensemble.await_serving();
        ensemble
    }

    /// Ids of all servers.
    pub(crate) fn ids(&self) -> Vec<u64> {
        self.network.servers()
    }

    /// Ids of all servers but this one.
    pub(crate) fn others(&self, than: u64) -> Vec<u64> {
        self.ids().into_iter().filter(|id| *id != than).collect()
    }

    fn configure(&self, id: u64) {
        let data = self.dir.path().join(format!("s{id}/data"));
        std::fs::create_dir_all(&data).expect("creates");
        std::fs::write(data.join("myid"), format!("{id}\n")).expect("writes");
        let text = format!(
            "tickTime={TICK_MS}\ninitLimit=20\nsyncLimit=5\ndataDir={}\nreconfigEnabled=true\n\
             skipACL=yes\n4lw.commands.whitelist=*\nadmin.enableServer=false\n{}",
            data.display(),
            lines(&self.ids())
        );
        std::fs::write(self.zoo_cfg(id), text).expect("writes");
    }

    fn zoo_cfg(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("s{id}/zoo.cfg"))
    }

    /// The server's data directory.
    pub(crate) fn folder(&self, id: u64) -> PathBuf {
        self.dir.path().join(format!("s{id}/data/zabkeeper"))
    }

    /// Starts a server without waiting; its files are as it left them.
    pub(crate) fn boot(&mut self, id: u64) {
        let mut command = self.network.command(id, env!("CARGO_BIN_EXE_zabkeeper"));
        command.arg(self.zoo_cfg(id)).env_remove("RUST_LOG");
        command.env_remove("SERVER_JVMFLAGS").env_remove("JVMFLAGS");
        self.up.insert(id, Server::spawn(command, client_address(id).port()));
    }

    /// Sends SIGKILL to a server and waits for its end.
    pub(crate) fn kill(&mut self, id: u64) {
        let server = self.up.remove(&id).expect("is up");
        *self.past.entry(id).or_default() += &(server.log() + "--- killed\n");
        server.kill();
    }

    /// Sends a signal by its name to a server.
    pub(crate) fn signal(&self, id: u64, name: &str) {
        self.up[&id].signal(name);
    }

    /// The value of a line of `srvr`; `None` if the server does not serve.
    fn srvr(&self, id: u64, key: &str) -> Option<String> {
        let text = ask(id, "srvr")?;
        text.lines().find_map(|line| line.strip_prefix(key)).map(str::to_owned)
    }

    /// The last transaction that a server has applied, if it serves.
    pub(crate) fn applied(&self, id: u64) -> Option<u64> {
        let text = self.srvr(id, "Zxid: 0x")?;
        u64::from_str_radix(&text, 16).ok()
    }

    fn mode(&self, id: u64) -> Option<String> {
        self.srvr(id, "Mode: ")
    }

    /// Waits for a leader, and returns its id.
    pub(crate) fn leader(&self) -> u64 {
        let mut leader = None;
        self.eventually("a leader", || {
            leader = self.ids().into_iter().find(|id| self.mode(*id).as_deref() == Some("leader"));
            leader.is_some()
        });
        leader.expect("has been waited for")
    }

    /// Waits until all servers serve.
    pub(crate) fn await_serving(&self) {
        for id in self.ids() {
            self.eventually(&format!("server {id} to serve"), || self.mode(id).is_some());
        }
    }

    /// Waits until `holds`; the panic shows what the servers have logged.
    pub(crate) fn eventually(&self, what: &str, holds: impl FnMut() -> bool) {
        assert!(comes_true(holds), "waited in vain for {what}\n{}", self.logs());
    }

    /// The logs of all servers.
    pub(crate) fn logs(&self) -> String {
        let log = |id: u64| {
            let past = self.past.get(&id).map_or("", String::as_str);
            let now = self.up.get(&id).map_or_else(|| "down\n".to_owned(), Server::log);
            format!("--- server {id}\n{past}{now}")
        };
        self.ids().into_iter().map(log).collect()
    }
}

/// The server lines of these voters.
pub(crate) fn lines(servers: &[u64]) -> String {
    servers.iter().map(|id| line(ServerId(*id), PARTICIPANT)).collect()
}

/// The answer to a four-letter command; `None` if there is none in time.
fn ask(server: u64, command: &str) -> Option<String> {
    let mut socket = TcpStream::connect_timeout(&client_address(server), ASK).ok()?;
    socket.set_read_timeout(Some(ASK)).ok()?;
    socket.write_all(command.as_bytes()).ok()?;
    let mut text = String::new();
    socket.read_to_string(&mut text).ok()?;
    Some(text)
}
