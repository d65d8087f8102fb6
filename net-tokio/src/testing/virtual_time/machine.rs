//! A running server of a virtual ensemble: the host of a core and its driver.
//!
//! Owns the turns of the server, its disk and its connections. Must not take protocol decisions,
//! nor read a clock.

use std::collections::BTreeSet;
use std::mem;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use bytes::Bytes;
use storage_fs::{LogLane, Options, ReaderLane, SnapshotLane, StoreError};
use zabkeeper_core::driver::{Driver, Interest, SocketId};
use zabkeeper_core::store::{DiskCommand, DiskEvent, Lane};
use zabkeeper_core::{ConnId, Input, Instant, LinkId, Mode, Now, Outbox, Server, Status};

use super::conn::{Party, Port, Received};
use super::files::MemoryDir;
use super::network::{Arrival, Delivery, Network};
use super::seeds::Seeds;
use crate::config::Settings;
use crate::driver;
use crate::event_loop;
use crate::logging;
use crate::serve;
use crate::shared::READ_BYTES;

/// Time from a turn to the one that continues its work. Completions of the disk are such work, so
/// this is also the time that a disk needs.
const STEP: Duration = Duration::from_millis(1);

/// A server that runs.
pub(super) struct Machine {
    id: u64,
    settings: Settings,
    server: Server,
    driver: Driver,
    outbox: Outbox,
    disk: Disk,
    seeds: Seeds,
    /// Connections that have bytes to be received, or whose `Interest` may have changed.
    pending: BTreeSet<SocketId>,
    /// When the next turn is due.
    due: Option<Instant>,
    /// When the server ends at the latest, if it is to stop.
    stop_at: Option<Instant>,
}

/// The three lanes of the store.
struct Disk {
    log: LogLane<MemoryDir>,
    snapshots: SnapshotLane<MemoryDir>,
    reader: ReaderLane<MemoryDir>,
}

/// How a server has ended by itself: as it was told to, or for this reason.
pub(super) type Ended = Result<(), String>;

impl Machine {
    /// Starts a server with the content of its disk: the directories of log and snapshots.
    ///
    /// # Errors
    /// The content is not usable.
    pub(super) fn start(
        settings: Settings,
        [log, snapshots]: [MemoryDir; 2],
        mut seeds: Seeds,
        now: Now,
    ) -> Result<Machine, String> {
        let options = Options { segment_bytes: settings.segment_bytes, store_id: seeds.number() };
        let opened = storage_fs::open(log, snapshots, options).map_err(|e| e.to_string())?;
        let server = Server::recover(settings.core.clone(), seeds.bytes::<32>(), opened.recovered);
        let server = server.map_err(|damage| damage.to_string())?;
        let driver = driver::new(&settings, server.ensemble_id(), seeds.number(), now.mono);
        Ok(Machine {
            id: settings.core.id().0,
            settings,
            server,
            driver,
            outbox: Outbox::default(),
            disk: Disk { log: opened.log, snapshots: opened.snapshots, reader: opened.reader },
            seeds,
            pending: BTreeSet::new(),
            due: Some(now.mono),
            stop_at: None,
        })
    }

    /// When the next turn is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// What the server does.
    pub(super) fn status(&self) -> Status {
        self.server.status()
    }

    /// Does the server lead, or serve on its own?
    pub(super) fn leads(&self) -> bool {
        let Status { mode, serving, .. } = self.status();
        serving && matches!(mode, Mode::Leader | Mode::Standalone)
    }

    /// Begins to stop the server, as after SIGTERM.
    pub(super) fn stop(&mut self, now: Instant) {
        self.driver.stop();
        self.stop_at.get_or_insert(now.after(serve::time_to_stop(&self.settings)));
        self.due = Some(now);
    }

    /// Something has arrived. A turn is due then.
    pub(super) fn take(&mut self, delivery: Delivery, now: Now, network: &mut Network) {
        let Delivery { conn, port, arrival, .. } = delivery;
        let link = LinkId(conn);
        self.due = Some(now.mono);
        match (arrival, port) {
            (Arrival::Open, Port::Clients) => {
                let accepted =
                    self.driver.clients.accept(ConnId(conn), address(conn), Vec::new(), now);
                if let Err(bound) = &accepted {
                    tracing::warn!("closed the connection from {}: {bound}", address(conn));
                }
                network.answer(conn, accepted.is_ok(), now.mono);
            }
            (Arrival::Open, Port::Servers(channel)) => {
                let nonce = self.seeds.bytes();
                self.driver.peers.accept(link, channel, address(conn), nonce, now.mono);
                network.answer(conn, true, now.mono);
            }
            (Arrival::Opened, _) => {
                self.driver.peers.connected(link, self.seeds.bytes(), now.mono);
            }
            (Arrival::Refused, _) => self.cannot_reach(link, "connection refused", now.mono),
            (Arrival::DialTimeout, _) => self.cannot_reach(link, "timed out", now.mono),
            (Arrival::Readable, _) => {
                self.pending.insert(socket_of(conn, port));
            }
        }
    }

    fn cannot_reach(&mut self, link: LinkId, why: &str, now: Instant) {
        self.driver.peers.unreachable(link, why.to_owned(), now);
    }

    /// Steps the core with what has arrived, and carries out its commands. Returns how the server
    /// has ended, if it has.
    pub(super) fn turn(&mut self, now: Now, network: &mut Network) -> Option<Ended> {
        self.receive(now.mono, network);
        event_loop::take_turn(&mut self.server, &mut self.driver, &mut self.outbox, now);
        for event in self.disk.run(&mut self.outbox.disk) {
            self.driver.push(Input::Disk(event));
        }
        self.driver.deliver(now, &self.server, &mut self.outbox);
        while let Some(socket) = self.driver.next_to_flush() {
            self.flush(socket, now.mono, network);
        }
        self.dial(now.mono, network);
        let has_received = self.receive(now.mono, network);
        self.driver.report_notes();
        while let Some(report) = self.driver.reports.next_line(now) {
            logging::log(&report);
        }
        let next = match has_received || self.driver.has_work() {
            true => Some(now.mono),
            false => self.driver.next_deadline(&self.server),
        };
        let next = next.into_iter().chain(self.stop_at).min();
        self.due = next.map(|at| at.max(now.mono.after(STEP)));
        self.ended(now.mono)
    }

    fn ended(&mut self, now: Instant) -> Option<Ended> {
        if let Some(why) = self.server.halted() {
            return Some(Err(why.to_string()));
        }
        let latest = self.stop_at?;
        let is_ensemble = self.settings.ensemble.is_some();
        let complete = event_loop::is_complete(&self.server, &self.driver, is_ensemble);
        (complete || now >= latest)
            .then(|| self.disk.log.record_end().map_err(|error| error.to_string()))
    }

    /// Passes received bytes to the driver and closes connections, as their interest demands.
    /// Returns whether there were bytes.
    fn receive(&mut self, now: Instant, network: &mut Network) -> bool {
        let mut any = false;
        loop {
            while let Some(socket) = self.driver.next_changed() {
                self.pending.insert(socket);
            }
            let Some(socket) = self.pending.pop_first() else { return any };
            let (conn, me) = (conn_of(socket), Party::Server(self.id));
            match self.driver.interest(socket) {
                Interest::Wait => continue,
                Interest::Read => match network.receive(conn, me, READ_BYTES) {
                    Received::Nothing => continue,
                    Received::End => self.driver.receive_end(socket, now),
                    Received::Bytes(bytes) => self.driver.receive(socket, &bytes, now),
                },
                interest @ (Interest::Shutdown | Interest::Close) => {
                    if interest == Interest::Shutdown {
                        self.flush(socket, now, network);
                    }
                    network.close(conn, me, now);
                    let _reported = self.driver.forget(socket, now);
                    continue;
                }
            }
            any = true;
            self.pending.insert(socket);
        }
    }

    /// Sends all output of a connection.
    fn flush(&mut self, socket: SocketId, now: Instant, network: &mut Network) {
        let (conn, me) = (conn_of(socket), Party::Server(self.id));
        while let length @ 1.. = self.driver.output(socket).len() {
            let bytes = Bytes::copy_from_slice(self.driver.output(socket));
            network.send(conn, me, bytes, now);
            self.driver.sent(socket, length, now);
        }
        if let SocketId::Client(id) = socket
            && let Some(session) = self.driver.clients.session(id)
        {
            network.note_session(conn, session);
        }
    }

    /// Opens connections to other servers.
    fn dial(&mut self, now: Instant, network: &mut Network) {
        while let Some(dial) = self.driver.peers.next_dial(now, || LinkId(network.next_conn())) {
            let time = self.settings.ensemble.as_ref().map(|ensemble| ensemble.connect_timeout);
            let limit = time.map(|time| now.after(time));
            let (from, port) = (Party::Server(self.id), Port::Servers(dial.channel));
            network.dial(dial.link.0, (from, dial.to.0), port, limit, now);
        }
    }
}

impl Disk {
    /// Runs all commands; returns their completions.
    fn run(&mut self, commands: &mut Vec<DiskCommand>) -> Vec<DiskEvent> {
        self.try_run(mem::take(commands))
            .unwrap_or_else(|error| vec![DiskEvent::Failed(error.to_string())])
    }

    fn try_run(&mut self, commands: Vec<DiskCommand>) -> Result<Vec<DiskEvent>, StoreError> {
        let is_of_log = |command: &DiskCommand| command.lane() == Lane::Log;
        let (log, others): (Vec<_>, Vec<_>) = commands.into_iter().partition(is_of_log);
        let mut events = Vec::new();
        if !log.is_empty() {
            events.push(DiskEvent::Done(self.log.run(&log)?));
        }
        for command in &others {
            match command.lane() {
                Lane::Snapshot => events.extend(self.snapshots.run(command)?),
                Lane::Reader | Lane::Log => events.push(self.reader.run(command)),
            }
        }
        Ok(events)
    }
}

fn socket_of(conn: u64, port: Port) -> SocketId {
    match port {
        Port::Clients => SocketId::Client(ConnId(conn)),
        Port::Servers(_) => SocketId::Server(LinkId(conn)),
    }
}

fn conn_of(socket: SocketId) -> u64 {
    match socket {
        SocketId::Client(ConnId(conn)) | SocketId::Server(LinkId(conn)) => conn,
    }
}

/// The address from which a connection comes. All machines are this one, as in `Ensemble`.
fn address(conn: u64) -> SocketAddr {
    let ephemeral = u16::try_from(conn % 16_384).expect("below 2^14") + 49_152;
    SocketAddr::from((Ipv4Addr::LOCALHOST, ephemeral))
}
