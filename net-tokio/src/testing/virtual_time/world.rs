//! The servers of a virtual ensemble, their network, and the task that runs them.
//!
//! Owns the order of events and the clocks of all machines. Must not know what a server does.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::sync::futures::Notified;
use tokio::time::Sleep;
use tracing::span::EnteredSpan;
use zabkeeper_client::ServerAddr;
use zabkeeper_core::{Instant, Membership, Now, WallMs};

use super::super::Error;
use super::builder::{CLIENT_PORT, host};
use super::files::MemoryDir;
use super::machine::{Ended, Machine};
use super::network::{Arrival, Delivery, Network};
use super::seeds::Seeds;
use crate::config::Settings;

/// What the clocks on the wall of all servers show when an ensemble starts: 2027-01-15, 08:00 UTC.
const WALL_START: i64 = 1_800_000_000_000;

/// The longest timer, a year: a later deadline could overflow tokio's clock.
const FAR: Duration = Duration::from_secs(365 * 24 * 3600);

/// What the handle of the ensemble, its clients, and the task that runs the servers share.
pub(super) struct Shared {
    world: Mutex<World>,
    /// Notified when the task has to look at the world before its next deadline.
    wake: Notify,
    /// Notified when the servers have taken a turn.
    changed: Notify,
    start: tokio::time::Instant,
}

/// All machines of the servers, and the network.
pub(super) struct World {
    pub(super) network: Network,
    seeds: Seeds,
    last_client: u64,
    places: BTreeMap<u64, Place>,
}

/// The machine of a server.
struct Place {
    settings: Settings,
    disk: [MemoryDir; 2],
    running: Option<Machine>,
    /// Why the server has ended by itself, until a caller gets to know it.
    failure: Option<String>,
}

impl Shared {
    pub(super) fn new(seeds: Seeds, settings: BTreeMap<u64, Settings>) -> Shared {
        let place =
            |settings| Place { settings, disk: Default::default(), running: None, failure: None };
        let places = settings.into_iter().map(|(id, settings)| (id, place(settings))).collect();
        Shared {
            world: Mutex::new(World { network: Network::default(), seeds, last_client: 0, places }),
            wake: Notify::new(),
            changed: Notify::new(),
            start: tokio::time::Instant::now(),
        }
    }

    /// The world. No code holds it across an await.
    pub(super) fn world(&self) -> MutexGuard<'_, World> {
        self.world.lock().expect("no server has panicked")
    }

    /// The same for the end of a value: while a panic unwinds, it must not panic.
    pub(super) fn world_at_end(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The virtual time since the ensemble was made.
    pub(super) fn now(&self) -> Instant {
        Instant::default().after(self.start.elapsed())
    }

    /// Completes at this time of [`Shared::now`].
    pub(super) fn sleep_until(&self, at: Instant) -> Sleep {
        tokio::time::sleep_until(self.start + at.since(Instant::default()).min(FAR))
    }

    /// Something has changed that the servers may have to react to.
    pub(super) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Completes when the servers take a turn after this call.
    pub(super) fn changed(&self) -> Notified<'_> {
        self.changed.notified()
    }

    /// Runs all servers, for ever.
    pub(super) async fn run(self: Arc<Self>) {
        loop {
            let due = self.world().run(self.now());
            self.changed.notify_waiters();
            match due {
                None => self.wake.notified().await,
                Some(at) => tokio::select! {
                    biased;
                    () = self.wake.notified() => {}
                    () = self.sleep_until(at) => {}
                },
            }
        }
    }
}

impl World {
    /// Starts a server, unless it runs.
    ///
    /// # Errors
    /// Its data is not usable, or the ensemble has no such server.
    pub(super) fn start(&mut self, id: u64, now: Instant) -> Result<(), Error> {
        let seeds = Seeds::new(self.seeds.number());
        let place = self.place(id)?;
        if place.running.is_some() {
            return Ok(());
        }
        let (mut settings, disk, now) = (place.settings.clone(), place.disk.clone(), at(now));
        let ensemble = settings.ensemble.as_ref();
        settings.core.membership =
            ensemble.map(|ensemble| Membership { text: ensemble.text(), since: now.wall });
        let started = Machine::start(settings, disk, seeds, now);
        place.running = Some(started.map_err(|what| Error::Server { id, what })?);
        Ok(())
    }

    /// Ends a server at once, as SIGKILL does.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub(super) fn kill(&mut self, id: u64, now: Instant) -> Result<(), Error> {
        self.place(id)?.running = None;
        self.network.close_all(id, now);
        Ok(())
    }

    /// Ends all servers and connections.
    pub(super) fn end(&mut self) {
        self.places.values_mut().for_each(|place| place.running = None);
        self.network.end();
    }

    /// A server that runs.
    ///
    /// # Errors
    /// The ensemble has no such server.
    pub(super) fn running(&mut self, id: u64) -> Result<Option<&mut Machine>, Error> {
        Ok(self.place(id)?.running.as_mut())
    }

    /// All servers that run.
    pub(super) fn all_running(&self) -> impl Iterator<Item = (u64, &Machine)> {
        self.places.iter().filter_map(|(id, place)| Some((*id, place.running.as_ref()?)))
    }

    /// The seed and the number of a new client.
    pub(super) fn next_client(&mut self) -> (u128, u64) {
        self.last_client += 1;
        (u128::from_le_bytes(self.seeds.bytes()), self.last_client)
    }

    /// Reports that a server has ended by itself, once.
    ///
    /// # Errors
    /// It has, or the ensemble has no such server.
    pub(super) fn check(&mut self, id: u64) -> Result<(), Error> {
        let failure = self.place(id)?.failure.take();
        failure.map_or(Ok(()), |what| Err(Error::Server { id, what }))
    }

    /// The server with this address for clients.
    pub(super) fn server_at(&self, address: &ServerAddr) -> Option<u64> {
        let mut ids = self.places.keys().copied();
        ids.find(|id| address.port == CLIENT_PORT && address.host == host(*id))
    }

    fn place(&mut self, id: u64) -> Result<&mut Place, Error> {
        let last = self.places.len();
        self.places.get_mut(&id).ok_or_else(|| Error::no_server(id, last))
    }

    /// Delivers what has arrived, and lets the servers take the turns that are due. Returns when
    /// the next event is due.
    fn run(&mut self, now: Instant) -> Option<Instant> {
        let World { network, places, .. } = self;
        while let Some(delivery) = network.next_delivery(now) {
            match places.get_mut(&delivery.server).and_then(|place| place.running.as_mut()) {
                Some(machine) => {
                    let _of_all_lines = span(delivery.server);
                    machine.take(delivery, at(now), network);
                }
                None => refuse(&delivery, network, now),
            }
        }
        for (id, place) in places.iter_mut() {
            let Some(machine) = &mut place.running else { continue };
            if machine.due().is_none_or(|due| due > now) {
                continue;
            }
            let _of_all_lines = span(*id);
            if let Some(ended) = machine.turn(at(now), network) {
                place.end(ended);
                network.close_all(*id, now);
            }
        }
        let due = places.values().filter_map(|place| place.running.as_ref()?.due());
        due.chain(network.next_arrival()).min()
    }
}

impl Place {
    fn end(&mut self, ended: Ended) {
        self.running = None;
        match &ended {
            Ok(()) => tracing::info!("stopped"),
            Err(why) => tracing::error!("{why}"),
        }
        self.failure = ended.err();
    }
}

fn refuse(delivery: &Delivery, network: &mut Network, now: Instant) {
    if matches!(delivery.arrival, Arrival::Open) {
        network.answer(delivery.conn, false, now);
    }
}

/// The span of all lines that a server logs.
fn span(id: u64) -> EnteredSpan {
    tracing::info_span!("zabkeeper", myid = id).entered()
}

/// Both clocks of every server at this virtual time.
fn at(mono: Instant) -> Now {
    let passed = i64::try_from(mono.since(Instant::default()).as_millis());
    Now { mono, wall: WallMs(WALL_START.saturating_add(passed.unwrap_or(i64::MAX))) }
}
