//! An ensemble in virtual time: servers and clients in one task, for which an hour passes at once.
//!
//! Owns the handle of the ensemble. Must not decide anything about the service: `machine` hosts the
//! servers, and `network` moves their bytes.

mod builder;
mod client;
mod conn;
mod faults;
mod files;
mod machine;
mod network;
mod seeds;
mod world;

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::timeout;
use zabkeeper_client::{Client, Config, ConnectString, Driver, Engine};

use super::Error;
pub use builder::VirtualEnsembleBuilder;
use builder::{CLIENT_PORT, host};
use client::VirtualRuntime;
use world::{Shared, World};

/// Session timeout of [`VirtualEnsemble::client`], ms: that of `zabkeeper_client::Client::connect`.
const SESSION_TIMEOUT_MS: i32 = 30_000;

/// An ensemble of servers in virtual time. Dropping it ends all servers and connections.
///
/// The servers and their clients run on the paused clock of tokio, without sockets, threads and
/// files: when all tasks of the test wait, the clock jumps to the next deadline. So a test of
/// session expiry, failover or an hour of silence takes milliseconds, and does not depend on the
/// load of the machine.
///
/// ```
/// use std::time::Duration;
/// use zabkeeper::testing::VirtualEnsemble;
/// use zabkeeper_client::recipes::Lock;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
/// # let runtime = tokio::runtime::Builder::new_current_thread()
/// #     .enable_time().start_paused(true).build()?;
/// # runtime.block_on(async { // #[tokio::test(start_paused = true)]
/// let ensemble = VirtualEnsemble::start(3).await?;
/// let (a, b) = (ensemble.connect().await?, ensemble.connect().await?);
/// let first = Lock::new(&a, "/lock").acquire().await?;
///
/// ensemble.isolate(&a)?; // Until its session expires, 30 s later.
/// let second = Lock::new(&b, "/lock").acquire().await?;
/// assert!(second.token() > first.token());
///
/// tokio::time::sleep(Duration::from_secs(3600)).await; // Passes at once.
/// ensemble.rejoin(&a)?;
/// first.lost().await;
/// # Ok(()) }) }
/// ```
///
/// The core of the servers, their store and the client are those of the deployed service. Instead
/// of the operating system, the test has a network on which each message takes 1 ms, and disks in
/// memory on which each write takes 1 ms. Servers are known by their numbers, from 1. Server `n`
/// has the address `127.0.0.n`, and the clocks on the wall of all servers begin in January 2027.
///
/// A run depends only on the program and the seed ([`VirtualEnsembleBuilder::seed`]): with equal
/// ones, all zxids, session ids and times are equal. Random choices of the program change the run:
/// `tokio::select!` makes one unless it is `biased`.
///
/// Virtual time passes only while the test awaits something. It passes without end while the test
/// awaits what never happens, such as a connection to servers that do not run: bound such a wait
/// with `tokio::time::timeout`. Let time pass with `tokio::time::sleep`: `tokio::time::advance`
/// moves the clock in one step, as if all machines had stood still, and sessions may expire.
pub struct VirtualEnsemble {
    shared: Arc<Shared>,
    servers: u64,
    timeout: Duration,
    task: AbortHandle,
}

impl VirtualEnsemble {
    /// Starts this many servers, and waits until each of them serves clients.
    ///
    /// # Errors
    /// As [`VirtualEnsembleBuilder::start`].
    pub async fn start(servers: usize) -> Result<VirtualEnsemble, Error> {
        VirtualEnsemble::builder().servers(servers).start().await
    }

    /// Settings for an ensemble.
    pub fn builder() -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder::new()
    }

    fn new(shared: Arc<Shared>, servers: u64, timeout: Duration) -> VirtualEnsemble {
        let task = tokio::spawn(Arc::clone(&shared).run()).abort_handle();
        VirtualEnsemble { shared, servers, timeout, task }
    }

    /// A new client, whose operations wait for a connection. It asks for a session timeout of 30 s.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client(&self) -> Client {
        self.client_with(|_| {})
    }

    /// A new client with changed settings, such as its session timeout, or one server of
    /// [`VirtualEnsemble::address`] in place of all of them.
    ///
    /// # Panics
    /// Outside of a tokio runtime.
    pub fn client_with(&self, change: impl FnOnce(&mut Config)) -> Client {
        let servers: ConnectString = self.connect_string().parse().expect("it has this form");
        let mut config = Config::new(servers, SESSION_TIMEOUT_MS);
        change(&mut config);
        let (seed, number) = self.shared.world().next_client();
        let (client, engine) = Engine::new(config, seed);
        let runtime = VirtualRuntime::new(Arc::clone(&self.shared), number);
        tokio::spawn(Driver::new(engine, runtime));
        client
    }

    /// [`VirtualEnsemble::client`], and waits until a server has accepted its session.
    ///
    /// # Errors
    /// The session has ended.
    ///
    /// # Panics
    /// As [`VirtualEnsemble::client`].
    pub async fn connect(&self) -> Result<Client, zabkeeper_client::Error> {
        let client = self.client();
        client.connected().await?;
        Ok(client)
    }

    /// The addresses of all servers, for the settings of clients of this ensemble. No other client
    /// reaches them.
    pub fn connect_string(&self) -> String {
        self.ids().map(address).collect::<Vec<_>>().join(",")
    }

    /// The address of one server, for the settings of clients of this ensemble.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub fn address(&self, id: u64) -> Result<String, Error> {
        self.shared.world().running(id).map(|_| address(id))
    }

    /// The numbers of all servers.
    pub fn ids(&self) -> RangeInclusive<u64> {
        1..=self.servers
    }

    /// Does this server run? One that was stopped or has ended by itself does not.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub fn is_running(&self, id: u64) -> Result<bool, Error> {
        Ok(self.shared.world().running(id)?.is_some())
    }

    /// The server that leads now, or the standalone server; `None` while none does. While a leader
    /// is cut off and has not stepped down, its successor.
    pub fn leader(&self) -> Option<u64> {
        let world = self.shared.world();
        let leaders = world.all_running().filter(|(_, machine)| machine.leads());
        leaders.max_by_key(|(_, machine)| machine.status().current_epoch).map(|(id, _)| id)
    }

    /// Stops a server as SIGTERM does, and keeps its data: a leader hands leadership over, and
    /// requests that were read are answered. Sessions live on. Does nothing if the server does not
    /// run.
    ///
    /// # Errors
    /// The server had ended by itself, or the ensemble has no such server.
    pub async fn stop_server(&self, id: u64) -> Result<(), Error> {
        let now = self.shared.now();
        if let Some(machine) = self.shared.world().running(id)? {
            machine.stop(now);
        }
        self.shared.wake();
        self.wait(id, |world| Ok(world.running(id)?.is_none())).await?;
        self.shared.world().check(id)
    }

    /// Stops a server as SIGKILL does, and keeps its data: the others elect another leader, and
    /// clients do not know whether their last requests were carried out. Does nothing if the server
    /// does not run.
    ///
    /// # Errors
    /// The server had ended by itself, or the ensemble has no such server.
    pub fn kill_server(&self, id: u64) -> Result<(), Error> {
        let now = self.shared.now();
        let mut world = self.shared.world();
        world.kill(id, now)?;
        self.shared.wake();
        world.check(id)
    }

    /// Starts a server that was stopped, with the data and the address that it had. Returns when it
    /// serves clients; or at once, if no majority of the servers runs. Does nothing if the server
    /// runs. A server that is not ready in time runs on.
    ///
    /// # Errors
    /// The server had ended by itself (a further call starts it), it cannot start, or is not ready
    /// in time; or the ensemble has no such server.
    pub async fn start_server(&self, id: u64) -> Result<(), Error> {
        if self.is_running(id)? {
            return Ok(());
        }
        self.begin_start(id)?;
        let running = self.shared.world().all_running().count() as u64;
        if running * 2 > self.servers { self.wait_until_serving(id).await } else { Ok(()) }
    }

    /// [`VirtualEnsemble::stop_server`] and [`VirtualEnsemble::start_server`].
    ///
    /// # Errors
    /// As these two.
    pub async fn restart_server(&self, id: u64) -> Result<(), Error> {
        self.stop_server(id).await?;
        self.start_server(id).await
    }

    /// Starts all servers and waits until each of them serves.
    async fn start_all(&self) -> Result<(), Error> {
        self.ids().try_for_each(|id| self.begin_start(id))?;
        for id in self.ids() {
            self.wait_until_serving(id).await?;
        }
        Ok(())
    }

    fn begin_start(&self, id: u64) -> Result<(), Error> {
        let now = self.shared.now();
        let mut world = self.shared.world();
        world.check(id)?;
        world.start(id, now)?;
        self.shared.wake();
        Ok(())
    }

    async fn wait_until_serving(&self, id: u64) -> Result<(), Error> {
        let is_ready = |world: &mut World| match world.running(id)? {
            Some(machine) => Ok(machine.status().serving),
            None => {
                world.check(id)?;
                let what = "it was stopped while it started".to_owned();
                Err(Error::Server { id, what })
            }
        };
        self.wait(id, is_ready).await
    }

    /// Waits until the world is as wanted.
    async fn wait(
        &self,
        id: u64,
        is_ready: impl Fn(&mut World) -> Result<bool, Error>,
    ) -> Result<(), Error> {
        let wait = async {
            loop {
                let changed = self.shared.changed();
                let ready = is_ready(&mut self.shared.world())?;
                if ready {
                    return Ok(());
                }
                changed.await;
            }
        };
        let late = |_| Err(Error::TimedOut { id, waited: self.timeout });
        timeout(self.timeout, wait).await.unwrap_or_else(late)
    }
}

impl fmt::Debug for VirtualEnsemble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VirtualEnsemble({} servers)", self.servers)
    }
}

impl Drop for VirtualEnsemble {
    fn drop(&mut self) {
        self.task.abort();
        self.shared.world_at_end().end();
    }
}

fn address(id: u64) -> String {
    format!("{}:{CLIENT_PORT}", host(id))
}
