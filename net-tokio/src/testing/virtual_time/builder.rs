//! The settings of a virtual ensemble.
//!
//! Owns their defaults where they differ from those of an `Ensemble`. Must not run servers.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use zabkeeper_core::peer::secret::Secrets;

use super::super::builder::{EnsembleBuilder, Place};
use super::VirtualEnsemble;
use super::seeds::Seeds;
use super::world::Shared;
use crate::config::{self, Settings};
use crate::testing::Error;

/// Default tick, as in ZooKeeper's sample of a `zoo.cfg`: virtual time costs nothing.
const TICK: Duration = Duration::from_secs(2);

/// Ticks for learners to synchronize and to answer, as in ZooKeeper's sample of a `zoo.cfg`.
const LIMITS: &str = "initLimit=10\nsyncLimit=5";

/// The port of all servers for clients. Each server has an address of its own.
pub(super) const CLIENT_PORT: u16 = 2181;

/// The settings of a virtual ensemble; see [`VirtualEnsemble::builder`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct VirtualEnsembleBuilder {
    common: EnsembleBuilder,
    seed: u64,
}

impl VirtualEnsembleBuilder {
    pub(super) fn new() -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: EnsembleBuilder::new().tick(TICK), seed: 0 }
    }

    /// The number of servers; default 1. One server is a standalone server, as in ZooKeeper.
    pub fn servers(self, servers: usize) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: self.common.servers(servers), ..self }
    }

    /// `tickTime`; default 2 s. It is the unit of all times in `zoo.cfg`: a leader that hears no
    /// majority steps down after at most 5 ticks (`syncLimit`).
    pub fn tick(self, tick: Duration) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: self.common.tick(tick), ..self }
    }

    /// The session timeouts that the servers grant; default 2 ticks to 60 s. A client that asks for
    /// less or more gets the nearest one.
    pub fn session_timeouts(self, timeouts: RangeInclusive<Duration>) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: self.common.session_timeouts(timeouts), ..self }
    }

    /// More lines for the `zoo.cfg` of each server, such as `snapCount=1000`. They override the
    /// other settings; a further call adds lines. Lines about files, folders, ports and sockets
    /// have no effect.
    pub fn zoo_cfg(self, lines: &str) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: self.common.zoo_cfg(lines), ..self }
    }

    /// How much virtual time [`VirtualEnsembleBuilder::start`], [`VirtualEnsemble::start_server`]
    /// and [`VirtualEnsemble::stop_server`] wait at most; default 30 s.
    pub fn timeout(self, timeout: Duration) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { common: self.common.timeout(timeout), ..self }
    }

    /// The seed of all random choices: of elections, session ids, passwords, and of the pauses of
    /// clients; default 0. Another seed gives another run.
    pub fn seed(self, seed: u64) -> VirtualEnsembleBuilder {
        VirtualEnsembleBuilder { seed, ..self }
    }

    /// Starts the servers; returns when each of them serves clients, after less than a second of
    /// virtual time as a rule.
    ///
    /// # Errors
    /// A setting is invalid, tokio's clock is not paused, or a server does not serve in time. No
    /// server runs then.
    pub async fn start(&self) -> Result<VirtualEnsemble, Error> {
        let servers = self.common.checked_servers()?;
        if !is_clock_paused() {
            return Err(Error::Invalid(
                "the clock of tokio runs: begin the test with #[tokio::test(start_paused = true)], \
                 or call tokio::time::pause() on a current-thread runtime; both need tokio's \
                 feature test-util"
                    .to_owned(),
            ));
        }
        let mut seeds = Seeds::new(self.seed);
        let secret = format!("{:032x}", u128::from_le_bytes(seeds.bytes()));
        let secrets = Secrets::parse(&secret).expect("it is as long as a secret has to be");
        let ids = 1..=servers as u64;
        let settings = ids.map(|id| Ok((id, self.settings(id, &secrets)?)));
        let settings: BTreeMap<u64, Settings> = settings.collect::<Result<_, Error>>()?;
        let shared = Arc::new(Shared::new(seeds, settings));
        let ensemble = VirtualEnsemble::new(shared, servers as u64, self.common.timeout);
        ensemble.start_all().await?;
        Ok(ensemble)
    }

    /// The settings of a server.
    fn settings(&self, id: u64, secrets: &Secrets) -> Result<Settings, Error> {
        let line = |id| format!("server.{id}={}:2888:3888\n", host(id));
        let members: String = (1..=self.common.servers as u64).map(line).collect();
        let place = Place {
            id,
            host: &host(id),
            port: CLIENT_PORT,
            data: "memory".to_owned(),
            members: if self.common.servers > 1 { members } else { String::new() },
            limits: LIMITS,
        };
        let (text, myid) = (self.common.text(&place), |_: &_| Ok(id.to_string()));
        let (mut settings, warnings) = config::parse("zoo.cfg", &text, &[], &myid)
            .map_err(|error| Error::Invalid(error.to_string()))?;
        for warning in warnings {
            tracing::warn!("{warning}");
        }
        if let Some(ensemble) = &mut settings.ensemble {
            ensemble.secrets = secrets.clone();
            ensemble.demands_secret = true;
        }
        Ok(settings)
    }
}

/// The address of the machine of a server.
pub(super) fn host(id: u64) -> String {
    format!("127.0.0.{id}")
}

/// Does tokio's clock stand still while that of the system goes on?
fn is_clock_paused() -> bool {
    let (real, before) = (std::time::Instant::now(), tokio::time::Instant::now());
    while real.elapsed() < Duration::from_micros(1) {
        std::hint::spin_loop();
    }
    tokio::time::Instant::now() == before
}
