//! Where a run is to end before its time, because somebody wants to see what is there.
//!
//! Owns the conditions and their spelling. Must not influence what happens before.

use zabkeeper_core::io::Mark;
use zabkeeper_core::{Instant, ServerId};

use crate::judge;
use crate::shared::Shared;

/// The run ends at whatever comes first.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stop {
    /// After all that happens up to this time.
    pub until: Option<Instant>,
    /// After what brings about the event of this number.
    pub event: Option<u64>,
    /// See [`Break`].
    pub on: Option<Break>,
}

/// What ends a run when it happens for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Break {
    /// A server reaches this branch of its code.
    Mark(Mark),
    /// This promise is broken. Others are then passed over, but for panics and the simulator's own.
    Promise(&'static str),
}

impl Stop {
    /// The promise that alone ends the run.
    pub fn promise(&self) -> Option<&'static str> {
        match self.on {
            Some(Break::Promise(id)) => Some(id),
            Some(Break::Mark(_)) | None => None,
        }
    }

    /// Why the run ends after what has just happened, if it does. `ran`: the server that has acted.
    pub(crate) fn met(&self, ran: Option<ServerId>, shared: &Shared) -> Option<String> {
        match (self.on, ran) {
            (Some(Break::Mark(mark)), Some(server)) if shared.tally.has_hit(mark) => {
                return Some(format!("s{server} reaches {mark:?}"));
            }
            _ => {}
        }
        let number = self.event.filter(|number| shared.trace.events() >= *number)?;
        Some(format!("event {number} has happened"))
    }
}

impl Break {
    /// A mark's name or a promise's id.
    ///
    /// # Errors
    /// Names all of them.
    pub fn parse(text: &str) -> Result<Break, String> {
        let mark = Mark::ALL.iter().find(|mark| format!("{mark:?}").eq_ignore_ascii_case(text));
        let promise = || judge::promises().into_iter().find(|id| id.eq_ignore_ascii_case(text));
        mark.map(|mark| Break::Mark(*mark)).or_else(|| promise().map(Break::Promise)).ok_or_else(
            || {
                let marks: Vec<String> = Mark::ALL.iter().map(|mark| format!("{mark:?}")).collect();
                let promises = judge::promises().join(" ");
                format!("promises are {promises}; marks of the core are {}", marks.join(" "))
            },
        )
    }
}
