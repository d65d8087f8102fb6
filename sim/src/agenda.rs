//! What happens because somebody decided it: strikes of faults, and calls of clients.
//!
//! Owns when the next of them comes, from the seed or from a schedule, and the record of what they were. Must not know
//! what they do. They are no part of the queue, and come before whatever it holds for the same instant: so a schedule
//! without some of them changes nothing about the order of all else.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use zabkeeper_core::{Instant, ServerId};

use crate::faults::Fault;
use crate::observe::ClientId;
use crate::schedule::{Act, Step};

/// Something that is due.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[expect(missing_docs, reason = "fields are called after what they name")]
pub enum Due {
    /// A fault strikes, and draws what it does.
    Strike(Fault),
    /// A client makes its next calls, and draws which. Void once that life is over.
    Work { client: ClientId, life: u64 },
    /// A client has heard something, and goes on: with any call, or one that reads. Void once that life is over.
    GoOn { client: ClientId, life: u64, reads: bool },
    /// A leader that is one no longer is asked something, and does not know it before `until`.
    Press { server: ServerId, until: Instant },
    /// The step of the schedule with this number.
    Scripted(usize),
}

/// See the module.
#[derive(Debug, Default)]
pub struct Agenda {
    due: BinaryHeap<Reverse<(Instant, Due)>>,
    script: Option<Vec<Step>>,
    record: Option<Vec<Step>>,
    /// Are they to be described?
    describes: bool,
    /// What is heard of the step that happens now.
    heard: Option<Vec<String>>,
}

impl Agenda {
    /// Only these steps happen.
    pub fn scripted(script: Vec<Step>) -> Agenda {
        let due = script.iter().enumerate();
        let due = due.map(|(index, step)| Reverse((step.at, Due::Scripted(index)))).collect();
        Agenda { due, script: Some(script), ..Agenda::default() }
    }

    /// Keeps every step from now on, and, where `describes`, what it does.
    pub fn keep_record(&mut self, describes: bool) {
        self.describes = describes;
        self.record = Some(Vec::new());
    }

    /// Are steps kept?
    pub fn is_recording(&self) -> bool {
        self.record.is_some()
    }

    /// The steps kept so far.
    pub fn take_record(&mut self) -> Option<Vec<Step>> {
        self.record.take()
    }

    /// Plans what the seed brings; under a schedule nothing is.
    pub fn plan(&mut self, at: Instant, due: Due) {
        if self.script.is_none() {
            self.due.push(Reverse((at, due)));
        }
    }

    /// Does only happen what a schedule says?
    pub fn is_scripted(&self) -> bool {
        self.script.is_some()
    }

    /// No strike is planned any more.
    pub fn forget_strikes(&mut self) {
        self.due.retain(|Reverse((_, due))| !matches!(due, Due::Strike(_)));
    }

    /// What came cannot happen yet.
    pub fn put_off(&mut self, until: Instant, due: Due) {
        self.due.push(Reverse((until, due)));
    }

    /// When the next step is due.
    pub fn peek(&self) -> Option<Instant> {
        self.due.peek().map(|Reverse((at, _))| *at)
    }

    /// The next step.
    pub fn pop(&mut self) -> Option<Due> {
        self.due.pop().map(|Reverse((_, due))| due)
    }

    /// The step of the schedule with this number.
    pub fn step(&self, index: usize) -> Option<Step> {
        self.script.as_ref()?.get(index).cloned()
    }

    /// A step begins: what is said from here on is said of it.
    pub fn begin(&mut self) {
        self.heard = self.describes.then(Vec::new);
    }

    /// Is a step to be described?
    pub fn listens(&self) -> bool {
        self.heard.is_some()
    }

    /// What happens in the course of the step.
    pub fn hear(&mut self, text: &str) {
        if let Some(heard) = &mut self.heard {
            // A fault is named first, and may say more of itself afterwards.
            heard.pop_if(|before| text.starts_with(before.as_str()));
            heard.push(text.to_owned());
        }
    }

    /// What was heard since [`Agenda::begin`], of something that is no step.
    pub fn told(&mut self) -> String {
        self.heard.take().unwrap_or_default().join("; ")
    }

    /// The step is over. `hit`: it has met somebody.
    pub fn end(&mut self, at: Instant, act: Act, choices: Vec<u64>, hit: bool) {
        let told = self.told();
        if let Some(record) = &mut self.record {
            record.push(Step { at, act, choices, hit, told });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn steps_come_in_order_and_a_schedule_leaves_no_room_for_others() {
        let strike = |ms: u64| Step {
            at: Instant(ms),
            act: Act::Strike(Fault::NodeKill),
            choices: vec![ms],
            hit: true,
            told: String::new(),
        };
        let mut agenda = Agenda::scripted(vec![strike(5), strike(5), strike(9)]);
        agenda.plan(Instant(1), Due::Strike(Fault::NetReset));
        assert_eq!((agenda.peek(), agenda.pop()), (Some(Instant(5)), Some(Due::Scripted(0))));
        agenda.put_off(Instant(7), Due::Scripted(0));
        let order: Vec<Due> = std::iter::from_fn(|| agenda.pop()).collect();
        assert_eq!(order, [1, 0, 2].map(Due::Scripted));
        assert_eq!(agenda.step(2), Some(strike(9)));
    }
}
