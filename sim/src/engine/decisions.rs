//! Decisions of a run: injected faults, and calls of clients.
//!
//! Owns when the next decision is due, from the seed or from a schedule, and the record of
//! decisions. Must not know their effects. Decisions are not in the event queue, and precede all of
//! its events at the same instant: a schedule without some of them leaves the order of all other
//! events unchanged.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zabkeeper_core::{Instant, ServerId};

use crate::check::observe::ClientId;
use crate::clients::workload::Op;
use crate::faults::catalog::Fault;

/// A decision.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum Due {
    /// A fault is injected with random choices.
    Inject(Fault),
    /// A client makes its next random calls. Void once that incarnation is over.
    Work { client: ClientId, incarnation: u64 },
    /// A client makes a call in response to a reply or an event; only a read if `reads`. Void once
    /// that incarnation is over.
    GoOn { client: ClientId, incarnation: u64, reads: bool },
    /// A deposed leader that does not know it until `until` receives a request.
    Load { server: ServerId, until: Instant },
    /// The step of the schedule with this index.
    Scripted(usize),
}

/// A decision as a schedule records it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Step {
    /// When it happens; later if its client is frozen.
    pub at: Instant,
    /// Its kind.
    pub act: Act,
    /// Its random choices, in order.
    pub choices: Vec<u64>,
    /// It had a target.
    pub hit: bool,
    /// Its effects in words.
    pub effect: String,
}

/// A kind of step.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Act {
    /// A fault is injected.
    Inject(Fault),
    /// A client calls.
    Call(ClientId, Op),
}

impl Act {
    /// The fault that is injected.
    pub fn fault(self) -> Option<Fault> {
        match self {
            Act::Inject(fault) => Some(fault),
            Act::Call(..) => None,
        }
    }

    /// The client that calls.
    pub fn client(self) -> Option<ClientId> {
        match self {
            Act::Inject(_) => None,
            Act::Call(client, _) => Some(client),
        }
    }
}

/// The pending decisions; see the module.
#[derive(Debug, Default)]
pub struct Decisions {
    due: BinaryHeap<Reverse<(Instant, Due)>>,
    script: Option<Vec<Step>>,
    record: Option<Vec<Step>>,
    /// Whether descriptions are recorded.
    describes: bool,
    /// Descriptions of the current step.
    described: Option<Vec<String>>,
}

impl Decisions {
    /// Only these steps.
    pub fn scripted(script: Vec<Step>) -> Decisions {
        let due = script.iter().enumerate();
        let due = due.map(|(index, step)| Reverse((step.at, Due::Scripted(index)))).collect();
        Decisions { due, script: Some(script), ..Decisions::default() }
    }

    /// Records every step from now on, and with `describes` also what it does.
    pub fn keep_record(&mut self, describes: bool) {
        self.describes = describes;
        self.record = Some(Vec::new());
    }

    /// Whether steps are recorded.
    pub fn is_recording(&self) -> bool {
        self.record.is_some()
    }

    /// The steps recorded so far.
    pub fn take_record(&mut self) -> Option<Vec<Step>> {
        self.record.take()
    }

    /// Plans a random decision; ignored under a schedule.
    pub fn plan(&mut self, at: Instant, due: Due) {
        if self.script.is_none() {
            self.due.push(Reverse((at, due)));
        }
    }

    /// Whether only the steps of a schedule happen.
    pub fn is_scripted(&self) -> bool {
        self.script.is_some()
    }

    /// Drops all planned faults.
    pub fn forget_faults(&mut self) {
        self.due.retain(|Reverse((_, due))| !matches!(due, Due::Inject(_)));
    }

    /// Postpones a decision that cannot be carried out yet.
    pub fn put_off(&mut self, until: Instant, due: Due) {
        self.due.push(Reverse((until, due)));
    }

    /// When the next decision is due.
    pub fn peek(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next decision.
    pub fn pop(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse((_, due))| due)
    }

    /// The step of the schedule with this index.
    pub fn step(&self, index: usize) -> Option<Step> {
        self.script.as_ref()?.get(index).cloned()
    }

    /// Begins a step: following descriptions belong to it.
    pub fn begin(&mut self) {
        self.described = self.describes.then(Vec::new);
    }

    /// Whether the current step is described.
    pub fn describes_step(&self) -> bool {
        self.described.is_some()
    }

    /// Adds a description of the current step.
    pub fn describe(&mut self, text: &str) {
        if let Some(described) = &mut self.described {
            // A fault's name comes first; a later text that begins with it replaces it.
            described.pop_if(|before| text.starts_with(before.as_str()));
            described.push(text.to_owned());
        }
    }

    /// The descriptions since [`Decisions::begin`], for a fault that is not a step.
    pub fn effect(&mut self) -> String {
        self.described.take().unwrap_or_default().join("; ")
    }

    /// Ends the step. `hit`: it had a target.
    pub fn end(&mut self, at: Instant, act: Act, choices: Vec<u64>, hit: bool) {
        let effect = self.effect();
        if let Some(record) = &mut self.record {
            record.push(Step { at, act, choices, hit, effect });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripted_steps_run_in_order_and_exclude_planned_ones() {
        let injection = |ms: u64| Step {
            at: Instant(ms),
            act: Act::Inject(Fault::NodeKill),
            choices: vec![ms],
            hit: true,
            effect: String::new(),
        };
        let mut decisions = Decisions::scripted(vec![injection(5), injection(5), injection(9)]);
        decisions.plan(Instant(1), Due::Inject(Fault::NetReset));
        assert_eq!((decisions.peek(), decisions.pop()), (Some(Instant(5)), Some(Due::Scripted(0))));
        decisions.put_off(Instant(7), Due::Scripted(0));
        let order: Vec<Due> = std::iter::from_fn(|| decisions.pop()).collect();
        assert_eq!(order, [1, 0, 2].map(Due::Scripted));
        assert_eq!(decisions.step(2), Some(injection(9)));
    }
}
