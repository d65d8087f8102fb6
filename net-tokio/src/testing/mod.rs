//! Servers inside a test: a real ensemble in the process of the test, on free ports and with a
//! temporary folder; or one in virtual time, see [`VirtualEnsemble`].
//!
//! ```
//! use zabkeeper::testing::Ensemble;
//! use zabkeeper_client::{Client, CreateMode};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! let mut ensemble = Ensemble::start(3)?;
//! let client = Client::connect(&ensemble.connect_string()).await?;
//! client.create("/job", "1", CreateMode::Persistent).await?;
//!
//! let leader = ensemble.leader().expect("a server leads");
//! ensemble.stop_server(leader)?;
//! while client.sync("/").await.is_err() {
//!     client.connected().await?; // Waits for another server.
//! }
//! assert_eq!(client.get("/job").await?.0, "1");
//!
//! ensemble.start_server(leader)?;
//! drop(ensemble); // Stops all servers and removes their data.
//! # Ok(()) }
//! ```
//!
//! The servers are those of the binary `zabkeeper`, with all their threads, sockets and files, so
//! that a test sees what the deployed service does. What belongs to the process stays the test's:
//! the log (events go to the `tracing` subscriber of the process, if there is one, in a span with
//! the field `myid`), the panic hook, signals, and the limit on descriptors. Any number of
//! ensembles can run in one process.
//!
//! The functions block the thread, for milliseconds as a rule. Servers have threads of their own,
//! so a test may call them in asynchronous code. A client that has lost its server pauses before it
//! connects again, for up to two seconds if there is no other server: `reconnect_delay_max` and
//! `round_pause` in the settings of `zabkeeper_client` shorten that.
//!
//! Owns the servers of an ensemble. Must not decide anything about the service: `serve` runs it.

mod builder;
mod error;
mod files;
mod ports;
mod server;
mod virtual_time;

use std::ops::RangeInclusive;
use std::path::Path;
use std::time::Duration;

pub use builder::EnsembleBuilder;
pub use error::Error;
pub use virtual_time::{VirtualEnsemble, VirtualEnsembleBuilder};

use files::Folder;
use server::{Milestone, Server, Starting};

/// An ensemble of servers in this process. Dropping it stops them at once, frees their ports and
/// removes their data.
///
/// Servers are known by their numbers, from 1. A server that fails, which is a bug of Zabkeeper or
/// a full disk, ends by itself: the next function that stops or starts it returns why.
#[derive(Debug)]
pub struct Ensemble {
    /// Dropped before the folder, which they use.
    servers: Vec<Server>,
    timeout: Duration,
    folder: Folder,
}

impl Ensemble {
    /// Starts one standalone server.
    ///
    /// # Errors
    /// As [`EnsembleBuilder::start`].
    ///
    /// # Panics
    /// As [`EnsembleBuilder::start`].
    pub fn single() -> Result<Ensemble, Error> {
        Ensemble::start(1)
    }

    /// Starts this many servers, and waits until each of them serves clients.
    ///
    /// # Errors
    /// As [`EnsembleBuilder::start`].
    ///
    /// # Panics
    /// As [`EnsembleBuilder::start`].
    pub fn start(servers: usize) -> Result<Ensemble, Error> {
        Ensemble::builder().servers(servers).start()
    }

    /// Settings for an ensemble.
    ///
    /// ```
    /// use std::time::Duration;
    /// use zabkeeper::testing::Ensemble;
    ///
    /// # fn main() -> Result<(), zabkeeper::testing::Error> {
    /// let second = Duration::from_secs(1);
    /// let builder = Ensemble::builder().session_timeouts(second..=second);
    /// let ensemble = builder.zoo_cfg("enforceQuota=true").start()?;
    /// # Ok(()) }
    /// ```
    pub fn builder() -> EnsembleBuilder {
        EnsembleBuilder::new()
    }

    /// The addresses of all servers, for clients: `127.0.0.1:port,127.0.0.1:port`. They stay the
    /// same when servers are stopped and started.
    pub fn connect_string(&self) -> String {
        let addresses = self.servers.iter().map(address);
        addresses.collect::<Vec<_>>().join(",")
    }

    /// The address of one server, for clients.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub fn address(&self, id: u64) -> Result<String, Error> {
        Ok(address(&self.servers[self.index(id)?]))
    }

    /// The numbers of all servers.
    pub fn ids(&self) -> RangeInclusive<u64> {
        1..=self.servers.len() as u64
    }

    /// Does this server run? One that was stopped or has ended by itself does not.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub fn is_running(&self, id: u64) -> Result<bool, Error> {
        Ok(self.servers[self.index(id)?].is_running())
    }

    /// The server that leads now, or the standalone server; `None` while none does.
    pub fn leader(&self) -> Option<u64> {
        self.ids().zip(&self.servers).find(|(_, server)| server.leads()).map(|(id, _)| id)
    }

    /// The temporary folder of the ensemble. The folder with the number of a server holds its
    /// `zoo.cfg`, and its data in `data`.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops a server as SIGTERM does, and keeps its data: a leader hands leadership over, and
    /// requests that were read are answered. Sessions live on. Does nothing if the server does not
    /// run.
    ///
    /// # Errors
    /// The server had ended by itself, or the ensemble has no such server.
    pub fn stop_server(&mut self, id: u64) -> Result<(), Error> {
        let index = self.index(id)?;
        self.servers[index].stop();
        self.servers[index].wait_for_end()
    }

    /// Stops a server as SIGKILL does, and keeps its data: the others elect another leader, and
    /// clients do not know whether their last requests were carried out. Unlike after SIGKILL, what
    /// the server has begun to write to its log is complete. Does nothing if the server does not
    /// run.
    ///
    /// # Errors
    /// The server had ended by itself, or the ensemble has no such server.
    pub fn kill_server(&mut self, id: u64) -> Result<(), Error> {
        let index = self.index(id)?;
        self.servers[index].kill();
        self.servers[index].wait_for_end()
    }

    /// Starts a server that was stopped, with the data and the address that it had. Returns when it
    /// serves clients; or, if no majority of the servers runs, when the other servers can reach it.
    /// Does nothing if the server runs. A server that is not ready in time runs on.
    ///
    /// # Errors
    /// The server had ended by itself (a further call starts it), it cannot start, or is not ready
    /// in time; or the ensemble has no such server.
    pub fn start_server(&mut self, id: u64) -> Result<(), Error> {
        let index = self.index(id)?;
        let Some(starting) = self.servers[index].start()? else { return Ok(()) };
        let running = self.servers.iter().filter(|server| server.is_running()).count();
        let has_majority = running * 2 > self.servers.len();
        let wanted = if has_majority { Milestone::Serving } else { Milestone::Opened };
        self.servers[index].wait(&starting, wanted, self.timeout)
    }

    /// [`Ensemble::stop_server`] and [`Ensemble::start_server`].
    ///
    /// # Errors
    /// As these two.
    pub fn restart_server(&mut self, id: u64) -> Result<(), Error> {
        self.stop_server(id)?;
        self.start_server(id)
    }

    /// Stops all servers as [`Ensemble::stop_server`] does, and removes their data.
    ///
    /// # Errors
    /// A server had ended by itself.
    pub fn close(mut self) -> Result<(), Error> {
        self.servers.iter().for_each(Server::stop);
        let ended: Vec<_> = self.servers.iter_mut().map(Server::wait_for_end).collect();
        ended.into_iter().collect()
    }

    /// Starts all servers and waits until each of them serves.
    fn start_all(&mut self) -> Result<(), Error> {
        let mut starting: Vec<(&mut Server, Starting)> = Vec::new();
        for server in &mut self.servers {
            if let Some(began) = server.start()? {
                starting.push((server, began));
            }
        }
        for (server, began) in starting {
            server.wait(&began, Milestone::Serving, self.timeout)?;
        }
        Ok(())
    }

    /// The index of a server.
    fn index(&self, id: u64) -> Result<usize, Error> {
        let index = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        let last = self.servers.len();
        index.filter(|index| *index < last).ok_or_else(|| Error::no_server(id, last))
    }
}

impl Drop for Ensemble {
    fn drop(&mut self) {
        // All at once; dropping a server waits for its end.
        self.servers.iter().for_each(Server::kill);
    }
}

fn address(server: &Server) -> String {
    format!("127.0.0.1:{}", server.client_port())
}
