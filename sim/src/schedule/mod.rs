//! A schedule: everything of a run that is not its default, as plain data.
//!
//! Owns what a schedule is. How it is written is in `text`, the names of settings in `settings`. Must not run anything.
//!
//! A run is settings, a seed for what nobody decides (latencies, the servers' own dice), and steps. A step is its time,
//! its kind and the choices it made, small numbers in the order in which it asked for them. Each step has a list of its
//! own, so leaving one out does not change what the others do.

mod settings;
mod text;

use std::collections::BTreeSet;

use zabkeeper_core::Instant;
use zabkeeper_core::io::Mark;

use crate::faults::{Fault, Trigger};
use crate::observe::ClientId;
use crate::options::Options;
use crate::workload::Op;
use crate::world::Outcome;

pub use settings::{
    names as setting_names, plain, value as setting, values as settings, with as with_setting,
};
pub use text::{VERSION, clock, parse_clock};

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Schedule {
    /// The promise that it breaks.
    pub violates: Option<String>,
    /// The revision at which it first failed.
    pub found: Option<String>,
    /// The revision since which it passes.
    pub mended: Option<String>,
    /// Branches of the core that it is there to reach.
    pub reaches: Vec<Mark>,
    /// Of what nobody decides.
    pub seed: u64,
    /// Of the paths that clients use.
    pub keys: u64,
    /// Simultaneous events happen in the order in which they were planned, rather than permuted.
    pub in_order: bool,
    /// Clients that are never there. They keep their numbers, so that the others keep theirs.
    pub absent: BTreeSet<ClientId>,
    /// The run fails when this fault strikes: a failure of which it is known what it needs, for trying things out.
    pub trips: Option<Fault>,
    /// As resolved. Of the faults only properties matter; of the workload only what bounds it.
    pub options: Options,
    /// In order of time.
    pub steps: Vec<Step>,
}

/// Something that somebody decided.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// When it happens; later where its client gets no time.
    pub at: Instant,
    /// What.
    pub act: Act,
    /// As they were asked for.
    pub choices: Vec<u64>,
    /// It has met somebody.
    pub hit: bool,
    /// What happened, for people.
    pub told: String,
}

/// A kind of step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    /// A fault strikes.
    Strike(Fault),
    /// A client calls.
    Call(ClientId, Op),
}

impl Schedule {
    /// What a run did.
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

    /// The same with what its run has shown: what happened beside each step, and the promise that was broken.
    pub fn told(&self, outcome: &Outcome) -> Schedule {
        let mut told = self.clone();
        if let Some(steps) = &outcome.steps {
            told.steps.clone_from(steps);
        }
        told.options.rules.clone_from(&outcome.rules);
        told.violates = outcome.failure.as_ref().map(|failure| failure.id.to_owned());
        if told.violates != self.violates {
            (told.found, told.mended) = (None, None);
        }
        told
    }

    /// Does it make sense as a whole?
    ///
    /// # Errors
    /// Settings that do not go together, and why.
    pub fn check(&self) -> Result<(), String> {
        let options = &self.options;
        let servers = options.servers;
        options.left_out.check(servers)?;
        if let Some(id) = options.local.servers.iter().find(|id| id.0 > servers.into()) {
            return Err(format!(
                "local.servers names server {id}, and the last one of the run is {servers}"
            ));
        }
        let (init, sync) = options.server.phase_ticks;
        let (patience, least) = (options.server.tick() * init.min(sync), options.least_patience());
        if patience < least {
            return Err(format!(
                "servers give each other up after {patience:?} (tick_ms times the smaller of init_ticks and \
                 sync_ticks), and messages and syncs take some {least:?} until a leader serves: raise those, or \
                 lower peers.min_ns, peers.mean_ns or disk.sync_ns"
            ));
        }
        Ok(())
    }

    /// The same without what is said of servers that it has no more.
    pub fn among_its_servers(mut self) -> Schedule {
        let servers = self.options.servers;
        self.options.left_out = self.options.left_out.among(servers);
        self.options.local.servers.retain(|id| id.0 <= servers.into());
        self
    }

    /// How many clients are ever there.
    pub fn clients(&self) -> usize {
        let all = 0..self.options.clients;
        all.filter(|id| !self.absent.contains(&ClientId(*id))).count()
    }

    /// How many strikes and calls.
    pub fn counts(&self) -> (usize, usize) {
        let strikes = self.steps.iter().filter(|step| step.act.fault().is_some()).count();
        (strikes, self.steps.len() - strikes)
    }
}

impl Act {
    /// The fault that strikes.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Act::Strike(fault) => Some(fault),
            Act::Call(..) => None,
        }
    }

    /// The client that calls.
    pub fn client(self) -> Option<ClientId> {
        match self {
            Act::Strike(_) => None,
            Act::Call(client, _) => Some(client),
        }
    }
}
