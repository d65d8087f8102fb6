//! What is left of a world when its run has ended.
//!
//! Owns that record. Must not judge it.

use std::collections::BTreeMap;

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, ServerId};

use super::Liveness;
use crate::chronicle::{Chronicle, Strikes};
use crate::fork::Fork;
use crate::judge::{Check, Failure};
use crate::roles::Roles;
use crate::schedule::Step;
use crate::tally::Tally;
use crate::targets::Rule;
use crate::trace::{Story, Trace};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The first failure.
    pub failure: Option<Failure>,
    /// It was given up before a verdict.
    pub inconclusive: bool,
    /// It was stopped before a verdict, as somebody wanted, and why there.
    pub stopped: Option<String>,
    /// The fork that it has not got to.
    pub unforked: Option<Fork>,
    /// Virtual time at the end.
    pub ended: Instant,
    /// The fingerprint.
    pub hash: u128,
    /// Number of events in the trace.
    pub events: u64,
    /// Counters.
    pub tally: Tally,
    /// How often each promise was checked.
    pub checks: Vec<(&'static str, u64)>,
    /// How long the service took to recover after the heal.
    pub liveness: Liveness,
    /// Who was healed, where not all were; else nothing.
    pub healed: String,
    /// Of the state that all servers have got to, where the run has got to its audit.
    pub end_digest: Option<u64>,
    /// Who led and followed when.
    pub roles: Roles,
    /// Which fault hit whom.
    pub strikes: Strikes,
    /// What has happened, where it was to be collected.
    pub chronicle: Option<Box<Chronicle>>,
    /// What was there at the end, where the run was to be stopped for a look.
    pub held: Held,
    /// Trace lines kept, and hashes by event, where asked for.
    pub trace: Trace,
    /// What was decided, where that was asked for.
    pub steps: Option<Vec<Step>>,
    /// What has struck at marks.
    pub rules: Vec<Rule>,
    /// Steps that hit each mark before the heal.
    pub hits: [u32; Mark::ALL.len()],
}

/// What only a look into servers, disks and the queue shows, in words.
#[derive(Debug, Default)]
pub struct Held {
    /// By server.
    pub servers: BTreeMap<ServerId, String>,
    /// What will happen, the next first.
    pub queue: Vec<String>,
}

impl Outcome {
    /// Of a world that fell apart: code of the simulator has panicked, and with it is gone what there was.
    pub(crate) fn panicked(said: String) -> Outcome {
        let Check { class, id, sentence } = Check::SIMULATOR;
        let (at, event, evidence) = (Instant::default(), 0, vec![said]);
        Outcome {
            failure: Some(Failure { class, id, sentence, evidence, at, event }),
            inconclusive: false,
            stopped: None,
            unforked: None,
            ended: at,
            hash: 0,
            events: 0,
            tally: Tally::default(),
            checks: Vec::new(),
            liveness: Liveness::default(),
            healed: String::new(),
            end_digest: None,
            roles: Roles::default(),
            strikes: Strikes::default(),
            chronicle: None,
            held: Held::default(),
            trace: Trace::new(Story::Off, false),
            steps: None,
            rules: Vec::new(),
            hits: [0; Mark::ALL.len()],
        }
    }
}
