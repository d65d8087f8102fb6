//! A schedule: everything of a run that differs from the default, as data.
//!
//! Owns what a schedule is; `text` has its format, `settings` the names of settings. Must not run
//! anything.
//!
//! A run consists of settings, a seed for everything that is not a step (latencies, the servers'
//! own random streams), and steps. A step has a time, a kind, and its random choices, small numbers
//! in the order in which it draws them. Each step has its own list of choices, so omitting a step
//! does not change the choices of others.

mod settings;
mod text;

use std::collections::BTreeSet;

use zabkeeper_core::io::Mark;

use crate::check::observe::ClientId;
use crate::engine::decisions::Step;
use crate::faults::catalog::{Fault, Trigger};
use crate::world::options::{Groups, Options};

pub use settings::{
    names as setting_names, plain, value as setting, values as settings, with as with_setting,
};
pub use text::VERSION;

/// A schedule; see the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The promise that it violates.
    pub violates: Option<String>,
    /// The revision at which it was found to fail.
    pub found: Option<String>,
    /// The revision since which it passes.
    pub mended: Option<String>,
    /// Marks of the core that it is meant to reach.
    pub reaches: Vec<Mark>,
    /// Seed of all random streams that are not choices of a step.
    pub seed: u64,
    /// Seed of the paths that clients use.
    pub keys: u64,
    /// Simultaneous events happen in the order in which they were scheduled, instead of a random
    /// one.
    pub in_order: bool,
    /// Clients that never connect. They keep their numbers, so that the numbers of other clients do
    /// not change.
    pub absent: BTreeSet<ClientId>,
    /// The run fails when this fault is injected: an artificial failure with a known cause, for
    /// tests.
    pub trips: Option<Fault>,
    /// The resolved options. Only the properties among the faults, and the bounds of the workload,
    /// have an effect.
    pub options: Options,
    /// In order of time.
    pub steps: Vec<Step>,
}

impl Schedule {
    /// The schedule of a run with these steps.
    pub fn of_run(seed: u64, options: &Options, steps: Vec<Step>) -> Schedule {
        let mut options = options.clone();
        for fault in Fault::ALL {
            if fault.trigger() != Trigger::Always {
                options.faults.switch_off(fault);
            }
        }
        Schedule {
            violates: None,
            found: None,
            mended: None,
            reaches: Vec::new(),
            seed,
            keys: seed,
            in_order: false,
            absent: BTreeSet::new(),
            trips: None,
            options,
            steps,
        }
    }

    /// Checks that its settings are consistent.
    ///
    /// # Errors
    /// Names the settings that conflict, and why.
    pub fn check(&self) -> Result<(), String> {
        let options = &self.options;
        let servers = options.servers;
        options.left_out.check(servers)?;
        if options.observers >= servers {
            let observers = options.observers;
            return Err(format!("observers {observers} leaves no voter of {servers} servers"));
        }
        if options.observers > 0 && options.grows_from > 0 {
            return Err("an ensemble with observers does not grow: observers, grows_from".into());
        }
        if options.reconfig_from > 0 && (options.grows_from > 0 || options.observers > 0) {
            let what = "an ensemble that clients reconfigure neither grows nor has observers from \
                        the start: reconfig_from, grows_from, observers";
            return Err(what.into());
        }
        if options.reconfig_from > 0 && !options.peers.election_conns {
            return Err("reconfigurations need peers.election_conns true: reconfig_from".into());
        }
        options.check_older()?;
        if let Some(id) = options.local.servers.iter().find(|id| id.0 > servers.into()) {
            return Err(format!(
                "local.servers names server {id}, and the last one of the run is {servers}"
            ));
        }
        let Groups { weightless, heavy, .. } = &options.groups;
        if let Some(id) = weightless.union(heavy).find(|id| id.0 > servers.into()) {
            return Err(format!(
                "groups.* names server {id}, and the last one of the run is {servers}"
            ));
        }
        let (init, sync) = options.server.phase_ticks;
        let (limit, least) = (options.server.tick() * init.min(sync), options.shortest_timeout());
        if limit < least {
            return Err(format!(
                "servers give each other up after {limit:?} (tick_ms times the smaller of \
                 init_ticks and \
                 sync_ticks), and messages and syncs take some {least:?} until a leader serves: \
                 raise those, or \
                 lower peers.min_ns, peers.mean_ns or disk.sync_ns"
            ));
        }
        Ok(())
    }

    /// Removes references to servers that it does not have.
    pub fn among_its_servers(mut self) -> Schedule {
        let servers = self.options.servers;
        self.options.left_out = self.options.left_out.among(servers);
        self.options.observers = self.options.observers.min(servers - 1);
        self.options.local.servers.retain(|id| id.0 <= servers.into());
        self.options.older.servers.retain(|id| id.0 <= servers.into());
        self.options.groups.weightless.retain(|id| id.0 <= servers.into());
        self.options.groups.heavy.retain(|id| id.0 <= servers.into());
        self
    }

    /// Number of clients that connect.
    pub fn clients(&self) -> usize {
        let all = 0..self.options.clients;
        all.filter(|id| !self.absent.contains(&ClientId(*id))).count()
    }

    /// Number of faults and of calls.
    pub fn counts(&self) -> (usize, usize) {
        let faults = self.steps.iter().filter(|step| step.act.fault().is_some()).count();
        (faults, self.steps.len() - faults)
    }
}
