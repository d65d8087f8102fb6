//! The record keepers of a run, and the order in which they read an event.
//!
//! Owns all of them. Must not influence the run. Two records are read in it: `machine/node/disk`
//! numbers a random stream by the count of audits, and `world/inject` looks whether a fault has
//! recorded a hit. The conditions that end a run early are read, too.

use zabkeeper_core::{Instant, ServerId};

use crate::check::observe::Observation;
use crate::network::stream::Network;
use crate::record::counters::Counters;
use crate::record::event::RunEvent;
use crate::record::roles::Roles;
use crate::record::timeline::{Injections, Lines, Place, Timeline};
use crate::record::trace::{Stamp, Trace, TraceSink, plain};

/// The record keepers; see the module.
#[derive(Debug)]
pub struct Recorder {
    /// The role of each server over time.
    pub roles: Roles,
    /// The injected faults, with their targets.
    pub injections: Injections,
    /// Counters.
    pub counters: Counters,
    /// The event trace with its fingerprint.
    pub trace: Trace,
    /// The trace collected for reports that people read.
    pub timeline: Option<Box<Timeline>>,
    /// The trace as lines of server states.
    pub lines: Option<Box<Lines>>,
}

impl Recorder {
    /// Empty records. With `compare`, the trace keeps its hash after each event.
    pub fn new(sink: TraceSink, compare: bool, servers: &[ServerId]) -> Recorder {
        Recorder {
            roles: Roles::default(),
            injections: Injections::default(),
            counters: Counters::default(),
            trace: Trace::new(sink, compare),
            timeline: (sink == TraceSink::Collect).then(Box::default),
            lines: match sink {
                TraceSink::States(view) => Some(Box::new(Lines::new(view, servers))),
                TraceSink::Off
                | TraceSink::Print(_)
                | TraceSink::Collect
                | TraceSink::Discard
                | TraceSink::Keep(..) => None,
            },
        }
    }

    /// Records an event, apart from its entries in the trace and its observations, which come as
    /// notes and observations of their own. Roles come before counters, which read them.
    pub fn record(&mut self, at: Instant, event: &RunEvent<'_>) {
        let place = self.place(at);
        self.roles.record(at, event);
        self.injections.record(at, event);
        self.counters.record(event, &self.roles);
        if let Some(lines) = &mut self.lines {
            lines.record(place, event);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.record(place, event);
        }
    }

    /// Whether an entry of the trace needs its text now.
    pub fn wants_text(&self) -> bool {
        self.timeline.is_some() || self.lines.is_some()
    }

    /// Records an entry of the trace; `text` is called only if it is needed.
    pub fn note(
        &mut self,
        stamp: Stamp,
        payload: &[u8],
        net: &Network,
        text: impl FnOnce() -> String,
    ) {
        if !self.wants_text() {
            return self.trace.event(stamp, payload, || plain::event(&text(), net));
        }
        let text = text();
        self.trace.event(stamp, payload, || plain::event(&text, net));
        let place = self.place(stamp.at);
        if let Some(lines) = &mut self.lines {
            lines.note(place, stamp.kind, &text);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.note(place, stamp.kind, stamp.ends, payload, text);
        }
    }

    /// Records an observation of the oracles.
    pub fn observe(&mut self, at: Instant, what: &Observation<'_>) {
        let place = self.place(at);
        if let Some(lines) = &mut self.lines {
            lines.observe(place, what);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.observe(place, what);
        }
    }

    /// This time, and the number of the latest entry of the trace.
    pub fn place(&self, at: Instant) -> Place {
        Place { at, event: self.trace.events() }
    }
}
