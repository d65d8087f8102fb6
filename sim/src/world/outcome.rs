//! The result of a world.
//!
//! Owns that record. Must not check it.

use std::collections::BTreeMap;

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, ServerId};

use super::Liveness;
use crate::check::checker::{Check, Failure};
use crate::engine::decisions::Step;
use crate::engine::fork::Fork;
use crate::faults::targets::Rule;
use crate::record::counters::Counters;
use crate::record::roles::Roles;
use crate::record::timeline::{Injections, Timeline};
use crate::record::trace::{Trace, TraceSink};

/// How a run ended.
#[derive(Debug)]
pub struct Outcome {
    /// The first failure.
    pub failure: Option<Failure>,
    /// The run ended before a verdict, because it exceeded its time or its events.
    pub inconclusive: bool,
    /// Why the run ended early at a requested stop.
    pub stopped: Option<String>,
    /// The next fork whose place the run did not reach.
    pub unforked: Option<Fork>,
    /// Virtual time at the end.
    pub ended: Instant,
    /// Fingerprint of the trace.
    pub hash: u128,
    /// Number of events in the trace.
    pub events: u64,
    /// Counters.
    pub counters: Counters,
    /// How often each promise was checked.
    pub checks: Vec<(&'static str, u64)>,
    /// Recovery times after the heal.
    pub liveness: Liveness,
    /// Servers that the heal left out, in words; empty if it covered all.
    pub healed: String,
    /// Digest of the state that all servers agree on, if the run reached its final audit.
    pub end_digest: Option<u64>,
    /// The role of each server over time.
    pub roles: Roles,
    /// The injected faults, with their targets.
    pub injections: Injections,
    /// The collected events, if requested.
    pub timeline: Option<Box<Timeline>>,
    /// The contents of servers, disks and queue at the end, if the run had a stop.
    pub held: Held,
    /// Trace lines and hashes per event, if requested.
    pub trace: Trace,
    /// The decisions, if recorded.
    pub steps: Option<Vec<Step>>,
    /// Faults that were injected at marks.
    pub rules: Vec<Rule>,
    /// Steps that hit each mark before the heal.
    pub hits: [u32; Mark::ALL.len()],
}

/// Contents of servers, disks and queue as text.
#[derive(Debug, Default)]
pub struct Held {
    /// By server.
    pub servers: BTreeMap<ServerId, String>,
    /// Future events, the next one first.
    pub queue: Vec<String>,
}

impl Outcome {
    /// The outcome of a panic in the simulator's own code, which loses the world's state.
    pub(crate) fn panicked(message: String) -> Outcome {
        let Check { class, id, sentence } = Check::SIMULATOR;
        let (at, event, evidence) = (Instant::default(), 0, vec![message]);
        Outcome {
            failure: Some(Failure { class, id, sentence, evidence, at, event }),
            inconclusive: false,
            stopped: None,
            unforked: None,
            ended: at,
            hash: 0,
            events: 0,
            counters: Counters::default(),
            checks: Vec::new(),
            liveness: Liveness::default(),
            healed: String::new(),
            end_digest: None,
            roles: Roles::default(),
            injections: Injections::default(),
            timeline: None,
            held: Held::default(),
            trace: Trace::new(TraceSink::Off, false),
            steps: None,
            rules: Vec::new(),
            hits: [0; Mark::ALL.len()],
        }
    }
}
